//! Draws a [`Picture`]: a row for each first snapshot, and a column (a volume) for each last one.
//! The active column is at the right. Below the columns is the size of each volume. Right of the
//! rows is the space that forgetting each snapshot alone frees.

use std::fmt::Write;

use larder_format::layout::Layout;
use larder_lifecycle::lifecycle_map::{Category, Last};

use super::{Picture, last_text, state};
use crate::{sizes, time};

/// Room for the names of rows.
const LEFT: f64 = 230.0;
/// Room for the title and the names of columns.
const TOP: f64 = 96.0;
/// Room for bars.
const BARS: f64 = 190.0;
/// Between the triangle and the active column, and between parts.
const GAP: f64 = 14.0;
/// Room for the legend.
const LEGEND: f64 = 64.0;
/// Approximate width of all cells together.
const GRID: f64 = 760.0;
const CELL_MIN: f64 = 9.0;
const CELL_MAX: f64 = 46.0;
/// Squares of at least this side have their size written into them.
const LABELED: f64 = 30.0;

/// Archived from light to dark, active likewise.
const ARCHIVED: [(u8, u8, u8); 2] = [(207, 222, 240), (23, 78, 138)];
const ACTIVE: [(u8, u8, u8); 2] = [(250, 221, 190), (201, 92, 16)];
const DEAD: &str = "#b9b9b9";
const STYLE: &str = "text{font:11px sans-serif;fill:#222}.t{font-size:16px;font-weight:600}.s{fill:#666}.e{text-anchor:end}\
.m{text-anchor:middle}.w{fill:#fff}.g{stroke:#e4e4e4;fill:none}.c{font-size:9px}";

/// The drawing as text.
pub(super) fn draw(picture: &Picture) -> String {
    Drawing::of(picture).draw()
}

struct Drawing<'a> {
    picture: &'a Picture,
    rows: Vec<u32>,
    columns: Vec<Last>,
    cell: f64,
    /// Most bytes of a category.
    most: u64,
    out: String,
}

impl<'a> Drawing<'a> {
    fn of(picture: &'a Picture) -> Self {
        let rows = picture.firsts();
        // Versions that are not the last of any category have a column too, so that the shape is a
        // triangle.
        let mut columns: Vec<Last> = rows.iter().map(|number| Last::Version(*number)).chain(picture.lasts()).collect();
        columns.sort_unstable();
        columns.dedup();
        let cell = (GRID / columns.len() as f64).clamp(CELL_MIN, CELL_MAX);
        let most = picture.triangle.values().map(|size| size.bytes.0).max().unwrap_or(0).max(1);
        Self { picture, rows, columns, cell, most, out: String::new() }
    }

    fn x(&self, column: usize) -> f64 {
        let gap = if self.columns[column] == Last::Open { GAP } else { 0.0 };
        LEFT + column as f64 * self.cell + gap
    }

    fn y(&self, row: usize) -> f64 {
        TOP + row as f64 * self.cell
    }

    fn right(&self) -> f64 {
        LEFT + self.columns.len() as f64 * self.cell + GAP
    }

    fn bottom(&self) -> f64 {
        self.y(self.rows.len())
    }

