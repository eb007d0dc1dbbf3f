//! One `redis-server`.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::options::{self, KEEPER, Options, SOCKET};
use super::tls::{self, TlsFiles};
use crate::port::Port;
use crate::process::{Process, write};
use crate::wire::{self, Reply};
use crate::{folder, program, wait};

/// Its configuration, in its folder.
const FILE: &str = "redis.conf";

/// A server that ends with this value. All methods can be called from any thread.
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
    /// Arguments after the name of the file.
    args: &'static [&'static str],
}

impl Single {
    /// A server as [`Options::default`] describes it.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// A server as it is asked for. It answers when this returns.
    pub fn with(options: Options) -> Self {
        Self::trusting(&options, None)
    }

    /// The same with certificates of somebody else, if he has some.
    pub(super) fn trusting(options: &Options, others: Option<&TlsFiles>) -> Self {
        let port = options.port.map_or_else(Port::free, Port::exactly);
        let folder = folder::new();
        let tls = options.tls.map(|_| others.cloned().unwrap_or_else(|| tls::make(&folder)));
        let text = options::file(options, port.number(), &folder, tls.as_ref());
        let url = url(options, port.number(), &folder);
        Self::launch(Self { process: Mutex::new(None), port, folder, url, tls, args: &[] }, &text)
    }

    /// A Sentinel: the same program, but it keeps nothing and watches others. It is told what to
    /// watch in its file.
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

    /// Where clients find it, with the name and the password that they need: `redis://`,
    /// `rediss://` or `unix://`. With several users, it is the first one's.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The part of the URL that says who comes: empty, or `user:password@`.
    pub(super) fn login(&self) -> &str {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('@').map_or("", |at| &rest[..=at])
    }

    /// The port on 127.0.0.1, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The unix socket on which it listens too, in every case.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// What clients need to trust it, and it to trust them.
    pub fn tls_files(&self) -> &TlsFiles {
        self.tls.as_ref().unwrap_or_else(|| panic!("this server was not asked for TLS"))
    }

    /// The process that serves, another one after a restart.
    pub fn pid(&self) -> u32 {
        self.running(|process| process.pid())
    }

    /// Processor time of the process since its start, in steps of 10 ms.
    pub fn cpu_micros(&self) -> u64 {
        self.running(|process| process.cpu_micros())
    }

    /// What it said since its first start.
    pub fn log(&self) -> String {
        self.running(|process| process.log())
    }

    /// Asks it something and returns what a person would read, also if that is an error: see
    /// [`Reply`]. As a user who may do everything, whatever passwords there are.
    pub fn cli(&self, command: &[&str]) -> String {
        self.ask(command).to_string()
    }

    /// The same, in its parts.
    pub fn ask(&self, command: &[&str]) -> Reply {
        self.try_ask(command)
            .unwrap_or_else(|error| panic!("{self:?} does not answer {command:?}: {error}"))
    }

    /// The same, of a server that may be down.
    pub fn try_ask(&self, command: &[&str]) -> io::Result<Reply> {
        wire::ask(&self.socket(), Some(KEEPER), command)
    }

    /// A line of what `INFO` says: `info("master_link_status")` is `up`, if it has one.
    pub fn info(&self, field: &str) -> Option<String> {
        self.line_of(&["INFO"], field)
    }

    /// The value of a line `field:value` of an answer, if the server is up and has it.
    pub(super) fn line_of(&self, command: &[&str], field: &str) -> Option<String> {
        let text = self.look(command)?.to_string();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim_end().to_owned())
    }

    /// What a server says that is up: nobody waits for one that is paused.
    pub(super) fn look(&self, command: &[&str]) -> Option<Reply> {
        if self.is_up() { self.try_ask(command).ok() } else { None }
    }

    /// Whether its process is there and not paused.
    pub(super) fn is_up(&self) -> bool {
        let up = |process: &Process| !process.has_ended() && !process.is_paused();
        self.process().as_ref().is_some_and(up)
    }

    /// Whether its process is there, paused or not.
    pub fn is_running(&self) -> bool {
        self.process().as_ref().is_some_and(|process| !process.has_ended())
    }

    /// Ends it as a crash would (SIGKILL); it is gone when this returns. What was not on disk is
    /// lost.
    pub fn kill(&self) {
        if let Some(process) = self.process().as_mut() {
            process.kill();
        }
    }

    /// Starts it again, at the same place and with the same file, after ending it if need be. It
    /// answers when this returns.
    pub fn restart(&self) {
        let mut process = self.process();
        if let Some(process) = process.take() {
            process.leave();
        }
        let file = self.folder.join(FILE);
        let args: Vec<&str> = file.to_str().into_iter().chain(self.args.iter().copied()).collect();
        // A socket that a killed server left would be one that nobody listens on.
        let _ = std::fs::remove_file(self.socket());
        let started = process.insert(Process::start(&self.folder, &program::redis_server(), &args));
        wait::until("a server answers", || {
            let log = || started.log();
            assert!(!started.has_ended(), "redis-server could not start. It said:\n{}", log());
            let reply = self.try_ask(&["PING"]).ok()?;
            // `LOADING`: it still reads its file.
            (reply == Reply::Status("PONG".to_owned())).then_some(())
        });
    }

    /// Stops it (SIGSTOP) as if its machine hung: connections stay, and new ones are made, but
    /// nobody answers.
    pub fn pause(&self) {
        self.running(Process::pause);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.running(Process::resume);
    }

    fn running<T>(&self, run: impl FnOnce(&mut Process) -> T) -> T {
        match self.process().as_mut() {
            Some(process) => run(process),
            None => panic!("{self:?} could not be started"),
        }
    }

    /// A test that panicked elsewhere is no reason not to end the server.
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

/// What a URL has to spell out.
fn escaped(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let spelt =
        |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    word.bytes().map(spelt).collect()
}
