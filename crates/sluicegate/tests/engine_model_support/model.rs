//! The naive engine.

use std::collections::HashMap;

use sluicegate_core::account::{Account, Moment, Part, apply_to_each};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Gate, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::domain::Domain;
use sluicegate_rules::request::Override;
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::unit::Unit;

use super::anything::Asked;
use super::counted::{Counts, on_counter, on_rule};
use super::matching::{Counted, Entries, Lasting, Met, all, domain_of, is_listed, meet};

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Check,
    Peek,
    Refund,
    Reset,
}

impl Want {
    /// Whether nobody has to agree.
    const fn is_free(self) -> bool {
        matches!(self, Self::Refund | Self::Reset)
    }
}

/// What a descriptor is under; a rule by the way to it.
#[derive(Debug, Clone, PartialEq)]
pub enum IsUnder {
    Nothing,
    Rule(String, RuleConfig),
    Replaced(String, RuleConfig),
    Override(Override),
}

/// What a request is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub allowed: bool,
    pub statuses: Vec<(IsUnder, Verdict)>,
}

type Who = (Lasting, Vec<(String, Counted)>);

#[derive(Debug)]
pub struct Model {
    pub domains: Vec<Domain>,
    pub counts: Counts,
    accounts: HashMap<Who, Account>,
    /// The counter of an identity and unit, under the limit that came last.
    overrides: HashMap<(String, Entries, Unit), (u32, Account)>,
    gates: HashMap<Lasting, Gate>,
    load: Option<(u64, Timestamp)>,
    holders: u64,
    /// The latest moment at which something ran out.
    ran_out: Timestamp,
}

const FREE: Verdict = Verdict {
    outcome: Outcome::Allow { wait: Span::ZERO },
    decided_by: None,
    remaining: None,
    reset_after: Span::ZERO,
    beyond: 0,
    soft: false,
    elastic: false,
    shadow: None,
};

impl Model {
    pub fn new(domains: Vec<Domain>) -> Self {
        Self {
            domains,
            counts: Counts::default(),
            accounts: HashMap::new(),
            overrides: HashMap::new(),
            gates: HashMap::new(),
            load: None,
            holders: 0,
            ran_out: Timestamp::EPOCH,
        }
    }

    pub fn ask(&mut self, want: Want, asked: &Asked, now: Timestamp) -> Told {
        let domains = std::mem::take(&mut self.domains);
        let told = self.ask_rules(&domains, want, asked, now);
        self.domains = domains;
        told
    }

