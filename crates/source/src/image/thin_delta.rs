//! The differences of two thin volumes, as `thin_delta` of the thin provisioning tools writes them:
//!
//! ```xml
//! <superblock uuid="" time="2" transaction="3" data_block_size="128" nr_data_blocks="1024">
//!   <diff left="1" right="2">
//!     <same begin="0" length="8"/>
//!     <different begin="8" length="2"/>
//!     <left_only begin="10" length="1"/>
//!     <right_only begin="20" length="1"/>
//!   </diff>
//! </superblock>
//! ```
//!
//! Blocks have `data_block_size` sectors of 512 bytes. All but `same` are changes. Elements inside
//! of these have details, and are left out.

use std::io::{BufRead, Read};
use std::ops::Range;

use super::rising::{Rising, Wrong};

/// Longest element (bytes).
const ELEMENT_MAX: u64 = 64 << 10;

/// What differs.
#[derive(Debug)]
pub(super) struct Thin {
    /// Bytes of a block.
    pub(super) block: u64,
    /// Ranges of bytes; whole blocks.
    pub(super) ranges: Vec<Range<u64>>,
    /// Ranges of bytes that the second volume has: it may have these and no others.
    pub(super) mapped: Vec<Range<u64>>,
}

/// Reads the ranges of bytes that differ.
pub(super) fn parse(file: &mut impl BufRead) -> Result<Thin, Wrong> {
    let (mut rising, mut mapped) = (Rising::new(), Rising::new());
    let (mut block, mut depth, mut is_whole) = (None, Vec::<String>::new(), false);
    let mut has_diff = false;
    let mut text = Vec::new();
    loop {
        text.clear();
        file.by_ref().take(ELEMENT_MAX).read_until(b'>', &mut text)?;
        let element = String::from_utf8_lossy(&text);
        let element = element.trim();
        if element.is_empty() {
            break;
        }
        let inside = element.strip_prefix('<').and_then(|element| element.strip_suffix('>'));
        let inside = inside.ok_or_else(|| Wrong::text(format_args!("{element:?} is no element")))?;
        if inside.starts_with('?') || inside.starts_with("!--") {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            if depth.pop().as_deref() != Some(name.trim()) {
                return Err(Wrong::text(format_args!("</{name}> ends nothing")));
            }
            is_whole = depth.is_empty();
            continue;
        }
        if is_whole {
            return Err(Wrong::text("there is more behind its end"));
        }
        let (inside, is_empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
        let name = inside.split_ascii_whitespace().next().unwrap_or_default();
        match (name, &*depth) {
            ("superblock", []) => block = Some(sectors(inside)?),
            ("diff", [root]) if root == "superblock" && !has_diff => has_diff = true,
            ("same" | "different" | "left_only" | "right_only", [root, diff])
                if root == "superblock" && diff == "diff" =>
            {
                let (begin, length) = (number(inside, "begin")?, number(inside, "length")?);
                let bytes = |blocks: u64| blocks.checked_mul(block?);
                let range = bytes(begin).zip(bytes(length));
                let (begin, length) = range.ok_or_else(|| Wrong::text("a range ends beyond any image"))?;
                if name != "same" {
                    rising.push(begin, length).map_err(Wrong::Text)?;
                }
                if name != "left_only" {
                    mapped.push(begin, length).map_err(Wrong::Text)?;
                }
            }
            // Details of an element around it.
            ("range", [_, _, _]) => {}
            _ => return Err(Wrong::text(format_args!("<{name}> is not expected here"))),
        }
        if !is_empty {
            depth.push(name.to_owned());
        }
    }
    match (is_whole, has_diff) {
        (true, true) => {
            Ok(Thin { block: block.unwrap_or(1), ranges: rising.into_ranges(), mapped: mapped.into_ranges() })
        }
        // As of a program that found one of the volumes only.
        (true, false) => Err(Wrong::text("it has no <diff>")),
        (false, _) => Err(Wrong::text("it ends too early")),
    }
}

/// Bytes of a block.
fn sectors(element: &str) -> Result<u64, Wrong> {
    let bytes = number(element, "data_block_size")?.checked_mul(512).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Wrong::text("its data_block_size is impossible"))
}

