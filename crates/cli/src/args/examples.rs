//! Examples of each verb, for `--help` and the manual pages.

/// A command line, and the reason for it.
type Example = (&'static str, &'static str);

/// Examples of each verb, including its subcommands.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "init",
        &[
            ("larder -r /mnt/disk/repo init", "Create a repository in a folder"),
            ("larder -r s3://bucket/prefix init", "Create a repository in a bucket"),
        ],
    ),
    (
        "backup",
        &[
            (
                "larder backup /home /etc -x --exclude-caches",
                "Back up two folders, without other file systems and caches",
            ),
            (
                "larder backup --stdin-from-command --stdin-filename shop.sql --series shop -- pg_dump shop",
                "Back up the output of a command; if it fails, no snapshot is made",
            ),
            ("larder backup --read-special /dev/vg0/snap --series vm", "Back up a block device"),
            ("larder backup --image qcow2:/srv/web.qcow2 --series vm/web", "Back up what changed in a disk image"),
            ("larder --key-file web1.key backup /etc", "Back up with the key file of this machine"),
        ],
    ),
    (
        "snapshots",
        &[
            ("larder snapshots", "List all snapshots"),
            ("larder snapshots --host web1 --latest 3", "List the newest three of each series of one host"),
        ],
    ),
    (
        "ls",
        &[
            ("larder ls latest:/etc", "List a folder of the newest snapshot"),
            ("larder ls --long --recursive 1a2b3c4d:/home", "List all files below a folder with their metadata"),
            ("larder ls --ncdu latest | ncdu -f -", "Show where the space is"),
        ],
    ),
    (
        "find",
        &[
            ("larder find '*.conf'", "Find files by name in all snapshots"),
            ("larder find --snapshot latest --ignore-case 'report*'", "Find files in the newest snapshot"),
            ("larder find '*' --larger 1G --newer 2026-01-01", "Find large files that are new"),
        ],
    ),
    (
        "history",
        &[
            ("larder history /etc/fstab", "Show when a file changed"),
            ("larder history /srv/www --series web1:www", "Show when a folder changed, in one series"),
        ],
    ),
    (
        "diff",
        &[
            ("larder diff latest~1 latest", "Compare the two newest snapshots"),
            ("larder diff 1a2b3c4d:/etc latest:/etc", "Compare one folder in two snapshots"),
        ],
    ),
    (
        "stats",
        &[
            ("larder stats", "Show the size of the repository"),
            ("larder stats --by series", "Show one line for each series"),
        ],
    ),
    (
        "restore",
        &[
            ("larder restore latest --target /tmp/restored", "Restore the newest snapshot"),
            ("larder restore latest:/home/u --target /home/u --overwrite if-changed", "Restore one folder in place"),
            ("larder restore 1a2b3c4d --target /tmp/r --include '*.sql'", "Restore only some files"),
            ("larder restore latest --target /tmp/r --plan", "Show what has to be thawed of cold storage"),
            ("larder restore latest --target /tmp/r --thaw", "Thaw it, wait, and restore everything"),
        ],
    ),
    (
        "dump",
        &[
            ("larder dump latest:/shop.sql --series shop | psql shop", "Write one file to standard output"),
            (
                "larder dump latest:/etc | tar -x --acls --xattrs -C /tmp/etc",
                "Unpack a folder into an empty folder of its own: paths begin in that folder",
            ),
        ],
    ),
    (
        "volume",
        &[
            ("larder volume init /srv/store", "Create a volume store in a folder; asks for a password"),
            (
                "larder volume init /srv/store --store-password-file /etc/larder/store",
                "Create one with a password of its own, as scripts do",
            ),
            ("larder volume init /srv/store --like s3://bucket/prefix", "Create one with the keys of a repository"),
            ("larder volume create /srv/store/disk1 100GiB", "Create a volume"),
            ("larder volume create /srv/store/disk2 --clone disk1@monday", "Create a volume from a snapshot"),
            ("larder volume create /srv/store/vm --from latest:/disk.img", "Create a volume over a file of a snapshot"),
            (
                "larder volume create /srv/store/vm --from 1a2b3c4d --copy",
                "Create a volume with all data of a snapshot",
            ),
            ("larder volume list /srv/store", "List the volumes of a store"),
            ("larder volume serve /srv/store --nbd unix:/run/store.sock", "Serve all volumes on a socket"),
            (
                "larder volume serve /srv/store --nbd 0.0.0.0:10809 --tls /etc/larder/tls --metrics 127.0.0.1:9810",
                "Serve them to other machines that have certificates, and metrics to this one",
            ),
            (
                "larder volume serve /srv/store --iscsi 192.0.2.1:3260 --chap /etc/larder/chap",
                "Serve them as iSCSI targets too",
            ),
            ("larder volume stats /srv/store", "Show the space and the work of a store"),
            ("larder volume stats /srv/store --watch", "Show the work of a server every second"),
            ("larder volume snapshot /srv/store/disk1@monday", "Create a snapshot"),
            ("larder volume resize /srv/store/disk1 200GiB", "Make a volume larger"),
            (
                "larder volume resize /srv/store/disk1 50GiB --shrink",
                "Make it smaller, and discard what is behind 50 GiB",
            ),
            ("larder volume rename /srv/store/disk1 old", "Change the name of a volume"),
            ("larder volume delete /srv/store/disk1@monday", "Delete a snapshot"),
            ("larder volume delete /srv/store/disk1 --snapshots", "Delete a volume and its snapshots"),
            ("larder volume collect /srv/store --until-free 20%", "Free space"),
            ("larder volume check /srv/store --read-data", "Check a store, and read all its data"),
            ("larder volume check /srv/store --repair", "Check a store, and replace wrong counts"),
            ("larder volume check /srv/store --accept-loss", "Open a store whose log is damaged, and lose writes"),
            ("larder volume backup /srv/store/disk1", "Back up the blocks that changed since the last backup"),
            (
                "larder volume backup /srv/store/disk1 --series disk1 --tag nightly",
                "The same in a series of this name, with a tag",
            ),
            ("larder volume hydrate /srv/store/vm", "Copy what it still reads from the repository"),
        ],
    ),
    (
        "mount",
        &[
            ("larder mount /mnt/backups", "Show all snapshots by id, time, host, tag and series"),
            ("larder mount /mnt/home --snapshot latest:/home --series web1", "Show one folder of one snapshot"),
            (
                "larder mount /mnt/backups --host web1 --path-template '%T' --time-template '%Y-%m-%d'",
                "Show the snapshots of one host as folders named by their days",
            ),
        ],
    ),
    (
        "serve-block",
        &[
            ("larder serve-block latest --series vm", "Serve the newest disk image of a series on a socket"),
            (
                "larder serve-block latest:/images/vm.raw --nbd unix:/run/vm.sock --hydrate",
                "Serve a file of a snapshot, and copy it to this machine meanwhile",
            ),
            (
                "larder serve-block 1a2b3c4d --nbd 0.0.0.0:10809 --tls /etc/larder/tls",
                "Serve it to other machines that have certificates",
            ),
            ("larder serve-block 1a2b3c4d --overlay /srv/store/vm", "Serve it writable; writes go to a volume"),
        ],
    ),
    (
        "serve-webdav",
        &[
            ("larder serve-webdav", "Serve all snapshots to programs of this machine, at http://127.0.0.1:8080"),
            (
                "larder serve-webdav --addr 0.0.0.0:8443 --user ann --user-password-file ann.password --tls-cert cert.pem --tls-key key.pem",
                "Serve them to other machines",
            ),
        ],
    ),
    (
        "serve-sftp",
        &[
            ("larder serve-sftp /srv/larder/web1 --append-only", "What sshd runs for the key of one machine"),
            ("larder serve-sftp /srv/larder/web1 --max-size 2TiB", "Let clients delete, and limit their space"),
        ],
    ),
    (
        "check",
        &[
            ("larder check", "Check the structure of the repository"),
            ("larder check --read-data-subset 5%", "Also read and verify a random part of the content"),
            ("larder check --read-data --workers 4", "Read all content, together with `larder fleet work` elsewhere"),
        ],
    ),
    (
        "drill",
        &[
            ("larder drill", "Restore a hundredth of the newest snapshot of each series, and compare it"),
            ("larder drill --sample 1GiB --compare-source", "Compare with the files of this machine, too"),
            ("larder drill --series web1:/srv --all --sample 100%", "Restore a whole series"),
            ("larder drill --no-write --report /var/tmp/drill.html", "Only read the sample, and write a report"),
        ],
    ),
    (
        "forget",
        &[
            (
                "larder forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run",
                "Show what a policy would forget",
            ),
            ("larder forget --keep-within 30d --prune", "Apply a policy and free the space"),
            ("larder forget 1a2b3c4d", "Forget one snapshot"),
        ],
    ),
    ("pin", &[("larder pin 1a2b3c4d --reason 'before the migration'", "Protect one snapshot")]),
    ("unpin", &[("larder unpin 1a2b3c4d", "Remove the protection")]),
    (
        "tag",
        &[
            ("larder tag --add keep,release 1a2b3c4d", "Add two tags to a snapshot"),
            ("larder tag --remove nightly --host web1", "Remove a tag from all snapshots of a host"),
        ],
    ),
    (
        "copy",
        &[
            ("larder -r /mnt/usb/repo copy --from-repo s3://bucket/prefix", "Copy all snapshots that have no copy yet"),
            (
                "larder -r /mnt/usb/repo copy --from-repo /srv/repo --latest 1 --host web1",
                "Copy the newest snapshot of each series of a host",
            ),
            ("larder -r /mnt/usb/repo copy --from-repo /srv/repo --delete", "Keep a mirror"),
        ],
    ),
    (
        "import",
        &[
            ("larder import tar web1.tar.gz --series web1 --host web1", "Import an archive as a snapshot of a host"),
            ("ssh web2 tar c /etc | larder import tar - --series web2", "Import a stream"),
            ("larder import restic /mnt/restic --compare", "Import all snapshots that are new, and compare each"),
            ("larder import borg /mnt/borg --compare", "Import all archives that are new, and compare each"),
        ],
    ),
    (
        "rewrite",
        &[
            ("larder rewrite --exclude /home/u/.netrc --forget", "Take a file out of all snapshots"),
            ("larder rewrite --new-host web1 --host web1.old -n", "Show which snapshots would get another host name"),
        ],
    ),
    (
        "series",
        &[
            ("larder series list", "List all series"),
            ("larder series show vm-images", "Show one series and its settings"),
            ("larder series set vm-images --layout lifecycle", "Choose the layout of a new series"),
            ("larder series convert vm-images --layout lifecycle", "Convert an existing series"),
        ],
    ),
    ("layout", &[("larder layout vm-images --svg vm-images.svg", "Draw how a series is stored")]),
    (
        "optimize",
        &[
            ("larder optimize --dry-run", "Show what a pass would do, and its cost"),
            ("larder optimize", "Free space and rewrite data where that makes restores faster"),
            ("larder optimize --max-duration 30m", "Start nothing new after half an hour"),
            ("larder optimize --workers 4", "Share the work with `larder fleet work` on other hosts"),
        ],
    ),
    ("gnode", &[("larder gnode --every 12h", "Run a pass after changes, and at least twice a day")]),
    (
        "fleet",
        &[
            ("larder fleet run images.toml", "Back up the images of an inventory, and add them to the index"),
            ("larder fleet run images.toml --dry-run", "Show the images and what they are compared with"),
            ("larder fleet plan images.toml --time-limit 3h", "Show rounds, hours, bytes and prices of a batch"),
            ("larder fleet run images.toml --time-limit 3h", "Freeze fewer images at once, in as many rounds as fit"),
            ("larder fleet plan images.toml --what-if hosts=16", "Show the same for sixteen hosts"),
            ("larder fleet run images.toml --queue store", "Let workers on other hosts take part"),
            ("larder fleet work images.toml", "Read the images of this host for such batches"),
            ("larder fleet work", "Help `larder check --workers` and `larder optimize --workers` on another host"),
            ("larder fleet status --watch", "Watch the stages of batches"),
            ("larder fleet retry 018f3a", "Back up the images of a batch that were not saved"),
            ("larder fleet abort 018f3a", "End a batch"),
            ("larder fleet clean", "Delete what ended batches left"),
        ],
    ),
    (
        "run",
        &[
            ("larder run home", "Back up a profile, apply its policy, and maintain its repositories"),
            ("larder run --all --dry-run", "Show what all profiles would do"),
            ("larder run home --wait 1h", "Wait for another run of the profile first"),
        ],
    ),
    (
        "schedule",
        &[
            ("larder schedule install", "Install timers for all profiles with a schedule"),
            ("larder schedule install home --print", "Print the units of one profile"),
            ("larder schedule list", "List what is installed"),
            ("larder schedule show", "Show the last and the next runs"),
            ("larder schedule remove home", "Remove the timer of one profile"),
        ],
    ),
    (
        "config",
        &[
            ("larder config check", "Check the configuration for mistakes"),
            ("larder config show home", "Show the options of a profile and where they come from"),
            ("larder config schema > larder.schema.json", "Write the schema for an editor"),
        ],
    ),
    (
        "repair",
        &[
            ("larder repair --from /home --dry-run", "Show what could be restored from files that still exist"),
            ("larder repair data --from /home --from /old/home", "Restore lost contents from two folders"),
            ("larder repair snapshots", "Save the undamaged parts of damaged snapshots"),
            ("larder repair index", "Rebuild the index"),
            ("larder repair config", "Restore config from the copy in a key"),
        ],
    ),
    (
        "key",
        &[
            ("larder key list", "List the keys"),
            ("larder key add", "Add a password"),
            ("larder key add --role backup --domain web1 --file web1.key", "Make a key that only backs up"),
            ("larder key add --role restore+operate --file gnode.key", "Make a key for passes and restores"),
            ("larder key passwd --new-password-file new.txt", "Change the password without a prompt"),
            ("larder key remove 1a2b", "Remove a password"),
            ("larder key export --output paper-key.txt", "Save the paper key"),
            ("larder key import paper-key.txt", "Restore access with the paper key"),
        ],
    ),
    ("validate-store", &[("larder validate-store s3://bucket/test", "Test a bucket before its first use")]),
    ("unlock", &[("larder unlock", "Succeed, for scripts of other programs")]),
    (
        "cat",
        &[
            ("larder cat config", "Show the settings of the repository"),
            ("larder cat manifest 1a2b3c4d", "Show the manifest of a snapshot"),
        ],
    ),
    (
        "completions",
        &[(
            "larder completions bash > ~/.local/share/bash-completion/completions/larder",
            "Set up bash, if that folder exists",
        )],
    ),
    ("man", &[("larder man /usr/local/share/man/man1", "Write a manual page for each verb")]),
    ("version", &[("larder version --json", "Show the version as JSON")]),
];

