//! Data in storage classes that must be thawed: what is stored there, and every command that meets it.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::freezer::Freezer;
use crate::support::server::Bucket;
use crate::support::{Play, Ran, schema, tree};

const CLASS: [&str; 2] = ["-o", "s3.storage-class=DEEP_ARCHIVE"];

/// A repository in a bucket with classes.
struct Scene {
    play: Play,
    freezer: Freezer,
    bucket: Bucket,
}

impl Scene {
    /// Objects are thawed after this number of listings.
    fn new(listings: u32) -> Self {
        let (play, freezer) = (Play::new(), Freezer::default());
        let bucket = freezer.serve(play.path("bucket"), listings);
        let scene = Self { play, freezer, bucket };
        scene.larder(&["init", "--insecure-kdf"]).ok();
        scene
    }

    /// With two snapshots: the newest one needs a container that can be read, and one that cannot.
    fn half_cold(listings: u32) -> Self {
        let scene = Self::new(listings);
        scene.play.write("source/warm", tree::noise(1, 300_000));
        scene.larder(&["backup", "source"]).ok();
        scene.play.write("source/cold", tree::noise(2, 400_000));
        scene.play.settle();
        scene.larder(&[&CLASS[..], &["backup", "source"]].concat()).ok();
        scene
    }

    fn larder(&self, args: &[&str]) -> Ran {
        self.bucket.larder(&self.play, args)
    }

    /// The only summary of a command that ends with this code.
    #[track_caller]
    fn summary(&self, code: i32, args: &[&str]) -> Value {
        let ran = self.larder(&[args, &["--json"]].concat()).code(code);
        ran.messages("summary").pop().unwrap_or_else(|| panic!("no summary: {}", ran.stderr))
    }

    fn restored(&self, target: &str, name: &str) -> PathBuf {
        let source = self.play.path("source");
        self.play.path(target).join(source.strip_prefix("/").expect("absolute")).join(name)
    }

    #[track_caller]
    fn is_whole(&self, target: &str) {
        tree::same(&self.play.path("source"), self.restored(target, "").as_path());
    }
}

/// Goal: only data has the class; a plan names what has to be thawed; a restore gives what can be read, and with --thaw the rest.
#[test]
fn cold_data_is_planned_thawed_and_restored() {
    let scene = Scene::half_cold(2);
    let classes = scene.freezer.classes();
    assert!(
        !classes.is_empty() && classes.iter().all(|(name, _)| name.starts_with("some/prefix/data/")),
        "{classes:?}"
    );
    assert_eq!(classes[0].1, "DEEP_ARCHIVE");
    scene.larder(&["ls", "latest"]).ok();
    let plan = scene.larder(&["restore", "latest", "--target", "out", "--plan", "--json"]).ok();
    let plan = plan.messages("thaw_plan").pop().expect("a plan");
    schema::check("thaw_plan", &plan);
    assert_eq!(
        (&plan["objects_to_thaw"], &plan["readable_objects"], &plan["exact"]),
        (&1.into(), &1.into(), &true.into())
    );
    assert!(plan["bytes_to_thaw"].as_u64() > Some(390_000), "{plan}");
    assert_eq!((&plan["objects"][0]["class"], &plan["objects"][0]["state"]), (&"DEEP_ARCHIVE".into(), &"cold".into()));
    let text = scene.larder(&["restore", "latest", "--target", "out", "--plan"]).ok().text();
    assert!(text.contains("of class DEEP_ARCHIVE has to be thawed"), "{text}");
    assert!(scene.freezer.asked().is_empty() && !scene.play.path("out").exists(), "a plan changes nothing");
    let ran = scene.larder(&["restore", "latest", "--target", "out"]).code(3);
    assert!(ran.stderr.contains("1 file not restored, because 1 object in cold storage"), "{}", ran.stderr);
    assert!(scene.restored("out", "warm").exists());
    let summary =
        scene.summary(0, &["restore", "latest", "--target", "out", "--thaw", "--thaw-poll", "1s", "--verify"]);
    schema::check("restore_summary", &summary);
    assert_eq!(
        (&summary["cold_files"], &summary["files_restored"], &summary["verified"]),
        (&0.into(), &1.into(), &true.into())
    );
    scene.is_whole("out");
    let asked = scene.freezer.asked();
    assert_eq!(asked.len(), 1, "once: {asked:?}");
    assert!(asked[0].0.contains("<Days>7</Days>") && asked[0].0.contains("<Tier>Bulk</Tier>"), "{asked:?}");
}

