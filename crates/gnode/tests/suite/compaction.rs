//! Sparse container compaction over real versions: they stay what they are, and the newest stays easy to read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::pipelines::*;
use larder_format::ids::ContainerKind;
use larder_format::lease::Pin;
use larder_format::manifest::encode_aborted;
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_gnode::defragment::{Budget, DefragmentOptions, Defragmented, compact, plan, plans};
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_rewrite::CheckOptions;
use larder_rewrite::check::ReadData;
use larder_store::catalog::Version;

const BLOCK: usize = 64 << 10;

struct Setup {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("repository")).unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        Self { runtime: runtime(), dir }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn context(&self) -> JobContext {
        context(&self.runtime, init(&self.runtime, local(&self.dir.path().join("repository"))))
    }

    /// A version in which another quarter of all blocks is new, so that what stays from early versions gets thin.
    fn write(&self, version: usize) {
        for file in 0..8usize {
            let path = self.source().join(format!("file{file}"));
            let mut bytes = fs::read(&path).unwrap_or_else(|_| pseudo_random(4 << 20, file as u64));
            for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
                let seed = (version * 100_000 + file * 1000 + number) as u64;
                if version > 0 && pseudo_random(1, seed)[0].is_multiple_of(4) {
                    block.copy_from_slice(&pseudo_random(BLOCK, seed));
                }
            }
            fs::write(path, bytes).unwrap();
        }
    }

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        read_all(&self.source())
    }

    fn restored(&self, context: &JobContext, version: &Version) -> BTreeMap<String, Vec<u8>> {
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        restore(context, version, &self.source(), target.path()).unwrap();
        read_all(target.path())
    }
}

fn read_all(folder: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

fn options() -> DefragmentOptions {
    DefragmentOptions { budget: Budget::of_version(40), ..DefragmentOptions::default() }
}

fn containers_of(context: &JobContext, version: &Version) -> usize {
    let reader = VersionReader::open(context, version).unwrap();
    reader.manifest().containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data).count()
}

/// What the data containers of a version hold, for each byte that it uses.
fn held_by_used(context: &JobContext, version: &Version) -> f64 {
    let reader = VersionReader::open(context, version).unwrap();
    let data = || reader.manifest().containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
    data().map(|usage| usage.bytes_held).sum::<u64>() as f64 / data().map(|usage| usage.bytes_used).sum::<u64>() as f64
}

fn assert_whole(context: &JobContext) {
    let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
    let report = larder_rewrite::check(context, &options).unwrap();
    assert!(report.damages.is_empty(), "{report:?}");
}

#[test]
fn the_newest_version_stays_in_few_containers_and_all_stay_what_they_are() {
    let setup = Setup::new();
    let context = setup.context();
    let mut contents = Vec::new();
    let mut compacted = 0;
    for version in 0..14 {
        setup.write(version);
        contents.push(setup.content());
        backup(&context, &setup.source()).unwrap();
        for plan in plans(&context, &options()).unwrap().plans {
            let before = held_by_used(&context, &plan.version);
            match compact(&context, &plan, &options()).unwrap() {
                Defragmented::Done { generation, bytes, chunks, .. } => {
                    assert_eq!((generation, bytes), (1, plan.bytes));
                    assert!(chunks > 0);
                }
                Defragmented::Overtaken => panic!("nobody else is here"),
            }
            let newest = versions(&context).pop().unwrap();
            assert!(held_by_used(&context, &newest) < before);
            compacted += 1;
        }
    }
    assert!(compacted > 2, "{compacted}");
    let all = versions(&context);
    assert_eq!(all.len(), contents.len());
    for (version, content) in all.iter().zip(&contents) {
        assert!(setup.restored(&context, version) == *content, "version {}", version.id().short());
    }
    assert_whole(&context);
    // 32 MiB in containers of 8 MiB: without compaction there would be one for every version that something is left of.
    let newest = all.last().unwrap();
    assert!(containers_of(&context, newest) < 12, "{}", containers_of(&context, newest));
    let manifest = VersionReader::open(&context, newest).unwrap().manifest().clone();
    assert!(plan(newest, &manifest, &options()).is_none());
    assert!(setup.runtime.block_on(context.repository.unfinished_jobs()).unwrap().is_empty(), "leases are closed");
}

#[test]
fn what_somebody_else_did_first_holds() {
    let setup = Setup::new();
    let context = setup.context();
    for version in 0..8 {
        setup.write(version);
        backup(&context, &setup.source()).unwrap();
    }
    let plan = plans(&context, &options()).unwrap().plans.pop().expect("something is sparse by now");

    // Somebody was faster.
    assert!(matches!(compact(&context, &plan, &options()).unwrap(), Defragmented::Done { generation: 1, .. }));
    assert_eq!(compact(&context, &plan, &options()).unwrap(), Defragmented::Overtaken);

    // A pass has fenced an earlier task off: that number is gone, and the next is free.
    for version in [8, 9] {
        setup.write(version);
        backup(&context, &setup.source()).unwrap();
    }
    let newest = versions(&context).pop().unwrap();
    let (keys, domain) = (context.repository.keys(), newest.summary.domain);
    let fence = encode_aborted(keys, domain, newest.series, newest.id(), 1, [5; 32]).unwrap();
    let name = names::version(newest.series, newest.id(), 1);
    setup.runtime.block_on(context.repository.store().create(&name, fence.into())).unwrap();
    let newest = versions(&context).pop().unwrap();
    assert_eq!(newest.generation, 0, "a generation that will never be is skipped");
    let most = DefragmentOptions { sparse_percent: 90, budget: Budget::of_version(100), ..options() };
    let plan = plans(&context, &most).unwrap().plans.pop().expect("nearly everything counts as sparse");
    assert!(matches!(compact(&context, &plan, &most).unwrap(), Defragmented::Done { generation: 2, .. }));
    let newest = versions(&context).pop().unwrap();
    assert_eq!(newest.generation, 2);
    assert!(setup.restored(&context, &newest) == setup.content());

    // It was forgotten.
    let pin = Pin { series: newest.series, job: newest.id() };
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: String::new() };
    setup.runtime.block_on(context.repository.forget(pin, &mark)).unwrap();
    assert_eq!(compact(&context, &plan, &options()).unwrap(), Defragmented::Overtaken);
    assert_whole(&context);
}

#[test]
fn nothing_is_planned_beyond_the_budget_or_for_a_single_container() {
    let setup = Setup::new();
    let context = setup.context();
    for version in 0..8 {
        setup.write(version);
        backup(&context, &setup.source()).unwrap();
    }
    let newest = versions(&context).pop().unwrap();
    let manifest = VersionReader::open(&context, &newest).unwrap().manifest().clone();
    for budget_percent in [0, 1, 5, 20, 100] {
        let options =
            DefragmentOptions { budget: Budget::of_version(budget_percent), sparse_percent: 100, ..options() };
        let bytes = plan(&newest, &manifest, &options).map_or(0, |plan| plan.bytes);
        assert!(bytes * 100 <= manifest.data.bytes() * u64::from(budget_percent), "{budget_percent}: {bytes}");
    }
    let (held_percent, cheap_percent) = (u8::MAX, u8::MAX);
    let none = DefragmentOptions { held_percent, cheap_percent, sparse_percent: 0, small_bytes: 0, ..options() };
    assert!(plan(&newest, &manifest, &none).is_none());
}
