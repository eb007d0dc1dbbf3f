//! Rules from files or another source, followed while they change, and while schedules and
//! overrides change them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Invalid, Options, Source, load};
use sluicegate_config::watch::{PollResult, RulesSource, SourceError};
use sluicegate_core::time::{CLOCK_SLACK, Timestamp};
use sluicegate_rules::domain::Domain;
use sluicegate_rules::resolve::{Resolved, resolve};
use sluicegate_rules::set::RuleSet;

use super::withheld::{REMOVAL_GRACE, REPORT_EVERY, WithheldDomain, Withholding};
use super::{Engine, MemoryBackend, Reloaded};
use crate::clock::span;

/// How often files are checked. A change is loaded at the second check that finds it.
pub const RULES_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Result of a change of the files.
#[derive(Debug)]
pub enum Change {
    /// The rules were replaced.
    Taken {
        /// What changed.
        reloaded: Reloaded,
        /// Warnings.
        warnings: Vec<Problem>,
        /// Domains that the files leave without rules: their last rules stay in force.
        withheld: Vec<WithheldDomain>,
    },
    /// They are invalid or cannot be read: the rules are unchanged. The files are read again when
    /// they change, and every [`REPORT_EVERY`](super::REPORT_EVERY).
    Refused(RulesError),
    /// A part of a schedule began or ended, or an override ended.
    Switched(Reloaded),
    /// These domains are still withheld: reported again every
    /// [`REPORT_EVERY`](super::REPORT_EVERY).
    Withheld(Vec<WithheldDomain>),
}

/// Why rules were not loaded.
///
/// ```
/// use sluicegate::rules_of;
///
/// let error = rules_of("domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hours } }]").unwrap_err();
/// assert!(error.to_string().contains("did you mean `hour`?"), "{error}");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum RulesError {
    /// A file cannot be read, or another source.
    Unreadable(SourceError),
    /// The files are invalid.
    Invalid(Invalid),
    /// The rules cannot be enforced together.
    Unfit(String),
}

/// Follows a source of rules: see [`Engine::follow`].
#[derive(Debug)]
pub struct Follower {
    engine: Engine,
    source: Box<dyn RulesSource>,
    options: Options,
    withholding: Withholding,
    /// The rules that depend on the time.
    timed: Option<TimedRules>,
    /// When the last reading failed; none after a valid one.
    failed: Option<Timestamp>,
}

/// Rules that are to be resolved again.
#[derive(Debug)]
struct TimedRules {
    domains: Vec<Domain>,
    resolved_at: Timestamp,
    next: Timestamp,
}

/// A thread that follows files, until this is dropped.
#[derive(Debug)]
#[must_use = "the files are followed until this is dropped"]
pub struct Following {
    requests: Arc<FollowRequests>,
    thread: Option<JoinHandle<()>>,
}

/// Has a follower check its source at once; clones do the same.
#[derive(Debug, Clone)]
pub struct FollowWaker(Arc<FollowRequests>);

/// Requests to the thread, beside its periodic poll.
#[derive(Debug, Default)]
struct FollowRequests {
    next: Mutex<Next>,
    changed: Condvar,
}

/// A later one includes those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Next {
    #[default]
    Poll,
    /// A poll at once.
    PollNow,
    Reread,
    Stop,
}

/// The rules of a text, as a file of them would be read.
///
/// ```
/// use sluicegate::{Engine, rules_of};
///
/// let rules = rules_of(
///     "domain: shop
/// descriptors:
///   - key: user_id
///     limits: { algorithm: token_bucket, rate: 10/s, burst: 50 }
/// ",
/// )?;
/// let engine = Engine::new(rules)?;
/// assert_eq!(engine.snapshot().rules().domains().collect::<Vec<_>>(), ["shop"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Everything that is wrong with it. Rules with schedules or overrides are refused, since nothing
/// would change them: see [`Engine::follow`].
pub fn rules_of(text: &str) -> Result<RuleSet, RulesError> {
    let source = Source { name: "rules".to_owned(), text: text.to_owned() };
    let loaded = load(&[source], &Options::default()).map_err(RulesError::Invalid)?;
    compiled(loaded.domains)
}

/// The rules of a moment, and when they are to be resolved again.
fn resolved(
    domains: Vec<Domain>,
    now: Timestamp,
) -> Result<(RuleSet, Option<TimedRules>), RulesError> {
    let written = domains.iter().any(Domain::is_timed).then(|| domains.clone());
    let Resolved { domains, next } =
        resolve(domains, now).map_err(|error| RulesError::Unfit(error.to_string()))?;
    let timed = written.zip(next);
    let timed = timed.map(|(domains, next)| TimedRules { domains, resolved_at: now, next });
    Ok((compiled(domains)?, timed))
}

