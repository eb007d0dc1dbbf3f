//! Loads the rules of the service, follows their files, and reports changes.

use sluicegate::config::files::ReadOptions;
use sluicegate::config::problem::Problem;
use sluicegate::config::rules::Options;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Following, RULES_POLL_INTERVAL, RulesError, WithheldDomain, rules_of};

use super::{StartError, failed_to};
use crate::EXAMPLE_RULES;
use crate::app::App;
use crate::logs::events;
use crate::settings::Settings;
use crate::telemetry::Event;

/// Rules whose files are followed; the example rules have none.
#[derive(Debug)]
pub(super) struct FollowedRules {
    following: Option<Following>,
}

impl FollowedRules {
    /// Loads the rules and starts to follow their files.
    pub(super) fn load(app: &App, settings: &Settings) -> Result<Self, StartError> {
        if settings.rules.is_empty() {
            load_example(app).map_err(StartError::Rules)?;
            return Ok(Self { following: None });
        }
        let files = ReadOptions { ignore_dot_files: settings.ignore_dot_files };
        let watch = || Watch::new(&settings.rules, files);
        let options =
            Options { merge_domains: settings.merge_domains, quota_mode: settings.rls.quota_mode };
        let engine = app.engine();
        let follower = match engine.follow(watch(), options) {
            Ok((follower, warnings)) => {
                report_loaded(app, &warnings);
                follower
            }
            Err(problem) if settings.start_without_rules => {
                report_refused(app, &problem);
                engine.follow_changes(watch(), options)
            }
            Err(problem) => return Err(StartError::Rules(problem)),
        };
        let follower = follower.with_removal_grace(settings.rules_removal_grace);
        let reporter = app.clone();
        let following =
            follower.start(RULES_POLL_INTERVAL, move |change| report(&reporter, change));
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

fn load_example(app: &App) -> Result<(), RulesError> {
    let reloaded = app.engine().reload(rules_of(EXAMPLE_RULES)?);
    reloaded.map_err(|error| RulesError::Unfit(error.to_string()))?;
    report_loaded(app, &[]);
    Ok(())
}

fn report(app: &App, change: Change) {
    match change {
        Change::Taken { reloaded, warnings, withheld } => {
            report_loaded(app, &warnings);
            events::rules_reloaded(&reloaded);
            report_withheld(app, withheld);
        }
        Change::Refused(problem) => {
            report_refused(app, &problem);
        }
        Change::Withheld(withheld) => {
            withheld.iter().for_each(|domain| events::rules_withheld(domain));
            app.health().set_withheld(withheld);
        }
    }
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

fn report_loaded(app: &App, warnings: &[Problem]) {
    app.telemetry().record(Event::RulesLoaded);
    let domains = app.engine().snapshot().rules().domains().count();
    app.health().rules_loaded(domains);
    if domains == 0 {
        events::no_domains();
    }
    warnings.iter().for_each(|warning| events::rules_warning(warning));
}

fn report_refused(app: &App, problem: &RulesError) {
    app.telemetry().record(Event::RulesRefused);
    // One log line per problem.
    problem.to_string().lines().for_each(|line| events::rules_error(&line));
    events::rules_rejected();
}
