//! Sockets, TLS, users and passwords.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use sluicegate_testkit::redis::{Options, Single, Tls, User};

use super::load::Load;
use super::*;
use crate::{BreakerState, Secret, TlsOptions};

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_a_door_too() {
    let server = Single::with(Options { unix_socket: true, ..Options::default() });
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Ok(1));
    let second = open(&format!("{}?db=2", server.url()), ample());
    assert_eq!(count(&second, "visits").await, Ok(1), "another database");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_asks_for_the_right_authority_and_the_right_name() {
    let server = Single::with(Options { tls: Some(Tls::Server), ..Options::default() });
    let ca = Some(server.tls_files().ca.clone());
    let with = |tls: TlsOptions| LinkOptions { tls, ..ample() };
    let link = open(server.url(), with(TlsOptions { ca: ca.clone(), ..TlsOptions::default() }));
    assert_eq!(count(&link, "visits").await, Ok(1));

    // The authority of another server.
    let other = Single::with(Options { tls: Some(Tls::Server), ..Options::default() });
    let theirs = Some(other.tls_files().ca.clone());
    let link = open(server.url(), with(TlsOptions { ca: theirs, ..TlsOptions::default() }));
    until(&link, ServerHealth::Down).await;
    let last = link.stats().servers[0].last_error.clone().unwrap();
    assert!(last.contains("certificate"), "{last}");

    // Those that the system trusts, if it has any, did not sign it either.
    match Link::open(Address::parse(server.url()).unwrap(), ample()) {
        Ok(link) => {
            until(&link, ServerHealth::Down).await;
            let last = link.stats().servers[0].last_error.clone().unwrap();
            assert!(last.contains("certificate"), "{last}");
        }
        Err(error) => assert!(error.to_string().contains("ca-certificates"), "{error}"),
    }

    // Another name for the same machine, that is not in the certificate.
    let alias = format!("rediss://[::ffff:127.0.0.1]:{}", server.port());
    let link = open(&alias, with(TlsOptions { ca: ca.clone(), ..TlsOptions::default() }));
    until(&link, ServerHealth::Down).await;
    let last = link.stats().servers[0].last_error.clone().unwrap();
    assert!(last.contains("not valid for name"), "{last}");
    let any_name = TlsOptions { ca, skip_hostname_verification: true, ..TlsOptions::default() };
    let link = open(&alias, with(any_name));
    assert_eq!(count(&link, "visits").await, Ok(2));
}

