//! `--estimate`: it changes nothing, and real runs take what it says.

use serde_json::Value;

use crate::support::{Play, schema, tree};

/// The estimate of a command.
#[track_caller]
fn estimate(play: &Play, args: &[&str]) -> Value {
    let ran = play.larder([args, &["--estimate", "--json"]].concat()).ok();
    let estimate = ran.messages("estimate").pop().unwrap_or_else(|| panic!("no estimate: {}", ran.stderr));
    schema::check("estimate", &estimate);
    estimate
}

/// Requests and bytes of a real run, as an estimate names them.
#[track_caller]
fn taken(play: &Play, args: &[&str]) -> Vec<u64> {
    let summary = play.larder([args, &["--json"]].concat()).ok().messages("summary").pop().expect("a summary");
    let keys = ["requests_read", "requests_create", "requests_list", "requests_delete", "bytes_down", "bytes_up"];
    keys.map(|key| summary[key].as_u64().expect("a number")).to_vec()
}

/// The lower or the upper bounds of an estimate, in the same order.
fn bounds(estimate: &Value, bound: usize) -> Vec<u64> {
    let requests = ["get", "put", "list", "delete"].map(|kind| &estimate["requests"][kind][bound]);
    let bytes = ["bytes_down", "bytes_up"].map(|key| &estimate[key][bound]);
    requests.into_iter().chain(bytes).map(|value| value.as_u64().expect("a number")).collect()
}

/// Goal: a restore takes exactly the requests and bytes of its estimate: whole, in part, over files that are there, and where
/// containers are read by their parts.
#[test]
fn a_restore_takes_what_its_estimate_says() {
    let play = Play::with_repository();
    for file in 0..60 {
        play.write(format!("source/small/{file}"), tree::noise(file, 2_000));
    }
    play.write("source/large", tree::noise(100, 20_000_000));
    play.backup(["source"]);
    play.write("source/small/7", tree::noise(200, 3_000));
    play.backup(["source"]);
    let small = format!("latest:{}", play.path("source/small").display());
    for (number, snapshot) in ["latest", "latest~1", &small].into_iter().enumerate() {
        let target = format!("target{number}");
        let args = ["restore", snapshot, "--target", &target];
        let planned = estimate(&play, &args);
        assert!(!play.path(&target).exists(), "an estimate writes nothing");
        assert_eq!((&planned["exact"], &planned["cost"]), (&true.into(), &Value::Null), "{planned}");
        let taken = taken(&play, &args);
        assert_eq!((bounds(&planned, 0), bounds(&planned, 1)), (taken.clone(), taken), "{snapshot}: {planned}");
    }
    // What is right already is not fetched.
    let again = estimate(&play, &["restore", "latest", "--target", "target0"]);
    assert!(bounds(&again, 0)[4] < 1_000_000, "{again}");
    std::fs::write(
        play.path("target0").join(play.path("source/small/3").strip_prefix("/").expect("absolute")),
        "other",
    )
    .expect("written");
    let args = ["restore", "latest", "--target", "target0"];
    let planned = estimate(&play, &args);
    assert_eq!(bounds(&planned, 0), taken(&play, &args));
    let paid = estimate(&play, &[&args[..], &["--prices", "reads=1000,creates=0,currency=EUR"]].concat());
    assert_eq!(paid["cost"]["low"].as_f64(), Some(bounds(&paid, 0)[0] as f64), "{paid}");
    let text = play.larder(["restore", "latest", "--target", "new", "--estimate"]).ok().text();
    assert!(text.contains("requests: ") && text.contains("prices of this storage are not known"), "{text}");
}

/// Passes move what old snapshots need, and an estimate that does not know where to says so.
#[test]
fn an_estimate_is_exact_or_says_that_it_is_not() {
    let play = Play::with_repository();
    for version in 0..6 {
        for file in 0..120 {
            if version == 0 || file % 6 == version {
                play.write(format!("source/{file}"), tree::noise(version * 1000 + file, 40_000));
            }
        }
        play.settle();
        play.backup(["source"]);
    }
    play.larder(["forget", "latest~1", "latest~3"]).ok();
    play.larder(["optimize", "--max-unused", "0", "--min-age", "0"]).ok();
    let mut exact = Vec::new();
    for number in 0..4 {
        let (snapshot, target) = (format!("latest~{number}"), format!("target{number}"));
        let args = ["restore", &snapshot, "--target", &target];
        let planned = estimate(&play, &args);
        let taken = taken(&play, &args);
        exact.push(planned["exact"] == true);
        match planned["exact"] == true {
            true => assert_eq!(bounds(&planned, 0), taken, "{snapshot}: {planned}"),
            false => assert!(bounds(&planned, 0)[0] <= taken[0], "{snapshot}: {planned}, {taken:?}"),
        }
    }
    assert!(exact[0] && exact.contains(&false), "{exact:?}");
}

/// Goal: a backup takes no less than the lower and no more than the upper bounds of its estimate, and stores nothing for it.
#[test]
fn a_backup_stays_within_its_estimate() {
    let play = Play::with_repository();
    for file in 0..300 {
        play.write(format!("source/small/{file}"), tree::noise(file, 3_000));
    }
    play.write("source/large", tree::noise(1000, 20_000_000));
    let backup = ["backup", "source", "--series", "s"];
    let mut read = Vec::new();
    for round in 0..4 {
        play.settle();
        let before = play.objects().len();
        let planned = estimate(&play, &backup);
        assert_eq!(play.objects().len(), before, "an estimate stores nothing");
        assert_eq!((&planned["exact"], planned["seconds"].is_null()), (&false.into(), round == 0), "{planned}");
        let text = play.larder([&backup[..], &["--estimate"]].concat()).ok().text();
        let taken = taken(&play, &backup);
        for ((low, high), taken) in bounds(&planned, 0).iter().zip(bounds(&planned, 1)).zip(&taken) {
            assert!(low <= taken && *taken <= high, "round {round}: {taken:?} outside of {planned}");
        }
        let stored = planned["stored_bytes"][1].as_u64().expect("a number");
        assert!(taken[5] <= stored, "{taken:?} {planned}");
        read.push(text.lines().next().expect("a line").to_owned());
        play.write(format!("source/small/{round}"), tree::noise(2000 + round, 3_100));
    }
    assert!(read[0].starts_with("found 301 files") && read[0].contains("would read 301 files"), "{read:?}");
    assert!(read[1..].iter().all(|line| line.contains("would read 1 file (")), "{read:?}");
    play.larder(["backup", "--stdin", "--estimate"]).code(2);
}
