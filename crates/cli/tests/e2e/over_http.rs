//! Repositories in a bucket, and everything that servers and networks do to requests.

use std::time::{Duration, Instant};

use larder_testkit::canned::{Answer, Request};

use crate::support::server::{Bucket, answer, refusal};
use crate::support::{Play, tree};

fn no_fault(_: usize, _: &Request) -> Option<Answer> {
    None
}

fn is_container(request: &Request) -> bool {
    request.target.contains("/data/") || request.target.contains("/meta/")
}

fn is_upload(request: &Request) -> bool {
    request.method == "PUT" && request.target.contains("/data/")
}

/// A folder with a repository served without faults, and a source of some size.
fn prepared() -> Play {
    let play = Play::new();
    Bucket::serve(play.path("bucket"), no_fault).larder(&play, ["init", "--insecure-kdf"]).ok();
    tree::odd(&play.path("source"));
    play
}

/// Backs up and restores through the server, which may not be kind.
fn round_trip(play: &Play, bucket: &Bucket) {
    bucket.larder(play, ["backup", "source", "--series", "s"]).ok();
    let root = format!("latest:{}", play.path("source").display());
    bucket.larder(play, ["restore", &root, "--target", "back"]).ok();
    tree::same(&play.path("source"), &play.path("back"));
    bucket.larder(play, ["check", "--read-data"]).ok();
}

#[test]
fn a_bucket_holds_a_repository() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    round_trip(&play, &bucket);
    let keys = crate::support::damage::named(&play.path("bucket"), "");
    assert!(keys.iter().all(|key| key.starts_with("some/prefix/")), "{keys:?}");
}

#[test]
fn metadata_is_kept_on_this_machine_and_can_be_deleted() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    bucket.larder(&play, ["backup", "source"]).ok();
    let cost = |args: &[&str]| {
        let before = bucket.requests();
        let mut line = vec!["ls", "latest"];
        line.extend_from_slice(args);
        let listed = bucket.larder(&play, line).ok().text();
        (listed, bucket.requests() - before)
    };
    let (without, full) = cost(&["--no-cache"]);
    assert!(!play.path("cache").exists() || full > 0);
    let (first, _) = cost(&["--cache-dir", "kept"]);
    let (second, kept) = cost(&["--cache-dir", "kept"]);
    assert_eq!((&first, &second), (&without, &without));
    assert!(kept < full, "{kept} requests with a cache, {full} without");
    std::fs::remove_dir_all(play.path("kept")).expect("it was there");
    assert_eq!(cost(&["--cache-dir", "kept"]).0, without);
}

#[test]
fn throttling_failures_and_lost_connections_are_survived() {
    let play = prepared();
    let fault = |number: usize, request: &Request| match number % 20 {
        1 => Some(refusal(503, "SlowDown")),
        7 => Some(Answer::Close),
        // Of objects that may be so large: a longer configuration is refused, not asked for again.
        13 if request.method == "GET" && is_container(request) => {
            Some(Answer::Announce(200, Vec::new(), 1_000_000, vec![0; 10]))
        }
        19 if number % 40 == 19 => Some(refusal(429, "TooManyRequests")),
        19 => Some(refusal(500, "InternalError")),
        _ => None,
    };
    round_trip(&play, &Bucket::serve(play.path("bucket"), fault));
}

/// A server that takes every PUT, whatever is there: two backups could overwrite each other.
#[test]
fn validate_store_names_the_promise_that_a_server_breaks() {
    let play = Play::new();
    let folder = play.path("bucket");
    let behind = folder.clone();
    let careless = move |_: usize, request: &Request| {
        if request.method == "PUT" {
            let key = request.target.trim_start_matches("/bucket/").to_owned();
            drop(std::fs::remove_file(behind.join(key)));
        }
        None
    };
    let bucket = Bucket::serve(folder, careless);
    let ran = bucket.larder(&play, ["validate-store"]).code(1);
    let text = ran.text();
    assert!(text.contains("BROKEN  create if absent"), "{text}");
    assert!(text.contains("kept    range reads") && text.contains("the store breaks"), "{text}");
    let json = bucket.larder(&play, ["validate-store", "--json"]).code(1);
    assert!(json.messages("summary")[0]["num_errors"].as_u64() > Some(0));
}

