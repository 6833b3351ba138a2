//! Series that do not know of each other and have a part in common end with each chunk stored about once, and the newest version of
//! each stays fast to read (F3 of the audit: nothing was shared below 30 % in common).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};

use crate::support::*;
use larder_format::ids::ContainerKind;
use larder_format::index_tables::ChunkKey;
use larder_gnode::maintenance::{self, MaintenanceOptions, MaintenanceReport, Task};
use larder_reader::VersionReader;
use larder_testkit::data;

const PAGE: usize = 4096;
const PAGES: usize = 3 * 1024;

/// Where the common part is.
#[derive(Debug, Clone, Copy)]
enum Common {
    /// At the beginning of every MiB.
    Blocks,
    /// Anywhere in a database, page by page.
    Pages,
    /// Runs of odd length between data of its own, at other places in each series.
    Insertions,
}

/// The data of a series of which this percentage is common to all series.
fn content(common: Common, percent: usize, series: u64) -> Vec<u8> {
    let (shared, own) = (data::random(1, PAGES * PAGE), data::random(100 + series, PAGES * PAGE));
    let page = |of: &[u8], number: usize| of[number * PAGE..(number + 1) * PAGE].to_vec();
    let mut rng = data::Rng::new(7);
    match common {
        Common::Blocks => {
            let is_common = |number: usize| (number % 256) * 100 < percent * 256;
            (0..PAGES).flat_map(|number| page(if is_common(number) { &shared } else { &own }, number)).collect()
        }
        Common::Pages => {
            let mut is_common = |_| rng.below(100) < percent as u64;
            let pages = (0..PAGES).flat_map(|number| page(if is_common(number) { &shared } else { &own }, number));
            // A database is cut at pages.
            crate::pipelines::database_header().into_iter().chain(pages.skip(101)).collect()
        }
        Common::Insertions => {
            let (mut bytes, run) = (Vec::new(), 99_991);
            let mut places = data::Rng::new(series);
            for (number, part) in shared[..PAGES * PAGE / 100 * percent].chunks(run).enumerate() {
                let from = number * (run * (100 - percent) / percent);
                let to = (from + run * (100 - percent) / percent).min(own.len());
                let cut = from + places.below((to.saturating_sub(from)).max(1) as u64) as usize;
                bytes.extend_from_slice(&own[from..cut]);
                bytes.extend_from_slice(part);
                bytes.extend_from_slice(&own[cut..to]);
            }
            bytes
        }
    }
}

fn round(scene: &Scene, tasks: &[Task], max_rewrite: Option<u64>) -> MaintenanceReport {
    let tasks = tasks.iter().copied().collect();
    let options = MaintenanceOptions { tasks, max_rewrite, pass: pass_options(), ..MaintenanceOptions::default() };
    maintenance::run(&scene.context(), &options, &|id, why| panic!("{id} was not rewritten: {why}")).unwrap()
}

impl Scene {
    fn stores(&self, series: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.source(series)).unwrap();
        std::fs::write(self.source(series).join("file"), bytes).unwrap();
        backup_alone(&self.context(), &self.source(series), series);
    }

    /// Bytes of chunks in data containers, and how many there are if each chunk counts once.
    fn stored_and_exact(&self) -> (u64, u64) {
        let repository = self.repository(self.memory.store());
        let (mut stored, mut chunks) = (0, BTreeMap::new());
        for container in self.runtime.block_on(repository.list_containers()).unwrap() {
            if container.id.kind == ContainerKind::Data {
                let table = self.runtime.block_on(repository.read_container_index(container.id)).unwrap();
                stored += u64::from(table.payload_len);
                let each = table.chunk_refs().map(|chunk| (ChunkKey::of(&chunk.fingerprint), u64::from(chunk.size)));
                chunks.extend(each);
            }
        }
        (stored, chunks.into_values().sum())
    }

    /// What the containers of each newest version hold by what it uses of them.
    fn amplifications(&self) -> HashMap<String, f64> {
        let context = self.context();
        let of = |version: larder_store::catalog::Version| {
            let manifest = VersionReader::open(&context, &version).unwrap().manifest().clone();
            let data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
            let (used, held) =
                data.fold((0, 0), |(used, held), usage| (used + usage.bytes_used, held + usage.bytes_held));
            (version.summary.series.clone(), held as f64 / used as f64)
        };
        self.versions().into_iter().map(of).collect()
    }
}

/// Two series with this in common, the first of which was indexed before the second came.
fn two_series(common: Common, percent: usize) -> Scene {
    let scene = Scene::new();
    scene.stores("a", &content(common, percent, 1));
    round(&scene, &[], None);
    scene.stores("b", &content(common, percent, 2));
    scene
}

