//! From what is in the files to what a connection begins with.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::error::TlsError;
use super::files::{Contents, Files};
use super::san::WithName;

pub(super) fn config(files: &Files, contents: Contents) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.cert, contents.cert)?;
    let key = key(&files.key, contents.key)?;
    let provider = Arc::new(ring::default_provider());
    let malformed = |error: rustls::Error| TlsError::Malformed {
        path: files.cert.clone(),
        why: error.to_string(),
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(malformed)?;
    let builder = match verifier(files, contents.client_ca, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::KeyDoesNotFit { cert: files.cert.clone(), key: files.key.clone() }
        }
        rustls::Error::General(why) => TlsError::Malformed { path: files.key.clone(), why },
        error => malformed(error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Who looks at the certificates of clients, if they must have one.
fn verifier(
    files: &Files,
    contents: Option<io::Result<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (Some(path), Some(contents)) = (&files.client_ca, contents) else {
        return match &files.client_san {
            Some(san) => Err(TlsError::NameWithoutCa { san: san.clone() }),
            None => Ok(None),
        };
    };
    let malformed = |why: String| TlsError::Malformed { path: path.clone(), why };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, contents)? {
        roots.add(certificate).map_err(|error| malformed(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| malformed(error.to_string()))?;
    Ok(Some(match &files.client_san {
        Some(san) => Arc::new(WithName::new(san, verifier)),
        None => verifier,
    }))
}

fn certificates(
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

fn key(path: &Path, contents: io::Result<Vec<u8>>) -> Result<PrivateKeyDer<'static>, TlsError> {
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
    TlsError::Malformed { path: path.to_owned(), why: error.to_string() }
}
