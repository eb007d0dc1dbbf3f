//! What all connections have in common.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use sluicegate::Timestamp;
use sluicegate::throttle::Throttle;

use super::Options;
use super::bounds::Bounds;
use crate::memory::{Account, Charge, Endpoint, Share};
use crate::rls::handler::Service;
use crate::rls::options::RefundPolicy;
use crate::telemetry::Happening;
use crate::token::Token;

/// What all connections have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) service: Service,
    pub(super) bounds: Bounds,
    pub(super) password: Option<Token>,
    /// Whether every client has the operator role.
    pub(super) is_open: bool,
    pub(super) throttle: Throttle,
    /// When the service began.
    pub(super) begun: Timestamp,
    connections: AtomicUsize,
    commands: AtomicU64,
    last_id: AtomicI64,
    memory: Arc<EndpointBudget>,
}

/// Counts a connection as long as it lasts, however it ends; and what it holds beyond what every connection has.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) shared: Arc<Shared>,
    /// The address of the client.
    pub(super) peer: Option<IpAddr>,
    account: Arc<Account>,
    extra: Charge,
}

/// What an open connection takes, with the buffers of short commands: measured.
const CONNECTION_BYTES: usize = 24 << 10;

// === impl Shared ===

impl Shared {
    pub(super) fn new(service: Service, throttle: Throttle, options: Options) -> Self {
        let Options { bounds, password, is_open } = options;
        let begun = service.engine().now();
        let memory = service.memory().endpoint(Share::Clients);
        Self {
            service,
            bounds,
            password,
            is_open,
            throttle,
            begun,
            connections: AtomicUsize::new(0),
            commands: AtomicU64::new(0),
            last_id: AtomicI64::new(0),
            memory,
        }
    }

    /// Whether a refund needs no proof.
    pub(super) fn may_refund(&self) -> bool {
        match self.service.options().refunds {
            RefundPolicy::Open => true,
            RefundPolicy::Proven | RefundPolicy::Operators => self.is_open,
        }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// So many more commands were looked at.
    pub(super) fn count(&self, commands: u64) {
        self.commands.fetch_add(commands, Ordering::Relaxed);
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many there have been.
    pub(super) fn connections_ever(&self) -> i64 {
        self.last_id.load(Ordering::Relaxed)
    }
}

// === impl Seat ===

impl Seat {
    /// None is free if there are as many connections as there may be, or the memory budget is
    /// exhausted. Called by the accept loop only.
    pub(super) fn take(shared: &Arc<Shared>, peer: Option<IpAddr>) -> Option<Self> {
        let telemetry = shared.service.telemetry();
        let account = (shared.connections() < shared.bounds.connections)
            .then(|| Account::open(&shared.memory, CONNECTION_BYTES))
            .flatten();
        let Some((account, extra)) = account.and_then(|account| {
            let extra = account.charge(0)?;
            Some((account, extra))
        }) else {
            telemetry.record(Event::ConnectionRefused);
            return None;
        };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        telemetry.record(Event::ConnectionOpened);
        Some(Self { shared: shared.clone(), peer, account, extra })
    }

    /// Holds so much beyond what every connection has, if the memory budget allows it.
    pub(super) fn hold(&mut self, extra: usize) -> bool {
        self.extra.resize(extra)
    }

    /// Releases what is reserved and not held.
    pub(super) fn trim(&self) {
        self.account.trim();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.service.telemetry().record(Event::ConnectionClosed);
    }
}
