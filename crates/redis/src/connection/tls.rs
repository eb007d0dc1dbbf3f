//! TLS client configuration.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::options::{LinkError, TlsOptions};

/// Builds the configuration from the current content of the files.
pub(super) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, LinkError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(options, provider.clone())?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(Path::new("TLS"), &error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match (&options.client_cert, &options.client_key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| invalid(key, &error))?,
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn verifier(
    options: &TlsOptions,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, LinkError> {
    let (roots, path) = match &options.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| invalid(path, &error))?;
            }
            (roots, path.as_path())
        }
        None => (system_roots()?, Path::new(SYSTEM)),
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| invalid(path, &error))?;
    Ok(if options.skip_hostname_verification { Arc::new(AnyHostname(verifier)) } else { verifier })
}

const SYSTEM: &str = "CA certificates of the system";

fn system_roots() -> Result<RootCertStore, LinkError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some unreadable certificates are usual.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let why = "none found: install `ca-certificates`, or name a file with `ca`";
    Err(LinkError::File { path: SYSTEM.into(), why: why.into() })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LinkError> {
    let bytes = std::fs::read(path).map_err(|error| invalid(path, &error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(invalid(path, &"has no certificate in PEM (`-----BEGIN CERTIFICATE-----`)"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(invalid(path, &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, LinkError> {
    let bytes = std::fs::read(path).map_err(|error| invalid(path, &error))?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            invalid(path, &"has no private key in PEM (`-----BEGIN PRIVATE KEY-----`)")
        }
        error => invalid(path, &error),
    })
}

fn invalid(path: &Path, why: &dyn std::fmt::Display) -> LinkError {
    LinkError::File { path: path.to_owned(), why: why.to_string().into() }
}

/// Verifies everything but the host name.
#[derive(Debug)]
struct AnyHostname(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHostname {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is verified last: everything else is valid if it is the error.
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
