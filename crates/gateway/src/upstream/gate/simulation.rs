//! Overload of simulated servers behind a gate, on virtual time.
//!
//! ```text
//!   clients: two priorities, ──> gate ──> server: slots, a queue ──> responses
//!   Poisson arrivals              (production)
//! ```
//!
//! Everything but the server and the clients is the production code. A response counts if its
//! client still waits for it. The same seed gives the same run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use sluicegate_config::gateway::upstream::{AdaptiveConfig, CapacitySignal};

use super::state::GateState;
use super::*;

/// A server with a queue in front of its slots.
#[derive(Debug, Clone, Copy)]
struct ServerModel {
    /// Requests that it serves at a time.
    slots: usize,
    /// Mean time of a request.
    service: Duration,
    /// Whether that is exact, or distributed exponentially.
    varies: bool,
    /// Requests beyond which each one makes all of them slower, as with too many threads.
    knee: Option<usize>,
}

/// Offered requests for some time, each in shares of the capacity before any change.
#[derive(Debug, Clone, Copy)]
struct Offered {
    seconds: u64,
    high: f64,
    low: f64,
}

/// What happened in a second.
#[derive(Debug, Clone, Default)]
struct SecondCounts {
    /// By class: the important ones, then the others.
    offered: [u64; 2],
    /// In the second in which the requests arrived, as the one above.
    served: [u64; 2],
    rejected: [u64; 2],
    /// Responses in time, in this second.
    goodput: u64,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
struct SimRequest {
    class: usize,
    arrived: u64,
    /// When it was forwarded, and the requests in flight then.
    began: u64,
    in_flight: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The end of the longest wait of a request, by its number in the gate and its own.
    Expiry(u64, usize),
    Completion(usize),
    /// The next one of the changes of the server.
    Change,
}

struct Simulation {
    gate: GateState<usize>,
    server: ServerModel,
    busy: usize,
    queue: VecDeque<usize>,
    requests: HashMap<usize, SimRequest>,
    next_request: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    now: u64,
    rng: Rng,
    offered: VecDeque<(u64, Offered)>,
    changes: VecDeque<(u64, ServerModel)>,
    /// Requests per second.
    capacity: f64,
    seconds: Vec<SecondCounts>,
}

const SEED: u64 = 7;
const SECOND: u64 = 1_000_000;
/// How long a client waits.
const CLIENT_TIMEOUT: u64 = 2 * SECOND;
const MAX_WAIT: Duration = Duration::from_secs(1);
const LIMIT_MAX: usize = 1_000;
const PRIORITY: [u8; 2] = [9, 1];
/// Addresses of clients of each class.
const CLIENTS: u64 = 50;

impl ServerModel {
    const fn new(slots: usize, millis: u64) -> Self {
        Self { slots, service: Duration::from_millis(millis), varies: false, knee: None }
    }

    fn capacity(&self) -> f64 {
        self.slots as f64 / self.service.as_secs_f64()
    }

    fn service_time(&self, in_server: usize, rng: &mut Rng) -> u64 {
        let crowd = self.knee.map_or(1.0, |knee| (in_server as f64 / knee as f64).max(1.0));
        let random = if self.varies { -(1.0 - rng.f64()).ln() } else { 1.0 };
        (self.service.as_micros() as f64 * crowd * random) as u64
    }
}

impl Simulation {
    fn run(
        config: &ConcurrencyConfig,
        server: ServerModel,
        offered: &[Offered],
        changes: &[(u64, ServerModel)],
    ) -> Vec<SecondCounts> {
        let mut simulation = Self {
            gate: GateState::new(config),
            server,
            busy: 0,
            queue: VecDeque::new(),
            requests: HashMap::new(),
            next_request: 0,
            events: BinaryHeap::new(),
            next_event: 0,
            now: 0,
            rng: Rng::with_seed(SEED),
            offered: VecDeque::new(),
            changes: VecDeque::new(),
            capacity: server.capacity(),
            seconds: Vec::new(),
        };
        let mut ends = 0;
        for one in offered {
            ends += one.seconds;
            simulation.offered.push_back((ends * SECOND, *one));
        }
        for (second, server) in changes {
            simulation.changes.push_back((second * SECOND, *server));
            simulation.push(second * SECOND, Event::Change);
        }
        simulation.seconds.resize(ends as usize, SecondCounts::default());
        (0..2).for_each(|class| simulation.schedule_arrival(class));
        while let Some(Reverse((at, _, event))) = simulation.events.pop() {
            if at >= ends * SECOND {
                break;
            }
            simulation.now = at;
            simulation.handle(event);
            let limit = simulation.gate.figures().limit;
            simulation.second(at).limit = limit;
        }
        simulation.seconds
    }

