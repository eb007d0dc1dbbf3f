//! How far nodes that share a limit are off, against how long they take to say so: a picture of measured numbers.
//!
//! Each level is a mark where its median latency is; a line goes on to its 99th percentile. Above the middle is what passed beyond the limit, below it what did not pass
//! although it might have; a pale bar is what was promised.
//!
//! Numbers come as lines with tabs between them: level, p50 and p99 in microseconds, then in percent of the limit what passed above it and its bound, what was missing below it
//! and its bound, and at last calls to the store for each decision.

use crate::svg::{Anchor, Svg};

/// What was measured of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What it is called in the picture.
    pub name: String,
    /// How long half of the answers took at most, in microseconds.
    pub p50_us: f64,
    /// How long all but one of a hundred took at most.
    pub p99_us: f64,
    /// What passed above the limit, in percent of it.
    pub over: f64,
    /// What might have.
    pub over_bound: f64,
    /// What did not pass although it might have, in percent of the limit.
    pub short: f64,
    /// What might not have.
    pub short_bound: f64,
    /// Calls to the store for each decision.
    pub calls: f64,
}

/// Reads what was measured; lines that begin with `#` say how.
///
/// ```
/// let read = sluicegate_lab::levels::read("# on a table\nleased\t0.5\t1.5\t0\t0\t0\t5\t0.01\n")?;
/// assert_eq!((read[0].p99_us, read[0].short_bound), (1.5, 5.0));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// With the line that is no measurement.
pub fn read(text: &str) -> Result<Vec<Measured>, String> {
    let lines = (1..).zip(text.lines());
    let told = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    told.map(|(number, line)| {
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

const SIZE: (f64, f64) = (760.0, 440.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 736.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 388.0;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}\
.pale{fill:#666}.grid{stroke:#e6e6e6}.limit{stroke:#333}.bound{fill:#0969da;opacity:.15}\
.tail{stroke:#0969da}.dot{fill:#0969da}.miss{stroke:#cf222e;stroke-width:2;fill:none}";

/// Where numbers are in the picture.
struct Scale {
    /// Powers of ten of a microsecond, at both ends.
    decades: (f64, f64),
    /// Percent, above and below the limit.
    up: f64,
    down: f64,
}

/// Draws what was measured.
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
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    let scale = Scale::of(all);
    let title = "What passes above and below a limit, against how long a decision takes";
    svg.text((LEFT, 20.0), Anchor::Start, "title", title);
    axes(&mut svg, &scale);
    // Names that would lie on each other take turns above and below.
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for one in all {
        mark(&mut svg, &scale, one, &mut taken);
    }
    svg.finish(title, STYLE)
}

fn axes(svg: &mut Svg, scale: &Scale) {
    let mut decade = scale.decades.0;
    while decade <= scale.decades.1 {
        let x = scale.x(10f64.powf(decade));
        svg.line((x, TOP), (x, BOTTOM), "grid");
        svg.text((x, BOTTOM + 18.0), Anchor::Middle, "pale", &time(decade));
        decade += 1.0;
    }
    let below = (RIGHT, BOTTOM + 40.0);
    svg.text(
        below,
        Anchor::End,
        "pale",
        "a decision takes: median, and a line to the 99th percentile",
    );
    let limit = scale.y(0.0);
    svg.line((LEFT, limit), (RIGHT, limit), "limit");
    svg.text((LEFT - 8.0, limit + 4.0), Anchor::End, "pale", "limit");
    let ends = [(scale.up, "above"), (-scale.down, "below")];
    for (percent, word) in ends.into_iter().filter(|(percent, _)| *percent != 0.0) {
        let y = scale.y(percent);
        svg.line((LEFT, y), (RIGHT, y), "grid");
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "pale", &format!("{percent:+.0} %"));
        svg.text((LEFT + 6.0, y - 5.0), Anchor::Start, "pale", &format!("passes {word} it"));
    }
}

fn mark(svg: &mut Svg, scale: &Scale, one: &Measured, taken: &mut Vec<(f64, f64)>) {
    let (x, far) = (scale.x(one.p50_us), scale.x(one.p99_us));
    let (top, bottom) = (scale.y(one.over_bound), scale.y(-one.short_bound));
    svg.rect((x - 7.0, top), (14.0, bottom - top), "bound");
    let y = scale.y(one.over);
    svg.line((x, y), (far, y), "tail");
    svg.circle((x, y), 5.0, "dot");
    if one.short > 0.0 {
        svg.cross((x, scale.y(-one.short)), 5.0, "miss");
    }
    let mut at = (x + 10.0, y - 8.0);
    let is_near = |at: &(f64, f64), other: &(f64, f64)| {
        (at.0 - other.0).abs() < 150.0 && (at.1 - other.1).abs() < 14.0
    };
    while taken.iter().any(|other| is_near(&at, other)) {
        at.1 -= 15.0;
    }
    taken.push(at);
    svg.text(at, Anchor::Start, "name", &one.name);
}

// === impl Scale ===

impl Scale {
    fn of(all: &[Measured]) -> Self {
        let least = all.iter().map(|one| one.p50_us).fold(1.0, f64::min).max(0.01);
        let most = all.iter().map(|one| one.p99_us).fold(10.0, f64::max);
        let up = all.iter().map(|one| one.over.max(one.over_bound)).fold(5.0, f64::max);
        let down = all.iter().map(|one| one.short.max(one.short_bound)).fold(5.0, f64::max);
        Self {
            decades: (least.log10().floor(), most.log10().ceil()),
            up: up.ceil(),
            down: down.ceil(),
        }
    }

    fn x(&self, us: f64) -> f64 {
        let (from, to) = self.decades;
        let part = (us.max(0.001).log10() - from) / (to - from);
        LEFT + (RIGHT - LEFT) * part.clamp(0.0, 1.0)
    }

    fn y(&self, percent: f64) -> f64 {
        let part = (self.up - percent) / (self.up + self.down);
        TOP + 10.0 + (BOTTOM - TOP - 20.0) * part.clamp(0.0, 1.0)
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
            let told = read(&format!("# how\n\n{bad}\n")).unwrap_err();
            assert!(told.starts_with("line 3: must be a name and 7 numbers"), "{told}");
        }
        assert_eq!(read("# nothing\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_passes_above_is_above_and_what_is_slow_is_to_the_right() {
        let scale = Scale { decades: (-1.0, 3.0), up: 20.0, down: 10.0 };
        assert!(scale.y(15.0) < scale.y(0.0) && scale.y(0.0) < scale.y(-5.0));
        assert!(scale.x(0.5) < scale.x(50.0) && scale.x(1e9) <= RIGHT);
        let all = read("a\t0.5\t1\t12\t20\t0\t0\t0\nb\t0.5\t1\t12\t20\t3\t5\t0\n").unwrap();
        let svg = picture(&all);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (2, 1));
    }
}
