//! Rules as scripts see them, and their registry in the store.
//!
//! A record names its limits by a fingerprint only. Nodes publish the limits under it, so that a
//! node with other rules can convert the record.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::Value;
use sluicegate::backend::{ResolvedRule, Rule};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::parameters::KernelKind;
use sluicegate_core::quota::Rate;
use sluicegate_core::record::Layout;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::calendar::{Calendar, CalendarUnit};
use sluicegate_rules::limit::{LimitConfig, names};

use crate::call::{Call, CallError, Script};
use crate::connection::Link;

/// A rule with its encoded parameters for scripts.
#[derive(Debug)]
pub(crate) struct ScriptRule {
    pub(crate) resolved: Arc<ResolvedRule>,
    pub(crate) params: ScriptParams,
    /// One more than the epoch of the link at which it was published; 0 if it was not.
    published_at: AtomicU64,
    /// Of a limit that came with a request: clients must not fill the store with them.
    expiry: Option<RuleExpiry>,
}

/// When a published rule expires: after the last record that was written under it.
#[derive(Debug, Clone, Copy)]
struct RuleExpiry {
    /// Until when it is used on this node, by its clock.
    until: Timestamp,
    ttl_ms: u64,
}

/// State of this backend that belongs to one revision of a rule.
#[derive(Debug, Default)]
pub(crate) struct RuleScripts {
    latest: ArcSwapOption<ScriptRule>,
    /// Whether nodes can exchange its counts; computed on demand.
    pub(crate) is_exchangeable: OnceLock<bool>,
}

/// Published rules by fingerprint.
#[derive(Debug)]
pub(crate) struct RuleRegistry {
    prefix: Vec<u8>,
    /// Rules of this node, with the epoch of the link at which each was published.
    published: Mutex<HashMap<String, u64>>,
    known: Mutex<HashMap<String, Arc<Rule>>>,
}

/// Cached rules, of this node and of others.
const KNOWN_MAX: usize = 1_024;
/// Time for which a rule of a request is used, above the lifetime of its records.
const REQUEST_RULE_REUSE: Span = Span::from_secs(60);
/// Lifetime of a published rule: longer than that of any record.
const PUBLISHED_TTL_MS: u64 = 2 * 365 * 86_400_000;

pub(super) static PUBLISH: Script = Script::new(
    "if #KEYS == 0 then return end\n\
     return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n",
);
pub(super) static FIND: Script = Script::new(
    "if #KEYS == 0 then return end\n\
     return redis.call('GET', KEYS[1])\n",
);

impl ScriptRule {
    /// The rule at a time; calendar limits change.
    pub(crate) fn at(rule: &Arc<Rule>, now: Timestamp) -> Arc<Self> {
        let latest = &rule.extension().get_or_init(RuleScripts::default).latest;
        if let Some(known) = &*latest.load()
            && known.resolved.holds_at(now)
        {
            return known.clone();
        }
        let new = Arc::new(Self::new(rule.plan_at(now)));
        latest.store(Some(new.clone()));
        new
    }

    pub(crate) fn new(resolved: Arc<ResolvedRule>) -> Self {
        let names = resolved.rule.limits.iter().map(LimitConfig::name);
        let params = ScriptParams::new(&resolved.steps, names);
        Self { resolved, params, published_at: AtomicU64::new(0), expiry: None }
    }

    /// The rule of a limit that came with a request, whose records last at most a lifetime.
    pub(crate) fn of_request(
        resolved: Arc<ResolvedRule>,
        lifetime: Option<Span>,
        now: Timestamp,
    ) -> Self {
        let expiry = lifetime.map(|lifetime| {
            let used_us = lifetime.as_micros().saturating_add(REQUEST_RULE_REUSE.as_micros());
            let ttl_ms = used_us.saturating_mul(2) / 1_000;
            let until = now.after(Span::from_micros(used_us));
            RuleExpiry { until, ttl_ms: ttl_ms.min(PUBLISHED_TTL_MS) }
        });
        Self { expiry, ..Self::new(resolved) }
    }

    /// Whether records may still be written under it.
    pub(crate) fn is_usable(&self, now: Timestamp) -> bool {
        self.expiry.is_none_or(|expiry| now < expiry.until)
    }

    /// Whether it was published and the store has lost no data since.
    #[inline]
    pub(crate) fn is_published(&self, epoch: u64) -> bool {
        self.published_at.load(Ordering::Acquire) == epoch + 1
    }

    fn mark_published(&self, epoch: u64) {
        self.published_at.store(epoch + 1, Ordering::Release);
    }

    pub(crate) fn steps(&self) -> &[EnforcedLimit] {
        &self.resolved.steps
    }
}

impl RuleRegistry {
    /// Creates a registry with a key prefix.
    pub(crate) fn new(prefix: &[u8]) -> Self {
        Self { prefix: prefix.to_vec(), published: Mutex::default(), known: Mutex::default() }
    }

    /// Publishes a rule, unless this node has done so already.
    pub(crate) async fn publish(&self, link: &Link, rule: &ScriptRule) -> Result<(), CallError> {
        let (fingerprint, epoch) = (rule.params.fingerprint(), link.epoch());
        let is_known = || self.published.lock().get(fingerprint) == Some(&epoch);
        if rule.is_published(epoch) || rule.expiry.is_none() && is_known() {
            rule.mark_published(epoch);
            return Ok(());
        }
        let resolved = &rule.resolved.rule;
        let text = encode_rule(&resolved.limits, resolved.mode).into_bytes();
        let ttl_ms = rule.expiry.map_or(PUBLISHED_TTL_MS, |expiry| expiry.ttl_ms);
        let args = vec![text, ttl_ms.to_string().into_bytes()];
        link.call(&Call { script: &PUBLISH, keys: vec![self.key(fingerprint)], args }).await?;
        rule.mark_published(epoch);
        if rule.expiry.is_none() {
            let mut published = self.published.lock();
            if published.len() >= KNOWN_MAX {
                published.clear();
            }
            published.insert(fingerprint.to_owned(), epoch);
        }
        Ok(())
    }

