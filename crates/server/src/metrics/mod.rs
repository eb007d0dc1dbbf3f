//! Metrics in Prometheus' text format.
//!
//! Metrics of envoyproxy/ratelimit keep their names (`ratelimit_…`), so that dashboards and alerts
//! keep working; the others begin with `sluicegate_`. Values that a client chooses become labels
//! only where rules and settings ask for it, and then a bounded number of them: the number of
//! series is bounded.

mod levels;
mod page;
mod rules;
mod store;

pub(crate) use levels::level_name;
pub(crate) use page::CONTENT_TYPE;
pub use page::{Family, Labels, MetricsSource, Page};
pub(crate) use rules::{RuleCounter, each_rule_counter};

use std::fs;

use sluicegate::Snapshot;

use self::page::Seconds;
use crate::app::App;
use crate::auth::AuthEndpoint;
use crate::telemetry::{Endpoint, Event, Fault, Telemetry};

/// Label value of all series that are not listed.
const OTHER: &str = "other";

/// `USER_HZ` is 100 on every supported architecture.
const MICROS_PER_TICK: u64 = 10_000;

/// All metrics. Takes no lock that a decision waits for.
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate_server::metrics;
/// use sluicegate_server::app::App;
///
/// let service = App::new(Engine::new(Default::default())?);
/// assert!(metrics::text(&service).contains("\nsluicegate_ready 1\n"));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[must_use]
pub fn text(service: &App) -> String {
    let mut page = Page::default();
    let telemetry = service.telemetry();
    put_envoy(&mut page, telemetry);
    rules::put(&mut page, &service.engine().snapshot());
    put_unmatched(&mut page, &service.engine().snapshot());
    put_calls(&mut page, telemetry);
    put_connections(&mut page, telemetry);
    put_snapshots(&mut page, telemetry);
    put_memory(&mut page, service);
    put_state(&mut page, service);
    put_loads(&mut page, service);
    put_holds(&mut page, service);
    if let Some(redis) = service.redis() {
        store::put(&mut page, redis);
        levels::put(&mut page, redis);
    }
    service.put_added_metrics(&mut page);
    put_process(&mut page);
    page.into_text()
}

/// Metrics of envoyproxy/ratelimit that are not per rule.
fn put_envoy(page: &mut Page, telemetry: &Telemetry) {
    let grpc = [Endpoint::ShouldRateLimit]
        .map(|endpoint| (endpoint, Labels::new("grpc_method", endpoint.name())));
    let mut family = page.counter("ratelimit_service_total_requests", "Calls over gRPC.");
    for (endpoint, labels) in &grpc {
        family.labeled(labels, telemetry.calls(*endpoint));
    }
    let (name, help) = ("ratelimit_service_response_time_seconds", "Response time of gRPC calls.");
    let mut family = page.histogram(name, help);
    for (endpoint, labels) in &grpc {
        family.histogram(labels, &telemetry.response_times(*endpoint));
    }
    let (name, help) = (
        "ratelimit_service_should_rate_limit_error",
        "Failed calls of Envoy's rate limit service, over gRPC or /json.",
    );
    let mut family = page.counter(name, help);
    for fault in Fault::ALL {
        let calls = [Endpoint::ShouldRateLimit, Endpoint::Json]
            .map(|endpoint| telemetry.failures(endpoint, fault));
        family.labeled(&Labels::new("err_type", fault.name()), calls.iter().sum::<u64>());
    }
    let happenings = [
        (Event::RulesLoaded, "ratelimit_service_config_load_success", "Successful loads of rules."),
        (
            Event::RulesRefused,
            "ratelimit_service_config_load_error",
            "Failed loads of rules: invalid, unreadable, or removed from the files.",
        ),
        (
            Event::GlobalShadow,
            "ratelimit_service_global_shadow_mode",
            "Denied requests that were allowed because the service is in shadow mode.",
        ),
        (
            Event::UnknownDomain,
            "ratelimit_service_rate_limit_domain_not_found",
            "Requests for a domain without rules.",
        ),
    ];
    for (what, name, help) in happenings {
        page.counter(name, help).value(telemetry.count(what));
    }
}

