//! What is sent, where to, and how much of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Uri};

/// What is sent, where to, and how much of it.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the collector is talked to.
    pub protocol: Protocol,
    /// Where it is; nothing for the usual place on this machine.
    pub endpoint: Option<Endpoint>,
    /// What it wants to see, such as a token.
    pub headers: HeaderMap,
    /// Who we are: `service.name` and such.
    pub resource: Vec<(String, String)>,
    /// Which part of the traces that begin here is kept, from 0 to 1. Others are kept if whoever began them says so.
    pub sampling_rate: f64,
    /// How many spans may wait.
    pub queue_max: usize,
    /// How many are sent at once.
    pub batch_max: usize,
    /// How long a span waits for others.
    pub delay: Duration,
    /// How long the collector may take.
    pub timeout: Duration,
    /// How long the end may take, when what still waits is sent.
    pub flush: Duration,
}

/// How a collector is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// OTLP over HTTP/1.1.
    #[default]
    Http,
    /// OTLP over gRPC.
    Grpc,
}

/// Where a collector is.
///
/// ```
/// use sluicegate_server::traces::Endpoint;
///
/// assert!("http://collector:4318/v1/traces".parse::<Endpoint>().is_ok());
/// let error = "https://collector".parse::<Endpoint>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "must be a URL that begins with http:// (a collector on the way can add TLS), got `https://collector`"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: PathAndQuery,
}

/// A text that is no place of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEndpoint {
    text: String,
}

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

impl Default for Options {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            endpoint: None,
            headers: HeaderMap::new(),
            resource: vec![("service.name".to_owned(), "RateLimit".to_owned())],
            sampling_rate: 1.0,
            queue_max: 2_048,
            batch_max: 512,
            delay: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            flush: Duration::from_secs(3),
        }
    }
}

impl Options {
    /// Where to, with whatever goes without saying.
    pub(super) fn target(&self) -> Endpoint {
        let (port, path) = match self.protocol {
            Protocol::Http => (4318, "/v1/traces"),
            Protocol::Grpc => (4317, EXPORT),
        };
        let path = PathAndQuery::from_static(path);
        match &self.endpoint {
            None => Endpoint { host: "localhost".to_owned(), port, path },
            // A method has its place, whatever comes before.
            Some(endpoint) if self.protocol == Protocol::Grpc => {
                Endpoint { path, ..endpoint.clone() }
            }
            Some(endpoint) => endpoint.clone(),
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// With one more step at the end of the path.
    pub(super) fn join(self, step: &str) -> Self {
        let path = format!("{}/{step}", self.path.path().trim_end_matches('/'));
        let path = path.parse().unwrap_or(self.path);
        Self { path, ..self }
    }

    /// The whole of it, as a URL.
    pub(super) fn uri(&self) -> String {
        format!("http://{}{}", self.authority(), self.path)
    }

    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The host as a resolver wants it: an address of IPv6 without its brackets.
    pub(super) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let bad = || BadEndpoint { text: text.to_owned() };
        let uri: Uri = text.trim().parse().map_err(|_| bad())?;
        // A collector beside the service needs no secrecy, and is the usual way; it can go on with TLS.
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?.to_owned();
        let path = uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { host, port: uri.port_u16().unwrap_or(80), path })
    }
}

// === impl BadEndpoint ===

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way_out = "(a collector on the way can add TLS)";
        write!(f, "must be a URL that begins with http:// {way_out}, got `{}`", self.text)
    }
}

impl std::error::Error for BadEndpoint {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}
