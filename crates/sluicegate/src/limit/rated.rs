//! Common parts of all limits with a rate: a count per period.

use std::time::Duration;

use sluicegate_core::quota::{QuotaError, Rate as CoreRate};

use crate::clock::span;

/// A number per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) count: u64,
    pub(super) period: Duration,
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

impl Rate {
    pub(super) fn exact(self) -> Result<CoreRate, QuotaError> {
        CoreRate::new(self.count, span(self.period))
    }
}

/// The constructors and the name that all limits with a rate have.
macro_rules! rated {
    ($limit:ident { $($field:ident: $value:expr),* }) => {
        impl $limit {
            /// A number per second.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), " as Limit;")]
            ///
            /// let (second, minute) = (Limit::per_second(10), Limit::per_minute(10));
            /// for limit in [second, minute, Limit::per_hour(10), Limit::per_day(10)] {
            ///     assert!(sluicegate::Limiter::new(limit)?.hit("alice").is_allowed());
            /// }
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per_second(count: u64) -> Self {
                Self::per(count, crate::limit::rated::SECOND)
            }

            /// A number per minute.
            pub const fn per_minute(count: u64) -> Self {
                Self::per(count, crate::limit::rated::MINUTE)
            }

            /// A number per hour.
            pub const fn per_hour(count: u64) -> Self {
                Self::per(count, crate::limit::rated::HOUR)
            }

            /// A number per day of 24 hours.
            pub const fn per_day(count: u64) -> Self {
                Self::per(count, crate::limit::rated::DAY)
            }

            /// A number per period of any length.
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            /// let period = Duration::from_secs(30);
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per(10, period))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per(count: u64, period: Duration) -> Self {
                Self { rate: crate::limit::rated::Rate { count, period }, name: None, $($field: $value),* }
            }
        }

        crate::limit::rated::named!($limit, $limit::per_minute(10));
    };
}

/// The name that all limits can have.
macro_rules! named {
    ($limit:ident, $example:expr) => {
        impl $limit {
            /// Its name in headers, events and live changes: which limit of a limiter it is. (The
            /// name of the limiter is [`Builder::name`](crate::Builder::name).)
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($example), ".named(\"mine\"))?;")]
            /// assert_eq!(limiter.policies()[0].name, "mine");
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub fn named(self, name: impl Into<String>) -> Self {
                Self { name: Some(name.into()), ..self }
            }
        }
    };
}
pub(super) use {named, rated};
