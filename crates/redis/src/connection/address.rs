//! Address of the store as a URL.
//!
//! ```text
//! redis://user:password@host:6379/0             single server    rediss://           over TLS
//! unix:///run/redis.sock?db=0                   Unix socket      redis+unix://       the same
//! redis-sentinel://host:26379,host/primary/0    Sentinels        rediss-sentinel://  over TLS
//! redis-cluster://host:7000,host:7001           Cluster          rediss-cluster://   over TLS
//! ```
//! `valkey` is accepted in place of `redis`, and `?db=`, `?user=` and `?password=` in place of the
//! parts before.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::options::Secret;

/// Address of the store. It is displayed as written, without credentials.
///
/// ```
/// use sluicegate_redis::Address;
///
/// let address = Address::parse("redis://shop:hunter2@cache.internal/1").unwrap();
/// assert_eq!(address.to_string(), "redis://cache.internal/1");
///
/// let error = Address::parse("redis://shop:hunter2@cache:99999").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "must have a port from 1 to 65535, as in `redis://127.0.0.1:6379`, \
///      got `redis://***@cache:99999`",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) tls: bool,
    pub(super) username: Option<Box<str>>,
    pub(super) password: Option<Secret>,
    pub(super) database: u16,
    /// The URL without credentials.
    url: Box<str>,
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
    why: String,
    masked: String,
}

/// Seeds or Sentinels of one address; a few are enough to find all.
const HOSTS_MAX: usize = 64;

#[derive(Clone, Copy)]
enum Kind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

/// Schemes, each with its kind, whether it has TLS, and an example.
const SCHEMES: &[(&str, Kind, bool, &str)] = &[
    ("redis", Kind::Single, false, "redis://127.0.0.1:6379"),
    ("rediss", Kind::Single, true, "rediss://redis.example:6380"),
    ("unix", Kind::Unix, false, "unix:///run/redis.sock"),
    ("redis+unix", Kind::Unix, false, "redis+unix:///run/redis.sock"),
    ("redis-sentinel", Kind::Sentinel, false, "redis-sentinel://10.0.0.1:26379/mymaster"),
    ("rediss-sentinel", Kind::Sentinel, true, "rediss-sentinel://10.0.0.1:26379/mymaster"),
    ("redis-cluster", Kind::Cluster, false, "redis-cluster://10.0.0.1:6379,10.0.0.2:6379"),
    ("rediss-cluster", Kind::Cluster, true, "rediss-cluster://10.0.0.1:6379,10.0.0.2:6379"),
];

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Names the invalid part and a remedy, never a password.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        parse(text).map_err(|why| AddressError { why, masked: Self::mask(text) })
    }

    /// The user name, if it has one.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// The password, if it has one.
    #[must_use]
    pub const fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Whether connections use TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether Sentinels name the server.
    #[must_use]
    pub const fn is_sentinel(&self) -> bool {
        matches!(self.endpoint, Endpoint::Sentinel { .. })
    }

    /// A URL without possible secrets: all between the scheme and the last `@`, the query, and
    /// ports that are not numbers.
    ///
    /// ```
    /// use sluicegate_redis::Address;
    ///
    /// assert_eq!(Address::mask("redis://u:secret@h:1/0?password=secret"), "redis://***@h:1/0");
    /// ```
    #[must_use]
    pub fn mask(text: &str) -> String {
        let is_scheme = |c: char| c.is_ascii_alphabetic() || "+-".contains(c);
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let scheme = match scheme {
            _ if scheme.is_empty() || !scheme.chars().all(is_scheme) => String::new(),
            _ => format!("{scheme}://"),
        };
        let rest = text.strip_prefix(&scheme).unwrap_or(text);
        let (mask, location) =
            rest.rsplit_once('@').map_or(("", rest), |(_, after)| ("***@", after));
        let location = location.split('?').next().unwrap_or_default();
        let (hosts, path) = location.split_at(location.find('/').unwrap_or(location.len()));
        let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
            // Possibly a password without a host. The last part of an IPv6 address is not a port.
            Some((name, port)) if !port.ends_with(']') && !is_number(port) => format!("{name}:***"),
            _ => host.to_owned(),
        });
        format!("{scheme}{mask}{}{path}", hosts.collect::<Vec<_>>().join(","))
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
        f.write_str(&self.url)
    }
}

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

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, got `{}`", self.why, self.masked)
    }
}

