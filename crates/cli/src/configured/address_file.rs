//! Files with the address of a service that receives messages. The address is a secret.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::exit::Exit;
use crate::failure::Failure;

/// The address in a file. Others may not read it.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read {shown}"));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::usage(format!("{shown} can be read by others (mode {:04o})", metadata.mode() & 0o7777)));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let url = text.trim();
    let is_address = url.starts_with("https://") || url.starts_with("http://");
    let is_one = is_address && !url.contains(char::is_whitespace);
    is_one.then(|| url.to_owned()).ok_or_else(|| Failure::usage(format!("{shown} has no address in one line")))
}