/// Goal: `rclone serve s3` is noted, and Amazon is not. Both call themselves AmazonS3; the ids of requests differ. Method: its headers
/// as its source makes them.
#[test]
fn the_server_of_rclone_is_noted() {
    let ids = |of_rclone: bool| {
        let id = "00000000000000A7";
        let long = if of_rclone { id.repeat(4) } else { format!("{}x", id.repeat(3)) };
        let long = data_encoding::BASE64.encode(long.as_bytes());
        vec![("server", "AmazonS3".to_owned()), ("x-amz-request-id", id.to_owned()), ("x-amz-id-2", long)]
    };
    for of_rclone in [true, false] {
        let play = Play::new();
        let (folder, behind) = (play.path("bucket"), play.path("bucket"));
        let bucket = Bucket::serve(folder, move |_, request| match answer(&behind, request) {
            Answer::Whole(status, mut headers, body) => {
                headers.extend(ids(of_rclone));
                Some(Answer::Whole(status, headers, body))
            }
            other => Some(other),
        });
        for args in [&["init", "--insecure-kdf"][..], &["validate-store"]] {
            let ran = bucket.larder(&play, args).ok();
            assert_eq!(ran.stderr.contains("rclone serve s3"), of_rclone, "{args:?}: {}", ran.stderr);
        }
        let ran = bucket.larder(&play, ["validate-store", "--json"]).ok();
        let notes = ran.errors("warning");
        assert_eq!(!notes.is_empty(), of_rclone, "{notes:?}");
        let ran = bucket.larder(&play, ["snapshots"]).ok();
        assert!(!ran.stderr.contains("rclone"), "only where it helps: {}", ran.stderr);
    }
}

#[test]
fn refused_credentials_are_15() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), |_, _| Some(refusal(403, "InvalidAccessKeyId")));
    for args in [&["snapshots"][..], &["backup", "source"], &["init", "--insecure-kdf"]] {
        bucket.larder(&play, args).code(15).says("access denied").says("InvalidAccessKeyId").in_two_lines();
    }
}

#[test]
fn an_empty_or_missing_bucket_is_no_repository() {
    let play = Play::new();
    let bucket = Bucket::serve(play.path("empty"), no_fault);
    bucket.larder(&play, ["snapshots"]).code(10).in_two_lines();
    let missing = Bucket::serve(play.path("empty"), |_, _| Some(refusal(404, "NoSuchBucket")));
    missing.larder(&play, ["init", "--insecure-kdf"]).code(15).in_two_lines();
}

#[test]
fn a_server_that_never_answers_is_15_in_time() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), |_, _| Some(Answer::Silence(Duration::from_secs(600))));
    let started = Instant::now();
    bucket.larder(&play, ["snapshots", "--timeout", "2s"]).code(15).in_two_lines();
    assert!(started.elapsed() < Duration::from_secs(60), "it gives up long before the server does");
}

#[test]
fn a_full_bucket_is_16_and_the_next_run_continues() {
    let play = prepared();
    play.write("source/more", tree::noise(9, 20_000_000));
    let full = |_: usize, request: &Request| {
        let is_late = is_upload(request) && !request.target.ends_with("/0");
        is_late.then(|| refusal(403, "QuotaExceeded"))
    };
    let bucket = Bucket::serve(play.path("bucket"), full);
    bucket.larder(&play, ["backup", "source", "--series", "s"]).code(16).says("make room").in_two_lines();
    // What only reads works.
    bucket.larder(&play, ["snapshots"]).ok();
    bucket.larder(&play, ["check"]).ok();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    let ran = bucket.larder(&play, ["backup", "source", "--series", "s", "--json"]).ok();
    let summary = ran.messages("summary").pop().expect("a summary");
    assert_eq!(summary["adopted_jobs"].as_array().expect("an array").len(), 1, "{summary}");
    round_trip(&play, &bucket);
}

#[test]
fn rights_lost_in_the_middle_are_15_and_nothing_is_half_done() {
    let play = prepared();
    let denied = |_: usize, request: &Request| {
        (request.method == "PUT" && request.target.contains("/versions/")).then(|| refusal(403, "AccessDenied"))
    };
    let bucket = Bucket::serve(play.path("bucket"), denied);
    bucket.larder(&play, ["backup", "source", "--series", "s"]).code(15).says("AccessDenied").in_two_lines();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    assert_eq!(bucket.larder(&play, ["snapshots", "--json"]).ok().json(), serde_json::json!([]));
    round_trip(&play, &bucket);
}

#[test]
fn what_may_only_be_read_is_read_with_a_note() {
    let play = prepared();
    round_trip(&play, &Bucket::serve(play.path("bucket"), no_fault));
    std::fs::remove_dir_all(play.path("back")).expect("it was there");
    let read_only = |_: usize, request: &Request| (request.method == "PUT").then(|| refusal(403, "AccessDenied"));
    let bucket = Bucket::serve(play.path("bucket"), read_only);
    let root = format!("latest:{}", play.path("source").display());
    bucket
        .larder(&play, ["restore", &root, "--target", "back"])
        .ok()
        .says("note: the repository is read-only for this client");
    tree::same(&play.path("source"), &play.path("back"));
    bucket.larder(&play, ["check", "--read-data"]).ok().says("note: the repository is read-only for this client");
    let dump = bucket.larder(&play, ["dump", &root]).ok().says("note: the repository is read-only for this client");
    assert!(dump.stdout.len() > 1024);
}

