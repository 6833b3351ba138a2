//! Metrics of all profiles and repositories, from the journal: a file for the text collector of
//! node_exporter. It always has the whole state, also of profiles that did not run now.

use std::collections::BTreeMap;

use larder_profile::journal::{Line, RUN};

use super::kept::COLD_UNUSED;
use crate::commands::metrics_text::{Kind, MetricsText, labels};
use crate::commands::repository_numbers::{self, Numbers};

/// Numbers of backups: the key of the journal, the name of the metric and its help.
const BACKUP: [(&str, &str, &str); 7] = [
    ("files_new", "backup_files_new", "Files of the last backup that are new."),
    ("files_changed", "backup_files_changed", "Files of the last backup that changed."),
    ("files_unmodified", "backup_files_unmodified", "Files of the last backup that did not change."),
    ("total_bytes_processed", "backup_processed_bytes", "Size of the last snapshot."),
    ("data_added", "backup_added_bytes", "New data of the last backup, before compression."),
    ("data_added_packed", "backup_stored_bytes", "Bytes that the last backup stored."),
    ("error_count", "backup_errors", "Items that the last backup could not read."),
];

/// The same of verbs of repositories, with the verb.
const OF_REPOSITORIES: [(&str, &str, &str, &str); 14] = [
    ("check", "num_errors", "check_errors", "Findings of the last check."),
    ("check", "bytes_read", "check_read_bytes", "Content that the last check read."),
    ("optimize", "deleted_bytes", "optimize_deleted_bytes", "Bytes that the last pass deleted."),
    (
        "optimize",
        "rewritten_bytes",
        "optimize_rewritten_bytes",
        "Bytes that the last pass stored to rewrite snapshots.",
    ),
    ("optimize", "waiting_bytes", "optimize_waiting_bytes", "Unused bytes that wait for their age."),
    ("optimize", "undeleted", "optimize_undeleted_objects", "Objects that the last pass could not delete."),
    ("copy", "copied", "copy_snapshots", "Snapshots that the last run copied."),
    ("copy", "copies_failed", "copy_failed_snapshots", "Snapshots that it could not copy."),
    ("copy", "copies_refused", "copy_refused_snapshots", "Snapshots that it copies only if they are named."),
    ("copy", "copies_forgotten", "copy_forgotten_snapshots", "Copies that it forgot with their originals."),
    ("drill", "drilled_files", "drill_files", "Files that the last drill restored."),
    ("drill", "drilled_bytes", "drill_bytes", "Bytes of these files."),
    ("drill", "mismatches", "drill_mismatches", "Items of the last drill that differ."),
    ("drill", "failures", "drill_failures", "Items that the last drill could not restore."),
];

/// A profile, a repository, a verb, and the repository that it copies from; all but the verb may be
/// empty.
type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The labels of samples about repositories.
fn of_repository((_, repository, _, from): &Key<'_>) -> String {
    with_source(&[("repository", repository)], from)
}

/// Labels, with `from` if snapshots are copied.
fn with_source(all: &[(&str, &str)], from: &str) -> String {
    let from = Some(("from", from)).filter(|(_, from)| !from.is_empty());
    labels(&all.iter().copied().chain(from).collect::<Vec<_>>())
}

