//! Redis as the backend of the engine.

use std::time::Duration;

use sluicegate::Engine;
use sluicegate_redis::{Link, RedisBackend, Store, StoreOptions};

use super::{StartError, failed_to};
use crate::health::Health;
use crate::logs::events;
use crate::settings::{RedisServer, RedisSettings};

/// Interval between checks of the connection.
const CHECK_EVERY: Duration = Duration::from_millis(100);

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

/// Last error of the connection.
fn last_error(link: &Link) -> Option<Box<str>> {
    let stats = link.stats();
    stats.discovery_error.or_else(|| stats.servers.into_iter().find_map(|server| server.last_error))
}

/// Reports changes of the connection and of the store's data to health and log, forever.
pub(super) async fn watch(store: Store, health: Health) {
    let link = store.link();
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let mut refuses = false;
    let mut was_up = None;
    let mut epoch = link.epoch();
    loop {
        ticks.tick().await;
        let is_up = link.is_up();
        if was_up != Some(is_up) {
            health.set_store_up(is_up);
            match is_up {
                true => events::store_connected(),
                false => events::store_disconnected(last_error(link).as_deref()),
            }
            was_up = Some(is_up);
        }
        match (store.refuses(), refuses) {
            (Some(error), false) => events::store_rejects_writes(&error),
            (None, true) => events::store_accepts_writes(),
            _ => {}
        }
        refuses = store.refuses().is_some();
        if link.epoch() != epoch {
            epoch = link.epoch();
            events::store_lost_data(epoch);
        }
    }
}
