//! Addresses and the networks that they belong to.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address of which the first bits count.
///
/// An IPv4 address written as an IPv6 one (`::ffff:192.0.2.7`) is the IPv4 address.
///
/// ```
/// use sluicegate_rules::network::Network;
///
/// let office: Network = "10.1.0.0/16".parse()?;
/// assert!(office.contains("10.1.2.3".parse()?));
/// assert!(!office.contains("10.2.2.3".parse()?));
/// assert_eq!(office.to_string(), "10.1.0.0/16");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    family: Family,
    /// The address's bits, highest first; those that do not count are 0.
    bits: u128,
    length: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

/// How many bits of an address tell one counter from another.
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
    /// What stands before the `/` is no address.
    NoAddress,
    /// What stands behind the `/` is no number of bits that such an address has.
    BadLength {
        /// The most bits that it could be.
        most: u8,
    },
    /// The address has bits set that do not count: probably another one was meant.
    BitsBeyond {
        /// The network that it lies in.
        network: Network,
    },
}

// === impl Network ===

impl Network {
    /// The network of so many bits that an address lies in.
    ///
    /// ```
    /// use sluicegate_rules::network::Network;
    ///
    /// assert_eq!(Network::of("192.0.2.77".parse()?, 24).to_string(), "192.0.2.0/24");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn of(address: IpAddr, length: u8) -> Self {
        let (family, bits) = bits_of(address);
        let length = length.min(family.length_max());
        Self { family, bits: bits & mask(length), length }
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (family, bits) = bits_of(address);
        family == self.family && bits & mask(self.length) == self.bits
    }

    /// Whether all of another network lies in it.
    ///
    /// ```
    /// use sluicegate_rules::network::Network;
    ///
    /// let net = |text: &str| text.parse::<Network>().unwrap();
    /// assert!(net("10.0.0.0/8").covers(&net("10.1.0.0/16")));
    /// assert!(!net("10.1.0.0/16").covers(&net("10.0.0.0/8")));
    /// ```
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.family == other.family
            && self.length <= other.length
            && other.bits & mask(self.length) == self.bits
    }

    /// How many bits count.
    ///
    /// ```
    /// let network: sluicegate_rules::network::Network = "10.0.0.0/8".parse().unwrap();
    /// assert_eq!(network.length(), 8);
    /// ```
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// What [`Network::parts`] took apart.
    pub(crate) fn of_parts(family: u8, bits: u128, length: u8) -> Option<Self> {
        let family = [Family::V4, Family::V6].into_iter().find(|one| *one as u8 == family)?;
        Some(Self { family, bits, length })
    }

    pub(crate) const fn parts(&self) -> (Family, u128, u8) {
        (self.family, self.bits, self.length)
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
        let plain: IpAddr = address.parse().map_err(|_| NetworkError::NoAddress)?;
        let (family, bits) = bits_of(plain);
        let most = family.length_max();
        let length = match length {
            None => most,
            // `+8` and `008` are numbers to Rust, but nobody means them.
            Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(NetworkError::BadLength { most });
            }
            Some(digits) => {
                let written: u8 = digits.parse().map_err(|_| NetworkError::BadLength { most })?;
                // Of a mapped address the first 96 bits say that it is one.
                let mapped = plain.is_ipv6() && family == Family::V4;
                let length = if mapped { written.checked_sub(96) } else { Some(written) };
                length.filter(|l| *l <= most).ok_or(NetworkError::BadLength { most })?
            }
        };
        let network = Self { family, bits: bits & mask(length), length };
        if network.bits != bits {
            return Err(NetworkError::BitsBeyond { network });
        }
        Ok(network)
    }
}

impl Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::V4 => {
                let bits = u32::try_from(self.bits >> 96).unwrap_or(u32::MAX);
                write!(f, "{}/{}", Ipv4Addr::from_bits(bits), self.length)
            }
            Family::V6 => write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.length),
        }
    }
}

// === impl Prefix ===

impl Prefix {
    /// The network whose addresses share a counter with this one.
    #[must_use]
    pub fn network_of(&self, address: IpAddr) -> Network {
        match bits_of(address).0 {
            Family::V4 => Network::of(address, self.v4),
            Family::V6 => Network::of(address, self.v6),
        }
    }
}

// === bits ===

impl Family {
    const fn length_max(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// An address as bits, an IPv4 one in the highest 32.
pub(crate) fn bits_of(address: IpAddr) -> (Family, u128) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (Family::V4, u128::from(v4.to_bits()) << 96),
        IpAddr::V6(v6) => (Family::V6, v6.to_bits()),
    }
}

/// As many ones as count, from the highest bit on.
pub(crate) const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        1..=128 => u128::MAX << (128 - length),
        _ => u128::MAX,
    }
}

// === impl NetworkError ===

impl Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("is no address or network"),
            Self::BadLength { most } => {
                write!(f, "the number behind the `/` must be from 0 to {most}")
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
        assert_eq!(refused("10.0.0"), "is no address or network");
        assert_eq!(refused(""), "is no address or network");
        assert_eq!(refused("10.0.0.0/33"), "the number behind the `/` must be from 0 to 32");
        assert_eq!(refused("10.0.0.0/"), "the number behind the `/` must be from 0 to 32");
        assert_eq!(refused("10.0.0.0/+8"), "the number behind the `/` must be from 0 to 32");
        assert_eq!(refused("::/129"), "the number behind the `/` must be from 0 to 128");
        assert_eq!(refused("::ffff:10.0.0.0/8"), "the number behind the `/` must be from 0 to 32");
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
