//! Account of one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{EndpointBudget, Purpose};

/// Unit of reservations for messages, so that most changes of an account stay within it.
const CHUNK_BYTES: usize = 16 << 10;
/// Reserved bytes without use that an account retains until the next [`Account::trim`].
const SLACK_BYTES: usize = 128 << 10;
/// Generations of responses: those of the current period and of the two before.
const GENERATIONS: usize = 3;

/// Memory that one connection takes: a fixed part, and its messages. Released with the last
/// reference.
#[derive(Debug)]
pub(crate) struct Account {
    endpoint: Arc<EndpointBudget>,
    fixed: AtomicUsize,
    /// Bytes charged for messages.
    charged: AtomicUsize,
    /// Bytes reserved for messages; a copy of `reserved` that needs no lock to be read.
    ceiling: AtomicUsize,
    reserved: Mutex<usize>,
    /// Responses that the client has not received, by the period in which they were created.
    unsent: [AtomicUsize; GENERATIONS],
    period: AtomicUsize,
}

/// Charge for a message, released when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

/// Response that the client has not received yet.
#[derive(Debug)]
pub(crate) struct Unsent {
    charge: Charge,
    generation: usize,
}

impl Account {
    /// Opens an account with a fixed cost, if the budget allows one more.
    pub(crate) fn open(endpoint: &Arc<EndpointBudget>, fixed: usize) -> Option<Arc<Self>> {
        endpoint.reserve(Purpose::Connection, fixed).then(|| {
            let (charged, ceiling, reserved, unsent, period) = Default::default();
            let (endpoint, fixed) = (endpoint.clone(), AtomicUsize::new(fixed));
            Arc::new(Self { endpoint, fixed, charged, ceiling, reserved, unsent, period })
        })
    }

    /// Raises the fixed cost, if the budget allows it.
    pub(crate) fn raise_fixed(&self, bytes: usize) -> bool {
        let is_reserved = self.endpoint.reserve(Purpose::Connection, bytes);
        if is_reserved {
            self.fixed.fetch_add(bytes, Relaxed);
        }
        is_reserved
    }

    /// Charges the account, if the budget allows it.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.add(bytes).then(|| Charge { account: self.clone(), bytes })
    }

    fn add(&self, bytes: usize) -> bool {
        let charged = self.charged.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if charged <= self.ceiling.load(Relaxed) || self.grow() {
            return true;
        }
        self.charged.fetch_sub(bytes, Relaxed);
        false
    }

    fn subtract(&self, bytes: usize) {
        let charged = self.charged.fetch_sub(bytes, Relaxed).saturating_sub(bytes);
        if self.ceiling.load(Relaxed) > charged.saturating_add(SLACK_BYTES) {
            self.trim();
        }
    }

    fn grow(&self) -> bool {
        let mut reserved = self.reserved.lock();
        let needed = self.needed();
        if needed > *reserved {
            if !self.endpoint.reserve(Purpose::Message, needed - *reserved) {
                return false;
            }
            *reserved = needed;
            self.ceiling.store(needed, Relaxed);
        }
        true
    }

    /// Releases reservations that no message uses.
    pub(crate) fn trim(&self) {
        let mut reserved = self.reserved.lock();
        let needed = self.needed();
        if needed < *reserved {
            self.ceiling.store(needed, Relaxed);
            self.endpoint.release(Purpose::Message, *reserved - needed);
            *reserved = needed;
        }
    }

    fn needed(&self) -> usize {
        self.charged.load(Relaxed).next_multiple_of(CHUNK_BYTES)
    }

    /// Begins the next period. Whether a response has waited for the client for two whole periods.
    pub(crate) fn has_stuck_response(&self) -> bool {
        let period = self.period.load(Relaxed).wrapping_add(1) % GENERATIONS;
        self.period.store(period, Relaxed);
        self.unsent.get(period).is_some_and(|unsent| unsent.load(Relaxed) > 0)
    }

    /// Responses that the client has not received.
    pub(crate) fn unsent_responses(&self) -> usize {
        self.unsent.iter().map(|unsent| unsent.load(Relaxed)).sum()
    }

    fn begin_response(&self) -> usize {
        let generation = self.period.load(Relaxed);
        if let Some(unsent) = self.unsent.get(generation) {
            unsent.fetch_add(1, Relaxed);
        }
        generation
    }

    fn end_response(&self, generation: usize) {
        if let Some(unsent) = self.unsent.get(generation) {
            unsent.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.endpoint.release(Purpose::Message, *self.reserved.get_mut());
        self.endpoint.release(Purpose::Connection, *self.fixed.get_mut());
    }
}

impl Charge {
    /// Changes the charge; growth fails if the budget does not allow it, and changes nothing then.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            if !self.account.add(bytes - self.bytes) {
                return false;
            }
        } else if bytes < self.bytes {
            self.account.subtract(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charge of a response from now until the client has received it.
    pub(crate) fn into_unsent(self) -> Unsent {
        let generation = self.account.begin_response();
        Unsent { charge: self, generation }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.bytes);
    }
}

impl Unsent {
    /// The client receives it: its time starts again.
    pub(crate) fn renew(&mut self) {
        self.charge.account.end_response(self.generation);
        self.generation = self.charge.account.begin_response();
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.charge.account.end_response(self.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBudget, Share};
    use super::*;

    fn account(budget: &MemoryBudget) -> Arc<Account> {
        Account::open(&budget.endpoint(Share::Clients), 1 << 10).unwrap()
    }

    #[test]
    fn charges_are_reserved_in_chunks_and_released_with_the_account() {
        let budget = MemoryBudget::new(1 << 20);
        let account = account(&budget);
        assert_eq!(budget.reserved_bytes(), 1 << 10);
        let small = account.charge(100).unwrap();
        assert_eq!(budget.reserved_bytes(), (1 << 10) + CHUNK_BYTES);
        let mut large = account.charge(20 << 10).unwrap();
        assert!(large.resize(300 << 10));
        assert!(!large.resize(600 << 10), "messages have half of the budget");
        assert_eq!(large.bytes(), 300 << 10);
        drop(large);
        assert_eq!(budget.reserved_bytes(), (1 << 10) + CHUNK_BYTES, "large charges at once");
        drop(small);
        account.trim();
        assert_eq!(budget.reserved_bytes(), 1 << 10);
        let charge = account.charge(100).unwrap();
        drop(account);
        assert!(budget.reserved_bytes() > 0, "the charge is part of it");
        drop(charge);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn the_fixed_cost_is_released_with_the_account() {
        let budget = MemoryBudget::new(16 << 10);
        let account = account(&budget);
        assert!(account.raise_fixed(11 << 10));
        assert_eq!(budget.reserved_bytes(), 12 << 10);
        assert!(!account.raise_fixed(1), "one endpoint has three quarters of the budget");
        drop(account);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn a_response_is_stuck_after_two_whole_periods() {
        let budget = MemoryBudget::new(1 << 20);
        let account = account(&budget);
        let mut unsent = account.charge(1).unwrap().into_unsent();
        assert!(!account.has_stuck_response());
        assert!(!account.has_stuck_response());
        unsent.renew();
        assert!(!account.has_stuck_response());
        assert!(!account.has_stuck_response());
        assert!(account.has_stuck_response());
        drop(unsent);
        assert!(!(0..4).any(|_| account.has_stuck_response()));
    }
}
