//! Address of the store as a URL.
//!
//! ```text
//! redis://user:password@host:6379/0             single server    rediss://           over TLS
//! unix:///run/redis.sock?db=0                   Unix socket      redis+unix://       the same
//! redis-sentinel://host:26379,host/primary/0    Sentinels        rediss-sentinel://  over TLS
//! redis-cluster://host:7000,host:7001           Cluster          rediss-cluster://   over TLS
//! ```
//! `valkey` is accepted in place of `redis`.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::options::Secret;

/// Address of the store.
///
/// ```
/// use sluicegate_redis::Address;
///
/// let address = Address::parse("redis://shop:hunter2@cache.internal/1").unwrap();
/// assert_eq!(address.to_string(), "redis://shop:..@cache.internal:6379/1");
///
/// let error = Address::parse("redis://cache:port").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "port: `port` is invalid: write a number from 1 to 65535, as in `redis://host:6379`",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) tls: bool,
    pub(super) username: Option<Box<str>>,
    pub(super) password: Option<Secret>,
    pub(super) database: u16,
}

/// The target of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Single(Host),
    Unix(PathBuf),
    Sentinel { sentinels: Vec<Host>, primary: Box<str> },
    Cluster(Vec<Host>),
}

/// A host name or IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) name: Box<str>,
    pub(super) port: u16,
}

/// Why an address is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    part: &'static str,
    value: Box<str>,
    remedy: &'static str,
}

/// Seeds or Sentinels of one address; a few are enough to find all.
const HOSTS_MAX: usize = 64;

const SCHEMES: &str = "begin with `redis://`, `rediss://`, `unix://`, `redis-sentinel://`, \
     `rediss-sentinel://`, `redis-cluster://` or `rediss-cluster://`";

#[derive(Clone, Copy)]
enum Kind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

// === impl Address ===

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Names the invalid part and a remedy, never a password.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            let shown = text.rsplit('@').next().unwrap_or_default();
            return Err(AddressError::new("address", shown, SCHEMES));
        };
        let (kind, tls) = kind_of(scheme)?;
        let (user, rest) = match rest.split_once('/') {
            // A password contains no slash, so the last `@` before one ends it.
            Some((authority, path)) => match authority.rsplit_once('@') {
                Some((user, hosts)) => (Some(user), format!("{hosts}/{path}")),
                None => (None, rest.to_owned()),
            },
            None => match rest.rsplit_once('@') {
                Some((user, hosts)) => (Some(user), hosts.to_owned()),
                None => (None, rest.to_owned()),
            },
        };
        if user.is_none() && rest.contains('@') && !matches!(kind, Kind::Unix) {
            return Err(AddressError::new("password", "..", "write a `/` in it as `%2F`"));
        }
        let (username, password) = user.map_or(Ok((None, None)), credentials)?;
        let (endpoint, database) = match kind {
            Kind::Unix => socket(&rest)?,
            Kind::Single | Kind::Sentinel | Kind::Cluster => network(kind, &rest)?,
        };
        Ok(Self { endpoint, tls, username, password, database })
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.endpoint, self.tls) {
            (Endpoint::Single(_), false) => "redis://",
            (Endpoint::Single(_), true) => "rediss://",
            (Endpoint::Unix(_), _) => "unix://",
            (Endpoint::Sentinel { .. }, false) => "redis-sentinel://",
            (Endpoint::Sentinel { .. }, true) => "rediss-sentinel://",
            (Endpoint::Cluster(_), false) => "redis-cluster://",
            (Endpoint::Cluster(_), true) => "rediss-cluster://",
        })?;
        match (&self.username, &self.password) {
            (None, None) => {}
            (Some(username), None) => write!(f, "{username}@")?,
            (username, Some(_)) => write!(f, "{}:..@", username.as_deref().unwrap_or_default())?,
        }
        match &self.endpoint {
            Endpoint::Single(host) => write!(f, "{host}/{}", self.database),
            Endpoint::Unix(path) => write!(f, "{}?db={}", path.display(), self.database),
            Endpoint::Sentinel { sentinels, primary } => {
                write_hosts(f, sentinels)?;
                write!(f, "/{primary}/{}", self.database)
            }
            Endpoint::Cluster(seeds) => write_hosts(f, seeds),
        }
    }
}

fn write_hosts(f: &mut fmt::Formatter<'_>, hosts: &[Host]) -> fmt::Result {
    for (index, host) in hosts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{host}")?;
    }
    Ok(())
}

