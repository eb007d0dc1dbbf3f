//! `gateway --only memory`: memory of a proxy per open connection.
//!
//! *Idle*: connections after one request each. *Active*: connections with a request that the
//! upstream does not answer, so the proxy has a connection on either side.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::contestants::{self, Contestant, NGINX};
use super::programs::Programs;
use super::proxies::{Limit, Proxy};
use super::servers::{Running, ServerKind};
use crate::frame::{self, Reading, Results, Row, Schedule};
use crate::{Common, table};

/// The name for `--only`.
pub(super) const NAME: &str = "memory";

const ROUNDS: u32 = 3;
const CONNECTIONS: usize = 2_000;
const CONNECTIONS_QUICK: usize = 500;
const TIMEOUT: Duration = Duration::from_secs(20);

const BODY: &[u8] = b"a page";
const ANSWERED: &[u8] = b"GET /page HTTP/1.1\r\nhost: bench\r\n\r\n";
const HELD: &[u8] = b"GET /held HTTP/1.1\r\nhost: bench\r\n\r\n";

/// Growth of the proxy's proportional set size per connection, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct PerConnection {
    idle: f64,
    active: f64,
}

/// Answers pages at once, and `/held` never.
struct Upstream {
    address: SocketAddr,
    /// A message for each request that is held.
    held: Receiver<()>,
    /// Ends the upstream when dropped.
    _runtime: Runtime,
}

impl Reading for PerConnection {}

pub(super) fn run(common: &Common, programs: &Programs) -> anyhow::Result<Results<PerConnection>> {
    // Both ends of the proxy's connections are in this process.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    let proxies: Vec<(Contestant, Proxy)> =
        contestants::gateway().into_iter().filter_map(of_interest).collect();
    let rows =
        proxies.iter().map(|(one, _)| Row::new(NAME, one.name).absent(programs.missing(one)));
    let rounds = common.rounds.unwrap_or(if common.quick { 1 } else { ROUNDS });
    let count = connections(common);
    Ok(frame::run(rows.collect(), Schedule { rounds, attempts: 1 }, |row| {
        let proxy = proxies[row].1;
        let idle = growth(programs, proxy, count, |proxy, _| exchange(proxy))?;
        let active = growth(programs, proxy, count, |proxy, upstream| {
            let client = send(proxy, HELD)?;
            upstream.held.recv_timeout(TIMEOUT).context("the upstream got no request")?;
            Ok(client)
        })?;
        Ok(PerConnection { idle, active })
    }))
}

/// Number of connections.
pub(super) const fn connections(common: &Common) -> usize {
    if common.quick { CONNECTIONS_QUICK } else { CONNECTIONS }
}

/// Proxies with the counter in the same process.
fn of_interest(one: Contestant) -> Option<(Contestant, Proxy)> {
    match one.server {
        ServerKind::Proxy(
            proxy @ (Proxy::Nginx | Proxy::Haproxy | Proxy::EnvoyLocal | Proxy::Gateway),
        ) => Some((one, proxy)),
        _ => None,
    }
}

pub(super) fn table(results: &Results<PerConnection>) -> String {
    let base = results.row(NAME, NGINX);
    let cells = |row: &Row<PerConnection>| {
        let ratio = |number: fn(&PerConnection) -> f64| {
            let ratio = base.and_then(|base| row.ratio(base, number));
            ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.spread.median))
        };
        let name = match &row.absent {
            Some(reason) => format!("{}: not measured: {reason}", row.name),
            None => row.name.clone(),
        };
        let (idle, active) = (|one: &PerConnection| one.idle, |one: &PerConnection| one.active);
        vec![name, row.shown(0, idle), ratio(idle), row.shown(0, active), ratio(active)]
    };
    let times = format!("x {NGINX}");
    let head = ["proxy", "bytes per idle connection", &times, "per active one", &times];
    table::render(&head, 1, &results.rows.iter().map(cells).collect::<Vec<_>>())
}

/// Growth of a fresh proxy by connections, each opened by `open`.
fn growth(
    programs: &Programs,
    proxy: Proxy,
    count: usize,
    open: impl Fn(SocketAddr, &Upstream) -> anyhow::Result<TcpStream>,
) -> anyhow::Result<f64> {
    let upstream = Upstream::start()?;
    let running = proxy.start(programs, upstream.address, Limit::High)?;
    let _warm = exchange(running.address)?;
    let before = proportional(&running)?;
    let clients: Vec<TcpStream> =
        (0..count).map(|_| open(running.address, &upstream)).collect::<anyhow::Result<_>>()?;
    let after = proportional(&running)?;
    drop(clients);
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

/// A request and its response; the connection stays open.
fn exchange(proxy: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut client = send(proxy, ANSWERED)?;
    let (mut response, mut part) = (Vec::new(), [0; 4096]);
    while !response.ends_with(BODY) {
        let read = client.read(&mut part).context("no response of the proxy")?;
        ensure!(read > 0, "the proxy closed a connection");
        response.extend_from_slice(&part[..read]);
    }
    ensure!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    Ok(client)
}

fn send(proxy: SocketAddr, request: &[u8]) -> anyhow::Result<TcpStream> {
    let mut client = TcpStream::connect(proxy).context("cannot connect to the proxy")?;
    client.set_read_timeout(Some(TIMEOUT))?;
    client.write_all(request)?;
    Ok(client)
}

/// Proportional set size of all processes of a server.
fn proportional(running: &Running) -> anyhow::Result<u64> {
    running
        .processes()
        .iter()
        .map(|process| {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"));
            proportional_bytes(&text.with_context(|| format!("process {process} has ended"))?)
                .context("`smaps_rollup` has no `Pss` in kB")
        })
        .sum()
}

fn proportional_bytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

// === impl Upstream ===

impl Upstream {
    fn start() -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (holds, held) = channel();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, holds.clone()));
            }
        });
        Ok(Self { address, held, _runtime: runtime })
    }
}

async fn serve(mut socket: tokio::net::TcpStream, holds: Sender<()>) {
    let mut request = Vec::new();
    while socket.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        if request.starts_with(b"GET /held") {
            let _ = holds.send(());
        } else {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", BODY.len());
            if socket.write_all(&[head.as_bytes(), BODY].concat()).await.is_err() {
                return;
            }
        }
        request.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_answers_pages_and_holds_the_rest() {
        let upstream = Upstream::start().unwrap();
        exchange(upstream.address).unwrap();
        assert!(upstream.held.try_recv().is_err());
        let _held = send(upstream.address, HELD).unwrap();
        upstream.held.recv_timeout(TIMEOUT).unwrap();
    }

    #[test]
    fn the_proportional_set_size_is_in_kilobytes() {
        assert_eq!(
            proportional_bytes("0-f ---p [rollup]\nRss: 9 kB\nPss:     12 kB\n"),
            Some(12_288)
        );
        assert_eq!(proportional_bytes("Rss: 9 kB\n"), None);
    }
}
