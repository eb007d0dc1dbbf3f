//! The Redis commands that scripts use. Others return an error.

use super::keyspace::{Item, Keyspace, score_text};

/// Reply of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// Null.
    Nil,
    /// `OK`.
    Okay,
    /// A number.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An array.
    Array(Vec<Self>),
}

type CommandResult = Result<Reply, String>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Executes a command.
///
/// # Errors
/// Redis' error message, or that of an unsupported command.
pub(super) fn run(keys: &mut Keyspace, words: &[Vec<u8>]) -> CommandResult {
    let (name, args) = words.split_first().ok_or("ERR no command")?;
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let key = || args.first().map(Vec::as_slice).ok_or_else(|| format!("ERR {name}: no key"));
    match name.as_str() {
        "TIME" => {
            let (seconds, micros) = (keys.now_us() / 1_000_000, keys.now_us() % 1_000_000);
            Ok(Reply::Array([seconds, micros].map(|part| bulk(part.to_string())).into()))
        }
        "GET" => Ok(text_of(keys, key()?)?.map_or(Reply::Nil, |text| Reply::Bulk(text.to_vec()))),
        "SET" => set(keys, args),
        "DEL" | "UNLINK" => Ok(count(args.iter().filter(|key| keys.remove(key)).count())),
        "EXISTS" => Ok(count(args.iter().filter(|key| keys.get(key).is_some()).count())),
        "PEXPIRE" => {
            let ms = number(args.get(1))?;
            let ms = u64::try_from(ms).map_err(|_| "ERR an end in the past".to_owned())?;
            Ok(count(usize::from(keys.expire(key()?, ms))))
        }
        "PTTL" => Ok(match (keys.get(key()?), keys.left_ms(key()?)) {
            (None, _) => Reply::Int(-2),
            (_, None) => Reply::Int(-1),
            (_, Some(left)) => Reply::Int(i64::try_from(left).unwrap_or(i64::MAX)),
        }),
        "INCR" => add(keys, key()?, 1),
        "INCRBY" => add(keys, key()?, number(args.get(1))?),
        "DECRBY" => add(keys, key()?, -number(args.get(1))?),
        name if name.starts_with('H') => hash(keys, name, key()?, &args[1..]),
        name if name.starts_with('Z') => sorted(keys, name, key()?, &args[1..]),
        name => unknown(name),
    }
}

fn unknown(command: &str) -> CommandResult {
    Err(format!("ERR the simulated store does not know `{command}`: add it to store/commands.rs"))
}

fn set(keys: &mut Keyspace, args: &[Vec<u8>]) -> CommandResult {
    let [key, value, options @ ..] = args else { return Err("ERR SET: no value".into()) };
    let item = Item::Text(value.clone());
    match options {
        [] => keys.put(key, item),
        [option] if option.eq_ignore_ascii_case(b"KEEPTTL") => keys.change(key, item),
        [px, ms] if px.eq_ignore_ascii_case(b"PX") => {
            let ms = u64::try_from(number(Some(ms))?).ok().filter(|ms| *ms > 0);
            keys.put(key, item);
            keys.expire(key, ms.ok_or("ERR invalid expire time in 'set' command")?);
        }
        _ => return unknown("SET with these options"),
    }
    Ok(Reply::Okay)
}

fn add(keys: &mut Keyspace, key: &[u8], by: i64) -> CommandResult {
    let was = match text_of(keys, key)? {
        Some(text) => number(Some(&text.to_vec()))?,
        None => 0,
    };
    let is = was.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    keys.change(key, Item::Text(is.to_string().into_bytes()));
    Ok(Reply::Int(is))
}

// === hashes ===

fn hash(keys: &mut Keyspace, name: &str, key: &[u8], args: &[Vec<u8>]) -> CommandResult {
    let mut fields = match keys.get(key) {
        None => Vec::new(),
        Some(Item::Hash(fields)) => fields.clone(),
        Some(_) => return Err(WRONG_TYPE.into()),
    };
    let find = |fields: &[(Vec<u8>, Vec<u8>)], name: &Vec<u8>| {
        fields.iter().position(|(known, _)| known == name)
    };
    let value = |name: &Vec<u8>| {
        find(&fields, name).map_or(Reply::Nil, |index| Reply::Bulk(fields[index].1.clone()))
    };
    match (name, args) {
        ("HGET", [field]) => Ok(value(field)),
        ("HMGET", names) => Ok(Reply::Array(names.iter().map(value).collect())),
        ("HLEN", []) => Ok(count(fields.len())),
        ("HEXISTS", [field]) => Ok(count(usize::from(find(&fields, field).is_some()))),
        ("HGETALL", []) => {
            let each = fields.into_iter().flat_map(|(name, value)| [name, value]);
            Ok(Reply::Array(each.map(Reply::Bulk).collect()))
        }
        ("HKEYS", []) => {
            Ok(Reply::Array(fields.into_iter().map(|(name, _)| Reply::Bulk(name)).collect()))
        }
        ("HSET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let mut came = 0;
            for [name, value] in pairs.as_chunks::<2>().0 {
                match find(&fields, name) {
                    Some(index) => fields[index].1.clone_from(value),
                    None => {
                        came += 1;
                        fields.push((name.clone(), value.clone()));
                    }
                }
            }
            keys.change(key, Item::Hash(fields));
            Ok(count(came))
        }
        ("HINCRBY", [field, by]) => {
            let by = number(Some(by))?;
            let index = find(&fields, field);
            let was = index.map_or(Ok(0), |index| number(Some(&fields[index].1)))?;
            let is = was.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
            let text = is.to_string().into_bytes();
            match index {
                Some(index) => fields[index].1 = text,
                None => fields.push((field.clone(), text)),
            }
            keys.change(key, Item::Hash(fields));
            Ok(Reply::Int(is))
        }
        ("HDEL", names) => {
            let was = fields.len();
            fields.retain(|(name, _)| !names.contains(name));
            let gone = was - fields.len();
            if fields.is_empty() {
                keys.remove(key);
            } else {
                keys.change(key, Item::Hash(fields));
            }
            Ok(count(gone))
        }
        _ => unknown(name),
    }
}

