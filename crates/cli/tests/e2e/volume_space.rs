//! `larder volume`: snapshots, clones, resizes, deletions, collection.

use crate::support::{Play, schema};

#[test]
fn volumes_are_changed_while_no_server_runs() {
    let play = Play::new();
    play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf"]).ok();
    play.larder(["volume", "create", "store/disk", "1MiB"]).ok();
    play.larder(["volume", "create", "store/none"]).code(2);
    let changed = play.larder(["volume", "snapshot", "store/disk@monday", "--json"]).ok();
    schema::check("volume_changed", &changed.json());
    let cloned = play.larder(["volume", "create", "store/clone", "--clone", "disk@monday", "--json"]).ok();
    schema::check("volume_created", &cloned.json());
    play.larder(["volume", "create", "store/now", "--clone", "disk"]).ok().text().contains("clone of disk");
    play.larder(["volume", "create", "store/clone", "--clone", "disk"]).code(2).says("exists already");
    play.larder(["volume", "delete", "store/disk@monday"]).code(2).says("clones: clone").in_two_lines();
    play.larder(["volume", "resize", "store/clone", "2MiB", "--json"]).ok();
    play.larder(["volume", "rename", "store/clone", "other"]).ok();
    let listed = play.larder(["volume", "list", "store", "--json"]).ok().json();
    schema::check("volume_list", &listed);
    let names = |list: &serde_json::Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name").into()).collect()
    };
    assert_eq!(names(&listed), ["disk", "other", "now"]);
    assert_eq!(names(&listed[0]["snapshots"]), ["monday", "clone-now"]);
    assert_eq!((listed[1]["size"].as_u64(), listed[1]["parent"].as_str()), (Some(2 << 20), Some("disk@monday")));
    assert!(play.larder(["volume", "list", "store"]).ok().text().contains("disk@clone-now"));
    play.larder(["volume", "delete", "store/other"]).ok();
    play.larder(["volume", "delete", "store/now"]).ok();
    play.larder(["volume", "delete", "store/disk"]).code(2).says("snapshots: monday, clone-now");
    play.larder(["volume", "delete", "store/disk@monday", "--snapshots"]).code(2);
    play.larder(["volume", "delete", "store/disk", "--snapshots"]).ok();
    assert_eq!(play.larder(["volume", "list", "store", "--json"]).ok().json(), serde_json::json!([]));
    let collected = play.larder(["volume", "collect", "store", "--until-free", "100%", "--json"]).ok();
    schema::check("volume_collected", &collected.json());
    play.larder(["volume", "collect", "store", "--until-free", "101"]).code(2);
    schema::check("volume_check", &play.larder(["volume", "check", "store", "--repair", "--json"]).ok().json());
}
