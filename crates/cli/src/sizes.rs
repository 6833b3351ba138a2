//! Parses and formats sizes and rates.

/// Reads a size: `500`, `500MiB`, `1.5G`, `20 MB`. A number alone is multiplied by `plain_unit`.
///
/// `K`, `M`, `G`, `T` alone mean powers of 1024, as in other backup programs; `KB`, `MB`, ... mean
/// powers of 1000.
fn parse(text: &str, plain_unit: u64) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if end == 0 {
        return Err(format!("{text:?} is not a size such as 500, 10MiB or 1.5G"));
    }
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" => plain_unit,
        "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{unit:?} is not a unit; use KiB, MiB, GiB or TiB")),
    };
    let wrong = || format!("{text:?} is not a size such as 500, 10MiB or 1.5G");
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(factor).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Reads a number of bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, 1)
}

/// Reads a rate in bytes a second; a number alone counts KiB, as in restic. 0 means no limit.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    parse(text.trim().trim_end_matches("/s"), 1 << 10)
}

/// A size for users: `0 B`, `999 B`, `1.0 KiB`, `12.3 GiB`.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A share that is counted in thousandths: `12.5 %`.
pub(crate) fn percent_of_thousand(permille: u32) -> String {
    format!("{:.1} %", f64::from(permille) / 10.0)
}

/// A count with its noun: `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("500", 500),
            ("10MiB", 10 << 20),
            ("10 mib", 10 << 20),
            ("10M", 10 << 20),
            ("1.5G", 3 << 29),
            ("2kb", 2000),
            ("1T", 1 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "x", "-1", "1.2.3", "1Q", "99999999999999999999", "9e9", "18446744073709551615K"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_rate("100"), Ok(100 << 10));
        assert_eq!(parse_rate("10MiB/s"), Ok(10 << 20));
    }

    #[test]
    fn sizes_are_shown_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1 << 20, "1.0 MiB"),
            (1_234_567_890, "1.1 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(show(bytes), text);
        }
        assert_eq!((count(1, "file"), count(0, "file")), ("1 file".to_owned(), "0 files".to_owned()));
    }
}
