//! Settings of the service, from flags and environment variables.
//!
//! Precedence: flag, our own variable (`SLUICEGATE_…`), the variable of envoyproxy/ratelimit,
//! default. All errors are reported at once. A variable without effect is a warning.

pub(crate) mod go_values;
mod json;
mod misspelt;
mod operators;
mod rule_store;
mod rules;
mod service_links;
mod store;
mod traces;
mod unknown;
mod unsupported;
mod usage;
mod vars;
mod webhook;
mod xds;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sluicegate::http::{Reset, Style};

use crate::logs::{self, Format, Level};
use crate::memory::MemoryBudget;
use crate::rls::{HeaderNames, Options, RefundPolicy};
use crate::tls;
use crate::token::Token;
use crate::unmatched::UnmatchedPolicy;
use crate::usage::UsageOptions;
use crate::webhook::WebhookOptions;
pub use operators::MetricsSettings;
pub use rule_store::{RuleStoreSettings, is_database};
pub use rules::RulesSettings;
pub use store::{RedisServer, RedisSettings, Store};
use vars::Reader;
pub use vars::Vars;

/// Settings of the service.
///
/// ```
/// use sluicegate_server::settings::{Settings, Vars};
///
/// let vars = Vars::new([("GRPC_HOST", "0.0.0.0"), ("EXTRA_TAGS", "zone:a")]);
/// let (settings, warnings) = Settings::read(&vars)?;
/// assert_eq!(settings.grpc.to_string(), "0.0.0.0:8081");
/// assert!(warnings[0].starts_with("EXTRA_TAGS is set and has no effect"));
///
/// let error = Settings::read(&Vars::new([("GRPC_PORT", "many")])).unwrap_err();
/// assert_eq!(error.to_string(), "GRPC_PORT: must be a whole number from 0 to 65535, got `many`");
/// # Ok::<(), sluicegate_server::settings::SettingsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the HTTP endpoint.
    pub http: SocketAddr,
    /// Address of the gRPC endpoint.
    pub grpc: GrpcAddress,
    /// Address of the admin endpoint.
    pub admin: SocketAddr,
    /// Token of operators.
    pub admin_token: Option<Token>,
    /// File of operators' tokens, each with a role.
    pub admin_tokens: Option<PathBuf>,
    /// File that changes through the admin endpoint are recorded in.
    pub audit_log: Option<PathBuf>,
    /// Endpoint of metrics alone, if it is enabled.
    pub metrics: Option<MetricsSettings>,
    /// StatsD that counters are sent to, if it is enabled.
    pub statsd: Option<crate::statsd::Options>,
    /// Address of the RESP endpoint, if it is enabled.
    pub resp: Option<SocketAddr>,
    /// Password of the RESP endpoint.
    pub resp_password: Option<Token>,
    /// Files of rules.
    pub rules: RulesSettings,
    /// Their revisions.
    pub rule_store: RuleStoreSettings,
    /// Whether to start without valid rules, unready.
    pub start_without_rules: bool,
    /// Time that a domain must be absent from the files before it is removed.
    pub rules_removal_grace: Duration,
    /// Whether the service is unready without rules of at least one domain.
    pub needs_domain: bool,
    /// Share of a limit above which hits count as near it.
    pub near_limit_ratio: f32,
    /// Whether traffic statistics are kept.
    pub traffic_statistics: bool,
    /// Options of the rate limit service.
    pub rls: Options,
    /// Headers of HTTP responses.
    pub style: Style,
    /// Whether errors over HTTP are `application/problem+json` instead of the envelope.
    pub problem_json: bool,
    /// Certificate of the gRPC endpoint, if it has TLS.
    pub tls: Option<tls::TlsFiles>,
    /// Maximum age of a gRPC connection, and the grace for its calls.
    pub connection_age: (Duration, Duration),
    /// Open connections per endpoint.
    pub connections_max: usize,
    /// Calls in flight per endpoint.
    pub in_flight_max: usize,
    /// Pending reservations.
    pub reservations_max: u64,
    /// Calls that wait for quota.
    pub waiting_max: usize,
    /// Delay of the shutdown, for load balancers to notice; and the timeout of calls in flight.
    pub drain: (Duration, Duration),
    /// Memory budget of all clients together.
    pub memory_budget: usize,
    /// Store of the counters.
    pub store: Store,
    /// Snapshot file of the counters.
    pub snapshot: Option<PathBuf>,
    /// Interval of snapshots; zero for one at the end only.
    pub snapshot_every: Duration,
    /// Identities in memory; beyond, `overflow` of each rule applies.
    pub identities_max: u64,
    /// Logging.
    pub log: logs::Options,
    /// Tracing, if it is enabled.
    pub traces: Option<crate::traces::Options>,
    /// Where usage is recorded, if anywhere.
    pub usage: Option<UsageOptions>,
    /// Where events are sent to, if anywhere.
    pub webhook: Option<WebhookOptions>,
    /// Whether the addresses are printed as JSON.
    pub json: bool,
}

