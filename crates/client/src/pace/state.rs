//! When the next call may go: (what is known, what was told, now) -> when.
//!
//! ```text
//!            told: too many, or nothing left of what has no known quota
//!   free -------------------------------------------------------------> held, until the time told
//!     ^                                                                  |
//!     |   it is answered: not too many                                   v
//!     +------------------------------------------------ one goes, the others wait for its answer
//! ```
//! Beside that, no window ever gives more than it has left, and none is left before its end.

use std::time::Duration;

use tokio::time::Instant;

use super::told::Told;
use super::windows::{self, Kept, TOLD_MAX};

/// What is known of an API, and what follows from it.
///
/// Ask [`when`](Self::when) before each call, say [`sent`](Self::sent) when it goes, and then [`answered`](Self::answered) or [`lost`](Self::lost), once.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// From which share of a quota on what is left is spread.
    spread_below_percent: Option<u32>,
    windows: Vec<Kept>,
    held_until: Option<Instant>,
    /// The next of those that are spread.
    next_at: Option<Instant>,
    trial: Trial,
    under_way: u64,
    denials_in_a_row: u32,
}

/// When a call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// Not before this, and by what is known now.
    At(Instant),
    /// Not before one that is under way has been answered.
    Answered,
}

/// Whether the API is being tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Trial {
    #[default]
    None,
    /// The next call is the trial.
    Due,
    /// It went.
    Since(Instant),
}

/// Without a word about when to come back; then twice as long, and so on.
const UNTOLD: Duration = Duration::from_secs(1);
const UNTOLD_MAX: Duration = Duration::from_secs(60);

/// One more tries when the first takes so long: answers of some APIs take a minute.
const TRIAL: Duration = Duration::from_secs(1);

// === impl Pace ===

impl Pace {
    /// Nothing is known yet: everything may go.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same; but when no more than this share of a quota is left, in percent, that is spread evenly over the time to the reset.
    #[must_use]
    pub fn spreading_below(percent: u32) -> Self {
        Self { spread_below_percent: Some(percent), ..Self::default() }
    }

    /// When the next call may go.
    pub fn when(&mut self, now: Instant) -> When {
        self.pass_to(now);
        let mut at = self.held_until.max(self.next_at);
        let mut waits_for_answer = false;
        for kept in self.windows.iter().filter(|kept| kept.left == 0) {
            match kept.ends {
                Some(ends) => at = at.max(Some(ends.last)),
                // If none is under way, nobody will tell: one has to try.
                None => waits_for_answer |= self.under_way > 0,
            }
        }
        if let Trial::Since(sent) = self.trial {
            at = at.max(Some(sent + TRIAL));
        }
        match at.filter(|at| *at > now) {
            Some(at) => When::At(at),
            None if waits_for_answer => When::Answered,
            None => When::Now,
        }
    }

    /// A call goes now.
    pub fn sent(&mut self, now: Instant) {
        self.under_way = self.under_way.saturating_add(1);
        if self.trial != Trial::None {
            self.trial = Trial::Since(now);
        }
        for kept in &mut self.windows {
            kept.left = kept.left.saturating_sub(1);
            let Some(ends) = kept.ends else { continue };
            if self.spread_below_percent.is_some_and(|percent| kept.is_below(percent)) {
                let parts = u32::try_from(kept.left.saturating_add(1)).unwrap_or(u32::MAX);
                let part = ends.last.saturating_duration_since(now) / parts;
                self.next_at = self.next_at.max(Some(now + part));
            }
        }
    }

    /// A call was answered.
    pub fn answered(&mut self, told: &Told, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.pass_to(now);
        match told.denied {
            true => self.hold(told, now),
            false => {
                self.denials_in_a_row = 0;
                if let Trial::Since(_) = self.trial {
                    self.trial = Trial::None;
                }
            }
        }
        // What a denial has nothing left of is what it told the time of.
        for window in told.windows.iter().filter(|window| !told.denied || window.remaining > 0) {
            windows::heard(&mut self.windows, window, self.under_way, now);
        }
    }

    /// A call was not answered, or nobody waited for it.
    pub fn lost(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Trial::Since(_) = self.trial {
            self.trial = Trial::Due;
        }
    }

    /// Whether nothing is known that a new one does not know.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        self.pass_to(now);
        let is_open = self.windows.iter().all(|kept| kept.ends.is_none());
        self.under_way == 0 && self.held_until.is_none() && is_open
    }

    fn hold(&mut self, told: &Told, now: Instant) {
        let spent = told.windows.iter().filter(|window| window.remaining == 0);
        let resets = spent.map(|window| window.reset_after).max();
        let untold = UNTOLD * 2_u32.saturating_pow(self.denials_in_a_row.min(16));
        let wait = told.retry_after.or(resets).unwrap_or(untold.min(UNTOLD_MAX));
        self.held_until = self.held_until.max(Some(now + wait.min(TOLD_MAX)));
        self.denials_in_a_row = self.denials_in_a_row.saturating_add(1);
        self.trial = Trial::Due;
        let denied = |name: &str| {
            told.windows.iter().any(|window| window.name == name && window.remaining == 0)
        };
        self.windows.retain(|kept| !denied(kept.name()));
    }

    /// Forgets what is over.
    fn pass_to(&mut self, now: Instant) {
        self.held_until = self.held_until.filter(|at| *at > now);
        self.next_at = self.next_at.filter(|at| *at > now);
        if windows::roll(&mut self.windows, self.under_way, now) && self.trial == Trial::None {
            self.trial = Trial::Due;
        }
    }
}
