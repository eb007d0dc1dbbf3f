//! JA4: the fingerprint of a TLS client, from its ClientHello.
//!
//! ```text
//!   t13d1516h2_8daaf6152771_e5627efa2ab1
//!   │││ │ │ │  │            └ SHA-256 of extensions and signature algorithms
//!   │││ │ │ │  └ SHA-256 of cipher suites
//!   │││ │ │ └ first and last letter of the first ALPN protocol
//!   │││ │ └ number of extensions
//!   │││ └ number of cipher suites
//!   ││└ `d` with a server name, `i` without
//!   └┴ TLS over TCP, highest version
//! ```
//!
//! Only JA4 of TLS clients, whose licence is that of BSD; the other methods of JA4+ are not free.
//! Values of GREASE (RFC 8701) are random and left out.

use std::fmt::Write;

use ring::digest;

/// Longest ClientHello that is read.
pub(crate) const CLIENT_HELLO_BYTES_MAX: usize = 32 << 10;

const SERVER_NAME: u16 = 0x0000;
const SIGNATURE_ALGORITHMS: u16 = 0x000d;
const ALPN: u16 = 0x0010;
const SUPPORTED_VERSIONS: u16 = 0x002b;

/// How much of a ClientHello there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientHelloState {
    /// More bytes are needed.
    Incomplete,
    /// It is something else, or too long.
    Invalid,
    /// The fingerprint.
    Complete(String),
}

/// The fingerprint of the client whose first bytes these are.
pub(crate) fn fingerprint(records: &[u8]) -> ClientHelloState {
    let message = match client_hello(records) {
        Ok(Some(message)) => message,
        Ok(None) if records.len() < CLIENT_HELLO_BYTES_MAX => return ClientHelloState::Incomplete,
        Ok(None) | Err(Malformed) => return ClientHelloState::Invalid,
    };
    match ClientHello::read(&message) {
        Ok(hello) => ClientHelloState::Complete(hello.ja4()),
        Err(Malformed) => ClientHelloState::Invalid,
    }
}

/// It is no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Malformed;

/// The message of the handshake, without the headers of the records that carry it.
fn client_hello(records: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut message = Vec::new();
    let mut rest = records;
    while let Some((header, behind)) = rest.split_at_checked(5) {
        let [kind, major, _, high, low] = *header else { return Err(Malformed) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != 22 || major != 3 || length == 0 {
            return Err(Malformed);
        }
        let end = length.min(behind.len());
        message.extend_from_slice(behind.get(..end).unwrap_or_default());
        rest = behind.get(end..).unwrap_or_default();
        if let Some((&[kind, first, second, third], body)) = message.split_first_chunk() {
            let length = usize::from(first) << 16 | usize::from(second) << 8 | usize::from(third);
            if kind != 1 || length > CLIENT_HELLO_BYTES_MAX {
                return Err(Malformed);
            }
            if let Some(body) = body.get(..length) {
                return Ok(Some(body.to_vec()));
            }
        }
    }
    match records.first() {
        None | Some(22) => Ok(None),
        Some(_) => Err(Malformed),
    }
}

/// What the fingerprint is made of.
#[derive(Debug, Default)]
struct ClientHello {
    version: u16,
    ciphers: Vec<u16>,
    extensions: Vec<u16>,
    signature_algorithms: Vec<u16>,
    alpn: Option<Vec<u8>>,
}

/// The rest of a message.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed)
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Bytes behind their length of one byte.
    fn short(&mut self) -> Result<Self, Malformed> {
        let length = self.byte()?;
        self.take(length.into()).map(Self)
    }

    /// Bytes behind their length of two bytes.
    fn long(&mut self) -> Result<Self, Malformed> {
        let length = self.number()?;
        self.take(length.into()).map(Self)
    }

    /// All numbers without those of GREASE.
    fn numbers(mut self) -> Result<Vec<u16>, Malformed> {
        let mut numbers = Vec::new();
        while !self.0.is_empty() {
            numbers.push(self.number()?);
        }
        numbers.retain(|number| !is_grease(*number));
        Ok(numbers)
    }
}

impl ClientHello {
    fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes(message);
        let mut hello = Self { version: bytes.number()?, ..Self::default() };
        // Random, session.
        bytes.take(32)?;
        bytes.short()?;
        hello.ciphers = bytes.long()?.numbers()?;
        // Compression.
        bytes.short()?;
        if bytes.0.is_empty() {
            return Ok(hello);
        }
        let mut extensions = bytes.long()?;
        while !extensions.0.is_empty() {
            let (kind, content) = (extensions.number()?, extensions.long()?);
            if !is_grease(kind) {
                hello.extensions.push(kind);
                hello.read_extension(kind, content)?;
            }
        }
        Ok(hello)
    }

    fn read_extension(&mut self, kind: u16, mut content: Bytes<'_>) -> Result<(), Malformed> {
        match kind {
            SIGNATURE_ALGORITHMS => self.signature_algorithms = content.long()?.numbers()?,
            SUPPORTED_VERSIONS => {
                let versions = content.short()?.numbers()?;
                self.version = versions.into_iter().max().unwrap_or(self.version);
            }
            ALPN => self.alpn = Some(content.long()?.short()?.0.to_vec()),
            _ => {}
        }
        Ok(())
    }

    fn ja4(&self) -> String {
        let version = match self.version {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        };
        let name = if self.extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
        let (ciphers, extensions) = (self.ciphers.len().min(99), self.extensions.len().min(99));
        let alpn = alpn_letters(self.alpn.as_deref().unwrap_or_default());
        let mut text = format!("t{version}{name}{ciphers:02}{extensions:02}{alpn}_");
        let sorted = |mut numbers: Vec<u16>| {
            numbers.sort_unstable();
            list(&numbers)
        };
        text.push_str(&short_hash(&sorted(self.ciphers.clone())));
        text.push('_');
        let others = self.extensions.iter().filter(|kind| ![SERVER_NAME, ALPN].contains(kind));
        let mut extensions = sorted(others.copied().collect());
        if !self.signature_algorithms.is_empty() {
            extensions.push('_');
            extensions.push_str(&list(&self.signature_algorithms));
        }
        text.push_str(&short_hash(&extensions));
        text
    }
}

