//! The load: one thread on a core of its own, cheap enough that the server is what is measured.
//!
//! A *slot* is a place for one call at a time: a stream of an HTTP/2 connection, or an HTTP/1.1 connection. In a closed loop each
//! slot asks again as soon as it is answered. Paced, requests have a time at which they are due, whatever became of those before,
//! and what an answer took is counted from there: a server that stands still for a while is seen by everybody who would have come.

mod ask;
mod grpc;
mod http;
mod keys;
mod slot;
mod tally;

pub(crate) use ask::{Template, Who, Wire};
pub(crate) use keys::Keys;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, LocalSet, spawn_local, yield_now};
use tokio::time::sleep;

use crate::process;
use crate::reading::{Part, Reading};
use ask::{PROBED, PROBES};
use slot::{Answer, Slot};
use tally::Tally;

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) wire: Wire,
    pub(crate) address: SocketAddr,
    /// The server's process, whose books are read.
    pub(crate) pid: u32,
    pub(crate) connections: usize,
    /// Calls at once on each of them.
    pub(crate) streams: usize,
    pub(crate) work: Work,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Every key once; then as fast as it answers, keys at random; then the same at a rate.
    Measure { keys: u64, seconds: u32, rate: u32, probe: bool },
    /// At a rate, with keys that nobody has seen.
    Soak { seconds: u32, rate: u32 },
}

/// How a request is kept back until it is due.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// Without sleep: no timer is fine enough.
    Exact,
    /// By a timer, many at a time.
    Rough,
}

const ROUGHLY: Duration = Duration::from_millis(5);

/// Has a job done by a process of its own; the parent's side.
pub(crate) fn command(job: &Job) -> anyhow::Result<std::process::Command> {
    let this = std::env::current_exe().context("this program's own path")?;
    let mut command = crate::running::pinned(crate::running::LOAD_CORE, &this);
    command.arg("load").arg(serde_json::to_string(job)?);
    Ok(command)
}

/// The child's side: one line of JSON.
pub(crate) fn child(job: &str) -> anyhow::Result<ExitCode> {
    let job: Job = serde_json::from_str(job).context("the job")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = LocalSet::new().block_on(&runtime, done(&job))?;
    println!("{}", serde_json::to_string(&done)?);
    Ok(ExitCode::SUCCESS)
}

async fn done(job: &Job) -> anyhow::Result<Reading> {
    let slots = slot::open(job).await?;
    match job.work {
        Work::Measure { keys, seconds, rate, probe } => {
            let mut slots = slots;
            if probe {
                probed(&mut slots[0]).await?;
            }
            measured(job, slots, keys, seconds, rate).await
        }
        Work::Soak { seconds, rate } => {
            let keys = Keys::fresh();
            let time = Duration::from_secs(seconds.into());
            let (_, full) = timed(job, paced(slots, keys, rate, time, Pace::Rough)).await?;
            Ok(Reading { full, paced: None, resident: process::resident(job.pid)? })
        }
    }
}

async fn measured(
    job: &Job,
    slots: Vec<Slot>,
    keys: u64,
    seconds: u32,
    rate: u32,
) -> anyhow::Result<Reading> {
    let time = Duration::from_secs(seconds.into());
    let (slots, filled) = closed(slots, Keys::each(keys), None).await;
    filled.must_be_right()?;
    let (slots, full) = timed(job, closed(slots, Keys::random(keys), Some(time))).await?;
    let (_, even) = timed(job, paced(slots, Keys::random(keys), rate, time, Pace::Exact)).await?;
    Ok(Reading { full, paced: Some(even), resident: process::resident(job.pid)? })
}

/// Whether it limits at all: a key with three a year is asked ten times.
async fn probed(slot: &mut Slot) -> anyhow::Result<()> {
    let mut admitted = 0;
    for _ in 0..PROBES {
        admitted += u64::from(slot.ask(Who::Probe).await? == Answer::Ok);
    }
    ensure!(admitted == PROBED, "of {PROBES} where {PROBED} may go, {admitted} went");
    Ok(())
}

