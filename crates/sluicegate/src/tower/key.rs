//! Identifies the sender of a request: the key that a limiter counts it under.
//!
//! | to count by | write |
//! |---|---|
//! | an API key, a tenant, any header | `header("x-api-key")` |
//! | the peer's address, with axum | `peer_ip(\|extensions\| extensions.get::<ConnectInfo<SocketAddr>>().map(\|info\| info.0))` |
//! | the peer's address, with tonic | `peer_ip(\|extensions\| extensions.get::<TcpConnectInfo>()?.remote_addr())` |
//! | the client behind load balancers and proxies | `peer_ip(…).behind(Proxies::parse(["10.0.0.0/8"])?)` |
//! | an address from elsewhere, such as a header that a trusted proxy sets | `ip(\|request\| …)` |
//! | anything else | a closure `\|request: &Parts\| Some(…)` that returns an owned key |
//! | all of several | `(header("x-tenant"), header("x-user"))` |
//! | the first that is present | `first_of((header("x-api-key"), peer_ip(…)))` |
//! | nothing: all requests together | `Everybody` |
//!
//! A single key is the plain value, `alice` or `192.0.2.7`, so that other code can query the same
//! limiter for the same identity. Parts of a combined key carry their length or index, so that
//! identities do not collide: `(ab, c)` is not `(a, bc)`, and the API key `192.0.2.7` is not that
//! address.
//!
//! The layer sets the treatment of requests without a key; [`Identify::on_missing`] sets it for one
//! key: `header("x-partner").on_missing(Missing::Pass)`.
//!
//! The client chooses the value of a header. Use one as a key only behind a component that has
//! verified it; a client that can choose its key has unlimited budgets.

use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::http::request::Parts;
use ::http::{Extensions, HeaderName};
pub use sluicegate_rules::mapping::{Proxies, ProxiesError};

use super::Missing;
use crate::http::HeaderLines;

/// Identifies the sender of a request.
///
/// Implemented by everything in this [module](self), by tuples of them, and by closures from the
/// request's head to the optional bytes of a key:
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
    /// Appends the key of the sender of `request`. If it returns `None`, the sender is unknown and
    /// the caller discards the appended bytes.
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

    /// The treatment of requests without this key; `None` for that of the layer
    /// ([`RateLimitLayer::on_missing`](super::RateLimitLayer::on_missing)).
    fn missing(&self) -> Option<Missing> {
        None
    }

    /// This key with its own treatment of requests without it, in place of the layer's.
    ///
    /// ```
    /// use http::request::Parts;
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::key::{Identify, header, peer};
    /// use sluicegate::tower::{Missing, RateLimitLayer};
    ///
    /// let per_partner = Limiter::new(TokenBucket::per_second(100).named("partner"))?;
    /// let per_address = Limiter::new(TokenBucket::per_second(10).named("address"))?;
    /// // Other requests than those of partners are limited by address only.
    /// let partner = header("x-partner").on_missing(Missing::Pass);
    /// let layer = RateLimitLayer::new(per_partner, partner)
    ///     .and(per_address, peer().on_missing(Missing::Reject));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    fn on_missing(self, missing: Missing) -> OnMissing<Self>
    where
        Self: Sized,
    {
        OnMissing { key: self, missing }
    }
}

/// A key with its own treatment of requests without it: see [`Identify::on_missing`].
#[derive(Debug, Clone)]
pub struct OnMissing<K> {
    key: K,
    missing: Missing,
}

impl<K: Identify> Identify for OnMissing<K> {
    fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
        self.key.identify(request, key)
    }

    fn missing(&self) -> Option<Missing> {
        Some(self.missing)
    }
}

/// By a header: see [`header`].
#[derive(Debug, Clone)]
pub struct Header {
    name: HeaderName,
}

/// All requests share the empty key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Everybody;

/// By the value of a header: the first, if there are several. An empty value counts as missing.
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
/// When the name is not a valid header name.
#[must_use]
#[track_caller]
pub fn header(name: &str) -> Header {
    match HeaderName::try_from(name) {
        Ok(name) => Header { name },
        Err(_) => panic!("`{name}` cannot be the name of a header: use letters, digits and `-`"),
    }
}

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

