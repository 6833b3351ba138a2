//! A machine that may only back up chooses the times of its snapshots, and takes nothing from the real ones with them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_testkit::data;
use serde_json::Value;

use crate::support::{Play, Ran, damage, run, schema};

/// Noon of the last day, seconds since the epoch: 2024-03-22 12:00 UTC.
const TODAY: u64 = 1_711_108_800;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const REASON: &str = "claims a time that the storage does not confirm";

/// A repository of an operator, and a machine with a key that may only back up.
struct Scene {
    play: Play,
    key: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let play = Play::with_repository();
        play.write("src/important", "content");
        play.write("other/large", data::random(1, 300_000));
        let key = play.path("web.key");
        run(play.command(["key", "add", "--role", "backup", "--domain", "web", "--file"]).arg(&key)).ok();
        Self { play, key }
    }

    /// A night for each of the last four days, at 3 o'clock. The first is the oldest.
    fn with_nights() -> (Self, Vec<String>) {
        let scene = Self::new();
        let nights = (1..=4).rev().map(|days| TODAY - days * DAY - 9 * HOUR);
        let nights = nights.map(|at| scene.backup("src", at, at + HOUR)).collect();
        (scene, nights)
    }

    /// Backs up with the machine's key under a claimed time. The store says that it got the snapshot at another time.
    fn backup(&self, source: &str, claimed: u64, made: u64) -> String {
        let time = format!("@{claimed}");
        let args = ["backup", source, "--series", "s", "--no-similar", "--json", "--time", &time];
        let mut command = self.play.command(args);
        let ran = run(command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", &self.key)).ok();
        let id = ran.messages("summary").pop().expect("a summary")["snapshot_id"].as_str().expect("an id").to_owned();
        self.made(&id, made);
        id
    }

    /// Snapshots that somebody makes today at these claimed times.
    fn forge(&self, claims: &[u64]) -> Vec<String> {
        claims.iter().map(|claimed| self.backup("other", *claimed, TODAY)).collect()
    }

    /// The store's time of a snapshot's manifest. 0 is what a store without times says.
    fn made(&self, id: &str, seconds: u64) {
        let repository = self.play.repository();
        let of_version = |name: &String| name.ends_with(&format!("{id}/0"));
        let name = damage::named(&repository, "versions/").into_iter().find(of_version).expect("a manifest");
        touch(&repository.join(name), seconds);
    }

    /// Copies of objects are as old as the copy.
    fn copied(&self, seconds: u64) {
        let repository = self.play.repository();
        for (name, _) in self.play.objects() {
            touch(&repository.join(name), seconds);
        }
    }

    /// The time when the scene was made.
    fn now(&self) -> u64 {
        let file = std::fs::metadata(self.play.path("src/important"));
        let now = file.and_then(|file| file.modified()).expect("just written");
        now.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
    }

    fn forget(&self, args: &[&str]) -> Ran {
        run(self.play.command([&["forget", "--json"], args].concat()).env("TZ", "UTC")).ok()
    }

    /// The snapshots that a policy keeps and those that it forgets.
    fn judged(&self, policy: &[&str]) -> (Vec<String>, Vec<String>) {
        let groups = self.forget(&[policy, &["--dry-run"]].concat()).json();
        (ids(&groups[0]["keep"]), ids(&groups[0]["remove"]))
    }
}

fn touch(path: &Path, seconds: u64) {
    let file = std::fs::File::open(path).expect("opens");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("touched");
}

fn ids(versions: &Value) -> Vec<String> {
    let versions = versions.as_array().expect("an array");
    versions.iter().map(|version| version["id"].as_str().expect("text").to_owned()).collect()
}

fn holds(all: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|id| all.contains(id))
}