/// Requests that no rule matches, by domain; those of unknown domains together.
fn put_unmatched(page: &mut Page, rules: &Snapshot<'_>) {
    let help = "Requests with a descriptor that no rule matches, by domain; `other` for domains without rules.";
    let mut family = page.counter("sluicegate_unmatched_total", help);
    let mut rest = rules.unknown_domains();
    for (index, (domain, count)) in rules.unmatched().enumerate() {
        if index < rules::LISTED_MAX && domain != OTHER {
            family.labeled(&Labels::new("domain", domain), count);
        } else {
            rest = rest.saturating_add(count);
        }
    }
    family.labeled(&Labels::new("domain", OTHER), rest);
}

/// Calls per endpoint.
fn put_calls(page: &mut Page, telemetry: &Telemetry) {
    let endpoints = Endpoint::ALL.map(|endpoint| (endpoint, Labels::new("door", endpoint.name())));
    let mut family = page.counter("sluicegate_calls_total", "Calls, answered or failed.");
    for (endpoint, labels) in &endpoints {
        family.labeled(labels, telemetry.calls(*endpoint));
    }
    let mut family = page.counter("sluicegate_call_failures_total", "Failed calls, by reason.");
    for (endpoint, labels) in &endpoints {
        for fault in Fault::ALL {
            let labels = labels.clone().and("reason", fault.name());
            family.labeled(&labels, telemetry.failures(*endpoint, fault));
        }
    }
    let mut family = page.histogram("sluicegate_response_time_seconds", "Response time.");
    // gRPC calls have the metric of envoyproxy/ratelimit.
    for (endpoint, labels) in
        endpoints.iter().filter(|(endpoint, _)| *endpoint != Endpoint::ShouldRateLimit)
    {
        family.histogram(labels, &telemetry.response_times(*endpoint));
    }
}

fn put_connections(page: &mut Page, telemetry: &Telemetry) {
    // Read first, so that a connection opened and closed meanwhile does not count as negative.
    let closed = telemetry.count(Event::ConnectionClosed);
    let opened = telemetry.count(Event::ConnectionOpened);
    page.gauge("sluicegate_connections_open", "Open connections.")
        .value(opened.saturating_sub(closed));
    page.counter("sluicegate_connections_total", "Accepted connections.").value(opened);
    let help = "Connections refused at the connection limit.";
    page.counter("sluicegate_connections_refused_total", help)
        .value(telemetry.count(Event::ConnectionRefused));
    let help = "Connections of the gateway that were closed before a request, by reason.";
    page.counter("sluicegate_client_connections_rejected_total", help)
        .each("reason", Event::REJECTIONS.map(|event| (event.rejection(), telemetry.count(event))));
    let help = "Failed authentications, including those rejected by the rate limit.";
    let mut family = page.counter("sluicegate_auth_failures_total", help);
    for endpoint in AuthEndpoint::ALL {
        let labels = Labels::new("endpoint", endpoint.name());
        family.labeled(&labels, telemetry.count(endpoint.failed()));
    }
}

fn put_snapshots(page: &mut Page, telemetry: &Telemetry) {
    let help = "Snapshots that could not be restored. They were moved aside, and counters started at zero.";
    page.counter("sluicegate_snapshot_restore_errors_total", help)
        .value(telemetry.count(Event::SnapshotNotRestored));
    let help = "Snapshots that could not be saved. The previous one stays.";
    page.counter("sluicegate_snapshot_save_errors_total", help)
        .value(telemetry.count(Event::SnapshotNotSaved));
}

/// Memory budget of clients.
fn put_memory(page: &mut Page, service: &App) {
    let budget = service.memory();
    let help = "Memory budget of all clients together.";
    page.gauge("sluicegate_memory_budget_bytes", help).value(budget.bytes_max());
    let help = "Memory reserved for connections, requests and responses.";
    page.gauge("sluicegate_memory_reserved_bytes", help).value(budget.reserved_bytes());
    let help =
        "Connections, requests and responses refused because the memory budget was exhausted.";
    page.counter("sluicegate_memory_refusals_total", help).value(budget.refusals());
}

