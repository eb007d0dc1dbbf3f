//! Background tasks of a server: reconnect loop and health probes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::circuit_breaker::backoff;
use super::count;
use super::dial::{Dialed, Driver};
use super::permit::LATE_MAX;
use super::server::{Connection, ServerState};

/// A connection that lasted less counts as a failed attempt. Also the minimum time between two
/// replacements of a connection.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// Interval of probes while the circuit breaker is closed.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Maintains one connection of the pool.
pub(super) async fn maintain_connection(server: Arc<ServerState>, index: usize) {
    let options = &server.settings.options;
    let mut failures = 0;
    let mut is_reconnect = false;
    let mut replacement = None;
    loop {
        let dialed = match replacement.take() {
            Some(dialed) => Ok(dialed),
            None => server.dial().await,
        };
        let Dialed { connection, mut driver, info } = match dialed {
            Ok(dialed) => dialed,
            Err(why) => {
                server.connect_failed(&why);
                sleep(backoff(&options.breaker, failures)).await;
                failures = failures.saturating_add(1);
                continue;
            }
        };
        if std::mem::replace(&mut is_reconnect, true) {
            count(&server.context.counters.reconnects);
        }
        let connection = Arc::new(Connection::new(connection));
        server.add(index, connection.clone(), &info);
        let since = Instant::now();
        match wait_for_end(&server, &connection, &mut driver).await {
            End::Replaced(dialed) => {
                replacement = Some(dialed);
                close_later(driver);
                continue;
            }
            End::Lost => server.remove(index, driver.close_reason()),
            End::Unresponsive => {
                server.remove(index, "no replies over the connection");
                close_later(driver);
            }
        }
        failures = if since.elapsed() > LIFETIME_MIN { 0 } else { failures.saturating_add(1) };
        if failures > 0 {
            sleep(backoff(&options.breaker, failures - 1)).await;
        }
    }
}

enum End {
    Lost,
    /// Open, but without replies.
    Unresponsive,
    Replaced(Dialed),
}

async fn wait_for_end(server: &ServerState, connection: &Connection, driver: &mut Driver) -> End {
    let mut password = server.settings.password_version.subscribe();
    let mut is_replacing = false;
    let mut replacement = pin!(dial_replacement(server, Instant::now() + LIFETIME_MIN));
    loop {
        tokio::select! {
            () = &mut *driver => return End::Lost,
            () = connection.close.notified() => return End::Unresponsive,
            () = connection.replace.notified(), if !is_replacing => is_replacing = true,
            changed = password.changed(), if !is_replacing => is_replacing = changed.is_ok(),
            dialed = &mut replacement, if is_replacing => return End::Replaced(dialed),
        }
    }
}

/// Establishes a replacement. Rate-limited: the reason for it may persist.
async fn dial_replacement(server: &ServerState, mut not_before: Instant) -> Dialed {
    loop {
        sleep_until(not_before).await;
        match server.dial().await {
            Ok(dialed) => return dialed,
            Err(why) => server.note_error(&why),
        }
        not_before = Instant::now() + LIFETIME_MIN;
    }
}

/// Closes a connection once late replies are no longer awaited.
fn close_later(driver: Driver) {
    tokio::spawn(async move {
        let _ended = timeout(LATE_MAX, driver).await;
    });
}

/// Probes the server: with backoff while the circuit breaker is open, else at a fixed interval.
pub(super) async fn probe_health(server: Arc<ServerState>) {
    loop {
        if server.breaker.is_open() {
            sleep(server.breaker.next_backoff(&server.settings.options.breaker)).await;
        } else {
            tokio::select! {
                () = server.breaker_opened.notified() => continue,
                () = sleep(PROBE_INTERVAL) => {}
            }
        }
        let was_open = server.breaker.is_open();
        if was_open {
            server.breaker.probe_started();
        }
        let is_healthy = probe(&server).await;
        if was_open {
            if is_healthy {
                server.breaker.probe_succeeded();
            } else {
                server.breaker.probe_failed();
            }
            server.update_health();
        }
    }
}

/// Pings over every connection and closes silent ones. Returns whether one replied within the
/// timeout of a call.
async fn probe(server: &ServerState) -> bool {
    let connections: Vec<_> = server.connections().collect();
    let replies = join_all(connections.iter().map(|connection| ping(server, connection))).await;
    replies.into_iter().any(|is_healthy| is_healthy)
}

async fn ping(server: &ServerState, connection: &Connection) -> bool {
    let options = &server.settings.options;
    let sent_at = Instant::now();
    let mut redis = connection.redis.clone();
    let command = redis::cmd("PING");
    match timeout(options.connect_timeout, redis.send_packed_command(&command)).await {
        Ok(Ok(Value::ServerError(error))) => {
            server.note_error(&super::reply::error_text(&error));
            false
        }
        Ok(Ok(_)) => {
            connection.unanswered.store(0, Relaxed);
            sent_at.elapsed() <= options.timeout
        }
        Ok(Err(_)) => false,
        Err(_) => {
            connection.close.notify_one();
            false
        }
    }
}