    fn draw(mut self) -> String {
        let (width, height) = (self.right() + GAP + BARS + 70.0, self.bottom() + GAP + BARS + LEGEND + 40.0);
        self.put(&format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}"><style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>"##
        ));
        let title = format!("{}: layout {}", self.picture.series, Layout::Lifecycle);
        self.text(GAP, 26.0, "t", &title);
        self.text(GAP, 44.0, "s", &self.picture.progress());
        self.axes();
        self.cells();
        self.volumes();
        self.free();
        self.legend();
        self.put("</svg>");
        self.out
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        self.put(&format!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{text}</text>"#));
    }

    fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, title: &str) {
        let title = escaped(title);
        self.put(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"><title>{title}</title></rect>"#
        ));
    }

    /// Names of rows and columns that fit.
    fn axes(&mut self) {
        let step = (13.0 / self.cell).ceil().max(1.0) as usize;
        self.text(LEFT - 8.0, TOP - 30.0, "s e", "first snapshot");
        self.text(LEFT, TOP - 30.0, "s", "last snapshot: a column is a volume");
        for row in (0..self.rows.len()).step_by(step) {
            let number = self.rows[row];
            let (name, class) = match self.picture.retained(number) {
                Some(shown) => {
                    (format!("{}   {}   {number}", shown.version.id.short(), time::show(shown.time_ms)), "e")
                }
                None => (format!("forgotten   {number}"), "s e"),
            };
            self.text(LEFT - 8.0, self.y(row) + self.cell / 2.0 + 4.0, class, &name);
        }
        let wide = (22.0 / self.cell).ceil().max(1.0) as usize;
        for column in 0..self.columns.len() {
            let last = self.columns[column];
            if last == Last::Open || column % wide == 0 {
                let class = if last == Last::Open { "m t c" } else { "m" };
                self.text(self.x(column) + self.cell / 2.0, TOP - 8.0, class, &last_text(last));
            }
        }
    }

    fn cells(&mut self) {
        let x = self.x(self.columns.len() - 1);
        self.rectangle(x, TOP, self.cell, self.bottom() - TOP, "#fff6ec", "what the newest snapshot uses");
        for row in 0..self.rows.len() {
            for column in 0..self.columns.len() {
                let category = Category { first: self.rows[row], last: self.columns[column] };
                if Last::Version(category.first) <= category.last {
                    let (x, y, cell) = (self.x(column), self.y(row), self.cell);
                    self.put(&format!(
                        r#"<rect x="{x:.1}" y="{y:.1}" width="{cell:.1}" height="{cell:.1}" class="g"/>"#
                    ));
                    self.category(category, x, y);
                }
            }
        }
    }

    /// A square whose area shows the bytes. Its color shows them too, for small squares.
    fn category(&mut self, category: Category, x: f64, y: f64) {
        let Some(size) = self.picture.triangle.get(&category).filter(|size| size.bytes.0 > 0) else { return };
        let share = size.bytes.0 as f64 / self.most as f64;
        let side = ((self.cell - 2.0) * share.sqrt()).max(2.0);
        let fill = match category.last {
            _ if size.needed.0 == 0 => DEAD.to_owned(),
            Last::Open => shade(ACTIVE, share),
            Last::Version(_) => shade(ARCHIVED, share),
        };
        let (bytes, needed) = (sizes::show(size.bytes.0), sizes::show(size.needed.0));
        let (first, last) = (category.first, last_text(category.last));
        let title = format!(
            "first {first}, last {last}: {bytes}, of which {needed} are needed, in {} of {}",
            sizes::count(size.extents, "extent"),
            sizes::count(size.containers, "container")
        );
        let inset = (self.cell - side) / 2.0;
        self.rectangle(x + inset, y + inset, side, side, &fill, &title);
        if side >= LABELED {
            let class = if share > 0.4 { "m c w" } else { "m c" };
            self.text(x + self.cell / 2.0, y + self.cell / 2.0 + 3.0, class, &short(size.bytes.0));
        }
    }

    /// Below each column the size of its volume, and its needed part.
    fn volumes(&mut self) {
        let top = self.bottom() + GAP;
        let most = self.picture.volumes.values().map(|volume| volume.object_bytes.0).max().unwrap_or(0).max(1);
        self.text(LEFT - 8.0, top + 10.0, "e", "bytes stored of each volume");
        self.text(LEFT - 8.0, top + 26.0, "s e", "gray: needed by nobody");
        let height = BARS - 60.0;
        for column in 0..self.columns.len() {
            let last = self.columns[column];
            let Some(volume) = self.picture.volumes.get(&last) else { continue };
            let (x, width) = (self.x(column) + 1.0, self.cell - 2.0);
            let whole = (height * volume.object_bytes.0 as f64 / most as f64).max(1.0);
            let needed = whole * volume.needed.0 as f64 / volume.bytes.0.max(1) as f64;
            let name = last_text(last);
            let (bytes, containers) =
                (sizes::show(volume.object_bytes.0), sizes::count(volume.containers, "container"));
            let title = format!("volume {name}: {bytes} in {containers}");
            let fill = shade(if last == Last::Open { ACTIVE } else { ARCHIVED }, 0.7);
            self.rectangle(x, top, width, whole, DEAD, &title);
            self.rectangle(x, top, width, needed, &fill, &title);
            if self.cell >= LABELED {
                self.text(x + width / 2.0, top + whole + 12.0, "m c", &short(volume.object_bytes.0));
            }
        }
    }

    /// Right of each row the space that forgetting its snapshot alone frees.
    fn free(&mut self) {
        let left = self.right() + GAP;
        let freed = |row: u32| self.picture.retained(row).and_then(|shown| Some((shown, shown.freed?)));
        let most = self.rows.iter().filter_map(|row| freed(*row)).map(|(_, (bytes, _))| bytes).max();
        let most = most.unwrap_or(0).max(1);
        self.text(left, TOP - 30.0, "s", "free when it alone is forgotten");
        for row in 0..self.rows.len() {
            let Some((shown, (bytes, data))) = freed(self.rows[row]) else { continue };
            let (y, height) = (self.y(row) + self.cell * 0.2, self.cell * 0.6);
            let width = BARS * bytes as f64 / most as f64;
            let title = format!(
                "{} ({}): {}, {} of data",
                shown.version.id.short(),
                state(shown.version.progress),
                sizes::show(bytes),
                sizes::count(data.containers, "container")
            );
            self.rectangle(left, y, width, height, "#4c9a6a", &title);
            if self.cell >= 12.0 {
                self.text(left + width + 5.0, self.y(row) + self.cell / 2.0 + 4.0, "c", &sizes::show(bytes));
            }
        }
    }

    fn legend(&mut self) {
        let y = self.bottom() + GAP + BARS;
        let most = sizes::show(self.most);
        let parts = [
            (shade(ARCHIVED, 0.0), shade(ARCHIVED, 1.0), "archived: the newest snapshot does not use it"),
            (shade(ACTIVE, 0.0), shade(ACTIVE, 1.0), "active: the newest snapshot uses it"),
            (DEAD.to_owned(), DEAD.to_owned(), "needed by no snapshot, not removed yet"),
        ];
        for (line, (light, dark, text)) in parts.into_iter().enumerate() {
            let y = y + line as f64 * 18.0;
            self.rectangle(LEFT, y, 12.0, 12.0, &light, text);
            self.rectangle(LEFT + 14.0, y, 12.0, 12.0, &dark, text);
            self.text(LEFT + 34.0, y + 10.0, "", text);
        }
        let text = format!("The area of a square and its color stand for bytes, uncompressed; a full cell is {most}.");
        self.text(LEFT, y + 3.0 * 18.0 + 12.0, "s", &text);
    }
}

