//! Choice of servers, connections to them, and TLS towards them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sluicegate_config::gateway::upstream::{
    Balance, Ejection, HealthCheck, UpstreamTimeouts, UpstreamTls,
};
use tokio::net::TcpSocket;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server whose queue of connections is full, so that further ones wait; ends with its sockets.
async fn full_server() -> (String, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // The system admits one more than the backlog.
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(TcpStream::connect(address).await.unwrap());
    }
    (format!("http://{address}"), listener, waiting)
}

fn connecting_within(millis: u64) -> UpstreamTimeouts {
    UpstreamTimeouts { connect: Duration::from_millis(millis), ..UpstreamTimeouts::default() }
}

#[tokio::test]
async fn a_connection_that_takes_too_long_is_504_or_another_server() {
    let (url, _listener, _waiting) = full_server().await;
    let timeouts = connecting_within(50);
    let gateway = RunningGateway::forwarding(UpstreamConfig { timeouts, ..upstream(&url) }).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    assert!(response.to_ascii_lowercase().contains("retry-after: 1"), "{response}");
    drop(gateway);

    let alive = named_server("alive").await;
    let config = UpstreamConfig { timeouts, ..upstreams(&[&url, &alive]) };
    let gateway = RunningGateway::forwarding(config).await;
    for _ in 0..2 {
        assert!(gateway.get("/").await.ends_with("alive"));
    }
}

