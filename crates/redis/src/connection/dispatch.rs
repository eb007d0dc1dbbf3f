//! A call, from here to its answer.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, sleep_until};

use super::Link;
use super::permit::{Lateness, Visit};
use super::reply::{Redirect, Said};
use super::server::Server;
use super::stats::count;
use super::topology::Way;
use crate::CallError;
use crate::call::Call;

/// How often a call is sent on. Nodes that send us on in a circle do not agree yet.
const HOPS_MAX: usize = 5;

/// Before a call is made again whose keys are just on their way.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// Commands in one go.
const COMMANDS_MAX: usize = 1024;

/// What a call is at, while it is sent on.
struct Journey<'a> {
    link: &'a Link,
    key: &'a [u8],
    deadline: Instant,
    lateness: Lateness,
    server: Arc<Server>,
    /// The slot is not yet where we ask for it.
    asking: bool,
    hops: usize,
    tried_again: bool,
}

impl Link {
    /// Calls a script; one that the store does not know is loaded on the way.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, CallError> {
        self.evaluate(call, Lateness::Dropped).await
    }

    /// The same, and a reply that misses the deadline is awaited: the call was sent, and its
    /// outcome matters.
    pub(crate) async fn call_awaiting_late_reply(&self, call: &Call) -> Result<Value, CallError> {
        self.evaluate(call, Lateness::Awaited).await
    }

    /// How long a call may take before it counts as failed.
    pub(crate) fn timeout(&self) -> Duration {
        if let Way::Custom(wire) = &self.inner.way {
            return wire.timeout();
        }
        let options = &self.inner.settings.options;
        options.timeout + options.wait_replicas.map_or(Duration::ZERO, |(_, span)| span)
    }

    async fn evaluate(&self, call: &Call, lateness: Lateness) -> Result<Value, CallError> {
        if let Way::Custom(wire) = &self.inner.way {
            let calling = super::transport::call(wire, call, lateness, &self.inner.counters);
            return self.counted(calling).await;
        }
        let key = call.keys.first().map_or(&[][..], Vec::as_slice);
        self.counted(async {
            let mut journey = self.set_out(key, lateness).await?;
            loop {
                let said = journey.evaluate(call).await?;
                if let Some(value) = journey.next(said).await? {
                    return Ok(value);
                }
            }
        })
        .await
    }

    /// Sends plain commands on keys of one slot, in one go. Each has an answer of its own: a value, or what the server said against it.
    pub(crate) async fn commands(
        &self,
        key: &[u8],
        commands: Vec<Cmd>,
    ) -> Result<Vec<Result<Value, Box<str>>>, CallError> {
        if commands.len() > COMMANDS_MAX {
            return Err(CallError::Refused(format!("more than {COMMANDS_MAX} commands").into()));
        }
        self.counted(async {
            let mut answers: Vec<_> = commands.iter().map(|_| Err("not sent".into())).collect();
            let mut open: Vec<usize> = (0..commands.len()).collect();
            let mut journey = self.set_out(key, Lateness::Dropped).await?;
            // Each round leaves those that a node has sent on: nothing was done for them.
            while !open.is_empty() {
                let sent: Vec<_> = open.iter().map(|index| &commands[*index]).collect();
                let said = {
                    let mut visit = journey.enter().await?;
                    journey.send_all(&mut visit, &sent).await?
                };
                // A server that can do nothing has done nothing, if it says so to all.
                if said.iter().all(|said| matches!(said, Said::Unready(_) | Said::ClusterDown(_))) {
                    for said in said {
                        journey.next(said).await?;
                    }
                    return Err(CallError::Broken);
                }
                let mut left = Vec::new();
                let mut onward = None;
                for (index, said) in open.into_iter().zip(said) {
                    match said {
                        Said::Moved(_) | Said::Ask(_) | Said::TryAgain(_) => {
                            left.push(index);
                            onward = Some(said);
                        }
                        said => answers[index] = journey.arrive(said),
                    }
                }
                open = left;
                if let Some(onward) = onward {
                    journey.next(onward).await?;
                }
            }
            Ok(answers)
        })
        .await
    }

    async fn counted<T>(
        &self,
        calling: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let counters = &self.inner.counters;
        count(&counters.calls);
        let result = calling.await;
        if let Err(error) = &result {
            counters.failed(error);
        }
        result
    }

    async fn set_out<'a>(
        &'a self,
        key: &'a [u8],
        lateness: Lateness,
    ) -> Result<Journey<'a>, CallError> {
        let deadline = Instant::now() + self.timeout();
        let server = self.inner.way.server_for(key, deadline).await?;
        Ok(Journey {
            link: self,
            key,
            deadline,
            lateness,
            server,
            asking: false,
            hops: 0,
            tried_again: false,
        })
    }
}

// === impl Journey ===