impl std::error::Error for AddressError {}

// === parsing ===

fn parse(text: &str) -> Result<Address, String> {
    let known = text.split_once("://").and_then(|(scheme, rest)| {
        let scheme = scheme.to_ascii_lowercase().replacen("valkey", "redis", 1);
        SCHEMES.iter().find(|(name, ..)| *name == scheme).map(|known| (known, rest))
    });
    let Some((&(scheme, kind, tls, example), rest)) = known else {
        return Err("must begin with `redis://`, `rediss://`, `unix://`, `redis-sentinel://`, \
             `rediss-sentinel://`, `redis-cluster://` or `rediss-cluster://`, \
             such as `redis://127.0.0.1:6379`"
            .to_owned());
    };
    let is_unix = matches!(kind, Kind::Unix);
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = location.split_at(location.find('/').unwrap_or(location.len()));
    let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    // Part of a password could be taken for a path or query, and be shown.
    if query.contains('@') || (!is_unix && path.contains('@')) {
        return Err(
            "has a `@` too late; write a `/` or a `?` of a password as `%2F` or `%3F`".to_owned()
        );
    }
    if credentials.contains('@') && credentials.contains(',') {
        return Err(
            "must have credentials once, before all hosts; write a `,` of a password as `%2C`"
                .to_owned(),
        );
    }
    let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (mut username, mut password) = (nonempty(username)?, nonempty(password)?);
    let mut path = path.trim_end_matches('/').to_owned();
    let mut socket_database = None;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            // The path of a socket cannot contain it.
            Some(("db", number)) if is_unix => socket_database = Some(number),
            Some(("db", number)) => path = format!("{path}/{number}"),
            Some(("user" | "username", text)) => username = nonempty(text)?,
            Some(("pass" | "password", text)) => password = nonempty(text)?,
            _ => {
                let name = part.split('=').next().unwrap_or_default();
                return Err(format!(
                    "has `{name}` behind its `?`, which is not one of `db`, `user`, `password`"
                ));
            }
        }
    }
    let has_location = match kind {
        Kind::Unix => path.len() > 1 && hosts.is_empty(),
        Kind::Sentinel => !hosts.is_empty() && path.len() > 1,
        Kind::Single | Kind::Cluster => !hosts.is_empty(),
    };
    if !has_location {
        return Err(format!("has no host or path; write it like `{example}`"));
    }
    let mut url = format!("{scheme}://{hosts}{path}");
    if let Some(number) = socket_database {
        url = format!("{url}?db={number}");
    }
    let bare_path = path.strip_prefix('/').unwrap_or_default();
    let list = |port| {
        let count = hosts.split(',').count();
        match count <= HOSTS_MAX {
            true => hosts.split(',').map(|text| host(text, port, example)).collect(),
            false => Err(format!("has {count} hosts; name at most {HOSTS_MAX}")),
        }
    };
    let (endpoint, database) = match kind {
        Kind::Unix => {
            let path = PathBuf::from(percent_decoded(&path)?);
            (Endpoint::Unix(path), database(socket_database.unwrap_or_default())?)
        }
        Kind::Single if hosts.contains(',') => {
            return Err(
                "has several hosts; write one, or begin with `redis-cluster://` or `redis-sentinel://`"
                    .to_owned(),
            );
        }
        Kind::Single => (Endpoint::Single(host(hosts, 6379, example)?), database(bare_path)?),
        Kind::Sentinel => {
            let (primary, number) = bare_path.split_once('/').unwrap_or((bare_path, ""));
            let primary = nonempty(primary)?
                .ok_or_else(|| format!("has no name of a primary; write it like `{example}`"))?;
            let sentinels = list(26379)?;
            (Endpoint::Sentinel { sentinels, primary: primary.into() }, database(number)?)
        }
        Kind::Cluster if database(bare_path)? > 0 => {
            return Err("has a database; a Cluster has only 0: leave it out".to_owned());
        }
        Kind::Cluster => (Endpoint::Cluster(list(6379)?), 0),
    };
    let username = username.map(Into::into);
    let password = password.map(Secret::new);
    Ok(Address { endpoint, tls, username, password, database, url: url.into() })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes percent-encoding; `None` if empty.
