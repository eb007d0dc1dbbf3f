//! The same over a socket in the file system.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use sluicegate_server::grpc::Options;
use sluicegate_server::listen::Listener;
use tokio::net::UnixStream;

use grpc_common::plain::Plain;
use grpc_common::raw::{self, SHOULD_RATE_LIMIT};
use grpc_common::server_at;

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A path of this test's own.
fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sluicegate-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[tokio::test]
async fn a_client_is_answered_and_the_file_goes_with_the_server() {
    let path = path("answered");
    let server = server_at(Listener::unix(&path).unwrap(), NOWHERE, Options::default());
    let mut client = Plain::over(UnixStream::connect(&path).await.unwrap()).await.unwrap();
    let answer = client.call(SHOULD_RATE_LIMIT, raw::message("alice")).await.unwrap();
    assert_eq!(answer.status, "0");
    drop(client);
    server.end().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_that_nobody_answers_on_is_replaced() {
    let path = path("stale");
    // Dropped without being removed, as by a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _listener = Listener::unix(&path).unwrap();
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn a_socket_that_somebody_answers_on_is_left_alone() {
    let path = path("taken");
    let _first = Listener::unix(&path).unwrap();
    let error = Listener::unix(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("another process listens"), "{error}");
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let path = path("precious");
    fs::write(&path, "precious").unwrap();
    let error = Listener::unix(&path).unwrap_err();
    assert!(error.to_string().contains("is not a socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_file_that_is_another_s_by_now_is_left_alone() {
    let path = path("replaced");
    let first = Listener::unix(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = Listener::unix(&path).unwrap();
    drop(first);
    UnixStream::connect(&path).await.unwrap();
    drop(second);
    assert!(!path.exists());
}
