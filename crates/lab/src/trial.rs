//! A limit on virtual time: operations in, answers out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sluicegate_config::quota::explain;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::{EnforcedLimit, Gate, Mode};
use sluicegate_core::op::{Op, OpKind};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::{LimitConfig, continued, names};

use crate::answer::TrialAnswer;
use crate::line::{HolderIds, Line, ScriptOp};

/// Maximum number of keys per trial.
pub const KEYS_MAX: usize = 1_000_000;

/// Limits under trial, with the accounts of all keys seen so far.
#[derive(Debug, Clone)]
pub struct Trial {
    limits: Vec<LimitConfig>,
    names: Vec<String>,
    mode: Mode,
    gate: Gate,
    keys: HashMap<String, KeyState>,
}

/// State of one key.
#[derive(Debug, Clone, Default)]
struct KeyState {
    account: Account,
    ids: HolderIds,
}

impl Trial {
    /// A trial of these limits, enforced according to `mode`.
    ///
    /// # Errors
    /// When the mode does not fit one of the limits.
    pub fn new(limits: Vec<LimitConfig>, mode: Mode) -> Result<Self, String> {
        steps(&limits, mode, Timestamp::EPOCH)?;
        let names = names(&limits);
        Ok(Self { limits, names, mode, gate: Gate::default(), keys: HashMap::new() })
    }

    /// Executes one line.
    ///
    /// ```
    /// use sluicegate_lab::line::Line;
    /// use sluicegate_lab::trial::Trial;
    ///
    /// let limits = sluicegate_config::limit::limits(
    ///     "--limit",
    ///     "{ algorithm: fixed_window, rate: 1/m }",
    /// ).unwrap();
    /// let mut trial = Trial::new(limits, Default::default()).unwrap();
    /// let line = Line::parse(r#"{"at_us":0}"#).unwrap();
    /// assert!(trial.run(&line).unwrap().allowed);
    /// assert_eq!(trial.run(&line).unwrap().retry_after_us, Some(60_000_000));
    /// ```
    ///
    /// # Errors
    /// A message with the rejected value and a correction.
    pub fn run(&mut self, line: &Line) -> Result<TrialAnswer, String> {
        let now = line.at;
        if let (Mode::Elastic { gate, .. }, Some(load)) = (self.mode, line.load) {
            self.gate = self.gate.observe(&gate, load, now);
        }
        if let ScriptOp::SetLimit { limits, carry_over } = &line.op {
            self.set_limits(limits.clone(), *carry_over, now)?;
        }
        let plan = steps(&self.limits, self.mode, now)?;
        let count = self.keys.len();
        let state = match self.keys.entry(line.key.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if count >= KEYS_MAX => {
                return Err(format!("more than `{KEYS_MAX}` keys: try fewer"));
            }
            Entry::Vacant(new) => new.insert(KeyState::default()),
        };
        let op = state.ids.op(&line.op);
        let moment = Moment { now, spare_capacity: self.gate.is_open(now) };
        let answer =
            state.account.apply(&plan, op, moment).map_err(|refusal| refusal.to_string())?;
        Ok(TrialAnswer::new(&line.op, &answer, &self.names))
    }

    /// Remaining quota of `key` at another time, without side effects.
    #[must_use]
    pub fn remaining_at(&self, key: &str, at: Timestamp) -> Option<i64> {
        let plan = steps(&self.limits, self.mode, at).ok()?;
        let mut account = self.keys.get(key).map(|state| state.account.clone()).unwrap_or_default();
        let answer = account.apply(&plan, Op::Peek { cost: 0 }, Moment::at(at)).ok()?;
        answer.verdict.remaining
    }

    /// Replaces the limits of all keys.
    fn set_limits(
        &mut self,
        limits: Vec<LimitConfig>,
        carry_over: CarryOver,
        now: Timestamp,
    ) -> Result<(), String> {
        let old = steps(&self.limits, self.mode, now)?;
        let new = steps(&limits, self.mode, now)?;
        if let Some(reason) = old.iter().find_map(|step| step.limit().refuses(OpKind::SetLimit)) {
            return Err(reason.to_owned());
        }
        let from = continued(&limits, &self.limits);
        for state in self.keys.values_mut() {
            state.account.change(&old, &new, &from, carry_over, now);
        }
        self.names = names(&limits);
        self.limits = limits;
        Ok(())
    }
}

fn steps(limits: &[LimitConfig], mode: Mode, now: Timestamp) -> Result<Vec<EnforcedLimit>, String> {
    let step = |limit: &LimitConfig| {
        EnforcedLimit::new(limit.at(now), mode).map_err(|error| explain(&error))
    };
    limits.iter().map(step).collect()
}