    fn push(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, event)));
    }

    fn second(&mut self, at: u64) -> &mut SecondCounts {
        let index = (at / SECOND) as usize;
        &mut self.seconds[index]
    }

    fn schedule_arrival(&mut self, class: usize) {
        let mut at = self.now as f64;
        loop {
            let index = self.offered.partition_point(|(ends, _)| *ends as f64 <= at);
            let Some((ends, offered)) = self.offered.get(index) else { return };
            let share = [offered.high, offered.low][class];
            let rate = (share * self.capacity).max(1e-9) / SECOND as f64;
            let next = at - (1.0 - self.rng.f64()).ln() / rate;
            if next < *ends as f64 {
                return self.push(next as u64, Event::Arrival(class));
            }
            at = *ends as f64;
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(class) => self.arrive(class),
            Event::Expiry(id, request) => {
                if self.gate.expire(id)
                    && let Some(SimRequest { class, arrived, .. }) = self.requests.remove(&request)
                {
                    self.second(arrived).rejected[class] += 1;
                }
            }
            Event::Completion(request) => self.complete(request),
            Event::Change => {
                self.server = self.changes.pop_front().unwrap().1;
                self.start_queued();
            }
        }
    }

    fn arrive(&mut self, class: usize) {
        self.schedule_arrival(class);
        let (number, now) = (self.next_request, self.now);
        self.next_request += 1;
        self.second(now).offered[class] += 1;
        let request = SimRequest { class, arrived: now, began: now, in_flight: 0 };
        self.requests.insert(number, request);
        if self.gate.try_enter() {
            return self.forward(number);
        }
        let client = class as u64 * CLIENTS + self.rng.u64(..CLIENTS);
        match self.gate.enqueue((PRIORITY[class], client), self.rng.f64(), number) {
            Some(id) => {
                self.push(now + MAX_WAIT.as_micros() as u64, Event::Expiry(id, number));
                self.gate_decides(|gate, wake| gate.admit(wake));
            }
            None => {
                self.requests.remove(&number);
                self.second(now).rejected[class] += 1;
            }
        }
    }

    /// Requests that the gate admits are forwarded.
    fn gate_decides(&mut self, decide: impl FnOnce(&mut GateState<usize>, &mut dyn FnMut(usize))) {
        let mut admitted = Vec::new();
        decide(&mut self.gate, &mut |request| admitted.push(request));
        admitted.into_iter().for_each(|request| self.forward(request));
    }

    fn forward(&mut self, number: usize) {
        let in_flight = self.gate.in_flight();
        let request = self.requests.get_mut(&number).unwrap();
        (request.began, request.in_flight) = (self.now, in_flight);
        self.queue.push_back(number);
        self.start_queued();
    }

    fn start_queued(&mut self) {
        while self.busy < self.server.slots
            && let Some(request) = self.queue.pop_front()
        {
            self.busy += 1;
            let in_server = self.busy + self.queue.len();
            let time = self.server.service_time(in_server, &mut self.rng);
            self.push(self.now + time, Event::Completion(request));
        }
    }

    fn complete(&mut self, number: usize) {
        self.busy -= 1;
        self.start_queued();
        let request = self.requests.remove(&number).unwrap();
        let latency = Span::from_micros(self.now - request.began);
        let sample = AdaptiveSample { latency, in_flight: request.in_flight, is_failure: false };
        let now = Timestamp::from_micros(self.now);
        self.gate_decides(|gate, wake| gate.record(now, sample, wake));
        self.gate_decides(|gate, wake| gate.release(wake));
        if self.now - request.arrived <= CLIENT_TIMEOUT {
            self.second(request.arrived).served[request.class] += 1;
            self.second(self.now).goodput += 1;
        }
    }
}