/// Address of the gRPC endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// All errors of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(Vec<String>);

/// Smallest memory budget: a hundred connections of each endpoint, and a few long messages.
const MEMORY_BUDGET_MIN: usize = 32 << 20;

impl Settings {
    /// Reads the settings, with warnings about variables without effect.
    ///
    /// # Errors
    /// All errors at once.
    pub fn read(vars: &Vars) -> Result<(Self, Vec<String>), SettingsError> {
        let mut reader = Reader::new(vars);
        let settings = Self::of(&mut reader);
        // First: a misspelt name is the cause of others.
        let mut errors = misspelt::errors(vars, misspelt::SERVICE);
        errors.extend(misspelt::errors(vars, misspelt::RULES));
        errors.extend(reader.errors);
        errors.extend(unknown::errors(vars));
        errors.extend(unsupported::missing_store(vars));
        errors.extend(settings.conflicts());
        if errors.is_empty() {
            let mut warnings = unsupported::warnings(vars, &settings);
            warnings.extend(misspelt::warnings(vars));
            warnings.extend(settings.resp_warning());
            warnings.extend(settings.empty_store_warning(vars));
            warnings.extend(settings.pod_warning(vars));
            warnings.extend(settings.shadow_warning(vars));
            Ok((settings, warnings))
        } else {
            Err(SettingsError(errors))
        }
    }

    /// The settings of logging alone, with defaults for invalid values: errors of the settings are
    /// log lines too.
    #[must_use]
    pub fn read_log(vars: &Vars) -> logs::Options {
        log(&mut Reader::new(vars))
    }

