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
    }
}
