//! The last sections of a manual page: EXAMPLES, ENVIRONMENT, EXIT STATUS, SEE ALSO.

use std::io::{self, Write};

use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::Page;
use crate::args;
use crate::exit;

/// Variables of every verb that are no defaults of one option.
const OF_ALL: &[(&str, &str)] = &[
    ("LARDER_REPOSITORY", "Location of the repository, without --repo"),
    ("LARDER_REPOSITORY_FILE", "File that contains the location, without --repository-file"),
    ("LARDER_KEY_FILE", "Key file of this machine, without --key-file and without a password option"),
    ("LARDER_PASSWORD_FILE", "File that contains the password, without --password-file"),
    ("LARDER_PASSWORD_COMMAND", "Shell command that prints the password, without --password-command"),
    ("LARDER_PASSWORD", "The password, if nothing else names one"),
    ("LARDER_PROGRESS_FPS", "Progress updates per second, also in a pipe"),
    ("LARDER_CORE_DUMPS", "1 allows core dumps and debuggers, which may show keys"),
];

/// Variables of verbs that set a password.
const OF_NEW_PASSWORDS: &[(&str, &str)] = &[
    ("LARDER_NEW_PASSWORD_FILE", "File that contains the new password"),
    ("LARDER_NEW_PASSWORD_COMMAND", "Shell command that prints the new password"),
    ("LARDER_NEW_PASSWORD", "The new password"),
];

/// Variables of `copy` for the other repository.
const OF_SOURCES: &[(&str, &str)] = &[
    ("LARDER_FROM_REPOSITORY", "Location of the repository to copy from, without --from-repo"),
    ("LARDER_FROM_REPOSITORY_FILE", "File that contains that location"),
    ("LARDER_FROM_KEY_FILE", "Key file for it"),
    ("LARDER_FROM_PASSWORD_FILE", "File that contains its password"),
    ("LARDER_FROM_PASSWORD_COMMAND", "Shell command that prints its password"),
    ("LARDER_FROM_PASSWORD", "Its password, if nothing else names one"),
];

/// Variables of some verbs, whose pages have them too.
const OF_SOME: &[(&str, &str)] = &[
    ("LARDER_HOST", "Host name that new snapshots get, without --host"),
    ("LARDER_MIN_AGE", "Age of objects that passes may delete, without --min-age"),
];

/// Variables of other programs and libraries.
const FOREIGN: &[(&str, &str)] = &[
    ("AWS_*, AZURE_*, GOOGLE_*", "Credentials and endpoints of clouds"),
    ("https_proxy, http_proxy, all_proxy, no_proxy, SSL_CERT_FILE", "Network, for all clouds"),
    ("XDG_CACHE_HOME, HOME, TMPDIR", "Places of the cache and of temporary files"),
];

/// Verbs that readers of a page may also want.
const RELATED: &[(&str, &[&str])] = &[
    ("", &["init", "backup", "snapshots", "restore", "forget", "optimize", "check"]),
    ("init", &["backup", "key", "validate-store"]),
    ("backup", &["forget", "restore", "series", "snapshots"]),
    ("snapshots", &["forget", "ls", "pin", "stats"]),
    ("ls", &["diff", "dump", "find", "restore"]),
    ("find", &["ls", "restore"]),
    ("history", &["diff", "find", "restore"]),
    ("diff", &["history", "ls", "snapshots"]),
    ("stats", &["optimize", "snapshots"]),
    ("restore", &["dump", "ls", "snapshots"]),
    ("dump", &["ls", "restore", "serve-block"]),
    ("mount", &["snapshots", "restore", "dump", "serve-block", "serve-webdav"]),
    ("serve-webdav", &["mount", "restore", "snapshots"]),
    ("serve-block", &["dump", "restore", "snapshots", "volume"]),
    ("volume", &["serve-block"]),
    ("check", &["drill", "optimize", "repair"]),
    ("drill", &["check", "restore", "run"]),
    ("forget", &["optimize", "pin", "snapshots"]),
    ("pin", &["forget", "unpin"]),
    ("unpin", &["forget", "pin"]),
    ("tag", &["backup", "forget", "rewrite", "snapshots"]),
    ("copy", &["backup", "forget", "snapshots"]),
    ("import", &["backup", "copy", "snapshots"]),
    ("rewrite", &["backup", "forget", "optimize", "tag"]),
    ("series", &["backup", "layout", "optimize"]),
    ("layout", &["optimize", "series"]),
    ("optimize", &["check", "forget", "gnode"]),
    ("gnode", &["forget", "optimize"]),
    ("repair", &["check", "optimize"]),
    ("key", &["init"]),
    ("validate-store", &["check", "init"]),
    ("unlock", &["optimize"]),
    ("cat", &["check"]),
    ("completions", &["man"]),
    ("man", &["completions"]),
    ("version", &[]),
];

/// Writes the sections.
pub(super) fn render(page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    examples(page, &mut roff);
    environment(page, &mut roff);
    exit_status(page, &mut roff);
    see_also(page, &mut roff);
    roff.to_writer(out)
}

