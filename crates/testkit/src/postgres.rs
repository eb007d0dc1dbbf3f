//! PostgreSQL, with one database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::port::Port;
use crate::process::Process;
use crate::redis::TlsFiles;
use crate::redis::tls;
use crate::{folder, program, wait};

/// User and password of clients.
const LOGIN: [&str; 2] = ["sluicegate", "postgres-secret"];

/// A server that ends with this value; without durability, as tests need none.
///
/// ```
/// use sluicegate_testkit::postgres::Postgres;
///
/// let server = Postgres::start();
/// assert_eq!(server.sql("SELECT 1 + 1"), "2");
/// println!("{}", server.url()); // postgres://sluicegate:postgres-secret@127.0.0.1:14821/rules
/// ```
pub struct Postgres {
    process: Mutex<Option<Process>>,
    port: Port,
    folder: PathBuf,
    tls: Option<TlsFiles>,
}

impl Postgres {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        let folder = folder::new();
        Self::launch(Self { process: Mutex::new(None), port: Port::free(), folder, tls: None })
    }

    /// Starts a server with a certificate for `localhost` and 127.0.0.1, which accepts unencrypted
    /// connections too.
    pub fn with_tls() -> Self {
        let folder = folder::new();
        let tls = Some(tls::make(&folder));
        Self::launch(Self { process: Mutex::new(None), port: Port::free(), folder, tls })
    }

    fn launch(this: Self) -> Self {
        let password = this.folder.join("password");
        crate::process::write(&password, LOGIN[1]);
        own(&this.folder);
        let data = this.data();
        let (data, password) = (data.display().to_string(), password.display().to_string());
        let args = [
            "-D",
            &data,
            "--username",
            LOGIN[0],
            "--pwfile",
            &password,
            "--auth",
            "scram-sha-256",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
        ];
        let (program, all) = unprivileged(&program::installed("initdb"), &args);
        succeed(Command::new(program).args(all).current_dir(&this.folder));
        this.restart();
        this.sql_in("postgres", "CREATE DATABASE rules");
        this
    }

    /// The authority of the certificate.
    pub fn authority(&self) -> &Path {
        let tls = self.tls.as_ref().unwrap_or_else(|| panic!("this server has no TLS"));
        &tls.ca
    }

    /// URL with the password.
    pub fn url(&self) -> String {
        let [user, password] = LOGIN;
        format!("postgres://{user}:{password}@127.0.0.1:{}/rules", self.port.number())
    }

    /// URL without the password, and the password.
    pub fn url_and_password(&self) -> (String, &'static str) {
        (format!("postgres://{}@127.0.0.1:{}/rules", LOGIN[0], self.port.number()), LOGIN[1])
    }

    /// Its port on 127.0.0.1; unchanged by a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Runs statements: the values of the last one, without decoration.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("rules", statements)
    }

    /// Ends the server: sessions are closed, and clients cannot connect.
    pub fn stop(&self) {
        if let Some(process) = self.process().take() {
            process.interrupt();
        }
    }

    /// Starts the server again, and waits until it answers.
    pub fn restart(&self) {
        self.stop();
        let (data, port) = (self.data().display().to_string(), self.port.number().to_string());
        let sockets = self.folder.display().to_string();
        let args = [
            "-D",
            &data,
            "-p",
            &port,
            "-k",
            &sockets,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=60",
        ];
        let files = self.tls.as_ref().map(|tls| {
            let [certificate, key] = [&tls.server_certificate, &tls.server_key];
            succeed(Command::new("chmod").arg("600").arg(key));
            [certificate, key].map(|path| path.display().to_string())
        });
        let tls = files.map(|[certificate, key]| {
            [format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")]
        });
        let tls = tls.iter().flatten().flat_map(|setting| ["-c", setting.as_str()]);
        let is_on = if self.tls.is_some() { "ssl=on" } else { "ssl=off" };
        let args: Vec<&str> = args.into_iter().chain(["-c", is_on]).chain(tls).collect();
        let (program, all) = unprivileged(&program::installed("postgres"), &args);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        *self.process() = Some(Process::start(&self.folder, &program, &all));
        wait::until("PostgreSQL answers", || {
            self.psql("postgres", "SELECT 1").status.success().then_some(())
        });
    }

    fn sql_in(&self, database: &str, statements: &str) -> String {
        let output = self.psql(database, statements);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {error}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn psql(&self, database: &str, statements: &str) -> Output {
        let port = self.port.number().to_string();
        let mut command = Command::new(program::installed("psql"));
        command.env("PGPASSWORD", LOGIN[1]).args(["-h", "127.0.0.1", "-p", &port, "-U", LOGIN[0]]);
        command.args(["-d", database, "-XqtA", "-v", "ON_ERROR_STOP=1", "-c", statements]);
        command.output().unwrap_or_else(|error| panic!("cannot start psql: {error}"))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server refuses to run as root: as root, a command of another user.
fn unprivileged(program: &Path, args: &[&str]) -> (PathBuf, Vec<String>) {
    let args = args.iter().map(|arg| (*arg).to_owned());
    if !is_root() {
        return (program.to_owned(), args.collect());
    }
    // Executes the program, so that the process is the server.
    let by = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"].map(str::to_owned);
    let program = program.display().to_string();
    ("setpriv".into(), by.into_iter().chain([program]).chain(args).collect())
}

/// Gives the folder to the user of the server.
fn own(folder: &Path) {
    if is_root() {
        succeed(Command::new("chown").args(["-R", "nobody:nogroup"]).arg(folder));
    }
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A server that runs removes its folder itself.
        if self.process().take().is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL on {}", self.port.number())
    }
}
