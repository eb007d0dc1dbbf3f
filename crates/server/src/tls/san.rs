//! Clients whose certificates must be for a certain name.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::EndEntityCert;

/// Asks another verifier first, and then for the name.
#[derive(Debug)]
pub(super) struct WithName {
    name: String,
    /// The same, if it is one of a machine.
    machine: Option<ServerName<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl WithName {
    pub(super) fn new(name: &str, verifier: Arc<dyn ClientCertVerifier>) -> Self {
        let machine = ServerName::try_from(name.to_owned()).ok();
        Self { name: name.to_owned(), machine, verifier }
    }

    fn is_of(&self, certificate: &CertificateDer<'_>) -> Result<bool, Error> {
        let certificate = EndEntityCert::try_from(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let is_machine = self
            .machine
            .as_ref()
            .is_some_and(|name| certificate.verify_is_valid_for_subject_name(name).is_ok());
        Ok(is_machine || certificate.valid_uri_names().any(|name| name == self.name))
    }
}

impl ClientCertVerifier for WithName {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        if self.is_of(end_entity)? {
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
