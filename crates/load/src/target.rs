//! Where the load goes: not just anywhere.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};

/// An address that may be loaded, and the path behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where.
    pub address: SocketAddr,
    /// What was behind it in a URL, from its `/` on.
    pub path: Option<String>,
}

/// Which places are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This machine only.
    Loopback,
    /// Whatever somebody has asked for in so many words.
    Anywhere,
}

/// Why this is no place for a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceError(String);

// === impl Place ===

impl Place {
    /// Reads `HOST:PORT`, or a URL such as `http://localhost:8080/search?q={key}` or `redis://localhost:6379`.
    ///
    /// ```
    /// use sluicegate_load::{Place, Reach};
    ///
    /// let place = Place::read("http://127.0.0.1:8080/a?b", Reach::Loopback)?;
    /// assert_eq!(place.address, "127.0.0.1:8080".parse()?);
    /// assert_eq!(place.path.as_deref(), Some("/a?b"));
    /// assert!(Place::read("192.0.2.1:80", Reach::Loopback).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is neither, has no port, cannot be resolved, needs TLS, or is out of reach.
    pub fn read(text: &str, reach: Reach) -> Result<Self, PlaceError> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", text),
        };
        let port = match scheme {
            "" | "grpc" => None,
            "http" => Some(80),
            "redis" => Some(6379),
            "https" | "grpcs" | "rediss" => {
                return Err(PlaceError(format!(
                    "`{text}`: TLS cannot be loaded; name a port without it, as `http://127.0.0.1:8080`"
                )));
            }
            _ => {
                return Err(PlaceError(format!(
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
            return Err(PlaceError(format!(
                "`{text}`: a path has no blanks and nothing beyond ASCII; write `%20` for a blank"
            )));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let resolved = match (has_port, port) {
            (true, _) => host.to_socket_addrs(),
            (false, Some(port)) => (host, port).to_socket_addrs(),
            (false, None) => {
                return Err(PlaceError(format!(
                    "`{text}`: no port; write `HOST:PORT`, as `127.0.0.1:8081`"
                )));
            }
        };
        let resolved = resolved.map_err(|error| {
            PlaceError(format!("`{text}`: `{host}` cannot be resolved: {error}"))
        })?;
        let all: Vec<SocketAddr> = resolved.collect();
        let Some(address) = all.first().copied() else {
            return Err(PlaceError(format!("`{text}`: `{host}` has no address")));
        };
        // A name with an address elsewhere is elsewhere.
        let stranger = all.iter().find(|address| !address.ip().to_canonical().is_loopback());
        match (reach, stranger) {
            (Reach::Loopback, Some(stranger)) => Err(PlaceError(format!(
                "`{text}`: {} is not this machine, and load on somebody else's is an attack; \
                 add --anywhere if that machine is yours to load",
                stranger.ip()
            ))),
            _ => Ok(Self { address, path }),
        }
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlaceError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Place::read(text, Reach::Loopback).unwrap_err().to_string()
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
            assert_eq!(Place::read(text, Reach::Loopback).unwrap().address.port(), 80, "{text}");
        }
        let redis = Place::read("redis://127.0.0.1", Reach::Loopback).unwrap();
        assert_eq!((redis.address.port(), redis.path), (6379, None));
    }

    #[test]
    fn other_machines_need_a_word() {
        // Addresses of documentation: nobody has them, and nothing is sent.
        for text in [
            "192.0.2.1:80",
            "0.0.0.0:80",
            "[2001:db8::1]:80",
            "http://10.0.0.1/",
            "[::ffff:192.0.2.1]:80",
        ] {
            assert!(refused(text).contains("--anywhere"), "{text}");
            assert!(Place::read(text, Reach::Anywhere).is_ok(), "{text}");
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
