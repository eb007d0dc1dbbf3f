//! A gateway in front of an upstream, and clients of it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_config::gateway::GatewayConfig;
use sluicegate_gateway::gateway::Gateway;
use sluicegate_server::settings::{Settings, Vars};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Far more than anything here takes; a test that hangs fails.
const HANG: Duration = Duration::from_secs(30);

/// A server that answers with the head of the request. Paths below `/hold` wait for a permit.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) held: Arc<Semaphore>,
    arrived: mpsc::UnboundedReceiver<String>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::new(Semaphore::new(0));
        let (arrival, arrived) = mpsc::unbounded_channel();
        let permits = held.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, permits.clone(), arrival.clone()));
            }
        });
        Self { address, held, arrived }
    }

    /// The head of the next request.
    pub(crate) async fn arrival(&mut self) -> String {
        within(self.arrived.recv()).await.unwrap()
    }
}

async fn answer(
    mut socket: TcpStream,
    held: Arc<Semaphore>,
    arrival: mpsc::UnboundedSender<String>,
) -> io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let _ = arrival.send(head.clone());
        if head.contains(" /hold") {
            held.acquire().await.unwrap().forget();
        }
        let (path, is_large) = (head.clone(), head.contains(" /large"));
        let body = if is_large { "x".repeat(8 << 20) } else { path };
        let length = body.len();
        socket
            .write_all(
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes(),
            )
            .await?;
    }
}

/// A running gateway.
pub(crate) struct Running {
    pub(crate) addresses: Vec<SocketAddr>,
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<io::Result<()>>,
    _reload: mpsc::Sender<()>,
}

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// All requests to the upstream, on one listener.
pub(crate) fn config(upstream: &Upstream) -> GatewayConfig {
    let server = format!("http://{}", upstream.address).parse().unwrap();
    GatewayConfig::simple(any_port(), vec![server], None)
}

impl Running {
    pub(crate) async fn start(config: &GatewayConfig) -> Self {
        Self::start_with(config, any_port()).await.unwrap()
    }

    pub(crate) async fn start_with(
        config: &GatewayConfig,
        admin: SocketAddr,
    ) -> Result<Self, String> {
        let vars = [
            ("SLUICEGATE_ADMIN", admin.to_string()),
            ("SLUICEGATE_DRAIN_DELAY", "0s".to_owned()),
            ("SLUICEGATE_DRAIN_TIMEOUT", "3s".to_owned()),
        ];
        let (settings, _) = Settings::read(&Vars::new(vars)).unwrap();
        let started = Gateway::start(settings, config, Some(2)).await;
        let gateway = started.map_err(|error| error.to_string())?;
        let (addresses, admin) = (gateway.addresses(), gateway.admin_address());
        let (stop, stopped) = oneshot::channel();
        let (reload, reloads) = mpsc::channel(1);
        let stopped = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(gateway.run(stopped, reloads));
        Ok(Self { addresses, admin, stop: Some(stop), ended, _reload: reload })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) const fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// A response to one request on a connection of its own.
    pub(crate) async fn get(&self, path: &str) -> String {
        get(self.address(), path, "").await.unwrap()
    }

    /// A series of the metrics page.
    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let page = get(self.admin, "/metrics", "").await.unwrap();
        let line = page.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Connections rejected for a reason.
    pub(crate) async fn rejected(&self, reason: &str) -> u64 {
        let name = "sluicegate_client_connections_rejected_total";
        self.metric(&format!("{name}{{reason=\"{reason}\"}}")).await
    }

    /// Begins to drain.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for its end.
    pub(crate) async fn end(self) {
        within(self.ended).await.unwrap().unwrap();
    }
}

/// Fails instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANG, future).await.expect("it takes too long")
}

/// A response to one request on a new connection.
pub(crate) async fn get(address: SocketAddr, path: &str, headers: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    exchange(&mut socket, &request(path, headers)).await
}

/// A request that ends its connection.
pub(crate) fn request(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a.example\r\n{headers}connection: close\r\n\r\n")
}

/// Sends bytes, and reads to the end.
pub(crate) async fn exchange(
    socket: &mut (impl AsyncRead + tokio::io::AsyncWrite + Unpin),
    bytes: &str,
) -> io::Result<String> {
    socket.write_all(bytes.as_bytes()).await?;
    let text = read_to_end(socket).await?;
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(text) }
}

pub(crate) async fn read_to_end(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut bytes = Vec::new();
    within(socket.read_to_end(&mut bytes)).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the peer closes the connection without a byte.
pub(crate) async fn is_closed(socket: &mut (impl AsyncRead + Unpin)) -> bool {
    match within(socket.read(&mut [0; 64])).await {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// One response on a connection that stays open, with a body of known length.
pub(crate) async fn response(socket: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(socket.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    within(socket.read_exact(&mut body)).await.unwrap();
    head + &String::from_utf8_lossy(&body)
}

/// A path that no other test has.
pub(crate) fn temp_path(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("sluicegate-{}-{id}-{name}", std::process::id()))
}
