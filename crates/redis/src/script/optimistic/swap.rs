//! Reads whole records, and writes them by compare-and-swap.

use std::borrow::Cow;
use std::collections::BTreeSet;

use redis::Value;
use sluicegate_core::account::Account;
use sluicegate_core::record::{Found, Member, Record, SetContents};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::continued;

use super::{OptimisticError, OptimisticPart, OptimisticUpdates, exhausted};
use crate::call::Call;
use crate::script::reply::ReplyReader;
use crate::script::request::keys_of;
use crate::script::{BadReply, READ, SWAP, ScriptRule};

/// Lifetime of a record that has nothing but an epoch.
const EPOCH_TTL_MS: u64 = 60_000;
/// See `record.lua`: a lifetime begins at a whole millisecond.
const TTL_SLACK_MS: u64 = 2;
/// Lifetime of records whose clock is not the store's.
const GIVEN_CLOCK_TTL_MS: u64 = 3_600_000;

/// A record as it was read, with its decoded account.
pub(in crate::script) struct LoadedRecord {
    /// The record in the store.
    text: Option<Vec<u8>>,
    /// Its sorted sets in the store.
    sets: Vec<StoredSet>,
    pub(in crate::script) epoch: u64,
    pub(in crate::script) account: Account,
    /// Whether it was converted from other limits.
    pub(in crate::script) is_converted: bool,
    pub(in crate::script) is_corrupt: bool,
}

/// The record of an identity in the store.
struct StoredRecord {
    text: Option<Vec<u8>>,
    sets: Vec<StoredSet>,
}

/// A sorted set of a record.
#[derive(Debug, Default)]
struct StoredSet {
    members: Vec<Member>,
    /// Whether all names are UTF-8 and all scores integers.
    is_exact: bool,
}

impl OptimisticUpdates<'_> {
    /// Reads the records of all parts, converted to their limits, and the time.
    pub(in crate::script) async fn read_all(
        &self,
        parts: &[OptimisticPart],
    ) -> Result<(Timestamp, Vec<LoadedRecord>), OptimisticError> {
        let mut counts: Vec<usize> = parts.iter().map(|part| part.rule.params.sets()).collect();
        let (mut now, mut stored) = self.read(parts, &counts).await?;
        // Records of other limits may have other sets: those limits have to be known first.
        let mut old: Vec<Option<ScriptRule>> = parts.iter().map(|_| None).collect();
        for (index, (part, stored)) in parts.iter().zip(&stored).enumerate() {
            let Found::Other(fingerprint) = stored.decode(&part.rule) else { continue };
            if let Some(rule) = self.registry.find(self.link, &fingerprint).await? {
                let rule = ScriptRule::new(rule.plan_at(self.clock.unwrap_or(now)));
                counts[index] = counts[index].max(rule.params.sets());
                old[index] = Some(rule);
            }
        }
        if old.iter().any(Option::is_some) {
            (now, stored) = self.read(parts, &counts).await?;
        }
        let now = self.clock.unwrap_or(now);
        let all = parts.iter().zip(stored).zip(&old);
        let loaded = all.map(|((part, stored), old)| stored.load(part, old.as_ref(), now));
        Ok((now, loaded.collect()))
    }

    async fn read(
        &self,
        parts: &[OptimisticPart],
        counts: &[usize],
    ) -> Result<(Timestamp, Vec<StoredRecord>), OptimisticError> {
        let keys = parts.iter().zip(counts).flat_map(|(part, sets)| keys_of(&part.key, *sets));
        let args = counts.iter().map(|count| count.to_string().into_bytes()).collect();
        let reply = self.link.call(&Call { script: &READ, keys: keys.collect(), args }).await?;
        let mut reply = ReplyReader::new(reply)?;
        let now = Timestamp::from_micros(u64::try_from(reply.signed()?).unwrap_or(0));
        let mut records = Vec::with_capacity(parts.len());
        for count in counts {
            let text = reply.text()?;
            let sets: Result<_, BadReply> = (0..*count).map(|_| read_set(reply.next())).collect();
            records.push(StoredRecord { text, sets: sets? });
        }
        Ok((now, records))
    }

    /// Writes all records if none has changed since they were read. Returns whether it did.
    pub(super) async fn write_all(
        &self,
        records: &mut [LoadedRecord],
        parts: &[OptimisticPart],
        raises_epoch: bool,
        now: Timestamp,
    ) -> Result<bool, OptimisticError> {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (record, part) in records.iter_mut().zip(parts) {
            if raises_epoch || record.is_converted {
                // Without a record there is no older observation to distinguish.
                record.epoch = record.epoch.saturating_add(u64::from(record.text.is_some()));
            }
            keys.extend(keys_of(&part.key, record.sets.len()));
            args.extend(record.swap_args(part, now, self.clock.is_some()));
        }
        match self.link.call(&Call { script: &SWAP, keys, args }).await? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            _ => Err(OptimisticError::BadReply),
        }
    }
}

