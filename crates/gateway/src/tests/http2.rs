//! HTTP/2 to servers: prior knowledge, ALPN, trailers, GOAWAY.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use sluicegate_config::gateway::upstream::UpstreamTls;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Answers the streams of a connection of HTTP/2 like a gRPC server, at most `streams` of them;
/// then sends GOAWAY.
async fn serve_streams<S>(socket: S, streams: usize)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    let mut count = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        count += 1;
        let target = request.uri().to_string();
        let mut sent = respond.send_response(Response::new(()), false).unwrap();
        sent.send_data(Bytes::from(target), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        sent.send_trailers(trailers).unwrap();
        if count == streams {
            connection.graceful_shutdown();
        }
    }
}

/// Sends a request of HTTP/2 through the gateway; returns its body and its trailers.
async fn call(gateway: &RunningGateway, path: &str) -> (String, HeaderMap) {
    let (mut client, connection) = h2::client::handshake(gateway.connect().await).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://shop.example{path}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from_static(b"x"), true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        text.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    connection.abort();
    // Closed before the gateway drains.
    let _ = connection.await;
    (String::from_utf8(text).unwrap(), trailers)
}

#[tokio::test]
async fn trailers_pass_through_h2c_and_one_connection_has_many_streams() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let url = server(move |_, socket| {
        count.fetch_add(1, Relaxed);
        serve_streams(socket, usize::MAX)
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url.replace("http:", "h2c:"))).await;
    for index in 0..5 {
        let (body, trailers) = call(&gateway, &format!("/shop.Cart/Add{index}")).await;
        assert_eq!(body, format!("http://shop.example/shop.Cart/Add{index}"));
        assert_eq!(trailers["grpc-status"], "0");
    }
    assert_eq!(connections.load(Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_ends_is_replaced() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let url = server(move |_, socket| {
        count.fetch_add(1, Relaxed);
        serve_streams(socket, 2)
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url.replace("http:", "h2c:"))).await;
    for index in 0..6 {
        let response = gateway.get(&format!("/{index}")).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
    assert!(connections.load(Relaxed) >= 3, "{connections:?}");
}

/// A TLS server that offers these protocols, with the file of its authority.
async fn tls_server(alpn: &[&[u8]], folder: &std::path::Path) -> (String, UpstreamTls) {
    let signed = rcgen::generate_simple_self_signed(vec!["app.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|one| one.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let url = server(move |_, socket| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut socket) = acceptor.accept(socket).await else { return };
            if socket.get_ref().1.alpn_protocol() == Some(b"h2") {
                return serve_streams(socket, usize::MAX).await;
            }
            let mut byte = [0];
            let mut head = Vec::new();
            while socket.read(&mut byte).await.is_ok_and(|count| count > 0) {
                head.push(byte[0]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let response = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold";
                    socket.write_all(response.as_bytes()).await.unwrap();
                }
            }
        }
    })
    .await;
    std::fs::create_dir_all(folder).unwrap();
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, signed.cert.pem()).unwrap();
    let server_name = Some("app.test".to_owned());
    let tls = UpstreamTls { ca: Some(ca), server_name, ..UpstreamTls::default() };
    (url.replace("http:", "https:"), tls)
}

#[tokio::test]
async fn the_server_chooses_the_protocol_of_tls() {
    let folder = std::env::temp_dir().join(format!("sluicegate-alpn-{}", std::process::id()));
    let (url, tls) = tls_server(&[b"h2", b"http/1.1"], &folder).await;
    let config = UpstreamConfig { tls: tls.clone(), ..upstream(&url) };
    let gateway = RunningGateway::forwarding(config).await;
    let response = gateway.get("/x").await;
    assert!(response.ends_with("https://a/x\r\n0\r\n\r\n"), "{response}");
    drop(gateway);

    let (url, tls) = tls_server(&[b"http/1.1"], &folder).await;
    let gateway =
        RunningGateway::forwarding(UpstreamConfig { tls: tls.clone(), ..upstream(&url) }).await;
    for _ in 0..2 {
        let response = gateway.get("/x").await;
        assert!(response.ends_with("old"), "{response}");
    }
    drop(gateway);

    // A certificate for another name is refused.
    let tls = UpstreamTls { server_name: Some("other.test".to_owned()), ..tls };
    let gateway = RunningGateway::forwarding(UpstreamConfig { tls, ..upstream(&url) }).await;
    let response = gateway.get("/x").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    std::fs::remove_dir_all(&folder).unwrap();
}
