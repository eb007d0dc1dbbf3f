//! Redis as the backend of the engine.

use std::time::Duration;

use sluicegate::Engine;
use sluicegate_redis::{
    Address, EnvoyKeys, Link, LinkOptions, RedisBackend, Secret, Store, StoreOptions, TlsOptions,
};

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
    let link = link(&settings.server, settings)?;
    let options = StoreOptions { namespace: settings.namespace.clone(), ..StoreOptions::default() };
    let backend = RedisBackend::new(Store::new(link, options), engine.clock());
    let Some(envoy) = &settings.compat else { return Ok(engine.with_backend(backend)) };
    let per_second = settings.per_second.as_ref().map(|server| self::link(server, settings));
    let keys = EnvoyKeys {
        prefix: envoy.prefix.as_str().into(),
        jitter_max_s: envoy.jitter_max_s,
        stop_increment_when_over: envoy.stop_increment_when_over,
        local_cache_bytes: envoy.local_cache_bytes,
    };
    Ok(engine.with_backend(backend.with_envoy_keys(keys, per_second.transpose()?)))
}

fn link(server: &RedisServer, settings: &RedisSettings) -> Result<Link, StartError> {
    let step = format!("store counters in `{}` ({})", server.address, server.source);
    let address = Address::parse(&server.address).map_err(|error| failed_to(&step, error))?;
    let wait_replicas = settings.wait_replicas;
    let options = LinkOptions {
        timeout: settings.timeout,
        connect_timeout: server.connect_timeout,
        connections: server.connections,
        username: server.username.as_deref().map(Box::from),
        password: server.password.as_ref().map(|secret| Secret::new(secret.reveal())),
        password_file: server.password_file.clone(),
        sentinel_username: server.sentinel_username.as_deref().map(Box::from),
        sentinel_password: server.sentinel_password.as_ref().map(|one| Secret::new(one.reveal())),
        tls: server.tls.as_ref().map_or_else(TlsOptions::default, |tls| TlsOptions {
            ca: tls.ca.clone(),
            client_cert: tls.identity.as_ref().map(|(cert, _)| cert.clone()),
            client_key: tls.identity.as_ref().map(|(_, key)| key.clone()),
            skip_hostname_verification: tls.skip_hostname_verification,
        }),
        // The wait blocks other calls of its connection: if it were longer, a missing replica
        // would make all of them time out.
        wait_replicas: (wait_replicas > 0).then_some((wait_replicas, settings.timeout / 4)),
        ..LinkOptions::default()
    };
    Link::open(address, options).map_err(|error| failed_to(&step, error))
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
