//! Who sent a request: the key that a limiter counts it under.
//!
//! | to count by | write |
//! |---|---|
//! | an API key, a tenant, any header | `header("x-api-key")` |
//! | the peer's address, with axum | `peer_ip(\|extensions\| extensions.get::<ConnectInfo<SocketAddr>>().map(\|info\| info.0))` |
//! | the peer's address, with tonic | `peer_ip(\|extensions\| extensions.get::<TcpConnectInfo>()?.remote_addr())` |
//! | an address from elsewhere, such as a header that a trusted proxy sets | `ip(\|request\| …)` |
//! | anything else | a closure `\|request: &Parts\| Some(…)` |
//! | all of several | `(header("x-tenant"), header("x-user"))` |
//! | the first that there is | `first_of((header("x-api-key"), peer_ip(…)))` |
//! | nothing: everybody together | `Everybody` |
//!
//! A key by itself is what it says, `alice` or `192.0.2.7`, so that other code can ask the same limiter about the same identity.
//! Where several are put together each carries its length or its place, so that no two identities meet: `(ab, c)` is
//! not `(a, bc)`, and an API key that reads `192.0.2.7` is not that address.
//!
//! A header is whatever the client says. Count by one only behind something that has checked it; a client that can choose its
//! key has as many budgets as it likes.

mod ip;
mod several;

use ::http::HeaderName;
use ::http::request::Parts;

pub use ip::{Ip, PeerAddr, ip, peer, peer_ip};
pub use several::{FirstOf, first_of};

/// Knows who sent a request.
///
/// Implemented by everything in this [module](self), by tuples of them, and by closures from the request's head to the bytes of a
/// key, if there are any:
///
/// ```
/// use http::request::Parts;
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::RateLimitLayer;
///
/// let by_method = |request: &Parts| Some(request.method.to_string());
/// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, by_method);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub trait Identify: Send + Sync {
    /// Appends the key of whoever sent `request`; `None` if that is not known, and then what was appended does not count.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate::tower::key::{Identify, header};
    ///
    /// let (request, ()) = Request::builder().header("x-user", "alice").body(())?.into_parts();
    /// let mut key = Vec::new();
    /// assert!(header("x-user").identify(&request, &mut key).is_some());
    /// assert_eq!(key, b"alice");
    /// # Ok::<(), http::Error>(())
    /// ```
    fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()>;
}

/// By a header: see [`header`].
#[derive(Debug, Clone)]
pub struct Header {
    name: HeaderName,
}

/// Everybody counts as one, under the empty key.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::RateLimitLayer;
/// use sluicegate::tower::key::Everybody;
///
/// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10_000))?, Everybody);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Everybody;

/// By the value of a header: the first, if there are several. One that is empty is as good as none.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::RateLimitLayer;
/// use sluicegate::tower::key::header;
///
/// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-api-key"));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
///
/// # Panics
/// When no header can have this name.
#[must_use]
pub fn header(name: &str) -> Header {
    match HeaderName::try_from(name) {
        Ok(name) => Header { name },
        Err(_) => panic!("`{name}` cannot be the name of a header: use letters, digits and `-`"),
    }
}

// === impl Identify ===

impl Identify for Header {
    fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
        let value = request.headers.get(&self.name).filter(|value| !value.is_empty())?;
        key.extend_from_slice(value.as_bytes());
        Some(())
    }
}

impl Identify for Everybody {
    fn identify(&self, _request: &Parts, _key: &mut Vec<u8>) -> Option<()> {
        Some(())
    }
}

impl<F, K> Identify for F
where
    F: Fn(&Parts) -> Option<K> + Send + Sync,
    K: AsRef<[u8]>,
{
    fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
        key.extend_from_slice(self(request)?.as_ref());
        Some(())
    }
}