/// By address: see [`ip`], [`peer_ip`] and [`peer`].
///
/// By default IPv6 addresses count by their /64 prefix and IPv4 addresses individually. An
/// IPv4-mapped IPv6 address (`::ffff:192.0.2.7`, as reported by a dual-stack socket) is an IPv4
/// address.
///
/// The key is the address in its usual form, or the network: `192.0.2.7`, `2001:db8:1:2::/64`.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::RateLimitLayer;
/// use sluicegate::tower::key::peer;
///
/// let by_site = peer().v4_prefix(24).v6_prefix(48);
/// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, by_site);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub struct Ip {
    find: Box<Find>,
    v4_bits: u32,
    v6_bits: u32,
}

type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// The peer's address as an extension of the request, for servers without their own type for it:
/// see [`peer`].
///
/// ```
/// use sluicegate::tower::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 7], 50_000).into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// By the address that `find` returns.
///
/// ```
/// use http::request::Parts;
/// use sluicegate::tower::key::ip;
///
/// // Behind a proxy of ours, which overwrites the header: what a client sends never gets here.
/// let client = ip(|request: &Parts| request.headers.get("x-real-ip")?.to_str().ok()?.parse().ok());
/// ```
pub fn ip(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Ip {
    Ip { find: Box::new(find), v4_bits: V4_BITS, v6_bits: V6_BITS }
}

/// By the peer's address, which the server has stored in the extensions of the request.
///
/// Each server has its own type for it. axum has `ConnectInfo<SocketAddr>`, if the router is served
/// with `into_make_service_with_connect_info::<SocketAddr>()`; tonic always has `TcpConnectInfo`:
///
/// ```
/// use std::net::SocketAddr;
/// use sluicegate::tower::key::peer_ip;
///
/// # #[derive(Clone)]
/// # struct ConnectInfo<T>(T);
/// # #[derive(Clone)]
/// # struct TcpConnectInfo;
/// # impl TcpConnectInfo { fn remote_addr(&self) -> Option<SocketAddr> { None } }
/// let axum = peer_ip(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
/// let tonic = peer_ip(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
/// ```
pub fn peer_ip(find: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Ip {
    ip(move |request| Some(find(&request.extensions)?.ip()))
}

/// By the peer's address, from the [`PeerAddr`] extension.
///
/// ```
/// use http::Request;
/// use sluicegate::tower::key::{Identify, PeerAddr, peer};
///
/// let address = PeerAddr("[2001:db8:1:2:3::4]:50000".parse().unwrap());
/// let (request, ()) = Request::builder().extension(address).body(())?.into_parts();
/// let mut key = Vec::new();
/// peer().identify(&request, &mut key);
/// assert_eq!(key, b"2001:db8:1:2::/64");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn peer() -> Ip {
    peer_ip(|extensions| Some(extensions.get::<PeerAddr>()?.0))
}

const V4_BITS: u32 = Ipv4Addr::BITS;
/// The smallest prefix that providers assign to a customer.
const V6_BITS: u32 = 64;

impl Ip {
    /// The client behind these proxies, where the address found is one of them: the nearest address
    /// in `X-Forwarded-For`, `Forwarded` or `X-Real-IP` that is not. Headers of other peers are
    /// ignored: a client can send any.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate::tower::key::{Identify, PeerAddr, Proxies, peer};
    ///
    /// let client = peer().behind(Proxies::parse(["10.0.0.0/8"])?);
    /// let balancer = PeerAddr("10.0.0.1:50000".parse()?);
    /// let request = Request::builder()
    ///     .extension(balancer)
    ///     .header("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.2");
    /// let (request, ()) = request.body(())?.into_parts();
    /// let mut key = Vec::new();
    /// client.identify(&request, &mut key);
    /// assert_eq!(key, b"203.0.113.9", "the client wrote the address before it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn behind(self, proxies: Proxies) -> Self {
        let find = self.find;
        let client = move |request: &Parts| {
            let peer = find(request)?;
            let is_trusted = proxies.trust(peer);
            Some(if is_trusted {
                proxies.client_ip(peer, &HeaderLines(&request.headers))
            } else {
                peer
            })
        };
        Self { find: Box::new(client), ..self }
    }

    /// Prefix length of an IPv4 key; 32 by default, which is also the maximum.
    #[must_use]
    pub fn v4_prefix(self, bits: u32) -> Self {
        Self { v4_bits: bits.min(Ipv4Addr::BITS), ..self }
    }

    /// Prefix length of an IPv6 key; 64 by default, 128 at most.
    #[must_use]
    pub fn v6_prefix(self, bits: u32) -> Self {
        Self { v6_bits: bits.min(Ipv6Addr::BITS), ..self }
    }

    fn network(&self, address: IpAddr) -> (IpAddr, Option<u32>) {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(Ipv4Addr::BITS - self.v4_bits).unwrap_or(0);
                let network = Ipv4Addr::from_bits(v4.to_bits() & mask);
                (network.into(), Some(self.v4_bits).filter(|bits| *bits < Ipv4Addr::BITS))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(Ipv6Addr::BITS - self.v6_bits).unwrap_or(0);
                let network = Ipv6Addr::from_bits(v6.to_bits() & mask);
                (network.into(), Some(self.v6_bits).filter(|bits| *bits < Ipv6Addr::BITS))
            }
        }
    }
}