/// Reads the members of a set: names, each followed by its score.
fn read_set(value: Option<Value>) -> Result<StoredSet, BadReply> {
    let Some(Value::Array(values)) = value else { return Err(BadReply) };
    let (pairs, []) = values.as_chunks::<2>() else { return Err(BadReply) };
    let mut set = StoredSet { members: Vec::with_capacity(pairs.len()), is_exact: true };
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

impl StoredRecord {
    fn decode(&self, rule: &ScriptRule) -> Found {
        match &self.text {
            Some(text) => Record::read(text, &self.beside(), rule.steps(), &rule.params.layout),
            None => Found::Record(Record::default()),
        }
    }

    fn beside(&self) -> Vec<SetContents> {
        self.sets.iter().map(|set| SetContents::Whole(set.members.clone())).collect()
    }

    fn load(self, part: &OptimisticPart, old: Option<&ScriptRule>, now: Timestamp) -> LoadedRecord {
        let mut record = LoadedRecord {
            epoch: 0,
            account: Account::default(),
            is_converted: false,
            is_corrupt: false,
            text: None,
            sets: Vec::new(),
        };
        match self.decode(&part.rule) {
            Found::Record(Record { epoch, account }) => {
                record.epoch = epoch;
                record.account = account;
            }
            Found::Garbage => record.is_corrupt = true,
            Found::Other(_) => {
                record.is_converted = true;
                let found = old.map(|old| (old, self.decode(old)));
                match found {
                    Some((old, Found::Record(Record { epoch, mut account }))) => {
                        let (from, to) =
                            (&old.resolved.rule.limits, &part.rule.resolved.rule.limits);
                        let from = continued(to, from);
                        account.change(old.steps(), part.rule.steps(), &from, part.carry_over, now);
                        (record.epoch, record.account) = (epoch, account);
                    }
                    Some(_) => record.is_corrupt = true,
                    None => record.account = exhausted(&part.rule, now),
                }
            }
        }
        LoadedRecord { text: self.text, sets: self.sets, ..record }
    }
}

impl LoadedRecord {
    /// Raises its epoch to that of an observation; false if the record is newer.
    pub(super) fn raise_epoch(&mut self, epoch: u64) -> bool {
        let is_no_newer = self.epoch <= epoch;
        if is_no_newer {
            self.epoch = epoch;
        }
        is_no_newer
    }

    /// The record in the store, for test failures.
    #[cfg(test)]
    pub(in crate::script) fn stored(&self) -> String {
        let text = self.text.as_deref().map(String::from_utf8_lossy);
        format!("{text:?} {:?}", self.sets)
    }

    /// Arguments of `swap.lua`: the expected and the new content, and its lifetime.
    fn swap_args(
        &self,
        part: &OptimisticPart,
        now: Timestamp,
        clock_is_given: bool,
    ) -> Vec<Vec<u8>> {
        let rule = &part.rule;
        let record = Record { epoch: self.epoch, account: self.account.clone() };
        let (text, mut sets) = record.write(rule.steps(), &rule.params.layout);
        let empty = self.account.is_new();
        let gone = empty && self.epoch == 0;
        let left = self.account.expires_at(rule.steps()).since(now).as_micros();
        let ms = match clock_is_given {
            true => GIVEN_CLOCK_TTL_MS,
            false => {
                let ms = left.div_ceil(1_000).saturating_add(TTL_SLACK_MS);
                ms.max(if empty { EPOCH_TTL_MS } else { 1 })
            }
        };
        let mut args = vec![
            expected_or_new(self.text.as_deref()),
            expected_or_new((!gone).then_some(text.as_bytes())),
            ms.to_string().into_bytes(),
            self.sets.len().to_string().into_bytes(),
        ];
        // The limits before may have had more sets.
        sets.resize_with(self.sets.len(), Vec::new);
        for (set, is) in self.sets.iter().zip(sets) {
            // Members whose names are lossy cannot be removed one by one.
            let clears = self.is_corrupt || !set.is_exact;
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

fn expected_or_new(text: Option<&[u8]>) -> Vec<u8> {
    match text {
        Some(text) => [b"=".as_slice(), text].concat(),
        None => b"-".to_vec(),
    }
}
