//! Drain, handover to the next process, and changes of the file under open connections.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::get;

/// Far more than anything here takes: a test that hangs fails.
const HANG: Duration = Duration::from_secs(60);

/// A server with paths that wait for [`Held::release`]: `/hold` before its response, `/download`
/// in the middle of it. `/echo` is a tunnel.
struct Held {
    address: String,
    arrived: Receiver<()>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Held {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (arrival, arrived) = channel();
        let shared = gate.clone();
        thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let (gate, arrival) = (shared.clone(), arrival.clone());
                thread::spawn(move || answer(socket, &gate, &arrival));
            }
        });
        Self { address, arrived, gate }
    }

    /// Waits until a request waits.
    fn arrival(&self) {
        self.arrived.recv_timeout(HANG).unwrap();
    }

    fn release(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// Serves a connection to its end.
fn answer(
    mut socket: TcpStream,
    (released, changed): &(Mutex<bool>, Condvar),
    arrival: &Sender<()>,
) -> Option<()> {
    let wait = || {
        let _ = arrival.send(());
        drop(changed.wait_while(released.lock().unwrap(), |released| !*released).unwrap());
    };
    loop {
        let head = head(&mut socket)?;
        let mut write = |text: &str| socket.write_all(text.as_bytes()).ok();
        match head.split(' ').nth(1)? {
            "/hold" => {
                wait();
                write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nheld")?;
            }
            "/download" => {
                write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf ")?;
                wait();
                write("rest")?;
            }
            "/echo" => {
                write("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")?;
                let mut buffer = [0; 64];
                loop {
                    let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
                    socket.write_all(&buffer[..count]).ok()?;
                }
            }
            _ => write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?,
        }
    }
}

/// A head, to its empty line; `None` if the connection ends before.
fn head(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket
}

/// A connection with a request that is sent.
fn requesting(gateway: &Gateway, path: &str, headers: &str) -> TcpStream {
    let mut socket = connect(&gateway.address);
    write!(socket, "GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n").unwrap();
    socket
}

/// Reads exactly so many bytes.
fn text(socket: &mut TcpStream, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    socket.read_exact(&mut buffer).unwrap();
    String::from_utf8(buffer).unwrap()
}

/// Whether the peer ends the connection without a further byte.
fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Type of the next frame of HTTP/2.
fn frame_type(socket: &mut TcpStream) -> u8 {
    let mut head = [0; 9];
    socket.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    socket.read_exact(&mut vec![0; length as usize]).unwrap();
    head[3]
}

#[test]
fn sigterm_answers_requests_in_flight_and_closes_idle_connections() {
    const GOAWAY: u8 = 7;

    let app = Held::start();
    let mut gateway = Gateway::start(&["--upstream", &format!("http://{}", app.address)]);
    let mut idle = requesting(&gateway, "/", "");
    assert!(head(&mut idle).unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(text(&mut idle, 2), "ok");
    let mut http2 = connect(&gateway.address);
    http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    assert_ne!(frame_type(&mut http2), GOAWAY);
    let mut busy = requesting(&gateway, "/hold", "");
    app.arrival();
    gateway.signal("TERM");
    gateway.process.says("draining");
    assert!(is_closed(&mut idle));
    while frame_type(&mut http2) != GOAWAY {}
    drop(http2);
    until("new connections are refused", || TcpStream::connect(&gateway.address).err());
    app.release();
    let answered = head(&mut busy).unwrap().to_ascii_lowercase();
    assert!(answered.starts_with("http/1.1 200 "), "{answered}");
    assert!(answered.contains("connection: close\r\n"), "{answered}");
    assert_eq!(text(&mut busy, 4), "held");
    assert!(is_closed(&mut busy));
    gateway.process.says("stopped");
    assert_eq!(gateway.process.ends(), Some(0));
}

#[test]
fn the_second_deadline_cuts_what_is_left() {
    let app = Held::start();
    let upstream = format!("http://{}", app.address);
    let drain = [("SLUICEGATE_DRAIN_TIMEOUT", "100ms")];
    let mut gateway = Gateway::with(&["--upstream", &upstream], &drain);
    let mut busy = requesting(&gateway, "/hold", "");
    app.arrival();
    gateway.signal("TERM");
    let line = gateway.process.says("drain timed out: connections closed");
    assert!(line.contains("connections=1"), "{line}");
    assert!(is_closed(&mut busy));
    gateway.process.says("stopped");
    assert_eq!(gateway.process.ends(), Some(0));
}

/// Sends requests, each on a connection of its own, until it is stopped.
fn open_and_close(address: &str, stop: &AtomicBool, answered: &AtomicUsize) {
    while !stop.load(Relaxed) {
        assert_eq!(get(address, "/", &[]).body, "ok");
        answered.fetch_add(1, Relaxed);
    }
}

/// Sends requests on a connection for as long as the gateway keeps it open. A request that it
/// leaves unanswered because it closes the connection meanwhile is sent again, as by any client.
fn stay_open(address: &str, stop: &AtomicBool, answered: &AtomicUsize) {
    while !stop.load(Relaxed) {
        let mut socket = connect(address);
        let mut count = 0;
        while !stop.load(Relaxed) {
            let sent = socket.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n");
            let response = sent.ok().and_then(|()| head(&mut socket));
            let Some(response) = response else {
                assert!(count > 0, "a new connection was closed without a response");
                break;
            };
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
            assert_eq!(text(&mut socket, 2), "ok");
            count += 1;
            answered.fetch_add(1, Relaxed);
            if response.to_ascii_lowercase().contains("connection: close") {
                break;
            }
        }
    }
}

/// The sockets that listen on an address, by inode.
fn listening(address: &str) -> Vec<String> {
    const LISTEN: &str = "0A";

    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let local = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row[1] == local && row[3] == LISTEN);
    let mut inodes: Vec<String> = rows.map(|row| row[9].to_owned()).collect();
    inodes.sort_unstable();
    inodes
}

#[test]
fn the_next_process_takes_over_without_a_refused_connection() {
    let (folder, app) = (Folder::new(), Held::start());
    let socket = format!("{}/handover.sock", folder.path());
    let text = format!(
        "handover: {socket}\nupstreams: {{ app: \"http://{}\" }}\nroutes: [{{ path: /*, upstream: app }}]\n",
        app.address
    );
    let path = folder.file("gateway.yaml", &text);
    let mut gateway = Gateway::start(&["--config", &path]);
    let (address, admin) = (gateway.address.clone(), gateway.admin.clone());
    let sockets = listening(&address);
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..4 {
            let (address, stop, answered) = (&address, &stop, &answered);
            scope.spawn(move || match client {
                0 => stay_open(address, stop, answered),
                _ => open_and_close(address, stop, answered),
            });
        }
        let mut replace = || {
            for _ in 0..3 {
                let before = answered.load(Relaxed);
                until("requests are answered", || {
                    (answered.load(Relaxed) > before + 50).then_some(())
                });
                until("the next process can connect", || std::fs::metadata(&socket).ok());
                let args = ["--config", &path, "--listen", &address, "--admin", &admin];
                let mut next = Gateway::start(&args);
                next.process.says("took over from the previous process");
                gateway.process.says("handed over to the next process");
                assert_eq!(gateway.process.ends(), Some(0));
                assert_eq!(listening(&address), sockets, "connections wait in the same sockets");
                gateway = next;
            }
        };
        // The clients end also when this fails.
        let replaced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut replace));
        stop.store(true, Relaxed);
        replaced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert_eq!(gateway.metric("sluicegate_connections_refused_total").as_deref(), Some("0"));
}