/// Goal: asking and coming back later; another one asked meanwhile; days that are over before the restore is.
#[test]
fn thawing_goes_on_without_us_and_is_asked_for_again_when_it_is_over() {
    let scene = Scene::half_cold(4);
    let thaw =
        ["restore", "latest", "--target", "out", "--thaw", "--thaw-tier", "standard", "--thaw-days", "3", "--no-wait"];
    scene.larder(&thaw).code(3).says("run the command again later");
    let asked = scene.freezer.asked();
    assert!(asked.len() == 1 && asked[0].1 == 202 && asked[0].0.contains("<Tier>Standard</Tier>"), "{asked:?}");
    assert!(asked[0].0.contains("<Days>3</Days>"), "{asked:?}");
    scene.larder(&thaw).code(3);
    assert!(scene.freezer.asked().is_empty(), "it is under way");
    scene.larder(&["restore", "latest", "--target", "out", "--thaw", "--thaw-poll", "1s"]).ok();
    scene.is_whole("out");

    let scene = Scene::half_cold(1);
    scene.freezer.expire(1);
    scene.larder(&["restore", "latest", "--target", "out", "--thaw", "--thaw-poll", "1s"]).ok();
    scene.is_whole("out");
    assert_eq!(scene.freezer.asked().len(), 2, "again, when it was over");
}

/// Goal: checks and drills skip what is cold, and say so. It is no damage.
#[test]
fn checks_and_drills_leave_cold_data_out() {
    let scene = Scene::half_cold(1);
    for args in [&["check", "--read-data"][..], &["check"]] {
        let summary = scene.summary(0, args);
        schema::check("check_summary", &summary);
        assert_eq!((&summary["num_errors"], &summary["cold_containers"]), (&0.into(), &1.into()), "{summary}");
        assert!(summary["cold_bytes"].as_u64() > Some(390_000), "{summary}");
    }
    for more in [&["--scratch", "scratch"][..], &["--no-write"]] {
        let summary = scene.summary(0, &[&["drill", "--sample", "100%"], more].concat());
        schema::check("drill_summary", &summary);
        let found = &summary["snapshots"][0];
        assert_eq!((&found["cold_files"], &found["mismatches"], &found["failures"]), (&1.into(), &0.into(), &0.into()));
    }
    scene.larder(&["check", "--read-data"]).ok().says("in cold storage could not be verified. This is not damage.");
}

/// Goal: a pass does not rewrite a newest snapshot whose data is cold, says so, and ends well.
#[test]
fn passes_leave_cold_data_alone() {
    let scene = Scene::new(1);
    for number in 0..6 {
        scene.play.write(format!("source/{number}"), tree::noise(number, 200_000));
    }
    scene.larder(&["backup", "source"]).ok();
    scene.larder(&["optimize"]).ok();
    for number in 0..4 {
        std::fs::remove_file(scene.play.path(format!("source/{number}"))).expect("removed");
    }
    scene.play.settle();
    scene.larder(&["backup", "source"]).ok();
    scene.larder(&["forget", "latest~1"]).ok();
    scene.freezer.freeze(&scene.play.path("bucket"), "GLACIER");
    let before = scene.freezer.classes();
    let summary = scene.summary(0, &["optimize", "--task", "exact", "--max-unused", "0"]);
    schema::check("optimize_summary", &summary);
    assert_eq!(summary["defragmented"]["cold"], 1, "{summary}");
    assert_eq!(scene.freezer.classes(), before, "nothing is deleted");
}

/// Goal: a backup that would compare with cold data stores it again.
#[test]
fn a_backup_that_needs_cold_data_stores_it_again() {
    let scene = Scene::new(1);
    scene.play.write("source/a", tree::noise(1, 300_000));
    scene.larder(&["backup", "source"]).ok();
    scene.freezer.freeze(&scene.play.path("bucket"), "GLACIER");
    scene.play.write("source/b", tree::noise(1, 300_000));
    scene.play.settle();
    scene.larder(&["backup", "source"]).ok();
    assert_eq!(scene.freezer.classes().len(), 1);
    scene.larder(&["backup", "source", "--force", "--paranoid"]).ok();
    let whole = scene.summary(0, &["restore", "latest", "--target", "out"]);
    assert_eq!(whole["cold_files"], 0, "{whole}");
    scene.is_whole("out");
    scene.freezer.clear();
    scene.larder(&["check", "--read-data"]).ok();
}
