//! Measures a replay on one thread: lines in nginx' combined format through one rule with a counter
//! for each client address, beside parsing alone. CPU time, so that other programs disturb little.
//!
//! ```text
//! cargo run --release -p sluicegate-lab --example replay_speed [LINES [CLIENTS]]
//! ```

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use sluicegate_accesslog::{Block, LogFile, Scratch};
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_lab::log_input::LogInput;
use sluicegate_lab::log_input::arrivals::ClientParts;
use sluicegate_lab::log_input::mapping::LogMapping;
use sluicegate_lab::replay::json::ReplayOutput;
use sluicegate_lab::replay::run::{LogReplay, ReplayedRules};
use sluicegate_rules::set::RuleSet;

const RULES: &str = "domain: web
forward_auth: { descriptors: [{ remote_address: client_ip }] }
descriptors:
  - { key: remote_address, limits: { algorithm: token_bucket, rate: 1/s, burst: 10 } }
";
const ROUNDS: usize = 5;
/// Requests in a second of the log.
const PER_SECOND: u64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (lines, clients) = (number(2_000_000)?, number(100_000)?);
    let path = std::env::temp_dir().join(format!("sluicegate-speed-{}.log", std::process::id()));
    generate(&path, lines, clients)?;
    let measured = measure(&path, lines, clients);
    fs::remove_file(&path)?;
    measured
}

fn measure(path: &Path, lines: u64, clients: u64) -> Result<(), Box<dyn std::error::Error>> {
    println!("{lines} lines, {clients} clients, one thread, {ROUNDS} rounds");
    let source = Source { name: "rules".to_owned(), text: RULES.to_owned() };
    let domains = load(&[source], &Options::default())?.domains;
    let mapping = LogMapping::of_rules(&RuleSet::new(domains.clone())?, None)?;
    let replay = LogReplay::new(ReplayedRules { domains, mapping });
    let parts = ClientParts { client: "client_ip".parse()?, hits: None };
    let input = LogInput::new([path]);
    report("parse", lines, || parse(path))?;
    report("parse, map, order", lines, || {
        let mut requests = 0;
        input.each_arrival(
            &parts,
            |_| {},
            |_| {
                requests += 1;
                Ok(())
            },
        )?;
        Ok(requests)
    })?;
    report("parse, map, order, decide, count", lines, || {
        let result = replay.run(&input, &mut ReplayOutput::default(), |_| {})?;
        Ok(result.rules.tally.requests.requests)
    })?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("{peak}");
    Ok(())
}

type Measured = Result<u64, Box<dyn std::error::Error>>;

fn report(
    name: &str,
    lines: u64,
    mut run: impl FnMut() -> Measured,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut nanos = Vec::new();
    for _ in 0..ROUNDS {
        let before = cpu_nanos()?;
        let requests = run()?;
        assert_eq!(requests, lines, "every line is a request");
        nanos.push((cpu_nanos()? - before) as f64 / lines as f64);
    }
    nanos.sort_by(f64::total_cmp);
    let (least, median) = (nanos[0], nanos[ROUNDS / 2]);
    let rate = 1e3 / median;
    println!(
        "{name:<36} {median:6.0} ns a line (least {least:.0}), {rate:.2} million lines a second"
    );
    Ok(())
}

fn parse(path: &Path) -> Measured {
    let mut log = LogFile::open(path, None)?;
    let parser = log.parser().clone();
    let (mut block, mut scratch, mut requests) = (Block::default(), Scratch::default(), 0);
    while log.next_block(&mut block)? {
        for line in block.lines() {
            let record = parser.parse(line, &mut scratch);
            requests += u64::from(record.is_ok_and(|record| record.is_some()));
        }
    }
    Ok(requests)
}

/// CPU time of this thread.
fn cpu_nanos() -> Result<u64, Box<dyn std::error::Error>> {
    let times = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(times.split(' ').next().unwrap_or_default().parse()?)
}

fn generate(path: &Path, lines: u64, clients: u64) -> std::io::Result<()> {
    const AGENTS: [&str; 4] = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0.0.0 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
        "curl/8.15.0",
    ];
    let (mut rng, mut out) = (fastrand::Rng::with_seed(1), BufWriter::new(fs::File::create(path)?));
    for line in 0..lines {
        let second = line / PER_SECOND;
        let (day, hour, minute) = (16 + second / 86_400, second / 3_600 % 24, second / 60 % 60);
        // Heavy-tailed: the first clients send most.
        let client = (clients as f64).powf(rng.f64()) as u64;
        writeln!(
            out,
            "10.{}.{}.{} - - [{day:02}/Nov/2026:{hour:02}:{minute:02}:{:02} +0000] \"GET /products/{}?page={} HTTP/1.1\" \
             200 {} \"https://shop.example/\" \"{}\"",
            client >> 16 & 255,
            client >> 8 & 255,
            client & 255,
            second % 60,
            rng.u32(..10_000),
            rng.u32(..9),
            rng.u32(200..40_000),
            AGENTS[rng.usize(..AGENTS.len())]
        )?;
    }
    out.flush()
}