fn compiled(domains: Vec<Domain>) -> Result<RuleSet, RulesError> {
    RuleSet::new(domains).map_err(|error| RulesError::Unfit(error.to_string()))
}

impl<B: ?Sized> Engine<B> {
    /// Loads the rules from files, and again whenever they change: [`Follower::poll`] checks that,
    /// [`Follower::start`] in a thread of its own.
    ///
    /// ```no_run
    /// use sluicegate::{Change, Engine, RULES_POLL_INTERVAL};
    /// use sluicegate::config::files::ReadOptions;
    /// use sluicegate::config::watch::Watch;
    ///
    /// let engine = Engine::new(Default::default())?;
    /// let watch = Watch::new(["rules/"], ReadOptions::default());
    /// let (follower, _warnings) = engine.follow(watch, Default::default())?;
    /// let following = follower.start(RULES_POLL_INTERVAL, |change| match change {
    ///     Change::Taken { reloaded, .. } => eprintln!("rules reloaded: {reloaded:?}"),
    ///     Change::Switched(reloaded) => eprintln!("rules switched: {reloaded:?}"),
    ///     Change::Refused(error) => eprintln!("rules kept as they were:\n{error}"),
    ///     Change::Withheld(domains) => domains.iter().for_each(|domain| eprintln!("{domain}")),
    /// })?;
    /// # drop(following);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the files cannot be read or are invalid, or a directory has none. Then the rules are
    /// unchanged.
    pub fn follow(
        &self,
        mut source: impl RulesSource + 'static,
        options: Options,
    ) -> Result<(Follower, Vec<Problem>), RulesError> {
        let sources = source.read();
        let mut follower = Follower::new(self, Box::new(source), options);
        let (_, warnings) = follower.try_take_over(sources, self.ticks())?;
        Ok((follower, warnings))
    }

    /// The same for files that do not exist yet, or are invalid: the rules stay until the files
    /// change.
    #[must_use]
    pub fn follow_changes(
        &self,
        mut source: impl RulesSource + 'static,
        options: Options,
    ) -> Follower {
        // The caller knows their errors. This poll is the second one that follows each reading.
        let _ = source.read();
        let _ = source.poll();
        let failed = Some(self.ticks());
        Follower { failed, ..Follower::new(self, Box::new(source), options) }
    }
}

impl Follower {
    fn new<B: ?Sized>(engine: &Engine<B>, source: Box<dyn RulesSource>, options: Options) -> Self {
        let withholding = Withholding::new(REMOVAL_GRACE);
        let engine = Engine { state: engine.state.clone(), backend: Arc::new(MemoryBackend) };
        Self { engine, source, options, withholding, timed: None, failed: None }
    }

    /// Sets how long a domain must be absent from the files until it is removed;
    /// [`REMOVAL_GRACE`] if this is not called, and at once if it is zero.
    ///
    /// A file that removes its domain explicitly (`removed: true`), and [`Engine::reload`], take
    /// effect at once in any case.
    #[must_use]
    pub fn with_removal_grace(mut self, grace: Duration) -> Self {
        self.withholding.set_grace(grace);
        self
    }

    /// Checks the files once. The result, if they have changed.
    pub fn poll(&mut self) -> Option<Change> {
        let now = self.engine.ticks();
        match self.source.poll() {
            PollResult::Changed(sources) => Some(self.take_over(sources, now)),
            PollResult::Same
                if self.failed.is_some_and(|at| now.since(at) >= span(REPORT_EVERY)) =>
            {
                Some(self.reread())
            }
            PollResult::Same if self.withholding.is_expired(now) => {
                let sources = self.withholding.sources().to_vec();
                Some(self.take_over(Ok(sources), now))
            }
            PollResult::Same | PollResult::Changing => {
                self.switch().or_else(|| self.withholding.report_again(now).map(Change::Withheld))
            }
        }
    }

    /// Resolves the rules again if it is time.
    fn switch(&mut self) -> Option<Change> {
        let now = self.engine.now();
        let timed = self.timed.as_ref().filter(|timed| timed.is_due(now))?;
        let (rules, timed) = match resolved(timed.domains.clone(), now) {
            Ok(resolved) => resolved,
            Err(error) => return self.refuse_switch(error),
        };
        match self.engine.reload(rules) {
            Ok(reloaded) => {
                self.timed = timed;
                Some(Change::Switched(reloaded))
            }
            Err(error) => self.refuse_switch(RulesError::Unfit(error.to_string())),
        }
    }

