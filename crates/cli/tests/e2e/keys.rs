//! Passwords, keys and the paper key.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Play, schema};

fn with_new(play: &Play, args: &[&str], password: &str) -> crate::support::Ran {
    crate::support::run(play.command(args).env("LARDER_NEW_PASSWORD", password))
}

fn opens(play: &Play, password: &str) -> bool {
    let code = crate::support::run(play.command(["snapshots"]).env("LARDER_PASSWORD", password)).code;
    assert!(matches!(code, 0 | 12), "{code}");
    code == 0
}

#[test]
fn passwords_can_be_added_and_removed() {
    let play = Play::with_repository();
    with_new(&play, &["key", "add", "--insecure-kdf", "--user", "second\nuser", "--host", "there"], "two").ok();
    assert!(opens(&play, crate::support::PASSWORD) && opens(&play, "two"));
    let keys = play.larder(["key", "list", "--json"]).ok().json();
    schema::check("key_list", &keys);
    let keys = keys.as_array().expect("an array");
    assert_eq!(keys.len(), 2);
    assert_eq!(keys.iter().filter(|key| key["current"] == true).count(), 1);
    assert!(play.larder(["key", "list"]).ok().text().contains("second\\nuser"), "one line for each key");
    let id = |current: bool| {
        let key = keys.iter().find(|key| key["current"] == current).expect("one");
        key["id"].as_str().expect("text").to_owned()
    };
    play.larder(["key", "remove", &id(true)]).code(1).says("the one you use").in_two_lines();
    play.larder(["key", "remove", "zz"]).code(1).says("no key fits");
    play.larder(["key", "remove", &id(false)[..6]]).ok();
    assert!(!opens(&play, "two"));
    assert!(opens(&play, crate::support::PASSWORD));
}

#[test]
fn messages_of_keys_obey_their_schemas() {
    let play = Play::with_repository();
    let told = |args: &[&str], what: &str| {
        let told = with_new(&play, args, "two").ok().json();
        schema::check("key", &told);
        assert_eq!(told["message_type"], what);
        told["id"].as_str().expect("text").to_owned()
    };
    let id = told(&["key", "add", "--insecure-kdf", "--json"], "key_added");
    told(&["key", "remove", &id, "--json"], "key_removed");
    let paper = play.larder(["key", "export", "--json"]).ok().json();
    schema::check("paper_key", &paper);
    assert!(paper["lines"].as_array().is_some_and(|lines| !lines.is_empty()));
    play.larder(["key", "add", "--role", "backup", "--domain", "web", "--file", "web.key"]).ok();
    let keys = play.larder(["key", "list", "--json"]).ok().json();
    let of_web = keys.as_array().expect("an array").iter().find(|key| key["domain"] == "web").expect("a key");
    let id = of_web["id"].as_str().expect("text");
    let lines = play.larder(["key", "remove", id, "--close-domain", "--json"]).ok().json_lines();
    let closed = lines.iter().find(|line| line["message_type"] == "domain_closed").expect("it is told");
    schema::check("domain_closed", closed);
    told(&["key", "passwd", "--insecure-kdf", "--json"], "key_changed");
}

#[test]
fn changing_the_password_ends_the_old_one() {
    let play = Play::with_repository();
    with_new(&play, &["key", "passwd", "--insecure-kdf"], "new").ok();
    assert!(opens(&play, "new") && !opens(&play, crate::support::PASSWORD));
}

#[test]
fn a_new_password_must_be_given_and_not_empty() {
    let play = Play::with_repository();
    let before = play.objects();
    play.larder(["key", "add", "--insecure-kdf"]).code(12).says("no new password").says("--new-password-file");
    let empty = play.write("empty", "");
    crate::support::run(play.command(["key", "passwd", "--insecure-kdf", "--new-password-file"]).arg(empty)).code(12);
    assert_eq!(play.objects(), before);
}

#[test]
fn the_paper_key_restores_access_without_the_keys() {
    let play = Play::with_repository();
    let sheet = play.larder(["key", "export"]).ok().text();
    for part in ["# Paper key", "# Repository", "# Location", "key import"] {
        assert!(sheet.contains(part), "{part} is not in:\n{sheet}");
    }
    let file = play.path("paper");
    crate::support::run(play.command(["key", "export", "--output"]).arg(&file)).ok();
    assert_eq!(std::fs::metadata(&file).expect("made").permissions().mode() & 0o777, 0o600);
    crate::support::run(play.command(["key", "export", "--output"]).arg(&file))
        .code(1)
        .says("cannot write the paper key");
    for key in crate::support::damage::named(&play.repository(), "keys/") {
        crate::support::damage::remove(&play.repository(), &key);
    }
    play.larder(["snapshots"]).code(12).says("key import").in_two_lines();

    // As typed from paper: lower case, other spaces, without the explanations.
    let typed: String = sheet.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n\n");
    let typed = typed.to_lowercase().replace('-', " ");
    let mut command = play.command(["key", "import", "--insecure-kdf"]);
    let typed_file = play.write("typed", typed);
    crate::support::run(command.arg(typed_file).env("LARDER_NEW_PASSWORD", "from paper")).ok();
    assert!(opens(&play, "from paper") && !opens(&play, crate::support::PASSWORD));

    // A pipe needs no prompt.
    let mut command = play.command(["key", "import", "--insecure-kdf"]);
    command.env("LARDER_NEW_PASSWORD", "piped").stdin(std::fs::File::open(&file).expect("there"));
    let ran = crate::support::run(&mut command).ok();
    assert!(!ran.stderr.contains("Ctrl-D"), "{}", ran.stderr);
    assert!(opens(&play, "piped"));
}

#[test]
fn a_wrong_paper_key_is_refused_with_its_line() {
    let play = Play::with_repository();
    let other = Play::with_repository();
    let sheet = play.larder(["key", "export"]).ok().text();
    let import = |play: &Play, sheet: &str| {
        let file = play.write("sheet", sheet);
        crate::support::run(play.command(["key", "import", "--insecure-kdf"]).arg(file).env("LARDER_NEW_PASSWORD", "x"))
    };
    import(&other, &sheet).code(12).says("another repository").in_two_lines();
    let mut lines: Vec<_> = sheet.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let first = if lines[2].starts_with('A') { "B" } else { "A" };
    lines[2].replace_range(..1, first);
    import(&play, &lines.join("\n")).code(12).says("line 3").in_two_lines();
    import(&play, &lines[..5].join("\n")).code(12).says("6 lines").in_two_lines();
    import(&play, "").code(12);
    assert_eq!(crate::support::damage::named(&play.repository(), "keys/").len(), 1);
}
