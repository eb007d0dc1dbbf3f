//! The parts of a process that do not depend on its protocols: engine, rules, store, snapshots,
//! telemetry, and the endpoints for operators.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate::Engine;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::rules::FollowedRules;
use super::snapshot::{self, Snapshots};
use super::{StartError, endpoints, failed_to, store};
use crate::admin::{self, AuditLog, TokenFile};
use crate::app::App;
use crate::candidate::{self, RunOptions};
use crate::health::Health;
use crate::http;
use crate::logs::events;
use crate::memory::MemoryBudget;
use crate::reservations::Reservations;
use crate::settings::{self, Settings};
use crate::statsd::StatsdSink;
use crate::traces::{self, Exporter};
use crate::traffic::Traffic;
use crate::unmatched::UnmatchedPolicy;
use crate::usage::UsageRecorder;
use crate::webhook::{self, Delivery};

/// A process that is ready to serve, without the endpoints of its protocols.
#[derive(Debug)]
pub struct Node {
    pub(super) settings: Settings,
    app: App,
    rules: FollowedRules,
    snapshots: Option<Snapshots>,
    exporter: Option<Exporter>,
    delivery: Option<Delivery>,
    audit: Arc<AuditLog>,
    token_file: Option<TokenFile>,
    pub(super) admin: TcpListener,
    metrics: Option<TcpListener>,
}

/// Tells all endpoints of a process that it ends.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Sender<bool>);

impl Stopping {
    /// Completes when the process ends.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.0.subscribe();
        async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }

    /// Ends the process without the delay for load balancers: another process serves already.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Runs an endpoint; when it ends, so do the others. A process without one of its endpoints
    /// looks alive but is not: it ends, so that its supervisor restarts it.
    ///
    /// # Errors
    /// That of the endpoint.
    pub async fn with(
        &self,
        name: &'static str,
        endpoint: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let served = endpoint.await;
        if let Err(error) = &served {
            events::listener_failed(name, error);
        }
        self.0.send_replace(true);
        served
    }
}

