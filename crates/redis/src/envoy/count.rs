//! From counters that are asked to commands, and from replies to what they held.

use futures_util::future::join_all;
use redis::{Cmd, Value};
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::unit::Unit;

use super::key::{key, seconds};
use super::{Counted, EnvoyCheck, EnvoyCounters, EnvoyOp, jitter};
use crate::call::{Call, CallError, Script};
use crate::connection::Link;

/// Counters in one pipeline; a request that has more is asked in several, one after the other.
const PIPELINE_MAX: usize = 256;

/// Gives back what is there and no more. A counter that is not there stays so.
static GIVE_BACK: Script = Script::new(
    "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end\n\
     local left = redis.call('DECRBY', KEYS[1], ARGV[1])\n\
     if left >= 0 then return left end\n\
     redis.call('SET', KEYS[1], '0', 'KEEPTTL')\n\
     return 0",
);

/// What a store replied to one command.
type Reply = Result<Value, Box<str>>;

/// A counter on its way: its key, and what is to be charged.
struct Due {
    key: Vec<u8>,
    unit: Unit,
    charge: u64,
    /// What is known of it here, if it is over its limit.
    remembered: Option<u64>,
}

/// Counters that go together.
struct Group {
    elsewhere: bool,
    slot: Option<u16>,
    places: Vec<usize>,
}

