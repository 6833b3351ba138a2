//! The CHAP file: what iSCSI clients must know.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::exit::Exit;
use crate::failure::Failure;

/// Longest file.
const FILE_MAX: u64 = 4 << 10;
/// Bytes of a password: RFC 7143 wants 96 bits, and programs take no more.
const LEAST: usize = 12;
const MOST: usize = 255;

/// A user and a password.
pub(in crate::commands::volume) struct Chap {
    pub(super) user: String,
    secret: Zeroizing<String>,
}

impl std::fmt::Debug for Chap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chap({})", self.user)
    }
}

impl Chap {
    /// Reads a file with the line `USER:PASSWORD`. Nobody but its owner may read it.
    pub(in crate::commands::volume) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let failed = |error: std::io::Error| {
            Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read the CHAP file {shown}"))
        };
        let file = OpenOptions::new().read(true).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & 0o077 != 0 {
            let message =
                format!("the CHAP file {shown} can be read by others (mode {:04o})", metadata.mode() & 0o7777);
            return Err(Failure::new(Exit::Failed, message).advise(format!("`chmod 600 {shown}`")));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text).map_err(|why| Failure::new(Exit::Failed, format!("the CHAP file {shown}: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (user, secret) = line.split_once(':').ok_or("it has no line USER:PASSWORD")?;
        // A comma separates parameters of tgtd.
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if user.is_empty() || user.len() > MOST || !is_plain(user) || user.starts_with('-') {
            return Err("the user must have plain characters, and no comma".to_owned());
        }
        if !(LEAST..=MOST).contains(&secret.len()) || !is_plain(secret) || secret.starts_with('-') {
            return Err(format!("the password must have {LEAST} to {MOST} plain characters, and no comma"));
        }
        Ok(Self { user: user.to_owned(), secret: Zeroizing::new(secret.to_owned()) })
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_user_and_a_password() {
        let chap = Chap::parse("me:correct:horse\n").unwrap();
        assert_eq!((chap.user.as_str(), chap.secret()), ("me", "correct:horse"));
        assert_eq!(format!("{chap:?}"), "Chap(me)");
        for wrong in
            ["", "me", "me:short", ":correct horse", "me:correct horse", "me:correct,horse", "-x:correct-horse"]
        {
            assert!(Chap::parse(wrong).is_err(), "{wrong}");
        }
    }
}
