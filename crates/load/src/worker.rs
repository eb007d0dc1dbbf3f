//! A load thread: its own connections and its share of the plan.

use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::driver::{Phase, Unsent, drive};
use crate::plan::{Amount, Pace, Plan};
use crate::request::Template;
use crate::request::{Protocol, RequestSpec};
use crate::schedule::{RateStep, Schedule};
use crate::tally::{Second, Tally};
use crate::wire::resp::ReplyFormat;
use crate::wire::{Slot, grpc, http1, resp};

/// Rendezvous of all threads and the main thread; carries the first connection error.
#[derive(Debug)]
pub(crate) struct StartBarrier {
    barrier: Barrier,
    failure: Mutex<Option<String>>,
}

/// Result channels of a thread.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    /// Fill and warm-up.
    pub(crate) before: Sender<Second>,
    pub(crate) measured: Sender<Second>,
}

/// Body of a thread. Returns the number of unsent requests.
pub(crate) fn work(
    plan: &Plan,
    thread: usize,
    barrier: &StartBarrier,
    channels: Channels,
) -> Unsent {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            barrier.fail(format!("cannot start a thread: {error}"));
            barrier.wait();
            return Unsent(0);
        }
    };
    let worker = Worker { plan, thread, barrier, channels };
    LocalSet::new().block_on(&runtime, worker.work())
}

struct Worker<'a> {
    plan: &'a Plan,
    thread: usize,
    barrier: &'a StartBarrier,
    channels: Channels,
}

impl StartBarrier {
    pub(crate) fn new(threads: usize) -> Self {
        Self { barrier: Barrier::new(threads + 1), failure: Mutex::new(None) }
    }

    /// Blocks until all threads have arrived.
    pub(crate) fn wait(&self) {
        self.barrier.wait();
    }

    fn fail(&self, failure: String) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }

    /// The first connection error.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Worker<'_> {
    async fn work(self) -> Unsent {
        let plan = self.plan;
        let digits = plan.keys.digits();
        let template = Rc::new(plan.request.template(digits, plan.address));
        let connections = plan.share(plan.connections as u64, self.thread as u64);
        match plan.request.protocol() {
            Protocol::Grpc => {
                let mut slots = Vec::new();
                for _ in 0..connections {
                    let more =
                        grpc::open(plan.address, &plan.request, &template, plan.at_once).await;
                    slots.push(more);
                }
                let slots = slots.into_iter().collect::<Result<Vec<_>, _>>();
                self.with(slots.map(|slots| slots.into_iter().flatten().collect())).await
            }
            Protocol::Http => {
                let denied: Rc<[u16]> = plan.denied.clone().into();
                let mut slots = Vec::new();
                for _ in 0..connections {
                    slots.push(http1::open(plan.address, &template, &denied).await);
                }
                self.with(slots.into_iter().collect()).await
            }
            Protocol::Resp => {
                let password = plan.password.as_deref().map(resp::auth).unwrap_or_default();
                let endpoint = Rc::new(resp::Endpoint {
                    address: plan.address,
                    auth: password,
                    template: Template::clone(&template),
                    format: reply_format(&plan.request),
                    pipeline: plan.at_once,
                });
                let mut slots = Vec::new();
                for _ in 0..connections {
                    slots.push(resp::open(&endpoint).await);
                }
                self.with(slots.into_iter().collect()).await
            }
        }
    }

    /// Runs fill, warm-up and measurement on the slots.
    async fn with<S: Slot + 'static>(self, slots: Result<Vec<S>, String>) -> Unsent {
        if let Err(failure) = &slots {
            self.barrier.fail(failure.clone());
        }
        self.barrier.wait();
        let Ok(mut slots) = slots else { return Unsent(0) };
        if self.barrier.failure().is_some() {
            return Unsent(0);
        }
        let Self { plan, thread, barrier, channels } = self;
        let (number, threads) = (thread as u64, plan.threads as u64);
        if plan.fill {
            let tally = Tally::new(thread, Instant::now(), 0, channels.before.clone());
            let keys = plan.keys.each(number, threads);
            let phase = Phase {
                keys,
                schedule: None,
                ends: None,
                count: u64::MAX,
                timer: plan.timer,
                timeout: plan.timeout,
                request_timeout: plan.request_timeout,
            };
            (slots, _) = drive(slots, phase, tally).await;
        }
        if !plan.warm_up.is_zero() {
            let began = Instant::now();
            let tally = Tally::new(thread, began, 0, channels.before.clone());
            let phase = phase_of(plan, number, began, Amount::Time(plan.warm_up));
            (slots, _) = drive(slots, phase, tally).await;
        }
        drop(channels.before);
        barrier.wait();
        // The main thread samples `/proc` in between.
        barrier.wait();
        let began = Instant::now();
        let last = match plan.amount {
            Amount::Time(time) => {
                time.as_nanos().div_ceil(Duration::from_secs(1).as_nanos()) as u64 - 1
            }
            Amount::Count(_) => u64::MAX - 2,
        };
        let tally = Tally::new(thread, began, last, channels.measured);
        let (_, unsent) = drive(slots, phase_of(plan, number, began, plan.amount), tally).await;
        unsent
    }
}

/// The planned loop for a given amount.
fn phase_of(plan: &Plan, thread: u64, began: Instant, amount: Amount) -> Phase {
    let threads = plan.threads as u64;
    let schedule = |steps: &[RateStep], arrivals| {
        Schedule::new(steps, arrivals, plan.keys.seed, thread, threads)
    };
    let schedule = match &plan.pace {
        Pace::Closed => None,
        Pace::Open(rate, arrivals) => {
            Some(schedule(&[RateStep { time: Duration::MAX, rate: *rate }], *arrivals))
        }
        Pace::Steps(steps, arrivals) => Some(schedule(steps, *arrivals)),
    };
    let (ends, count) = match amount {
        Amount::Time(time) => (Some(began + time), u64::MAX),
        Amount::Count(count) => (None, plan.share(count, thread)),
    };
    let keys = plan.keys.of_thread(thread, threads);
    let (timeout, request_timeout) = (plan.timeout, plan.request_timeout);
    Phase { keys, schedule, ends, count, timer: plan.timer, timeout, request_timeout }
}

/// The reply format of a command.
fn reply_format(request: &RequestSpec) -> ReplyFormat {
    let RequestSpec::Command { words } = request else { return ReplyFormat::Any };
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match name.as_str() {
        "CL.THROTTLE" | "SG.CHECK" | "SG.PEEK" | "SG.RESERVE" | "SG.WAIT" => ReplyFormat::Limited,
        "THROTTLE" => ReplyFormat::Allowed,
        _ => ReplyFormat::Any,
    }
}
