//! The store that counters are in, if other nodes share them.

use sluicegate_redis::{BreakerState, SharedEngine};

use super::page::{Labels, Page};

pub(super) fn put(page: &mut Page, shared: &SharedEngine) {
    put_asked(page, shared);
    put_link(page, shared);
    put_servers(page, shared);
}

/// What was asked of it, and what happened in its place.
fn put_asked(page: &mut Page, shared: &SharedEngine) {
    let stats = shared.store().stats();
    let help = "Requests that the store was asked about.";
    page.counter("sluicegate_redis_asked_total", help).one(stats.asked);
    let help = "Denials that were known without asking.";
    page.counter("sluicegate_redis_known_denials_total", help).one(stats.known);
    let help = "Operations that a script does not decide: read, worked out here, written back.";
    page.counter("sluicegate_redis_long_way_total", help).one(stats.optimistic);
    let help = "Requests that the store gave no answer to, by what their rules say then.";
    let mut family = page.counter("sluicegate_redis_fallbacks_total", help);
    for (policy, count) in stats.fallbacks() {
        family.of(&Labels::new("policy", policy), count);
    }
    let help = "Hits that were admitted without the store, and are told to it when it is back.";
    page.counter("sluicegate_redis_owed_hits_total", help).one(stats.owed);
    let help = "Hits that were admitted without the store, and are not told to it: there were too many counters.";
    page.counter("sluicegate_redis_unwritten_hits_total", help).one(stats.unwritten);
    let help = "Counters that were told of hits that were admitted without the store.";
    page.counter("sluicegate_redis_settled_counters_total", help).one(stats.settled);
    let help = "Counters that the store had forgotten something of, and was told again.";
    page.counter("sluicegate_redis_reasserted_counters_total", help).one(stats.reasserted);
    let help = "Records that nobody of us has written: they counted as nothing, and were written over. Does another program use the same namespace?";
    page.counter("sluicegate_redis_garbage_total", help).one(stats.corrupt);
    let help =
        "Decisions of a script that the core would have made otherwise. Always 0; if not, tell us.";
    page.counter("sluicegate_redis_disagreements_total", help).one(stats.disagreements);
    let help = "Nodes that share the store, as far as was heard: each has that part of a limit while the store is away.";
    page.gauge("sluicegate_redis_nodes", help).one(stats.nodes);
    let help = "Whether rules with a local share are decided from it: the store is away, or other nodes have not reported yet what they admitted. 1, or 0.";
    page.gauge("sluicegate_redis_local_mode", help).one(u8::from(stats.is_local_mode));
}

/// What became of the calls.
fn put_link(page: &mut Page, shared: &SharedEngine) {
    let link = shared.store().link();
    let stats = link.stats();
    let help = "Whether the store can be asked: 1, or 0.";
    page.gauge("sluicegate_redis_up", help).one(u8::from(link.is_up()));
    let help =
        "Whether the store refuses what it is asked, since it is full or a replica: 1, or 0.";
    page.gauge("sluicegate_redis_refusing", help).one(u8::from(shared.store().refuses().is_some()));
    let help = "Calls to the store; one holds up to 16 requests.";
    page.counter("sluicegate_redis_calls_total", help).one(stats.calls);
    let help = "Replies that arrived after the deadline of their call. They settle what was decided meanwhile.";
    page.counter("sluicegate_redis_late_replies_total", help).one(stats.late_replies);
    let help = "Calls that got no answer in time, by reason.";
    let mut family = page.counter("sluicegate_redis_call_failures_total", help);
    for (reason, count) in [
        ("timed_out", stats.timed_out),
        ("busy", stats.busy),
        ("down", stats.down),
        ("broken", stats.broken),
        ("refused", stats.refused),
    ] {
        family.of(&Labels::new("reason", reason), count);
    }
    let help = "Calls that a Cluster sent on, by what it said.";
    let mut family = page.counter("sluicegate_redis_redirected_total", help);
    for (how, count) in
        [("moved", stats.moved), ("ask", stats.asked), ("tryagain", stats.tried_again)]
    {
        family.of(&Labels::new("how", how), count);
    }
    let help = "Connections that were made after the first ones.";
    page.counter("sluicegate_redis_reconnects_total", help).one(stats.reconnects);
    let help =
        "How often the store may have forgotten something: another primary, or started anew.";
    page.counter("sluicegate_redis_epoch", help).one(stats.epoch);
    let help = "Writes that fewer replicas had in time than wanted.";
    page.counter("sluicegate_redis_under_replicated_total", help).one(stats.under_replicated);
}

/// How every server does; a Cluster has a handful.
fn put_servers(page: &mut Page, shared: &SharedEngine) {
    let servers = shared.store().link().stats().servers;
    let labels: Vec<Labels> =
        servers.iter().map(|server| Labels::new("server", &server.address)).collect();
    let help = "What the breaker of a server is: 0 closed, 1 half open, 2 open.";
    let mut family = page.gauge("sluicegate_redis_breaker", help);
    for (server, labels) in servers.iter().zip(&labels) {
        let state = match server.breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            _ => 2,
        };
        family.of(labels, state);
    }
    let mut family = page.gauge("sluicegate_redis_connections", "Connections that are open.");
    for (server, labels) in servers.iter().zip(&labels) {
        family.of(labels, server.connections);
    }
    let mut family = page.gauge("sluicegate_redis_in_flight", "Calls that are under way.");
    for (server, labels) in servers.iter().zip(&labels) {
        family.of(labels, server.in_flight);
    }
    let mut family = page.gauge("sluicegate_redis_waiting", "Calls that wait for a connection.");
    for (server, labels) in servers.iter().zip(&labels) {
        family.of(labels, server.waiting);
    }
}
