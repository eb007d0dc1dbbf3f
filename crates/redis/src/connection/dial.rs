//! Establishes a connection: TCP or Unix socket, TLS, authentication, handshake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::options::{Login, Settings, Target};
use super::peer::DialTrace;
use super::reply::{as_str, error_text};
use super::reply_limit::{REPLY_TOO_LONG, ReplyLimited};

/// An established connection.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    pub(super) info: ServerInfo,
}

/// Server information, as far as the user's permissions allow.
#[derive(Debug, Default)]
pub(super) struct ServerInfo {
    /// Of the process and of its replication history: changes with a restart or a failover.
    pub(super) identity: Option<Box<str>>,
    pub(super) is_primary: Option<bool>,
}

/// I/O task of a connection. Completes when the connection ends; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Driver {
    task: JoinHandle<()>,
    is_reply_too_long: Arc<AtomicBool>,
}

/// Connects to a server of the store within the connect timeout.
pub(super) async fn dial(target: &Target, settings: &Settings) -> Result<Dialed, Box<str>> {
    let login = settings.login().map_err(|error| error.to_string())?;
    let trace = Arc::default();
    let dialing = async {
        let (connection, driver) = connect(target, settings, &trace).await?;
        authenticate(&connection, &login).await?;
        let info = handshake(&connection).await?;
        load_scripts(&connection).await?;
        Ok(Dialed { connection, driver, info })
    };
    with_timeout(settings, &trace, dialing).await
}

/// Connects to a Sentinel within the connect timeout.
pub(super) async fn dial_sentinel(
    target: &Target,
    settings: &Settings,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    let login = settings.sentinel_login();
    let trace = Arc::default();
    let dialing = async {
        let (connection, driver) = connect(target, settings, &trace).await?;
        authenticate(&connection, &login).await?;
        Ok((connection, driver))
    };
    with_timeout(settings, &trace, dialing).await
}

async fn with_timeout<T>(
    settings: &Settings,
    trace: &DialTrace,
    dialing: impl Future<Output = Result<T, Box<str>>>,
) -> Result<T, Box<str>> {
    let switch = settings.options.tls.switch;
    match tokio::time::timeout(settings.options.connect_timeout, dialing).await {
        Ok(dialed) => dialed.map_err(|error| trace.reason(Some(&error), switch)),
        Err(_) => Err(trace.reason(None, switch)),
    }
}

async fn connect(
    target: &Target,
    settings: &Settings,
    trace: &Arc<DialTrace>,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    match target {
        Target::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(to_text)?;
            trace.connected();
            start(stream, settings, trace).await
        }
        Target::Host(host) => {
            let stream = TcpStream::connect((&*host.name, host.port)).await.map_err(to_text)?;
            stream.set_nodelay(true).map_err(to_text)?;
            trace.connected();
            match settings.tls() {
                None => start(stream, settings, trace).await,
                Some(config) => {
                    let name = ServerName::try_from(host.name.to_string()).map_err(to_text)?;
                    trace.tls_started();
                    let stream = TlsConnector::from(config).connect(name, stream).await;
                    let stream = stream.map_err(to_text)?;
                    trace.tls_established();
                    start(stream, settings, trace).await
                }
            }
        }
    }
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    settings: &Settings,
    trace: &Arc<DialTrace>,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    // The crate would authenticate too, but drops the error text of the server.
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let options = &settings.options;
    let config = AsyncConnectionConfig::new()
        // The deadline of the caller covers everything.
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(options.connections.saturating_mul(options.in_flight));
    let (stream, is_reply_too_long) = ReplyLimited::new(stream, trace.clone());
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await.map_err(to_text)?;
    Ok((connection, Driver { task: tokio::spawn(driver), is_reply_too_long }))
}

async fn authenticate(connection: &MultiplexedConnection, login: &Login) -> Result<(), Box<str>> {
    let mut pipeline = redis::pipe();
    if let Some(password) = &login.password {
        let auth = pipeline.cmd("AUTH");
        if let Some(username) = &login.username {
            auth.arg(&**username);
        }
        auth.arg(password.reveal());
    }
    if login.database != 0 {
        pipeline.cmd("SELECT").arg(login.database);
    }
    if pipeline.is_empty() {
        return Ok(());
    }
    let mut connection = connection.clone();
    let count = pipeline.len();
    let replies = connection.send_packed_commands(&pipeline, 0, count).await.map_err(to_text)?;
    let refusal = replies.iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(error_text(error)),
        _ => None,
    });
    refusal.map_or(Ok(()), Err)
}

async fn handshake(connection: &MultiplexedConnection) -> Result<ServerInfo, Box<str>> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING");
    pipeline.cmd("CLIENT").arg("SETNAME").arg("sluicegate");
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    pipeline.cmd("ROLE");
    let mut connection = connection.clone();
    let count = pipeline.len();
    let replies = connection.send_packed_commands(&pipeline, 0, count).await.map_err(to_text)?;
    let [ping, _, server, replication, role] = replies.as_slice() else {
        return Err("unexpected reply to the handshake".into());
    };
    // Fails while data is loading, or without authentication.
    if let Value::ServerError(error) = ping {
        return Err(error_text(error));
    }
    if info_field(server, "redis_mode:") == Some("sentinel") {
        return Err("the server is a Sentinel: begin the address with `redis-sentinel://`".into());
    }
    // The others may fail: not every user may run them.
    let run_id = info_field(server, "run_id:");
    let history = info_field(replication, "master_replid:").unwrap_or_default();
    let role = match role {
        Value::Array(parts) => parts.first().and_then(as_str),
        _ => info_field(replication, "role:"),
    };
    Ok(ServerInfo {
        identity: run_id.map(|run_id| format!("{run_id} {history}").into()),
        is_primary: role.map(|role| role == "master"),
    })
}

/// Loads all scripts, so that no request waits for their compilation. Errors are ignored: the
/// requests get the same ones.
async fn load_scripts(connection: &MultiplexedConnection) -> Result<(), Box<str>> {
    let mut pipeline = redis::pipe();
    for call in crate::script::loading_calls() {
        pipeline.add_command(call.command("EVAL", call.script.text));
    }
    let mut connection = connection.clone();
    let count = pipeline.len();
    connection.send_packed_commands(&pipeline, 0, count).await.map_err(to_text)?;
    Ok(())
}

/// A field of `INFO`.
fn info_field<'a>(info: &'a Value, name: &str) -> Option<&'a str> {
    as_str(info)?.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn to_text(error: impl std::fmt::Display) -> Box<str> {
    error.to_string().into()
}

impl Driver {
    /// Why the connection ended.
    pub(super) fn close_reason(&self) -> &'static str {
        if self.is_reply_too_long.load(Relaxed) {
            REPLY_TOO_LONG
        } else {
            "the connection was closed"
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.task).poll(context).map(|_| ())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}
