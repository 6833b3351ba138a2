//! What a machine remembers of a repository by itself, in a folder that the storage cannot reach.
//!
//! A storage, or somebody else with a key, can show a machine anything that an earlier state of the
//! repository held. Two things on this machine's own disk tell the difference:
//!
//! | file     | content                                                                           |
//! |----------|-----------------------------------------------------------------------------------|
//! | `secret` | 32 random bytes: the witness of this machine, unless its key file has one          |
//! | `seen`   | CBOR map, [`Seen`]: the newest versions that it made, the newest index that it saw |
//! | `lock`   | empty; locked while `seen` changes                                                 |
//!
//! A third file, `measured`, says how long commands took. Estimates use it, and nothing else does.
//!
//! The folder is `<base>/<repository id>`, mode 0700; its files have mode 0600. A folder or file
//! that others own or may open is not used. Without a state everything works: a backup without a
//! witness reads all files, and a roll-back of the repository is not noticed.
//!
//! Above this crate: `job`. Below: `format`.

mod folder;
mod machine;
mod measured;
mod rolled_back;
mod seen;

pub use folder::{StateError, StateFolder};
pub use machine::Machine;
pub use measured::{Measured, MeasuredRun};
pub use rolled_back::RolledBack;
pub use seen::{Seen, SeenIndex};