/// Runs passes until they are exact to this part in a thousand; three at most.
fn becomes_exact(common: Common, percent: usize, tasks: &[Task], permille: u64) {
    let scene = two_series(common, percent);
    let contents = scene.contents();
    let mut copied = Vec::new();
    for pass in 1..=3 {
        let report = round(&scene, tasks, None);
        copied.push(report.defragmented.bytes + report.pass.reclaimed.copied_bytes.0);
        let (stored, exact) = scene.stored_and_exact();
        let (left, is_exact) = (report.defragmented.left_duplicate_bytes, stored * 1000 <= exact * (1000 + permille));
        assert!(left.abs_diff(stored - exact) < exact / 500, "{common:?} {percent} %: says {left} of {stored} {exact}");
        let both = (PAGES * PAGE * 2) as u64;
        assert!(copied.iter().sum::<u64>() <= 3 * both + both / 20, "{common:?} {percent} %: copied {copied:?}");
        let amplifications = scene.amplifications();
        assert!(amplifications.values().all(|held| *held <= 1.2), "{common:?} {percent} %: {amplifications:?}");
        if is_exact && pass > 1 {
            break;
        }
        assert!(pass < 3, "{common:?} {percent} %: {stored} stored, {exact} exact, copied {copied:?}");
    }
    // And it ends.
    assert_eq!(round(&scene, tasks, None).defragmented.bytes, 0, "{common:?} {percent} %");
    assert!(scene.contents() == contents);
    let (context, series) = (scene.context(), scene.versions());
    // Each lives without the other.
    scene.forget(series[0].id());
    round(&scene, &[], None);
    assert!(contents_of(&context, &scene.versions()[0]) == contents[&series[1].id()]);
}

#[test]
fn blocks_in_common_are_stored_about_once() {
    for percent in [5, 25] {
        becomes_exact(Common::Blocks, percent, &[], 10);
    }
}

#[test]
fn scattered_pages_in_common_are_stored_about_once() {
    for percent in [5, 12, 50] {
        becomes_exact(Common::Pages, percent, &[], 10);
    }
}

#[test]
fn what_is_inserted_in_both_is_stored_about_once() {
    for percent in [12, 18] {
        becomes_exact(Common::Insertions, percent, &[], 10);
    }
}

#[test]
fn the_exact_task_leaves_next_to_nothing() {
    becomes_exact(Common::Pages, 18, &[Task::Exact], 1);
    becomes_exact(Common::Insertions, 25, &[Task::Exact, Task::Defragment], 1);
    // Too little for others.
    let scene = two_series(Common::Pages, 1);
    let little = round(&scene, &[], None).defragmented;
    assert_eq!((little.bytes, little.left_duplicate_bytes > 0), (0, true));
    assert!(round(&scene, &[Task::Exact], None).defragmented.bytes > 0);
    let (stored, exact) = scene.stored_and_exact();
    assert!(stored * 1000 <= exact * 1001, "{stored} {exact}");
}

/// A limit on what is copied holds, what it leaves is reported, and some more passes finish the work.
#[test]
fn a_limit_leaves_duplicates_and_says_so() {
    let scene = two_series(Common::Pages, 12);
    let contents = scene.contents();
    let mut before = u64::MAX;
    for pass in 1.. {
        let most = 9 << 20;
        let report = round(&scene, &[], Some(most)).defragmented;
        assert!(report.bytes <= most, "{report:?}");
        let (stored, exact) = scene.stored_and_exact();
        assert!(report.left_duplicate_bytes + exact / 500 >= stored - exact, "{report:?}: {stored} {exact}");
        assert!(stored - exact <= before, "{report:?}: {stored} {exact}");
        before = stored - exact;
        if report.bytes == 0 {
            assert!(stored * 1000 <= exact * 1010, "{stored} {exact}");
            break;
        }
        assert!(pass < 5, "{report:?}: {stored} {exact}");
    }
    assert!(scene.contents() == contents);
}

/// Disks of one template, all of which are stored before the first pass. Each has pages of its own at places of its own.
///
/// Chunks in common lie in containers of their own. With a share `p` of its own chunks, a disk needs `1 - p` of these. So its newest
/// version holds about `1 + p` of what it uses, which is the price of storing each chunk once.
#[test]
fn many_disks_of_one_template_are_stored_about_once() {
    const DISKS: u64 = 8;
    for one_in in [12, 40] {
        let scene = Scene::new();
        for disk in 0..DISKS {
            let (mut bytes, mut rng) = (data::random(1, PAGES * PAGE), data::Rng::new(disk));
            for page in (0..PAGES).filter(|_| rng.one_in(one_in)).collect::<Vec<_>>() {
                bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(&data::random((disk << 32) + page as u64, PAGE));
            }
            scene.stores(&format!("disk{disk}"), &bytes);
        }
        let contents = scene.contents();
        let one = (PAGES * PAGE) as u64;
        let mut copied = 0;
        for pass in 1.. {
            let report = round(&scene, &[], None);
            copied += report.defragmented.bytes + report.pass.reclaimed.copied_bytes.0;
            let (stored, exact) = scene.stored_and_exact();
            if stored * 1000 <= exact * 1010 {
                break;
            }
            assert!(pass < 3, "{stored} stored, {exact} exact, {copied} copied");
        }
        assert!(copied <= one * DISKS, "{copied}");
        assert_eq!(round(&scene, &[], None).defragmented.bytes, 0);
        let (_, exact) = scene.stored_and_exact();
        assert!(exact < one * DISKS / 2, "{exact} of {one}");
        let own = (exact - one) as f64 / (one * DISKS) as f64;
        let (most, amplifications) = (f64::max(1.2, 1.05 + own), scene.amplifications());
        assert!(amplifications.values().all(|held| *held <= most), "{own}: {amplifications:?}");
        assert!(scene.contents() == contents);
    }
}
