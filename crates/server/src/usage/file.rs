//! Files of usage records: one for each day (UTC), of JSON lines.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::HOUR;
use super::table::UsageRow;

/// Bytes of a line; longer ones are not usage records.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The files of a directory.
#[derive(Debug)]
pub(super) struct UsageFiles {
    directory: PathBuf,
    /// Files whose last line is complete, as far as this process knows.
    complete: BTreeSet<String>,
}

/// What was appended.
#[derive(Debug)]
pub(super) struct Appended {
    /// So many rows, from the first one on.
    pub(super) rows: usize,
    pub(super) error: Option<io::Error>,
}

/// Times in files: `2026-11-19T18:00:00Z`.
pub(super) mod time {
    use jiff::Timestamp;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::usage) fn text(micros: u64) -> String {
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX).to_string()
    }

    pub(in crate::usage) fn serialize<S: Serializer>(
        micros: &u64,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text(*micros))
    }

    pub(in crate::usage) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        let time: Timestamp = text.parse().map_err(D::Error::custom)?;
        u64::try_from(time.as_microsecond()).map_err(D::Error::custom)
    }
}

impl UsageFiles {
    /// Creates the directory, and checks that it can be written to.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let probe = directory.join(".usage-probe");
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        Ok(Self { directory: directory.to_owned(), complete: BTreeSet::new() })
    }

    /// Appends rows in their order, each to the file of its day, and syncs them.
    pub(super) fn append(&mut self, rows: &[UsageRow]) -> Appended {
        let mut written = 0;
        while let Some(first) = rows.get(written) {
            let day = first.hour / HOUR / 24;
            let of_day = rows[written..].iter().take_while(|row| row.hour / HOUR / 24 == day);
            let (mut text, mut count) = (Vec::new(), 0);
            for row in of_day {
                // A row cannot fail to be JSON.
                if serde_json::to_writer(&mut text, row).is_ok() {
                    text.push(b'\n');
                }
                count += 1;
            }
            if let Err(error) = self.append_text(&name(day), &text) {
                return Appended { rows: written, error: Some(error) };
            }
            written += count;
        }
        Appended { rows: written, error: None }
    }

    fn append_text(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        let path = self.directory.join(name);
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        if !self.complete.contains(name) && !ends_with_newline(&mut file)? {
            // A crash has left a part of a line, which is skipped when it is read.
            file.write_all(b"\n")?;
        }
        let before = file.metadata()?.len();
        let appended = file.write_all(text).and_then(|()| file.sync_data());
        if let Err(error) = appended {
            // The rows are written again: what was written of them must not count twice.
            file.set_len(before)?;
            return Err(error);
        }
        if is_new {
            File::open(&self.directory)?.sync_all()?;
        }
        self.complete.insert(name.to_owned());
        Ok(())
    }

    /// Reads the rows of some days. Invalid lines are skipped.
    pub(super) fn read(
        &self,
        days: RangeInclusive<u64>,
        mut show: impl FnMut(UsageRow),
    ) -> io::Result<()> {
        let (first, last) = (name(*days.start()), name(*days.end()));
        for name in self.names()?.range(first..=last) {
            let mut reader = BufReader::new(File::open(self.directory.join(name))?);
            let mut line = Vec::new();
            while (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
                if let Ok(row) = serde_json::from_slice(&line) {
                    show(row);
                }
                line.clear();
            }
        }
        Ok(())
    }

    /// Removes the files of earlier days.
    pub(super) fn remove_before(&mut self, day: u64) -> io::Result<()> {
        let first = name(day);
        for name in self.names()?.range(..first) {
            fs::remove_file(self.directory.join(name))?;
            self.complete.remove(name);
        }
        Ok(())
    }

    /// The names of all files, which are in the order of their days.
    fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&self.directory)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let day = name.strip_prefix("usage-").and_then(|rest| rest.strip_suffix(".jsonl"));
            if day.is_some_and(|day| day.parse::<jiff::civil::Date>().is_ok()) {
                names.insert(name);
            }
        }
        Ok(names)
    }
}

/// The name of the file of a day since 1970.
fn name(day: u64) -> String {
    let time = time::text(day.saturating_mul(24 * HOUR));
    format!("usage-{}.jsonl", time.split_once('T').map_or("", |(date, _)| date))
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
