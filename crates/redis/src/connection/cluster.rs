//! A Cluster: who has which slot, followed while slots and primaries move.
//!
//! The map is asked of any node, every ten seconds, and at once when a node says that it is wrong or cannot be reached.
//! Until it is known anew, nodes themselves send us on.

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
use super::backoff::spread;
use super::dial::dial;
use super::epoch::{Epoch, Witness};
use super::reply::{Redirect, text_of};
use super::server::{Server, Surroundings};
use super::settings::{Settings, Target};
use super::slot_map::{Map, Range};
use super::topology::Search;
use crate::CallError;

/// How often the map is asked for while all is well.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// And while some part of the Cluster cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Not more often than this, whatever is wrong.
const ASK_AT_MOST: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    search: Search,
    map: ArcSwap<Map>,
    /// All servers that we are connected to, also those that have no slot yet.
    servers: Mutex<Servers>,
    settings: Arc<Settings>,
    surroundings: Surroundings,
    epoch: Arc<Epoch>,
    seeds: Vec<Host>,
}

#[derive(Debug, Default)]
struct Servers {
    known: HashMap<Host, Arc<Server>>,
    /// Who was named by another since the map was last asked for.
    named: HashSet<Host>,
}

// === impl Cluster ===

impl Cluster {
    pub(super) fn new(
        seeds: Vec<Host>,
        settings: Arc<Settings>,
        surroundings: Surroundings,
        epoch: Arc<Epoch>,
    ) -> Self {
        let shared = Arc::new(Shared {
            search: Search::new(surroundings.alarm.clone()),
            map: ArcSwap::from_pointee(Map::empty()),
            servers: Mutex::default(),
            settings,
            surroundings,
            epoch,
            seeds,
        });
        let task = tokio::spawn(follow(shared.clone())).abort_handle();
        Self { shared, task }
    }

    pub(super) fn search(&self) -> &Search {
        &self.shared.search
    }

    /// Who has the slot.
    pub(super) async fn owner(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Arc<Server>, CallError> {
        let shared = &self.shared;
        if let Some(server) = shared.map.load().owner(slot) {
            return Ok(server.clone());
        }
        shared.search.first(deadline, shared.settings.options.waiting).await?;
        shared.map.load().owner(slot).cloned().ok_or(CallError::Down)
    }

    /// Whether the server of a slot is known and answers.
    pub(super) fn is_up_for(&self, slot: u16) -> bool {
        self.shared.map.load().owner(slot).is_some_and(|server| server.shared.is_up())
    }

    /// A node says that the slot lies elsewhere.
    pub(super) fn moved(&self, to: &Redirect, from: &Server) -> Arc<Server> {
        let server = self.asked(to, from);
        let shared = &self.shared;
        let before = shared.map.load();
        // Who takes over from another was no primary before. So is a node that was added just now, and then it is for nothing.
        if !before.has(&server) && !before.servers.is_empty() {
            shared.epoch.raise();
        }
        // Many callers are told the same at once.
        if !before.owner(to.slot).is_some_and(|owner| Arc::ptr_eq(owner, &server)) {
            shared.map.rcu(|map| map.with(to.slot, &server));
        }
        shared.search.alarm.notify_one();
        server
    }

    /// A node says that the slot is on its way there.
    pub(super) fn asked(&self, to: &Redirect, from: &Server) -> Arc<Server> {
        let mut host = to.host.clone();
        if let (true, Target::Host(from)) = (host.name.is_empty(), &from.shared.target) {
            host.name = from.name.clone();
        }
        let mut servers = self.shared.servers.lock();
        servers.named.insert(host.clone());
        self.shared.server(&mut servers, &host)
    }

    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        self.shared.map.load().servers.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Shared ===

impl Shared {
    /// The server at this place, connected to now if it was not before.
    fn server(&self, servers: &mut Servers, host: &Host) -> Arc<Server> {
        if let Some(server) = servers.known.get(host) {
            return server.clone();
        }
        let surroundings = Surroundings {
            witness: Arc::new(Witness::new(self.epoch.clone())),
            ..self.surroundings.clone()
        };
        let target = Target::Host(host.clone());
        let server = Arc::new(Server::new(target, self.settings.clone(), surroundings));
        servers.known.insert(host.clone(), server.clone());
        server
    }

    /// Takes over what a node told.
    fn install(&self, ranges: &[Range]) {
        let mut servers = self.servers.lock();
        let map = Map::new(ranges, |host| self.server(&mut servers, host));
        let Servers { known, named } = &mut *servers;
        known.retain(|host, server| map.has(server) || named.contains(host));
        named.clear();
        let before = self.map.load();
        let newcomer = map.servers.iter().any(|server| !before.has(server));
        if newcomer && !before.servers.is_empty() {
            self.epoch.raise();
        }
        self.map.store(Arc::new(map));
    }

    /// Asks one node after the other until one tells: first those that we talk to anyway.
    async fn ask_around(&self, others: &[Host]) -> Result<Vec<Range>, Box<str>> {
        let mut trouble = "no node is known".into();
        let map = self.map.load_full();
        for server in map.servers.iter().filter(|server| server.shared.is_up()) {
            let Target::Host(host) = &server.shared.target else { continue };
            let Some(line) = server.shared.pick() else { continue };
            match self.ask(line.connection.clone(), host).await {
                Ok(ranges) => return Ok(ranges),
                Err(why) => trouble = format!("{host}: {why}").into(),
            }
        }
        for host in self.seeds.iter().chain(others) {
            let asked = match dial(&Target::Host(host.clone()), &self.settings).await {
                Ok(dialed) => self.ask(dialed.connection.clone(), host).await,
                Err(why) => Err(why),
            };
            match asked {
                Ok(ranges) => return Ok(ranges),
                Err(why) => trouble = format!("{host}: {why}").into(),
            }
        }
        Err(trouble)
    }

    async fn ask(
        &self,
        mut connection: MultiplexedConnection,
        host: &Host,
    ) -> Result<Vec<Range>, Box<str>> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let asking = connection.send_packed_command(&command);
        match timeout(self.settings.options.connect_timeout, asking).await {
            Err(_) => Err("no answer".into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            Ok(Ok(Value::ServerError(error))) => Err(text_of(&error)),
            Ok(Ok(value)) => Range::parse_all(&value, host).ok_or("has no slots to tell of".into()),
        }
    }
}

/// What goes on in the background.
async fn follow(shared: Arc<Shared>) {
    let mut others = Vec::new();
    loop {
        let told = shared.ask_around(&others).await;
        let known = told.is_ok();
        let trouble = match told {
            Ok(ranges) => {
                shared.install(&ranges);
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
        shared.search.over(trouble);
        let well = known && shared.map.load().is_well();
        let next = if well { ASK_EVERY } else { spread(ASK_AGAIN) };
        tokio::select! {
            () = sleep(next) => {}
            () = shared.search.alarm.notified() => sleep(ASK_AT_MOST).await,
        }
    }
}
