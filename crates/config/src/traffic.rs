//! The YAML of built-in traffic: a name, or a name with numbers.
//!
//! ```yaml
//! flash_sale
//! zipf: { clients: 10k, rate: 2000/s, exponent: 1.1, length: 10m }
//! ```
//!
//! Every number has a default, so that a name suffices. `sluicegate_lab::traffic` generates the
//! arrivals.

mod numbers;

use sluicegate_core::time::Span;

use self::numbers::{clients, exponent, length, per_second, requests, swing, times};
use crate::fields::{self, Field, Fields, Value};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::suggest;
use crate::units::{self, show_span};
use crate::yaml::{Content, Node};

pub use self::numbers::CLIENTS_MAX;

/// Traffic that is generated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficConfig {
    /// What happens in it.
    pub pattern: TrafficPattern,
    /// Number of clients, from 1 to [`CLIENTS_MAX`].
    pub clients: u32,
    /// How long it lasts.
    pub length: Span,
}

/// A pattern of traffic; rates are requests per second of all clients together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrafficPattern {
    /// Constant intervals, the clients in turn.
    Steady {
        /// Requests per second.
        rate: f64,
    },
    /// Independent requests, equally of all clients.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Independent requests at a rate that follows a sine.
    Diurnal {
        /// Mean requests per second.
        rate: f64,
        /// The highest rate above the mean, as a part of it: 0 to 1.
        swing: f64,
        /// Time from one peak to the next.
        period: Span,
    },
    /// Every client sends a burst before and another after every second edge of windows.
    EdgeBursts {
        /// Length of the windows, which are aligned to the clock.
        window: Span,
        /// Requests of a client in one burst.
        burst: u64,
        /// Length of a burst.
        spread: Span,
    },
    /// Independent requests whose rate multiplies at once and falls exponentially.
    FlashSale {
        /// Requests per second before.
        rate: f64,
        /// What it is multiplied by.
        factor: f64,
        /// When the sale begins.
        begin: Span,
        /// Time in which the excess falls to 1/e.
        fade: Span,
    },
    /// Independent requests, and one more client that sends much more than the others.
    Abuser {
        /// Requests per second of the others together.
        rate: f64,
        /// Requests per second of the abuser.
        abuse: f64,
    },
    /// All clients send at the same moments and repeat after the same pauses, which double.
    Herd {
        /// Requests per second at other times.
        rate: f64,
        /// Time from one such moment to the next.
        every: Span,
        /// Repetitions.
        retries: u64,
        /// First pause.
        backoff: Span,
        /// Time in which all send.
        spread: Span,
    },
    /// Independent requests; few clients send most of them.
    Zipf {
        /// Requests per second.
        rate: f64,
        /// Client `k` sends in proportion to `k^-exponent`.
        exponent: f64,
    },
    /// Clients with rates that vary over the day and from moment to moment, and bursts in them.
    Tenants {
        /// Mean requests per second.
        rate: f64,
    },
}

/// A pattern as it is written.
struct PatternForm {
    name: &'static str,
    fields: &'static [&'static str],
    read: fn(&mut Fields<'_>, &mut Report) -> Result<TrafficConfig, Reported>,
}

const FORMS: [PatternForm; 9] = [
    PatternForm { name: "steady", fields: &["clients", "rate", "length"], read: steady },
    PatternForm { name: "poisson", fields: &["clients", "rate", "length"], read: poisson },
    PatternForm {
        name: "diurnal",
        fields: &["clients", "rate", "swing", "period", "length"],
        read: diurnal,
    },
    PatternForm {
        name: "edge_bursts",
        fields: &["clients", "window", "burst", "spread", "length"],
        read: edge_bursts,
    },
    PatternForm {
        name: "flash_sale",
        fields: &["clients", "rate", "factor", "begin", "fade", "length"],
        read: flash_sale,
    },
    PatternForm { name: "abuser", fields: &["clients", "rate", "abuse", "length"], read: abuser },
    PatternForm {
        name: "herd",
        fields: &["clients", "rate", "every", "retries", "backoff", "spread", "length"],
        read: herd,
    },
    PatternForm { name: "zipf", fields: &["clients", "rate", "exponent", "length"], read: zipf },
    PatternForm { name: "tenants", fields: &["clients", "rate", "length"], read: tenants },
];

const EXAMPLE: &str = "zipf: { clients: 10k, rate: 2000/s }";