/// A copy on this machine of an object that the store has lost must not keep that from being seen.
#[test]
fn a_check_looks_at_the_store_and_not_at_the_cache() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    bucket.larder(&play, ["backup", "source", "--series", "s", "--cache-dir", "kept"]).ok();
    bucket.larder(&play, ["ls", "latest", "--cache-dir", "kept"]).ok();
    let repository = play.path("bucket/some/prefix");
    let meta = crate::support::damage::named(&repository, "meta/").remove(0);
    crate::support::damage::flip(&repository, &meta, 20);
    bucket.larder(&play, ["ls", "latest", "--cache-dir", "kept"]).ok();
    bucket.larder(&play, ["check", "--cache-dir", "kept"]).code(13);
}

#[test]
fn a_store_that_may_not_delete_is_14() {
    let play = prepared();
    let append_only = |_: usize, request: &Request| (request.method == "DELETE").then(|| refusal(403, "AccessDenied"));
    let bucket = Bucket::serve(play.path("bucket"), append_only);
    round_trip(&play, &bucket);
    let file = play.write("new", "second");
    let file = file.to_str().expect("text");
    bucket.larder(&play, ["key", "add", "--insecure-kdf", "--new-password-file", file]).ok();
    let keys = bucket.larder(&play, ["key", "list", "--json"]).ok().json();
    let other = keys.as_array().expect("an array").iter().find(|key| key["current"] == false).expect("one");
    let id = other["id"].as_str().expect("text");
    bucket.larder(&play, ["key", "remove", id]).code(14).in_two_lines();
}

/// A store that takes every create, as old servers do with a condition that they do not know. A fenced job would replace `aborted`.
#[test]
fn a_bucket_that_ignores_conditions_is_refused() {
    let ignoring = |folder: std::path::PathBuf| {
        move |_: usize, request: &Request| {
            if request.method == "PUT" {
                let key = request.target.trim_start_matches("/bucket/").split('?').next().unwrap_or_default();
                drop(std::fs::remove_file(folder.join(key)));
            }
            None
        }
    };
    let play = Play::new();
    let bucket = Bucket::serve(play.path("bucket"), ignoring(play.path("bucket")));
    bucket.larder(&play, ["init", "--insecure-kdf"]).code(15).says("would lose data").in_two_lines();
    assert_eq!(crate::support::damage::named(&play.path("bucket"), ""), Vec::<String>::new());
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), ignoring(play.path("bucket")));
    for verb in [&["backup", "source"][..], &["optimize"], &["repair", "index"]] {
        bucket.larder(&play, verb).code(15).says("ignores conditional creation");
    }
    let stored = crate::support::damage::named(&play.path("bucket"), "some/prefix/");
    let is_allowed =
        |name: &String| ["config", "keys/", "jobs/"].iter().any(|kind| name["some/prefix/".len()..].starts_with(kind));
    assert!(stored.iter().all(is_allowed), "{stored:?}");
}

/// The mark comes after the listings and before the look that follows the lease. A pass that deletes a snapshot between two listings does
/// the same to a reader.
#[test]
fn a_latest_snapshot_that_is_forgotten_meanwhile_gives_way_to_the_next() {
    let play = prepared();
    let bucket = Bucket::serve(play.path("bucket"), no_fault);
    for content in ["older", "newer"] {
        play.write("file", content);
        bucket.larder(&play, ["backup", "file", "--series", "s", "--force"]).ok();
    }
    bucket.larder(&play, ["forget", "latest"]).ok();
    let marks = play.path("bucket/some/prefix/forgotten");
    std::fs::rename(&marks, play.path("marks")).expect("there is a mark");

    let (from, to) = (play.path("marks"), marks.clone());
    let forgets = move |_: usize, request: &Request| {
        if request.method == "PUT" && request.target.contains("/jobs/") && !to.exists() {
            assert!(std::process::Command::new("cp").arg("-r").args([&from, &to]).status().expect("cp runs").success());
        }
        None
    };
    let bucket = Bucket::serve(play.path("bucket"), forgets);
    let path = format!("latest:{}", play.path("file").display());
    for verb in [&["restore", path.as_str(), "--target", "back"][..], &["dump", &path, "--target", "dumped"]] {
        let ran = bucket.larder(&play, verb.iter().copied().chain(["--no-cache"])).ok();
        assert!(ran.stderr.contains("was forgotten meanwhile"), "{}", ran.stderr);
        std::fs::remove_dir_all(&marks).expect("it was forgotten");
    }
    for read in ["back/file", "dumped"] {
        assert_eq!(std::fs::read_to_string(play.path(read)).expect("it was read"), "older");
    }
}
