//! Counters for StatsD over TCP, under the names of envoyproxy/ratelimit.
//!
//! Each flush opens a connection, sends what was counted since the last flush, and closes it. The
//! counts of a flush that fails are part of the next one, except those of lines that were written
//! before: they may have arrived.
//!
//! Hits of a rule that is counted by value are sent under the keys of its values; those of other
//! values, and of a value that was replaced since the last flush, under `<key of the rule>.other`.
//! Together they are the hits of the rule.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::app::App;
use crate::logs::events;
use crate::metrics::{self, RuleCounter};
use crate::telemetry::{BUCKETS_MICROS, Endpoint, Event, Fault};

/// Options of the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Host name or address of StatsD.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// Interval of flushes.
    pub flush_interval: Duration,
    /// Tags of every counter, by key.
    pub tags: BTreeMap<String, String>,
}

/// Sends counters to StatsD.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::Engine;
/// use sluicegate_server::app::App;
/// use sluicegate_server::statsd::{Options, StatsdSink};
/// use sluicegate_server::telemetry::Event;
///
/// let app = App::new(Engine::new(Default::default())?);
/// let options = Options {
///     host: "localhost".to_owned(),
///     port: 8125,
///     flush_interval: Duration::from_secs(10),
///     tags: [("zone".to_owned(), "a".to_owned())].into(),
/// };
/// let mut sink = StatsdSink::new(options);
/// app.telemetry().record(Event::RulesLoaded);
/// assert_eq!(sink.take_lines(&app), "ratelimit.service.config_load_success.__zone=a:1|c\n");
/// assert_eq!(sink.take_lines(&app), "", "nothing was counted since");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug)]
pub struct StatsdSink {
    options: Options,
    /// The tags as a part of each name.
    tags: String,
    sent: HashMap<Metric, u64>,
}

/// A line of a flush.
#[derive(Debug)]
struct UnsentCounter {
    metric: Metric,
    /// The counter of the rule, if the line is about one of its values.
    rule: Option<Metric>,
    /// What was counted since the last flush.
    new: u64,
    line: String,
}

/// A counter that only grows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Metric {
    name: String,
    /// Distinguishes the times that a value was listed, and all of them from counters of rules.
    serial: Option<u64>,
    /// Upper bound of a bucket of response times; `None` for a plain counter.
    bucket_micros: Option<u64>,
}

/// Lines of one flush, and the counts that are sent with it.
#[derive(Debug)]
struct Flush<'a> {
    before: &'a HashMap<Metric, u64>,
    tags: &'a str,
    counts: HashMap<Metric, u64>,
    unsent: Vec<UnsentCounter>,
}

/// Timeout of a connection attempt, and of sending.
const TIMEOUT: Duration = Duration::from_secs(2);

