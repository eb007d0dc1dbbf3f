//! A Cluster: the slot map, refreshed while slots and primaries move.
//!
//! Any node is queried for it every ten seconds, and at once after a `MOVED` or a lost connection.
//! Until the new map is there, calls follow redirects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::address::Host;
use super::circuit_breaker::jitter;
use super::dial::dial;
use super::epoch::{Epoch, IdentityCheck};
use super::options::{Settings, Target};
use super::reply::{Redirect, error_text};
use super::server::{Server, ServerContext};
use super::slot_map::{SlotMap, SlotRange};
use super::topology::Discovery;
use crate::CallError;

/// Refresh interval while all slots are served.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Refresh interval while some are not.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Minimum time between two refreshes.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Cluster {
    state: Arc<ClusterState>,
    task: AbortHandle,
}

#[derive(Debug)]
struct ClusterState {
    discovery: Discovery,
    map: ArcSwap<SlotMap>,
    /// All connected servers, including redirect targets without a slot in the map.
    servers: Mutex<KnownServers>,
    settings: Arc<Settings>,
    context: ServerContext,
    epoch: Arc<Epoch>,
    seeds: Vec<Host>,
}

#[derive(Debug, Default)]
struct KnownServers {
    by_host: HashMap<Host, Arc<Server>>,
    /// Redirect targets since the last refresh.
    redirect_targets: HashSet<Host>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<Host>,
        settings: Arc<Settings>,
        context: ServerContext,
        epoch: Arc<Epoch>,
    ) -> Self {
        let state = Arc::new(ClusterState {
            discovery: Discovery::new(context.alarm.clone()),
            map: ArcSwap::from_pointee(SlotMap::empty()),
            servers: Mutex::default(),
            settings,
            context,
            epoch,
            seeds,
        });
        let task = tokio::spawn(refresh(state.clone())).abort_handle();
        Self { state, task }
    }

    pub(super) fn discovery(&self) -> &Discovery {
        &self.state.discovery
    }

    pub(super) async fn owner(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Arc<Server>, CallError> {
        let state = &self.state;
        if let Some(server) = state.map.load().owner(slot) {
            return Ok(server.clone());
        }
        state.discovery.first_round(deadline, state.settings.options.waiting).await?;
        state.map.load().owner(slot).cloned().ok_or(CallError::Down)
    }

    pub(super) fn is_up_for(&self, slot: u16) -> bool {
        self.state.map.load().owner(slot).is_some_and(|server| server.state.is_up())
    }

    pub(super) fn unserved_slots(&self) -> usize {
        self.state.map.load().unserved()
    }

    /// Handles `MOVED`: returns the new owner of the slot.
    pub(super) fn on_moved(&self, to: &Redirect, from: &Server) -> Arc<Server> {
        let server = self.on_ask(to, from);
        let state = &self.state;
        let before = state.map.load();
        // A promoted replica was not in the map. Neither was a node that was just added: then the
        // increment is superfluous, and harmless.
        if !before.contains(&server) && !before.servers.is_empty() {
            state.epoch.increment();
        }
        // Many callers are redirected at once.
        if !before.owner(to.slot).is_some_and(|owner| Arc::ptr_eq(owner, &server)) {
            state.map.rcu(|map| map.with_owner(to.slot, &server));
        }
        state.discovery.alarm.notify_one();
        server
    }

    /// Handles `ASK`: returns the server that the slot is migrating to.
    pub(super) fn on_ask(&self, to: &Redirect, from: &Server) -> Arc<Server> {
        let mut host = to.host.clone();
        if let (true, Target::Host(from)) = (host.name.is_empty(), &from.state.target) {
            host.name = from.name.clone();
        }
        let mut servers = self.state.servers.lock();
        servers.redirect_targets.insert(host.clone());
        self.state.server(&mut servers, &host)
    }

    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        self.state.map.load().servers.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ClusterState {
    /// The server at a host, connected if it is new.
    fn server(&self, servers: &mut KnownServers, host: &Host) -> Arc<Server> {
        if let Some(server) = servers.by_host.get(host) {
            return server.clone();
        }
        let context = ServerContext {
            identity: Arc::new(IdentityCheck::new(self.epoch.clone())),
            ..self.context.clone()
        };
        let target = Target::Host(host.clone());
        let server = Arc::new(Server::new(target, self.settings.clone(), context));
        servers.by_host.insert(host.clone(), server.clone());
        server
    }

    /// Installs a new slot map and disconnects from servers that are no longer part of it.
    fn install(&self, ranges: &[SlotRange]) {
        let mut servers = self.servers.lock();
        let map = SlotMap::new(ranges, |host| self.server(&mut servers, host));
        let KnownServers { by_host, redirect_targets } = &mut *servers;
        by_host.retain(|host, server| map.contains(server) || redirect_targets.contains(host));
        redirect_targets.clear();
        let before = self.map.load();
        let has_new_primary = map.servers.iter().any(|server| !before.contains(server));
        if has_new_primary && !before.servers.is_empty() {
            self.epoch.increment();
        }
        self.map.store(Arc::new(map));
    }

    /// Queries one node after the other until one replies, connected ones first.
    async fn fetch(&self, others: &[Host]) -> Result<Vec<SlotRange>, Box<str>> {
        let mut error = "no node is known".into();
        let map = self.map.load_full();
        for server in map.servers.iter().filter(|server| server.state.is_up()) {
            let Target::Host(host) = &server.state.target else { continue };
            let Some(connection) = server.state.least_loaded() else { continue };
            match self.query(connection.redis.clone(), host).await {
                Ok(ranges) => return Ok(ranges),
                Err(why) => error = format!("{host}: {why}").into(),
            }
        }
        for host in self.seeds.iter().chain(others) {
            let ranges = match dial(&Target::Host(host.clone()), &self.settings).await {
                Ok(dialed) => self.query(dialed.connection.clone(), host).await,
                Err(why) => Err(why),
            };
            match ranges {
                Ok(ranges) => return Ok(ranges),
                Err(why) => error = format!("{host}: {why}").into(),
            }
        }
        Err(error)
    }

    async fn query(
        &self,
        mut redis: MultiplexedConnection,
        host: &Host,
    ) -> Result<Vec<SlotRange>, Box<str>> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let replying = redis.send_packed_command(&command);
        match timeout(self.settings.options.connect_timeout, replying).await {
            Err(_) => Err("no reply".into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            Ok(Ok(Value::ServerError(error))) => Err(error_text(&error)),
            Ok(Ok(value)) => SlotRange::parse_all(&value, host).ok_or("reports no slots".into()),
        }
    }
}

/// Background task that refreshes the slot map.
async fn refresh(state: Arc<ClusterState>) {
    let mut others = Vec::new();
    loop {
        let fetched = state.fetch(&others).await;
        let is_fetched = fetched.is_ok();
        let error = match fetched {
            Ok(ranges) => {
                state.install(&ranges);
                others = ranges
                    .into_iter()
                    .flat_map(|range| [range.primary].into_iter().chain(range.replicas))
                    .collect::<HashSet<_>>()
                    .into_iter()
                    .collect();
                None
            }
            Err(why) => Some(why),
        };
        state.discovery.round_ended(error);
        let is_healthy = is_fetched && state.map.load().is_healthy();
        let next = if is_healthy { REFRESH_INTERVAL } else { jitter(RETRY_INTERVAL) };
        tokio::select! {
            () = sleep(next) => {}
            () = state.discovery.alarm.notified() => sleep(INTERVAL_MIN).await,
        }
    }
}
