//! TLS towards servers: trusted authorities, client certificate, protocols by ALPN.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, RootCertStore};
use sluicegate_config::gateway::upstream::UpstreamTls;

/// Why the TLS options of an upstream cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsOptionsError {
    upstream: String,
    reason: String,
}

/// TLS configurations of an upstream's connections.
#[derive(Debug)]
pub(super) struct UpstreamTlsConfigs {
    /// HTTP/2 or HTTP/1.1, as the server chooses.
    pub(super) any: Arc<ClientConfig>,
    /// HTTP/1.1 only, for upgrades.
    pub(super) http1: Arc<ClientConfig>,
    /// `server_name` in place of the host.
    pub(super) server_name: Option<ServerName<'static>>,
}

impl UpstreamTlsConfigs {
    pub(super) fn new(upstream: &str, options: &UpstreamTls) -> Result<Self, TlsOptionsError> {
        Self::build(options)
            .map_err(|reason| TlsOptionsError { upstream: upstream.to_owned(), reason })
    }

    fn build(options: &UpstreamTls) -> Result<Self, String> {
        let roots = match &options.ca {
            Some(path) => file_roots(path)?,
            None => system_roots()?,
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut config = match (&options.cert, &options.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let secret = private_key(key)?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| unusable_pair(cert, key, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => return Err("`cert` has no `key`; name the file of its key".into()),
            (None, Some(_)) => return Err("`key` has no `cert`; name its certificate".into()),
        };
        let server_name = options.server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| {
                format!("`server_name: {name}` is not a host name; write it like `api.example.com`")
            })
        });
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        Ok(Self { any: Arc::new(config), http1, server_name: server_name.transpose()? })
    }
}

/// The authorities in a PEM file.
pub(crate) fn file_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable("ca", path, &error))?;
    }
    Ok(roots)
}

/// The authorities of the system.
pub(crate) fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err("this system has no certificate authorities; name a file with `ca`".into());
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unusable("certificate", path, &error))?;
    if certificates.is_empty() {
        return Err(unusable("certificate", path, &"it has no `BEGIN CERTIFICATE` section"));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable("key", path, &error))
}

/// Files that cannot be used, each with the reason.
pub(crate) fn unusable_tls_files(options: &UpstreamTls) -> Vec<(PathBuf, String)> {
    let ca = options.ca.iter().filter_map(|path| Some((path, file_roots(path).err()?)));
    let mut found: Vec<_> = ca.collect();
    if let (Some(cert), Some(key)) = (&options.cert, &options.key) {
        match (certificates(cert), private_key(key)) {
            (Ok(chain), Ok(secret)) => {
                let pair = CertifiedKey::from_der(chain, secret, &ring::default_provider());
                found.extend(pair.err().map(|error| (key, unusable_pair(cert, key, &error))));
            }
            (chain, secret) => {
                found.extend(chain.err().map(|reason| (cert, reason)));
                found.extend(secret.err().map(|reason| (key, reason)));
            }
        }
    }
    found.into_iter().map(|(path, reason)| (path.clone(), reason)).collect()
}

fn unusable_pair(cert: &Path, key: &Path, error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => format!(
            "the key in `{}` does not match the certificate in `{}`; write both files again",
            key.display(),
            cert.display()
        ),
        error => unusable("key", key, error),
    }
}

fn unusable(kind: &str, path: &Path, error: &dyn fmt::Display) -> String {
    let path: PathBuf = path.to_owned();
    format!("the {kind} in `{}` cannot be used: {error}; name a PEM file", path.display())
}

impl fmt::Display for TlsOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tls of upstream `{}`: {}", self.upstream, self.reason)
    }
}

impl std::error::Error for TlsOptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(options: &UpstreamTls) -> String {
        UpstreamTlsConfigs::new("api", options).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn unusable_options_are_refused_with_a_remedy() {
        let ca = Some(PathBuf::from("/nowhere/ca.pem"));
        let error = error_of(&UpstreamTls { ca, ..UpstreamTls::default() });
        assert!(error.starts_with("tls of upstream `api`: the certificate in `/nowhere/ca.pem`"));
        assert!(error.ends_with("name a PEM file"), "{error}");
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let folder = std::env::temp_dir().join(format!("sluicegate-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let ca = folder.join("ca.pem");
        std::fs::write(&ca, signed.cert.pem()).unwrap();
        let options = UpstreamTls { ca: Some(ca.clone()), ..UpstreamTls::default() };
        assert!(UpstreamTlsConfigs::new("api", &options).is_ok());
        let error = error_of(&UpstreamTls { cert: Some(ca.clone()), ..options.clone() });
        assert!(error.ends_with("`cert` has no `key`; name the file of its key"), "{error}");
        let error = error_of(&UpstreamTls { server_name: Some("a b".into()), ..options });
        assert!(error.contains("is not a host name"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
