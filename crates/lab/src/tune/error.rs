//! Why nothing can be recommended. Too few clients are a result, not an error.

use sluicegate_config::units::show_span;
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::Span;

/// Why nothing can be recommended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TuneError {
    /// The goal is written wrongly.
    Goal(String),
    /// There is nothing to tune on.
    NoRequests,
    /// More requests than are held.
    TooManyRequests {
        /// The maximum.
        max: usize,
    },
    /// The log is shorter than a window or the horizon.
    TooShort {
        /// The name of the option.
        option: &'static str,
        /// Its value.
        given: Span,
        /// What the part of the log covers that limits are chosen from.
        covered: Span,
    },
    /// A window is shorter than the unit of the times.
    TooCoarse {
        /// The window.
        window: Span,
        /// The unit.
        resolution: Span,
    },
    /// An option outside its range.
    Option {
        /// Its name.
        option: &'static str,
        /// What it must be.
        range: &'static str,
    },
    /// The core does not support the limit.
    Limit(QuotaError),
    /// No limit of the algorithm meets the goal.
    NoLimit,
}

impl TuneError {
    pub(crate) fn goal(problem: &str, text: &str, example: &str) -> Self {
        Self::Goal(format!("{problem}, got `{text}`; write it like {example}"))
    }
}

impl From<QuotaError> for TuneError {
    fn from(error: QuotaError) -> Self {
        Self::Limit(error)
    }
}

impl std::fmt::Display for TuneError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Goal(message) => f.write_str(message),
            Self::NoRequests => f.write_str(
                "the log has no request of a client: check the path, the format and the client",
            ),
            Self::TooManyRequests { max } => {
                write!(f, "the log has more than `{max}` requests: take fewer files or days")
            }
            Self::TooShort { option, given, covered } => {
                let (given, covered) = (show_span(*given), show_span(*covered));
                write!(
                    f,
                    "{option}: must be at most the time that limits are chosen from, `{covered}`, \
                     got `{given}`; take a longer log or a shorter time"
                )
            }
            Self::TooCoarse { window, resolution } => {
                let (window, resolution) = (show_span(*window), show_span(*resolution));
                write!(
                    f,
                    "window: must be a multiple of `{resolution}`, the unit of the log's times, \
                     got `{window}`"
                )
            }
            Self::Option { option, range } => write!(f, "{option}: must be {range}"),
            Self::Limit(error) => write!(f, "the limit that meets the goal is too large: {error}"),
            Self::NoLimit => f.write_str(
                "no limit of this algorithm meets the goal: choose another algorithm or window",
            ),
        }
    }
}

impl std::error::Error for TuneError {}
