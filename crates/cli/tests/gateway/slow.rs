//! Clients that are slow, go away, or send too much: bounded in time and memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use sluicegate_testkit::until;

use crate::frames::{END_HEADERS, END_STREAM, HEADERS, frame, headers, open};
use crate::gateway::Gateway;
use crate::support::Folder;
use crate::wire::{HANG, connect, exchange, read_head, read_to_end, statuses};

/// A server whose connections, after the head of a request, are handed to the test.
fn upstream() -> (String, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, sender) = (socket.unwrap(), sender.clone());
            socket.set_read_timeout(Some(HANG)).unwrap();
            thread::spawn(move || {
                read_head(&mut socket);
                let _ = sender.send(socket);
            });
        }
    });
    (url, requests)
}

fn started(folder: &Folder, top: &str) -> (Gateway, Receiver<TcpStream>) {
    let (url, requests) = upstream();
    let config = format!(
        "{top}\nupstreams: {{ app: \"{url}\" }}\nroutes: [{{ path: /*, upstream: app }}]\n"
    );
    (Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]), requests)
}

const UPLOAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_head_byte_by_byte_has_its_time_as_a_whole() {
    let folder = Folder::new();
    let (gateway, _requests) = started(&folder, "timeouts: { header: 300ms }");
    let mut client = connect(&gateway.address);
    // Each byte is sent when the gateway has not closed the connection for a while.
    client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").unwrap();
    let is_open = |client: &mut TcpStream| match client.read(&mut [0; 16]) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    let mut sent = 0;
    while is_open(&mut client) && client.write_all(b"x").is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the connection stays open");
    }
    assert!(sent > 1);
}

#[test]
fn a_body_byte_by_byte_is_forwarded_so() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "");
    let mut client = connect(&gateway.address);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20\r\n\r\n";
    client.write_all(head).unwrap();
    let mut server = requests.recv_timeout(HANG).unwrap();
    for byte in b'a'..b'a' + 20 {
        client.write_all(&[byte]).unwrap();
        let mut read = [0];
        server.read_exact(&mut read).unwrap();
        assert_eq!(read, [byte]);
    }
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(statuses(&read_to_end(&mut client)), [200]);
}

#[test]
fn an_aborted_upload_does_not_look_complete() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "");
    let length = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    for (head, body) in [(UPLOAD, &b"3\r\nabc\r\n"[..]), (length, b"abc")] {
        let mut client = connect(&gateway.address);
        client.write_all(&[head, body].concat()).unwrap();
        let mut server = requests.recv_timeout(HANG).unwrap();
        let mut begun = vec![0; body.len()];
        server.read_exact(&mut begun).unwrap();
        drop(client);
        assert_eq!(begun, body);
        assert_eq!(read_to_end(&mut server), "", "the connection ends without an end of the body");
    }
}

#[test]
fn an_aborted_download_ends_at_the_server_too() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "");
    let mut client = connect(&gateway.address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut server = requests.recv_timeout(HANG).unwrap();
    server.set_write_timeout(Some(HANG)).unwrap();
    server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    read_head(&mut client);
    drop(client);
    let piece = [b'x'; 16 << 10];
    let ended = loop {
        if let Err(error) = server.write_all(&piece) {
            break error.kind();
        }
    };
    assert!(matches!(ended, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{ended:?}");
    let in_flight = r#"sluicegate_gateway_requests_in_flight{route="/*"}"#;
    until("the request has ended", || gateway.metric(in_flight).filter(|value| value == "0"));
}

#[test]
fn heads_and_bodies_that_are_too_large() {
    let folder = Folder::new();
    let (gateway, _requests) = started(&folder, "max_header_bytes: 16KiB\nmax_body_bytes: 1KiB");
    let status = |request: &str| statuses(&exchange(&gateway.address, request.as_bytes()));
    let get = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    assert_eq!(status(&get(&format!("X: {}\r\n", "x".repeat(20_000)))), [431]);
    let many: String = (0..200).map(|index| format!("X-{index}: x\r\n")).collect();
    assert_eq!(status(&get(&many)), [431], "many headers");
    assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000))), [431]);
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n";
    assert_eq!(status(length), [413]);
    let piece = format!("400\r\n{}\r\n", "x".repeat(0x400));
    let upload = String::from_utf8_lossy(UPLOAD);
    assert_eq!(status(&format!("{upload}{piece}{piece}")), [413]);
}

