//! One `redis-server`.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::options::{self, ADMIN, Options, SOCKET};
use super::tls::{self, TlsFiles};
use crate::port::Port;
use crate::process::{Process, write};
use crate::wire::{self, Reply};
use crate::{folder, program, wait};

/// Its configuration file.
const FILE: &str = "redis.conf";

/// A server that ends with this value. All methods are thread-safe.
///
/// ```
/// use sluicegate_testkit::redis::{Options, Single};
///
/// let server = Single::with(Options { appendonly: true, ..Options::default() });
/// server.cli(&["SET", "kept", "yes"]);
/// server.kill();
/// server.restart();
/// assert_eq!(server.cli(&["GET", "kept"]), "yes");
/// ```
pub struct Single {
    process: Mutex<Option<Process>>,
    port: Port,
    folder: PathBuf,
    url: String,
    tls: Option<TlsFiles>,
    /// Arguments after the file name.
    args: &'static [&'static str],
}

impl Single {
    /// Starts a server with [`Options::default`].
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// Starts a server with options and waits until it answers.
    pub fn with(options: Options) -> Self {
        Self::trusting(&options, None)
    }

    /// Starts a server with the given certificates, if any.
    pub(super) fn trusting(options: &Options, others: Option<&TlsFiles>) -> Self {
        let port = options.port.map_or_else(Port::free, Port::exactly);
        let folder = folder::new();
        let tls = options.tls.map(|_| others.cloned().unwrap_or_else(|| tls::make(&folder)));
        let text = options::file(options, port.number(), &folder, tls.as_ref());
        let url = url(options, port.number(), &folder);
        Self::launch(Self { process: Mutex::new(None), port, folder, url, tls, args: &[] }, &text)
    }

    /// Starts a Sentinel: the same program without data. Its file names the monitored primary.
    pub(super) fn sentinel(options: &Options) -> Self {
        let (port, folder) = (Port::free(), folder::new());
        let text = options::sentinel_file(options, port.number(), &folder);
        let url = url(options, port.number(), &folder);
        let args = &["--sentinel"];
        Self::launch(Self { process: Mutex::new(None), port, folder, url, tls: None, args }, &text)
    }

    fn launch(this: Self, file: &str) -> Self {
        write(&this.folder.join(FILE), file);
        this.restart();
        this
    }

    /// URL with the credentials of clients: `redis://`, `rediss://` or `unix://`. With several
    /// users, those of the first.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Credentials in the URL: empty, or `user:password@`.
    pub(super) fn login(&self) -> &str {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('@').map_or("", |at| &rest[..=at])
    }

    /// The port on 127.0.0.1; unchanged by a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The Unix socket, always present.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Certificates of clients and server.
    pub fn tls_files(&self) -> &TlsFiles {
        self.tls.as_ref().unwrap_or_else(|| panic!("this server was started without TLS"))
    }

    /// The process ID; changed by a restart.
    pub fn pid(&self) -> u32 {
        self.running(|process| process.pid())
    }

    /// CPU time of the process since its start, in steps of 10 ms.
    pub fn cpu_micros(&self) -> u64 {
        self.running(|process| process.cpu_micros())
    }

    /// The log since the first start.
    pub fn log(&self) -> String {
        self.running(|process| process.log())
    }

    /// Sends a command and returns the reply as text, errors included: see [`Reply`]. Uses an
    /// unrestricted user, whatever the passwords.
    pub fn cli(&self, command: &[&str]) -> String {
        self.command(command).to_string()
    }

    /// Sends a command and returns the reply.
    pub fn command(&self, command: &[&str]) -> Reply {
        self.try_ask(command)
            .unwrap_or_else(|error| panic!("{self:?} does not answer {command:?}: {error}"))
    }

    /// Sends a command to a server that may be down.
    pub fn try_ask(&self, command: &[&str]) -> io::Result<Reply> {
        wire::command(&self.socket(), Some(ADMIN), command)
    }

    /// A field of `INFO`: `info("master_link_status")` is `up`, if present.
    pub fn info(&self, field: &str) -> Option<String> {
        self.line_of(&["INFO"], field)
    }

    /// The value of a line `field:value` of a reply, if the server is up and has it.
    pub(super) fn line_of(&self, command: &[&str], field: &str) -> Option<String> {
        let text = self.try_command(command)?.to_string();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim_end().to_owned())
    }

    /// Reply of a live server; a paused one is not awaited.
    pub(super) fn try_command(&self, command: &[&str]) -> Option<Reply> {
        if self.is_up() { self.try_ask(command).ok() } else { None }
    }

    /// Whether the process exists and is not paused.
    pub(super) fn is_up(&self) -> bool {
        let up = |process: &Process| !process.has_ended() && !process.is_paused();
        self.process().as_ref().is_some_and(up)
    }

    /// Whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.process().as_ref().is_some_and(|process| !process.has_ended())
    }

    /// Kills the server (SIGKILL) and waits for its exit. Data that is not on disk is lost.
    pub fn kill(&self) {
        if let Some(process) = self.process().as_mut() {
            process.kill();
        }
    }

    /// Restarts the server with the same port and file, killing it if necessary. Waits until it
    /// answers.
    pub fn restart(&self) {
        let mut process = self.process();
        if let Some(process) = process.take() {
            process.leave();
        }
        let file = self.folder.join(FILE);
        let args: Vec<&str> = file.to_str().into_iter().chain(self.args.iter().copied()).collect();
        // A killed server leaves a stale socket.
        let _ = std::fs::remove_file(self.socket());
        let started = process.insert(Process::start(&self.folder, &program::redis_server(), &args));
        wait::until("a server answers", || {
            let log = || started.log();
            assert!(!started.has_ended(), "redis-server could not start. Its log:\n{}", log());
            let reply = self.try_ask(&["PING"]).ok()?;
            // `LOADING`: the server still reads its file.
            (reply == Reply::Status("PONG".to_owned())).then_some(())
        });
    }

    /// Pauses the server (SIGSTOP) like a hanging machine: connections are accepted, but not
    /// answered.
    pub fn pause(&self) {
        self.running(Process::pause);
    }

    /// Resumes the server (SIGCONT).
    pub fn resume(&self) {
        self.running(Process::resume);
    }

    fn running<T>(&self, run: impl FnOnce(&mut Process) -> T) -> T {
        match self.process().as_mut() {
            Some(process) => run(process),
            None => panic!("{self:?} could not be started"),
        }
    }

    /// A panic elsewhere must not prevent the end of the server.
    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server on port {}", self.port())
    }
}

fn url(options: &Options, port: u16, folder: &std::path::Path) -> String {
    if options.unix_socket {
        return format!("unix://{}", folder.join(SOCKET).display());
    }
    let scheme = if options.tls.is_some() { "rediss" } else { "redis" };
    let credentials = match (&options.password, options.users.first()) {
        (Some(password), _) => format!(":{}@", escaped(password)),
        (None, Some(user)) => format!("{}:{}@", escaped(&user.name), escaped(&user.password)),
        (None, None) => String::new(),
    };
    format!("{scheme}://{credentials}127.0.0.1:{port}")
}

/// Percent-encodes a part of a URL.
fn escaped(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let spelt =
        |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    word.bytes().map(spelt).collect()
}
