//! Loads the rules of the service, follows their files, and reports changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate::config::problem::Problem;
use sluicegate::{
    Change, Follower, Following, RULES_POLL_INTERVAL, RulesError, WithheldDomain, rules_of,
};
use tokio::task::AbortHandle;

use super::{Addresses, StartError, failed_to, rule_store};
use crate::EXAMPLE_RULES;
use crate::app::App;
use crate::health::RejectedLoad;
use crate::logs::events::{self, Startup};
use crate::metrics::level_name;
use crate::settings::{RulesSettings, Settings, Store};
use crate::telemetry::Event;
use crate::webhook::EventReporter;
use crate::xds::{self, XdsOptions};

/// Rules that are followed while they change; the example rules do not.
#[derive(Debug)]
pub(super) struct FollowedRules {
    following: Option<Following>,
    /// The client of the control plane; ends with this value.
    _client: Option<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FollowedRules {
    /// Opens the store of rules, loads them and starts to follow them.
    pub(super) async fn load(
        app: &App,
        settings: &Settings,
        events: Arc<EventReporter>,
    ) -> Result<Self, StartError> {
        let RulesSettings { text, options, xds, .. } = &settings.rules;
        if let Some(xds) = xds.as_ref().filter(|_| text.is_none()) {
            return Self::receive(app, settings, xds.clone(), events);
        }
        if !settings.rules.is_configured() {
            let text = text.as_deref();
            load_text(app, text.unwrap_or(EXAMPLE_RULES)).map_err(StartError::Rules)?;
            if text.is_none() {
                events::example_rules();
            }
            app.set_rule_store(rule_store::fixed(app, settings, text));
            return Ok(Self { following: None, _client: None });
        }
        let store = rule_store::open(app, settings).await.map_err(StartError::Rules)?;
        app.set_rule_store(store.clone());
        let engine = app.engine();
        let follower = match engine.follow(store.source(), *options) {
            Ok((follower, warnings)) => {
                report_loaded(app, &warnings, true);
                store.record_loaded();
                follower
            }
            Err(problem) if settings.start_without_rules => {
                let problem = settings.rules.describe(&problem);
                report_refused(app, &problem);
                events.rules_refused(app, &settings.rules.location(), &problem);
                engine.follow_changes(store.source(), *options)
            }
            Err(problem) => return Err(StartError::Rules(problem)),
        };
        let follower = follower.with_removal_grace(settings.rules_removal_grace);
        let loaded = store.clone();
        let following = start(follower, app, settings, events, move |change| {
            if matches!(change, Change::Taken { .. }) {
                loaded.record_loaded();
            }
        })?;
        let waker = following.waker();
        store.set_wake(move || waker.wake());
        app.add_metrics(Arc::new(rule_store::StoreMetrics::new(store)));
        app.add_metrics(app.candidate().clone());
        Ok(Self { following: Some(following), _client: None })
    }

    /// Begins to receive the rules from a control plane, without any until then.
    fn receive(
        app: &App,
        settings: &Settings,
        options: XdsOptions,
        events: Arc<EventReporter>,
    ) -> Result<Self, StartError> {
        let (rules, client, status) = xds::start(options);
        app.add_metrics(status);
        let received = client.received();
        let follower = app.engine().follow_changes(rules, settings.rules.options);
        let follower = follower.with_removal_grace(settings.rules_removal_grace);
        let observe = move |change: &Change| received.report(change);
        let following = start(follower, app, settings, events, observe)?;
        let client = tokio::spawn(client.run(following.waker())).abort_handle();
        Ok(Self { following: Some(following), _client: Some(AbortOnDrop(client)) })
    }

    /// Reads the files again.
    pub(super) fn reload(&self) {
        match &self.following {
            Some(following) => following.reread(),
            None => events::nothing_to_reload(),
        }
    }
}

/// Starts a follower that reports changes, to `observe` too.
fn start(
    follower: Follower,
    app: &App,
    settings: &Settings,
    events: Arc<EventReporter>,
    observe: impl Fn(&Change) + Send + 'static,
) -> Result<Following, StartError> {
    let (reported, rules) = (app.clone(), settings.rules.clone());
    let mut note = None;
    report_note(app, &rules, &mut note);
    let following = follower.start(RULES_POLL_INTERVAL, move |change| {
        report(&reported, &rules, &change);
        observe(&change);
        report_event(&events, &reported, &rules, &change);
        report_note(&reported, &rules, &mut note);
    });
    following.map_err(|error| failed_to("follow the rules", error))
}

/// What the start line reports about the rules and the store.
pub(super) fn startup(app: &App, settings: &Settings, addresses: &Addresses) -> Startup {
    let rules = app.engine().snapshot();
    let rules = rules.rules();
    let mut levels = BTreeMap::<_, usize>::new();
    for no in rules.rules() {
        *levels.entry(level_name(rules.rule(no).effective_consistency())).or_default() += 1;
    }
    let levels: Vec<_> = levels.iter().map(|(level, count)| format!("{level}:{count}")).collect();
    Startup {
        rules: match settings.rules.is_configured() {
            true => settings.rules.location(),
            false => "example".to_owned(),
        },
        count: rules.rules().len(),
        hash: rules.digest(),
        levels: levels.join(","),
        store: match &settings.store {
            Store::Memory => "memory".to_owned(),
            Store::Redis(redis) => redis.server.address.to_string(),
        },
        shadow: settings.rls.shadow_mode,
        addresses: addresses.clone(),
    }
}

fn load_text(app: &App, text: &str) -> Result<(), RulesError> {
    let reloaded = app.engine().reload(rules_of(text)?);
    reloaded.map_err(|error| RulesError::Unfit(error.to_string()))?;
    report_loaded(app, &[], true);
    Ok(())
}

fn report(app: &App, rules: &RulesSettings, change: &Change) {
    match change {
        Change::Taken { reloaded, warnings, withheld } => {
            report_loaded(app, warnings, withheld.is_empty());
            events::rules_reloaded(reloaded);
            report_withheld(app, withheld);
        }
        Change::Switched(reloaded) => {
            events::rules_switched(reloaded);
        }
        Change::Refused(problem) => {
            report_refused(app, &rules.describe(problem));
        }
        Change::Withheld(withheld) => {
            withheld.iter().for_each(|domain| events::rules_withheld(domain));
            app.health().set_withheld(withheld.clone());
        }
    }
}

/// Sends an event when loads begin to fail, and when they succeed again.
fn report_event(events: &EventReporter, app: &App, rules: &RulesSettings, change: &Change) {
    match change {
        Change::Refused(problem) => {
            events.rules_refused(app, &rules.location(), &rules.describe(problem));
        }
        Change::Taken { .. } => events.rules_loaded(app, &rules.location()),
        Change::Switched(_) | Change::Withheld(_) => {}
    }
}

/// Logs the note about values in metrics if it is another one than before.
fn report_note(app: &App, rules: &RulesSettings, last: &mut Option<String>) {
    let note = rules.metric_values_note(app.engine().snapshot().rules());
    if let Some(note) = note.as_ref().filter(|_| note != *last) {
        events::rules_warning(note);
    }
    *last = note;
}

/// Reports a reading of the files that leaves domains without rules as a load error, and the end of
/// earlier ones.
fn report_withheld(app: &App, withheld: &[WithheldDomain]) {
    if !withheld.is_empty() {
        app.telemetry().record(Event::RulesRefused);
    }
    let still = |name: &str| withheld.iter().any(|one| one.domain == name);
    let before = app.health().set_withheld(withheld.to_vec());
    let rules = app.engine().snapshot();
    for WithheldDomain { domain, .. } in before.iter().filter(|one| !still(&one.domain)) {
        let rules = rules.rules();
        match rules.rules().any(|no| rules.domain_of(no) == domain) {
            true => events::rules_restored(domain),
            false => events::domain_removed(domain),
        }
    }
    withheld.iter().for_each(|domain| events::rules_withheld(domain));
}

fn report_loaded(app: &App, warnings: &[Problem], is_complete: bool) {
    app.telemetry().record(Event::RulesLoaded);
    app.health().record_load(app.engine().now(), is_complete);
    app.health().set_rejected(None);
    let domains = app.engine().snapshot().rules().domains().count();
    app.health().rules_loaded(domains);
    if domains == 0 {
        events::no_domains();
    }
    warnings.iter().for_each(|warning| events::rules_warning(warning));
}

fn report_refused(app: &App, problem: &str) {
    app.telemetry().record(Event::RulesRefused);
    let at = app.engine().now();
    app.health().record_load(at, false);
    let error = problem.lines().next().unwrap_or_default().to_owned();
    app.health().set_rejected(Some(RejectedLoad { at, error }));
    // One log line per problem.
    problem.lines().for_each(|line| events::rules_error(&line));
    match app.health().has_rules() {
        true => events::rules_rejected(),
        false => events::no_rules(),
    }
}