/// A server that announces each request, and answers with its name after a permit.
async fn held_server(name: &'static str, begun: &Arc<Notify>, held: &Arc<Semaphore>) -> String {
    let (begun, held) = (begun.clone(), held.clone());
    server(move |_, mut socket| {
        let (begun, held) = (begun.clone(), held.clone());
        async move {
            while read_head(&mut socket).await.is_some() {
                begun.notify_one();
                held.acquire().await.unwrap().forget();
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{name}");
                socket.write_all(response.as_bytes()).await.unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_slow_server_gets_no_more_requests_by_least_connections() {
    let (begun, held) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let slow = held_server("slow", &begun, &held).await;
    let fast = named_server("fast").await;
    let config =
        UpstreamConfig { balance: Balance::LeastConnections, ..upstreams(&[&slow, &fast]) };
    let gateway = RunningGateway::forwarding(config).await;
    let mut client = gateway.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    begun.notified().await;
    for _ in 0..6 {
        assert!(gateway.get("/").await.ends_with("fast"));
    }
    held.add_permits(1);
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("slow"), "{response}");
    // It is as good as the other one again.
    held.add_permits(Semaphore::MAX_PERMITS / 2);
    let mut names = [gateway.get("/").await, gateway.get("/").await];
    names.sort_unstable_by_key(|response| response.ends_with("slow"));
    assert!(names[0].ends_with("fast") && names[1].ends_with("slow"), "{names:?}");
}

/// The health of a server on the metrics page becomes this.
async fn health_becomes(gateway: &RunningGateway, url: &str, health: u8) {
    let series = format!("sluicegate_upstream_healthy{{upstream=\"app\",server=\"{url}\"}}");
    while !gateway.metrics().await.contains(&format!("{series} {health}\n")) {}
}

#[tokio::test]
async fn checks_bring_a_server_back() {
    let healthy = Arc::new(AtomicBool::new(false));
    let seen = healthy.clone();
    let url = server(move |_, mut socket| {
        let seen = seen.clone();
        async move {
            while let Some(head) = read_head(&mut socket).await {
                let is_check = head.starts_with("GET /health ");
                let is_well = !is_check || seen.load(Relaxed);
                let status = if is_well { "200 OK" } else { "500 Oh" };
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nsick");
                let _ = socket.write_all(response.as_bytes()).await;
            }
        }
    })
    .await;
    let other = named_server("well").await;
    let health = HealthCheck {
        path: "/health".to_owned(),
        every: Duration::from_millis(10),
        timeout: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 1,
        ..HealthCheck::default()
    };
    let config = UpstreamConfig { health: Some(health), ..upstreams(&[&url, &other]) };
    let gateway = RunningGateway::forwarding(config).await;
    health_becomes(&gateway, &url, 0).await;
    for _ in 0..4 {
        assert!(gateway.get("/").await.ends_with("well"));
    }
    healthy.store(true, Relaxed);
    health_becomes(&gateway, &url, 1).await;
    let responses = [gateway.get("/").await, gateway.get("/").await];
    assert!(responses.iter().any(|response| response.ends_with("sick")), "{responses:?}");
}

#[tokio::test]
async fn an_upstream_whose_servers_are_all_down_is_503() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let health = HealthCheck {
        every: Duration::from_millis(10),
        unhealthy_after: 1,
        ..HealthCheck::default()
    };
    let config = UpstreamConfig { health: Some(health), ..upstream(&url) };
    let gateway = RunningGateway::forwarding(config).await;
    health_becomes(&gateway, &url, 0).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(response.contains(r#""code":"upstream_unavailable""#), "{response}");
    assert!(response.to_ascii_lowercase().contains("retry-after: 1"), "{response}");
    assert!(!response.to_ascii_lowercase().contains("ratelimit"), "{response}");
}

#[tokio::test]
async fn an_ejected_server_gets_requests_again() {
    let (failing, well) = (Arc::new(AtomicBool::new(true)), "well");
    let seen = failing.clone();
    let sick = server(move |_, mut socket| {
        let seen = seen.clone();
        async move {
            while read_head(&mut socket).await.is_some() {
                let response = match seen.load(Relaxed) {
                    true => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
                    false => OK,
                };
                let _ = socket.write_all(response).await;
            }
        }
    })
    .await;
    let well = named_server(well).await;
    let eject = Ejection { failures: 2, duration: Duration::from_millis(100) };
    let config = UpstreamConfig { eject, ..upstreams(&[&sick, &well]) };
    let gateway = RunningGateway::forwarding(config).await;
    let mut failures = 0;
    while failures < 2 {
        failures += usize::from(gateway.get("/").await.starts_with("HTTP/1.1 503 "));
    }
    health_becomes(&gateway, &sick, 0).await;
    failing.store(false, Relaxed);
    while !gateway.get("/").await.ends_with("ok") {}
}

/// Files of an authority, and of a certificate that it has signed for `name`.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

#[tokio::test]
async fn a_server_gets_the_certificate_of_the_gateway() {
    let folder = std::env::temp_dir().join(format!("sluicegate-mtls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let authority = Authority::new();
    let (certificate, key) = authority.sign("app.test");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let url = server(move |_, socket| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut socket) = acceptor.accept(socket).await else { return };
            let _ = socket.write_all(OK).await;
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
    })
    .await
    .replace("http:", "https:");
    let file = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).unwrap();
        Some(folder.join(name))
    };
    let (certificate, key) = authority.sign("gateway.test");
    let tls = UpstreamTls {
        ca: file("ca.pem", authority.certificate.pem()),
        cert: file("cert.pem", certificate.pem()),
        key: file("key.pem", key.serialize_pem()),
        server_name: Some("app.test".to_owned()),
    };
    let forwarding =
        |tls: UpstreamTls| RunningGateway::forwarding(UpstreamConfig { tls, ..upstream(&url) });
    let response = forwarding(tls.clone()).await.get("/").await;
    assert!(response.ends_with("ok"), "{response}");
    // Without a certificate, and without trust in the server's.
    let anonymous = UpstreamTls { cert: None, key: None, ..tls.clone() };
    let other_ca = UpstreamTls { ca: file("other.pem", Authority::new().certificate.pem()), ..tls };
    for tls in [anonymous, other_ca] {
        let response = forwarding(tls).await.get("/").await;
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        assert!(response.contains(r#""code":"upstream_failed""#), "{response}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
