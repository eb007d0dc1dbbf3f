//! What happens in the background: connections are kept, and servers that went quiet are looked after.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backoff::pause;
use super::dial::{Dialed, Driver};
use super::permit::LATE_MAX;
use super::server::{Line, Shared};
use super::stats::count;

/// A connection that held less long was none: the next is not made at once.
const SHORT: Duration = Duration::from_secs(1);

/// How often a server is looked at, that seems to be well.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Sees to it that there is a connection, again and again.
pub(super) async fn keep(server: Arc<Shared>, index: usize) {
    let options = &server.settings.options;
    let mut tries = 0;
    let mut connected_before = false;
    let mut replacement = None;
    loop {
        let dialed = match replacement.take() {
            Some(dialed) => Ok(dialed),
            None => server.dial().await,
        };
        let Dialed { connection, mut driver, greeting } = match dialed {
            Ok(dialed) => dialed,
            Err(why) => {
                server.not_reached(&why);
                sleep(pause(&options.breaker, tries)).await;
                tries = tries.saturating_add(1);
                continue;
            }
        };
        if std::mem::replace(&mut connected_before, true) {
            count(&server.surroundings.counters.reconnects);
        }
        let line = Arc::new(Line::new(connection));
        server.seat(index, line.clone(), &greeting);
        let since = Instant::now();
        match tend(&server, &line, &mut driver).await {
            End::Replaced(dialed) => {
                replacement = Some(dialed);
                fade(driver);
                continue;
            }
            End::Lost => server.unseat(index, driver.end()),
            End::GivenUp => {
                server.unseat(index, "no answers over the connection");
                fade(driver);
            }
        }
        tries = if since.elapsed() > SHORT { 0 } else { tries.saturating_add(1) };
        if tries > 0 {
            sleep(pause(&options.breaker, tries - 1)).await;
        }
    }
}

enum End {
    /// It is closed.
    Lost,
    /// It is open, and nothing comes over it.
    GivenUp,
    /// It is fine, and there is a newer one.
    Replaced(Dialed),
}

/// Waits for the end of a connection.
async fn tend(server: &Shared, line: &Line, driver: &mut Driver) -> End {
    let mut renewed = server.settings.renewed.subscribe();
    let mut replacing = false;
    let mut replacement = pin!(replacement(server, Instant::now() + SHORT));
    loop {
        tokio::select! {
            () = &mut *driver => return End::Lost,
            () = line.give_up.notified() => return End::GivenUp,
            () = line.replace.notified(), if !replacing => replacing = true,
            changed = renewed.changed(), if !replacing => replacing = changed.is_ok(),
            dialed = &mut replacement, if replacing => return End::Replaced(dialed),
        }
    }
}

/// A newer connection, as soon as one can be made. What asks for it may be there to stay: so not more often than every now and then.
async fn replacement(server: &Shared, mut not_before: Instant) -> Dialed {
    loop {
        sleep_until(not_before).await;
        match server.dial().await {
            Ok(dialed) => return dialed,
            Err(why) => server.note(&why),
        }
        not_before = Instant::now() + SHORT;
    }
}

/// Closes the connection once late replies are no longer awaited.
fn fade(driver: Driver) {
    tokio::spawn(async move {
        let _ended = timeout(LATE_MAX, driver).await;
    });
}

/// Looks whether the server is there: again and again while the breaker is open, and now and then otherwise.
pub(super) async fn look_after(server: Arc<Shared>) {
    loop {
        if server.breaker.is_open() {
            sleep(server.breaker.pause(&server.settings.options.breaker)).await;
        } else {
            tokio::select! {
                () = server.opened.notified() => continue,
                () = sleep(LOOK_EVERY) => {}
            }
        }
        let was_open = server.breaker.is_open();
        if was_open {
            server.breaker.look();
        }
        let there = look(&server).await;
        if was_open {
            if there {
                server.breaker.found();
            } else {
                server.breaker.missed();
            }
            server.settle();
        }
    }
}

/// Asks over every connection, and gives up those that stay silent. Whether one was answered as fast as a call has to be.
async fn look(server: &Shared) -> bool {
    let lines: Vec<_> = server.lines().collect();
    let answers = join_all(lines.iter().map(|line| ping(server, line))).await;
    answers.into_iter().any(|there| there)
}

async fn ping(server: &Shared, line: &Line) -> bool {
    let options = &server.settings.options;
    let asked = Instant::now();
    let mut connection = line.connection.clone();
    let command = redis::cmd("PING");
    match timeout(options.connect_timeout, connection.send_packed_command(&command)).await {
        Ok(Ok(Value::ServerError(error))) => {
            server.note(&super::reply::text_of(&error));
            false
        }
        Ok(Ok(_)) => {
            line.lost.store(0, Relaxed);
            asked.elapsed() <= options.timeout
        }
        Ok(Err(_)) => false,
        Err(_) => {
            line.give_up.notify_one();
            false
        }
    }
}
