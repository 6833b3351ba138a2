//! What the keys of roles can do and what they cannot, and bad key files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use larder_format::ids::{DomainId, JobId};
use larder_format::keys::Keys;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::{Manifest, Register, Summary};
use larder_testkit::data;

use crate::support::roles::{ALL, Roles, keys_of, shows};
use crate::support::{Play, damage, run, scattered, schema};

/// Every verb says by name which role it needs, before it does anything.
#[test]
fn verbs_refuse_keys_of_the_wrong_role() {
    let roles = Roles::new();
    let id = &*roles.first;
    let (backs_up, restores, operates) = (["backup"], ["restore", "restore+operate"], ["operate", "restore+operate"]);
    let both = ["restore+operate"];
    let none: [&str; 0] = [];
    let cases: [(&[&str], &[&str], &str); 16] = [
        (&["backup", "src", "--series", "s"], &backs_up, "backup"),
        (&["backup", "src", "--series", "s", "--paranoid"], &none, ""),
        (&["restore", id, "--target", "out"], &restores, "restore"),
        (&["dump", id, "/"], &restores, "restore"),
        (&["check", "--read-data"], &restores, "restore"),
        (&["optimize"], &operates, "operate"),
        (&["pin", id], &operates, "operate"),
        (&["unpin", id], &operates, "operate"),
        (&["tag", "--add", "x", id], &operates, "operate"),
        (&["rewrite", "--exclude", "a", id], &operates, "operate"),
        (&["series", "set", "s", "--holes", "5"], &operates, "operate"),
        (&["repair", "index"], &operates, "operate"),
        (&["repair", "snapshots"], &both, "restore+operate"),
        (&["forget", "--keep-last", "100", "--series", "s"], &operates, "operate"),
        (&["key", "add", "--insecure-kdf"], &none, "all"),
        (&["key", "export"], &none, "all"),
    ];
    for (args, may, needs) in cases {
        for key in ALL.into_iter().filter(|key| *key != "all" && !may.contains(key)) {
            let before = roles.play.objects();
            let ran = roles.run(key, args).code(12);
            if !needs.is_empty() {
                ran.says("needs a key with the role").says(needs);
            }
            assert_eq!(roles.play.objects(), before, "{key}: {args:?} changed something");
        }
    }
}

