//! Executes commands and writes their replies.
//!
//! Commands of one read are executed at one timestamp, and their replies sent with one write.
//! Consecutive `CL.THROTTLE` commands are decided as a batch: in memory, or by the store.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate::backend::ready;
use sluicegate::throttle::NoRoom;
use sluicegate::{Checked, Timestamp, Verdict};
use smallvec::{SmallVec, smallvec};

use super::RespServer;
use super::check::{self, RuleCommand};
use super::commands::{self, CommandName};
use super::frame::{Args, CommandReader, OwnedArgs};
use super::reply::{Reply, ReplyWriter, RespError};
use super::session::{self, Session};
use super::throttle::{self, Batch, StoreBatch, TermsCache};
use crate::telemetry::Endpoint;

/// Executes the commands of one client.
#[derive(Debug)]
pub(super) struct Dispatcher {
    server: Arc<RespServer>,
    session: Session,
    reader: CommandReader,
    terms_cache: TermsCache,
    /// Commands that have to wait.
    pending: Option<PendingCommand>,
    /// Reused by all commands.
    checked: Checked,
}

/// Commands that wait.
#[derive(Debug)]
enum PendingCommand {
    /// For its turn: `SG.WAIT`, or `SG.RESERVE` with a timeout.
    ForTurn { command: OwnedArgs, reserves: bool },
    /// For the store.
    ForStore(RuleCommand, OwnedArgs),
    /// For the store, consecutive ones together.
    Throttle(StoreBatch),
}

/// What the connection does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Reads more bytes.
    Read,
    /// Sends the replies, then continues.
    Send,
    /// Awaits [`Dispatcher::wait`].
    Wait,
    /// Sends the replies, then closes.
    Close,
}

/// Replies of the commands that waited.
pub(super) struct PendingReplies(SmallVec<[Result<Reply, RespError>; 1]>);

/// Upper bound of a reply of five numbers.
const REPLY_BYTES: usize = 128;

/// Replies by endpoint, counted together.
#[derive(Debug, Default)]
struct CallCounts {
    throttle: u64,
    rule_commands: [u64; RuleCommand::ALL.len()],
}

impl Dispatcher {
    pub(super) fn new(server: Arc<RespServer>, peer: Option<IpAddr>) -> Self {
        let session = Session::new(&server, peer);
        let (reader, terms_cache, pending, checked) = Default::default();
        let mut dispatcher = Self { server, session, reader, terms_cache, pending, checked };
        dispatcher.apply_limits();
        dispatcher
    }

    /// Whether the client is authenticated, or need not be.
    pub(super) const fn is_authenticated(&self) -> bool {
        self.session.is_authenticated
    }

    /// Executes the complete commands of `input`; returns their bytes and what to do next.
    pub(super) fn execute(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let server = self.server.clone();
        let now = server.app.engine().now();
        let (mut batch, mut store_batch) = (Batch::default(), StoreBatch::default());
        let (mut counts, mut commands, mut taken) = (CallCounts::default(), 0, 0);
        let next = loop {
            let batched = batch.len() + store_batch.len();
            if out.len() + batched * REPLY_BYTES >= server.limits.reply_bytes {
                break Next::Send;
            }
            let rest = input.get(taken..).unwrap_or_default();
            let length = match self.reader.read(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Next::Read,
                // Found again after the replies of the commands before.
                Err(_) if !store_batch.is_empty() => break Next::Wait,
                Err(error) => {
                    self.decide(&mut batch, now, &mut counts, out);
                    self.replies(out).error(format_args!("ERR {error}"));
                    break Next::Close;
                }
            };
            let args = self.reader.args(rest);
            let name = args.get(0);
            let is_throttle = self.session.is_authenticated && name.is_some_and(is_throttle);
            if !is_throttle && !store_batch.is_empty() {
                break Next::Wait;
            }
            taken += length;
            if name.is_none() {
                continue;
            }
            commands += 1;
            if is_throttle && !server.app.is_local() {
                store_batch.push(args);
                if store_batch.is_full() {
                    break Next::Wait;
                }
                continue;
            }
            if !is_throttle {
                self.decide(&mut batch, now, &mut counts, out);
                match self.execute_other(rest, now, &mut counts, out) {
                    None => continue,
                    Some(next) => break next,
                }
            }
            let throttle_args = match throttle::parse(args) {
                Ok(parsed) => parsed,
                Err(error) => {
                    self.decide(&mut batch, now, &mut counts, out);
                    self.refuse(Some(Endpoint::Throttle), &error, out);
                    continue;
                }
            };
            let terms = match self.terms_cache.find(&throttle_args) {
                Some(index) => index,
                None => {
                    // Inserting may clear the terms of the batch.
                    self.decide(&mut batch, now, &mut counts, out);
                    match self.terms_cache.insert(&throttle_args) {
                        Ok(index) => index,
                        Err(error) => {
                            self.refuse(Some(Endpoint::Throttle), &error, out);
                            continue;
                        }
                    }
                }
            };
            if let Some(key) = self.reader.borrowed(1, rest) {
                batch.push(key, throttle_args, terms);
                if !batch.is_full() {
                    continue;
                }
            }
            self.decide(&mut batch, now, &mut counts, out);
            if !self.reader.borrows() {
                let key = self.reader.args(rest).get(1).unwrap_or_default();
                let mut one = Batch::one(key, throttle_args, terms);
                self.decide(&mut one, now, &mut counts, out);
            }
        };
        self.decide(&mut batch, now, &mut counts, out);
        server.count_commands(commands);
        self.count(&counts, now);
        if store_batch.is_empty() {
            return (taken, next);
        }
        self.pending = Some(PendingCommand::Throttle(store_batch));
        (taken, Next::Wait)
    }