const CLIENTS: Field<u32> = Field { name: "clients", example: "10k", read: clients };
const LENGTH: Field<Span> = Field { name: "length", example: "10m", read: length };
const RATE: Field<f64> = Field { name: "rate", example: "2000/s", read: per_second };
const ABUSE: Field<f64> = Field { name: "abuse", example: "50/s", read: per_second };
const SWING: Field<u64> = Field { name: "swing", example: "80%", read: swing };
const PERIOD: Field<Span> = Field { name: "period", example: "24h", read: length };
const WINDOW: Field<Span> = Field { name: "window", example: "1m", read: length };
const BURST: Field<u64> = Field { name: "burst", example: "100", read: requests };
const SPREAD: Field<Span> = Field { name: "spread", example: "1s", read: length };
const FACTOR: Field<u64> = Field { name: "factor", example: "50x", read: times };
const BEGIN: Field<Span> = Field { name: "begin", example: "5m", read: units::span_or_zero };
const FADE: Field<Span> = Field { name: "fade", example: "2m", read: length };
const EVERY: Field<Span> = Field { name: "every", example: "5m", read: length };
const RETRIES: Field<u64> = Field { name: "retries", example: "5", read: numbers::retries };
const BACKOFF: Field<Span> = Field { name: "backoff", example: "1s", read: length };
const EXPONENT: Field<u64> = Field { name: "exponent", example: "1.1", read: exponent };

/// The names of all patterns.
///
/// ```
/// assert!(sluicegate_config::traffic::pattern_names().any(|name| name == "flash_sale"));
/// ```
pub fn pattern_names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.name)
}

/// Reads the traffic of a text.
///
/// ```
/// use sluicegate_config::traffic::{TrafficPattern, traffic};
///
/// let sale = traffic("--traffic", "flash_sale")?;
/// assert_eq!(sale.clients, 1_000);
/// let read = traffic("--traffic", "zipf: { clients: 10k, rate: 120k/m, exponent: 1.1 }")?;
/// assert_eq!(read.pattern, TrafficPattern::Zipf { rate: 2_000.0, exponent: 1.1 });
///
/// let problems = traffic("--traffic", "zip: { clients: 10k }").unwrap_err();
/// assert!(problems.to_string().starts_with(
///     "--traffic:1:1: unknown traffic, got `zip`; did you mean `zipf`?"
/// ));
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
///
/// # Errors
/// All problems of the text.
pub fn traffic(source_name: &str, text: &str) -> Result<TrafficConfig, Problems> {
    let mut report = Report::new(source_name);
    let read = fields::document(text, EXAMPLE, &mut report)
        .and_then(|root| traffic_of(&Value::root(&root), &mut report));
    report.finish(read)
}

/// Reads the traffic of a value.
fn traffic_of(value: &Value<'_, '_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    match &value.node.content {
        Content::Scalar { text, .. } if !value.node.is_null() => {
            let form = form_of(text).map_err(|message| value.refuse(report, message))?;
            let empty = Node { at: value.at(), content: Content::Mapping([].into()) };
            let empty = Value::root(&empty);
            (form.read)(&mut empty.fields("traffic", EXAMPLE, report)?, report)
        }
        Content::Mapping(pairs) if pairs.len() == 1 => {
            let mut outer = value.fields("traffic", EXAMPLE, report)?;
            let Some((name, inner)) = outer.all().into_iter().next() else {
                return Err(value.refuse(report, unknown(&value.node.described(), "")));
            };
            let form = form_of(name).map_err(|message| value.refuse(report, message))?;
            let example = format!("{name}: {{ clients: 10k }}");
            let mut fields = inner.fields("traffic", &example, report)?;
            let read = (form.read)(&mut fields, report);
            fields.finish(report, |key| fields::unknown(key, form.fields))?;
            read
        }
        _ => Err(value.refuse(report, unknown(&value.node.described(), ""))),
    }
}

// === the patterns ===

/// The fields that every pattern has: its clients, its length, and what `pattern` made.
fn complete(
    fields: &mut Fields<'_>,
    report: &mut Report,
    (clients, length): (u32, Span),
    pattern: Result<TrafficPattern, Reported>,
) -> Result<TrafficConfig, Reported> {
    let clients = or_default(fields, &CLIENTS, clients, report);
    let length = or_default(fields, &LENGTH, length, report);
    Ok(TrafficConfig { pattern: pattern?, clients: clients?, length: length? })
}

fn or_default<T>(
    fields: &mut Fields<'_>,
    field: &Field<T>,
    default: T,
    report: &mut Report,
) -> Result<T, Reported> {
    Ok(fields.optional(field, report)?.unwrap_or(default))
}

/// Each tenant has a source of arrivals of its own.
const TENANTS_MAX: u32 = 1_000_000;
const TEN_MINUTES: Span = Span::from_secs(600);
const DAY: Span = Span::from_secs(86_400);

fn steady(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 200.0, report);
    let pattern = rate.map(|rate| TrafficPattern::Steady { rate });
    complete(fields, report, (100, TEN_MINUTES), pattern)
}

fn poisson(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 200.0, report);
    let pattern = rate.map(|rate| TrafficPattern::Poisson { rate });
    complete(fields, report, (100, TEN_MINUTES), pattern)
}

