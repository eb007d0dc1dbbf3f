//! A new connection.

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

use super::reply::{text, text_of};
use super::reply_limit::{ReplyLimited, TOO_LONG};
use super::settings::{Login, Settings, Target};

/// A connection whose server has said who it is.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    pub(super) greeting: Greeting,
}

/// What a server says of itself, as far as we may ask.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    /// Of the process, and of the history of its data: another after each start, and when it was something else meanwhile.
    pub(super) identity: Option<Box<str>>,
    /// Whether it takes writes.
    pub(super) primary: Option<bool>,
}

/// What moves the bytes of a connection. Ends when the connection does; the connection ends when this is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    task: JoinHandle<()>,
    reply_exceeded: Arc<AtomicBool>,
}

/// Connects, logs in and asks who is there, all within the time for it.
pub(super) async fn dial(target: &Target, settings: &Settings) -> Result<Dialed, Box<str>> {
    let login = settings.login().map_err(|error| error.to_string())?;
    let greeted = async {
        let (connection, driver) = connect(target, settings).await?;
        log_in(&connection, &login).await?;
        let greeting = greet(&connection).await?;
        load_scripts(&connection).await?;
        Ok(Dialed { connection, driver, greeting })
    };
    in_time(settings, greeted).await
}

/// Connects and logs in, at a Sentinel.
pub(super) async fn dial_sentinel(
    target: &Target,
    settings: &Settings,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    let login = settings.sentinel_login();
    let logged_in = async {
        let (connection, driver) = connect(target, settings).await?;
        log_in(&connection, &login).await?;
        Ok((connection, driver))
    };
    in_time(settings, logged_in).await
}

async fn in_time<T>(
    settings: &Settings,
    dialing: impl Future<Output = Result<T, Box<str>>>,
) -> Result<T, Box<str>> {
    match tokio::time::timeout(settings.options.connect_timeout, dialing).await {
        Ok(dialed) => dialed,
        Err(_) => Err("no answer while connecting".into()),
    }
}

async fn connect(
    target: &Target,
    settings: &Settings,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    match target {
        Target::Unix(path) => talk(UnixStream::connect(path).await.map_err(told)?, settings).await,
        Target::Host(host) => {
            let stream = TcpStream::connect((&*host.name, host.port)).await.map_err(told)?;
            stream.set_nodelay(true).map_err(told)?;
            match settings.tls() {
                None => talk(stream, settings).await,
                Some(config) => {
                    let name = ServerName::try_from(host.name.to_string()).map_err(told)?;
                    let stream = TlsConnector::from(config).connect(name, stream).await;
                    talk(stream.map_err(told)?, settings).await
                }
            }
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    settings: &Settings,
) -> Result<(MultiplexedConnection, Driver), Box<str>> {
    // The crate would log in too, but keep the server's words to itself when it is sent away.
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let options = &settings.options;
    let config = AsyncConnectionConfig::new()
        // One deadline holds for everything, and it is the caller's.
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(options.connections.saturating_mul(options.in_flight));
    let (stream, reply_exceeded) = ReplyLimited::new(stream);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await.map_err(told)?;
    Ok((connection, Driver { task: tokio::spawn(driver), reply_exceeded }))
}

async fn log_in(connection: &MultiplexedConnection, login: &Login) -> Result<(), Box<str>> {
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
    let answers = connection.send_packed_commands(&pipeline, 0, count).await.map_err(told)?;
    let refusal = answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(text_of(error)),
        _ => None,
    });
    refusal.map_or(Ok(()), Err)
}

async fn greet(connection: &MultiplexedConnection) -> Result<Greeting, Box<str>> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING");
    pipeline.cmd("CLIENT").arg("SETNAME").arg("sluicegate");
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    pipeline.cmd("ROLE");
    let mut connection = connection.clone();
    let count = pipeline.len();
    let answers = connection.send_packed_commands(&pipeline, 0, count).await.map_err(told)?;
    let [ping, _, server, replication, role] = answers.as_slice() else {
        return Err("said something else when asked who it is".into());
    };
    // One that loads its data, or will not have us, says so here.
    if let Value::ServerError(error) = ping {
        return Err(text_of(error));
    }
    // The rest is asked for what it is worth: not every user may ask it.
    let run_id = line(server, "run_id:");
    let history = line(replication, "master_replid:").unwrap_or_default();
    let role = match role {
        Value::Array(parts) => parts.first().and_then(text),
        _ => line(replication, "role:"),
    };
    Ok(Greeting {
        identity: run_id.map(|run_id| format!("{run_id} {history}").into()),
        primary: role.map(|role| role == "master"),
    })
}

/// Loads the scripts of the request path, so that no request waits while the server compiles one. A
/// server that refuses this refuses requests too, and their errors have the reason.
async fn load_scripts(connection: &MultiplexedConnection) -> Result<(), Box<str>> {
    let mut pipeline = redis::pipe();
    for call in crate::script::idle_calls() {
        pipeline.add_command(call.command("EVAL", call.script.text));
    }
    let mut connection = connection.clone();
    let count = pipeline.len();
    connection.send_packed_commands(&pipeline, 0, count).await.map_err(told)?;
    Ok(())
}

/// What `INFO` says behind a name.
fn line<'a>(info: &'a Value, name: &str) -> Option<&'a str> {
    text(info)?.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn told(error: impl std::fmt::Display) -> Box<str> {
    error.to_string().into()
}

// === impl Driver ===

impl Driver {
    /// Why the connection ended.
    pub(super) fn end(&self) -> &'static str {
        if self.reply_exceeded.load(Relaxed) { TOO_LONG } else { "the connection was closed" }
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
