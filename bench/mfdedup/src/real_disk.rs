//! The newest version read from a real disk, nothing of it in memory: where Larder's own nodes put it, where HAR has it, and in one file.
//!
//! A repository in a folder, made by the product's L-node and G-node version by version; HAR's containers, as its model has them in the end,
//! written as files in their order, each of bytes as they come; and the version itself as a file. Then each is read as a restore reads it,
//! in turns and several times, every time after the kernel was told to forget what it has: whole containers in the order of the stream
//! for HAR, with a cache that knows the future; of every container of Larder's the stretch that the version needs, in the order in
//! which containers were written; the file from its begin to its end. What was read is thrown away, but for the product's own restore,
//! which opens, checks and writes into memory.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use larder_bench_common::megabytes;
use larder_bench_common::page::Page;
use larder_bench_common::rng::Rng;
use larder_bench_common::table::Table;
use larder_format::names;
use larder_store::{Location, Store, StoreOptions};

use crate::Settings;
use crate::real::{Run, Way};
use crate::schemes::{Classic, Collection, Number, Rule, Scheme as _};
use crate::sets::Set;

/// Every way is measured so often.
const ROUNDS: usize = 5;
/// Bytes that are asked for at once.
const BLOCK: u64 = 1 << 20;
/// Memory of HAR's restores, in percent of the version.
const MEMORIES: [f64; 2] = [100.0, 25.0];

/// A stretch of a file.
type Stretch = (PathBuf, Range<u64>);

/// Reads stretches one after the other and says how long that took, in seconds.
fn read(stretches: &[Stretch]) -> anyhow::Result<f64> {
    let mut block = vec![0; BLOCK as usize];
    forget_pages()?;
    let began = Instant::now();
    for (path, range) in stretches {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut at = range.start;
        while at < range.end {
            let part = &mut block[..(range.end - at).min(BLOCK) as usize];
            let length = file.read_at(part, at)?;
            if length == 0 {
                break;
            }
            at += length as u64;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// What the kernel has of files goes.
fn forget_pages() -> anyhow::Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    fs::write(path, "3").with_context(|| format!("{} takes a root's rights", path.display()))
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// A file of as many bytes as a container of the model has.
fn write(path: &Path, bytes: u64, rng: &mut Rng) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; BLOCK as usize];
    let mut left = bytes;
    while left > 0 {
        block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
        let part = &block[..left.min(BLOCK) as usize];
        file.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(file.sync_all()?)
}

pub(crate) fn page(page: &mut Page, settings: &Settings, sets: &[Set]) -> anyhow::Result<()> {
    page.say(&format!(
        "MB of the newest version a second, medians of {ROUNDS} rounds in turns, each after the kernel's caches were dropped. \"read\" only \
         reads what a restore needs; \"restored\" is the program's own restore into memory, with opening, checking and writing. HAR's files \
         are written one after the other, when all is over, which is better than it would have it."
    ));
    let names = [
        "set",
        "version MB",
        "plain file",
        "HAR, cache 100 %",
        "HAR, cache 25 %",
        "lifecycle, read",
        "lifecycle x HAR",
        "x HAR at 25 %",
        "x plain",
        "lifecycle, restored",
        "containers; stretches' MB",
        "HAR's containers read",
    ];
    let mut table = Table::new(names);
    for set in sets {
        table.row(row(settings, *set)?);
    }
    page.table(&table);
    Ok(())
}

fn row(settings: &Settings, set: Set) -> anyhow::Result<Vec<String>> {
    let folder = tempfile::tempdir_in(&settings.folder).context("cannot make a folder for the measurement")?;
    let place = |name: &str| folder.path().join(name);
    fs::create_dir(place("har"))?;
    let location: Location = place("larder").display().to_string().parse()?;
    let store = Store::open(&location, &StoreOptions::default())?;
    let mut run = Run::over(store, Way::lifecycle(settings), settings)?;
    let mut har = Classic::new(Rule::Har, Collection::Perfect);
    let mut data = set.versions(settings.scale, settings.seed, &settings.tars)?;
    let (keep, mut count) = (settings.keep.max(1), 0);
    let mut stream: Arc<[u8]> = Arc::default();
    while count < settings.versions {
        let mut bytes = Vec::new();
        if !data.next(&mut |file| Ok(file.read_to_end(&mut bytes).map(drop)?))? {
            break;
        }
        count += 1;
        stream = bytes.into();
        let pieces = run.step(&stream, keep)?;
        har.back_up(count as Number, &pieces);
        if count > keep {
            har.delete((count - keep) as Number);
        }
    }
    // HAR's containers and the version itself.
    let mut rng = Rng::new(settings.seed);
    for (number, bytes) in har.containers() {
        write(&place("har").join(number.to_string()), bytes, &mut rng)?;
    }
    let mut plain = File::create(place("plain"))?;
    plain.write_all(&stream)?;
    plain.sync_all()?;
    let length = stream.len() as u64;
    let plain = [(place("plain"), 0..length)];
    let sizes: std::collections::HashMap<u32, u64> = har.containers().collect();
    let of_har = MEMORIES.map(|percent| {
        let order = har.order(count as Number, crate::percent_of(length, percent));
        let stretch =
            |number: &u32| (place("har").join(number.to_string()), 0..sizes.get(number).copied().unwrap_or(0));
        order.iter().map(stretch).collect::<Vec<Stretch>>()
    });
    let parts = run.parts()?;
    let of_larder: Vec<Stretch> =
        parts.into_iter().map(|(id, range)| (place("larder").join(names::container(id)), range)).collect();
    let ways: [&[Stretch]; 4] = [&plain, &of_har[0], &of_har[1], &of_larder];
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); ways.len() + 1];
    for _ in 0..ROUNDS {
        for (way, seconds) in ways.iter().zip(&mut seconds) {
            seconds.push(read(way)?);
        }
        forget_pages()?;
        seconds[ways.len()].push(run.restoring_newest(&stream)?);
    }
    let speed: Vec<f64> = seconds.into_iter().map(|seconds| megabytes(length) / median(seconds)).collect();
    let wanted: u64 = of_larder.iter().map(|(_, range)| range.end - range.start).sum();
    let ratio = |a: usize, b: usize| format!("{:.2}", speed[a] / speed[b]);
    Ok(vec![
        set.to_string(),
        format!("{:.0}", megabytes(length)),
        format!("{:.0}", speed[0]),
        format!("{:.0}", speed[1]),
        format!("{:.0}", speed[2]),
        format!("{:.0}", speed[3]),
        ratio(3, 1),
        ratio(3, 2),
        ratio(3, 0),
        format!("{:.0}", speed[4]),
        format!("{}; {:.0}", of_larder.len(), megabytes(wanted)),
        format!("{}, {}", of_har[0].len(), of_har[1].len()),
    ])
}
