//! Dispatch of a call: picks the server, follows redirects, loads missing scripts.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, sleep_until};

use super::Link;
use super::cluster::Cluster;
use super::count;
use super::permit::{CallPermit, LateReply};
use super::reply::{Redirect, ServerReply};
use super::server::Server;
use super::topology::Topology;
use crate::CallError;
use crate::call::Call;

/// Redirects of one call. Nodes that redirect in a circle do not agree yet.
const REDIRECTS_MAX: usize = 5;

/// Delay of the retry after `TRYAGAIN`.
const TRY_AGAIN_DELAY: Duration = Duration::from_millis(2);

/// Commands of one pipeline.
const COMMANDS_MAX: usize = 1024;

/// A call in progress, across redirects.
struct Dispatch<'a> {
    link: &'a Link,
    key: &'a [u8],
    deadline: Instant,
    late_reply: LateReply,
    server: Arc<Server>,
    /// Whether commands need an `ASKING`: the slot is still migrating to this server.
    asking: bool,
    redirects: usize,
    tried_again: bool,
}

impl Link {
    /// Runs a script, and loads it if the server has not cached it.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, CallError> {
        self.run_script(call, LateReply::Dropped).await
    }

    /// Like [`Link::call`], but waits for a reply that misses the deadline: the call was sent, and
    /// its outcome matters.
    pub(crate) async fn call_awaiting_late_reply(&self, call: &Call) -> Result<Value, CallError> {
        self.run_script(call, LateReply::Awaited).await
    }

    /// Time after which a call has failed.
    pub(crate) fn timeout(&self) -> Duration {
        if let Topology::Custom(custom) = &self.inner.topology {
            return custom.transport.timeout();
        }
        let options = &self.inner.settings.options;
        options.timeout + options.wait_replicas.map_or(Duration::ZERO, |(_, span)| span)
    }

    async fn run_script(&self, call: &Call, late_reply: LateReply) -> Result<Value, CallError> {
        if let Topology::Custom(custom) = &self.inner.topology {
            return self.counted(custom.call(call, late_reply, &self.inner.counters)).await;
        }
        let key = call.keys.first().map_or(&[][..], Vec::as_slice);
        self.counted(async {
            let mut dispatch = self.dispatch(key, late_reply).await?;
            loop {
                let reply = dispatch.run_script(call).await?;
                if let Some(value) = dispatch.follow(reply).await? {
                    return Ok(value);
                }
            }
        })
        .await
    }

    /// Sends commands on keys of one slot in one pipeline. Each has its own result: a value, or the
    /// error of the server.
    pub(crate) async fn pipeline(
        &self,
        key: &[u8],
        commands: Vec<Cmd>,
    ) -> Result<Vec<Result<Value, Box<str>>>, CallError> {
        if commands.len() > COMMANDS_MAX {
            return Err(CallError::Refused(format!("more than {COMMANDS_MAX} commands").into()));
        }
        self.counted(async {
            let mut results: Vec<_> = commands.iter().map(|_| Err("not sent".into())).collect();
            let mut open: Vec<usize> = (0..commands.len()).collect();
            let mut dispatch = self.dispatch(key, LateReply::Dropped).await?;
            // Each round leaves the redirected commands: they were not executed.
            while !open.is_empty() {
                let sent: Vec<_> = open.iter().map(|index| &commands[*index]).collect();
                let replies = {
                    let mut permit = dispatch.permit().await?;
                    dispatch.send_all(&mut permit, &sent).await?
                };
                // A server that is not ready for any command has executed none.
                let is_unavailable = |reply: &ServerReply| {
                    matches!(reply, ServerReply::NotReady(_) | ServerReply::ClusterDown(_))
                };
                if replies.iter().all(is_unavailable) {
                    for reply in replies {
                        dispatch.follow(reply).await?;
                    }
                    return Err(CallError::Broken);
                }
                let mut redirected = Vec::new();
                let mut redirect = None;
                for (index, reply) in open.into_iter().zip(replies) {
                    match reply {
                        ServerReply::Moved(_) | ServerReply::Ask(_) | ServerReply::TryAgain(_) => {
                            redirected.push(index);
                            redirect = Some(reply);
                        }
                        reply => results[index] = dispatch.result(reply),
                    }
                }
                open = redirected;
                if let Some(redirect) = redirect {
                    dispatch.follow(redirect).await?;
                }
            }
            Ok(results)
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

    async fn dispatch<'a>(
        &'a self,
        key: &'a [u8],
        late_reply: LateReply,
    ) -> Result<Dispatch<'a>, CallError> {
        let deadline = Instant::now() + self.timeout();
        let server = self.inner.topology.server_for(key, deadline).await?;
        Ok(Dispatch {
            link: self,
            key,
            deadline,
            late_reply,
            server,
            asking: false,
            redirects: 0,
            tried_again: false,
        })
    }
}

