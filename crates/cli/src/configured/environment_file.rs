//! Files with variables for a storage, such as `AWS_SECRET_ACCESS_KEY`: lines of `NAME=value`.
//!
//! The values are secrets. A file that others can read is refused, as a key file is.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::exit::Exit;
use crate::failure::Failure;

/// Larger than any such file.
const SIZE_MAX: u64 = 64 << 10;

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Unreachable, &error).while_doing(&format!("cannot read the environment file {shown}"))
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > SIZE_MAX {
        return Err(Failure::usage(format!("{shown} is no environment file")));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o7777;
        let why = format!("the environment file {shown} can be read by others (mode {mode:04o})");
        return Err(Failure::new(Exit::Unreachable, why).advise(format!("`chmod 600 {shown}`")));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The value is not repeated: it may be a secret without a name.
        let variable =
            variable(line).ok_or_else(|| Failure::usage(format!("{shown}:{}: write NAME=value", number + 1)))?;
        variables.push(variable);
    }
    Ok(variables)
}

fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_shells_and_systemd_write_them() {
        let read = |line: &str| variable(line);
        let is = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(read("AWS_REGION=eu"), is("AWS_REGION", "eu"));
        assert_eq!(read("export A = \"b c\""), is("A", "b c"));
        assert_eq!(read("A='x=y'"), is("A", "x=y"));
        assert_eq!(read("no variable"), None);
        assert_eq!(read("a b=c"), None);
    }
}
