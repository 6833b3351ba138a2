//! A backup key was stolen: its domain is closed, and the thief makes no snapshot that counts.

use larder_format::ids::DomainId;

use crate::support::roles::{Roles, shows};
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
    roles.run("laptop", &["backup", "src", "--series", "mine"]).ok();
    roles.run("laptop", &["backup", "src", "--series", "another"]).ok();

    play.larder(["snapshots"]).ok().says("domain laptop is closed, and 2 snapshots of it came later and do not count");
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
    let before = play.objects();
    play.larder(["key", "remove", &laptop, "--close-domain"]).code(1).says("backs up as domain laptop, too");
    let (restore, _) = key_with(&roles, "role", "restore");
    play.larder(["key", "remove", &restore, "--close-domain"]).code(1).says("has no domain of its own");
    play.larder(["key", "remove", &laptop, "--reason", "why not"]).code(2);
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
