//! Measures how accurately windows are counted: the tables and plots of `docs/ACCURACY.md`.
//!
//! ```text
//! cargo run --release -p sluicegate-lab --example accuracy -- counted  TRAFFIC RATE SEED
//! cargo run --release -p sluicegate-lab --example accuracy -- enforced TRAFFIC RATE SEED
//! cargo run --release -p sluicegate-lab --example accuracy -- adversary RATE
//! cargo run --release -p sluicegate-lab --example accuracy -- draw TITLE < TABLE > PLOT.svg
//! cargo run --release -p sluicegate-lab --example accuracy -- draw-adversary RATE > PLOT.svg
//! ```
//!
//! TRAFFIC is built-in traffic, as of `sluicegate compare --traffic`. Tables go to standard output,
//! the time taken to standard error.

use std::error::Error;
use std::io::Read as _;

use sluicegate_config::traffic::traffic;
use sluicegate_core::quota::Rate;
use sluicegate_lab::accuracy::{
    Adversary, Counting, Study, adversary, figures_table, methods, parse_figures, plot_adversary,
    plot_errors,
};
use sluicegate_lab::traffic::Traffic;
use tokio::time::Instant;

/// Requests between two reports of a study that is under way.
const REPORT_EVERY: u64 = 25_000_000;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["counted", text, rate, seed] => study(text, rate, seed, Counting::All),
        ["enforced", text, rate, seed] => study(text, rate, seed, Counting::Admitted),
        ["adversary", rate] => {
            let rate = rate_of(rate)?;
            println!("# method\tpeak\tof the limit");
            for run in adversary(rate) {
                let times = run.peak() as f64 / rate.count() as f64;
                println!("{}\t{}\t{times:.2}", run.name, run.peak());
            }
            Ok(())
        }
        ["draw", title] => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            print!("{}", plot_errors(title, &parse_figures(&text)?)?);
            Ok(())
        }
        ["draw-adversary", rate] => {
            let rate = rate_of(rate)?;
            let runs = adversary(rate);
            let shown =
                ["fixed_window", "sliding_window", "sliding_window, slices: 6", "sliding_log"];
            let named = |name: &&str| runs.iter().find(|run| run.name == *name);
            let shown: Vec<&Adversary> = shown.iter().filter_map(named).collect();
            let plot = plot_adversary(rate.count(), rate.period().as_micros(), &shown)?;
            print!("{plot}");
            Ok(())
        }
        _ => Err("give `counted` or `enforced` with TRAFFIC, RATE and SEED, `adversary RATE`, \
                  `draw TITLE` or `draw-adversary RATE`"
            .into()),
    }
}

fn study(text: &str, rate: &str, seed: &str, counting: Counting) -> Done<()> {
    let (rate, seed) = (rate_of(rate)?, seed.parse()?);
    let traffic = Traffic::new(traffic("TRAFFIC", text)?, seed);
    let mut study = Study::new(methods(rate, counting), rate, traffic.clients(), counting);
    let begun = Instant::now();
    let mut requests = 0u64;
    for arrival in traffic.arrivals() {
        study.observe(arrival);
        requests += 1;
        if requests.is_multiple_of(REPORT_EVERY) {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{requests} requests in {seconds:.0} s\n{}", figures_table(&study.figures()));
        }
    }
    eprintln!("{requests} requests in {:.0} s", begun.elapsed().as_secs_f64());
    println!("# {counting:?}: {text}, {} per {:?}, seed {seed}", rate.count(), rate.period());
    print!("{}", figures_table(&study.figures()));
    Ok(())
}

/// A rate as in rules.
fn rate_of(text: &str) -> Done<Rate> {
    let limits =
        sluicegate_config::limit::limits("RATE", &format!("{{ algorithm: tally, rate: {text} }}"))?;
    match limits.first().map(|limit| limit.at(sluicegate_core::time::Timestamp::EPOCH)) {
        Some(sluicegate_core::limit::Limit::Tally(tally)) => {
            Ok(Rate::new(tally.limit(), tally.period())?)
        }
        _ => Err(format!("must be a rate like `100/m`, got `{text}`").into()),
    }
}
