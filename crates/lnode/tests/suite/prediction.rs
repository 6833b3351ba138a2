//! Predictions from the base change what a backup costs, not what it stores: the same chunks, and every byte back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::num::NonZeroUsize;
use std::path::Path;

use crate::support::*;
use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::Fingerprint;
use larder_format::layout::Layout;
use larder_format::manifest::Statistics;
use larder_format::recipe::{Recipe, decode_node};
use larder_job::JobContext;
use larder_lnode::{BackupOptions, Input, ReadBudget};
use larder_store::chunk_reader::ChunkReader;
use larder_testkit::{Memory, data};
use proptest::prelude::*;

/// Those that cut by content.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::MinCdcAes, Algorithm::MinCdc, Algorithm::FastCdc, Algorithm::Rabin];

/// Length of a page, and of its chunk.
const PAGE: usize = 4096;

/// What is backed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Any,
    /// A database, which is cut at pages for as long as its header and its length are those of one.
    Database,
    /// A database in the first version; then its length is none of one, and its pages are cut by content.
    NoLonger,
}

impl Content {
    /// The first version, made of these bytes.
    fn first(self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self != Self::Any {
            bytes[..101].copy_from_slice(&database_header());
            bytes.truncate(bytes.len() / PAGE * PAGE);
        }
        bytes
    }

    /// A later one.
    fn later(self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self != Self::Any {
            bytes.truncate(bytes.len() / PAGE * PAGE);
        }
        if self == Self::NoLonger {
            bytes.push(1);
        }
        bytes
    }

    /// Whether bytes are cut at pages.
    fn is_paged(self, bytes: &[u8]) -> bool {
        self != Self::Any && bytes.starts_with(&database_header()) && bytes.len().is_multiple_of(PAGE)
    }
}

fn contents() -> impl Strategy<Value = Content> {
    prop::sample::select(vec![Content::Any, Content::Database, Content::NoLonger])
}

fn are_pages(chunks: &[(u32, Fingerprint)]) -> bool {
    chunks.iter().all(|(size, _)| *size as usize == PAGE)
}

/// Sizes and names of a stream's chunks.
fn chunks_of(context: &JobContext, recipe: &Recipe) -> Vec<(u32, Fingerprint)> {
    let cache = NonZeroUsize::new(64 << 20).unwrap();
    let reader = ChunkReader::new(context.repository.clone(), cache, cache);
    let read = |chunk: &larder_format::ChunkRef| context.executor.block_on(reader.read(chunk)).unwrap();
    let nodes = recipe.nodes.iter().flat_map(|node| decode_node(&read(&node.chunk)).unwrap());
    let records = nodes.flat_map(|row| row.decode(&row.chain().map(read).collect::<Vec<_>>()).unwrap().records);
    records.map(|record| (record.chunk.size, record.chunk.fingerprint)).collect()
}

/// Backs `bytes` up as a file of a tree, every file read, and gives its chunks and what was counted.
fn store_file(context: &JobContext, series: &str, file: &Path, bytes: &[u8]) -> (Vec<(u32, Fingerprint)>, Statistics) {
    store_file_within(context, series, file, bytes, ReadBudget::default())
}

fn store_file_within(
    context: &JobContext,
    series: &str,
    file: &Path,
    bytes: &[u8],
    read: ReadBudget,
) -> (Vec<(u32, Fingerprint)>, Statistics) {
    store_file_with(context, file, bytes, &BackupOptions { read, ..options(series) })
}

fn store_file_merging(
    context: &JobContext,
    series: &str,
    file: &Path,
    bytes: &[u8],
    merge_after: Option<usize>,
) -> (Vec<(u32, Fingerprint)>, Statistics) {
    store_file_with(context, file, bytes, &BackupOptions { merge_after, ..options(series) })
}