impl Identify for Ip {
    fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
        // Writing to a vector cannot fail.
        let _ = match self.network((self.find)(request)?) {
            (network, None) => write!(key, "{network}"),
            (network, Some(bits)) => write!(key, "{network}/{bits}"),
        };
        Some(())
    }
}

impl fmt::Debug for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ip")
            .field("v4_bits", &self.v4_bits)
            .field("v6_bits", &self.v6_bits)
            .finish_non_exhaustive()
    }
}

/// By the first key that is present: see [`first_of`].
#[derive(Debug, Clone)]
pub struct FirstOf<T>(T);

/// By the first key of a tuple that is present.
///
/// ```
/// use http::Request;
/// use sluicegate::tower::key::{Identify, first_of, header, peer};
///
/// // Customers by their key, everybody else by address.
/// let who = first_of((header("x-api-key"), peer()));
///
/// let (request, ()) = Request::builder().header("x-api-key", "k7").body(())?.into_parts();
/// let mut key = Vec::new();
/// who.identify(&request, &mut key);
/// assert_eq!(key, b"0/k7", "the first of both");
/// # Ok::<(), http::Error>(())
/// ```
pub fn first_of<T>(keys: T) -> FirstOf<T>
where
    FirstOf<T>: Identify,
{
    FirstOf(keys)
}

/// Appends a key as a netstring: `5:alice,`.
fn with_length(identify: &impl Identify, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
    let start = key.len();
    identify.identify(request, key)?;
    let length = format!("{}:", key.len() - start);
    key.splice(start..start, length.into_bytes());
    key.push(b',');
    Some(())
}

/// Appends a key with its index before it; appends nothing if the key is missing.
fn with_index(
    index: usize,
    identify: &impl Identify,
    request: &Parts,
    key: &mut Vec<u8>,
) -> Option<()> {
    let start = key.len();
    // Writing to a vector cannot fail.
    let _ = write!(key, "{index}/");
    let known = identify.identify(request, key);
    if known.is_none() {
        key.truncate(start);
    }
    known
}

macro_rules! several {
    ($($one:ident $index:tt),+) => {
        /// By all of them; a request that lacks one has no key. Its treatment is that of the
        /// first part with its own.
        impl<$($one: Identify),+> Identify for ($($one,)+) {
            fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
                $(with_length(&self.$index, request, key)?;)+
                Some(())
            }

            fn missing(&self) -> Option<Missing> {
                None$(.or_else(|| self.$index.missing()))+
            }
        }

        impl<$($one: Identify),+> Identify for FirstOf<($($one,)+)> {
            fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
                let keys = &self.0;
                None$(.or_else(|| with_index($index, &keys.$index, request, key)))+
            }

            fn missing(&self) -> Option<Missing> {
                let keys = &self.0;
                None$(.or_else(|| keys.$index.missing()))+
            }
        }
    };
}

several!(A 0, B 1);
several!(A 0, B 1, C 2);
several!(A 0, B 1, C 2, D 3);