impl Journey<'_> {
    async fn enter(&self) -> Result<Visit<'_>, CallError> {
        self.server.shared.enter(self.deadline, self.lateness).await
    }

    async fn evaluate(&self, call: &Call) -> Result<Said, CallError> {
        let mut visit = self.enter().await?;
        match self.send(&mut visit, &call.command("EVALSHA", call.script.sha())).await? {
            Said::NoScript => {
                count(&self.link.inner.counters.scripts_loaded);
                self.send(&mut visit, &call.command("EVAL", call.script.text)).await
            }
            said => Ok(said),
        }
    }

    async fn send(&self, visit: &mut Visit<'_>, command: &Cmd) -> Result<Said, CallError> {
        let replicas = self.link.inner.settings.options.wait_replicas;
        if !self.asking && replicas.is_none() {
            return visit.one(command).await.map(Said::of);
        }
        let mut said = self.send_all(visit, &[command]).await?;
        said.pop().ok_or(CallError::Broken)
    }

    async fn send_all(
        &self,
        visit: &mut Visit<'_>,
        commands: &[&Cmd],
    ) -> Result<Vec<Said>, CallError> {
        let mut pipeline = Pipeline::new();
        for command in commands {
            if self.asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command((*command).clone());
        }
        let replicas = self.link.inner.settings.options.wait_replicas;
        if let Some((replicas, span)) = replicas {
            let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("WAIT").arg(replicas).arg(millis);
        }
        let mut answers = visit.many(&pipeline).await?;
        if let Some((wanted, _)) = replicas {
            match answers.pop() {
                Some(Value::Int(had)) if had >= i64::from(wanted) => {}
                _ => count(&self.link.inner.counters.under_replicated),
            }
        }
        let every = if self.asking { 2 } else { 1 };
        Ok(answers.into_iter().skip(every - 1).step_by(every).map(Said::of).collect())
    }

    /// The answer, or nothing if it has to be asked for elsewhere.
    async fn next(&mut self, said: Said) -> Result<Option<Value>, CallError> {
        let counters = &self.link.inner.counters;
        let refused = |why: Box<str>| Err(CallError::Refused(why));
        match said {
            Said::Moved(to) => {
                count(&counters.moved);
                self.hop(&to)?;
                self.server = self.cluster(&to)?.moved(&to, &self.server);
                self.asking = false;
                Ok(None)
            }
            Said::Ask(to) => {
                count(&counters.asked);
                self.hop(&to)?;
                self.server = self.cluster(&to)?.asked(&to, &self.server);
                self.asking = true;
                Ok(None)
            }
            Said::TryAgain(why) => {
                if std::mem::replace(&mut self.tried_again, true) {
                    return refused(why);
                }
                count(&counters.tried_again);
                sleep_until(self.deadline.min(Instant::now() + TRY_AGAIN_AFTER)).await;
                self.server = self.link.inner.way.server_for(self.key, self.deadline).await?;
                self.asking = false;
                Ok(None)
            }
            Said::Unready(why) => {
                self.server.shared.unready(&why);
                Err(CallError::Down)
            }
            Said::ClusterDown(why) => {
                self.server.shared.note(&why);
                self.server.shared.surroundings.alarm.notify_one();
                Err(CallError::Down)
            }
            said => self.arrive(said).map(Some).map_err(CallError::Refused),
        }
    }

    /// What a server said, when there is nowhere else to go with it.
    fn arrive(&self, said: Said) -> Result<Value, Box<str>> {
        match said {
            Said::Done(value) => Ok(value),
            Said::NoScript => Err("NOSCRIPT".into()),
            Said::Moved(to) | Said::Ask(to) => Err(sent_on(&to)),
            Said::Replica(why) => {
                self.link.inner.way.is_replica(&self.server);
                Err(why)
            }
            Said::Locked(why) => {
                self.server.shared.renew();
                Err(why)
            }
            Said::Unready(why) => {
                self.server.shared.unready(&why);
                Err(why)
            }
            Said::ClusterDown(why) | Said::TryAgain(why) | Said::Refused(why) => Err(why),
        }
    }

    fn hop(&mut self, to: &Redirect) -> Result<(), CallError> {
        self.hops += 1;
        if self.hops > HOPS_MAX { Err(CallError::Refused(sent_on(to))) } else { Ok(()) }
    }

    fn cluster(&self, to: &Redirect) -> Result<&super::cluster::Cluster, CallError> {
        match &self.link.inner.way {
            Way::Cluster(cluster) => Ok(cluster),
            _ => {
                let why = format!(
                    "{}: the store is a Cluster: begin its address with `redis-cluster://`",
                    sent_on(to)
                );
                Err(CallError::Refused(why.into()))
            }
        }
    }
}

fn sent_on(to: &Redirect) -> Box<str> {
    format!("slot {} is said to be at {}", to.slot, to.host).into()
}
