//! Durations as users write them: `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

/// Reads a duration that is not zero: `30` (seconds), `90s`, `5m`, `2h`, `1d`.
///
/// # Errors
/// The text is no duration, or it is zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_limit(text)?;
    if duration.is_zero() { Err("a duration must be more than 0 here".to_owned()) } else { Ok(duration) }
}

/// The same, but zero is allowed.
///
/// # Errors
/// The text is no duration.
pub fn parse_limit(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(not_a_duration(text)),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| not_a_duration(text))
}

/// A duration as users write it, with the largest unit that fits: `90s`, `2h`.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        _ if seconds > 0 && seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds > 0 && seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds > 0 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

fn not_a_duration(text: &str) -> String {
    format!("{:?} is not a duration such as 30s, 5m or 2h", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "0", "5x", "-1", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_duration("0m"), Err("a duration must be more than 0 here".to_owned()));
        assert_eq!(parse_limit("0s"), Ok(Duration::ZERO));
        assert!(parse_limit("0x").is_err() && parse_limit("s").is_err());
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["90s", "5m", "2h", "7d", "0s"] {
            assert_eq!(parse_limit(text).map(show).as_deref(), Ok(text));
        }
    }
}
