//! Reason why a peer is no usable server, with a remedy: from how far the connection came, and from
//! the first bytes of the peer.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

/// Progress of a connection attempt.
#[derive(Debug, Default)]
pub(super) struct DialTrace {
    is_connected: AtomicBool,
    is_tls_pending: AtomicBool,
    first_bytes: Mutex<Vec<u8>>,
}

/// Recorded bytes.
const FIRST_BYTES_MAX: usize = 32;

/// Types of replies in RESP2 and RESP3.
const RESP_TYPES: &[u8] = b"+-:$*_#,(!=%~>|";

impl DialTrace {
    pub(super) fn connected(&self) {
        self.is_connected.store(true, Relaxed);
    }

    pub(super) fn tls_started(&self) {
        self.is_tls_pending.store(true, Relaxed);
    }

    pub(super) fn tls_established(&self) {
        self.is_tls_pending.store(false, Relaxed);
    }

    /// Records the first bytes of the peer; those within TLS, if it is used.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut first = self.first_bytes.lock();
        if first.is_empty() {
            first.extend(bytes.iter().take(FIRST_BYTES_MAX));
        }
    }

    /// The reason of a failed attempt; without an error it timed out. `switch` is the setting that
    /// selects TLS, if it is not the scheme of the address.
    pub(super) fn reason(&self, error: Option<&str>, switch: Option<&str>) -> Box<str> {
        const TIMED_OUT: &str = "no reply while connecting";

        let text = error.unwrap_or(TIMED_OUT);
        if !self.is_connected.load(Relaxed) {
            return text.into();
        }
        if self.is_tls_pending.load(Relaxed) {
            // The peer uses TLS, and one of the two does not accept the other.
            if text.contains("certificate") || text.contains("fatal alert") {
                return text.into();
            }
            let remedy = match switch {
                Some(switch) => format!("remove {switch}"),
                None => "begin the address with `redis`, not `rediss`".to_owned(),
            };
            return format!("{text}: the TLS handshake failed; for a port without TLS {remedy}")
                .into();
        }
        let first = self.first_bytes.lock();
        match first.as_slice() {
            [] => format!("{text}: the peer sent nothing; is it Redis, and without TLS?").into(),
            [byte, ..] if RESP_TYPES.contains(byte) => text.into(),
            // An alert, or a handshake.
            [0x15 | 0x16, 0x03, ..] => match switch {
                Some(switch) => format!("the server uses TLS: set {switch}=true").into(),
                None => "the server uses TLS: begin the address with `rediss`, not `redis`".into(),
            },
            bytes => {
                let line = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').next();
                let line = line.unwrap_or_default().escape_ascii();
                format!("the peer is not Redis: it sent `{line}`").into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_what_the_peer_is() {
        let reason = |bytes: &[u8], error| {
            let trace = DialTrace::default();
            trace.connected();
            trace.received(bytes);
            trace.reason(error, None)
        };
        assert_eq!(&*reason(b"-NOAUTH", Some("NOAUTH")), "NOAUTH");
        assert_eq!(
            &*reason(b"HTTP/1.1 400 Bad Request\r\nServer: x", Some("broken pipe")),
            "the peer is not Redis: it sent `HTTP/1.1 400 Bad Request`"
        );
        assert_eq!(
            &*reason(b"J\0\0\0\n8.0", None),
            r"the peer is not Redis: it sent `J\x00\x00\x00`"
        );
        assert!(reason(b"\x15\x03\x01\0\x02\x02\x46", Some("broken pipe")).contains("uses TLS"));
        assert!(reason(b"", None).ends_with("is it Redis, and without TLS?"));
        let trace = DialTrace::default();
        assert_eq!(&*trace.reason(Some("Connection refused"), None), "Connection refused");
        trace.connected();
        trace.tls_started();
        assert!(trace.reason(None, None).contains("`redis`, not `rediss`"));
        let of_variable = trace.reason(None, Some("REDIS_TLS"));
        assert!(of_variable.ends_with("for a port without TLS remove REDIS_TLS"), "{of_variable}");
        let certificate = "invalid peer certificate";
        assert_eq!(&*trace.reason(Some(certificate), None), certificate);
    }
}
