//! Human-readable report.

use std::fmt::Write as _;

use super::{Progress, Report};

/// Utilization above which the load itself is the bottleneck.
const LOAD_BUSY: f64 = 0.95;
/// Steal time above which results are unreliable.
const STOLEN: f64 = 0.05;

pub(super) fn table(report: &Report) -> String {
    let mut text = format!("{}\n\n", heading(report));
    answers(report, &mut text);
    if report.answered > 0 {
        latency(report, &mut text);
        machine(report, &mut text);
    }
    for warning in warnings(report) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "warning   {warning}");
    }
    text
}

fn heading(report: &Report) -> String {
    let Report { target, address, connections, at_once, threads, keys, seed, .. } = report;
    let calls = match (*target, at_once) {
        (_, 1) => String::new(),
        ("resp", at_once) => format!(" x pipeline of {at_once}"),
        (_, at_once) => format!(" x {at_once} streams"),
    };
    let pace = match report.rate_wanted {
        None => "closed loop".to_owned(),
        Some(rate) => format!(
            "open loop at {}/s ({})",
            count(rate.round() as u64),
            report.arrivals.unwrap_or_default()
        ),
    };
    let order = match report.zipf {
        Some(exponent) => format!("Zipf {exponent}"),
        None => report.order.to_owned(),
    };
    let threads = if *threads == 1 { String::new() } else { format!(" from {threads} threads") };
    format!(
        "{target} {address}, {pace}\n{connections} connection{}{calls}{threads}, {} key{} ({order}, seed {seed}), {:.1} s after {:.1} s of warm-up",
        plural(*connections as u64),
        count(*keys),
        plural(*keys),
        report.seconds,
        report.warm_up_seconds,
    )
}

fn answers(report: &Report, text: &mut String) {
    let share = |part: u64| 100.0 * part as f64 / report.requests.max(1) as f64;
    let _ = writeln!(
        text,
        "answers   {:>13}   {}/s",
        count(report.answered),
        count(report.per_second.round() as u64)
    );
    for (name, part) in [("allowed", report.allowed), ("denied", report.denied)] {
        let _ = writeln!(text, "  {name:<8}{:>13}   {:.1} %", count(part), share(part));
    }
    let _ = writeln!(text, "  {:<8}{:>13}", "errors", count(report.errors));
    if report.errors_before > 0 {
        let _ = writeln!(
            text,
            "  before {:>14}   during fill and warm-up",
            count(report.errors_before)
        );
    }
    for (failure, times) in &report.errors_by_text {
        let _ = writeln!(text, "            {:>11} x {failure}", count(*times));
    }
}

fn latency(report: &Report, text: &mut String) {
    let latency = &report.latency_us;
    let columns = [
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p99", latency.p99),
        ("p99.9", latency.p999),
        ("max", latency.max),
        ("mean", latency.mean),
    ];
    let (mut names, mut values) = ("\nlatency ".to_owned(), "        ".to_owned());
    for (name, value) in columns {
        let _ = write!(names, "{name:>11}");
        let _ = write!(values, "{:>11}", time(value));
    }
    let _ = writeln!(text, "{names}\n{values}\n");
}

fn machine(report: &Report, text: &mut String) {
    let _ = match &report.server {
        Some(server) => writeln!(
            text,
            "server    {:.2} µs of CPU per request, {:.0} % of a core, {:.1} MB resident ({:+.1})",
            server.cpu_us_per_request,
            100.0 * server.busy,
            server.resident_bytes as f64 / 1e6,
            server.resident_grown_bytes as f64 / 1e6,
        ),
        None => writeln!(
            text,
            "server    CPU and memory unknown: the process is remote, owned by another user, or this is not Linux"
        ),
    };
    let percent = |share: Option<f64>| {
        share.map_or("unknown".to_owned(), |share| format!("{:.1} %", 100.0 * share))
    };
    let _ = writeln!(
        text,
        "load      {} of a core; stolen from this machine: {}",
        percent(report.load_busy),
        percent(report.stolen)
    );
}

fn warnings(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    if !report.is_on_schedule() {
        let late = format!(
            "{} late starts, the latest by {}: no idle connection, or the load had no CPU",
            count(report.late_starts),
            time(report.latest_start_us)
        );
        all.push(match report.unsent {
            0 => late,
            unsent => format!(
                "could not keep up: {} scheduled requests were not sent; {late}",
                count(unsent)
            ),
        });
    }
    // An open loop spins while waiting.
    if let Some(busy) = report.load_busy
        && report.rate_wanted.is_none()
        && busy > LOAD_BUSY * report.threads as f64
    {
        all.push("the load generator was the bottleneck: add --threads".to_owned());
    }
    if let Some(stolen) = report.stolen
        && stolen > STOLEN
    {
        all.push(format!(
            "steal time was {:.0} %: repeat the run on an idle machine",
            100.0 * stolen
        ));
    }
    if report.reconnects > 0 {
        all.push(format!(
            "the server closed connections: {} reconnections",
            count(report.reconnects)
        ));
    }
    all
}

pub(super) fn progress(progress: &Progress) -> String {
    let left =
        progress.left.map_or(String::new(), |left| format!(", {:.0} s left", left.as_secs_f64()));
    let Some(per_second) = progress.per_second else { return format!("loading{left}") };
    format!(
        "{:>3.0} s  {:>11}/s  p99 {:<9} {} error{}{left}",
        progress.elapsed.as_secs_f64(),
        count(per_second),
        time(progress.p99_us),
        count(progress.errors),
        plural(progress.errors),
    )
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// With thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits and a unit.
pub(crate) fn time(us: f64) -> String {
    let (value, unit) = match us {
        _ if us < 1_000.0 => (us, "µs"),
        _ if us < 1_000_000.0 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    match value {
        _ if value < 10.0 => format!("{value:.2} {unit}"),
        _ if value < 100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 9.994, 42.0, 999.4, 1_000.0, 15_600.0, 2_000_000.0].map(time),
            ["0.00 µs", "9.99 µs", "42.0 µs", "999 µs", "1.00 ms", "15.6 ms", "2.00 s"]
        );
    }
}
