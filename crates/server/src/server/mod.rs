//! The whole service: how it begins, what listens, and how it ends.
//!
//! ```text
//!   begin   what was saved -> the rules -> the addresses
//!   end     unready -> the delay for load balancers -> no more is accepted -> what has begun is answered -> what is counted is saved
//! ```

mod addresses;
mod rules;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;

use sluicegate::throttle::Throttle;
use sluicegate::{Engine, RulesError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at, sleep};

pub use addresses::Addresses;
use rules::Rules;
use snapshot::Saving;

use crate::admin;
use crate::app::App;
use crate::grpc;
use crate::health::Health;
use crate::http::{self, ErrorFormat, KeysAccess};
use crate::listen::Listener;
use crate::logs::events;
use crate::memory::{MemoryBudget, Share};
use crate::reservations::Reservations;
use crate::resp;
use crate::settings::{self, GrpcAddress, Settings};
use crate::tls::{Tls, TlsEvent};
use crate::traces::{self, Exporter};

/// A service that has its rules and its addresses, and does not answer yet.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    app: App,
    rules: Rules,
    saving: Option<Saving>,
    tls: Option<Tls>,
    exporter: Option<Exporter>,
    grpc: Listener,
    http: TcpListener,
    admin: TcpListener,
    resp: Option<TcpListener>,
    /// Also if nobody asks it now: what was saved of it is not lost then.
    throttle: Throttle,
    addresses: Addresses,
}

/// Why it does not start.
#[derive(Debug)]
pub enum StartError {
    /// The rules are wrong, or cannot be read.
    Rules(RulesError),
    /// Something else is in the way.
    Broken {
        /// What was wanted.
        wanted: String,
        /// Why it cannot be.
        why: String,
    },
}

// === impl Server ===

