//! Connections of clients: listeners, access lists, limits of addresses, PROXY protocol, TLS,
//! timeouts, floods, drain and handover, on real sockets.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod accept;
mod bounds;
mod drain;
mod floods;
mod support;
mod tls;
