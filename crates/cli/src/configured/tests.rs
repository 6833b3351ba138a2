//! Composed command lines: what was typed, what the file says, and which of them counts.

use std::path::Path;
use std::sync::Arc;

use clap::Arg;
use larder_profile::document::{Entry, parse};

use super::definitions::{Shape, arguments, shape};
use super::*;

fn entry(text: &str) -> Entry {
    let table = parse(&Arc::from(Path::new("x.toml")), text).expect("TOML");
    table.entries.into_iter().next().expect("an entry")
}

/// Every option of every verb can be in the file, and stands for what would be typed.
#[test]
fn every_option_of_every_verb_is_an_argument() {
    let definitions = Definitions::new();
    let mut seen = 0;
    for verb in definitions.verbs() {
        let options: Vec<&Arg> = definitions.options(&verb).collect();
        for arg in options {
            let long = arg.get_long().expect("options have long names");
            let (text, typed) = match shape(arg) {
                Shape::Flag => (format!("{long} = true"), vec![format!("--{long}")]),
                Shape::Count => (format!("{long} = 2"), vec![format!("--{long}"); 2]),
                Shape::Single => (format!("{long} = \"-x y\""), vec![format!("--{long}=-x y")]),
                Shape::List => (format!("{long} = [\"a\", 1]"), vec![format!("--{long}=a"), format!("--{long}=1")]),
            };
            let found = arguments(arg, &entry(&text)).expect("an argument");
            assert_eq!(found, typed.iter().map(OsString::from).collect::<Vec<_>>(), "{verb:?}");
            // clap knows it there; whether the value is right is another question.
            let line = ["larder".to_owned()].into_iter().chain(verb.clone()).map(OsString::from).chain(found);
            if let Err(error) = definitions.try_read(line) {
                let kind = error.kind();
                assert!(
                    !matches!(
                        kind,
                        clap::error::ErrorKind::UnknownArgument | clap::error::ErrorKind::InvalidSubcommand
                    ),
                    "{verb:?} {long}: {error}"
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn flags_that_are_off_and_empty_lists_are_no_arguments() {
    let definitions = Definitions::new();
    let verb = ["backup".to_owned()];
    let of = |text: &str| {
        let entry = entry(text);
        arguments(definitions.option(&verb, &entry.key).expect("an option"), &entry)
    };
    assert_eq!(of("force = false"), Ok(Vec::new()));
    assert_eq!(of("exclude = []"), Ok(Vec::new()));
    assert_eq!(of("memory-limit = \"1G\"").map(|words| words[0].clone()), Ok("--memory=1G".into()), "an alias");
    for (text, error) in [
        ("force = 1", "x.toml:1:9: force must be true or false, and not a number"),
        ("exclude = [true]", "x.toml:1:12: exclude must be a list of strings, and not true or false"),
        ("host = [\"a\"]", "x.toml:1:8: host must be a string, and not a list"),
        ("verbose = 100", "x.toml:1:11: verbose is at most 9"),
    ] {
        assert_eq!(of(text).map_err(|error| error.to_string()), Err(error.to_owned()));
    }
}

/// Options of the file and of the command line come together; the latter win.
#[test]
fn typed_arguments_come_before_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    let text = "[defaults]\nthreads = 1\n[defaults.forget]\nkeep-last = 9\n[defaults.backup]\nexclude = [\"far\"]\nwith-atime = true\n\
                [repositories.nas]\nlocation = \"/nas\"\npassword-file = \"/p\"\nthreads = 2\n\
                [profiles.home]\nsources = [\"/home\", \"-odd\"]\n[profiles.home.backup]\nexclude = [\"near\"]\nhost = \"box\"\n\
                [profiles.list.forget]\nkeep-last = 3\n[profiles.none]\n[profiles.none.backup]\nexclude = []\nsources = 1\n";
    let composed = |text: &str, line: &str| {
        std::fs::write(&path, text).expect("written");
        let config = Arc::new(read(&path).map_err(|error| error.to_string())?);
        let definitions = Definitions::new();
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (argv, off) = compose::switches(&argv);
        let matches = definitions.try_read(argv.clone()).map_err(|error| error.to_string())?;
        let typed = compose::Typed::of(&definitions, &matches, &argv);
        let wanted = Wanted::of(&config, &typed).map_err(|failure| failure.message)?;
        let words =
            compose::arguments(&definitions, &config, &wanted, &typed, &off).map_err(|error| error.to_string())?;
        Ok::<_, String>(words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    };
    let text = text.replace("sources = 1\n", "").replace(", \"-odd\"", ", \"/-odd\"");
    for (line, words) in [
        (
            "larder -P home backup",
            "larder -P home backup --exclude=far --exclude=near --host=box --password-file=/p --threads=2 --with-atime \
             --series=box:home -- /home /-odd",
        ),
        // The verb, and not the value that looks like it.
        ("larder -r nas --host backup backup --host x --exclude more /x", ""),
        (
            "larder -P home --threads 5 backup --host x --exclude more --exclude= /x --with-atime=false",
            "larder -P home --threads 5 backup --password-file=/p --series=x:home --host x --exclude more /x",
        ),
        (
            "larder -P home --key-file /k backup --stdin",
            "larder -P home --key-file /k backup --exclude=far --exclude=near --host=box --threads=2 --with-atime \
             --series=box:home --stdin",
        ),
        (
            "larder -P list forget",
            "larder -P list forget --keep-last=3 --password-file=/p --threads=2 --series=HOST:list",
        ),
        ("larder -P list forget abc", "larder -P list forget --password-file=/p --threads=2 --series=HOST:list abc"),
        ("larder -r @nas forget --series x", "larder -r @nas forget --password-file=/p --threads=2 --series x"),
        // A policy for all series of a repository is typed, and never taken from the file.
        ("larder -r /other forget", "larder -r /other forget --threads=1"),
        (
            "larder -P none backup /x -- -y",
            "larder -P none backup --password-file=/p --threads=2 --with-atime --series=HOST:none /x -- -y",
        ),
        ("larder volume list /x", "larder volume list --threads=1 /x"),
    ] {
        let found = composed(&text, line);
        match words {
            "" => assert!(found.is_err(), "{line}: {found:?}"),
            words => {
                let host = std::env::var("LARDER_HOST").unwrap_or_else(|_| environment::host());
                assert_eq!(found, Ok(words.replace("HOST", &host)), "{line}");
            }
        }
    }
    // Of the options that say what may be forgotten, the nearest ones decide alone.
    let scoped = text
        .replace("keep-last = 9\n", "keep-last = 9\ntag = [\"a\"]\n")
        .replace("[profiles.list.forget]\n", "[profiles.list.forget]\nseries = [\"x\"]\ntag = [\"b\"]\n");
    for (line, words) in [
        (
            "larder -P list forget",
            "larder -P list forget --series=x --tag=b --keep-last=3 --password-file=/p --threads=2",
        ),
        (
            "larder -P list forget --series y",
            "larder -P list forget --tag=b --keep-last=3 --password-file=/p --threads=2 --series y",
        ),
    ] {
        assert_eq!(composed(&scoped, line), Ok(words.to_owned()), "{line}");
    }
    let relative = text.replace("\"/home\"", "\"home\"");
    assert!(
        composed(&relative, "larder -P home backup").is_err_and(|why| why.contains("sources must be absolute paths"))
    );
}

#[test]
fn names_and_locations_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    std::fs::write(&path, "[repositories.nas]\nlocation = \"/nas\"\n").expect("written");
    let config = read(&path).expect("a configuration");
    let name = |location: &str| name_in(&config, OsStr::new(location));
    assert_eq!(name("nas"), Ok(Some("nas".to_owned())));
    assert_eq!(name("@nas"), Ok(Some("nas".to_owned())));
    for location in ["./nas", "/nas", "s3://nas", "other"] {
        assert_eq!(name(location), Ok(None), "{location}");
    }
    assert!(name("@na").is_err_and(|failure| failure.message.ends_with("did you mean \"nas\"?")));
}

/// The schema has every option at its place, but for those that are typed only.
#[test]
fn the_schema_knows_every_option() {
    let definitions = Definitions::new();
    let schema = schema::schema(&definitions);
    let defaults = &schema["properties"]["defaults"]["properties"];
    for verb in definitions.verbs() {
        let of_verb = verb.iter().fold(defaults, |above, name| {
            let next = &above[name];
            if next["properties"].is_object() { &next["properties"] } else { next }
        });
        for arg in definitions.options(&verb) {
            let long = arg.get_long().expect("a long name");
            if Definitions::why_typed_only(long).is_some() {
                assert!(of_verb[long].is_null(), "{verb:?} {long}");
                continue;
            }
            assert!(of_verb[long]["type"].is_string() || of_verb[long]["type"].is_array(), "{verb:?} {long}");
        }
    }
    let profile = &schema["properties"]["profiles"]["additionalProperties"]["properties"];
    for key in larder_profile::config::PROFILE_KEYS {
        assert!(profile[key].is_object(), "{key}");
    }
}
