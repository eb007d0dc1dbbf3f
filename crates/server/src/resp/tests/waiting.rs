//! Commands that wait for their turn, on a clock that is moved by hand.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::{Connected, connected};
use super::*;
use crate::telemetry::{Endpoint, Fault};

fn clocked() -> (Connected, ManualClock) {
    let (app, clock) = app(Options::default());
    let shared = Arc::new(shared(app, RespLimits::default(), None));
    (connected(&shared, 1 << 16), clock)
}

async fn until(so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never is");
}

/// Takes all there is, and waits for one more.
async fn waits(line: &mut Connected, behind: &str) {
    line.client.write_all(b"SG.CHECK shop all=1 COST 5\r\n").await.unwrap();
    line.says("*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:5\r\n").await;
    let command = format!("SG.WAIT shop all=1 TIMEOUT 600000\r\n{behind}");
    line.client.write_all(command.as_bytes()).await.unwrap();
    until(|| line.shared.app.reservations().waiting() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_answer_comes_with_the_turn_and_those_behind_it_wait() {
    let (mut line, clock) = clocked();
    waits(&mut line, "PING\r\n").await;
    clock.advance(Duration::from_millis(999));
    assert_eq!(line.shared.app.reservations().waiting(), 1);
    // Longer than a client may be quiet.
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    clock.advance(Duration::from_millis(1));
    line.says("*6\r\n:0\r\n:5\r\n:0\r\n:-1\r\n").await;
    let mut rest = vec![0; 4 + 5 + 7];
    line.client.read_exact(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"$-1\r\n+PONG\r\n"), "{rest:?}");
    assert_eq!(line.shared.app.telemetry().calls(Endpoint::RespWait), 1);
    line.client.write_all(b"PING\r\n").await.unwrap();
    line.says("+PONG\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_told_at_once() {
    let (mut line, _clock) = clocked();
    line.client.write_all(b"SG.CHECK shop all=1 COST 5\r\n").await.unwrap();
    line.says("*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:5\r\n").await;
    line.client.write_all(b"SG.WAIT shop all=1 COST 3 TIMEOUT 1000\r\n").await.unwrap();
    line.says("*6\r\n:1\r\n:5\r\n:0\r\n:").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_gives_its_turn_back() {
    let (mut line, clock) = clocked();
    waits(&mut line, "PING\r\n").await;
    drop(line.client);
    until(|| line.shared.app.reservations().waiting() == 0).await;
    line.served.await.unwrap();
    clock.advance(Duration::from_secs(1));
    let mut other = connected(&line.shared, 1 << 16);
    other.client.write_all(b"SG.CHECK shop all=1\r\n").await.unwrap();
    other.says("*5\r\n:0\r\n:5\r\n:0\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn when_the_service_ends_nobody_waits() {
    let (mut line, _clock) = clocked();
    waits(&mut line, "").await;
    line.shared.app.health().drain();
    line.says("-TRYAGAIN the service is shutting down; retry").await;
    let telemetry = line.shared.app.telemetry();
    assert_eq!(telemetry.failures(Endpoint::RespWait, Fault::Overload), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_comes_with_a_token() {
    let (mut line, _clock) = clocked();
    line.client.write_all(b"SG.WAIT shop slots=1\r\n").await.unwrap();
    line.says("*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:").await;
    let mut said = [0; 512];
    let length = line.client.read(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    let token = said.trim_end().rsplit("\r\n").next().unwrap().to_owned();
    let mut other = connected(&line.shared, 1 << 16);
    other.client.write_all(b"SG.WAIT shop slots=1 TIMEOUT 60000\r\n").await.unwrap();
    until(|| line.shared.app.reservations().waiting() == 1).await;
    line.client.write_all(format!("SG.CANCEL {token}\r\n").as_bytes()).await.unwrap();
    line.says("*6\r\n:0\r\n").await;
    other.says("*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn one_id_is_one_turn() {
    let (mut line, clock) = clocked();
    line.client.write_all(b"SG.CHECK shop all=1 COST 5\r\n").await.unwrap();
    line.says("*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:5\r\n").await;
    let command = b"SG.WAIT shop all=1 TIMEOUT 600000 ID a\r\n";
    line.client.write_all(command).await.unwrap();
    until(|| line.shared.app.reservations().waiting() == 1).await;
    let mut other = connected(&line.shared, 1 << 16);
    other.client.write_all(command).await.unwrap();
    other.says("-ERR a command with this ID is in progress").await;
    clock.advance(Duration::from_secs(1));
    line.says("*6\r\n:0\r\n:5\r\n:0\r\n:-1\r\n").await;
}

/// Whoever sends without end while it waits fills what it has, and no more.
#[tokio::test(start_paused = true)]
async fn what_comes_meanwhile_has_a_bound() {
    let (mut line, clock) = clocked();
    waits(&mut line, "").await;
    let pings = "PING\r\n".repeat(10_000);
    let sent =
        tokio::time::timeout(Duration::from_secs(1), line.client.write_all(pings.as_bytes()));
    let sent = sent.await;
    assert!(sent.is_ok(), "what is under way fits: 60,000 bytes in 64 KiB and a buffer");
    clock.advance(Duration::from_secs(1));
    line.says("*6\r\n:0\r\n:5\r\n:0\r\n:-1\r\n").await;
    let mut rest = vec![0; 4 + 5 + 7 * 10_000];
    line.client.read_exact(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"+PONG\r\n"));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_waits_for_its_turn() {
    let (mut line, clock) = clocked();
    line.client.write_all(b"SG.CHECK shop all=1 COST 5\r\n").await.unwrap();
    line.says("*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:5\r\n").await;
    // Without a timeout it does not wait, whatever its id.
    line.client.write_all(b"SG.RESERVE shop all=1 COST 3 ID timeout\r\n").await.unwrap();
    line.says("*6\r\n:1\r\n:5\r\n:0\r\n:3\r\n:5\r\n$-1\r\n").await;
    line.client.write_all(b"SG.RESERVE shop all=1 COST 3 TIMEOUT 60000\r\n").await.unwrap();
    until(|| line.shared.app.reservations().waiting() == 1).await;
    clock.advance(Duration::from_secs(3));
    line.says("*6\r\n:0\r\n:5\r\n:0\r\n:-1\r\n").await;
    let mut rest = Vec::new();
    while !rest.ends_with(b"\r\n") || rest.iter().filter(|byte| **byte == b'\n').count() < 3 {
        rest.push(line.client.read_u8().await.unwrap());
    }
    let rest = String::from_utf8(rest).unwrap();
    let token = rest.lines().nth(2).unwrap();
    line.client.write_all(format!("SG.COMMIT {token} 1\r\n").as_bytes()).await.unwrap();
    line.says("*6\r\n:0\r\n:5\r\n:2\r\n").await;
    assert_eq!(line.shared.app.telemetry().calls(Endpoint::RespReserve), 2);
}
