//! Verifier of client certificates: signed by a CA, and with a required name.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use webpki::EndEntityCert;

use super::TlsError;
use super::certificate::{malformed, read_chain};

/// The verifier that the contents of a CA file make.
pub(super) fn verifier(
    path: &Path,
    contents: &[u8],
    san: Option<&str>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path, contents)? {
        roots.add(certificate).map_err(|error| malformed(path, &error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| malformed(path, &error))?;
    Ok(match san {
        Some(san) => Arc::new(SanVerifier::new(san, verifier)),
        None => verifier,
    })
}

/// Requires a subject alternative name (SAN), after another verifier has accepted the certificate.
#[derive(Debug)]
struct SanVerifier {
    san: String,
    /// The same, if it is a DNS name or an IP address.
    host: Option<ServerName<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

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
