//! SVG plots: lines over a numeric axis, and stacked bars. One file each, readable without a style sheet, on a light background.

use std::fmt::Write as _;

/// A picture's outer size and the frame inside it (pixels).
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 206.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 60.0;

/// Colours that differ for colour-blind eyes too, each with a dash pattern and a marker so that colour is not needed.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6a6a00", "#56b4e9", "#8c510a", "#333333"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// A named line: points of x and y, ascending in x.
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line through these points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().collect() }
    }
}

/// How places along the x axis are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// As they are.
    Linear,
    /// Each doubling is one step.
    Doubling,
}

/// Where the y axis begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// At zero.
    Zero,
    /// A little below the least value.
    Data,
}

/// What a plot says besides its data; units belong into the labels.
pub struct Labels<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Along the x axis.
    pub x: &'a str,
    /// Along the y axis.
    pub y: &'a str,
}

/// Lines with a marker at every point.
#[must_use]
pub fn lines(labels: &Labels<'_>, axis: Axis, floor: Floor, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let mut xs: Vec<f64> = all().map(|(x, _)| *x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let along = |x: f64| if axis == Axis::Doubling { x.max(f64::MIN_POSITIVE).log2() } else { x };
    let (first, last) = (along(xs.first().copied().unwrap_or(0.0)), along(xs.last().copied().unwrap_or(1.0)));
    let span = if last > first { last - first } else { 1.0 };
    let most = all().map(|(_, y)| *y).fold(0.0, f64::max);
    let least = all().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let from = if floor == Floor::Zero || !least.is_finite() { 0.0 } else { least - (most - least) * 0.1 };
    let scale = Scale::new(from, most);
    let place = |x: f64| LEFT + (along(x) - first) / span * (WIDTH - LEFT - RIGHT);
    let mut svg = frame(labels, &scale);
    let shown = if xs.len() > 13 { xs.len().div_ceil(13) } else { 1 };
    for x in xs.iter().step_by(shown) {
        let at = place(*x);
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="#444"/>"##,
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 5.0
        );
        text(&mut svg, at, HEIGHT - BOTTOM + 20.0, "middle", &number(*x));
    }
    for (index, line) in lines.iter().enumerate() {
        let (colour, dash) = (COLOURS[index % COLOURS.len()], DASHES[index / 2 % DASHES.len()]);
        let mut draw = |points: &[(f64, f64)], marked: &[(f64, f64)]| {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>"#,
                path.join(" ")
            );
            for (x, y) in marked {
                marker(&mut svg, index, *x, *y, colour);
            }
        };
        let points: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (place(*x), scale.y(*y))).collect();
        draw(&points, &points);
        // The legend.
        let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + index as f64 * 20.0);
        draw(&[(x, y), (x + 26.0, y)], &[(x + 13.0, y)]);
        text(&mut svg, x + 32.0, y + 4.0, "start", &line.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Bars that are made of parts, one above the other; every bar has a value for every part.
#[must_use]
pub fn bars(labels: &Labels<'_>, parts: &[&str], bars: &[(String, Vec<f64>)]) -> String {
    let most = bars.iter().map(|(_, values)| values.iter().sum::<f64>()).fold(0.0, f64::max);
    let scale = Scale::new(0.0, most);
    let mut svg = frame(labels, &scale);
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (index, (name, values)) in bars.iter().enumerate() {
        let x = LEFT + step * (index as f64 + 0.15);
        let mut sum = 0.0;
        for (part, value) in values.iter().enumerate() {
            let (top, bottom) = (scale.y(sum + value), scale.y(sum));
            let (colour, width, height) = (COLOURS[part % COLOURS.len()], step * 0.7, bottom - top);
            let _ = writeln!(
                svg,
                r#"<rect x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
            );
            sum += value;
        }
        for (line, word) in name.split('\n').enumerate() {
            text(&mut svg, x + step * 0.35, HEIGHT - BOTTOM + 16.0 + 13.0 * line as f64, "middle", word);
        }
    }
    for (part, name) in parts.iter().enumerate() {
        let at = TOP + 4.0 + part as f64 * 20.0;
        let (x, colour) = (WIDTH - RIGHT + 14.0, COLOURS[part % COLOURS.len()]);
        let _ = writeln!(svg, r#"<rect x="{x}" y="{at}" width="14" height="14" fill="{colour}"/>"#);
        text(&mut svg, x + 22.0, at + 12.0, "start", name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The y axis: from, to, and the distance of its marks.
struct Scale {
    from: f64,
    to: f64,
    step: f64,
}

impl Scale {
    fn new(from: f64, most: f64) -> Self {
        let range = if most > from { most - from } else { 1.0 };
        let power = 10_f64.powf((range / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| range / step <= 6.0);
        let step = step.unwrap_or(range);
        Self { from: (from / step).floor() * step, to: (most / step).ceil() * step, step }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from).max(f64::MIN_POSITIVE);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// Background, title, axes with their labels, and the marks of the y axis.
fn frame(labels: &Labels<'_>, scale: &Scale) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#222">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fdfdfb"/>
<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{}</text>
"##,
        escape(labels.title)
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let marks = ((scale.to - scale.from) / scale.step).round() as usize;
    for mark in 0..=marks {
        let value = scale.from + scale.step * mark as f64;
        let at = scale.y(value);
        let _ = writeln!(svg, r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#ddd"/>"##);
        text(&mut svg, LEFT - 8.0, at + 4.0, "end", &number(value));
    }
    let _ = writeln!(svg, r##"<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#444"/>"##);
    text(&mut svg, f64::midpoint(LEFT, right), HEIGHT - 10.0, "middle", labels.x);
    let middle = f64::midpoint(TOP, bottom);
    let _ = writeln!(
        svg,
        r#"<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
        escape(labels.y)
    );
    svg
}

fn marker(svg: &mut String, index: usize, x: f64, y: f64, colour: &str) {
    let _ = match index % 4 {
        0 => writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#),
        1 => writeln!(svg, r#"<rect x="{:.1}" y="{:.1}" width="7" height="7" fill="{colour}"/>"#, x - 3.5, y - 3.5),
        2 => writeln!(svg, r#"<path d="M{x:.1} {:.1}l4.5 8h-9z" fill="{colour}"/>"#, y - 5.0),
        _ => writeln!(
            svg,
            r##"<path d="M{x:.1} {:.1}l5 5l-5 5l-5 -5z" fill="#fdfdfb" stroke="{colour}" stroke-width="2"/>"##,
            y - 5.0
        ),
    };
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escape(words));
}

/// As few digits as say it.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Well-formed as far as a small look can tell: every element is closed, every number is one.
    #[test]
    fn plots_are_whole_documents() {
        let labels = Labels { title: "a < b", x: "x (KiB)", y: "y (MB/s)" };
        let some = [Line::new("one", [(4.0, 1.0), (8.0, 0.5)]), Line::new("none", [])];
        let bar = [("a\nb".to_owned(), vec![1.0, 2.0])];
        for svg in [
            lines(&labels, Axis::Doubling, Floor::Data, &some),
            lines(&labels, Axis::Linear, Floor::Zero, &[]),
            bars(&labels, &["p", "q"], &bar),
        ] {
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("a &lt; b"));
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }

    #[test]
    fn marks_are_round_and_cover_the_data() {
        for most in [0.003, 0.9, 7.0, 155.0, 9102.0] {
            let scale = Scale::new(0.0, most);
            assert!(scale.to >= most && scale.to <= most * 2.0 + scale.step);
            let marks = scale.to / scale.step;
            assert!((2.0..=7.0).contains(&marks), "{most}: {marks} marks");
        }
    }
}
