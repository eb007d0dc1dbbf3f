//! From the commands that have come to their replies.
//!
//! All that came with one read is answered at one moment and sent with one write. Buckets that are asked for one behind the other are looked up together.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate::throttle::NoRoom;
use sluicegate::{Checked, Timestamp, Verdict};

use super::answer::Answer;
use super::check::{self, Want};
use super::commands::{self, Name};
use super::frame::{Args, Owned, Reader};
use super::holding;
use super::info;
use super::refusal::Refusal;
use super::reply::Replies;
use super::session::{self, Session};
use super::shared::Shared;
use super::throttle::{self, Batch, Lately};
use crate::counters::at_once;
use crate::telemetry::{Endpoint, Event};

/// One client's commands and their replies.
#[derive(Debug)]
pub(super) struct Talk {
    shared: Arc<Shared>,
    session: Session,
    reader: Reader,
    lately: Lately,
    /// The command that waits, and for what.
    waiting: Option<(Waiting, Owned)>,
    /// Used again and again.
    checked: Checked,
}

/// What a command waits for.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// Its turn.
    Turn,
    /// The store.
    Asked(Want),
}

/// What it takes to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More bytes.
    Bytes,
    /// That the replies are sent.
    Room,
    /// That somebody's turn comes: see [`Talk::wait`].
    Turn,
    /// Nothing: when the replies are sent it is over.
    End,
}

/// What became of a command that waited.
pub(super) struct Turn(Option<Result<Answer, Refusal>>);

/// More than a reply of five numbers of any size.
const REPLY_BYTES: usize = 128;

/// How many calls were answered, endpoint by endpoint. They are counted together, since they are answered together.
#[derive(Debug, Default)]
struct Answered {
    throttle: u64,
    asked: [u64; Want::ALL.len()],
}

// === impl Talk ===

impl Talk {
    pub(super) fn new(shared: Arc<Shared>, peer: Option<IpAddr>) -> Self {
        let session = Session::new(&shared, peer);
        let (reader, lately, waiting, checked) = Default::default();
        let mut talk = Self { shared, session, reader, lately, waiting, checked };
        talk.hold_to_bounds();
        talk
    }

    /// Whether it may ask.
    pub(super) const fn is_known(&self) -> bool {
        self.session.is_known
    }

