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

    /// Ten files. Two are of this edition alone, two of two editions in a row, and one changes with the second edition only.
    fn write_edition(&self, folder: &str, edition: u64) {
        for part in 0..10 {
            let of_edition = match part {
                0 | 1 => 1 + edition,
                2 => 101 + edition / 2,
                3 => 201 + edition.div_ceil(2),
                4 => 301 + edition.min(1),
                _ => 0,
            };
            self.play.write(format!("{folder}/{part}"), tree::noise(of_edition * 100 + part, 150_000));
        }
        self.play.settle();
    }

    /// Series in the layout `lifecycle`, each of a folder with its name, with five snapshots and a pass after each.
    /// Volumes are cold. Then the third snapshot is forgotten, so that two of three files of a volume are unused: the third one is also
    /// of the second snapshot. Before it left, it was in one container with data that stays, so it was copied into the volume.
    fn with_holes(listings: u32, names: &[&str]) -> Self {
        let scene = Self::new(listings);
        for name in names {
            scene.larder(&["series", "set", name, "--layout", "lifecycle"]).ok();
        }
        for edition in 0..5 {
            for name in names {
                scene.write_edition(name, edition);
                scene.larder(&[&CLASS[..], &["backup", name, "--series", name]].concat()).ok();
            }
            scene.larder(&[&CLASS[..], &["optimize"]].concat()).ok();
        }
        for name in names {
            scene.larder(&["forget", "latest~2", "--series", name]).ok();
        }
        let plan = scene.summary(0, &[&CLASS[..], &["optimize", "--task", "arrange", "--dry-run"]].concat());
        let (holes, series) = (&plan["arranged"], names.len() as u64);
        assert_eq!(holes["planned_containers"], series, "one volume of each series has holes: {plan}");
        assert_eq!(holes["planned_moved_bytes"], 150_000 * series, "one of its three files is needed: {plan}");
        assert_eq!((scene.freezer.listings(), scene.freezer.refused().len()), (0, 0));
        scene
    }

    /// Three snapshots. The first, with six files in a cold container, is forgotten, and the second needs two of them.
    fn with_unused() -> Self {
        let scene = Self::new(1);
        scene.add_unused();
        scene
    }

    /// Adds these snapshots. All data that is there becomes cold.
    fn add_unused(&self) {
        let names: Vec<String> = (0..6).map(|number| format!("source/{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            self.play.write(name, tree::noise(number as u64, 200_000));
        }
        self.larder(&["backup", "source"]).ok();
        for name in &names[2..] {
            std::fs::remove_file(self.play.path(name)).expect("removed");
        }
        self.play.settle();
        self.larder(&["backup", "source"]).ok();
        self.larder(&["optimize", "--task", "collect"]).ok();
        self.freezer.freeze(&self.play.path("bucket"), "GLACIER");
        names[..2].iter().for_each(|name| std::fs::remove_file(self.play.path(name)).expect("removed"));
        self.play.write("source/new", tree::noise(9, 100_000));
        self.play.settle();
        self.larder(&["backup", "source"]).ok();
        self.larder(&["forget", "latest~2"]).ok();
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
    assert_eq!((&plan["prices"], &plan["tiers"][0]["cost"]), (&Value::Null, &Value::Null), "nobody knows prices");
    let tiers: Vec<_> =
        ["bulk", "standard", "expedited"].into_iter().zip(plan["tiers"].as_array().expect("tiers")).collect();
    assert!(tiers.iter().all(|(name, tier)| tier["tier"] == *name), "{plan}");
    assert_eq!((&tiers[0].1["hours"][1], &tiers[1].1["hours"][1]), (&48.0.into(), &12.0.into()));
    assert_eq!((&tiers[2].1["available"], &tiers[2].1["hours"]), (&false.into(), &Value::Null));
    let paid = ["--prices", "bulk-requests=1000,bulk=0,storage=0,traffic=0,currency=EUR", "--thaw-days", "3"];
    let args = [&["restore", "latest", "--target", "out", "--plan"], &paid[..]].concat();
    let plan = scene.larder(&[&args[..], &["--json"]].concat()).ok().messages("thaw_plan").pop().expect("a plan");
    schema::check("thaw_plan", &plan);
    assert_eq!((&plan["tiers"][0]["cost"], &plan["tiers"][1]["cost"]), (&1.0.into(), &Value::Null), "{plan}");
    assert_eq!((&plan["prices"]["currency"], &plan["thaw_days"]), (&"EUR".into(), &3.into()));
    let ran = scene.larder(&args).ok();
    let text = ran.text();
    assert!(text.contains("of class DEEP_ARCHIVE has to be thawed"), "{text}");
    assert!(text.contains("bulk: 12 to 48 hours, 1.0000 EUR with copies for 3 days"), "{text}");
    assert!(text.contains("expedited: not for class DEEP_ARCHIVE"), "{text}");
    ran.says("prices are assumptions (given prices); --prices sets those of your storage");
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

/// Goal: a pass does not rewrite a newest snapshot whose data is cold, says so, and ends well. If the data is thawed, it does so when it
/// is told to touch it.
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
    let pass = ["optimize", "--task", "exact", "--max-unused", "0"];
    let summary = scene.summary(0, &pass);
    schema::check("optimize_summary", &summary);
    assert_eq!(summary["defragmented"]["cold"], 1, "{summary}");
    assert_eq!(scene.freezer.classes(), before, "nothing is deleted");

    scene.larder(&["restore", "latest", "--target", "out", "--thaw", "--thaw-poll", "1s"]).ok();
    let defragmented = scene.summary(0, &pass)["defragmented"].take();
    assert_eq!((&defragmented["cold"], &defragmented["snapshots"]), (&1.into(), &0.into()), "{defragmented}");
    assert_eq!(scene.freezer.classes(), before, "it is thawed, and stays");
    let defragmented = scene.summary(0, &[&pass[..], &["--touch-cold"]].concat())["defragmented"].take();
    assert_eq!((&defragmented["cold"], &defragmented["snapshots"]), (&0.into(), &1.into()), "{defragmented}");
    scene.larder(&pass).ok();
    assert!(scene.freezer.classes().is_empty(), "it was copied, and is deleted");
    scene.is_whole("out");
    scene.larder(&["check", "--read-data"]).ok();
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

/// Goal: archived objects of a class whose listing does not tell are found, asked for without days, and restored.
#[test]
fn objects_in_archive_tiers_are_thawed() {
    let scene = Scene::new(1);
    scene.play.write("source/a", tree::noise(1, 300_000));
    scene.larder(&["backup", "source"]).ok();
    scene.freezer.freeze(&scene.play.path("bucket"), "INTELLIGENT_TIERING");
    let plan = scene.larder(&["restore", "latest", "--target", "out", "--plan", "--json"]).ok();
    let plan = plan.messages("thaw_plan").pop().expect("a plan");
    assert_eq!((&plan["objects_to_thaw"], &plan["objects"][0]["class"]), (&1.into(), &"ARCHIVE_ACCESS".into()));
    scene.larder(&["restore", "latest", "--target", "out"]).code(3);
    scene.larder(&["restore", "latest", "--target", "out", "--thaw", "--thaw-poll", "1s"]).ok();
    let asked = scene.freezer.asked();
    assert!(asked.len() == 1 && asked[0].1 == 202 && !asked[0].0.contains("<Days>"), "{asked:?}");
    scene.is_whole("out");
}

/// Goal: an index that could not see a container yet is no damage when the container is thawed, and the next pass adds its chunks.
#[test]
fn data_that_was_cold_when_a_pass_saw_it_first_is_no_damage_when_it_is_thawed() {
    let scene = Scene::half_cold(1);
    let summary = scene.summary(0, &["optimize"]);
    assert_eq!(summary["cold_unlisted_containers"], 1, "{summary}");
    scene.freezer.clear();
    for unlisted in [1, 0] {
        let summary = scene.summary(0, &["check", "--read-data"]);
        schema::check("check_summary", &summary);
        let index = &summary["index"];
        assert_eq!(
            (&index["unlisted_containers"], &index["disagreements"]),
            (&unlisted.into(), &0.into()),
            "{summary}"
        );
        scene.larder(&["optimize"]).ok();
    }
}

/// Goal: a pass says what is unused in cold storage and until when it is billed; it retires it only when it is thawed and it is told to,
/// and loses nothing.
#[test]
fn thawed_data_is_retired_when_a_pass_is_told_to_touch_it() {
    let scene = Scene::with_unused();
    let first = scene.freezer.classes();
    let pass = ["optimize", "--task", "collect,exact", "--max-unused", "0"];

    let summary = scene.summary(0, &pass);
    schema::check("optimize_summary", &summary);
    let reclaimed = &summary["reclaimed"];
    assert_eq!((&reclaimed["cold_containers"], &reclaimed["containers"]), (&1.into(), &0.into()), "{summary}");
    let unused = summary["cold_unused_bytes"].as_u64().expect("a number");
    assert!((700_000..900_000).contains(&unused), "four files of six: {summary}");
    let until = summary["cold_until"].as_str().expect("a time");
    assert!(until.starts_with("2026-04-01"), "90 days of GLACIER: {until}");
    let said = scene.larder(&pass).ok().stderr;
    assert!(said.contains("unused in cold storage, minimum storage time until 2026-04-01"), "{said}");
    assert_eq!(scene.freezer.classes(), first);

    // Thawed, it stays as long as nobody says otherwise.
    scene.larder(&["restore", "latest~1", "--target", "before", "--thaw", "--thaw-poll", "1s"]).ok();
    let summary = scene.summary(0, &pass);
    assert_eq!((&summary["reclaimed"]["containers"], scene.freezer.classes()), (&0.into(), first), "{summary}");
    let summary = scene.summary(0, &[&pass[..], &["--touch-cold"]].concat());
    assert_eq!(summary["reclaimed"]["containers"], 1, "{summary}");
    scene.larder(&pass).ok();
    assert!(scene.freezer.classes().is_empty(), "it is deleted");
    scene.larder(&["check", "--read-data"]).ok();
    scene.larder(&["restore", "latest~1", "--target", "after"]).ok();
    tree::same(&scene.play.path("before"), &scene.play.path("after"));
    scene.larder(&["restore", "latest", "--target", "out"]).ok();
    scene.is_whole("out");
}

/// Goal: of a series in the layout `lifecycle` only finished volumes are cold. The newest snapshot restores at once, older ones are
/// thawed, no pass reads what is cold, and forgetting the oldest deletes volumes.
#[test]
fn only_finished_volumes_of_the_layout_lifecycle_are_cold() {
    const SNAPSHOTS: u64 = 5;
    let scene = Scene::new(1);
    scene.larder(&["series", "set", "s", "--layout", "lifecycle"]).ok();
    for edition in 0..SNAPSHOTS {
        scene.write_edition("source", edition);
        scene.larder(&[&CLASS[..], &["backup", "source", "--series", "s"]].concat()).ok();
        let newest = scene.larder(&["restore", "latest", "--target", &format!("new-{edition}")]).ok();
        assert!(newest.stderr.is_empty() || !newest.stderr.contains("cold"), "{}", newest.stderr);
        let summary = scene.summary(0, &[&CLASS[..], &["optimize"]].concat());
        assert_eq!(summary["arranged"]["snapshots"], 1, "{summary}");
        assert_eq!(scene.freezer.refused(), Vec::<String>::new(), "no pass reads what is cold");
        assert_eq!(scene.freezer.listings(), 0, "and no pass asks for classes");
        let restored = format!("now-{edition}");
        scene.larder(&["restore", "latest", "--target", &restored]).ok();
        tree::same(&scene.play.path("source"), &scene.restored(&restored, ""));
    }
    let volumes = scene.freezer.classes();
    assert!(volumes.len() as u64 >= SNAPSHOTS - 1, "one volume for each old snapshot: {volumes:?}");
    scene.larder(&["check", "--read-data"]).ok();

    let oldest = format!("latest~{}", SNAPSHOTS - 1);
    scene.larder(&["restore", &oldest, "--target", "old"]).code(3);
    scene.freezer.refused();
    scene.larder(&["restore", &oldest, "--target", "old", "--thaw", "--thaw-poll", "1s"]).ok();
    tree::same(&scene.restored("now-0", ""), &scene.restored("old", ""));
    scene.freezer.refused();

    for left in (1..SNAPSHOTS).rev() {
        let before = scene.freezer.classes().len();
        scene.larder(&["forget", &format!("latest~{left}")]).ok();
        let summary = scene.summary(0, &[&CLASS[..], &["optimize"]].concat());
        assert!(scene.freezer.classes().len() < before, "a volume is deleted: {summary}");
        assert_eq!(scene.freezer.refused(), Vec::<String>::new(), "unread: {summary}");
    }
    assert!(scene.freezer.classes().is_empty(), "the newest snapshot needs none");
    scene.larder(&["restore", "latest", "--target", "out"]).ok();
    scene.is_whole("out");
    scene.larder(&["check", "--read-data"]).ok();
}

/// Goal: volumes with holes are left as long as they are cold, and also when they are thawed. A pass that is told to touch them rewrites
/// them, and loses nothing.
#[test]
fn thawed_volumes_are_arranged_when_a_pass_is_told_to_touch_them() {
    let scene = Scene::with_holes(1, &["s"]);
    let pass = [&CLASS[..], &["optimize", "--task", "arrange"]].concat();
    let volumes = scene.freezer.classes();
    let summary = scene.summary(0, &pass);
    schema::check("optimize_summary", &summary);
    let arranged = &summary["arranged"];
    assert_eq!(
        (&arranged["cold_containers"], &arranged["containers"], &arranged["containers_written"]),
        (&volumes.len().into(), &0.into(), &0.into()),
        "{summary}"
    );
    let unused = summary["cold_unused_bytes"].as_u64().expect("a number");
    assert!((300_000..310_000).contains(&unused), "two files of the third snapshot: {summary}");
    assert!(summary["cold_until"].as_str().is_some_and(|until| until.starts_with("2026-06-30")), "180 days: {summary}");
    assert_eq!((scene.freezer.refused().len(), scene.freezer.listings()), (1, 1), "one look, then one listing");
    assert_eq!(scene.freezer.classes(), volumes);

    // The second snapshot needs the volume. Thawed, it stays as long as nobody says otherwise.
    scene.larder(&["restore", "latest~2", "--target", "before", "--thaw", "--thaw-poll", "1s"]).ok();
    scene.freezer.listings();
    scene.freezer.refused();
    for told in [&[][..], &["--max-unused", "0"]] {
        let summary = scene.summary(0, &[&pass[..], told].concat());
        assert_eq!((&summary["arranged"]["containers"], &summary["cold_unused_bytes"]), (&0.into(), &unused.into()));
        assert_eq!((scene.freezer.refused().len(), scene.freezer.listings()), (0, 1), "{summary}");
        assert_eq!(scene.freezer.classes(), volumes);
    }
    let summary = scene.summary(0, &[&pass[..], &["--touch-cold"]].concat());
    let arranged = &summary["arranged"];
    assert_eq!((&arranged["containers"], &arranged["cold_containers"]), (&1.into(), &0.into()), "{summary}");
    assert_eq!((scene.freezer.refused().len(), scene.freezer.listings()), (0, 0), "nothing cold is met: {summary}");
    scene.larder(&pass).ok();
    let left: Vec<_> = scene.freezer.classes().into_iter().filter(|volume| !volumes.contains(volume)).collect();
    assert_eq!(left.len(), 1, "the volume is written again, in its class: {left:?}");
    scene.larder(&["restore", "latest~2", "--target", "after", "--thaw", "--thaw-poll", "1s"]).ok();
    tree::same(&scene.play.path("before"), &scene.play.path("after"));
    scene.freezer.clear();
    scene.larder(&["check", "--read-data"]).ok();
}

/// Goal: of several series, the report has the sum of what is unused in cold storage, from one listing.
#[test]
fn unused_data_in_cold_volumes_is_summed_over_series() {
    let scene = Scene::with_holes(1, &["s", "t", "u"]);
    let summary = scene.summary(0, &[&CLASS[..], &["optimize"]].concat());
    let unused = summary["cold_unused_bytes"].as_u64().expect("a number");
    assert!((900_000..930_000).contains(&unused), "two files of each series: {summary}");
    assert_eq!(summary["arranged"]["cold_containers"], scene.freezer.classes().len(), "{summary}");
    assert_eq!((scene.freezer.refused().len(), scene.freezer.listings()), (1, 1), "for all series: {summary}");
}

/// Goal: the report has what is unused in both layouts, also if arranging listed the classes before reclaiming looked for them.
#[test]
fn unused_data_in_cold_storage_is_summed_over_layouts() {
    let scene = Scene::with_holes(1, &["s"]);
    scene.add_unused();
    let tasks = ["optimize", "--task", "arrange,collect,exact", "--max-unused", "0"];
    let summary = scene.summary(0, &[&CLASS[..], &tasks].concat());
    assert_eq!(scene.freezer.listings(), 1, "{summary}");
    assert!(summary["arranged"]["cold_containers"].as_u64() > Some(0), "{summary}");
    assert!(summary["reclaimed"]["cold_containers"].as_u64() > Some(0), "{summary}");
    let unused = summary["cold_unused_bytes"].as_u64().expect("a number");
    assert!((1_000_000..1_210_000).contains(&unused), "two files of ten, and four of six: {summary}");
}

/// Goal: a storage that does not list classes keeps no pass from arranging. It leaves out what it finds cold, thawed or not.
#[test]
fn a_pass_arranges_although_classes_are_not_listed() {
    let scene = Scene::with_holes(1, &["s", "t"]);
    scene.larder(&["restore", "latest~2", "--series", "s", "--target", "old", "--thaw", "--thaw-poll", "1s"]).ok();
    scene.freezer.hide_classes();
    scene.freezer.listings();
    scene.freezer.refused();
    for name in ["s", "t"] {
        scene.write_edition(name, 5);
        scene.larder(&[&CLASS[..], &["backup", name, "--series", name]].concat()).ok();
    }
    let volumes = scene.freezer.classes();
    let summary = scene.summary(0, &[&CLASS[..], &["optimize"]].concat());
    let arranged = &summary["arranged"];
    assert_eq!((&arranged["snapshots"], &arranged["cold_containers"]), (&2.into(), &2.into()), "{summary}");
    assert!(arranged["containers"].as_u64() > Some(0), "the newest snapshots left some: {summary}");
    assert!((600_000..620_000).contains(&summary["cold_unused_bytes"].as_u64().expect("a number")), "{summary}");
    assert_eq!(summary["cold_until"], Value::Null, "nobody says how old they are: {summary}");
    assert_eq!((scene.freezer.refused().len(), scene.freezer.listings()), (1, 1), "{summary}");
    let now = scene.freezer.classes();
    assert!(volumes.iter().all(|volume| now.contains(volume)), "{volumes:?} {now:?}");
    for name in ["s", "t"] {
        scene.larder(&["restore", "latest", "--series", name, "--target", "out"]).ok();
        tree::same(
            &scene.play.path(name),
            &scene.play.path("out").join(scene.play.path(name).strip_prefix("/").expect("absolute")),
        );
    }
    scene.freezer.clear();
    scene.larder(&["check", "--read-data"]).ok();
}

/// Goal: a storage that does not list classes keeps no pass from its work. What is cold or thawed stays, and is no damage.
#[test]
fn a_pass_retires_although_classes_are_not_listed() {
    let scene = Scene::with_unused();
    scene.freezer.hide_classes();
    let pass = ["optimize", "--task", "collect,exact", "--max-unused", "0"];
    let before = scene.freezer.classes();
    let is_left = |summary: Value| {
        let reclaimed = &summary["reclaimed"];
        assert_eq!((&reclaimed["cold_containers"], &reclaimed["containers"]), (&1.into(), &0.into()), "{summary}");
        assert_eq!(
            (&reclaimed["unreadable_containers"], &summary["cold_until"]),
            (&Value::Array(vec![]), &Value::Null)
        );
        let unused = summary["cold_unused_bytes"].as_u64().expect("a number");
        assert!((700_000..900_000).contains(&unused), "four files of six: {summary}");
        assert_eq!((scene.freezer.classes(), scene.freezer.listings()), (before.clone(), 1), "{summary}");
    };
    is_left(scene.summary(0, &pass));
    scene.freezer.thaw_all();
    is_left(scene.summary(0, &pass));
    let summary = scene.summary(0, &[&pass[..], &["--touch-cold"]].concat());
    assert_eq!(summary["reclaimed"]["containers"], 1, "{summary}");
    scene.larder(&pass).ok();
    assert!(scene.freezer.classes().is_empty(), "it is deleted");
    scene.larder(&["check", "--read-data"]).ok();
}
