//! `--estimate`: it changes nothing, and real runs take what it says.

use serde_json::Value;

use crate::support::second::Second;
use crate::support::server::Bucket;
use crate::support::{Play, Ran, damage, schema, tree};

/// The estimate of a command.
#[track_caller]
fn estimate(play: &Play, args: &[&str]) -> Value {
    estimates(&play.larder([args, &["--estimate", "--json"]].concat()).ok()).remove(0)
}

/// All estimates that a command printed.
#[track_caller]
fn estimates(ran: &Ran) -> Vec<Value> {
    let estimates = ran.messages("estimate");
    assert!(!estimates.is_empty(), "no estimate: {}", ran.stderr);
    estimates.iter().for_each(|estimate| schema::check("estimate", estimate));
    estimates
}

/// Requests and bytes of a real run, as an estimate names them.
#[track_caller]
fn taken(play: &Play, args: &[&str]) -> Vec<u64> {
    let ran = play.larder([args, &["--json"]].concat()).ok();
    counted(&ran.messages("summary").pop().expect("a summary"))
}

fn counted(summary: &Value) -> Vec<u64> {
    let keys = ["requests_read", "requests_create", "requests_list", "requests_delete", "bytes_down", "bytes_up"];
    keys.map(|key| summary[key].as_u64().expect("a number")).to_vec()
}

/// The lower or the upper bounds of an estimate, in the same order.
fn bounds(estimate: &Value, bound: usize) -> Vec<u64> {
    let requests = ["get", "put", "list", "delete"].map(|kind| &estimate["requests"][kind][bound]);
    let bytes = ["bytes_down", "bytes_up"].map(|key| &estimate[key][bound]);
    requests.into_iter().chain(bytes).map(|value| value.as_u64().expect("a number")).collect()
}

