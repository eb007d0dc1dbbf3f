//! A line of `sluicegate try`: one operation at one moment, as JSON.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sluicegate_config::limit::limits;
use sluicegate_config::suggest::nearest;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, RESERVE_TTL};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_rules::limit::LimitConfig;

/// Maximum length of keys and ids, in bytes.
pub const KEY_BYTES_MAX: usize = 4_096;

/// One operation on one key at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Time of the operation.
    pub at: Timestamp,
    /// The key; empty if omitted.
    pub key: String,
    /// The operation.
    pub op: ScriptOp,
    /// Load signal, in thousandths of the capacity.
    pub load: Option<u64>,
}

/// The operation, before ids are mapped to holders.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of `sluicegate_core::op::Op`")]
pub enum ScriptOp {
    Hit { cost: u64, id: Option<String> },
    Acquire { cost: u64, timeout: Option<Span>, id: Option<String> },
    Peek { cost: u64 },
    Take { cost: u64 },
    Charge { cost: u64 },
    Refund { cost: u64 },
    Add { cost: u64, force: bool },
    Drain,
    Reset,
    Reserve { cost: u64, ttl: Span, id: String },
    Commit { cost: u64, id: String, partial: bool },
    Renew { ttl: Span, id: String },
    Cancel { id: String },
    SetLimit { limits: Vec<LimitConfig>, carry_over: CarryOver },
}

/// Operations, and their fields besides `at_us`, `op`, `key` and `load`.
const OPS: [(&str, &[&str]); 14] = [
    ("hit", &["cost", "id"]),
    ("acquire", &["cost", "timeout_us", "id"]),
    ("peek", &["cost"]),
    ("take", &["cost"]),
    ("charge", &["cost"]),
    ("refund", &["cost"]),
    ("add", &["cost", "force"]),
    ("drain", &[]),
    ("reset", &[]),
    ("reserve", &["cost", "ttl_us", "id"]),
    ("commit", &["cost", "id", "partial"]),
    ("renew", &["ttl_us", "id"]),
    ("cancel", &["id"]),
    ("set_limit", &["limit", "keep"]),
];

const COMMON: [&str; 4] = ["at_us", "op", "key", "load"];

impl Line {
    /// Parses a line such as `{"at_us":0,"op":"hit","cost":1,"key":"a"}`.
    ///
    /// ```
    /// use sluicegate_lab::line::{Line, ScriptOp};
    ///
    /// let line = Line::parse(r#"{"at_us":1500000}"#).unwrap();
    /// assert_eq!(line.op, ScriptOp::Hit { cost: 1, id: None });
    /// let error = Line::parse(r#"{"at_us":0,"op":"hti"}"#).unwrap_err();
    /// assert!(error.contains("did you mean `hit`?"), "{error}");
    /// ```
    ///
    /// # Errors
    /// A message with the field, its value and a correction.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            format!("not JSON ({error}); write one object a line, such as `{{\"at_us\":0,\"op\":\"hit\"}}`")
        })?;
        let Value::Object(fields) = value else {
            return Err(format!(
                "must be an object such as `{{\"at_us\":0,\"op\":\"hit\"}}`, got `{value}`"
            ));
        };
        let op = string(&fields, "op")?.unwrap_or_else(|| "hit".to_owned());
        check_fields(&fields, &op)?;
        let Some(at_us) = whole(&fields, "at_us", NOW_MAX.as_micros())? else {
            return Err(
                "`at_us` is missing: give the time in microseconds, such as `\"at_us\":0`".into()
            );
        };
        Ok(Self {
            at: Timestamp::from_micros(at_us),
            key: string(&fields, "key")?.unwrap_or_default(),
            op: script_op(&op, &fields)?,
            load: load(&fields)?,
        })
    }
}

