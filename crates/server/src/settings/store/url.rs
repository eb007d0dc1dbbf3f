//! The URL of a store: `redis://user:password@host:6379/0` and others.
//!
//! The credentials are separated from the address, so that the address can be shown.

use std::fmt::Write as _;

/// A parsed URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// The URL without credentials.
    pub(super) address: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) is_tls: bool,
}

/// Schemes, each with whether it has TLS and an example.
const SCHEMES: &[(&str, bool, &str)] = &[
    ("redis", false, "redis://127.0.0.1:6379"),
    ("rediss", true, "rediss://redis.example:6380"),
    ("unix", false, "unix:///run/redis.sock"),
    ("redis+unix", false, "redis+unix:///run/redis.sock"),
    ("redis-sentinel", false, "redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"),
    ("rediss-sentinel", true, "rediss-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"),
    ("redis-cluster", false, "redis-cluster://10.0.0.1:6379,10.0.0.2:6379"),
    ("rediss-cluster", true, "rediss-cluster://10.0.0.1:6379,10.0.0.2:6379"),
];

/// Parses a URL.
///
/// # Errors
/// Names the invalid part and a remedy, never a secret.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let known = text.split_once("://").and_then(|(scheme, rest)| {
        let scheme = scheme.to_ascii_lowercase().replacen("valkey", "redis", 1);
        let found = SCHEMES.iter().find(|(name, ..)| *name == scheme);
        found.map(|found| (found, rest))
    });
    let Some((&(scheme, is_tls, example), rest)) = known else {
        return Err(
            "must be `memory`, or begin with `redis://`, `rediss://`, `unix://`, `redis-sentinel://`, \
             `rediss-sentinel://`, `redis-cluster://` or `rediss-cluster://`, such as `redis://127.0.0.1:6379`"
                .to_owned(),
        );
    };
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = location.split_at(location.find('/').unwrap_or(location.len()));
    let (credentials, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
    let is_file = scheme.ends_with("unix");
    // Part of a password could be taken for a path or query, and be shown.
    if query.contains('@') || (!is_file && path.contains('@')) {
        return Err(
            "has a `@` too late; write a `/` or a `?` of a password as `%2F` or `%3F`".into()
        );
    }
    if credentials.contains('@') && credentials.contains(',') {
        return Err(
            "must have credentials once, before all hosts; write a `,` of a password as `%2C`"
                .into(),
        );
    }
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (decoded(user)?, decoded(password)?),
        None => (decoded(credentials)?, None),
    };
    if !is_file && hosts.split(',').any(|host| !has_good_port(host)) {
        // Or a password without a host.
        return Err(format!("has a port that is not a number; write it like `{example}`"));
    }
    let path = path.trim_end_matches('/');
    let has_location = match scheme {
        _ if is_file => path.len() > 1 && hosts.is_empty(),
        _ if scheme.ends_with("-sentinel") => !hosts.is_empty() && path.len() > 1,
        _ => !hosts.is_empty(),
    };
    if !has_location {
        return Err(format!("has no host or path; write it like `{example}`"));
    }
    let mut url = Url { address: format!("{scheme}://{hosts}{path}"), user, password, is_tls };
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            // The path of a socket cannot contain it.
            Some(("db", _)) if is_file => {
                let _ = write!(url.address, "?{part}");
            }
            Some(("db", number)) => {
                let _ = write!(url.address, "/{number}");
            }
            Some(("user" | "username", user)) => url.user = decoded(user)?,
            Some(("pass" | "password", password)) => url.password = decoded(password)?,
            _ => {
                let name = part.split('=').next().unwrap_or_default();
                return Err(format!(
                    "has `{name}` behind its `?`, which is not one of `db`, `user`, `password`"
                ));
            }
        }
    }
    Ok(url)
}

/// The URL without possible secrets: all between the scheme and the last `@`, and the query.
pub(super) fn masked(text: &str) -> String {
    let is_scheme = |c: char| c.is_ascii_alphabetic() || "+-".contains(c);
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let scheme = match scheme {
        _ if scheme.is_empty() || !scheme.chars().all(is_scheme) => String::new(),
        _ => format!("{scheme}://"),
    };
    let rest = text.strip_prefix(&scheme).unwrap_or(text);
    let (mask, location) = rest.rsplit_once('@').map_or(("", rest), |(_, after)| ("***@", after));
    let location = location.split('?').next().unwrap_or_default();
    let (hosts, path) = location.split_at(location.find('/').unwrap_or(location.len()));
    let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
        Some((name, _)) if !has_good_port(host) => format!("{name}:***"),
        _ => host.to_owned(),
    });
    format!("{scheme}{mask}{}{path}", hosts.collect::<Vec<_>>().join(","))
}

/// Whether a port is a number, if there is one.
fn has_good_port(host: &str) -> bool {
    match host.rsplit_once(':') {
        // The last part of an IPv6 address is not a port.
        Some((_, port)) if !port.ends_with(']') => {
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => true,
    }
}

/// Decodes percent-encoding; `None` if empty.
fn decoded(text: &str) -> Result<Option<String>, String> {
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
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| "has a user or a password that is not UTF-8".to_owned())?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_separated() {
        let table = [
            ("redis://h:1", "redis://h:1", None, None),
            ("REDIS://h", "redis://h", None, None),
            ("valkeys-cluster://h", "rediss-cluster://h", None, None),
            ("redis://u:p@ss@h", "redis://h", Some("u"), Some("p@ss")),
            ("redis://:p%40ss@h:1/2", "redis://h:1/2", None, Some("p@ss")),
            ("rediss://u:p@[::1]:1/", "rediss://[::1]:1", Some("u"), Some("p")),
            ("redis://u@h?db=3", "redis://h/3", Some("u"), None),
            ("redis://h?username=u&password=p", "redis://h", Some("u"), Some("p")),
            ("unix:///a/b.sock?db=3&pass=p", "unix:///a/b.sock?db=3", None, Some("p")),
            ("redis-sentinel://:p@a:1,b:2/m/0", "redis-sentinel://a:1,b:2/m/0", None, Some("p")),
            ("rediss-cluster://a:1,b:2", "rediss-cluster://a:1,b:2", None, None),
        ];
        for (text, address, user, password) in table {
            let url = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.address, address, "{text}");
            assert_eq!((url.user.as_deref(), url.password.as_deref()), (user, password), "{text}");
            assert_eq!(url.is_tls, address.starts_with("rediss"), "{text}");
        }
    }

    #[test]
    fn errors_have_a_remedy() {
        let table = [
            ("localhost:6379", "begin with `redis://`"),
            ("http://h", "begin with `redis://`"),
            ("redis://", "write it like `redis://127.0.0.1:6379`"),
            ("redis:///0", "write it like `redis://127.0.0.1:6379`"),
            ("unix://run/redis.sock", "write it like `unix:///run/redis.sock`"),
            ("redis-sentinel://a:1", "/mymaster"),
            ("redis://u:p/w@h", "`%2F`"),
            ("redis://user:password", "a port that is not a number"),
            ("redis-cluster://a:1,b:x", "a port that is not a number"),
            ("redis://u:p?w@h", "`%3F`"),
            ("redis-cluster://u:p@a,u:p@b", "once, before all hosts"),
            ("redis://u:%4@h", "`%25`"),
            ("redis://u:%ff@h", "UTF-8"),
            ("redis://h?protocol=resp3", "`protocol` behind its `?`"),
        ];
        for (text, part) in table {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
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
            assert_eq!(masked(text), shown);
        }
    }
}