/// Goal: with little memory, a restore asks for each part once as long as the metadata fits, and its estimate is exact. Where the
/// memory does not hold all metadata, an estimate does not claim to be exact.
#[test]
fn an_estimate_with_little_memory_is_exact_or_says_that_it_is_not() {
    let play = Play::with_repository();
    let write = |folder: &str, files: usize, bytes: usize, content: &str| {
        for (file, noise) in tree::noise(1, files * bytes).chunks(bytes).enumerate() {
            let name = noise.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            play.write(format!("source/{folder}/{}/{name}", file % 10), format!("{content}{file}"));
        }
    };
    write("some", 8_000, 20, "some content of");
    play.backup(["source", "--series", "some"]);
    let small = ["restore", "latest", "--target", "target", "--memory", "16M"];
    let planned = estimate(&play, &small);
    let summary = play.larder([&small[..], &["--json"]].concat()).ok().messages("summary").pop().expect("a summary");
    assert_eq!((&planned["exact"], &summary["containers_read_again"]), (&true.into(), &0.into()), "{planned}");
    // What this machine remembers after the estimate saves a listing.
    let fetched = |counts: Vec<u64>| (counts[0], counts[4]);
    assert_eq!(fetched(bounds(&planned, 0)), fetched(counted(&summary)), "{planned}");
    write("many", 26_000, 100, "");
    play.backup(["source", "--series", "many"]);
    let large = ["restore", "latest", "--series", "many", "--target", "large"];
    assert_eq!(estimate(&play, &large)["exact"], true);
    let small = [&large[..], &["--memory", "16M"]].concat();
    assert_eq!(estimate(&play, &small)["exact"], false);
    let text = play.larder([&small[..], &["--estimate"]].concat()).ok().text();
    assert!(text.contains("--memory is too little to read everything once"), "{text}");
    let drill = ["drill", "--series", "many", "--sample", "100%", "--memory", "16M"];
    assert_eq!(estimate(&play, &drill)["exact"], false);
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

/// Goal: a command that ran on this machine tells the time of the next one. Before, no time is given.
#[test]
fn a_time_is_that_of_earlier_runs() {
    let play = Play::with_repository();
    changing(&play);
    let second = Second::of(&play);
    let seconds = |args: &[&str]| estimate(&play, args)["seconds"].clone();
    let (restore, check) = (["restore", "latest", "--target", "target"], ["check", "--read-data"]);
    let forget = ["forget", "--keep-last", "6"];
    for args in [&restore[..], &check, &["optimize"], &forget, &[&forget[..], &["--prune"]].concat()] {
        assert_eq!(seconds(args), Value::Null, "{args:?}");
        let text = play.larder([args, &["--estimate"]].concat()).ok().text();
        assert!(text.contains("\ntime: unknown, nothing was measured here yet\n"), "{text}");
        play.larder([args, &["--dry-run"]].concat());
        assert_eq!(seconds(args), Value::Null, "a dry run says nothing: {args:?}");
        play.larder(args).ok();
        let pair = seconds(args);
        let (low, high) = (pair[0].as_f64().expect("a number"), pair[1].as_f64().expect("a number"));
        assert!(0.0 <= low && low <= high && high < 1000.0, "{args:?}: {pair}");
    }
    let copies = |of: &[Value]| of.iter().map(|of| of["seconds"].is_null()).collect::<Vec<_>>();
    let estimated = || copies(&estimates(&second.larder(["copy", "--estimate", "--json"]).ok()));
    assert_eq!(estimated(), [true, true]);
    second.copy(&[]);
    assert_eq!(estimated(), [true, false]);
    // A drill is a restore, too. Without a state nothing is known.
    let other = Play::with_repository();
    other.write("source/file", tree::noise(1, 100_000));
    other.backup(["source"]);
    other.larder(["drill", "--sample", "100%"]).ok();
    assert!(!estimate(&other, &restore)["seconds"].is_null());
    assert!(estimate(&other, &[&restore[..], &["--no-state"]].concat())["seconds"].is_null());
}

/// Passes move what old snapshots need, and an estimate that does not know where to says so.
#[test]
fn an_estimate_is_exact_or_says_that_it_is_not() {
    let play = Play::with_repository();
    changing(&play);
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
        within(&planned, &taken, &format!("round {round}"));
        let stored = planned["stored_bytes"][1].as_u64().expect("a number");
        assert!(taken[5] <= stored, "{taken:?} {planned}");
        read.push(text.lines().next().expect("a line").to_owned());
        play.write(format!("source/small/{round}"), tree::noise(2000 + round, 3_100));
    }
    assert!(read[0].starts_with("found 301 files") && read[0].contains("would read 301 files"), "{read:?}");
    assert!(read[1..].iter().all(|line| line.contains("would read 1 file (")), "{read:?}");
    play.larder(["backup", "--stdin", "--estimate"]).code(2);
}

/// Versions of changing files, of which some are forgotten: a pass has something to move.
fn changing(play: &Play) {
    for version in 0..6 {
        for file in 0..120 {
            if version == 0 || file % 6 == version {
                play.write(format!("source/{file}"), tree::noise(version * 1000 + file, 40_000));
            }
        }
        play.settle();
        play.backup(["source", "--series", "s"]);
    }
}

/// Goal: passes take exactly the requests and bytes of their estimates, whether they index, delete, or move data. Nothing reaches
/// the storage, and this machine remembers nothing of an estimate.
#[test]
fn a_pass_takes_what_its_estimate_says() {
    let play = Play::with_repository();
    changing(&play);
    let everything = || (play.objects(), damage::objects(&play.path("state")));
    let compare = |args: &[&str]| {
        let before = everything();
        let planned = estimate(&play, args);
        assert!(everything() == before, "{args:?} changed something");
        assert_eq!((&planned["exact"], &planned["stored_bytes"]), (&true.into(), &Value::Null), "{planned}");
        let taken = taken(&play, args);
        assert_eq!((bounds(&planned, 0), bounds(&planned, 1)), (taken.clone(), taken.clone()), "{args:?}: {planned}");
        taken
    };
    let indexed = compare(&["optimize", "--min-age", "0"]);
    assert!(indexed[1] > 4, "it indexes: {indexed:?}");
    let nothing = compare(&["optimize", "--min-age", "0"]);
    assert!(nothing[5] < indexed[5], "{nothing:?}");
    compare(&["forget", "latest~1", "latest~3", "--prune", "--min-age", "0"]);
    let moved = compare(&["optimize", "--max-unused", "0", "--min-age", "0"]);
    assert!(moved[3] > 3 && moved[5] > 100_000, "it moves data and deletes containers: {moved:?}");
    compare(&["forget", "--keep-last", "1", "--prune", "--min-age", "0"]);
    let text = play.larder(["optimize", "--estimate"]).ok().text();
    assert!(text.contains("would delete 0 containers") && text.contains("requests: "), "{text}");
    play.larder(["check", "--read-data"]).ok();
}

