//! `service --profile`: the service's part of a call, on the bytes of real requests, without a
//! network.
//!
//! Each *stage* does one thing more than the one before; the difference is its cost, in CPU time
//! and, with valgrind, in instructions.
//!
//! ```text
//!   request -> decode -> plan -> check -> whole call = check + encode + telemetry
//! ```

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};
use bytes::BytesMut;
use clap::ValueEnum;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest as RateLimitMessage;
use prost::Message as _;
use sluicegate::backend::Call;
use sluicegate::rules::plan::Plan;
use sluicegate::rules::request::{Descriptor, Request};
use sluicegate::{Checked, Engine, rules_of};
use sluicegate_load::{KeyOrder, KeySpace, Template};
use sluicegate_server::app::App;
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::rls::request::{RateLimitRequest, RequestLimits};
use sluicegate_server::rls::response::Code;
use sluicegate_server::telemetry::{Endpoint, Telemetry};

use super::requests::{self, RULES};
use super::samples;
use crate::frame::Spread;
use crate::machine::ThreadTime;
use crate::{Common, child, table as tables};

/// The stages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Writes the bytes of the request.
    Request,
    /// Decodes the request.
    Decode,
    /// Decodes it with prost instead, into an owned message.
    Prost,
    /// Finds its rules.
    Plan,
    /// Decides and charges.
    Check,
    /// Encodes the response and updates telemetry: the whole call.
    Whole,
    /// Telemetry alone: two clock reads and counting.
    Telemetry,
}

const CALLS: u64 = 300_000;
/// Under valgrind a call takes some fifty times as long.
const CALLS_COUNTED: u64 = 20_000;
const ROUNDS: usize = 7;
const KEYS: u64 = 100_000;
/// The length prefix of a gRPC message.
const HEAD: usize = 5;
/// The bar.
const CALL_NS_MAX: f64 = 1_000.0;

