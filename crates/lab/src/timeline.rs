//! SVG plot of a trial: requests, decisions and remaining quota.
//!
//! The upper part has one mark per request: a dot if admitted, with a tail up to the end of its
//! delay, or a cross if denied. The lower part shows the remaining quota, sampled between requests
//! too, so that the refill is visible.

use std::ops::Range;

use sluicegate_core::time::{Span, Timestamp};

use sluicegate_plot::plotters::coord::CoordTranslate;
use sluicegate_plot::plotters::prelude::{
    AreaSeries, Circle, Color as _, Cross, DrawingArea, LineSeries, PathElement, SVGBackend, Text,
    WHITE,
};
use sluicegate_plot::{
    AMBER, Area, BLUE, Drawn, GREEN, INK, PALE, RED, chart, stroke, style, svg, text,
};

use crate::answer::TrialAnswer;
use crate::line::{Line, ScriptOp};
use crate::trial::Trial;

/// Maximum number of drawn requests.
pub const EVENTS_MAX: usize = 5_000;
/// Samples of the remaining quota between two requests.
const SAMPLES: u64 = 48;
/// Divisor of the time range drawn after the last request.
const TAIL: u64 = 12;

const HEIGHT: u32 = 394;
const REQUESTS_HEIGHT: u32 = 98;
const REMAINING_HEIGHT: u32 = 232;
const Y_LABELS: u32 = 50;
const LEGEND_LEFT: i32 = 72;
/// Rows of requests; a request without a free row is not drawn.
const ROWS: usize = 10;
/// Radius of a request, in pixels.
const DOT: i32 = 4;

type Canvas<'a, CT> = DrawingArea<SVGBackend<'a>, CT>;

/// Records the events of a trial for drawing.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    key: Option<String>,
    events: Vec<Event>,
    remaining: Vec<(Timestamp, i64)>,
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

impl Recorder {
    /// Samples the trial before a line is executed.
    pub fn before(&mut self, trial: &Trial, line: &Line) {
        let key = self.key.get_or_insert_with(|| line.key.clone()).clone();
        let Some((last, _)) = self.remaining.last().copied() else {
            return;
        };
        self.sample(trial, &key, last, line.at);
    }

    /// Records a line and its answer.
    pub fn after(&mut self, trial: &Trial, line: &Line, answer: &TrialAnswer) {
        let key = self.key.clone().unwrap_or_default();
        self.record(line.at, trial.remaining_at(&key, line.at));
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

    /// Draws the recorded events as SVG.
    ///
    /// # Errors
    /// When the plotting library fails.
    pub fn draw(mut self, trial: &Trial, title: &str) -> Result<String, String> {
        let arrivals = self.events.iter().map(|event| event.at);
        let ends = self.events.iter().map(|event| event.at.after(event.wait));
        let samples = self.remaining.iter().map(|(at, _)| *at);
        let start = arrivals.chain(samples.clone()).min().unwrap_or_default();
        let end = ends.chain(samples).max().unwrap_or_default();
        let tail = Span::from_micros((end.since(start).as_micros() / TAIL).max(1));
        let end = end.after(tail);
        if let (Some(key), Some((from, _))) = (self.key.clone(), self.remaining.last().copied()) {
            self.sample(trial, &key, from, end);
        }
        let axis = TimeAxis::new(start, end);
        svg(title, HEIGHT, |area| {
            let (upper, lower) = area.split_vertically(REQUESTS_HEIGHT);
            let (lower, legend) = lower.split_vertically(REMAINING_HEIGHT);
            self.draw_requests(&axis, &upper)?;
            self.draw_remaining(&axis, &lower)?;
            self.draw_legend(&legend)
        })
    }

    fn draw_requests(&self, axis: &TimeAxis, area: &Area<'_>) -> Drawn {
        let rows = 0.0..ROWS as f64;
        let mut chart =
            chart(area, Y_LABELS).x_label_area_size(0).build_cartesian_2d(axis.range(), rows)?;
        style(&mut chart.configure_mesh())
            .disable_y_mesh()
            .y_labels(0)
            .y_desc("requests")
            .draw()?;
        let plot = chart.plotting_area();
        // A request occupies the lowest row that is free from its arrival to the end of its delay.
        let mut occupied = [i32::MIN; ROWS];
        for event in &self.events {
            let (x, turn) = (axis.x(event.at), axis.x(event.at.after(event.wait)));
            let pixel = |x| plot.map_coordinate(&(x, 0.0)).0;
            let Some(row) = occupied.iter().position(|end| *end <= pixel(x) - 2 * DOT) else {
                continue;
            };
            occupied[row] = pixel(turn);
            let y = row as f64 + 0.5;
            if event.kind != Kind::Denied && !event.wait.is_zero() {
                plot.draw(&PathElement::new([(x, y), (turn, y)], GREEN.mix(0.5)))?;
                draw_turn(plot, (turn, y))?;
            }
            event.kind.draw(plot, (x, y))?;
        }
        Ok(())
    }

    fn draw_remaining(&self, axis: &TimeAxis, area: &Area<'_>) -> Drawn {
        let values = || self.remaining.iter().map(|(_, value)| *value as f64);
        let (min, max) = (values().fold(0.0, f64::min), values().fold(1.0, f64::max));
        let mut chart = chart(area, Y_LABELS).build_cartesian_2d(axis.range(), min..max)?;
        style(&mut chart.configure_mesh())
            .x_desc(axis.description())
            .y_desc("remaining")
            .y_labels(5)
            .y_label_formatter(&|y| if y.fract() == 0.0 { y.to_string() } else { String::new() })
            .x_label_formatter(&|x| ((x * 1e6).round() / 1e6).to_string())
            .draw()?;
        if self.remaining.is_empty() {
            let (x, y) = chart.plotting_area().get_pixel_range();
            area.draw(&Text::new("without a limit", (x.start + 8, y.start - 50), text(&PALE)))?;
        }
        // Counts change in steps.
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, value) in &self.remaining {
            let x = axis.x(*at);
            points.extend(points.last().map(|(_, before)| (x, *before)));
            points.push((x, *value as f64));
        }
        chart.draw_series(AreaSeries::new(points.iter().copied(), 0.0, BLUE.mix(0.12)))?;
        chart.draw_series(LineSeries::new(points, stroke(BLUE)))?;
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let mut x = LEGEND_LEFT;
        let mut label = |words: &str, symbol: &dyn Fn((i32, i32)) -> Drawn| -> Drawn {
            symbol((x, 14))?;
            area.draw(&Text::new(words.to_owned(), (x + 10, 7), text(&INK)))?;
            x += 40 + area.estimate_text_size(words, &text(&INK))?.0 as i32;
            Ok(())
        };
        for (kind, name) in [
            (Kind::Admitted, "admitted"),
            (Kind::Denied, "denied"),
            (Kind::Marked, "above the limit"),
        ] {
            let count = self.events.iter().filter(|event| event.kind == kind).count();
            if count > 0 || kind != Kind::Marked {
                label(&format!("{name} {count}"), &|at| kind.draw(area, at))?;
            }
        }
        if self.events.iter().any(|event| !event.wait.is_zero()) {
            label("end of its delay", &|at| draw_turn(area, at))?;
        }
        if self.skipped > 0 {
            label(&format!("{} more not drawn", self.skipped), &|_| Ok(()))?;
        }
        Ok(())
    }