impl StatsdSink {
    /// A sink that has sent nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let tags = options.tags.iter().map(|(key, value)| format!(".__{key}={value}")).collect();
        Self { options, tags, sent: HashMap::new() }
    }

    /// Flushes periodically until `stop` is ready, and once more then.
    pub async fn run(mut self, app: App, stop: impl Future<Output = ()>) {
        let every = self.options.flush_interval;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = std::pin::pin!(stop);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                () = &mut stop => true,
            };
            if let Err(error) = self.flush(&app).await {
                events::statsd_failed(&self.options.host, self.options.port, &error);
            }
            if is_last {
                return;
            }
        }
    }

    /// Sends what was counted since the last flush.
    async fn flush(&mut self, app: &App) -> io::Result<()> {
        let Options { host, port, .. } = &self.options;
        let connected = timeout(TIMEOUT, TcpStream::connect((host.as_str(), *port))).await;
        let mut stream = connected.map_err(|_| io::ErrorKind::TimedOut)??;
        self.send(&mut stream, app).await
    }

    /// Sends the lines of a flush; those that were not written whole stay for the next.
    async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin), app: &App) -> io::Result<()> {
        let unsent = self.take(app);
        let text: String = unsent.iter().map(|one| one.line.as_str()).collect();
        let mut rest = text.as_bytes();
        let sent = timeout(TIMEOUT, async {
            while !rest.is_empty() {
                // Safe to cancel: nothing is written if the timeout ends it.
                match stream.write(rest).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => rest = rest.get(written..).unwrap_or_default(),
                }
            }
            stream.shutdown().await
        });
        let sent = sent.await.map_err(|_| io::ErrorKind::TimedOut.into()).flatten();
        let written = text.len() - rest.len();
        let mut end = 0;
        for UnsentCounter { metric, rule, new, line } in unsent {
            end += line.len();
            if end > written {
                for metric in [Some(metric), rule].into_iter().flatten() {
                    self.sent.entry(metric).and_modify(|sent| *sent = sent.saturating_sub(new));
                }
            }
        }
        sent
    }

    /// The lines of the next flush, which count as sent.
    pub fn take_lines(&mut self, app: &App) -> String {
        self.take(app).into_iter().map(|one| one.line).collect()
    }

    fn take(&mut self, app: &App) -> Vec<UnsentCounter> {
        let (counts, unsent) = (HashMap::new(), Vec::new());
        let mut flush = Flush { before: &self.sent, tags: &self.tags, counts, unsent };
        metrics::each_rule_counter(&app.engine().snapshot(), |counter| flush.put_rule(counter));
        for (metric, count) in read(app) {
            let new = flush.take_new(&metric, count);
            flush.put(&metric.name.clone(), metric, None, new);
        }
        let Flush { counts, unsent, .. } = flush;
        // Without those of rules that were removed.
        self.sent = counts;
        unsent
    }
}

impl Flush<'_> {
    fn put_rule(&mut self, counter: RuleCounter<'_>) {
        let RuleCounter { key, name, count, values } = counter;
        let of_key = |key: &str| format!("ratelimit.service.rate_limit.{key}.{name}");
        let rule = Metric::new(of_key(key));
        let mut rest = self.take_new(&rule, count);
        let shown = if values.is_some() { of_key(&format!("{key}.other")) } else { of_key(key) };
        for (key, serial, count) in values.into_iter().flatten() {
            let metric = Metric { serial: Some(serial), ..Metric::new(of_key(key)) };
            let new = self.take_new(&metric, count);
            rest = rest.saturating_sub(new);
            self.put(&of_key(key), metric, Some(&rule), new);
        }
        self.put(&shown, rule, None, rest);
    }

    /// What was counted since the last flush, which counts as sent.
    fn take_new(&mut self, metric: &Metric, count: u64) -> u64 {
        self.counts.insert(metric.clone(), count);
        count.saturating_sub(self.before.get(metric).copied().unwrap_or(0))
    }

    fn put(&mut self, name: &str, metric: Metric, rule: Option<&Metric>, new: u64) {
        if new > 0 {
            let line = metric.line(name, new, self.tags);
            self.unsent.push(UnsentCounter { metric, rule: rule.cloned(), new, line });
        }
    }
}

impl Metric {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    fn line(&self, name: &str, new: u64, tags: &str) -> String {
        match self.bucket_micros {
            None => format!("{name}{tags}:{new}|c\n"),
            Some(micros) => {
                // A sample rate of 1/n stands for n equal times.
                let (millis, rate) = (micros as f64 / 1e3, 1.0 / new as f64);
                format!("{name}{tags}:{millis}|ms|@{rate}\n")
            }
        }
    }
}

