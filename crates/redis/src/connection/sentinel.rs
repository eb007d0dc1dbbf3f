//! The primary that Sentinels report.
//!
//! All Sentinels are queried every second, and at once after an error; the majority decides, since
//! a partitioned one may still report the old primary. A reported server is used only if its own
//! role is primary, so a former primary that returned as a replica is never written to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::address::Host;
use super::circuit_breaker::jitter;
use super::dial::{Driver, dial_sentinel};
use super::options::{Settings, Target};
use super::reply::{as_str, error_text};
use super::server::{Server, ServerContext};
use super::topology::Discovery;
use crate::CallError;

/// Interval of queries while the primary is up.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval of queries while it is down.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum time between two rounds of queries.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Sentinels {
    pub(super) discovery: Arc<Discovery>,
    primary: Arc<ArcSwapOption<Server>>,
    waiting_max: usize,
    task: AbortHandle,
}

impl Sentinels {
    pub(super) fn new(
        sentinels: Vec<Host>,
        name: Box<str>,
        settings: Arc<Settings>,
        context: ServerContext,
    ) -> Self {
        let discovery = Arc::new(Discovery::new(context.alarm.clone()));
        let primary = Arc::new(ArcSwapOption::empty());
        let waiting_max = settings.options.waiting;
        let watcher = PrimaryWatcher {
            discovery: discovery.clone(),
            primary: primary.clone(),
            sentinels: sentinels.into_iter().map(Sentinel::new).collect(),
            name,
            settings,
            context,
        };
        let task = tokio::spawn(watcher.run()).abort_handle();
        Self { discovery, primary, waiting_max, task }
    }

    pub(super) async fn primary(&self, deadline: Instant) -> Result<Arc<Server>, CallError> {
        if let Some(server) = self.current() {
            return Ok(server);
        }
        self.discovery.first_round(deadline, self.waiting_max).await?;
        self.current().ok_or(CallError::Down)
    }

    pub(super) fn current(&self) -> Option<Arc<Server>> {
        self.primary.load_full()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Background task that follows the primary.
struct PrimaryWatcher {
    discovery: Arc<Discovery>,
    primary: Arc<ArcSwapOption<Server>>,
    sentinels: Vec<Sentinel>,
    name: Box<str>,
    settings: Arc<Settings>,
    context: ServerContext,
}

impl PrimaryWatcher {
    async fn run(mut self) {
        loop {
            let (name, settings) = (&self.name, &self.settings);
            let queries = self.sentinels.iter_mut().map(|sentinel| sentinel.query(name, settings));
            let reports = join_all(queries).await;
            let error = self.update(reports);
            self.discovery.round_ended(error);
            let is_up = self.primary.load().as_ref().is_some_and(|server| server.state.is_up());
            let next = if is_up { INTERVAL } else { jitter(RETRY_INTERVAL) };
            tokio::select! {
                () = sleep(next) => {}
                () = self.discovery.alarm.notified() => sleep(INTERVAL_MIN).await,
            }
        }
    }

    /// Adopts the primary that most Sentinels report. Returns an error if none reports one.
    fn update(&self, reports: Vec<Result<Host, Box<str>>>) -> Option<Box<str>> {
        let current = self.primary.load();
        let target = current.as_ref().map(|server| &server.state.target);
        let (hosts, errors): (Vec<_>, Vec<_>) = reports.into_iter().partition(Result::is_ok);
        let hosts = hosts.into_iter().flatten().map(Target::Host);
        let Some(elected) = majority(hosts, target) else {
            return errors.into_iter().find_map(Result::err);
        };
        if target != Some(&elected) {
            let server = Server::new(elected, self.settings.clone(), self.context.clone());
            self.primary.store(Some(Arc::new(server)));
        }
        None
    }
}

/// The target with the most votes; in a tie, the current one.
fn majority(targets: impl Iterator<Item = Target>, current: Option<&Target>) -> Option<Target> {
    let mut votes: HashMap<Target, usize> = HashMap::new();
    for target in targets {
        *votes.entry(target).or_default() += 1;
    }
    votes
        .into_iter()
        .max_by_key(|(target, votes)| (*votes, Some(target) == current))
        .map(|(target, _)| target)
}

/// One Sentinel and the connection to it.
struct Sentinel {
    target: Target,
    connection: Option<(MultiplexedConnection, Driver)>,
}

impl Sentinel {
    fn new(host: Host) -> Self {
        Self { target: Target::Host(host), connection: None }
    }

    /// Queries the address of the primary.
    async fn query(&mut self, name: &str, settings: &Settings) -> Result<Host, Box<str>> {
        let host = self.query_inner(name, settings).await;
        host.map_err(|why| format!("Sentinel {}: {why}", self.target).into())
    }

    async fn query_inner(&mut self, name: &str, settings: &Settings) -> Result<Host, Box<str>> {
        let (mut redis, driver) = match self.connection.take() {
            Some(connection) => connection,
            None => dial_sentinel(&self.target, settings).await?,
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        let replying = redis.send_packed_command(&command);
        // After a failure the connection is dropped.
        let value = match timeout(settings.options.connect_timeout, replying).await {
            Err(_) => return Err("no reply".into()),
            Ok(Err(error)) => return Err(error.to_string().into()),
            Ok(Ok(value)) => value,
        };
        self.connection = Some((redis, driver));
        match value {
            Value::ServerError(error) => Err(error_text(&error)),
            Value::Nil => {
                Err(format!("knows no primary named `{name}`: see `SENTINEL MASTERS`").into())
            }
            value => parse_host(&value).ok_or("unexpected reply".into()),
        }
    }
}

fn parse_host(value: &Value) -> Option<Host> {
    let Value::Array(parts) = value else { return None };
    let [name, port] = parts.as_slice() else { return None };
    Some(Host::new(as_str(name)?, as_str(port)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_decides_and_in_a_tie_the_current_primary_stays() {
        let target = |name: &str| Target::Host(Host::new(name, 1));
        let elected = |names: &[&str], current: Option<&str>| {
            let current = current.map(target);
            majority(names.iter().map(|name| target(name)), current.as_ref())
        };
        assert_eq!(elected(&[], Some("a")), None);
        assert_eq!(elected(&["b"], Some("a")), Some(target("b")));
        assert_eq!(elected(&["a", "b", "b"], Some("a")), Some(target("b")));
        for _ in 0..20 {
            assert_eq!(elected(&["a", "b"], Some("a")), Some(target("a")));
            assert_eq!(elected(&["b", "a", "b", "a"], Some("b")), Some(target("b")));
        }
    }
}
