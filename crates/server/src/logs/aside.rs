//! A thread that writes: whoever has something to say does not wait until it is read.
//!
//! Standard error is often a pipe, and its reader may stall. Whoever wrote to it then would stall too, and with it what answers requests.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that may wait to be written. They are some hundred bytes, and never more than some ten thousand.
const WAITING_MAX: usize = 1_024;

/// For the lines that wait at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes lines, each in one piece, or refuses them if too many wait.
#[derive(Debug)]
pub(super) struct Aside {
    waiting: SyncSender<Said>,
}

#[derive(Debug)]
enum Said {
    Line(Vec<u8>),
    /// All before this is written.
    End(SyncSender<()>),
}

/// When it is dropped, what was said before is written, if that takes no longer than a second.
#[derive(Debug)]
#[must_use]
pub struct Written {
    waiting: SyncSender<Said>,
}

/// Begins to write.
pub(super) fn start(writer: impl Write + Send + 'static) -> io::Result<(Aside, Written)> {
    let (waiting, said) = sync_channel(WAITING_MAX);
    thread::Builder::new().name("logs".to_owned()).spawn(move || write(writer, &said))?;
    Ok((Aside { waiting: waiting.clone() }, Written { waiting }))
}

fn write(mut writer: impl Write, said: &Receiver<Said>) {
    for said in said {
        // Where should one complain that nobody hears?
        let _ = match said {
            Said::Line(line) => writer.write_all(&line),
            Said::End(written) => written.try_send(()).map_err(io::Error::other),
        };
    }
}

impl Write for Aside {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.waiting.try_send(Said::Line(line.to_owned())) {
            Ok(()) => Ok(line.len()),
            Err(TrySendError::Full(_)) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let (all, written) = sync_channel(1);
        // If there is no room even for this, nobody reads.
        if self.waiting.try_send(Said::End(all)).is_ok() {
            let _ = written.recv_timeout(PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, pipe};

    use super::*;

    #[test]
    fn what_was_said_is_written_at_the_end() {
        let (lines, writer) = pipe().unwrap();
        let (mut aside, written) = start(writer).unwrap();
        for line in 0..WAITING_MAX / 2 {
            aside.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        drop((written, aside));
        let lines: Vec<String> = BufReader::new(lines).lines().map(Result::unwrap).collect();
        assert_eq!(lines, Vec::from_iter((0..WAITING_MAX / 2).map(|line| line.to_string())));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_has_stalled() {
        let (_stalled, writer) = pipe().unwrap();
        let (mut aside, written) = start(writer).unwrap();
        let line = [b'x'; 4_096];
        // A pipe takes some dozens; none of these waits.
        let refused = (0..10 * WAITING_MAX).find_map(|_| aside.write_all(&line).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
        // Nor does the end.
        drop(written);
    }
}
