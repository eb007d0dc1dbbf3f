//! One call, from its headers to its trailers.
//!
//! Nearly always the message is there when the call is accepted. Such a call is answered at once, by the task of the connection:
//! a task of its own would cost more than the answer. A call that has to wait gets one.
//!
//! Measured with 8 connections of 32 calls each, in CPU time of the server: 5.0 to 5.8 µs a call, against 10.6 to 11.4 with a task for every
//! call, which on tokio's multi-threaded runtime wrote every answer by itself; 3.8 to 4.3 for a server that reads and decides nothing.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method as Verb, Request, Response, header, request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::answer::{Answer, CALL_BYTES, Since};
use super::message::{self, Incoming, Most};
use super::status::Status;
use super::{Bounds, health};
use crate::counters::at_once;
use crate::memory::{Account, Charge, Endpoint, Share};
use crate::rls::handler::{Failure, Scratch, Service};
use crate::telemetry::Door;
use crate::traces::Span;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

const PATIENCE_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What all calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) service: Service,
    pub(super) bounds: Bounds,
    /// For calls that wait.
    in_flight: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    pub(super) memory: Arc<EndpointBudget>,
}

/// What a connection tells its calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// Calls that go on for ever should end.
    pub(super) closing: bool,
    /// For an answer that is given now.
    pub(super) since: Since,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// One answer, and that is it.
    Plain(Plain),
    /// Answers until somebody has had enough.
    Watch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plain {
    ShouldRateLimit,
    Check,
    List,
}

thread_local! {
    /// Grown once, used for every call that this thread answers.
    static SCRATCH: RefCell<(Scratch, Vec<u8>)> = RefCell::default();
}

/// A call that has not been answered.
struct Call {
    method: Method,
    body: RecvStream,
    respond: SendResponse<Answer>,
    incoming: Incoming,
    /// If somebody follows it.
    span: Option<Span>,
}

/// Answers a call, now or later. Whoever has gone away meanwhile misses the answer; what was charged stays charged.
pub(super) fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Answer>,
    shared: &Arc<Shared>,
    told: &watch::Sender<Told>,
    since: &Since,
    account: &Arc<Account>,
) {
    let (head, body) = request.into_parts();
    let Some(method) = Method::of(&head) else {
        let path = head.uri.path();
        return refuse(Status::unimplemented(format!("there is no method `{path}`")), respond);
    };
    let span = match method {
        Method::Plain(Plain::ShouldRateLimit) => {
            shared.service.begin_span("ShouldRateLimit", &head.headers)
        }
        _ => None,
    };
    let mut call = Call { method, body, respond, incoming: Incoming::default(), span };
    let most = shared.most(account);
    // Nobody need be woken: whoever waits is asked again by a task that does.
    let cx = &mut Context::from_waker(Waker::noop());
    match call.incoming.poll(&mut call.body, &most, cx) {
        Poll::Ready(Ok(message)) if call.asks_store(shared) => {
            if let Some(answered) = call.answer_here(&message, shared, since, account) {
                return call.send(answered, shared);
            }
            // Only a bound number waits for the store, and for the room that it takes.
            let Ok(seat) = shared.in_flight.clone().try_acquire_owned() else {
                return call.fail(Status::overloaded(), shared);
            };
            let (shared, since, account) = (shared.clone(), since.clone(), account.clone());
            let deadline = client_deadline(&head.headers);
            let later = async move {
                let _seat = seat;
                call.conclude_later(deadline, &message, &shared, &since, &account).await;
            };
            tokio::spawn(later);
        }
        Poll::Ready(message) => {
            call.conclude(message, shared, || told.subscribe(), since, account);
        }
        Poll::Pending => {
            let Ok(seat) = shared.in_flight.clone().try_acquire_owned() else {
                return call.fail(Status::overloaded(), shared);
            };
            let Some(charge) = account.charge(CALL_BYTES) else {
                return call.fail(Status::out_of_memory(), shared);
            };
            let permit = Permit { _seat: seat, _charge: charge };
            let patience = patience(&head.headers, shared.bounds.patience);
            let deadline = client_deadline(&head.headers);
            // The headers are not kept while it waits.
            drop(head);
            let waiting = Waiting { patience, deadline, permit, account: account.clone() };
            tokio::spawn(wait(call, shared.clone(), told.subscribe(), waiting));
        }
    }
}

/// Held by a call that waits for its message.
struct Permit {
    _seat: OwnedSemaphorePermit,
    _charge: Charge,
}

/// What a call that waits for its message has.
struct Waiting {
    patience: Duration,
    deadline: Option<Instant>,
    permit: Permit,
    account: Arc<Account>,
}

