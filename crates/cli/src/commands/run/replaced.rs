//! Files that are replaced in one step: who reads them sees the old text or the new one.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file by this text, with these permissions.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // A collector takes files whose names end with .prom, and others are known by their ends too.
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    // Others may write to the folder: a link that they put there is not followed.
    drop(std::fs::remove_file(&new));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = made
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.set_permissions(PermissionsExt::from_mode(mode))
        })
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        drop(std::fs::remove_file(&new));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_in_one_step() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("larder.prom");
        write(&path, "one\n", 0o600).expect("written");
        write(&path, "two\n", 0o644).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "two\n");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
        write(&folder.path().join("none/larder.prom"), "x", 0o600).expect_err("no folder");
    }
}