/// The attack M4: forged times make a policy forget the real snapshots.
#[test]
fn forged_times_displace_no_real_snapshot() {
    let (scene, nights) = Scene::with_nights();
    let policies: [&[&str]; 7] = [
        &["--keep-daily", "4"],
        &["--keep-hourly", "4"],
        &["--keep-last", "4"],
        &["--keep-within", "4d"],
        &["--keep-within-daily", "4d"],
        &["--keep-weekly", "1", "--keep-within-hourly", "4d"],
        &["--keep-size", "200KiB"],
    ];
    for policy in policies {
        assert_eq!(scene.judged(policy), (nights.clone(), Vec::new()), "{policy:?}");
    }
    // Midnights of past days, each after that night's snapshot, and times far off.
    let midnight = |day: u64| TODAY - day * DAY + 12 * HOUR - 1;
    let claims = [midnight(5), midnight(4), midnight(3), midnight(2), 0, TODAY + 2 * DAY, TODAY + 3650 * DAY, 1 << 36];
    let forged = scene.forge(&claims);
    for policy in policies {
        let (kept, forgotten) = scene.judged(policy);
        assert!(holds(&kept, &nights) && holds(&kept, &forged), "{policy:?}");
        assert!(forgotten.is_empty(), "{policy:?}");
    }
    // The real ones go as they went before, and the reason of the others is told.
    let ran = scene.forget(&["--keep-daily", "2"]);
    let warnings = ran.errors("warning");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0]["message"].as_str().expect("text").contains("the claimed time of 8 snapshots"), "{warnings:?}");
    let groups = ran.json();
    schema::check("forget", &groups[0]);
    assert_eq!(ids(&groups[0]["remove"]), nights[..2]);
    for reason in groups[0]["reasons"].as_array().expect("an array") {
        let id = reason["snapshot"]["id"].as_str().expect("text").to_owned();
        let is_forged = reason["matches"] == serde_json::json!([REASON]);
        assert_eq!((is_forged, !is_forged), (forged.contains(&id), nights[2..].contains(&id)), "{reason}");
    }
    let shown = run(scene.play.command(["forget", "--keep-daily", "2", "-n"]).env("TZ", "UTC")).ok();
    assert!(shown.text().contains("keep 10 snapshots") && shown.text().contains(REASON), "{}", shown.text());
    // By name they go, too.
    scene.forget(&[&forged[0], &forged[7]]);
    assert_eq!(scene.judged(&["--keep-daily", "2"]).0.len(), 8);
}

/// A snapshot with an unconfirmed time does not stand for a group that a policy would forget as a whole.
#[test]
fn a_forged_snapshot_does_not_let_a_group_go() {
    let (scene, nights) = Scene::with_nights();
    scene.forge(&[0]);
    let refused = scene.play.larder(["forget", "--keep-tag", "none"]).code(1);
    refused.says("the policy keeps none of 5 snapshots");
    // An operator who wants none of them left gets that.
    scene.forget(&["--unsafe-allow-remove-all", "--series", "s"]);
    assert_eq!(scene.play.larder(["snapshots", "--json"]).ok().json(), serde_json::json!([]));
    assert_eq!(nights.len(), 4);
}

/// Within a day of the present a machine may say anything: it takes the place of the newest days and no other.
#[test]
fn claims_of_the_present_count() {
    let (scene, nights) = Scene::with_nights();
    let now = scene.forge(&[TODAY - 12 * HOUR - 1, TODAY, TODAY + 12 * HOUR + 1]);
    let (kept, forgotten) = scene.judged(&["--keep-daily", "5"]);
    assert!(holds(&kept, &now) && holds(&kept, &nights[1..3]), "{kept:?}");
    assert_eq!(forgotten, [&*nights[0], &nights[3]]);
}

/// The id of a snapshot is chosen by its maker as well, and policies judge by it if it is the earlier time.
#[test]
fn an_id_of_another_day_than_the_stated_time_displaces_nothing() {
    let scene = Scene::new();
    let day = scene.now() / DAY * DAY;
    // Ids are of today, which the thief pretends to be a day of last month.
    let real = scene.backup("src", day, day);
    let forged = scene.backup("other", day + 30 * DAY, day + 30 * DAY);
    for policy in [["--keep-daily", "1"], ["--keep-last", "1"]] {
        let (kept, forgotten) = scene.judged(&policy);
        assert!(holds(&kept, &[real.clone(), forged.clone()]) && forgotten.is_empty(), "{policy:?}: {forgotten:?}");
    }
}

