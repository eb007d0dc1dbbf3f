//! By address. Whoever has one IPv6 address has 2^64 of them, so those count by their network.

use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::http::Extensions;
use ::http::request::Parts;

use super::Identify;

/// By address: see [`ip`], [`peer_ip`] and [`peer`].
///
/// IPv6 addresses count by their /64 and IPv4 addresses each by itself, unless told. An IPv4 address in IPv6 clothes
/// (`::ffff:192.0.2.7`, as a dual-stack socket tells it) is an IPv4 address.
///
/// The key is the address in its usual form, or the network: `192.0.2.7`, `2001:db8:1:2::/64`.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::RateLimitLayer;
/// use sluicegate::tower::key::peer;
///
/// let by_site = peer().v6_prefix(48);
/// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, by_site);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub struct Ip {
    find: Box<Find>,
    v4_bits: u32,
    v6_bits: u32,
}

type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// The peer's address as an extension of the request, for servers that have no type of their own for it: see [`peer`].
///
/// ```
/// use sluicegate::tower::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 7], 50_000).into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// By an address that `find` knows.
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

/// By the peer's address, which the server has left among the extensions of the request.
///
/// Each server has a type of its own for it. axum has `ConnectInfo<SocketAddr>`, if the router is served with
/// `into_make_service_with_connect_info::<SocketAddr>()`; tonic has `TcpConnectInfo`, always:
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

/// By the peer's address, which somebody has left as [`PeerAddr`].
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
/// What a provider gives to one customer at least.
const V6_BITS: u32 = 64;

// === impl Ip ===

impl Ip {
    /// How many bits of an IPv4 address count; all 32 unless told, which is also the most.
    ///
    /// ```
    /// use sluicegate::tower::key::peer;
    ///
    /// let by_block_of_256 = peer().v4_prefix(24);
    /// ```
    #[must_use]
    pub fn v4_prefix(self, bits: u32) -> Self {
        Self { v4_bits: bits.min(Ipv4Addr::BITS), ..self }
    }

    /// How many bits of an IPv6 address count; 64 unless told, 128 at most.
    ///
    /// ```
    /// use sluicegate::tower::key::peer;
    ///
    /// let by_site = peer().v6_prefix(48);
    /// ```
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
