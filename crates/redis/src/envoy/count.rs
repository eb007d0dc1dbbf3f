//! Keys and commands of counters, and their replies.

use futures_util::future::join_all;
use redis::{Cmd, Value};
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::unit::Unit;

use super::{CounterReading, EnvoyCheck, EnvoyCounters, EnvoyOp};
use crate::call::{Call, CallError, Script};
use crate::connection::Link;

const SECOND_US: u64 = 1_000_000;

/// Counters of one pipeline. A larger request takes several, one after the other.
const PIPELINE_MAX: usize = 256;

/// Refunds down to zero. A missing counter stays missing.
pub(crate) static REFUND: Script = Script::new(
    "if #KEYS == 0 then return end\n\
     if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end\n\
     local left = redis.call('DECRBY', KEYS[1], ARGV[1])\n\
     if left >= 0 then return left end\n\
     redis.call('SET', KEYS[1], '0', 'KEEPTTL')\n\
     return 0",
);

/// Reply to one command.
type CommandReply = Result<Value, Box<str>>;

/// A charge of a counter.
struct Charge {
    key: Vec<u8>,
    unit: Unit,
    amount: u64,
    /// Its cached count, if it is over its limit.
    cached: Option<u64>,
}

/// Counters of one pipeline.
struct PipelineGroup {
    is_per_second: bool,
    slot: Option<u16>,
    indices: Vec<usize>,
}

/// The key of a counter's current window.
fn window_key(prefix: &str, text: &[u8], unit: Unit, now: Timestamp) -> Vec<u8> {
    let start = start_s(unit, now).to_string();
    [prefix.as_bytes(), text, start.as_bytes()].concat()
}

/// Start of the current window, in seconds.
pub(super) fn start_s(unit: Unit, now: Timestamp) -> u64 {
    let now_s = now.as_micros() / SECOND_US;
    now_s - now_s % seconds(unit)
}

const fn seconds(unit: Unit) -> u64 {
    unit.span().as_micros() / SECOND_US
}

/// A random number below `bound`, so that keys of one window do not expire at once.
fn jitter(bound: u64) -> u64 {
    if bound == 0 { 0 } else { fastrand::u64(..bound) }
}