/// A machine's clock was behind: its snapshot seems to be older than earlier ones, and is not.
#[test]
fn a_snapshot_of_a_clock_that_was_behind_is_not_displaced() {
    let scene = Scene::new();
    let backup = || scene.play.backup(["src", "--series", "s"]);
    let (late, earlier) = (backup(), backup());
    // By the store's time, it came last.
    scene.made(&late, scene.now() + 400 * DAY);
    let (kept, forgotten) = scene.judged(&["--keep-last", "1"]);
    assert!(holds(&kept, &[late.clone(), earlier.clone()]) && forgotten.is_empty(), "{kept:?}");
    // An explicit time makes it the latest.
    let args = ["rewrite", &late, "--new-time", "2100-01-01 00:00:00", "--forget", "--json"];
    let summary = scene.play.larder(args).ok().messages("summary").remove(0);
    let new = summary["snapshots"][0]["new_snapshot_id"].as_str().expect("an id").to_owned();
    assert_eq!(scene.judged(&["--keep-last", "1"]), (vec![new.clone()], vec![earlier]));
    let latest = scene.play.larder(["snapshots", "latest", "--json"]).ok().json();
    assert_eq!(latest[0]["id"], *new);
}

/// An operator signs its snapshots, so that imported ones keep their times.
#[test]
fn the_times_of_a_full_key_count() {
    let scene = Scene::new();
    let of_year = |year: u64| format!("@{}", (year - 1970) * 365 * DAY);
    let backup = |year: u64| scene.play.backup(["src", "--series", "s", "--time", &of_year(year)]);
    let imported: Vec<String> = [1990, 2000, 2010, 2090].map(backup).into();
    let (kept, forgotten) = scene.judged(&["--keep-yearly", "2"]);
    assert_eq!((kept, forgotten), (imported[2..].to_vec(), imported[..2].to_vec()));
}

/// A copied bucket keeps its order: passes noted when the store first had each snapshot.
#[test]
fn a_copy_keeps_the_times_that_passes_saw() {
    let (scene, nights) = Scene::with_nights();
    let forged = scene.forge(&[TODAY - 5 * DAY, TODAY + 30 * DAY]);
    let policy = ["--keep-daily", "2"];
    let as_before = || {
        let (kept, forgotten) = scene.judged(&policy);
        assert!(holds(&kept, &nights[2..]) && holds(&kept, &forged), "{kept:?}");
        assert_eq!(forgotten, nights[..2]);
    };
    as_before();
    scene.play.larder(["optimize"]).ok();
    // The copy is made at the very time that one of them claims.
    scene.copied(TODAY + 30 * DAY);
    as_before();
    // Later passes keep the earlier times, and an index that is made again has the store's.
    let late = scene.backup("src", TODAY + 30 * DAY, TODAY + 30 * DAY);
    scene.play.larder(["optimize"]).ok();
    scene.play.larder(["forget", &late]).ok();
    as_before();
    scene.play.larder(["repair", "index"]).ok();
    assert_eq!(scene.judged(&policy).1, [""; 0]);
    // Which is then what the next copy is judged by.
    scene.copied(TODAY + 60 * DAY);
    let groups = scene.forget(&["--keep-last", "1", "--dry-run"]).json();
    let reasons = groups[0]["reasons"].as_array().expect("an array");
    let of_forged = reasons.iter().find(|reason| reason["snapshot"]["id"] == *forged[1]).expect("kept");
    assert_eq!(of_forged["matches"], serde_json::json!(["last snapshot"]));
}

/// Without times of the store, a pass says when it first saw a snapshot. Before that, nothing confirms a time.
#[test]
fn a_store_without_times_has_those_of_passes() {
    let scene = Scene::new();
    let now = scene.now();
    let real: Vec<String> = (1..=2).map(|hours| scene.backup("src", now - hours * HOUR, 0)).collect();
    let old = scene.backup("other", now - 3 * DAY, 0);
    let policy = ["--keep-last", "1"];
    assert_eq!(scene.judged(&policy).1, [""; 0]);
    scene.play.larder(["optimize"]).ok();
    let (kept, forgotten) = scene.judged(&policy);
    assert!(holds(&kept, &[real[0].clone(), old]), "{kept:?}");
    assert_eq!(forgotten, [&*real[1]]);
}
