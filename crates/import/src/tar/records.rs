//! Extended records of an archive in the pax format: `length key=value\n`.

use larder_format::entry::Timestamp;

/// The records of a header, or of all headers behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Records(Vec<(Vec<u8>, Vec<u8>)>);

impl Records {
    /// Adds the records of an extended header. Later ones count. `None`: they are damaged.
    pub(super) fn add(&mut self, mut text: &[u8]) -> Option<()> {
        while !text.is_empty() {
            let space = text.iter().position(|byte| *byte == b' ')?;
            let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
            let record = text.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            self.0.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
            text = &text[length..];
        }
        Some(())
    }

    /// The bytes of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// These records behind those of the whole archive.
    pub(super) fn behind(&self, global: &Self) -> Self {
        Self(global.0.iter().chain(&self.0).cloned().collect())
    }

    /// The value of a key. An empty one takes back what the header says.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.iter().rev().find(|(known, _)| known == key).map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    /// A value that is a number.
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        std::str::from_utf8(self.get(key)?).ok()?.parse().ok()
    }

    /// A value that is a time: seconds with decimals.
    pub(super) fn time(&self, key: &[u8]) -> Option<Timestamp> {
        time(std::str::from_utf8(self.get(key)?).ok()?)
    }

    /// All records, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// A decimal number of seconds. Before 1970 the fraction counts backward.
fn time(text: &str) -> Option<Timestamp> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1_i128, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanos = sign * (i128::from(whole) * 1_000_000_000 + fraction.parse::<i128>().ok()?);
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    Some(Timestamp { seconds, nanos: nanos.rem_euclid(1_000_000_000) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_damage_is_seen() {
        let mut records = Records::default();
        records.add(b"6 a=b\n12 path=x=y\n11 mtime=5\n").expect("valid");
        assert_eq!((records.get(b"a"), records.get(b"path")), (Some(&b"b"[..]), Some(&b"x=y"[..])));
        assert_eq!(records.number(b"mtime"), Some(5));
        records.add(b"6 a=c\n").expect("valid");
        assert_eq!(records.get(b"a"), Some(&b"c"[..]));
        for bad in [&b"6 a=b"[..], b"7 a=b\n", b"x a=b\n", b"5 ab\n", b"6", b"99 a=b\n", b"2 \n"] {
            assert_eq!(Records::default().add(bad), None, "{bad:?}");
        }
        let mut own = Records::default();
        own.add(b"6 a=d\n").expect("valid");
        let both = own.behind(&records);
        assert_eq!((both.get(b"a"), both.get(b"path")), (Some(&b"d"[..]), Some(&b"x=y"[..])));
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let of = |seconds, nanos| Some(Timestamp { seconds, nanos });
        for (text, expected) in [
            ("5", of(5, 0)),
            ("5.12", of(5, 120_000_000)),
            ("-0.000000001", of(-1, 999_999_999)),
            ("-2", of(-2, 0)),
            ("1.0000000019", of(1, 1)),
            ("", None),
            ("1.x", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(time(text), expected, "{text:?}");
        }
    }
}
