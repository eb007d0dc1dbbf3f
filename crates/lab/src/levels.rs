//! SVG plot of measured accuracy and latency of the consistency levels.
//!
//! Each level has a row. The left half shows the decision latency, from the median to the 99th
//! percentile. The right half shows the excess above the limit or the unused quota below it, with
//! the guaranteed bound in pale.
//!
//! Input lines have tab-separated fields: level; p50 and p99 in microseconds; excess, its bound,
//! shortfall and its bound in percent of the limit; store calls per decision.

use crate::svg::{Anchor, Svg};

/// Measurements of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Label in the plot.
    pub name: String,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile latency in microseconds.
    pub p99_us: f64,
    /// Excess above the limit, in percent of it.
    pub over: f64,
    /// Bound of the excess.
    pub over_bound: f64,
    /// Shortfall below the limit, in percent of it.
    pub short: f64,
    /// Bound of the shortfall.
    pub short_bound: f64,
    /// Store calls per decision.
    pub calls: f64,
}

/// Parses measurements; lines that begin with `#` are comments.
///
/// ```
/// let read = sluicegate_lab::levels::read("# on a table\nleased\t0.5\t1.5\t0\t0\t0\t5\t0.01\n")?;
/// assert_eq!((read[0].p99_us, read[0].short_bound), (1.5, 5.0));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// The invalid line.
pub fn read(text: &str) -> Result<Vec<Measured>, String> {
    let lines = (1..).zip(text.lines());
    let rows = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    rows.map(|(number, line)| {
        one(line).ok_or_else(|| {
            format!(
                "line {number}: must be a name and 7 numbers with tabs between them, got `{line}`"
            )
        })
    })
    .collect()
}

fn one(line: &str) -> Option<Measured> {
    let mut words = line.split('\t');
    let name = words.next()?.to_owned();
    let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [p50_us, p99_us, over, over_bound, short, short_bound, calls] = *numbers else {
        return None;
    };
    let is_sound = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
    is_sound.then_some(Measured {
        name,
        p50_us,
        p99_us,
        over,
        over_bound,
        short,
        short_bound,
        calls,
    })
}