/// Does it, and reads the books before and after.
async fn timed(
    job: &Job,
    work: impl Future<Output = (Vec<Slot>, Tally)>,
) -> anyhow::Result<(Vec<Slot>, Part)> {
    let (pid, own) = (job.pid, std::process::id());
    let (server, load, stolen) = (process::times(pid)?, process::times(own)?, process::stolen());
    let began = Instant::now();
    let (slots, tally) = work.await;
    let seconds = began.elapsed().as_secs_f64();
    let (server_2, load_2, stolen_2) =
        (process::times(pid)?, process::times(own)?, process::stolen());
    tally.must_be_right()?;
    let us = |quantile| tally.took.value_at_quantile(quantile) as f64 / 1e3;
    let on_cpu = server_2.on_cpu - server.on_cpu;
    let waited = (server_2.waited - server.waited).max(load_2.waited - load.waited);
    Ok((
        slots,
        Part {
            seconds,
            ok: tally.ok,
            over: tally.over,
            cpu_us: 1e6 * on_cpu / (tally.ok + tally.over) as f64,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: tally.took.max() as f64 / 1e3,
            busy: on_cpu / seconds,
            load_busy: (load_2.on_cpu - load.on_cpu) / seconds,
            waited: waited / seconds,
            stolen: (stolen_2.0 - stolen.0) as f64 / (stolen_2.1 - stolen.1).max(1) as f64,
        },
    ))
}

/// Every slot asks again as soon as it is answered: until the keys, or the time, are at an end.
async fn closed(slots: Vec<Slot>, keys: Keys, time: Option<Duration>) -> (Vec<Slot>, Tally) {
    let end = time.map(|time| Instant::now() + time);
    let shared = Rc::new(RefCell::new((Tally::default(), keys)));
    let mut tasks = JoinSet::new();
    for mut slot in slots {
        let shared = shared.clone();
        tasks.spawn_local(async move {
            loop {
                let began = Instant::now();
                if end.is_some_and(|end| began >= end) || shared.borrow().0.is_hopeless() {
                    break;
                }
                let Some(key) = shared.borrow_mut().1.next() else { break };
                let answer = slot.ask(Who::Key(key)).await;
                shared.borrow_mut().0.add(answer, began.elapsed());
            }
            slot
        });
    }
    let slots = tasks.join_all().await;
    let tally = std::mem::take(&mut shared.borrow_mut().0);
    (slots, tally)
}

/// A request is due at regular times. If no slot is free it waits, and that counts.
async fn paced(
    slots: Vec<Slot>,
    mut keys: Keys,
    rate: u32,
    time: Duration,
    pace: Pace,
) -> (Vec<Slot>, Tally) {
    let count = slots.len();
    let free = Rc::new(RefCell::new(VecDeque::from(slots)));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let began = Instant::now();
    for number in 0..u64::from(rate) * time.as_secs() {
        let due = began + Duration::from_nanos(number * 1_000_000_000 / u64::from(rate));
        while Instant::now() < due {
            match pace {
                // The core is ours, and the network is looked after at every turn.
                Pace::Exact => yield_now().await,
                Pace::Rough => sleep(ROUGHLY).await,
            }
        }
        let mut slot = loop {
            // The one that was free the longest, so that all connections take part.
            let found = free.borrow_mut().pop_front();
            match found {
                Some(slot) => break slot,
                None => yield_now().await,
            }
        };
        let (Some(key), false) = (keys.next(), tally.borrow().is_hopeless()) else { break };
        let (free, tally) = (free.clone(), tally.clone());
        spawn_local(async move {
            let answer = slot.ask(Who::Key(key)).await;
            tally.borrow_mut().add(answer, due.elapsed());
            free.borrow_mut().push_back(slot);
        });
    }
    while free.borrow().len() < count && !tally.borrow().is_hopeless() {
        yield_now().await;
    }
    let slots = free.borrow_mut().drain(..).collect();
    let tally = std::mem::take(&mut *tally.borrow_mut());
    (slots, tally)
}

// === impl Tally ===

impl Tally {
    /// Every request is answered, and every key may go.
    fn must_be_right(&self) -> anyhow::Result<()> {
        if let Some(failure) = &self.first_failure {
            bail!("{} requests failed, the first one: {failure}", self.failed);
        }
        ensure!(self.over == 0, "{} of {} were denied", self.over, self.ok + self.over);
        ensure!(self.ok > 0, "nothing was answered");
        Ok(())
    }
}
