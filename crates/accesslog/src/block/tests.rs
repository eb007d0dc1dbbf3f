//! Blocks of small bounds, compared with a naive division into lines.

use std::collections::VecDeque;
use std::io::{self, Read};

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};
use proptest::test_runner::RngSeed;

use super::*;

/// Lines of up to four bytes are whole; longer ones are refused, in whatever length they come.
const LINE_MAX: usize = 4;
const STORED_MAX: usize = LINE_MAX + 2;

/// Returns bytes in pieces of chosen lengths, and then maybe an error.
struct Pieces {
    bytes: VecDeque<u8>,
    lengths: Vec<usize>,
    fails: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() && self.fails {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // An interrupted call is repeated.
        let length = match self.lengths.pop() {
            Some(0) => return Err(io::ErrorKind::Interrupted.into()),
            Some(length) => length.min(buffer.len()),
            None => buffer.len(),
        };
        self.bytes.read(&mut buffer[..length])
    }
}

/// Lines with their numbers, and whether reading failed in the end.
fn read(source: Pieces, block_bytes: usize) -> (Vec<(u64, Vec<u8>)>, bool) {
    let mut reader = BlockReader { line_stored_max: STORED_MAX, ..BlockReader::new(source) };
    reader = reader.block_bytes(block_bytes);
    let (mut block, mut lines) = (Block::default(), Vec::new());
    loop {
        match reader.next_block(&mut block) {
            Ok(true) => {
                assert!(block.buffer.len() <= block_bytes.max(STORED_MAX + 1));
                let numbers = block.first_line()..;
                lines.extend(numbers.zip(block.lines().map(refused_or_whole)));
            }
            Ok(false) => return (lines, false),
            Err(_) => {
                assert!(!reader.next_block(&mut block).unwrap_or(false), "an error is the end");
                return (lines, true);
            }
        }
    }
}

fn naive(bytes: &[u8], is_whole: bool) -> Vec<(u64, Vec<u8>)> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let last = lines.pop();
    lines.extend(last.filter(|last| is_whole && !last.is_empty()));
    let stripped = |line: &'_ [u8]| refused_or_whole(line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines.into_iter().map(stripped)).collect()
}

/// A line, or the beginning of one that is too long.
fn refused_or_whole(line: &[u8]) -> Vec<u8> {
    line[..line.len().min(LINE_MAX + 1)].to_vec()
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => any::<u8>(), 3 => Just(b'\n'), 1 => Just(b'\r'), 2 => Just(b'x')];
    let mark = prop_oneof![Just(&b""[..]), Just(BYTE_ORDER_MARK), Just(&b"\xEF\xBB"[..])];
    (mark, vec(byte, 0..120)).prop_map(|(mark, bytes)| [mark, &bytes].concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(3),
        ..ProptestConfig::default()
    })]

    #[test]
    fn lines_do_not_depend_on_blocks_and_pieces(
        bytes in text(), lengths in vec(0..9_usize, 0..60), block_bytes in 1..40_usize, fails in any::<bool>(),
    ) {
        let source = Pieces { bytes: bytes.clone().into(), lengths, fails };
        let (lines, failed) = read(source, block_bytes);
        prop_assert_eq!(failed, fails);
        prop_assert_eq!(lines, naive(&bytes, !fails));
    }
}

#[test]
fn a_line_of_any_length_takes_bounded_memory_and_is_refused() {
    use crate::{Format, LineParser, Scratch};

    let line = |length: usize| {
        let start = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2 "-" ""#;
        format!("{start}{}\"", "x".repeat(length - start.len() - 1))
    };
    for end in ["\n", "\r\n"] {
        let lengths = [LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 10_000_000, 100];
        let log: String = lengths.iter().map(|length| line(*length) + end).collect();
        let mut reader = BlockReader::new(log.as_bytes());
        let parser = LineParser::new(&Format::Combined, b"").unwrap();
        let (mut block, mut scratch) = (Block::default(), Scratch::default());
        let mut read = Vec::new();
        while reader.next_block(&mut block).unwrap() {
            assert!(block.buffer.len() <= BLOCK_BYTES && reader.carry.len() <= LINE_STORED_MAX);
            let is_record = |line| parser.parse(line, &mut scratch).is_ok();
            read.extend(block.lines().map(is_record));
        }
        assert_eq!(read, [true, false, false, true]);
    }
}
