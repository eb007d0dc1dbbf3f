//! Where limiters and engines count.

use crate::engine::backend::Backend;
use crate::engine::{Engine, EngineBuilder, MemoryBackend};
use crate::limit::LimitError;
use crate::limiter::{Builder, Limiter};
use crate::memory::Memory;

/// A store for counters: [`Memory`] in this process, or one that several processes share, such as
/// `Redis` of the crate `sluicegate-redis`.
///
/// [`Builder::on`] and [`EngineBuilder::on`] take either. Code for every store names this trait, or
/// takes a `Limiter<dyn Backend>`:
///
/// ```
/// use sluicegate::backend::Backend;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::{CounterStore, LimitError, Limiter, Memory};
///
/// fn per_key(store: &impl CounterStore) -> Result<Limiter<dyn Backend>, LimitError> {
///     let limiter = Limiter::builder().name("key").limit(TokenBucket::per_second(10)).on(store)?;
///     Ok(limiter.into())
/// }
///
/// let limiter = per_key(&Memory::new())?;
/// assert_eq!(limiter.name(), "key");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub trait CounterStore {
    /// What decides on its counters.
    type Backend: Backend;

    /// The limiter of a builder: see [`Builder::on`].
    ///
    /// # Errors
    /// When the limits are invalid, or the name is missing or taken.
    fn limiter(&self, builder: Builder) -> Result<Limiter<Self::Backend>, LimitError>;

    /// The engine of a builder: see [`EngineBuilder::on`].
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency, or a domain is reserved.
    fn engine(&self, builder: EngineBuilder) -> Result<Engine<Self::Backend>, LimitError>;
}

impl CounterStore for Memory {
    type Backend = MemoryBackend;

    fn limiter(&self, builder: Builder) -> Result<Limiter, LimitError> {
        builder.memory(self).build()
    }

    fn engine(&self, builder: EngineBuilder) -> Result<Engine, LimitError> {
        builder.memory(self).build()
    }
}
