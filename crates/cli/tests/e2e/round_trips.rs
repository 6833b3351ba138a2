//! The promise: round trips of every verb without any cache are few, and grow slowly with the number of snapshots.
//!
//! What a verb sends together is one round. Small objects are read 64 at a time (`StoreOptions::small_concurrency`), so that looking at each
//! of 200 snapshots takes four rounds. Bounds are a little above what was counted; `docs/guide/storage.md` has the counts.

use crate::support::Play;
use crate::support::history::History;
use crate::support::rounds::InRounds;

/// Numbers of snapshots.
const SNAPSHOTS: [u64; 3] = [10, 40, 200];

/// A verb with its arguments, and the most rounds that it may take with each of these numbers of snapshots. They run in this order.
type Bounded = (&'static [&'static str], [usize; 3]);

const VERBS: &[Bounded] = &[
    (&["snapshots"], [10, 10, 18]),
    (&["snapshots", "--no-free"], [6, 6, 10]),
    (&["ls", "latest"], [6, 6, 6]),
    (&["series", "list"], [6, 6, 9]),
    (&["diff", "latest~1", "latest"], [6, 6, 6]),
    (&["find", "edition"], [10, 13, 36]),
    (&["stats"], [13, 13, 24]),
    (&["check"], [50, 80, 240]),
    (&["restore", "latest", "--target", "all"], [11, 11, 11]),
    (&["restore", "latest:SOURCE/folder/edition", "--target", "one"], [11, 11, 11]),
    (&["forget", "--keep-last", "5", "-n"], [14, 14, 20]),
    (&["forget", "latest"], [10, 10, 14]),
    (&["backup", "SOURCE", "--series", "main"], [27, 17, 20]),
    // It indexes the backup and the forgotten snapshot, and deletes what is free.
    (&["optimize"], [70, 120, 120]),
    // Nothing is left to do.
    (&["optimize"], [28, 34, 34]),
];

#[test]
fn round_trips_of_every_verb_are_bounded() {
    let mut history = History::new();
    let mut exceeded = Vec::new();
    for (size, snapshots) in SNAPSHOTS.into_iter().enumerate() {
        history.grow_to(snapshots);
        let play = Play::new();
        history.write_maintained(&play.path("bucket/some/prefix"));
        let server = InRounds::serve(play.path("bucket"));
        let source = history.source().display().to_string();
        for (verb, most) in VERBS {
            let verb: Vec<String> = verb.iter().map(|arg| arg.replace("SOURCE", &source)).collect();
            let args: Vec<&str> = verb.iter().map(String::as_str).chain(["--no-cache"]).collect();
            let (ran, trips) = server.larder(&play, &args);
            let (requests, rounds, shown) =
                (trips.requests(), trips.rounds.len(), verb.join(" ").replace(&source, "SOURCE"));
            println!("{snapshots:4} snapshots: {requests:5} requests in {rounds:4} rounds: {shown}");
            if std::env::var("TRACE").is_ok_and(|wanted| shown.starts_with(&wanted)) {
                println!("{}", trips.shown());
            }
            ran.ok();
            if rounds > most[size] {
                exceeded.push(format!(
                    "{shown}, {snapshots} snapshots: {rounds} rounds, and not {}\n{}",
                    most[size],
                    trips.shown()
                ));
            }
        }
    }
    assert!(exceeded.is_empty(), "{}", exceeded.join("\n"));
}

/// Verbs that read one snapshot, and the most requests until they read its data or metadata: `config`, the list of keys and the key; the
/// lists of snapshots and of marks; the manifest. Those that take a lease then create it, and look at the mark and at the generations of the
/// manifest.
const STARTS: [(&[&str], usize); 6] = [
    (&["ls", "latest"], 6),
    (&["ls", "latest", "--series", "main"], 6),
    (&["restore", "latest", "--target", "all"], 9),
    (&["restore", "latest", "--series", "main", "--target", "main"], 9),
    (&["dump", "latest:SOURCE/folder/never"], 9),
    (&["diff", "latest~1", "latest"], 7),
];

#[test]
fn requests_to_start_do_not_depend_on_the_number_of_snapshots() {
    let mut history = History::new();
    let mut counts = Vec::new();
    for snapshots in [3, 63] {
        history.grow_to(snapshots);
        let play = Play::new();
        // A pass may make a later generation of a manifest, and then the first is read as well.
        history.write(&play.path("bucket/some/prefix"));
        let server = InRounds::serve(play.path("bucket"));
        let source = history.source().display().to_string();
        for (verb, most) in STARTS {
            let verb: Vec<String> = verb.iter().map(|arg| arg.replace("SOURCE", &source)).collect();
            let args: Vec<&str> = verb.iter().map(String::as_str).chain(["--no-cache"]).collect();
            let (ran, trips) = server.larder(&play, &args);
            ran.ok();
            let requests = trips.until(|request| request.starts_with("GET meta/") || request.starts_with("GET data/"));
            println!("{snapshots:3} snapshots: {requests} requests to start: {}", args.join(" "));
            assert!(requests <= most, "{args:?} took {requests} requests to start:\n{}", trips.shown());
            counts.push((args[0].to_owned(), requests));
        }
        // The second one finds a snapshot of this machine. The four newest are read, and the base once more after the lease: its register,
        // and its manifest.
        let backup = ["backup", &source, "--series", "main", "--no-cache"];
        server.larder(&play, &backup).0.ok();
        let (ran, trips) = server.larder(&play, &backup);
        ran.ok();
        let manifests = trips.rounds.iter().flatten().filter(|request| request.starts_with("GET versions/")).count();
        assert!(manifests <= 6, "{manifests} manifests were read:\n{}", trips.shown());
        counts.push(("backup".to_owned(), manifests));
    }
    let (few, many) = counts.split_at(STARTS.len() + 1);
    assert_eq!(few, many);
}