/// Prints the parts of a call, and samples of the server under load.
pub(super) fn run(common: &Common) -> anyhow::Result<ExitCode> {
    print!("{}", table(common)?);
    match samples::table(common)? {
        Some(table) => print!("\n{table}"),
        None => println!("\nperf is not installed: no samples of the server"),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(common: &Common) -> anyhow::Result<String> {
    let bench = Bench::new()?;
    let mut readings: [Vec<f64>; 7] = Default::default();
    let calls = if common.quick { CALLS / 4 } else { CALLS };
    for _ in 0..ROUNDS {
        for (stage, readings) in Stage::ALL.into_iter().zip(&mut readings) {
            let before = ThreadTime::read();
            bench.timed(stage, calls);
            let took = ThreadTime::read().since(before).on_cpu;
            readings.push(took.as_nanos() as f64 / calls as f64);
        }
    }
    let ns = readings.map(|readings| Spread::of(readings).map_or(f64::NAN, |spread| spread.median));
    let instructions = count_instructions()?;
    let mut rows = Vec::new();
    let mut row = |name: &str, of: fn([f64; 7]) -> f64| {
        let count = instructions.map_or("-".to_owned(), |all| format!("{:.0}", of(all)));
        rows.push(vec![name.to_owned(), format!("{:.0}", of(ns)), count]);
    };
    row("decode", |[request, decode, ..]| decode - request);
    row("decode with prost, for comparison", |[request, _, prost, ..]| prost - request);
    row("plan", |[_, decode, _, plan, ..]| plan - decode);
    row("decide", |[_, _, _, plan, check, ..]| check - plan);
    row("encode, and the rest", |[_, _, _, _, check, whole, telemetry]| whole - check - telemetry);
    row("telemetry, two clock reads", |all| all[6]);
    row("**a call**", |[request, .., whole, _]| whole - request);
    let mut text = format!(
        "The service's part of a call: one descriptor, {KEYS} live keys at random, one thread, no network.\n\n"
    );
    text.push_str(&tables::render(&["part", "CPU ns", "instructions"], 1, &rows));
    let call = ns[5] - ns[0];
    let verdict = if call < CALL_NS_MAX { "PASS" } else { "not reached" };
    text.push_str(&format!("\n{verdict}: a call takes {call:.0} ns; the bar is 1 µs\n"));
    Ok(text)
}

/// The child's side, for valgrind.
pub(crate) fn child(stage: Stage, calls: u64) -> anyhow::Result<()> {
    Bench::new()?.timed(stage, calls);
    Ok(())
}

/// Instructions of each stage per call, by the difference of two runs; `None` without valgrind.
fn count_instructions() -> anyhow::Result<Option<[f64; 7]>> {
    let there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if there.is_err() {
        return Ok(None);
    }
    let mut counts = [0.0; 7];
    for (stage, count) in Stage::ALL.into_iter().zip(&mut counts) {
        let (once, twice) =
            (instructions(stage, CALLS_COUNTED)?, instructions(stage, 2 * CALLS_COUNTED)?);
        *count = (twice - once) / CALLS_COUNTED as f64;
    }
    Ok(Some(counts))
}

fn instructions(stage: Stage, calls: u64) -> anyhow::Result<f64> {
    let name = stage.to_possible_value().context("a stage without a name")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*profile*Bench*timed*")
        .arg(child::this()?)
        .args(["calls", name.get_name(), &calls.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {stderr}");
    let line = stderr.lines().find_map(|line| line.split_once("Collected : "));
    match line.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) => Ok(number),
        None => bail!("valgrind counted nothing: {stderr}"),
    }
}

/// The request of the load generator.
fn template() -> Template {
    let keys = KeySpace { count: KEYS, order: KeyOrder::Uniform, seed: 1 };
    requests::rls().template(keys.digits(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// A service with live keys.
struct Bench {
    service: App,
    engine: Engine,
    telemetry: Telemetry,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let engine = Engine::new(rules_of(RULES)?)?;
        let service = App::new(engine.clone());
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        let (template, mut bytes) = (template(), BytesMut::new());
        for key in 0..KEYS {
            out.clear();
            bytes.clear();
            template.write(key, &mut bytes);
            let endpoint = Endpoint::ShouldRateLimit;
            let code = service.answer_local(endpoint, &bytes[HEAD..], &mut scratch, &mut out);
            ensure!(code == Some(Ok(Code::Ok)), "key {key} was denied");
        }
        Ok(Self { service, engine, telemetry: Telemetry::default() })
    }

    /// Never inlined: valgrind counts instructions inside this function.
    #[inline(never)]
    fn timed(&self, stage: Stage, calls: u64) {
        let (template, mut bytes) = (template(), BytesMut::new());
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut scratch, mut out) = (Scratch::default(), Vec::with_capacity(128));
        let (mut plan, mut checked) = (Plan::default(), Checked::default());
        // In a call, reading the clock is telemetry's part.
        let now = self.engine.now();
        for _ in 0..calls {
            bytes.clear();
            template.write(rng.u64(..KEYS), &mut bytes);
            let bytes = black_box(&bytes[HEAD..]);
            match stage {
                Stage::Request => {}
                Stage::Whole => {
                    out.clear();
                    let endpoint = Endpoint::ShouldRateLimit;
                    let code = self.service.answer_local(endpoint, bytes, &mut scratch, &mut out);
                    assert_eq!(black_box(code), Some(Ok(Code::Ok)));
                    black_box(&out);
                }
                Stage::Telemetry => {
                    let begun = self.engine.now();
                    let took = black_box(&self.engine).now().since(begun);
                    self.telemetry.record_response(Endpoint::ShouldRateLimit, took);
                }
                Stage::Prost => {
                    black_box(&RateLimitMessage::decode(bytes).ok());
                }
                Stage::Decode | Stage::Plan | Stage::Check => {
                    let Ok(message) = RateLimitRequest::decode(bytes, RequestLimits::default())
                    else {
                        return;
                    };
                    if stage == Stage::Decode {
                        // By reference: a move would be timed.
                        black_box(&message);
                        continue;
                    }
                    let descriptors = [Descriptor::of(message.entries(&message.descriptors[0]))];
                    let request =
                        Request { domain: message.domain, descriptors: &descriptors, hits: 1 };
                    let rules = self.engine.snapshot();
                    if stage == Stage::Plan {
                        rules.rules().plan(&request, &mut plan);
                        black_box(&plan);
                    } else {
                        self.engine.check_now(&Call::new(&rules, &request, now), &mut checked);
                        assert!(black_box(&checked).allowed);
                    }
                }
            }
        }
    }
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Decode,
        Self::Prost,
        Self::Plan,
        Self::Check,
        Self::Whole,
        Self::Telemetry,
    ];
}
