//! The order of a listing.

use larder_format::entry::{Entry, Timestamp};

use crate::args::LsSort;

/// Bytes that sort as the entries do: by what was asked for, then by path. `size` is that of a
/// file.
pub(super) fn key(sort: LsSort, entry: &Entry, size: Option<u64>) -> Vec<u8> {
    let mut key = match sort {
        LsSort::Name => Vec::new(),
        LsSort::Size => size.unwrap_or_default().to_be_bytes().to_vec(),
        LsSort::Time => time(entry.mtime),
        // Without one, an entry comes first.
        LsSort::Atime => entry.atime.map_or_else(Vec::new, time),
        LsSort::Ctime => time(entry.ctime),
        LsSort::Extension => [extension(&entry.path), b"\0"].concat(),
    };
    key.extend_from_slice(&entry.path);
    key
}

fn time(time: Timestamp) -> Vec<u8> {
    // Negative seconds come first.
    let seconds = time.seconds.cast_unsigned() ^ (1 << 63);
    [&seconds.to_be_bytes()[..], &time.nanos.to_be_bytes()].concat()
}

/// The part of a name from its last dot on.
fn extension(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.iter().rposition(|byte| *byte == b'.').map_or(&b""[..], |at| &name[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sort_as_numbers() {
        let of = |seconds, nanos| time(Timestamp { seconds, nanos });
        let mut times = vec![of(5, 1), of(-3, 0), of(5, 0), of(0, 0), of(-3, 7), of(i64::MIN, 0), of(i64::MAX, 0)];
        times.sort();
        let expected = [of(i64::MIN, 0), of(-3, 0), of(-3, 7), of(0, 0), of(5, 0), of(5, 1), of(i64::MAX, 0)].to_vec();
        assert_eq!(times, expected);
    }

    #[test]
    fn extensions_are_those_of_names() {
        assert_eq!(extension(b"a.b/c"), b"");
        assert_eq!(extension(b"a.b/c.tar.gz"), b".gz");
        assert_eq!(extension(b".profile"), b".profile");
    }
}
