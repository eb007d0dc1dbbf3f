//! Where the primary is.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::address::Place;
use super::cluster::Cluster;
use super::epoch::{Epoch, Witness};
use super::permit::Turn;
use super::sentinel::Sentinels;
use super::server::{Server, Surroundings};
use super::settings::{Settings, Target};
use super::slot::slot_of;
use super::stats::Counters;
use crate::CallError;

#[derive(Debug)]
pub(super) enum Way {
    Single(Arc<Server>),
    Sentinel(Sentinels),
    Cluster(Cluster),
    Custom(Arc<dyn super::transport::Transport>),
}

/// What is being found out in the background.
#[derive(Debug)]
pub(super) struct Search {
    /// Something is wrong: look again, soon.
    pub(super) alarm: Arc<Notify>,
    /// Whether the first look is over, whatever it found.
    pub(super) looked: watch::Sender<bool>,
    waiting: AtomicUsize,
    /// Why nothing was found.
    trouble: Mutex<Option<Box<str>>>,
}

// === impl Way ===

impl Way {
    pub(super) fn new(
        place: Place,
        settings: &Arc<Settings>,
        counters: &Arc<Counters>,
        epoch: &Arc<Epoch>,
    ) -> Self {
        let surroundings = Surroundings {
            counters: counters.clone(),
            witness: Arc::new(Witness::new(epoch.clone())),
            alarm: Arc::default(),
            primaries_only: false,
        };
        let settings = settings.clone();
        match place {
            Place::Single(host) => {
                Self::Single(Arc::new(Server::new(Target::Host(host), settings, surroundings)))
            }
            Place::Unix(path) => {
                Self::Single(Arc::new(Server::new(Target::Unix(path), settings, surroundings)))
            }
            Place::Sentinel { sentinels, primary } => {
                let surroundings = Surroundings { primaries_only: true, ..surroundings };
                Self::Sentinel(Sentinels::new(sentinels, primary, settings, surroundings))
            }
            Place::Cluster(seeds) => {
                Self::Cluster(Cluster::new(seeds, settings, surroundings, epoch.clone()))
            }
        }
    }

    /// Who has the key.
    pub(super) async fn server_for(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Server>, CallError> {
        match self {
            Self::Single(server) => Ok(server.clone()),
            Self::Sentinel(sentinels) => sentinels.primary(deadline).await,
            Self::Cluster(cluster) => cluster.owner(slot_of(key), deadline).await,
            Self::Custom(_) => Err(CallError::Refused("a wire carries scripts only".into())),
        }
    }

    /// This one turned out to be a replica.
    pub(super) fn is_replica(&self, server: &Server) {
        match self {
            // The name may lead to another server by now.
            Self::Single(_) => server.shared.renew(),
            Self::Sentinel(sentinels) => {
                server.shared.renew();
                sentinels.search.alarm.notify_one();
            }
            Self::Cluster(cluster) => cluster.search().alarm.notify_one(),
            Self::Custom(_) => {}
        }
    }

    pub(super) fn is_up(&self) -> bool {
        match self {
            Self::Custom(wire) => wire.is_up(),
            _ => self.servers().iter().any(|server| server.shared.is_up()),
        }
    }

    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Self::Single(server) => vec![server.clone()],
            Self::Sentinel(sentinels) => sentinels.found().into_iter().collect(),
            Self::Cluster(cluster) => cluster.servers(),
            Self::Custom(_) => Vec::new(),
        }
    }

    /// Why nobody knows where the primary is.
    pub(super) fn trouble(&self) -> Option<Box<str>> {
        match self {
            Self::Single(_) => None,
            Self::Sentinel(sentinels) => sentinels.search.trouble.lock().clone(),
            Self::Cluster(cluster) => cluster.search().trouble.lock().clone(),
            Self::Custom(_) => None,
        }
    }
}

// === impl Search ===

impl Search {
    pub(super) fn new(alarm: Arc<Notify>) -> Self {
        Self {
            alarm,
            looked: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
            trouble: Mutex::new(None),
        }
    }

    /// A look is over.
    pub(super) fn over(&self, trouble: Option<Box<str>>) {
        *self.trouble.lock() = trouble;
        self.looked.send_replace(true);
    }

    /// Waits until the first look is over. Later there is nothing to wait for: who is not known now is down.
    pub(super) async fn first(&self, deadline: Instant, most: usize) -> Result<(), CallError> {
        let mut looked = self.looked.subscribe();
        if *looked.borrow() {
            return Err(CallError::Down);
        }
        let _turn = Turn::take(&self.waiting, most)?;
        match timeout_at(deadline, looked.wait_for(|looked| *looked)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(CallError::Down),
        }
    }
}
