//! Requests of each protocol. `{key}` in a string is replaced by the key.
//!
//! A request is rendered once; a [`Template`] patches the digits of the key. All keys have the same
//! number of digits, so all requests have one length. The positions of the digits are found by
//! rendering two keys without a common digit: the difference is the key.

use std::net::SocketAddr;

use bytes::BytesMut;

/// The request that is sent repeatedly.
#[derive(Debug, Clone)]
pub enum RequestSpec {
    /// Envoy's `ShouldRateLimit` over gRPC.
    Rls {
        /// Domain of the rules.
        domain: String,
        /// Each is a list of key-value entries.
        descriptors: Vec<Vec<(String, String)>>,
    },
    /// `POST /v1/check` of `sluicegate serve`.
    Check {
        /// Domain of the rules.
        domain: String,
        /// Each is a list of key-value entries.
        descriptors: Vec<Vec<(String, String)>>,
    },
    /// A `GET` over HTTP.
    Get {
        /// Path and query, as `/search?q={key}`.
        path: String,
        /// Names and values of headers beside `Host`.
        headers: Vec<(String, String)>,
    },
    /// A `POST` of JSON over HTTP.
    Post {
        /// Path and query.
        path: String,
        /// JSON body.
        body: String,
    },
    /// A command of RESP, the protocol of Redis.
    Command {
        /// As `["CL.THROTTLE", "{key}", "15", "30", "60"]`.
        words: Vec<String>,
    },
    /// Any unary gRPC method.
    Grpc(UnaryMethod),
}

/// A unary gRPC method with a codec of the caller.
#[derive(Debug, Clone, Copy)]
pub struct UnaryMethod {
    /// As `/package.Service/Method`.
    pub path: &'static str,
    /// Encodes the message of a key; the key must appear literally.
    pub message: fn(key: &str) -> Vec<u8>,
    /// Decodes the response.
    pub decode: fn(message: &[u8]) -> Result<Answer, String>,
}

/// The server's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Allowed; or any response of a server without limits.
    Allowed,
    /// Denied.
    Denied,
}

/// The connection protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2: concurrent streams on a connection.
    Grpc,
    /// HTTP/1.1: one request at a time.
    Http,
    /// RESP: pipelined commands.
    Resp,
}

const KEY: &str = "{key}";