    fn of(read: &mut Reader<'_>) -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        let mut or = |name: &str, default: Duration| read.duration(name).unwrap_or(default);
        let connection_age = (
            or("GRPC_MAX_CONNECTION_AGE", day),
            or("GRPC_MAX_CONNECTION_AGE_GRACE", Duration::from_secs(60 * 60)),
        );
        let drain = (
            or("SLUICEGATE_DRAIN_DELAY", Duration::ZERO),
            or("SLUICEGATE_DRAIN_TIMEOUT", Duration::from_secs(30)),
        );
        let snapshot_every = or("SLUICEGATE_SNAPSHOT_EVERY", Duration::ZERO);
        let rules_removal_grace = or("SLUICEGATE_RULES_REMOVAL_GRACE", sluicegate::REMOVAL_GRACE);
        let mut count =
            |name: &str, max: u64, default: u64| read.number(name, 1, max).unwrap_or(default);
        let connections_max = count("SLUICEGATE_MAX_CONNECTIONS", 1 << 20, 10_000) as usize;
        let in_flight_max = count("SLUICEGATE_MAX_IN_FLIGHT", 1 << 24, 10_000) as usize;
        let reservations_max = count("SLUICEGATE_MAX_RESERVATIONS", 1 << 30, 1_000_000);
        let waiting_max = count("SLUICEGATE_MAX_WAITING", 1 << 20, 5_000) as usize;
        let entries_max = sluicegate::ENTRIES_MAX as u64;
        let identities_max = count("SLUICEGATE_MAX_IDENTITIES", entries_max, entries_max);
        let rules = RulesSettings::of(read, &[]);
        let rls = Options { quota_mode: rules.options.quota_mode, ..rls(read) };
        Self {
            http: address(read, "SLUICEGATE_HTTP", "HOST", "PORT", 8080),
            grpc: grpc(read),
            admin: address(read, "SLUICEGATE_ADMIN", "DEBUG_HOST", "DEBUG_PORT", 6070),
            admin_token: operators::admin_token(read),
            admin_tokens: read.path("SLUICEGATE_ADMIN_TOKENS"),
            audit_log: read.path("SLUICEGATE_AUDIT_LOG"),
            metrics: MetricsSettings::of(read),
            statsd: operators::statsd(read),
            resp: read.address("SLUICEGATE_RESP"),
            resp_password: read
                .read("SLUICEGATE_RESP_PASSWORD", "more than blanks", |text| Token::new(text).ok()),
            rules,
            rule_store: RuleStoreSettings::of(read),
            start_without_rules: read.is_true("SLUICEGATE_START_WITHOUT_RULES")
                || read.is_true("FORCE_START_WITHOUT_INITIAL_CONFIG"),
            rules_removal_grace,
            needs_domain: read.is_true("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
            near_limit_ratio: read.ratio("NEAR_LIMIT_RATIO").unwrap_or(0.8),
            traffic_statistics: read.boolean("SLUICEGATE_TRAFFIC_STATISTICS").unwrap_or(true),
            rls,
            style: style(read),
            problem_json: read
                .choice("SLUICEGATE_ERRORS", &[("envelope", false), ("problem", true)])
                .unwrap_or(false),
            tls: tls_files(read),
            connection_age,
            connections_max,
            in_flight_max,
            reservations_max,
            waiting_max,
            drain,
            memory_budget: read
                .size("SLUICEGATE_MEMORY_BUDGET", MEMORY_BUDGET_MIN)
                .unwrap_or_else(|| MemoryBudget::default().bytes_max()),
            store: Store::read(read),
            snapshot: read.path("SLUICEGATE_SNAPSHOT"),
            snapshot_every,
            identities_max,
            log: log(read),
            traces: traces::read(read),
            usage: usage::read(read),
            webhook: webhook::read(read),
            json: read.is_true("SLUICEGATE_JSON"),
        }
    }

    /// An empty variable counts as unset, and a template may have left it empty by mistake.
    fn empty_store_warning(&self, vars: &Vars) -> Option<String> {
        if self.store != Store::Memory || vars.get("SLUICEGATE_STORE").is_some() {
            return None;
        }
        let names: Vec<&str> =
            vars.empty_names().filter(|name| name.starts_with("REDIS_")).collect();
        (!names.is_empty()).then(|| {
            format!(
                "{}: empty, which counts as unset; counters are in the memory of this process, so each process \
                 counts by itself: set REDIS_URL, such as `127.0.0.1:6379`, or SLUICEGATE_STORE=memory to confirm",
                names.join(", ")
            )
        })
    }

    /// In a pod, loopback is for a sidecar only. An address that is set is intended.
    fn pod_warning(&self, vars: &Vars) -> Option<String> {
        let is_set = ["SLUICEGATE_GRPC", "GRPC_HOST"].iter().any(|name| vars.get(name).is_some());
        match &self.grpc {
            GrpcAddress::Tcp(grpc) if vars.is_pod() && !is_set && grpc.ip().is_loopback() => {
                Some(format!(
                    "the gRPC address `{grpc}` cannot be reached by other pods: set GRPC_HOST=0.0.0.0, or \
                     SLUICEGATE_GRPC=127.0.0.1:{} if Envoy is in this pod",
                    grpc.port()
                ))
            }
            _ => None,
        }
    }

    /// Valid settings of RESP that are probably a mistake.
    fn resp_warning(&self) -> Option<String> {
        match (self.resp, &self.resp_password) {
            (None, Some(_)) => Some(
                "SLUICEGATE_RESP_PASSWORD is set and has no effect: set SLUICEGATE_RESP too, such as `127.0.0.1:6380`"
                    .to_owned(),
            ),
            (Some(resp), None) if !resp.ip().is_loopback() => Some(format!(
                "the RESP address `{resp}` is reachable from other hosts and has no password: set \
                 SLUICEGATE_RESP_PASSWORD, or choose an address such as `127.0.0.1:6380`"
            )),
            _ => None,
        }
    }

    /// Shadow mode is meant for a trial: forgotten, it disables every limit.
    fn shadow_warning(&self, vars: &Vars) -> Option<String> {
        let own = vars.source("SLUICEGATE_SHADOW");
        let source = if vars.get("SLUICEGATE_SHADOW").is_some() { own } else { "SHADOW_MODE" };
        self.rls.shadow_mode.then(|| {
            format!(
                "{source}: shadow mode is on, and nothing is enforced: every request is allowed, denials are only \
                 counted; remove {source} to enforce the limits"
            )
        })
    }

    /// Settings that are valid separately and not together.
    fn conflicts(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let has_token = self.admin_token.is_some() || self.admin_tokens.is_some();
        if !self.admin.ip().is_loopback() && !has_token {
            errors.push(format!(
                "the admin address `{}` is reachable from other hosts and has no token: set \
                 SLUICEGATE_ADMIN_TOKENS, SLUICEGATE_ADMIN_TOKEN or SLUICEGATE_ADMIN_TOKEN_FILE, or choose an \
                 address such as `127.0.0.1:6070`",
                self.admin
            ));
        }
        if self.snapshot.is_none() && !self.snapshot_every.is_zero() {
            errors.push(
                "SLUICEGATE_SNAPSHOT_EVERY has no effect without a file: set SLUICEGATE_SNAPSHOT too"
                    .to_owned(),
            );
        }
        errors
    }
}

/// An address: our own variable, or host and port of envoyproxy/ratelimit.
fn address(read: &mut Reader<'_>, own: &str, host: &str, port: &str, default: u16) -> SocketAddr {
    let ip = read.host(host).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = read.number(port, 0, u16::MAX.into()).unwrap_or(default.into());
    let of_envoy = SocketAddr::new(ip, u16::try_from(port).unwrap_or(default));
    read.address(own).unwrap_or(of_envoy)
}

fn grpc(read: &mut Reader<'_>) -> GrpcAddress {
    if let Some(path) = read.text("SLUICEGATE_GRPC").and_then(|text| text.strip_prefix("unix:")) {
        return GrpcAddress::Unix(path.into());
    }
    let tcp = address(read, "SLUICEGATE_GRPC", "GRPC_HOST", "GRPC_PORT", 8081);
    match read.path("GRPC_UDS") {
        Some(path) if read.text("SLUICEGATE_GRPC").is_none() => GrpcAddress::Unix(path),
        _ => GrpcAddress::Tcp(tcp),
    }
}

fn rls(read: &mut Reader<'_>) -> Options {
    let mut headers = |which: &str| {
        let default = HeaderNames::default();
        let name = |read: &Reader<'_>, part: &str, default: String| {
            read.text(&format!("{which}_{part}_HEADER")).map_or(default, str::to_owned)
        };
        let switch = match which {
            "LIMIT" => "LIMIT_RESPONSE_HEADERS_ENABLED",
            _ => "LIMIT_REQUEST_HEADERS_ENABLED",
        };
        read.is_true(switch).then(|| HeaderNames {
            limit: name(read, "LIMIT", default.limit),
            remaining: name(read, "REMAINING", default.remaining),
            reset: name(read, "RESET", default.reset),
        })
    };
    let (response_headers, request_headers) = (headers("LIMIT"), headers("LIMIT_REQUEST"));
    let shadow_mode = read.is_true("SHADOW_MODE");
    Options {
        shadow_mode: read.boolean("SLUICEGATE_SHADOW").unwrap_or(shadow_mode),
        refunds: read
            .choice("SLUICEGATE_REFUNDS", &RefundPolicy::ALL.map(|policy| (policy.name(), policy)))
            .unwrap_or_default(),
        unmatched: read
            .choice("SLUICEGATE_UNMATCHED", &UnmatchedPolicy::ALL.map(|one| (one.name(), one)))
            .unwrap_or_default(),
        dynamic_metadata: read.is_true("RESPONSE_DYNAMIC_METADATA"),
        response_headers,
        request_headers,
        ..Options::default()
    }
}

