//! A candidate on a virtual clock.

use sluicegate::clock::ManualClock;
use sluicegate::config::rules::Source;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_rulestore::{Revision, RevisionKind, RevisionState, StoredRevision};

use super::*;
use crate::rls::response::Code;

/// Monday, 2026-11-16, 12:00 UTC.
const NOON: u64 = 1_794_830_400;

struct Trial {
    app: App,
    clock: ManualClock,
}

fn user(per_year: u32) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - {{ key: user, limits: {{ algorithm: fixed_window, rate: {per_year}/year }} }}\n"
    )
}

fn stored(text: &str) -> StoredRevision {
    let revision = Revision {
        number: 2,
        base: Some(1),
        author: "alice".to_owned(),
        at: jiff::Timestamp::UNIX_EPOCH,
        note: "stricter".to_owned(),
        kind: RevisionKind::Edit,
        state: RevisionState::Shadow,
        digest: String::new(),
        restores: None,
        activate_at: None,
        activated_at: None,
        approved_by: None,
        suspended_because: None,
    };
    let sources = vec![Source { name: "rules.yaml".to_owned(), text: text.to_owned() }];
    StoredRevision { revision, sources }
}

impl Trial {
    /// Enforced rules with a candidate.
    fn of(enforced: &str, candidate: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(NOON * 1_000_000));
        let engine = Engine::builder(rules_of(enforced).unwrap()).clock(clock.clone());
        let app = App::new(engine.build().unwrap());
        let trial = Self { app, clock };
        trial.begin(candidate).unwrap();
        trial
    }

    fn begin(&self, candidate: &str) -> Result<(), String> {
        let options =
            RunOptions { rules: Default::default(), near_limit_ratio: 0.8, identities_max: 1_000 };
        self.app.candidate().begin(CandidateRun::start(&self.app, stored(candidate), &options)?);
        Ok(())
    }

    fn run(&self) -> Arc<CandidateRun> {
        self.app.candidate().running().unwrap()
    }

    /// Whether requests are admitted by the enforced rules.
    fn send(&self, user: &str, times: usize) -> Vec<bool> {
        let entries = [Entry::new("user", user)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        let send = || {
            let (engine, mut checked) = (self.app.engine(), Checked::default());
            let rules = engine.snapshot();
            assert!(engine.check_now(&engine.call(&rules, &request), &mut checked));
            self.app.code_of(&rules, &request, &checked) == Code::Ok
        };
        (0..times).map(|_| send()).collect()
    }

    /// Both allow, both deny, only the enforced rules deny, only the candidate denies.
    fn pairs(&self) -> [u64; 4] {
        self.run().requests().named().map(|(_, count)| count)
    }
}

#[test]
fn a_stricter_candidate_changes_no_answer_and_its_figures_are_exact() {
    let trial = Trial::of(&user(4), &user(2));
    assert_eq!(trial.send("alice", 6), [true, true, true, true, false, false]);
    assert_eq!(trial.send("bob", 2), [true, true]);
    assert_eq!(trial.pairs(), [4, 2, 0, 2]);
    let run = trial.run();
    let newly_denied = run.newly_denied();
    assert_eq!(newly_denied.len(), 1);
    let (domain, identity) = &newly_denied[0];
    assert_eq!((&**domain, &*identity.descriptor, identity.hits), ("shop", "user=alice", 2));
    assert_eq!(run.newly_denied_by_rule(), [("shop/user".to_owned(), 2)].into());
    assert!(run.newly_allowed().is_empty());
    let rules = run.rules();
    let no = rules.rules().rules().next().unwrap();
    assert_eq!((rules.stats(no).total_hits, rules.stats(no).over_limit), (8, 4));
}

#[test]
fn a_looser_candidate_names_who_would_pass() {
    let trial = Trial::of(&user(1), &user(2));
    assert_eq!(trial.send("alice", 3), [true, false, false]);
    assert_eq!(trial.pairs(), [1, 1, 1, 0]);
    assert_eq!(trial.run().newly_allowed()[0].1.descriptor, "user=alice");
    // Another candidate starts anew.
    trial.begin(&user(5)).unwrap();
    assert_eq!(trial.send("alice", 1), [false]);
    assert_eq!(trial.pairs(), [0, 0, 1, 0]);
}

#[test]
fn lists_and_other_domains_are_compared_too() {
    let blocked = "domain: shop\ndeny: [{ key: user, value: mallory }]\ndescriptors: []\n";
    let trial = Trial::of(&user(1), blocked);
    trial.send("mallory", 2);
    trial.send("alice", 2);
    assert_eq!(trial.pairs(), [1, 1, 1, 1]);
    let newly_denied = trial.run().newly_denied();
    assert_eq!(newly_denied[0].1.descriptor, "user=mallory");
}

#[test]
fn the_shadow_mode_of_the_service_hides_nothing() {
    let trial = Trial::of(&user(1), &user(2));
    let options = crate::rls::Options { shadow_mode: true, ..Default::default() };
    let app = App::builder(trial.app.engine().clone()).options(options).build();
    let shadow = Trial { app, clock: trial.clock };
    shadow.begin(&user(2)).unwrap();
    assert_eq!(shadow.send("alice", 3), [true; 3]);
    assert_eq!(shadow.pairs(), [1, 1, 1, 0]);
}

#[test]
fn schedules_of_a_candidate_switch_at_their_boundaries() {
    let by_time = "domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 1/year }
    schedule:
      - { from: 13:00, until: 14:00, zone: UTC, limits: { algorithm: fixed_window, rate: 3/year } }
";
    let trial = Trial::of(&user(100), by_time);
    trial.send("alice", 2);
    assert_eq!(trial.pairs(), [1, 0, 0, 1]);
    trial.clock.advance(std::time::Duration::from_secs(3_600));
    trial.run().tick(&trial.app, trial.app.engine().now()).unwrap();
    trial.send("alice", 2);
    assert_eq!(trial.pairs()[0], 3, "two more of three");
}

#[test]
fn concurrency_limits_are_left_out_and_counted() {
    let slots = "domain: shop
descriptors:
  - key: user
    limits:
      - { algorithm: concurrency, max: 1, lease: 30s }
      - { algorithm: fixed_window, rate: 3/year }
  - key: job
    limits: { algorithm: concurrency, max: 1, lease: 30s }
";
    let trial = Trial::of(&user(100), slots);
    trial.send("alice", 4);
    assert_eq!(trial.pairs(), [3, 0, 0, 1]);
    assert_eq!(trial.run().slots_omitted(), 2);
}

#[test]
fn an_invalid_candidate_is_an_error_with_its_line() {
    let trial = Trial::of(&user(1), &user(2));
    let error = trial.begin(&user(2).replace("2/year", "two")).unwrap_err();
    assert!(error.contains("rules.yaml:3") && error.contains("two"), "{error}");
}