/// Waits for the message, but not for ever.
async fn wait(
    mut call: Call,
    shared: Arc<Shared>,
    told: watch::Receiver<Told>,
    Waiting { patience, deadline, permit, account }: Waiting,
) {
    let most = shared.most(&account);
    let message = match timeout(patience, call.incoming.receive(&mut call.body, &most)).await {
        Ok(message) => message,
        Err(_) => Err(Status::too_late("the message did not come in time")),
    };
    let since = told.borrow().since.clone();
    match message {
        Ok(message) if call.asks_store(&shared) => {
            let _permit = permit;
            call.conclude_later(deadline, &message, &shared, &since, &account).await;
        }
        message => {
            drop(permit);
            call.conclude(message, &shared, || told, &since, &account);
        }
    }
}

impl Call {
    /// Whether the answer has to be waited for.
    fn asks_store(&self, shared: &Shared) -> bool {
        self.method == Method::Plain(Plain::ShouldRateLimit) && !shared.service.is_alone()
    }

    /// What is answered without asking the store, if this node can.
    fn answer_here(
        &mut self,
        message: &[u8],
        shared: &Shared,
        since: &Since,
        account: &Arc<Account>,
    ) -> Option<Result<Answer, Status>> {
        SCRATCH.with_borrow_mut(|(scratch, out)| {
            message::begin(out);
            let (service, span) = (&shared.service, self.span.as_mut());
            let answered =
                service.answer_here(span, Endpoint::ShouldRateLimit, message, scratch, out)?;
            Some(answered.map_err(Status::from).and_then(|_| {
                message::end(out);
                charged(out, since, account)
            }))
        })
    }

    /// Answers when the store has, and before the client stops waiting.
    async fn conclude_later(
        mut self,
        deadline: Option<Instant>,
        message: &[u8],
        shared: &Shared,
        since: &Since,
        account: &Arc<Account>,
    ) {
        let (mut scratch, mut out) = SCRATCH.take();
        scratch.deadline = deadline;
        message::begin(&mut out);
        let (service, span) = (&shared.service, self.span.as_mut());
        let endpoint = Endpoint::ShouldRateLimit;
        let answered = service.answer_in(span, endpoint, message, &mut scratch, &mut out).await;
        let answered = answered.map_err(Status::from).and_then(|_| {
            message::end(&mut out);
            charged(&out, since, account)
        });
        SCRATCH.set((scratch, out));
        self.send(answered, shared);
    }

    fn conclude(
        mut self,
        message: Result<Bytes, Status>,
        shared: &Shared,
        told: impl FnOnce() -> watch::Receiver<Told>,
        since: &Since,
        account: &Arc<Account>,
    ) {
        let answered = match (message, self.method) {
            (Ok(message), Method::Plain(method)) => {
                method.answer(&message, &shared.service, self.span.as_mut(), since, account)
            }
            (Ok(message), Method::Watch) => return self.watch(&message, shared, told(), account),
            (Err(status), _) => Err(status),
        };
        self.send(answered, shared);
    }

    fn send(mut self, answered: Result<Answer, Status>, shared: &Shared) {
        if let Some(span) = self.span.take() {
            span.end(shared.service.engine().now());
        }
        match answered {
            Ok(answer) => {
                // Nobody is left to be told of an error here.
                if let Ok(mut stream) = self.respond.send_response(response(), false)
                    && stream.send_data(answer, false).is_ok()
                {
                    end(&mut stream, Ok(()));
                }
            }
            Err(status) => self.fail(status, shared),
        }
    }

    fn watch(
        mut self,
        message: &[u8],
        shared: &Shared,
        told: watch::Receiver<Told>,
        account: &Arc<Account>,
    ) {
        let Ok(seat) = shared.watches.clone().try_acquire_owned() else {
            return self.fail(Status::exhausted("there are too many watchers already"), shared);
        };
        if let Ok(stream) = self.respond.send_response(response(), false) {
            let health = shared.service.health().clone();
            tokio::spawn(health::watch(
                message.to_vec(),
                stream,
                health,
                told,
                seat,
                account.clone(),
            ));
        }
    }

    /// Ends a call without an answer. What the client has not sent yet it need not send: when the rest of the call is dropped,
    /// its stream is reset.
    fn fail(self, status: Status, shared: &Shared) {
        if let (Method::Plain(Plain::ShouldRateLimit), Some(fault)) = (self.method, status.fault())
        {
            shared.service.telemetry().record_failure(Endpoint::ShouldRateLimit, fault);
        }
        refuse(status, self.respond);
    }
}

