//! The primary that Sentinels watch over.
//!
//! All of them are asked, every second and at once when something is wrong, and most of them are believed: one that was cut off for a while
//! may still name the primary of before. Who is named is connected to only if he says himself that he is a primary, so one that came
//! back as a replica is never written to.

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
use super::backoff::spread;
use super::dial::{Driver, dial_sentinel};
use super::reply::{text, text_of};
use super::server::{Server, Surroundings};
use super::settings::{Settings, Target};
use super::topology::Search;
use crate::CallError;

/// How often Sentinels are asked while all is well.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// And while the primary cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Not more often than this, whatever is wrong.
const ASK_AT_MOST: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Sentinels {
    pub(super) search: Arc<Search>,
    primary: Arc<ArcSwapOption<Server>>,
    waiting_max: usize,
    task: AbortHandle,
}

// === impl Sentinels ===

impl Sentinels {
    pub(super) fn new(
        sentinels: Vec<Host>,
        name: Box<str>,
        settings: Arc<Settings>,
        surroundings: Surroundings,
    ) -> Self {
        let search = Arc::new(Search::new(surroundings.alarm.clone()));
        let primary = Arc::new(ArcSwapOption::empty());
        let waiting_max = settings.options.waiting;
        let following = Following {
            search: search.clone(),
            primary: primary.clone(),
            sentinels: sentinels.into_iter().map(Sentinel::new).collect(),
            name,
            settings,
            surroundings,
        };
        let task = tokio::spawn(following.follow()).abort_handle();
        Self { search, primary, waiting_max, task }
    }

    /// Who is the primary.
    pub(super) async fn primary(&self, deadline: Instant) -> Result<Arc<Server>, CallError> {
        if let Some(server) = self.found() {
            return Ok(server);
        }
        self.search.first(deadline, self.waiting_max).await?;
        self.found().ok_or(CallError::Down)
    }

    pub(super) fn found(&self) -> Option<Arc<Server>> {
        self.primary.load_full()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What goes on in the background.
struct Following {
    search: Arc<Search>,
    primary: Arc<ArcSwapOption<Server>>,
    sentinels: Vec<Sentinel>,
    name: Box<str>,
    settings: Arc<Settings>,
    surroundings: Surroundings,
}

impl Following {
    async fn follow(mut self) {
        loop {
            let (name, settings) = (&self.name, &self.settings);
            let asked = self.sentinels.iter_mut().map(|sentinel| sentinel.ask(name, settings));
            let answers = join_all(asked).await;
            let trouble = self.take(answers);
            self.search.over(trouble);
            let up = self.primary.load().as_ref().is_some_and(|server| server.shared.is_up());
            let next = if up { ASK_EVERY } else { spread(ASK_AGAIN) };
            tokio::select! {
                () = sleep(next) => {}
                () = self.search.alarm.notified() => sleep(ASK_AT_MOST).await,
            }
        }
    }

    /// Believes most of them. What is wrong, if none knows.
    fn take(&self, answers: Vec<Result<Host, Box<str>>>) -> Option<Box<str>> {
        let current = self.primary.load();
        let target = current.as_ref().map(|server| &server.shared.target);
        let (named, troubles): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let named = named.into_iter().flatten().map(Target::Host);
        let Some(most) = most_named(named, target) else {
            return troubles.into_iter().find_map(Result::err);
        };
        if target != Some(&most) {
            let server = Server::new(most, self.settings.clone(), self.surroundings.clone());
            self.primary.store(Some(Arc::new(server)));
        }
        None
    }
}

/// Who is named most often; between equals, who was it before.
fn most_named(named: impl Iterator<Item = Target>, before: Option<&Target>) -> Option<Target> {
    let mut votes: HashMap<Target, usize> = HashMap::new();
    for target in named {
        *votes.entry(target).or_default() += 1;
    }
    votes
        .into_iter()
        .max_by_key(|(target, votes)| (*votes, Some(target) == before))
        .map(|(target, _)| target)
}

/// One of them, and the connection to it.
struct Sentinel {
    target: Target,
    line: Option<(MultiplexedConnection, Driver)>,
}

impl Sentinel {
    fn new(host: Host) -> Self {
        Self { target: Target::Host(host), line: None }
    }

    /// Who is the primary of this name?
    async fn ask(&mut self, name: &str, settings: &Settings) -> Result<Host, Box<str>> {
        let (mut connection, driver) = match self.line.take() {
            Some(line) => line,
            None => dial_sentinel(&self.target, settings)
                .await
                .map_err(|why| format!("Sentinel {}: {why}", self.target))?,
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        let asking = connection.send_packed_command(&command);
        let answer = timeout(settings.options.connect_timeout, asking).await;
        let told = match answer {
            // A connection that failed is not put back.
            Err(_) => return Err(format!("Sentinel {}: no answer", self.target).into()),
            Ok(Err(error)) => return Err(format!("Sentinel {}: {error}", self.target).into()),
            Ok(Ok(Value::ServerError(error))) => Err(text_of(&error).into_string()),
            Ok(Ok(Value::Nil)) => {
                Err(format!("knows no primary named `{name}`: see `SENTINEL MASTERS`"))
            }
            Ok(Ok(value)) => host_of(&value).ok_or("said something else".to_owned()),
        };
        self.line = Some((connection, driver));
        told.map_err(|why| format!("Sentinel {}: {why}", self.target).into())
    }
}

fn host_of(value: &Value) -> Option<Host> {
    let Value::Array(parts) = value else { return None };
    let [name, port] = parts.as_slice() else { return None };
    Some(Host::new(text(name)?, text(port)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_are_believed_and_between_equals_who_it_was_before() {
        let target = |name: &str| Target::Host(Host::new(name, 1));
        let most = |names: &[&str], before: Option<&str>| {
            let before = before.map(target);
            most_named(names.iter().map(|name| target(name)), before.as_ref())
        };
        assert_eq!(most(&[], Some("a")), None);
        assert_eq!(most(&["b"], Some("a")), Some(target("b")));
        assert_eq!(most(&["a", "b", "b"], Some("a")), Some(target("b")));
        for _ in 0..20 {
            assert_eq!(most(&["a", "b"], Some("a")), Some(target("a")));
            assert_eq!(most(&["b", "a", "b", "a"], Some("b")), Some(target("b")));
        }
    }
}