impl Node {
    /// Restores the snapshot, loads the rules and binds the addresses of operators.
    ///
    /// # Errors
    /// When the rules are invalid, or an address or a file cannot be used.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        Self::start_on(settings, |_| None).await
    }

    /// Starts with sockets of another process, where `inherited` has one for an address.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_on(
        mut settings: Settings,
        mut inherited: impl FnMut(SocketAddr) -> Option<std::net::TcpListener>,
    ) -> Result<Self, StartError> {
        let opened = snapshot::open(settings.snapshot.as_deref(), settings.identities_max);
        let (memory, snapshots, restoration) =
            opened.map_err(|error| failed_to("open the snapshot", error))?;
        let usage = settings.usage.clone().map(UsageRecorder::new).transpose();
        let usage = usage.map_err(|error| failed_to("record usage", error))?.map(Arc::new);
        let mut engine = Engine::builder(Default::default())
            .memory(&memory)
            .near_limit_ratio(settings.near_limit_ratio)
            .metric_values(settings.rules.metric_values)
            .observe_traffic(settings.traffic_statistics)
            .deny_unmatched(settings.rls.unmatched != UnmatchedPolicy::Allow);
        if let Some(usage) = &usage {
            engine = engine.meter(usage.clone());
        }
        let engine = engine.build().map_err(|error| failed_to("build the engine", error))?;
        let health =
            if settings.needs_domain { Health::requiring_domain() } else { Health::default() };
        let traces = settings.traces.clone().map(traces::start).transpose();
        let (tracer, exporter) = traces.map_err(|error| failed_to("export traces", error))?.unzip();
        let (reporter, delivery) = webhook::start(settings.webhook.clone())
            .map_err(|error| failed_to("send events to the webhook", error))?;
        engine.set_usage_listener(reporter.clone());
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
            .usage(usage.clone());
        let app = match settings.traffic_statistics {
            true => app.traffic(Traffic::default().with_options(settings.rules.options)).build(),
            false => app.build(),
        };
        if let Some(traffic) = app.traffic() {
            reporter.report_to(traffic.events());
        }
        app.add_metrics(reporter.clone());
        if let Some(usage) = &usage {
            app.add_metrics(usage.clone());
        }
        snapshot::report(&app, snapshots.as_ref(), &restoration);
        let audit = settings.audit_log.as_deref().map(AuditLog::with_file).transpose();
        let audit = audit.map_err(|error| failed_to("open the audit log", error))?;
        let token_file = settings.admin_tokens.as_deref().map(TokenFile::open).transpose();
        let token_file = token_file.map_err(|error| failed_to("load the tokens", error))?;
        let rules = FollowedRules::load(&app, &settings, reporter).await?;
        let mut listen = |address| match inherited(address) {
            Some(socket) => TcpListener::from_std(socket)
                .map(|listener| (listener, address))
                .map_err(|error| failed_to(&format!("listen on `{address}`"), error)),
            None => endpoints::listen(address),
        };
        let (admin, address) = listen(settings.admin)?;
        settings.admin = address;
        let metrics = match &mut settings.metrics {
            Some(metrics) => {
                let (listener, address) = listen(metrics.address)?;
                metrics.address = address;
                Some(listener)
            }
            None => None,
        };
        let audit = Arc::new(audit.unwrap_or_default());
        Ok(Self {
            settings,
            app,
            rules,
            snapshots,
            exporter,
            delivery,
            audit,
            token_file,
            admin,
            metrics,
        })
    }

    /// State that all endpoints share.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// The settings, with the addresses that were bound.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bound address of the admin endpoint.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.settings.admin
    }

    /// The sockets of operators, for another process.
    ///
    /// # Errors
    /// When the process has too many open files.
    #[cfg(unix)]
    pub fn operator_sockets(&self) -> io::Result<Vec<std::os::fd::OwnedFd>> {
        use std::os::fd::AsFd;

        let sockets = std::iter::once(&self.admin).chain(&self.metrics);
        sockets.map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }

    /// Serves the endpoints for operators and `endpoints` until `stop` is ready, then shuts down
    /// gracefully. A message on `reloads` reloads the rules.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run<E>(
        self,
        endpoints: impl FnOnce(&Stopping) -> E,
        stop: impl Future<Output = ()>,
        mut reloads: mpsc::Receiver<()>,
    ) -> io::Result<()>
    where
        E: Future<Output = io::Result<()>>,
    {
        let Self { settings, app, rules, snapshots, exporter, delivery, .. } = self;
        let Self { audit, token_file, admin, metrics, .. } = self;
        let stopping = Stopping(watch::Sender::new(false));
        let served = endpoints(&stopping);
        let limits = endpoints::admin_limits(&settings);
        let options = admin::Options {
            token: settings.admin_token.clone(),
            tokens: token_file.as_ref().map(TokenFile::tokens),
            is_loopback: settings.admin.ip().is_loopback(),
            audit,
            config: settings.to_json(),
        };
        let router = admin::router(app.clone(), options);
        let admin = http::serve(admin, router, app.clone(), limits, stopping.stopped());
        let admin = stopping.with("admin", admin);
        let metrics = async {
            let (Some(listener), Some(at)) = (metrics, &settings.metrics) else { return Ok(()) };
            let router = admin::metrics_router(app.clone(), &at.path);
            let served = http::serve(listener, router, app.clone(), limits, stopping.stopped());
            stopping.with("metrics", served).await
        };
        let shutdown = async {
            tokio::select! {
                () = stop => {}
                () = stopping.stopped() => return app.health().drain(),
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
            stopping.0.send_replace(true);
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
            let tokens_followed = async {
                if let Some(file) = token_file {
                    file.follow().await;
                }
            };
            let observed = async {
                if let Some(traffic) = app.traffic() {
                    traffic.run(&app).await;
                }
            };
            let usage_written = async {
                if let Some(usage) = app.usage() {
                    usage.clone().run(&app).await;
                }
            };
            let candidate = RunOptions {
                rules: settings.rules.options,
                near_limit_ratio: settings.near_limit_ratio,
                identities_max: usize::try_from(settings.identities_max).unwrap_or(usize::MAX),
            };
            let candidate_followed = candidate::follow(&app, &candidate);
            let statistics = async { tokio::join!(observed, usage_written, candidate_followed) };
            tokio::join!(statistics, reloaded, saved, store_watched, tokens_followed);
            std::future::pending::<()>().await;
        };
        let counters_sent = async {
            if let Some(options) = settings.statsd.clone() {
                StatsdSink::new(options).run(app.clone(), stopping.stopped()).await;
            }
        };
        let exported = async {
            if let Some(exporter) = exporter {
                exporter.run(stopping.stopped()).await;
            }
        };
        let delivered = async {
            if let Some(delivery) = delivery {
                delivery.run(app.engine().clock().clone(), stopping.stopped()).await;
            }
        };
        let sent = async { tokio::join!(exported, counters_sent, delivered) };
        let ended = tokio::select! {
            ended = async { tokio::join!(served, admin, metrics, shutdown, sent) } => ended,
            () = background => return Ok(()),
        };
        if let Some(usage) = app.usage() {
            usage.flush(app.engine().now());
        }
        if let Some(snapshots) = &snapshots {
            snapshots.save(&app);
        }
        if let Some(engine) = app.redis() {
            // Releases the leases of this node to the others, and its shares of limits.
            engine.backend().close().await;
            engine.backend().store().leave().await;
        }
        events::stopped();
        let (served, admin, metrics, ..) = ended;
        served.and(admin).and(metrics)
    }
}
