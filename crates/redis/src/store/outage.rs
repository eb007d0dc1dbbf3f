//! What the engine needs to decide without the store: where local shares start, what time it is
//! there, and what the store has to absorb afterwards.

use sluicegate_core::account::Account;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::time::Timestamp;

use super::Store;
use super::observed::Observation;
use crate::script::ScriptPart;

impl Store {
    /// A part was admitted without the store.
    pub(crate) fn journal(&self, part: &ScriptPart, holder: Option<Holder>) {
        self.inner.journal.write(part, holder, self.inner.store_clock.now());
    }

    /// Whether rules with a local share are decided from it, although the store may be reachable:
    /// other nodes may not have reported yet what they admitted.
    #[inline]
    pub(crate) fn is_local_mode(&self) -> bool {
        self.inner.rejoin.is_local_mode()
    }

    /// A request is decided from a local share. If the store cannot be reached, this node stays in
    /// local mode until all nodes have rejoined.
    pub(crate) fn decides_locally(&self) {
        if !self.inner.link.is_up() {
            self.inner.enter_local_mode();
        }
    }

    /// The store's time, as this node estimates it.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.inner.store_clock.now()
    }

    /// The last observed record of a part, if this node's local share does not start from it
    /// already.
    pub(crate) fn local_seed(&self, part: &ScriptPart) -> Option<Account> {
        self.inner.observed.seed(&part.key, self.inner.hash_of(part), &part.rule)
    }

    /// A record that was read without a script of ours.
    pub(crate) fn observe(&self, part: &ScriptPart, account: Account, at: Timestamp) {
        let inner = &*self.inner;
        let observation = Observation::new(part.rule.clone(), account, 0, at, inner.link.epoch());
        inner.observe(part.key.clone(), inner.hash_of(part), observation);
    }
}
