//! One drill from start to end.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};
use larder_format::manifest::Manifest;
use larder_job::{Activity, ItemFate, JobContext, Problem, Progress};
use larder_lnode::{RestoreError, RestoreOptions, restore};
use larder_reader::{FetchOptions, PlacedEntry, Reach, Reading, VersionReader, is_missing};
use larder_source::target::{NoteKind, Target, TargetOptions};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::repository::random;
use parking_lot::Mutex;

use crate::compare::{Comparison, note_live};
use crate::error::DrillError;
use crate::live::Live;
use crate::report::{Amount, Finding, FindingKind, SnapshotReport};
use crate::sample::Sample;
use crate::sampler::{Chosen, Sampler};
use crate::scratch::Scratch;

/// Problems of a restore that are kept; more are only counted.
const PROBLEMS_MAX: usize = 1000;

/// Bytes read at once without writing.
const PIECE_BYTES: usize = 1 << 17;

/// The scope of a drill.
#[derive(Debug, Clone)]
pub struct DrillOptions {
    /// How much is restored.
    pub sample: Sample,
    /// Repeats the choice of files.
    pub seed: u64,
    /// Folder below which a scratch folder is made; `None`: contents are read and not written.
    pub scratch: Option<PathBuf>,
    /// Folder below which the live files are, usually `/`; `None`: they are not compared.
    pub live: Option<PathBuf>,
    /// Options for fetching containers.
    pub fetch: FetchOptions,
}

/// Restores a sample of a version into a scratch folder, and compares it.
///
/// Damage and differences are findings of the report. Errors are those after which nothing more can
/// be said about the version.
pub fn drill(context: &JobContext, version: &Version, options: &DrillOptions) -> Result<SnapshotReport, DrillError> {
    begun(context, version, options, |drill, manifest| drill.run(manifest))
}

/// Works on a version with a lease, and says so if the version was forgotten meanwhile.
pub(crate) fn begun<T>(
    context: &JobContext,
    version: &Version,
    options: &DrillOptions,
    work: impl FnOnce(&Drill<'_>, Manifest) -> Result<T, DrillError>,
) -> Result<T, DrillError> {
    let (reading, manifest) = Reading::begin(context, version)?;
    let result = work(&Drill { context, version, reading: &reading, options }, manifest);
    let result = match result {
        Err(DrillError::Repository(error)) if is_missing(&error) => {
            reading.expect_there().map_err(DrillError::from).and(Err(error.into()))
        }
        result => result,
    };
    reading.end();
    result
}

pub(crate) struct Drill<'a> {
    pub(crate) context: &'a JobContext,
    pub(crate) version: &'a Version,
    reading: &'a Reading,
    pub(crate) options: &'a DrillOptions,
}

