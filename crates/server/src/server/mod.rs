//! The whole service: start, endpoints, shutdown.
//!
//! ```text
//!   start     restore the snapshot -> load the rules -> bind the addresses
//!   shutdown  unready -> delay for load balancers -> stop accepting -> finish calls -> save
//! ```

mod endpoints;
mod rules;
mod snapshot;
mod store;

use std::fmt;
use std::io;

use sluicegate::throttle::Throttle;
use sluicegate::{Engine, RulesError};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

pub use endpoints::Addresses;
use endpoints::Listeners;
use rules::FollowedRules;
use snapshot::Snapshots;

use crate::admin;
use crate::app::App;
use crate::grpc;
use crate::health::Health;
use crate::http;
use crate::logs::events;
use crate::memory::MemoryBudget;
use crate::reservations::Reservations;
use crate::resp;
use crate::settings::{self, Settings};
use crate::statsd::StatsdSink;
use crate::tls::{Tls, TlsEvent};
use crate::traces::{self, Exporter};
use crate::unmatched::UnmatchedPolicy;

/// Service with rules and bound addresses that does not serve yet.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    app: App,
    rules: FollowedRules,
    snapshots: Option<Snapshots>,
    tls: Option<Tls>,
    exporter: Option<Exporter>,
    listeners: Listeners,
    /// Exists without a RESP endpoint too, so that its saved counts are not lost.
    throttle: Throttle,
    addresses: Addresses,
}

/// Reason why the service does not start.
#[derive(Debug)]
pub enum StartError {
    /// The rules are invalid or cannot be read.
    Rules(RulesError),
    /// Another step failed.
    Failed {
        /// The step, as a verb phrase.
        step: String,
        /// Its error.
        reason: String,
    },
}

impl Server {
    /// Restores the snapshot, loads the rules and binds the addresses.
    ///
    /// # Errors
    /// When the rules are invalid, or an address or a file cannot be used.
    pub async fn start(mut settings: Settings) -> Result<Self, StartError> {
        let opened = snapshot::open(settings.snapshot.as_deref(), settings.identities_max);
        let (memory, snapshots, restoration) =
            opened.map_err(|error| failed_to("open the snapshot", error))?;
        let engine = Engine::builder(Default::default())
            .memory(&memory)
            .near_limit_ratio(settings.near_limit_ratio)
            .metric_values(settings.rules.metric_values)
            .deny_unmatched(settings.rls.unmatched != UnmatchedPolicy::Allow)
            .build();
        let engine = engine.map_err(|error| failed_to("build the engine", error))?;
        let health =
            if settings.needs_domain { Health::requiring_domain() } else { Health::default() };
        let traces = settings.traces.clone().map(traces::start).transpose();
        let (tracer, exporter) = traces.map_err(|error| failed_to("export traces", error))?.unzip();
        let app = match &settings.store {
            settings::Store::Memory => App::builder(engine),
            settings::Store::Redis(redis) => {
                health.add_store(redis.health_needs_connection);
                App::redis_builder(store::with_redis(engine, redis)?)
            }
        };
        let app = app
            .options(settings.rls.clone())
            .tracer(tracer.unwrap_or_default())
            .reservations(Reservations::new(settings.reservations_max, settings.waiting_max))
            .memory_budget(MemoryBudget::new(settings.memory_budget))
            .health(health)
            .build();
        snapshot::report(&app, snapshots.as_ref(), &restoration);
        let rules = FollowedRules::load(&app, &settings)?;
        let tls = settings.tls.clone().map(Tls::new).transpose();
        let tls = tls.map_err(|error| failed_to("configure TLS", error))?;
        let (listeners, addresses) = Listeners::bind(&mut settings)?;
        let throttle = Throttle::new(app.engine().memory());
        events::started(&rules::startup(&app, &settings, &addresses));
        Ok(Self { settings, app, rules, snapshots, tls, exporter, listeners, throttle, addresses })
    }

