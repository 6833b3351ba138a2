//! From paths to files. Names are looked up one after the other, and links are followed.
//!
//! WebDAV has no links, so they appear as their target. A link may lead everywhere in its snapshot.
//! An absolute target is one in the snapshot, never one of this machine.
//!
//! A walk through the tree ends. It meets no more files than there are, times the links to folders:
//! below such a link, no other one appears. Neither does one that leads to a folder which its own
//! path has shown already.

use larder_tree::{Attributes, Kind, ROOT, Tree, TreeError};

/// Links that one link may lead through, as on Linux.
const LINKS_MAX: usize = 40;
/// Links to folders of a snapshot in one path. With more, folders that link to each other would be
/// shown in all their orders.
const FOLDER_LINKS_MAX: usize = 1;

/// Where a path leads.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Facts of the file or folder.
    pub(crate) attributes: Attributes,
    /// The way to it, if it is a folder; else to the folder that it is in.
    pub(crate) trail: Trail,
}

/// The way to a folder.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    /// The folders that it really is in, from the root of the tree to itself.
    folders: Vec<u64>,
    /// The folders that its path has shown.
    shown: Vec<u64>,
    /// Links to folders of a snapshot in the path.
    links: usize,
}

/// Looks up a path.
///
/// # Errors
/// It leads nowhere, or the repository cannot be read.
pub(crate) fn find<'a>(tree: &Tree, names: impl Iterator<Item = &'a [u8]>) -> Result<Place, TreeError> {
    let trail = Trail { folders: vec![ROOT], shown: vec![ROOT], links: 0 };
    let mut place = Place { attributes: tree.attributes(ROOT)?, trail };
    for name in names {
        if place.attributes.kind != Kind::Folder {
            return Err(TreeError::NotFound);
        }
        let found = tree.lookup(place.trail.folder(), name)?;
        place = place.trail.enter(tree, found)?.ok_or(TreeError::NotFound)?;
    }
    Ok(place)
}

impl Trail {
    /// The folder's number.
    pub(crate) fn folder(&self) -> u64 {
        self.folders.last().copied().unwrap_or(ROOT)
    }

    /// The file or folder that an entry of the folder appears as; `None`: it does not appear.
    pub(crate) fn enter(&self, tree: &Tree, entry: Attributes) -> Result<Option<Place>, TreeError> {
        let (attributes, folders) = match entry.kind {
            Kind::File => return Ok(Some(Place { attributes: entry, trail: self.clone() })),
            Kind::Folder => (entry, [&self.folders[..], &[entry.inode]].concat()),
            Kind::Link => match self.follow(tree, entry) {
                Ok(Some((target, _))) if target.kind != Kind::Folder => {
                    return Ok(Some(Place { attributes: target, trail: self.clone() }));
                }
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(error) if is_nowhere(&error) => return Ok(None),
                Err(error) => return Err(error),
            },
            Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => return Ok(None),
        };
        let is_link = entry.kind == Kind::Link;
        // `latest` is above snapshots.
        let links = self.links + usize::from(is_link && tree.within(entry.inode).is_some());
        if links > FOLDER_LINKS_MAX || is_link && self.shown.contains(&attributes.inode) {
            return Ok(None);
        }
        let shown = [&self.shown[..], &[attributes.inode]].concat();
        Ok(Some(Place { attributes, trail: Self { folders, shown, links } }))
    }

    /// The target of a link in the folder, and the folders that it is in, itself included if it is
    /// one. `None`: it is not in the snapshot, or no file and no folder.
    fn follow(&self, tree: &Tree, link: Attributes) -> Result<Option<(Attributes, Vec<u64>)>, TreeError> {
        let (mut folders, mut link) = (self.folders.clone(), link);
        // The last name comes first.
        let mut names: Vec<Vec<u8>> = Vec::new();
        for _ in 0..LINKS_MAX {
            let root = tree.within(link.inode).map_or(ROOT, |within| within.root);
            let Some(bottom) = folders.iter().position(|folder| *folder == root) else { return Ok(None) };
            let target = tree.link_target(link.inode)?;
            let mut more: Vec<&[u8]> = target.split(|byte| *byte == b'/').filter(|name| is_name(name)).collect();
            if target.starts_with(b"/") {
                folders.truncate(bottom + 1);
                let above = tree.shown_path().unwrap_or_default();
                for name in above.split(|byte| *byte == b'/').filter(|name| is_name(name)) {
                    if more.first() != Some(&name) {
                        return Ok(None);
                    }
                    more.remove(0);
                }
            }
            names.extend(more.into_iter().rev().map(<[u8]>::to_vec));
            match step(tree, &mut folders, bottom, &mut names)? {
                Stepped::Link(next) => link = next,
                Stepped::At(found) => return Ok(Some((found, folders))),
                Stepped::Outside => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Where names of a target end.
enum Stepped {
    /// To a link.
    Link(Attributes),
    /// To a file or a folder.
    At(Attributes),
    /// Nowhere.
    Outside,
}

/// Looks up names up to the next link.
fn step(tree: &Tree, folders: &mut Vec<u64>, bottom: usize, names: &mut Vec<Vec<u8>>) -> Result<Stepped, TreeError> {
    while let Some(name) = names.pop() {
        if name == b".." {
            if folders.len() > bottom + 1 {
                folders.pop();
            } else if tree.shown_path().is_some_and(|path| !path.is_empty()) {
                return Ok(Stepped::Outside);
            }
            // The root of everything is its own parent.
            continue;
        }
        let found = tree.lookup(folders.last().copied().unwrap_or(ROOT), &name)?;
        match found.kind {
            Kind::Folder => folders.push(found.inode),
            Kind::Link => return Ok(Stepped::Link(found)),
            Kind::File if names.is_empty() => return Ok(Stepped::At(found)),
            _ => return Ok(Stepped::Outside),
        }
    }
    Ok(Stepped::At(tree.attributes(folders.last().copied().unwrap_or(ROOT))?))
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"."
}

/// Whether an error only says that there is no such file.
fn is_nowhere(error: &TreeError) -> bool {
    matches!(error, TreeError::NotFound | TreeError::NotAFolder | TreeError::Unsuitable)
}
