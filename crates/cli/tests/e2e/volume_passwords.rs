//! Passwords of volume stores: every verb has the same rules.

use std::process::Command;

use larder_testkit::data;

use crate::support::{PASSWORD, Play, Ran, run};

/// The verbs that open a store, with what they need.
const VERBS: [&[&str]; 10] = [
    &["list", "store"],
    &["create", "store/more", "1MiB"],
    &["snapshot", "store/disk@monday"],
    &["resize", "store/disk", "2MiB"],
    &["rename", "store/more", "other"],
    &["delete", "store/other"],
    &["stats", "store"],
    &["collect", "store"],
    &["check", "store"],
    &["backup", "store/disk"],
];

fn with(play: &Play, words: &[&str], change: impl Fn(&mut Command) -> &mut Command) -> Ran {
    run(change(&mut play.command([&["volume"], words].concat())))
}

#[test]
fn all_verbs_take_the_password_of_the_store() {
    let play = Play::with_repository();
    let own = play.write("own", "a password of its own\n");
    let own = own.to_str().expect("text");
    let made =
        play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf", "--store-password-file", own]);
    assert!(made.ok().text().contains(&format!("Its password is that in the file {own}")));
    with(&play, &["create", "store/disk", "1MiB", "--store-password-file", own], |command| command).ok();
    for words in VERBS {
        // That of the repository does not open it.
        with(&play, words, |command| command).code(12).says("opens no key").in_two_lines();
        with(&play, &[words, &["--store-password-file", "/nowhere"]].concat(), |command| command).code(12);
    }
    for (number, words) in VERBS.iter().enumerate() {
        match number % 2 {
            0 => with(&play, &[words, &["--store-password-file", own][..]].concat(), |command| command).ok(),
            _ => with(&play, words, |command| command.env("LARDER_STORE_PASSWORD_FILE", own)).ok(),
        };
    }
    // The options of a repository name it too, unless there is an own one. Empty is unset.
    let file = ["list", "store", "--password-file", own];
    with(&play, &file, |command| command).ok();
    with(&play, &file, |command| command.env("LARDER_STORE_PASSWORD_FILE", "")).ok();
    with(&play, &file, |command| command.env("LARDER_STORE_PASSWORD_FILE", "/nowhere")).code(12);
    // A volume over a snapshot: two passwords at once.
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image"], &data::random(1, 100_000)).ok();
    let from = ["create", "store/vm", "--from", "latest:/image", "--store-password-file", own];
    with(&play, &from, |command| command).ok();
    with(&play, &["hydrate", "store/vm"], |command| command.env("LARDER_STORE_PASSWORD_FILE", own)).ok();
}

#[test]
fn a_new_store_says_which_password_it_has() {
    let play = Play::new();
    let init = |store: &str, change: fn(&mut Command) -> &mut Command| {
        let mut command = play.command(["volume", "init", store, "--log", "32MiB", "--insecure-kdf"]);
        change(&mut command);
        run(&mut command)
    };
    let text = init("a", |command| command).ok().text();
    assert!(text.contains("Its password is that of the variable LARDER_PASSWORD."), "{text}");
    play.write("password", PASSWORD);
    let text = init("b", |command| command.env("LARDER_PASSWORD_FILE", "password")).ok().text();
    assert!(text.contains("Its password is that in the file "), "{text}");
    let none = init("c", |command| command.env_remove("LARDER_PASSWORD"));
    none.code(12).says("no password of the new volume store").says("--store-password-file").in_two_lines();
    let mut list = play.command(["volume", "list", "a"]);
    run(list.env_remove("LARDER_PASSWORD")).code(12).says("no password of the volume store").in_two_lines();
}
