//! What clients sent, and what each was entitled to.
//!
//! The entitlement of a client is what a quota per window would give it: the sum, over the windows
//! of the rule aligned to the clock, of the lesser of its demand in the window and the limit. How
//! evenly algorithms serve clients is measured by Jain's index of admitted by entitled:
//! `(Σx)² / (n Σx²)`, which is 1 if all clients get the same part of it, and `1/n` if one client
//! gets everything.

use sluicegate_core::time::Timestamp;

use super::series::{DispersionSums, TimeSeries};
use crate::arrival::Arrival;

/// The demand of all clients.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    limit: u64,
    window_us: u64,
    pub(super) requests: u64,
    pub(super) cost: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    pub(super) series: TimeSeries,
    dispersion: DispersionSums,
    clients: Vec<ClientDemand>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ClientDemand {
    window: u64,
    in_window: u64,
    /// Of the windows before.
    entitled: u64,
    cost: u64,
}

impl Demand {
    pub(super) fn new(limit: u64, window_us: u64) -> Self {
        Self {
            limit,
            window_us,
            requests: 0,
            cost: 0,
            first_us: 0,
            last_us: 0,
            series: TimeSeries::new(0, 1),
            dispersion: DispersionSums::default(),
            clients: Vec::new(),
        }
    }

    /// Adds an arrival, and moves one that is earlier than the last to its time.
    pub(super) fn add(&mut self, arrival: Arrival) -> Arrival {
        let (at, cost) = (arrival.at.as_micros().max(self.last_us), u64::from(arrival.cost));
        if self.requests == 0 {
            self.first_us = at;
            self.series = TimeSeries::new(at, (self.window_us / 100).max(1));
        }
        self.requests += 1;
        self.cost += cost;
        self.last_us = at;
        self.series.add(at, cost);
        let tenth = at / self.tenth_us();
        self.dispersion.add(tenth, cost, tenth);
        let index = arrival.client as usize;
        if index >= self.clients.len() {
            self.clients.resize(index + 1, ClientDemand::default());
        }
        let (window, limit) = (at / self.window_us, self.limit);
        let client = &mut self.clients[index];
        if client.window != window {
            client.entitled += client.in_window.min(limit);
            (client.window, client.in_window) = (window, 0);
        }
        client.in_window += cost;
        client.cost += cost;
        Arrival { at: Timestamp::from_micros(at), ..arrival }
    }

    /// Number of clients with demand.
    pub(super) fn clients(&self) -> usize {
        self.clients.iter().filter(|client| client.cost > 0).count()
    }

    /// Clients that did not get all that they sent. Of the exact log, these are the clients that
    /// sent more than the limit in a rolling window.
    pub(super) fn not_served(&self, admitted: &[u64]) -> usize {
        let got = |index: usize| admitted.get(index).copied().unwrap_or(0);
        self.clients.iter().enumerate().filter(|(index, client)| client.cost > got(*index)).count()
    }

    pub(super) fn cost_of(&self, client: u32) -> u64 {
        self.clients.get(client as usize).map_or(0, |client| client.cost)
    }

    /// Jain's index of admitted by entitled.
    pub(super) fn fairness(&self, admitted: &[u64]) -> Option<f64> {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for (index, client) in self.clients.iter().enumerate() {
            let entitled = client.entitled_in_all(self.limit);
            if entitled > 0 {
                let admitted = admitted.get(index).copied().unwrap_or(0);
                let part = admitted as f64 / entitled as f64;
                count += 1.0;
                sum += part;
                squares += part * part;
            }
        }
        (squares > 0.0).then(|| sum * sum / (count * squares))
    }

    /// Number of tenths of windows from the first request to the last.
    pub(super) fn tenths(&self) -> u64 {
        let tenth = self.tenth_us();
        self.last_us / tenth - self.first_us / tenth + 1
    }

    pub(super) fn dispersion(&self) -> Option<f64> {
        self.dispersion.clone().index(self.tenths())
    }

    fn tenth_us(&self) -> u64 {
        (self.window_us / 10).max(1)
    }
}

impl ClientDemand {
    fn entitled_in_all(&self, limit: u64) -> u64 {
        self.entitled + self.in_window.min(limit)
    }
}