    /// The rules stay as they are, and are resolved again later.
    fn refuse_switch(&mut self, error: RulesError) -> Option<Change> {
        let now = self.engine.now();
        if let Some(timed) = &mut self.timed {
            (timed.resolved_at, timed.next) = (now, now.after(span(REPORT_EVERY)));
        }
        Some(Change::Refused(error))
    }

    /// How long to wait for the next poll: until rules are to be resolved, if that is sooner.
    fn pause(&self, every: Duration) -> Duration {
        let now = self.engine.now();
        let until = self.timed.as_ref().map(|timed| timed.next.since(now).to_duration());
        until.map_or(every, |until| until.min(every))
    }

    /// Reads the files whether they have changed or not.
    pub fn reread(&mut self) -> Change {
        let sources = self.source.read();
        self.take_over(sources, self.engine.ticks())
    }

    fn take_over(&mut self, sources: Result<Vec<Source>, SourceError>, now: Timestamp) -> Change {
        match self.try_take_over(sources, now) {
            Ok((reloaded, warnings)) => {
                self.failed = None;
                let withheld = self.withholding.report(now);
                Change::Taken { reloaded, warnings, withheld }
            }
            Err(error) => {
                self.failed = Some(now);
                self.withholding.restart_grace();
                Change::Refused(error)
            }
        }
    }

    fn try_take_over(
        &mut self,
        sources: Result<Vec<Source>, SourceError>,
        now: Timestamp,
    ) -> Result<(Reloaded, Vec<Problem>), RulesError> {
        let sources = sources.map_err(RulesError::Unreadable)?;
        let mut loaded = load(&sources, &self.options).map_err(RulesError::Invalid)?;
        let reading = (sources, &self.options);
        let served = self.engine.snapshot();
        let withholding = self.withholding.after(reading, &mut loaded, served.rules(), now);
        let (rules, timed) = resolved(loaded.domains, self.engine.now())?;
        let reloaded = self.engine.reload(rules);
        let reloaded = reloaded.map_err(|error| RulesError::Unfit(error.to_string()))?;
        (self.withholding, self.timed) = (withholding, timed);
        Ok((reloaded, loaded.warnings))
    }

    /// Checks the files periodically in a thread of its own, and reports changes.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        mut self,
        every: Duration,
        mut report: impl FnMut(Change) + Send + 'static,
    ) -> std::io::Result<Following> {
        let requests = Arc::new(FollowRequests::default());
        let received = requests.clone();
        let follow = move || {
            loop {
                let change = match received.wait(self.pause(every)) {
                    Next::Poll | Next::PollNow => self.poll(),
                    Next::Reread => Some(self.reread()),
                    Next::Stop => return,
                };
                if let Some(change) = change {
                    report(change);
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("sluicegate-rules".to_owned()).spawn(follow)?;
        Ok(Following { requests, thread: Some(thread) })
    }
}

impl TimedRules {
    /// Whether another part holds, or may hold: the clock may have been set back.
    fn is_due(&self, now: Timestamp) -> bool {
        self.next <= now || now.after(CLOCK_SLACK) < self.resolved_at
    }
}

impl Following {
    /// Reads the files soon, whether they have changed or not, and reports the result.
    pub fn reread(&self) {
        self.requests.send(Next::Reread);
    }

    /// For a source that knows when it has changed.
    #[must_use]
    pub fn waker(&self) -> FollowWaker {
        FollowWaker(self.requests.clone())
    }
}

impl FollowWaker {
    /// Checks the source soon, without waiting for the next periodic check.
    pub fn wake(&self) {
        self.0.send(Next::PollNow);
    }
}

impl FollowRequests {
    /// Waits for a while, or until a request comes.
    fn wait(&self, a_while: Duration) -> Next {
        let mut next = self.next.lock();
        if *next == Next::Poll {
            self.changed.wait_for(&mut next, a_while);
        }
        match *next {
            Next::Stop => Next::Stop,
            Next::Poll | Next::PollNow | Next::Reread => std::mem::take(&mut *next),
        }
    }

    fn send(&self, next_wanted: Next) {
        let mut next = self.next.lock();
        if next_wanted > *next {
            *next = next_wanted;
        }
        self.changed.notify_all();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.requests.send(Next::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported there.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Unfit(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for RulesError {}
