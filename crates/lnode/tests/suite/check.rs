//! Damage of every kind to every kind of object is found, and traced to the version and the files that need it; what is
//! whole still restores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use larder_job::JobContext;
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, CheckReport, check};

struct Repo {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Repo {
    /// Two series: `a` with text files, `b` with one other file, so that damage to one spares the other.
    fn new() -> Self {
        let repo = Self { dir: tempfile::tempdir().unwrap(), runtime: runtime() };
        let context = context(&repo.runtime, init(&repo.runtime, local(&repo.path())));
        for series in ["a", "b"] {
            let source = repo.source(series);
            fs::create_dir_all(&source).unwrap();
            for n in 0..200 {
                let text = format!("{series} {n} ").repeat(500 + n);
                fs::write(source.join(format!("file-{n:03}")), text).unwrap();
            }
            let options = larder_lnode::BackupOptions { ..options(series) };
            larder_lnode::backup(&context, walk(&source), &options).unwrap();
        }
        repo
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn source(&self, series: &str) -> PathBuf {
        self.dir.path().join("source").join(series)
    }

    fn context(&self) -> JobContext {
        let store = local(&self.path());
        let opened = larder_store::Repository::open(store, PASSWORD, std::sync::Arc::new(larder_testkit::entropy()));
        context(&self.runtime, self.runtime.block_on(opened).unwrap())
    }

    fn check(&self, read_data: ReadData) -> CheckReport {
        check(&self.context(), &CheckOptions { read_data, ..CheckOptions::default() }).unwrap()
    }

    /// The one object below a folder that belongs to the series' version.
    fn object(&self, folder: &str, series: &str) -> PathBuf {
        let versions = versions(&self.context());
        let version = versions.iter().find(|version| version.summary.series == series).unwrap();
        let mut found = Vec::new();
        visit(&self.path().join(folder), &mut |path| {
            if path.to_str().unwrap().contains(&version.id().to_string()) {
                found.push(path.to_owned());
            }
        });
        found.into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    }
}

fn visit(dir: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { visit(&path, each) } else { each(&path) }
    }
}

fn flip(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 0x10;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Only series `a` is named, and `b` still restores.
fn only_a_suffers(repo: &Repo, report: &CheckReport) {
    let named: Vec<_> =
        report.damages.iter().flat_map(|damage| &damage.affected).map(|version| &version.series).collect();
    assert!(!named.is_empty() && named.iter().all(|series| *series == "a"), "{named:?}");
    let context = repo.context();
    let b = versions(&context).into_iter().find(|version| version.summary.series == "b").unwrap();
    let target = repo.dir.path().join("restored-b");
    let report = restore(&context, &b, &repo.source("b"), &target).unwrap();
    assert_eq!((report.errors, report.files_restored), (0, 200));
    assert_eq!(differences(&repo.source("b"), &target), "");
}

#[test]
fn a_whole_repository_is_found_whole() {
    let repo = Repo::new();
    let report = repo.check(ReadData::All);
    assert_eq!(report.damages, []);
    assert_eq!((report.versions, report.containers_read, report.unused_containers), (2, 4, 0));
}

#[test]
fn a_flipped_bit_in_a_frame_is_found_by_reading_and_costs_only_the_files_in_that_frame() {
    let repo = Repo::new();
    flip(&repo.object("data", "a"), |_| 20);
    assert_eq!(repo.check(ReadData::None).damages, [], "structure alone does not read frames");
    let report = repo.check(ReadData::All);
    assert_eq!(report.damages.len(), 1);
    let damage = &report.damages[0];
    assert!(damage.object.starts_with("data/"), "{damage:?}");
    let hurt = &damage.affected[0];
    assert!(hurt.files_count > 3 && hurt.files_count < 200, "{} files", hurt.files_count);
    assert!(String::from_utf8_lossy(&hurt.files[0]).ends_with("source/a/file-000"));
    only_a_suffers(&repo, &report);
    // The restore says the same as the check, and gives the rest.
    let context = repo.context();
    let a = versions(&context).into_iter().find(|version| version.summary.series == "a").unwrap();
    let restored = restore(&context, &a, &repo.source("a"), &repo.dir.path().join("restored-a")).unwrap();
    assert_eq!((restored.errors, restored.files_restored), (hurt.files_count, 200 - hurt.files_count));
}

#[test]
fn a_truncated_a_missing_and_a_swapped_container_are_found_by_structure_alone() {
    for damage in ["truncated", "missing", "swapped", "flipped tables"] {
        let repo = Repo::new();
        let object = repo.object("data", "a");
        match damage {
            "truncated" => {
                let bytes = fs::read(&object).unwrap();
                fs::write(&object, &bytes[..bytes.len() - 1]).unwrap();
            }
            "missing" => fs::remove_file(&object).unwrap(),
            "swapped" => drop(fs::copy(repo.object("data", "b"), &object).unwrap()),
            _ => flip(&object, |len| len - 100),
        }
        let report = repo.check(ReadData::None);
        assert_eq!(report.damages.len(), 1, "{damage}");
        assert_eq!(report.damages[0].affected[0].files_count, 200, "{damage}");
        only_a_suffers(&repo, &report);
    }
}

#[test]
fn all_names_of_a_damaged_file_are_named() {
    let repo = Repo::new();
    let source = repo.source("c");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("first"), "some text ".repeat(1000)).unwrap();
    for name in ["second", "third"] {
        fs::hard_link(source.join("first"), source.join(name)).unwrap();
    }
    fs::write(source.join("whole"), "").unwrap();
    larder_lnode::backup(&repo.context(), walk(&source), &options("c")).unwrap();
    fs::remove_file(repo.object("data", "c")).unwrap();
    let report = repo.check(ReadData::None);
    let hurt = &report.damages[0].affected[0];
    let name = |path: &Vec<u8>| String::from_utf8_lossy(path).rsplit('/').next().unwrap().to_owned();
    assert_eq!(hurt.files.iter().map(name).collect::<Vec<_>>(), ["first", "second", "third"]);
    assert_eq!(hurt.files_count, 3);
}

#[test]
fn damaged_metadata_and_manifests_are_found_and_named() {
    for (folder, damage) in
        [("meta", "flipped"), ("meta", "missing"), ("versions", "flipped"), ("versions", "truncated")]
    {
        let repo = Repo::new();
        let object = repo.object(folder, "a");
        match damage {
            "flipped" => flip(&object, |len| len / 2),
            "truncated" => {
                let bytes = fs::read(&object).unwrap();
                fs::write(&object, &bytes[..bytes.len() / 2]).unwrap();
            }
            _ => fs::remove_file(&object).unwrap(),
        }
        let report = repo.check(ReadData::None);
        assert!(!report.damages.is_empty(), "{folder} {damage}");
        let named = report.damages.iter().any(|found| found.object.starts_with(folder) && !found.affected.is_empty());
        assert!(named, "{folder} {damage}: {:?}", report.damages);
        let context = repo.context();
        let b = versions(&context).into_iter().find(|version| version.summary.series == "b").unwrap();
        assert_eq!(restore(&context, &b, &repo.source("b"), &repo.dir.path().join("b")).unwrap().errors, 0);
    }
}

#[test]
fn a_part_of_the_containers_can_be_read() {
    let repo = Repo::new();
    let read = |read_data| repo.check(read_data).containers_read;
    assert_eq!(read(ReadData::Part { n: 1, of: 4 }) + read(ReadData::Part { n: 2, of: 4 }), 2);
    assert_eq!(read(ReadData::Share(0.5)), 2);
    assert_eq!(read(ReadData::Bytes(1)), 1);
}
