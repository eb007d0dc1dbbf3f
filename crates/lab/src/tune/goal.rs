//! Goals in the words of the command line.

use sluicegate_config::units::{rate, show_rate};
use sluicegate_core::time::Span;

use super::TuneError;

/// What a limit is to achieve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TuneGoal {
    /// The strictest limit that denies at most this share.
    DenyAtMost {
        /// The share, above 0 and below 1.
        share: f64,
        /// What it is a share of.
        of: ShareOf,
    },
    /// All clients together stay within a capacity.
    Protect {
        /// Units in any window.
        capacity: u64,
        /// Length of the window.
        window: Span,
    },
    /// The strictest limit that never denies this part of the clients without extreme usage.
    ServeGood {
        /// The part, above 0 and below 1.
        part: f64,
    },
}

/// What a share of denials is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareOf {
    /// Clients with at least one denied request.
    Users,
    /// Requests.
    Requests,
}

impl TuneGoal {
    /// A goal such as `0.1% of users` or `1% of requests`.
    ///
    /// ```
    /// use sluicegate_lab::tune::goal::TuneGoal;
    ///
    /// assert_eq!(TuneGoal::deny_at_most("0.1 % of users")?.to_string(), "deny at most 0.1% of users");
    /// let error = TuneGoal::deny_at_most("many users").unwrap_err();
    /// assert!(error.to_string().contains("got `many users`; write it like `0.1% of users`"));
    /// # Ok::<(), sluicegate_lab::tune::TuneError>(())
    /// ```
    ///
    /// # Errors
    /// When it is something else.
    pub fn deny_at_most(text: &str) -> Result<Self, TuneError> {
        let wrong =
            |problem: &str| TuneError::goal(problem, text, "`0.1% of users` or `1% of requests`");
        let (number, rest) = text.split_once('%').ok_or_else(|| wrong("must be a percentage"))?;
        let share = fraction(number, 100.0)
            .ok_or_else(|| wrong("must be a percentage above 0% and below 100%"))?;
        let of = match rest.split_whitespace().collect::<Vec<_>>()[..] {
            ["of", "users" | "clients"] => ShareOf::Users,
            ["of", "requests"] => ShareOf::Requests,
            _ => return Err(wrong("must be a share of users or of requests")),
        };
        Ok(Self::DenyAtMost { share, of })
    }

    /// A capacity such as `500/s`.
    ///
    /// # Errors
    /// When it is something else, or zero.
    pub fn protect(text: &str) -> Result<Self, TuneError> {
        let written = rate(text).map_err(|error| TuneError::Goal(error.to_string()))?;
        let (capacity, window) = (written.count(), written.period());
        if capacity == 0 {
            return Err(TuneError::goal("must be at least 1", text, "`500/s`"));
        }
        Ok(Self::Protect { capacity, window })
    }

    /// A quantile such as `p99.9 of good clients`.
    ///
    /// ```
    /// use sluicegate_lab::tune::goal::TuneGoal;
    ///
    /// assert_eq!(TuneGoal::serve_good("p99.9")?, TuneGoal::serve_good("p99.9 of good clients")?);
    /// assert!(TuneGoal::serve_good("p100").is_err());
    /// # Ok::<(), sluicegate_lab::tune::TuneError>(())
    /// ```
    ///
    /// # Errors
    /// When it is something else.
    pub fn serve_good(text: &str) -> Result<Self, TuneError> {
        let wrong =
            || TuneError::goal("must be a quantile", text, "`p99.9 of good clients` or `p99`");
        let (quantile, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let number = quantile.strip_prefix('p').ok_or_else(wrong)?;
        let part = fraction(number, 100.0).ok_or_else(wrong)?;
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [] | ["of", "good", "clients" | "users"] => Ok(Self::ServeGood { part }),
            _ => Err(wrong()),
        }
    }

    /// The share of clients that the limit may deny, for goals that are about one.
    #[must_use]
    pub fn denied_share(&self) -> Option<f64> {
        match self {
            Self::DenyAtMost { share, of: ShareOf::Users } => Some(*share),
            Self::ServeGood { part } => Some(1.0 - part),
            _ => None,
        }
    }
}

impl std::fmt::Display for TuneGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DenyAtMost { share, of } => {
                let of = if *of == ShareOf::Users { "users" } else { "requests" };
                write!(f, "deny at most {} of {of}", percent(*share))
            }
            Self::Protect { capacity, window } => {
                write!(f, "protect {}", show_rate(*capacity, *window))
            }
            Self::ServeGood { part } => {
                write!(f, "never deny good clients up to p{}", number(part * 100.0))
            }
        }
    }
}

/// A decimal number over `whole`, if that is above 0 and below 1.
fn fraction(text: &str, whole: f64) -> Option<f64> {
    let text = text.trim();
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = text.parse::<f64>().ok().filter(|_| is_decimal)? / whole;
    (value > 0.0 && value < 1.0).then_some(value)
}

/// A number with at most three significant decimals.
#[must_use]
pub fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 {
        1
    } else if value.abs() >= 1.0 {
        2
    } else if value == 0.0 {
        0
    } else {
        (2 - value.abs().log10().floor() as i32).clamp(2, 9) as usize
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A share in percent.
///
/// ```
/// use sluicegate_lab::tune::goal::percent;
///
/// assert_eq!([0.001, 0.12345, 0.0, 1.0].map(percent), ["0.1%", "12.35%", "0%", "100%"]);
/// ```
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_and_others_refused() {
        let users = TuneGoal::DenyAtMost { share: 0.005, of: ShareOf::Users };
        assert_eq!(TuneGoal::deny_at_most("0.5% of clients").unwrap(), users);
        let requests = TuneGoal::deny_at_most("2% of requests").unwrap();
        assert_eq!(requests.to_string(), "deny at most 2% of requests");
        let bad = [
            "",
            "%",
            "0% of users",
            "100% of users",
            "-1% of users",
            "1% of",
            "1%",
            "NaN% of users",
        ];
        for text in bad {
            let error = TuneGoal::deny_at_most(text).unwrap_err().to_string();
            assert!(error.contains(&format!("got `{text}`")), "{error}");
        }
        let window = Span::from_secs(60);
        let protect = TuneGoal::protect("30000/m").unwrap();
        assert_eq!(protect, TuneGoal::Protect { capacity: 30_000, window });
        assert!(TuneGoal::protect("0/s").unwrap_err().to_string().contains("at least 1"));
        assert!(TuneGoal::protect("fast").is_err());
        for text in ["99", "p0", "p1e1", "p99 of clients", "pp"] {
            assert!(TuneGoal::serve_good(text).is_err(), "{text}");
        }
    }
}