const fn adaptive(start: usize) -> ConcurrencyConfig {
    let adaptive = AdaptiveConfig { signal: CapacitySignal::Latency, min: 4, start };
    ConcurrencyConfig { max: LIMIT_MAX, adaptive: Some(adaptive), max_wait: MAX_WAIT }
}

const fn fixed(max: usize) -> ConcurrencyConfig {
    ConcurrencyConfig { max, adaptive: None, max_wait: MAX_WAIT }
}

const fn offered(seconds: u64, high: f64, low: f64) -> Offered {
    Offered { seconds, high, low }
}

/// Half of the capacity for a minute.
const HALF: Offered = offered(60, 0.1, 0.4);

/// Responses in time over these seconds, as a share of the capacity.
fn goodput(seconds: &[SecondCounts], capacity: f64) -> f64 {
    let responses: u64 = seconds.iter().map(|second| second.goodput).sum();
    responses as f64 / seconds.len() as f64 / capacity
}

/// Share of the requests of a class that were served.
fn served(seconds: &[SecondCounts], class: usize) -> f64 {
    let sum = |of: fn(&SecondCounts) -> &[u64; 2]| -> u64 {
        seconds.iter().map(|second| of(second)[class]).sum()
    };
    sum(|second| &second.served) as f64 / sum(|second| &second.offered).max(1) as f64
}

fn limits(seconds: &[SecondCounts]) -> Vec<usize> {
    seconds.iter().step_by(10).map(|second| second.limit).collect()
}

/// Servers of different sizes: with a plain queue, with service times that vary, and with a
/// throughput that falls beyond twice the requests that they can serve at a time.
fn models() -> Vec<ServerModel> {
    let mut models = Vec::new();
    for (slots, millis) in [(2, 10), (10, 10), (20, 50), (100, 100)] {
        let exact = ServerModel::new(slots, millis);
        let varies = ServerModel { varies: true, ..exact };
        let knee = Some((slots * 2).max(8));
        models.extend([exact, varies]);
        models.extend([exact, varies].map(|model| ServerModel { knee, ..model }));
    }
    models
}

#[test]
fn overload_leaves_the_goodput_at_the_capacity_and_serves_the_important_requests() {
    for model in models() {
        for (high, low) in [(0.4, 0.8), (0.6, 1.4), (0.6, 4.4)] {
            let load = [HALF, offered(60, high, low), HALF];
            let seconds = Simulation::run(&adaptive(20), model, &load, &[]);
            // The first seconds find the capacity.
            let (before, surge) = (&seconds[20..60], &seconds[65..120]);
            let (goodput, important) = (goodput(surge, model.capacity()), served(surge, 0));
            let case = format!("{model:?} at {:.1}: {:?}", high + low, limits(&seconds));
            assert!(goodput >= 0.9, "{goodput} {case}");
            assert!(important >= 0.99, "{important} {case}");
            let (all, after) = (served(before, 1), served(&seconds[125..], 1));
            assert!(all >= 0.99 && after >= 0.99, "{all} and {after} below the capacity {case}");
            assert!(seconds.iter().all(|second| (4..=LIMIT_MAX).contains(&second.limit)));
        }
    }
}

