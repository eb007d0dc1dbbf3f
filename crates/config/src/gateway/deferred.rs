//! Deferred requests: where they are stored, and the bounds of a route's queue.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where requests are stored that are processed later, for all routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredConfig {
    /// `path` of a file of this node, or `store: redis`.
    pub place: DeferredPlace,
    /// `tickets`: path of the tickets, without a final slash.
    pub tickets: String,
    /// `keep`: how long the response of a processed request is stored.
    pub response_retention: Duration,
    /// `keep_dead`: how long a request is stored that could not be processed.
    pub dead_retention: Duration,
    /// `max_bytes` of everything that is stored.
    pub bytes_max: u64,
}

/// Where deferred requests are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeferredPlace {
    /// A file of this node.
    File(PathBuf),
    /// The Redis of the counters, for all nodes.
    Redis,
}

/// Bounds of the deferred requests of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// `max_bytes` of a request's body.
    pub body_bytes_max: usize,
    /// `max_response_bytes` of a response's body.
    pub response_bytes_max: usize,
    /// `max_age`: requests that are older are not sent.
    pub age_max: Duration,
    /// `max_count`: waiting requests.
    pub count_max: u64,
    /// `per_identity.count`: waiting requests of an identity.
    pub identity_count_max: u64,
    /// `per_identity.bytes`: their size.
    pub identity_bytes_max: u64,
    /// `attempts` to send a request.
    pub attempts_max: u32,
    /// `callback`: where results may be sent to.
    pub callbacks: Vec<CallbackPattern>,
}

/// URLs of one scheme, host and port, and one path or all below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackPattern {
    url: CallbackUrl,
    is_prefix: bool,
}

/// A URL that results may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CallbackUrl {
    is_https: bool,
    /// In lower case.
    host: String,
    port: u16,
    /// Without the query.
    path: String,
}

impl Default for DeferredConfig {
    fn default() -> Self {
        Self {
            place: DeferredPlace::Redis,
            tickets: "/.sluicegate/tickets".to_owned(),
            response_retention: Duration::from_secs(3_600),
            dead_retention: Duration::from_secs(7 * 86_400),
            bytes_max: 1 << 30,
        }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: 1 << 20,
            response_bytes_max: 1 << 20,
            age_max: Duration::from_secs(86_400),
            count_max: 10_000,
            identity_count_max: 100,
            identity_bytes_max: 10 << 20,
            attempts_max: 8,
            callbacks: Vec::new(),
        }
    }
}

impl CallbackPattern {
    /// Whether a URL matches: scheme, host and port exactly, the path exactly or below.
    ///
    /// ```
    /// use sluicegate_config::gateway::deferred::CallbackPattern;
    ///
    /// let pattern: CallbackPattern = "https://hooks.example.com/in/*".parse().unwrap();
    /// assert!(pattern.matches("https://hooks.example.com:443/in/a?b=c"));
    /// assert!(!pattern.matches("https://hooks.example.com/in/../admin"));
    /// assert!(!pattern.matches("http://hooks.example.com/in/a"));
    /// assert!(!pattern.matches("https://hooks.example.com@evil.example/in/a"));
    /// ```
    #[must_use]
    pub fn matches(&self, url: &str) -> bool {
        let Some(url) = CallbackUrl::read(url) else { return false };
        let Self { url: own, is_prefix } = self;
        let is_path = match is_prefix {
            true => url.path.starts_with(&own.path),
            false => url.path == own.path,
        };
        let is_origin = (url.is_https, &url.host, url.port) == (own.is_https, &own.host, own.port);
        is_origin && is_path
    }
}

impl CallbackUrl {
    /// Reads a URL; `None` if programs could read it differently.
    fn read(url: &str) -> Option<Self> {
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let (scheme, rest) = url.split_once("://").filter(|_| is_plain && !url.contains('#'))?;
        let is_https = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?'])?);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, if is_https { 443 } else { 80 }),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(is_name),
        };
        let path = target.split('?').next().unwrap_or_default();
        // Dot segments, and slashes that only some programs read as such.
        let lower = path.to_ascii_lowercase();
        let is_normal = !lower.split('/').any(|segment| matches!(segment, "." | ".."))
            && !["%2e", "%2f", "%5c", "%00"].iter().any(|escape| lower.contains(escape));
        let is_usable = is_host && path.starts_with('/') && is_normal;
        let host = host.to_ascii_lowercase();
        is_usable.then(|| Self { is_https, host, port, path: path.to_owned() })
    }
}

impl FromStr for CallbackPattern {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (text, is_prefix) = match text.strip_suffix("/*") {
            Some(prefix) => (format!("{prefix}/"), true),
            None => (text.to_owned(), false),
        };
        let url = CallbackUrl::read(&text).filter(|url| !url.path.contains('*')).ok_or(())?;
        Ok(Self { url, is_prefix })
    }
}

impl fmt::Display for CallbackPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallbackUrl { is_https, host, port, path } = &self.url;
        let scheme = if *is_https { "https" } else { "http" };
        let star = if self.is_prefix { "*" } else { "" };
        write!(f, "{scheme}://{host}:{port}{path}{star}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_exact_about_scheme_host_and_port() {
        let pattern: CallbackPattern = "http://127.0.0.1:8080/done".parse().unwrap();
        assert_eq!(pattern.to_string(), "http://127.0.0.1:8080/done");
        assert!(pattern.matches("http://127.0.0.1:8080/done?id=1"));
        for other in [
            "http://127.0.0.1/done",
            "http://127.0.0.1:8080/done/more",
            "https://127.0.0.1:8080/done",
            "http://127.0.0.1:8080",
            "http://user@127.0.0.1:8080/done",
            "http://127.0.0.1:8080\\@evil/done",
            "http://127.0.0.1:8080/done#x",
            "ftp://127.0.0.1:8080/done",
            "",
        ] {
            assert!(!pattern.matches(other), "{other}");
        }
        let prefix: CallbackPattern = "https://Hooks.example.com/*".parse().unwrap();
        for (url, matches) in [
            ("https://hooks.example.com/", true),
            ("https://HOOKS.example.com/a/b", true),
            ("https://hooks.example.com/a/%2e%2e/b", false),
            ("https://hooks.example.com.evil.example/", false),
            ("https://hooks.example.com:8443/", false),
            ("https://hooks.example.com?x", false),
        ] {
            assert_eq!(prefix.matches(url), matches, "{url}");
        }
        for text in ["hooks.example.com/*", "https://*/", "https://a", "https://a/*/b"] {
            assert!(text.parse::<CallbackPattern>().is_err(), "{text}");
        }
    }
}
