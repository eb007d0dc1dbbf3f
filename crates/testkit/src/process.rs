//! A server process that never outlives its parent.
//!
//! A shell between test and server reads commands from a pipe. The test holds the other end; when
//! the test ends for any reason, the pipe closes, and the shell kills the server and removes its
//! folder. The shell also sends signals, which the standard library cannot.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::wait;

/// `KILL` waits for the exit, so that port and files are free afterwards. The shell ignores
/// terminal signals and runs until the pipe closes.
const SHELL: &str = r#"
trap '' INT TERM HUP
folder=$1
shift
exec 3>>"$folder/log"
"$@" </dev/null >&3 2>&3 &
server=$!
echo "$server"
while read -r word; do
    case $word in
        leave) kill -KILL "$server"; wait "$server"; exit 0 ;;
        KILL) kill -KILL "$server"; wait "$server" ;;
        *) kill -"$word" "$server" ;;
    esac
    echo done
done
kill -KILL "$server"
wait "$server"
rm -rf "$folder"
"#;

#[derive(Debug)]
pub(crate) struct Process {
    shell: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
    pid: u32,
}

impl Process {
    /// Starts a program in the folder, which this process owns from now on. Its output goes to the
    /// file `log`.
    pub(crate) fn start(folder: &Path, program: &Path, args: &[&str]) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .arg(folder)
            .arg(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        let words = shell.stdin.take();
        let Some(answers) = shell.stdout.take().map(BufReader::new) else {
            panic!("the shell has no output");
        };
        let mut this = Self { shell, words, answers, folder: folder.to_owned(), pid: 0 };
        let pid = this.answer();
        this.pid =
            pid.parse().unwrap_or_else(|_| panic!("the shell printed `{pid}`, not a process"));
        this
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the server was killed or has exited.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state(), None | Some('Z'))
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state() == Some('T')
    }

    /// Kills the server (SIGKILL) and waits for its exit.
    pub(crate) fn kill(&mut self) {
        self.send("KILL");
        self.answer();
    }

    /// Ends the server by SIGINT, and leaves the folder to the caller.
    pub(crate) fn interrupt(mut self) {
        self.send("INT");
        self.answer();
        wait::until("the server has ended", || self.has_ended().then_some(()));
        self.leave();
    }

    /// Suspends the server as a hanging machine would: connections stay open without responses.
    pub(crate) fn pause(&mut self) {
        self.send("STOP");
        self.answer();
        wait::until("the server has stopped", || self.is_paused().then_some(()));
    }

    pub(crate) fn resume(&mut self) {
        self.send("CONT");
        self.answer();
        wait::until("the server goes on", || (!self.is_paused()).then_some(()));
    }

    /// Kills the server and leaves the folder to the caller.
    pub(crate) fn leave(mut self) {
        self.send("leave");
        let _ = self.shell.wait();
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// CPU time in user space and kernel since the start.
    pub(crate) fn cpu_micros(&self) -> u64 {
        // `USER_HZ` is 100 on every Linux.
        const MICROS_PER_TICK: u64 = 10_000;
        let stat = self.stat().unwrap_or_default();
        // `utime` and `stime` are fields 14 and 15 of proc(5); the first field here is the third.
        let ticks = stat.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        ticks.sum::<u64>() * MICROS_PER_TICK
    }

    fn state(&self) -> Option<char> {
        self.stat()?.chars().next()
    }

    /// Starts at the state: the preceding name in brackets may contain any characters.
    fn stat(&self) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
    }

    fn send(&mut self, word: &str) {
        let Some(words) = &mut self.words else { return };
        if let Err(error) = writeln!(words, "{word}") {
            panic!("the shell of process {} is gone: {error}", self.pid);
        }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        if let Err(error) = self.answers.read_line(&mut line) {
            panic!("the shell of process {} does not respond: {error}", self.pid);
        }
        line.trim_end().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closing the pipe makes the shell clean up.
        drop(self.words.take());
        let _ = self.shell.wait();
    }
}

/// Writes a file of a server's folder.
pub(crate) fn write(path: &Path, text: &str) {
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", path.display());
    }
}
