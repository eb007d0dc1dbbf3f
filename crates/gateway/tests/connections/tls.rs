//! TLS: certificates by name, versions, client certificates, handshakes.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use sluicegate_config::gateway::listener::{
    CertificateFiles, ListenerConfig, TlsConfig, TlsVersion,
};
use sluicegate_config::gateway::{ConnectionLimits, GatewayConfig};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{
    Running, Upstream, any_port, config, exchange, is_closed, request, temp_path,
};

struct Ca(CertifiedIssuer<'static, KeyPair>);

/// Certificates in a directory.
struct Certificates {
    path: PathBuf,
    ca: Ca,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (cert.pem(), key.serialize_pem())
    }
}

impl Certificates {
    fn new() -> Self {
        let path = temp_path("tls");
        fs::create_dir(&path).unwrap();
        Self { path, ca: Ca::new() }
    }

    fn write(&self, file: &str, names: &[&str]) -> CertificateFiles {
        let (cert, key) = self.ca.issue(names);
        let files = CertificateFiles {
            cert: self.path.join(format!("{file}.crt")),
            key: self.path.join(format!("{file}.key")),
        };
        fs::write(&files.cert, cert).unwrap();
        fs::write(&files.key, key).unwrap();
        files
    }

    fn write_ca(&self, ca: &Ca) -> PathBuf {
        let path = self.path.join("clients.crt");
        fs::write(&path, ca.0.pem()).unwrap();
        path
    }

    fn client(&self) -> Client<'_> {
        Client { ca: &self.ca, versions: rustls::ALL_VERSIONS, identity: None, alpn: b"http/1.1" }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

struct Client<'a> {
    ca: &'a Ca,
    versions: &'static [&'static SupportedProtocolVersion],
    identity: Option<(String, String)>,
    alpn: &'static [u8],
}

impl Client<'_> {
    async fn connect(
        &self,
        gateway: &Running,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![self.alpn.to_vec()];
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, gateway.connect().await).await
    }

    async fn get(&self, gateway: &Running, name: &str) -> std::io::Result<String> {
        exchange(&mut self.connect(gateway, name).await?, &request("/", "")).await
    }
}

fn with_tls(upstream: &Upstream, tls: TlsConfig) -> GatewayConfig {
    let mut config = config(upstream);
    config.listeners[0].tls = Some(tls);
    config
}

#[tokio::test]
async fn the_certificate_is_that_of_the_requested_name() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let files = vec![
        certificates.write("first", &["first.example"]),
        certificates.write("second", &["second.example", "*.second.example"]),
    ];
    let tls = TlsConfig { certificates: files, ..TlsConfig::default() };
    let gateway = Running::start(&with_tls(&upstream, tls)).await;
    let client = certificates.client();
    for name in ["first.example", "second.example", "SECOND.example", "a.second.example"] {
        let response = client.get(&gateway, name).await.unwrap();
        assert!(response.contains("x-forwarded-proto: https\r\n"), "{name}: {response}");
    }
    // The first certificate is not valid for it.
    let error = client.get(&gateway, "a.b.second.example").await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    let http2 = Client { alpn: b"h2", ..certificates.client() };
    let stream = http2.connect(&gateway, "first.example").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
}

#[tokio::test]
async fn a_minimum_version_refuses_older_clients() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let files = vec![certificates.write("a", &["a.example"])];
    static TLS12: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
    let old = Client { versions: &TLS12, ..certificates.client() };
    for (min_version, is_served) in [(TlsVersion::V12, true), (TlsVersion::V13, false)] {
        let tls = TlsConfig { certificates: files.clone(), min_version, ..TlsConfig::default() };
        let gateway = Running::start(&with_tls(&upstream, tls)).await;
        assert_eq!(old.get(&gateway, "a.example").await.is_ok(), is_served);
        assert!(certificates.client().get(&gateway, "a.example").await.is_ok());
        assert_eq!(gateway.rejected("tls_handshake").await, u64::from(!is_served));
    }
}

#[tokio::test]
async fn client_certificates_are_required_and_verified() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let (clients, others) = (Ca::new(), Ca::new());
    let tls = TlsConfig {
        certificates: vec![certificates.write("a", &["a.example"])],
        client_ca: Some(certificates.write_ca(&clients)),
        ..TlsConfig::default()
    };
    let gateway = Running::start(&with_tls(&upstream, tls)).await;
    let with = |identity| Client { identity, ..certificates.client() };
    let known = with(Some(clients.issue(&["alice.example"])));
    assert!(known.get(&gateway, "a.example").await.unwrap().starts_with("HTTP/1.1 200"));
    for unknown in [None, Some(others.issue(&["alice.example"]))] {
        assert!(with(unknown).get(&gateway, "a.example").await.is_err());
    }
    assert_eq!(gateway.rejected("tls_handshake").await, 2);
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_cut() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let files = vec![certificates.write("a", &["a.example"])];
    let tls = TlsConfig { certificates: files, ..TlsConfig::default() };
    let mut config = with_tls(&upstream, tls);
    config.timeouts.tls_handshake = Duration::from_millis(200);
    let gateway = Running::start(&config).await;
    for bytes in [&b""[..], &[22, 3, 1, 2, 0, 1]] {
        let mut socket = gateway.connect().await;
        socket.write_all(bytes).await.unwrap();
        assert!(is_closed(&mut socket).await);
    }
    assert_eq!(gateway.rejected("tls_handshake").await, 2);
}

#[tokio::test]
async fn handshakes_of_an_address_are_limited() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let files = vec![certificates.write("a", &["a.example"])];
    let tls = TlsConfig { certificates: files, ..TlsConfig::default() };
    let mut config = with_tls(&upstream, tls);
    let rate = Rate::new(2, Span::from_secs(3_600)).unwrap();
    config.connections = ConnectionLimits { tls_rate: Some(rate), ..ConnectionLimits::default() };
    let gateway = Running::start(&config).await;
    let client = certificates.client();
    for is_served in [true, true, false] {
        assert_eq!(client.get(&gateway, "a.example").await.is_ok(), is_served);
    }
    assert_eq!(gateway.rejected("tls_rate").await, 1);
}

#[tokio::test]
async fn plain_requests_are_redirected_to_the_port_with_tls() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    let files = vec![certificates.write("a", &["a.example"])];
    let mut config = config(&upstream);
    config.listeners[0].redirect_to_https = true;
    let tls = TlsConfig { certificates: files, ..TlsConfig::default() };
    config.listeners.push(ListenerConfig { tls: Some(tls), ..ListenerConfig::new(any_port()) });
    let gateway = Running::start(&config).await;
    let response = gateway.get("/x?y=1").await;
    let port = gateway.addresses[1].port();
    assert!(response.starts_with("HTTP/1.1 308"), "{response}");
    let location = format!("location: https://a.example:{port}/x?y=1\r\n");
    assert!(response.contains(&location), "{response}");
    let challenge = gateway.get("/.well-known/acme-challenge/x").await;
    assert!(challenge.starts_with("HTTP/1.1 200"), "{challenge}");
}

#[tokio::test]
async fn a_missing_certificate_prevents_the_start() {
    let upstream = Upstream::start().await;
    let file = |name: &str| PathBuf::from(format!("/nonexistent/{name}"));
    let files = vec![CertificateFiles { cert: file("a.crt"), key: file("a.key") }];
    let tls = TlsConfig { certificates: files, ..TlsConfig::default() };
    let config = with_tls(&upstream, tls);
    let error = Running::start_with(&config, any_port()).await.err().unwrap();
    assert!(error.contains("/nonexistent/a.crt: cannot be read"), "{error}");
}
