//! Progress of an HTTP/2 connection, read from its bytes.
//!
//! h2 waits without a limit for the rest of a frame, for the end of a header block and for the
//! SETTINGS of a client. [`FrameParser`] follows frame headers as bytes pass by, [`Progress`]
//! publishes what it finds, and a [`StallDetector`] compares it at intervals: an incomplete unit
//! (the preface with SETTINGS, a frame, a header block with its CONTINUATION frames) must end in
//! time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use super::Observer;
use crate::memory::{Account, Charge};

/// Bytes that an HTTP/2 client sends first.
pub(crate) const PREFACE_BYTES: usize = 24;

const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;

/// Bytes of an incomplete unit that the fixed cost of a connection covers.
const UNIT_BYTES_FREE: usize = 8 << 10;
/// Charge for a longer frame.
const FRAME_BYTES: usize = 16 << 10;
/// Charge for a longer header block: h2 bounds it to about as much.
const HEADER_BLOCK_BYTES: usize = 64 << 10;

/// Follows the frames of one direction.
#[derive(Debug)]
pub(crate) struct FrameParser {
    /// Frame header so far.
    header: [u8; FRAME_HEADER_BYTES],
    header_length: usize,
    /// Payload that is still to arrive; at first the preface.
    payload_left: usize,
    has_settings: bool,
    in_header_block: bool,
    /// Bytes of the incomplete unit.
    unit_bytes: usize,
    units: u64,
}

/// State of a connection, shared with its watchdog.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    is_incomplete: AtomicBool,
    units: AtomicU64,
    is_write_blocked: AtomicBool,
    writes: AtomicU64,
}

/// Compares the progress of a connection at intervals.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    units: u64,
    unit_checks: u32,
    writes: u64,
    write_checks: u32,
}

