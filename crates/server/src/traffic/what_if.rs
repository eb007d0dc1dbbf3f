//! What other rules would have decided on the sample of recent requests.
//!
//! The sample is replayed at its own times, by the enforced rules and by the changed ones, each
//! from empty counters. Only what the sample can show is counted: under a rule, identities whose
//! whole history is in it. Nothing is scaled up.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use sluicegate::rules::plan::Target;
use sluicegate::rules::request::Request;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Checked, Snapshot, Span};
use sluicegate_lab::replay::Replay;

use super::sample::{SampleView, identity_hash, is_in_sample};
use super::sample_codec::decode;

/// What two sets of rules decide on the same requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WhatIf {
    /// Requests of the sample.
    pub requests: u64,
    /// Those that were denied when they came.
    pub recorded_denied: u64,
    /// Those that the enforced rules deny in the replay; `None` of a part of the requests.
    pub denied_before: Option<u64>,
    /// Those that the changed rules deny.
    pub denied_after: Option<u64>,
    /// Each rule with requests, by its id.
    pub rules: BTreeMap<String, RuleComparison>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

/// One rule before and after.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleComparison {
    /// Under the enforced rules; `None` if it is not among them, or cannot be judged.
    pub before: Option<RuleTally>,
    /// Under the changed rules.
    pub after: Option<RuleTally>,
    /// Why it cannot be judged, or what distorts the figures.
    pub notes: Vec<String>,
}

/// Requests under a rule in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleTally {
    /// Requests of identities whose whole history is in the sample.
    pub requests: u64,
    /// Those that the rule denies, or would deny in shadow mode.
    pub denied: u64,
    /// Distinct identities.
    pub identities: u64,
    /// Distinct identities with a denial.
    pub denied_identities: u64,
    /// Further requests, of identities that are in the sample in part.
    pub unjudged: u64,
}

#[derive(Debug, Default)]
struct Counting {
    tally: RuleTally,
    identities: HashSet<u64>,
    denied_identities: HashSet<u64>,
}

/// Compares the enforced rules with changed ones.
///
/// # Errors
/// When the changed rules cannot be enforced.
pub fn what_if(
    sample: &SampleView,
    active: &Snapshot<'_>,
    changed: RuleSet,
    shares_store: bool,
) -> Result<WhatIf, String> {
    let replay =
        |rules| Replay::new(rules).map_err(|error: sluicegate::LimitError| error.to_string());
    let replays = [replay(active.rules().clone())?, replay(changed)?];
    let hasher = RandomState::new();
    let mut counts = [BTreeMap::<usize, Counting>::new(), BTreeMap::new()];
    let mut denied = [0, 0];
    let mut compared = WhatIf::default();
    let (mut sampled_hashes, mut steps_max) = (Vec::new(), 0);
    for sampled in &sample.requests {
        let Some(decoded) = decode(&sampled.encoded) else { continue };
        let descriptors = decoded.descriptors();
        let request =
            Request { domain: decoded.domain(), descriptors: &descriptors, hits: decoded.hits() };
        compared.requests += 1;
        compared.recorded_denied += u64::from(!sampled.is_allowed);
        steps_max = steps_max.max(descriptors.len());
        let decided = replays.each_ref().map(|replay| replay.run(sampled.at, &request));
        let [before, _] = &decided;
        sampled_hashes.clear();
        sampled_hashes.extend((0..descriptors.len()).map(|index| {
            let hash = identity_hash(active, &request, before, index);
            hash.filter(|hash| is_in_sample(*hash, sample.level))
        }));
        let all = replays.iter().zip(&decided).zip(&mut counts).zip(&mut denied);
        for (((replay, checked), counts), denied) in all {
            *denied += u64::from(!checked.allowed);
            tally(&replay.rules(), checked, counts, &hasher, |index| {
                // Another identity may have requests that are not in the sample.
                let is_same =
                    || active.traffic_hash(identity(checked, index)) == sampled_hashes[index];
                sample.level == 0 || (sampled_hashes[index].is_some() && is_same())
            });
        }
    }
    if sample.level == 0 {
        (compared.denied_before, compared.denied_after) = (Some(denied[0]), Some(denied[1]));
    }
    let span = sample.span();
    for (which, (replay, counts)) in replays.iter().zip(counts).enumerate() {
        let rules = replay.rules();
        let numbers: Vec<RuleNo> = rules.rules().rules().collect();
        for (index, counting) in counts {
            let no = numbers[index];
            let rule = compared.rules.entry(rules.rules().id(no)).or_default();
            let tally = counting.finish();
            let is_judged = tally.requests > 0;
            *(if which == 0 { &mut rule.before } else { &mut rule.after }) =
                is_judged.then_some(tally);
            for note in rule_notes(&rules, no, span, &tally, shares_store) {
                if !rule.notes.contains(&note) {
                    rule.notes.push(note);
                }
            }
        }
    }
    compared.notes = notes(sample, steps_max);
    Ok(compared)
}

