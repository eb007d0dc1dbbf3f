//! A limit on virtual time in Redis: the counterpart of [`crate::trial::Trial`].
//!
//! Both must return the same answers, which the specification scripts verify.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate_config::quota::explain;
use sluicegate_core::account::Moment;
use sluicegate_core::mode::{Gate, Mode};
use sluicegate_redis::{Address, CallError, Link, LinkOptions, VirtualError, VirtualLimiter};
use sluicegate_rules::limit::{LimitConfig, names};
use tokio::runtime::{Builder, Runtime};

use crate::answer::TrialAnswer;
use crate::line::{HolderIds, Line, ScriptOp};

/// Call timeout; generous, since latency does not matter here.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Limits under trial in Redis. Dropping it deletes its keys.
#[derive(Debug)]
pub struct RedisTrial {
    limiter: VirtualLimiter,
    runtime: Runtime,
    url: String,
    names: Vec<String>,
    mode: Mode,
    gate: Gate,
    ids: HashMap<String, HolderIds>,
}

impl RedisTrial {
    /// A trial of these limits in the store at this address, enforced according to `mode`. Its keys
    /// begin with `namespace`, which must be unique.
    ///
    /// # Errors
    /// When the mode does not fit one of the limits, the address is invalid, or the store does not
    /// answer.
    pub fn new(
        url: &str,
        namespace: &str,
        limits: Vec<LimitConfig>,
        mode: Mode,
    ) -> Result<Self, String> {
        let address = Address::parse(url).map_err(|error| error.to_string())?;
        // The address without its password.
        let url = address.to_string();
        // Connections are maintained in the background.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        let names = names(&limits);
        let options =
            LinkOptions { timeout: TIMEOUT, connect_timeout: TIMEOUT, ..LinkOptions::default() };
        let limiter = runtime.block_on(async {
            let link = Link::open(address, options).map_err(|error| error.to_string())?;
            let opened = VirtualLimiter::open(link, namespace, limits, mode).await;
            opened.map_err(|error| message(&url, &error))
        })?;
        let (gate, ids) = (Gate::default(), HashMap::new());
        Ok(Self { limiter, runtime, url, names, mode, gate, ids })
    }

    /// Executes one line.
    ///
    /// # Errors
    /// A message with the rejected value and a correction, or that the store does not answer.
    pub fn run(&mut self, line: &Line) -> Result<TrialAnswer, String> {
        let now = line.at;
        if let (Mode::Elastic { gate, .. }, Some(load)) = (self.mode, line.load) {
            self.gate = self.gate.observe(&gate, load, now);
        }
        let Self { limiter, runtime, url, .. } = self;
        let op = self.ids.entry(line.key.clone()).or_default().op(&line.op);
        if let ScriptOp::SetLimit { limits, carry_over } = &line.op {
            let changed = limiter.set_limits(limits.clone(), *carry_over, now);
            runtime.block_on(changed).map_err(|error| message(url, &error))?;
            self.names = names(limits);
        }
        let moment = Moment { now, spare_capacity: self.gate.is_open(now) };
        let answer = runtime.block_on(limiter.apply(line.key.as_bytes(), op, moment));
        let answer = answer.map_err(|error| message(url, &error))?;
        Ok(TrialAnswer::new(&line.op, &answer, &self.names))
    }
}

impl Drop for RedisTrial {
    fn drop(&mut self) {
        // Keys that cannot be deleted now expire within the hour.
        let _ = self.runtime.block_on(self.limiter.clear());
    }
}

fn message(url: &str, error: &VirtualError) -> String {
    match error {
        VirtualError::Quota(error) => explain(error),
        VirtualError::Store(CallError::Refused(why)) => {
            format!("the store at `{url}` refused: {why}")
        }
        VirtualError::Store(error) => {
            format!(
                "{error}: nobody answers at `{url}`; start a Redis there, or name another with `--store`"
            )
        }
        error => error.to_string(),
    }
}
