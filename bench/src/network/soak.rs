//! `service --soak`: memory of the service under load on gRPC and HTTP with a new key for every
//! request.

use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Loaded;
use super::contestants::{self, Contestant, Endpoint, OURS};
use super::load::{self, Job, Work};
use super::programs::{Programs, write_rules};
use super::servers;
use crate::machine::resident;
use crate::{Common, child};

const RULES: &str = "\
domain: bench
descriptors:
  - key: user_id
    rate_limit: { unit: second, requests_per_unit: 1000 }
";

/// Interval between readings of the memory.
const INTERVAL: Duration = Duration::from_secs(10);
/// Permitted growth within the judged time.
const GROWTH_MAX: f64 = 0.05;

/// Runs the soak and prints as it goes.
pub(super) fn run(common: &Common, rate: u32, seconds: u32) -> anyhow::Result<ExitCode> {
    let programs = Programs::find(common)?;
    let rules = write_rules(&programs.rules.with_file_name("soak-rules.yaml"), RULES)?;
    let began = Instant::now();
    let ours = contestants::service().into_iter().filter(|one| one.name == OURS);
    // gRPC is the first endpoint; HTTP has the same process.
    let server = servers::both(&programs.sluicegate, &rules)?;
    let mut loads = Vec::new();
    for one in ours {
        let address =
            if one.endpoint == Endpoint::Http { server.http } else { server.running.address };
        let job = job(&one, address, server.running.processes(), seconds, rate / 2);
        let mut command = load::command(&job)?;
        loads.push(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?,
        );
    }
    println!("seconds  resident MB");
    let mut readings: Vec<(f64, f64)> = Vec::new();
    let end = Duration::from_secs(seconds.into());
    // The load ends a little later, since it begins later.
    while began.elapsed() + INTERVAL <= end {
        let next = INTERVAL * (readings.len() as u32 + 1);
        thread::sleep(next.saturating_sub(began.elapsed()));
        let megabytes = resident(server.running.processes()[0])? as f64 / 1e6;
        println!("{:>7}  {megabytes:>11.2}", next.as_secs());
        readings.push((next.as_secs_f64(), megabytes));
    }
    let mut requests = 0;
    for load in loads {
        requests += child::decode::<Loaded>(&load.wait_with_output()?)?.full.requests;
    }
    println!("\n{requests} requests, as many keys; all were allowed");
    Ok(judge(&readings))
}

fn job(
    one: &Contestant,
    address: std::net::SocketAddr,
    processes: Vec<u32>,
    seconds: u32,
    rate: u32,
) -> Job {
    let (contestant, alone, upstream) = (one.id(), Vec::new(), Vec::new());
    let work = Work::Soak { rate };
    Job { contestant, address, processes, alone, upstream, keys: 1, seconds, work }
}

/// Judges the slope of the readings without the first third.
fn judge(readings: &[(f64, f64)]) -> ExitCode {
    let settled = &readings[readings.len() / 3..];
    let Some((slope, mean)) = line(settled) else {
        println!("too short: at least 60 seconds are needed");
        return ExitCode::FAILURE;
    };
    let span = settled[settled.len() - 1].0 - settled[0].0;
    let growth = slope * span;
    let flat = growth <= GROWTH_MAX * mean;
    println!(
        "{}: {:+.2} MB in the last {span:.0} s, at {mean:.1} MB: {:+.2} MB an hour; a growth of {:.0} % is permitted",
        if flat { "PASS" } else { "NOT FLAT" },
        growth,
        slope * 3600.0,
        GROWTH_MAX * 100.0,
    );
    if flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Slope and mean of the least-squares line.
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
