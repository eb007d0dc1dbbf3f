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
use sluicegate_testkit::port::Port;
use sluicegate_testkit::until;

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
    _port: Port,
    _folder: Folder,
}

impl Browser {
    /// Starts chromedriver at a free port, and a browser.
    pub fn start() -> Self {
        let folder = Folder::new();
        let mut command = Command::new(server("chromedriver"));
        // Profile, caches and crash reports are below these. Not port 0, for which chromedriver
        // looks for a port by itself: several at once may find the same one.
        let port = Port::free();
        command
            .arg(format!("--port={}", port.number()))
            .env("TMPDIR", folder.path())
            .env("HOME", folder.path());
        let mut driver = Process::start("chromedriver", &mut command);
        driver.says("started successfully on port ");
        let address = format!("127.0.0.1:{}", port.number());
        let timeout = u64::try_from(TIMEOUT.as_millis()).unwrap();
        let capabilities = json!({
            "goog:chromeOptions": { "binary": server("chromium"), "args": ARGS },
            "timeouts": { "script": timeout, "pageLoad": timeout },
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let created = send(&address, "POST", "/session", &body).unwrap_or_else(|e| panic!("{e}"));
        let session = format!("/session/{}", created["sessionId"].as_str().unwrap());
        Self { address, session, _driver: driver, _port: port, _folder: folder }
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

    /// Clicks on the element of a CSS selector, as a person does: scrolled to and visible.
    pub fn click(&self, selector: &str) {
        self.command(&format!("element/{}/click", self.find(selector)), &json!({}));
    }

    /// Clicks on a link by its text, and waits for the next page.
    pub fn follow(&self, text: &str) {
        let body = json!({ "using": "link text", "value": text });
        let found = self.command("element", &body);
        self.mark_page();
        self.command(&format!("element/{}/click", element_id(&found)), &json!({}));
        self.wait_for_page();
    }

    /// Clicks on a button that sends a form, and waits for the next page.
    pub fn submit(&self, selector: &str) {
        let element = self.find(selector);
        self.mark_page();
        self.command(&format!("element/{element}/click"), &json!({}));
        self.wait_for_page();
    }

    fn mark_page(&self) {
        self.run("window.isLeft = true", &[]);
    }

    fn wait_for_page(&self) {
        let script = "return !window.isLeft && document.readyState === 'complete'";
        let path = format!("{}/execute/sync", self.session);
        let body = json!({ "script": script, "args": [] });
        // A script fails if its page ends meanwhile.
        until("the next page is loaded", || {
            let is_loaded = send(&self.address, "POST", &path, &body);
            (is_loaded == Ok(Value::Bool(true))).then_some(())
        });
    }

    /// Replaces the text of a field by typing.
    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.command(&format!("element/{element}/clear"), &json!({}));
        self.command(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// Types at the end of a field, or keys of the keyboard.
    pub fn type_in(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.command(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// The visible text of an element.
    pub fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0]).innerText";
        self.run(script, &[selector.into()]).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true: it is evaluated at each mutation of the document, and
    /// every 100 ms.
    pub fn wait_for(&self, expression: &str) {
        let script = format!(
            "const holds = () => {{ try {{ return {expression} }} catch {{ return false }} }};
             const check = () => {{ if (holds()) {{ observer.disconnect(); clearInterval(timer); done(true) }} }};
             const observer = new MutationObserver(check);
             const timer = setInterval(check, 100);
             observer.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
             check();"
        );
        self.run_async(&script, &[]);
    }

    /// The address of the page.
    pub fn address(&self) -> String {
        self.run("return location.href", &[]).as_str().unwrap().to_owned()
    }

    /// Prefers `light` or `dark` pages.
    pub fn emulate_scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let body =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.command("goog/cdp/execute", &body);
    }

    /// Presses a key, at the element that has the focus.
    pub fn press(&self, key: &str) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": keys }]);
        self.command("actions", &json!({ "actions": actions }));
    }

    /// Errors of the browser's console: blocked loads, failed scripts.
    pub fn severe_log_lines(&self) -> Vec<String> {
        let lines = self.command("se/log", &json!({ "type": "browser" }));
        let severe = lines.as_array().unwrap().iter().filter(|one| one["level"] == "SEVERE");
        severe.map(|one| one["message"].to_string()).collect()
    }

    /// Sets the size of the window.
    pub fn resize(&self, width: u32, height: u32) {
        self.command("window/rect", &json!({ "width": width, "height": height }));
    }

    fn find(&self, selector: &str) -> String {
        let body = json!({ "using": "css selector", "value": selector });
        element_id(&self.command("element", &body))
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

/// The id of an element, by the name that the WebDriver specification gives it.
fn element_id(element: &Value) -> String {
    element["element-6066-11e4-a52e-4f735466cecf"].as_str().unwrap().to_owned()
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
