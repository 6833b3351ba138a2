//! Verbs of restic, rustic, kopia and Borg that do not exist here, each with its replacement or the
//! reason why none is needed.
//!
//! Called when a command line names an unknown verb. Verbs with the same meaning are aliases in
//! `args`, not here.

use crate::failure::Failure;

/// Verbs of other programs, with advice.
const TABLE: [(&[&str], &str); 22] = [
    (
        &["umount", "unmount", "webdav", "browse"],
        "`larder mount DIR` shows snapshots as folders, and `umount DIR` ends that; `larder serve-webdav` serves them",
    ),
    (
        &["sync", "transfer", "clone", "sync-to"],
        "`larder copy` copies snapshots into another repository; a whole repository is plain files or objects, for rsync or rclone",
    ),
    (
        &["rename", "recreate", "comment", "description"],
        "snapshots never change; `larder rewrite` makes changed ones, and `larder tag` changes their tags",
    ),
    (
        &["rebuild-index", "reindex", "recover"],
        "`larder check` says what is wrong and what to do about it; `larder repair index` rebuilds the index",
    ),
    (&["migrate", "upgrade"], "there is nothing to do: repositories of every released format are read as they are"),
    (&["self-update", "update"], "update this program with what installed it"),
    (&["generate"], "use `larder completions SHELL` or `larder man DIR`"),
    (&["info", "repoinfo", "repo-info", "show-config", "status"], "use `larder stats` or `larder cat config`"),
    (&["undelete", "undo"], "what is forgotten is forgotten for good; `larder pin` keeps a snapshot from that"),
    (&["export-tar", "export", "show"], "use `larder dump SNAPSHOT:PATH`, for folders with --archive tar or zip"),
    (&["import-tar"], "use `larder import tar`, or store it as it is with `larder backup --stdin`"),
    (&["cache"], "copies of metadata need no care: the folder of --cache-dir may be deleted at any time"),
    (&["passwd", "change-passphrase"], "use `larder key passwd`"),
    (
        &["serve", "server", "rest-server"],
        "`larder serve-sftp` serves a folder for repositories to SSH clients, and `larder serve-webdav` serves snapshots",
    ),
    (
        &["snapshot"],
        "use `larder backup` to make one, `larder snapshots` to list them, and `larder restore`, `pin` or `forget` for one",
    ),
    (
        &["repository", "repo", "connect", "disconnect"],
        "name the repository with -r, or in the configuration: `larder init -r PLACE`",
    ),
    (
        &["policy", "policies", "retention"],
        "`larder forget --keep-…` applies a policy; the configuration can have one for each profile",
    ),
    (
        &["garbage-collect", "garbage-collection", "gc"],
        "use `larder optimize`, which frees what no snapshot uses, or `larder schedule install` for a timer",
    ),
    (
        &["verify-job", "prune-job", "sync-job"],
        "use `larder schedule install`, with `larder drill`, `forget` or `copy`",
    ),
    (&["with-lock"], "there are no locks; run the command by itself"),
    (&["debug", "features", "options"], "use `larder version`, and `--help` for the options"),
    (&["verify"], "use `larder check --read-data`, `larder restore --verify` or `larder drill`"),
];

/// The failure for a verb of another program; `None`: it is not in the table.
pub(crate) fn known(verb: &str) -> Option<Failure> {
    let (_, instead) = TABLE.iter().find(|(verbs, _)| verbs.contains(&verb))?;
    Some(Failure::usage(format!("there is no `larder {verb}`")).advise(*instead))
}

/// The failure for `list` with a kind of object, as restic has it; `None`: `text` is no such kind.
pub(crate) fn listing(text: &str) -> Option<Failure> {
    let instead = match text {
        "keys" => "use `larder key list`",
        "packs" | "blobs" | "index" => "use `larder stats` for sizes, and `larder check` to examine all objects",
        _ => return None,
    };
    Some(Failure::usage(format!("there is no `larder list {text}`; `larder list` lists snapshots")).advise(instead))
}

/// The failure for `cat` with a kind of object, as restic has it; `None`: `text` is no such kind.
pub(crate) fn object(text: &str) -> Option<Failure> {
    let instead = match text {
        "pack" => "use `larder find --blob OBJECT` for the files in a container, and `larder check` to examine all",
        "index" => "use `larder check` to examine the index, and `larder stats` for sizes",
        "blob" => "use `larder dump SNAPSHOT:PATH` for the content of a file",
        "tree" => "use `larder ls SNAPSHOT:PATH --json` for the entries of a folder",
        "lock" => "there are no locks; `larder check` names what running and interrupted jobs left",
        "masterkey" => "use `larder key export` for a paper key, which opens the repository",
        _ => return None,
    };
    Some(Failure::usage(format!("there is no `larder cat {text}`")).advise(instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_verb_of_ours_is_called_a_stranger() {
        let ours = crate::args::Cli::command();
        for verb in TABLE.iter().flat_map(|(verbs, _)| verbs.iter()) {
            assert!(ours.find_subcommand(verb).is_none(), "{verb}");
            assert!(known(verb).is_some_and(|failure| failure.message.contains(verb)), "{verb}");
        }
        assert!(known("backup").is_none() && known("nonsense").is_none());
    }

    /// Every advised verb exists.
    #[test]
    fn advice_names_verbs_of_ours() {
        let ours = crate::args::Cli::command();
        for (_, advice) in TABLE {
            for rest in advice.split("`larder ").skip(1) {
                let verb = rest.split([' ', '`']).next().unwrap_or_default();
                assert!(ours.find_subcommand(verb).is_some(), "{verb}: {advice}");
            }
        }
    }
}
