//! A backup key was stolen: its domain is closed, and the thief makes no snapshot that counts.

use larder_format::ids::{DomainId, JobId, SeriesKey};
use larder_format::keys::Keys;
use larder_format::manifest::{Manifest, Register, Summary};
use larder_format::names;

use crate::support::roles::{Roles, keys_of, shows};
use crate::support::{damage, tree};

/// The id of the first key with this value of a field, and the bytes of its object.
fn key_with(roles: &Roles, field: &str, value: &str) -> (String, Vec<u8>) {
    let keys = roles.play.larder(["key", "list", "--json"]).ok().json();
    let mut keys = keys.as_array().expect("a list").iter();
    let key = keys.find(|key| key[field] == value).expect("it was made");
    let id = key["id"].as_str().expect("a text").to_owned();
    let bytes = std::fs::read(roles.play.repository().join("keys").join(&id)).expect("it is there");
    (id, bytes)
}

fn with_laptop() -> Roles {
    let roles = Roles::new();
    roles.add("laptop", &["--role", "backup", "--domain", "laptop"]).ok();
    roles.run("laptop", &["backup", "src", "--series", "mine"]).ok();
    roles
}

fn ids(roles: &Roles) -> Vec<String> {
    let listed = roles.play.larder(["snapshots", "--json"]).ok().json();
    let listed = listed.as_array().expect("a list").iter();
    listed.map(|version| version["id"].as_str().expect("a text").to_owned()).collect()
}

/// The thief has the key file, a copy of the key object, and the right to create objects.
#[test]
fn a_thief_makes_no_snapshot_that_counts() {
    let roles = with_laptop();
    let play = &roles.play;
    let counting = ids(&roles);
    let (id, object) = key_with(&roles, "domain", "laptop");
    let closing = play.larder(["key", "remove", &id, "--close-domain", "--reason", "stolen at the station"]).ok();
    shows(closing, "domain laptop closed: 1 snapshot of it remain");
    roles.run("laptop", &["snapshots"]).code(12).says("was removed");

    std::fs::write(play.repository().join("keys").join(&id), object).expect("written");
    play.write("src/a", "what the thief wants to be restored");
    roles.run("laptop", &["backup", "src", "--series", "mine"]).code(12).says("was closed");
    // A thief's program does not ask.
    let (closed, aside) = (play.repository().join("closed"), play.path("aside"));
    std::fs::rename(&closed, &aside).expect("moved");
    roles.run("laptop", &["backup", "src", "--series", "mine"]).ok();
    roles.run("laptop", &["backup", "src", "--series", "another"]).ok();
    std::fs::rename(&aside, &closed).expect("moved back");

    play.larder(["snapshots"])
        .ok()
        .says("domain laptop is closed, and 2 snapshots that its end does not name do not count");
    assert_eq!(ids(&roles), counting);
    play.larder(["restore", "latest", "--series", "mine", "--target", "out"]).ok();
    let restored = play.path("out").join(play.path("src/a").strip_prefix("/").expect("absolute"));
    assert_eq!(std::fs::read(restored).expect("restored"), b"the first");
    shows(play.larder(["optimize", "--dry-run"]).ok(), "would forget 2 snapshots that closed domains refuse");
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 0, "a dry run changes nothing");
    shows(play.larder(["optimize"]).ok(), "forgot 2 snapshots that closed domains refuse");
    play.larder(["optimize"]).ok();
    play.larder(["check", "--read-data"]).ok();
    assert_eq!(ids(&roles), counting);
    let left = damage::named(&play.repository(), "versions/");
    assert!(left.iter().all(|name| counting.iter().any(|id| name.contains(id.as_str()))), "{left:?}");
}

/// The thief knows the ids of the snapshots that count, and gives one of them to another one.
#[test]
fn no_other_snapshot_gets_the_id_of_one_that_counts() {
    let roles = with_laptop();
    let play = &roles.play;
    let keys = keys_of(&roles, "laptop");
    let (id, _) = key_with(&roles, "domain", "laptop");
    let mine = ids(&roles).remove(1);
    let real = manifest(&roles, &keys, "mine", &mine);
    play.write("src/a", "what the thief wants to be restored");
    roles.run("laptop", &["backup", "src", "--series", "other"]).ok();
    let theirs = ids(&roles).remove(2);
    let false_one = manifest(&roles, &keys, "other", &theirs);
    play.larder(["forget", &theirs]).ok();
    for _ in 0..2 {
        play.larder(["optimize"]).ok();
    }
    play.larder(["key", "remove", &id, "--close-domain"]).ok();
    let counting = ids(&roles);
    let summary = Summary { id: real.summary.id, ..false_one.summary.clone() };
    plant(&roles, &keys, "other", &Manifest { summary, ..false_one.clone() });
    play.larder(["snapshots"]).ok().says("1 snapshot that its end does not name does not count");
    assert_eq!(ids(&roles), counting);
    // In the place of one that counted, too, once that is forgotten and gone.
    play.larder(["forget", "--series", "mine", &mine]).ok();
    for _ in 0..3 {
        play.larder(["optimize"]).ok();
    }
    let summary = Summary { id: real.summary.id, series: "mine".to_owned(), ..false_one.summary.clone() };
    plant(&roles, &keys, "mine", &Manifest { summary, ..false_one });
    play.larder(["snapshots"]).ok().says("does not count");
    assert_eq!(ids(&roles), counting[..1]);
}

