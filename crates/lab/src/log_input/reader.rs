//! Reads and parses logs, in other threads or in this one.
//!
//! A worker takes the next block of a log, of which one is read at a time, and parses it while
//! others read on. Batches are numbered as their blocks were read. A log that is read for the first
//! time has one block in flight, so that many logs take little memory; later it has several.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;
use sluicegate_accesslog::{Block, InputPosition, LineParser, LogFile, Scratch};

use super::LogError;
use super::batch::{Batch, ShardKey};
use super::mapping::LogMapping;

/// Blocks in flight of a log, for each worker.
const IN_FLIGHT: usize = 3;

/// What is made of each line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineTarget<'a> {
    /// At least one.
    pub(super) mappings: &'a [LogMapping],
    pub(super) shard_key: Option<&'a ShardKey>,
}

/// Logs that are being read.
#[derive(Debug)]
pub(super) struct OpenLogs(Vec<OpenLog>);

#[derive(Debug)]
struct OpenLog {
    parser: LineParser,
    position: InputPosition,
    file: Mutex<NumberedFile>,
}

/// A log, and how many blocks were read.
#[derive(Debug)]
struct NumberedFile {
    file: LogFile,
    blocks: u64,
}

/// Memory of a thread that parses.
#[derive(Debug, Default)]
pub(super) struct ParserMemory {
    block: Block,
    scratch: Scratch,
}

/// A batch, or the end of a log, by the number of its block.
type Parsed = (usize, u64, Result<Option<Batch>, LogError>);

/// Batches of logs, in the order of their lines.
pub(super) enum Batches<'a> {
    /// Parsed when they are needed.
    Inline { logs: &'a OpenLogs, target: LineTarget<'a>, memory: ParserMemory },
    /// Parsed by workers.
    Workers { jobs: Sender<usize>, parsed: Receiver<Parsed>, workers: usize, logs: Vec<InFlight> },
}

/// Blocks of a log that workers read and parse.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    requested: u64,
    next: u64,
    early: BTreeMap<u64, Result<Option<Batch>, LogError>>,
}

impl OpenLogs {
    pub(super) fn new(files: Vec<LogFile>) -> Self {
        let open = |file: LogFile| {
            let (parser, position) = (file.parser().clone(), file.position().clone());
            OpenLog { parser, position, file: Mutex::new(NumberedFile { file, blocks: 0 }) }
        };
        Self(files.into_iter().map(open).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes that were read, and all where that is known.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let read = self.0.iter().map(|log| log.position.read()).sum();
        (read, self.0.iter().map(|log| log.position.size()).sum())
    }

    /// Reads and parses the next block of a log.
    fn next(&self, log: usize, target: LineTarget<'_>, memory: &mut ParserMemory) -> Parsed {
        let OpenLog { parser, file, .. } = &self.0[log];
        let ParserMemory { block, scratch } = memory;
        let mut numbered = file.lock();
        let number = numbered.blocks;
        numbered.blocks += 1;
        let is_read = numbered.file.next_block(block);
        drop(numbered);
        match is_read {
            Ok(true) => (log, number, Ok(Some(parsed(parser, block, scratch, target)))),
            Ok(false) => (log, number, Ok(None)),
            Err(error) => (log, number, Err(LogError::Log(error))),
        }
    }

    /// Calls `f` with the batches, which so many workers parse.
    pub(super) fn with_batches<R>(
        &self,
        target: LineTarget<'_>,
        workers: usize,
        f: impl FnOnce(&mut Batches<'_>) -> R,
    ) -> R {
        if workers == 0 {
            return f(&mut Batches::Inline { logs: self, target, memory: ParserMemory::default() });
        }
        let (jobs, taken) = channel::<usize>();
        let taken = &Mutex::new(taken);
        thread::scope(|scope| {
            let (results, parsed) = channel();
            for _ in 0..workers {
                let results = results.clone();
                scope.spawn(move || {
                    let mut memory = ParserMemory::default();
                    loop {
                        let job = taken.lock().recv();
                        let Ok(log) = job else { return };
                        if results.send(self.next(log, target, &mut memory)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(results);
            let logs = (0..self.len()).map(|_| InFlight::default()).collect();
            f(&mut Batches::Workers { jobs, parsed, workers, logs })
        })
    }
}

/// The requests of a block.
fn parsed(
    parser: &LineParser,
    block: &Block,
    scratch: &mut Scratch,
    target: LineTarget<'_>,
) -> Batch {
    let mut batch = Batch::for_bytes(block.as_bytes().len());
    for (text, line) in block.lines().zip(0u32..) {
        match parser.parse(text, scratch) {
            Ok(Some(record)) => {
                batch.push((target.mappings, target.shard_key), &record, (line, text));
            }
            Ok(None) => {}
            Err(error) => batch.malformed.add(u64::from(line), || error.to_string(), text),
        }
        batch.lines = u64::from(line) + 1;
    }
    batch
}

impl Batches<'_> {
    /// The next batch of a log; `None` at its end.
    pub(super) fn next(&mut self, log: usize) -> Result<Option<Batch>, LogError> {
        match self {
            Self::Inline { logs, target, memory } => logs.next(log, *target, memory).2,
            Self::Workers { jobs, parsed, workers, logs } => {
                let in_flight = &mut logs[log];
                let ahead = if in_flight.next == 0 { 1 } else { *workers * IN_FLIGHT };
                while in_flight.requested < in_flight.next + ahead as u64 {
                    in_flight.requested += 1;
                    // A worker that is gone has sent no result: the next line fails.
                    let _ = jobs.send(log);
                }
                loop {
                    let in_flight = &mut logs[log];
                    if let Some(batch) = in_flight.early.remove(&in_flight.next) {
                        in_flight.next += 1;
                        return batch;
                    }
                    let (other, number, batch) = parsed.recv().map_err(|_| LogError::Ended)?;
                    logs[other].early.insert(number, batch);
                }
            }
        }
    }
}
