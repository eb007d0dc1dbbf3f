//! The cost of traffic statistics: calls of Envoy's service, decoded, decided and encoded, with
//! statistics (`on`), without (`off`), and with statistics and a candidate (`candidate`). The
//! number of calls, that of users, and the calls per second of the virtual clock, which the
//! sampling adapts to:
//!
//! ```text
//! cargo build --release -p sluicegate-server --example traffic_cost
//! target/release/examples/traffic_cost on 10000000 100000 100000
//! valgrind --tool=callgrind target/release/examples/traffic_cost on 300000 1000 100000
//! ```

use std::time::Instant;

use sluicegate::clock::ManualClock;
use sluicegate::config::rules::Source;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_rulestore::{Revision, RevisionKind, RevisionState, StoredRevision};
use sluicegate_server::app::App;
use sluicegate_server::candidate::{CandidateRun, RunOptions};
use sluicegate_server::telemetry::Endpoint;
use sluicegate_server::traffic::Traffic;

const START_MICROS: u64 = 1_794_744_000_000_000;

const RULES: &str = "domain: shop
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 1000 } }
";

const IDENTITIES: usize = 1_000_000;

#[expect(clippy::disallowed_methods, reason = "the time of calls is what is measured")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, calls, users, per_second] = args.as_slice() else {
        return Err("usage: traffic_cost on|off|candidate CALLS USERS PER_SECOND".into());
    };
    let (calls, users): (u64, u64) = (calls.parse()?, users.parse()?);
    let per_second: u64 = per_second.parse()?;
    let clock = ManualClock::at(Timestamp::from_micros(START_MICROS));
    let is_on = mode != "off";
    let engine =
        Engine::builder(rules_of(RULES)?).clock(clock.clone()).observe_traffic(is_on).build()?;
    let builder = App::builder(engine);
    let app = if is_on { builder.traffic(Traffic::default()).build() } else { builder.build() };
    if mode == "candidate" {
        let options = RunOptions {
            rules: Default::default(),
            near_limit_ratio: 0.8,
            identities_max: IDENTITIES,
        };
        app.candidate().begin(CandidateRun::start(&app, candidate(), &options)?);
    }
    let (mut out, mut scratch) = (Vec::new(), Default::default());
    let begun = Instant::now();
    for call in 0..calls {
        let user = format!("{:012}", call.wrapping_mul(2_654_435_761) % users);
        let entry = [&b"\x0a\x04user\x12\x0c"[..], user.as_bytes()].concat();
        let request = [&b"\x0a\x04shop\x12\x16\x0a\x14"[..], &entry].concat();
        out.clear();
        app.answer_local(Endpoint::ShouldRateLimit, &request, &mut scratch, &mut out)
            .ok_or("not local")?
            .map_err(|failure| format!("{failure:?}"))?;
        clock.set(Timestamp::from_micros(START_MICROS + call * 1_000_000 / per_second));
        if let Some(traffic) = app.traffic().filter(|_| call.is_multiple_of(per_second)) {
            traffic.tick(&app, app.engine().now());
            if let Some(run) = app.candidate().running() {
                run.tick(&app, app.engine().now())?;
            }
        }
    }
    let elapsed = begun.elapsed().as_nanos() as f64 / calls as f64;
    println!("{mode}: {elapsed:.0} ns per call, {} resident kB", resident()?);
    Ok(())
}

/// The same rules.
fn candidate() -> StoredRevision {
    let revision = Revision {
        number: 2,
        base: Some(1),
        author: String::new(),
        at: jiff::Timestamp::UNIX_EPOCH,
        note: String::new(),
        kind: RevisionKind::Edit,
        state: RevisionState::Shadow,
        digest: String::new(),
        restores: None,
        activate_at: None,
        activated_at: None,
        approved_by: None,
        suspended_because: None,
    };
    let sources = vec![Source { name: "rules.yaml".to_owned(), text: RULES.to_owned() }];
    StoredRevision { revision, sources }
}

fn resident() -> Result<String, std::io::Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.unwrap_or_default().trim().trim_end_matches(" kB").to_owned())
}
