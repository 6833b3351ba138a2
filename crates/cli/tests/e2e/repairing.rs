//! `repair index`: the real binary proves an index, notices when it is wrong, and makes it anew.

use crate::support::{Play, damage, schema};
use larder_testkit::data;

#[test]
fn a_damaged_index_is_noticed_and_made_anew() {
    let play = Play::with_repository();
    let ids: Vec<_> = (0..3u64)
        .map(|number| {
            play.write("source/file", data::random(number, 200_000));
            play.backup(["source", "--series", "s"])
        })
        .collect();
    // Nothing is in it yet, which is no disagreement.
    let empty = play.larder(["repair", "index", "--dry-run", "--json"]).ok().json();
    schema::check("repair_index", &empty);
    assert_eq!((&empty["snapshots_not_in_index"], &empty["disagreements"]), (&3.into(), &0.into()));
    play.larder(["optimize"]).ok();
    let agreed = play.larder(["repair", "index", "--dry-run", "--json"]).ok().json();
    schema::check("repair_index", &agreed);
    assert_eq!((&agreed["snapshots"], &agreed["disagreements"]), (&3.into(), &0.into()));
    assert!(play.larder(["repair", "index", "-n"]).ok().text().contains("it agrees with all of them"));

    for run in damage::named(&play.repository(), "index/runs/") {
        damage::flip(&play.repository(), &run, 50);
    }
    play.larder(["forget", &ids[0]]).ok();
    play.larder(["optimize"]).code(13).says("repair index");
    let made = play.larder(["repair", "index", "--json"]).ok().json();
    schema::check("repair_index", &made);
    assert_eq!((&made["index"], &made["snapshots"], &made["problems"]), (&2.into(), &2.into(), &serde_json::json!([])));
    play.larder(["optimize"]).ok();
    assert!(play.larder(["repair", "index", "-n"]).ok().text().contains("it agrees with all of them"));
    play.larder(["check", "--read-data"]).ok();

    // What cannot be read is named.
    let container = damage::named(&play.repository(), "data/").remove(0);
    damage::remove(&play.repository(), &container);
    play.larder(["repair", "index"]).code(13).says(&container);
}
