//! A bucket that fills while it is used, under real traffic and leases.

use std::thread;
use std::time::Duration;

use sluicegate_load::{Amount, Arrivals, Pace, Rate, run};
use sluicegate_testkit::redis::Single;

use crate::fleet::Fleet;
use crate::hammer::plan_over_rls;
use crate::levels::store_time;

const NODES: u64 = 2;
const RATE: u64 = 400;
const BURST: u64 = 200;
const SECONDS: u64 = 4;

const RULES: &str = "
  - key: user
    consistency: leased
    limits: { algorithm: token_bucket, rate: 400/s, burst: 200 }
    on_store_failure: error
";

#[test]
fn what_it_gives_is_had_and_no_more() {
    let server = Single::start();
    let fleet = Fleet::start(NODES as usize, server.url(), RULES);
    let before = store_time(&server);
    let (mut allowed, mut errors) = (0, 0);
    thread::scope(|scope| {
        let ask = |service| {
            let mut plan = plan_over_rls(service, "user", "ada");
            let each = Rate::per_second((2 * RATE / NODES) as f64).unwrap();
            plan.pace = Pace::Open(each, Arrivals::Poisson);
            plan.amount = Amount::Time(Duration::from_secs(SECONDS));
            scope.spawn(move || run(&plan, |_| {}).unwrap())
        };
        let runs: Vec<_> = fleet.services.iter().map(ask).collect();
        for run in runs {
            let report = run.join().unwrap();
            println!(
                "{} allowed, {} denied, {} failed",
                report.allowed, report.denied, report.errors
            );
            allowed += report.allowed;
            errors += report.errors;
        }
    });
    let took = store_time(&server) - before;
    let most = BURST + RATE * took / 1_000_000;
    let least = (BURST + RATE * SECONDS) * 9 / 10;
    println!("{allowed} of at most {most} in {} ms, at least {least}", took / 1_000);
    assert_eq!(errors, 0);
    assert!(allowed <= most, "{allowed} of {most}");
    assert!(allowed >= least, "{allowed}, wanted {least}");
    fleet.trusts_its_store();
}
