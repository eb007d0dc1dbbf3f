//! A primary that crashes while nodes hold leases that its replica has not heard of.

use sluicegate_testkit::redis::{Sentinel, Single};
use sluicegate_testkit::until;

use crate::fleet::Fleet;
use crate::hammer::{ask_times, ask_until_denied, ask_until_not_allowed_while};
use crate::levels::{await_lease, key_of, stop};

const NODES: usize = 4;
const LIMIT: u64 = 3_000;
/// Shorter than Sentinels need to see that a primary is dead: so everybody has stopped asking
/// before there is another.
const HASTY: [(&str, &str); 1] = [("SLUICEGATE_STORE_TIMEOUT", "300ms")];
const ADA: &str = r#"{"user":"ada"}"#;

fn rules(consistency: &str) -> String {
    format!(
        "
  - key: user
    consistency: {consistency}
    limits: {{ algorithm: fixed_window, rate: {LIMIT}/year }}
    on_store_failure: error
"
    )
}

#[test]
fn what_was_leased_and_lost_is_told_again() {
    let sentinel = Sentinel::start();
    let mut fleet = Fleet::with(NODES, sentinel.url(), &rules("leased"), &HASTY);
    let (primary, replica) = (sentinel.primary(), sentinel.replica());
    let mut counts = ask_times(&fleet.services, &[ADA], 20)[0];
    await_replicated(primary, replica);
    replica.pause();
    // It cannot connect again.
    primary.cli(&["CLIENT", "KILL", "TYPE", "REPLICA"]);
    counts += ask_until_not_allowed_while(&fleet.services, ADA, |progress| {
        progress.await_allowed(500);
        await_lease(primary, &key_of("user", "ada"));
        primary.kill();
    });
    replica.resume();
    sentinel.await_primary_other_than(primary.port());
    fleet.says("the store answers");
    let before = counts;
    until("the new primary was told what was used", || {
        (LIMIT as i64 - fleet.left(ADA)[0] >= before.allowed as i64).then_some(())
    });
    counts += ask_until_denied(&fleet.services, ADA);
    stop(&mut fleet.services);
    let last = Fleet::start(1, sentinel.url(), &rules("strict"));
    counts += ask_until_denied(&last.services, ADA);
    println!("{before:?} until the failover; {counts:?} of {LIMIT} in all");
    assert!(counts.allowed <= LIMIT, "{counts:?}");
}

fn await_replicated(primary: &Single, replica: &Single) {
    until("the replica has it all", || {
        let all = primary.info("master_repl_offset")?;
        (replica.info("slave_repl_offset")? == all).then_some(())
    });
}
