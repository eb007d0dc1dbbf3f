//! The thresholds of a rule's quota that are reported.

use sluicegate_rules::rule::{NOTIFY_MAX, RuleConfig, THRESHOLD_MAX};

use super::keys::Key;
use super::reader::{Found, Reader};
use crate::fields::Value;
use crate::problem::{Reported, quoted};
use crate::units::{self, UnitError};

const EXAMPLE: &str = "notify: [50%, 80%, 100%]";

impl Reader<'_> {
    /// Reads thresholds, in percent: one, or a list of them.
    pub(super) fn notify(&mut self, input: &Value<'_, '_>) -> Result<Vec<u16>, Reported> {
        let mut all = Vec::new();
        if !input.is_list() {
            return self.threshold(input).map(|threshold| vec![threshold]);
        }
        let count = input.items().len();
        if count == 0 || count > NOTIFY_MAX {
            let message = format!(
                "must hold 1 to {NOTIFY_MAX} thresholds, got `{count}`; write it like `{EXAMPLE}`"
            );
            return Err(self.refuse(input, message));
        }
        let mut read = Ok(());
        for item in input.items() {
            match self.threshold(&item) {
                Ok(threshold) if all.last().is_some_and(|last| *last >= threshold) => {
                    let message = format!(
                        "must be above the threshold before it, got `{threshold}%`; write them in \
                         ascending order"
                    );
                    read = Err(self.refuse(&item, message));
                }
                Ok(threshold) => all.push(threshold),
                Err(reported) => read = Err(reported),
            }
        }
        read.map(|()| all)
    }

    fn threshold(&mut self, input: &Value<'_, '_>) -> Result<u16, Reported> {
        input.read(EXAMPLE, threshold, self.report)
    }

    /// Reports thresholds that do not fit their rule.
    pub(super) fn fit_notify<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
    ) -> Result<(), Reported> {
        match rule.refused_notify() {
            None => Ok(()),
            Some(reason) => {
                let message =
                    format!("{reason}; remove it, or give the limit to another descriptor");
                Err(self.refuse_key(input, found, Key::Notify, &message))
            }
        }
    }
}

fn threshold(text: &str) -> Result<u16, UnitError> {
    let percent = u16::try_from(units::percent(text)?).ok();
    percent.filter(|percent| (1..=THRESHOLD_MAX).contains(percent)).ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!("must be from `1%` to `{THRESHOLD_MAX}%` of the quota, got {got}"))
    })
}
