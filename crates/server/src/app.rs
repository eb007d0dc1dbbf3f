//! Parts of a service that its endpoints share.

use std::sync::Arc;

use sluicegate::Engine;

use crate::health::Health;
use crate::memory::MemoryBudget;
use crate::reservations::Holds;
use crate::rls::handler::Service;
use crate::rls::options::Options;
use crate::telemetry::Telemetry;

impl Service {
    /// Replaces the memory budget of its endpoints. Has no effect once the service was cloned.
    #[must_use]
    pub fn with_memory_budget(mut self, memory: MemoryBudget) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.memory = memory;
        }
        self
    }

    /// Memory budget of its endpoints.
    #[must_use]
    pub fn memory(&self) -> &MemoryBudget {
        &self.inner.memory
    }

    /// The engine whose rules it enforces.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// How Envoy is answered.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Whether it is fit to be asked.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    /// What is held for later.
    #[must_use]
    pub fn holds(&self) -> &Holds {
        &self.inner.holds
    }

    /// What it counts about itself.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }
}