/// The counters that are not per rule.
fn read(app: &App) -> Vec<(Metric, u64)> {
    let mut all = Vec::new();
    let mut put = |name: String, count| all.push((Metric::new(name), count));
    let telemetry = app.telemetry();
    let events = [
        ("service.config_load_success", Event::RulesLoaded),
        ("service.config_load_error", Event::RulesRefused),
        ("service.global_shadow_mode", Event::GlobalShadow),
        ("service.rate_limit.domain_not_found", Event::UnknownDomain),
    ];
    for (name, event) in events {
        put(format!("ratelimit.{name}"), telemetry.count(event));
    }
    for fault in Fault::ALL {
        let calls = [Endpoint::ShouldRateLimit, Endpoint::Json]
            .map(|endpoint| telemetry.failures(endpoint, fault));
        let name = format!("ratelimit.service.call.should_rate_limit.{}", fault.name());
        put(name, calls.iter().sum());
    }
    let grpc = Endpoint::ShouldRateLimit;
    put(format!("ratelimit_server.{}.total_requests", grpc.name()), telemetry.calls(grpc));
    // The last bucket has no bound of its own.
    let bounds = BUCKETS_MICROS.iter().chain(BUCKETS_MICROS.last());
    for (bound, count) in bounds.zip(telemetry.response_times(grpc).buckets) {
        let name = format!("ratelimit_server.{}.response_time", grpc.name());
        all.push((Metric { bucket_micros: Some(*bound), ..Metric::new(name) }, count));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use sluicegate::Engine;

    use super::*;

    fn sink(port: u16) -> StatsdSink {
        StatsdSink::new(Options {
            host: "127.0.0.1".to_owned(),
            port,
            flush_interval: Duration::from_secs(10),
            tags: BTreeMap::new(),
        })
    }

    #[tokio::test]
    async fn counts_of_a_flush_that_breaks_are_part_of_the_next_unless_they_were_written() {
        use tokio::io::AsyncReadExt;

        let app = App::new(Engine::new(Default::default()).unwrap());
        app.telemetry().record(Event::RulesLoaded);
        app.telemetry().record(Event::RulesRefused);
        let mut sink = sink(0);
        let first = "ratelimit.service.config_load_success:1|c\n";
        // Room for the first line and a part of the second.
        let (mut near, mut far) = tokio::io::duplex(first.len() + 5);
        let (sent, ()) = tokio::join!(sink.send(&mut near, &app), async {
            let mut line = vec![0; first.len()];
            far.read_exact(&mut line).await.unwrap();
            assert_eq!(line, first.as_bytes());
            // The reader takes no byte of the second line.
            drop(far);
        });
        let error = sent.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(sink.take_lines(&app), "ratelimit.service.config_load_error:1|c\n");
    }

    #[tokio::test]
    async fn hits_by_value_of_a_flush_that_breaks_are_part_of_the_next() {
        use sluicegate::rules::request::{Descriptor, Entry, Request};

        let rules = "domain: d\ndescriptors:\n- { key: k, value_to_metric: true, rate_limit: { \
                     unit: year, requests_per_unit: 99 } }\n";
        let engine = Engine::builder(sluicegate::rules_of(rules).unwrap()).metric_values(1);
        let engine = engine.build().unwrap();
        let hit = |value: &str, hits| {
            let entries = [Entry::new("k", value)];
            let descriptors = [Descriptor::of(&entries)];
            let _ = engine.check(&Request { domain: "d", descriptors: &descriptors, hits });
        };
        hit("a", 3);
        hit("b", 2);
        let (app, mut sink) = (App::new(engine.clone()), sink(0));
        let (mut near, far) = tokio::io::duplex(1);
        drop(far);
        sink.send(&mut near, &app).await.unwrap_err();
        // Listed instead of `a`, whose hits were not sent.
        hit("b", 4);
        let lines = sink.take_lines(&app);
        let key = "ratelimit.service.rate_limit.d";
        let lines: Vec<_> = lines.lines().filter(|line| line.contains("total_hits")).collect();
        let sent = [format!("{key}.k_b.total_hits:4|c"), format!("{key}.k.other.total_hits:5|c")];
        assert_eq!(lines, sent);
        assert_eq!(sink.take_lines(&app), "");
    }

    #[tokio::test]
    async fn counts_of_a_flush_that_cannot_connect_are_part_of_the_next() {
        let app = App::new(Engine::new(Default::default()).unwrap());
        app.telemetry().record(Event::RulesLoaded);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut sink = sink(closed);
        sink.flush(&app).await.unwrap_err();
        app.telemetry().record(Event::RulesLoaded);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sink.options.port = listener.local_addr().unwrap().port();
        sink.flush(&app).await.unwrap();
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ratelimit.service.config_load_success:2|c\n");
    }
}
