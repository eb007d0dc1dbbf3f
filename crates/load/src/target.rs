//! Target addresses. Only the loopback interface is allowed by default.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};

/// A permitted address and the path of its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Address of the server.
    pub address: SocketAddr,
    /// Path and query of the URL.
    pub path: Option<String>,
}

/// Permitted targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Loopback addresses only.
    Loopback,
    /// Any address, by explicit request.
    Any,
}

/// Why a target is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError(String);

impl Target {
    /// Parses `HOST:PORT` or a URL such as `http://localhost:8080/search?q={key}` or
    /// `redis://localhost:6379`.
    ///
    /// ```
    /// use sluicegate_load::{Target, AllowedHosts};
    ///
    /// let target = Target::parse("http://127.0.0.1:8080/a?b", AllowedHosts::Loopback)?;
    /// assert_eq!(target.address, "127.0.0.1:8080".parse()?);
    /// assert_eq!(target.path.as_deref(), Some("/a?b"));
    /// assert!(Target::parse("192.0.2.1:80", AllowedHosts::Loopback).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is neither, has no port, cannot be resolved, needs TLS, or is not permitted.
    pub fn parse(text: &str, allowed: AllowedHosts) -> Result<Self, TargetError> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", text),
        };
        let port = match scheme {
            "" | "grpc" => None,
            "http" => Some(80),
            "redis" => Some(6379),
            "https" | "grpcs" | "rediss" => {
                return Err(TargetError(format!(
                    "`{text}`: TLS is not supported; use a plaintext port, as `http://127.0.0.1:8080`"
                )));
            }
            _ => {
                return Err(TargetError(format!(
                    "`{text}`: unknown scheme `{scheme}`; write `HOST:PORT`, `http://HOST:PORT/PATH` or `redis://HOST:PORT`"
                )));
            }
        };
        let (host, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
            None => (rest, None),
        };
        let printable = |path: &String| path.bytes().all(|byte| byte.is_ascii_graphic());
        if !path.as_ref().is_none_or(printable) {
            return Err(TargetError(format!(
                "`{text}`: a path has no blanks and nothing beyond ASCII; write `%20` for a blank"
            )));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let resolved = match (has_port, port) {
            (true, _) => host.to_socket_addrs(),
            (false, Some(port)) => (host, port).to_socket_addrs(),
            (false, None) => {
                return Err(TargetError(format!(
                    "`{text}`: no port; write `HOST:PORT`, as `127.0.0.1:8081`"
                )));
            }
        };
        let resolved = resolved.map_err(|error| {
            TargetError(format!("`{text}`: `{host}` cannot be resolved: {error}"))
        })?;
        let all: Vec<SocketAddr> = resolved.collect();
        let Some(address) = all.first().copied() else {
            return Err(TargetError(format!("`{text}`: `{host}` has no address")));
        };
        // One remote address makes the name remote.
        let remote = all.iter().find(|address| !address.ip().to_canonical().is_loopback());
        match (allowed, remote) {
            (AllowedHosts::Loopback, Some(remote)) => Err(TargetError(format!(
                "`{text}`: {} is a remote address; \
                 add --anywhere if you may load that machine",
                remote.ip()
            ))),
            _ => Ok(Self { address, path }),
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Target::parse(text, AllowedHosts::Loopback).unwrap_err().to_string()
    }

    #[test]
    fn this_machine_has_many_names() {
        for text in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "[::1]:80",
            "localhost:80",
            "http://127.0.0.1",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert_eq!(
                Target::parse(text, AllowedHosts::Loopback).unwrap().address.port(),
                80,
                "{text}"
            );
        }
        let redis = Target::parse("redis://127.0.0.1", AllowedHosts::Loopback).unwrap();
        assert_eq!((redis.address.port(), redis.path), (6379, None));
    }

    #[test]
    fn other_machines_need_a_word() {
        // Documentation addresses (RFC 5737): unassigned, and nothing is sent.
        for text in [
            "192.0.2.1:80",
            "0.0.0.0:80",
            "[2001:db8::1]:80",
            "http://10.0.0.1/",
            "[::ffff:192.0.2.1]:80",
        ] {
            assert!(refused(text).contains("--anywhere"), "{text}");
            assert!(Target::parse(text, AllowedHosts::Any).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_told_with_a_remedy() {
        assert!(refused("127.0.0.1").contains("no port"));
        assert!(refused("https://127.0.0.1").contains("TLS"));
        assert!(refused("ftp://127.0.0.1").contains("`ftp`"));
        assert!(refused("http://127.0.0.1/a b").contains("%20"));
        assert!(refused("http://127.0.0.1/a\r\nx: y").contains("ASCII"));
        assert!(refused("127.0.0.1:99999").contains("no port"));
    }
}
