//! Metrics of upstreams.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sluicegate_server::metrics::{Labels, MetricsSource, Page};

use crate::active::Active;

/// Servers on the metrics page; further ones are left out.
const LISTED_MAX: usize = 1_000;

/// Health of the servers of the configuration in force.
#[derive(Debug)]
pub(crate) struct UpstreamMetrics(pub(crate) Arc<ArcSwap<Active>>);

impl MetricsSource for UpstreamMetrics {
    fn put(&self, page: &mut Page) {
        let active = self.0.load();
        let help = "1 if the server is used; 0 if its checks fail or it is ejected.";
        let mut family = page.gauge("sluicegate_upstream_healthy", help);
        let servers = active.upstreams.iter().flat_map(|upstream| {
            let servers = upstream.servers();
            (0..servers.len()).map(move |index| (upstream.name(), servers[index].clone()))
        });
        for (upstream, server) in servers.take(LISTED_MAX) {
            let labels = Labels::new("upstream", upstream).and("server", server.label());
            family.labeled(&labels, u8::from(server.is_usable()));
        }
        let gates = active
            .upstreams
            .iter()
            .filter_map(|upstream| Some((upstream.name(), upstream.gate.as_ref()?.figures())));
        let gates: Vec<_> = gates.take(LISTED_MAX).collect();
        let help = "Limit of the requests in flight at an upstream, fixed or adaptive.";
        page.gauge("sluicegate_upstream_concurrency_limit", help)
            .each("upstream", gates.iter().map(|(name, gate)| (*name, gate.limit)));
        let help = "Requests in flight at an upstream with a limit.";
        page.gauge("sluicegate_upstream_in_flight", help)
            .each("upstream", gates.iter().map(|(name, gate)| (*name, gate.in_flight)));
        let help = "Requests that wait for an upstream with a limit.";
        page.gauge("sluicegate_upstream_waiting", help)
            .each("upstream", gates.iter().map(|(name, gate)| (*name, gate.waiting)));
        let help = "Latency of an upstream without a queue, as its adaptive limit estimates it.";
        let mut family = page.gauge("sluicegate_upstream_baseline_seconds", help);
        for (name, gate) in &gates {
            let baseline = gate.baseline.map(|span| span.to_duration().as_secs_f64());
            baseline
                .into_iter()
                .for_each(|one| family.labeled(&Labels::new("upstream", name), one));
        }
        let help = "Requests rejected because too many were in flight at the upstream.";
        let mut family = page.counter("sluicegate_upstream_rejected_total", help);
        for (name, gate) in &gates {
            for (priority, count) in gate.rejected.iter().enumerate().filter(|(_, one)| **one > 0) {
                let labels = Labels::new("upstream", name).and("priority", &priority.to_string());
                family.labeled(&labels, count);
            }
        }
    }
}
