//! Maps of changes in files. Ranges are in bytes, and in rising order. Four forms are understood:
//!
//! | form | a range |
//! |---|---|
//! | text | a line `OFFSET LENGTH`; lines that begin with `#` are comments |
//! | lines of JSON | `{"offset":N,"length":N}` |
//! | one array of JSON, as of `rbd diff --format json` | the same objects; other keys are ignored |
//! | XML of `thin_delta` | see `thin_delta.rs` |
//!
//! In the first two forms, a line `since SNAPSHOT` or `{"since":"SNAPSHOT"}` may name the snapshot
//! that the ranges are counted from.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::ImageError;
use super::rising::{Rising, Wrong};
use super::thin_delta::{self, Thin};

/// Longest line (bytes).
const LINE_MAX: u64 = 64 << 10;

/// A map of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedMap {
    /// The snapshot that it is counted from, as the file names it.
    pub since: Option<String>,
    /// Ranges that may differ: rising, apart from each other. They cover at least those of the
    /// file, which may be joined if there are very many.
    pub ranges: Vec<Range<u64>>,
    /// Bytes that ranges are multiples of, if the form says so, else 1. The last range may end
    /// behind the image by less.
    pub block: u64,
}

impl Default for ChangedMap {
    fn default() -> Self {
        Self { since: None, ranges: Vec::new(), block: 1 }
    }
}

impl ChangedMap {
    /// Whether all ranges are in an image of `size` bytes. Else it is the map of another one.
    pub fn is_within(&self, size: u64) -> bool {
        let end = self.ranges.last().map_or(0, |range| range.end);
        end <= size.checked_next_multiple_of(self.block).unwrap_or(u64::MAX)
    }
}

/// Reads a map of changes.
pub fn read_map(path: &Path) -> Result<ChangedMap, ImageError> {
    let failed = |source| ImageError::Io { path: path.to_owned(), source };
    read_map_from(path, &mut BufReader::new(File::open(path).map_err(failed)?))
}

/// The same from any reader. `path` is for messages.
pub fn read_map_from(path: &Path, file: &mut impl BufRead) -> Result<ChangedMap, ImageError> {
    let failed = |source| ImageError::Io { path: path.to_owned(), source };
    parse(file).map_err(|wrong| match wrong {
        Wrong::Io(source) => failed(source),
        Wrong::Text(why) => ImageError::Map { path: path.to_owned(), why },
    })
}

fn parse(file: &mut impl BufRead) -> Result<ChangedMap, Wrong> {
    let first = loop {
        match file.fill_buf()?.first() {
            Some(byte) if byte.is_ascii_whitespace() => file.consume(1),
            first => break first.copied(),
        }
    };
    match first {
        Some(b'<') => {
            let Thin { block, ranges, mapped: _ } = thin_delta::parse(file)?;
            Ok(ChangedMap { since: None, ranges, block })
        }
        Some(b'[') => array(file),
        Some(_) => lines(file),
        // What a program leaves that failed.
        None => Err(Wrong::text(format_args!("it is empty; a map without changes is []"))),
    }
}

/// A line or element in JSON.
#[derive(Deserialize)]
struct Row {
    since: Option<String>,
    offset: Option<u64>,
    length: Option<u64>,
}

fn lines(file: &mut impl BufRead) -> Result<ChangedMap, Wrong> {
    let (mut since, mut rising) = (None, Rising::new());
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let wrong = |why: &dyn fmt::Display| Wrong::text(format_args!("line {number}: {why}"));
        match file.by_ref().take(LINE_MAX).read_line(&mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(wrong(&"it is no text")),
            Err(error) => return Err(error.into()),
        }
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let row = if text.starts_with('{') {
            serde_json::from_str(text)
                .map_err(|_| wrong(&"it is no object of JSON with whole numbers as offset and length"))?
        } else {
            row(text).ok_or_else(|| wrong(&"it is neither OFFSET LENGTH nor an object of JSON"))?
        };
        match row {
            Row { since: Some(snapshot), offset: None, length: None } if since.is_none() => since = Some(snapshot),
            Row { since: None, offset: Some(offset), length: Some(length) } => {
                rising.push(offset, length).map_err(|why| wrong(&why))?;
            }
            _ => return Err(wrong(&"it has neither an offset and a length, nor the only snapshot")),
        }
        if !line.ends_with('\n') && !text.ends_with('}') {
            return Err(wrong(&"it does not end, so the file may be cut off"));
        }
    }
    Ok(ChangedMap { since, ranges: rising.into_ranges(), block: 1 })
}

/// A line of the form without JSON.
fn row(text: &str) -> Option<Row> {
    let mut words = text.split_ascii_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    if first == "since" {
        return Some(Row { since: Some(second.to_owned()), offset: None, length: None });
    }
    Some(Row { since: None, offset: Some(first.parse().ok()?), length: Some(second.parse().ok()?) })
}

