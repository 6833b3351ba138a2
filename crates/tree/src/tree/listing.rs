//! Lists of folders.

use larder_format::entry::{Entry, EntryKind};
use larder_store::RepositoryError;

use super::{Inside, Tree, joined};
use crate::attributes::Attributes;
use crate::error::TreeError;
use crate::folders::Named;
use crate::inode::Position;
use crate::opened::Opened;

/// Numbers of the places in a list that `.` and `..` have, and the first of a name.
const SELF: u64 = 1;
const PARENT: u64 = 2;
const NAMES: u64 = 3;

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The list continues behind this number.
    pub cookie: u64,
    /// Its facts. Without all of them, the numbers of names are wrong.
    pub attributes: Attributes,
}

impl Tree {
    /// Lists a folder behind a cookie; 0 is the beginning. `each` returns whether it wants no more.
    /// `with_all`: all facts are needed.
    pub fn list(
        &self,
        folder: u64,
        cookie: u64,
        with_all: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), TreeError> {
        let inside = self.folder_of(folder)?;
        if cookie < PARENT {
            let own = Attributes::of_folder(folder, self.options.owner, 0);
            if cookie < SELF && each(&Listed { name: b".", cookie: SELF, attributes: own }) {
                return Ok(());
            }
            let parent = Attributes { inode: self.parent(folder)?, ..own };
            if each(&Listed { name: b"..", cookie: PARENT, attributes: parent }) {
                return Ok(());
            }
        }
        match inside {
            Some(inside) => self.list_inside(&inside, cookie.checked_sub(NAMES), with_all, each),
            None => self.list_named(folder, cookie.checked_sub(NAMES), each),
        }
    }

    fn list_named(
        &self,
        folder: u64,
        behind: Option<u64>,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), TreeError> {
        let (folders, read_ms) = self.shown();
        let Some(Named::Folder(names)) = folders.get(folder) else { return Err(TreeError::NotAFolder) };
        let mut names: Vec<(&u64, &String)> = names.iter().map(|(name, number)| (number, name)).collect();
        // Numbers never change, so a list continues rightly after the list of snapshots did.
        names.sort_unstable();
        for (number, name) in names.into_iter().filter(|(number, _)| Some(**number) > behind) {
            // Not of a newer list, in which the name may be missing.
            let Some(attributes) = self.attributes_in(&folders, read_ms, *number) else { continue };
            if each(&Listed { name: name.as_bytes(), cookie: number + NAMES, attributes }) {
                break;
            }
        }
        Ok(())
    }

    fn list_inside(
        &self,
        inside: &Inside,
        behind: Option<u64>,
        with_all: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), TreeError> {
        let Inside { slot, opened, path } = inside;
        let met = |found| self.met(opened, path, found);
        let mut next = match behind {
            None => met(opened.metadata.at_or_behind(&first_below(path)))?,
            Some(number) => {
                let position = Position::of(number);
                let entry = met(opened.metadata.at(position).map(|entry| entry.map(|entry| (position, entry))))?;
                let (_, entry) = entry.ok_or(TreeError::NotFound)?;
                met(behind_child(opened, path, position, &entry))?
            }
        };
        while let Some((position, entry)) = next {
            let Some(rest) = below(&entry.path, path) else { break };
            let name = rest.split(|byte| *byte == b'/').next().unwrap_or(rest);
            let attributes = if name.len() == rest.len() {
                self.entry_attributes(*slot, opened, position, &entry, with_all)?
            } else {
                self.implied(inside, joined(path, name))
            };
            let cookie = position.number().ok_or(TreeError::NoRoom)? + NAMES;
            if each(&Listed { name, cookie, attributes }) {
                break;
            }
            next = met(behind_child(opened, path, position, &entry))?;
        }
        Ok(())
    }
}

/// The entry behind a child of a folder and all below it.
fn behind_child(
    opened: &Opened,
    folder: &[u8],
    position: Position,
    entry: &Entry,
) -> Result<Option<(Position, Entry)>, RepositoryError> {
    let rest = below(&entry.path, folder).unwrap_or_default();
    match rest.iter().position(|byte| *byte == b'/') {
        None if entry.kind == EntryKind::Directory => opened.metadata.next_beside(position, &entry.path),
        None => opened.metadata.next(position),
        // A folder that no entry names.
        Some(end) => opened.metadata.behind_all_of(&joined(folder, &rest[..end])),
    }
}

/// The rest of a path below a folder.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    if folder.is_empty() {
        return Some(path);
    }
    path.strip_prefix(folder)?.strip_prefix(b"/")
}

/// All paths below a folder are at this one or behind it.
fn first_below(folder: &[u8]) -> Vec<u8> {
    if folder.is_empty() { Vec::new() } else { [folder, b"/"].concat() }
}
