//! Many clients who all want the same, at once.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sluicegate_load::{
    Amount, KeyOrder, KeySpace, Pace, Plan, Report, RequestSpec, Server, Timer, run as run_load,
};

use crate::client::{Answer, Client};
use crate::support::service::Service;

/// Clients of each service.
pub const CLIENTS: usize = 4;

/// How often something was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub lost: u64,
}

/// How it goes meanwhile, for whoever wants to disturb it.
#[derive(Default)]
pub struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    allowed: u64,
    ended: usize,
    clients: usize,
    has_happened: bool,
}

/// When a client has had enough of one thing.
#[derive(Clone, Copy)]
enum Until {
    /// It asked so often.
    Times(u64),
    /// The same, and what was to happen meanwhile has happened.
    TimesAndEvent(u64),
    /// It was not allowed.
    NotAllowed,
    /// It was denied, however often it got no answer before.
    Denied,
}

/// Whoever gets no answer so often never will.
const FAILURES_MAX: u64 = 20_000;

/// Every client of every service asks so often for each of these, by turns. What each was answered,
/// in their order.
pub fn ask_times(services: &[Service], asked: &[&str], times: u64) -> Vec<Counts> {
    hammer(services, asked, Until::Times(times), |_| {})
}

/// The same, and meanwhile something happens.
pub fn ask_times_while(
    services: &[Service],
    asked: &[&str],
    times: u64,
    happens: impl FnOnce(&Progress),
) -> Vec<Counts> {
    hammer(services, asked, Until::TimesAndEvent(times), happens)
}

/// Every client of every service asks for this until it is not allowed, and meanwhile something
/// happens.
pub fn ask_until_not_allowed_while(
    services: &[Service],
    asked: &str,
    happens: impl FnOnce(&Progress),
) -> Counts {
    hammer(services, &[asked], Until::NotAllowed, happens)[0]
}

/// Every client of every service asks for this until it is denied.
pub fn ask_until_denied(services: &[Service], asked: &str) -> Counts {
    hammer(services, &[asked], Until::Denied, |_| {})[0]
}

fn hammer(
    services: &[Service],
    asked: &[&str],
    until: Until,
    happens: impl FnOnce(&Progress),
) -> Vec<Counts> {
    let progress = Progress::default();
    progress.state().clients = services.len() * CLIENTS;
    let mut counts = vec![Counts::default(); asked.len()];
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for (number, service) in services.iter().enumerate() {
            let (address, progress) = (service.http.as_str(), &progress);
            for client in 0..CLIENTS {
                let turn = number * CLIENTS + client;
                let body = move || run(address, asked, turn, until, progress);
                clients.push(scope.spawn(body));
            }
        }
        {
            let _told = Told(&progress);
            happens(&progress);
        }
        for client in clients {
            for (all, one) in counts.iter_mut().zip(client.join().unwrap()) {
                *all += one;
            }
        }
    });
    println!("{asked:?}: {counts:?}");
    counts
}

/// One client, who begins with another one of what is asked than the one before.
fn run(
    address: &str,
    asked: &[&str],
    turn: usize,
    until: Until,
    progress: &Progress,
) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); asked.len()];
    let mut open = vec![true; asked.len()];
    let mut place = turn % asked.len();
    let mut client = Client::of(address).unwrap();
    while open.contains(&true) {
        if open[place] {
            let answer = client.check(asked[place]);
            counts[place].count(answer);
            progress.heard(answer);
            if answer == Answer::Lost {
                break;
            }
            assert!(counts[place].failed < FAILURES_MAX, "{}: {counts:?}", asked[place]);
            open[place] = match until {
                Until::Times(times) => counts[place].sum() < times,
                Until::TimesAndEvent(times) => {
                    counts[place].sum() < times || !progress.state().has_happened
                }
                Until::NotAllowed => answer == Answer::Allowed,
                Until::Denied => answer != Answer::Denied,
            };
        }
        place = (place + 1) % asked.len();
    }
    progress.ended();
    counts
}

/// Asks every service over gRPC, as Envoy does, many calls at once: so often each, for this value
/// of a key.
pub fn ask_over_rls(services: &[Service], key: &str, value: &str, times: u64) -> Counts {
    ask_with(services, key, value, times, 8)
}

/// The same with 64 calls in flight at each service.
pub fn load_in_parallel(services: &[Service], key: &str, value: &str, times: u64) -> Counts {
    ask_with(services, key, value, times, 32)
}

fn ask_with(services: &[Service], key: &str, value: &str, times: u64, at_once: usize) -> Counts {
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let ask = |service| {
            let plan = plan_over_rls(service, key, value);
            let plan = Plan { amount: Amount::Count(times), at_once, ..plan };
            scope.spawn(move || run_load(&plan, |_| {}).unwrap())
        };
        let runs: Vec<_> = services.iter().map(ask).collect();
        for run in runs {
            let Report { allowed, denied, errors, .. } = run.join().unwrap();
            counts += Counts { allowed, denied, failed: errors, lost: 0 };
        }
    });
    println!("{key}={value} over gRPC: {counts:?}");
    counts
}

/// The same of one service, and all that there is to know about it.
pub fn load_over_rls(service: &Service, key: &str, value: &str, times: u64) -> Report {
    let plan = Plan { amount: Amount::Count(times), ..plan_over_rls(service, key, value) };
    run_load(&plan, |_| {}).unwrap()
}

/// Asking one service over gRPC for a value of a key: once, as it stands here.
pub fn plan_over_rls(service: &Service, key: &str, value: &str) -> Plan {
    let descriptors = vec![vec![(key.to_owned(), value.to_owned())]];
    Plan {
        address: service.grpc.parse::<SocketAddr>().unwrap(),
        request: RequestSpec::Rls { domain: "shop".to_owned(), descriptors },
        keys: KeySpace { count: 1, order: KeyOrder::Sequential, seed: 1 },
        pace: Pace::Closed,
        amount: Amount::Count(1),
        warm_up: Duration::ZERO,
        fill: false,
        connections: 2,
        at_once: 8,
        threads: 1,
        timeout: Duration::from_secs(60),
        request_timeout: None,
        timer: Timer::Exact,
        denied: vec![429],
        password: None,
        server: Server::Processes(Vec::new()),
    }
}

impl Counts {
    /// What may have been charged without anybody hearing of it.
    pub const fn in_doubt(&self) -> u64 {
        self.failed + self.lost
    }

    const fn sum(&self) -> u64 {
        self.allowed + self.denied + self.failed + self.lost
    }

    const fn count(&mut self, answer: Answer) {
        match answer {
            Answer::Allowed => self.allowed += 1,
            Answer::Denied => self.denied += 1,
            Answer::Failed => self.failed += 1,
            Answer::Lost => self.lost += 1,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

/// Lets clients end when what was to happen has happened, or has gone wrong.
struct Told<'a>(&'a Progress);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.state().has_happened = true;
    }
}

impl Progress {
    /// Waits until so many were allowed. It is a test of nothing if all clients have ended before.
    pub fn await_allowed(&self, count: u64) {
        let waits = |state: &mut State| state.allowed < count && state.ended < state.clients;
        let state = self.changed.wait_while(self.state(), waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        assert!(state.ended < state.clients, "all clients had ended, with {} hits", state.allowed);
    }

    /// How many were allowed so far.
    pub fn allowed(&self) -> u64 {
        self.state().allowed
    }

    fn heard(&self, answer: Answer) {
        if answer == Answer::Allowed {
            self.state().allowed += 1;
            self.changed.notify_all();
        }
    }

    fn ended(&self) {
        self.state().ended += 1;
        self.changed.notify_all();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
