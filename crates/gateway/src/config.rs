//! The file of a gateway: loaded with all checks, and followed while it changes.
//!
//! A valid change is compiled and replaces the active configuration as a whole: requests in flight
//! finish with the one they began with, and servers that both have keep their connections. An
//! invalid change is reported, again and again, and nothing changes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate::{REPORT_EVERY, RULES_POLL_INTERVAL, Timestamp};
use sluicegate_config::files::{self, FileError, ReadOptions};
use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_config::gateway::{Findings, GatewayConfig, LoadedGateway};
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Invalid, Source};
use sluicegate_config::watch::{PollResult, Watch};
use sluicegate_server::app::App;
use sluicegate_server::health::LastLoad;
use sluicegate_server::logs::events;
use sluicegate_server::metrics::{Labels, MetricsSource, Page};
use sluicegate_server::settings::RulesSettings;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::active::Active;
pub use crate::checks::checked;
use crate::listener::set::{ListenError, ListenerSet};

/// The file of a gateway, and what the command line says in its place.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// In place of `listen`.
    pub listen: Option<SocketAddr>,
    /// Whether a flag or a variable stands in place of `admin`.
    pub has_own_admin: bool,
    /// Whether a flag or a variable stands in place of `webhook`.
    pub has_own_webhook: bool,
    /// Whether a flag or a variable stands in place of `rules`.
    pub has_own_rules: bool,
}

/// Address of a gateway that names none.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// Why a file was not loaded.
#[derive(Debug)]
pub enum ConfigError {
    /// It cannot be read.
    Unreadable(FileError),
    /// It is invalid.
    Invalid(Invalid),
    /// It is valid, and cannot be used with the rules.
    Rules(Vec<Problem>),
    /// It is valid, and cannot replace the active one.
    Restart(String),
}

impl ConfigFile {
    /// Reads the file as it is now.
    ///
    /// # Errors
    /// When it cannot be read, or is invalid.
    pub fn load(&self) -> Result<LoadedGateway, ConfigError> {
        let sources = files::read(&self.path, &ReadOptions::default());
        self.read(sources.map_err(ConfigError::Unreadable)?, None)
    }

    fn read(
        &self,
        sources: Vec<Source>,
        active: Option<&GatewayConfig>,
    ) -> Result<LoadedGateway, ConfigError> {
        let [source] = <[Source; 1]>::try_from(sources).map_err(|sources| {
            ConfigError::Restart(format!(
                "{}: must be one file, got {}; name the file itself",
                self.path.display(),
                sources.len()
            ))
        })?;
        let loaded = checked(&source, self.has_own_rules, active);
        let mut loaded = loaded.map_err(ConfigError::Invalid)?;
        let config = &mut loaded.config;
        if let Some(address) = self.listen {
            config.listeners = vec![ListenerConfig::new(address)];
        } else if config.listeners.is_empty() {
            config.listeners.push(ListenerConfig::new(DEFAULT_LISTEN));
        }
        if self.has_own_webhook {
            config.webhook = None;
        }
        if self.has_own_admin {
            config.admin = None;
        }
        if self.has_own_rules {
            config.rules.clear();
        }
        Ok(loaded)
    }
}

/// What a running gateway does with a changed file.
#[derive(Debug)]
pub(crate) struct ConfigFollower {
    file: ConfigFile,
    watch: Watch,
    /// The configuration in force.
    active: GatewayConfig,
    rules: RulesSettings,
    /// Whether the rules have changed, which warnings about this file depend on.
    rules_watch: Watch,
    /// When the last problem was reported.
    failed: Option<Instant>,
    /// Whether the file may have changed since it was loaded, before it was followed.
    is_first: bool,
}

/// A change of the file.
pub(crate) enum ConfigChange {
    /// It is valid; its warnings.
    Valid(Box<GatewayConfig>, Vec<Problem>),
    /// The active configuration stays.
    Refused(ConfigError),
    /// The rules have changed, and not the file; warnings about both.
    Rules(Vec<Problem>),
}

impl ConfigFollower {
    /// Follows a file that was just loaded.
    pub(crate) fn new(file: ConfigFile, active: GatewayConfig, rules: RulesSettings) -> Self {
        let mut watch = Watch::new([&file.path], ReadOptions::default());
        let _ = watch.read();
        let mut rules_watch = Watch::new(&rules.paths, rules.files);
        let _ = rules_watch.read();
        Self { file, watch, active, rules, rules_watch, failed: None, is_first: true }
    }