/// Readiness and counters in memory.
fn put_state(page: &mut Page, service: &App) {
    let state = service.health().state();
    let help = "1 if the service is ready, else 0; /ready has the reason.";
    page.gauge("sluicegate_ready", help).value(u8::from(state.is_ready()));

    let help = "1 if the service is in shadow mode, where every request is allowed; else 0.";
    let is_shadow = service.options().shadow_mode;
    page.gauge("sluicegate_shadow_mode", help).value(u8::from(is_shadow));

    let help = "Reached thresholds of budgets that were not reported: too many identities.";
    page.counter("sluicegate_threshold_unreported_total", help)
        .value(service.engine().unreported_thresholds());

    let memory = service.engine().memory();
    let help = "Counters in memory, including expired ones that are not evicted yet.";
    page.gauge("sluicegate_store_entries", help).value(memory.entries());
    let help = "Limit of the counters in memory. Beyond it, `overflow` of each rule applies to new identities.";
    page.gauge("sluicegate_store_entries_max", help).value(memory.entries_max());

    page.gauge("sluicegate_build_info", "Always 1; the label has the version.")
        .labeled(&Labels::new("version", env!("CARGO_PKG_VERSION")), 1);
}

/// Rules in force, and their last load.
fn put_loads(page: &mut Page, service: &App) {
    let rules = service.engine().snapshot();
    let rules = rules.rules();
    page.gauge("sluicegate_rules", "Loaded rules.").value(rules.rules().len());
    page.gauge("sluicegate_domains", "Domains with rules.").value(rules.domains().len());
    let help = "Domains that vanished from the files; their last rules stay in force.";
    page.gauge("sluicegate_rules_withheld_domains", help).value(service.health().withheld().len());
    let help = "Memory of the rules, without their counters.";
    page.gauge("sluicegate_rules_bytes", help).value(rules.bytes());
    let help = "Always 1; the label is a hash of the rules in force, to compare nodes.";
    let labels = Labels::new("hash", &format!("{:016x}", rules.digest()));
    page.gauge("sluicegate_rules_hash", help).labeled(&labels, 1);
    let load = service.health().last_load();
    let help = "1 if the last load of the rules succeeded; 0 if it failed or a domain is withheld.";
    page.gauge("sluicegate_rules_last_reload_successful", help).value(u8::from(load.is_successful));
    let help = "Unix time of the last successful load of the rules; 0 if there was none.";
    let at = load.succeeded_at.map_or(0, |at| at.as_micros() / 1_000_000);
    page.gauge("sluicegate_rules_last_reload_timestamp_seconds", help).value(at);
}

/// Reservations, waiting calls and stored responses.
fn put_holds(page: &mut Page, service: &App) {
    let reservations = service.reservations();
    let help = "Pending reservations.";
    let now = service.engine().now();
    page.gauge("sluicegate_reservations", help).value(reservations.pending(now));
    page.gauge("sluicegate_waiting", "Calls that wait for quota.").value(reservations.waiting());
    let help = "Stored responses of idempotency keys that were evicted before they expired.";
    page.counter("sluicegate_answers_forgotten_total", help).value(service.idempotency().evicted());
}

/// Metrics of the process, with the names of every Prometheus client. Linux only.
fn put_process(page: &mut Page) {
    if let Some(micros) =
        fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_micros(&stat))
    {
        let help = "User and system CPU time.";
        page.counter("process_cpu_seconds_total", help).value(Seconds(micros));
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory.";
        page.gauge("process_resident_memory_bytes", help).value(bytes);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors.").value(files.count());
    }
}

/// Resident memory.
pub(crate) fn resident_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| parse_resident(&status))
}

/// User and system time in microseconds: fields 14 and 15. Field 2 is a name in parentheses and may
/// contain anything.
fn cpu_micros(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) * MICROS_PER_TICK)
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 12345";
        assert_eq!(cpu_micros(stat), Some(1_750_000));
        assert_eq!(cpu_micros("42 (a) S 1"), None);
        assert_eq!(parse_resident("Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(parse_resident("VmRSS:\tmuch\n"), None);
    }
}
