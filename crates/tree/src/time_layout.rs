//! How times are written in names: as a Go layout (`2006-01-02_15-04-05`), as in restic, or in the
//! way of `strftime` (`%Y-%m-%d`).

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Elements of Go layouts and what `strftime` calls them. Longer ones come before their beginnings.
const ELEMENTS: [(&str, &str); 36] = [
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("2006", "%Y"),
    ("-07:00:00", "%::z"),
    ("-07:00", "%:z"),
    ("-0700", "%z"),
    ("-07", "%:::z"),
    ("Z07:00:00", UTC_OR_OFFSET),
    ("Z07:00", UTC_OR_OFFSET),
    ("Z0700", UTC_OR_PLAIN_OFFSET),
    ("__2", "%j"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("_2", "%e"),
    ("PM", "%p"),
    ("pm", "%P"),
    (".000000000", ".%9f"),
    (".000000", ".%6f"),
    (".000", ".%3f"),
    (".999999999", "%.f"),
    (".999999", "%.6f"),
    (".999", "%.3f"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
];
/// Stand for `Z` in UTC, and else for the offset. No layout has these bytes.
const UTC_OR_OFFSET: &str = "\u{1}";
const UTC_OR_PLAIN_OFFSET: &str = "\u{2}";

/// A layout that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{layout:?} is no layout of a time: {reason}")]
pub struct BadLayout {
    layout: String,
    reason: String,
}

/// How times are written. See the module header.
#[derive(Debug, Clone)]
pub struct TimeLayout {
    format: String,
    zone: TimeZone,
}

impl TimeLayout {
    /// The layout that is used without another one, as in restic.
    pub const DEFAULT: &str = "2006-01-02T15:04:05Z07:00";

    /// Reads a layout. Times are those of this time zone.
    ///
    /// # Errors
    /// It has an unknown element, or its results could not be names.
    pub fn new(layout: &str, zone: TimeZone) -> Result<Self, BadLayout> {
        let bad = |reason: String| BadLayout { layout: layout.to_owned(), reason };
        let format = if layout.contains('%') { layout.to_owned() } else { of_go(layout) };
        let layout = Self { format, zone };
        let name = layout.try_show(0).map_err(|error| bad(error.to_string()))?;
        match name.as_str() {
            "" | "." | ".." => Err(bad("it gives no name".to_owned())),
            name if name.contains(['/', '\0']) => {
                Err(bad(format!("it gives {name:?}, and a name cannot have a slash")))
            }
            _ => Ok(layout),
        }
    }

    /// The name for a time, in milliseconds since the epoch.
    pub fn show(&self, unix_ms: u64) -> String {
        self.try_show(unix_ms).unwrap_or_else(|_| format!("@{unix_ms}"))
    }

    fn try_show(&self, unix_ms: u64) -> Result<String, jiff::Error> {
        let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(self.zone.clone());
        let format = self.format.replace(UTC_OR_OFFSET, offset(&time, "%:z"));
        let format = format.replace(UTC_OR_PLAIN_OFFSET, offset(&time, "%z"));
        jiff::fmt::strtime::format(format, &time)
    }
}

fn offset<'a>(time: &Zoned, otherwise: &'a str) -> &'a str {
    if time.offset().is_zero() { "Z" } else { otherwise }
}

/// A Go layout as `strftime` has it.
fn of_go(layout: &str) -> String {
    let (mut format, mut rest) = (String::new(), layout);
    while let Some(first) = rest.chars().next() {
        match ELEMENTS.iter().find(|(element, _)| rest.starts_with(element)) {
            Some((element, same)) => {
                format.push_str(same);
                rest = &rest[element.len()..];
            }
            None => {
                format.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    format
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-09-21 13:46:40.5 UTC.
    const TIME: u64 = 1_789_998_400_500;

    fn show(layout: &str, hours: i8) -> String {
        let zone = TimeZone::fixed(jiff::tz::offset(hours));
        TimeLayout::new(layout, zone).expect("a layout").show(TIME)
    }

    #[test]
    fn go_layouts_and_strftime_are_the_same() {
        assert_eq!(show(TimeLayout::DEFAULT, 0), "2026-09-21T13:46:40Z");
        assert_eq!(show(TimeLayout::DEFAULT, 2), "2026-09-21T15:46:40+02:00");
        assert_eq!(show("2006-01-02_15-04-05", 0), "2026-09-21_13-46-40");
        assert_eq!(show("%Y-%m-%d_%H-%M-%S", 0), "2026-09-21_13-46-40");
        assert_eq!(show("Mon Jan _2 3.04.05.000PM 06 -0700", -5), "Mon Sep 21 8.46.40.500AM 26 -0500");
        assert_eq!(show("2006Z0700", 1), "2026+0100");
        assert_eq!(show("at 5 o'clock", 0), "at 40 o'clock");
    }

    #[test]
    fn layouts_that_give_no_names_are_refused() {
        for bad in ["", "2006/01/02", "%Y/%m", "%", "..", "%K"] {
            assert!(TimeLayout::new(bad, TimeZone::UTC).is_err(), "{bad}");
        }
    }
}