/// The verbs that each role is for.
#[test]
fn keys_do_what_their_roles_are_for() {
    let roles = Roles::new();
    // A machine that may only back up: its snapshots, and nothing of others.
    shows(roles.run("backup", &["snapshots"]).ok(), "no snapshots");
    shows(roles.run("backup", &["backup", "src", "--series", "s"]).ok(), "2 new");
    roles.play.write("src/a", "the second");
    // A file as young as the backup is read again by the next.
    roles.play.settle();
    shows(roles.run("backup", &["backup", "src", "--series", "s"]).ok(), "1 changed");
    assert_eq!(roles.run("backup", &["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(2));
    shows(roles.run("backup", &["ls", "latest"]).ok(), "src/a");
    roles.run("backup", &["diff", "latest~1", "latest"]).ok();
    roles.run("backup", &["find", "a"]).ok();
    let checked = roles.run("backup", &["check", "--no-index"]).ok();
    assert!(!checked.text().contains("passes delete"), "others may need them: {}", checked.text());
    shows(checked, "to other domains or");
    // Passes with and without contents, and then everything is read.
    roles.run("operate", &["optimize"]).ok();
    roles.run("restore+operate", &["optimize"]).ok();
    // Of each domain one: the machine's newest snapshot does not stand for that of another.
    let left = |key: &str| roles.run(key, &["snapshots", "--json"]).ok().json().as_array().map(Vec::len);
    assert_eq!(left("operate"), Some(3));
    roles.run("operate", &["forget", "--keep-last", "1", "--series", "s"]).ok();
    assert_eq!((left("operate"), left("backup")), (Some(2), Some(1)));
    roles.run("operate", &["optimize"]).ok();
    for key in ["restore", "restore+operate", "all"] {
        roles.run(key, &["check", "--read-data"]).ok();
        roles.run(key, &["restore", "latest", "--target", key]).ok();
        let restored = roles.play.path(key).join(roles.play.path("src/a").strip_prefix("/").expect("absolute"));
        assert_eq!(std::fs::read(restored).expect("restored"), b"the second", "{key}");
    }
    // With an index, and beside jobs, pins and settings of others.
    roles.run("restore+operate", &["pin", &roles.first]).ok();
    roles.run("operate", &["series", "set", "s", "--layout", "standard"]).ok();
    for args in [&["snapshots"][..], &["snapshots", "--no-free"], &["stats"], &["check"], &["series", "list"]] {
        roles.run("backup", args).ok();
    }
    // After the pass, the machine builds on what it made.
    shows(roles.run("backup", &["backup", "src", "--series", "s"]).ok(), "2 unmodified");
}

/// Nothing in an object tells a client of one domain what another has, and they do not share metadata.
#[test]
fn domains_are_closed_to_one_another() {
    let roles = Roles::new();
    roles.add("one", &["--role", "backup", "--domain", "one"]).ok();
    roles.add("two", &["--role", "backup", "--domain", "two"]).ok();
    roles.run("one", &["backup", "src", "--series", "same"]).ok();
    shows(roles.run("two", &["snapshots"]).ok(), "no snapshots");
    shows(roles.run("two", &["backup", "src", "--series", "same"]).ok(), "first snapshot");
    let listed = |key: &str| roles.run(key, &["snapshots", "--json"]).ok().json();
    let (one, two) = (listed("one"), listed("two"));
    assert_eq!((one.as_array().map(Vec::len), two.as_array().map(Vec::len)), (Some(1), Some(1)));
    assert_ne!(one[0]["id"], two[0]["id"]);
    let id = one[0]["id"].as_str().expect("an id");
    for args in [&["ls", id][..], &["stats", id], &["diff", id, id]] {
        roles.run("two", args).code(1).says("no snapshot fits");
    }
    // The operator sees both, and data is stored once.
    let all = roles.play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!(all.as_array().map(Vec::len), Some(3));
    roles.run("restore+operate", &["optimize"]).ok();
    for key in ["one", "two"] {
        shows(roles.run(key, &["ls", "latest"]).ok(), "src/b");
        shows(roles.run(key, &["backup", "src", "--series", "same"]).ok(), "2 unmodified");
    }
    roles.play.larder(["check", "--read-data"]).ok();
}

/// `MetaInDomain`: a snapshot that resembles one of another domain shares no metadata with it.
#[test]
fn metadata_is_not_shared_across_domains() {
    let roles = Roles::new();
    roles.add("one", &["--role", "backup", "--domain", "one"]).ok();
    roles.play.write("big/file", larder_testkit::data::random(5, 3 << 20));
    let summary = roles.run("one", &["backup", "big", "--series", "of one", "--json"]).ok().messages("summary");
    let of_one = summary[0]["snapshot_id"].as_str().expect("an id").to_owned();
    roles.play.settle();
    // The password opens all domains, so it could find the similar snapshot.
    let of_all = roles.play.backup(["big", "--series", "of all"]);
    let containers = |id: &str| roles.play.larder(["cat", "manifest", id]).ok().text();
    assert!(containers(&of_one).contains(&format!("meta/{of_one}/")), "{}", containers(&of_one));
    assert!(!containers(&of_all).contains(&format!("meta/{of_one}/")), "{}", containers(&of_all));
    roles.play.larder(["backup", "big", "--parent", &of_one]).code(1).says("of another domain");
}

/// The closing mark of another domain's job counts for nothing: otherwise, any machine could have the uploads of a running
/// job collected.
#[test]
fn a_machine_cannot_close_the_job_of_another() {
    let roles = Roles::new();
    for name in ["one", "two"] {
        roles.add(name, &["--role", "backup", "--domain", name]).ok();
        roles.run(name, &["backup", "src", "--series", name]).ok();
    }
    let job = |key: &str| {
        let listed = roles.run(key, &["snapshots", "--json"]).ok().json();
        listed[0]["id"].as_str().expect("an id").to_owned()
    };
    roles.play.write("src/c", "more");
    let (attacker, victim) = (job("one"), job("two"));
    assert_ne!(attacker, victim);
    // A job that is running: its closing mark and its register are not there yet.
    let jobs = roles.play.repository().join("jobs");
    let register = damage::named(&roles.play.repository(), "versions/").into_iter().find(|name| name.contains(&victim));
    let register = roles.play.repository().join(register.expect("a register"));
    let (done, kept) = (std::fs::read(jobs.join(&victim).join("done")).expect("there"), std::fs::read(&register));
    std::fs::remove_file(jobs.join(&victim).join("done")).expect("removed");
    std::fs::remove_file(&register).expect("removed");
    let repository = roles.play.repository();
    let keys = keys_of(&roles, "one");
    let id = victim.parse().expect("an id");
    let forged = Done::nothing().encode(&keys, keys.domain(), id, [7; 32]).expect("seals");
    std::fs::write(jobs.join(&victim).join("done"), forged).expect("planted");
    roles.run("restore+operate", &["optimize"]).ok();
    // Neither can who has no key at all, with a later generation under its name.
    let planted = repository.join(format!("versions/{}/{victim}", "a".repeat(32)));
    std::fs::create_dir_all(&planted).expect("made");
    std::fs::write(planted.join("1"), b"garbage").expect("planted");
    roles.run("restore+operate", &["optimize"]).ok();
    std::fs::remove_dir_all(&planted).ok();
    // It comes to its end.
    std::fs::remove_file(jobs.join(&victim).join("done")).expect("removed");
    std::fs::write(&register, kept.expect("there")).expect("put back");
    std::fs::write(jobs.join(&victim).join("done"), done).expect("put back");
    roles.play.larder(["check", "--read-data"]).ok();
}

/// A version with the id of another domain's running job does not settle that job: otherwise, any machine could have the
/// base of a running backup collected, once that is forgotten.
#[test]
fn a_machine_cannot_take_the_id_of_the_job_of_another() {
    let roles = Roles::new();
    for name in ["one", "two"] {
        roles.add(name, &["--role", "backup", "--domain", name]).ok();
        roles.run(name, &["backup", "src", "--series", name]).ok();
    }
    let newest = |key: &str| {
        let listed = roles.run(key, &["snapshots", "--json"]).ok().json();
        listed.as_array().expect("a list").last().expect("one")["id"].as_str().expect("an id").to_owned()
    };
    let (attacker, base) = (newest("one"), newest("two"));
    roles.play.write("src/c", "more");
    roles.run("two", &["backup", "src", "--series", "two"]).ok();
    let victim = newest("two");
    assert_ne!(victim, base);
    // The job runs: its closing mark and its register are not there yet.
    let repository = roles.play.repository();
    let register_of = |id: &str| {
        let named = damage::named(&repository, "versions/").into_iter().find(|name| name.contains(id));
        repository.join(named.expect("a register"))
    };
    let (register, done) = (register_of(&victim), repository.join(format!("jobs/{victim}/done")));
    let kept = [&register, &done].map(|path| (path.clone(), std::fs::read(path).expect("there")));
    kept.iter().for_each(|(path, _)| std::fs::remove_file(path).expect("removed"));
    // The thief of the other machine makes a version of its own with that id.
    let keys = keys_of(&roles, "one");
    let (series, id) = (keys.series_key("one"), victim.parse().expect("an id"));
    let own = std::fs::read(register_of(&attacker)).expect("there");
    let own = Manifest::decode(&keys, series, attacker.parse().expect("an id"), 0, &own).expect("its own");
    let Register::Committed(own) = own else { panic!("a version") };
    let planted = Manifest { summary: Summary { id, ..own.summary.clone() }, ..own };
    let folder = repository.join(format!("versions/{series}/{victim}"));
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("0"), planted.encode(&keys, series, 0, [7; 32]).expect("seals")).expect("planted");
    roles.run("restore+operate", &["forget", &base]).ok();
    roles.run("restore+operate", &["optimize"]).ok();
    // It comes to its end.
    for (path, bytes) in &kept {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("put back");
    }
    let _ = std::fs::remove_dir_all(&folder);
    roles.play.larder(["check", "--read-data", "--no-index"]).ok();
}

/// A pass signs no mark that somebody else asks for: `aborted` at a high number would keep a snapshot from being rewritten
/// for ever.
#[test]
fn a_pass_is_no_oracle_for_signatures() {
    let roles = Roles::new();
    roles.add("one", &["--role", "backup", "--domain", "one"]).ok();
    let keys = keys_of(&roles, "one");
    let series = Keys::series_key_in(&keys, DomainId::DEFAULT, "s");
    let version = Pin { series, job: roles.first.parse().expect("an id") };
    for (number, (generation, claims)) in
        [(Some(u32::MAX), None), (Some(0), None), (None, Some(u64::MAX - 1))].into_iter().enumerate()
    {
        let lease = Lease {
            kind: JobKind::Task,
            series: "s".to_owned(),
            pins: vec![version],
            adopts: Vec::new(),
            host: "one".to_owned(),
            process: 1,
            written_ms: 1,
            renew_seconds: 1,
            claims,
            generation,
            layout: None,
            ended: Some(true),
            domain: keys.domain(),
            is_signed: false,
        };
        let job = JobId([number as u8 + 1; 16]);
        let bytes = lease.encode(&keys, job, 0, [7; 32]).expect("seals");
        let folder = roles.play.repository().join(format!("jobs/{job}"));
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("0"), bytes).expect("planted");
    }
    roles.run("restore+operate", &["optimize"]).ok();
    let registers = damage::named(&roles.play.repository(), "versions/");
    assert_eq!(registers.len(), 1, "{registers:?}");
    roles.run("restore+operate", &["repair", "index"]).ok();
    let highest = damage::named(&roles.play.repository(), "indexed/").into_iter().max_by_key(|name| name.len());
    assert!(highest.is_some_and(|name| name.len() < "indexed/1000".len()), "a number that nobody claims");
    roles.run("restore+operate", &["optimize"]).ok();
}

/// Headers are not secret: what claims another domain hides nothing from a machine, and ends none of its backups.
#[test]
fn a_header_of_another_domain_hides_nothing() {
    let roles = Roles::new();
    for name in ["one", "two"] {
        roles.add(name, &["--role", "backup", "--domain", name]).ok();
        roles.run(name, &["backup", "src", "--series", name]).ok();
    }
    let repository = roles.play.repository();
    let listed = |key: &str| roles.run(key, &["snapshots", "--json"]).code(0).json()[0]["id"].clone();
    let (own, other) = (listed("one"), listed("two"));
    let (own, other) = (own.as_str().expect("an id"), other.as_str().expect("an id"));
    let registers = damage::named(&repository, "versions/");
    let of = |id: &str| registers.iter().find(|name| name.contains(id)).expect("a register").clone();
    let foreign = std::fs::read(repository.join(of(other))).expect("there");
    let place = of(own).trim_start_matches("versions/").trim_end_matches("/0").to_owned();
    for name in [format!("versions/{place}/7"), format!("forgotten/{place}"), format!("pins/{place}/0")] {
        let path = repository.join(&name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let mut planted = foreign.clone();
        let magic = if name.starts_with("forgotten") {
            b"LFGT"
        } else if name.starts_with("pins") {
            b"LPIN"
        } else {
            b"LABT"
        };
        planted[..4].copy_from_slice(magic);
        std::fs::write(&path, planted).expect("planted");
        assert_eq!(listed("one"), own, "{name}");
        roles.play.write("src/a", &name);
        roles.run("one", &["backup", "src", "--series", "other"]).ok();
        roles.run("one", &["forget", "latest", "--series", "other"]).code(12);
        assert_eq!(listed("one"), own, "{name}");
    }
}

#[test]
fn bad_key_files_are_refused_with_the_reason() {
    let roles = Roles::new();
    let file = roles.file("restore");
    let text = std::fs::read_to_string(&file).expect("a key file");
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    for mode in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("changed");
        roles.run("restore", &["snapshots"]).code(12).says("can be read by others").says("chmod 600").in_two_lines();
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("changed");
    roles.run("restore", &["snapshots"]).ok();
    let private = |name: &str, text: &str| {
        let path = roles.play.write(name, text);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("changed");
        path
    };
    let cut = private("cut.key", &text[..text.len() - 9]);
    roles.run_with(&cut, &["snapshots"]).code(12).says("is damaged");
    let empty = private("empty.key", "# nothing\n");
    roles.run_with(&empty, &["snapshots"]).code(12).says("LARDER-KEY-2");
    let pipe = roles.play.path("pipe.key");
    assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().expect("mkfifo").success());
    roles.run_with(&pipe, &["snapshots"]).code(12).says("is no key file");
    roles.run_with(Path::new("missing.key"), &["snapshots"]).code(12).says("cannot read the key file");
    // A key of another repository, and one that was removed.
    let other = Play::with_repository();
    let foreign = roles.play.path("foreign.key");
    run(other.command(["key", "add", "--role", "restore", "--file"]).arg(&foreign)).ok();
    roles.run_with(&foreign, &["snapshots"]).code(12).says("belongs to another repository");
    let id = text.lines().next().expect("a comment").split([' ', ':']).nth(3).expect("the id").to_owned();
    roles.play.larder(["key", "remove", &id]).ok();
    roles.run("restore", &["snapshots"]).code(12).says("was removed");
    // A file is never overwritten, and takes a key of a further repository.
    roles.add("operate", &["--role", "restore"]).code(1).says("already has a key of this repository");
    run(other.command(["key", "add", "--role", "all", "--file"]).arg(roles.file("operate"))).ok();
    roles.run("operate", &["snapshots"]).ok();
    run(other.command(["snapshots"]).env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", roles.file("operate"))).ok();
}

/// A password option counts more than the variable, and less than the option.
#[test]
fn a_key_file_takes_the_place_of_a_password() {
    let roles = Roles::new();
    let with = |args: &[&str]| {
        let mut command = roles.play.command(args);
        run(command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", roles.file("backup")))
    };
    let password = roles.play.write("password", crate::support::PASSWORD);
    let password = password.to_str().expect("UTF-8");
    with(&["restore", "latest", "--target", "out"]).code(12);
    with(&["restore", "latest", "--target", "out", "--password-file", password]).ok();
    let file = roles.file("restore");
    let file = file.to_str().expect("UTF-8");
    with(&["restore", "latest", "--target", "more", "--key-file", file]).ok();
    with(&["snapshots", "--key-file", file, "--password-file", password]).code(2);
}

/// A planted key counts for nothing: the last genuine key with the role all stays (L3).
#[test]
fn the_last_full_key_cannot_be_removed() {
    let roles = Roles::new();
    let key = |current: bool, role: &str| {
        let keys = roles.play.larder(["key", "list", "--json"]).ok().json();
        let keys = keys.as_array().expect("an array").clone();
        let key = keys.iter().find(|key| key["current"] == current && key["role"] == role && key["genuine"] == true);
        key.map(|key| key["id"].as_str().expect("text").to_owned())
    };
    let own = key(true, "all").expect("the password's");
    // A copy under another name is whole, and no operator made it.
    let bytes = std::fs::read(roles.play.repository().join(format!("keys/{own}"))).expect("a key");
    std::fs::write(roles.play.repository().join("keys/00000000000000aa"), bytes).expect("planted");
    roles.play.larder(["key", "list"]).ok().says("no operator of this repository made 00000000000000aa");
    // By the key file, the password's key is the other one.
    let of_file = key(false, "all").expect("the file's");
    roles.run("all", &["key", "remove", &own]).ok();
    roles.run("all", &["key", "remove", &of_file]).code(1).says("the one you use");
    for role in ["backup", "restore", "operate", "restore+operate"] {
        let keys = roles.run("all", &["key", "list", "--json"]).ok().json();
        let id = keys.as_array().expect("an array").iter().find(|key| key["role"] == role).expect("one")["id"].clone();
        roles.run("all", &["key", "remove", id.as_str().expect("text")]).ok();
    }
    roles.run("all", &["key", "remove", "00000000000000aa"]).ok();
    roles.run("all", &["snapshots"]).ok();
}

/// A config that no operator of this repository signed is not used.
#[test]
fn a_config_of_another_repository_is_not_used() {
    let roles = Roles::new();
    let other = Play::with_repository();
    let foreign = std::fs::read(other.repository().join("config")).expect("a config");
    damage::replace(&roles.play.repository(), "config", &foreign);
    for key in ["backup", "restore", "operate"] {
        let before = roles.play.objects();
        roles.run(key, &["backup", "src"]).code(12).says("belongs to another repository");
        assert_eq!(roles.play.objects(), before);
    }
    damage::remove(&roles.play.repository(), "config");
    roles.run("restore", &["snapshots"]).ok().says("larder repair config");
    roles.run("backup", &["repair", "config"]).ok();
    roles.run("restore", &["snapshots"]).ok();
}

/// Series of several domains may have the same name. An operator shows, sets and converts each.
#[test]
fn series_of_other_domains_have_settings_too() {
    let roles = Roles::new();
    for name in ["one", "two"] {
        roles.add(name, &["--role", "backup", "--domain", name]).ok();
        roles.run(name, &["backup", "src", "--series", "same"]).ok();
    }
    let play = &roles.play;
    let list = play.larder(["series", "list", "--json"]).ok().json();
    let of_same = |known: &&serde_json::Value| known["series"] == "same";
    let domains: Vec<_> =
        list.as_array().expect("a list").iter().filter(of_same).map(|known| known["domain"].clone()).collect();
    assert_eq!(domains, ["one", "two"]);
    shows(play.larder(["series", "list"]).ok(), "Domain");
    shows(play.larder(["snapshots"]).ok(), "Domain");
    let operator = |args: &[&str]| roles.run("restore+operate", args);
    operator(&["series", "show", "same"]).code(2).says("in several domains");
    operator(&["series", "set", "same", "--domain", "one", "--holes", "7"]).ok();
    let holes = |domain: &str| operator(&["series", "show", "same", "--domain", domain, "--json"]).ok().json();
    assert_eq!((&holes("one")["holes_percent"], &holes("two")["holes_percent"]), (&7.into(), &20.into()));
    // The machine itself reads what was set for it.
    assert_eq!(roles.run("one", &["series", "show", "same", "--json"]).ok().json()["holes_percent"], 7);
    operator(&["series", "convert", "same", "--domain", "two", "--layout", "lifecycle"]).ok();
    assert_eq!((&holes("one")["layout"], &holes("two")["layout"]), (&"standard".into(), &"lifecycle".into()));
    operator(&["layout", "same", "--domain", "two"]).ok();
    roles.run("two", &["backup", "src", "--series", "same"]).ok();
    play.larder(["check", "--read-data"]).ok();
    roles.run("one", &["series", "show", "same", "--domain", "two"]).code(12).says("another domain");
}

/// Passes remove leases, and later everything that is left of forgotten snapshots.
#[test]
fn nothing_is_left_of_forgotten_snapshots_of_a_machine() {
    let roles = Roles::new();
    roles.add("one", &["--role", "backup", "--domain", "one"]).ok();
    // The newest may have a later generation.
    let is_first = |name: &String| !name.starts_with("versions/") || name.ends_with("/0");
    let left =
        |prefix: &str| damage::named(&roles.play.repository(), prefix).iter().filter(|name| is_first(name)).count();
    let before = left("versions/");
    for number in 0..4 {
        roles.play.write("src/a", format!("edition {number}"));
        roles.run("one", &["backup", "src", "--series", "s"]).ok();
    }
    let operator = |args: &[&str]| roles.run("restore+operate", args).ok();
    operator(&["optimize"]);
    operator(&["forget", "--keep-last", "1", "--series", "s"]);
    operator(&["optimize"]);
    operator(&["optimize"]);
    assert_eq!((left("versions/"), left("forgotten/")), (before + 1, 0), "the newest of the machine");
    let jobs: std::collections::BTreeSet<_> = damage::named(&roles.play.repository(), "jobs/")
        .into_iter()
        .filter_map(|name| name.split('/').nth(1).map(str::to_owned))
        .collect();
    assert!(jobs.len() <= before + 1, "{jobs:?}");
}

/// Another process rewrote a snapshot. A key that reads no contents cannot compare both, and the pass says so.
#[test]
fn a_pass_that_reads_no_contents_leaves_what_it_cannot_prove() {
    let (play, newest, content) = scattered(data::random);
    let roles = Roles::beside(play, newest);
    let rewritten = roles.play.larder(["optimize", "--task", "defragment", "--json"]).ok().json();
    assert_eq!(rewritten["defragmented"]["snapshots"], 1);
    let left = roles.run("operate", &["optimize", "--json"]).ok().json();
    schema::check("optimize_summary", &left);
    assert_eq!(left["unproved"][0]["reason"]["needs_role"], "restore", "{left}");
    shows(roles.run("operate", &["optimize"]).ok(), "restore+operate");
    let proved = roles.run("restore+operate", &["optimize", "--json"]).ok().json();
    assert_eq!(proved["unproved"].as_array().map(Vec::len), Some(0), "{proved}");
    roles.run("operate", &["optimize"]).ok();
    let source = format!("{}:{}", roles.first, roles.play.path("source").display());
    roles.play.larder(["restore", &source, "--target", "restored"]).ok();
    assert!(std::fs::read(roles.play.path("restored").join("file")).expect("restored") == content);
}