/// The identity of a step; empty without a rule.
fn identity(checked: &Checked, index: usize) -> &[u8] {
    checked.plan.steps().get(index).map_or(&[], |step| checked.plan.identity(step))
}

/// Counts a request once for each rule that applies to it.
fn tally(
    rules: &Snapshot<'_>,
    checked: &Checked,
    counts: &mut BTreeMap<usize, Counting>,
    hasher: &RandomState,
    is_judged: impl Fn(usize) -> bool,
) {
    if checked.listed().is_some() {
        return;
    }
    let statuses = &checked.statuses;
    for (index, status) in statuses.iter().enumerate() {
        let Target::Rule(no) = status.target else { continue };
        if matches!(rules.rules().rule(no).limits, Limits::Unlimited) {
            continue;
        }
        let denies =
            |verdict: &sluicegate::Verdict| !verdict.shadow.unwrap_or(verdict.outcome).is_allowed();
        let same = |other: &sluicegate::Status| other.target == status.target;
        if statuses[..index].iter().any(same) {
            continue;
        }
        let counting = counts.entry(no.index()).or_default();
        if !is_judged(index) {
            counting.tally.unjudged += 1;
            continue;
        }
        let hash = hasher.hash_one(identity(checked, index));
        counting.tally.requests += 1;
        counting.identities.insert(hash);
        if statuses[index..].iter().any(|other| same(other) && denies(&other.verdict)) {
            counting.tally.denied += 1;
            counting.denied_identities.insert(hash);
        }
    }
}

impl Counting {
    fn finish(self) -> RuleTally {
        RuleTally {
            identities: self.identities.len() as u64,
            denied_identities: self.denied_identities.len() as u64,
            ..self.tally
        }
    }
}

fn rule_notes(
    rules: &Snapshot<'_>,
    no: RuleNo,
    span: Span,
    tally: &RuleTally,
    shares_store: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if tally.requests == 0 {
        notes.push(
            "cannot be judged: its identities are not in the sample, or only in part".to_owned(),
        );
    } else if tally.unjudged > 0 {
        notes.push(
            "some of its identities are in the sample only in part, and are left out".to_owned(),
        );
    }
    for policy in rules.policies(no) {
        match policy.window {
            _ if policy.has_slots() => notes.push(
                "limits concurrency: the sample has no durations, so slots are held until their lease ends".to_owned(),
            ),
            Some(window) if window > span => notes.push(format!(
                "the sample spans {} s, and a window {} s: later denials are not seen",
                span.as_micros() / 1_000_000,
                window.as_micros() / 1_000_000
            )),
            None => notes.push("its quota does not come back in the sample: later denials are not seen".to_owned()),
            Some(_) => {}
        }
    }
    if shares_store {
        notes.push(
            "other nodes share its limits, and their requests are not in the sample".to_owned(),
        );
    }
    notes
}

