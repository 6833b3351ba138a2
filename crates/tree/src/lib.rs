//! Snapshots as one tree of files: by id, time, host, tag and series. `larder mount`
//! and `larder serve-webdav` show it.
//!
//! * [`Tree`]: numbers and names, facts, lists and contents, for several threads.
//! * `template`, `time_layout`: where snapshots appear.
//! * `folders`: the folders above snapshots.
//! * `inode`: numbers are places, so there is no table of them, however many files are looked at.
//! * `metadata`: entries by place or path, in a few decoded blocks for each question.
//! * `links`: how many names files have.
//! * `opened`: snapshots in use. Each is pinned by a lease from the first access on.
//!
//! Memory is bounded by the context: an eighth for decoded metadata, the rest as in other readers.
//! Above: `mount`, `webdav`. Below: `reader`.

mod attributes;
mod error;
mod folders;
mod inode;
mod links;
mod metadata;
mod opened;
mod template;
mod time_layout;
mod tree;

pub use attributes::{Attributes, Kind};
pub use error::TreeError;
pub use inode::ROOT;
pub use template::{BadTemplate, DEFAULT_TEMPLATES, Template};
pub use time_layout::{BadLayout, TimeLayout};
pub use tree::{Listed, OpenFile, Reports, Tree, TreeOptions, Within};
