//! Reading access logs: the parse alone, without files, decompression and rules.
//!
//! Lines are generated, in blocks as the reader returns them. Times are CPU times of the thread.

mod lines;

use std::hint::black_box;

use serde::Serialize;
use serde_json::json;
use sluicegate_accesslog::{Block, BlockReader, LineParser, Scratch};

use crate::Common;
use crate::bars::{self, Bar, Goal};
use crate::frame::{self, Reading, Report, Results, Row, Schedule};
use crate::machine::ThreadTime;
use crate::table;

const GROUP: &str = "access log: parse";
const LINES: usize = 100_000;
const ROUNDS: u32 = 9;
const ROUNDS_QUICK: u32 = 3;
/// Share of the time that a thread may be runnable without a CPU.
const WAITED_MAX: f64 = 0.05;

const BARS: [Bar<Results<LogParsing>>; 1] =
    [Bar::new("combined, million lines/s", Goal::AtLeast(4.0), "", |results| {
        results.row(GROUP, "combined")?.statistic(LogParsing::millions_per_s)
    })];

/// Blocks of lines of a format.
struct LogCase {
    format: &'static str,
    parser: LineParser,
    blocks: Vec<Block>,
    lines: usize,
    bytes: usize,
}

/// Time per line.
#[derive(Debug, Serialize)]
struct LogParsing {
    ns_per_line: f64,
    /// Of dividing blocks into lines alone.
    division_ns: f64,
    waited: f64,
}

impl Reading for LogParsing {
    fn is_disturbed(&self) -> bool {
        self.waited > WAITED_MAX
    }
}

impl LogParsing {
    fn millions_per_s(&self) -> f64 {
        1e3 / self.ns_per_line
    }
}

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let selected = lines::FORMATS.into_iter().filter(|format| common.selects(format));
    let cases: Vec<LogCase> = selected.map(LogCase::new).collect::<anyhow::Result<_>>()?;
    let rounds = common.rounds.unwrap_or(if common.quick { ROUNDS_QUICK } else { ROUNDS });
    let row = |case: &LogCase| Row::new(GROUP, case.format).scheduled("", case.format);
    let rows = cases.iter().map(row).collect();
    let results =
        frame::run(rows, Schedule { rounds, attempts: 3 }, |index| cases[index].measure());
    let outcomes = bars::outcomes(&BARS, &results);
    let mut text = results.heading(&format!("; {LINES} lines"));
    text.push_str(&format!("\n{}\n{}", shown(&results, &cases), bars::list(&outcomes)));
    Ok(results.report(text, json!({ "lines": LINES }), &outcomes))
}

fn shown(results: &Results<LogParsing>, cases: &[LogCase]) -> String {
    const HEAD: [&str; 5] =
        [GROUP, "ns per line", "million lines/s", "division alone, ns", "bytes per line"];
    let rows = results.rows.iter().zip(cases).map(|(row, case)| {
        vec![
            row.name.clone(),
            row.shown(0, |one| one.ns_per_line),
            row.shown(2, LogParsing::millions_per_s),
            row.shown(0, |one| one.division_ns),
            (case.bytes / case.lines).to_string(),
        ]
    });
    table::render(&HEAD, 1, &rows.collect::<Vec<_>>())
}

// === impl LogCase ===

impl LogCase {
    fn new(format: &'static str) -> anyhow::Result<Self> {
        let text = lines::lines(format, LINES);
        let name = match format {
            "escaped" => "combined",
            "csv" => lines::CSV_FORMAT,
            _ => format,
        };
        let parser = LineParser::new(&name.parse()?, lines::CSV_HEAD.as_bytes())?;
        let mut reader = BlockReader::new(&text[..]);
        let mut blocks = Vec::new();
        let mut block = Block::default();
        while reader.next_block(&mut block)? {
            blocks.push(std::mem::take(&mut block));
        }
        Ok(Self { format, parser, blocks, lines: LINES, bytes: text.len() })
    }

    fn measure(&self) -> anyhow::Result<LogParsing> {
        let before = ThreadTime::read();
        let divided: usize = self.blocks.iter().map(|block| black_box(block.lines().count())).sum();
        let between = ThreadTime::read();
        let mut scratch = Scratch::default();
        let mut records = 0;
        for block in &self.blocks {
            for line in block.lines() {
                if let Ok(Some(record)) = black_box(self.parser.parse(line, &mut scratch)) {
                    records += usize::from(record.client_ip.is_some());
                }
            }
        }
        let parsing = ThreadTime::read().since(between);
        anyhow::ensure!(records == self.lines && divided == self.lines, "{records} records");
        let per_line = |time: ThreadTime| time.on_cpu.as_nanos() as f64 / self.lines as f64;
        Ok(LogParsing {
            ns_per_line: per_line(parsing),
            division_ns: per_line(between.since(before)),
            waited: parsing.waited.as_secs_f64() / (parsing.on_cpu + parsing.waited).as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generated_line_is_a_record() {
        for format in lines::FORMATS {
            LogCase::new(format).unwrap().measure().unwrap();
        }
    }
}
