//! Parses and formats points in time and durations.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
pub(crate) use larder_profile::duration::{parse_duration, parse_limit};

fn zoned(unix_ms: u64) -> Zoned {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    // A damaged or absurd time is shown as the maximum, not hidden.
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::system())
}

/// Local time for tables: `2026-01-02 15:04:05`.
pub(crate) fn show(unix_ms: u64) -> String {
    zoned(unix_ms).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Local day: `2026-01-02`.
pub(crate) fn show_day(unix_ms: u64) -> String {
    zoned(unix_ms).strftime("%Y-%m-%d").to_string()
}

/// Local time of a file for long listings.
pub(crate) fn show_file_time(time: larder_format::entry::Timestamp) -> String {
    match file_time(time) {
        Some(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => format!("@{}", time.seconds),
    }
}

/// RFC 3339 with the local offset, for JSON.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    rfc3339_of(&zoned(unix_ms))
}

/// RFC 3339 of a file's time, with its full precision.
pub(crate) fn rfc3339_file_time(time: larder_format::entry::Timestamp) -> Option<String> {
    file_time(time).map(|time| rfc3339_of(&time.to_zoned(TimeZone::system())))
}

/// UTC without separators, for names: `20260102T150405Z`.
pub(crate) fn compact(unix_ms: u64) -> String {
    zoned(unix_ms).timestamp().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn file_time(time: larder_format::entry::Timestamp) -> Option<Timestamp> {
    // Before the epoch this library counts nanoseconds backward, files count them forward.
    let (seconds, nanos) = (time.seconds, i32::try_from(time.nanos).ok()?);
    match (seconds < 0, nanos) {
        (true, 1..) => Timestamp::new(seconds + 1, nanos - 1_000_000_000).ok(),
        _ => Timestamp::new(seconds, nanos).ok(),
    }
}

fn rfc3339_of(time: &Zoned) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string()
}

/// Reads a point in time: RFC 3339, `2026-01-02 15:04:05` or `2026-01-02` in local time, or
/// `@1790000000`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("{text:?} is not a time such as \"2026-01-02 15:04:05\" or 2026-01-02T15:04:05Z");
    let time = if let Some(seconds) = text.strip_prefix('@') {
        Timestamp::from_second(seconds.parse().map_err(|_| wrong())?).map_err(|_| wrong())?
    } else if let Ok(time) = text.parse::<Timestamp>() {
        time
    } else {
        let local: DateTime = text.parse().map_err(|_| wrong())?;
        local.to_zoned(TimeZone::system()).map_err(|_| wrong())?.timestamp()
    };
    u64::try_from(time.as_millisecond()).map_err(|_| format!("{text:?} lies before 1970"))
}

/// A duration for users: `0:05`, `1:02:03`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Seconds between two bounds in words, as exact as they are worth.
pub(crate) fn show_span(low: f64, high: f64) -> String {
    let show = |seconds: f64| match seconds {
        seconds if seconds < 1.0 => "less than 1 s".to_owned(),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    };
    let (low, high) = (show(low), show(high));
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded() {
        assert_eq!(show_span(0.2, 0.4), "less than 1 s");
        assert_eq!(show_span(0.2, 71.7), "less than 1 s to 72 s");
        assert_eq!(show_span(130.0, 7300.0), "2 min to 2 h");
    }

    #[test]
    fn times_are_read_in_every_common_form() {
        assert_eq!(parse("@1790000000"), Ok(1_790_000_000_000));
        assert_eq!(parse("2026-09-21T13:46:40Z"), Ok(1_789_998_400_000));
        assert_eq!(parse("2026-09-21T13:46:40.5+00:00"), Ok(1_789_998_400_500));
        let shown = show(1_789_998_400_000);
        assert_eq!(parse(&shown), Ok(1_789_998_400_000), "local time {shown}");
        assert!(parse("2026-09-21").is_ok());
        for bad in ["", "yesterday", "2026-13-01", "@x", "1969-01-01T00:00:00Z"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn json_times_can_be_read_back_exactly() {
        for ms in [0, 1_790_000_000_123] {
            assert_eq!(parse(&rfc3339(ms)), Ok(ms));
        }
        let time = |seconds, nanos| larder_format::entry::Timestamp { seconds, nanos };
        let text = rfc3339_file_time(time(-1, 999_999_999)).expect("in range");
        let read: Timestamp = text.parse().expect("RFC 3339");
        assert_eq!(read.as_nanosecond(), -1);
        assert_eq!(rfc3339_file_time(time(i64::MAX, 0)), None);
        assert_eq!(show_file_time(time(i64::MAX, 0)), format!("@{}", i64::MAX));
    }

    #[test]
    fn durations() {
        assert_eq!(show_duration(Duration::from_secs(5)), "0:05");
        assert_eq!(show_duration(Duration::from_secs(3723)), "1:02:03");
    }
}