    fn ask_rules(&mut self, domains: &[Domain], want: Want, asked: &Asked, now: Timestamp) -> Told {
        let domain = domain_of(domains, asked.domain);
        let met: Vec<Option<Met<'_>>> = asked
            .descriptors
            .iter()
            .map(|one| domain.filter(|_| one.limit.is_none()).and_then(|d| meet(d, &one.entries)))
            .collect();
        let mut statuses: Vec<(IsUnder, Verdict)> = Vec::new();
        for (place, one) in asked.descriptors.iter().enumerate() {
            let under = match (&met[place], one.limit) {
                (Some(own), _) => {
                    let others = met.iter().enumerate().filter(|(other, _)| *other != place);
                    let mut others = others.filter_map(|(_, other)| other.as_ref());
                    let replaced = own.placed.rule.name.as_ref().is_some_and(|name| {
                        others.any(|other| other.placed.rule.replaces().contains(name))
                    });
                    let (way, rule) = (own.placed.way.clone(), own.placed.rule.clone());
                    match replaced {
                        true => IsUnder::Replaced(way, rule),
                        false => IsUnder::Rule(way, rule),
                    }
                }
                (None, Some(limit)) if domain.is_some() => IsUnder::Override(limit),
                (None, _) => IsUnder::Nothing,
            };
            statuses.push((under, FREE));
        }
        if let Some(domain) = domain.filter(|_| want != Want::Reset) {
            let entries = || {
                let each = asked.descriptors.iter().enumerate();
                each.flat_map(|(place, one)| one.entries.iter().map(move |entry| (place, *entry)))
            };
            if let Some((place, _)) = entries().find(|(_, entry)| is_listed(&domain.deny, *entry)) {
                if want != Want::Refund {
                    statuses[place].1.outcome = Outcome::Never { max_cost: 0 };
                }
                return Told { allowed: want == Want::Refund, statuses };
            }
            if entries().any(|(_, entry)| is_listed(&domain.allow, entry)) {
                return Told { allowed: true, statuses };
            }
        }
        // Of each that is asked by a rule, whose counter it is, and the cost.
        let whose: Vec<Option<(Who, u64)>> = (0..statuses.len())
            .map(|place| {
                let IsUnder::Rule(_, rule) = &statuses[place].0 else { return None };
                let Met { placed, counted } = met[place].as_ref()?;
                let hits = asked.descriptors[place].hits.unwrap_or(asked.hits);
                let cost = hits.saturating_mul(rule.cost).min(EXACT_MAX);
                Some(((placed.lasting.clone(), counted.clone()), cost))
            })
            .collect();
        // One by one: Envoy's form, what came with the request, and native ones in quota mode.
        let mut together: Vec<(usize, Who, u64)> = Vec::new();
        for (place, one) in asked.descriptors.iter().enumerate() {
            if let IsUnder::Override(limit) = statuses[place].0 {
                let cost = one.hits.unwrap_or(asked.hits).min(EXACT_MAX);
                let who = (asked.domain.to_owned(), one.entries.clone(), limit.unit);
                statuses[place].1 = self.ask_override(want, who, limit, cost, now);
            }
            let (IsUnder::Rule(_, rule), Some((who, cost))) = (&statuses[place].0, &whose[place])
            else {
                continue;
            };
            let alike = |place: &usize| matches!(&whose[*place], Some((other, _)) if other == who);
            statuses[place].1 = match (&rule.limits, rule.quota_mode) {
                (Limits::Unlimited, _) => FREE,
                (Limits::Envoy { .. }, _) => self.ask_one(want, domains, who, *cost, now),
                // Named twice it counts once, and for the most that it was named with.
                (Limits::Native(_), true) => match (0..place).find(alike) {
                    Some(first) => statuses[first].1,
                    None => {
                        let costs =
                            (0..whose.len()).filter(alike).filter_map(|p| whose[p].as_ref());
                        let most = costs.map(|(_, cost)| *cost).max().unwrap();
                        self.ask_one(want, domains, who, most, now)
                    }
                },
                (Limits::Native(_), false) => {
                    together.push((place, who.clone(), *cost));
                    FREE
                }
            };
        }
        let allowed = is_allowed(&statuses);
        if !together.is_empty() {
            let asked_as = if allowed || want.is_free() { want } else { Want::Peek };
            self.ask_together(asked_as, domains, &together, &mut statuses, now);
        }
        if want == Want::Check {
            self.count_native(&whose, &statuses, now);
        }
        Told { allowed: is_allowed(&statuses), statuses }
    }

    /// Each once, for the most that it was named with, by what it said itself.
    fn count_native(
        &mut self,
        whose: &[Option<(Who, u64)>],
        statuses: &[(IsUnder, Verdict)],
        now: Timestamp,
    ) {
        let mut counted: Vec<&Who> = Vec::new();
        for (one, (under, verdict)) in whose.iter().zip(statuses) {
            let (Some((who, _)), IsUnder::Rule(_, rule)) = (one, under) else { continue };
            if !matches!(rule.limits, Limits::Native(_)) || counted.contains(&who) {
                continue;
            }
            counted.push(who);
            let alike = whose.iter().flatten().filter(|(other, _)| other == who);
            let most = alike.map(|(_, cost)| *cost).max().unwrap();
            let stats = self.counts.rules.entry(who.0.clone()).or_default();
            on_rule(stats, rule, most, verdict, now);
        }
    }

    fn ask_one(
        &mut self,
        want: Want,
        domains: &[Domain],
        who: &Who,
        cost: u64,
        now: Timestamp,
    ) -> Verdict {
        let (number, rule) = of_lasting(domains, &who.0);
        let spare_capacity = self.is_open(&who.0, &rule, now);
        let op = self.op(want, cost);
        let account = self.accounts.entry(who.clone()).or_default();
        let answer = account.apply(&steps(&rule, number, now), op, Moment { now, spare_capacity });
        // What has no meaning for a limit leaves it as it was.
        let verdict = answer.map_or(FREE, |answer| answer.verdict);
        if let (Want::Check, Limits::Envoy { requests_per_unit, .. }) = (want, &rule.limits) {
            let stats = self.counts.rules.entry(who.0.clone()).or_default();
            on_counter(stats, *requests_per_unit, cost, account, &verdict);
        }
        verdict
    }