const WIDTH: f64 = 760.0;
const TOP: f64 = 66.0;
const ROW: f64 = 34.0;
/// Columns: the end of the names, and both ends of each half.
const NAMES: f64 = 148.0;
const TIMES: (f64, f64) = (164.0, 424.0);
const PARTS: (f64, f64) = (468.0, 736.0);

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}\
.pale{fill:#666;font-size:11px}.grid{stroke:#e6e6e6}.limit{stroke:#333}.bound{fill:#0969da;opacity:.18}\
.tail{stroke:#0969da;stroke-width:2}.dot{fill:#0969da}.miss{stroke:#cf222e;stroke-width:2;fill:none}";

/// Ticks of the deviation axis, in percent of the limit.
const PERCENTS: [f64; 7] = [1.0, 5.0, 20.0, 50.0, 100.0, 200.0, 400.0];

/// Column of the numbers.
struct Scale {
    /// Ends of the latency axis, as powers of ten of a microsecond.
    decades: (f64, f64),
    /// Maximum excess and shortfall, in percent.
    up: f64,
    down: f64,
}

/// Draws the measurements: one row per level, latency on the left and deviation on the right.
///
/// ```
/// use sluicegate_lab::levels::{picture, read};
///
/// let svg = picture(&read("strict\t150\t400\t0\t0\t0\t0\t1\n")?);
/// assert!(svg.contains("strict"));
/// # Ok::<(), String>(())
/// ```
#[must_use]
pub fn picture(all: &[Measured]) -> String {
    let bottom = TOP + ROW * all.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 44.0);
    let scale = Scale::of(all);
    let title = "How long a decision takes, and what passes above and below the limit";
    svg.text((16.0, 22.0), Anchor::Start, "title", title);
    axes(&mut svg, &scale, bottom);
    for (row, one) in all.iter().enumerate() {
        mark(&mut svg, &scale, one, TOP + ROW * (row as f64 + 0.5));
    }
    svg.finish(title, STYLE)
}

fn axes(svg: &mut Svg, scale: &Scale, bottom: f64) {
    let (top, below) = (TOP - 8.0, bottom + 16.0);
    svg.text((TIMES.0, 46.0), Anchor::Start, "pale", "a decision takes: median to 99th percentile");
    svg.text((PARTS.0, 46.0), Anchor::Start, "pale", "of the limit: passed, and might have (pale)");
    let mut decade = scale.decades.0;
    while decade <= scale.decades.1 {
        let x = scale.time(10f64.powf(decade));
        svg.line((x, top), (x, bottom), "grid");
        svg.text((x, below), Anchor::Middle, "pale", &time(decade));
        decade += 1.0;
    }
    for percent in PERCENTS.into_iter().flat_map(|percent| [percent, -percent]) {
        if percent > scale.up || -percent > scale.down {
            continue;
        }
        let x = scale.part(percent);
        svg.line((x, top), (x, bottom), "grid");
        svg.text((x, below), Anchor::Middle, "pale", &format!("{percent:+.0}%"));
    }
    let limit = scale.part(0.0);
    svg.line((limit, top), (limit, bottom), "limit");
    svg.text((limit, below + 15.0), Anchor::Middle, "pale", "limit");
}

fn mark(svg: &mut Svg, scale: &Scale, one: &Measured, y: f64) {
    svg.text((NAMES, y + 4.0), Anchor::End, "name", &one.name);
    let (median, late) = (scale.time(one.p50_us), scale.time(one.p99_us));
    svg.line((median, y), (late, y), "tail");
    svg.circle((median, y), 5.0, "dot");
    let (from, to) = (scale.part(-one.short_bound), scale.part(one.over_bound));
    svg.rect((from, y - 8.0), (to - from, 16.0), "bound");
    // The shortfall if there is one, otherwise the excess; mostly both are zero.
    if one.short > 0.0 {
        svg.cross((scale.part(-one.short), y), 5.0, "miss");
    } else {
        svg.circle((scale.part(one.over), y), 5.0, "dot");
    }
}

// === impl Scale ===

impl Scale {
    fn of(all: &[Measured]) -> Self {
        let least = all.iter().map(|one| one.p50_us).fold(1.0, f64::min).max(0.01);
        let max = all.iter().map(|one| one.p99_us).fold(10.0, f64::max);
        let up = all.iter().map(|one| one.over.max(one.over_bound)).fold(5.0, f64::max);
        let down = all.iter().map(|one| one.short.max(one.short_bound)).fold(5.0, f64::max);
        Self { decades: (least.log10().floor(), max.log10().ceil()), up, down }
    }

    fn time(&self, us: f64) -> f64 {
        let (from, to) = self.decades;
        let part = (us.max(0.001).log10() - from) / (to - from);
        TIMES.0 + (TIMES.1 - TIMES.0) * part.clamp(0.0, 1.0)
    }

    /// Square-root scale, so that small values are visible.
    fn part(&self, percent: f64) -> f64 {
        let (down, up) = (self.down.sqrt(), self.up.sqrt());
        let part = (down + percent.abs().sqrt().copysign(percent)) / (down + up);
        PARTS.0 + (PARTS.1 - PARTS.0) * part.clamp(0.0, 1.0)
    }
}

/// A power of ten of a microsecond.
fn time(decade: f64) -> String {
    match decade as i64 {
        ..-2 => "1 ns".to_owned(),
        -2 => "10 ns".to_owned(),
        -1 => "100 ns".to_owned(),
        0 => "1 µs".to_owned(),
        1 => "10 µs".to_owned(),
        2 => "100 µs".to_owned(),
        3 => "1 ms".to_owned(),
        4 => "10 ms".to_owned(),
        5 => "100 ms".to_owned(),
        _ => "1 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_measurement_is_told_by_its_line() {
        for bad in ["strict\t1\t2", "strict\t1\t2\t3\t4\t5\t6\tx", "strict\t1\t2\t3\t4\t5\t6\tNaN"]
        {
            let rows = read(&format!("# how\n\n{bad}\n")).unwrap_err();
            assert!(rows.starts_with("line 3: must be a name and 7 numbers"), "{rows}");
        }
        assert_eq!(read("# nothing\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_more_and_what_is_slow_is_to_the_right() {
        let scale = Scale { decades: (-1.0, 3.0), up: 20.0, down: 10.0 };
        assert!(scale.part(-5.0) < scale.part(0.0) && scale.part(0.0) < scale.part(15.0));
        assert!(scale.time(0.5) < scale.time(50.0) && scale.time(1e9) <= TIMES.1);
        let all = read("a\t0.5\t1\t12\t20\t0\t0\t0\nb\t0.5\t1\t12\t20\t3\t5\t0\n").unwrap();
        let svg = picture(&all);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (3, 1));
    }
}
