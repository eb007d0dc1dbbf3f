//! A limit on virtual time in the engine's memory store: the counterpart of
//! [`crate::trial::Trial`].
//!
//! Both must return the same answers, which the specification scripts verify.

use std::collections::HashMap;

use sluicegate::clock::ManualClock;
use sluicegate::{Answer, LimitError, Limiter, Op};
use sluicegate_config::quota::explain;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::LimitConfig;

use crate::answer::TrialAnswer;
use crate::line::{HolderIds, Line, ScriptOp};

/// Limits under trial, in a limiter with its memory store.
#[derive(Debug)]
pub struct MemoryTrial {
    limiter: Limiter,
    clock: ManualClock,
    ids: HashMap<String, HolderIds>,
    holds_slots: bool,
}

impl MemoryTrial {
    /// A trial of these limits, enforced according to `mode`.
    ///
    /// # Errors
    /// When the mode does not fit one of the limits.
    pub fn new(limits: Vec<LimitConfig>, mode: Mode) -> Result<Self, String> {
        let clock = ManualClock::at(Timestamp::EPOCH);
        let holds_slots = holds_slots(&limits);
        let builder = Limiter::builder().limits(limits).mode(mode).clock(clock.clone());
        let limiter = builder.build().map_err(message)?;
        Ok(Self { limiter, clock, ids: HashMap::new(), holds_slots })
    }

    /// Executes one line.
    ///
    /// ```
    /// use sluicegate_lab::line::Line;
    /// use sluicegate_lab::memory::MemoryTrial;
    ///
    /// let limits = sluicegate_config::limit::limits(
    ///     "--limit",
    ///     "{ algorithm: fixed_window, rate: 1/m }",
    /// ).unwrap();
    /// let mut trial = MemoryTrial::new(limits, Default::default()).unwrap();
    /// let line = Line::parse(r#"{"at_us":0}"#).unwrap();
    /// assert!(trial.run(&line).unwrap().allowed);
    /// assert_eq!(trial.run(&line).unwrap().retry_after_us, Some(60_000_000));
    /// ```
    ///
    /// # Errors
    /// A message with the rejected value and a correction.
    pub fn run(&mut self, line: &Line) -> Result<TrialAnswer, String> {
        self.clock.set(line.at);
        if let Some(load) = line.load {
            self.limiter.set_load(load);
        }
        if let ScriptOp::SetLimit { limits, carry_over } = &line.op {
            self.limiter.set_limits(limits.clone(), *carry_over).map_err(message)?;
            self.holds_slots = holds_slots(limits);
        }
        let op = self.ids.entry(line.key.clone()).or_default().op(&line.op);
        let ops = self.limiter.of(&line.key);
        let answer = match op {
            // The fast path.
            Op::Hit { cost, holder: None } if !self.holds_slots => {
                Answer::from(ops.cost(cost).hit())
            }
            op => ops.ask(op).map_err(|refusal| refusal.to_string())?,
        };
        let policies = self.limiter.policies();
        let names: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
        Ok(TrialAnswer::new(&line.op, &answer, &names))
    }
}

fn holds_slots(limits: &[LimitConfig]) -> bool {
    limits.iter().any(|limit| limit.algorithm() == "concurrency")
}

fn message(error: LimitError) -> String {
    match &error {
        LimitError::Quota(error) => explain(error),
        other => other.to_string(),
    }
}
