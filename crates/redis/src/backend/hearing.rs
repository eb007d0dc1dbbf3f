//! Steps whose counts nodes tell each other: those of which too little is known here are heard first.

use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::{Consistency, OnStoreFailure};

use super::SharedEngine;
use super::local::{Here, Local, LocalStep};
use super::parts::Part;
use crate::CallError;
use sluicegate::Snapshot;
use sluicegate::Status;
use sluicegate::backend::StoreError;
use sluicegate::backend::{Want, first_alike};
use sluicegate::{Level, Promise};

impl SharedEngine {
    /// Settles every step of a request whose counts are told, and was not settled yet.
    pub(super) async fn hear(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        plan: &Plan,
        statuses: &mut [Status],
        here: &mut Here,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for place in 0..statuses.len() {
            if here.has(place) || first_alike(plan, place) < place {
                continue;
            }
            // What is denied already need not be asked any more.
            if want == Want::Hit && here.denies {
                return Ok(());
            }
            let Some(step) = self.step_at(want, rules, plan, place) else { continue };
            if !matches!(step.consistency, Consistency::Eventual { .. }) {
                continue;
            }
            match self.heard(want, &step).await {
                Ok((verdict, promise)) => {
                    let status = &mut statuses[place];
                    (status.verdict, status.promise) = (verdict, promise);
                    match want {
                        Want::Hit => here.note(place, verdict.is_allowed()),
                        _ => here.settled(place, false),
                    }
                }
                Err(error) => {
                    let part = self.part_of(want, rules, plan, place, now);
                    let Some(part) = part else { continue };
                    self.unheard(want, &step, &part, (rules, plan), &error, statuses)?;
                    let verdict = statuses[place].verdict;
                    here.settled(place, want == Want::Hit && !verdict.is_allowed());
                }
            }
        }
        Ok(())
    }

    /// What a step says once the others were heard.
    async fn heard(
        &self,
        want: Want,
        step: &LocalStep<'_>,
    ) -> Result<(Verdict, Promise), CallError> {
        let Consistency::Eventual { sync_interval } = step.consistency else {
            return Err(CallError::Busy);
        };
        let promise = Promise { level: Level::Eventual, over: 0 };
        match want {
            Want::Refund => Ok((self.eventual.refund(step, sync_interval).await?, promise)),
            Want::Reset => Ok((self.eventual.reset(step, sync_interval).await?, promise)),
            Want::Hit | Want::Peek => {
                self.eventual.pull(step, sync_interval).await?;
                // Whoever had to hear the others first has hardly any memory of them.
                match self.say(want, step, false, self.engine.ticks()) {
                    Local::Said(verdict, promise) => Ok((verdict, promise)),
                    Local::Ask => Err(CallError::Busy),
                }
            }
        }
    }

    /// Decides a step whose peers' counts cannot be pulled, by its rule's failure policy.
    fn unheard(
        &self,
        want: Want,
        step: &LocalStep<'_>,
        part: &Part<'_>,
        by: (&Snapshot<'_>, &Plan),
        error: &CallError,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let ticks = self.engine.ticks();
        let is_local = part.policy == OnStoreFailure::Local;
        if want == Want::Hit && is_local {
            self.warm_up(step, part, self.store.store_time(), ticks);
        }
        self.fall_back(want, by, &[part], error, statuses)?;
        if want == Want::Hit && is_local && statuses[part.place].verdict.is_allowed() {
            self.eventual.count(step, ticks);
        }
        Ok(())
    }

    /// What this node has counted is charged to its share, so far as that does not know of it.
    fn warm_up(&self, step: &LocalStep<'_>, part: &Part<'_>, now: Timestamp, ticks: Timestamp) {
        let capacities = step.rule.limits.iter().filter_map(|limit| limit.at(now).capacity());
        let Some(capacity) = capacities.min() else { return };
        let counted = part.weight.whole(self.eventual.own(step, ticks)).min(capacity);
        let left = part.asked.ask(Op::Peek { cost: 0 }, now).remaining.unwrap_or(0);
        let used = capacity.saturating_sub(u64::try_from(left).unwrap_or(0));
        if counted > used {
            let _ = part.asked.ask(Op::Take { cost: counted - used }, now);
        }
    }
}
