//! Connections on a clock that goes when nobody does anything.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::super::connection;
use super::*;
use crate::memory::MemoryBudget;

pub(super) struct Connected {
    pub(super) client: DuplexStream,
    pub(super) shared: Arc<RespServer>,
    stop: Option<oneshot::Sender<()>>,
    pub(super) served: JoinHandle<()>,
}

fn shared(limits: RespLimits, password: Option<&str>) -> Arc<RespServer> {
    let password = password.map(|password| Token::new(password).unwrap());
    Arc::new(super::shared(app(Options::default()).0, limits, password))
}

/// A connection on which so many bytes may be under way.
pub(super) fn connected(shared: &Arc<RespServer>, bytes: usize) -> Connected {
    let (client, server) = duplex(bytes);
    let (stop, stopped) = oneshot::channel();
    let guard = shared.admission.admit().unwrap();
    let served = tokio::spawn(connection::serve(server, shared.clone(), guard, None, async {
        let _ = stopped.await;
    }));
    Connected { client, shared: shared.clone(), stop: Some(stop), served }
}

impl Connected {
    pub(super) async fn says(&mut self, expected: &str) {
        let mut said = vec![0; expected.len()];
        self.client.read_exact(&mut said).await.unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    }

    /// All that is said until it ends.
    pub(super) async fn rest(&mut self) -> String {
        let mut said = String::new();
        self.client.read_to_string(&mut said).await.unwrap();
        said
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_may_come_byte_by_byte() {
    let mut line = connected(&shared(RespLimits::default(), None), 1 << 16);
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n" {
        line.client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    line.says("$2\r\nhi\r\n+PONG\r\n").await;
    drop(line.client);
    line.served.await.unwrap();
    assert_eq!(line.shared.admission.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn half_a_command_is_waited_for_with_timeout() {
    for sent in ["*2\r\n$4\r\nECHO\r\n", "PING", "*", "*1\r\n$4\r\nPI"] {
        let mut line = connected(&shared(RespLimits::default(), None), 1 << 16);
        let begun = Instant::now();
        line.client.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(line.rest().await, "");
        let waited = begun.elapsed();
        let timeout = RespLimits::default().timeout;
        assert!(waited >= timeout && waited <= timeout * 3 / 2, "{sent:?}: {waited:?}");
    }
}

/// Whoever sends a byte now and then gets no more time for it.
#[tokio::test(start_paused = true)]
async fn a_trickle_is_half_a_command() {
    let mut line = connected(&shared(RespLimits::default(), None), 1 << 16);
    let begun = Instant::now();
    while line.client.write_all(b"a").await.is_ok() {
        sleep(Duration::from_secs(1)).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "it is still there");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_closed_in_the_end() {
    let mut line = connected(&shared(RespLimits::default(), None), 1 << 16);
    let begun = Instant::now();
    sleep(Duration::from_secs(500)).await;
    line.client.write_all(b"PING\r\n").await.unwrap();
    line.says("+PONG\r\n").await;
    assert_eq!(line.rest().await, "");
    let waited = begun.elapsed().as_secs();
    assert!((1_100..=1_110).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_show_the_password_has_little_time() {
    let shared = shared(RespLimits::default(), Some("sesame"));
    let mut line = connected(&shared, 1 << 16);
    let begun = Instant::now();
    let pings = async {
        while line.client.write_all(b"PING\r\n").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_secs(30), pings).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(16));
    let mut line = connected(&shared, 1 << 16);
    line.client.write_all(b"AUTH sesame\r\n").await.unwrap();
    line.says("+OK\r\n").await;
    sleep(Duration::from_secs(60)).await;
    line.client.write_all(b"PING\r\n").await.unwrap();
    line.says("+PONG\r\n").await;
}

/// As long as replies are not read, commands are not read either; and not for ever.
#[tokio::test(start_paused = true)]
async fn who_does_not_read_is_not_heard() {
    let mut line = connected(&shared(RespLimits::default(), None), 1 << 10);
    let begun = Instant::now();
    let mut sent = 0usize;
    while line.client.write_all(b"PING\r\n").await.is_ok() {
        sent += 1;
    }
    assert!(sent < 10_000, "{sent} commands were taken");
    assert_eq!(begun.elapsed(), RespLimits::default().timeout);
    line.served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn long_commands_have_a_bound_together() {
    let budget = MemoryBudget::new(1 << 20);
    let app = app(Options::default()).0;
    let app = App::builder(app.engine().clone()).memory_budget(budget.clone()).build();
    let shared = Arc::new(super::shared(app, RespLimits::default(), None));
    let half = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{}", "a".repeat(59_000));
    let mut first = connected(&shared, 1 << 20);
    first.client.write_all(half.as_bytes()).await.unwrap();
    tokio::task::yield_now().await;
    let mut second = connected(&shared, 1 << 20);
    let word = format!("$60000\r\n{}\r\n", "a".repeat(60_000));
    let long = format!("*9\r\n$4\r\nECHO\r\n{}", word.repeat(4));
    second.client.write_all(long.as_bytes()).await.unwrap();
    assert!(second.rest().await.starts_with("-ERR too many long commands"));
    // The first one is as welcome as before.
    first.client.write_all(format!("{}\r\nPING\r\n", "a".repeat(1_000)).as_bytes()).await.unwrap();
    first.says(&format!("$60000\r\n{}\r\n+PONG\r\n", "a".repeat(60_000))).await;
    assert!(budget.refusals() > 0 && budget.reserved_bytes() > 0);
    drop((first, second));
    // They notice at their next turn.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(budget.reserved_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_has_begun() {
    let shared = shared(RespLimits::default(), None);
    let mut quiet = connected(&shared, 1 << 16);
    let mut busy = connected(&shared, 1 << 16);
    quiet.client.write_all(b"PING\r\n").await.unwrap();
    quiet.says("+PONG\r\n").await;
    busy.client.write_all(b"PING\r\nECH").await.unwrap();
    busy.says("+PONG\r\n").await;
    for line in [&mut quiet, &mut busy] {
        line.stop.take().unwrap().send(()).unwrap();
    }
    assert_eq!(quiet.rest().await, "");
    quiet.served.await.unwrap();
    busy.client.write_all(b"O hi\r\n").await.unwrap();
    assert_eq!(busy.rest().await, "$2\r\nhi\r\n");
    busy.served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_heard() {
    for (sent, said) in [
        ("QUIT\r\nPING\r\n", "+OK\r\n"),
        ("*1\r\n$-5\r\nxyz", "-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        let mut line = connected(&shared(RespLimits::default(), None), 1 << 16);
        line.client.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(line.rest().await, said);
    }
}
