//! Metrics of the redis store: decisions, calls and servers.

use sluicegate::Engine;
use sluicegate_redis::{BreakerState, RedisBackend, ServerStats};

use super::page::Page;

pub(super) fn put(page: &mut Page, redis: &Engine<RedisBackend>) {
    put_decisions(page, redis);
    put_link(page, redis);
    put_servers(page, redis);
}

/// Decisions by the store, and without it.
fn put_decisions(page: &mut Page, redis: &Engine<RedisBackend>) {
    let stats = redis.backend().store().stats();
    let help = "Requests decided by the store.";
    page.counter("sluicegate_redis_asked_total", help).value(stats.requests);
    let help = "Denials that were known without a call.";
    page.counter("sluicegate_redis_known_denials_total", help).value(stats.cached_denials);
    let help =
        "Operations decided optimistically: read, computed here, written by compare-and-swap.";
    page.counter("sluicegate_redis_long_way_total", help).value(stats.optimistic);
    let help = "Requests decided without the store, by the failure policy of their rules.";
    page.counter("sluicegate_redis_fallbacks_total", help).each("policy", stats.fallbacks());
    let help = "Hits admitted without the store, to be replayed after the outage.";
    page.counter("sluicegate_redis_owed_hits_total", help).value(stats.journaled);
    let help = "Hits admitted without the store that are not replayed: too many counters.";
    page.counter("sluicegate_redis_unwritten_hits_total", help).value(stats.journal_dropped);
    let help = "Counters to which hits of an outage were replayed.";
    page.counter("sluicegate_redis_settled_counters_total", help).value(stats.settled);
    let help = "Counters re-asserted after the store lost data.";
    page.counter("sluicegate_redis_reasserted_counters_total", help).value(stats.reasserted);
    let help = "Records in an unknown format, overwritten as if empty. Check whether another program uses the namespace.";
    page.counter("sluicegate_redis_garbage_total", help).value(stats.corrupt);
    let help = "Decisions of a script that differ from the engine's. Always 0; please report any other value.";
    page.counter("sluicegate_redis_disagreements_total", help).value(stats.disagreements);
    let help = "Nodes that share the store, as last observed. During an outage each has that share of a limit.";
    page.gauge("sluicegate_redis_nodes", help).value(stats.nodes);
    let help = "1 while rules with a local share are decided from it, else 0: the store is down, or other nodes have not reported yet what they admitted.";
    page.gauge("sluicegate_redis_local_mode", help).value(u8::from(stats.is_local_mode));
}

/// Calls and their failures.
fn put_link(page: &mut Page, redis: &Engine<RedisBackend>) {
    let link = redis.backend().store().link();
    let stats = link.stats();
    let help = "1 if the store is reachable, else 0.";
    page.gauge("sluicegate_redis_up", help).value(u8::from(link.is_up()));
    let help = "1 while the store rejects writes because it is full or a replica, else 0.";
    page.gauge("sluicegate_redis_refusing", help)
        .value(u8::from(redis.backend().store().refuses().is_some()));
    let help = "Calls to the store, of up to 16 requests each.";
    page.counter("sluicegate_redis_calls_total", help).value(stats.calls);
    let help = "Replies that arrived after the deadline of their call.";
    page.counter("sluicegate_redis_late_replies_total", help).value(stats.late_replies);
    let help = "Failed calls, by reason.";
    let counts = [
        ("timed_out", stats.timed_out),
        ("busy", stats.busy),
        ("down", stats.down),
        ("broken", stats.broken),
        ("refused", stats.refused),
    ];
    page.counter("sluicegate_redis_call_failures_total", help).each("reason", counts);
    let help = "Calls redirected by a Cluster, by kind.";
    let counts = [
        ("moved", stats.moved_redirects),
        ("ask", stats.ask_redirects),
        ("tryagain", stats.tried_again),
    ];
    page.counter("sluicegate_redis_redirected_total", help).each("how", counts);
    let help = "Reconnects.";
    page.counter("sluicegate_redis_reconnects_total", help).value(stats.reconnects);
    let help = "Times that the store may have lost data: a new primary, or a restart.";
    page.counter("sluicegate_redis_epoch", help).value(stats.epoch);
    let help = "Writes acknowledged by too few replicas in time.";
    page.counter("sluicegate_redis_under_replicated_total", help).value(stats.under_replicated);
}

/// Name, help and number of a server.
type ServerFamily = (&'static str, &'static str, fn(&ServerStats) -> usize);

/// State of each server.
fn put_servers(page: &mut Page, redis: &Engine<RedisBackend>) {
    let servers = redis.backend().store().link().stats().servers;
    let families: [ServerFamily; 4] = [
        (
            "sluicegate_redis_breaker",
            "State of the circuit breaker: 0 closed, 1 half open, 2 open or not connected.",
            |server| match server.breaker {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                _ => 2,
            },
        ),
        ("sluicegate_redis_connections", "Open connections.", |server| server.connections),
        ("sluicegate_redis_in_flight", "Calls in flight.", |server| server.in_flight),
        ("sluicegate_redis_waiting", "Calls waiting for a connection.", |server| server.waiting),
    ];
    for (name, help, number) in families {
        let numbers = servers.iter().map(|server| (&*server.address, number(server)));
        page.gauge(name, help).each("server", numbers);
    }
}
