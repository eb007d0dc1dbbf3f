//! Is the service's memory flat? Load on both doors with keys that nobody has seen, each forgotten a second later.

use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::args::Args;
use crate::contestant::Case;
use crate::load::{self, Job, Wire, Work};
use crate::process;
use crate::programs;
use crate::reading::Reading;
use crate::running::{Running, Start};

const RULES: &str = "\
domain: bench
descriptors:
  - key: user_id
    rate_limit: { unit: second, requests_per_unit: 1000 }
";

/// How often memory is read.
const EVERY: Duration = Duration::from_secs(10);
/// It may grow by so much within the time that is judged, of what it is; that is the machine's.
const GROWTH_MAX: f64 = 0.05;

/// Runs it, and prints as it goes.
pub(crate) fn run(args: &Args, seconds: u32) -> anyhow::Result<ExitCode> {
    let (programs, _) = programs::find(args, RULES)?;
    let start = Start::Sluicegate { path: programs.sluicegate, rules: programs.rules };
    let server = start.start()?;
    let began = Instant::now();
    let mut loads = Vec::new();
    for (case, wire) in [(Case::Rls, Wire::Rls), (Case::Http, Wire::Check)] {
        loads.push(Load(loaded(&server, case, wire, seconds, args.rate / 2)?));
    }
    println!("seconds  resident MB");
    let mut readings: Vec<(f64, f64)> = Vec::new();
    let end = Duration::from_secs(seconds.into());
    // The load ends a little later, since it has to begin.
    while began.elapsed() + EVERY <= end {
        let next = EVERY * (readings.len() as u32 + 1);
        thread::sleep(next.saturating_sub(began.elapsed()));
        let megabytes = process::resident(server.pid())? as f64 / 1e6;
        println!("{:>7}  {megabytes:>11.2}", next.as_secs());
        readings.push((next.as_secs_f64(), megabytes));
    }
    let mut answered = 0;
    for Load(load) in &mut loads {
        answered += ended(load)?.full.requests();
    }
    println!("\n{answered} requests, as many keys; all were answered as they should be");
    Ok(judged(&readings))
}

/// A process that does not outlive the run.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // It has ended by itself, if all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn loaded(
    server: &Running,
    case: Case,
    wire: Wire,
    seconds: u32,
    rate: u32,
) -> anyhow::Result<Child> {
    let (connections, streams) = case.connections();
    let (address, pid) = (server.address(case)?, server.pid());
    let work = Work::Soak { seconds, rate };
    let job = Job { wire, address, pid, connections, streams, work };
    let mut command = load::command(&job)?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.context("cannot start load")
}

fn ended(load: &mut Child) -> anyhow::Result<Reading> {
    let (mut said, mut wrong) = (String::new(), String::new());
    let (stdout, stderr) = (load.stdout.take(), load.stderr.take());
    std::io::Read::read_to_string(&mut stdout.context("no output")?, &mut said)?;
    std::io::Read::read_to_string(&mut stderr.context("no output")?, &mut wrong)?;
    if !load.wait()?.success() {
        bail!("{}", wrong.trim());
    }
    serde_json::from_str(&said).context("what the load says")
}

/// Whether the line through the readings, without the first third, rises.
fn judged(readings: &[(f64, f64)]) -> ExitCode {
    let settled = &readings[readings.len() / 3..];
    let Some((slope, mean)) = line(settled) else {
        println!("too short to be judged: 60 seconds are the least");
        return ExitCode::FAILURE;
    };
    let span = settled[settled.len() - 1].0 - settled[0].0;
    let growth = slope * span;
    let flat = growth <= GROWTH_MAX * mean;
    println!(
        "{}: {:+.2} MB in the last {span:.0} s, at {mean:.1} MB: {:+.2} MB an hour; a growth of {:.0} % is let pass",
        if flat { "PASS" } else { "NOT FLAT" },
        growth,
        slope * 3600.0,
        GROWTH_MAX * 100.0,
    );
    if flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Slope and mean of the straight line with the least squares.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.len() < 4 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let run: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    Some((rise / run, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        let (slope, mean) = line(&points).unwrap();
        assert!((slope - 2.0).abs() < 1e-9 && (mean - 12.0).abs() < 1e-9);
        assert_eq!(line(&points[..3]), None);
    }
}
