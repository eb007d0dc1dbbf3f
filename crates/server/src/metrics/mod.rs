//! What the service counts, as Prometheus reads it.
//!
//! Names that envoyproxy/ratelimit has are those that it has (`ratelimit_…`), so that dashboards and alerts go on to work; the others
//! begin with `sluicegate_`. What a client can choose never becomes a label, so the number of series is bounded by the rules.

mod levels;
mod page;
mod process;
mod rules;
mod stat_name;
mod store;

pub(crate) use page::CONTENT_TYPE;
pub(crate) use process::resident_bytes;

use self::page::{Labels, Page};
use crate::auth::AuthEndpoint;
use crate::counters::Counters;
use crate::rls::service::Service;
use crate::telemetry::{Endpoint, Event, Fault, Telemetry};

/// Everything, in Prometheus' text format.
///
/// It takes no lock that an answer waits for.
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate_server::metrics;
/// use sluicegate_server::rls::service::Service;
///
/// let service = Service::new(Engine::new(Default::default())?);
/// assert!(metrics::text(&service).contains("\nsluicegate_ready 1\n"));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[must_use]
pub fn text(service: &Service) -> String {
    let mut page = Page::default();
    let telemetry = service.telemetry();
    put_envoy(&mut page, telemetry);
    rules::put(&mut page, &service.engine().snapshot());
    put_doors(&mut page, telemetry);
    put_connections(&mut page, telemetry);
    put_snapshots(&mut page, telemetry);
    put_memory(&mut page, service);
    put_state(&mut page, service);
    put_holds(&mut page, service);
    if let Counters::Shared(shared) = service.counters() {
        store::put(&mut page, shared);
        levels::put(&mut page, shared);
    }
    process::put(&mut page);
    page.into_text()
}

/// What envoyproxy/ratelimit counts beside its rules.
fn put_envoy(page: &mut Page, telemetry: &Telemetry) {
    let grpc = [Endpoint::ShouldRateLimit]
        .map(|endpoint| (endpoint, Labels::new("grpc_method", endpoint.name())));
    let mut family = page.counter("ratelimit_service_total_requests", "Calls over gRPC.");
    for (endpoint, labels) in &grpc {
        family.of(labels, telemetry.calls(*endpoint));
    }
    let (name, help) =
        ("ratelimit_service_response_time_seconds", "How long answers over gRPC took.");
    let mut family = page.histogram(name, help);
    for (endpoint, labels) in &grpc {
        family.histogram(labels, &telemetry.response_times(*endpoint));
    }
    let (name, help) = (
        "ratelimit_service_should_rate_limit_error",
        "Calls of Envoy's rate limit service that got no answer, over gRPC or /json.",
    );
    let mut family = page.counter(name, help);
    for fault in Fault::ALL {
        let calls = [Endpoint::ShouldRateLimit, Endpoint::Json]
            .map(|endpoint| telemetry.failures(endpoint, fault));
        family.of(&Labels::new("err_type", fault.name()), calls.iter().sum::<u64>());
    }
    let happenings = [
        (
            Event::RulesLoaded,
            "ratelimit_service_config_load_success",
            "How often rules were loaded.",
        ),
        (
            Event::RulesRefused,
            "ratelimit_service_config_load_error",
            "How often rules were not loaded, since they are invalid, unreadable or gone from the files.",
        ),
        (
            Event::GlobalShadow,
            "ratelimit_service_global_shadow_mode",
            "Denials that were turned into admissions, since the whole service only watches.",
        ),
        (
            Event::UnknownDomain,
            "ratelimit_service_rate_limit_domain_not_found",
            "Requests of a domain that nobody has rules for.",
        ),
    ];
    for (what, name, help) in happenings {
        page.counter(name, help).one(telemetry.count(what));
    }
}

/// Calls, endpoint by endpoint.
fn put_doors(page: &mut Page, telemetry: &Telemetry) {
    let doors = Endpoint::ALL.map(|endpoint| (endpoint, Labels::new("door", endpoint.name())));
    let mut family = page.counter("sluicegate_calls_total", "Calls, answered or not.");
    for (endpoint, labels) in &doors {
        family.of(labels, telemetry.calls(*endpoint));
    }
    let mut family =
        page.counter("sluicegate_call_failures_total", "Calls that got no answer, by reason.");
    for (endpoint, labels) in &doors {
        for fault in Fault::ALL {
            let labels = labels.clone().and("reason", fault.name());
            family.of(&labels, telemetry.failures(*endpoint, fault));
        }
    }
    let mut family = page.histogram("sluicegate_response_time_seconds", "How long answers took.");
    // Those over gRPC are told by the name that they have in envoyproxy/ratelimit.
    for (endpoint, labels) in
        doors.iter().filter(|(endpoint, _)| *endpoint != Endpoint::ShouldRateLimit)
    {
        family.histogram(labels, &telemetry.response_times(*endpoint));
    }
}