    /// The rule of a fingerprint, if a node has published it.
    pub(super) async fn find(
        &self,
        link: &Link,
        fingerprint: &str,
    ) -> Result<Option<Arc<Rule>>, CallError> {
        if let Some(known) = self.known.lock().get(fingerprint) {
            return Ok(Some(known.clone()));
        }
        let call = Call { script: &FIND, keys: vec![self.key(fingerprint)], args: Vec::new() };
        let found = match link.call(&call).await? {
            Value::BulkString(text) => std::str::from_utf8(&text).ok().and_then(decode_rule),
            _ => None,
        };
        let rule = found.and_then(|(limits, mode)| Rule::new(limits, mode).ok()).map(Arc::new);
        // A missing rule may still be published.
        if let Some(rule) = &rule {
            let mut known = self.known.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(fingerprint.to_owned(), rule.clone());
        }
        Ok(rule)
    }

    /// Key of a fingerprint.
    pub(crate) fn key(&self, fingerprint: &str) -> Vec<u8> {
        [&self.prefix, b"plan:".as_slice(), fingerprint.as_bytes()].concat()
    }
}

// === encoding ===

/// Mode and limits in hexadecimal digits, and the names of the limits as a comment:
/// `00 -:02…;6461…:c.… -- token_bucket, daily`.
fn encode_rule(limits: &[LimitConfig], mode: Mode) -> String {
    let mut bytes = Vec::new();
    mode.write(&mut bytes);
    let each: Vec<String> = limits.iter().map(encode_limit).collect();
    format!("{} {} -- {}", hex(&bytes), each.join(";"), names(limits).join(", "))
}

fn encode_limit(limit: &LimitConfig) -> String {
    let name =
        limit.name().map_or_else(|| "-".to_owned(), |name| format!("={}", hex(name.as_bytes())));
    let core = limit.at(Timestamp::EPOCH);
    // The calendar itself, not its current window.
    if let (Some(calendar), Limit::FixedWindow(window)) = (limit.followed_calendar(), core) {
        let (zone, unit) = (calendar.zone_name(), calendar.unit().name());
        let (count, period) = (window.rate().count(), window.rate().period().as_micros());
        return format!("{name}:c,{zone},{unit},{count},{period}");
    }
    let mut bytes = Vec::new();
    core.write(&mut bytes);
    format!("{name}:{}", hex(&bytes))
}

fn decode_rule(text: &str) -> Option<(Vec<LimitConfig>, Mode)> {
    let mut words = text.split(' ');
    let mode = unhex(words.next()?)?;
    let mode = Mode::read(&mut mode.as_slice())?;
    let limits: Option<Vec<LimitConfig>> = words.next()?.split(';').map(decode_limit).collect();
    Some((limits?, mode))
}

fn decode_limit(text: &str) -> Option<LimitConfig> {
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

/// The parameters of some limits: a kind of one byte, and whole numbers of eight bytes, lowest
/// first, which a script unpacks in one call.
#[derive(Debug)]
pub(crate) struct ScriptParams {
    pub(crate) layout: Layout,
    pub(crate) bytes: Vec<u8>,
    /// The rule of all limits, if it is one: the script only compares it with that of other parts.
    pub(crate) rule: Option<usize>,
}

const ENFORCED: u8 = 1;
const ELASTIC: u8 = 2;

impl ScriptParams {
    /// The parameters of limits of these names.
    pub(crate) fn new<'a>(
        limits: &[EnforcedLimit],
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let layout = Layout::named(limits, names);
        let mut bytes = layout.fingerprint().as_bytes().to_vec();
        bytes.push(u8::try_from(limits.len()).unwrap_or(u8::MAX));
        for limit in limits {
            let flags = |is_set, flag| if is_set { flag } else { 0 };
            bytes.push(flags(limit.is_enforced(), ENFORCED) | flags(limit.is_elastic(), ELASTIC));
            for stage in limit.stages() {
                let (kind, numbers) = stage.parameters();
                bytes.push(kind_code(kind));
                bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
            }
        }
        let mut rules = limits.iter().map(EnforcedLimit::rule);
        let rule = rules.next().or(Some(0)).filter(|first| rules.all(|rule| rule == *first));
        Self { layout, bytes, rule }
    }

    /// Number of sorted sets beside a record.
    pub(crate) const fn sets(&self) -> usize {
        self.layout.sets()
    }

    /// Identifies the limits and their mode.
    pub(crate) fn fingerprint(&self) -> &str {
        self.layout.fingerprint()
    }
}

/// The code of a kernel in the scripts.
const fn kind_code(kind: KernelKind) -> u8 {
    match kind {
        KernelKind::Open => 0,
        KernelKind::Closed => 1,
        KernelKind::Gcra => 2,
        KernelKind::Periodic => 3,
        KernelKind::SlidingWindow => 4,
        KernelKind::SlidingLog => 5,
        KernelKind::WarmUp => 6,
        KernelKind::Slots => 7,
        KernelKind::Tally => 8,
    }
}
