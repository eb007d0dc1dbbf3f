//! Redis as the backend of the engine.

use std::time::Duration;

use sluicegate::Engine;
use sluicegate_redis::{Address, Link, RedisBackend, ServerStats, Store, StoreOptions};
use tokio::time::{Instant, sleep};

use super::{StartError, failed_to};
use crate::health::Health;
use crate::logs::events;
use crate::settings::{RedisServer, RedisSettings};

/// Interval between checks of the connection.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The same until the first attempts to connect have ended.
const CHECK_CONNECTING_EVERY: Duration = Duration::from_millis(10);

/// Interval at which a lasting failure is reported again.
const ALARM_EVERY: Duration = Duration::from_secs(30);

/// Moves the counters of the engine to Redis, which need not be reachable yet.
pub(super) fn with_redis(
    engine: Engine,
    settings: &RedisSettings,
) -> Result<Engine<RedisBackend>, StartError> {
    let link = link(&settings.server)?;
    let options = StoreOptions { namespace: settings.namespace.clone(), ..StoreOptions::default() };
    let backend = RedisBackend::new(Store::new(link, options), engine.clock());
    let Some(envoy) = &settings.compat else { return Ok(engine.with_backend(backend)) };
    let per_second = settings.per_second.as_ref().map(self::link).transpose()?;
    Ok(engine.with_backend(backend.with_envoy_keys(envoy.clone(), per_second)))
}

fn link(server: &RedisServer) -> Result<Link, StartError> {
    let RedisServer { address, source, options } = server;
    Link::open(address.clone(), options.clone())
        .map_err(|error| failed_to(&format!("store counters in `{address}` ({source})"), error))
}

/// The server that cannot be reached, and why.
fn last_error(link: &Link, address: &Address) -> (Box<str>, Box<str>) {
    let stats = link.stats();
    let discovery = stats.discovery_error.map(|error| (address.to_string().into(), error));
    let of_server = |server: ServerStats| Some((server.address, server.last_error?));
    let failed = discovery.or_else(|| stats.servers.into_iter().find_map(of_server));
    failed.unwrap_or_else(|| (address.to_string().into(), "no connection".into()))
}

/// Reports changes of the connection and of the store's data to health and log, forever.
pub(super) async fn watch(store: Store, address: &Address, health: Health) {
    let link = store.link();
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let (mut unreachable, mut rejecting) = (Alarm::default(), Alarm::default());
    let mut was_up = false;
    let mut epoch = link.epoch();
    // Whether all servers are up is known when the first attempts have ended.
    while link.is_connecting() {
        sleep(CHECK_CONNECTING_EVERY).await;
    }
    loop {
        let is_up = link.is_up();
        if is_up && !was_up {
            events::store_connected(address);
        }
        if is_up != was_up {
            health.set_store_up(is_up);
            was_up = is_up;
        }
        let now = Instant::now();
        if let Some(lasted) = unreachable.due(!is_up, now) {
            let (server, error) = last_error(link, address);
            events::store_disconnected(&server, &error, lasted);
        }
        let refusal = store.refuses();
        if rejecting.is_raised() && refusal.is_none() {
            events::store_accepts_writes();
        }
        if let Some(lasted) = rejecting.due(refusal.is_some(), now) {
            events::store_rejects_writes(refusal.as_deref().unwrap_or_default(), lasted);
        }
        if link.epoch() != epoch {
            epoch = link.epoch();
            events::store_lost_data(epoch);
        }
        ticks.tick().await;
    }
}

/// A condition that is reported when it begins, and again while it lasts.
#[derive(Debug, Default)]
struct Alarm {
    /// When it began, and when it was last reported.
    raised: Option<(Instant, Instant)>,
}

impl Alarm {
    const fn is_raised(&self) -> bool {
        self.raised.is_some()
    }

    /// How long it has lasted, if it is to be reported now.
    fn due(&mut self, is_failing: bool, now: Instant) -> Option<Duration> {
        let since = self.raised.map_or(now, |(since, _)| since);
        let is_due =
            is_failing && self.raised.is_none_or(|(_, reported)| now - reported >= ALARM_EVERY);
        if !is_failing {
            self.raised = None;
        } else if is_due {
            self.raised = Some((since, now));
        }
        is_due.then(|| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_repeated_while_it_lasts() {
        let (mut alarm, begin) = (Alarm::default(), Instant::now());
        let seconds = Duration::from_secs;
        let mut at = |second, is_failing| alarm.due(is_failing, begin + seconds(second));
        assert_eq!(at(0, false), None);
        assert_eq!(at(1, true), Some(seconds(0)));
        assert_eq!([at(2, true), at(30, true)], [None, None]);
        assert_eq!(at(31, true), Some(seconds(30)));
        assert_eq!(at(61, true), Some(seconds(60)));
        assert_eq!(at(62, false), None);
        assert_eq!(at(63, true), Some(seconds(0)), "it is another one");
    }
}
