//! Paths in messages: any bytes made readable, one line, without surprises for a terminal.

use std::fmt;

/// Shows path bytes. UTF-8 is shown as it is, and everything else (other bytes, control and
/// direction-changing characters, backslash) as an escape. So two different paths never look the
/// same, and no name can forge a line of a report.
#[derive(Debug, Clone, Copy)]
pub struct PathText<'a>(pub &'a [u8]);

impl fmt::Display for PathText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.utf8_chunks() {
            for character in part.valid().chars() {
                match character {
                    '\\' => out.write_str("\\\\")?,
                    '\n' => out.write_str("\\n")?,
                    '\r' => out.write_str("\\r")?,
                    '\t' => out.write_str("\\t")?,
                    hidden if hidden.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(hidden))?,
                    hidden if is_hidden(hidden) => write!(out, "\\u{{{:x}}}", u32::from(hidden))?,
                    plain => fmt::Write::write_char(out, plain)?,
                }
            }
            for byte in part.invalid() {
                write!(out, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Characters that change how their neighbours are shown, or show nothing at all.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_are_escaped_and_text_is_kept() {
        let shown = |bytes: &[u8]| PathText(bytes).to_string();
        assert_eq!(shown("home/Zoë/日本 'x'".as_bytes()), "home/Zoë/日本 'x'");
        assert_eq!(shown(b"a\xff\xfeb\n\t\r\x1b[31m\\"), "a\\xff\\xfeb\\n\\t\\r\\x1b[31m\\\\");
        assert_eq!(shown("evil\u{202e}txt.exe\u{200b}".as_bytes()), "evil\\u{202e}txt.exe\\u{200b}");
        assert_ne!(shown(b"\\xff"), shown(b"\xff"));
    }
}
