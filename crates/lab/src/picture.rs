//! SVG plot of a trial: requests, decisions and remaining quota.
//!
//! The upper part has one mark per request: a dot if admitted, with a tail up to the end of its
//! delay, or a cross if denied. The lower part shows the remaining quota, sampled between requests
//! too, so that the refill is visible.

use sluicegate_core::time::{Span, Timestamp};

use crate::answer::Printed;
use crate::line::{Line, ScriptOp};
use crate::svg::{Anchor, Svg};
use crate::trial::Trial;

/// Maximum number of drawn requests.
pub const EVENTS_MAX: usize = 5_000;
/// Samples of the remaining quota between two requests.
const LOOKS: u64 = 48;
/// Divisor of the time range drawn after the last request.
const TAIL: u64 = 12;

/// Records the events of a trial for drawing.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    key: Option<String>,
    events: Vec<Event>,
    left: Vec<(Timestamp, i64)>,
    skipped: usize,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    at: Timestamp,
    wait: Span,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Admitted,
    /// Admitted above the limit: soft, elastic, or in the shadow.
    Marked,
    Denied,
}

// === impl Recorder ===

impl Recorder {
    /// Samples the trial before a line is executed.
    pub fn before(&mut self, trial: &Trial, line: &Line) {
        let key = self.key.get_or_insert_with(|| line.key.clone()).clone();
        let Some((last, _)) = self.left.last().copied() else {
            return;
        };
        self.look(trial, &key, last, line.at);
    }

    /// Records a line and its answer.
    pub fn after(&mut self, trial: &Trial, line: &Line, answer: &Printed) {
        let key = self.key.clone().unwrap_or_default();
        self.note_left(line.at, trial.glance(&key, line.at));
        let is_request = matches!(
            line.op,
            ScriptOp::Hit { .. }
                | ScriptOp::Acquire { .. }
                | ScriptOp::Take { .. }
                | ScriptOp::Reserve { .. }
                | ScriptOp::Charge { .. }
        );
        if !is_request {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.skipped += 1;
            return;
        }
        let marked = answer.soft || answer.elastic || answer.would_allow == Some(false);
        let kind = match (answer.allowed, marked) {
            (false, _) => Kind::Denied,
            (true, true) => Kind::Marked,
            (true, false) => Kind::Admitted,
        };
        self.events.push(Event { at: line.at, wait: Span::from_micros(answer.wait_us), kind });
    }

    /// Draws the recorded events.
    #[must_use]
    pub fn draw(mut self, trial: &Trial, title: &str) -> String {
        let last = self.events.iter().map(|event| event.at.after(event.wait));
        let ends = last.chain(self.left.last().map(|(at, _)| *at)).max().unwrap_or_default();
        let starts = self.left.first().map_or(Timestamp::EPOCH, |(at, _)| *at);
        let starts = self.events.iter().map(|event| event.at).min().unwrap_or(starts).min(starts);
        let tail = Span::from_micros((ends.since(starts).as_micros() / TAIL).max(1));
        let ends = ends.after(tail);
        if let (Some(key), Some((from, _))) = (self.key.clone(), self.left.last().copied()) {
            self.look(trial, &key, from, ends);
        }
        Canvas::new(starts, ends).draw(&self, title)
    }