#[test]
fn without_the_limit_the_goodput_collapses() {
    let model = ServerModel { knee: Some(40), ..ServerModel::new(20, 50) };
    let load = [HALF, offered(60, 0.6, 1.4)];
    let goodput_of = |config: &ConcurrencyConfig| {
        goodput(&Simulation::run(config, model, &load, &[])[70..], model.capacity())
    };
    let (none, known) = (goodput_of(&fixed(1_000_000)), goodput_of(&fixed(30)));
    assert!(none < 0.1, "{none}");
    assert!(known >= 0.99, "a fixed limit that fits: {known}");
}

#[test]
fn a_limit_that_starts_far_off_finds_the_capacity() {
    for (start, seconds) in [(4, 15), (20, 10), (1_000, 15)] {
        let model = ServerModel { knee: Some(200), ..ServerModel::new(100, 100) };
        let load = [offered(10, 0.1, 0.4), offered(60, 0.6, 1.4)];
        let run = Simulation::run(&adaptive(start), model, &load, &[]);
        let after = goodput(&run[10 + seconds..], model.capacity());
        assert!(after >= 0.95, "{after} from {start}: {:?}", limits(&run));
    }
}

#[test]
fn a_mild_overload_for_hours_does_not_raise_the_limit() {
    for (slots, millis) in [(2, 50), (10, 100), (20, 200)] {
        let model = ServerModel { varies: true, ..ServerModel::new(slots, millis) };
        let load = [HALF, offered(2 * 3_600, 0.4, 0.8)];
        let seconds = Simulation::run(&adaptive(20), model, &load, &[]);
        let hours = &seconds[600..];
        let of_last = hours[hours.len() - 3_600..].iter().map(|second| second.limit).sum::<usize>();
        let mean = of_last / 3_600;
        assert!(mean <= slots * 2 + 8, "{mean} for {slots} slots: {:?}", limits(&seconds));
        let goodput = goodput(hours, model.capacity());
        assert!(goodput >= 0.95, "{goodput} of {slots} slots: {:?}", limits(&seconds));
        assert!(served(hours, 0) >= 0.99);
    }
}

/// Half of the capacity is gone for two minutes: half of the slots, or each request takes twice as
/// long.
#[test]
fn capacity_that_halves_and_returns_is_followed_within_half_a_minute() {
    for (slots, millis, varies) in [(10, 10, false), (20, 50, true), (100, 100, false)] {
        let model = ServerModel { varies, ..ServerModel::new(slots, millis) };
        let fewer = ServerModel { slots: slots / 2, ..model };
        let slower = ServerModel { service: model.service * 2, ..model };
        for half in [fewer, slower] {
            let load = [HALF, offered(360, 0.3, 1.7)];
            let changes = [(180, half), (300, model)];
            let seconds = Simulation::run(&adaptive(20), model, &load, &changes);
            let case = format!("{half:?}: {:?}", limits(&seconds));
            for (range, capacity) in [(210..300, half.capacity()), (330..420, model.capacity())] {
                let goodput = goodput(&seconds[range], capacity);
                assert!(goodput >= 0.9, "{goodput} {case}");
            }
            let important = served(&seconds[60..], 0);
            assert!(important >= 0.99, "{important} {case}");
        }
    }
}

#[test]
fn one_client_does_not_take_the_places_of_the_others() {
    let mut gate = GateState::new(&fixed(10));
    let mut random = Rng::with_seed(7);
    (0..10).for_each(|_| assert!(gate.try_enter()));
    let mut entered = [0, 0];
    for _ in 0..1_000 {
        for (client, requests) in [(0, 100_u32), (1, 1)] {
            let mut enter =
                |_: u32| gate.enqueue((5, client), random.f64(), client as usize).is_some();
            entered[client as usize] += (0..requests).filter(|one| enter(*one)).count();
        }
        gate.release(|_| {});
        gate.release(|_| {});
    }
    assert!(entered[1] >= 990, "a request for each turn of two: {entered:?}");
}
