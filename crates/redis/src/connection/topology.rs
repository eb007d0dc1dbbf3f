//! Topology of the store: a single server, a primary found by Sentinels, or a Cluster; or a
//! transport of the caller, by which the simulator replaces the network.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::Counters;
use super::address::Endpoint;
use super::cluster::Cluster;
use super::custom::CustomStore;
use super::epoch::{Epoch, IdentityCheck};
use super::options::{Settings, Target};
use super::permit::WaitPermit;
use super::sentinel::Sentinels;
use super::server::{Server, ServerContext, ServerHealth};
use super::slot_map::slot_of;
use crate::CallError;

#[derive(Debug)]
pub(super) enum Topology {
    Single(Arc<Server>),
    Sentinel(Sentinels),
    Cluster(Cluster),
    Custom(CustomStore),
}

/// State of a background task that discovers primaries.
#[derive(Debug)]
pub(super) struct Discovery {
    /// Triggers the next round at once.
    pub(super) alarm: Arc<Notify>,
    /// Whether the first round has ended, with any result.
    has_run: watch::Sender<bool>,
    waiting: AtomicUsize,
    /// Why the last round failed.
    error: Mutex<Option<Box<str>>>,
}

impl Topology {
    pub(super) fn new(
        endpoint: Endpoint,
        settings: &Arc<Settings>,
        counters: &Arc<Counters>,
        epoch: &Arc<Epoch>,
    ) -> Self {
        let context = ServerContext {
            counters: counters.clone(),
            identity: Arc::new(IdentityCheck::new(epoch.clone())),
            alarm: Arc::default(),
            primaries_only: false,
        };
        let settings = settings.clone();
        match endpoint {
            Endpoint::Single(host) => {
                Self::Single(Arc::new(Server::new(Target::Host(host), settings, context)))
            }
            Endpoint::Unix(path) => {
                Self::Single(Arc::new(Server::new(Target::Unix(path), settings, context)))
            }
            Endpoint::Sentinel { sentinels, primary } => {
                let context = ServerContext { primaries_only: true, ..context };
                Self::Sentinel(Sentinels::new(sentinels, primary, settings, context))
            }
            Endpoint::Cluster(seeds) => {
                Self::Cluster(Cluster::new(seeds, settings, context, epoch.clone()))
            }
        }
    }

    /// The primary that owns the key.
    pub(super) async fn server_for(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Server>, CallError> {
        match self {
            Self::Single(server) => Ok(server.clone()),
            Self::Sentinel(sentinels) => sentinels.primary(deadline).await,
            Self::Cluster(cluster) => cluster.owner(slot_of(key), deadline).await,
            Self::Custom(_) => Err(CallError::Refused("a transport runs scripts only".into())),
        }
    }

    /// The server turned out to be a replica.
    pub(super) fn on_read_only(&self, server: &Server) {
        match self {
            // Its name may resolve to another server by now.
            Self::Single(_) => server.state.replace_connections(),
            Self::Sentinel(sentinels) => {
                server.state.replace_connections();
                sentinels.discovery.alarm.notify_one();
            }
            Self::Cluster(cluster) => cluster.discovery().alarm.notify_one(),
            Self::Custom(_) => {}
        }
    }

    pub(super) fn is_up(&self) -> bool {
        match self {
            Self::Custom(custom) => custom.is_up(),
            _ => self.servers().iter().any(|server| server.state.is_up()),
        }
    }

    /// Whether a first connection attempt to a known primary has not ended, or none is known yet.
    pub(super) fn is_connecting(&self) -> bool {
        let has_discovered = match self {
            Self::Single(_) | Self::Custom(_) => true,
            Self::Sentinel(sentinels) => *sentinels.discovery.has_run.borrow(),
            Self::Cluster(cluster) => *cluster.discovery().has_run.borrow(),
        };
        let is_connecting =
            |server: &Arc<Server>| *server.state.health.borrow() == ServerHealth::Connecting;
        !has_discovered || self.servers().iter().any(is_connecting)
    }

    /// All known primaries.
    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Self::Single(server) => vec![server.clone()],
            Self::Sentinel(sentinels) => sentinels.current().into_iter().collect(),
            Self::Cluster(cluster) => cluster.servers(),
            Self::Custom(_) => Vec::new(),
        }
    }

    /// Why the last discovery of primaries failed.
    pub(super) fn discovery_error(&self) -> Option<Box<str>> {
        match self {
            Self::Sentinel(sentinels) => sentinels.discovery.error.lock().clone(),
            Self::Cluster(cluster) => cluster.discovery().error.lock().clone(),
            _ => None,
        }
    }
}

impl Discovery {
    pub(super) fn new(alarm: Arc<Notify>) -> Self {
        Self {
            alarm,
            has_run: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
            error: Mutex::new(None),
        }
    }

    pub(super) fn round_ended(&self, error: Option<Box<str>>) {
        *self.error.lock() = error;
        self.has_run.send_replace(true);
    }

    /// Waits for the first round. After it, an unknown primary is down.
    pub(super) async fn first_round(
        &self,
        deadline: Instant,
        waiting_max: usize,
    ) -> Result<(), CallError> {
        let mut has_run = self.has_run.subscribe();
        if *has_run.borrow() {
            return Err(CallError::Down);
        }
        let _waiting = WaitPermit::acquire(&self.waiting, waiting_max)?;
        match timeout_at(deadline, has_run.wait_for(|has_run| *has_run)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(CallError::Down),
        }
    }
}
