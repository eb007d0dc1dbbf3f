//! Redis as the backend of the engine.

use std::time::Duration;

use sluicegate::Engine;
use sluicegate::rules::rule::{Limits, OnStoreFailure};
use sluicegate::rules::set::RuleSet;
use sluicegate_redis::{Address, Link, RedisBackend, SLOTS, ServerStats, Store, StoreOptions};
use tokio::time::{Instant, sleep};

use super::{StartError, failed_to};
use crate::app::App;
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

/// The servers of a Cluster that are down, their first error, and their share of the slots.
fn lost_part(link: &Link, unserved: usize) -> (String, Box<str>, String) {
    let down = || link.stats().servers.into_iter().filter(|server| !server.up);
    let addresses: Vec<String> = down().map(|server| server.address.into()).collect();
    let error = down().find_map(|server| server.last_error);
    // At least one: a part that is rounded to 0 is lost all the same.
    let percent = (unserved * 100 / SLOTS).max(1);
    let lost = format!("{unserved} of {SLOTS} slots ({percent}%)");
    (addresses.join(","), error.unwrap_or_else(|| "no connection".into()), lost)
}

/// The number of rules of each `on_store_failure`.
fn policies(rules: &RuleSet) -> String {
    let mut counts = [
        (
            OnStoreFailure::Error,
            0,
            "unless another rule denies, an error, so that Envoy's `failure_mode_deny` decides",
        ),
        (OnStoreFailure::Local, 0, "a limit of each node"),
        (OnStoreFailure::Allow, 0, "nothing is denied by them"),
        (OnStoreFailure::Deny, 0, "everything is denied by them"),
    ];
    let limited = rules.rules().map(|no| rules.rule(no));
    for rule in limited.filter(|rule| rule.limits != Limits::Unlimited) {
        for (_, count, _) in counts.iter_mut().filter(|(on, ..)| *on == rule.on_store_failure) {
            *count += 1;
        }
    }
    let used = counts.into_iter().filter(|(_, count, _)| *count > 0);
    let parts: Vec<String> = used
        .map(|(on, count, meaning)| {
            format!("`{}` for {} ({meaning})", on.name(), rules_in_words(count))
        })
        .collect();
    if parts.is_empty() { "there are no rules".to_owned() } else { parts.join(", ") }
}

fn rules_in_words(count: usize) -> String {
    if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") }
}

/// Reports changes of the connection and of the store's data to health and log, forever.
pub(super) async fn watch(store: Store, address: &Address, app: &App) {
    let policies = || policies(app.engine().snapshot().rules());
    let link = store.link();
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let (mut unreachable, mut rejecting) = (Alarm::default(), Alarm::default());
    let (mut partly_down, mut had_unserved) = (Alarm::default(), false);
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
            app.health().set_store_up(is_up);
            was_up = is_up;
        }
        let now = Instant::now();
        if let Some(lasted) = unreachable.due(!is_up, now) {
            let (server, error) = last_error(link, address);
            events::store_disconnected(&server, &error, lasted, &policies());
        }
        let unserved = link.unserved_slots();
        // A slot that moves to a new server is without a connection for a moment.
        let is_partly_down = is_up && unserved > 0 && had_unserved;
        had_unserved = unserved > 0;
        if partly_down.is_raised() && unserved == 0 {
            events::store_complete();
        }
        if let Some(lasted) = partly_down.due(is_partly_down, now) {
            let (servers, error, lost) = lost_part(link, unserved);
            events::store_partly_down(&servers, &error, &lost, lasted, &policies());
        }
        let refusal = store.refuses();
        if rejecting.is_raised() && refusal.is_none() {
            events::store_accepts_writes();
        }
        if let Some(lasted) = rejecting.due(refusal.is_some(), now) {
            let error = refusal.as_deref().unwrap_or_default();
            events::store_rejects_writes(error, lasted, &policies());
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
