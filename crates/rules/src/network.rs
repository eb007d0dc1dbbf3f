//! IP networks, on [`ipnet`]. An IPv4 address written as an IPv6 one (`::ffff:192.0.2.7`) is the
//! IPv4 address.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// A network in CIDR notation; its host bits are zero.
///
/// ```
/// use sluicegate_rules::network::Network;
///
/// let office: Network = "10.1.0.0/16".parse()?;
/// assert!(office.contains("10.1.2.3".parse()?));
/// assert!(!office.contains("10.2.2.3".parse()?));
/// assert_eq!((office.to_string().as_str(), office.length()), ("10.1.0.0/16", 16));
/// let site = Network::of("10.1.2.3".parse()?, 8);
/// assert!(site.covers(&office) && !office.covers(&site));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(IpNet);

/// The prefix lengths by which addresses share a counter.
///
/// ```
/// use sluicegate_rules::network::Prefix;
///
/// let prefix = Prefix { v4: 32, v6: 64 };
/// let home = prefix.network_of("2001:db8:1:2:3::4".parse()?);
/// assert_eq!(home.to_string(), "2001:db8:1:2::/64");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Of an IPv4 address, at most 32.
    pub v4: u8,
    /// Of an IPv6 address, at most 128.
    pub v6: u8,
}

/// Why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// The part before the `/` is not an address.
    NoAddress,
    /// The part after the `/` is not a valid prefix length of the address.
    BadLength {
        /// The longest prefix.
        max: u8,
    },
    /// The address has host bits set: probably a different network was intended.
    BitsBeyond {
        /// The network of the address.
        network: Network,
    },
}

impl Network {
    /// The network of an address by the length of its prefix.
    #[must_use]
    pub fn of(address: IpAddr, length: u8) -> Self {
        let address = address.to_canonical();
        Self(IpNet::new_assert(address, length.min(length_max(address))).trunc())
    }

    /// Whether it contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether it contains all of another network.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// The length of its prefix.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.0.prefix_len()
    }

    pub(crate) const fn is_ipv4(&self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }

    /// As an identity holds it: family, prefix length, and the address in the highest bits.
    pub(crate) fn to_bytes(self) -> [u8; 18] {
        let (family, bits) = match self.0 {
            IpNet::V4(v4) => (0, u128::from(v4.addr().to_bits()) << 96),
            IpNet::V6(v6) => (1, v6.addr().to_bits()),
        };
        let mut bytes = [family; 18];
        bytes[1] = self.length();
        bytes[2..].copy_from_slice(&bits.to_be_bytes());
        bytes
    }

    /// The inverse of [`Network::to_bytes`].
    pub(crate) fn from_bytes(&[family, length, ref bits @ ..]: &[u8; 18]) -> Option<Self> {
        let bits = u128::from_be_bytes(*bits);
        let address = match family {
            0 => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            1 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            _ => return None,
        };
        IpNet::new(address, length).ok().map(Self)
    }
}

impl From<Network> for IpNet {
    fn from(network: Network) -> Self {
        network.0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Reads `10.0.0.0/8`, `fd00::/8` or a single address.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| NetworkError::NoAddress)?;
        let address = written.to_canonical();
        let max = length_max(address);
        let length = match length {
            None => max,
            // `+8` is a number to Rust, but no prefix length.
            Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(NetworkError::BadLength { max });
            }
            Some(digits) => {
                let length: u8 = digits.parse().map_err(|_| NetworkError::BadLength { max })?;
                // The first 96 bits mark an IPv4-mapped address.
                let mapped = written.is_ipv6() && address.is_ipv4();
                let length = if mapped { length.checked_sub(96) } else { Some(length) };
                length.filter(|length| *length <= max).ok_or(NetworkError::BadLength { max })?
            }
        };
        let network = Self::of(address, length);
        if network.0.addr() != address {
            return Err(NetworkError::BitsBeyond { network });
        }
        Ok(network)
    }
}

impl Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Prefix {
    /// The network whose addresses share a counter with this one.
    #[must_use]
    pub fn network_of(&self, address: IpAddr) -> Network {
        Network::of(address, if address.to_canonical().is_ipv4() { self.v4 } else { self.v6 })
    }
}

/// The longest prefix of a canonical address.
pub(crate) const fn length_max(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("is neither an IP address nor a network"),
            Self::BadLength { max } => {
                write!(f, "must have a number from 0 to {max} behind the `/`")
            }
            Self::BitsBeyond { network } => {
                write!(f, "has bits set behind its prefix, the network is `{network}`")
            }
        }
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Network>().unwrap_err().to_string()
    }

    #[test]
    fn networks_are_read_and_shown() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/32", "::/0", "2001:db8::/32"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for (text, network) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:DB8:0::1", "2001:db8::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), network);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        assert_eq!(refused("10.0.0"), "is neither an IP address nor a network");
        assert_eq!(refused(""), "is neither an IP address nor a network");
        assert_eq!(refused("10.0.0.0/33"), "must have a number from 0 to 32 behind the `/`");
        assert_eq!(refused("10.0.0.0/"), "must have a number from 0 to 32 behind the `/`");
        assert_eq!(refused("10.0.0.0/+8"), "must have a number from 0 to 32 behind the `/`");
        assert_eq!(refused("::/129"), "must have a number from 0 to 128 behind the `/`");
        assert_eq!(refused("::ffff:10.0.0.0/8"), "must have a number from 0 to 32 behind the `/`");
        let beyond = "has bits set behind its prefix, the network is `10.0.0.0/8`";
        assert_eq!(refused("10.1.0.0/8"), beyond);
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_one() {
        let office: Network = "10.0.0.0/8".parse().unwrap();
        assert!(office.contains("::ffff:10.2.3.4".parse().unwrap()));
        let all: Network = "::/0".parse().unwrap();
        assert!(!all.contains("10.2.3.4".parse().unwrap()), "of the other family");
    }

    #[test]
    fn prefixes_group() {
        let prefix = Prefix { v4: 24, v6: 56 };
        let group = |text: &str| prefix.network_of(text.parse().unwrap()).to_string();
        assert_eq!(group("192.0.2.1"), group("192.0.2.254"));
        assert_eq!(group("::ffff:192.0.2.1"), "192.0.2.0/24");
        assert_eq!(group("2001:db8:0:12ff::1"), "2001:db8:0:1200::/56");
        assert_eq!(
            Prefix { v4: 0, v6: 0 }.network_of("1.2.3.4".parse().unwrap()).to_string(),
            "0.0.0.0/0"
        );
    }
}
