//! Writes the tests' miniature repository into a folder, for readers that are not written in Rust: `miniature FOLDER`.

#[path = "../tests/support/miniature.rs"]
mod miniature;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("usage: miniature FOLDER"))?;
    for (name, bytes) in miniature::write() {
        let path = Path::new(&folder).join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, bytes)?;
    }
    Ok(())
}
