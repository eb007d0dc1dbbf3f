//! The PROXY protocol: a proxy names the client at the beginning of a connection.
//!
//! The header is read exactly, so that the bytes after it stay in the socket: version 1 is a line
//! that is read byte by byte, version 2 has a length.

use std::io;
use std::net::IpAddr;

use proxy_header::{ParseConfig, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest header of version 1, by its specification.
const LINE_BYTES_MAX: usize = 107;
/// Signature of version 2. No header of version 1 is shorter.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version, family and length of version 2.
const FIXED_BYTES: usize = 16;
/// Longest header of version 2 that is accepted. Addresses take at most 216 bytes; the rest are
/// extensions, such as the details of a TLS connection.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// Reads a header; the address of the client, or `None` if the proxy itself is the client.
///
/// # Errors
/// When the connection fails, or does not begin with a valid header.
pub(super) async fn read(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut header = vec![0; SIGNATURE.len()];
    socket.read_exact(&mut header).await?;
    if header.starts_with(SIGNATURE) {
        header.resize(FIXED_BYTES, 0);
        socket.read_exact(header.split_at_mut(SIGNATURE.len()).1).await?;
        let length = u16::from_be_bytes([header[14], header[15]]);
        let length = FIXED_BYTES + usize::from(length);
        if length > HEADER_BYTES_MAX {
            return Err(invalid("the PROXY header is longer than 4096 bytes"));
        }
        header.resize(length, 0);
        socket.read_exact(header.split_at_mut(FIXED_BYTES).1).await?;
    } else if header.starts_with(b"PROXY ") {
        while !header.ends_with(b"\r\n") {
            if header.len() == LINE_BYTES_MAX {
                return Err(invalid("the PROXY line is longer than 107 bytes"));
            }
            header.push(socket.read_u8().await?);
        }
    } else {
        return Err(invalid("the connection does not begin with a PROXY header"));
    }
    let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
    let (parsed, _) = ProxyHeader::parse(&header, config)
        .map_err(|_| invalid("the PROXY header is malformed"))?;
    Ok(parsed.proxied_address().map(|named| named.source.ip().to_canonical()))
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proxy_header::ProxiedAddress;

    use super::*;

    fn read_all(mut bytes: &[u8]) -> (io::Result<Option<IpAddr>>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(read(&mut bytes));
        (read, bytes.to_vec())
    }

    #[test]
    fn a_header_names_the_client_and_the_bytes_after_it_stay() {
        let lines: [(&[u8], Option<&str>); 4] = [
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\n", Some("192.0.2.7")),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n", Some("2001:db8::7")),
            (b"PROXY UNKNOWN\r\n", None),
            (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00", None),
        ];
        for (line, expected) in lines {
            let (read, rest) = read_all(&[line, b"GET / HTTP/1.1\r\n"].concat());
            assert_eq!(read.unwrap(), expected.map(|it| it.parse().unwrap()), "{line:?}");
            assert_eq!(rest, b"GET / HTTP/1.1\r\n");
        }
        for client in ["192.0.2.7:5000", "[2001:db8::7]:5000"] {
            let client: std::net::SocketAddr = client.parse().unwrap();
            let named = ProxiedAddress::stream(client, client);
            let mut bytes = Vec::new();
            ProxyHeader::with_address(named).encode_v2(&mut bytes).unwrap();
            bytes.extend(b"rest");
            let (read, rest) = read_all(&bytes);
            assert_eq!((read.unwrap(), rest), (Some(client.ip()), b"rest".to_vec()));
        }
    }

    #[test]
    fn anything_else_is_refused_within_bounds() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        let (read, rest) = read_all(&long);
        assert!(read.unwrap_err().to_string().contains("107"));
        assert_eq!(rest.len(), long.len() - LINE_BYTES_MAX);
        let long = [SIGNATURE.as_slice(), b"\x21\x11\xff\xff", &[0; 70_000]].concat();
        let (read, rest) = read_all(&long);
        assert!(read.unwrap_err().to_string().contains("4096"));
        assert_eq!(rest.len(), 70_000, "nothing was read of it");
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"PROXY TCP4 a b c d\r\n", b"PROX"] {
            assert!(read_all(bytes).0.is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(start in 0..3_usize, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let start: &[u8] = [b"".as_slice(), b"PROXY TCP4 ", SIGNATURE][start];
            let _ = read_all(&[start, &bytes].concat());
        }
    }
}
