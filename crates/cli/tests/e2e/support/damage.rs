//! What can happen to the objects of a local repository.

use std::path::{Path, PathBuf};

/// Every object and its content, sorted by name. Staging files of the store are none.
pub(crate) fn objects(repository: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![repository.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(repository).expect("below").to_str().expect("text").to_owned();
            if path.is_dir() {
                if !name.starts_with('.') {
                    waiting.push(path);
                }
            } else {
                found.push((name, std::fs::read(&path).expect("readable")));
            }
        }
    }
    found.sort();
    found
}

/// Names and sizes of the objects below a prefix, sorted by name. A folder that is not there has none.
pub(crate) fn sizes(repository: &Path, prefix: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    // What is before the last slash is a folder.
    let mut waiting = vec![repository.join(prefix.rsplit_once('/').map_or("", |(folder, _)| folder))];
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let name = path.strip_prefix(repository).expect("below").to_str().expect("text").to_owned();
            // Another request may have removed it.
            let Ok(about) = entry.metadata() else { continue };
            match about.is_dir() {
                true => waiting.push(path),
                false if name.starts_with(prefix) => found.push((name, about.len())),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Names of the objects below a prefix.
pub(crate) fn named(repository: &Path, prefix: &str) -> Vec<String> {
    objects(repository).into_iter().map(|(name, _)| name).filter(|name| name.starts_with(prefix)).collect()
}

/// Replaces an object's content behind everybody's back.
pub(crate) fn replace(repository: &Path, name: &str, content: &[u8]) {
    let path: PathBuf = repository.join(name);
    // Objects may be read-only.
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, content).expect("written");
}

/// Flips one bit.
pub(crate) fn flip(repository: &Path, name: &str, byte: usize) {
    let mut content = std::fs::read(repository.join(name)).expect("readable");
    content[byte] ^= 0x10;
    replace(repository, name, &content);
}

/// Cuts an object to some bytes, fewer than any head has.
pub(crate) fn behead(repository: &Path, name: &str) {
    let content = std::fs::read(repository.join(name)).expect("readable");
    replace(repository, name, &content[..100]);
}

/// Cuts an object to half of its length.
pub(crate) fn truncate(repository: &Path, name: &str) {
    let content = std::fs::read(repository.join(name)).expect("readable");
    replace(repository, name, &content[..content.len() / 2]);
}

/// Removes an object.
pub(crate) fn remove(repository: &Path, name: &str) {
    std::fs::remove_file(repository.join(name)).expect("removed");
}

/// Swaps two objects.
pub(crate) fn swap(repository: &Path, a: &str, b: &str) {
    let (content_a, content_b) =
        (std::fs::read(repository.join(a)).expect("readable"), std::fs::read(repository.join(b)).expect("readable"));
    replace(repository, a, &content_b);
    replace(repository, b, &content_a);
}
