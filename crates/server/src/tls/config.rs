//! The TLS configuration of new connections, made of what was last loaded from each pair of files
//! and from that of the client CA.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{ALL_VERSIONS, ServerConfig};
use sluicegate::{Span, Timestamp};

use super::certificate::Certificate;
use super::client::verifier;
use super::files::{CertificateFiles, Loaded, TlsFiles};
use super::resolver::{CertificateResolver, CertificateSource};
use super::{TlsError, TlsEvent};

/// Interval of warnings about one certificate.
const WARN_EVERY: Span = Span::from_secs(24 * 3_600);

/// What was last loaded from the files of an endpoint.
#[derive(Debug)]
pub(super) struct LoadedFiles {
    certificates: Vec<Loaded<Pair>>,
    client_ca: Option<Loaded<Arc<dyn ClientCertVerifier>>>,
}

/// A certificate in use.
#[derive(Debug)]
struct Pair {
    certificate: Arc<Certificate>,
    /// When its validity was last reported.
    warned_at: Option<Timestamp>,
}

/// What new connections use.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) config: Arc<ServerConfig>,
    /// Those of the files, in their order.
    pub(super) certificates: Vec<Arc<Certificate>>,
}

impl LoadedFiles {
    /// Reads all files.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, TlsError> {
        let load = |files: &CertificateFiles| {
            Loaded::new(files.paths(), |contents| Pair::new(files, contents))
        };
        let certificates = files.certificates.iter().map(load).collect::<Result<_, _>>()?;
        let san = files.client_san.as_deref();
        let client_ca = match (&files.client_ca, san) {
            (Some(path), san) => Some(Loaded::new([path], |[ca]| verifier(path, &ca, san))?),
            (None, Some(san)) => return Err(TlsError::SanWithoutCa { san: san.to_owned() }),
            (None, None) => None,
        };
        Ok(Self { certificates, client_ca })
    }

    /// Reads all files again; those that cannot be used keep their last good value.
    pub(super) fn reload(&mut self, files: &TlsFiles) -> Vec<TlsEvent> {
        let mut events = Vec::new();
        let mut report = |path: &PathBuf, reloaded| match reloaded {
            Ok(false) => {}
            Ok(true) => events.push(TlsEvent::Reloaded { path: path.clone() }),
            Err(error) => events.push(TlsEvent::Refused { path: path.clone(), error }),
        };
        for (files, loaded) in files.certificates.iter().zip(&mut self.certificates) {
            let pair = |contents| Pair::new(files, contents);
            report(&files.cert, loaded.reload(files.paths(), pair));
        }
        if let (Some(path), Some(loaded)) = (&files.client_ca, &mut self.client_ca) {
            let san = files.client_san.as_deref();
            report(path, loaded.reload([path], |[ca]| verifier(path, &ca, san)));
        }
        events
    }

    /// Certificates that clients refuse, or soon will; each once a day.
    pub(super) fn warnings(&mut self, files: &TlsFiles, now: Timestamp) -> Vec<TlsEvent> {
        let mut events = Vec::new();
        for (files, Loaded { value: pair, .. }) in
            files.certificates.iter().zip(&mut self.certificates)
        {
            let is_due = pair.warned_at.is_none_or(|at| now.since(at) >= WARN_EVERY);
            let validity = pair.certificate.validity.filter(|_| is_due);
            if let Some(validity) = validity
                && let Some(warning) = validity.warning(now)
            {
                pair.warned_at = Some(now);
                events.push(TlsEvent::Validity { path: files.cert.clone(), validity, warning });
            }
        }
        events
    }

    /// The configuration of new connections.
    pub(super) fn build(
        &self,
        files: &TlsFiles,
        source: Option<Arc<dyn CertificateSource>>,
    ) -> Result<Current, TlsError> {
        let certificates: Vec<_> =
            self.certificates.iter().map(|loaded| loaded.value.certificate.clone()).collect();
        let resolver = CertificateResolver::new(&certificates, source);
        let resolver = resolver.ok_or(TlsError::NoCertificateFile)?;
        let versions = if files.only_tls13 { &[&TLS13][..] } else { ALL_VERSIONS };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .map_err(|error| TlsError::Unsupported { reason: error.to_string() })?;
        let builder = match &self.client_ca {
            Some(ca) => builder.with_client_cert_verifier(ca.value.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = files.alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Current { config: Arc::new(config), certificates })
    }
}

impl Pair {
    fn new(files: &CertificateFiles, contents: [Vec<u8>; 2]) -> Result<Self, TlsError> {
        let certificate = Arc::new(Certificate::from_files(files, contents)?);
        Ok(Self { certificate, warned_at: None })
    }
}
