//! Servers that run beside a test, and what they say.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A server that says nothing for so long says nothing any more. Far more than any of them needs,
/// on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with this value, also when a test panics.
pub struct Process {
    child: Child,
    name: &'static str,
    /// Behind a lock only so that threads of a test can share what holds this.
    lines: Mutex<Receiver<String>>,
    heard: Vec<String>,
}

impl Process {
    pub fn start(name: &'static str, command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (said, lines) = channel();
        listen(child.stdout.take().unwrap(), said.clone());
        listen(child.stderr.take().unwrap(), said);
        Self { child, name, lines: Mutex::new(lines), heard: Vec::new() }
    }

    /// A line with this text in it, whether it was said already or is waited for.
    pub fn has_said(&mut self, text: &str) -> String {
        let before = self.heard.iter().find(|line| line.contains(text)).cloned();
        before.unwrap_or_else(|| self.says(text))
    }

    /// The next line with this text in it: waits until it is said.
    pub fn says(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.lines.get_mut().unwrap().recv_timeout(PATIENCE) else {
                let (name, heard) = (self.name, self.heard.join("\n"));
                panic!("{name} ended, or fell silent, before it said `{text}`. It said:\n{heard}");
            };
            self.heard.push(line);
            if let Some(line) = self.heard.last().filter(|line| line.contains(text)) {
                return line.clone();
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; the exit code.
    pub fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes lines on until there are no more; whether anybody hears them or not, the pipe never
/// fills.
fn listen(pipe: impl Read + Send + 'static, said: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
    });
}
