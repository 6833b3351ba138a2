//! `repair`: the real binary proves an index, notices when it is wrong, and rebuilds it; puts lost contents back and saves what is left.

use crate::support::second::restored;
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

#[test]
fn a_check_proves_the_index_too() {
    let play = Play::with_repository();
    play.write("source/file", data::random(1, 200_000));
    play.backup(["source", "--series", "s"]);
    let check = |args: &[&str]| {
        let ran = play.larder([&["check", "--json"], args].concat());
        let summary = ran.messages("summary").pop().expect("a summary");
        schema::check("check_summary", &summary);
        (ran.code, summary)
    };
    // None at all is no damage; nor is one that lags.
    let (code, summary) = check(&[]);
    assert_eq!((code, &summary["index"]["number"]), (0, &0.into()));
    play.larder(["optimize"]).ok();
    play.write("source/more", data::random(2, 50_000));
    play.backup(["source", "--series", "s"]);
    let (code, summary) = check(&[]);
    assert_eq!(
        (code, &summary["index"]["number"], &summary["index"]["snapshots_not_in_index"]),
        (0, &1.into(), &1.into())
    );
    for args in [&["--no-index"][..], &["latest"], &["--series", "s"]] {
        let (code, summary) = check(args);
        assert_eq!((code, &summary["index"]), (0, &serde_json::Value::Null), "{args:?}");
    }
    for run in damage::named(&play.repository(), "index/runs/") {
        damage::flip(&play.repository(), &run, 50);
    }
    let (code, summary) = check(&[]);
    assert_eq!(
        (code, &summary["index"], &summary["suggest_repair_index"]),
        (13, &serde_json::Value::Null, &true.into())
    );
    assert_eq!(check(&["--no-index"]).0, 0);
    assert!(play.larder(["check"]).code(13).text().contains("larder repair index"));
}

#[test]
fn lost_contents_are_put_back_and_what_is_left_is_saved() {
    let play = Play::with_repository();
    for name in ["a", "b"] {
        play.write(format!("source/{name}"), data::random(u64::from(name.as_bytes()[0]), 300_000));
    }
    let id = play.backup(["source", "--series", "s"]);
    play.write("source/c", data::random(3, 10_000));
    play.backup(["source", "--series", "s"]);
    let whole = play.objects();
    let lost = damage::named(&play.repository(), &format!("data/{id}/")).remove(0);
    damage::remove(&play.repository(), &lost);
    let run = |args: &[&str], name: &str| {
        let ran = play.larder([args, &["--json"]].concat());
        let summary = ran.messages("summary").pop().unwrap_or_else(|| panic!("no summary: {}", ran.stderr));
        schema::check(name, &summary);
        (ran.code, summary)
    };
    // Without the files nothing comes back; half of them bring half.
    let (code, summary) = run(&["repair", "--from", "repository"], "repair_data");
    assert_eq!((code, &summary["chunks_found"]), (13, &0.into()), "{summary}");
    let (code, summary) = run(&["repair", "--from", "source/a", "--dry-run"], "repair_data");
    assert!(
        code == 13 && summary["chunks_found"].as_u64() > Some(0) && summary["chunks_found"] != summary["chunks_lost"]
    );
    assert!(
        summary["snapshots"].as_array().expect("an array").iter().all(|found| found["outcome"] == "would_be_healed")
    );
    // What can be saved is shown first, and can still be put back afterwards.
    let (code, summary) = run(&["repair", "snapshots", "--dry-run"], "repair_snapshots");
    assert_eq!((code, summary["snapshots"].as_array().map(Vec::len)), (0, Some(2)), "{summary}");
    let (code, summary) = run(&["repair", "snapshots", "latest"], "repair_snapshots");
    assert_eq!((code, summary["snapshots"].as_array().map(Vec::len)), (0, Some(1)), "{summary}");
    let saved = summary["snapshots"][0]["saved_as"].as_str().expect("an id").to_owned();
    let listed = play.larder(["snapshots", "--json", "--tag", "repaired"]).ok().json();
    assert_eq!((&listed[0]["id"], listed.as_array().map(Vec::len)), (&saved.as_str().into(), Some(1)));
    let (code, summary) = run(&["repair", "data", "--from", "source/b", "--from", "source/a"], "repair_data");
    assert_eq!((code, &summary["chunks_found"]), (0, &summary["chunks_lost"]), "{summary}");
    play.larder(["check", "--read-data"]).ok();
    let (code, summary) = run(&["repair", "snapshots", "--forget"], "repair_snapshots");
    assert_eq!((code, summary["snapshots"].as_array().map(Vec::len)), (0, Some(0)), "{summary}");
    // Nothing that was there has changed.
    let now = play.objects();
    assert!(whole.iter().filter(|(name, _)| *name != lost).all(|object| now.contains(object)));
    play.larder(["repair"]).code(2);
    play.larder(["repair", "--from", "nowhere"]).code(1).says("nowhere");
}

/// A pass moved some chunks of a snapshot to a container that its recipe does not name. Both containers are damaged then.
#[test]
fn contents_that_a_pass_moved_are_put_back_and_saved_too() {
    let play = Play::with_repository();
    let backup = |change: &dyn Fn()| {
        change();
        play.backup(["source", "--series", "s"])
    };
    let remove = |name: &str| std::fs::remove_file(play.path(name)).expect("removed");
    let (keep, more) = (data::random(1, 1_500_000), data::random(3, 1_500_000));
    let first = backup(&|| {
        play.write("source/keep", &keep);
        play.write("source/gone", data::random(2, 1_500_000));
    });
    let id = backup(&|| {
        remove("source/gone");
        play.write("source/more", &more);
    });
    backup(&|| {
        remove("source/keep");
        remove("source/more");
        play.write("source/new", "new");
    });
    play.larder(["optimize", "--min-age", "0"]).ok();
    play.larder(["forget", &first]).ok();
    play.larder(["optimize", "--task", "exact", "--min-age", "0"]).ok();
    let large: Vec<String> = damage::sizes(&play.repository(), "data/")
        .into_iter()
        .filter_map(|(name, size)| (size > 1_000_000).then_some(name))
        .collect();
    // The snapshot's own one, and that of the pass.
    assert!(large.len() == 2 && large.iter().filter(|name| name.contains(&id)).count() == 1, "{large:?}");
    large.iter().for_each(|name| damage::flip(&play.repository(), name, 700_000));
    let damaged = |args: &[&str]| play.larder([&["check", "--read-data"], args].concat()).code;
    assert_eq!(damaged(&[&id]), 13);

    let saved = play.larder(["repair", "snapshots", "--read-data", "--json"]).ok().messages("summary").remove(0);
    let saved = saved["snapshots"][0]["saved_as"].as_str().expect("it is saved").to_owned();
    play.larder(["restore", &saved, "--target", "saved"]).ok();
    assert_eq!(damaged(&[&id]), 13);
    for name in ["keep", "more"] {
        play.write(format!("pool/{name}"), if name == "keep" { &keep } else { &more });
    }
    let healed = play.larder(["repair", "--from", "pool", "--read-data", "--json"]).ok().messages("summary").remove(0);
    assert!(healed["chunks_found"].as_u64() >= Some(2) && healed["chunks_found"] == healed["chunks_lost"], "{healed}");
    play.larder(["restore", &id, "--target", "out"]).ok();
    let restored = |name: &str| std::fs::read(restored(&play, "out").join(name)).expect("read");
    assert!(restored("keep") == keep && restored("more") == more);
}