/// Goal: forgetting sends exactly the requests of its estimate, and one that it would refuse is refused.
#[test]
fn forgetting_takes_what_its_estimate_says() {
    let play = Play::new();
    let bucket = Bucket::serve(play.path("bucket"), |_, _| None);
    bucket.larder(&play, ["init", "--insecure-kdf"]).ok();
    for version in 0..4 {
        play.write("source/file", version.to_string());
        play.settle();
        bucket.larder(&play, ["backup", "source", "--series", "s"]).ok();
    }
    for args in [&["forget", "latest~1"][..], &["forget", "--keep-last", "1", "--series", "s"]] {
        let args = [args, &["--no-cache"]].concat();
        let before = bucket.kinds();
        let ran = bucket.larder(&play, [&args[..], &["--estimate", "--json"]].concat()).ok();
        let planned = estimates(&ran).remove(0);
        let between = bucket.kinds();
        assert_eq!((between[1], between[3]), (before[1], before[3]), "an estimate changes nothing");
        bucket.larder(&play, &args).ok();
        let sent: Vec<u64> = bucket.kinds().iter().zip(between).map(|(after, before)| after - before).collect();
        assert!(sent[1] > 0, "it makes marks: {sent:?}");
        assert_eq!(bounds(&planned, 0)[..4], sent, "{args:?}: {planned}");
    }
    bucket.larder(&play, ["pin", "latest"]).ok();
    bucket.larder(&play, ["forget", "latest", "--estimate"]).code(1).says("is pinned");
}

/// Goal: a check takes exactly what its estimate says. Where chance chooses contents, it stays within the bounds.
#[test]
fn a_check_takes_what_its_estimate_says() {
    let play = Play::with_repository();
    changing(&play);
    play.larder(["optimize", "--min-age", "0"]).ok();
    for args in
        [&["check"][..], &["check", "--read-data"], &["check", "--read-data-subset", "2/3"], &["check", "latest"]]
    {
        let planned = estimate(&play, args);
        assert_eq!(planned["exact"], true, "{planned}");
        let taken = taken(&play, args);
        assert_eq!((bounds(&planned, 0), bounds(&planned, 1)), (taken.clone(), taken), "{args:?}: {planned}");
    }
    for part in ["40%", "5MiB"] {
        let args = ["check", "--read-data-subset", part];
        let planned = estimate(&play, &args);
        within(&planned, &taken(&play, &args), part);
        assert_eq!(planned["exact"], false, "{planned}");
    }
    let container = damage::named(&play.repository(), "data/").remove(0);
    std::fs::remove_file(play.repository().join(container)).expect("removed");
    let ran = play.larder(["check", "--estimate"]).code(13);
    ran.says("the structure is damaged");
}

