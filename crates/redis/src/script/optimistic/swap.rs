//! Records read whole, and written if they are as they were read.

use std::borrow::Cow;
use std::collections::BTreeSet;

use redis::Value;
use sluicegate_core::account::Account;
use sluicegate_core::record::{Found, Member, Record, SetContents};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::continued;

use super::{OptimisticError, OptimisticPart, used_up};
use crate::call::Call;
use crate::connection::Link;
use crate::script::request::keys_of;
use crate::script::{BadReply, READ, RuleRegistry, SWAP, ScriptRule};

/// How long an epoch is remembered of an identity of which nothing else is.
const EPOCH_KEPT_MS: u64 = 60_000;
/// How long everything is kept where the clock is not the store's.
const GIVEN_CLOCK_MS: u64 = 3_600_000;

/// An identity as it was read, and what becomes of it.
pub(in crate::script) struct Seat {
    /// The record as it lies in the store.
    text: Option<Vec<u8>>,
    /// What lies in the sets beside it.
    sets: Vec<ReadSet>,
    pub(in crate::script) epoch: u64,
    pub(in crate::script) account: Account,
    pub(in crate::script) brought_over: bool,
    pub(in crate::script) garbage: bool,
}

/// What a store has of an identity.
struct Read {
    text: Option<Vec<u8>>,
    sets: Vec<ReadSet>,
}

/// A sorted set beside a record.
#[derive(Debug, Default)]
struct ReadSet {
    members: Vec<Member>,
    /// Whether all names are UTF-8 and all scores integers, as nodes write them.
    is_exact: bool,
}

/// Reads the records of all parts, brought over to their limits; and the time.
pub(in crate::script) async fn read_all(
    link: &Link,
    registry: &RuleRegistry,
    parts: &[OptimisticPart],
    clock: Option<Timestamp>,
) -> Result<(Timestamp, Vec<Seat>), OptimisticError> {
    let mut counts: Vec<usize> = parts.iter().map(|part| part.rule.params.sets()).collect();
    let (mut now, mut reads) = read(link, parts, &counts).await?;
    // Records of other limits may have other sets beside them: these limits have to be known first.
    let mut old: Vec<Option<ScriptRule>> = parts.iter().map(|_| None).collect();
    for ((part, seen), (old, count)) in
        parts.iter().zip(&reads).zip(old.iter_mut().zip(&mut counts))
    {
        let Found::Other(fingerprint) = seen.found(&part.rule) else { continue };
        if let Some(rule) = registry.find(link, &fingerprint).await? {
            let rule = ScriptRule::new(rule.plan_at(clock.unwrap_or(now)));
            *count = (*count).max(rule.params.sets());
            *old = Some(rule);
        }
    }
    if old.iter().any(Option::is_some) {
        (now, reads) = read(link, parts, &counts).await?;
    }
    let now = clock.unwrap_or(now);
    let seats = parts.iter().zip(reads).zip(&old);
    Ok((now, seats.map(|((part, read), old)| read.seat(part, old.as_ref(), now)).collect()))
}

async fn read(
    link: &Link,
    parts: &[OptimisticPart],
    counts: &[usize],
) -> Result<(Timestamp, Vec<Read>), OptimisticError> {
    let keys = parts.iter().zip(counts).flat_map(|(part, sets)| keys_of(&part.key, *sets));
    let args = counts.iter().map(|count| count.to_string().into_bytes()).collect();
    let reply = link.call(&Call { script: &READ, keys: keys.collect(), args }).await?;
    let Value::Array(values) = reply else { return Err(OptimisticError::BadReply) };
    let mut values = values.into_iter();
    let Some(Value::Int(now)) = values.next() else { return Err(OptimisticError::BadReply) };
    let mut reads = Vec::with_capacity(parts.len());
    for count in counts {
        let text = match values.next() {
            Some(Value::BulkString(text)) => Some(text),
            Some(Value::Nil) => None,
            _ => return Err(OptimisticError::BadReply),
        };
        let sets: Result<_, BadReply> = (0..*count).map(|_| read_set(values.next())).collect();
        reads.push(Read { text, sets: sets? });
    }
    Ok((Timestamp::from_micros(u64::try_from(now).unwrap_or(0)), reads))
}

/// The members of a set: names, each with its score behind it.
fn read_set(value: Option<Value>) -> Result<ReadSet, BadReply> {
    let Some(Value::Array(values)) = value else { return Err(BadReply) };
    let (pairs, []) = values.as_chunks::<2>() else { return Err(BadReply) };
    let mut set = ReadSet { members: Vec::with_capacity(pairs.len()), is_exact: true };
    for [name, score] in pairs {
        let (Value::BulkString(name), Value::BulkString(score)) = (name, score) else {
            return Err(BadReply);
        };
        let score = std::str::from_utf8(score).ok().and_then(|score| score.parse().ok());
        let name = String::from_utf8_lossy(name);
        set.is_exact &= score.is_some() && matches!(name, Cow::Borrowed(_));
        set.members.push(Member { score: score.unwrap_or(0), name: name.into_owned() });
    }
    Ok(set)
}

