//! Chooses the certificate of a connection by the name that the client requests (SNI).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// Certificates by the DNS names in them.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    /// Names in lower case; `*.example.com` for all directly below. Several certificates of one
    /// name have different kinds of keys.
    by_name: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// For clients that request no name, or an unknown one.
    default: Option<Arc<CertifiedKey>>,
    /// Has precedence over the files.
    source: Option<Arc<dyn CertificateSource>>,
}

/// Certificates that are not those of files.
pub trait CertificateSource: fmt::Debug + Send + Sync {
    /// The certificate of a connection.
    fn find(&self, hello: &ClientHello<'_>) -> SourceMatch;

    /// For clients that request no name, or an unknown one, if there are no files.
    fn default_certificate(&self) -> Option<Arc<CertifiedKey>>;
}

/// What a [`CertificateSource`] has for a connection.
#[derive(Debug)]
pub enum SourceMatch {
    /// A certificate.
    Found(Arc<CertifiedKey>),
    /// None: the files decide.
    None,
    /// The handshake must fail.
    Refused,
}

impl CertificateResolver {
    /// The first certificate is the default; `None` if there is neither one nor a source.
    pub(super) fn new(
        certificates: &[Arc<Certificate>],
        source: Option<Arc<dyn CertificateSource>>,
    ) -> Option<Self> {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for certificate in certificates {
            for name in &certificate.names {
                by_name.entry(name.clone()).or_default().push(certificate.key.clone());
            }
        }
        let default = certificates.first().map(|certificate| certificate.key.clone());
        (default.is_some() || source.is_some()).then_some(Self { by_name, default, source })
    }

    /// The certificates of a name in lower case: exact, or of its wildcard.
    fn find(&self, name: &str) -> Option<&[Arc<CertifiedKey>]> {
        let wildcard = || self.by_name.get(&*format!("*.{}", name.split_once('.')?.1));
        self.by_name.get(name).or_else(wildcard).map(Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.source.as_ref().map(|source| source.find(&hello)) {
            Some(SourceMatch::Found(certificate)) => return Some(certificate),
            Some(SourceMatch::Refused) => return None,
            Some(SourceMatch::None) | None => {}
        }
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let found = name.and_then(|name| self.find(&name)).unwrap_or_default();
        let schemes = hello.signature_schemes();
        let can_sign = |one: &&Arc<CertifiedKey>| one.key.choose_scheme(schemes).is_some();
        let found = found.iter().find(can_sign).or(self.default.as_ref()).cloned();
        found.or_else(|| self.source.as_ref()?.default_certificate())
    }
}