    /// Bound addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// State that all endpoints share.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Serves until `stop` is ready, then shuts down gracefully. A message on `reloads` reloads the
    /// rules.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut reloads: mpsc::Receiver<()>,
    ) -> io::Result<()> {
        let Self { settings, app, rules, snapshots, tls, exporter, listeners, throttle, .. } = self;
        let stopping = watch::Sender::new(false);
        let stopped = || {
            let mut stopping = stopping.subscribe();
            async move {
                let _ = stopping.wait_for(|stopping| *stopping).await;
            }
        };
        if let Some(tls) = &tls {
            let cert = settings.tls.as_ref().map(|files| files.cert.clone()).unwrap_or_default();
            tls.on_event(move |event| report_tls(&cert.display(), event));
        }
        let options = endpoints::grpc_options(&settings, tls);
        let grpc = grpc::serve(listeners.grpc, app.clone(), options, stopped());
        let router = http::routes(app.clone(), endpoints::http_options(&settings));
        let limits = endpoints::http_limits(&settings);
        let http = http::serve(listeners.http, router, app.clone(), limits, stopped());
        let router = admin::router(app.clone(), endpoints::admin_options(&settings));
        let limits = endpoints::admin_limits(&settings);
        let admin = http::serve(listeners.admin, router, app.clone(), limits, stopped());
        let resp = async {
            let Some(listener) = listeners.resp else { return Ok(()) };
            let options = endpoints::resp_options(&settings);
            let served = resp::serve(listener, app.clone(), throttle.clone(), options, stopped());
            stopping_all(served, &stopping, "resp").await
        };
        let metrics = async {
            let (Some(listener), Some(at)) = (listeners.metrics, &settings.metrics) else {
                return Ok(());
            };
            let router = admin::metrics_router(app.clone(), &at.path);
            let limits = endpoints::admin_limits(&settings);
            let served = http::serve(listener, router, app.clone(), limits, stopped());
            stopping_all(served, &stopping, "metrics").await
        };
        // A service without one of its endpoints looks alive but is not: it ends, so that its
        // supervisor restarts it.
        let (grpc, http, admin) = (
            stopping_all(grpc, &stopping, "grpc"),
            stopping_all(http, &stopping, "http"),
            stopping_all(admin, &stopping, "admin"),
        );
        let shutdown = async {
            tokio::select! {
                () = stop => {}
                () = stopped() => return app.health().drain(),
            }
            // Unready first, so that load balancers stop sending requests.
            app.health().drain();
            events::drain_started(settings.drain.0);
            let saved = async {
                // An early snapshot, in case the supervisor kills the process before the last one.
                if let Some(snapshots) = &snapshots {
                    snapshots.save_in_background(&app).await;
                }
            };
            tokio::join!(sleep(settings.drain.0), saved);
            stopping.send_replace(true);
        };
        let background = async {
            let reloaded = async {
                while reloads.recv().await.is_some() {
                    rules.reload();
                }
            };
            let store_watched = async {
                if let (Some(engine), settings::Store::Redis(redis)) =
                    (app.redis(), &settings.store)
                {
                    let (store, address) = (engine.backend().store(), &redis.server.address);
                    store::watch(store.clone(), address, &app).await;
                }
            };
            let saved = async {
                if let Some(snapshots) = &snapshots {
                    snapshots.save_every(settings.snapshot_every, &app).await;
                }
            };
            tokio::join!(reloaded, saved, store_watched);
            std::future::pending::<()>().await;
        };
        let counters_sent = async {
            if let Some(options) = settings.statsd.clone() {
                StatsdSink::new(options).run(app.clone(), stopped()).await;
            }
        };
        let exported = async {
            if let Some(exporter) = exporter {
                exporter.run(stopped()).await;
            }
        };
        let served = tokio::select! {
            served = async { tokio::join!(grpc, http, admin, resp, metrics, shutdown, exported, counters_sent) } => served,
            () = background => return Ok(()),
        };
        if let Some(snapshots) = &snapshots {
            snapshots.save(&app);
        }
        if let Some(engine) = app.redis() {
            // Releases the leases of this node to the others, and its shares of limits.
            engine.backend().close().await;
            engine.backend().store().leave().await;
        }
        events::stopped();
        let (grpc, http, admin, resp, metrics, (), (), ()) = served;
        grpc.and(http).and(admin).and(resp).and(metrics)
    }
}

/// Runs an endpoint; when it ends, so do the others.
async fn stopping_all(
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

fn failed_to(step: &str, reason: impl fmt::Display) -> StartError {
    StartError::Failed { step: step.to_owned(), reason: reason.to_string() }
}

fn report_tls(path: &dyn fmt::Display, event: &TlsEvent) {
    match event {
        TlsEvent::Reloaded => events::certificate_loaded(path),
        TlsEvent::Refused(error) => events::certificate_rejected(path, error),
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::Failed { step, reason } => write!(f, "cannot {step}: {reason}"),
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
#[cfg(target_os = "linux")] // Elsewhere a listener cannot be made to fail like this.
mod tests {
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd};

    use super::*;
    use crate::listen::Listener;
    use crate::settings::Vars;

    async fn server() -> Server {
        let free = ["SLUICEGATE_GRPC", "SLUICEGATE_HTTP", "SLUICEGATE_ADMIN", "SLUICEGATE_RESP"];
        let (settings, _) =
            Settings::read(&Vars::new(free.map(|name| (name, "127.0.0.1:0")))).unwrap();
        Server::start(settings).await.unwrap()
    }

    /// Linux shuts down a listener like a connection.
    fn shut_down(listener: BorrowedFd<'_>) {
        let listener = TcpStream::from(listener.try_clone_to_owned().unwrap());
        listener.shutdown(Shutdown::Both).unwrap();
    }

    #[tokio::test]
    async fn a_failed_listener_ends_the_service() {
        let listeners: [fn(&Server); 4] = [
            |server| match &server.listeners.grpc {
                Listener::Tcp(listener) => shut_down(listener.as_fd()),
                _ => panic!("not TCP"),
            },
            |server| shut_down(server.listeners.http.as_fd()),
            |server| shut_down(server.listeners.admin.as_fd()),
            |server| shut_down(server.listeners.resp.as_ref().unwrap().as_fd()),
        ];
        for shut in listeners {
            let server = server().await;
            shut(&server);
            let health = server.app().health().clone();
            let (_reload, reloads) = mpsc::channel(1);
            let ended = server.run(std::future::pending(), reloads).await;
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!health.state().is_ready());
        }
    }
}