impl Server {
    /// Restores what was saved, takes the rules, and takes the addresses.
    ///
    /// # Errors
    /// When the rules are wrong, or an address or a file cannot be had.
    pub async fn start(mut settings: Settings) -> Result<Self, StartError> {
        let saved = snapshot::open(settings.snapshot.as_deref(), settings.identities_max);
        let (memory, saving, restoration) =
            saved.map_err(|error| broken("restore and save counts", error))?;
        let engine = Engine::builder(Default::default())
            .memory(&memory)
            .near_limit_ratio(settings.near_limit_ratio)
            .build();
        let engine = engine.map_err(|error| broken("make an engine", error))?;
        let health =
            if settings.needs_a_domain { Health::with_a_domain() } else { Health::default() };
        let traces = settings.traces.clone().map(traces::start).transpose();
        let (tracer, exporter) = traces.map_err(|error| broken("export traces", error))?.unzip();
        let tracer = tracer.unwrap_or_default();
        let app = match &settings.store {
            settings::Store::Memory => App::builder(engine),
            settings::Store::Redis(redis) => {
                health.has_store(redis.health_needs_connection);
                App::redis_builder(store::on_redis(engine, redis)?)
            }
        };
        let app = app
            .options(settings.rls.clone())
            .tracer(tracer)
            .reservations(Reservations::new(settings.reservations_max, settings.waiting_max))
            .memory_budget(MemoryBudget::new(settings.memory_budget))
            .health(health)
            .build();
        snapshot::report(&app, saving.as_ref(), &restoration);
        let rules = Rules::take(&app, &settings)?;
        let tls = settings.tls.clone().map(Tls::new).transpose();
        let tls = tls.map_err(|error| broken("speak TLS", error))?;
        let grpc = listen_to_envoy(&settings.grpc)?;
        let http = listen(settings.http)?;
        let admin = listen(settings.admin)?;
        let resp = settings.resp.map(listen).transpose()?;
        let throttle = Throttle::new(app.engine().memory());
        let addresses = Addresses::of(&settings.grpc, &grpc, &http, &admin, resp.as_ref())
            .map_err(|error| broken("tell the addresses", error))?;
        // Whoever asks for the settings wants to know the ports that it really got.
        let Addresses { grpc: grpc_at, http: http_at, admin: admin_at, resp: resp_at } =
            addresses.clone();
        (settings.grpc, settings.http, settings.admin) = (grpc_at, http_at, admin_at);
        settings.resp = resp_at;
        Ok(Self {
            settings,
            app,
            rules,
            saving,
            tls,
            exporter,
            grpc,
            http,
            admin,
            resp,
            throttle,
            addresses,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What answers.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Answers until `stop` is ready, and then ends in good order. Whoever sends to `reread` has the rules read again.
    ///
    /// # Errors
    /// When a listener breaks.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut reread: mpsc::Receiver<()>,
    ) -> io::Result<()> {
        let Self {
            settings,
            app,
            rules,
            saving,
            tls,
            exporter,
            grpc,
            http,
            admin,
            resp,
            throttle,
            ..
        } = self;
        let stopping = watch::Sender::new(false);
        let stopped = || {
            let mut stopping = stopping.subscribe();
            async move {
                let _ = stopping.wait_for(|stopping| *stopping).await;
            }
        };
        if let Some(tls) = &tls {
            let cert = settings.tls.as_ref().map(|files| files.cert.clone()).unwrap_or_default();
            tls.on_event(move |event| tell_of_tls(&cert.display(), event));
        }
        let envoy = grpc::serve(grpc, app.clone(), grpc_options(&settings, tls), stopped());
        let routes = http::routes(app.clone(), http_options(&settings));
        let people = http::serve(http, routes, app.clone(), http_bounds(&settings), stopped());
        let router = admin::router(app.clone(), admin_options(&settings));
        let operators = http::serve(admin, router, app.clone(), admin_bounds(&settings), stopped());
        let clients_of_redis = async {
            let Some(resp) = resp else { return Ok(()) };
            let (app, throttle) = (app.clone(), throttle.clone());
            let served = resp::serve(resp, app, throttle, resp_options(&settings), stopped());
            ending_all(served, &stopping, "resp").await
        };
        // Without one of its doors it is of no use, and looks as if it were: it ends, so that whoever looks after it starts it again.
        let (envoy, people, operators) = (
            ending_all(envoy, &stopping, "grpc"),
            ending_all(people, &stopping, "http"),
            ending_all(operators, &stopping, "admin"),
        );
        let end = async {
            tokio::select! {
                () = stop => {}
                () = stopped() => return app.health().drain(),
            }
            // Whoever looks after us hears it first, and is given time to send nobody any more.
            app.health().drain();
            events::drain_started(settings.drain.0);
            // Whoever loses patience with us before the end finds nearly all of it.
            tokio::join!(sleep(settings.drain.0), save_aside(saving.as_ref(), &app));
            stopping.send_replace(true);
        };
        let upkeep = async {
            let read_again = async {
                while reread.recv().await.is_some() {
                    rules.reread();
                }
            };
            let store_watched = async {
                if let Some(engine) = app.redis() {
                    store::watch(engine.backend().store().clone(), app.health().clone()).await;
                }
            };
            let saved = save_now_and_then(saving.as_ref(), &app, &settings);
            tokio::join!(read_again, saved, store_watched);
            std::future::pending::<()>().await;
        };
        let exported = async {
            if let Some(exporter) = exporter {
                exporter.run(stopped()).await;
            }
        };
        let served = tokio::select! {
            served = async { tokio::join!(envoy, people, operators, clients_of_redis, end, exported) } => served,
            () = upkeep => return Ok(()),
        };
        if let Some(saving) = &saving {
            saving.save(&app);
        }
        if let Some(engine) = app.redis() {
            // Other nodes can use what this one has leased.
            engine.backend().close().await;
        }
        events::stopped();
        let (envoy, people, operators, clients_of_redis, (), ()) = served;
        envoy.and(people).and(operators).and(clients_of_redis)
    }
}

/// An endpoint; when it is closed, so are the others.
async fn ending_all(
    endpoint: impl Future<Output = io::Result<()>>,
    stopping: &watch::Sender<bool>,
    name: &'static str,
) -> io::Result<()> {
    let served = endpoint.await;
    if let Err(error) = &served {
        events::listener_failed(name, error);
    }
    stopping.send_replace(true);
    served
}

fn broken(wanted: &str, why: impl fmt::Display) -> StartError {
    StartError::Broken { wanted: wanted.to_owned(), why: why.to_string() }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    bind(address).map_err(|error| broken(&format!("listen on `{address}`"), error))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    /// Clients that have come and are not accepted yet; the system may allow fewer. Who comes beyond hears nothing and asks again a second later, so the usual
    /// 128 make a burst of clients slow, however fast they are answered.
    const WAITING_MAX: u32 = 4_096;

    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As every listener of tokio: connections that are gone do not keep the address. Elsewhere it would mean more.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

fn listen_to_envoy(address: &GrpcAddress) -> Result<Listener, StartError> {
    match address {
        GrpcAddress::Tcp(address) => Ok(Listener::Tcp(listen(*address)?)),
        #[cfg(unix)]
        GrpcAddress::Unix(path) => Listener::unix(path)
            .map_err(|error| broken(&format!("listen on `{}`", path.display()), error)),
        #[cfg(not(unix))]
        GrpcAddress::Unix(path) => Err(broken(
            &format!("listen on `{}`", path.display()),
            "this system has no such sockets",
        )),
    }
}

fn grpc_options(settings: &Settings, tls: Option<Tls>) -> grpc::Options {
    let (age, age_grace) = settings.connection_age;
    let limits = grpc::GrpcLimits {
        connections: settings.connections_max,
        in_flight: settings.in_flight_max,
        age: (!age.is_zero()).then_some(age),
        age_grace,
        drain: settings.drain.1,
        ..grpc::GrpcLimits::default()
    };
    grpc::Options { limits, tls }
}

fn http_options(settings: &Settings) -> http::Options {
    let keys = match &settings.admin_token {
        Some(token) => KeysAccess::Token(token.clone()),
        None if settings.http.ip().is_loopback() => KeysAccess::Open,
        None => KeysAccess::Off,
    };
    let error_format =
        if settings.problem_json { ErrorFormat::Problem } else { ErrorFormat::Envelope };
    http::Options { style: settings.style, error_format, keys, ..http::Options::default() }
}

fn http_bounds(settings: &Settings) -> http::HttpLimits {
    http::HttpLimits {
        connections: settings.connections_max,
        in_flight: settings.in_flight_max,
        drain: settings.drain.1,
        ..http::HttpLimits::default()
    }
}

fn admin_bounds(settings: &Settings) -> http::HttpLimits {
    http::HttpLimits { memory: Share::Operators, ..http_bounds(settings) }
}

fn resp_options(settings: &Settings) -> resp::Options {
    let limits = resp::RespLimits {
        connections: settings.connections_max,
        drain: settings.drain.1,
        ..resp::RespLimits::default()
    };
    // As on the HTTP address: without a token, local clients have the operator role.
    let is_local = settings.resp.is_some_and(|resp| resp.ip().is_loopback());
    let is_open = settings.admin_token.is_none() && is_local;
    resp::Options { limits, password: settings.resp_password.clone(), is_open }
}

fn admin_options(settings: &Settings) -> admin::Options {
    admin::Options { token: settings.admin_token.clone(), config: settings.to_json() }
}

fn tell_of_tls(path: &dyn fmt::Display, event: &TlsEvent) {
    match event {
        TlsEvent::Reloaded => events::certificate_loaded(path),
        TlsEvent::Refused(error) => events::certificate_rejected(path, error),
    }
}

/// Saves what is counted every so often, for ever; never if that is 0.
async fn save_now_and_then(saving: Option<&Saving>, app: &App, settings: &Settings) {
    let every = settings.snapshot_every;
    let Some(saving) = saving.filter(|_| !every.is_zero()) else { return };
    let mut times = interval_at(Instant::now() + every, every);
    loop {
        times.tick().await;
        save_aside(Some(saving), app).await;
    }
}

/// Saves what is counted while everything else goes on: it writes to a disk.
async fn save_aside(saving: Option<&Saving>, app: &App) {
    if let Some(saving) = saving.cloned() {
        let app = app.clone();
        let _ = tokio::task::spawn_blocking(move || saving.save(&app)).await;
    }
}

// === impl StartError ===

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::Broken { wanted, why } => write!(f, "cannot {wanted}: {why}"),
        }
    }
}

impl std::error::Error for StartError {}