    /// The replies of the commands that wait. Dropping the future gives a turn up.
    pub(super) fn wait(&mut self) -> impl Future<Output = PendingReplies> + use<> {
        let (pending, server) = (self.pending.take(), self.server.clone());
        let peer = self.session.peer();
        async move {
            PendingReplies(match pending {
                Some(PendingCommand::ForTurn { command, reserves }) => {
                    smallvec![check::wait(command, server.app.clone(), reserves).await]
                }
                Some(PendingCommand::ForStore(rule_command, command)) => {
                    smallvec![execute_on_store(rule_command, command, &server, peer).await]
                }
                Some(PendingCommand::Throttle(batch)) => batch.decide(&server).await.into(),
                None => SmallVec::new(),
            })
        }
    }

    /// Writes the replies of the commands that waited.
    pub(super) fn finish(&self, pending: PendingReplies, out: &mut Vec<u8>) {
        let mut replies = self.replies(out);
        for reply in pending.0 {
            match reply {
                Ok(answer) => answer.put(&mut replies),
                Err(error) => replies.error(error),
            }
        }
    }

    /// Charges the buckets of a batch, and writes the replies in order.
    fn decide(
        &self,
        batch: &mut Batch<'_>,
        now: Timestamp,
        counts: &mut CallCounts,
        out: &mut Vec<u8>,
    ) {
        if batch.is_empty() {
            return;
        }
        let RespServer { app, throttle, .. } = &*self.server;
        let is_enforced = !app.options().shadow_mode;
        let each = |index: usize, verdict: Result<Verdict, NoRoom>| match verdict {
            Ok(verdict) => {
                if !verdict.is_allowed() {
                    throttle::report_denial(app);
                }
                if let Some(terms) = batch.terms(index, &self.terms_cache) {
                    let numbers = throttle::numbers(terms, &verdict, is_enforced);
                    self.replies(out).numbers(numbers);
                }
                counts.throttle += 1;
            }
            Err(no_room) => {
                self.refuse(Some(Endpoint::Throttle), &throttle::no_room(no_room), out);
            }
        };
        batch.decide(throttle, &self.terms_cache, now, each);
        batch.clear();
    }

