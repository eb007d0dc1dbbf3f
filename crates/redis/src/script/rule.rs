//! Limits as a script and a node know them, and as they are left in the store for nodes that come later.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::Value;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::quota::Rate;
use sluicegate_core::record::Sheet;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::calendar::{Calendar, CalendarUnit};
use sluicegate_rules::limit::{LimitConfig, names};

use crate::call::{Call, CallError, Script};
use crate::connection::Link;
use sluicegate::backend::{ResolvedRule, Rule};

/// A plan, with what a script is told of it.
#[derive(Debug)]
pub(crate) struct ScriptRule {
    pub(crate) plan: Arc<ResolvedRule>,
    pub(crate) params: Sheet,
    /// The epoch of the link, and one, at which it was left in the store; 0 if it was not yet.
    published_at: AtomicU64,
}

/// State of this backend that belongs to one revision of a rule.
#[derive(Debug, Default)]
pub(crate) struct RuleScripts {
    latest: ArcSwapOption<ScriptRule>,
    /// Whether its counts can be exchanged between nodes, once that was asked.
    pub(crate) is_exchangeable: OnceLock<bool>,
}

/// What registry lie in the store under their fingerprints, so that whoever finds a record of other limits can read it.
#[derive(Debug)]
pub(crate) struct RuleRegistry {
    prefix: Vec<u8>,
    /// And at which epoch of the link each was written: a store that has forgotten something is told again.
    written: Mutex<HashMap<String, u64>>,
    known: Mutex<HashMap<String, Option<Arc<Rule>>>>,
}

/// The most registry of others that are remembered.
const KNOWN_MAX: usize = 1_024;
/// How long a plan lies in the store: longer than any record that is likely to be met again.
const PLAN_KEPT_MS: u64 = 2 * 365 * 86_400_000;

static PUBLISH: Script = Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n");
static FIND: Script = Script::new("return redis.call('GET', KEYS[1])\n");

// === impl ScriptRule ===

impl ScriptRule {
    /// The limits of a rule at a time, as a script reads them.
    pub(crate) fn at(rule: &Arc<Rule>, now: Timestamp) -> Arc<Self> {
        let latest = &rule.extension().get_or_init(RuleScripts::default).latest;
        if let Some(charter) = &*latest.load()
            && charter.plan.holds_at(now)
        {
            return charter.clone();
        }
        let charter = Arc::new(Self::new(rule.plan_at(now)));
        latest.store(Some(charter.clone()));
        charter
    }

    pub(crate) fn new(plan: Arc<ResolvedRule>) -> Self {
        let params = Sheet::named(&plan.steps, plan.rule.limits.iter().map(LimitConfig::name));
        Self { plan, params, published_at: AtomicU64::new(0) }
    }

    /// Whether it lies in the store, as far as that has not forgotten anything since.
    #[inline]
    pub(crate) fn is_published(&self, epoch: u64) -> bool {
        self.published_at.load(Ordering::Acquire) == epoch + 1
    }

    /// It lies there now.
    pub(crate) fn mark_published(&self, epoch: u64) {
        self.published_at.store(epoch + 1, Ordering::Release);
    }

    pub(crate) fn steps(&self) -> &[EnforcedLimit] {
        &self.plan.steps
    }
}

// === impl RuleRegistry ===

impl RuleRegistry {
    /// RuleRegistry that lie in the store under keys with this in front.
    pub(crate) fn new(prefix: &[u8]) -> Self {
        Self { prefix: prefix.to_vec(), written: Mutex::default(), known: Mutex::default() }
    }

    /// Leaves a plan in the store, unless this node has done so already.
    pub(crate) async fn publish(&self, link: &Link, rule: &ScriptRule) -> Result<(), CallError> {
        let (fingerprint, epoch) = (rule.params.fingerprint(), link.epoch());
        if self.written.lock().get(fingerprint) == Some(&epoch) {
            return Ok(());
        }
        let rule = &rule.plan.rule;
        let text = as_text(&rule.limits, rule.mode).into_bytes();
        let args = vec![text, PLAN_KEPT_MS.to_string().into_bytes()];
        link.call(&Call { script: &PUBLISH, keys: vec![self.key(fingerprint)], args }).await?;
        let mut written = self.written.lock();
        if written.len() >= KNOWN_MAX {
            written.clear();
        }
        written.insert(fingerprint.to_owned(), epoch);
        Ok(())
    }

