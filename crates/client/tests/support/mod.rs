//! Services to ask: a real one on a port, a real one on a clock that a test can turn, and those
//! that misbehave.

#![allow(dead_code)] // Each test uses a part of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use sluicegate::clock::Clock;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_client::{Builder, Client, Request};
use sluicegate_server::app::App;
use sluicegate_server::http::{Options, router};
use sluicegate_server::server::Server;
use sluicegate_server::settings::{Settings, Vars};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Long enough for any machine: what is tested does not depend on it.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

pub(crate) fn of(key: &str, value: &str) -> Request {
    Request::new("shop").descriptor([(key, value)])
}

// === a real service, on a port ===

/// Starts a service that ends with the test's runtime; its address.
pub(crate) async fn service(rules: &str, variables: &[(&str, &str)]) -> String {
    let path = std::env::temp_dir().join(format!(
        "sluicegate-client-{}-{}.yaml",
        std::process::id(),
        number()
    ));
    std::fs::write(&path, rules).unwrap();
    let free = ["SLUICEGATE_GRPC", "SLUICEGATE_HTTP", "SLUICEGATE_ADMIN"]
        .map(|name| (name, "127.0.0.1:0"));
    let rules = [("SLUICEGATE_RULES", path.to_str().unwrap())];
    let vars = Vars::new(free.iter().chain(&rules).chain(variables).copied());
    let server = Server::start(Settings::read(&vars).unwrap().0).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let address = format!("http://{}", server.addresses().http);
    let (keep, reread) = mpsc::channel(1);
    tokio::spawn(async move {
        let _keep = keep;
        server.run(std::future::pending(), reread).await
    });
    address
}

fn number() -> usize {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

// === a real service, on tokio's clock ===

#[derive(Debug)]
pub(crate) struct TokioClock(pub(crate) Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(1_700_000_000_000_000 + passed)
    }
}

/// A service that can be asked without a socket, and whose time is the runtime's.
pub(crate) fn service_in_process(rules: &str) -> Router {
    let engine = Engine::builder(rules_of(rules).unwrap());
    let engine = engine.clock(TokioClock(Instant::now())).build().unwrap();
    router(App::new(engine), Options::default())
}

/// A client of that.
pub(crate) fn client_of(router: Router) -> Builder {
    Client::builder("http://service").connect_with(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service));
        std::future::ready(io::Result::Ok(ours))
    })
}

// === those that misbehave ===

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    /// These bytes, and the connection stays.
    Says(String),
    /// These bytes, and no more.
    SaysAndCloses(String),
    /// Nothing, for ever.
    Nothing,
    /// The connection is closed.
    Closes,
    /// There is no connection.
    IsNotThere,
}

/// A service that does one thing after the other, the last of them for ever, and what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    script: Arc<Vec<Does>>,
    next: Arc<AtomicUsize>,
    heard: mpsc::UnboundedSender<String>,
}

impl Scripted {
    pub(crate) fn new(script: &[Does]) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (heard, hears) = mpsc::unbounded_channel();
        (Self { script: Arc::new(script.to_vec()), next: Arc::default(), heard }, hears)
    }

    /// How often it was asked, or not reached.
    pub(crate) fn count(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    fn take(&self) -> Does {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.script[next.min(self.script.len() - 1)].clone()
    }

    fn peek(&self) -> &Does {
        &self.script[self.count().min(self.script.len() - 1)]
    }

    pub(crate) fn client(&self) -> Builder {
        let this = self.clone();
        Client::builder("http://service").connect_with(move || {
            let this = this.clone();
            async move {
                if matches!(this.peek(), Does::IsNotThere) {
                    this.take();
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                tokio::spawn(this.serve(theirs));
                Ok(ours)
            }
        })
    }

    async fn serve(self, mut link: DuplexStream) {
        while let Some(request) = request(&mut link).await {
            let _ = self.heard.send(request);
            match self.take() {
                Does::Says(bytes) => link.write_all(bytes.as_bytes()).await.unwrap(),
                Does::SaysAndCloses(bytes) => {
                    return link.write_all(bytes.as_bytes()).await.unwrap();
                }
                Does::Nothing => std::future::pending().await,
                Does::Closes | Does::IsNotThere => return,
            }
        }
    }
}

/// A whole request, head and body; nothing at the end.
async fn request(link: &mut DuplexStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            if body.len() >= length.parse().unwrap() {
                return Some(text);
            }
        }
        let mut more = [0; 4096];
        match link.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&more[..count]),
        }
    }
}

/// An answer, as it is written.
pub(crate) fn says(status: u16, headers: &str, body: &str) -> Does {
    let length = body.len();
    Does::Says(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}"))
}

pub(crate) fn allows() -> Does {
    says(200, "", r#"{"allowed":true,"statuses":[]}"#)
}

pub(crate) fn busy(retry_after: u64) -> Does {
    let body =
        r#"{"error":{"code":"overloaded","message":"too many requests at once","context":{}}}"#;
    says(503, &format!("retry-after: {retry_after}\r\n"), body)
}

/// The value of a header of a request.
pub(crate) fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let lines = request.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
}