    /// Warnings that changed rules cause; the file is the active one.
    fn poll_rules(&mut self) -> Option<ConfigChange> {
        let PollResult::Changed(Ok(_)) = self.rules_watch.poll() else { return None };
        let loaded = self.file.load().ok().filter(|loaded| loaded.config == self.active)?;
        // The rules are in force already, so that all that is left is to say what they mean.
        let Findings { problems, mut warnings } = check_rules(&loaded, &self.rules);
        warnings.extend(problems);
        (!warnings.is_empty()).then_some(ConfigChange::Rules(warnings))
    }

    /// Looks at the file once; `None` if there is nothing to report.
    fn poll(&mut self, is_requested: bool) -> Option<ConfigChange> {
        let is_due = self.failed.is_some_and(|at| at.elapsed() >= REPORT_EVERY);
        let is_first = std::mem::take(&mut self.is_first);
        let is_read = is_requested || is_due || is_first;
        let sources = match self.watch.poll() {
            PollResult::Changed(sources) => sources,
            PollResult::Same | PollResult::Changing if is_read => self.watch.read(),
            PollResult::Same | PollResult::Changing => return self.poll_rules(),
        };
        let read = sources.map_err(ConfigError::Unreadable);
        let read = read.and_then(|sources| self.file.read(sources, Some(&self.active)));
        let read = read.and_then(|loaded| self.replaceable(loaded));
        let read = read.and_then(|mut loaded| {
            let Findings { problems, warnings } = check_rules(&loaded, &self.rules);
            if !problems.is_empty() {
                return Err(ConfigError::Rules(problems));
            }
            loaded.warnings.extend(warnings);
            Ok(loaded)
        });
        Some(match read {
            Ok(loaded) if is_first && !is_requested && loaded.config == self.active => return None,
            Ok(loaded) => {
                self.active.clone_from(&loaded.config);
                ConfigChange::Valid(Box::new(loaded.config), loaded.warnings)
            }
            Err(error) => ConfigChange::Refused(error),
        })
    }

    /// Refuses changes that only a restart can make.
    fn replaceable(&self, loaded: LoadedGateway) -> Result<LoadedGateway, ConfigError> {
        let (new, old) = (&loaded.config, &self.active);
        let changes = [
            ("admin", new.admin != old.admin),
            ("webhook", new.webhook != old.webhook),
            ("handover", new.handover != old.handover),
            ("deferred", new.deferred != old.deferred),
            ("rules", new.rules != old.rules),
        ];
        let changed: Vec<&str> =
            changes.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
        if changed.is_empty() {
            return Ok(loaded);
        }
        Err(ConfigError::Restart(format!(
            "{}: `{}` takes effect at a restart only; restart the gateway, or undo this change: until \
             then no other change of the file is loaded",
            self.file.path.display(),
            changed.join("`, `")
        )))
    }
}

/// Compares the limits of a file with the rules. Rules that cannot be read have their own errors.
#[must_use]
pub fn check_rules(loaded: &LoadedGateway, rules: &RulesSettings) -> Findings {
    // Those of a database may change until they are loaded.
    if rules.database.is_some() {
        return Findings::default();
    }
    let mut sources = Vec::new();
    for path in &rules.paths {
        match files::read(path, &rules.files) {
            Ok(found) => sources.extend(found),
            Err(_) => return Findings::default(),
        }
    }
    match sluicegate_config::rules::load(&sources, &rules.options) {
        Ok(rules) => loaded.check_rules(&rules),
        Err(_) => Findings::default(),
    }
}

/// State of the configuration, for metrics.
#[derive(Debug, Default)]
pub(crate) struct ConfigStatus {
    last: Mutex<(LastLoad, u64)>,
}

impl ConfigStatus {
    /// Records a load.
    pub(crate) fn record(&self, now: Timestamp, config: Option<&GatewayConfig>) {
        let mut last = self.last.lock();
        last.0.is_successful = config.is_some();
        if let Some(config) = config {
            last.0.succeeded_at = Some(now);
            last.1 = hash(config);
        }
    }
}

