//! What passes cost over an index of many chunks: memory and requests, task by task. The real program over a MinIO server, as on a
//! machine that makes a pass now and then: each is a process of its own, and the cache stays.

use std::sync::Arc;

use anyhow::Context as _;
use larder_lnode::BackupOptions;
use larder_store::{Environment, Location, Store, StoreOptions};

use super::{begin_page, megabytes, spec};
use crate::offline::{CHUNKS_EACH, Node, crowd, index};
use crate::real::{Folder, Minio, Tool, Used, run_and_read};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Programs, Settings};

/// Chunks in the index at scale 1.
const CHUNKS: f64 = 10e6;
/// Series that are added at once.
const MORE: [&str; 4] = ["b", "c", "d", "e"];
/// The tasks of `larder optimize`, each run by itself.
const TASKS: [&str; 2] = ["compact", "collect"];

/// Memory that an index of so many chunks may take (bytes).
const MEMORY_TARGET: u64 = 64_000_000;

/// Runs the tasks one after the other and notes what they took.
struct Passes<'a> {
    tool: &'a Tool,
    table: Table,
    /// Memory of the first run, which has next to no index.
    floor: Option<u64>,
}

impl Passes<'_> {
    /// Returns the memory that the tasks took at most, beyond that of the first run.
    fn run(&mut self, what: &str) -> anyhow::Result<u64> {
        let mut most = 0;
        for task in TASKS {
            let (used, output) = run_and_read(self.tool.optimize(task))?;
            let Used { wall, cpu, memory } = used;
            let summary: serde_json::Value =
                serde_json::from_str(output.lines().last().unwrap_or_default()).context("no summary")?;
            let count = |key: &str| summary[key].as_u64().unwrap_or(0);
            let floor = *self.floor.get_or_insert(memory);
            most = most.max(memory.saturating_sub(floor));
            let mut row = vec![
                format!("{what}: {task}"),
                format!("{wall:.2}"),
                format!("{cpu:.2}"),
                format!("{:.0}", megabytes(memory)),
                format!("{:+.0}", megabytes(memory) - megabytes(floor)),
            ];
            for key in ["requests", "requests_create", "requests_read", "requests_list", "requests_delete"] {
                row.push(count(key).to_string());
            }
            row.push(format!("{:.1}", megabytes(count("bytes_up"))));
            row.push(format!("{:.1}", megabytes(count("bytes_down"))));
            self.table.row(row);
        }
        Ok(most)
    }
}

pub(crate) fn pass(settings: &Settings, programs: &Programs) -> anyhow::Result<()> {
    let mut page = begin_page("pass", "Passes over an index of many chunks", settings)?;
    let folder = Folder::new(&programs.work)?;
    let minio = Minio::start(&programs.minio, folder.join("minio"))?;
    let repository = Minio::repository(minio.address);
    let location: Location = repository.parse().context("no location")?;
    let store = Store::open_with(&location, &StoreOptions::default(), &Environment::from(Minio::variables()))?;
    let node = Node::over(store, settings.chunker, settings.chunk_kib << 10, settings.seed)?;
    let tool = Tool::larder(&programs.larder, &repository, &folder.join("cache")).at(&minio);
    let table = Table::new([
        "what happened, task",
        "wall s",
        "CPU s",
        "peak MB",
        "over the first",
        "requests",
        "creates",
        "reads",
        "lists",
        "deletes",
        "MB up",
        "MB down",
    ]);
    let mut passes = Passes { tool: &tool, table, floor: None };
    let mut sdb = SDb::new(super::Spec { file_bytes: 32 << 20, ..spec(settings, 1, 1.0, Duplication::Spread) });
    let stream = |sdb: &SDb| -> Arc<[u8]> { sdb.files().collect::<Vec<_>>().concat().into() };

    let alone = |options: &mut BackupOptions| options.find_similar = false;
    let small: Arc<[u8]> = stream(&sdb)[..1 << 20].into();
    node.back_up("old", &small, alone)?;
    passes.run("one small version")?;
    let containers = (CHUNKS * settings.scale / f64::from(CHUNKS_EACH)).ceil() as u32;
    crowd(&node, &node.newest()?, containers)?;
    let old = node.newest()?;
    // Compaction would copy what a newest version uses of these containers, which is nothing.
    node.back_up("old", &small, alone)?;
    let all = passes.run("a version of all these chunks")?;
    let mut later = passes.run("nothing")?;
    let (chunks, objects, bytes) = index(&node)?;
    node.back_up("a", &stream(&sdb), alone)?;
    later = later.max(passes.run("a first version of 34 MB")?);
    sdb.advance();
    node.back_up("a", &stream(&sdb), |_| ())?;
    later = later.max(passes.run("its next version")?);
    for series in MORE {
        node.back_up(series, &stream(&sdb), alone)?;
    }
    later = later.max(passes.run("the same four times, all chunks known")?);
    node.forget(&node.newest()?)?;
    later = later.max(passes.run("one of these forgotten")?);
    node.forget(&old)?;
    later = later.max(passes.run("the version of all these chunks forgotten")?);
    page.say(&format!(
        "`larder optimize --task`, the real program, over a repository on a MinIO server, with the cache of one machine: {chunks} chunks in {containers} containers of one version, whose \
         tables are real and whose chunks are of a few bytes; their index is {objects} objects of {:.1} MB. Then streams of {} MiB are backed up, and a \
         pass follows. Memory is the process's peak of resident memory, all of it; the repository's key is derived with next to no memory. \
         \"Over the first\" is what it takes beyond the first run, which has next to no index.",
        megabytes(bytes),
        32
    ));
    page.table(&passes.table);
    let told = |memory: u64| {
        let is = if memory < MEMORY_TARGET { "reached" } else { "not reached" };
        format!("{:.0} MB ({is})", megabytes(memory))
    };
    page.say(&format!(
        "The target is less than {:.0} MB for the index of ten million chunks. Beyond the first run, taking all of them in at once took {}; the \
         passes after it, over that index, at most {}.",
        megabytes(MEMORY_TARGET),
        told(all),
        told(later)
    ));
    page.finish()
}