impl EnvoyCounters {
    /// Executes an operation on all counters.
    pub(crate) async fn count(
        &self,
        op: EnvoyOp,
        checks: &[EnvoyCheck<'_>],
        now: Timestamp,
    ) -> Result<Vec<CounterReading>, CallError> {
        let mut charges: Vec<Charge> =
            checks.iter().map(|check| self.charge(op, check, now)).collect();
        let held = match op {
            EnvoyOp::Hit => {
                if self.keys.stop_increment_when_over {
                    self.retain_denying(checks, &mut charges).await?;
                }
                self.pipeline(&charges, &[&increment, &|charge| self.expire(charge)]).await?
            }
            EnvoyOp::Peek => self.pipeline(&charges, &[&get]).await?,
            EnvoyOp::Reset => self.pipeline(&charges, &[&|charge| command("DEL", charge)]).await?,
            EnvoyOp::Refund => self.refund(&charges).await?,
        };
        let all = checks.iter().zip(&charges).zip(held);
        Ok(all.map(|((check, charge), held)| self.reading(op, check, charge, held)).collect())
    }

    fn charge(&self, op: EnvoyOp, check: &EnvoyCheck<'_>, now: Timestamp) -> Charge {
        let key = window_key(&self.keys.prefix, check.text, check.unit, now);
        let over = self.over_limit.as_ref().filter(|_| op == EnvoyOp::Hit);
        let cached = over.and_then(|over| over.count(&key, check.requests_per_unit.into()));
        // A cost at the bound denies for the whole window, like a larger one.
        Charge { key, unit: check.unit, amount: check.cost.min(EXACT_MAX), cached }
    }

    /// Charges only the denying counters, if there are any. Not atomic, as in the original.
    async fn retain_denying(
        &self,
        checks: &[EnvoyCheck<'_>],
        charges: &mut [Charge],
    ) -> Result<(), CallError> {
        if charges.iter().any(|charge| charge.cached.is_some()) {
            charges.iter_mut().for_each(|charge| charge.amount = 0);
            return Ok(());
        }
        let held = self.pipeline(charges, &[&get]).await?;
        let would_deny = |(check, (charge, held)): (&EnvoyCheck<'_>, (&Charge, u64))| {
            held.saturating_add(charge.amount) > u64::from(check.requests_per_unit)
        };
        let denying: Vec<bool> =
            checks.iter().zip(charges.iter().zip(held)).map(would_deny).collect();
        if denying.contains(&true) {
            let spared = charges.iter_mut().zip(denying).filter(|(_, denies)| !denies);
            spared.for_each(|(charge, _)| charge.amount = 0);
        }
        Ok(())
    }

    fn reading(
        &self,
        op: EnvoyOp,
        check: &EnvoyCheck<'_>,
        charge: &Charge,
        held: u64,
    ) -> CounterReading {
        if let Some(before) = charge.cached {
            return CounterReading { before, charged: check.cost.min(EXACT_MAX), is_cached: true };
        }
        let (before, charged) = match op {
            EnvoyOp::Hit => (held.saturating_sub(charge.amount), charge.amount),
            EnvoyOp::Peek => (held, 0),
            EnvoyOp::Refund => (held.saturating_add(charge.amount), 0),
            EnvoyOp::Reset => (0, 0),
        };
        if let Some(over) = &self.over_limit {
            match op {
                EnvoyOp::Hit if held > u64::from(check.requests_per_unit) => {
                    over.insert(&charge.key, held);
                }
                EnvoyOp::Refund | EnvoyOp::Reset => over.remove(&charge.key),
                EnvoyOp::Hit | EnvoyOp::Peek => {}
            }
        }
        CounterReading { before: before.min(EXACT_MAX), charged, is_cached: false }
    }

    fn expire(&self, charge: &Charge) -> Cmd {
        let mut command = command("EXPIRE", charge);
        command.arg(seconds(charge.unit) + jitter(self.keys.jitter_max_s));
        command
    }

    fn link_of(&self, charge: &Charge) -> &Link {
        let per_second = self.per_second.as_ref().filter(|_| charge.unit == Unit::Second);
        per_second.unwrap_or(&self.link)
    }

    /// Sends some commands per counter, and returns the reply to the first. Counters of one server
    /// share a pipeline; servers run in parallel. Cached counters are skipped.
    async fn pipeline(
        &self,
        charges: &[Charge],
        commands: &[&(dyn Fn(&Charge) -> Cmd + Sync)],
    ) -> Result<Vec<u64>, CallError> {
        let mut held = vec![0; charges.len()];
        for (chunk, held) in charges.chunks(PIPELINE_MAX).zip(held.chunks_mut(PIPELINE_MAX)) {
            let groups = self.groups(chunk);
            let sent = groups.iter().map(|group| {
                let first = &chunk[group.indices[0]];
                let all = group
                    .indices
                    .iter()
                    .flat_map(|index| commands.iter().map(|command| command(&chunk[*index])));
                self.link_of(first).pipeline(&first.key, all.collect())
            });
            for (group, replies) in groups.iter().zip(join_all(sent).await) {
                let mut replies = replies?.into_iter();
                for index in &group.indices {
                    for number in 0..commands.len() {
                        let reply = count_of(replies.next())?;
                        if number == 0 {
                            held[*index] = reply;
                        }
                    }
                }
            }
        }
        Ok(held)
    }

    /// Groups counters by store, and on a Cluster by slot.
    fn groups(&self, charges: &[Charge]) -> Vec<PipelineGroup> {
        let mut groups: Vec<PipelineGroup> = Vec::new();
        for (index, charge) in charges.iter().enumerate() {
            if charge.cached.is_some() {
                continue;
            }
            let is_per_second = self.per_second.is_some() && charge.unit == Unit::Second;
            let slot = self.link_of(charge).slot_of(&charge.key);
            let same = |group: &&mut PipelineGroup| {
                group.is_per_second == is_per_second && group.slot == slot
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.indices.push(index),
                None => groups.push(PipelineGroup { is_per_second, slot, indices: vec![index] }),
            }
        }
        groups
    }

    async fn refund(&self, charges: &[Charge]) -> Result<Vec<u64>, CallError> {
        let mut held = Vec::with_capacity(charges.len());
        for charge in charges {
            let args = vec![charge.amount.to_string().into_bytes()];
            let call = Call { script: &REFUND, keys: vec![charge.key.clone()], args };
            let reply = self.link_of(charge).call(&call).await?;
            held.push(count_of(Some(Ok(reply)))?);
        }
        Ok(held)
    }
}

fn command(name: &str, charge: &Charge) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(&charge.key);
    command
}

fn get(charge: &Charge) -> Cmd {
    command("GET", charge)
}

fn increment(charge: &Charge) -> Cmd {
    let mut command = command("INCRBY", charge);
    command.arg(charge.amount);
    command
}

/// The count of a reply: 0 if the counter is missing or negative, the maximum on overflow.
fn count_of(reply: Option<CommandReply>) -> Result<u64, CallError> {
    let refused = |why: &str| Err(CallError::Refused(why.into()));
    match reply {
        Some(Ok(Value::Int(number))) => Ok(u64::try_from(number).unwrap_or(0)),
        Some(Ok(Value::Nil)) => Ok(0),
        Some(Ok(Value::BulkString(bytes))) => {
            let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<i64>().ok());
            match number {
                Some(number) => Ok(u64::try_from(number).unwrap_or(0)),
                None => refused("ERR value is not an integer or out of range"),
            }
        }
        Some(Err(why)) if why.contains("would overflow") => Ok(u64::MAX),
        Some(Err(why)) => Err(CallError::Refused(why)),
        Some(Ok(_)) => refused("the reply of a counter is no number"),
        None => Err(CallError::Broken),
    }
}
