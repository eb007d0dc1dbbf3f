//! The client address behind proxies.
//!
//! Each proxy appends its peer: `X-Forwarded-For: client, proxy 1` comes from proxy 2. An untrusted
//! peer may have written anything, so the list is read from its end, as long as it names trusted
//! proxies. The first other address is the client.
//!
//! ```text
//!   6.6.6.6, 203.0.113.9, 10.0.0.2   from 10.0.0.1; ours are 10.0.0.0/8
//!            the client   ours            ours
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::attributes::Headers;
use crate::network::{Network, NetworkError};

/// Maximum number of proxies followed.
pub const HOPS_MAX: usize = 32;

/// The proxies whose forwarding headers are trusted.
///
/// ```
/// use sluicegate_rules::mapping::Proxies;
///
/// let ours = Proxies::new(vec!["10.0.0.0/8".parse()?]);
/// let headers = [("x-forwarded-for", b"6.6.6.6, 203.0.113.9, 10.0.0.2".as_slice())];
/// let client = ours.client_ip("10.0.0.1".parse()?, &headers.as_slice());
/// assert_eq!(client.to_string(), "203.0.113.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies {
    networks: Box<[Network]>,
}

/// Why a text does not name trusted proxies: see [`Proxies::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxiesError {
    text: String,
    error: NetworkError,
}

impl fmt::Display for ProxiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, error } = self;
        write!(
            f,
            "trusted proxy `{text}` {error}: write the address of a proxy, such as `192.0.2.7` or \
             `::1`, or its network, such as `10.0.0.0/8` or `fd00::/8`"
        )
    }
}

impl std::error::Error for ProxiesError {}

/// This machine only.
impl Default for Proxies {
    fn default() -> Self {
        let v6 = Network::of(Ipv6Addr::LOCALHOST.into(), 128);
        Self::new(vec![Network::of([127, 0, 0, 0].into(), 8), v6])
    }
}

impl Proxies {
    /// Those of these networks.
    #[must_use]
    pub fn new(networks: Vec<Network>) -> Self {
        Self { networks: networks.into() }
    }

    /// Those of networks in CIDR notation, or single addresses.
    ///
    /// ```
    /// use sluicegate_rules::mapping::Proxies;
    ///
    /// let ours = Proxies::parse(["10.0.0.0/8", "::1"])?;
    /// assert!(ours.trust("10.1.2.3".parse()?));
    /// let error = Proxies::parse(["10.0.0.0/8", "lb.internal"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "trusted proxy `lb.internal` is neither an IP address nor a network: write the \
    ///      address of a proxy, such as `192.0.2.7` or `::1`, or its network, such as \
    ///      `10.0.0.0/8` or `fd00::/8`"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// For the first text that is no network.
    pub fn parse<'a>(networks: impl IntoIterator<Item = &'a str>) -> Result<Self, ProxiesError> {
        let parse = |text: &str| {
            text.parse().map_err(|error| ProxiesError { text: text.to_owned(), error })
        };
        networks.into_iter().map(parse).collect::<Result<_, _>>().map(Self::new)
    }

    /// The networks, in the order they were given.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Whether an address is one of them.
    ///
    /// ```
    /// use sluicegate_rules::mapping::Proxies;
    ///
    /// assert!(Proxies::default().trust("::ffff:127.0.0.1".parse()?));
    /// assert!(!Proxies::default().trust("10.0.0.1".parse()?));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn trust(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// The client: the nearest address that is no trusted proxy. `peer` is one.
    ///
    /// Reads `X-Forwarded-For`; without it `Forwarded`, and without that `X-Real-IP`. Nothing
    /// beyond an invalid address is trusted: then it is the last proxy before that, and without any
    /// header the peer.
    #[must_use]
    pub fn client_ip(&self, peer: IpAddr, headers: &dyn Headers) -> IpAddr {
        let peer = peer.to_canonical();
        let mut lines = Vec::new();
        headers.each_line("x-forwarded-for", &mut |line| lines.push(line));
        let elements = lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        if let Some(client) = self.walk(peer, elements.map(|text| (text, address(text)))) {
            return client;
        }
        lines.clear();
        headers.each_line("forwarded", &mut |line| lines.push(line));
        let elements = lines.iter().rev().flat_map(|line| forwarded(line).into_iter().rev());
        if let Some(client) = self.walk(peer, elements.map(|text| (text, forwarded_for(text)))) {
            return client;
        }
        lines.clear();
        headers.each_line("x-real-ip", &mut |line| lines.push(line));
        let elements = lines.iter().rev().map(|text| (*text, address(text)));
        self.walk(peer, elements).unwrap_or(peer)
    }

    /// Follows trusted proxies from the peer on; `None` for an empty list.
    fn walk<'a>(
        &self,
        peer: IpAddr,
        hops: impl Iterator<Item = (&'a [u8], Option<IpAddr>)>,
    ) -> Option<IpAddr> {
        let mut hops = hops.filter(|(text, _)| !text.trim_ascii().is_empty()).peekable();
        hops.peek()?;
        let mut nearest = peer;
        for (_, hop) in hops.take(HOPS_MAX) {
            let Some(hop) = hop else { break };
            nearest = hop;
            if !self.trust(hop) {
                break;
            }
        }
        Some(nearest)
    }
}

/// An address as proxies write it: `192.0.2.7`, `192.0.2.7:443`, `2001:db8::7`,
/// `[2001:db8::7]:443`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let is_port = |port: &str| {
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let bare = if let Some(inside) = text.strip_prefix('[') {
        let (v6, behind) = inside.split_once(']')?;
        let fits = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
        // Brackets are for IPv6.
        return fits.then(|| v6.parse::<Ipv6Addr>().ok()).flatten().map(canonical);
    } else if let Some((v4, port)) = text.split_once(':').filter(|(_, port)| !port.contains(':')) {
        is_port(port).then_some(v4)?
    } else {
        text
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn canonical(v6: Ipv6Addr) -> IpAddr {
    IpAddr::V6(v6).to_canonical()
}

/// Splits a `Forwarded` line into elements; commas within quotes do not separate.
///
/// An element that ends within quotes is dropped. Otherwise a client's unclosed quote would swallow
/// the elements that proxies append.
fn forwarded(line: &[u8]) -> Vec<&[u8]> {
    let mut elements = Vec::new();
    let (mut begin, mut quoted, mut escaped) = (0, false, false);
    for (index, byte) in line.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                elements.extend(line.get(begin..index));
                begin = index + 1;
            }
            _ => {}
        }
    }
    elements.extend(if quoted { Some(b"\"".as_slice()) } else { line.get(begin..) });
    elements
}

/// The address in `for=192.0.2.7;proto=https`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut parameters = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let parameter = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(4)?;
        name.eq_ignore_ascii_case(b"for=").then_some(value)
    })?;
    let quoted = parameter.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    address(quoted.unwrap_or(parameter))
}