fn forwarding(app: &Held, top: &str) -> String {
    format!(
        "{top}\nupstreams: {{ app: \"http://{}\" }}\nroutes: [{{ path: /*, upstream: app }}]\n",
        app.address
    )
}

#[test]
fn a_tunnel_and_a_download_survive_a_change() {
    let (folder, app, other) = (Folder::new(), Held::start(), Held::start());
    let path = folder.file("gateway.yaml", &forwarding(&app, ""));
    let mut gateway = Gateway::start(&["--config", &path]);
    let mut tunnel = requesting(&gateway, "/echo", "connection: upgrade\r\nupgrade: echo\r\n");
    assert!(head(&mut tunnel).unwrap().starts_with("HTTP/1.1 101 "));
    let mut download = requesting(&gateway, "/download", "");
    assert!(head(&mut download).unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(text(&mut download, 5), "half ");
    app.arrival();

    // Their upstream and their routes are removed.
    let changed = format!(
        "upstreams: {{ new: \"http://{}\" }}\nconnections: {{ open: 3 }}\nroutes:\n  - {{ path: /hold, upstream: new }}\n",
        other.address
    );
    folder.file("gateway.yaml", &changed);
    gateway.signal("HUP");
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(get(&gateway.address, "/download", &[]).status, 404);
    let mut new = requesting(&gateway, "/hold", "");
    other.arrival();
    tunnel.write_all(b"still open").unwrap();
    assert_eq!(text(&mut tunnel, 10), "still open");
    app.release();
    assert_eq!(text(&mut download, 4), "rest");
    other.release();
    assert!(head(&mut new).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn timeouts_and_sizes_follow_the_file() {
    let (folder, app) = (Folder::new(), Held::start());
    let path = folder.file("gateway.yaml", &forwarding(&app, ""));
    let mut gateway = Gateway::start(&["--config", &path]);
    let mut before = requesting(&gateway, "/", "");
    assert!(head(&mut before).unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(text(&mut before, 2), "ok");
    let change = "timeouts: { header: 100ms }\nmax_header_bytes: 8KiB";
    folder.file("gateway.yaml", &forwarding(&app, change));
    gateway.process.says("gateway configuration reloaded");
    let mut silent = connect(&gateway.address);
    silent.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    assert!(is_closed(&mut silent), "the default is 10 s");
    // A connection keeps what it was opened with.
    let long = format!("x-long: {}\r\n", "x".repeat(12 << 10));
    let mut after = requesting(&gateway, "/", &long);
    assert!(head(&mut after).unwrap().starts_with("HTTP/1.1 431 "));
    write!(before, "GET / HTTP/1.1\r\nhost: test\r\n{long}\r\n").unwrap();
    assert!(head(&mut before).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn addresses_follow_the_file() {
    let (folder, app) = (Folder::new(), Held::start());
    let write = |listen: &str| {
        // With copies of the sockets for the next process, which must not outlive an address.
        let top = format!("handover: handover.sock\nlisten: [{listen}]");
        folder.file("gateway.yaml", &forwarding(&app, &top))
    };
    let mut gateway = Gateway::at_addresses_of(&write("127.0.0.1:0"));
    let first = gateway.address.clone();
    let mut idle = requesting(&gateway, "/", "");
    assert!(head(&mut idle).unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(text(&mut idle, 2), "ok");
    let mut busy = requesting(&gateway, "/hold", "");
    app.arrival();

    // One that cannot be bound changes nothing.
    write("127.0.0.1:0, 127.0.0.2:0, 192.0.2.1:1");
    gateway.process.says("listen: cannot listen on `192.0.2.1:1`");
    assert_eq!(get(&first, "/", &[]).status, 200);
    write("127.0.0.1:0, 127.0.0.2:0");
    let line = gateway.process.says(" listening ");
    let second = line.rsplit("address=").next().unwrap().trim().to_owned();
    assert!(second.starts_with("127.0.0.2:"), "{line}");
    gateway.process.says("gateway configuration reloaded");
    assert_eq!((get(&first, "/", &[]).status, get(&second, "/", &[]).status), (200, 200));
    write!(idle, "GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    assert!(head(&mut idle).unwrap().starts_with("HTTP/1.1 200 "), "it stays open");
    assert_eq!(text(&mut idle, 2), "ok");

    // An address that stays has new options, and a removed one drains.
    write("{ address: 127.0.0.2:0, redirect_to_https: true }");
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(get(&second, "/", &[]).status, 308);
    until("new connections are refused", || TcpStream::connect(&first).err());
    assert!(is_closed(&mut idle));
    app.release();
    assert!(head(&mut busy).unwrap().starts_with("HTTP/1.1 200 "));
    gateway.signal("TERM");
    gateway.process.says("stopped");
    assert_eq!(gateway.process.ends(), Some(0));
}