// === impl Host ===

impl Host {
    pub(super) fn new(name: impl Into<Box<str>>, port: u16) -> Self {
        Self { name: name.into(), port }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

// === impl AddressError ===

impl AddressError {
    fn new(part: &'static str, value: &str, remedy: &'static str) -> Self {
        Self { part, value: value.into(), remedy }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}` is invalid: {}", self.part, self.value, self.remedy)
    }
}

impl std::error::Error for AddressError {}

// === parsing ===

fn kind_of(scheme: &str) -> Result<(Kind, bool), AddressError> {
    let as_redis = scheme.strip_prefix("valkey").map(|rest| format!("redis{rest}"));
    Ok(match as_redis.as_deref().unwrap_or(scheme) {
        "redis" => (Kind::Single, false),
        "rediss" => (Kind::Single, true),
        "unix" | "redis+unix" => (Kind::Unix, false),
        "redis-sentinel" => (Kind::Sentinel, false),
        "rediss-sentinel" => (Kind::Sentinel, true),
        "redis-cluster" => (Kind::Cluster, false),
        "rediss-cluster" => (Kind::Cluster, true),
        _ => return Err(AddressError::new("scheme", scheme, SCHEMES)),
    })
}

type Credentials = (Option<Box<str>>, Option<Secret>);

fn credentials(user: &str) -> Result<Credentials, AddressError> {
    const REMEDY: &str =
        "write `user:password@host`, with other characters than letters and digits as in `%40`";
    let (username, password) = match user.split_once(':') {
        Some((username, password)) => (username, Some(password)),
        None => (user, None),
    };
    let username = percent_decoded(username).ok_or(AddressError::new("user", username, REMEDY))?;
    let password = match password {
        Some(password) => {
            Some(percent_decoded(password).ok_or(AddressError::new("password", "..", REMEDY))?)
        }
        None => None,
    };
    let password = password.filter(|password| !password.is_empty()).map(Secret::new);
    Ok(((!username.is_empty()).then(|| username.into()), password))
}

/// Decodes percent-encoding.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn socket(rest: &str) -> Result<(Endpoint, u16), AddressError> {
    const REMEDY: &str = "write an absolute path, as in `unix:///run/redis.sock`";
    let (path, query) = rest.split_once('?').unwrap_or((rest, "db=0"));
    if !path.starts_with('/') || path.len() < 2 {
        return Err(AddressError::new("path", path, REMEDY));
    }
    let Some(path) = percent_decoded(path) else {
        return Err(AddressError::new("path", path, REMEDY));
    };
    let Some(number) = query.strip_prefix("db=") else {
        return Err(AddressError::new("query", query, "only `?db=` and a number may follow"));
    };
    Ok((Endpoint::Unix(path.into()), database(number)?))
}

fn network(kind: Kind, rest: &str) -> Result<(Endpoint, u16), AddressError> {
    if let Some((_, query)) = rest.split_once(['?', '#']) {
        return Err(AddressError::new("query", query, "a query is not supported here"));
    }
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    Ok(match kind {
        Kind::Single | Kind::Unix => {
            if hosts.contains(',') {
                const REMEDY: &str =
                    "write one, or begin with `redis-cluster://` or `redis-sentinel://`";
                return Err(AddressError::new("host", hosts, REMEDY));
            }
            (Endpoint::Single(host(hosts, 6379)?), database(path)?)
        }
        Kind::Sentinel => {
            let (primary, number) = path.split_once('/').unwrap_or((path, ""));
            let Some(primary) = percent_decoded(primary).filter(|primary| !primary.is_empty())
            else {
                const REMEDY: &str = "write the name that the Sentinels have for it, \
                     as in `redis-sentinel://host:26379/mymaster`";
                return Err(AddressError::new("name of the primary", primary, REMEDY));
            };
            let sentinels = list(hosts, 26379)?;
            (Endpoint::Sentinel { sentinels, primary: primary.into() }, database(number)?)
        }
        Kind::Cluster => match database(path)? {
            0 => (Endpoint::Cluster(list(hosts, 6379)?), 0),
            _ => {
                const REMEDY: &str = "a Cluster has only database 0: leave it out";
                return Err(AddressError::new("database", path, REMEDY));
            }
        },
    })
}

fn list(hosts: &str, port: u16) -> Result<Vec<Host>, AddressError> {
    if hosts.split(',').count() > HOSTS_MAX {
        let count = hosts.split(',').count().to_string();
        return Err(AddressError::new("number of hosts", &count, "name at most 64"));
    }
    hosts.split(',').map(|text| host(text, port)).collect()
}

fn host(text: &str, default_port: u16) -> Result<Host, AddressError> {
    const NAME: &str = "write a name or an address, as in `redis://host:6379` or `redis://[::1]`";
    const PORT: &str = "write a number from 1 to 65535, as in `redis://host:6379`";
    let invalid = || AddressError::new("host", text, NAME);
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(invalid)?;
            let _: Ipv6Addr = name.parse().map_err(|_| invalid())?;
            match after.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if after.is_empty() => (name, None),
                None => return Err(invalid()),
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if name.is_empty() || name.len() > 253 || !name.chars().all(is_allowed) {
        return Err(invalid());
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 => number,
            _ => return Err(AddressError::new("port", port, PORT)),
        },
    };
    Ok(Host::new(name, port))
}

fn database(text: &str) -> Result<u16, AddressError> {
    const REMEDY: &str = "write its number, as in `redis://host:6379/0`";
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| AddressError::new("database", text, REMEDY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_parsed_and_displayed() {
        for (text, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("rediss://a:1/3", "rediss://a:1/3"),
            ("valkeys://a:1", "rediss://a:1/0"),
            ("redis://[::1]:7/", "redis://[::1]:7/0"),
            ("redis://:hunter2@a", "redis://:..@a:6379/0"),
            ("redis://us%40r:p%2Fw@a", "redis://us@r:..@a:6379/0"),
            ("redis://user:p@ss@a", "redis://user:..@a:6379/0"),
            ("unix:///run/r.sock", "unix:///run/r.sock?db=0"),
            ("redis+unix://u:p@/r.sock?db=2", "unix://u:..@/r.sock?db=2"),
            ("redis-sentinel://a,b:1/shop", "redis-sentinel://a:26379,b:1/shop/0"),
            ("rediss-sentinel://u:p@a/shop/4", "rediss-sentinel://u:..@a:26379/shop/4"),
            ("redis-cluster://a:7000,b", "redis-cluster://a:7000,b:6379"),
            ("rediss-cluster://a/0", "rediss-cluster://a:6379"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), shown);
        }
        let address = Address::parse("redis://user:p%2Fw:x@a").unwrap();
        assert_eq!(address.password.unwrap().reveal(), "p/w:x");
    }

    #[test]
    fn errors_name_the_part_the_value_and_the_remedy() {
        for (text, part, value) in [
            ("localhost:6379", "address", "localhost:6379"),
            ("user:hunter2@localhost", "address", "localhost"),
            ("http://a", "scheme", "http"),
            ("redis://", "host", ""),
            ("redis://a b", "host", "a b"),
            ("redis://[::1", "host", "[::1"),
            ("redis://a:0", "port", "0"),
            ("redis://a:65536", "port", "65536"),
            ("redis://a/x", "database", "x"),
            ("redis://a,b", "host", "a,b"),
            ("redis://a?tls=1", "query", "tls=1"),
            ("redis://u:hunter2%zz@a", "password", ".."),
            ("redis://u:hunter2/x@a", "password", ".."),
            ("unix://run", "path", "run"),
            ("unix:///a?x=1", "query", "x=1"),
            ("redis-sentinel://a", "name of the primary", ""),
            ("redis-cluster://a/1", "database", "1"),
            ("redis-cluster://a,,b", "host", ""),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!((error.part, &*error.value), (part, value), "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let many = format!("redis-cluster://{}", vec!["a"; 65].join(","));
        assert_eq!(Address::parse(&many).unwrap_err().part, "number of hosts");
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("redis://user:hunter2@a").unwrap();
        assert!(!format!("{address:?} {address}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_display_round_trips(text in "(redis|rediss|unix|redis-cluster|redis-sentinel)?(://)?[a-z:@/,%0-9?\\[\\]é]{0,24}") {
            let Ok(address) = Address::parse(&text) else { return Ok(()) };
            let network = !matches!(address.endpoint, Endpoint::Unix(_));
            if network && address.password.is_none() && address.username.is_none() {
                let again = Address::parse(&address.to_string());
                prop_assert_eq!(again, Ok(address));
            }
        }
    }
}
