//! `sluicegate serve --store` as a fleet: several processes, one Redis, alone, under Sentinels and
//! as a Cluster; and what happens when it is gone.
//!
//! Each test has servers of its own, on free ports. Windows are of a year, buckets fill over days
//! and logs are of a day, except where real time is what is tested (`levels_refill`,
//! `levels_eventual`): no test depends on when it runs. Where hits are counted exactly, a call to
//! the store may take far longer than in real life: how fast this machine is, is not what is
//! tested.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod fleet;
mod hammer;
mod levels;

mod absent;
mod crashes;
mod doors;
mod exact;
mod faults;
mod first_request;
mod holding;
mod levels_away;
mod levels_eventual;
mod levels_failover;
mod levels_joining;
mod levels_killed;
mod levels_leased;
mod levels_refill;
mod levels_told;
mod recovery;
mod rolling;
mod starved;
mod throttle;