/// Writes all seats, if nobody has written since they were read. Whether it did.
pub(super) async fn write_all(
    link: &Link,
    seats: &mut [Seat],
    parts: &[OptimisticPart],
    raises_epoch: bool,
    now: Timestamp,
    clock_is_given: bool,
) -> Result<bool, OptimisticError> {
    let (mut keys, mut args) = (Vec::new(), Vec::new());
    for (seat, part) in seats.iter_mut().zip(parts) {
        if raises_epoch || seat.brought_over {
            // Of whom nothing is known there is nothing older to be told apart.
            seat.epoch = seat.epoch.saturating_add(u64::from(seat.text.is_some()));
        }
        keys.extend(keys_of(&part.key, seat.sets.len()));
        args.extend(seat.to_be(part, now, clock_is_given));
    }
    let reply = link.call(&Call { script: &SWAP, keys, args }).await?;
    match reply {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        _ => Err(OptimisticError::BadReply),
    }
}

// === impl Read ===

impl Read {
    fn found(&self, rule: &ScriptRule) -> Found {
        match &self.text {
            Some(text) => Record::read(text, &self.beside(), rule.steps(), &rule.params),
            None => Found::Record(Record::default()),
        }
    }

    fn beside(&self) -> Vec<SetContents> {
        self.sets.iter().map(|set| SetContents::Whole(set.members.clone())).collect()
    }

    fn seat(self, part: &OptimisticPart, old: Option<&ScriptRule>, now: Timestamp) -> Seat {
        let mut seat = Seat {
            epoch: 0,
            account: Account::default(),
            brought_over: false,
            garbage: false,
            text: None,
            sets: Vec::new(),
        };
        match self.found(&part.rule) {
            Found::Record(Record { epoch, account }) => {
                // What is pending and has run out is given back by whatever comes next.
                seat.epoch = epoch;
                seat.account = account;
            }
            Found::Garbage => seat.garbage = true,
            Found::Other(_) => {
                seat.brought_over = true;
                let found = old.map(|old| (old, self.found(old)));
                match found {
                    Some((old, Found::Record(Record { epoch, mut account }))) => {
                        let (from, to) = (&old.plan.rule.limits, &part.rule.plan.rule.limits);
                        let from = continued(to, from);
                        account.change(old.steps(), part.rule.steps(), &from, part.keep, now);
                        (seat.epoch, seat.account) = (epoch, account);
                    }
                    Some(_) => seat.garbage = true,
                    None => seat.account = used_up(&part.rule, now),
                }
            }
        }
        Seat { text: self.text, sets: self.sets, ..seat }
    }
}

// === impl Seat ===

impl Seat {
    /// Whether it is no newer than what was seen at this epoch; if so it is of that epoch from now on.
    pub(super) fn is_of(&mut self, epoch: u64) -> bool {
        let is_no_newer = self.epoch <= epoch;
        if is_no_newer {
            self.epoch = epoch;
        }
        is_no_newer
    }

    /// The record as it lies in the store, for people.
    #[cfg(test)]
    pub(in crate::script) fn shown(&self) -> String {
        let text = self.text.as_deref().map(String::from_utf8_lossy);
        format!("{text:?} {:?}", self.sets)
    }

    /// What the script that writes is told: what was, what is to be, and for how long.
    fn to_be(&self, part: &OptimisticPart, now: Timestamp, clock_is_given: bool) -> Vec<Vec<u8>> {
        let rule = &part.rule;
        let record = Record { epoch: self.epoch, account: self.account.clone() };
        let (text, mut sets) = record.write(rule.steps(), &rule.params);
        let empty = self.account.is_new();
        let gone = empty && self.epoch == 0;
        let left = self.account.expires_at(rule.steps()).since(now).as_micros();
        let ms = match clock_is_given {
            true => GIVEN_CLOCK_MS,
            false => left.div_ceil(1_000).max(if empty { EPOCH_KEPT_MS } else { 1 }),
        };
        let mut args = vec![
            was_or_is(self.text.as_deref()),
            was_or_is((!gone).then_some(text.as_bytes())),
            ms.to_string().into_bytes(),
            self.sets.len().to_string().into_bytes(),
        ];
        // Limits of before may have had more sets.
        sets.resize_with(self.sets.len(), Vec::new);
        for (set, is) in self.sets.iter().zip(sets) {
            // Lossy names cannot be removed one by one.
            let clears = self.garbage || !set.is_exact;
            let was = if clears { [].as_slice() } else { &set.members };
            let (was, is): (BTreeSet<&Member>, BTreeSet<&Member>) =
                (was.iter().collect(), is.iter().collect());
            let (leave, come): (Vec<_>, Vec<_>) =
                (was.difference(&is).collect(), is.difference(&was).collect());
            let publishing = if clears { "-1".to_owned() } else { leave.len().to_string() };
            args.extend([publishing, come.len().to_string()].map(String::into_bytes));
            args.extend(leave.iter().map(|member| member.name.clone().into_bytes()));
            for member in come {
                args.extend(
                    [member.score.to_string(), member.name.clone()].map(String::into_bytes),
                );
            }
        }
        args
    }
}

fn was_or_is(text: Option<&[u8]>) -> Vec<u8> {
    match text {
        Some(text) => [b"=".as_slice(), text].concat(),
        None => b"-".to_vec(),
    }
}
