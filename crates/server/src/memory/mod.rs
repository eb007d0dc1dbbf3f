//! Memory budget for clients: one sum over connections, requests and responses of all endpoints.
//!
//! ```text
//!   budget ── endpoint (gRPC, HTTP, RESP, admin) ── connection account ── charge
//! ```
//!
//! A connection reserves a fixed cost when it is accepted. Requests that arrive in pieces, streams
//! and responses that wait for the client are charged to its account, which reserves from the
//! budget in chunks: a request that arrives whole, and is read, touches no shared counter.
//!
//! | reservation | limit, as a part of the budget |
//! |---|---|
//! | messages (requests and responses) of all endpoints | 1/2 |
//! | everything of one endpoint | 3/4 |
//! | everything except the admin endpoint | 15/16 |
//! | everything | 1 |
//!
//! An exhausted limit sheds the reservation that exceeds it. Messages are shed before connections,
//! so that small requests are still answered while long ones are refused.

mod account;
mod gather;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub(crate) use self::account::{Account, Charge, Unsent};
pub(crate) use self::gather::{Gather, GatherError};

/// Memory budget of all endpoints of a service. Clones share it.
///
/// ```
/// use sluicegate_server::memory::MemoryBudget;
///
/// let budget = MemoryBudget::new(64 << 20);
/// assert_eq!((budget.bytes_max(), budget.reserved_bytes()), (64 << 20, 0));
/// assert_eq!(MemoryBudget::default().bytes_max(), 256 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    total: Arc<Total>,
}

#[derive(Debug)]
struct Total {
    bytes_max: usize,
    reserved: AtomicUsize,
    messages: AtomicUsize,
    refusals: AtomicU64,
    /// Bytes released so far, for the decision whether to trim the allocator.
    released: AtomicU64,
}

/// Kind of client at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// Anyone: a part of the budget stays free for the other endpoints.
    #[default]
    Clients,
    /// Operators: the whole budget.
    Operators,
}

/// Reservations of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointBudget {
    total: Arc<Total>,
    reserved: AtomicUsize,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    messages: usize,
    endpoint: usize,
    total: usize,
}

/// Purpose of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Connection,
    Message,
}

impl MemoryBudget {
    /// Budget in bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let (reserved, messages, refusals, released) = Default::default();
        Self { total: Arc::new(Total { bytes_max, reserved, messages, refusals, released }) }
    }

    /// Size of the budget.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.total.bytes_max
    }

    /// Bytes reserved now.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.total.reserved.load(Relaxed)
    }

    /// Reservations that were refused.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.total.refusals.load(Relaxed)
    }

    /// Bytes that were reserved once and are not any more. Only grows.
    #[must_use]
    pub fn released_bytes(&self) -> u64 {
        self.total.released.load(Relaxed)
    }

    pub(crate) fn endpoint(&self, share: Share) -> Arc<EndpointBudget> {
        let all = self.total.bytes_max;
        let limits = match share {
            Share::Clients => {
                Limits { messages: all / 2, endpoint: all / 4 * 3, total: all - all / 16 }
            }
            Share::Operators => Limits { messages: all, endpoint: all, total: all },
        };
        Arc::new(EndpointBudget {
            total: self.total.clone(),
            reserved: AtomicUsize::new(0),
            limits,
        })
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(256 << 20)
    }
}

impl EndpointBudget {
    /// All or nothing.
    fn reserve(&self, purpose: Purpose, bytes: usize) -> bool {
        let total = &*self.total;
        let messages = if purpose == Purpose::Message { bytes } else { 0 };
        let fits = take(&total.messages, messages, self.limits.messages)
            && (take(&self.reserved, bytes, self.limits.endpoint)
                && (take(&total.reserved, bytes, self.limits.total)
                    || give(&self.reserved, bytes))
                || give(&total.messages, messages));
        if !fits {
            total.refusals.fetch_add(1, Relaxed);
        }
        fits
    }

    fn release(&self, purpose: Purpose, bytes: usize) {
        give(&self.total.reserved, bytes);
        give(&self.reserved, bytes);
        if purpose == Purpose::Message {
            give(&self.total.messages, bytes);
        }
        self.total.released.fetch_add(bytes as u64, Relaxed);
    }
}

/// Adds to a counter unless that exceeds the limit.
fn take(counter: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    if bytes == 0 {
        return true;
    }
    let before = counter.fetch_add(bytes, Relaxed);
    before.saturating_add(bytes) <= limit || give(counter, bytes)
}

/// Undoes [`take`]; false, as the outcome of a reservation that was undone.
fn give(counter: &AtomicUsize, bytes: usize) -> bool {
    counter.fetch_sub(bytes, Relaxed);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_leaves_a_quarter_and_operators_have_everything() {
        let budget = MemoryBudget::new(1_600);
        let (http, grpc) = (budget.endpoint(Share::Clients), budget.endpoint(Share::Clients));
        let admin = budget.endpoint(Share::Operators);
        assert!(http.reserve(Purpose::Connection, 1_200));
        assert!(!http.reserve(Purpose::Connection, 1));
        assert!(grpc.reserve(Purpose::Connection, 300));
        assert!(!grpc.reserve(Purpose::Connection, 1), "the last sixteenth is the operators'");
        assert!(admin.reserve(Purpose::Message, 100));
        assert!(!admin.reserve(Purpose::Message, 1));
        assert_eq!((budget.reserved_bytes(), budget.refusals()), (1_600, 3));
        for (endpoint, bytes) in [(&http, 1_200), (&grpc, 300)] {
            endpoint.release(Purpose::Connection, bytes);
        }
        admin.release(Purpose::Message, 100);
        assert_eq!((budget.reserved_bytes(), budget.released_bytes()), (0, 1_600));
        assert!(http.reserve(Purpose::Message, 800) && !grpc.reserve(Purpose::Message, 1));
        assert!(grpc.reserve(Purpose::Connection, 700), "connections outlast messages");
    }
}
