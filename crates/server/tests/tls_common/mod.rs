//! Certificates, and clients that have them.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluicegate_server::tls::TlsFiles;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::grpc_common::plain::Plain;
use super::grpc_common::raw::{self, SHOULD_RATE_LIMIT};

/// Vouches for others.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// A new certificate for a name of any kind.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        let san = match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains("://") => SanType::URI(name.try_into().unwrap()),
            Err(_) => SanType::DnsName(name.try_into().unwrap()),
        };
        params.subject_alt_names = vec![san];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    /// The key as OpenSSL wrote it before there was PKCS #8, which wraps it.
    pub(crate) fn key_as_sec1(&self) -> String {
        let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
        else {
            panic!("PKCS #8 is what rcgen writes");
        };
        let key = key.secret_pkcs8_der();
        // A sequence of the number 1, 32 bytes, and what else there is.
        let inside = key.windows(5).position(|bytes| bytes == [2, 1, 1, 4, 32]).unwrap() - 2;
        format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
            base64(&key[inside..])
        )
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// A directory as Kubernetes mounts a secret: files are links into `..data`, which is itself a link and is swapped.
pub(crate) struct Dir {
    path: PathBuf,
    versions: AtomicUsize,
}

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sluicegate-{}-tls-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), path.join(name)).unwrap();
        }
        Self { path, versions: AtomicUsize::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Puts a pair in place of the one there is; its certificate.
    pub(crate) fn put(&self, pair: &Pair) -> CertificateDer<'static> {
        let version = format!("v{}", self.versions.fetch_add(1, Ordering::Relaxed));
        fs::create_dir(self.path(&version)).unwrap();
        fs::write(self.path(&version).join("tls.crt"), &pair.cert).unwrap();
        fs::write(self.path(&version).join("tls.key"), &pair.key).unwrap();
        symlink(&version, self.path("..next")).unwrap();
        fs::rename(self.path("..next"), self.path("..data")).unwrap();
        CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()
    }

    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles::new(self.path("tls.crt"), self.path("tls.key"))
    }

    pub(crate) fn files_for_clients(&self, ca: &Ca, name: Option<&str>) -> TlsFiles {
        let path = self.path("clients.crt");
        fs::write(&path, ca.issuer.pem()).unwrap();
        TlsFiles { client_ca: Some(path), client_san: name.map(str::to_owned), ..self.files() }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

pub(crate) struct Client {
    roots: RootCertStore,
    certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

/// A connection past its handshake.
pub(crate) struct Talk {
    plain: Plain,
    /// The server's.
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) protocol: Option<Vec<u8>>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

impl Client {
    pub(crate) fn trusting(ca: &Ca) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(ca.issuer.der().clone()).unwrap();
        Self { roots, certificate: None }
    }

    pub(crate) fn with(self, pair: &Pair) -> Self {
        let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        Self { certificate: Some((cert, key)), ..self }
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> Outcome<Talk> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.certificate {
            Some((cert, key)) => {
                builder.with_client_auth_cert(vec![cert.clone()], key.clone_key())?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let (_, session) = stream.get_ref();
        let certificate =
            session.peer_certificates().ok_or("no certificate")?[0].clone().into_owned();
        let protocol = session.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Talk { plain: Plain::over(stream).await?, certificate, protocol })
    }

    /// One call on a new connection: what gRPC says of it.
    pub(crate) async fn call(&self, address: SocketAddr) -> Outcome<String> {
        self.connect(address).await?.call().await
    }
}

impl Talk {
    pub(crate) async fn call(&mut self) -> Outcome<String> {
        Ok(self.plain.call(SHOULD_RATE_LIMIT, raw::message("alice")).await?.status)
    }
}
