//! Minimal SVG writer.

use std::fmt::Write;

/// An SVG under construction; coordinates in pixels from the top left.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Alignment of text relative to its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

// === impl Svg ===

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"/>"#
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    pub(crate) fn circle(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        self.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" class="{class}"/>"#));
    }

    pub(crate) fn cross(&mut self, (x, y): (f64, f64), arm: f64, class: &str) {
        let (left, right, top, bottom) = (x - arm, x + arm, y - arm, y + arm);
        self.add(format_args!(
            r#"<path d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}" class="{class}"/>"#
        ));
    }

    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], class: &str) {
        self.points("polygon", points, class);
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        self.points("polyline", points, class);
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// The document, with a title for screen readers.
    pub(crate) fn finish(self, title: &str, style: &str) -> String {
        let Self { width, height, body } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{style}</style>\n{body}</svg>\n"
        )
    }

    fn points(&mut self, shape: &str, points: &[(f64, f64)], class: &str) {
        let mut list = String::new();
        for (x, y) in points {
            // Writing to a string cannot fail.
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        let list = list.trim_end();
        self.add(format_args!(r#"<{shape} points="{list}" class="{class}"/>"#));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}");
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML does not allow control characters.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_contains_cannot_leave_its_text() {
        assert_eq!(escaped("</text><script>&\"\u{7}"), "&lt;/text&gt;&lt;script&gt;&amp;&quot; ");
    }
}