/// Examples of the program as a whole.
const FIRST_STEPS: &[Example] = &[
    ("larder init", "Create the repository that LARDER_REPOSITORY names"),
    ("larder backup /home", "Store a snapshot"),
    ("larder restore latest --target /tmp/restored", "Restore the newest snapshot"),
];

/// The examples of a verb or a subcommand, such as `["key", "add"]`. An empty path is the program
/// itself.
pub(crate) fn examples(path: &[&str]) -> Vec<Example> {
    let Some(verb) = path.first() else { return FIRST_STEPS.to_vec() };
    let all = EXAMPLES.iter().find(|(name, _)| name == verb).map_or(&[][..], |(_, examples)| *examples);
    let start = path.join(" ");
    let is_of = |line: &str| line.split_once("larder ").is_some_and(|(_, rest)| rest.starts_with(&start));
    // Options may precede a verb, and nothing is between a verb and its subcommand.
    all.iter().filter(|(line, _)| path.len() == 1 || is_of(line)).copied().collect()
}

/// The examples of a verb or a subcommand as `--help` shows them.
pub(super) fn of(path: &[&str]) -> String {
    let mut text = String::from("Examples:\n");
    for (command, why) in examples(path) {
        text.push_str(&format!("  # {why}\n  {command}\n"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    /// Every example is a command line that this program accepts, and every named verb exists.
    #[test]
    fn examples_are_accepted() {
        for (verb, examples) in EXAMPLES {
            assert!(command().find_subcommand(verb).is_some(), "{verb}");
            for (line, _) in *examples {
                let line = line.rsplit_once("| larder").map_or((*line).to_owned(), |(_, rest)| format!("larder{rest}"));
                let line = line.split(['|', '>']).next().unwrap_or_default();
                let words = line.split_whitespace().map(|word| word.trim_matches('\''));
                // Quoted words with blanks are split here; the verb takes the rest for more words.
                let words: Vec<_> = match line.contains("--reason") {
                    true => vec!["larder", "pin", "1a2b3c4d", "--reason", "before the migration"],
                    false => words.collect(),
                };
                assert!(command().try_get_matches_from(&words).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn every_verb_has_examples() {
        let larder = command();
        for verb in larder.get_subcommands() {
            assert!(of(&[verb.get_name()]).starts_with("Examples:\n  # "), "{}", verb.get_name());
            for below in verb.get_subcommands() {
                let path = [verb.get_name(), below.get_name()];
                assert!(!examples(&path).is_empty(), "{path:?}");
            }
        }
    }
}