/// The last error of a link that cannot connect.
async fn failure(url: &str) -> Box<str> {
    let files = Single::with(Options { tls: Some(Tls::Server), ..Options::default() });
    let tls = TlsOptions { ca: Some(files.tls_files().ca.clone()), ..TlsOptions::default() };
    let connect_timeout = Duration::from_millis(500);
    let link = open(url, LinkOptions { tls, connect_timeout, ..ample() });
    until(&link, ServerHealth::Down).await;
    assert!(!link.is_connecting());
    let server = link.stats().servers[0].clone();
    assert_eq!(server.breaker, BreakerState::Open, "calls fail at once");
    server.last_error.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_use_tls_is_named() {
    let server = Single::start();
    let error = failure(&format!("rediss://127.0.0.1:{}", server.port())).await;
    assert!(error.contains("begin the address with `redis`, not `rediss`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_uses_tls_or_is_no_redis_is_named() {
    let server = Single::with(Options { tls: Some(Tls::Server), ..Options::default() });
    let error = failure(&format!("redis://127.0.0.1:{}", server.port())).await;
    assert!(error.contains("without TLS?"), "{error}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _ = socket.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = failure(&format!("redis://{address}")).await;
    assert_eq!(&*error, "the peer is not Redis: it sent `HTTP/1.1 400 Bad Request`");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_shows_a_certificate_of_its_own() {
    let server = Single::with(Options { tls: Some(Tls::Mutual), ..Options::default() });
    let files = server.tls_files();
    let tls = TlsOptions {
        ca: Some(files.ca.clone()),
        client_cert: Some(files.client_certificate.clone()),
        client_key: Some(files.client_key.clone()),
        ..TlsOptions::default()
    };
    let without = TlsOptions { client_cert: None, client_key: None, ..tls.clone() };
    let link = open(server.url(), LinkOptions { tls: without, ..ample() });
    until(&link, ServerHealth::Down).await;
    let link = open(server.url(), LinkOptions { tls, ..ample() });
    assert_eq!(count(&link, "visits").await, Ok(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_do_what_he_is_allowed_to() {
    let rules = "~visits* +ping +evalsha +eval +incr";
    let user = User { name: "shop".into(), password: "p@ss:w/rd".into(), rules: rules.into() };
    let server = Single::with(Options { users: vec![user], ..Options::default() });
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Ok(1));
    let refused = count(&link, "others").await.unwrap_err();
    let CallError::Refused(words) = &refused else { panic!("{refused:?}") };
    assert!(words.starts_with("NOPERM "), "{words}");
    // It authenticates again, since permissions may have changed, and continues with the remaining
    // ones.
    assert_eq!(count(&link, "visits").await, Ok(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_and_never_shown() {
    let password = Some("right".to_owned());
    let server = Single::with(Options { password, ..Options::default() });
    let url = format!("redis://127.0.0.1:{}", server.port());
    let options = LinkOptions { password: Some(Secret::new("hunter2")), ..ample() };
    let link = open(&url, options);
    until(&link, ServerHealth::Down).await;
    let last = link.stats().servers[0].last_error.clone().unwrap();
    assert!(last.contains("WRONGPASS"), "{last}");
    assert!(!format!("{link:?} {last}").contains("hunter2"));
}

/// A file that is removed in the end.
struct PasswordFile(PathBuf);

impl PasswordFile {
    fn new(name: &str, password: &str) -> Self {
        let file = Self(std::env::temp_dir().join(format!("{name}-{}", std::process::id())));
        file.write(password);
        file
    }

    fn write(&self, password: &str) {
        fs::write(&self.0, format!("{password}\n")).unwrap();
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_can_change_while_calls_go_on() {
    let server = Single::with(Options { password: Some("first".into()), ..Options::default() });
    let file = PasswordFile::new("sluicegate-rotated", "first");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let options = LinkOptions { password_file: Some(file.0.clone()), ..ample() };
    let link = open(&url, options);
    let load = Load::start(&link, &["visits".to_owned()], 8);
    load.answered(100).await;
    // The order in which operators do it: both are good for a while, then only the new one.
    server.cli(&["ACL", "SETUSER", "default", ">second"]);
    file.write("second");
    let mut reconnects = 0;
    while reconnects < 2 {
        load.answered(1).await;
        reconnects = link.stats().reconnects;
    }
    server.cli(&["ACL", "SETUSER", "default", "<first"]);
    load.answered(100).await;
    let books = load.stop().await;
    assert_eq!((books.unclear(), books.not_done.len()), (0, 0), "{:?}", books.not_done);
    books.compare(&link).await;
    // New connections use the new password too.
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    while link.stats().reconnects < 4 {
        let _ = count(&link, "visits").await;
        tokio::task::yield_now().await;
    }
    assert!(count(&link, "visits").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_at_the_server_first_is_picked_up() {
    let server = Single::with(Options { password: Some("first".into()), ..Options::default() });
    let file = PasswordFile::new("sluicegate-late", "first");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let password_file = Some(file.0.clone());
    let options = LinkOptions { password_file, connections: 1, ..ample() };
    let link = open(&url, options);
    until(&link, ServerHealth::Up).await;
    server.cli(&["CONFIG", "SET", "requirepass", "second"]);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    until(&link, ServerHealth::Down).await;
    file.write("second");
    until(&link, ServerHealth::Up).await;
    assert_eq!(count(&link, "visits").await, Ok(1));
}