/// A version with the id of one in another series: its damage is not that of the other one.
#[test]
fn a_snapshot_with_the_id_of_another_harms_no_other() {
    let roles = with_laptop();
    let play = &roles.play;
    let keys = keys_of(&roles, "laptop");
    let mine = ids(&roles).remove(1);
    let own = manifest(&roles, &keys, "mine", &mine);
    // The container of the copy is damaged, and its time is before that of the victim.
    let victim: JobId = roles.first.parse().expect("an id");
    for container in damage::named(&play.repository(), "data/").iter().filter(|name| name.contains(mine.as_str())) {
        damage::flip(&play.repository(), container, 3000);
    }
    let summary = Summary { id: victim, time_ms: 1, series: "other".to_owned(), ..own.summary.clone() };
    plant(&roles, &keys, "other", &Manifest { summary, ..own });
    let ran = play.larder(["repair", "snapshots", "--read-data", "--forget"]);
    assert!(ran.text().contains("several snapshots have this id"), "{}", ran.text());
    play.larder(["optimize"]);
    play.larder(["restore", &roles.first, "--series", "s", "--target", "out"]).ok();
    let restored = play.path("out").join(play.path("src/a").strip_prefix("/").expect("absolute"));
    assert_eq!(std::fs::read(restored).expect("restored"), b"the first");
}

fn register(roles: &Roles, keys: &Keys, series: &str, id: &JobId) -> (SeriesKey, std::path::PathBuf) {
    let key = keys.series_key(series);
    (key, roles.play.repository().join(names::version(key, *id, 0)))
}

/// Generation 0 of a version of the domain of these keys.
fn manifest(roles: &Roles, keys: &Keys, series: &str, id: &str) -> Manifest {
    let id = id.parse().expect("an id");
    let (key, path) = register(roles, keys, series, &id);
    let bytes = std::fs::read(path).expect("there");
    match Manifest::decode(keys, key, id, 0, &bytes).expect("opens") {
        Register::Committed(manifest) => manifest,
        Register::Aborted => panic!("it was committed"),
    }
}

/// Creates a version as who has these keys can.
fn plant(roles: &Roles, keys: &Keys, series: &str, manifest: &Manifest) {
    let (key, path) = register(roles, keys, series, &manifest.summary.id);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, manifest.encode(keys, key, 0, [9; 32]).expect("valid")).expect("written");
}

/// A listing lacked a snapshot when the domain was closed. No pass forgets it; people can look at it and do.
#[test]
fn a_snapshot_that_is_older_than_the_end_stays_until_somebody_forgets_it() {
    let roles = with_laptop();
    let play = &roles.play;
    let (key, _) = key_with(&roles, "domain", "laptop");
    let mine = ids(&roles).remove(1);
    let versions = damage::named(&play.repository(), "versions/");
    let name = versions.into_iter().find(|name| name.contains(mine.as_str())).expect("there");
    let (register, aside) = (play.repository().join(name), play.path("aside"));
    std::fs::rename(&register, &aside).expect("moved");
    shows(play.larder(["key", "remove", &key, "--close-domain"]).ok(), "0 snapshots of it remain");
    std::fs::create_dir_all(register.parent().expect("a folder")).expect("made");
    std::fs::rename(&aside, &register).expect("moved back");
    play.larder(["snapshots"]).ok().says("does not count");
    for _ in 0..2 {
        play.larder(["optimize"]).ok().says("older than its end").says(&format!("larder forget {mine}"));
    }
    play.larder(["restore", &mine, "--target", "out"]).ok().says("was closed without it");
    let restored = play.path("out").join(play.path("src/a").strip_prefix("/").expect("absolute"));
    assert_eq!(std::fs::read(restored).expect("restored"), b"the first");
    play.larder(["forget", &mine]).ok();
    for _ in 0..2 {
        play.larder(["optimize"]).ok();
    }
    let left = damage::named(&play.repository(), "versions/");
    assert!(left.iter().all(|name| !name.contains(mine.as_str())), "{left:?}");
    play.larder(["check", "--read-data"]).ok();
}