/// The answer, charged to its connection if it is long.
fn charged(message: &[u8], since: &Since, account: &Arc<Account>) -> Result<Answer, Status> {
    Answer::new(message, since.clone(), account).ok_or_else(Status::out_of_memory)
}

/// Ends what has been begun.
pub(super) fn end(stream: &mut SendStream<Answer>, outcome: Result<(), Status>) {
    let mut trailers = HeaderMap::with_capacity(1);
    match outcome {
        Ok(()) => {
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(status) => put(&status, &mut trailers),
    }
    let _ = stream.send_trailers(trailers);
}

fn refuse(status: Status, mut respond: SendResponse<Answer>) {
    let mut response = response();
    put(&status, response.headers_mut());
    let _ = respond.send_response(response, true);
}

fn put(status: &Status, headers: &mut HeaderMap) {
    headers.insert("grpc-status", status.code());
    headers.insert("grpc-message", status.message());
    if status.is_for_compression {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
}

fn response() -> Response<()> {
    let mut response = Response::new(());
    // No larger than it must be: it is made for every call.
    *response.headers_mut() = HeaderMap::with_capacity(1);
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

/// When an answer has to be sent, if the client says how long it waits: a quarter of that time is
/// for the way back.
fn client_deadline(headers: &HeaderMap) -> Option<Instant> {
    headers.get("grpc-timeout")?;
    let timeout = patience(headers, PATIENCE_MAX);
    Some(Instant::now() + timeout - timeout / 4)
}

/// How long the client is waited for: no longer than it waits itself.
fn patience(headers: &HeaderMap, most: Duration) -> Duration {
    let Some(text) = headers.get("grpc-timeout").and_then(|value| value.to_str().ok()) else {
        return most;
    };
    let Some((number, unit)) = text.split_at_checked(text.len().saturating_sub(1)) else {
        return most;
    };
    // At most eight digits, says the protocol.
    let Some(number) = number.parse::<u32>().ok().map(u64::from) else { return most };
    let theirs = match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => most,
    };
    theirs.min(most)
}

impl Shared {
    pub(super) fn new(service: Service, bounds: Bounds) -> Self {
        // Neither without a pause, nor beyond what a clock can count.
        let patience = bounds.patience.clamp(Duration::from_millis(1), PATIENCE_MAX);
        let bounds = Bounds { patience, ..bounds };
        let memory = service.memory().endpoint(Share::Clients);
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            service,
            bounds,
            in_flight: semaphore(bounds.in_flight),
            watches: semaphore(bounds.watches),
            memory,
        }
    }

    const fn most<'a>(&self, account: &'a Arc<Account>) -> Most<'a> {
        Most { bytes: self.bounds.message_bytes, account }
    }
}

impl Method {
    fn of(head: &request::Parts) -> Option<Self> {
        if head.method != Verb::POST {
            return None;
        }
        match head.uri.path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Some(Self::Plain(Plain::ShouldRateLimit))
            }
            "/grpc.health.v1.Health/Check" => Some(Self::Plain(Plain::Check)),
            "/grpc.health.v1.Health/List" => Some(Self::Plain(Plain::List)),
            "/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

impl Plain {
    fn answer(
        self,
        message: &[u8],
        service: &Service,
        span: Option<&mut Span>,
        since: &Since,
        account: &Arc<Account>,
    ) -> Result<Answer, Status> {
        SCRATCH.with_borrow_mut(|(scratch, out)| {
            message::begin(out);
            match self {
                Self::ShouldRateLimit => {
                    let answer =
                        service.answer_in(span, Endpoint::ShouldRateLimit, message, scratch, out);
                    at_once(answer).unwrap_or_else(|| Err(Failure::would_wait()))?;
                }
                Self::Check => health::check(message, service.health(), out)?,
                Self::List => health::list(service.health(), out),
            }
            message::end(out);
            charged(out, since, account)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_waited_for_longer_than_it_waits_itself() {
        let most = Duration::from_secs(10);
        let waits = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            patience(
                &HeaderMap::from_iter([(header::HeaderName::from_static("grpc-timeout"), value)]),
                most,
            )
        };
        let all = [("2S", 2_000_000_000), ("20m", 20_000_000), ("3u", 3_000), ("4n", 4), ("0S", 0)];
        for (text, nanos) in all {
            assert_eq!(waits(text), Duration::from_nanos(nanos), "{text}");
        }
        for text in ["1H", "1M", "11S", "99999999H", "", "S", "5", "-1S", "5x", "999999999999S"] {
            assert_eq!(waits(text), most, "{text}");
        }
        assert_eq!(patience(&HeaderMap::new(), most), most);
    }
}
