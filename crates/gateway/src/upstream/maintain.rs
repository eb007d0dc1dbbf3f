//! Background tasks of an upstream: health checks, idle connections, addresses of names.
//!
//! They run on the runtime that created the upstream, once for all workers, and end with it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluicegate_config::gateway::upstream::{HealthCheck, ServerConfig};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::Upstream;
use super::resolve::{RETRY, Resolver};
use super::server::Server;

/// Bounds of the interval between looks for idle connections.
const REAP_MIN: Duration = Duration::from_millis(10);
const REAP_MAX: Duration = Duration::from_secs(5);

/// Closes idle connections in time.
pub(super) async fn reap(upstream: Weak<Upstream>, idle: Duration) {
    let interval = (idle / 4).clamp(REAP_MIN, REAP_MAX);
    loop {
        sleep(interval).await;
        let Some(upstream) = upstream.upgrade() else { return };
        upstream.servers().iter().for_each(|server| server.reap_idle());
    }
}

/// Requests the path of the check from every server, again and again.
pub(super) async fn check(upstream: Weak<Upstream>, check: HealthCheck) {
    // By server: how many checks in a row had an outcome other than the state.
    let mut streaks: HashMap<String, u32> = HashMap::new();
    let check = Arc::new(check);
    loop {
        let Some(servers) = upstream.upgrade().map(|upstream| upstream.servers()) else { return };
        let mut checks = JoinSet::new();
        for server in servers.iter().cloned() {
            let check = check.clone();
            checks.spawn(async move { (server.check(&check).await, server) });
        }
        let mut checked = HashMap::new();
        while let Some(outcome) = checks.join_next().await {
            let Ok((outcome, server)) = outcome else { continue };
            let streak = streaks.remove(server.label()).unwrap_or(0);
            let Some(upstream) = upstream.upgrade() else { return };
            let streak = judge(upstream.name(), &server, &check, outcome, streak);
            checked.insert(server.label().to_owned(), streak);
        }
        streaks = checked;
        // Gateways that started together do not check together.
        sleep(check.every.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// Applies the outcome of a check; returns the new streak of outcomes against the state.
fn judge(
    upstream: &str,
    server: &Server,
    check: &HealthCheck,
    outcome: Result<u16, &'static str>,
    streak: u32,
) -> u32 {
    let (low, high) = check.status;
    let failure = match outcome {
        Ok(status) if (low..=high).contains(&status) => None,
        Ok(status) => Some(format!("status {status}")),
        Err(reason) => Some(reason.to_owned()),
    };
    if failure.is_some() == server.is_down() {
        return 0;
    }
    let streak = streak + 1;
    let needed = if failure.is_some() { check.unhealthy_after } else { check.healthy_after };
    if streak < needed {
        return streak;
    }
    server.set_down(failure.is_some());
    let server = server.label();
    match failure {
        Some(reason) => warn!(upstream, server, reason, "server is unhealthy"),
        None => info!(upstream, server, "server is healthy"),
    }
    0
}

/// Resolves the names of servers, again when their records expire.
pub(super) async fn resolve(
    upstream: Weak<Upstream>,
    servers: Vec<ServerConfig>,
    resolver: Resolver,
) {
    let mut names: HashMap<String, (Vec<IpAddr>, Instant)> = servers
        .iter()
        .filter(|server| server.host.parse::<IpAddr>().is_err())
        .map(|server| (server.host.clone(), (Vec::new(), Instant::now())))
        .collect();
    loop {
        let now = Instant::now();
        let mut has_changed = false;
        for (host, (addresses, until)) in &mut names {
            if *until > now {
                continue;
            }
            match resolver.resolve(host).await {
                Ok(resolved) => {
                    has_changed |= *addresses != resolved.addresses;
                    (*addresses, *until) = (resolved.addresses, resolved.until);
                }
                Err(error) => {
                    let retained = addresses.len();
                    *until = Instant::now() + RETRY;
                    warn!(host, error, retained, "name of an upstream cannot be resolved");
                }
            }
        }
        {
            let Some(upstream) = upstream.upgrade() else { return };
            if has_changed {
                let expanded = servers.iter().flat_map(|server| expand(server, &names)).collect();
                upstream.set_servers(expanded);
            }
        }
        let Some(next) = names.values().map(|(_, until)| *until).min() else { return };
        sleep_until(next).await;
    }
}

/// A server for each address of its name.
fn expand(
    server: &ServerConfig,
    names: &HashMap<String, (Vec<IpAddr>, Instant)>,
) -> Vec<(ServerConfig, Option<SocketAddr>)> {
    match names.get(&server.host) {
        Some((addresses, _)) if !addresses.is_empty() => addresses
            .iter()
            .map(|ip| (server.clone(), Some(SocketAddr::new(*ip, server.port))))
            .collect(),
        _ => vec![(server.clone(), None)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::server::tests::server;

    #[tokio::test]
    async fn health_changes_after_outcomes_in_a_row() {
        let server = server("http://10.0.0.1:80");
        let check = HealthCheck { unhealthy_after: 3, healthy_after: 2, ..HealthCheck::default() };
        let mut streak = 0;
        let mut outcomes = |outcomes: &[Result<u16, &'static str>]| {
            for outcome in outcomes {
                streak = judge("api", &server, &check, *outcome, streak);
            }
            server.is_usable()
        };
        assert!(outcomes(&[Ok(500), Err("refused"), Ok(200), Ok(500), Ok(500)]), "not in a row");
        assert!(!outcomes(&[Ok(503)]), "the third in a row");
        assert!(!outcomes(&[Ok(200), Ok(404), Ok(204)]), "not in a row");
        assert!(outcomes(&[Ok(302)]), "the second in a row");
    }
}
