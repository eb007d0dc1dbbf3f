//! Servers that stop, hang or return.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

use sluicegate_testkit::proxy::Slow;
use sluicegate_testkit::redis::{Options, Single};

use super::load::Load;
use super::*;
use crate::connection::BreakerState;
use crate::script::loading_calls;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_at_the_start_is_found_when_it_comes() {
    let server = Single::start();
    server.kill();
    let link = open(server.url(), ample());
    until(&link, ServerHealth::Down).await;
    assert_eq!(count(&link, "visits").await, Err(CallError::Down));
    assert!(!link.is_up() && link.stats().servers[0].last_error.is_some());
    server.restart();
    until(&link, ServerHealth::Up).await;
    assert_eq!(count(&link, "visits").await, Ok(1));
    assert_eq!(link.epoch(), 0, "nobody was there before");
}

/// Answers the greeting and the loading of scripts, and then a call with a line that has no end.
/// How much of it was read.
fn serve_endless_line(mut socket: TcpStream) -> usize {
    const PIECES_MAX: usize = 1_024;

    let mut piece = vec![0; 1 << 16];
    let _ = socket.read(&mut piece);
    let _ = socket.write_all(b"+PONG\r\n+OK\r\n$-1\r\n$-1\r\n$-1\r\n");
    let loading: Vec<_> =
        loading_calls().map(|call| call.command("EVAL", call.script.text)).collect();
    let bytes = loading.iter().map(|command| command.get_packed_command().len()).sum();
    let _ = socket.read_exact(&mut vec![0; bytes]);
    loading.iter().for_each(|_| drop(socket.write_all(b"*0\r\n")));
    let _ = socket.read(&mut piece);
    piece.fill(b'x');
    let _ = socket.write_all(b"+");
    let written = (0..PIECES_MAX).take_while(|_| socket.write_all(&piece).is_ok());
    written.count() * piece.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_reply_has_no_end_is_disconnected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let link = open(&format!("redis://{address}"), LinkOptions { connections: 1, ..ample() });
    let served = tokio::task::spawn_blocking(move || {
        let (socket, _) = listener.accept().unwrap();
        drop(listener);
        serve_endless_line(socket)
    });
    until(&link, ServerHealth::Up).await;
    let error = count(&link, "visits").await.unwrap_err();
    assert!(!matches!(error, CallError::TimedOut), "{error:?}");
    // Socket buffers add to this.
    let written = served.await.unwrap();
    assert!((16 << 20..48 << 20).contains(&written), "{written} bytes were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_and_started_is_another_epoch() {
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let link = open(server.url(), ample());
    let load = Load::start(&link, &["visits".to_owned()], 8);
    load.answered(100).await;
    server.kill();
    until(&link, ServerHealth::Down).await;
    assert_eq!(link.epoch(), 0);
    server.restart();
    until_epoch(&link, 1).await;
    load.answered(100).await;
    let books = load.stop().await;
    assert!(books.not_done.iter().all(|error| *error == CallError::Down), "{books:?}");
    assert!(books.unclear() <= 16, "one for each caller and connection: {books:?}");
    books.compare(&link).await;
    assert_eq!(link.epoch(), 1, "both connections lead to the same process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_few_callers_a_time_out_and_recovers_by_itself() {
    let server = Single::start();
    let options = LinkOptions {
        timeout: Duration::from_millis(50),
        in_flight: 4,
        connections: 2,
        waiting: 1000,
        ..LinkOptions::default()
    };
    let link = open(server.url(), options);
    until(&link, ServerHealth::Up).await;
    server.pause();
    let load = Load::start(&link, &["visits".to_owned()], 32);
    until(&link, ServerHealth::Down).await;
    assert_eq!(count(&link, "visits").await, Err(CallError::Down));
    server.resume();
    until(&link, ServerHealth::Up).await;
    load.answered(100).await;
    let books = load.stop().await;
    // The calls in flight; a few more may have been admitted between two health checks.
    assert!(books.unclear() <= 32, "{}", books.unclear());
    let waited = |error: &CallError| matches!(error, CallError::Down | CallError::Busy);
    assert!(books.not_done.iter().all(waited), "{books:?}");
    books.compare(&link).await;
    assert_eq!(link.epoch(), 0, "it is the same process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_carries_nothing_is_replaced() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    let options = LinkOptions {
        timeout: Duration::from_millis(30),
        connect_timeout: Duration::from_millis(200),
        connections: 1,
        ..LinkOptions::default()
    };
    let link = open(&slow.url(), options);
    until(&link, ServerHealth::Up).await;
    slow.black_hole(true);
    while link.is_up() {
        let error = count(&link, "visits").await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut | CallError::Down), "{error}");
    }
    let breaker = link.stats().servers[0].breaker;
    assert!(matches!(breaker, BreakerState::Open | BreakerState::HalfOpen), "{breaker:?}");
    // Without further calls, health checks continue and close the connections.
    let server = &link.inner.topology.servers()[0];
    let connections: Vec<_> = server.state.connections().collect();
    for connection in &connections {
        let gone = async {
            let mut redis = connection.redis.clone();
            while redis.send_packed_command(&redis::cmd("PING")).await.is_ok() {}
        };
        tokio::time::timeout(AMPLE, gone).await.expect("the connection is closed");
    }
    slow.black_hole(false);
    until(&link, ServerHealth::Up).await;
    assert!(count(&link, "visits").await.is_ok());
    assert!(link.stats().reconnects >= 1);
    assert!(connections.iter().all(|one| one.in_flight.load(Relaxed) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_are_made_anew_and_it_is_still_the_same_server() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    let link = open(&slow.url(), ample());
    let load = Load::start(&link, &["visits".to_owned()], 8);
    for _ in 0..3 {
        load.answered(50).await;
        slow.cut();
    }
    load.answered(50).await;
    let books = load.stop().await;
    books.compare(&link).await;
    // Maybe the first cut found one connection only, and the other was made for the first time
    // after it.
    assert!(link.stats().reconnects >= 2, "{:?}", link.stats());
    assert_eq!(link.epoch(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_say_who_he_is_counts_as_another_after_he_was_gone() {
    let server = Single::start();
    server.cli(&["ACL", "SETUSER", "default", "-info", "-role"]);
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Ok(1));
    assert_eq!(link.epoch(), 0);
    server.kill();
    until(&link, ServerHealth::Down).await;
    server.restart();
    server.cli(&["ACL", "SETUSER", "default", "-info", "-role"]);
    until_epoch(&link, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_left_alone_and_its_connections_are_kept() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    let timeout = Duration::from_millis(50);
    let link = open(&slow.url(), LinkOptions { timeout, connections: 1, ..ample() });
    until(&link, ServerHealth::Up).await;
    assert!(count(&link, "visits").await.is_ok());
    slow.delay(4 * timeout);
    let mut timed_out = 0;
    while link.is_up() {
        match count(&link, "visits").await {
            Err(CallError::TimedOut) => timed_out += 1,
            other => assert_eq!(other, Err(CallError::Down)),
        }
    }
    // A server that answers no call within the timeout receives no further ones.
    assert!(timed_out >= 1, "{timed_out}");
    slow.delay(Duration::ZERO);
    until(&link, ServerHealth::Up).await;
    assert!(count(&link, "visits").await.unwrap() > timed_out, "all of them happened");
    assert_eq!(link.stats().reconnects, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_do_nothing_for_now_is_down_and_its_words_are_kept() {
    let more = vec!["busy-reply-threshold 1".to_owned()];
    let server = Single::with(Options { more, ..Options::default() });
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Ok(1));
    std::thread::scope(|scope| {
        // ScriptAnswer only when it is ended, with an error.
        scope.spawn(|| server.try_ask(&["EVAL", "while true do end", "0"]));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let down = loop {
                    match count(&link, "visits").await {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                assert_eq!(down, CallError::Down);
                let last = link.stats().servers[0].last_error.clone().unwrap();
                assert!(last.starts_with("BUSY "), "{last}");
            });
        });
        server.cli(&["SCRIPT", "KILL"]);
    });
    until(&link, ServerHealth::Up).await;
    assert!(count(&link, "visits").await.is_ok());
}
