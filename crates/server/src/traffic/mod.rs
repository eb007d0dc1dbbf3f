//! Traffic statistics of this node: what the console and `sluicegate top` show, and the evidence
//! for whether rules are effective.
//!
//! ```text
//!   App::code_of    counts each answered request by its outcome, samples requests, reports denials
//!   engine          observes identities by rule (`sluicegate/engine/traffic`)
//!   tick            once a second: counters -> series of the process and of each rule
//! ```
//!
//! All figures are those of this node. Their memory is bounded: [`series`] and [`rules`] state it.

pub mod events;
pub mod judgement;
pub mod rules;
pub mod sample;
mod sample_codec;
pub mod series;
pub mod usage;
pub mod what_if;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate::config::rules::Options;
use sluicegate::rules::request::Request;
use sluicegate::striped::Striped;
use sluicegate::{Checked, Snapshot, Status, Timestamp};

use self::events::Events;
use self::rules::RuleTable;
use self::sample::{RequestSample, SampleView};
use self::series::{LatencyWindow, Outcomes, ProcessSeries};
use crate::admin;
use crate::app::App;
use crate::health::{RejectedLoad, StoreState};
use crate::rls::response::Code;

/// Interval of ticks.
const TICK: Duration = Duration::from_secs(1);

/// Traffic statistics of a node.
#[derive(Debug)]
pub struct Traffic {
    outcomes: Striped<[AtomicU64; 3]>,
    state: Mutex<TrafficSeries>,
    sample: RequestSample,
    /// Options of rule files.
    options: Options,
    events: Events,
    published: Mutex<Option<PublishedState>>,
}

/// State whose changes are events.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PublishedState {
    rules: u64,
    rejected: Option<RejectedLoad>,
    store: Option<StoreState>,
}

/// What ticks have recorded.
#[derive(Debug, Default)]
pub struct TrafficSeries {
    /// Series of the process.
    pub process: ProcessSeries,
    /// Response times of the last minute.
    pub latency: LatencyWindow,
    /// Series of rules.
    pub rules: RuleTable,
}

impl Traffic {
    /// The same, with options of rule files for trials of changed ones.
    #[must_use]
    pub const fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Options of rule files.
    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// The sample of recent requests.
    #[must_use]
    pub fn sample(&self) -> SampleView {
        self.sample.view()
    }

    /// Records a request and its outcome.
    #[inline]
    pub(crate) fn record(
        &self,
        code: Code,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
        now: impl FnOnce() -> Timestamp,
    ) {
        self.sample.offer(rules, request, checked, code == Code::Ok, now);
        let outcome = match code {
            Code::OverLimit => 1,
            _ if !checked.allowed || checked.statuses.iter().any(Status::is_shadow_denied) => 2,
            _ => 0,
        };
        self.outcomes.mine()[outcome].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests since the process started, by outcome.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        let [allowed, denied, shadow_denied] =
            [0, 1, 2].map(|outcome| self.outcomes.sum(|counters| &counters[outcome]));
        // A shadow-denied request was allowed.
        Outcomes { allowed: allowed.wrapping_add(shadow_denied), denied, shadow_denied }
    }

    /// Reads what ticks have recorded.
    pub fn read<T>(&self, read: impl FnOnce(&TrafficSeries) -> T) -> T {
        read(&self.state.lock())
    }

    /// Moves the statistics on to this moment.
    pub fn tick(&self, app: &App, now: Timestamp) {
        app.engine().tick_traffic();
        self.sample.tick(now);
        let mut state = self.state.lock();
        let TrafficSeries { process, latency, rules } = &mut *state;
        let quantiles = latency.tick(app.telemetry(), now);
        process.tick(self.outcomes(), quantiles, now);
        rules.tick(&app.engine().snapshot(), now);
    }

    /// Events for open consoles.
    #[must_use]
    pub const fn events(&self) -> &Events {
        &self.events
    }

    /// Publishes the overview, and what has changed since the last tick.
    fn publish(&self, app: &App) {
        self.events.tick();
        self.events.publish("tick", || admin::summary(app, self));
        let health = app.health();
        let rules = app.engine().snapshot();
        let rules = rules.rules();
        let (digest, rejected, store) = (rules.digest(), health.rejected(), health.state().store);
        let new = PublishedState { rules: digest, rejected, store };
        let Some(old) = self.published.lock().replace(new.clone()) else { return };
        if (old.rules, &old.rejected) != (new.rules, &new.rejected) {
            self.events.publish("rules", || {
                json!({
                    "hash": format!("{:016x}", new.rules),
                    "count": rules.rules().len(),
                    "rejected": new.rejected.as_ref().map(|load| &load.error),
                })
            });
        }
        if old.store != new.store {
            let is_up = new.store == Some(StoreState::Up);
            self.events.publish("store", || json!({ "state": if is_up { "up" } else { "down" } }));
        }
    }

    /// Publishes a denial, if a console is open and it is one of the first of this second.
    #[inline]
    pub(crate) fn publish_denial(&self, denial: impl FnOnce() -> Value) {
        if self.events.takes_denial() {
            self.events.publish("denial", denial);
        }
    }

    /// Moves the statistics on, once a second, for ever.
    pub(crate) async fn run(&self, app: &App) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick(app, app.engine().now());
            self.publish(app);
        }
    }
}

impl Default for Traffic {
    fn default() -> Self {
        let outcomes = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            outcomes: Striped::new(outcomes),
            state: Mutex::default(),
            sample: RequestSample::default(),
            options: Options::default(),
            events: Events::default(),
            published: Mutex::default(),
        }
    }
}
