//! Files, standard input and compressed logs have the same lines.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use sluicegate_accesslog::{Block, BlockReader, Input, LogError, LogFile, Scratch};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluicegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// More than two blocks.
fn log() -> Vec<u8> {
    let mut log = Vec::new();
    for number in 0..25_000 {
        let (minute, second, octet) = (number / 60 % 60, number % 60, number % 256);
        writeln!(
            log,
            "192.0.2.{octet} - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"GET /page/{number} HTTP/1.1\" 200 {number} \"-\" \"curl/8\""
        )
        .unwrap();
    }
    log
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Lines, sum of the sizes and number of the last line.
fn summary(log: &mut LogFile) -> Result<(u64, u64, u64), LogError> {
    let parser = log.parser().clone();
    let (mut block, mut scratch) = (Block::default(), Scratch::default());
    let (mut lines, mut bytes, mut last) = (0, 0, 0);
    while log.next_block(&mut block)? {
        for (number, line) in (block.first_line()..).zip(block.lines()) {
            let record = parser.parse(line, &mut scratch).unwrap().unwrap();
            lines += 1;
            bytes += record.bytes.unwrap();
            last = number;
        }
    }
    Ok((lines, bytes, last))
}

fn summary_of(path: &Path) -> (u64, u64, u64) {
    let mut log = LogFile::open(path, None).unwrap();
    assert_eq!(log.format().to_string(), "combined");
    let summary = summary(&mut log).unwrap();
    assert_eq!(log.position().size(), Some(fs::metadata(path).unwrap().len()));
    assert_eq!(log.position().read(), log.position().size().unwrap(), "{path:?} is read whole");
    summary
}

const EXPECTED: (u64, u64, u64) = (25_000, 312_487_500, 25_000);

#[test]
fn compressed_or_not() {
    let (folder, log) = (Folder::new("input"), log());
    let half = log.len() / 2;
    // Rotated logs are often joined, also in the middle of a line.
    let members = |compress: fn(&[u8]) -> Vec<u8>| {
        [compress(&log[..half]), compress(b""), compress(&log[half..])].concat()
    };
    let mut skippable = vec![0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
    skippable.extend(zstd(&log));
    for (name, bytes) in [
        ("plain", log.clone()),
        ("without-newline", log[..log.len() - 1].to_vec()),
        ("marked", [b"\xEF\xBB\xBF", &log[..]].concat()),
        ("crlf", String::from_utf8(log.clone()).unwrap().replace('\n', "\r\n").into_bytes()),
        // The name does not matter.
        ("gzip.log", gzip(&log)),
        ("members.gz", members(gzip)),
        ("zstd.gz", zstd(&log)),
        ("frames.zst", members(zstd)),
        ("skippable.zst", skippable),
    ] {
        assert_eq!(summary_of(&folder.file(name, &bytes)), EXPECTED, "{name}");
    }
}

/// Not a test, but the child process of the next one.
#[test]
fn child_that_reads_standard_input() {
    if std::env::var_os("SLUICEGATE_TEST_STDIN").is_some() {
        let mut log = LogFile::open("-".as_ref(), None).unwrap();
        println!("summary {:?} {:?}", summary(&mut log).unwrap(), log.position().size());
    }
}

#[test]
fn standard_input() {
    let (folder, log) = (Folder::new("stdin"), log());
    for (name, bytes) in [("plain", log.clone()), ("gzip", gzip(&log)), ("zstd", zstd(&log))] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_reads_standard_input", "--nocapture"])
            .env("SLUICEGATE_TEST_STDIN", "1")
            .stdin(File::open(folder.file(name, &bytes)).unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("summary {EXPECTED:?} None")), "{name}: {text}");
    }
}

#[test]
fn a_truncated_file_has_its_lines_and_then_an_error() {
    let (folder, log) = (Folder::new("truncated"), log());
    for (name, bytes) in [("gzip", gzip(&log)), ("zstd", zstd(&log))] {
        let path = folder.file(name, &bytes[..bytes.len() * 9 / 10]);
        let mut log = LogFile::open(&path, None).unwrap();
        let parser = log.parser().clone();
        let (mut block, mut scratch, mut count) = (Block::default(), Scratch::default(), 0);
        let error = loop {
            match log.next_block(&mut block) {
                Ok(true) => {
                    for line in block.lines() {
                        assert!(parser.parse(line, &mut scratch).is_ok(), "{name}: whole lines");
                        count += 1;
                    }
                }
                Ok(false) => panic!("{name}: no error"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(count > 15_000, "{name}: {count}");
        assert!(error.starts_with(&format!("cannot read `{}`", path.display())), "{error}");
        assert!(error.ends_with("; the file is truncated"), "{error}");
    }
}

#[test]
fn what_cannot_be_read_has_a_remedy() {
    let folder = Folder::new("unusable");
    let error = |path: &Path| LogFile::open(path, None).unwrap_err().to_string();
    let message = error(&folder.0.join("absent.log"));
    assert!(message.ends_with("; name an existing file, or `-` for standard input"), "{message}");
    assert!(error(&folder.0).ends_with("; name its files"), "{}", error(&folder.0));
    let xz = folder.file("log", b"\xFD7zXZ\0rest");
    assert!(error(&xz).ends_with("pipe `xz -dc FILE`"), "{}", error(&xz));
    let empty = folder.file("empty", b"");
    assert!(error(&empty).contains("the log is empty"), "{}", error(&empty));
    // Corrupt from the first block on.
    let mut corrupt = gzip(&log());
    corrupt[20..60].fill(0xAA);
    let corrupt = folder.file("corrupt.gz", &corrupt);
    assert!(error(&corrupt).starts_with("cannot read `"), "{}", error(&corrupt));
}

#[test]
fn an_empty_log_with_a_format_has_no_lines() {
    let folder = Folder::new("empty");
    let path = folder.file("empty.log", b"");
    let format = "combined".parse().unwrap();
    let mut log = LogFile::open(&path, Some(&format)).unwrap();
    assert!(!log.next_block(&mut Block::default()).unwrap());
}

#[test]
fn a_stream_that_begins_slowly_is_recognised() {
    struct Bytewise(Vec<u8>, usize);
    impl Read for Bytewise {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(byte) = self.0.get(self.1) else { return Ok(0) };
            self.1 += 1;
            buffer[0] = *byte;
            Ok(1)
        }
    }
    for bytes in [b"abc\nde".to_vec(), gzip(b"abc\nde"), zstd(b"abc\nde")] {
        let mut reader = BlockReader::new(Input::new(Bytewise(bytes, 0)).unwrap());
        let mut block = Block::default();
        assert!(reader.next_block(&mut block).unwrap());
        assert_eq!(block.as_bytes(), b"abc\nde");
        assert!(!reader.next_block(&mut block).unwrap());
    }
    for short in [&b""[..], b"\x1f", b"\x1f\x8b", b"(\xB5/"] {
        let mut text = Vec::new();
        Input::new(short).unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(text, short);
    }
}
