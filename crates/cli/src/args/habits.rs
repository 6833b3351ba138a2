//! What people type, on the whole command line: levels of `--verbose` as in restic, the options
//! without effect, which `ignored` defines, and verbs in two words.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};

use super::ignored::named;
use super::{Cli, Command};

/// The given options that have no effect, as they are written. restic mode needs `--mode`.
pub(crate) fn ignored(cli: &Cli, is_restic: bool) -> Vec<String> {
    let mut found = cli.global.ignored.given();
    found.extend(match &cli.command {
        Command::Init(args) => named(&[(args.repository_version.is_some(), "--repository-version")]),
        Command::Backup(args) => args.without_effect(),
        Command::Ls(args) => named(&[(args.human_readable && !args.long, "--human-readable without --long")]),
        Command::Find(args) => named(&[(args.human_readable && !args.long, "--human-readable without --long")]),
        Command::Unlock(args) => named(&[(args.remove_all, "--remove-all")]),
        Command::Restore(args) => named(&[(args.verify && args.dry_run, "--verify with --dry-run")]),
        Command::Check(args) => named(&[(args.with_cache, "--with-cache")]),
        Command::Stats(args) => {
            let mode = "--mode (of restic's modes, Logical is restore-size, and Stored is raw-data)";
            named(&[(args.mode.is_some() && !is_restic, mode)])
        }
        Command::Forget(args) => {
            let of_pass = if args.prune { Vec::new() } else { args.pass.given() };
            of_pass.into_iter().map(|name| format!("{name} without --prune")).chain(args.pass.ignored.given()).collect()
        }
        Command::Optimize(args) => args.pass.ignored.given(),
        _ => Vec::new(),
    });
    if cli.command.total_memory().is_some() {
        found.extend(named(&[(cli.global.memory.is_some(), "--memory")]));
    }
    found.extend(cli.global.storage.without_effect());
    found
}

/// `--verbose=N` and `-v=N`, as restic has them, in the words of this program: N times `--verbose`.
pub(crate) fn spell_levels(argv: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut is_over = false;
    let level = |word: &OsStr| {
        let level = ["--verbose=", "-v="].into_iter().find_map(|option| word.to_str()?.strip_prefix(option))?;
        level.parse::<usize>().ok().filter(|level| *level <= 3)
    };
    let words = argv.into_iter().flat_map(|word| {
        is_over |= word == "--";
        match level(&word).filter(|_| !is_over) {
            Some(level) => vec![OsString::from("--verbose"); level],
            None => vec![word],
        }
    });
    words.collect()
}

/// `larder serve webdav` as `larder serve-webdav`, if that is why a command line was refused.
pub(crate) fn in_one_word(argv: &[OsString], refused: &clap::Error) -> Option<Vec<OsString>> {
    let verb = refused.get(ContextKind::InvalidSubcommand)?;
    if *verb != ContextValue::String("serve".to_owned()) {
        return None;
    }
    let kinds = ["block", "sftp", "webdav"];
    let at = argv.windows(2).position(|pair| pair[0] == "serve" && kinds.iter().any(|kind| pair[1] == *kind))?;
    let mut joined = argv[at].clone();
    joined.push("-");
    joined.push(&argv[at + 1]);
    Some([&argv[..at], &[joined], &argv[at + 2..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn options_without_effect_are_named() {
        let of = |line: &str| {
            let cli = Cli::try_parse_from(["larder"].into_iter().chain(line.split(' '))).expect("accepted");
            ignored(&cli, false).join(" ")
        };
        assert_eq!(of("snapshots"), "");
        assert_eq!(of("snapshots --no-lock --retry-lock 5m"), "");
        assert_eq!(of("backup -o s3.connections=3 --option x . --pack-size 16"), "--pack-size -o s3.connections -o x");
        assert_eq!(of("backup . --read-concurrency 4 --cleanup-cache"), "--cleanup-cache --read-concurrency");
        assert_eq!(of("init --repository-version stable --key-hint 1a"), "--key-hint --repository-version");
        assert_eq!(of("check --with-cache --no-extra-verify"), "--no-extra-verify --with-cache");
        assert_eq!(of("unlock --remove-all --http-user-agent x"), "--http-user-agent --remove-all");
        assert_eq!(of("find x --human-readable"), "--human-readable without --long");
        assert!(of("stats --mode raw-data").starts_with("--mode (of restic's modes, Logical"));
        assert!(Cli::try_parse_from(["larder", "stats", "--mode", "foo"]).is_err());
        assert_eq!(of("snapshots --stuck-request-timeout 5m"), "--stuck-request-timeout");
        assert_eq!(of("prune --repack-small --repack-cacheable-only"), "--repack-small --repack-cacheable-only");
        assert_eq!(of("forget --keep-last 1 --prune --repack-uncompressed"), "--repack-uncompressed");
    }

    #[test]
    fn levels_are_spelled_out() {
        let of = |line: &str| {
            let words = spell_levels(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("larder --verbose=2 ls"), "larder --verbose --verbose ls");
        assert_eq!(of("larder ls --verbose=0"), "larder ls");
        assert_eq!(of("larder -v=1 ls"), "larder --verbose ls");
        assert_eq!(of("larder ls --verbose=9 --verbose=x"), "larder ls --verbose=9 --verbose=x");
        assert_eq!(of("larder backup -- --verbose=2"), "larder backup -- --verbose=2");
    }

    #[test]
    fn verbs_may_be_two_words() {
        let of = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let refused = Cli::try_parse_from(&words).expect_err("it is no verb");
            let joined = in_one_word(&words, &refused)?;
            Some(joined.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        };
        let joined = of("larder -r serve serve webdav --user u").expect("a verb");
        assert_eq!(joined, "larder -r serve serve-webdav --user u");
        assert_eq!([of("larder serve"), of("larder serve all"), of("larder surf webdav")], [None, None, None]);
        assert_eq!(of("larder snapshots --serve webdav"), None);
    }
}
