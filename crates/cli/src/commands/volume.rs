//! `larder volume`: stores of deduplicated block devices.
//!
//! | module    | what it has                                                            |
//! |-----------|------------------------------------------------------------------------|
//! | `request` | what a store can be asked, and its answers; `execute` answers          |
//! | `target`  | who answers: the server of a store, or the store opened here           |
//! | `control` | the socket of a server                                                 |
//! | `users`   | clients of each volume                                                 |
//! | `report`  | numbers of a store; `stats` and `metrics` show them                    |
//! | `below`   | a file of a snapshot below a volume; `from` makes such volumes         |
//! | `parents` | all of them, of an opened store; `hydrate` copies them                 |
//! | `serve`   | the server; `doors` opens what it listens on; `iscsi` runs `tgtd`      |
//! | others    | one verb each                                                          |

mod backup;
mod below;
mod change;
mod check;
mod collect;
mod control;
mod copy_progress;
mod create;
mod doors;
mod execute;
mod from;
mod goal;
mod host;
mod hydrate;
mod image;
mod init;
mod iscsi;
mod list;
mod metrics;
mod parents;
mod report;
mod request;
mod serve;
mod stats;
mod target;
mod users;

pub(super) use below::{Below, Opened, create_over};
pub(super) use copy_progress::Shown;
pub(super) use from::open_snapshot;
pub(super) use parents::Parents;
pub(super) use target::open_server;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::app::App;
use crate::args::{VolumeArgs, VolumeCommand};
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &VolumeArgs) -> Result<Exit, Failure> {
    match &args.command {
        VolumeCommand::Init(args) => init::run(app, args),
        VolumeCommand::Create(args) => create::run(app, args),
        VolumeCommand::List(args) => list::run(app, args),
        VolumeCommand::Serve(args) => serve::run(app, args),
        VolumeCommand::Stats(args) => stats::run(app, args),
        VolumeCommand::Snapshot(args) => change::snapshot(app, args),
        VolumeCommand::Resize(args) => change::resize(app, args),
        VolumeCommand::Rename(args) => change::rename(app, args),
        VolumeCommand::Delete(args) => change::delete(app, args),
        VolumeCommand::Collect(args) => collect::run(app, args),
        VolumeCommand::Check(args) => check::run(app, args),
        VolumeCommand::Backup(args) => backup::run(app, args),
        VolumeCommand::Hydrate(args) => hydrate::run(app, args),
    }
}

/// Folder and name of `STORE/NAME`.
pub(super) fn split(text: &OsStr) -> Result<(PathBuf, String), Failure> {
    let wrong = || Failure::usage("a volume is named as STORE/NAME, such as /srv/store/disk1");
    let path = Path::new(text);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(wrong()) };
    if folder.as_os_str().is_empty() || text.as_bytes().ends_with(b"/") {
        return Err(wrong());
    }
    Ok((folder.to_owned(), name.to_str().ok_or_else(wrong)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_named_by_store_and_name() {
        assert_eq!(split(OsStr::new("/srv/s/disk1")).unwrap(), ("/srv/s".into(), "disk1".into()));
        assert_eq!(split(OsStr::new("./s/a")).unwrap(), ("./s".into(), "a".into()));
        for wrong in ["", "disk1", "/", "s/..", "s/"] {
            assert_eq!(split(OsStr::new(wrong)).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