fn put_connections(page: &mut Page, telemetry: &Telemetry) {
    // In this order, whoever comes and goes meanwhile is not counted as one less than none.
    let closed = telemetry.count(Event::ConnectionClosed);
    let opened = telemetry.count(Event::ConnectionOpened);
    page.gauge("sluicegate_connections_open", "Connections that are open.")
        .one(opened.saturating_sub(closed));
    page.counter("sluicegate_connections_total", "Connections that were accepted.").one(opened);
    let help = "Connections that were refused, since there were as many as there may be.";
    page.counter("sluicegate_connections_refused_total", help)
        .one(telemetry.count(Event::ConnectionRefused));
    let help = "Failed authentications, including those rejected by the rate limit.";
    let mut family = page.counter("sluicegate_auth_failures_total", help);
    for endpoint in AuthEndpoint::ALL {
        let labels = Labels::new("endpoint", endpoint.name());
        family.of(&labels, telemetry.count(endpoint.failed()));
    }
}

fn put_snapshots(page: &mut Page, telemetry: &Telemetry) {
    let help = "Snapshots that could not be restored: they were moved aside, and counters started at zero.";
    page.counter("sluicegate_snapshot_restore_errors_total", help)
        .one(telemetry.count(Event::SnapshotNotRestored));
    let help = "Snapshots that could not be saved; the last one stays.";
    page.counter("sluicegate_snapshot_save_errors_total", help)
        .one(telemetry.count(Event::SnapshotNotSaved));
}

/// Memory budget of clients.
fn put_memory(page: &mut Page, service: &Service) {
    let budget = service.memory();
    let help = "Memory that all clients together may take.";
    page.gauge("sluicegate_memory_budget_bytes", help).one(budget.bytes_max());
    let help = "Memory reserved for connections, requests and responses.";
    page.gauge("sluicegate_memory_reserved_bytes", help).one(budget.reserved_bytes());
    let help =
        "Connections, requests and responses refused because the memory budget was exhausted.";
    page.counter("sluicegate_memory_refusals_total", help).one(budget.refusals());
}

/// How things stand.
fn put_state(page: &mut Page, service: &Service) {
    let state = service.health().state();
    let help = "Whether whoever asks gets an answer by rules: 1, or 0; /ready says why not.";
    page.gauge("sluicegate_ready", help).one(u8::from(state.is_ready()));

    let memory = service.engine().memory();
    let help =
        "Counters in the store, those that have run out and were not cleared yet among them.";
    page.gauge("sluicegate_store_entries", help).one(memory.entries());
    let help = "How many counters there may be; beyond, newcomers share or are denied, as their rule says.";
    page.gauge("sluicegate_store_entries_max", help).one(memory.entries_max());

    let rules = service.engine().snapshot();
    let rules = rules.rules();
    page.gauge("sluicegate_rules", "Rules that are loaded.").one(rules.rules().len());
    page.gauge("sluicegate_domains", "Domains that have rules.").one(rules.domains().len());
    let help = "Domains that the files have no rules for any more; their last rules stay in force.";
    page.gauge("sluicegate_rules_withheld_domains", help).one(service.health().withheld().len());
    let help = "What the rules take in memory, without what is counted under them.";
    page.gauge("sluicegate_rules_bytes", help).one(rules.bytes());
    page.gauge("sluicegate_build_info", "Always 1; the version is in the label.")
        .of(&Labels::new("version", env!("CARGO_PKG_VERSION")), 1);
}

/// What is held for later.
fn put_holds(page: &mut Page, service: &Service) {
    let holds = service.holds();
    let help = "Reservations that are neither settled nor expired.";
    let now = service.engine().now();
    page.gauge("sluicegate_reservations", help).one(holds.reservations(now));
    page.gauge("sluicegate_waiting", "Callers who wait for their turn.").one(holds.waiting());
    let help =
        "Answers to requests with an idempotency key that were forgotten early, for want of room.";
    page.counter("sluicegate_answers_forgotten_total", help).one(holds.answers().forgotten());
}
