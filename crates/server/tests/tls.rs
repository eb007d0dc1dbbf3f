//! Encrypted connections: real handshakes with certificates made here.

#![cfg(unix)] // Links are swapped as Kubernetes does it.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;
mod tls_common;

use std::fs;
use std::sync::{Arc, Mutex};

use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, Timestamp};
use sluicegate_server::app::App;
use sluicegate_server::grpc::{GrpcLimits, Options};
use sluicegate_server::metrics::{self, MetricsSource, Page};
use sluicegate_server::telemetry::Event;
use sluicegate_server::tls::{
    CHECK_EVERY, Tls, TlsError, TlsEvent, ValidityWarning, put_certificates,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use grpc_common::{Clock, server_with};
use tls_common::{Ca, Client, Dir};

/// 2026: certificates made here are valid from 1975 to 4096.
const NOW: u64 = 1_800_000_000_000_000;

fn options(tls: &Tls) -> Options {
    Options { tls: Some(tls.clone()), ..Options::default() }
}

#[tokio::test]
async fn a_client_that_trusts_the_server_is_answered() {
    let (dir, ca) = (Dir::new("trusted"), Ca::new());
    let certificate = dir.put(&ca.issue("localhost"));
    let server = server_with(options(&Tls::new(dir.files()).unwrap())).await;
    let mut talk = Client::trusting(&ca).connect(server.address).await.unwrap();
    assert_eq!(talk.certificate, certificate);
    assert_eq!(talk.protocol.as_deref(), Some(&b"h2"[..]));
    assert_eq!(talk.call().await.unwrap(), "0");
    let refused = Client::trusting(&Ca::new()).connect(server.address).await;
    assert!(refused.is_err(), "another CA knows nothing of it");
    drop(talk);
    server.end().await;
}

#[tokio::test]
async fn without_a_certificate_that_the_ca_vouches_for_a_client_is_refused() {
    let (dir, ca, clients) = (Dir::new("clients"), Ca::new(), Ca::new());
    dir.put(&ca.issue("localhost"));
    let tls = Tls::new(dir.files_for_clients(&clients, None)).unwrap();
    let server = server_with(options(&tls)).await;
    let client = || Client::trusting(&ca);
    let known = client().with(&clients.issue("envoy.mesh"));
    assert_eq!(known.call(server.address).await.unwrap(), "0");
    assert!(client().call(server.address).await.is_err(), "without one");
    let stranger = client().with(&ca.issue("envoy.mesh"));
    assert!(stranger.call(server.address).await.is_err(), "of another CA");
    server.end().await;
}

#[tokio::test]
async fn a_client_must_have_the_name_that_is_asked_for() {
    let (dir, ca) = (Dir::new("names"), Ca::new());
    dir.put(&ca.issue("localhost"));
    for name in ["envoy.mesh", "spiffe://mesh/ns/edge/sa/envoy", "10.0.0.7"] {
        let tls = Tls::new(dir.files_for_clients(&ca, Some(name))).unwrap();
        let server = server_with(options(&tls)).await;
        let client = |of: &str| Client::trusting(&ca).with(&ca.issue(of));
        assert_eq!(client(name).call(server.address).await.unwrap(), "0", "{name}");
        for other in ["other.mesh", "spiffe://mesh/ns/edge/sa/other", "10.0.0.8"] {
            assert!(client(other).call(server.address).await.is_err(), "{name} is not {other}");
        }
        server.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_certificate_is_for_new_connections_and_old_ones_go_on() {
    let (clock, dir, ca) = (Clock::frozen(), Dir::new("renewed"), Ca::new());
    let first = dir.put(&ca.issue("localhost"));
    let tls = Tls::new(dir.files()).unwrap();
    let (told, mut events) = tokio::sync::mpsc::unbounded_channel();
    tls.on_event(move |event| told.send(format!("{event:?}")).unwrap());
    let server = server_with(options(&tls)).await;
    let client = Client::trusting(&ca);
    let mut old = client.connect(server.address).await.unwrap();
    assert_eq!(old.certificate, first);

    let second = dir.put(&ca.issue("localhost"));
    clock.advance(CHECK_EVERY).await;
    assert!(events.recv().await.unwrap().starts_with("Reloaded"));
    let new = client.connect(server.address).await.unwrap();
    assert_eq!(new.certificate, second);
    assert_eq!(old.call().await.unwrap(), "0");

    // A key that does not fit: the pair stays as it was, and it is told once.
    fs::write(dir.path("..data/tls.key"), ca.issue("localhost").key).unwrap();
    clock.advance(CHECK_EVERY).await;
    let refused = events.recv().await.unwrap();
    assert!(refused.starts_with("Refused") && refused.contains("KeyMismatch"), "{refused}");
    let same = client.connect(server.address).await.unwrap();
    assert_eq!(same.certificate, second);
    tls.check().await;
    assert!(events.try_recv().is_err(), "it has been told");

    let third = dir.put(&ca.issue("localhost"));
    clock.advance(CHECK_EVERY).await;
    assert!(events.recv().await.unwrap().starts_with("Reloaded"));
    let new = client.connect(server.address).await.unwrap();
    assert_eq!(new.certificate, third);
    drop((old, new, same));
    server.end().await;
}

#[test]
fn what_cannot_be_used_is_told_with_its_place() {
    let (dir, ca) = (Dir::new("told"), Ca::new());
    let told = |what: &str| {
        let error = Tls::new(dir.files()).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("tls."), "{error}");
    };
    told("cannot be read");
    let pair = ca.issue("localhost");
    dir.put(&pair);
    Tls::new(dir.files()).unwrap();
    let [cert, key] = ["tls.crt", "tls.key"].map(|name| dir.path(&format!("..data/{name}")));
    fs::write(&cert, "no certificate").unwrap();
    told("contains no certificate");
    fs::write(&cert, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    told("tls.crt");
    fs::write(&cert, &pair.cert).unwrap();
    fs::write(&key, &pair.cert).unwrap();
    told("contains no usable key");
    fs::write(&key, &ca.issue("localhost").key).unwrap();
    told("does not match");
    fs::write(&key, &pair.key).unwrap();
    let mut files = dir.files();
    files.client_san = Some("envoy.mesh".to_owned());
    assert!(matches!(Tls::new(files), Err(TlsError::SanWithoutCa { .. })));
}

#[test]
fn files_are_looked_at_by_what_is_in_them() {
    let (dir, ca) = (Dir::new("contents"), Ca::new());
    let pair = ca.issue("localhost");
    dir.put(&pair);
    let tls = Tls::new(dir.files()).unwrap();
    let reload = || tls.reload(Timestamp::from_micros(NOW));
    assert!(reload().is_empty());
    dir.put(&pair);
    assert!(reload().is_empty(), "other files, but the same in them");
    dir.put(&ca.issue("localhost"));
    assert!(matches!(reload()[..], [TlsEvent::Reloaded { .. }]));
    assert!(reload().is_empty());
    fs::remove_file(dir.path("..data")).unwrap();
    assert!(matches!(
        &reload()[..],
        [TlsEvent::Refused { error: TlsError::Unreadable { .. }, .. }]
    ));
    assert!(reload().is_empty(), "it has been told");
}

/// The page of a service whose only endpoint with TLS is this.
fn page(tls: &Tls) -> String {
    #[derive(Debug)]
    struct Certificates(Tls);

    impl MetricsSource for Certificates {
        fn put(&self, page: &mut Page) {
            put_certificates(page, &[("127.0.0.1:443".to_owned(), self.0.clone())]);
        }
    }

    let service = App::new(Engine::new(RuleSet::default()).unwrap());
    service.add_metrics(Arc::new(Certificates(tls.clone())));
    metrics::text(&service)
}

#[tokio::test]
async fn a_broken_certificate_or_ca_keeps_the_last_good_one_and_the_others_are_replaced() {
    let (first, second, ca) = (Dir::new("broken"), Dir::new("whole"), Ca::new());
    let used = first.put(&ca.issue("localhost"));
    second.put(&ca.issue("other.mesh"));
    let mut files = first.files_for_clients(&ca, None);
    files.certificates.extend(second.files().certificates);
    let tls = Tls::new(files).unwrap();
    let server = server_with(options(&tls)).await;
    let reload = || tls.reload(Timestamp::from_micros(NOW));

    fs::write(first.path("..data/tls.key"), ca.issue("localhost").key).unwrap();
    fs::write(first.path("clients.crt"), "no certificate").unwrap();
    second.put(&ca.issue("other.mesh"));
    let (broken, whole, clients) =
        (first.path("tls.crt"), second.path("tls.crt"), first.path("clients.crt"));
    match &reload()[..] {
        [
            TlsEvent::Refused { path: one, error: TlsError::KeyMismatch { .. } },
            TlsEvent::Reloaded { path: other },
            TlsEvent::Refused { path: client_ca, error: TlsError::NoCertificate { .. } },
        ] => assert_eq!([one, other, client_ca], [&broken, &whole, &clients]),
        events => panic!("{events:?}"),
    }
    assert!(reload().is_empty(), "each is reported once");
    let client = || Client::trusting(&ca);
    let known = client().with(&ca.issue("envoy.mesh"));
    let mut talk = known.connect(server.address).await.unwrap();
    assert_eq!((talk.certificate.clone(), &*talk.call().await.unwrap()), (used, "0"));
    drop(talk);
    assert!(client().call(server.address).await.is_err(), "without a certificate");
    let stranger = client().with(&Ca::new().issue("envoy.mesh"));
    assert!(stranger.call(server.address).await.is_err(), "of another CA");
    let page = page(&tls);
    for (path, count) in [(&broken, 1), (&whole, 0), (&clients, 1)] {
        let line = format!(
            "sluicegate_certificate_file_failures_total{{listener=\"127.0.0.1:443\",path=\"{}\"}} {count}\n",
            path.display()
        );
        assert!(page.contains(&line), "{line}{page}");
    }

    // Once it is whole again, it replaces the old one.
    let renewed = first.put(&ca.issue("localhost"));
    assert!(matches!(&reload()[..], [TlsEvent::Reloaded { path }] if *path == broken));
    let talk = known.connect(server.address).await.unwrap();
    assert_eq!(talk.certificate, renewed);
    drop(talk);
    server.end().await;
}

#[test]
fn a_certificate_that_clients_refuse_is_reported_once_a_day() {
    let (dir, ca) = (Dir::new("daily"), Ca::new());
    dir.put(&ca.issue("localhost"));
    let tls = Tls::new(dir.files()).unwrap();
    let warned_at = |hours: u64| {
        let events = tls.reload(Timestamp::from_micros(hours * 3_600_000_000));
        matches!(&events[..], [TlsEvent::Validity { warning: ValidityWarning::NotYetValid, .. }])
    };
    // In 1970, five years before it is valid.
    assert_eq!([1, 2, 24, 25, 26].map(warned_at), [true, false, false, true, false]);
    assert!(tls.reload(Timestamp::from_micros(NOW)).is_empty());
}

#[test]
fn the_expiry_of_each_certificate_is_a_metric() {
    let (dir, ca) = (Dir::new("expiry"), Ca::new());
    dir.put(&ca.issue("localhost"));
    let mut files = dir.files();
    // A file that is named twice is one series.
    files.certificates.push(files.certificates[0].clone());
    let page = page(&Tls::new(files).unwrap());
    let path = dir.path("tls.crt");
    let series = format!(
        "sluicegate_certificate_file_expiry_timestamp_seconds{{listener=\"127.0.0.1:443\",path=\"{}\",domain=\"localhost\"}} 67090118400\n",
        path.display()
    );
    assert_eq!(page.matches(&series).count(), 1, "{page}");
}

#[test]
fn keys_of_the_older_kinds_are_read_too() {
    let (dir, ca) = (Dir::new("kinds"), Ca::new());
    let pair = ca.issue("localhost");
    dir.put(&pair);
    fs::write(dir.path("..data/tls.key"), pair.key_as_sec1()).unwrap();
    Tls::new(dir.files()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_begin_the_handshake_is_let_go_and_hinders_nobody() {
    let (clock, dir, ca) = (Clock::frozen(), Dir::new("silent"), Ca::new());
    dir.put(&ca.issue("localhost"));
    let server = server_with(options(&Tls::new(dir.files()).unwrap())).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(Client::trusting(&ca).call(server.address).await.unwrap(), "0");
    assert_eq!(server.count(Event::ConnectionOpened), 2);
    clock.advance(GrpcLimits::default().timeout).await;
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).await.unwrap();
    assert!(heard.is_empty());
    server.end().await;
}

#[test]
fn whoever_is_told_can_be_replaced() {
    let (dir, ca) = (Dir::new("replaced"), Ca::new());
    dir.put(&ca.issue("localhost"));
    let tls = Tls::new(dir.files()).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    for name in ["first", "second"] {
        let heard = heard.clone();
        tls.on_event(move |event| {
            assert!(matches!(event, TlsEvent::Reloaded { .. }));
            heard.lock().unwrap().push(name);
        });
    }
    dir.put(&ca.issue("localhost"));
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(tls.check());
    assert_eq!(*heard.lock().unwrap(), ["second"]);
}
