//! Loads the rules of the service, follows their files, and reports changes.

use std::collections::BTreeMap;

use sluicegate::config::problem::Problem;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Following, RULES_POLL_INTERVAL, RulesError, WithheldDomain, rules_of};

use super::{Addresses, StartError, failed_to};
use crate::EXAMPLE_RULES;
use crate::app::App;
use crate::health::RejectedLoad;
use crate::logs::events::{self, Startup};
use crate::metrics::level_name;
use crate::settings::{RulesSettings, Settings, Store};
use crate::telemetry::Event;

/// Rules whose files are followed; the example rules have none.
#[derive(Debug)]
pub(super) struct FollowedRules {
    following: Option<Following>,
}

impl FollowedRules {
    /// Loads the rules and starts to follow their files.
    pub(super) fn load(app: &App, settings: &Settings) -> Result<Self, StartError> {
        let RulesSettings { paths, text, files, options, .. } = &settings.rules;
        if paths.is_empty() {
            load_text(app, text.as_deref().unwrap_or(EXAMPLE_RULES)).map_err(StartError::Rules)?;
            if text.is_none() {
                events::example_rules();
            }
            return Ok(Self { following: None });
        }
        let watch = || Watch::new(paths, *files);
        let engine = app.engine();
        let follower = match engine.follow(watch(), *options) {
            Ok((follower, warnings)) => {
                report_loaded(app, &warnings, true);
                follower
            }
            Err(problem) if settings.start_without_rules => {
                report_refused(app, &settings.rules.describe(&problem));
                engine.follow_changes(watch(), *options)
            }
            Err(problem) => return Err(StartError::Rules(problem)),
        };
        let follower = follower.with_removal_grace(settings.rules_removal_grace);
        let (reporter, rules) = (app.clone(), settings.rules.clone());
        let mut note = None;
        report_note(app, &rules, &mut note);
        let following = follower.start(RULES_POLL_INTERVAL, move |change| {
            report(&reporter, &rules, change);
            report_note(&reporter, &rules, &mut note);
        });
        let following = following.map_err(|error| failed_to("follow the rules", error))?;
        Ok(Self { following: Some(following) })
    }

    /// Reads the files again.
    pub(super) fn reload(&self) {
        match &self.following {
            Some(following) => following.reread(),
            None => events::nothing_to_reload(),
        }
    }
}

/// What the start line reports about the rules and the store.
pub(super) fn startup(app: &App, settings: &Settings, addresses: &Addresses) -> Startup {
    let paths: Vec<_> =
        settings.rules.paths.iter().map(|path| path.display().to_string()).collect();
    let rules = app.engine().snapshot();
    let rules = rules.rules();
    let mut levels = BTreeMap::<_, usize>::new();
    for no in rules.rules() {
        *levels.entry(level_name(rules.rule(no).effective_consistency())).or_default() += 1;
    }
    let levels: Vec<_> = levels.iter().map(|(level, count)| format!("{level}:{count}")).collect();
    Startup {
        rules: if paths.is_empty() { "example".to_owned() } else { paths.join(",") },
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

fn report(app: &App, rules: &RulesSettings, change: Change) {
    match change {
        Change::Taken { reloaded, warnings, withheld } => {
            report_loaded(app, &warnings, withheld.is_empty());
            events::rules_reloaded(&reloaded);
            report_withheld(app, withheld);
        }
        Change::Refused(problem) => {
            report_refused(app, &rules.describe(&problem));
        }
        Change::Withheld(withheld) => {
            withheld.iter().for_each(|domain| events::rules_withheld(domain));
            app.health().set_withheld(withheld);
        }
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
fn report_withheld(app: &App, withheld: Vec<WithheldDomain>) {
    if !withheld.is_empty() {
        app.telemetry().record(Event::RulesRefused);
    }
    let still = |name: &str| withheld.iter().any(|one| one.domain == name);
    let before = app.health().set_withheld(withheld.clone());
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
