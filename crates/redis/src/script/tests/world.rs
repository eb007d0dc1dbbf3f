//! The same identities twice: as accounts of the core, and as records on a server.

mod damage;
mod leasing;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::account::{Account, Answer, Details, Part, apply_to_each, apply_with_details};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::record::{Member, Record};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::limit::continued;
use sluicegate_testkit::redis::Single;
use tokio::runtime::Runtime;

use super::anything::{Asked, EDGE_EVERY, Event, KEYS, NEXT_EDGE, Ruled, Turn};
use crate::connection::{Address, Link, LinkOptions};
use crate::script::optimistic::{OptimisticError, OptimisticPart, OptimisticUpdates};
use crate::script::{
    Combine, RuleRegistry, ScriptAnswer, ScriptOp, ScriptOutcome, ScriptPart, ScriptRequest,
    ScriptRule, decode, encode,
};
use sluicegate::Returned;
use sluicegate::backend::Rule;
use sluicegate::backend::UNCOUNTED;

/// A server and a link to it.
pub(super) struct Bench {
    _server: Single,
    runtime: Runtime,
    link: Link,
    registry: RuleRegistry,
    next: std::cell::Cell<u64>,
}

/// Some identities under some limits, at some time.
pub(super) struct World<'a> {
    bench: &'a Bench,
    name: u64,
    now: Timestamp,
    rules: Vec<Arc<Rule>>,
    accounts: Vec<Account>,
    /// Numbers of requests by the script and by the optimistic path.
    pub(super) ways: (u64, u64),
    /// Numbers of lease calls by the script and by the optimistic path.
    pub(super) leased: (u64, u64),
    /// That of the last lease call.
    serial: u64,
    /// A corrupted identity, which the model does not follow: its calls must succeed.
    victim: Option<usize>,
}

impl Bench {
    pub(super) fn start() -> Self {
        let server = Single::start();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        // Far more than a call needs, however busy the machine.
        let ample = Duration::from_secs(20);
        let options = LinkOptions { timeout: ample, connect_timeout: ample, ..Default::default() };
        let address = Address::parse(server.url()).unwrap();
        let link = runtime.block_on(async { Link::open(address, options) }).unwrap();
        let registry = RuleRegistry::new(b"t:");
        Self { _server: server, runtime, link, registry, next: std::cell::Cell::new(0) }
    }

    pub(super) fn world(&self, start: u64, rules: &[Ruled]) -> World<'_> {
        self.next.set(self.next.get() + 1);
        let rules = (1..).zip(rules).map(|(number, ruled)| Arc::new(ruled.rule(number))).collect();
        World {
            bench: self,
            name: self.next.get(),
            now: Timestamp::from_micros(start),
            rules,
            accounts: vec![Account::default(); KEYS],
            ways: (0, 0),
            leased: (0, 0),
            serial: 0,
            victim: None,
        }
    }
}

