//! In place of `handover` on systems without UNIX sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use sluicegate_server::server::Node;

/// Sockets of the previous process: none.
#[derive(Debug, Default)]
pub(crate) struct Inherited;

/// The sockets of this process, for the next one.
#[derive(Debug)]
pub(crate) struct Handover;

impl Inherited {
    pub(crate) async fn take(_: &Path) -> io::Result<Self> {
        let reason = "this system has no UNIX sockets; remove `handover`";
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }

    pub(crate) const fn take_sockets(&mut self, _: SocketAddr) -> Vec<TcpListener> {
        Vec::new()
    }

    pub(crate) fn into_handover<'a>(
        self,
        _: &Path,
        _: &Node,
        _: impl Iterator<Item = &'a TcpListener>,
    ) -> io::Result<Handover> {
        Ok(Handover)
    }
}

impl Handover {
    pub(crate) async fn run(self) {
        std::future::pending().await
    }
}