/// Hash of a configuration, equal on all nodes of one version with the same file.
fn hash(config: &GatewayConfig) -> u64 {
    // FNV-1a, of a form that shows every field.
    let text = format!("{config:?}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl MetricsSource for ConfigStatus {
    fn put(&self, page: &mut Page) {
        let (load, hash) = *self.last.lock();
        let help = "Always 1; the label is a hash of the gateway's configuration in force, to compare nodes.";
        let labels = Labels::new("hash", &format!("{hash:016x}"));
        page.gauge("sluicegate_gateway_config_hash", help).labeled(&labels, 1);
        let help = "1 if the last load of the gateway's configuration succeeded, else 0.";
        page.gauge("sluicegate_gateway_config_last_reload_successful", help)
            .value(u8::from(load.is_successful));
        let help = "Unix time of the last successful load of the gateway's configuration.";
        let at = load.succeeded_at.map_or(0, |at| at.as_micros() / 1_000_000);
        page.gauge("sluicegate_gateway_config_last_reload_timestamp_seconds", help).value(at);
    }
}

/// Follows the file, if there is one, until the future is dropped. Requests to reload go to it, and
/// on to the returned receiver for the rules.
pub(crate) fn run(
    follower: Option<ConfigFollower>,
    app: &App,
    active: Arc<ArcSwap<Active>>,
    listeners: Arc<Mutex<ListenerSet>>,
    mut reloads: mpsc::Receiver<()>,
) -> (impl Future<Output = ()> + use<>, mpsc::Receiver<()>) {
    let (rules, rule_reloads) = mpsc::channel(1);
    let (app, notify) = (app.clone(), Arc::new(Notify::new()));
    let status = Arc::new(ConfigStatus::default());
    if let Some(follower) = &follower {
        status.record(app.engine().now(), Some(&follower.active));
        app.add_metrics(status.clone());
    }
    let (requested, reopened) = (notify.clone(), active.clone());
    let forwarded = async move {
        while reloads.recv().await.is_some() {
            requested.notify_one();
            if let Some(log) = reopened.load().access_log.as_ref() {
                log.reopen();
            }
            // A full channel already requests a reload.
            let _ = rules.try_send(());
        }
        std::future::pending::<()>().await;
    };
    let followed = async move {
        let Some(mut follower) = follower else { return std::future::pending().await };
        loop {
            let is_requested = tokio::select! {
                () = tokio::time::sleep(RULES_POLL_INTERVAL) => false,
                () = notify.notified() => true,
            };
            // Files may be on a slow file system.
            let polled = tokio::task::spawn_blocking(move || {
                let change = follower.poll(is_requested);
                (follower, change)
            });
            let Ok((same, change)) = polled.await else { return };
            follower = same;
            if let Some(ConfigChange::Rules(warnings)) = &change {
                warnings.iter().for_each(|warning| events::rules_warning(warning));
            } else if let Some(change) = change {
                let is_applied = apply(change, &app, &active, &mut listeners.lock(), &status);
                follower.failed = (!is_applied).then(Instant::now);
            }
        }
    };
    let both = async move {
        tokio::join!(forwarded, followed);
    };
    (both, rule_reloads)
}

/// Replaces the active configuration, or reports why not; whether it was replaced.
fn apply(
    change: ConfigChange,
    app: &App,
    active: &ArcSwap<Active>,
    listeners: &mut ListenerSet,
    status: &ConfigStatus,
) -> bool {
    let now = app.engine().now();
    let refuse = |error: &dyn std::fmt::Display| {
        status.record(now, None);
        // One log line per problem.
        error.to_string().lines().for_each(|line| events::rules_error(&line));
        events::gateway_config_rejected();
        false
    };
    let (config, warnings) = match change {
        ConfigChange::Valid(config, warnings) => (config, warnings),
        ConfigChange::Refused(error) => return refuse(&error),
        ConfigChange::Rules(_) => return true,
    };
    let prepared = match listeners.prepare(&config.listeners, |_| Vec::new()) {
        Ok(prepared) => prepared,
        Err(ListenError { step, reason }) => {
            return refuse(&format!("listen: cannot {step}: {reason}"));
        }
    };
    let pools = listeners.workers() + usize::from(config.deferred.is_some());
    match Active::new(&config, pools, Some(&active.load())) {
        Ok(compiled) => {
            active.store(Arc::new(compiled));
            listeners.apply(prepared);
            status.record(now, Some(&config));
            warnings.iter().for_each(|warning| events::rules_warning(warning));
            events::gateway_config_reloaded(config.routes.len(), config.upstreams.len());
            true
        }
        Err(error) => refuse(&error),
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Rules(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Restart(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ConfigError {}