    fn ask_together(
        &mut self,
        want: Want,
        domains: &[Domain],
        asked: &[(usize, Who, u64)],
        statuses: &mut [(IsUnder, Verdict)],
        now: Timestamp,
    ) {
        let mut each: Vec<(Who, u64)> = Vec::new();
        for (_, who, cost) in asked {
            match each.iter_mut().find(|(known, _)| known == who) {
                Some((_, most)) => *most = (*most).max(*cost),
                None => each.push((who.clone(), *cost)),
            }
        }
        let rule = |who: &Who| of_lasting(domains, &who.0);
        let mut verdicts = Vec::new();
        if want.is_free() || each.len() == 1 {
            for (who, cost) in &each {
                verdicts.push(self.ask_one(want, domains, who, *cost, now));
            }
        } else {
            let op = self.op(want, each.iter().map(|(_, cost)| *cost).max().unwrap());
            let plans: Vec<Vec<EnforcedLimit>> =
                each.iter().map(|(who, _)| steps(&rule(who).1, rule(who).0, now)).collect();
            let open: Vec<bool> =
                each.iter().map(|(who, _)| self.is_open(&who.0, &rule(who).1, now)).collect();
            let kept = |(who, _): &(Who, u64)| self.accounts.get(who).cloned().unwrap_or_default();
            let mut accounts: Vec<Account> = each.iter().map(kept).collect();
            let mut parts: Vec<Part<'_>> = Vec::new();
            for (place, account) in accounts.iter_mut().enumerate() {
                let (plan, cost) = (plans[place].as_slice(), Some(each[place].1));
                parts.push(Part { plan, account, spare_capacity: open[place], cost });
            }
            apply_to_each(&mut parts, op, now, &mut verdicts).unwrap();
            // Cost 0 leaves no trace.
            for ((who, cost), account) in each.iter().zip(accounts) {
                if *cost > 0 {
                    self.accounts.insert(who.clone(), account);
                }
            }
        }
        for (place, who, _) in asked {
            let said = each.iter().position(|(known, _)| known == who).unwrap();
            statuses[*place].1 = verdicts[said];
        }
    }

    fn ask_override(
        &mut self,
        want: Want,
        who: (String, Entries, Unit),
        limit: Override,
        cost: u64,
        now: Timestamp,
    ) -> Verdict {
        let op = self.op(want, cost);
        let new = [tally(limit.requests_per_unit, limit.unit)];
        let (last, account) = self.overrides.entry(who).or_default();
        let old = [tally(*last, limit.unit)];
        account.change(&old, &new, &[Some(0)], CarryOver::Used, now);
        *last = limit.requests_per_unit;
        let verdict = account.apply(&new, op, Moment::at(now)).unwrap().verdict;
        if want == Want::Check {
            let stats = &mut self.counts.overrides;
            on_counter(stats, limit.requests_per_unit, cost, account, &verdict);
        }
        verdict
    }

    fn op(&mut self, want: Want, cost: u64) -> Op {
        self.holders += 1;
        match want {
            Want::Check => Op::Hit { cost, holder: Some(Holder(self.holders)) },
            Want::Peek => Op::Peek { cost },
            Want::Refund => Op::Refund { cost },
            Want::Reset => Op::Reset,
        }
    }

    fn is_open(&self, lasting: &Lasting, rule: &RuleConfig, now: Timestamp) -> bool {
        matches!(rule.mode, Mode::Elastic { .. })
            && self.gates.get(lasting).is_some_and(|gate| gate.is_open(now))
    }
}

/// What happens to everybody at once.
impl Model {
    pub fn set_load(&mut self, load: u64, now: Timestamp) {
        self.load = Some((load, now));
        for placed in all(&self.domains) {
            if let Mode::Elastic { gate: levels, .. } = placed.rule.mode {
                let gate = self.gates.entry(placed.lasting).or_default();
                *gate = gate.observe(&levels, load, now);
            }
        }
    }

    pub fn reload(&mut self, domains: Vec<Domain>, now: Timestamp) {
        let before = std::mem::take(&mut self.domains);
        let (old, new) = (all(&before), all(&domains));
        let accounts = std::mem::take(&mut self.accounts);
        for (who, mut account) in accounts {
            let Some(new) = new.iter().find(|placed| placed.lasting == who.0) else { continue };
            let old = old.iter().find(|placed| placed.lasting == who.0).unwrap();
            if old.rule.limits != new.rule.limits || old.rule.mode != new.rule.mode {
                let from = continued(old.rule, new.rule);
                let (old, new) = (steps(old.rule, 0, now), steps(new.rule, 0, now));
                account.change(&old, &new, &from, CarryOver::Used, now);
            }
            self.accounts.insert(who, account);
        }
        let mut gates = HashMap::new();
        for placed in &new {
            let Mode::Elastic { gate: levels, .. } = placed.rule.mode else { continue };
            let was = old.iter().find(|old| old.lasting == placed.lasting);
            let was = was.filter(|old| matches!(old.rule.mode, Mode::Elastic { .. }));
            // Who becomes elastic hears the last signal; who was so already has heard it.
            let gate = match (was, self.load) {
                (Some(_), _) => self.gates.get(&placed.lasting).copied().unwrap_or_default(),
                (None, Some((load, at))) => Gate::default().observe(&levels, load, at),
                (None, None) => Gate::default(),
            };
            gates.insert(placed.lasting.clone(), gate);
        }
        self.gates = gates;
        let goes_on = |lasting: &Lasting| new.iter().any(|placed| placed.lasting == *lasting);
        self.counts.rules.retain(|lasting, _| goes_on(lasting));
        drop(new);
        self.domains = domains;
    }