    fn sample(&mut self, trial: &Trial, key: &str, from: Timestamp, to: Timestamp) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        let gap = to.since(from).as_micros();
        for sample in 1..SAMPLES {
            let at = from.after(Span::from_micros(gap / SAMPLES * sample));
            if at > from && at < to {
                self.record(at, trial.remaining_at(key, at));
            }
        }
        self.record(to, trial.remaining_at(key, to));
    }

    fn record(&mut self, at: Timestamp, remaining: Option<i64>) {
        let Some(remaining) = remaining else { return };
        // Only the last sample before a change matters.
        if let [.., (_, before), (last, same)] = self.remaining.as_mut_slice()
            && *before == remaining
            && *same == remaining
        {
            *last = at;
            return;
        }
        self.remaining.push((at, remaining));
    }
}

impl Kind {
    fn draw<CT: CoordTranslate>(self, area: &Canvas<'_, CT>, at: CT::From) -> Drawn {
        match self {
            Self::Admitted => area.draw(&Circle::new(at, DOT, GREEN.filled()))?,
            Self::Marked => area.draw(&Circle::new(at, DOT, AMBER.filled()))?,
            Self::Denied => area.draw(&Cross::new(at, DOT - 1, stroke(RED)))?,
        }
        Ok(())
    }
}

/// A ring at the end of a delay.
fn draw_turn<CT: CoordTranslate>(area: &Canvas<'_, CT>, at: CT::From) -> Drawn
where
    CT::From: Clone,
{
    area.draw(&Circle::new(at.clone(), DOT - 1, WHITE.filled()))?;
    area.draw(&Circle::new(at, DOT - 1, stroke(GREEN)))?;
    Ok(())
}

/// The time axis: from the epoch of a trial, or from the first request if that is a real time.
struct TimeAxis {
    origin: Timestamp,
    unit: (&'static str, u64),
    start: Timestamp,
    end: Timestamp,
}

impl TimeAxis {
    fn new(start: Timestamp, end: Timestamp) -> Self {
        const SECOND: u64 = 1_000_000;
        const DAY: u64 = 86_400 * SECOND;
        const UNITS: [(&str, u64); 6] = [
            ("days", DAY),
            ("hours", 3_600 * SECOND),
            ("minutes", 60 * SECOND),
            ("seconds", SECOND),
            ("milliseconds", 1_000),
            ("microseconds", 1),
        ];
        let length = end.since(start).as_micros();
        let unit = UNITS.into_iter().find(|(_, unit)| length >= 2 * unit).unwrap_or(UNITS[5]);
        let origin = if end.as_micros() < 2 * DAY { Timestamp::EPOCH } else { start };
        Self { origin, unit, start, end }
    }

    fn x(&self, at: Timestamp) -> f64 {
        at.since(self.origin).as_micros() as f64 / self.unit.1 as f64
    }

    fn range(&self) -> Range<f64> {
        self.x(self.start)..self.x(self.end)
    }

    fn description(&self) -> String {
        let since = if self.origin == Timestamp::EPOCH { "" } else { " since the first request" };
        format!("{}{since}", self.unit.0)
    }
}