fn store_file_with(
    context: &JobContext,
    file: &Path,
    bytes: &[u8],
    options: &BackupOptions,
) -> (Vec<(u32, Fingerprint)>, Statistics) {
    std::fs::write(file, bytes).unwrap();
    let options = BackupOptions { force: true, find_similar: false, ..options.clone() };
    let report = larder_lnode::backup(context, walk(file), &options).unwrap();
    let id = report.version.unwrap().id;
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let manifest = context.executor.block_on(context.repository.manifest(&version)).unwrap();
    (chunks_of(context, &manifest.data), report.statistics)
}

/// Backs a stream up and gives its chunks and what was counted.
fn store(context: &JobContext, series: &str, bytes: &[u8], paranoid: bool) -> (Vec<(u32, Fingerprint)>, Statistics) {
    store_merging(context, series, bytes, paranoid, None)
}

fn store_merging(
    context: &JobContext,
    series: &str,
    bytes: &[u8],
    paranoid: bool,
    merge_after: Option<usize>,
) -> (Vec<(u32, Fingerprint)>, Statistics) {
    let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
    let input = Input::Stream { path: b"stream".to_vec(), reader, size: Some(bytes.len() as u64) };
    // Each series is alone: what one has is compared with what the other had to find out.
    let options = BackupOptions { paranoid, merge_after, find_similar: false, ..options(series) };
    let report = larder_lnode::backup(context, input, &options).unwrap();
    let id = report.version.unwrap().id;
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let manifest = context.executor.block_on(context.repository.manifest(&version)).unwrap();
    let mut restored = Vec::new();
    larder_reader::VersionReader::open(context, &version)
        .unwrap()
        .visit_contents(b"", |_, content| {
            content.read_to_end(&mut restored).unwrap();
            Ok::<_, larder_store::RepositoryError>(())
        })
        .unwrap();
    assert!(restored == bytes, "what comes back is not what was stored");
    (chunks_of(context, &manifest.data), report.statistics)
}

fn repository(runtime: &tokio::runtime::Runtime, algorithm: Algorithm) -> JobContext {
    let store = larder_store::Store::from_object_store(Memory::new().store(), "", &Default::default()).unwrap();
    let config = larder_format::config::Config { chunker: ChunkerParams::with_average(algorithm, 4096), ..config() };
    let entropy = std::sync::Arc::new(larder_testkit::entropy());
    let init = larder_store::Repository::init(store, config, PASSWORD, key_fields(), entropy);
    context(runtime, runtime.block_on(init).unwrap())
}

/// An edit: at this place, so many bytes are replaced by so many others.
type Edit = (prop::sample::Index, usize, usize);

