//! Strangers, over a real socket: whatever they send, the service goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::service;
use crate::support::service::Service;

/// What is said to somebody who sends this, and then closes its half.
fn said(service: &Service, sent: &[u8]) -> String {
    let mut socket = TcpStream::connect(&service.resp).unwrap();
    // It may be closed before all of it is out.
    let _ = socket.write_all(sent);
    let _ = socket.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

#[test]
fn hostile_lengths_are_harmless() {
    let (service, _folder) = service(&[]);
    let digits = format!("*{}\r\n", "9".repeat(100_000));
    let nested = "*1\r\n".repeat(10_000);
    let long = "a".repeat(200_000);
    let many = format!("*1025\r\n{}", "$1\r\na\r\n".repeat(1_025));
    for (sent, error) in [
        ("*1000000000\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        ("*-9223372036854775808\r\n", "invalid multibulk length"),
        (digits.as_str(), "invalid multibulk length"),
        (&many, "invalid multibulk length"),
        ("*1\r\n$1000000000\r\n", "invalid bulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999999\r\n", "invalid bulk length"),
        (&nested, "expected '$', got '*'"),
        ("*1\r\n$4\r\nPINGPING", "expected CRLF behind a bulk string"),
        ("*1\n$4\nPING\n", "invalid multibulk length"),
        (&long, "too big inline request"),
        ("ECHO \"a\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(said(&service, sent.as_bytes()), format!("-ERR Protocol error: {error}\r\n"));
    }
    // Nothing at all, and half of something.
    for sent in ["", "*", "*1", "*1\r\n$4\r\nPI", "PIN"] {
        assert_eq!(said(&service, sent.as_bytes()), "");
    }
    // What means nothing is passed over.
    assert_eq!(said(&service, b"*-1\r\n*0\r\n\r\n\nPING\r\n"), "+PONG\r\n");
    assert_eq!(said(&service, b"PING\r\nPING\r\nQUIT\r\nPING\r\n"), "+PONG\r\n+PONG\r\n+OK\r\n");
    let metrics = service.admin("/metrics").body;
    assert!(metrics.contains("sluicegate_ready 1\n"));
}

#[test]
fn any_bytes_are_a_key_and_none_gets_into_the_protocol() {
    let (service, _folder) = service(&[]);
    let keys: [&[u8]; 4] = [b"", b"\r\n*1\r\n$4\r\nQUIT\r\n", b"\0\xff\xfe", &[b'k'; 65_536]];
    for key in keys {
        for limited in [0, 1] {
            let mut sent = format!("*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n", key.len()).into_bytes();
            sent.extend(key);
            sent.extend(b"\r\n$1\r\n0\r\n$1\r\n1\r\n$5\r\n86400\r\n");
            let said = said(&service, &sent);
            assert!(said.starts_with(&format!("*5\r\n:{limited}\r\n:1\r\n:0\r\n")), "{said}");
        }
    }
    let echo = said(&service, b"*2\r\n$3\r\nGET\r\n$6\r\n\r\n+OK\r\r\n");
    let told = "-ERR unknown command 'GET', with args beginning with: '\\r\\n+OK\\r' \r\n";
    assert_eq!(echo, told);
}

/// Somebody who sends and never reads is not heard any more at some point; others are.
#[test]
fn who_never_reads_takes_no_more_than_its_share() {
    let (service, _folder) = service(&[]);
    let mut deaf = TcpStream::connect(&service.resp).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let commands = "COMMAND DOCS\r\n".repeat(4_000);
    // As much as the system takes, and no more.
    let mut sent = 0;
    while let Ok(more) = deaf.write(commands.as_bytes()) {
        sent += more;
        assert!(sent < 64 << 20, "all of it is taken");
        assert_eq!(said(&service, b"PING\r\n"), "+PONG\r\n");
    }
    assert_eq!(said(&service, b"PING\r\n"), "+PONG\r\n");
}

#[test]
fn beyond_the_bound_connections_are_told_so() {
    let (service, _folder) = service(&[("SLUICEGATE_MAX_CONNECTIONS", "2")]);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(&service.resp).unwrap();
        socket.write_all(b"PING\r\n").unwrap();
        socket.read_exact(&mut [0; 7]).unwrap();
        held.push(socket);
    }
    let mut third = TcpStream::connect(&service.resp).unwrap();
    let mut told = String::new();
    third.read_to_string(&mut told).unwrap();
    assert_eq!(told, "-ERR max number of clients reached\r\n");
}

#[test]
fn a_web_page_cannot_ask() {
    let (service, _folder) = service(&[]);
    let sent = "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nCL.THROTTLE k 0 1 86400\r\n";
    assert_eq!(said(&service, sent.as_bytes()), "-ERR this is not HTTP\r\n");
    let k = said(&service, b"CL.THROTTLE k 0 1 86400\r\n");
    assert!(k.starts_with("*5\r\n:0\r\n"), "it was not asked before: {k}");
}