/// All metrics. `lines` have the oldest first. Times in the future are those of a wrong clock, and
/// count as now.
pub(super) fn render(lines: &[Line], repositories: &BTreeMap<String, Numbers>, now_ms: u64) -> String {
    let [mut last, mut success, mut failure, mut newest]: [BTreeMap<Key<'_>, &Line>; 4] = Default::default();
    // Runs of a configuration that could not be read are those of no profile.
    for line in lines.iter().filter(|line| line.profile.is_some() || line.command != RUN) {
        let key = (
            line.profile.as_deref().unwrap_or_default(),
            line.repository.as_deref().unwrap_or_default(),
            line.command.as_str(),
            line.from.as_deref().unwrap_or_default(),
        );
        last.insert(key, line);
        if line.is_success() {
            success.insert(key, line);
        } else {
            failure.insert(key, line);
        }
        if line.snapshot_id.is_some() {
            newest.insert(key, line);
        }
    }
    let mut text = MetricsText::new("larder_");
    let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
    text.metric("build_info", "The version of the program, as a label.", Kind::Gauge, &[(version, 1.0)]);
    let of_runs = |lines: &BTreeMap<Key<'_>, &Line>, value: &dyn Fn(&Line) -> f64| -> Vec<(String, f64)> {
        lines.iter().map(|(key, line)| (of_run(key), value(line))).collect()
    };
    let mut gauge = |name: &str, help: &str, samples: &[(String, f64)]| text.metric(name, help, Kind::Gauge, samples);
    let is_success = |line: &Line| if line.is_success() { 1.0 } else { 0.0 };
    gauge("run_success", "1 if the last run ended with exit code 0 or 3.", &of_runs(&last, &is_success));
    gauge("run_exit_code", "Exit code of the last run.", &of_runs(&last, &|line| f64::from(line.exit_code)));
    gauge("run_duration_seconds", "Time that the last run took.", &of_runs(&last, &|line| line.seconds));
    let start = |line: &Line| line.start_ms.min(now_ms) as f64 / 1000.0;
    gauge("run_last_start_timestamp_seconds", "When the last run began.", &of_runs(&last, &start));
    let end = |line: &Line| line.end_ms().min(now_ms) as f64 / 1000.0;
    // 0 before the first success: an alert on its age must not wait for a sample.
    let succeeded: Vec<_> = last
        .keys()
        .map(|key| {
            let time = success.get(key).map_or(0.0, |line| end(line));
            (of_run(key), time)
        })
        .collect();
    gauge("run_last_success_timestamp_seconds", "When the last successful run ended; 0: never.", &succeeded);
    let of_snapshots: Vec<_> = newest
        .iter()
        .map(|((profile, repository, ..), line)| {
            (labels(&[("profile", profile), ("repository", repository)]), start(line))
        })
        .collect();
    gauge("snapshot_newest_timestamp_seconds", "Time of the newest snapshot.", &of_snapshots);
    let number = |line: &Line, key: &str| line.numbers.get(key).and_then(serde_json::Value::as_f64);
    for (key, name, help) in BACKUP {
        let backups = last.iter().filter(|((_, _, command, _), _)| *command == "backup");
        let samples = backups.filter_map(|((profile, repository, ..), line)| {
            Some((labels(&[("profile", profile), ("repository", repository)]), number(line, key)?))
        });
        gauge(name, help, &samples.collect::<Vec<_>>());
    }
    for (verb, name, help) in [
        ("check", "check_last_success_timestamp_seconds", "When the last check without a finding ended; 0: never."),
        ("copy", "copy_last_success_timestamp_seconds", "When the last copies that succeeded ended; 0: never."),
        ("drill", "drill_last_success_timestamp_seconds", "When the last drill without a mismatch ended; 0: never."),
        ("optimize", "optimize_last_success_timestamp_seconds", "When the last pass that succeeded ended; 0: never."),
    ] {
        gauge(name, help, &ends_of(&last, &success, verb, &end));
    }
    for (verb, name, help) in [
        ("check", "check_last_failure_timestamp_seconds", "When the last check that failed ended; 0: none did."),
        ("copy", "copy_last_failure_timestamp_seconds", "When the last copies that failed ended; 0: none did."),
        ("drill", "drill_last_failure_timestamp_seconds", "When the last drill that failed ended; 0: none did."),
        ("optimize", "optimize_last_failure_timestamp_seconds", "When the last pass that failed ended; 0: none did."),
    ] {
        gauge(name, help, &ends_of(&last, &failure, verb, &end));
    }
    for (verb, key, name, help) in OF_REPOSITORIES {
        let of_verb = last.iter().filter(|((_, _, command, _), _)| *command == verb);
        let samples = of_verb.filter_map(|(run, line)| Some((of_repository(run), number(line, key)?)));
        gauge(name, help, &samples.collect::<Vec<_>>());
    }
    let unused = last.iter().filter_map(|(key, line)| Some((of_repository(key), number(line, "unused_bytes")?)));
    gauge("repository_unused_bytes", "Unused bytes that the last check found.", &unused.collect::<Vec<_>>());
    let cold = last.iter().filter_map(|(key, line)| Some((of_repository(key), number(line, COLD_UNUSED)?)));
    let help = "Unused bytes in cold storage that the last pass met.";
    gauge("repository_cold_unused_bytes", help, &cold.collect::<Vec<_>>());
    repository_numbers::render(&mut text, repositories);
    text.end()
}

/// The labels of samples about runs.
fn of_run((profile, repository, command, from): &Key<'_>) -> String {
    with_source(&[("profile", profile), ("repository", repository), ("command", command)], from)
}

