//! What cannot be seen from outside, or only with a clock of its own.

mod commands;
mod connection;
mod holding;
mod roles;
mod waiting;

use std::sync::Arc;

use sluicegate::clock::ManualClock;
use sluicegate::throttle::Throttle;
use sluicegate::{Engine, Timestamp, rules_of};

use super::RespLimits;
use super::RespServer;
use super::dispatch::{Dispatcher, Next};
use crate::app::App;
use crate::health::Health;
use crate::rls::Options;
use crate::token::Token;
use crate::unmatched::UnmatchedPolicy;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 3/minute }
  - key: all
    limits: { algorithm: token_bucket, rate: 1/second, burst: 5 }
  - key: slots
    limits: { algorithm: concurrency, max: 1, lease: 1h }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
deny: [{ key: user, value: mallory }]
";

/// A client of a service whose clock stands still.
struct Client {
    talk: Dispatcher,
    clock: ManualClock,
    shared: Arc<RespServer>,
}

fn app(options: Options) -> (App, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let rules = rules_of(RULES).unwrap();
    let denies_unmatched = options.unmatched != UnmatchedPolicy::Allow;
    let engine = Engine::builder(rules).clock(clock.clone()).deny_unmatched(denies_unmatched);
    let engine = engine.build().unwrap();
    let health = Health::default();
    health.rules_loaded(1);
    (App::builder(engine).options(options).health(health).build(), clock)
}

fn shared(app: App, limits: RespLimits, password: Option<Token>) -> RespServer {
    let throttle = Throttle::new(app.engine().memory());
    RespServer::new(
        app,
        throttle,
        super::Options { limits, password, is_open: true, operator_token: None },
    )
}

impl Client {
    fn new() -> Self {
        Self::with(Options::default(), RespLimits::default(), None)
    }

    fn with(options: Options, limits: RespLimits, password: Option<&str>) -> Self {
        let (app, clock) = app(options);
        let password = password.map(|password| Token::new(password).unwrap());
        let shared = Arc::new(shared(app, limits, password));
        Self { talk: Dispatcher::new(shared.clone(), None), clock, shared }
    }

    /// One more client of the same service, at this address.
    fn beside(&self, peer: [u8; 4]) -> Self {
        let (clock, shared) = (self.clock.clone(), self.shared.clone());
        Self { talk: Dispatcher::new(shared.clone(), Some(peer.into())), clock, shared }
    }

    /// What is replied to a line.
    fn ask(&mut self, line: &str) -> String {
        let (said, next) = self.sends(format!("{line}\r\n").as_bytes());
        assert_eq!(next, Next::Read, "{line}");
        said
    }

    /// The whole numbers that are replied to a line.
    fn numbers(&mut self, line: &str) -> Vec<i64> {
        let said = self.ask(line);
        let mut lines = said.lines();
        let length = lines.next().and_then(|line| line.strip_prefix('*'));
        let length: usize = length.unwrap_or_else(|| panic!("{line}: {said}")).parse().unwrap();
        let numbers = lines.map(|line| line.strip_prefix(':').unwrap().parse().unwrap());
        let numbers: Vec<i64> = numbers.collect();
        assert_eq!(numbers.len(), length);
        numbers
    }

    fn sends(&mut self, bytes: &[u8]) -> (String, Next) {
        let (mut out, mut from) = (Vec::new(), 0);
        loop {
            let (taken, next) = self.talk.execute(&bytes[from..], &mut out);
            from += taken;
            if next != Next::Send {
                return (String::from_utf8(out).unwrap(), next);
            }
            let held = out.len();
            assert!(held < self.shared.limits.reply_bytes + (70 << 10), "{held} bytes are held");
            out.clear();
        }
    }
}
