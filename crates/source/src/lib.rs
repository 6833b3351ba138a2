//! The sources of backups, and the targets of restores.
//!
//! The reading half turns things of the outside world into entries (`larder_format::entry`) and
//! bytes:
//!
//! * [`walk`]: a file tree, in the order of a version's metadata stream, with excluded entries and
//!   problems;
//! * [`read`]: the bytes of one file, without its holes, and an honest word on whether it changed
//!   meanwhile;
//! * [`exclude`], [`pattern_file`], [`files_from`]: which paths are wanted;
//! * [`stream`]: standard input and the output of a command;
//! * [`image`]: disk images, their holes, and maps of their changes;
//! * [`access_list`]: access lists of archives, both ways.
//!
//! The restoring half is [`target`]: entries and bytes become files below one folder again, with
//! all their metadata.
//!
//! Everything here blocks: callers run it on plain threads. Nothing here knows chunks, containers
//! or versions. A problem with one path is a value that names it, never the end of the walk; the
//! caller decides what to do.
//!
//! Linux only: descriptors, `statx` and `/proc/self/fd` are used directly. Above this crate:
//! `lnode`. Below: `format`, `nbd`.

mod directory;
mod drop_behind;
mod extents;
mod file_system;
mod glob;
mod joined;
mod links;
mod owners;
mod path_text;
mod read_error;
mod stat;

pub mod access_list;
pub mod exclude;
pub mod files_from;
pub mod found;
pub mod image;
pub mod item;
#[cfg(test)]
mod kind_tests;
pub mod pattern_file;
pub mod read;
pub mod roots;
pub mod stream;
pub mod target;
pub mod walk;
pub mod xattrs;

pub use exclude::{Case, Excludes, PathMatcher, PatternError, TagFile, Verdict};
pub use files_from::{ListError, ListFormat, Listed, read_list};
pub use found::Found;
pub use item::{Item, Problem, SkipReason, WalkError};
pub use owners::Owners;
pub use path_text::PathText;
pub use pattern_file::{PatternFileError, parse_patterns};
pub use read::{Change, Elsewhere, FileReader, Finished};
pub use read_error::ReadError;
pub use roots::{Roots, RootsError};
pub use stream::{CommandError, CommandStopper, CommandStream, StreamNameError, stream_entries};
pub use walk::{Walk, WalkOptions};
pub use xattrs::XattrError;