impl World<'_> {
    /// Excludes a corrupted identity from the comparison.
    pub(super) fn with_victim(self, victim: usize) -> Self {
        Self { victim: Some(victim), ..self }
    }

    /// A charge replaces the corrupt record of the victim.
    pub(super) fn recover_victim(&mut self) -> Result<(), String> {
        let Some(victim) = self.victim else { return Ok(()) };
        let part = [self.long_part(victim, false)];
        let updates = self.updates();
        match self.bench.run(updates.apply(&part, Op::Charge { cost: 1 })) {
            Err(OptimisticError::Refused(_)) => return Ok(()),
            done => done.map_err(|error| error.to_string())?,
        };
        let read = self.bench.run(updates.read_all(&part));
        let (_, records) = read.map_err(|error| error.to_string())?;
        match records[0].is_corrupt {
            true => Err(format!("still damaged: {}", records[0].stored())),
            false => Ok(()),
        }
    }

    fn updates(&self) -> OptimisticUpdates<'_> {
        let Bench { link, registry, .. } = &self.bench;
        OptimisticUpdates { link, registry, clock: Some(self.now) }
    }

    fn is_victim(&self, key: usize) -> bool {
        self.victim == Some(key)
    }

    /// Applies a turn to both; returns their difference.
    pub(super) fn take(&mut self, turn: &Turn) -> Result<(), String> {
        let now = self.now.as_micros() as i64;
        let on = if turn.on == NEXT_EDGE { EDGE_EVERY - now % EDGE_EVERY } else { turn.on };
        let now = now.saturating_add(on).clamp(0, NOW_MAX.as_micros() as i64);
        self.now = Timestamp::from_micros(now as u64);
        match &turn.event {
            Event::Asks(requests) => self.ask(requests)?,
            Event::Lease(all) => self.lease(all)?,
            Event::Long { op, keys, spare_capacity } => self.long(*op, keys, *spare_capacity)?,
            Event::Renew { key, holder } => self.renew(*key, *holder)?,
            Event::Forget { key, holder } => self.forget(*key, *holder)?,
            Event::Change { key, rule, keep } => self.change(*key, rule, *keep)?,
        }
        self.compare_states()
    }

    fn ask(&mut self, requests: &[Asked]) -> Result<(), String> {
        for asked in requests {
            for part in &asked.parts {
                self.publish_rule(part.key);
            }
        }
        let sent: Vec<ScriptRequest> = requests.iter().map(|asked| self.ask_of(asked)).collect();
        let clock = Some(self.now);
        let reply = self.bench.run(self.bench.link.call(&encode(&sent, clock)));
        let reply = reply.map_err(|error| error.to_string())?;
        let all = decode(&sent, reply.clone()).map_err(|error| format!("{error}: {reply:?}"));
        let all = all?;
        // Requests of the optimistic path follow the others, independently of them.
        let (mut wanted, mut later) = (Vec::new(), Vec::new());
        for (index, said) in all.iter().enumerate() {
            match said {
                ScriptOutcome::Decided { answers, now, .. } => {
                    same("the time", &(*now, self.now), &(self.now, self.now))?;
                    self.ways.0 += 1;
                    wanted.push((index, answers.clone()));
                }
                ScriptOutcome::Unsupported => {
                    self.ways.1 += 1;
                    later.push(index);
                }
            }
        }
        for (index, each) in wanted {
            if !self.is_victim(requests[index].parts[0].key) {
                same("asked", &each, &self.model(&requests[index]))?;
            }
        }
        for index in later {
            let mut each = Vec::new();
            for _ in 0..sent[index].count {
                let decided = self.bench.run(self.updates().decide(&sent[index]));
                each.push(decided.map_err(|error| error.to_string())?.0);
            }
            if !self.is_victim(requests[index].parts[0].key) {
                same("asked the long way", &each, &self.model(&requests[index]))?;
            }
        }
        Ok(())
    }

    fn ask_of(&self, asked: &Asked) -> ScriptRequest {
        let part = |part: &super::anything::AskedPart| ScriptPart {
            key: self.key(part.key),
            rule: self.rule(part.key),
            cost: part.cost,
            spare_capacity: part.spare_capacity,
            combine: part.combine,
        };
        let parts = asked.parts.iter().map(part).collect();
        ScriptRequest { parts, op: asked.op, holder: asked.holder, count: asked.count }
    }

    /// The core's answers to a request, by the rules of the engine.
    fn model(&mut self, asked: &Asked) -> Vec<ScriptAnswer> {
        (0..asked.count).map(|_| self.model_once(asked)).collect()
    }

    fn model_once(&mut self, asked: &Asked) -> ScriptAnswer {
        let mut verdicts = vec![UNCOUNTED; asked.parts.len()];
        let mut returned = Vec::new();
        let (mut denied, mut quotas) = (false, Vec::new());
        let hits = asked.op == ScriptOp::Hit;
        let together = |combine: Combine| combine == Combine::AllOrNothing;
        // All-or-nothing parts are denied together, even where independent parts are admitted.
        let sent = self.ask_of(asked);
        for (index, part) in asked.parts.iter().enumerate() {
            if hits && together(part.combine) || !hits && sent.skips(&sent.parts[index]) {
                continue;
            }
            let op = op_of(asked.op, part.cost, asked.holder);
            let plan = self.rules[part.key].plan_at(self.now);
            let one = Part {
                plan: &plan.steps,
                account: &mut self.accounts[part.key],
                spare_capacity: part.spare_capacity,
                cost: None,
            };
            let mut details = Details::default();
            if let Ok(answer) = apply_with_details(&mut [one], op, self.now, &mut details) {
                verdicts[index] = answer.verdict;
                returned.extend(Returned::of_limits(index, &details.returned));
            }
            let no = !verdicts[index].is_allowed();
            match part.combine {
                Combine::Quota => quotas.push(no),
                _ => denied |= no,
            }
        }
        let mut allowed = !denied && (quotas.is_empty() || quotas.contains(&false));
        if hits && asked.parts.iter().any(|part| together(part.combine)) {
            let indices: Vec<usize> =
                (0..asked.parts.len()).filter(|at| together(asked.parts[*at].combine)).collect();
            let cost = indices.iter().map(|at| asked.parts[*at].cost).max().unwrap();
            let op = if allowed { op_of(asked.op, cost, asked.holder) } else { Op::Peek { cost } };
            let some: Vec<_> = indices
                .iter()
                .map(|at| &asked.parts[*at])
                .map(|p| (p.key, p.spare_capacity, Some(p.cost)))
                .collect();
            // A hit that is rejected is rejected as a peek too.
            let refused = sent.skips(&sent.parts[indices[0]]);
            if !refused && let Ok((answer, mut each)) = self.core(op, &some) {
                if let [only] = each.as_mut_slice() {
                    *only = answer.verdict;
                }
                for (at, verdict) in indices.into_iter().zip(each) {
                    verdicts[at] = verdict;
                    allowed &= verdict.is_allowed();
                }
            }
        }
        ScriptAnswer { allowed, verdicts, returned }
    }

    fn long(&mut self, op: Op, keys: &[usize], spare_capacity: bool) -> Result<(), String> {
        keys.iter().for_each(|key| self.publish_rule(*key));
        let parts: Vec<OptimisticPart> =
            keys.iter().map(|key| self.long_part(*key, spare_capacity)).collect();
        let said = match self.bench.run(self.updates().apply(&parts, op)) {
            Ok(said) => Ok((said.answer, said.each)),
            Err(OptimisticError::Refused(refusal)) => Err(refusal),
            Err(error) => return Err(error.to_string()),
        };
        if keys.iter().any(|key| self.is_victim(*key)) {
            return Ok(());
        }
        let some: Vec<_> = keys.iter().map(|key| (*key, spare_capacity, None)).collect();
        same("the long way", &said, &self.core(op, &some))
    }

    fn renew(&mut self, key: usize, holder: Holder) -> Result<(), String> {
        let part = self.long_part(key, false);
        let updates = self.updates();
        let said = updates.renew(&part, holder);
        let said = self.bench.run(said).map_err(|error| error.to_string())?;
        if self.is_victim(key) {
            return Ok(());
        }
        let plan = self.rules[key].plan_at(self.now);
        same("renewed", &said, &self.accounts[key].renew(&plan.steps, holder, self.now))
    }

    fn forget(&mut self, key: usize, holder: Holder) -> Result<(), String> {
        let part = self.long_part(key, false);
        let updates = self.updates();
        let said = updates.forget(&part, holder);
        self.bench.run(said).map_err(|error| error.to_string())?;
        self.accounts[key].forget(holder);
        Ok(())
    }

    fn change(&mut self, key: usize, ruled: &Ruled, carry_over: CarryOver) -> Result<(), String> {
        let rule = Arc::new(ruled.rule(key + 1));
        let old = std::mem::replace(&mut self.rules[key], rule);
        let (was, is) = (old.plan_at(self.now), self.rules[key].plan_at(self.now));
        let from = continued(&self.rules[key].limits, &old.limits);
        self.accounts[key].change(&was.steps, &is.steps, &from, carry_over, self.now);
        let part = OptimisticPart { carry_over, ..self.long_part(key, false) };
        let look = Op::Peek { cost: 0 };
        let was = ScriptRule::new(was);
        if self.rule(key).params.fingerprint() == was.params.fingerprint() {
            let updates = self.updates();
            let said = updates.convert(&part, &was);
            return self.bench.run(said).map_err(|error| error.to_string());
        }
        let parts = [part];
        let updates = self.updates();
        let said = updates.apply(&parts, look);
        self.bench.run(said).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// The core's answer to all of these at once.
    fn core(
        &mut self,
        op: Op,
        some: &[(usize, bool, Option<u64>)],
    ) -> Result<(Answer, Vec<Verdict>), Refusal> {
        let plans: Vec<_> =
            some.iter().map(|(key, ..)| self.rules[*key].plan_at(self.now)).collect();
        let mut accounts: Vec<Account> =
            some.iter().map(|(key, ..)| self.accounts[*key].clone()).collect();
        let parts = accounts.iter_mut().zip(&plans).zip(some);
        let mut parts: Vec<Part<'_>> = parts
            .map(|((account, plan), (_, spare_capacity, cost))| Part {
                plan: &plan.steps,
                account,
                spare_capacity: *spare_capacity,
                cost: *cost,
            })
            .collect();
        let mut each = Vec::new();
        let answer = apply_to_each(&mut parts, op, self.now, &mut each)?;
        for ((key, ..), account) in some.iter().zip(accounts) {
            self.accounts[*key] = account;
        }
        Ok((answer, each))
    }

    /// The stored state and the core's must be equivalent from now on. They may differ only where
    /// time steps back, and then both are valid: the core continues from the stored state.
    fn compare_states(&mut self) -> Result<(), String> {
        for key in (0..KEYS).filter(|key| self.victim != Some(*key)) {
            let part = self.long_part(key, false);
            let updates = self.updates();
            let read = updates.read_all(std::slice::from_ref(&part));
            let (_, records) = self.bench.run(read).map_err(|error| error.to_string())?;
            let stored = &records[0];
            if stored.is_corrupt || stored.is_converted {
                return Err(format!("key {key} cannot be read: {:?}", stored.stored()));
            }
            let found = self.settled(key, stored.account.clone());
            let wanted = self.settled(key, self.accounts[key].clone());
            if found != wanted {
                let shown = stored.stored();
                return Err(format!(
                    "key {key} at {:?}\n stored {shown}\n  found {found:?}\n wanted {wanted:?}",
                    self.now
                ));
            }
            self.accounts[key] = stored.account.clone();
        }
        Ok(())
    }

    /// How often the store was given something back.
    fn epoch(&self, key: usize) -> Result<u64, String> {
        let part = [self.long_part(key, false)];
        let updates = self.updates();
        let read = updates.read_all(&part);
        let (_, records) = self.bench.run(read).map_err(|error| error.to_string())?;
        Ok(records[0].epoch)
    }

    /// An account rolled forward to now, as it would be written.
    fn settled(&self, key: usize, mut account: Account) -> (String, Vec<Vec<Member>>) {
        let rule = self.rule(key);
        // An unused id: only time advances.
        account.renew(rule.steps(), Holder(u64::MAX), self.now);
        let (text, mut sets) =
            Record { epoch: 0, account }.write(rule.steps(), &rule.params.layout);
        sets.iter_mut().for_each(|set| set.sort());
        (text, sets)
    }

    fn publish_rule(&self, key: usize) {
        let rule = self.rule(key);
        self.bench.run(self.bench.registry.publish(&self.bench.link, &rule)).unwrap();
    }

    fn rule(&self, key: usize) -> Arc<ScriptRule> {
        Arc::new(ScriptRule::new(self.rules[key].plan_at(self.now)))
    }

    fn key(&self, key: usize) -> Arc<[u8]> {
        format!("t:{{{}.{key}}}", self.name).into_bytes().into()
    }

    fn long_part(&self, key: usize, spare_capacity: bool) -> OptimisticPart {
        OptimisticPart {
            key: self.key(key),
            rule: self.rule(key),
            spare_capacity,
            cost: None,
            carry_over: CarryOver::Used,
        }
    }
}

impl Bench {
    fn run<R>(&self, future: impl Future<Output = R>) -> R {
        self.runtime.block_on(future)
    }
}

fn op_of(op: ScriptOp, cost: u64, holder: Option<Holder>) -> Op {
    match op {
        ScriptOp::Hit => Op::Hit { cost, holder },
        ScriptOp::Charge => Op::Charge { cost },
        ScriptOp::Refund => Op::Refund { cost },
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}:\n  found {found:?}\n wanted {wanted:?}"))
}