    fn look(&mut self, trial: &Trial, key: &str, from: Timestamp, to: Timestamp) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        let gap = to.since(from).as_micros();
        for look in 1..LOOKS {
            let at = from.after(Span::from_micros(gap / LOOKS * look));
            if at > from && at < to {
                self.note_left(at, trial.glance(key, at));
            }
        }
        self.note_left(to, trial.glance(key, to));
    }

    fn note_left(&mut self, at: Timestamp, left: Option<i64>) {
        let Some(left) = left else { return };
        // Only the last sample before a change matters.
        if let [.., (_, before), (last, same)] = self.left.as_mut_slice()
            && *before == left
            && *same == left
        {
            *last = at;
            return;
        }
        self.left.push((at, left));
    }
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 744.0;
const REQUESTS: (f64, f64) = (48.0, 138.0);
const LEVEL: (f64, f64) = (168.0, 318.0);
const HEIGHT: f64 = 372.0;
const DOT: f64 = 3.5;
const LINES_MAX: usize = 10;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}\
.small{font-size:11px;fill:#666}.paper{fill:#fff}.axis{stroke:#999}.grid{stroke:#e6e6e6}\
.yes{fill:#1a7f37}.marked{fill:#bf8700}.no{stroke:#cf222e;stroke-width:1.8;fill:none}\
.wait{stroke:#1a7f37;stroke-width:1;stroke-dasharray:2 2}.turn{fill:none;stroke:#1a7f37;stroke-width:1.5}\
.left{fill:none;stroke:#0969da;stroke-width:1.5}.area{fill:#0969da;fill-opacity:.12}.zero{stroke:#666}";

struct Canvas {
    starts: Timestamp,
    ends: Timestamp,
    svg: Svg,
}

impl Canvas {
    fn new(starts: Timestamp, ends: Timestamp) -> Self {
        Self { starts, ends, svg: Svg::new(WIDTH, HEIGHT) }
    }

    fn draw(mut self, recorder: &Recorder, title: &str) -> String {
        self.svg.rect((0.0, 0.0), (WIDTH, HEIGHT), "paper");
        self.svg.text((LEFT, 22.0), Anchor::Start, "title", title);
        self.time_axis();
        self.requests(recorder);
        self.level(&recorder.left);
        self.legend(recorder);
        self.svg.finish(title, STYLE)
    }

    fn x(&self, at: Timestamp) -> f64 {
        let whole = self.ends.since(self.starts).as_micros().max(1) as f64;
        LEFT + (RIGHT - LEFT) * (at.since(self.starts).as_micros() as f64 / whole)
    }

    fn time_axis(&mut self) {
        let whole = self.ends.since(self.starts);
        let step = tick_of(whole);
        // Trials usually start at zero; real timestamps are shown from the first request on.
        let absolute = self.ends.as_micros() < 2 * DAY;
        let base = if absolute {
            self.starts.as_micros().next_multiple_of(step)
        } else {
            self.starts.as_micros()
        };
        let mut at = base;
        while at <= self.ends.as_micros() {
            let x = self.x(Timestamp::from_micros(at));
            self.svg.line((x, REQUESTS.0), (x, LEVEL.1), "grid");
            let shown = if absolute { at } else { at - base };
            let prefix = if absolute { "" } else { "+" };
            let label = format!("{prefix}{}", tick_label(shown, step));
            self.svg.text((x, LEVEL.1 + 18.0), Anchor::Middle, "small", &label);
            at = at.saturating_add(step);
        }
        self.svg.line((LEFT, LEVEL.1), (RIGHT, LEVEL.1), "axis");
        self.svg.line((LEFT, REQUESTS.1), (RIGHT, REQUESTS.1), "axis");
    }

    fn requests(&mut self, recorder: &Recorder) {
        self.svg.text((LEFT, REQUESTS.0 - 6.0), Anchor::Start, "small", "requests");
        // A request occupies the lowest row that is free from its arrival to the end of its delay.
        let mut lines = [f64::MIN; LINES_MAX];
        for event in &recorder.events {
            let x = self.x(event.at);
            let turn = self.x(event.at.after(event.wait));
            let Some(line) = lines.iter().position(|end| end + DOT * 2.0 <= x) else {
                continue;
            };
            lines[line] = turn;
            let y = REQUESTS.1 - DOT - 3.0 - line as f64 * (DOT * 2.0 + 1.2);
            match event.kind {
                Kind::Denied => self.svg.cross((x, y), DOT - 0.5, "no"),
                Kind::Marked => self.svg.circle((x, y), DOT, "marked"),
                Kind::Admitted => self.svg.circle((x, y), DOT, "yes"),
            }
            if event.kind != Kind::Denied && !event.wait.is_zero() {
                self.svg.line((x + DOT, y), (turn - DOT, y), "wait");
                self.svg.circle((turn, y), DOT - 0.5, "turn");
            }
        }
    }

    fn level(&mut self, left: &[(Timestamp, i64)]) {
        self.svg.text((LEFT, LEVEL.0 - 6.0), Anchor::Start, "small", "left");
        let Some(max) = left.iter().map(|(_, left)| *left).max() else {
            self.svg.text((LEFT + 8.0, LEVEL.0 + 20.0), Anchor::Start, "small", "without a limit");
            return;
        };
        let least = left.iter().map(|(_, left)| *left).min().unwrap_or(0).min(0);
        let max = max.max(1);
        let height = (max - least).max(1) as f64;
        let y = |left: i64| LEVEL.1 - (LEVEL.1 - LEVEL.0) * ((left - least) as f64 / height);
        for value in [least, 0, max] {
            self.svg.text((LEFT - 6.0, y(value) + 4.0), Anchor::End, "small", &value.to_string());
        }
        if least < 0 {
            self.svg.line((LEFT, y(0)), (RIGHT, y(0)), "zero");
        }
        // Counts change in steps.
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, value) in left {
            let (x, y) = (self.x(*at), y(*value));
            if let Some((_, before)) = points.last().copied() {
                points.push((x, before));
            }
            points.push((x, y));
        }
        let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) else {
            return;
        };
        let mut area = points.clone();
        area.extend([(last.0, y(0)), (first.0, y(0))]);
        self.svg.polygon(&area, "area");
        self.svg.polyline(&points, "left");
    }

    fn legend(&mut self, recorder: &Recorder) {
        let count = |kind: Kind| recorder.events.iter().filter(|event| event.kind == kind).count();
        let y = HEIGHT - 14.0;
        self.svg.circle((LEFT + 4.0, y - 4.0), DOT, "yes");
        let admitted = format!("admitted {}", count(Kind::Admitted));
        self.svg.text((LEFT + 14.0, y), Anchor::Start, "small", &admitted);
        self.svg.cross((LEFT + 124.0, y - 4.0), DOT - 0.5, "no");
        let denied = format!("denied {}", count(Kind::Denied));
        self.svg.text((LEFT + 134.0, y), Anchor::Start, "small", &denied);
        if count(Kind::Marked) > 0 {
            self.svg.circle((LEFT + 224.0, y - 4.0), DOT, "marked");
            let marked = format!("above the limit {}", count(Kind::Marked));
            self.svg.text((LEFT + 234.0, y), Anchor::Start, "small", &marked);
        }
        if recorder.events.iter().any(|event| !event.wait.is_zero()) {
            self.svg.circle((LEFT + 374.0, y - 4.0), DOT - 0.5, "turn");
            self.svg.text((LEFT + 384.0, y), Anchor::Start, "small", "its turn after a wait");
        }
        if recorder.skipped > 0 {
            let skipped = format!("{} more not drawn", recorder.skipped);
            self.svg.text((RIGHT, y), Anchor::End, "small", &skipped);
        }
    }
}

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Distance of time ticks: about ten per plot, at round numbers.
fn tick_of(whole: Span) -> u64 {
    const ROUND: [u64; 31] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1_000,
        2_000,
        5_000,
        10_000,
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        300 * SECOND,
        600 * SECOND,
        1_800 * SECOND,
        3_600 * SECOND,
        6 * 3_600 * SECOND,
        DAY,
        7 * DAY,
    ];
    let wanted = whole.as_micros() / 11;
    let month = 30 * DAY;
    ROUND.into_iter().find(|tick| *tick > wanted).unwrap_or_else(|| (wanted / month + 1) * month)
}

/// A time on the axis, in the unit of the tick distance.
fn tick_label(us: u64, step: u64) -> String {
    let in_unit = |unit: u64, name: &str| {
        let tenths = us * 10 / unit;
        if tenths.is_multiple_of(10) {
            format!("{}{name}", tenths / 10)
        } else {
            format!("{}.{}{name}", tenths / 10, tenths % 10)
        }
    };
    if us == 0 {
        return "0".to_owned();
    }
    match step {
        _ if step >= DAY => in_unit(DAY, "d"),
        _ if step >= 3_600 * SECOND => in_unit(3_600 * SECOND, "h"),
        _ if step >= 30 * SECOND => in_unit(60 * SECOND, "min"),
        _ if step >= 100_000 => in_unit(SECOND, "s"),
        _ if step >= 100 => in_unit(1_000, "ms"),
        _ => in_unit(1, "µs"),
    }
}