fn script_op(op: &str, fields: &Map<String, Value>) -> Result<ScriptOp, String> {
    let cost = whole(fields, "cost", EXACT_MAX)?.unwrap_or(1);
    let id = string(fields, "id")?;
    let needed_id =
        || id.clone().ok_or_else(|| format!("`{op}` needs an `id`, such as `\"id\":\"a\"`"));
    Ok(match op {
        "hit" => ScriptOp::Hit { cost, id },
        "acquire" => ScriptOp::Acquire { cost, timeout: span(fields, "timeout_us")?, id },
        "peek" => ScriptOp::Peek { cost },
        "take" => ScriptOp::Take { cost },
        "charge" => ScriptOp::Charge { cost },
        "refund" => ScriptOp::Refund { cost },
        "add" => ScriptOp::Add { cost, force: boolean(fields, "force")?.unwrap_or(false) },
        "drain" => ScriptOp::Drain,
        "reset" => ScriptOp::Reset,
        "reserve" => {
            let ttl = span(fields, "ttl_us")?.unwrap_or(RESERVE_TTL);
            ScriptOp::Reserve { cost, ttl, id: needed_id()? }
        }
        "commit" => {
            let partial = boolean(fields, "partial")?.unwrap_or(false);
            ScriptOp::Commit { cost, id: needed_id()?, partial }
        }
        "renew" => {
            let ttl = span(fields, "ttl_us")?.unwrap_or(RESERVE_TTL);
            ScriptOp::Renew { ttl, id: needed_id()? }
        }
        "cancel" => ScriptOp::Cancel { id: needed_id()? },
        "set_limit" => {
            ScriptOp::SetLimit { limits: new_limits(fields)?, carry_over: carry_over(fields)? }
        }
        _ => return Err(unknown_op(op)),
    })
}

/// Rejects fields that the operation does not have.
fn check_fields(fields: &Map<String, Value>, op: &str) -> Result<(), String> {
    let Some((_, own)) = OPS.iter().find(|(name, _)| *name == op) else {
        return Err(unknown_op(op));
    };
    let known: Vec<&str> = COMMON.iter().chain(own.iter()).copied().collect();
    for field in fields.keys() {
        if known.contains(&field.as_str()) {
            continue;
        }
        let hint = match nearest(field, known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("`{op}` takes {}", list(&known)),
        };
        return Err(format!("unknown field `{field}` for `{op}`: {hint}"));
    }
    Ok(())
}

fn unknown_op(op: &str) -> String {
    let names: Vec<&str> = OPS.iter().map(|(name, _)| *name).collect();
    match nearest(op, names.iter().copied()) {
        Some(close) => format!("unknown op `{op}`: did you mean `{close}`?"),
        None => format!("unknown op `{op}`: use one of {}", list(&names)),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn new_limits(fields: &Map<String, Value>) -> Result<Vec<LimitConfig>, String> {
    let text = match fields.get("limit") {
        None | Some(Value::Null) => {
            return Err("`set_limit` needs a `limit`: the mapping that `--limit` takes".into());
        }
        Some(Value::String(yaml)) => yaml.clone(),
        // JSON is YAML.
        Some(json) => json.to_string(),
    };
    limits("limit", &text).map_err(|problems| problems.to_string().replace('\n', "; "))
}

fn carry_over(fields: &Map<String, Value>) -> Result<CarryOver, String> {
    const NAMES: [&str; 4] = ["used", "remaining", "proportion", "nothing"];
    match string(fields, "keep")?.as_deref() {
        None | Some("used") => Ok(CarryOver::Used),
        Some("remaining") => Ok(CarryOver::Remaining),
        Some("proportion") => Ok(CarryOver::Proportion),
        Some("nothing") => Ok(CarryOver::Nothing),
        Some(other) => {
            let hint = nearest(other, NAMES).map(|close| format!("; did you mean `{close}`?"));
            Err(format!(
                "`keep` must be one of {}, got `{other}`{}",
                list(&NAMES),
                hint.unwrap_or_default()
            ))
        }
    }
}

/// A load: a fraction up to 1, a whole percentage above that, or text with a percent sign.
fn load(fields: &Map<String, Value>) -> Result<Option<u64>, String> {
    let Some(value) = fields.get("load") else {
        return Ok(None);
    };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let (digits, percent) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim(), true),
        None => (text.as_str(), false),
    };
    let parsed = thousandths(digits).filter(|_| !value.is_boolean());
    let load = match (parsed, percent) {
        (Some(n), true) => n.div_ceil(100),
        (Some(n), false) if n <= 1_000 => n,
        (Some(n), false) if n % 1_000 == 0 => n / 100,
        _ => {
            return Err(format!(
                "`load` must be a fraction up to 1 (`0.65`), a whole percentage (`65`) or text \
                 (`\"120%\"`), got `{value}`"
            ));
        }
    };
    Ok(Some(load))
}

