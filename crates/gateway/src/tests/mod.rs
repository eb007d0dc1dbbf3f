//! A running gateway between sockets that the tests hold: upstreams and clients at the byte level.

mod failures;
mod framing;
mod grpc;
mod http2;
mod identity;
mod paths;
mod tunnels;
mod upstreams;

use std::future::Future;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::upstream::UpstreamConfig;
use sluicegate_server::settings::{Settings, Vars};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::gateway::Gateway;

/// A gateway on a thread of its own; ends with its value.
struct RunningGateway {
    address: SocketAddr,
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningGateway {
    async fn start(config: GatewayConfig) -> Self {
        Self::with_rules(config, None).await
    }

    async fn with_rules(config: GatewayConfig, rules: Option<String>) -> Self {
        let (started, start) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut vars = Vars::new(Vec::<(String, String)>::new());
                vars.set_flag("--admin", "127.0.0.1:0");
                let (mut settings, _) = Settings::read(&vars).unwrap();
                settings.rules.text = rules;
                let gateway = Gateway::start(settings, &config, Some(1)).await.unwrap();
                started.send((gateway.addresses()[0], gateway.admin_address())).unwrap();
                let (_reload, reloads) = mpsc::channel(1);
                let stop = async { drop(stopped.await) };
                gateway.run(stop, reloads).await.unwrap();
            });
        });
        let (address, admin) = start.await.unwrap();
        Self { address, admin, stop: Some(stop), thread: Some(thread) }
    }

    /// Forwards everything to these servers, with these options.
    async fn forwarding(upstream: UpstreamConfig) -> Self {
        let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), Vec::new(), None);
        config.upstreams = vec![upstream];
        Self::start(config).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The whole response to a request; the gateway closes the connection.
    async fn exchange(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let _ = client.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await
    }

    async fn metrics(&self) -> String {
        let mut admin = TcpStream::connect(self.admin).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        admin.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        admin.read_to_string(&mut page).await.unwrap();
        page
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An upstream of one server, with default options.
fn upstream(url: &str) -> UpstreamConfig {
    upstreams(&[url])
}

fn upstreams(urls: &[&str]) -> UpstreamConfig {
    UpstreamConfig::new("app", urls.iter().map(|url| url.parse().unwrap()).collect())
}

/// A server whose connections are handled by `serve`, with their number; ends with the runtime.
async fn server<F, R>(serve: F) -> String
where
    F: Fn(usize, TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for number in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(number, socket));
        }
    });
    url
}

/// A server that answers every request with its name.
async fn named_server(name: &'static str) -> String {
    server(move |_, mut socket| async move {
        while read_head(&mut socket).await.is_some() {
            let length = name.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
            if socket.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// The head of a message, up to its empty line; `None` at the end of the connection.
async fn read_head(socket: &mut TcpStream) -> Option<String> {
    read_until(socket, "\r\n\r\n").await
}

/// Reads until the text ends so; byte by byte, so that nothing behind it is taken.
async fn read_until(socket: &mut TcpStream, end: &str) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        match socket.read_u8().await {
            Ok(byte) => text.push(byte),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Completes when the peer has closed the connection.
async fn closed(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest).await;
}