fn array(file: &mut impl BufRead) -> Result<ChangedMap, Wrong> {
    struct Rows;
    impl<'de> Visitor<'de> for Rows {
        type Value = Rising;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("objects with an offset and a length")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Rising, A::Error> {
            let mut rising = Rising::new();
            while let Some(row) = rows.next_element::<Row>()? {
                let (Some(offset), Some(length)) = (row.offset, row.length) else {
                    return Err(serde::de::Error::custom("an object has no offset or no length"));
                };
                rising.push(offset, length).map_err(serde::de::Error::custom)?;
            }
            Ok(rising)
        }
    }
    let mut json = serde_json::Deserializer::from_reader(file);
    let rising = json.deserialize_seq(Rows).and_then(|rising| json.end().map(|()| rising));
    let rising = rising.map_err(|error| if error.is_io() { Wrong::Io(error.into()) } else { Wrong::text(error) })?;
    Ok(ChangedMap { since: None, ranges: rising.into_ranges(), block: 1 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> ChangedMap {
        parse(&mut text.as_bytes()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"))
    }

    fn refused(text: &str) -> String {
        match parse(&mut text.as_bytes()) {
            Err(Wrong::Text(why)) => why,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn all_forms_say_the_same() {
        let expected = vec![0..512, 65_536..131_072, u64::MAX - 1..u64::MAX];
        for text in [
            "# a comment\n0 512\n\n65536 65536\n18446744073709551614 1\n",
            "{\"offset\":0,\"length\":512}\n{\"offset\":65536,\"length\":65536}\n{\"length\":1,\"offset\":18446744073709551614}",
            "\n[{\"offset\":0,\"length\":512,\"exists\":\"true\"},{\"offset\":65536,\"length\":65536,\"exists\":\"false\"},\n\
             {\"offset\":18446744073709551614,\"length\":1}]\n",
        ] {
            assert_eq!(parsed(text), ChangedMap { since: None, ranges: expected.clone(), block: 1 }, "{text}");
        }
        for failed in ["", " \n", "0 512\n65536 655", "since 1a"] {
            refused(failed);
        }
        assert_eq!(parsed("[]"), ChangedMap::default());
        assert_eq!(parsed("5 0\n"), ChangedMap::default());
    }

    #[test]
    fn a_map_of_a_larger_image_is_known() {
        let map = parsed("0 10\n90 10\n");
        assert!(map.is_within(100) && map.is_within(u64::MAX) && !map.is_within(99) && !map.is_within(0));
        // Blocks of a volume may end behind it, by less than one.
        let thin =
            parsed("<superblock data_block_size=\"2\"><diff><different begin=\"1\" length=\"1\"/></diff></superblock>");
        assert!(thin.is_within(2048) && thin.is_within(1025) && !thin.is_within(1024));
        assert!(parsed("[]").is_within(0));
    }

    #[test]
    fn a_map_may_name_its_snapshot() {
        let expected = ChangedMap { since: Some("1a2b".to_owned()), ranges: std::iter::once(1..3).collect(), block: 1 };
        assert_eq!(parsed("since 1a2b\n1 2\n"), expected);
        assert_eq!(parsed("{\"since\":\"1a2b\"}\n{\"offset\":1,\"length\":2}"), expected);
    }

    proptest! {
        /// Any bytes are a map with rising ranges, or an error. Those that are nearly a map, too.
        #[test]
        fn any_bytes_are_a_map_or_an_error(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "[", "]", "{", "}", ",", "\"offset\":", "\"length\":", "\"since\":\"x\"", "1", "18446744073709551615",
                    " ", "\n", "since", "#", "<superblock data_block_size=\"128\">", "<diff>", "<same begin=\"1\" length=\"2\"/>",
                    "<different begin=\"1\" length=\"2\"/>", "</diff>", "</superblock>", "<range/>",
                ]),
                0..12,
            ),
        ) {
            for bytes in [noise, pieces.concat().into_bytes()] {
                if let Ok(map) = parse(&mut &*bytes) {
                    prop_assert!(map.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                    prop_assert!(map.ranges.iter().all(|range| !range.is_empty()));
                }
            }
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, why) in [
            ("1 2\n0 1\n", "line 2: offset 0 comes after offset 1"),
            ("0 1\nfoo\n", "line 2: it is neither"),
            ("1 2 3", "line 1: it is neither"),
            ("-1 2", "line 1: it is neither"),
            ("18446744073709551615 2", "line 1: a range ends beyond"),
            ("since a\nsince b\n", "line 2: it has neither"),
            ("{\"offset\":1}", "line 1: it has neither"),
            ("{\"offset\":1,", "line 1: it is no object of JSON"),
            ("[{\"offset\":1}]", "no length"),
            ("[{\"offset\":4,\"length\":1},{\"offset\":1,\"length\":1}]", "have to rise"),
            ("[] []", "trailing"),
        ] {
            assert!(refused(text).contains(why), "{text}: {}", refused(text));
        }
    }
}
