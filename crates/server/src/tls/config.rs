//! Builds the TLS configuration of new connections, with the verifier of client certificates.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use webpki::EndEntityCert;

use super::TlsError;
use super::files::{Contents, TlsFiles};

pub(super) fn build(files: &TlsFiles, contents: Contents) -> Result<ServerConfig, TlsError> {
    let chain = read_certificates(&files.cert, contents.cert)?;
    let key = read_key(&files.key, contents.key)?;
    let provider = Arc::new(ring::default_provider());
    let malformed =
        |error: Error| TlsError::Malformed { path: files.cert.clone(), reason: error.to_string() };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(malformed)?;
    let builder = match verifier(files, contents.client_ca, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            TlsError::KeyMismatch { cert: files.cert.clone(), key: files.key.clone() }
        }
        Error::General(reason) => TlsError::Malformed { path: files.key.clone(), reason },
        error => malformed(error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Verifier of client certificates, if they are required.
fn verifier(
    files: &TlsFiles,
    contents: Option<io::Result<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (Some(path), Some(contents)) = (&files.client_ca, contents) else {
        return match &files.client_san {
            Some(san) => Err(TlsError::SanWithoutCa { san: san.clone() }),
            None => Ok(None),
        };
    };
    let malformed = |reason: String| TlsError::Malformed { path: path.clone(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path, contents)? {
        roots.add(certificate).map_err(|error| malformed(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| malformed(error.to_string()))?;
    Ok(Some(match &files.client_san {
        Some(san) => Arc::new(SanVerifier::new(san, verifier)),
        None => verifier,
    }))
}

fn read_certificates(
    path: &Path,
    contents: io::Result<Vec<u8>>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let contents = readable(path, contents)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::NoCertificate { path: path.to_owned() })
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(malformed(path, &error)),
    }
}

fn read_key(
    path: &Path,
    contents: io::Result<Vec<u8>>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    match PrivateKeyDer::from_pem_slice(&readable(path, contents)?) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(TlsError::NoKey { path: path.to_owned() }),
        Err(error) => Err(malformed(path, &error)),
    }
}

fn readable(path: &Path, contents: io::Result<Vec<u8>>) -> Result<Vec<u8>, TlsError> {
    contents.map_err(|error| TlsError::Unreadable { path: path.to_owned(), error })
}

fn malformed(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::Malformed { path: path.to_owned(), reason: error.to_string() }
}

/// Requires a subject alternative name (SAN), after another verifier has accepted the certificate.
#[derive(Debug)]
struct SanVerifier {
    san: String,
    /// The same, if it is a DNS name or an IP address.
    host: Option<ServerName<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

// === impl SanVerifier ===

impl SanVerifier {
    fn new(san: &str, verifier: Arc<dyn ClientCertVerifier>) -> Self {
        let host = ServerName::try_from(san.to_owned()).ok();
        Self { san: san.to_owned(), host, verifier }
    }

    fn matches(&self, certificate: &CertificateDer<'_>) -> Result<bool, Error> {
        let certificate = EndEntityCert::try_from(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let is_host = self
            .host
            .as_ref()
            .is_some_and(|name| certificate.verify_is_valid_for_subject_name(name).is_ok());
        Ok(is_host || certificate.valid_uri_names().any(|name| name == self.san))
    }
}

impl ClientCertVerifier for SanVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        if self.matches(end_entity)? {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(CertificateError::NotValidForName))
        }
    }

    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