impl Drill<'_> {
    fn run(&self, manifest: Manifest) -> Result<SnapshotReport, DrillError> {
        let reader = VersionReader::new(self.context, manifest).fetching(self.options.fetch.clone());
        let mut report = SnapshotReport::default();
        let chosen = Arc::new(self.choose(&reader, &mut report)?);
        report.population = chosen.population;
        report.sample = chosen.files;
        report.others = chosen.others;
        report.is_limited = chosen.is_limited;
        self.context.progress.expect(chosen.files.files, chosen.files.bytes);
        self.context.progress.expectation_is_complete();
        match &self.options.scratch {
            Some(above) => self.restored(&reader, &chosen, above, &mut report)?,
            None => self.read(&reader, &chosen, &mut report)?,
        }
        Ok(report)
    }

    fn stop_if_asked(&self) -> Result<(), DrillError> {
        if self.context.cancel.is_cancelled() { Err(RestoreError::Interrupted.into()) } else { Ok(()) }
    }

    /// Walks over all entries, and passes on those that can be read. What is damaged is told
    /// `lost`.
    pub(crate) fn walk(
        &self,
        reader: &VersionReader,
        mut lost: impl FnMut(Finding),
        mut visit: impl FnMut(PlacedEntry) -> Result<(), DrillError>,
    ) -> Result<(), DrillError> {
        let mut entries = reader.placed_below(b"");
        let mut last_path = Vec::new();
        while let Some(placed) = entries.next() {
            self.stop_if_asked()?;
            match placed {
                Ok(placed) => {
                    last_path.clone_from(&placed.entry.path);
                    visit(placed)?;
                }
                Err(error) if error.is_damage() => {
                    if is_missing(&error) {
                        self.reading.expect_there()?;
                    }
                    let detail = format!("what follows it is not known: {error}");
                    lost(Finding { path: last_path.clone(), kind: FindingKind::Damaged, detail, hashes: None });
                    entries.recover()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn choose(&self, reader: &VersionReader, report: &mut SnapshotReport) -> Result<Chosen, DrillError> {
        let statistics = &reader.manifest().summary.statistics;
        let files = statistics.files_new + statistics.files_changed + statistics.files_unmodified;
        let of = Amount { files, bytes: statistics.stream_bytes };
        let mut sampler = Sampler::new(self.options.sample, self.options.seed, of, self.context.memory / 8);
        self.walk(
            reader,
            |finding| report.add(finding),
            |placed| {
                sampler.offer(&placed.entry);
                Ok(())
            },
        )?;
        sampler.choose(|path| match reader.entry(path) {
            Ok(entry) => Ok(entry.map(|entry| entry.stored_bytes())),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// The restore of a sample.
    pub(crate) fn restore_options(&self, chosen: &Arc<Chosen>) -> RestoreOptions {
        let selection = (!chosen.is_everything()).then(|| chosen.clone() as Arc<dyn larder_lnode::restore::Selection>);
        RestoreOptions { selection, fetch: self.options.fetch.clone(), ..RestoreOptions::default() }
    }

    /// Restores the sample, and reads it back.
    fn restored(
        &self,
        reader: &VersionReader,
        chosen: &Arc<Chosen>,
        above: &Path,
        report: &mut SnapshotReport,
    ) -> Result<(), DrillError> {
        let items = chosen.files.files + chosen.others;
        let entropy = self.context.repository.entropy();
        let random = || Ok(random(entropy)?);
        let scratch = Scratch::new(above, self.version.id(), random, items, chosen.files.bytes)?;
        let target = Target::open(scratch.path(), TargetOptions::default()).map_err(RestoreError::from)?;
        let (problems, cold) = (Mutex::default(), Mutex::default());
        let watch = Arc::new(Watch { inner: self.context.progress.clone(), problems, cold });
        let context = JobContext { progress: watch.clone(), ..self.context.clone() };
        let options = self.restore_options(chosen);
        let restored = self.timed(report, || Ok(restore(&context, self.version, &target, &options)?))?;
        report.fetched = restored.fetched;
        // The comparison does not look at these where this process cannot set them.
        let notes = target.notes();
        report.without_metadata += notes.count(NoteKind::Owner).max(notes.count(NoteKind::SetId));
        let mut failed = note_problems(&watch, report);
        report.cold = restored.cold_files;
        failed.extend(std::mem::take(&mut *watch.cold.lock()));
        let live = self.options.live.as_deref();
        let mut comparison = Comparison::new(self.context, &target, reader.data_cursor(), live);
        // Damaged metadata was found while the sample was chosen.
        let compared = self.walk(
            reader,
            |_| {},
            |PlacedEntry { entry, data_offset }| match chosen.has(&entry.path) && !failed.contains(&entry.path) {
                true => comparison.item(&entry, data_offset, report),
                false => Ok(()),
            },
        );
        drop(target);
        if let Err(error) = scratch.remove() {
            // The result stands all the same.
            let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
            self.context.progress.note(&format!("{error}: remove what the drill left there ({why})"));
        }
        compared
    }

    /// Runs the part whose time and requests count.
    fn timed<T>(
        &self,
        report: &mut SnapshotReport,
        work: impl FnOnce() -> Result<T, DrillError>,
    ) -> Result<T, DrillError> {
        let store = self.context.repository.store();
        let (before, started_ms) = (store.stats(), self.context.clock.now_ms());
        let result = work();
        report.restore_ms = self.context.clock.now_ms().saturating_sub(started_ms);
        report.restore_requests = store.stats().since(&before);
        result
    }

    /// Reads the sample, and writes nothing. Every reader compares what it reads with the recipe.
    fn read(&self, reader: &VersionReader, chosen: &Chosen, report: &mut SnapshotReport) -> Result<(), DrillError> {
        let mut found = SnapshotReport::default();
        let reach = if chosen.is_everything() { Reach::Range(0..u64::MAX) } else { Reach::Files };
        let read = self.timed(report, || {
            let read = reader.visit_readers(
                b"",
                reach,
                |_| true,
                |entry, content| {
                    self.stop_if_asked()?;
                    let is_wanted = matches!(entry.kind, EntryKind::File { .. }) && chosen.has(&entry.path);
                    if is_wanted {
                        self.read_file(entry, content, &mut found)?;
                    }
                    Ok(())
                },
            );
            match read {
                // Found while the sample was chosen.
                Err(DrillError::Repository(error)) if error.is_damage() => Ok(()),
                read => read,
            }
        });
        report.fetched = reader.fetched();
        report.compared = found.compared;
        report.not_comparable = found.not_comparable;
        report.cold = found.cold;
        found.findings.into_iter().for_each(|finding| report.add(finding));
        read
    }

    fn read_file(&self, entry: &Entry, content: &mut dyn Read, report: &mut SnapshotReport) -> Result<(), DrillError> {
        self.context.progress.current(&entry.path);
        let read = match self.options.live.as_deref().map(|root| Live::open(root, entry)) {
            Some(Ok(live)) => live.compare(entry, content).map(|outcome| note_live(entry, outcome, report)),
            other => {
                if let Some(Err(outcome)) = other {
                    note_live(entry, outcome, report);
                }
                read_through(content)
            }
        };
        self.context.progress.done(1, entry.stored_bytes());
        let Err(error) = read else { return Ok(()) };
        let detail = error.to_string();
        match error.downcast::<RepositoryError>() {
            Ok(error) if error.is_damage() => {
                if is_missing(&error) {
                    self.reading.expect_there()?;
                }
                report.add(Finding { path: entry.path.clone(), kind: FindingKind::Damaged, detail, hashes: None });
                Ok(())
            }
            Ok(error) if error.is_cold() => {
                report.cold += 1;
                Ok(())
            }
            Ok(error) => Err(error.into()),
            // The recipe ends before the file does.
            Err(_) => {
                report.add(Finding { path: entry.path.clone(), kind: FindingKind::Damaged, detail, hashes: None });
                Ok(())
            }
        }
    }
}

/// Adds the problems of a restore. Gives their paths: nothing else can be found there.
fn note_problems(watch: &Watch, report: &mut SnapshotReport) -> HashSet<Vec<u8>> {
    let problems = std::mem::take(&mut *watch.problems.lock());
    let mut paths = HashSet::new();
    for problem in problems {
        let kind = match problem.during {
            Activity::Fetch => FindingKind::Damaged,
            _ => FindingKind::NotRestored,
        };
        paths.insert(problem.path.clone());
        // Gaps in the metadata are known already, under the path before them.
        let is_known = report.findings.iter().any(|known| known.path == problem.path);
        if !is_known {
            report.add(Finding { path: problem.path, kind, detail: problem.message, hashes: None });
        }
    }
    paths
}

fn read_through(content: &mut dyn Read) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while content.read(&mut piece)? > 0 {}
    Ok(())
}

/// Passes progress on, and remembers problems.
struct Watch {
    inner: Arc<dyn Progress>,
    problems: Mutex<Vec<Problem>>,
    /// Files that need data in cold storage.
    cold: Mutex<HashSet<Vec<u8>>>,
}

impl Progress for Watch {
    // The sample was announced before.
    fn expect(&self, _: u64, _: u64) {}

    fn done(&self, files: u64, bytes: u64) {
        self.inner.done(files, bytes);
    }

    fn current(&self, path: &[u8]) {
        self.inner.current(path);
    }

    fn item(&self, path: &[u8], fate: ItemFate, bytes: u64) {
        if fate == ItemFate::Cold {
            self.cold.lock().insert(path.to_vec());
        }
        self.inner.item(path, fate, bytes);
    }

    fn note(&self, text: &str) {
        self.inner.note(text);
    }

    fn aside(&self, text: &str) {
        self.inner.aside(text);
    }

    fn problem(&self, problem: &Problem) {
        let mut problems = self.problems.lock();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem.clone());
        }
        drop(problems);
        self.inner.problem(problem);
    }
}