impl RequestSpec {
    /// A `GET` without headers of its own.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self::Get { path: path.to_owned(), headers: Vec::new() }
    }

    /// The protocol of the request.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Rls { .. } | Self::Grpc(_) => Protocol::Grpc,
            Self::Check { .. } | Self::Get { .. } | Self::Post { .. } => Protocol::Http,
            Self::Command { .. } => Protocol::Resp,
        }
    }

    /// Whether the request contains the key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let has = |text: &String| text.contains(KEY);
        match self {
            Self::Rls { descriptors, .. } | Self::Check { descriptors, .. } => {
                descriptors.iter().flatten().any(|(key, value)| has(key) || has(value))
            }
            Self::Get { path, headers } => has(path) || headers.iter().any(|(_, value)| has(value)),
            Self::Post { path, body } => has(path) || has(body),
            Self::Command { words } => words.iter().any(has),
            Self::Grpc(method) => (method.message)("0") != (method.message)("1"),
        }
    }

    /// The template for keys of this many digits.
    #[must_use]
    pub fn template(&self, digits: usize, address: SocketAddr) -> Template {
        Template::new(digits, |key| self.render(key, address))
    }

    /// The path of a gRPC method.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Grpc(method) => method.path,
            _ => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        }
    }

    /// The bytes sent for a key: a framed message for gRPC, a whole request for HTTP, a command for
    /// RESP.
    fn render(&self, key: &str, address: SocketAddr) -> Vec<u8> {
        let fill = |text: &str| text.replace(KEY, key);
        match self {
            Self::Rls { domain, descriptors } => frame(&rls(domain, descriptors, fill)),
            Self::Grpc(method) => frame(&(method.message)(key)),
            Self::Check { domain, descriptors } => {
                post(address, "/v1/check", &check(domain, descriptors, fill))
            }
            Self::Post { path, body } => post(address, &fill(path), &fill(body)),
            Self::Get { path, headers } => {
                let line =
                    |(name, value): &(String, String)| format!("{name}: {}\r\n", fill(value));
                let headers: String = headers.iter().map(line).collect();
                format!("GET {} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n", fill(path))
                    .into_bytes()
            }
            Self::Command { words } => {
                let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
                for word in words {
                    let word = fill(word);
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
    fill: impl Fn(&str) -> String,
) -> Vec<u8> {
    let mut message = field(1, domain.as_bytes());
    for entries in descriptors {
        let entry = |(key, value): &(String, String)| {
            field(1, &[field(1, fill(key).as_bytes()), field(2, fill(value).as_bytes())].concat())
        };
        message.extend(field(2, &entries.iter().flat_map(entry).collect::<Vec<u8>>()));
    }
    message
}

/// `{"domain":"shop","descriptors":[{"user_id":"42"}]}`.
fn check(
    domain: &str,
    descriptors: &[Vec<(String, String)>],
    fill: impl Fn(&str) -> String,
) -> String {
    let descriptor = |entries: &Vec<(String, String)>| {
        let entry = |(key, value): &(String, String)| (fill(key), fill(value).into());
        serde_json::Value::Object(entries.iter().map(entry).collect())
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    serde_json::json!({ "domain": domain, "descriptors": descriptors }).to_string()
}

/// A length-delimited protobuf field.
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

/// The gRPC length prefix: not compressed.
fn frame(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn post(address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The bytes of a request and the positions of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    bytes: Vec<u8>,
    /// Offsets of the key's digits.
    offsets: Vec<usize>,
    digits: usize,
}

impl Template {
    /// Builds the template. `request` must write the key literally or not at all.
    fn new(digits: usize, request: impl Fn(&str) -> Vec<u8>) -> Self {
        let (bytes, other) = (request(&"0".repeat(digits)), request(&"1".repeat(digits)));
        debug_assert_eq!(bytes.len(), other.len(), "requests of one length");
        let mut offsets = Vec::new();
        let mut at = 0;
        while at < bytes.len().min(other.len()) {
            let differs = bytes[at] != other[at];
            if differs {
                offsets.push(at);
            }
            at += if differs { digits } else { 1 };
        }
        Self { bytes, offsets, digits }
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the request of a key.
    pub fn write(&self, key: u64, out: &mut BytesMut) {
        let begins = out.len();
        out.extend_from_slice(&self.bytes);
        let written = &mut out[begins..];
        for offset in &self.offsets {
            let mut rest = key;
            for digit in written[*offset..*offset + self.digits].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80);

    fn rendered(spec: &RequestSpec) -> String {
        String::from_utf8(spec.render("07", HERE)).unwrap()
    }

    #[test]
    fn a_command_is_words_with_their_lengths() {
        let words = ["INCR", "a{key}"].map(str::to_owned).to_vec();
        assert_eq!(rendered(&RequestSpec::Command { words }), "*2\r\n$4\r\nINCR\r\n$3\r\na07\r\n");
    }

    #[test]
    fn texts_are_escaped_in_json() {
        let descriptors = vec![vec![("a\"b".to_owned(), "u{key}".to_owned())]];
        let asked = rendered(&RequestSpec::Check { domain: "d".to_owned(), descriptors });
        let (_, body) = asked.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, r#"{"domain":"d","descriptors":[{"a\"b":"u07"}]}"#);
        assert!(asked.contains(&format!("content-length: {}\r\n", body.len())), "{asked}");
    }

    #[test]
    fn a_message_of_envoy_has_lengths_of_any_size() {
        let long = "x".repeat(300);
        let descriptors = vec![vec![("k".to_owned(), long)]];
        let bytes = RequestSpec::Rls { domain: "d".to_owned(), descriptors }.render("07", HERE);
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
        assert!(RequestSpec::get("/{key}").has_key());
        assert!(!RequestSpec::get("/").has_key());
        let headers = vec![("x-user".to_owned(), "u{key}".to_owned())];
        let request = RequestSpec::Get { path: "/".to_owned(), headers };
        assert!(request.has_key());
        let text = "GET / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nx-user: u07\r\n\r\n";
        assert_eq!(rendered(&request), text);
    }

    proptest! {
        #[test]
        fn writing_over_is_making_anew(
            parts in proptest::collection::vec("[a-z{}01]{0,4}", 1..5), digits in 1usize..8, key: u64, before in "[a-z]{0,3}",
        ) {
            let key = key % 10u64.pow(digits as u32);
            let request = |key: &str| parts.join(key).into_bytes();
            let mut written = BytesMut::from(before.as_bytes());
            Template::new(digits, request).write(key, &mut written);
            let made = [before.into_bytes(), request(&format!("{key:0digits$}"))].concat();
            prop_assert_eq!(&written[..], &made[..]);
        }
    }
}