fn list(numbers: &[u16]) -> String {
    let numbers: Vec<_> = numbers.iter().map(|number| format!("{number:04x}")).collect();
    numbers.join(",")
}

fn short_hash(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(12);
    }
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(6).fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first and the last letter; those of its hexadecimal form if one is neither letter nor digit.
fn alpn_letters(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else {
        return "00".to_owned();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from).iter().collect();
    }
    format!("{:x}{:x}", first >> 4, last & 15)
}

const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CIPHERS: [u16; 16] = [
        0x0a0a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
        0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
    ];

    fn prefixed(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        [&length.to_be_bytes()[..], content].concat()
    }

    fn numbers(numbers: &[u16]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    fn hello(ciphers: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut message = vec![3, 3];
        message.extend([7; 32]);
        message.extend([0]);
        message.extend(prefixed(&numbers(ciphers)));
        message.extend([1, 0]);
        let extension = |(kind, content): &(u16, Vec<u8>)| {
            [kind.to_be_bytes().to_vec(), prefixed(content)].concat()
        };
        message.extend(prefixed(&extensions.iter().flat_map(extension).collect::<Vec<_>>()));
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &message].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [vec![22, 3, 1], prefixed(part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    /// The example of the specification, a Chrome.
    fn chrome() -> Vec<u8> {
        let signatures = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
        let empty = [
            0x001b, 0x0033, 0x4469, 0x0017, 0x002d, 0x0005, 0x0023, 0x0012, 0xff01, 0x000b, 0x000a,
            0x0015,
        ];
        let mut extensions: Vec<(u16, Vec<u8>)> = vec![
            (0x1a1a, vec![]),
            (SERVER_NAME, b"any".to_vec()),
            (ALPN, prefixed(b"\x02h2\x08http/1.1")),
            (SIGNATURE_ALGORITHMS, prefixed(&numbers(&signatures))),
            (SUPPORTED_VERSIONS, [vec![6], numbers(&[0x2a2a, 0x0304, 0x0303])].concat()),
        ];
        extensions.extend(empty.map(|kind| (kind, vec![])));
        hello(&CIPHERS, &extensions)
    }

    #[test]
    fn the_example_of_the_specification() {
        let expected = ClientHelloState::Complete("t13d1516h2_8daaf6152771_e5627efa2ab1".into());
        assert_eq!(fingerprint(&records(&chrome(), 10_000)), expected);
        assert_eq!(fingerprint(&records(&chrome(), 3)), expected, "in many records");
        let longer = [records(&chrome(), 10_000), vec![23, 1, 2]].concat();
        assert_eq!(fingerprint(&longer), expected, "with bytes behind it");
    }

    #[test]
    fn little_is_needed() {
        let old = hello(&[0x002f], &[]);
        let text = "t12i010000_".to_owned() + &short_hash("002f") + "_000000000000";
        assert_eq!(fingerprint(&records(&old, 100)), ClientHelloState::Complete(text));
    }

    #[test]
    fn protocols_of_any_bytes() {
        for (protocol, letters) in [
            (&b""[..], "00"),
            (b"h2", "h2"),
            (b"http/1.1", "h1"),
            (b"\xab", "ab"),
            (b"0\xab", "3b"),
        ] {
            assert_eq!(alpn_letters(protocol), letters);
        }
    }

    #[test]
    fn a_part_is_incomplete_and_others_are_invalid() {
        let whole = records(&chrome(), 100);
        for end in 0..whole.len() {
            assert_eq!(fingerprint(&whole[..end]), ClientHelloState::Incomplete, "{end}");
        }
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x02\x01\x00\x01\x01", b"\x15\x03\x01\x00\x02"]
        {
            assert_eq!(fingerprint(bytes), ClientHelloState::Invalid);
        }
        let endless = records(&vec![1; CLIENT_HELLO_BYTES_MAX * 2], 1_000);
        assert_eq!(fingerprint(&endless), ClientHelloState::Invalid);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..250) {
            let _ = fingerprint(&bytes);
            let _ = fingerprint(&records(&bytes, 50));
            let mut message = chrome();
            for (target, byte) in message.iter_mut().skip(at).zip(&bytes) {
                *target = *byte;
            }
            let _ = fingerprint(&records(&message, 1_000));
        }

        #[test]
        fn the_order_of_ciphers_and_extensions_does_not_matter(seed in any::<u64>()) {
            let mut ciphers = CIPHERS.to_vec();
            let turn = usize::try_from(seed % 16).unwrap();
            ciphers.rotate_left(turn);
            let one = hello(&CIPHERS, &[(5, vec![]), (6, vec![])]);
            let other = hello(&ciphers, &[(6, vec![]), (5, vec![])]);
            prop_assert_eq!(fingerprint(&records(&one, 99)), fingerprint(&records(&other, 99)));
        }
    }
}
