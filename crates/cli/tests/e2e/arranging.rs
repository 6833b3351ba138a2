//! Series in the layout `lifecycle` from snapshot to snapshot: what passes put off and make up for, what is shown of it, and how a series
//! whose index was rebuilt is put in order.

use std::collections::{BTreeMap, BTreeSet};

use larder_testkit::data;
use serde_json::{Value, json};

use crate::support::{Play, damage, schema};

/// Bytes of what every snapshot has.
const SAME: usize = 400_000;
/// Of what two in a row have.
const FOR_TWO: usize = 300_000;
/// Of what each has for itself.
const FOR_ONE: usize = 200_000;

/// A series that is backed up again and again, and what its snapshots hold.
struct Series {
    play: Play,
    /// Which edition a snapshot is of.
    editions: BTreeMap<String, u64>,
    ids: Vec<String>,
}

fn files(edition: u64) -> [(&'static str, Vec<u8>); 3] {
    [
        ("same", data::random(1, SAME)),
        ("for two", data::random(100 + edition / 2, FOR_TWO)),
        ("for one", data::random(200 + edition, FOR_ONE)),
    ]
}

impl Series {
    fn new(settings: &[&str]) -> Self {
        let play = Play::with_repository();
        play.larder([&["series", "set", "s", "--layout", "lifecycle"], settings].concat()).ok();
        Self { play, editions: BTreeMap::new(), ids: Vec::new() }
    }

    fn back_up(&mut self, edition: u64) {
        for (name, content) in files(edition) {
            self.play.write(format!("source/{name}"), content);
        }
        let id = self.play.backup(["source", "--series", "s"]);
        self.editions.insert(id.clone(), edition);
        self.ids.push(id);
    }

    /// Forgets the snapshot of an edition.
    fn forget(&mut self, edition: u64) {
        let id = self.ids[edition as usize].clone();
        assert_eq!(self.editions.remove(&id), Some(edition));
        self.play.larder(["forget", &id]).ok();
    }

    /// A pass; says how many bytes it moved to arrange the series.
    fn optimize(&self) -> u64 {
        let summary = self.play.larder(["optimize", "--json"]).ok().messages("summary").pop().expect("a summary");
        schema::check("optimize_summary", &summary);
        summary["arranged"]["moved_bytes"].as_u64().expect("a number")
    }

    fn layout(&self) -> Value {
        let layout = self.play.larder(["layout", "s", "--json"]).ok().json();
        schema::check("layout", &layout);
        layout
    }

    fn shown(&self) -> Value {
        let shown = self.play.larder(["series", "show", "s", "--json"]).ok().json();
        schema::check("series", &shown);
        shown
    }

    /// Everything is arranged, and all that is said of it is so: of categories, and of what forgetting would free. Gives the bytes of
    /// the active containers, of which the newest snapshot needs those that it has.
    #[track_caller]
    fn is_arranged(&self) -> u64 {
        let layout = self.layout();
        assert_eq!(layout["needs_rebuild"], false);
        let snapshots = layout["snapshots"].as_array().expect("an array");
        assert!(snapshots.iter().all(|snapshot| snapshot["state"] == "arranged"), "{layout:#}");
        assert_eq!(
            snapshots.iter().map(|snapshot| &snapshot["id"]).collect::<Vec<_>>(),
            self.editions.keys().collect::<Vec<_>>()
        );
        let editions = || self.editions.values();
        let pairs: BTreeSet<u64> = editions().map(|edition| edition / 2).collect();
        let sum = |rows: &str, bytes: &str, is_counted: &dyn Fn(&Value) -> bool| -> usize {
            let rows = layout[rows].as_array().expect("an array").iter().filter(|row| is_counted(row));
            rows.map(|row| row[bytes].as_u64().expect("a number") as usize).sum()
        };
        let needed = SAME + pairs.len() * FOR_TWO + self.editions.len() * FOR_ONE;
        assert_eq!(sum("categories", "needed_bytes", &|_| true), needed, "{layout:#}");
        assert_eq!(sum("categories", "bytes", &|row| row["last"].is_null()), SAME + FOR_TWO + FOR_ONE, "{layout:#}");
        let listed = self.play.larder(["snapshots", "--json"]).ok().json();
        for (at, snapshot) in snapshots.iter().enumerate() {
            let id = snapshot["id"].as_str().expect("an id");
            let edition = self.editions[id];
            let shares = editions().any(|other| *other != edition && *other / 2 == edition / 2);
            let own = FOR_ONE + if shares { 0 } else { FOR_TWO };
            assert_eq!(
                snapshot["free_data_bytes"],
                own + if snapshots.len() == 1 { SAME } else { 0 },
                "{edition}: {layout:#}"
            );
            assert_eq!((&listed[at]["id"], &listed[at]["free_bytes"]), (&snapshot["id"], &snapshot["free_bytes"]));
            let stats = self.play.larder(["stats", id, "--json"]).ok().json();
            assert_eq!((&stats["free_bytes"], &stats["layouts"]), (&snapshot["free_bytes"], &json!(["lifecycle"])));
        }
        sum("volumes", "bytes", &|row| row["last"].is_null()) as u64
    }

    /// Every snapshot holds what was backed up.
    #[track_caller]
    fn is_whole(&self) {
        let source = self.play.path("source");
        for (id, edition) in &self.editions {
            let target = tempfile::tempdir().expect("a folder");
            let (snapshot, folder) = (format!("{id}:{}", source.display()), target.path().join("restored"));
            self.play.larder(["restore".as_ref(), snapshot.as_ref(), "--target".as_ref(), folder.as_os_str()]).ok();
            for (name, content) in files(*edition) {
                let restored = std::fs::read(folder.join(name)).expect("restored");
                assert!(restored == content, "{name} of {edition}");
            }
        }
    }

    fn stored(&self) -> u64 {
        let objects = self.play.objects().into_iter();
        let all = objects.filter(|(name, _)| ["data/", "meta/", "versions/"].iter().any(|of| name.starts_with(of)));
        all.map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// What the newest snapshot of a series has; its active containers hold no more when it was their turn: no holes here are below 5 %.
const NEWEST: u64 = (SAME + FOR_TWO + FOR_ONE) as u64;

/// Containers are rewritten after every third snapshot. In between everything is known, restored and forgotten as ever.
#[test]
fn what_left_waits_for_its_turn_and_forgetting_does_not() {
    let mut series = Series::new(&["--holes", "5", "--arrange-every", "3"]);
    assert_eq!((&series.shown()["arrange_every"], &series.shown()["holes_percent"]), (&json!(3), &json!(5)));
    for edition in 0..9 {
        series.back_up(edition);
        let moved = series.optimize();
        // The first is a turn too, at which nothing has left. Forgetting 3 makes one at 5.
        let is_turn = [3, 8].contains(&edition);
        assert_eq!(moved > 0, is_turn, "{edition}: {moved}");
        let active = series.is_arranged();
        assert_eq!(active == NEWEST, is_turn || edition == 0, "{edition}: {active}");
        match edition {
            // The oldest one goes with its volume, and nothing is written for that.
            4 => {
                let free = series.layout()["snapshots"][0]["free_bytes"].as_u64().expect("known");
                let before = series.stored();
                series.forget(0);
                assert_eq!(series.optimize(), 0);
                assert!(free > FOR_ONE as u64 && before - series.stored() == free, "{free}");
                assert!(series.is_arranged() > NEWEST);
                series.is_whole();
            }
            // Another one leaves holes, and no snapshot came that could be waited for.
            5 => {
                series.forget(3);
                assert!(series.optimize() > 0);
                assert_eq!(series.is_arranged(), NEWEST);
                series.is_whole();
            }
            _ => {}
        }
    }
    series.is_whole();
    // Asked for, it is done whenever that is.
    series.back_up(9);
    assert_eq!(series.optimize(), 0);
    assert!(series.is_arranged() > NEWEST);
    let summary = series.play.larder(["optimize", "--task", "arrange", "--json"]).ok().messages("summary").pop();
    assert!(summary.expect("a summary")["arranged"]["moved_bytes"].as_u64() > Some(0));
    assert_eq!(series.is_arranged(), NEWEST);
    series.play.larder(["check", "--read-data"]).ok();
    series.is_whole();
}

/// Without the index nothing is lost, but nothing is arranged either, until the series is converted within its layout.
#[test]
fn a_series_that_lost_its_index_is_put_in_order() {
    let mut series = Series::new(&["--holes", "0"]);
    for edition in 0..5 {
        series.back_up(edition);
        series.optimize();
    }
    assert_eq!(series.is_arranged(), NEWEST);
    for object in damage::named(&series.play.repository(), "index/") {
        damage::remove(&series.play.repository(), &object);
    }
    let made = series.play.larder(["repair", "index", "--json"]).ok().json();
    schema::check("repair_index", &made);
    series.is_whole();
    assert_eq!(series.shown()["needs_rebuild"], true);
    let layout = series.layout();
    assert_eq!(layout["needs_rebuild"], true);
    let text = series.play.larder(["series", "list"]).ok().text();
    assert!(text.contains("lifecycle, not arranged"), "{text}");
    for args in [["series", "show", "s"].as_slice(), &["layout", "s"]] {
        let text = series.play.larder(args).ok().text();
        assert!(text.contains("larder series convert s --layout lifecycle"), "{text}");
    }
    // Passes leave it as it is; what is forgotten goes, and what is backed up comes.
    series.forget(1);
    assert_eq!(series.optimize(), 0);
    series.back_up(5);
    assert_eq!(series.optimize(), 0);
    assert_eq!(series.shown()["needs_rebuild"], true);
    let arranged =
        |layout: &Value| layout["snapshots"].as_array().expect("an array").iter().all(|one| one["state"] == "arranged");
    assert!(!arranged(&series.layout()));
    series.is_whole();

    let convert = || series.play.larder(["series", "convert", "s", "--layout", "lifecycle", "--json"]).ok();
    let converted = convert().messages("summary").remove(0);
    schema::check("series_convert", &converted);
    let done =
        converted["snapshots"].as_u64().expect("a number") + converted["were_already"].as_u64().expect("a number");
    assert_eq!((done, &converted["left"], &converted["overtaken"]), (5, &json!(0), &json!(0)), "{converted:#}");
    assert!(converted["snapshots"].as_u64() > Some(0) && converted["copied_bytes"].as_u64() > Some(0), "{converted:#}");
    series.is_whole();
    for _ in 0..2 {
        series.optimize();
    }
    assert_eq!(series.shown()["needs_rebuild"], false);
    assert_eq!(series.is_arranged(), NEWEST);
    let again = series.play.larder(["series", "convert", "s", "--layout", "lifecycle"]).ok().text();
    assert!(again.contains("nothing to do"), "{again}");
    series.is_whole();
    // It goes on as any: what leaves is moved, and the oldest goes with its volume.
    series.back_up(6);
    assert!(series.optimize() > 0);
    assert_eq!(series.is_arranged(), NEWEST);
    let free = series.layout()["snapshots"][0]["free_bytes"].as_u64().expect("known");
    let before = series.stored();
    series.forget(0);
    assert_eq!(series.optimize(), 0);
    // The conversion left the manifest that it replaced, which goes too.
    let freed = before - series.stored();
    assert!(free > FOR_ONE as u64 && (free..=free + 8192).contains(&freed), "{free} and {freed}");
    series.is_arranged();
    series.is_whole();
    series.play.larder(["check", "--read-data"]).ok();
}

/// A plan says what would move, without moving it, as far as the index knows what there is.
#[test]
fn a_dry_run_says_what_would_be_arranged() {
    let mut series = Series::new(&["--holes", "0"]);
    let plan = |series: &Series| {
        let (before, text) = (series.play.objects(), series.play.larder(["optimize", "-n"]).ok().text());
        let plan = series.play.larder(["optimize", "-n", "--json"]).ok().json();
        schema::check("optimize_summary", &plan);
        assert_eq!(series.play.objects(), before);
        let arranged = &plan["arranged"];
        let planned = |what: &str| arranged[what].as_u64().expect("a number");
        (text, planned("planned_snapshots"), planned("planned_containers"), planned("planned_moved_bytes"))
    };
    series.back_up(0);
    let (text, snapshots, containers, moved) = plan(&series);
    assert_eq!((snapshots, containers, moved), (1, 0, 0), "{text}");
    assert!(text.contains("would arrange 1 snapshot") && text.contains("is not in this plan"), "{text}");
    assert_eq!(series.optimize(), 0);
    for edition in 1..4 {
        series.back_up(edition);
        // Of what the index has all is known, and what the new one stored is all of one category.
        let (text, snapshots, containers, moved) = plan(&series);
        assert_eq!(snapshots, 1);
        assert!(containers > 0 && moved > 0 && text.contains("and move"), "{text}");
        assert_eq!(series.optimize(), moved, "{edition}");
    }
    // Where it is not their turn what is new is only noted, and when nothing is new what went is made up for.
    let mut series = Series::new(&["--holes", "5", "--arrange-every", "3"]);
    for edition in 0..6 {
        series.back_up(edition);
        let (text, snapshots, containers, moved) = plan(&series);
        assert_eq!((snapshots, containers > 0), (1, edition == 3), "{edition}: {text}");
        assert_eq!(series.optimize(), moved, "{edition}");
    }
    series.forget(3);
    let (text, snapshots, containers, moved) = plan(&series);
    assert!(snapshots == 0 && containers > 0 && moved > 0, "{text}");
    assert!(!text.contains("nothing to do") && !text.contains("is not in this plan"), "{text}");
    assert_eq!(series.optimize(), moved);
    let (text, snapshots, containers, moved) = plan(&series);
    assert_eq!((snapshots, containers, moved, text.contains("would arrange")), (0, 0, 0, false), "{text}");
    series.is_whole();
}