/// Goal: a drill takes exactly what its estimate says, of a sample and of everything. The estimate leaves nothing behind.
#[test]
fn a_drill_takes_what_its_estimate_says() {
    let play = Play::with_repository();
    changing(&play);
    tree::odd(&play.path("other"));
    play.write("other/large", tree::noise(500, 20_000_000));
    play.backup(["other", "--series", "other"]);
    let drill = |args: &[&'static str]| [&["drill", "--scratch", "scratch"], args].concat();
    let compare = |args: &[&'static str], seed: &[&str]| {
        let before = damage::objects(&play.path("state"));
        let args = drill(args);
        let planned = estimate(&play, &args);
        assert!(damage::objects(&play.path("state")) == before, "this machine remembers nothing of it");
        assert_eq!(std::fs::read_dir(play.path("scratch")).map_or(0, Iterator::count), 0, "nothing is restored");
        let drawn = planned["seed"].as_u64().map(|seed| seed.to_string());
        let drawn = drawn.iter().flat_map(|drawn| ["--seed", drawn]).filter(|_| seed.is_empty());
        let args: Vec<_> = args.iter().copied().chain(seed.iter().copied().chain(drawn)).collect();
        let planned = if seed.is_empty() { planned } else { estimate(&play, &args) };
        assert_eq!(planned["exact"], true, "{planned}");
        let taken = taken(&play, &args);
        assert_eq!((bounds(&planned, 0), bounds(&planned, 1)), (taken.clone(), taken), "{args:?}: {planned}");
        planned
    };
    let all = compare(&["--sample", "100%", "--all"], &[]);
    assert_eq!((&all["seed"], &all["seconds"]), (&Value::Null, &Value::Null), "{all}");
    let some = compare(&["--sample", "10files"], &["--seed", "7"]);
    assert_eq!(some["seed"], 7, "{some}");
    assert!(!some["seconds"].is_null(), "the drill before tells the time: {some}");
    assert!(bounds(&some, 0)[4] < bounds(&all, 0)[4] / 2, "{some} {all}");
    compare(&["--sample", "1%", "--series", "s"], &[]);
    let text = play.larder([&drill(&["--seed", "7"])[..], &["--estimate"]].concat()).ok().text();
    assert!(text.contains("would drill 2 snapshots: ") && text.contains("that of --seed 7;"), "{text}");
    play.larder(["drill", "--estimate", "--no-write"]).code(2);
    let container = damage::named(&play.repository(), "data/").remove(0);
    std::fs::remove_file(play.repository().join(container)).expect("removed");
    let ran = play.larder(drill(&["--sample", "100%", "--all", "--estimate", "--json"])).ok();
    assert_eq!(estimates(&ran)[0]["exact"], false);
}

/// Goal: copies take no more and no less from both repositories than the bounds of their estimate.
#[test]
fn copies_stay_within_their_estimate() {
    let play = Play::with_repository();
    changing(&play);
    let second = Second::of(&play);
    let folder = |of: &str| damage::objects(&play.path(of));
    let compare = |args: &[&str], is_exact: bool| {
        let before = (folder("repository"), folder("second"));
        let planned = estimates(&second.larder([&["copy", "--estimate", "--json"], args].concat()).ok());
        assert!((folder("repository"), folder("second")) == before, "an estimate changes nothing");
        assert_eq!((&planned[0]["repository"], &planned[1]["repository"]), (&"source".into(), &"destination".into()));
        let (_, summary) = second.copy(args);
        within(&planned[0], &counted(&summary["source"]), "source");
        within(&planned[1], &counted(&summary), "destination");
        assert!(planned.iter().all(|planned| planned["exact"] == is_exact), "{args:?}: {planned:?}");
        let stored = planned[1]["stored_bytes"][1].as_u64().expect("a number");
        assert!(counted(&summary)[5] <= stored.max(1 << 16), "{summary} {planned:?}");
    };
    compare(&["latest~5"], false);
    compare(&["--latest", "1"], false);
    compare(&[], false);
    compare(&[], true);
    play.larder(["forget", "latest~2", "latest~3"]).ok();
    compare(&["--delete"], false);
    let text = second.larder(["copy", "--estimate", "--prices", "reads=1,creates=1"]).ok().text();
    assert!(text.contains("would copy 0 snapshots") && text.matches("cost: ").count() == 2, "{text}");
}

#[track_caller]
fn within(planned: &Value, taken: &[u64], what: &str) {
    for ((low, high), taken_one) in bounds(planned, 0).iter().zip(bounds(planned, 1)).zip(taken) {
        assert!(low <= taken_one && *taken_one <= high, "{what}: {taken:?} is outside of {planned}");
    }
}
