//! Certificate files, and the TLS configuration of new connections with the verifier of client
//! certificates.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ALL_VERSIONS, CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use webpki::EndEntityCert;

use super::TlsError;
use super::resolver::{CertificateResolver, CertificateSource};

/// PEM files of an endpoint, and what it requires of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates, chosen by the name that a client requests; the first for unknown names.
    pub certificates: Vec<CertificateFiles>,
    /// CA of client certificates; if set, every client must have one.
    pub client_ca: Option<PathBuf>,
    /// Subject alternative name (DNS name, IP address or URI) required of client certificates.
    pub client_san: Option<String>,
    /// Whether TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Application protocols (ALPN), in order of preference.
    pub alpn: &'static [&'static [u8]],
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate of the server, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// Its key, as PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Contents of the files.
#[derive(Debug)]
pub(super) struct Contents {
    /// Chain and key of each certificate.
    certificates: Vec<[io::Result<Vec<u8>>; 2]>,
    client_ca: Option<io::Result<Vec<u8>>>,
}

/// Hash of the contents, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

/// Limit of reads while the files change.
const READS_MAX: usize = 5;

/// Limit of a file's size, far above that of any certificate chain.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl TlsFiles {
    /// One certificate, for HTTP/2.
    #[must_use]
    pub fn new(cert: PathBuf, key: PathBuf) -> Self {
        Self {
            certificates: vec![CertificateFiles { cert, key }],
            client_ca: None,
            client_san: None,
            only_tls13: false,
            alpn: &[b"h2"],
        }
    }

    /// Reads the files until two reads agree, since they may be replaced one after the other.
    pub(super) fn read_stable(&self) -> Contents {
        let mut last = self.read();
        for _ in 1..READS_MAX {
            let again = self.read();
            if again.fingerprint() == last.fingerprint() {
                break;
            }
            last = again;
        }
        last
    }

    fn read(&self) -> Contents {
        let pair = |files: &CertificateFiles| [read(&files.cert), read(&files.key)];
        Contents {
            certificates: self.certificates.iter().map(pair).collect(),
            client_ca: self.client_ca.as_deref().map(read),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path)
}

impl Contents {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for file in self.certificates.iter().flatten().chain(&self.client_ca) {
            file.as_ref().map_err(io::Error::kind).hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }
}

pub(super) fn build(
    files: &TlsFiles,
    contents: Contents,
    source: Option<Arc<dyn CertificateSource>>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut certificates = Vec::with_capacity(files.certificates.len());
    for (files, [cert, key]) in files.certificates.iter().zip(contents.certificates) {
        certificates.push(certified_key(files, cert, key, &provider)?);
    }
    let resolver = CertificateResolver::new(certificates, source);
    let resolver = resolver.ok_or(TlsError::NoCertificateFile)?;
    let versions = if files.only_tls13 { &[&TLS13][..] } else { ALL_VERSIONS };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Unsupported { reason: error.to_string() })?;
    let builder = match verifier(files, contents.client_ca, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = files.alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn certified_key(
    files: &CertificateFiles,
    cert: io::Result<Vec<u8>>,
    key: io::Result<Vec<u8>>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(&files.cert, cert)?;
    let key = read_key(&files.key, key)?;
    let malformed =
        |path: &Path, reason: String| TlsError::Malformed { path: path.to_owned(), reason };
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            TlsError::KeyMismatch { cert: files.cert.clone(), key: files.key.clone() }
        }
        Error::General(reason) => malformed(&files.key, reason),
        error => malformed(&files.cert, error.to_string()),
    })
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