fn diurnal(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 20.0, report);
    let swing = or_default(fields, &SWING, 80, report);
    let period = or_default(fields, &PERIOD, DAY, report);
    let pattern = (|| {
        let swing = swing? as f64 / 100.0;
        Ok(TrafficPattern::Diurnal { rate: rate?, swing, period: period? })
    })();
    complete(fields, report, (10, DAY), pattern)
}

fn edge_bursts(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let window = or_default(fields, &WINDOW, Span::from_secs(60), report);
    let burst = or_default(fields, &BURST, 100, report);
    let spread = fields.optional(&SPREAD, report);
    let pattern = (|| {
        let window: Span = window?;
        let thirtieth = Span::from_micros((window.as_micros() / 30).max(1));
        let spread = spread?.unwrap_or(thirtieth);
        if spread.as_micros() > window.as_micros() / 2 {
            let got = quoted(&show_span(spread));
            let message =
                format!("must be at most half of `window`, got {got}; write a shorter time");
            return Err(fields.refuse(SPREAD.name, report, message));
        }
        Ok(TrafficPattern::EdgeBursts { window, burst: burst?, spread })
    })();
    complete(fields, report, (100, TEN_MINUTES), pattern)
}

fn flash_sale(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 200.0, report);
    let factor = or_default(fields, &FACTOR, 25_000, report);
    let begin = or_default(fields, &BEGIN, Span::from_secs(300), report);
    let fade = or_default(fields, &FADE, Span::from_secs(120), report);
    let pattern = (|| {
        let factor = factor? as f64 / 1_000.0;
        Ok(TrafficPattern::FlashSale { rate: rate?, factor, begin: begin?, fade: fade? })
    })();
    complete(fields, report, (1_000, Span::from_secs(1_200)), pattern)
}

fn abuser(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 100.0, report);
    let abuse = or_default(fields, &ABUSE, 50.0, report);
    let pattern = (|| Ok(TrafficPattern::Abuser { rate: rate?, abuse: abuse? }))();
    complete(fields, report, (100, TEN_MINUTES), pattern)
}

fn herd(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 100.0, report);
    let every = or_default(fields, &EVERY, Span::from_secs(300), report);
    let retries = or_default(fields, &RETRIES, 6, report);
    let backoff = or_default(fields, &BACKOFF, Span::from_secs(1), report);
    let spread = or_default(fields, &SPREAD, Span::from_millis(100), report);
    if let (Ok(every), Ok(retries), Ok(backoff), Ok(spread)) = (every, retries, backoff, spread) {
        let pauses = ((1_u64 << retries) - 1).saturating_mul(backoff.as_micros());
        let lasts = Span::from_micros(pauses.saturating_add(spread.as_micros()));
        if spread > backoff {
            let got = quoted(&show_span(spread));
            let message = format!("must be at most `backoff`, got {got}; write a shorter time");
            return Err(fields.refuse(SPREAD.name, report, message));
        }
        if lasts > every {
            let (lasts, got) = (quoted(&show_span(lasts)), quoted(&show_span(every)));
            let message = format!(
                "must be at least {lasts}, which all repetitions take, got {got}; raise it, or \
                 lower `retries` or `backoff`"
            );
            return Err(fields.refuse(EVERY.name, report, message));
        }
    }
    let pattern = (|| {
        let (rate, every, retries) = (rate?, every?, retries?);
        Ok(TrafficPattern::Herd { rate, every, retries, backoff: backoff?, spread: spread? })
    })();
    complete(fields, report, (1_000, Span::from_secs(1_200)), pattern)
}

fn zipf(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 2_000.0, report);
    let exponent = or_default(fields, &EXPONENT, 1_100, report);
    let pattern =
        (|| Ok(TrafficPattern::Zipf { rate: rate?, exponent: exponent? as f64 / 1_000.0 }))();
    complete(fields, report, (10_000, TEN_MINUTES), pattern)
}

fn tenants(fields: &mut Fields<'_>, report: &mut Report) -> Result<TrafficConfig, Reported> {
    let rate = or_default(fields, &RATE, 20.0, report);
    let pattern = rate.map(|rate| TrafficPattern::Tenants { rate });
    let read = complete(fields, report, (8, DAY), pattern)?;
    if read.clients > TENANTS_MAX {
        let got = fields.written(CLIENTS.name);
        let message = format!("must be at most `{TENANTS_MAX}` tenants, got {got}; write less");
        return Err(fields.refuse(CLIENTS.name, report, message));
    }
    Ok(read)
}

fn form_of(name: &str) -> Result<&'static PatternForm, String> {
    FORMS.iter().find(|form| form.name == name).ok_or_else(|| unknown(&quoted(name), name))
}

fn unknown(got: &str, word: &str) -> String {
    let names: Vec<&str> = pattern_names().collect();
    let hint = suggest::hint(word, names.iter().copied());
    let names = suggest::one_of(&names);
    format!("unknown traffic, got {got}; {hint}write {names}, or one with numbers like `{EXAMPLE}`")
}

#[cfg(test)]
mod tests;
