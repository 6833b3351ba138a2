//! [`InItsPlace`]: a wrong entry in the place of an object, or of a folder of objects.

use std::io;

use rustix::fs::FileType;

/// Something other than a regular file is in an object's place, or something other than a folder in
/// a folder's place.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{0} lies in its place")]
pub(crate) struct InItsPlace(&'static str);

impl InItsPlace {
    /// Something that is not a folder is in a folder's place.
    pub(crate) const NO_FOLDER: Self = Self("something that is not a folder");

    /// A link that is followed and leads to no folder.
    pub(crate) const BROKEN_LINK: Self = Self("a symbolic link that leads to no folder");

    pub(crate) fn new(found: FileType) -> Self {
        Self(match found {
            FileType::RegularFile => "a file",
            FileType::Directory => "a folder",
            FileType::Symlink => "a symbolic link, which is not followed,",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something that is not a file",
        })
    }
}

impl InItsPlace {
    /// Whether an error says that there is a folder.
    pub(crate) fn is_folder(error: &io::Error) -> bool {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        found.is_some_and(|found| found.0 == Self::new(FileType::Directory).0)
    }
}

impl From<InItsPlace> for io::Error {
    fn from(found: InItsPlace) -> Self {
        Self::other(found)
    }
}
