//! Folders made from a seed: names, depths, sizes and contents of a believable home directory, and
//! their next version.
//!
//! Only files and folders with plain names: oddities (devices, attributes, names that are no text)
//! are the business of the tests that need them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::data::{self, Rng};

/// The files of a tree by their relative path. Folders are those that the paths name, and those in
/// `empty`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Contents by path, with `/` between folders.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Folders with nothing in them.
    pub empty: Vec<String>,
}

impl Tree {
    /// Makes a tree of about `files` files, none larger than `max` bytes; most are small, as in
    /// real life.
    pub fn random(seed: u64, files: usize, max: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut tree = Self::default();
        let mut folders = vec![String::new()];
        for number in 0..files {
            if rng.one_in(6) {
                let above = rng.pick(&folders).clone();
                if above.matches('/').count() < 6 {
                    folders.push(format!("{above}d{number}/"));
                }
            }
            let folder = rng.pick(&folders).clone();
            tree.files.insert(format!("{folder}f{number}"), content(&mut rng, max));
        }
        tree.empty = folders
            .into_iter()
            .filter(|folder| !folder.is_empty() && !tree.files.keys().any(|path| path.starts_with(folder.as_str())))
            .collect();
        tree
    }

    /// The tree some time later: a few files changed, added, removed or renamed.
    #[must_use]
    pub fn next(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut next = self.clone();
        for (path, bytes) in &self.files {
            match rng.below(20) {
                0 => drop(next.files.remove(path)),
                1 | 2 => drop(next.files.insert(path.clone(), data::edited(bytes, rng.next_u64(), 3, 1000))),
                3 => {
                    next.files.remove(path);
                    next.files.insert(format!("{path}-moved"), bytes.clone());
                }
                4 => drop(next.files.insert(format!("{path}-new"), data::text(rng.next_u64(), bytes.len() / 2))),
                _ => {}
            }
        }
        next
    }

    /// Writes the tree below a folder, which is made if it is not there.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        fs::create_dir_all(root)?;
        for folder in &self.empty {
            fs::create_dir_all(root.join(folder))?;
        }
        for (path, bytes) in &self.files {
            let path = root.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, bytes)?;
        }
        Ok(())
    }

    /// Reads the files and empty folders below a folder.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut open = vec![String::new()];
        while let Some(folder) = open.pop() {
            let mut is_empty = true;
            for entry in fs::read_dir(root.join(&folder))? {
                is_empty = false;
                let entry = entry?;
                let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
                if entry.file_type()?.is_dir() {
                    open.push(format!("{folder}{name}/"));
                } else {
                    tree.files.insert(format!("{folder}{name}"), fs::read(entry.path())?);
                }
            }
            if is_empty && !folder.is_empty() {
                tree.empty.push(folder);
            }
        }
        tree.empty.sort();
        Ok(tree)
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

fn content(rng: &mut Rng, max: usize) -> Vec<u8> {
    // Sizes spread over orders of magnitude: a power drawn evenly, then a size below it.
    let top = 1_u64 << rng.below(u64::from((max as u64 + 1).ilog2()) + 1);
    let len = rng.below(top.min(max as u64) + 1) as usize;
    let seed = rng.next_u64();
    match rng.below(4) {
        0 => data::random(seed, len),
        1 => data::mixed(seed, len),
        _ => data::text(seed, len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_the_same_for_its_seed_and_survives_the_disk() -> io::Result<()> {
        let tree = Tree::random(1, 60, 20_000);
        assert_eq!(tree, Tree::random(1, 60, 20_000));
        assert_ne!(tree, tree.next(2));
        let folder = tempfile::tempdir()?;
        tree.write(folder.path())?;
        let mut read = Tree::read(folder.path())?;
        let mut expected = tree;
        // A folder that only holds empty folders is not empty itself.
        read.empty.retain(|folder| expected.empty.contains(folder));
        expected.empty.sort();
        expected.empty.retain(|folder| read.empty.contains(folder));
        assert_eq!(read, expected);
        Ok(())
    }
}