    /// Whether all rules that anything is kept of are in another set too.
    pub fn all_go_on(&self, domains: &[Domain]) -> bool {
        let new = all(domains);
        self.accounts.keys().all(|who| new.iter().any(|placed| placed.lasting == who.0))
    }

    /// Another process goes on from what was saved: nobody has told it of a load.
    pub fn restart(&mut self) {
        self.gates.clear();
        self.load = None;
        self.counts = Counts::default();
    }

    /// The clock may not go back to before this: something has run out then, and the store may have forgotten it since, or not.
    pub fn earliest(&self) -> Timestamp {
        self.ran_out
    }

    /// The clock went on.
    pub fn advanced(&mut self, now: Timestamp) {
        let placed = all(&self.domains);
        let mut latest = self.ran_out;
        let mut look = |steps: &[EnforcedLimit], account: &Account| {
            for (step, (plain, boost)) in steps.iter().zip(account.clone().into_states().unwrap()) {
                let boost = step.boost().map(|limit| limit.expires_at(&boost));
                for ends in [Some(step.limit().expires_at(&plain)), boost].into_iter().flatten() {
                    if ends <= now {
                        latest = latest.max(ends);
                    }
                }
            }
        };
        for (who, account) in &self.accounts {
            let rule = placed.iter().find(|placed| placed.lasting == who.0).unwrap().rule;
            look(&steps(rule, 0, now), account);
        }
        for ((_, _, unit), (last, account)) in &self.overrides {
            look(&[tally(*last, *unit)], account);
        }
        self.ran_out = latest;
    }
}

fn is_allowed(statuses: &[(IsUnder, Verdict)]) -> bool {
    // A rule without a limit does not count as a quota.
    let quota = |under: &IsUnder| {
        let IsUnder::Rule(_, rule) = under else { return false };
        rule.quota_mode && !matches!(rule.limits, Limits::Unlimited)
    };
    let mut quotas = statuses.iter().filter(|(under, _)| quota(under)).peekable();
    let exhausted = quotas.peek().is_some() && quotas.all(|(_, said)| !said.is_allowed());
    let mut others = statuses.iter().filter(|(under, _)| !quota(under));
    !exhausted && others.all(|(_, said)| said.is_allowed())
}

/// A rule, and a number that no other has.
fn of_lasting(domains: &[Domain], lasting: &Lasting) -> (usize, RuleConfig) {
    let placed = all(domains);
    let number = placed.iter().position(|placed| placed.lasting == *lasting).unwrap();
    (number, placed[number].rule.clone())
}

/// The limits of a rule at a moment.
fn steps(rule: &RuleConfig, number: usize, now: Timestamp) -> Vec<EnforcedLimit> {
    match &rule.limits {
        Limits::Unlimited => vec![Limit::Unlimited],
        Limits::Envoy { requests_per_unit, unit } => {
            vec![*tally(*requests_per_unit, *unit).limit()]
        }
        Limits::Native(limits) => limits.iter().map(|limit| limit.at(now)).collect(),
    }
    .into_iter()
    .map(|limit| EnforcedLimit::new(limit, rule.mode).unwrap().of_rule(number))
    .collect()
}

fn tally(most: u32, unit: Unit) -> EnforcedLimit {
    let tally = Tally::new(u64::from(most), unit.span()).unwrap();
    EnforcedLimit::new(Limit::Tally(tally), Mode::Hard).unwrap()
}

/// Limits are matched by name, nameless ones by their place.
fn continued(old: &RuleConfig, new: &RuleConfig) -> Vec<Option<usize>> {
    let names = |rule: &RuleConfig| match &rule.limits {
        Limits::Native(limits) => {
            limits.iter().map(|limit| limit.name().map(str::to_owned)).collect()
        }
        Limits::Unlimited | Limits::Envoy { .. } => vec![None],
    };
    let (old, new) = (names(old), names(new));
    let from = |(place, name): (usize, &Option<String>)| match name {
        Some(_) => old.iter().position(|known| known == name),
        None => old.get(place).filter(|known| known.is_none()).map(|_| place),
    };
    new.iter().enumerate().map(from).collect()
}
