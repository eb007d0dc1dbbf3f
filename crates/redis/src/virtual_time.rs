//! A limiter on a store at times that the caller gives: for trials, and to compare a store with the
//! core.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sluicegate_core::account::{Answer, Moment};
use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::LimitConfig;

use super::call::{Call, CallError, Script};
use super::connection::Link;
use super::script::{
    self, Combine, OptimisticError, OptimisticPart, OptimisticUpdates, RuleRegistry, ScriptOp,
    ScriptOutcome, ScriptPart, ScriptRequest, ScriptRule,
};
use sluicegate::backend::Rule;

/// Limits on a store in virtual time. Its records expire after an hour, regardless of the limits.
#[derive(Debug)]
pub struct VirtualLimiter {
    link: Link,
    registry: RuleRegistry,
    namespace: String,
    rule: Arc<Rule>,
    /// Used keys, each with the maximum number of its sets.
    keys: BTreeMap<Arc<[u8]>, usize>,
    fingerprints: Vec<String>,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VirtualError {
    /// The limits are invalid, or do not support the mode.
    Quota(QuotaError),
    /// A limit does not support the operation, or the holder is invalid.
    Refused(Refusal),
    /// A call failed.
    Store(CallError),
    /// The reply is invalid, or there was too much contention.
    Other(Box<str>),
}

static DELETE: Script = Script::new("return redis.call('UNLINK', unpack(KEYS))\n");

impl VirtualLimiter {
    /// Opens a limiter with a key prefix.
    ///
    /// # Errors
    /// When the limits do not support the mode, or a call fails.
    pub async fn open(
        link: Link,
        namespace: &str,
        limits: Vec<LimitConfig>,
        mode: Mode,
    ) -> Result<Self, VirtualError> {
        let rule = Arc::new(Rule::new(limits, mode).map_err(VirtualError::Quota)?);
        let registry = RuleRegistry::new(namespace.as_bytes());
        let (keys, fingerprints) = (BTreeMap::new(), Vec::new());
        let mut this =
            Self { link, registry, namespace: namespace.to_owned(), rule, keys, fingerprints };
        this.rule(Timestamp::EPOCH).await?;
        Ok(this)
    }

    /// Applies an operation to a key.
    ///
    /// # Errors
    /// When it is refused, or a call fails.
    pub async fn apply(
        &mut self,
        key: &[u8],
        op: Op,
        moment: Moment,
    ) -> Result<Answer, VirtualError> {
        let (script_op, cost, holder) = match op {
            Op::Hit { cost, holder } => (ScriptOp::Hit, cost, holder),
            Op::Charge { cost } => (ScriptOp::Charge, cost, None),
            Op::Refund { cost } => (ScriptOp::Refund, cost, None),
            _ => return self.update(key, op, moment).await,
        };
        let rule = self.rule(moment.now).await?;
        let part = ScriptPart {
            key: self.key(key, &rule),
            rule,
            cost,
            spare_capacity: moment.spare_capacity,
            combine: Combine::AllOrNothing,
        };
        let request = ScriptRequest { parts: vec![part], op: script_op, holder, count: 1 };
        // The core names the reason.
        if request.skips(&request.parts[0]) {
            return self.update(key, op, moment).await;
        }
        let requests = [request];
        let reply = self.link.call(&script::encode(&requests, Some(moment.now))).await?;
        let outcomes = script::decode(&requests, reply).map_err(|error| other(&error))?;
        match outcomes.into_iter().next() {
            Some(ScriptOutcome::Decided { answers, .. }) => {
                let verdict = answers.first().and_then(|answer| answer.verdicts.first());
                verdict.copied().map(Answer::from).ok_or_else(|| other(&"no verdict"))
            }
            _ => self.update(key, op, moment).await,
        }
    }

    /// Replaces the limits of all used keys.
    ///
    /// # Errors
    /// When the new limits do not support the mode, or a call fails.
    pub async fn set_limits(
        &mut self,
        limits: Vec<LimitConfig>,
        carry_over: CarryOver,
        now: Timestamp,
    ) -> Result<(), VirtualError> {
        let rule = Rule::new(limits, self.rule.mode).map_err(VirtualError::Quota)?;
        let old = self.rule(now).await?;
        self.rule = Arc::new(rule.after(&self.rule));
        let keys: Vec<Arc<[u8]>> = self.keys.keys().cloned().collect();
        let rule = self.rule(now).await?;
        let peek = Op::Peek { cost: 0 };
        for key in keys {
            let part =
                OptimisticPart { carry_over, ..OptimisticPart::of_record(key, rule.clone()) };
            // Any operation converts a record with another fingerprint.
            if rule.params.fingerprint() == old.params.fingerprint() {
                self.updates(now).convert(&part, &old).await?;
            } else {
                self.updates(now).apply(&[part], peek).await?;
            }
        }
        Ok(())
    }

    /// Deletes all its keys.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn clear(&mut self) -> Result<(), VirtualError> {
        for (key, sets) in std::mem::take(&mut self.keys) {
            let keys = script::keys_of(&key, sets).collect();
            self.link.call(&Call { script: &DELETE, keys, args: Vec::new() }).await?;
        }
        for fingerprint in std::mem::take(&mut self.fingerprints) {
            let keys = vec![self.registry.key(&fingerprint)];
            self.link.call(&Call { script: &DELETE, keys, args: Vec::new() }).await?;
        }
        Ok(())
    }

    async fn update(&mut self, key: &[u8], op: Op, moment: Moment) -> Result<Answer, VirtualError> {
        let rule = self.rule(moment.now).await?;
        let part = OptimisticPart::of_record(self.key(key, &rule), rule);
        let part = OptimisticPart { spare_capacity: moment.spare_capacity, ..part };
        Ok(self.updates(moment.now).apply(&[part], op).await?.answer)
    }

    fn updates(&self, now: Timestamp) -> OptimisticUpdates<'_> {
        OptimisticUpdates { link: &self.link, registry: &self.registry, clock: Some(now) }
    }

    async fn rule(&mut self, now: Timestamp) -> Result<Arc<ScriptRule>, VirtualError> {
        let rule = Arc::new(ScriptRule::new(self.rule.plan_at(now)));
        self.registry.publish(&self.link, &rule).await?;
        let fingerprint = rule.params.fingerprint();
        if !self.fingerprints.iter().any(|known| known == fingerprint) {
            self.fingerprints.push(fingerprint.to_owned());
        }
        Ok(rule)
    }

    fn key(&mut self, key: &[u8], rule: &ScriptRule) -> Arc<[u8]> {
        let record_key: Arc<[u8]> =
            [self.namespace.as_bytes(), b"{".as_slice(), key, b"}".as_slice()].concat().into();
        let sets = self.keys.entry(record_key.clone()).or_default();
        *sets = (*sets).max(rule.params.sets());
        record_key
    }
}

fn other(error: &dyn fmt::Display) -> VirtualError {
    VirtualError::Other(error.to_string().into())
}

impl From<CallError> for VirtualError {
    fn from(error: CallError) -> Self {
        Self::Store(error)
    }
}

impl From<OptimisticError> for VirtualError {
    fn from(error: OptimisticError) -> Self {
        match error {
            OptimisticError::Refused(refusal) => Self::Refused(refusal),
            OptimisticError::Store(error) => Self::Store(error),
            error => other(&error),
        }
    }
}

impl fmt::Display for VirtualError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for VirtualError {}
