//! Missing files that hard links may name, and the files in their place.

use std::collections::{HashMap, HashSet};

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    /// Paths of files that could not be read.
    missing: HashSet<Vec<u8>>,
    /// For some of them, the further name under which the file was read after all.
    stand_ins: HashMap<Vec<u8>, Vec<u8>>,
}

/// The form of a further name of a file in the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkTo<'a> {
    /// A link to the named file.
    Named,
    /// A link to this file, which stands for the named one.
    StandIn(&'a [u8]),
    /// The file itself, because the named one is missing.
    Nothing,
}

impl HardLinks {
    /// A file that others may link to is not in the version.
    pub(super) fn lost(&mut self, path: Vec<u8>) {
        self.missing.insert(path);
    }

    /// The file `path` stands for `missing` from now on.
    pub(super) fn stands_for(&mut self, path: Vec<u8>, missing: Vec<u8>) {
        self.stand_ins.insert(missing, path);
    }

    /// The target of a further name of `target`.
    pub(super) fn resolve(&self, target: &[u8]) -> LinkTo<'_> {
        match self.stand_ins.get(target) {
            Some(stand_in) => LinkTo::StandIn(stand_in),
            None if self.missing.contains(target) => LinkTo::Nothing,
            None => LinkTo::Named,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_replaced_by_its_first_readable_name() {
        let mut links = HardLinks::default();
        assert_eq!(links.resolve(b"a"), LinkTo::Named);
        links.lost(b"a".to_vec());
        assert_eq!(links.resolve(b"a"), LinkTo::Nothing);
        links.stands_for(b"b".to_vec(), b"a".to_vec());
        assert_eq!(links.resolve(b"a"), LinkTo::StandIn(b"b"));
        assert_eq!(links.resolve(b"b"), LinkTo::Named);
    }
}