impl EnvoyCounters {
    /// What each of them held, and what it was charged.
    pub(crate) async fn count(
        &self,
        op: EnvoyOp,
        asks: &[EnvoyCheck<'_>],
        now: Timestamp,
    ) -> Result<Vec<Counted>, CallError> {
        let mut dues: Vec<Due> = asks.iter().map(|ask| self.due(op, ask, now)).collect();
        let held = match op {
            EnvoyOp::Hit => {
                if self.keys.stop_increment_when_over {
                    self.spare(asks, &mut dues).await?;
                }
                self.pipeline(&dues, &[&hit, &|due| self.expire(due)]).await?
            }
            EnvoyOp::Peek => self.pipeline(&dues, &[&look]).await?,
            EnvoyOp::Reset => self.pipeline(&dues, &[&|due| one("DEL", due)]).await?,
            EnvoyOp::Refund => self.give_back(&dues).await?,
        };
        let all = asks.iter().zip(&dues).zip(held);
        Ok(all.map(|((ask, due), held)| self.counted(op, ask, due, held)).collect())
    }

    fn due(&self, op: EnvoyOp, ask: &EnvoyCheck<'_>, now: Timestamp) -> Due {
        let key = key(&self.keys.prefix, ask.text, ask.unit, now);
        let over = self.over.as_ref().filter(|_| op == EnvoyOp::Hit);
        let remembered = over.and_then(|over| over.count(&key, ask.requests_per_unit.into()));
        // What is beyond the bound denies for as long as the window lasts; so does the bound.
        Due { key, unit: ask.unit, charge: ask.cost.min(EXACT_MAX), remembered }
    }

    /// Charges nothing but what denies, if something does. Between the look and the charge others may come: as there.
    async fn spare(&self, asks: &[EnvoyCheck<'_>], dues: &mut [Due]) -> Result<(), CallError> {
        if dues.iter().any(|due| due.remembered.is_some()) {
            dues.iter_mut().for_each(|due| due.charge = 0);
            return Ok(());
        }
        let held = self.pipeline(dues, &[&look]).await?;
        let would_deny = |(ask, (due, held)): (&EnvoyCheck<'_>, (&Due, u64))| {
            held.saturating_add(due.charge) > u64::from(ask.requests_per_unit)
        };
        let denying: Vec<bool> = asks.iter().zip(dues.iter().zip(held)).map(would_deny).collect();
        if denying.contains(&true) {
            let spared = dues.iter_mut().zip(denying).filter(|(_, denies)| !denies);
            spared.for_each(|(due, _)| due.charge = 0);
        }
        Ok(())
    }

    fn counted(&self, op: EnvoyOp, ask: &EnvoyCheck<'_>, due: &Due, held: u64) -> Counted {
        if let Some(before) = due.remembered {
            // It would only have grown.
            return Counted { before, charged: ask.cost.min(EXACT_MAX), remembered: true };
        }
        let (before, charged) = match op {
            EnvoyOp::Hit => (held.saturating_sub(due.charge), due.charge),
            EnvoyOp::Peek => (held, 0),
            EnvoyOp::Refund => (held.saturating_add(due.charge), 0),
            EnvoyOp::Reset => (0, 0),
        };
        if let Some(over) = &self.over {
            match op {
                EnvoyOp::Hit if held > u64::from(ask.requests_per_unit) => {
                    over.remember(&due.key, held);
                }
                EnvoyOp::Refund | EnvoyOp::Reset => over.forget(&due.key),
                EnvoyOp::Hit | EnvoyOp::Peek => {}
            }
        }
        Counted { before: before.min(EXACT_MAX), charged, remembered: false }
    }

    fn expire(&self, due: &Due) -> Cmd {
        let mut command = one("EXPIRE", due);
        command.arg(seconds(due.unit) + jitter::below(self.keys.jitter_max_s));
        command
    }

    fn link_of(&self, due: &Due) -> &Link {
        let elsewhere = self.per_second.as_ref().filter(|_| due.unit == Unit::Second);
        elsewhere.unwrap_or(&self.link)
    }

    /// Sends these commands for each of them, and tells what the first of them replied. What lies on one server goes in one pipeline, and all
    /// servers are asked at once; nobody is asked for what is remembered.
    async fn pipeline(
        &self,
        dues: &[Due],
        commands: &[&(dyn Fn(&Due) -> Cmd + Sync)],
    ) -> Result<Vec<u64>, CallError> {
        let mut held = vec![0; dues.len()];
        for (chunk, held) in dues.chunks(PIPELINE_MAX).zip(held.chunks_mut(PIPELINE_MAX)) {
            let groups = self.groups(chunk);
            let sent = groups.iter().map(|group| {
                let first = &chunk[group.places[0]];
                let all = group
                    .places
                    .iter()
                    .flat_map(|place| commands.iter().map(|command| command(&chunk[*place])));
                self.link_of(first).pipeline(&first.key, all.collect())
            });
            for (group, replies) in groups.iter().zip(join_all(sent).await) {
                let mut replies = replies?.into_iter();
                for place in &group.places {
                    for number in 0..commands.len() {
                        let reply = number_of(replies.next())?;
                        if number == 0 {
                            held[*place] = reply;
                        }
                    }
                }
            }
        }
        Ok(held)
    }

    /// Those that go together: to one store, and of a Cluster those of one slot.
    fn groups(&self, dues: &[Due]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (place, due) in dues.iter().enumerate() {
            if due.remembered.is_some() {
                continue;
            }
            let elsewhere = self.per_second.is_some() && due.unit == Unit::Second;
            let slot = self.link_of(due).slot_of(&due.key);
            let same = |group: &&mut Group| group.elsewhere == elsewhere && group.slot == slot;
            match groups.iter_mut().find(same) {
                Some(group) => group.places.push(place),
                None => groups.push(Group { elsewhere, slot, places: vec![place] }),
            }
        }
        groups
    }

    async fn give_back(&self, dues: &[Due]) -> Result<Vec<u64>, CallError> {
        let mut held = Vec::with_capacity(dues.len());
        for due in dues {
            let args = vec![due.charge.to_string().into_bytes()];
            let call = Call { script: &GIVE_BACK, keys: vec![due.key.clone()], args };
            let reply = self.link_of(due).call(&call).await?;
            held.push(number_of(Some(Ok(reply)))?);
        }
        Ok(held)
    }
}

fn one(name: &str, due: &Due) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(&due.key);
    command
}

fn look(due: &Due) -> Cmd {
    one("GET", due)
}

fn hit(due: &Due) -> Cmd {
    let mut command = one("INCRBY", due);
    command.arg(due.charge);
    command
}

/// What a counter holds: nothing if it is not there, nothing below 0, and all that fits if there is no room for more.
fn number_of(reply: Option<Reply>) -> Result<u64, CallError> {
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
        Some(Ok(_)) => refused("a counter's reply is no number"),
        None => Err(CallError::Broken),
    }
}
