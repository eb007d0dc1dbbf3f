//! A picture: how long an answer takes, and how much too much or too little passes for it.
//!
//! Each case is a line from p50 to p99 with a mark at p50: round with the first number of services, square with others. Names stand where there is room.

use std::error::Error;

use anyhow::anyhow;
use plotters::chart::ChartBuilder;
use plotters::prelude::{
    Circle, Color as _, IntoDrawingArea as _, IntoFont as _, IntoLogRange as _, PathElement,
    RGBColor, Rectangle, SVGBackend, Text, WHITE,
};

use crate::args::Args;
use crate::case::Level;
use crate::report::Row;

const SIZE: (u32, u32) = (760, 480);
const INK: RGBColor = RGBColor(51, 51, 51);
const PALE: RGBColor = RGBColor(102, 102, 102);
const GRID: RGBColor = RGBColor(230, 230, 230);
const BLUE: RGBColor = RGBColor(9, 105, 218);
const TEAL: RGBColor = RGBColor(17, 138, 152);
const RED: RGBColor = RGBColor(207, 34, 46);
const GREEN: RGBColor = RGBColor(26, 127, 55);
const AMBER: RGBColor = RGBColor(191, 135, 0);
const FONT: &str = "system-ui, sans-serif";
const LETTERS: i32 = 13;

/// Draws all cases, as SVG.
pub(crate) fn picture(rows: &[Row], args: &Args) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(rows, args, &mut svg).map_err(|error| anyhow!("the picture cannot be drawn: {error}"))?;
    Ok(svg)
}

/// One case.
struct Mark {
    name: String,
    color: RGBColor,
    is_first: bool,
    p50: f64,
    p99: f64,
    /// Above the limit, or below it.
    off: f64,
}

fn draw(rows: &[Row], args: &Args, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let first = rows.first().map(|row| row.case.nodes);
    let marks: Vec<Mark> = rows.iter().map(|row| mark(row, first)).collect();
    let fold = |number: fn(&Mark) -> f64, start, of: fn(f64, f64) -> f64| {
        marks.iter().map(number).fold(start, of)
    };
    let left = 10f64.powf(fold(|mark| mark.p50, f64::MAX, f64::min).log10().floor());
    // Names need some room to the right.
    let right = fold(|mark| mark.p99, 1.0, f64::max) * 4.0;
    let top = fold(|mark| mark.off, 5.0, f64::max) * 1.25;
    let bottom = fold(|mark| mark.off, -5.0, f64::min) * 1.25;

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("One hot key, {} requests/s, twice its limit", args.rate);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 19, &INK))
        .margin_left(18)
        .margin_right(24)
        .margin_top(8)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d((left..right).log_scale(), bottom..top)?;
    chart
        .configure_mesh()
        .axis_style(PALE)
        .bold_line_style(GRID)
        .max_light_lines(0)
        .label_style((FONT, 14, &PALE))
        .axis_desc_style((FONT, 14, &INK))
        .x_desc("how long an answer takes: p50 (mark) to p99 (end of the line)")
        .y_desc("too little | too much passed, % of the limit")
        .x_label_formatter(&|us| time(*us))
        .y_label_formatter(&|off| {
            if *off == 0.0 { "0 %".to_owned() } else { format!("{off:+.0} %") }
        })
        .draw()?;
    let zero = PathElement::new([(left, 0.0), (right, 0.0)], INK.stroke_width(1));
    chart.draw_series([zero])?;
    for mark in &marks {
        let line = [(mark.p50, mark.off), (mark.p99.max(mark.p50), mark.off)];
        chart.draw_series([PathElement::new(line, mark.color.mix(0.45).stroke_width(2))])?;
    }
    // No name lies on a line.
    let line = |mark: &Mark| {
        let [from, to] =
            [mark.p50, mark.p99.max(mark.p50)].map(|x| chart.backend_coord(&(x, mark.off)));
        [from.0 - 5, from.1 - 5, to.0 - from.0 + 5, 10]
    };
    let mut taken: Vec<[i32; 4]> = marks.iter().map(line).collect();
    for mark in &marks {
        let (x, y) = chart.backend_coord(&(mark.p50, mark.off));
        if mark.is_first {
            root.draw(&Circle::new((x, y), 5, mark.color.filled()))?;
        } else {
            root.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], mark.color.filled()))?;
        }
        let at = free(&mut taken, (x, y), mark.name.chars().count());
        if (at.1 - y).abs() > 2 * LETTERS {
            let reach = if at.1 > y { at.1 } else { at.1 + LETTERS };
            root.draw(&PathElement::new(
                [(x, y), (at.0, reach)],
                mark.color.mix(0.35).stroke_width(1),
            ))?;
        }
        let font = (FONT, LETTERS).into_font().color(&mark.color);
        root.draw(&Text::new(mark.name.clone(), at, font))?;
    }
    root.present()?;
    Ok(())
}

fn mark(row: &Row, first: Option<u32>) -> Mark {
    let color = match row.case.level {
        Level::Strict => INK,
        Level::Leased => GREEN,
        Level::LeasedKilled => AMBER,
        Level::Eventual(..50) => TEAL,
        Level::Eventual(..250) => BLUE,
        Level::Eventual(_) => RED,
    };
    Mark {
        name: row.case.to_string(),
        color,
        is_first: Some(row.case.nodes) == first,
        p50: row.median(|reading| reading.p50_us).max(1.0),
        p99: row.median(|reading| reading.p99_us).max(1.0),
        off: row.median(|reading| reading.over - reading.under),
    }
}

/// A place for a name near a mark that no other name has: as few lines above or below as there must be.
fn free(taken: &mut Vec<[i32; 4]>, (x, y): (i32, i32), letters: usize) -> (i32, i32) {
    let width = i32::try_from(letters).unwrap_or(0) * LETTERS * 11 / 20;
    let lines = (1..20).flat_map(|line| [-line, line]);
    let left = (x + 8).min(SIZE.0 as i32 - width - 24);
    let place = |line: i32| [left, y - LETTERS / 2 + line * (LETTERS - 1), width, LETTERS];
    let is_free = |place: &[i32; 4]| !taken.iter().any(|other| overlap(place, other));
    let found = lines.map(place).find(is_free).unwrap_or_else(|| place(0));
    taken.push(found);
    (found[0], found[1])
}

fn overlap(one: &[i32; 4], other: &[i32; 4]) -> bool {
    let apart = |at: usize, size: usize| {
        one[at] + one[size] <= other[at] || other[at] + other[size] <= one[at]
    };
    !apart(0, 2) && !apart(1, 3)
}

fn time(us: f64) -> String {
    match us {
        _ if us < 1_000.0 => format!("{us:.0} µs"),
        _ if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.0} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_cover_each_other() {
        let mut taken = Vec::new();
        for _ in 0..8 {
            free(&mut taken, (300, 200), 20);
        }
        for (place, one) in taken.iter().enumerate() {
            assert!(taken[..place].iter().all(|other| !overlap(one, other)), "{taken:?}");
        }
    }
}
