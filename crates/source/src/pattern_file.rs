//! Reads files of patterns (`--exclude-file`): one a line, `#` comments, environment variables.

use larder_format::ErrorKind;
use thiserror::Error;

use crate::path_text::PathText;

/// Why a file of patterns cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PatternFileError {
    /// Leaving it empty could turn `$HOEM/**` into `/**`, so this is an error.
    #[error("line {line}: the variable {} is not set (write $$ for a dollar sign)", PathText(.name))]
    UnsetVariable {
        /// Counted from 1.
        line: usize,
        /// Name of the variable.
        name: Vec<u8>,
    },
    /// `${` without `}`, or nothing between.
    #[error("line {line}: ${{ without a name and a }} after it (write $$ for a dollar sign)")]
    BadVariable {
        /// Counted from 1.
        line: usize,
    },
}

impl PatternFileError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnsetVariable { .. } | Self::BadVariable { .. } => ErrorKind::BadRequest,
        }
    }
}

/// The patterns in `contents`, with `$NAME` and `${NAME}` replaced by the results of `variable`.
///
/// Space around a line does not count, lines that are empty or begin with `#` are skipped, `$$` is
/// a dollar sign.
pub fn parse_patterns(
    contents: &[u8],
    variable: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, PatternFileError> {
    let contents = contents.strip_prefix(b"\xef\xbb\xbf").unwrap_or(contents);
    let mut patterns = Vec::new();
    for (at, line) in contents.split(|byte| *byte == b'\n').enumerate() {
        match line.trim_ascii() {
            b"" => {}
            comment if comment.starts_with(b"#") => {}
            pattern => patterns.push(expand(pattern, at + 1, &variable)?),
        }
    }
    Ok(patterns)
}

fn expand(
    pattern: &[u8],
    line: usize,
    variable: &impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, PatternFileError> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"$") {
            out.push(b'$');
            rest = after;
            continue;
        }
        let name = match rest.strip_prefix(b"{") {
            Some(inner) => {
                let end = inner.iter().position(|byte| *byte == b'}').filter(|end| *end > 0);
                let end = end.ok_or(PatternFileError::BadVariable { line })?;
                rest = &inner[end + 1..];
                &inner[..end]
            }
            None => {
                let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
                let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                name
            }
        };
        if name.is_empty() {
            // A dollar sign before something that cannot be a name is itself.
            out.push(b'$');
        } else {
            let value = variable(name).ok_or_else(|| PatternFileError::UnsetVariable { line, name: name.to_vec() })?;
            out.extend_from_slice(&value);
        }
    }
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(contents: &[u8]) -> Result<Vec<String>, PatternFileError> {
        let variable = |name: &[u8]| match name {
            b"HOME" => Some(b"/home/u".to_vec()),
            b"EMPTY" => Some(Vec::new()),
            _ => None,
        };
        let patterns = parse_patterns(contents, variable)?;
        Ok(patterns.into_iter().map(|pattern| String::from_utf8(pattern).expect("text")).collect())
    }

    #[test]
    fn comments_space_and_variables() {
        let contents = b"\xef\xbb\xbf# comment\r\n\r\n  *.o  \n!$HOME/keep\n${HOME}work\n$EMPTY/x\n$$RECYCLE.BIN\na$.b$\n  # too\n#no\nlast";
        let expected = ["*.o", "!/home/u/keep", "/home/uwork", "/x", "$RECYCLE.BIN", "a$.b$", "last"];
        assert_eq!(parse(contents).expect("good"), expected);
    }

    #[test]
    fn a_variable_that_is_not_set_is_an_error_and_not_nothing() {
        let unset = PatternFileError::UnsetVariable { line: 2, name: b"HOEM".to_vec() };
        assert_eq!(parse(b"x\n$HOEM/**"), Err(unset));
        assert_eq!(parse(b"${HOME"), Err(PatternFileError::BadVariable { line: 1 }));
        assert_eq!(parse(b"${}"), Err(PatternFileError::BadVariable { line: 1 }));
    }
}
