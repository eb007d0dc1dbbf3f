//! The limiter as seen by its store: its section of a snapshot, and its unused memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::{LimitConfig, continued};

use super::Inner;
use crate::memory::Section;
use crate::snapshot::{Entry, Restored, Sink};

impl Section for Inner {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_to(&self, sink: &mut Sink<'_>) -> io::Result<()> {
        // Blocks changes of limits: the states must match the limits.
        let _changing = self.changing.lock();
        let rule = self.rule.read().clone();
        sink.limiter(&self.name, self.shards.bits(), rule.mode, &rule.limits)?;
        self.shards
            .each_account(self.now(), |hash, account| sink.entry(&Entry { hash, account }))?;
        sink.end()
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    fn reclaim(&self) {
        self.shards.reclaim(self.now());
    }
}

/// The limits that a state was written under, and their mapping to the current ones.
struct Written {
    steps: Vec<EnforcedLimit>,
    from: Vec<Option<usize>>,
    same: bool,
}

impl Inner {
    /// Restores the state of this limiter from a snapshot.
    pub(super) fn take_over(&self, restored: &mut Restored, now: Timestamp) {
        let rule = self.rule.read().clone();
        let plan = rule.plan_at(now);
        let written = |mode: Mode, limits: Vec<LimitConfig>| {
            let steps =
                limits.iter().filter_map(|limit| EnforcedLimit::new(limit.at(now), mode).ok());
            let steps: Vec<EnforcedLimit> = steps.collect();
            let from = continued(&rule.limits, &limits);
            let same = limits == rule.limits && mode == rule.mode;
            Written { same, from, steps }
        };
        restored.limiter(&self.name, written, |written, Entry { hash, mut account }| {
            if !written.same {
                let (old, new) = (&written.steps, &plan.steps);
                account.change(old, new, &written.from, CarryOver::Used, now);
            }
            self.shards.put_restored(hash, account, now);
        });
    }
}

/// Restores the limiter from its store's snapshot and registers it with the store.
pub(super) fn introduce(inner: &Arc<Inner>, now: Timestamp) {
    let store = inner.shards.store();
    store.with_restored(|restored| inner.take_over(restored, now));
    let section: Arc<dyn Section> = inner.clone();
    store.add_limiter(&section);
}