/// The name goes on: the next key of that name is of another domain.
#[test]
fn the_name_of_a_closed_domain_can_be_used_again() {
    let roles = with_laptop();
    let play = &roles.play;
    let (id, _) = key_with(&roles, "domain", "laptop");
    play.larder(["key", "remove", &id, "--close-domain"]).ok();
    roles.add("new", &["--role", "backup", "--domain", "laptop"]).ok();
    play.write("src/c", tree::noise(3, 100_000));
    roles.run("new", &["backup", "src", "--series", "mine"]).ok();
    roles.run("new", &["backup", "src", "--series", "mine"]).ok();
    assert_eq!(ids(&roles).len(), 4, "one of the password, one of the old key, two of the new one");
    let listed = play.larder(["snapshots", "--json", "--series", "mine"]).ok().json();
    let domains: Vec<_> = listed.as_array().expect("a list").iter().map(|version| version["domain"].clone()).collect();
    assert_eq!(domains, ["laptop"; 3]);
    // The old snapshots are none of the new key's business, and the operator sees all.
    assert_eq!(roles.run("new", &["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(2));
    play.larder(["series", "set", "mine", "--domain", "laptop", "--holes", "9"]).ok();
    assert_eq!(roles.run("new", &["series", "show", "mine", "--json"]).ok().json()["holes_percent"], 9);
    for _ in 0..2 {
        play.larder(["optimize"]).ok();
    }
    play.larder(["check", "--read-data"]).ok();
    // Both epochs are one history: the newest of them is kept.
    play.larder(["forget", "--keep-last", "1", "--series", "mine", "--dry-run"]).ok();
    let judged = play.larder(["forget", "--keep-last", "1", "--series", "mine", "--dry-run", "--json"]).ok().json();
    assert_eq!(judged.as_array().map(Vec::len), Some(1), "{judged}");
    // Closed once more, the first end stays in force.
    let (id, _) = key_with(&roles, "domain", "laptop");
    shows(play.larder(["key", "remove", &id, "--close-domain"]).ok(), "2 snapshots of it remain");
    assert_eq!(damage::named(&play.repository(), "closed/").len(), 2);
    assert_eq!(ids(&roles).len(), 4);
}

#[test]
fn a_domain_is_closed_with_care() {
    let roles = with_laptop();
    let play = &roles.play;
    let (laptop, _) = key_with(&roles, "domain", "laptop");
    roles.add("second", &["--role", "backup", "--domain", "laptop"]).ok();
    play.larder(["key", "remove", &laptop, "--close-domain"]).code(1).says("backs up as domain laptop, too");
    let (restore, _) = key_with(&roles, "role", "restore");
    play.larder(["key", "remove", &restore, "--close-domain"]).code(1).says("has no domain of its own");
    play.larder(["key", "remove", &laptop, "--reason", "why not"]).code(2);
    let (both, _) = key_with(&roles, "role", "restore+operate");
    play.larder(["key", "remove", &both, "--close-domain"]).code(1);
    roles.add("mighty", &["--role", "backup+restore", "--domain", "mighty"]).ok();
    let (mighty, _) = key_with(&roles, "domain", "mighty");
    let before = play.objects();
    play.larder(["key", "remove", &mighty, "--close-domain"]).code(1).says("opens every domain");
    roles.run("second", &["key", "remove", &laptop, "--close-domain"]).code(12).says("operate");
    assert_eq!(play.objects(), before, "nothing was changed");
}

/// Anybody can create an object, and only an operator closes a domain.
#[test]
fn a_planted_end_closes_nothing() {
    let roles = with_laptop();
    let play = &roles.play;
    let name = format!("closed/{}", DomainId([0xab; 16]));
    std::fs::create_dir_all(play.repository().join("closed")).expect("made");
    std::fs::write(play.repository().join(&name), "no end").expect("written");
    assert_eq!(ids(&roles).len(), 2);
    shows(play.larder(["check"]).code(13), &name);
    play.larder(["optimize"]).ok();
}

/// A storage that hides the end of a domain, or garbage in its place, would make the thief's
/// snapshots count. The machine that saw the domain closed notices that.
#[test]
fn an_end_that_is_gone_is_missed() {
    let roles = with_laptop();
    let play = &roles.play;
    let (id, _) = key_with(&roles, "domain", "laptop");
    play.larder(["key", "remove", &id, "--close-domain"]).ok();
    let name = damage::named(&play.repository(), "closed/").remove(0);
    let (object, aside) = (play.repository().join(&name), play.path("aside"));
    std::fs::rename(&object, &aside).expect("moved");
    let misses = || {
        play.larder(["optimize"]).code(13).says(&name).says("--accept-state");
        play.larder(["optimize", "--dry-run"]).code(13).says(&name);
        shows(play.larder(["check"]).code(13), &name);
    };
    misses();
    std::fs::write(&object, b"garbage").expect("planted");
    play.larder(["snapshots"]).ok().says("closes no domain");
    misses();

    std::fs::rename(&aside, &object).expect("put back");
    play.larder(["check"]).ok();
    play.larder(["optimize"]).ok();
    std::fs::remove_file(&object).expect("removed");
    play.larder(["check", "--accept-state"]).ok();
    play.larder(["check"]).ok();
    play.larder(["optimize"]).ok();
}