/// The value of an attribute that is a number.
fn number(element: &str, attribute: &str) -> Result<u64, Wrong> {
    let values = element.split_ascii_whitespace().filter_map(|part| part.split_once('='));
    let value = values.filter(|(name, _)| *name == attribute).map(|(_, value)| value).next();
    let value = value.and_then(|value| value.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    value.ok_or_else(|| Wrong::text(format_args!("<{element}> has no number {attribute}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"<?xml version="1.0"?>
<superblock uuid="" time="2" transaction="3" data_block_size="128" nr_data_blocks="1024">
  <diff left="1" right="2">
    <same begin="0" length="8"/>
    <different begin="8" length="2"/>
    <left_only begin="10" length="1"/>
    <right_only begin="20" length="1">
      <range begin="20" data_begin="7" length="1"/>
    </right_only>
  </diff>
</superblock>
"#;

    fn refused(text: &str) -> String {
        match parse(&mut text.as_bytes()) {
            Err(Wrong::Text(why)) => why,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn all_but_same_blocks_are_changes() {
        let block = 128 * 512;
        let thin = parse(&mut WHOLE.as_bytes()).expect("a map");
        assert_eq!(thin.block, block);
        assert_eq!(thin.ranges, [8 * block..11 * block, 20 * block..21 * block]);
        assert_eq!(thin.mapped, [0..10 * block, 20 * block..21 * block]);
    }

    proptest! {
        /// Every block that differs is in the ranges, and no other one. Damage gives rising
        /// ranges, or an error.
        #[test]
        fn blocks_that_differ_are_found(
            sectors in 1_u64..300,
            runs in prop::collection::vec((0_usize..4, 1_u64..50, 0_u64..3, any::<bool>()), 0..40),
            damage in any::<(prop::sample::Index, u8)>(),
        ) {
            let block = sectors * 512;
            let (mut text, mut at, mut expected) = (String::new(), 0, Vec::new());
            for (kind, length, gap, details) in runs {
                let name = ["same", "different", "left_only", "right_only"][kind];
                at += gap;
                let inside = format!("begin=\"{at}\" length=\"{length}\"");
                text += &match details {
                    true => format!("<{name} {inside}><range {inside} data_begin=\"9\"/></{name}>\n"),
                    false => format!("<{name} {inside}/>\n"),
                };
                if kind > 0 {
                    expected.extend(at..at + length);
                }
                at += length;
            }
            let text = format!("<superblock data_block_size=\"{sectors}\">\n<diff>{text}</diff></superblock>\n");
            let thin = parse(&mut text.as_bytes()).expect("a map");
            let found: Vec<u64> =
                thin.ranges.iter().flat_map(|range| range.start / block..range.end / block).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert!(thin.ranges.iter().all(|range| range.start % block == 0 && range.end % block == 0));
            let mut bytes = text.into_bytes();
            let place = damage.0.index(bytes.len());
            bytes[place] = damage.1;
            if let Ok(thin) = parse(&mut &*bytes) {
                prop_assert!(thin.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    /// Goal: a file that was cut off, or that is something else, does not make changes vanish.
    #[test]
    fn what_is_not_whole_is_refused() {
        for (from, _) in WHOLE.match_indices('<').skip(2) {
            assert!(parse(&mut &WHOLE.as_bytes()[..from]).is_err(), "{}", &WHOLE[..from]);
        }
        assert_eq!(refused("<superblock data_block_size=\"128\">"), "it ends too early");
        assert_eq!(refused("<superblock data_block_size=\"128\"></superblock>"), "it has no <diff>");
        assert_eq!(refused("<superblock data_block_size=\"128\"/>"), "it ends too early");
        for (from, to, why) in [
            ("<different", "<changed", "<changed> is not expected"),
            ("data_block_size=\"128\"", "", "no number data_block_size"),
            ("data_block_size=\"128\"", "data_block_size=\"0\"", "impossible"),
            ("begin=\"8\"", "begin=\"x\"", "no number begin"),
            ("begin=\"8\"", "begin=\"18446744073709551615\"", "beyond any image"),
            ("begin=\"10\"", "begin=\"7\"", "have to rise"),
            ("</diff>", "</same>", "ends nothing"),
            ("</diff>", "</diff><diff>", "<diff> is not expected"),
            ("</superblock>\n", "</superblock><superblock data_block_size=\"1\"/>", "more behind its end"),
            ("<diff left=\"1\" right=\"2\">", "text <diff>", "is no element"),
        ] {
            let text = WHOLE.replace(from, to);
            assert!(refused(&text).contains(why), "{text}: {}", refused(&text));
        }
    }
}