/// When the lines of a verb ended, by repository; 0 for those without a line.
fn ends_of(
    last: &BTreeMap<Key<'_>, &Line>,
    lines: &BTreeMap<Key<'_>, &Line>,
    verb: &str,
    end: &dyn Fn(&Line) -> f64,
) -> Vec<(String, f64)> {
    let of_verb = last.keys().filter(|(_, _, command, _)| *command == verb);
    of_verb.map(|key| (of_repository(key), lines.get(key).map_or(0.0, |line| end(line)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start_ms: u64, command: &str, exit_code: i32) -> Line {
        let of_backup = command == "backup";
        Line {
            start_ms,
            seconds: 2.0,
            profile: Some("home".to_owned()).filter(|_| !["check", "copy"].contains(&command)),
            repository: Some("nas".to_owned()),
            command: command.to_owned(),
            from: None,
            exit_code,
            snapshot_id: (of_backup && exit_code == 0).then(|| "1a".to_owned()),
            numbers: serde_json::from_str(match command {
                "backup" => "{\"files_new\":7}",
                "copy" => "{\"copied\":3,\"copies_failed\":0,\"copies_refused\":1}",
                "optimize" => "{\"cold_unused_bytes\":12,\"deleted_bytes\":9}",
                _ => "{\"unused_bytes\":5}",
            })
            .expect("JSON"),
        }
    }

    /// The last success stays when a later run fails.
    #[test]
    fn the_last_run_and_the_last_success_are_told_apart() {
        let lines =
            [line(1000, "backup", 0), line(5000, "check", 0), line(6000, "optimize", 0), line(9000, "backup", 15)];
        let text = render(&lines, &BTreeMap::new(), 99_000);
        for sample in [
            "larder_run_success{profile=\"home\",repository=\"nas\",command=\"backup\"} 0",
            "larder_run_exit_code{profile=\"home\",repository=\"nas\",command=\"backup\"} 15",
            "larder_run_last_start_timestamp_seconds{profile=\"home\",repository=\"nas\",command=\"backup\"} 9",
            "larder_run_last_success_timestamp_seconds{profile=\"home\",repository=\"nas\",command=\"backup\"} 3",
            "larder_snapshot_newest_timestamp_seconds{profile=\"home\",repository=\"nas\"} 1",
            "larder_backup_files_new{profile=\"home\",repository=\"nas\"} 7",
            "larder_check_last_success_timestamp_seconds{repository=\"nas\"} 7",
            "larder_repository_unused_bytes{repository=\"nas\"} 5",
            "larder_optimize_deleted_bytes{repository=\"nas\"} 9",
            "larder_repository_cold_unused_bytes{repository=\"nas\"} 12",
        ] {
            assert!(text.lines().any(|found| found == sample), "{sample} is not in\n{text}");
        }
        // Each metric is there once, with its help and its type.
        let helps: Vec<_> = text.lines().filter(|line| line.starts_with("# HELP ")).collect();
        let types = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(helps.len(), types);
        assert!(!text.contains("backup_errors"), "nothing is said about unknown numbers");
    }

    /// Copies from two repositories into one are two things.
    #[test]
    fn copies_have_their_source_as_a_label() {
        let from = |from: &str, line: Line| Line { from: Some(from.to_owned()), ..line };
        let lines = [from("a", line(1000, "copy", 0)), from("b", line(5000, "copy", 14))];
        let text = render(&lines, &BTreeMap::new(), 99_000);
        for sample in [
            "larder_run_success{profile=\"\",repository=\"nas\",command=\"copy\",from=\"a\"} 1",
            "larder_run_success{profile=\"\",repository=\"nas\",command=\"copy\",from=\"b\"} 0",
            "larder_copy_last_success_timestamp_seconds{repository=\"nas\",from=\"a\"} 3",
            "larder_copy_last_success_timestamp_seconds{repository=\"nas\",from=\"b\"} 0",
            "larder_copy_last_failure_timestamp_seconds{repository=\"nas\",from=\"b\"} 7",
            "larder_copy_snapshots{repository=\"nas\",from=\"a\"} 3",
            "larder_copy_refused_snapshots{repository=\"nas\",from=\"a\"} 1",
        ] {
            assert!(text.lines().any(|found| found == sample), "{sample} is not in\n{text}");
        }
    }

    /// Alerts on the age of the last success also work for what never succeeded, and when a clock
    /// was ahead.
    #[test]
    fn what_never_succeeded_has_samples() {
        let lines = [line(1000, "backup", 15), line(1000, "check", 13), line(90_000, "optimize", 0)];
        let text = render(&lines, &BTreeMap::new(), 50_000);
        for sample in [
            "larder_run_exit_code{profile=\"home\",repository=\"nas\",command=\"backup\"} 15",
            "larder_run_last_start_timestamp_seconds{profile=\"home\",repository=\"nas\",command=\"backup\"} 1",
            "larder_run_last_success_timestamp_seconds{profile=\"home\",repository=\"nas\",command=\"backup\"} 0",
            "larder_check_last_success_timestamp_seconds{repository=\"nas\"} 0",
            "larder_check_last_failure_timestamp_seconds{repository=\"nas\"} 3",
            "larder_optimize_last_failure_timestamp_seconds{repository=\"nas\"} 0",
            "larder_run_last_success_timestamp_seconds{profile=\"home\",repository=\"nas\",command=\"optimize\"} 50",
        ] {
            assert!(text.lines().any(|found| found == sample), "{sample} is not in\n{text}");
        }
    }
}
