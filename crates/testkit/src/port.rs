//! Ports that stay reserved while their server is down.
//!
//! An outgoing connection or another test may take a port that was free a moment ago. Ports are
//! therefore below the kernel's ephemeral range, and each is reserved by a name that only one
//! process of the machine can hold and that is released with the process.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Start of Linux' ephemeral port range: 32768.
const FIRST: u16 = 11_000;
const COUNT: u32 = 11_000;
/// Offset of the Cluster bus port.
pub(crate) const BUS: u16 = 10_000;
const _: () = assert!(FIRST as u32 + COUNT + BUS as u32 <= 32_768);

/// A port, reserved until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _name: UnixListener,
}

impl Port {
    /// A free port whose Cluster bus port is free too.
    #[must_use]
    pub fn free() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes start their search at distant ports.
        let begin = std::process::id().wrapping_mul(7_919);
        for _ in 0..COUNT {
            let next = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
            let number = FIRST + u16::try_from(next).unwrap_or_default();
            if let Some(port) = Self::reserved(number)
                && [number, number + BUS]
                    .into_iter()
                    .all(|n| TcpListener::bind(("127.0.0.1", n)).is_ok())
            {
                return port;
            }
        }
        panic!("no port is free from {FIRST} on");
    }

    /// Reserves this port.
    pub(crate) fn exactly(number: u16) -> Self {
        Self::reserved(number).unwrap_or_else(|| panic!("port {number} is another test's"))
    }

    fn reserved(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("sluicegate-testkit-{number}")).ok()?;
        let name = UnixListener::bind_addr(&name).ok()?;
        Some(Self { number, _name: name })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
