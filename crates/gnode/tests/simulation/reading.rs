//! A small reader over the real formats, for what must hold at every moment; and the process that restores with the real one.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;

use larder_format::container::ChunkRef;
use larder_format::manifest::Manifest;
use larder_format::recipe::{Recipe, SegmentRef, decode_node};
use larder_format::segment::ChunkRecord;
use larder_index::Executor;
use larder_lnode::{RestoreError, RestoreOptions, restore as real_restore};
use larder_reader::{ReadError, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::chunk_reader::ChunkReader;
use larder_store::{Repository, RepositoryError};

use crate::backup::FILE;
use crate::moved::{Copies, Finder};
use crate::node::{Node, Stop};

const CACHE: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();

pub fn chunks_of(repository: &Repository) -> ChunkReader {
    ChunkReader::new(repository.clone(), CACHE, CACHE)
}

/// The segments of a stream, with their records.
pub async fn segments(
    chunks: &ChunkReader,
    recipe: &Recipe,
) -> Result<Vec<(SegmentRef, Vec<ChunkRecord>)>, RepositoryError> {
    let mut found = Vec::new();
    for node in &recipe.nodes {
        for segment in decode_node(&chunks.read(&node.chunk).await?).expect("it was authenticated") {
            let mut chain = Vec::new();
            for chunk in segment.chain() {
                chain.push(chunks.read(chunk).await?);
            }
            let records = segment.decode(&chain).expect("it was authenticated").records;
            found.push((segment, records));
        }
    }
    Ok(found)
}

/// What a generation of a version names in its data stream.
pub async fn named(repository: &Repository, manifest: &Manifest) -> Result<Vec<ChunkRef>, RepositoryError> {
    let found = segments(&chunks_of(repository), &manifest.data).await?;
    Ok(found.iter().flat_map(|(_, records)| records).map(|record| record.chunk).collect())
}

/// All bytes of a version's data stream. Its metadata is read as well.
/// With `copies` a chunk may be in any container.
pub async fn restore(
    repository: &Repository,
    manifest: &Manifest,
    copies: Option<&Copies>,
) -> Result<Vec<u8>, RepositoryError> {
    let chunks = chunks_of(repository);
    for (_, records) in segments(&chunks, &manifest.metadata).await? {
        for record in records {
            chunks.read(&record.chunk).await?;
        }
    }
    let mut finder = Finder::new(repository, manifest, copies);
    let mut bytes = Vec::new();
    for (_, records) in segments(&chunks, &manifest.data).await? {
        for record in records {
            bytes.extend_from_slice(&finder.read(&record.chunk).await?);
        }
    }
    Ok(bytes)
}

/// What came of reading.
enum Read {
    Bytes(Vec<u8>),
    Forgotten,
    /// Something was missing or damaged.
    Failed(String),
}

impl From<RepositoryError> for Read {
    fn from(error: RepositoryError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Restores some version, and compares.
pub async fn read(node: &Node) -> Result<(), Stop> {
    let catalog = node.repository.catalog().await?;
    if catalog.versions.is_empty() {
        return Ok(());
    }
    let version = catalog.versions[node.below(catalog.versions.len())].clone();
    let expected = node.ledger.content(&version.summary).ok_or("every version has its content")?;
    let reader = node.ledger.begins_to_read();
    let (context, notes) = node.noted_context();
    let id = version.id();
    let is_dumped = node.one_in(2);
    let read = Executor::stepped()
        .run(&node.repository, move |io| {
            let context = context.on(&io.executor);
            if is_dumped { dump(&context, &version) } else { restore_file(&context, &version) }
        })
        .await?;
    match read {
        Read::Bytes(bytes) if bytes == expected.concat() => node.ledger.count("restored"),
        Read::Bytes(_) => node.ledger.is_wrong(format!("reader {reader} reads wrong bytes of {id}")),
        Read::Forgotten => node.ledger.count("read too late"),
        // Without a lease nothing is kept for it.
        Read::Failed(what) if notes.lock().is_empty() => {
            node.ledger.could_not_read(reader, format!("reader {reader} of {id}: {what}"));
        }
        Read::Failed(_) => node.ledger.count("read without a lease"),
    }
    Ok(())
}

/// An error that is nobody's loss ends the process.
fn failed(error: RepositoryError) -> Result<Read, RepositoryError> {
    if error.is_damage() { Ok(error.into()) } else { Err(error) }
}

fn dump(context: &larder_job::JobContext, version: &Version) -> Result<Read, RepositoryError> {
    let (reader, reading) = match VersionReader::announce(context, version) {
        Ok(announced) => announced,
        Err(ReadError::Forgotten { .. }) => return Ok(Read::Forgotten),
        Err(ReadError::Repository(error)) => return failed(error),
    };
    let mut bytes = Vec::new();
    let mut broken = None;
    let visited = reader.visit_contents::<RepositoryError>(FILE, |_, content| {
        broken = content.read_to_end(&mut bytes).err();
        Ok(())
    });
    let read = match (visited, broken) {
        (Ok(()), None) => Ok(Read::Bytes(bytes)),
        _ if reading.is_forgotten() => Ok(Read::Forgotten),
        (Err(error), _) => failed(error),
        (Ok(()), Some(error)) => match error.downcast::<RepositoryError>() {
            Ok(error) => failed(error),
            Err(error) => Ok(Read::Failed(error.to_string())),
        },
    };
    reading.end();
    read
}

fn restore_file(context: &larder_job::JobContext, version: &Version) -> Result<Read, RepositoryError> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let target = Target::open(folder.path(), TargetOptions::default()).expect("it can be opened");
    let report = match real_restore(context, version, &target, &RestoreOptions::default()) {
        Ok(report) => report,
        Err(RestoreError::Forgotten { .. }) => return Ok(Read::Forgotten),
        Err(RestoreError::Repository(error)) => return failed(error),
        Err(error) => return Ok(Read::Failed(error.to_string())),
    };
    if report.errors > 0 {
        return Ok(Read::Failed(format!("{report:?}")));
    }
    let file = folder.path().join(std::ffi::OsStr::from_bytes(FILE));
    Ok(std::fs::read(file).map_or_else(|error| Read::Failed(error.to_string()), Read::Bytes))
}
