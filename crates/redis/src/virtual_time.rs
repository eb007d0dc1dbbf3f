//! One limiter on a store, asked at times that are given: for trials, and to compare a store with the core.

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
    self, Combine, OptimisticError, OptimisticPart, RuleRegistry, ScriptAnswer, ScriptOp,
    ScriptOutcome, ScriptPart, ScriptRequest, ScriptRule,
};
use sluicegate::backend::Rule;

/// Limits on a store, on virtual time. What it leaves there is kept for an hour, whatever the limits say.
#[derive(Debug)]
pub struct VirtualLimiter {
    link: Link,
    registry: RuleRegistry,
    namespace: String,
    rule: Arc<Rule>,
    /// The keys that were asked for, and how many sets each may have beside it.
    keys: BTreeMap<Arc<[u8]>, usize>,
    fingerprints: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VirtualError {
    /// The limits cannot be held, or the mode does not fit them.
    Quota(QuotaError),
    /// A limit has no meaning for the operation, or its id is not what it needs to be.
    Refused(Refusal),
    /// The store gave none.
    Store(CallError),
    /// What the store said is no answer, or others were faster each time.
    Other(Box<str>),
}

static DELETE: Script = Script::new("return redis.call('UNLINK', unpack(KEYS))\n");

// === impl VirtualLimiter ===

impl VirtualLimiter {
    /// These limits, with all keys behind this namespace.
    ///
    /// # Errors
    /// When the mode does not fit the limits, or the store does not answer.
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

    /// Carries out an operation on a key.
    ///
    /// # Errors
    /// When it is refused, or the store does not answer.
    pub async fn ask(
        &mut self,
        key: &[u8],
        op: Op,
        moment: Moment,
    ) -> Result<Answer, VirtualError> {
        let (short, cost, holder) = match op {
            Op::Hit { cost, holder } => (ScriptOp::Hit, cost, holder),
            Op::Charge { cost } => (ScriptOp::Charge, cost, None),
            Op::Refund { cost } => (ScriptOp::Refund, cost, None),
            _ => return self.decide_optimistically(key, op, moment, CarryOver::Used).await,
        };
        let rule = self.rule(moment.now).await?;
        let key_there = self.key(key, &rule);
        let part = ScriptPart {
            key: key_there,
            rule,
            cost,
            open: moment.spare_capacity,
            combine: Combine::AllOrNothing,
        };
        let ask = ScriptRequest { parts: vec![part], op: short, holder, count: 1 };
        // Who refuses says why.
        if ask.refuses(&ask.parts[0]) {
            return self.decide_optimistically(key, op, moment, CarryOver::Used).await;
        }
        let asks = [ask];
        let reply = self.link.call(&script::encode(&asks, Some(moment.now))).await?;
        let told = script::decode(&asks, reply).map_err(|error| other(&error))?;
        match told.into_iter().next() {
            Some(ScriptOutcome::Decided { each, .. }) => {
                let verdict = each.into_iter().next().and_then(first_verdict);
                verdict.map(Answer::from).ok_or_else(|| other(&"no answer"))
            }
            _ => self.decide_optimistically(key, op, moment, CarryOver::Used).await,
        }
    }

    /// Replaces the limits for all keys that were asked for.
    ///
    /// # Errors
    /// When the mode does not fit the new limits, or the store does not answer.
    pub async fn set_limits(
        &mut self,
        limits: Vec<LimitConfig>,
        keep: CarryOver,
        now: Timestamp,
    ) -> Result<(), VirtualError> {
        let rule = Rule::new(limits, self.rule.mode).map_err(VirtualError::Quota)?;
        let old = self.rule(now).await?;
        self.rule = Arc::new(rule.after(&self.rule));
        let keys: Vec<Arc<[u8]>> = self.keys.keys().cloned().collect();
        let rule = self.rule(now).await?;
        let look = Op::Peek { cost: 0 };
        for key in keys {
            let part = OptimisticPart { key, rule: rule.clone(), open: false, cost: None, keep };
            // Records of other limits are brought over by whatever comes first.
            if rule.params.fingerprint() == old.params.fingerprint() {
                script::change(&self.link, &self.registry, &part, &old, Some(now)).await?;
            } else {
                script::apply(&self.link, &self.registry, &[part], look, Some(now)).await?;
            }
        }
        Ok(())
    }

    /// Takes everything away that it has left in the store.
    ///
    /// # Errors
    /// When the store does not answer.
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

    async fn decide_optimistically(
        &mut self,
        key: &[u8],
        op: Op,
        moment: Moment,
        keep: CarryOver,
    ) -> Result<Answer, VirtualError> {
        let rule = self.rule(moment.now).await?;
        let key = self.key(key, &rule);
        let part = OptimisticPart { key, rule, open: moment.spare_capacity, cost: None, keep };
        let long = script::apply(&self.link, &self.registry, &[part], op, Some(moment.now)).await?;
        Ok(long.answer)
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
        let there: Arc<[u8]> =
            [self.namespace.as_bytes(), b"{".as_slice(), key, b"}".as_slice()].concat().into();
        let sets = self.keys.entry(there.clone()).or_default();
        *sets = (*sets).max(rule.params.sets());
        there
    }
}

fn first_verdict(answered: ScriptAnswer) -> Option<sluicegate_core::verdict::Verdict> {
    answered.verdicts.into_iter().next()
}

fn other(error: &dyn fmt::Display) -> VirtualError {
    VirtualError::Other(error.to_string().into())
}

// === impl VirtualError ===

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
            Self::Other(said) => f.write_str(said),
        }
    }
}

impl std::error::Error for VirtualError {}