/// A color between two.
fn shade([light, dark]: [(u8, u8, u8); 2], share: f64) -> String {
    let mut text = String::from("#");
    for (a, b) in [(light.0, dark.0), (light.1, dark.1), (light.2, dark.2)] {
        let value = f64::from(a) + (f64::from(b) - f64::from(a)) * share.clamp(0.0, 1.0);
        // Writing to a string does not fail.
        let _ = write!(text, "{:02x}", value as u8);
    }
    text
}

/// A size that fits into a square.
fn short(bytes: u64) -> String {
    let text = sizes::show(bytes);
    match text.split_once(' ') {
        Some((number, unit)) => format!("{}{}", number.trim_end_matches(".0"), &unit[..1]),
        None => text,
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::layout::Shown;
    use larder_format::ids::{ByteCount, JobId};
    use larder_lifecycle::lifecycle_map::{CategorizedVersion, CategorySize, Freed, Progress};

    /// Some versions; every second one is retained.
    pub(super) fn picture(newest: u32) -> Picture {
        let mut picture = Picture {
            series: "<&\"host\":/\u{1}".to_owned(),
            index: 7,
            versions: Vec::new(),
            triangle: Default::default(),
            volumes: Default::default(),
            needs_rebuild: false,
        };
        for first in 1..=newest {
            if first % 2 == 1 || first == newest {
                let progress = if first == newest { Progress::Ingested } else { Progress::Arranged };
                let id = JobId([first as u8; 16]);
                let bytes = ByteCount(u64::from(first) * 70_000);
                let freed = Freed { bytes, containers: 1, object_bytes: bytes };
                let version = CategorizedVersion { id, number: first, progress };
                let freed = Some((bytes.0, freed));
                picture.versions.push(Shown { version, time_ms: 1_790_000_000_000, skip_permille: None, freed });
            }
            for last in (first..newest).map(Last::Version).chain([Last::Open]) {
                let age = match last {
                    Last::Version(last) => last - first + 2,
                    Last::Open => 1,
                };
                let bytes = ByteCount(90_000_000 / u64::from(age * age) * u64::from(first % 3 + 1));
                let needed = if age == 3 { ByteCount(0) } else { bytes };
                let size = CategorySize { bytes, needed, extents: 3, containers: 2 };
                picture.triangle.insert(Category { first, last }, size);
                let volume = picture.volumes.entry(last).or_default();
                volume.containers += 2;
                volume.bytes.0 += bytes.0;
                volume.object_bytes.0 += bytes.0 / 2;
                volume.needed.0 += needed.0;
            }
        }
        picture
    }

    #[test]
    fn a_drawing_has_every_category_and_nothing_of_a_name_that_is_markup() {
        let picture = picture(9);
        let text = draw(&picture);
        assert_eq!(text.matches("<title>first ").count(), picture.triangle.len());
        assert_eq!(text.matches("<title>volume ").count(), 2 * picture.volumes.len());
        assert!(text.contains("&lt;&amp;&quot;host&quot;:/\u{fffd}") && !text.contains("\u{1}"));
        let opened = text.matches("<rect").count();
        assert_eq!(opened, text.matches("</rect>").count() + text.matches("class=\"g\"/>").count() + 1);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn a_drawing_of_nothing_and_of_very_much_is_one() {
        let empty = Picture { triangle: Default::default(), volumes: Default::default(), ..picture(1) };
        for picture in [empty, picture(100)] {
            let text = draw(&picture);
            assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"));
        }
    }

    #[test]
    fn sizes_fit_into_squares() {
        assert_eq!([short(12), short(2048), short(123_456_789)], ["12B", "2K", "117.7M"]);
    }
}
