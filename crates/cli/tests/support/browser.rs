//! A headless Chromium, driven by WebDriver: JSON over HTTP to a chromedriver of its own.
//!
//! ```ignore
//! let browser = Browser::start();
//! browser.open("https://localhost:8443/");
//! let title = browser.run("return document.title", &[]);
//! let status = browser.run_async("fetch(arguments[0]).then(r => done(r.status))", &["/".into()]);
//! ```
//!
//! Certificates are not verified. The profile is new, and is removed with this value.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::process::Process;
use super::{Folder, server};

/// Far more than a page or a script takes; chromedriver then reports an error.
const TIMEOUT: Duration = Duration::from_secs(30);

/// With the pipe, Chromium ends with its chromedriver, also when that is killed. As root it has no
/// sandbox, and containers have little shared memory.
const ARGS: [&str; 6] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
];

/// A browser with one window; ends with this value.
pub struct Browser {
    address: String,
    /// Path of the session.
    session: String,
    // Dropped before the folder that it writes to.
    _driver: Process,
    _folder: Folder,
}

impl Browser {
    /// Starts chromedriver at a free port, and a browser.
    pub fn start() -> Self {
        let folder = Folder::new();
        let mut command = Command::new(server("chromedriver"));
        // Profile, caches and crash reports are below these.
        command.arg("--port=0").env("TMPDIR", folder.path()).env("HOME", folder.path());
        let mut driver = Process::start("chromedriver", &mut command);
        let line = driver.says("started successfully on port ");
        let port = line.rsplit(' ').next().unwrap().trim_end_matches('.');
        let address = format!("127.0.0.1:{port}");
        let timeout = u64::try_from(TIMEOUT.as_millis()).unwrap();
        let capabilities = json!({
            "goog:chromeOptions": { "binary": server("chromium"), "args": ARGS },
            "timeouts": { "script": timeout, "pageLoad": timeout },
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let created = send(&address, "POST", "/session", &body).unwrap_or_else(|e| panic!("{e}"));
        let session = format!("/session/{}", created["sessionId"].as_str().unwrap());
        Self { address, session, _driver: driver, _folder: folder }
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// The value that a script returns; `arguments` are its own.
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// The value that a script passes to `done`. An error that it throws fails the test; one in a
    /// promise has to be passed to `done` too, or the script times out.
    pub fn run_async(&self, script: &str, arguments: &[Value]) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];\n{script}");
        self.command("execute/async", &json!({ "script": script, "args": arguments }))
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        let path = format!("{}/{name}", self.session);
        send(&self.address, "POST", &path, body).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closes the browser; its end with chromedriver would be later than that of the folder.
        let _ = send(&self.address, "DELETE", &self.session, &json!({}));
    }
}

/// The value of a command's response, or its error.
fn send(address: &str, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let text = |error: io::Error| error.to_string();
    let mut connection = TcpStream::connect(address).map_err(text)?;
    connection.set_read_timeout(Some(2 * TIMEOUT)).unwrap();
    let (body, kind) = (body.to_string(), "application/json; charset=utf-8");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).map_err(text)?;
    // The connection stays open after the response.
    let (mut reader, mut head) = (BufReader::new(connection), String::new());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).map_err(text)? == 0 {
            return Err(format!("WebDriver {method} {path}: no response, `{head}`"));
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).map_err(text)?;
    let mut value: Value = serde_json::from_slice(&body).unwrap_or_default();
    match head.starts_with("http/1.1 200 ") {
        true => Ok(value["value"].take()),
        false => Err(format!("WebDriver {method} {path}: {}", value["value"]["message"])),
    }
}