fn notes(sample: &SampleView, steps_max: usize) -> Vec<String> {
    let mut notes = vec![
        "counters start empty at the beginning of the sample: the first window denies too little"
            .to_owned(),
    ];
    if sample.level > 0 {
        notes.push(format!(
            "the sample has the whole history of 1 in {} identities; nothing is scaled up",
            1u64 << sample.level
        ));
        if steps_max > 1 {
            notes.push(
                "limits that see only a part of their requests deny too little, which affects other limits of \
                 the same request"
                    .to_owned(),
            );
        }
    }
    if sample.missed > 0 {
        notes.push(format!(
            "requests that the sample lacks, since threads recorded at the same moment: {}",
            sample.missed
        ));
    }
    if sample.too_long > 0 {
        notes.push(format!("{} requests were too long for the sample", sample.too_long));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate::clock::ManualClock;
    use sluicegate::rules::request::{Descriptor, Entry};
    use sluicegate::{Engine, Timestamp, rules_of};

    use super::*;
    use crate::traffic::sample::RequestSample;
    use crate::traffic::usage::usage;

    const NOON: u64 = 1_794_744_000;

    struct Node {
        engine: Engine,
        clock: Arc<ManualClock>,
        sample: RequestSample,
    }

    impl Node {
        fn new(rules: &str) -> Self {
            let clock = ManualClock::at(Timestamp::from_micros(NOON * 1_000_000));
            let builder = Engine::builder(rules_of(rules).unwrap()).clock(clock.clone());
            let engine = builder.observe_traffic(true).build().unwrap();
            Self { engine, clock: Arc::new(clock), sample: RequestSample::default() }
        }

        /// A request of a user at a time in milliseconds after noon.
        fn request(&self, millis: u64, user: &str) {
            self.clock.set(Timestamp::from_micros(NOON * 1_000_000 + millis * 1_000));
            let (user, all) = ([Entry::new("user", user)], [Entry::new("all", "")]);
            let descriptors = [Descriptor::of(&user), Descriptor::of(&all)];
            let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
            let checked = self.engine.check(&request);
            let rules = self.engine.snapshot();
            self.sample.offer(&rules, &request, &checked, checked.allowed, || self.engine.now());
        }

        fn what_if(&self, changed: &str) -> WhatIf {
            let changed = rules_of(changed).unwrap();
            what_if(&self.sample.view(), &self.engine.snapshot(), changed, false).unwrap()
        }
    }

    fn rules(per_second: u32) -> String {
        format!(
            "{{ domain: shop, descriptors: [{{ key: user, limits: {{ algorithm: fixed_window, rate: {per_second}/s }} }}, \
             {{ key: all, shadow_mode: true, rate_limit: {{ unit: hour, requests_per_unit: 1000 }} }}] }}"
        )
    }

    #[test]
    fn figures_are_those_of_the_requests_that_came() {
        let node = Node::new(&rules(2));
        // For 30 seconds, alice asks 10 times a second and nine others twice.
        for second in 0..30 {
            for turn in 0..10 {
                node.request(second * 1_000 + turn * 100, "alice");
            }
            for user in 0..9 {
                node.request(second * 1_000 + 950, &user.to_string());
                node.request(second * 1_000 + 951, &user.to_string());
            }
        }
        let compared = node.what_if(&rules(1));
        assert_eq!((compared.requests, compared.recorded_denied), (840, 240));
        assert_eq!((compared.denied_before, compared.denied_after), (Some(240), Some(540)));
        let users = &compared.rules["shop/user"];
        let tally = |denied, denied_identities| RuleTally {
            requests: 840,
            denied,
            identities: 10,
            denied_identities,
            unjudged: 0,
        };
        assert_eq!((users.before, users.after), (Some(tally(240, 1)), Some(tally(540, 10))));
        assert!(users.notes.is_empty(), "{:?}", users.notes);
        let all = &compared.rules["shop/all"].notes;
        assert!(all[0].contains("the sample spans 29 s, and a window 3600 s"), "{all:?}");

        let snapshot = node.engine.snapshot();
        let no = snapshot.rules().rules().next().unwrap();
        let quantiles = usage(&node.sample.view(), &snapshot, no, Span::from_secs(1)).unwrap();
        assert_eq!(
            (quantiles.identities, quantiles.p50, quantiles.p90, quantiles.p99),
            (10, 2, 2, 10)
        );
    }

    #[test]
    fn a_sample_of_identities_says_nothing_of_limits_that_all_share() {
        let node = Node::new(&rules(1));
        // Each user asks twice in the same second, every 20 seconds.
        for turn in 0..60_000u64 {
            let user = (turn / 2 % 10_000).to_string();
            node.request(turn, &user);
        }
        let sample = node.sample.view();
        assert!(sample.level > 0);
        let compared = node.what_if(&rules(2));
        assert_eq!((compared.denied_before, compared.denied_after), (None, None));
        let users = &compared.rules["shop/user"];
        let (before, after) = (users.before.unwrap(), users.after.unwrap());
        // A second begins between the two of some.
        assert!(before.denied * 2 <= before.requests && before.denied * 2 > before.requests - 10);
        assert_eq!((before.requests, after.denied), (after.requests, 0));
        let all = &compared.rules["shop/all"];
        match all.before {
            None => assert!(all.notes[0].contains("cannot be judged"), "{all:?}"),
            Some(tally) => assert_eq!((tally.requests, tally.unjudged), (compared.requests, 0)),
        }
        assert!(compared.notes.iter().any(|note| note.contains("1 in")), "{:?}", compared.notes);
    }
}
