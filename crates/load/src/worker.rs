//! A thread of load: connections of its own, and a share of everything.

use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::request::{Ask, Protocol};
use crate::driver::{Stretch, Unsent, Wait, drive};
use crate::plan::{Amount, Pace, Plan};
use crate::schedule::Schedule;
use crate::tally::{Second, Tally};
use crate::template::Template;
use crate::wire::resp::Meaning;
use crate::wire::{Slot, grpc, http1, resp};

/// Where all threads, and whoever started them, wait for each other.
#[derive(Debug)]
pub(crate) struct Gate {
    barrier: Barrier,
    failure: Mutex<Option<String>>,
}

/// What a thread tells.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// Of filling and warming up.
    pub(crate) before: Sender<Second>,
    pub(crate) measured: Sender<Second>,
}

/// The whole life of a thread. What is due and was not sent comes back.
pub(crate) fn work(plan: &Plan, thread: usize, gate: &Gate, told: Told) -> Unsent {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            gate.fail(format!("cannot start a thread: {error}"));
            gate.wait();
            return Unsent(0);
        }
    };
    let worker = Worker { plan, thread, gate, told };
    LocalSet::new().block_on(&runtime, worker.work())
}

struct Worker<'a> {
    plan: &'a Plan,
    thread: usize,
    gate: &'a Gate,
    told: Told,
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(threads: usize) -> Self {
        Self { barrier: Barrier::new(threads + 1), failure: Mutex::new(None) }
    }

    /// Until everybody is here.
    pub(crate) fn wait(&self) {
        self.barrier.wait();
    }

    fn fail(&self, failure: String) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }

    /// Why nothing will become of it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// === impl Worker ===

impl Worker<'_> {
    async fn work(self) -> Unsent {
        let plan = self.plan;
        let digits = plan.keys.digits();
        let template = Rc::new(Template::of(digits, |key| plan.ask.request(key, plan.address)));
        let connections = plan.share(plan.connections as u64, self.thread as u64);
        match plan.ask.protocol() {
            Protocol::Grpc => {
                let mut slots = Vec::new();
                for _ in 0..connections {
                    let more = grpc::open(plan.address, &plan.ask, &template, plan.at_once).await;
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
                let password = plan.password.as_deref().map(resp::greeting).unwrap_or_default();
                let door = Rc::new(resp::Door {
                    address: plan.address,
                    greeting: password,
                    template: Template::clone(&template),
                    means: meaning(&plan.ask),
                    pipeline: plan.at_once,
                });
                let mut slots = Vec::new();
                for _ in 0..connections {
                    slots.push(resp::open(&door).await);
                }
                self.with(slots.into_iter().collect()).await
            }
        }
    }

    /// Everything that is done with slots, whatever they are.
    async fn with<S: Slot + 'static>(self, slots: Result<Vec<S>, String>) -> Unsent {
        if let Err(failure) = &slots {
            self.gate.fail(failure.clone());
        }
        self.gate.wait();
        let Ok(mut slots) = slots else { return Unsent(0) };
        if self.gate.failure().is_some() {
            return Unsent(0);
        }
        let Self { plan, thread, gate, told } = self;
        let (number, threads) = (thread as u64, plan.threads as u64);
        if plan.fill {
            let tally = Tally::new(thread, Instant::now(), 0, told.before.clone());
            let keys = plan.keys.each(number, threads);
            let stretch = Stretch {
                keys,
                schedule: None,
                ends: None,
                count: u64::MAX,
                wait: Wait::Exact,
                patience: plan.patience,
            };
            (slots, _) = drive(slots, stretch, tally).await;
        }
        if !plan.warm_up.is_zero() {
            let began = Instant::now();
            let tally = Tally::new(thread, began, 0, told.before.clone());
            let stretch = stretch_of(plan, number, began, Amount::Time(plan.warm_up));
            (slots, _) = drive(slots, stretch, tally).await;
        }
        drop(told.before);
        gate.wait();
        // Meanwhile the books are read.
        gate.wait();
        let began = Instant::now();
        let last = match plan.amount {
            Amount::Time(time) => {
                time.as_nanos().div_ceil(Duration::from_secs(1).as_nanos()) as u64 - 1
            }
            Amount::Count(_) => u64::MAX - 2,
        };
        let tally = Tally::new(thread, began, last, told.measured);
        let (_, unsent) = drive(slots, stretch_of(plan, number, began, plan.amount), tally).await;
        unsent
    }
}

/// The loop as planned, for so much.
fn stretch_of(plan: &Plan, thread: u64, began: Instant, amount: Amount) -> Stretch {
    let threads = plan.threads as u64;
    let schedule = match plan.pace {
        Pace::Closed => None,
        Pace::Open(rate, arrivals) => {
            Some(Schedule::new(rate, arrivals, plan.keys.seed, thread, threads))
        }
    };
    let (ends, count) = match amount {
        Amount::Time(time) => (Some(began + time), u64::MAX),
        Amount::Count(count) => (None, plan.share(count, thread)),
    };
    let keys = plan.keys.of_thread(thread, threads);
    Stretch { keys, schedule, ends, count, wait: Wait::Exact, patience: plan.patience }
}

/// What the first number of a reply means, by the name of the command.
fn meaning(ask: &Ask) -> Meaning {
    let Ask::Command { words } = ask else { return Meaning::Nothing };
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match name.as_str() {
        "CL.THROTTLE" | "SG.CHECK" | "SG.PEEK" | "SG.RESERVE" | "SG.WAIT" => Meaning::Limited,
        "THROTTLE" => Meaning::Allowed,
        _ => Meaning::Nothing,
    }
}