    /// Executes any other command; `None` to continue with the next one.
    fn execute_other(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        counts: &mut CallCounts,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let args = self.reader.args(bytes);
        let name = args.get(0).unwrap_or_default();
        let mut replies = ReplyWriter { protocol: self.session.protocol, out };
        // A web page can make a browser send lines to any address.
        if !self.reader.borrows() && is_http(name) {
            replies.error("ERR this is not HTTP");
            return Some(Next::Close);
        }
        let command = match commands::find(name) {
            found if !self.session.is_allowed(found) => {
                replies.error(RespError::no_auth());
                return None;
            }
            None => {
                replies.error(commands::unknown_command(args));
                return None;
            }
            Some(command) => command,
        };
        let (server, session) = (&*self.server, &mut self.session);
        if command.name == CommandName::Rule(RuleCommand::Reserve)
            && command.takes(args.len())
            && check::may_wait(args)
        {
            let command = OwnedArgs::of(args);
            self.pending = Some(PendingCommand::ForTurn { command, reserves: true });
            return Some(Next::Wait);
        }
        if let CommandName::Rule(rule_command) = command.name
            && command.takes(args.len())
            && !server.app.is_local()
        {
            let pending = PendingCommand::ForStore(rule_command, OwnedArgs::of(args));
            self.pending = Some(pending);
            return Some(Next::Wait);
        }
        let done = match command.name {
            _ if !command.takes(args.len()) => Err(RespError::arity(command.text)),
            CommandName::Auth => session.auth(args, server, &mut replies),
            CommandName::Client => session.client(args, &mut replies),
            CommandName::Command => commands::command(args, &mut replies),
            CommandName::Config => session::config(args, &mut replies),
            CommandName::Hello => session.hello(args, server, &mut replies),
            CommandName::Echo => {
                replies.bulk(args.get(1).unwrap_or_default());
                Ok(())
            }
            CommandName::Info => {
                session::info(args, server, &mut replies);
                Ok(())
            }
            CommandName::Ping => ping(args, &mut replies),
            CommandName::Quit => {
                replies.ok();
                return Some(Next::Close);
            }
            CommandName::Reset => {
                session.reset(server);
                replies.protocol = session.protocol;
                replies.simple("RESET");
                Ok(())
            }
            CommandName::Select => session::select(args, &mut replies),
            // Decided in a batch.
            CommandName::Throttle => Ok(()),
            CommandName::Wait => {
                let command = OwnedArgs::of(args);
                self.pending = Some(PendingCommand::ForTurn { command, reserves: false });
                return Some(Next::Wait);
            }
            CommandName::Rule(rule_command) => {
                let (peer, checked) = (session.peer(), &mut self.checked);
                let reply = check::execute(rule_command, args, server, peer, now, checked);
                // With counters in memory the future is ready.
                let reply = ready(reply).unwrap_or_else(|| Err(RespError::draining()));
                reply.map(|reply| {
                    counts.rule_commands[rule_command as usize] += 1;
                    reply.put(&mut replies);
                })
            }
        };
        if let Err(error) = done {
            self.refuse(command.name.endpoint(), &error, out);
        }
        self.apply_limits();
        self.session.is_locked_out().then_some(Next::Close)
    }

    fn refuse(&self, endpoint: Option<Endpoint>, error: &RespError, out: &mut Vec<u8>) {
        if let Some(endpoint) = endpoint {
            self.server.app.telemetry().record_failure(endpoint, error.fault);
        }
        self.replies(out).error(error);
    }

    fn replies<'a>(&self, out: &'a mut Vec<u8>) -> ReplyWriter<'a> {
        ReplyWriter { out, protocol: self.session.protocol }
    }

    /// Applies the size limits for clients before or after authentication.
    fn apply_limits(&mut self) {
        let limits = &self.server.limits;
        let authenticated = self.session.is_authenticated;
        let limits = if authenticated { limits.command } else { limits.command_before_auth };
        self.reader.set_limits(limits);
    }

    /// Counts the replies, with the time that all of them took.
    fn count(&self, counts: &CallCounts, begun: Timestamp) {
        let checks = RuleCommand::ALL
            .map(|command| (command.endpoint(), counts.rule_commands[command as usize]));
        let all = checks.into_iter().chain([(Endpoint::Throttle, counts.throttle)]);
        let mut all = all.filter(|(_, count)| *count > 0).peekable();
        if all.peek().is_some() {
            let app = &self.server.app;
            let took = app.engine().now().since(begun);
            all.for_each(|(endpoint, count)| {
                app.telemetry().record_responses(endpoint, took, count)
            });
        }
    }
}

/// Executes a rule command that needs the store.
async fn execute_on_store(
    rule_command: RuleCommand,
    command: OwnedArgs,
    server: &RespServer,
    peer: Option<IpAddr>,
) -> Result<Reply, RespError> {
    let app = &server.app;
    let (begun, mut checked) = (app.engine().now(), Checked::default());
    let args = command.args();
    let reply = check::execute(rule_command, args, server, peer, begun, &mut checked).await;
    app.record_call(rule_command.endpoint(), begun, reply.as_ref().err().map(|error| error.fault));
    reply
}

#[inline]
fn is_throttle(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"CL.THROTTLE")
}

fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

fn ping(args: Args<'_>, replies: &mut ReplyWriter<'_>) -> Result<(), RespError> {
    match (args.get(1), args.len()) {
        (None, _) => replies.simple("PONG"),
        (Some(message), 2) => replies.bulk(message),
        _ => return Err(RespError::arity("ping")),
    }
    Ok(())
}
