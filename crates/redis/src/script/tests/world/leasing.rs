//! Nodes that buy ahead.

use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::lease::{LeaseDemand, LeaseReply};
use sluicegate_core::record::Record;

use super::super::anything::Leasing;
use super::{World, same};
use crate::script::{LeaseOutcome, LeaseRequest, decode_lease, encode_lease};

impl World<'_> {
    /// Lease calls that ride in one, of identities that are not the same.
    pub(super) fn lease(&mut self, all: &[Leasing]) -> Result<(), String> {
        all.iter().for_each(|leasing| self.publish_rule(leasing.key));
        let requests: Vec<LeaseRequest> =
            all.iter().map(|leasing| self.lease_ask(leasing)).collect();
        let reply = self.bench.run(self.bench.link.call(&encode_lease(&requests, Some(self.now))));
        let reply = reply.map_err(|error| error.to_string())?;
        let told = decode_lease(&requests, reply.clone())
            .map_err(|error| format!("{error}: {reply:?}"))?;
        for ((leasing, request), told) in all.iter().zip(&requests).zip(told) {
            if self.is_victim(leasing.key) {
                continue;
            }
            self.compare_lease(leasing.key, request, told)?;
        }
        Ok(())
    }

    fn lease_ask(&mut self, leasing: &Leasing) -> LeaseRequest {
        self.serial += 1;
        let Leasing { key, node, late, give, hold, want, ttl } = *leasing;
        let leases = self.accounts[key].leases();
        let own = leases.nodes().iter().find(|cell| cell.node == node);
        let part = |percent: u64| {
            own.map_or(0, |own| own.amount / 100 * percent + own.amount % 100 * percent / 100)
        };
        LeaseRequest {
            key: self.key(key),
            rule: self.rule(key),
            node,
            serial: self.serial.saturating_sub(late),
            give: part(give),
            hold: part(hold),
            want,
            ttl,
        }
    }

    fn compare_lease(
        &mut self,
        key: usize,
        request: &LeaseRequest,
        told: LeaseOutcome,
    ) -> Result<(), String> {
        let LeaseRequest { node, serial, give, hold, want, ttl, .. } = *request;
        let wish = LeaseDemand { node, serial, give, hold, want, ttl };
        let plan = self.rules[key].plan_at(self.now);
        let mut record = Record { epoch: self.epoch(key)?, account: self.accounts[key].clone() };
        match told {
            LeaseOutcome::Unsupported => {
                self.leased.1 += u64::from(want <= EXACT_MAX);
                return Ok(());
            }
            LeaseOutcome::Stale => {
                return same(
                    "late",
                    &record.lease(&plan.steps, &wish, self.now),
                    &LeaseReply::Stale,
                );
            }
            LeaseOutcome::Granted {
                now,
                granted,
                until,
                is_extended: kept,
                account,
                epoch,
                ..
            } => {
                same("the time", &now, &self.now)?;
                let cells = record.account.leases().nodes().iter();
                let mut live = cells.filter(|cell| cell.until > now && cell.node == node);
                let is_retry = live.any(|cell| cell.serial == serial);
                let leased = record.lease(&plan.steps, &wish, now);
                let LeaseReply::Granted(grant) = leased else { return Err(format!("{leased:?}")) };
                let (gave_back, told) = (kept && give > 0 && !is_retry, (granted, until, kept));
                same("leased", &told, &(grant.granted, grant.until, grant.valid))?;
                same("given back", &gave_back, &grant.returned)?;
                same("the record after it", &account, &record.account)?;
                same("the epoch after it", &epoch, &self.epoch(key)?)?;
                self.leased.0 += 1;
            }
        }
        self.accounts[key] = record.account;
        Ok(())
    }
}