fn nonempty(text: &str) -> Result<Option<String>, String> {
    percent_decoded(text).map(|text| Some(text).filter(|text| !text.is_empty()))
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err("has a `%` without two digits behind it; write `%25`".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "has a part that is not UTF-8".to_owned())
}

fn host(text: &str, default_port: u16, example: &str) -> Result<Host, String> {
    let invalid = || format!("has an invalid host; write it like `{example}` or `redis://[::1]`");
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
    let port = match port.map(|port| port.parse().ok().filter(|_| is_number(port))) {
        None => default_port,
        Some(Some(number)) if number > 0 => number,
        Some(_) => return Err(format!("must have a port from 1 to 65535, as in `{example}`")),
    };
    Ok(Host::new(name, port))
}

fn database(text: &str) -> Result<u16, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            "has an invalid database; write its number, as in `redis://host:6379/0`".to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_parsed_and_displayed_without_credentials() {
        let table = [
            ("redis://h:1", "redis://h:1", None, None),
            ("REDIS://h", "redis://h", None, None),
            ("valkeys-cluster://h", "rediss-cluster://h", None, None),
            ("redis://u:p@ss@h", "redis://h", Some("u"), Some("p@ss")),
            ("redis://us%40r:p%2Fw:x@h", "redis://h", Some("us@r"), Some("p/w:x")),
            ("redis://:p%40ss@h:1/2", "redis://h:1/2", None, Some("p@ss")),
            ("rediss://u:p@[::1]:1/", "rediss://[::1]:1", Some("u"), Some("p")),
            ("redis://u@h?db=3", "redis://h/3", Some("u"), None),
            ("redis://h?username=u&password=p", "redis://h", Some("u"), Some("p")),
            ("unix:///a/b.sock?db=3&pass=p", "unix:///a/b.sock?db=3", None, Some("p")),
            ("redis+unix://u:p@/r.sock", "redis+unix:///r.sock", Some("u"), Some("p")),
            ("redis-sentinel://:p@a:1,b:2/m/0", "redis-sentinel://a:1,b:2/m/0", None, Some("p")),
            ("rediss-cluster://a:1,b:2", "rediss-cluster://a:1,b:2", None, None),
        ];
        for (text, shown, username, password) in table {
            let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.to_string(), shown, "{text}");
            let found = (address.username(), address.password().map(Secret::reveal));
            assert_eq!(found, (username, password), "{text}");
            assert_eq!(address.is_tls(), shown.starts_with("rediss"), "{text}");
            assert_eq!(address.is_sentinel(), shown.contains("-sentinel:"), "{text}");
        }
    }

    #[test]
    fn hosts_ports_and_databases() {
        let host = Host::new;
        let single = |host| Endpoint::Single(host);
        for (text, endpoint, database) in [
            ("redis://localhost", single(host("localhost", 6379)), 0),
            ("rediss://a:1/3", single(host("a", 1)), 3),
            ("redis://a?db=3", single(host("a", 6379)), 3),
            ("redis://[::1]:7/", single(host("::1", 7)), 0),
            ("unix:///run/a%20b?db=2", Endpoint::Unix("/run/a b".into()), 2),
            (
                "redis-sentinel://a,b:1/shop/4",
                Endpoint::Sentinel {
                    sentinels: vec![host("a", 26379), host("b", 1)],
                    primary: "shop".into(),
                },
                4,
            ),
            (
                "redis-cluster://a:7000,b/0",
                Endpoint::Cluster(vec![host("a", 7000), host("b", 6379)]),
                0,
            ),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.endpoint, address.database), (endpoint, database), "{text}");
        }
    }

    #[test]
    fn errors_have_a_remedy_and_no_password() {
        for (text, part) in [
            ("localhost:6379", "begin with `redis://`"),
            ("user:hunter2@localhost", "begin with `redis://`"),
            ("http://h", "begin with `redis://`"),
            ("redis://", "write it like `redis://127.0.0.1:6379`"),
            ("redis:///0", "write it like `redis://127.0.0.1:6379`"),
            ("redis://a b", "invalid host"),
            ("redis://[::1", "invalid host"),
            ("redis://a:0", "a port from 1 to 65535"),
            ("redis://a:65536", "a port from 1 to 65535"),
            ("redis://user:hunter2", "a port from 1 to 65535"),
            ("redis-cluster://a:1,b:x", "a port from 1 to 65535"),
            ("redis-cluster://a,,b", "invalid host"),
            ("redis://a,b", "has several hosts"),
            ("redis://a/x", "invalid database"),
            ("redis-cluster://a/1", "only 0"),
            ("unix://run/redis.sock", "write it like `unix:///run/redis.sock`"),
            ("unix:///a?x=1", "`x` behind its `?`"),
            ("redis-sentinel://a:1", "/mymaster"),
            ("redis-sentinel://a:1//0", "name of a primary"),
            ("redis://u:hunter2/w@h", "`%2F`"),
            ("redis://u:p?hunter2@h", "`%3F`"),
            ("redis-cluster://u:hunter2@a,u:hunter2@b", "once, before all hosts"),
            ("redis://u:hunter2%4@h", "`%25`"),
            ("redis://u:%ff@h", "UTF-8"),
            ("redis://h?protocol=resp3", "`protocol` behind its `?`"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let many = format!("redis-cluster://{}", vec!["a"; 65].join(","));
        let error = Address::parse(&many).unwrap_err().to_string();
        assert!(error.starts_with("has 65 hosts"), "{error}");
    }

    #[test]
    fn secrets_are_masked() {
        let table = [
            ("redis://u:secret@h:1/0?password=secret", "redis://***@h:1/0"),
            ("u:secret@h:1", "***@h:1"),
            ("m,redis://:secret@a:1,redis://:secret@b:2", "***@b:2"),
            ("redis://a:sec@ret@h", "redis://***@h"),
            ("redis://a:sec,ret@h", "redis://***@h"),
            ("redis://a:sec?ret@h?password=secret", "redis://***@h"),
            ("redis://h?password=secret", "redis://h"),
            ("redis://user:secret", "redis://user:***"),
            ("a:1,u:secret/0", "a:1,u:***/0"),
            ("redis://[::1]:7", "redis://[::1]:7"),
            ("redis://[::1]", "redis://[::1]"),
            ("/run/redis.sock", "/run/redis.sock"),
        ];
        for (text, shown) in table {
            assert_eq!(Address::mask(text), shown);
        }
        let address = Address::parse("redis://user:hunter2@a").unwrap();
        assert!(!format!("{address:?} {address}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_display_round_trips(text in "(redis|rediss|unix|redis-cluster|redis-sentinel)?(://)?[a-z:@/,%0-9?\\[\\]é]{0,24}") {
            let Ok(address) = Address::parse(&text) else { return Ok(()) };
            if address.password.is_none() && address.username.is_none() {
                let again = Address::parse(&address.to_string());
                prop_assert_eq!(again, Ok(address));
            }
        }
    }
}
