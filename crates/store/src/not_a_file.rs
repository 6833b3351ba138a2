//! [`NotAFile`]: an object's place holds something that is no regular file.

use std::io;

use rustix::fs::FileType;

/// Something other than a regular file is in an object's place.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{0} lies in its place")]
pub(crate) struct NotAFile(&'static str);

impl NotAFile {
    pub(crate) fn new(found: FileType) -> Self {
        Self(match found {
            FileType::Directory => "a folder",
            FileType::Symlink => "a symbolic link, which is not followed,",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something that is not a file",
        })
    }
}

impl NotAFile {
    /// Whether an error says that there is a folder.
    pub(crate) fn is_folder(error: &io::Error) -> bool {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        found.is_some_and(|found| found.0 == Self::new(FileType::Directory).0)
    }
}

impl From<NotAFile> for io::Error {
    fn from(found: NotAFile) -> Self {
        Self::other(found)
    }
}