    /// The limits of this fingerprint, if a node has left them.
    pub(super) async fn find(
        &self,
        link: &Link,
        fingerprint: &str,
    ) -> Result<Option<Arc<Rule>>, CallError> {
        if let Some(known) = self.known.lock().get(fingerprint) {
            return Ok(known.clone());
        }
        let call = Call { script: &FIND, keys: vec![self.key(fingerprint)], args: Vec::new() };
        let found = match link.call(&call).await? {
            Value::BulkString(text) => std::str::from_utf8(&text).ok().and_then(of_text),
            _ => None,
        };
        let rule = found.and_then(|(limits, mode)| Rule::new(limits, mode).ok()).map(Arc::new);
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        // Who is not there now may come: only what was found is remembered.
        if rule.is_some() {
            known.insert(fingerprint.to_owned(), rule.clone());
        }
        Ok(rule)
    }

    /// Where the plan of this fingerprint lies.
    pub(crate) fn key(&self, fingerprint: &str) -> Vec<u8> {
        [&self.prefix, b"plan:".as_slice(), fingerprint.as_bytes()].concat()
    }
}

// === as text ===

/// Mode and limits as bytes, in hexadecimal digits, and the names of the limits for whoever looks: `00 -:02…;6461…:c.… -- token_bucket, daily`.
fn as_text(limits: &[LimitConfig], mode: Mode) -> String {
    let mut bytes = Vec::new();
    mode.write(&mut bytes);
    let each: Vec<String> = limits.iter().map(limit_as_text).collect();
    format!("{} {} -- {}", hex(&bytes), each.join(";"), names(limits).join(", "))
}

fn limit_as_text(limit: &LimitConfig) -> String {
    let name =
        limit.name().map_or_else(|| "-".to_owned(), |name| format!("={}", hex(name.as_bytes())));
    let core = limit.at(Timestamp::EPOCH);
    // Of a calendar not the windows of today, but whose they are.
    if let (Some(calendar), Limit::FixedWindow(window)) = (limit.followed_calendar(), core) {
        let (zone, unit) = (calendar.zone_name(), calendar.unit().name());
        let (count, period) = (window.rate().count(), window.rate().period().as_micros());
        return format!("{name}:c,{zone},{unit},{count},{period}");
    }
    let mut bytes = Vec::new();
    core.write(&mut bytes);
    format!("{name}:{}", hex(&bytes))
}

fn of_text(text: &str) -> Option<(Vec<LimitConfig>, Mode)> {
    let mut words = text.split(' ');
    let mode = unhex(words.next()?)?;
    let mode = Mode::read(&mut mode.as_slice())?;
    let limits: Option<Vec<LimitConfig>> = words.next()?.split(';').map(limit_of_text).collect();
    Some((limits?, mode))
}

fn limit_of_text(text: &str) -> Option<LimitConfig> {
    let (name, limit) = text.split_once(':')?;
    let name = match name.strip_prefix('=') {
        Some(name) => Some(String::from_utf8(unhex(name)?).ok()?),
        None => None,
    };
    let Some(calendar) = limit.strip_prefix("c,") else {
        let bytes = unhex(limit)?;
        return Some(LimitConfig::fixed(name, Limit::read(&mut bytes.as_slice())?));
    };
    let parts: Vec<&str> = calendar.split(',').collect();
    let [zone, unit, count, period] = parts.as_slice() else { return None };
    let units = [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];
    let unit = units.into_iter().find(|known| known.name() == *unit)?;
    let period = Span::from_micros(period.parse().ok()?);
    let rate = Rate::new(count.parse().ok()?, period).ok()?;
    Some(LimitConfig::calendar(name, rate, Calendar::new(zone, unit).ok()?))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}