// === sorted sets ===

fn sorted(keys: &mut Keyspace, name: &str, key: &[u8], args: &[Vec<u8>]) -> CommandResult {
    let members = match keys.get(key) {
        None => Vec::new(),
        Some(Item::Sorted(members)) => members.clone(),
        Some(_) => return Err(WRONG_TYPE.into()),
    };
    match (name, args) {
        ("ZCARD", []) => Ok(count(members.len())),
        ("ZSCORE", [member]) => {
            let found = members.iter().find(|(_, name)| name == member);
            Ok(found.map_or(Reply::Nil, |(score, _)| bulk(score_text(*score))))
        }
        ("ZCOUNT", [from, to]) => {
            let (from, to) = (Edge::read(from)?, Edge::read(to)?);
            let within =
                members.iter().filter(|(score, _)| from.is_below(*score) && to.is_above(*score));
            Ok(count(within.count()))
        }
        ("ZADD", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let mut members = members;
            let mut came = 0;
            for [score, member] in pairs.as_chunks::<2>().0 {
                let known = members.len();
                members.retain(|(_, name)| name != member);
                came += usize::from(members.len() == known);
                members.push((float(score)?, member.clone()));
            }
            put_sorted(keys, key, members);
            Ok(count(came))
        }
        ("ZREM", names) => {
            let was = members.len();
            let left: Vec<_> =
                members.into_iter().filter(|(_, name)| !names.contains(name)).collect();
            let gone = was - left.len();
            put_sorted(keys, key, left);
            Ok(count(gone))
        }
        ("ZREMRANGEBYSCORE", [from, to]) => {
            let (from, to) = (Edge::read(from)?, Edge::read(to)?);
            let was = members.len();
            let is_out = |score: f64| !(from.is_below(score) && to.is_above(score));
            let left: Vec<_> = members.into_iter().filter(|(score, _)| is_out(*score)).collect();
            let gone = was - left.len();
            put_sorted(keys, key, left);
            Ok(count(gone))
        }
        ("ZRANGE", [from, to, options @ ..]) => range(&members, from, to, options),
        _ => unknown(name),
    }
}

fn range(members: &[(f64, Vec<u8>)], from: &[u8], to: &[u8], options: &[Vec<u8>]) -> CommandResult {
    let has = |word: &[u8]| options.iter().any(|option| option.eq_ignore_ascii_case(word));
    let (by_score, with_scores) = (has(b"BYSCORE"), has(b"WITHSCORES"));
    if options.len() != usize::from(by_score) + usize::from(with_scores) {
        return unknown("ZRANGE with these options");
    }
    let found: Vec<&(f64, Vec<u8>)> = if by_score {
        let (from, to) = (Edge::read(from)?, Edge::read(to)?);
        members.iter().filter(|(score, _)| from.is_below(*score) && to.is_above(*score)).collect()
    } else {
        let index = |text: &[u8]| {
            let index = number(Some(&text.to_vec()))?;
            let length = i64::try_from(members.len()).unwrap_or(i64::MAX);
            Ok::<i64, String>(if index < 0 { index + length } else { index })
        };
        let (from, to) = (index(from)?.max(0), index(to)?);
        (0i64..)
            .zip(members)
            .filter(|(at, _)| (from..=to).contains(at))
            .map(|(_, one)| one)
            .collect()
    };
    let each = found.into_iter().flat_map(|(score, name)| {
        let score = with_scores.then(|| bulk(score_text(*score)));
        std::iter::once(Reply::Bulk(name.clone())).chain(score)
    });
    Ok(Reply::Array(each.collect()))
}

fn put_sorted(keys: &mut Keyspace, key: &[u8], mut members: Vec<(f64, Vec<u8>)>) {
    if members.is_empty() {
        keys.remove(key);
        return;
    }
    members.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    keys.change(key, Item::Sorted(members));
}

/// One end of a range of scores.
struct Edge {
    at: f64,
    is_open: bool,
}

impl Edge {
    fn read(text: &[u8]) -> Result<Self, String> {
        match text.split_first() {
            Some((b'(', rest)) => Ok(Self { at: float(rest)?, is_open: true }),
            _ => Ok(Self { at: float(text)?, is_open: false }),
        }
    }

    fn is_below(&self, score: f64) -> bool {
        if self.is_open { self.at < score } else { self.at <= score }
    }

    fn is_above(&self, score: f64) -> bool {
        if self.is_open { score < self.at } else { score <= self.at }
    }
}

// === words ===

fn text_of<'a>(keys: &'a Keyspace, key: &[u8]) -> Result<Option<&'a [u8]>, String> {
    match keys.get(key) {
        None => Ok(None),
        Some(Item::Text(text)) => Ok(Some(text)),
        Some(_) => Err(WRONG_TYPE.into()),
    }
}

fn number(word: Option<&Vec<u8>>) -> Result<i64, String> {
    let text = word.and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| "ERR value is not an integer or out of range".into())
}

fn float(word: &[u8]) -> Result<f64, String> {
    let text = std::str::from_utf8(word).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| "ERR value is not a valid float".into())
}

fn bulk(text: String) -> Reply {
    Reply::Bulk(text.into_bytes())
}

fn count(count: usize) -> Reply {
    Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