fn edited(base: &[u8], edits: &[Edit], seed: u64) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for (place, removed, inserted) in edits {
        let from = place.index(bytes.len() + 1);
        let to = (from + removed).min(bytes.len());
        bytes.splice(from..to, pseudo_random(*inserted, seed));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn chunks_are_those_of_a_backup_without_history(
        kilobytes in 1500..9000_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..30_000_usize, 0..30_000_usize), 0..5),
        in_place in any::<bool>(),
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        content in contents(),
    ) {
        let runtime = runtime();
        let context = repository(&runtime, algorithm);
        let base = content.first(data::mixed(7, kilobytes * 1000));
        let edits: Vec<Edit> =
            edits.into_iter().map(|(place, removed, inserted)| (place, if in_place { inserted } else { removed }, inserted)).collect();
        let second = content.later(edited(&base, &edits, 5));
        store(&context, "series", &base, false);
        let (with_history, statistics) = store(&context, "series", &second, false);
        let (alone, _) = store(&context, "alone", &second, false);
        prop_assert!(with_history == alone);
        prop_assert!(!content.is_paged(&second) || are_pages(&alone));
        prop_assert!(statistics.predictions_right > 0 || !edits.is_empty() || content == Content::NoLonger);
        // What the second version made is as good a base as the first.
        let (third, statistics) = store(&context, "series", &second, false);
        let (alone, _) = store(&context, "alone", &second, true);
        prop_assert!(third == alone);
        prop_assert_eq!(statistics.predicted_bytes, second.len() as u64);
        prop_assert_eq!((statistics.predictions_right, statistics.predictions_wrong), (statistics.chunks, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Files are proved by several threads, ahead of where they are read: they have the chunks that a stream has, which is not.
    #[test]
    fn files_proved_ahead_have_the_chunks_of_streams(
        kilobytes in 1500..20_000_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..30_000_usize, 0..30_000_usize), 0..5),
        in_place in any::<bool>(),
        shorter in 0..3_000_000_usize,
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        content in contents(),
    ) {
        let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
        let context = repository(&runtime, algorithm);
        let file = folder.path().join("file");
        let base = content.first(data::mixed(11, kilobytes * 1000));
        let edits: Vec<Edit> =
            edits.into_iter().map(|(place, removed, inserted)| (place, if in_place { inserted } else { removed }, inserted)).collect();
        let mut second = edited(&base, &edits, 6);
        second.truncate(second.len().saturating_sub(if in_place { shorter } else { 0 }).max(1_200_000));
        let second = content.later(second);
        store_file(&context, "files", &file, &base);
        for (round, bytes) in [&second, &second, &base].into_iter().enumerate() {
            let (ahead, statistics) = store_file(&context, "files", &file, bytes);
            let (alone, expected) = store(&context, &format!("stream {round}"), bytes, true);
            prop_assert!(ahead == alone, "round {}", round);
            prop_assert!(!content.is_paged(bytes) || are_pages(&alone));
            prop_assert_eq!(statistics.read_bytes, expected.read_bytes);
            if round == 1 {
                prop_assert_eq!(statistics.predicted_bytes, bytes.len() as u64);
                prop_assert_eq!((statistics.predictions_right, statistics.predictions_wrong), (statistics.chunks, 0));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Merged or not, a stream has the same chunks, and nothing is stored for superchunks.
    #[test]
    fn merging_costs_no_ratio(
        kilobytes in 2500..6000_usize,
        edits in prop::collection::vec(
            prop::collection::vec((any::<prop::sample::Index>(), 0..9000_usize, 0..9000_usize), 1..4), 3..5),
        in_place in any::<bool>(),
        merge_after in 0..4_usize,
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        content in contents(),
    ) {
        let runtime = runtime();
        let context = repository(&runtime, algorithm);
        let mut bytes = content.first(data::mixed(9, kilobytes * 1000));
        for (number, edits) in edits.iter().enumerate() {
            let (merged, statistics) = store_merging(&context, "series", &bytes, false, Some(merge_after));
            let (unmerged, expected) = store(&context, "unmerged", &bytes, true);
            prop_assert!(merged == unmerged, "version {} is cut otherwise", number);
            prop_assert!(!content.is_paged(&bytes) || are_pages(&unmerged));
            prop_assert_eq!(statistics.new_chunks, expected.new_chunks);
            let edits: Vec<Edit> =
                edits.iter().map(|(place, removed, inserted)| (*place, if in_place { *inserted } else { *removed }, *inserted)).collect();
            bytes = content.later(edited(&bytes, &edits, number as u64 + 50));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// How much of a file is held at once, and cut at once, decides nothing. What fits into the window is predicted.
    #[test]
    fn a_bounded_window_changes_no_chunk(
        kilobytes in 1500..12_000_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..30_000_usize, 0..30_000_usize), 0..5),
        block in 0..(1_usize << 20),
        window in 0..(9_usize << 20),
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        content in contents(),
    ) {
        let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
        let context = repository(&runtime, algorithm);
        let file = folder.path().join("file");
        let base = content.first(data::mixed(17, kilobytes * 1000));
        let second = content.later(edited(&base, &edits, 8));
        let read = ReadBudget { block, window: Some(window) };
        for (round, bytes) in [&base, &second, &second].into_iter().enumerate() {
            let (bounded, statistics) = store_file_within(&context, "bounded", &file, bytes, read);
            let (alone, expected) = store(&context, &format!("stream {round}"), bytes, true);
            prop_assert!(bounded == alone, "round {}", round);
            prop_assert_eq!(statistics.read_bytes, expected.read_bytes);
            // No segment has more than 8 MiB.
            if round == 2 && window > (8 << 20) + (64 << 10) {
                prop_assert_eq!(statistics.predicted_bytes, bytes.len() as u64);
            }
            prop_assert!(round == 1 || statistics.predictions_wrong == 0, "{:?}", statistics);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Proofs of segments stop where all are changed, and return behind that. Without runs nothing but they tell that a segment is
    /// unchanged, and one in eight is tried; with runs the first unchanged segment tells it. Neither moves a cut.
    #[test]
    fn proofs_return_behind_changes(changed in 12..30_usize, is_file in any::<bool>(), has_runs in any::<bool>(), seed in 0..1000_u64) {
        const SEGMENT: usize = 2 << 20;
        let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
        let context = repository(&runtime, Algorithm::DEFAULT);
        let base = pseudo_random(64_000_000, seed);
        let (mut second, changed) = (base.clone(), changed << 20);
        for at in (0..changed).step_by(SEGMENT / 8) {
            second[at..at + 8].copy_from_slice(&seed.wrapping_add(at as u64).to_le_bytes());
        }
        let file = folder.path().join("file");
        let merge_after = has_runs.then_some(0);
        let later = |bytes: &[u8]| match is_file {
            true => store_file_merging(&context, "series", &file, bytes, merge_after),
            false => store_merging(&context, "series", bytes, false, merge_after),
        };
        later(&base);
        let (chunks, statistics) = later(&second);
        let (alone, _) = store(&context, "alone", &second, true);
        prop_assert!(chunks == alone);
        // One in eight, those ahead of the result, and the segments at both ends. Few segments have more than 3 MiB.
        let missed = if has_runs { 4 * SEGMENT } else { 14 * SEGMENT };
        let behind = second.len() - changed;
        prop_assert!(statistics.predicted_bytes as usize + missed >= behind, "{} of {}", statistics.predicted_bytes, behind);
    }
}

/// Goal: where a segment changes in one place, what is around it is proved in runs. Method: change one page in every segment, in each
/// of several versions; count.
#[test]
fn what_stays_around_a_changed_place_is_proved_in_runs() {
    let runtime = runtime();
    let context = repository(&runtime, Algorithm::DEFAULT);
    let mut bytes = data::mixed(4, 20_000_000);
    for version in 0..6 {
        let (_, statistics) = store_merging(&context, "series", &bytes, false, Some(3));
        if version >= 4 {
            let predicted = statistics.predicted_bytes as f64 / bytes.len() as f64;
            assert!(predicted > 0.6, "version {version}: {statistics:?}");
        }
        for place in (500_000..bytes.len()).step_by(1_000_000) {
            bytes[place..place + 100].copy_from_slice(&pseudo_random(104, version)[..100]);
        }
    }
}

/// Goal: from the second version on, most of what is unchanged between scattered changes is proved, in both layouts and at several
/// rates. Method: overwrite pages anywhere; compare what was predicted with the pages that are equal.
#[test]
fn runs_prove_what_is_unchanged_between_scattered_pages() {
    // Of unchanged bytes, percent. Chunks that are cut by content cross pages, so changes touch more of them.
    let goals = [(1, 90, 85), (5, 75, 55), (15, 50, 20)];
    let runtime = runtime();
    for layout in [Layout::Standard, Layout::Lifecycle] {
        for content in [Content::Database, Content::Any] {
            for (rate, of_pages, of_any) in goals {
                let context = repository(&runtime, Algorithm::DEFAULT);
                let mut bytes = content.first(pseudo_random(6 << 20, rate));
                for version in 0..3 {
                    let reader = Box::new(std::io::Cursor::new(bytes.clone()));
                    let input = Input::Stream { path: b"stream".to_vec(), reader, size: Some(bytes.len() as u64) };
                    let statistics =
                        larder_lnode::backup(&context, input, &BackupOptions { layout, ..options("series") })
                            .unwrap()
                            .statistics;
                    let unchanged = bytes.len() as u64 * (100 - rate) / 100;
                    let proved = statistics.predicted_bytes * 100 / unchanged;
                    let goal = if content == Content::Any { of_any } else { of_pages };
                    assert!(
                        version == 0 || proved >= goal,
                        "{layout:?}, {content:?}, {rate} %, version {version}: {proved} %"
                    );
                    // A step without a common divisor with the number of pages visits each once.
                    let pages = bytes.len() / PAGE;
                    for number in 0..pages * rate as usize / 100 {
                        let page = 1 + (number * 1_571 + version * 977) % (pages - 1);
                        let new = pseudo_random(PAGE, (version * pages + page) as u64 + 1000);
                        bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(&new);
                    }
                }
            }
        }
    }
}

/// Goal: right and wrong predictions are counted in one unit. Method: overwrite one place of a long stream; all chunks of the one segment
/// that it lies in count as wrong at most, and all of the others as right.
#[test]
fn predictions_are_counted_in_chunks() {
    let runtime = runtime();
    for algorithm in ALGORITHMS {
        for content in [Content::Any, Content::Database] {
            let context = repository(&runtime, algorithm);
            let mut bytes = content.first(data::mixed(13, 20_000_000));
            let (_, first) = store(&context, "series", &bytes, false);
            assert_eq!((first.predictions_right, first.predictions_wrong, first.predicted_bytes), (0, 0, 0));
            bytes[7_000_000..7_000_100].copy_from_slice(&pseudo_random(104, 9)[..100]);
            let (_, second) = store(&context, "series", &bytes, false);
            let Statistics { chunks, predictions_right: right, predictions_wrong: wrong, .. } = second;
            // A segment has 2 MiB or somewhat more, and a change may unsettle the one behind it.
            assert!(wrong > 0 && wrong < chunks / 2, "{algorithm:?}, {content:?}: {second:?}");
            assert!(right > chunks / 2 && right < chunks, "{algorithm:?}, {content:?}: {second:?}");
            assert!(chunks.abs_diff(right + wrong) < 10, "what is predicted is all that the base has: {second:?}");
            assert!(second.predicted_bytes > 10_000_000, "{algorithm:?}, {content:?}: {second:?}");
        }
    }
}

/// Goal: after an insertion, prediction finds the new shift. Method: insert near the front of a long stream; most of what is behind
/// must be proved, not cut.
#[test]
fn prediction_goes_on_behind_an_insertion() {
    let runtime = runtime();
    let context = repository(&runtime, Algorithm::DEFAULT);
    let base = data::mixed(3, 60_000_000);
    let second = [&base[..3_000_000], b"something new", &base[3_000_000..]].concat();
    store(&context, "series", &base, false);
    let (_, statistics) = store(&context, "series", &second, false);
    assert!(statistics.predicted_bytes > 30_000_000, "{statistics:?}");
    assert!(statistics.new_chunks < 10, "{statistics:?}");
}

/// Goal: what is behind an insertion or a removal is proved in the same segment already, and segments behind it. Method: insert and
/// remove some bytes in every megabyte of a stream that ends before the sequencer could tell the new place.
#[test]
fn runs_behind_insertions_are_proved() {
    let runtime = runtime();
    let context = repository(&runtime, Algorithm::DEFAULT);
    let base = pseudo_random(9_000_000, 5);
    let mut second = Vec::new();
    for (number, megabyte) in base.chunks(1_000_000).enumerate() {
        let (before, behind) = megabyte.split_at(300_000);
        second.extend_from_slice(before);
        match number % 3 {
            0 => second.extend_from_slice(b"an insertion"),
            1 => second.extend_from_slice(&pseudo_random(20_000, number as u64)),
            _ => second.truncate(second.len() - 5_000),
        }
        second.extend_from_slice(behind);
    }
    store_merging(&context, "series", &base, false, Some(0));
    let (_, statistics) = store_merging(&context, "series", &second, false, Some(0));
    let proved = statistics.predicted_bytes * 100 / base.len() as u64;
    assert!(proved >= 85, "{proved} %: {statistics:?}");
}
