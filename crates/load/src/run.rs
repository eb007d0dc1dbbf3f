//! Executes a plan: starts the threads, samples `/proc` before and after, and merges the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::driver::Unsent;
use crate::plan::{LoadError, Plan, Server};
use crate::procfs::{self, CpuTicks, ProcessUsage};
use crate::report::{Point, Progress, Report};
use crate::tally::{Failures, Second};
use crate::worker::{Channels, StartBarrier, work};

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Measurements of a whole run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) whole: Second,
    pub(crate) points: Vec<Point>,
    pub(crate) failures_before: Failures,
    pub(crate) unsent: u64,
    pub(crate) processes: Vec<u32>,
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
}

/// Process and machine counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    pub(crate) server: Option<ProcessUsage>,
    pub(crate) own: Option<ProcessUsage>,
    pub(crate) machine: Option<CpuTicks>,
}

/// Runs the load and reports progress a few times a second.
///
/// # Errors
/// When the plan is invalid or the server cannot be reached. Later failures are counted in the
/// report.
pub fn run(plan: &Plan, mut progress: impl FnMut(&Progress)) -> Result<Report, LoadError> {
    plan.check()?;
    let (before_out, before_in) = channel();
    let (measured_out, measured_in) = channel();
    let channels = Channels { before: before_out, measured: measured_out };
    let barrier = Arc::new(StartBarrier::new(plan.threads));
    let mut threads = Vec::new();
    for number in 0..plan.threads {
        let (plan, barrier, channels) = (plan.clone(), barrier.clone(), channels.clone());
        let name = format!("load {number}");
        let body = move || work(&plan, number, &barrier, channels);
        let started = thread::Builder::new().name(name).spawn(body);
        threads.push(
            started
                .map_err(|error| LoadError::Thread(format!("cannot start a thread: {error}")))?,
        );
    }
    drop(channels);
    barrier.wait();
    if let Some(failure) = barrier.failure() {
        return Err(LoadError::Connect(format!("`{}`: {failure}", plan.address)));
    }
    barrier.wait();
    let failures_before = failures(&before_in);
    let processes = match &plan.server {
        Server::Listening => procfs::listeners(plan.address),
        Server::Processes(processes) => processes.clone(),
    };
    let before = Snapshot::of(&processes);
    barrier.wait();
    let began = Instant::now();
    let (whole, points) = collect(&measured_in, plan, began, &mut progress);
    let seconds = began.elapsed().as_secs_f64();
    let after = Snapshot::of(&processes);
    let unsent =
        threads.into_iter().map(|thread| thread.join().map_or(0, |Unsent(count)| count)).sum();
    let points = points.into_iter().map(|point| point.clipped(seconds)).collect();
    let outcome =
        Outcome { seconds, whole, points, failures_before, unsent, processes, before, after };
    Ok(Report::new(plan, &outcome))
}

/// Merges results until all threads have ended.
fn collect(
    seconds: &Receiver<Second>,
    plan: &Plan,
    began: Instant,
    progress: &mut impl FnMut(&Progress),
) -> (Second, Vec<Point>) {
    let mut aggregate = Aggregate::new(plan.threads);
    let mut next_progress = PROGRESS_INTERVAL;
    loop {
        let ended = match seconds.recv_timeout(PROGRESS_INTERVAL) {
            Ok(second) => {
                aggregate.add(second);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        let elapsed = began.elapsed();
        if elapsed >= next_progress || ended {
            next_progress = elapsed + PROGRESS_INTERVAL;
            progress(&aggregate.progress(plan, elapsed));
        }
        if ended {
            return aggregate.finish();
        }
    }
}

fn failures(seconds: &Receiver<Second>) -> Failures {
    let mut all = Failures::default();
    seconds.iter().for_each(|second| all.merge(&second.failures));
    all
}

/// Merges the threads' seconds. A second that all threads have completed becomes a point, which
/// bounds the memory of long runs.
struct Aggregate {
    whole: Second,
    in_progress: BTreeMap<u64, Second>,
    points: Vec<Point>,
    through: Vec<Option<u64>>,
}

impl Aggregate {
    fn new(threads: usize) -> Self {
        Self {
            whole: Second::new(0),
            in_progress: BTreeMap::new(),
            points: Vec::new(),
            through: vec![None; threads],
        }
    }

    fn add(&mut self, second: Second) {
        self.whole.merge(&second);
        if let Some(through) = self.through.get_mut(second.thread) {
            *through = Some(second.through);
        }
        match self.in_progress.get_mut(&second.index) {
            Some(known) => known.merge(&second),
            None => _ = self.in_progress.insert(second.index, second),
        }
        // `None` orders first.
        let Some(done) = self.through.iter().copied().min().flatten() else { return };
        while let Some(first) = self.in_progress.first_entry().filter(|first| *first.key() <= done)
        {
            self.points.push(Point::of(&first.remove()));
        }
    }

    fn progress(&self, plan: &Plan, elapsed: Duration) -> Progress {
        Progress::new(plan, elapsed, &self.whole, self.points.last())
    }

    fn finish(mut self) -> (Second, Vec<Point>) {
        self.points.extend(self.in_progress.values().map(Point::of));
        (self.whole, self.points)
    }
}

impl Snapshot {
    fn of(processes: &[u32]) -> Self {
        Self {
            server: procfs::usage(processes),
            own: procfs::usage(&[std::process::id()]),
            machine: procfs::cpu_ticks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(thread: usize, index: u64, allowed: u64, through: u64) -> Second {
        Second { thread, allowed, through, ..Second::new(index) }
    }

    #[test]
    fn seconds_of_threads_become_points_when_all_are_through() {
        let mut aggregate = Aggregate::new(2);
        aggregate.add(second(0, 0, 10, 0));
        aggregate.add(second(0, 1, 10, 4));
        assert!(aggregate.points.is_empty());
        aggregate.add(second(1, 0, 5, 1));
        assert_eq!(
            aggregate.points.iter().map(|point| point.answered).collect::<Vec<_>>(),
            [15, 10]
        );
        aggregate.add(second(1, 2, 7, u64::MAX));
        aggregate.add(second(0, 5, 1, u64::MAX));
        let (whole, points) = aggregate.finish();
        assert_eq!(whole.allowed, 33);
        let all: Vec<_> = points.iter().map(|point| (point.second, point.answered)).collect();
        assert_eq!(all, [(0, 15), (1, 10), (2, 7), (5, 1)]);
    }
}
