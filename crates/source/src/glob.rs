//! Shell patterns for names and paths, as regular expressions.
//!
//! The language is that of Go's `filepath.Match`, which restic uses. `*` is any run of characters,
//! `?` one character, `[a-z]` and `[^a-z]` one of a set. `\` takes the next character literally.
//! None of them matches `/`. `**` as a whole component stands for any number of components, none
//! included.
//!
//! Patterns speak of characters, paths are bytes. Both are first made text by [`text_of`], which
//! gives every byte that is not UTF-8 a character of its own.

use std::borrow::Cow;
use std::fmt::Write;

/// Bytes that are not UTF-8 become the private-use characters from here on, one per byte value.
const STRAY_BYTE_BASE: u32 = 0x0010_ff00;

/// Path or pattern bytes as text.
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() * 2);
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        text.extend(part.invalid().iter().filter_map(|byte| char::from_u32(STRAY_BYTE_BASE + u32::from(*byte))));
    }
    Cow::Owned(text)
}

/// Whether the pattern means anything but its own text.
pub(crate) fn has_wildcards(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// A set that is not closed, empty, or has a range without an end; or a `\` at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends an expression that matches one path component. To be compiled with `u` (Unicode) on and
/// `s` on.
pub(crate) fn push_component(out: &mut String, pattern: &str) -> Result<(), Malformed> {
    let mut rest = pattern.chars();
    let mut literal = [0; 4];
    while let Some(character) = rest.next() {
        match character {
            // A run of bytes: it makes smaller automata than a run of characters and means the
            // same, since the next part begins with a character.
            '*' => out.push_str("(?-u:[^/]*)"),
            '?' => out.push_str("[^/]"),
            '[' => push_set(out, &mut rest)?,
            '\\' => push_literal(out, rest.next().ok_or(Malformed)?.encode_utf8(&mut literal)),
            plain => push_literal(out, plain.encode_utf8(&mut literal)),
        }
    }
    Ok(())
}

fn push_literal(out: &mut String, text: &str) {
    out.push_str(&regex::escape(text));
}

fn push_set(out: &mut String, rest: &mut std::str::Chars<'_>) -> Result<(), Malformed> {
    let is_negated = rest.as_str().starts_with('^');
    if is_negated {
        rest.next();
    }
    let mut ranges = String::new();
    let mut is_first = true;
    loop {
        if !is_first && rest.as_str().starts_with(']') {
            rest.next();
            break;
        }
        is_first = false;
        let low = set_member(rest)?;
        let high = if rest.as_str().starts_with('-') {
            rest.next();
            set_member(rest)?
        } else {
            low
        };
        // An upside-down range holds nothing.
        if low <= high {
            let _ = write!(ranges, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high));
        }
    }
    match (is_negated, ranges.is_empty()) {
        (true, _) => {
            let _ = write!(out, "[^/{ranges}]");
        }
        (false, false) => {
            let _ = write!(out, "[[{ranges}]&&[^/]]");
        }
        // Matches nothing.
        (false, true) => out.push_str("[a&&b]"),
    }
    Ok(())
}

fn set_member(rest: &mut std::str::Chars<'_>) -> Result<char, Malformed> {
    match rest.next().ok_or(Malformed)? {
        '-' | ']' => Err(Malformed),
        '\\' => rest.next().ok_or(Malformed),
        plain => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &[u8]) -> Result<bool, Malformed> {
        let mut expression = "(?s)^".to_owned();
        push_component(&mut expression, pattern)?;
        expression.push('$');
        let compiled = regex::bytes::Regex::new(&expression).expect("translated patterns compile");
        Ok(compiled.is_match(text_of(name).as_bytes()))
    }

    #[test]
    fn go_patterns_keep_their_meaning() {
        for (pattern, name, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "ab/c", false),
            ("a*b*c*d*e*", "axbxcxdxe", true),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a☺b", true),
            ("a[^a]b", "a☺b", true),
            ("a???b", "a☺b", false),
            ("[a-ζ]*", "α", true),
            ("*[a-ζ]", "A", false),
            ("a?b", "a/b", false),
            ("a[+-9]b", "a/b", false),
            ("a[+-9]b", "a0b", true),
            ("[\\]a]", "]", true),
            ("[\\-]", "-", true),
            ("[x\\-]", "-", true),
            ("[z-a]", "m", false),
            ("[^z-a]", "m", true),
            ("{a,b}", "{a,b}", true),
            ("[!a]", "!", true),
            ("a\nb*", "a\nbc\n", true),
        ] {
            assert_eq!(matches(pattern, name.as_bytes()), Ok(expected), "{pattern} on {name}");
        }
        for bad in ["[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "[", "[^", "[^bc", "a[", "a[b-", "\\", "[\\"] {
            assert_eq!(matches(bad, b"x"), Err(Malformed), "{bad}");
        }
    }

    #[test]
    fn stray_bytes_are_characters() {
        assert_eq!(matches("a?b", b"a\xffb"), Ok(true));
        assert_eq!(matches("a??b", b"a\xffb"), Ok(false));
        assert_eq!(matches("*.o", b"\xff\xfe.o"), Ok(true));
        assert_eq!(matches(&text_of(b"a\xff*"), b"a\xffx"), Ok(true));
        assert_eq!(matches(&text_of(b"a\xfe*"), b"a\xffx"), Ok(false));
    }
}
