//! Bodies: streaming, framing, trailers, `Expect`.

use tokio::sync::mpsc;

use super::*;

/// A server that answers every request with these bytes.
async fn answering(response: &'static [u8]) -> String {
    server(move |_, mut socket| async move {
        while read_head(&mut socket).await.is_some() {
            if socket.write_all(response).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_event_arrives_before_the_next_one_is_sent() {
    let (release, released) = mpsc::channel::<()>(1);
    let released = std::sync::Arc::new(tokio::sync::Mutex::new(released));
    let url = server(move |_, mut socket| {
        let released = released.clone();
        async move {
            read_head(&mut socket).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(b"data: one\n\n").await.unwrap();
            released.lock().await.recv().await;
            socket.write_all(b"data: two\n\n").await.unwrap();
        }
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = gateway.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let first = read_until(&mut client, "data: one\n\n").await.unwrap();
    assert!(first.contains("text/event-stream"), "{first}");
    release.send(()).await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("data: two"), "{rest}");
}

#[tokio::test]
async fn a_large_body_passes_both_ways() {
    const BYTES: usize = 16 << 20;

    let url = server(|_, mut socket| async move {
        read_head(&mut socket).await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
        let (mut reader, mut writer) = socket.split();
        writer.write_all(head.as_bytes()).await.unwrap();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = gateway.connect().await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
    );
    let body: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    let (mut reader, mut writer) = client.split();
    let sent = async {
        writer.write_all(head.as_bytes()).await.unwrap();
        writer.write_all(&body).await.unwrap();
    };
    let received = async {
        let mut response = Vec::new();
        reader.read_to_end(&mut response).await.unwrap();
        response
    };
    let ((), response) = tokio::join!(sent, received);
    assert!(response.ends_with(&body), "{} bytes", response.len());
}

#[tokio::test]
async fn responses_without_a_body_keep_their_headers() {
    let url = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n").await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let request = "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for _ in 0..2 {
        let response = gateway.exchange(request).await.to_ascii_lowercase();
        assert!(response.contains("content-length: 5\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n"), "{response}");
    }
    for response in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\n"] {
        let gateway =
            RunningGateway::forwarding(upstream(&answering(response.as_bytes()).await)).await;
        for _ in 0..2 {
            let forwarded = gateway.get("/").await;
            assert!(forwarded.starts_with(&response[..12]), "{forwarded}");
            assert!(forwarded.ends_with("\r\n\r\n"), "{forwarded}");
            let forwarded = forwarded.to_ascii_lowercase();
            assert!(!forwarded.contains("transfer-encoding"), "{forwarded}");
        }
    }
}

#[tokio::test]
async fn trailers_pass_on_http_1_1() {
    let url = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
          2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n",
    )
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n";
    let response = gateway.exchange(request).await.to_ascii_lowercase();
    assert!(response.contains("trailer: x-sum\r\n"), "{response}");
    assert!(response.ends_with("0\r\nx-sum: 42\r\n\r\n"), "{response}");
}

const EXPECTING: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
      Expect: 100-continue\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_body_is_called_for_when_the_upstream_is_there() {
    let url = server(|_, mut socket| async move {
        let head = read_head(&mut socket).await.unwrap().to_ascii_lowercase();
        assert!(!head.contains("expect:"), "{head}");
        read_until(&mut socket, "body").await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = gateway.connect().await;
    client.write_all(EXPECTING).await.unwrap();
    let interim = read_head(&mut client).await.unwrap();
    assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
    client.write_all(b"body").await.unwrap();
    let response = read_head(&mut client).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn no_body_is_called_for_without_an_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = gateway.connect().await;
    client.write_all(EXPECTING).await.unwrap();
    let response = read_head(&mut client).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}