fn examples(page: &Page, roff: &mut Roff) {
    let path: Vec<_> = page.path.iter().map(String::as_str).collect();
    roff.control("SH", ["EXAMPLES"]);
    for (line, why) in args::examples(&path) {
        item(roff, vec![roman(why)], line);
    }
}

fn environment(page: &Page, roff: &mut Roff) {
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman("An option on the command line overrides its variable.")]);
    let variable = |roff: &mut Roff, (name, meaning): &(&str, &str)| item(roff, vec![bold(*name)], meaning);
    OF_ALL.iter().for_each(|of_all| variable(roff, of_all));
    if page.command.get_arguments().any(|arg| arg.get_id() == "new_password_file") {
        OF_NEW_PASSWORDS.iter().for_each(|of_new| variable(roff, of_new));
    }
    if page.command.get_arguments().any(|arg| arg.get_id() == "from_repo") {
        OF_SOURCES.iter().for_each(|of_source| variable(roff, of_source));
    }
    for arg in page.command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        if let (Some(name), Some(option)) = (arg.get_env(), arg.get_long()) {
            item(roff, vec![bold(name.to_string_lossy())], &format!("Default of --{option}"));
        }
    }
    if page.path.is_empty() {
        OF_SOME.iter().chain(FOREIGN).for_each(|other| variable(roff, other));
    }
}

fn exit_status(page: &Page, roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::TABLE {
        item(roff, vec![bold(code.code().to_string())], meaning);
    }
    roff.control("PP", []);
    roff.text([roman("Any other code is a failure.")]);
    for line in page.path.first().map_or("", |verb| args::exit_codes(verb)).lines() {
        roff.control("PP", []);
        roff.text([roman(line)]);
    }
}

fn see_also(page: &Page, roff: &mut Roff) {
    let above = &page.path[..page.path.len().saturating_sub(1)];
    let below = |verb: &str| [&["larder".to_owned()], above, &[verb.to_owned()]].concat().join("-");
    let mut names = Vec::new();
    if !page.path.is_empty() {
        names.push("larder".to_owned());
    }
    if !above.is_empty() {
        names.push(format!("larder-{}", above.join("-")));
        names.extend(page.siblings.iter().filter(|name| Some(*name) != page.path.last()).map(|name| below(name)));
    } else {
        names.extend(related(page.path.first().map_or("", String::as_str)).iter().map(|name| below(name)));
    }
    roff.control("SH", ["SEE ALSO"]);
    let line = names.iter().enumerate().flat_map(|(at, name)| {
        let comma = if at == 0 { "" } else { ", " };
        [roman(comma), bold(name.clone()), roman("(1)")]
    });
    roff.text(line.collect::<Vec<Inline>>());
}

fn related(verb: &str) -> &'static [&'static str] {
    RELATED.iter().find(|(name, _)| *name == verb).map_or(&[], |(_, related)| *related)
}

/// A heading with an indented text.
fn item(roff: &mut Roff, heading: Vec<Inline>, text: &str) {
    roff.control("TP", []);
    roff.text(heading);
    roff.text([roman(text)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: &Page) -> String {
        String::from_utf8(page.render().expect("memory takes it")).expect("UTF-8")
    }

    #[test]
    fn every_page_has_every_section_and_a_text_for_every_option() {
        let pages = super::super::pages();
        assert!(pages.len() > 35, "{}", pages.len());
        for page in &pages {
            let (name, text) = (page.name(), text(page));
            let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "ENVIRONMENT"];
            for section in [&sections[..], &["\"EXIT STATUS\"", "\"SEE ALSO\""]].concat() {
                let (_, rest) =
                    text.split_once(&format!(".SH {section}\n")).unwrap_or_else(|| panic!("{name}: {section}"));
                let body = rest.split(".SH").next().unwrap_or_default();
                assert!(body.trim().len() > 10, "{name}: {section}");
            }
            let lines: Vec<_> = text.lines().collect();
            for item in lines.windows(3).filter(|item| item[0] == ".TP") {
                assert!(!item[2].is_empty(), "{name}: {} has no text", item[1]);
            }
            assert!(!text.contains("EXTRA") && !text.contains("larder\\-help"), "{name}");
        }
    }

    #[test]
    fn pages_refer_to_pages() {
        let names: Vec<_> = super::super::pages().iter().map(|page| page.name().replace('-', "\\-")).collect();
        for page in super::super::pages() {
            let text = text(&page);
            let referred: Vec<_> = text.split("\\fB").skip(1).filter_map(|rest| rest.split_once("\\fR(1)")).collect();
            assert!(!referred.is_empty(), "{}", page.name());
            for (name, _) in referred {
                assert!(names.iter().any(|known| known == name), "{}: {name}", page.name());
            }
        }
    }

    #[test]
    fn the_main_page_names_every_variable_of_the_reference() {
        let reference = include_str!("../../../../../docs/guide/reference.md");
        let all: String = super::super::pages().iter().map(text).collect();
        let variables = reference.split('`').filter(|word| word.starts_with("LARDER_"));
        let missing: Vec<_> = variables.filter(|name| !all.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
