//! What is asked, in the words of each protocol. `{key}` in a text stands for the key.

use std::net::SocketAddr;

/// What is asked of a server, again and again.
#[derive(Debug, Clone)]
pub enum Ask {
    /// Envoy's `ShouldRateLimit` over gRPC.
    Rls {
        /// Whose rules.
        domain: String,
        /// Each is a list of keys and values.
        descriptors: Vec<Vec<(String, String)>>,
    },
    /// `POST /v1/check` of `sluicegate serve`.
    Check {
        /// Whose rules.
        domain: String,
        /// Each is a list of keys and values.
        descriptors: Vec<Vec<(String, String)>>,
    },
    /// A `GET` over HTTP.
    Get {
        /// With what is behind it, as `/search?q={key}`.
        path: String,
    },
    /// A `POST` of JSON over HTTP.
    Post {
        /// With what is behind it.
        path: String,
        /// What is posted.
        body: String,
    },
    /// A command of RESP, the protocol of Redis.
    Command {
        /// As `["CL.THROTTLE", "{key}", "15", "30", "60"]`.
        words: Vec<String>,
    },
    /// Any method of gRPC that takes one message and answers with one.
    Grpc(Method),
}

/// A method of gRPC that this crate does not know.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// As `/package.Service/Method`.
    pub path: &'static str,
    /// The message of a key, which it must write as it is.
    pub message: fn(key: &str) -> Vec<u8>,
    /// What an answer says.
    pub judge: fn(message: &[u8]) -> Result<Answer, String>,
}

/// What a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may go; or, of a server that limits nothing, it was answered.
    Allowed,
    /// It may not.
    Denied,
}

/// What an open connection is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2: many calls at once on a connection.
    Grpc,
    /// HTTP/1.1: one after the other.
    Http,
    /// RESP: as many commands in a row as one likes.
    Resp,
}

const KEY: &str = "{key}";

// === impl Ask ===

impl Ask {
    /// How it is asked.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Rls { .. } | Self::Grpc(_) => Protocol::Grpc,
            Self::Check { .. } | Self::Get { .. } | Self::Post { .. } => Protocol::Http,
            Self::Command { .. } => Protocol::Resp,
        }
    }

    /// Whether the key is in it at all.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let has = |text: &String| text.contains(KEY);
        match self {
            Self::Rls { descriptors, .. } | Self::Check { descriptors, .. } => {
                descriptors.iter().flatten().any(|(key, value)| has(key) || has(value))
            }
            Self::Get { path } => has(path),
            Self::Post { path, body } => has(path) || has(body),
            Self::Command { words } => words.iter().any(has),
            Self::Grpc(method) => (method.message)("0") != (method.message)("1"),
        }
    }

    /// The path of a method of gRPC.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Grpc(method) => method.path,
            _ => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        }
    }

    /// What is sent for a key: a message with its head for gRPC, a whole request for HTTP, a command for RESP.
    pub(crate) fn request(&self, key: &str, address: SocketAddr) -> Vec<u8> {
        let filled = |text: &str| text.replace(KEY, key);
        match self {
            Self::Rls { domain, descriptors } => framed(&rls(domain, descriptors, filled)),
            Self::Grpc(method) => framed(&(method.message)(key)),
            Self::Check { domain, descriptors } => {
                posted(address, "/v1/check", &check(domain, descriptors, filled))
            }
            Self::Post { path, body } => posted(address, &filled(path), &filled(body)),
            Self::Get { path } => {
                format!("GET {} HTTP/1.1\r\nhost: {address}\r\n\r\n", filled(path)).into_bytes()
            }
            Self::Command { words } => {
                let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
                for word in words {
                    let word = filled(word);
                    bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
                }
                bytes
            }
        }
    }
}

/// `RateLimitRequest { domain = 1, descriptors = 2 { entries = 1 { key = 1, value = 2 } } }`.
fn rls(
    domain: &str,
    descriptors: &[Vec<(String, String)>],
    filled: impl Fn(&str) -> String,
) -> Vec<u8> {
    let mut message = field(1, domain.as_bytes());
    for entries in descriptors {
        let entry = |(key, value): &(String, String)| {
            field(
                1,
                &[field(1, filled(key).as_bytes()), field(2, filled(value).as_bytes())].concat(),
            )
        };
        message.extend(field(2, &entries.iter().flat_map(entry).collect::<Vec<u8>>()));
    }
    message
}

/// `{"domain":"shop","descriptors":[{"user_id":"42"}]}`.
fn check(
    domain: &str,
    descriptors: &[Vec<(String, String)>],
    filled: impl Fn(&str) -> String,
) -> String {
    let descriptor = |entries: &Vec<(String, String)>| {
        let entry = |(key, value): &(String, String)| (filled(key), filled(value).into());
        serde_json::Value::Object(entries.iter().map(entry).collect())
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    serde_json::json!({ "domain": domain, "descriptors": descriptors }).to_string()
}

/// A field of protobuf that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

/// As gRPC sends a message: not compressed, and so long.
fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn posted(address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80);

    fn asked(ask: &Ask) -> String {
        String::from_utf8(ask.request("07", HERE)).unwrap()
    }

    #[test]
    fn a_command_is_words_with_their_lengths() {
        let words = ["INCR", "a{key}"].map(str::to_owned).to_vec();
        assert_eq!(asked(&Ask::Command { words }), "*2\r\n$4\r\nINCR\r\n$3\r\na07\r\n");
    }

    #[test]
    fn texts_are_escaped_in_json() {
        let descriptors = vec![vec![("a\"b".to_owned(), "u{key}".to_owned())]];
        let asked = asked(&Ask::Check { domain: "d".to_owned(), descriptors });
        let (_, body) = asked.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, r#"{"domain":"d","descriptors":[{"a\"b":"u07"}]}"#);
        assert!(asked.contains(&format!("content-length: {}\r\n", body.len())), "{asked}");
    }

    #[test]
    fn a_message_of_envoy_has_lengths_of_any_size() {
        let long = "x".repeat(300);
        let descriptors = vec![vec![("k".to_owned(), long)]];
        let bytes = Ask::Rls { domain: "d".to_owned(), descriptors }.request("07", HERE);
        let message = &bytes[5..];
        assert_eq!(bytes[..5], [0, 0, 0, (message.len() >> 8) as u8, message.len() as u8]);
        // Domain, then descriptor of 309 bytes, entry of 306, key, value of 300.
        assert_eq!(message[..3], [0x0a, 1, b'd']);
        assert_eq!(message[3..6], [0x12, 0xb5, 0x02]);
        assert_eq!(message[6..9], [0x0a, 0xb2, 0x02]);
        assert_eq!(message[9..15], [0x0a, 1, b'k', 0x12, 0xac, 0x02]);
        assert_eq!(message.len(), 15 + 300);
    }

    #[test]
    fn whether_there_is_a_key_is_seen() {
        assert!(Ask::Get { path: "/{key}".to_owned() }.has_key());
        assert!(!Ask::Get { path: "/".to_owned() }.has_key());
    }
}