    /// Answers the commands at the beginning of `input`: how many bytes they were, and what it takes to go on.
    pub(super) fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let shared = self.shared.clone();
        let now = shared.service.engine().now();
        let mut batch = Batch::default();
        let (mut answered, mut commands, mut taken) = (Answered::default(), 0, 0);
        let next = loop {
            if out.len() + batch.len() * REPLY_BYTES >= shared.bounds.reply_bytes {
                break Next::Room;
            }
            let rest = input.get(taken..).unwrap_or_default();
            let length = match self.reader.read(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Next::Bytes,
                Err(broken) => {
                    self.decide(&mut batch, now, &mut answered, out);
                    self.replies(out).error(format_args!("ERR {broken}"));
                    break Next::End;
                }
            };
            taken += length;
            let args = self.reader.args(rest);
            let Some(name) = args.get(0) else { continue };
            commands += 1;
            if !is_throttle(name) || !self.session.is_known {
                self.decide(&mut batch, now, &mut answered, out);
                match self.obey(rest, now, &mut answered, out) {
                    None => continue,
                    Some(next) => break next,
                }
            }
            let asked = match throttle::read(args) {
                Ok(asked) => asked,
                Err(refusal) => {
                    self.decide(&mut batch, now, &mut answered, out);
                    self.refuse(Some(Endpoint::Throttle), &refusal, out);
                    continue;
                }
            };
            let terms = match self.lately.place(&asked) {
                Some(place) => place,
                None => {
                    // Those that wait for an answer may be forgotten now.
                    self.decide(&mut batch, now, &mut answered, out);
                    match self.lately.make(&asked) {
                        Ok(place) => place,
                        Err(refusal) => {
                            self.refuse(Some(Endpoint::Throttle), &refusal, out);
                            continue;
                        }
                    }
                }
            };
            if let Some(key) = self.reader.borrowed(1, rest) {
                batch.push(key, asked, terms);
                if !batch.is_full() {
                    continue;
                }
            }
            self.decide(&mut batch, now, &mut answered, out);
            if !self.reader.borrows() {
                let key = self.reader.args(rest).get(1).unwrap_or_default();
                let mut one = Batch::one(key, asked, terms);
                self.decide(&mut one, now, &mut answered, out);
            }
        };
        self.decide(&mut batch, now, &mut answered, out);
        shared.count(commands);
        self.tell(&answered, now);
        (taken, next)
    }

    /// What the command that waits for a turn is answered, in the end. Whoever drops it gives the turn back.
    pub(super) fn wait(&mut self) -> impl Future<Output = Turn> + use<> {
        let (waiting, shared) = (self.waiting.take(), self.shared.clone());
        async move {
            match waiting {
                Some((Waiting::Turn, command)) => {
                    Turn(Some(holding::wait(command, shared.service.clone()).await))
                }
                Some((Waiting::Asked(want), command)) => {
                    Turn(Some(asked(want, command, &shared).await))
                }
                None => Turn(None),
            }
        }
    }

    /// Replies to it.
    pub(super) fn conclude(&self, turn: Turn, out: &mut Vec<u8>) {
        let mut replies = self.replies(out);
        match turn.0 {
            Some(Ok(answer)) => answer.put(&mut replies),
            Some(Err(refusal)) => replies.error(refusal),
            None => {}
        }
    }

    /// Takes from the buckets, and replies in their order.
    fn decide(
        &self,
        batch: &mut Batch<'_>,
        now: Timestamp,
        answered: &mut Answered,
        out: &mut Vec<u8>,
    ) {
        if batch.is_empty() {
            return;
        }
        let Shared { service, throttle, .. } = &*self.shared;
        let is_enforced = !service.options().shadow_mode;
        let each = |place: usize, said: Result<Verdict, NoRoom>| match said {
            Ok(verdict) => {
                if !is_enforced && !verdict.is_allowed() {
                    service.telemetry().record(Event::GlobalShadow);
                }
                if let Some(terms) = batch.terms(place, &self.lately) {
                    let numbers = throttle::numbers(terms, &verdict, is_enforced);
                    self.replies(out).numbers(numbers);
                }
                answered.throttle += 1;
            }
            Err(no_room) => {
                self.refuse(Some(Endpoint::Throttle), &throttle::no_room(no_room), out);
            }
        };
        batch.decide(throttle, &self.lately, now, each);
        batch.clear();
    }

    /// Does what any other command says; nothing if it goes on with the next one.
    fn obey(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        answered: &mut Answered,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let args = self.reader.args(bytes);
        let name = args.get(0).unwrap_or_default();
        let mut replies = Replies { protocol: self.session.protocol, out };
        // A web page can have a browser send lines to any address: that is no client of ours.
        if !self.reader.borrows() && is_http(name) {
            replies.error("ERR this is not HTTP");
            return Some(Next::End);
        }
        let command = match commands::find(name) {
            found if !self.session.may(found) => Err(Refusal::no_auth()),
            None => Err(commands::unknown(args)),
            Some(command) => Ok(command),
        };
        let command = match command {
            Ok(command) => command,
            Err(refusal) => {
                replies.error(refusal);
                return None;
            }
        };
        let (shared, session) = (&*self.shared, &mut self.session);
        if let Some(want) = command.name.want()
            && command.takes(args.len())
            && !shared.service.is_alone()
        {
            self.waiting = Some((Waiting::Asked(want), Owned::of(args)));
            return Some(Next::Turn);
        }
        let mut ask = |want: Want, replies: &mut Replies<'_>| {
            let judging = check::judge(want, args, shared, now, &mut self.checked);
            // Its counters are its own, so it waits for nothing.
            let judged = at_once(judging).unwrap_or_else(|| Err(Refusal::draining()));
            judged.map(|answer| {
                answered.asked[want as usize] += 1;
                answer.put(replies);
            })
        };
        let done = match command.name {
            _ if !command.takes(args.len()) => Err(Refusal::arity(command.text)),
            Name::Auth => session.auth(args, shared, &mut replies),
            Name::Client => session.client(args, &mut replies),
            Name::Command => commands::command(args, &mut replies),
            Name::Config => info::config(args, &mut replies),
            Name::Hello => session.hello(args, shared, &mut replies),
            Name::Echo => {
                replies.bulk(args.get(1).unwrap_or_default());
                Ok(())
            }
            Name::Info => {
                info::info(args, shared, &mut replies);
                Ok(())
            }
            Name::Ping => ping(args, &mut replies),
            Name::Quit => {
                replies.ok();
                return Some(Next::End);
            }
            Name::Reset => {
                session.reset(shared);
                replies.protocol = session.protocol;
                replies.simple("RESET");
                Ok(())
            }
            Name::Select => session::select(args, &mut replies),
            // Whoever is known gets its answer with the others.
            Name::Throttle => Ok(()),
            Name::Wait => {
                self.waiting = Some((Waiting::Turn, Owned::of(args)));
                return Some(Next::Turn);
            }
            Name::Check
            | Name::Peek
            | Name::Refund
            | Name::Reserve
            | Name::Commit
            | Name::Cancel => command.name.want().map_or(Ok(()), |want| ask(want, &mut replies)),
        };
        if let Err(refusal) = done {
            self.refuse(command.name.endpoint(), &refusal, out);
        }
        self.hold_to_bounds();
        self.session.is_over().then_some(Next::End)
    }

    fn refuse(&self, endpoint: Option<Endpoint>, refusal: &Refusal, out: &mut Vec<u8>) {
        if let Some(endpoint) = endpoint {
            self.shared.service.telemetry().record_failure(endpoint, refusal.fault);
        }
        self.replies(out).error(refusal);
    }

    fn replies<'a>(&self, out: &'a mut Vec<u8>) -> Replies<'a> {
        Replies { out, protocol: self.session.protocol }
    }

    /// Who has not shown the password gets no more room than that takes.
    fn hold_to_bounds(&mut self) {
        let bounds = &self.shared.bounds;
        let most = if self.session.is_known { bounds.command } else { bounds.command_of_strangers };
        self.reader.set_most(most);
    }

    /// What was answered is counted. All of it took as long as the whole.
    fn tell(&self, answered: &Answered, begun: Timestamp) {
        let checks = Want::ALL.map(|want| (want.endpoint(), answered.asked[want as usize]));
        let all = checks.into_iter().chain([(Endpoint::Throttle, answered.throttle)]);
        let mut all = all.filter(|(_, count)| *count > 0).peekable();
        if all.peek().is_some() {
            let service = &self.shared.service;
            let took = service.engine().now().since(begun);
            all.for_each(|(endpoint, count)| {
                service.telemetry().record_responses(endpoint, took, count)
            });
        }
    }
}

/// What is asked of counters that others share.
async fn asked(want: Want, command: Owned, shared: &Shared) -> Result<Answer, Refusal> {
    let service = &shared.service;
    let (begun, mut checked) = (service.engine().now(), Checked::default());
    let judged = check::judge(want, command.args(), shared, begun, &mut checked).await;
    match &judged {
        Ok(_) => service
            .telemetry()
            .record_response(want.endpoint(), service.engine().now().since(begun)),
        Err(refusal) => service.telemetry().record_failure(want.endpoint(), refusal.fault),
    }
    judged
}

#[inline]
fn is_throttle(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"CL.THROTTLE")
}

fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

fn ping(args: Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    match (args.get(1), args.len()) {
        (None, _) => replies.simple("PONG"),
        (Some(message), 2) => replies.bulk(message),
        _ => return Err(Refusal::arity("ping")),
    }
    Ok(())
}
