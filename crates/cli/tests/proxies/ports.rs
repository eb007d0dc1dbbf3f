//! Addresses for servers that cannot be told to find one for themselves.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

/// An address at which nobody listens, and at which nobody will until it is used: its host is this
/// process' own, and no two tests get the same port.
pub fn free() -> String {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let host = host();
    loop {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return format!("{host}:{port}");
        }
    }
}

/// On Linux all of 127.0.0.0/8 is this machine.
fn host() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    if cfg!(target_os = "linux") { Ipv4Addr::new(127, 64 | a, b, c) } else { Ipv4Addr::LOCALHOST }
}
