//! STUB until the real one is merged.
use super::call::{Call, CallError};
use super::link::Link;
use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::mode::Step;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Decision, Verdict};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Sheeted {
    pub(crate) steps: Box<[Step]>,
}
impl Sheeted {
    pub(crate) fn new(plan: &crate::plan::Plan) -> Self {
        Self { steps: plan.steps.clone() }
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stand {
    Alone,
    Quota,
    Together,
}
#[derive(Debug, Clone)]
pub(crate) struct AskPart {
    pub(crate) key: Arc<[u8]>,
    pub(crate) plan: Arc<Sheeted>,
    pub(crate) cost: u64,
    pub(crate) open: bool,
    pub(crate) stand: Stand,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShortOp {
    Hit,
    Charge,
    Refund,
}
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) parts: Vec<AskPart>,
    pub(crate) op: ShortOp,
    pub(crate) holder: Option<Holder>,
    pub(crate) count: u32,
}
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) allowed: bool,
    pub(crate) verdicts: Vec<Verdict>,
}
pub(crate) enum Told {
    Done { now: Timestamp, each: Vec<Answered> },
    LongWay,
}
pub(crate) fn call(_: &[Ask], _: Option<Timestamp>) -> Call {
    unimplemented!()
}
pub(crate) fn told(_: &[Ask], _: ::redis::Value) -> Result<Vec<Told>, String> {
    unimplemented!()
}
pub(crate) struct LongAnswer {
    pub(crate) answer: Answer,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) now: Timestamp,
}
pub(crate) enum LongError {
    Call(CallError),
    Contended,
    Refused(Refusal),
}
pub(crate) async fn apply(
    _: &Link,
    _: &[AskPart],
    _: Op,
    _: Option<Timestamp>,
) -> Result<LongAnswer, LongError> {
    unimplemented!()
}
pub(crate) async fn look(
    _: &Link,
    _: &AskPart,
    _: Option<Timestamp>,
) -> Result<(Vec<Decision>, Timestamp), LongError> {
    unimplemented!()
}

pub(crate) fn disagreements() -> u64 {
    0
}
