//! Prometheus' text format, version 0.0.4.
//!
//! A family is a name with its help and type, followed by its samples, one per line:
//!
//! ```text
//!   # HELP sluicegate_rules Loaded rules.
//!   # TYPE sluicegate_rules gauge
//!   sluicegate_rules 12
//! ```

use std::fmt::{self, Display, Write};

use crate::telemetry::{BUCKETS_MICROS, ResponseTimes};

/// `Content-Type` of a [`Page`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics page under construction.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// A family under construction.
#[derive(Debug)]
pub struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

/// Labels as they are between the braces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels(String);

/// Microseconds, displayed exactly in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seconds(pub(super) u64);

/// Metrics of another part of the process, on the same page.
pub trait MetricsSource: fmt::Debug + Send + Sync {
    /// Writes its families.
    fn put(&self, page: &mut Page);
}

impl Page {
    /// A family of counters.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// A family of gauges.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// A family of histograms.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { name, text: &mut self.text }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// A sample without labels.
    pub fn value(&mut self, value: impl Display) {
        self.sample("", "", value);
    }

    /// A sample with labels.
    pub fn labeled(&mut self, labels: &Labels, value: impl Display) {
        self.sample("", &labels.0, value);
    }

    /// A sample for each value of one label.
    pub fn each<'v>(
        &mut self,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, impl Display)>,
    ) {
        for (value, number) in values {
            self.labeled(&Labels::new(label, value), number);
        }
    }

    /// A histogram. Its count is the sum of the buckets, so that both agree while calls come in.
    pub fn histogram(&mut self, labels: &Labels, times: &ResponseTimes) {
        let mut sum = 0;
        for (bound, bucket) in BUCKETS_MICROS.iter().zip(times.buckets) {
            sum += bucket;
            let labels = labels.clone().and("le", &Seconds(*bound).to_string());
            self.sample("_bucket", &labels.0, sum);
        }
        self.sample("_bucket", &labels.clone().and("le", "+Inf").0, times.count());
        self.sample("_sum", &labels.0, Seconds(times.sum_micros));
        self.sample("_count", &labels.0, times.count());
    }

    fn sample(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let name = self.name;
        match labels {
            "" => put(self.text, format_args!("{name}{suffix} {value}\n")),
            labels => put(self.text, format_args!("{name}{suffix}{{{labels}}} {value}\n")),
        }
    }
}

impl Labels {
    /// Adds a label, unless the value is empty: Prometheus treats that as no label.
    #[must_use]
    pub fn and(mut self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        let comma = if self.0.is_empty() { "" } else { "," };
        put(&mut self.0, format_args!("{comma}{name}=\""));
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }

    /// A single label.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Self {
        Self::default().and(name, value)
    }
}

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MICROS: u64 = 1_000_000;
        let (whole, rest) = (self.0 / MICROS, self.0 % MICROS);
        match rest {
            0 => write!(f, "{whole}"),
            rest => f.write_str(format!("{whole}.{rest:06}").trim_end_matches('0')),
        }
    }
}

fn put(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        let table = [(0, "0"), (5, "0.000005"), (250_000, "0.25"), (1_000_000, "1")];
        for (micros, shown) in table {
            assert_eq!(Seconds(micros).to_string(), shown);
        }
        assert_eq!(Seconds(u64::MAX).to_string(), "18446744073709.551615");
    }

    #[test]
    fn what_would_end_a_value_is_escaped() {
        let labels = Labels::new("a", "x\"y\\z\n").and("none", "").and("b", "é");
        assert_eq!(labels.0, "a=\"x\\\"y\\\\z\\n\",b=\"é\"");
    }
}
