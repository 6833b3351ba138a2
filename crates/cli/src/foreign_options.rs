//! Options of Borg and others that do not exist here, each with its replacement or the reason why
//! none is needed.
//!
//! Called when a command line has an unknown option. Options of restic without effect are accepted,
//! by `args::ignored`.

use clap::error::{ContextKind, ContextValue};

use crate::failure::Failure;

/// Options of other programs, with advice. One that ends with `-` stands for all that begin so.
const TABLE: [(&[&str], &str); 9] = [
    (&["--stats", "--progress"], "leave it out: progress and a summary are shown anyway, and --json has both"),
    (&["--list"], "use --verbose, which names each item"),
    (
        &["--keep-", "--glob-archives"],
        "`larder forget` applies a policy, for example `larder forget --keep-daily 7 --prune`",
    ),
    (&["--repair"], "`larder check` changes nothing, and says what to do; `larder repair` repairs"),
    (&["--encryption"], "leave it out: every repository is encrypted"),
    (&["--comment"], "use --tag"),
    (&["--pattern", "--patterns-from"], "use --exclude and --exclude-file"),
    (&["--strip-components"], "use `larder restore SNAPSHOT:PATH --target DIR`, which restores what is below PATH"),
    (&["--paper", "--qr-html"], "leave it out: `larder key export` writes a key for paper"),
];

/// The failure for an option of another program; `None`: the error is another one, or the option is
/// not in the table.
pub(crate) fn known(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = typed.split(['=', ' ']).next()?;
    let is_it = |name: &&str| option == *name || name.ends_with('-') && option.starts_with(*name);
    let (_, instead) = TABLE.iter().find(|(options, _)| options.iter().any(is_it))?;
    Some(Failure::usage(format!("this command has no option {option}")).advise(*instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{CommandFactory, Parser};

    fn advice(line: &str) -> Option<String> {
        let refused = Cli::try_parse_from(["larder"].into_iter().chain(line.split(' '))).expect_err("it is refused");
        known(&refused).map(|failure| failure.message)
    }

    #[test]
    fn options_of_other_programs_are_known() {
        for (line, option) in [
            ("prune --keep-daily 7", "--keep-daily"),
            ("optimize --keep-within=7d", "--keep-within"),
            ("create --stats .", "--stats"),
            ("backup --progress .", "--progress"),
            ("check --repair", "--repair"),
            ("init --encryption repokey", "--encryption"),
            ("key export --paper", "--paper"),
        ] {
            assert_eq!(advice(line), Some(format!("this command has no option {option}")), "{line}");
        }
        // A mistake is no habit.
        assert_eq!([advice("backup --excluded x ."), advice("check --keepers")], [None, None]);
    }

    /// Every advised verb exists.
    #[test]
    fn advice_names_verbs_of_ours() {
        let ours = Cli::command();
        for (_, advice) in TABLE {
            for rest in advice.split("`larder ").skip(1) {
                let verb = rest.split([' ', '`']).next().unwrap_or_default();
                assert!(ours.find_subcommand(verb).is_some(), "{verb}: {advice}");
            }
        }
    }
}