impl<'a> Dispatch<'a> {
    async fn permit(&self) -> Result<CallPermit<'_>, CallError> {
        CallPermit::acquire(&self.server.state, self.deadline, self.late_reply).await
    }

    async fn run_script(&self, call: &Call) -> Result<ServerReply, CallError> {
        let mut permit = self.permit().await?;
        match self.send(&mut permit, &call.command("EVALSHA", call.script.sha())).await? {
            ServerReply::NoScript => {
                count(&self.link.inner.counters.scripts_loaded);
                self.send(&mut permit, &call.command("EVAL", call.script.text)).await
            }
            reply => Ok(reply),
        }
    }

    async fn send(
        &self,
        permit: &mut CallPermit<'_>,
        command: &Cmd,
    ) -> Result<ServerReply, CallError> {
        let replicas = self.link.inner.settings.options.wait_replicas;
        if !self.asking && replicas.is_none() {
            return permit.send(command).await.map(ServerReply::from);
        }
        let mut replies = self.send_all(permit, &[command]).await?;
        replies.pop().ok_or(CallError::Broken)
    }

    async fn send_all(
        &self,
        permit: &mut CallPermit<'_>,
        commands: &[&Cmd],
    ) -> Result<Vec<ServerReply>, CallError> {
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
        let mut values = permit.send_pipeline(&pipeline).await?;
        if let Some((wanted, _)) = replicas {
            match values.pop() {
                Some(Value::Int(acknowledged)) if acknowledged >= i64::from(wanted) => {}
                _ => count(&self.link.inner.counters.under_replicated),
            }
        }
        let every = if self.asking { 2 } else { 1 };
        Ok(values.into_iter().skip(every - 1).step_by(every).map(ServerReply::from).collect())
    }

    /// The value of a reply, or `None` if the call has to be sent again, to `self.server`.
    async fn follow(&mut self, reply: ServerReply) -> Result<Option<Value>, CallError> {
        let counters = &self.link.inner.counters;
        match reply {
            ServerReply::Moved(to) => {
                count(&counters.moved_redirects);
                self.server = self.redirect(&to)?.on_moved(&to, &self.server);
                self.asking = false;
                Ok(None)
            }
            ServerReply::Ask(to) => {
                count(&counters.ask_redirects);
                self.server = self.redirect(&to)?.on_ask(&to, &self.server);
                self.asking = true;
                Ok(None)
            }
            ServerReply::TryAgain(why) => {
                if std::mem::replace(&mut self.tried_again, true) {
                    return Err(CallError::Refused(why));
                }
                count(&counters.tried_again);
                sleep_until(self.deadline.min(Instant::now() + TRY_AGAIN_DELAY)).await;
                self.server = self.link.inner.topology.server_for(self.key, self.deadline).await?;
                self.asking = false;
                Ok(None)
            }
            ServerReply::NotReady(why) => {
                self.server.state.not_ready(&why);
                Err(CallError::Down)
            }
            ServerReply::ClusterDown(why) => {
                self.server.state.note_error(&why);
                self.server.state.context.alarm.notify_one();
                Err(CallError::Down)
            }
            reply => self.result(reply).map(Some).map_err(CallError::Refused),
        }
    }

    /// The result of a reply that is not followed.
    fn result(&self, reply: ServerReply) -> Result<Value, Box<str>> {
        match reply {
            ServerReply::Value(value) => Ok(value),
            ServerReply::NoScript => Err("NOSCRIPT".into()),
            ServerReply::Moved(to) | ServerReply::Ask(to) => Err(redirect_text(&to)),
            ServerReply::ReadOnly(why) => {
                self.link.inner.topology.on_read_only(&self.server);
                Err(why)
            }
            ServerReply::AccessDenied(why) => {
                self.server.state.replace_connections();
                Err(why)
            }
            ServerReply::NotReady(why) => {
                self.server.state.not_ready(&why);
                Err(why)
            }
            ServerReply::ClusterDown(why)
            | ServerReply::TryAgain(why)
            | ServerReply::Refused(why) => Err(why),
        }
    }

    fn redirect(&mut self, to: &Redirect) -> Result<&'a Cluster, CallError> {
        let link = self.link;
        self.redirects += 1;
        if self.redirects > REDIRECTS_MAX {
            return Err(CallError::Refused(redirect_text(to)));
        }
        match &link.inner.topology {
            Topology::Cluster(cluster) => Ok(cluster),
            _ => {
                let redirect = redirect_text(to);
                let why = format!(
                    "{redirect}: the store is a Cluster: begin its address with `redis-cluster://`"
                );
                Err(CallError::Refused(why.into()))
            }
        }
    }
}

fn redirect_text(to: &Redirect) -> Box<str> {
    format!("redirected to {} for slot {}", to.host, to.slot).into()
}