fn style(read: &mut Reader<'_>) -> Style {
    let dialects = [
        ("both", (true, true)),
        ("x-ratelimit", (true, false)),
        ("ietf", (false, true)),
        ("none", (false, false)),
    ];
    let (x_headers, ietf_fields) =
        read.choice("SLUICEGATE_HEADERS", &dialects).unwrap_or((true, true));
    let resets = [
        ("unix-seconds", Reset::UnixSeconds),
        ("unix-millis", Reset::UnixMillis),
        ("seconds-to-go", Reset::SecondsToGo),
    ];
    let reset = read.choice("SLUICEGATE_RESET", &resets).unwrap_or_default();
    Style { x_headers, ietf_fields, reset, ..Style::default() }
}

/// Our own variables enable TLS; those of envoyproxy/ratelimit need `GRPC_SERVER_USE_TLS`.
fn tls_files(read: &mut Reader<'_>) -> Option<tls::TlsFiles> {
    let envoy_tls = read.is_true("GRPC_SERVER_USE_TLS");
    let path =
        |own: &str, envoy: &str| read.path(own).or_else(|| read.path(envoy).filter(|_| envoy_tls));
    let cert = path("SLUICEGATE_TLS_CERT", "GRPC_SERVER_TLS_CERT");
    let key = path("SLUICEGATE_TLS_KEY", "GRPC_SERVER_TLS_KEY");
    let client_ca = path("SLUICEGATE_CLIENT_CA", "GRPC_CLIENT_TLS_CACERT");
    let client_san =
        read.text("SLUICEGATE_CLIENT_SAN").or_else(|| read.text("GRPC_CLIENT_TLS_SAN"));
    let client_san = client_san.map(str::to_owned);
    match (cert, key) {
        (Some(cert), Some(key)) => {
            if client_san.is_some() && client_ca.is_none() {
                read.errors.push(
                    "SLUICEGATE_CLIENT_SAN has no effect without a CA of client certificates: \
                     set SLUICEGATE_CLIENT_CA"
                        .to_owned(),
                );
            }
            Some(tls::TlsFiles { client_ca, client_san, ..tls::TlsFiles::new(cert, key) })
        }
        (None, None) if !envoy_tls && client_ca.is_none() && client_san.is_none() => None,
        _ => {
            read.errors.push(
                "TLS needs a certificate and its key: set both SLUICEGATE_TLS_CERT and \
                 SLUICEGATE_TLS_KEY (or GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY)"
                    .to_owned(),
            );
            None
        }
    }
}

fn log(read: &mut Reader<'_>) -> logs::Options {
    let levels = [
        ("trace", Level::Trace),
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("warn", Level::Warn),
        ("warning", Level::Warn),
        ("error", Level::Error),
        ("fatal", Level::Fatal),
        ("panic", Level::Fatal),
    ];
    let formats = [("text", Format::Text), ("json", Format::Json)];
    let level = read.choice("LOG_LEVEL", &levels);
    let format = read.choice("LOG_FORMAT", &formats);
    let per_second = read.number("SLUICEGATE_LOG_PER_SECOND", 0, 1_000_000);
    logs::Options {
        level: read.choice("SLUICEGATE_LOG_LEVEL", &levels).or(level).unwrap_or(Level::Info),
        format: read.choice("SLUICEGATE_LOG_FORMAT", &formats).or(format).unwrap_or_default(),
        per_second: per_second.and_then(|number| number.try_into().ok()).unwrap_or(100),
    }
}

impl std::fmt::Display for GrpcAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingsError {}