/// Resident memory of a gateway.
fn memory_bytes(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Writes until the other side has taken nothing for a while; the bytes written.
fn fill(socket: &mut TcpStream) -> u64 {
    socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let piece = [b'x'; 64 << 10];
    let mut sent = 0;
    while let Ok(count) = socket.write(&piece) {
        sent += count as u64;
    }
    sent
}

/// Streams of a side that does not read, and what the gateway may buffer for each. Much of it is a
/// reserve of the allocator, for any number of streams.
const STREAMS: usize = 64;
const STREAM_BYTES_MAX: u64 = 1 << 20;

fn assert_bounded(gateway: &Gateway, before: u64) {
    let more = memory_bytes(gateway).saturating_sub(before);
    let each = more / STREAMS as u64;
    assert!(each < STREAM_BYTES_MAX, "{each} bytes for each stream");
}

#[test]
fn uploads_to_a_server_that_does_not_read_are_bounded() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "");
    let before = memory_bytes(&gateway);
    let fill_one = || {
        let mut client = connect(&gateway.address);
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n";
        client.write_all(head).unwrap();
        let server = requests.recv_timeout(HANG).unwrap();
        (client, server)
    };
    let mut pairs: Vec<_> = (0..STREAMS).map(|_| fill_one()).collect();
    let sent: u64 = thread::scope(|scope| {
        let fills: Vec<_> =
            pairs.iter_mut().map(|(client, _)| scope.spawn(|| fill(client))).collect();
        fills.into_iter().map(|fill| fill.join().unwrap()).sum()
    });
    assert!(sent > STREAMS as u64 * STREAM_BYTES_MAX, "{sent} bytes");
    assert_bounded(&gateway, before);
}

/// Answers requests without end, until nothing more is taken.
fn answer_without_end(requests: &Receiver<TcpStream>) -> Vec<TcpStream> {
    let mut servers: Vec<_> = (0..STREAMS).map(|_| requests.recv_timeout(HANG).unwrap()).collect();
    let sent: u64 = thread::scope(|scope| {
        let answer = |server: &mut TcpStream| {
            server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            fill(server)
        };
        let fills: Vec<_> =
            servers.iter_mut().map(|server| scope.spawn(move || answer(server))).collect();
        fills.into_iter().map(|fill| fill.join().unwrap()).sum()
    });
    assert!(sent > STREAMS as u64 * STREAM_BYTES_MAX, "{sent} bytes");
    servers
}

#[test]
fn downloads_of_clients_that_do_not_read_are_bounded() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "timeouts: { header: 60s }");
    let before = memory_bytes(&gateway);
    let client = || {
        let mut client = connect(&gateway.address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    };
    let clients: Vec<_> = (0..STREAMS).map(|_| client()).collect();
    let servers = answer_without_end(&requests);
    assert_bounded(&gateway, before);
    drop((clients, servers));
}

#[test]
fn streams_without_a_window_are_bounded() {
    let folder = Folder::new();
    let (gateway, requests) = started(&folder, "timeouts: { header: 60s }");
    let before = memory_bytes(&gateway);
    // SETTINGS_INITIAL_WINDOW_SIZE 0.
    let mut client = open(&gateway.address, &[0, 4, 0, 0, 0, 0]);
    let fields: [(&str, &[u8]); 4] =
        [(":method", b"GET"), (":scheme", b"http"), (":path", b"/"), (":authority", b"a")];
    for index in 0..STREAMS as u32 {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, 2 * index + 1, &headers(&fields));
        client.write_all(&head).unwrap();
    }
    let servers = answer_without_end(&requests);
    assert_bounded(&gateway, before);
    assert_eq!(gateway.metric("sluicegate_connections_open").as_deref(), Some("2"));
    drop((client, servers));
}