/// A decimal number in thousandths; digits beyond the third are dropped.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 9 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(whole.parse::<u64>().ok()? * 1_000 + padded.parse::<u64>().ok()?)
}

fn whole(fields: &Map<String, Value>, name: &str, max: u64) -> Result<Option<u64>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) if number <= max => Ok(Some(number)),
            _ => Err(format!("`{name}` must be a whole number from 0 to {max}, got `{value}`")),
        },
    }
}

fn span(fields: &Map<String, Value>, name: &str) -> Result<Option<Span>, String> {
    Ok(whole(fields, name, EXACT_MAX)?.map(Span::from_micros))
}

fn string(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= KEY_BYTES_MAX => Ok(Some(text.clone())),
        Some(Value::String(text)) => Err(format!(
            "`{name}` must be at most {KEY_BYTES_MAX} bytes long, got {} bytes",
            text.len()
        )),
        Some(value) => Err(format!("`{name}` must be text, got `{value}`: put it in quotes")),
    }
}

fn boolean(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::Bool(yes)) => Ok(Some(*yes)),
        Some(value) => Err(format!("`{name}` must be `true` or `false`, got `{value}`")),
    }
}

/// Ids of one key, in the order of first use; the index is the holder.
#[derive(Debug, Clone, Default)]
pub(crate) struct HolderIds {
    holders: HashMap<String, Holder>,
}

impl HolderIds {
    /// The operation of a line, in the core's terms.
    pub(crate) fn op(&mut self, op: &ScriptOp) -> Op {
        let mut holder = |id: &str| {
            let next = Holder(self.holders.len() as u64);
            *self.holders.entry(id.to_owned()).or_insert(next)
        };
        match op {
            ScriptOp::Hit { cost, id } => {
                Op::Hit { cost: *cost, holder: id.as_deref().map(holder) }
            }
            ScriptOp::Acquire { cost, timeout, id } => Op::Acquire {
                cost: *cost,
                max_wait: timeout.unwrap_or(Span::MAX),
                holder: id.as_deref().map(holder),
            },
            ScriptOp::Peek { cost } => Op::Peek { cost: *cost },
            ScriptOp::Take { cost } => Op::Take { cost: *cost },
            ScriptOp::Charge { cost } => Op::Charge { cost: *cost },
            ScriptOp::Refund { cost } => Op::Refund { cost: *cost },
            ScriptOp::Add { cost, force } => Op::Add { cost: *cost, force: *force },
            ScriptOp::Drain => Op::Drain,
            ScriptOp::Reset => Op::Reset,
            ScriptOp::Reserve { cost, ttl, id } => {
                Op::Reserve { cost: *cost, ttl: *ttl, holder: holder(id) }
            }
            ScriptOp::Commit { cost, id, partial: false } => {
                Op::Commit { cost: *cost, holder: holder(id) }
            }
            ScriptOp::Commit { cost, id, partial: true } => {
                Op::CommitPart { cost: *cost, holder: holder(id) }
            }
            ScriptOp::Renew { ttl, id } => Op::Renew { ttl: *ttl, holder: holder(id) },
            ScriptOp::Cancel { id } => Op::Cancel { holder: holder(id) },
            // The limits are already replaced; a peek returns the state of this key.
            ScriptOp::SetLimit { .. } => Op::Peek { cost: 0 },
        }
    }
}