impl FrameParser {
    /// A connection of which `preface_left` bytes of the preface are still to arrive.
    pub(crate) const fn new(preface_left: usize) -> Self {
        Self {
            header: [0; FRAME_HEADER_BYTES],
            header_length: 0,
            payload_left: preface_left,
            has_settings: false,
            in_header_block: false,
            unit_bytes: 0,
            units: 0,
        }
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let count = self.payload_left.min(bytes.len());
                self.payload_left -= count;
                self.unit_bytes = self.unit_bytes.saturating_add(count);
                bytes = bytes.get(count..).unwrap_or_default();
            } else {
                let missing = self.header.get_mut(self.header_length..).unwrap_or_default();
                let count = missing.len().min(bytes.len());
                let (now, later) = bytes.split_at(count);
                missing.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
                self.header_length += count;
                bytes = later;
                if self.header_length < FRAME_HEADER_BYTES {
                    return;
                }
                self.begin_frame();
            }
            if self.payload_left == 0 && self.header_length == 0 && !self.in_header_block {
                self.unit_bytes = 0;
                self.units = self.units.wrapping_add(1);
            }
        }
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.header_length = 0;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            HEADERS | CONTINUATION => self.in_header_block = flags & END_HEADERS == 0,
            SETTINGS => self.has_settings = true,
            _ => {}
        }
    }

    fn is_incomplete(&self) -> bool {
        !self.has_settings
            || self.in_header_block
            || self.payload_left > 0
            || self.header_length > 0
    }

    /// Publishes the state, and charges the account for a unit that h2 buffers.
    ///
    /// # Errors
    /// When the memory budget does not allow a header block.
    pub(crate) fn publish(
        &self,
        progress: &Progress,
        account: &Arc<Account>,
        charge: &mut Option<Charge>,
    ) -> io::Result<()> {
        progress.is_incomplete.store(self.is_incomplete(), Relaxed);
        progress.units.store(self.units, Relaxed);
        if self.unit_bytes <= UNIT_BYTES_FREE {
            *charge = None;
        } else if charge.is_none() {
            let bytes = if self.in_header_block { HEADER_BLOCK_BYTES } else { FRAME_BYTES };
            *charge = account.charge(bytes);
            // A frame is bounded by itself, and has a request that can be refused.
            if charge.is_none() && self.in_header_block {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        Ok(())
    }
}

impl Progress {
    /// Records the outcome of a write.
    #[inline]
    pub(crate) fn wrote<T>(&self, outcome: &Poll<io::Result<T>>) {
        if outcome.is_pending() {
            self.is_write_blocked.store(true, Relaxed);
        } else if self.is_write_blocked.load(Relaxed) {
            self.is_write_blocked.store(false, Relaxed);
            self.writes.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.is_write_blocked.load(Relaxed)
    }
}

impl StallDetector {
    /// Whether a unit is incomplete, or a write blocked, since so many checks.
    pub(crate) fn is_stalled(&mut self, progress: &Progress, checks_max: u32) -> bool {
        let units = progress.units.load(Relaxed);
        let is_waiting = progress.is_incomplete.load(Relaxed) && units == self.units;
        self.unit_checks = if is_waiting { self.unit_checks.saturating_add(1) } else { 0 };
        self.units = units;
        let writes = progress.writes.load(Relaxed);
        let is_blocked = progress.is_write_blocked() && writes == self.writes;
        self.write_checks = if is_blocked { self.write_checks.saturating_add(1) } else { 0 };
        self.writes = writes;
        self.unit_checks >= checks_max || self.write_checks >= checks_max
    }
}

/// Observes an HTTP/2 connection and publishes its progress.
#[derive(Debug)]
pub(crate) struct Http2Observer {
    parser: FrameParser,
    progress: Arc<Progress>,
    account: Arc<Account>,
    charge: Option<Charge>,
}

impl Http2Observer {
    pub(crate) const fn new(progress: Arc<Progress>, account: Arc<Account>) -> Self {
        Self { parser: FrameParser::new(PREFACE_BYTES), progress, account, charge: None }
    }
}

impl Observer for Http2Observer {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.parser.feed(bytes);
        self.parser.publish(&self.progress, &self.account, &mut self.charge)
    }

    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.progress.wrote(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.resize(FRAME_HEADER_BYTES + usize::from(length), 0);
        bytes
    }

    /// Whether the connection is within a unit after each piece.
    fn incomplete(pieces: &[Vec<u8>]) -> Vec<bool> {
        let mut parser = FrameParser::new(PREFACE_BYTES);
        let feed = |piece: &Vec<u8>| {
            parser.feed(piece);
            parser.is_incomplete()
        };
        pieces.iter().map(feed).collect()
    }

    #[test]
    fn a_connection_is_incomplete_before_its_settings_and_within_frames_and_header_blocks() {
        let (preface, settings) = (vec![0; PREFACE_BYTES], frame(SETTINGS, 0, 6));
        assert_eq!(incomplete(&[preface.clone(), settings.clone()]), [true, false]);
        let begun = [preface, settings].concat();
        let ping = frame(6, 0, 8);
        let pieces = [begun.clone(), ping[..3].to_vec(), ping[3..12].to_vec(), ping[12..].to_vec()];
        assert_eq!(incomplete(&pieces), [false, true, true, false]);
        let (open, more) = (frame(HEADERS, 1, 20), frame(CONTINUATION, 0, 0));
        let end = frame(CONTINUATION, END_HEADERS, 5);
        assert_eq!(incomplete(&[begun, open, more, end]), [false, true, true, false]);
    }

    #[test]
    fn bytes_one_by_one_are_read_as_bytes_at_once() {
        let all = [
            vec![0; PREFACE_BYTES],
            frame(SETTINGS, 0, 12),
            frame(HEADERS, END_HEADERS, 200),
            frame(0, 1, 0),
        ]
        .concat();
        let (mut at_once, mut one_by_one) =
            (FrameParser::new(PREFACE_BYTES), FrameParser::new(PREFACE_BYTES));
        at_once.feed(&all);
        all.iter().for_each(|byte| one_by_one.feed(std::slice::from_ref(byte)));
        assert_eq!((at_once.units, at_once.is_incomplete()), (4, false));
        assert_eq!((one_by_one.units, one_by_one.is_incomplete()), (4, false));
    }

    #[test]
    fn a_unit_without_end_stalls_however_many_bytes_arrive() {
        let (progress, mut detector) = (Progress::default(), StallDetector::default());
        let set = |incomplete: bool, units: u64| {
            progress.is_incomplete.store(incomplete, Relaxed);
            progress.units.store(units, Relaxed);
        };
        for units in 1..10 {
            set(true, units);
            assert!(!detector.is_stalled(&progress, 2), "frames complete one after the other");
        }
        assert!(!detector.is_stalled(&progress, 2));
        assert!(detector.is_stalled(&progress, 2));
        set(false, 9);
        assert!(!detector.is_stalled(&progress, 2));
    }
}
