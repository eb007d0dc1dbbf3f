//! Addresses that a gateway listens on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_rules::network::Network;

/// An address that a gateway listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// `address`.
    pub address: SocketAddr,
    /// `tls`, if connections are encrypted.
    pub tls: Option<TlsConfig>,
    /// `proxy_protocol`: peers that send a PROXY header; it is required of them.
    pub proxy_protocol: Vec<Network>,
    /// `redirect_to_https`: answers every request with a redirect, except ACME challenges.
    pub redirect_to_https: bool,
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsConfig {
    /// `certificates`: the one whose names fit is used; the first for unknown names.
    pub certificates: Vec<CertificateFiles>,
    /// `acme`: automatic certificates.
    pub acme: Option<AcmeConfig>,
    /// `client_ca`: authorities of client certificates, which are then required.
    pub client_ca: Option<PathBuf>,
    /// `min_version`.
    pub min_version: TlsVersion,
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum TlsVersion {
    /// `1.2`.
    #[default]
    V12,
    /// `1.3`.
    V13,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// `cert`: the chain.
    pub cert: PathBuf,
    /// `key`.
    pub key: PathBuf,
}

/// Automatic certificates (RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeConfig {
    /// `domains`: each gets a certificate.
    pub domains: Vec<String>,
    /// `email` of the account.
    pub email: Option<String>,
    /// `directory` of the authority.
    pub directory: String,
    /// `directory_ca`: authority of the directory's own certificate.
    pub directory_ca: Option<PathBuf>,
    /// `state`: directory of account, keys and certificates.
    pub state: PathBuf,
    /// `challenge`.
    pub challenge: AcmeChallenge,
    /// `profile` of certificates.
    pub profile: Option<String>,
    /// `renew_after`: share of the lifetime in percent, unless the authority says otherwise.
    pub renew_after_percent: u8,
    /// `retry`: the pause after a failed order, doubled by each further one.
    pub retry: Duration,
    /// `external_account` that the account is bound to.
    pub external_account: Option<ExternalAccount>,
}

/// An account outside of ACME (RFC 8555, section 7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// `id` of the key.
    pub id: String,
    /// `key`: file of the HMAC key, in base64url.
    pub key: PathBuf,
}

/// How control of a name is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcmeChallenge {
    /// `http-01`: on port 80.
    #[default]
    Http01,
    /// `tls-alpn-01`: on port 443.
    TlsAlpn01,
}

impl ListenerConfig {
    /// An address without TLS.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, proxy_protocol: Vec::new(), redirect_to_https: false }
    }
}
