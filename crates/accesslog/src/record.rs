//! A request of an access log. Texts are borrowed from the line, so that reading copies nothing.

use std::net::IpAddr;

use sluicegate_core::time::{Span, Timestamp};

/// A request, as far as its line describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the request arrived; where a format has the time of the response only, that.
    pub at: Timestamp,
    /// Address of the client.
    pub client_ip: Option<IpAddr>,
    /// Method.
    pub method: Option<&'a [u8]>,
    /// `http` or `https`.
    pub scheme: Option<&'a [u8]>,
    /// Host, maybe with a port.
    pub host: Option<&'a [u8]>,
    /// Path and query, as the client sent them.
    pub uri: Option<&'a [u8]>,
    /// Authenticated user.
    pub user: Option<&'a [u8]>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Bytes of the response.
    pub bytes: Option<u64>,
    /// Time until the response was complete.
    pub duration: Option<Span>,
    /// Cost of the request, if the log has one.
    pub hits: Option<u64>,
    /// Logged headers of the request, and columns that are mapped to headers.
    pub headers: Vec<(&'a str, &'a [u8])>,
}
