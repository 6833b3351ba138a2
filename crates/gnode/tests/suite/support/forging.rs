//! Forges later generations of a version, as a client with the keys can that may only create objects.

use std::collections::HashMap;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::compress::Compression;
use larder_format::content::ContentRoots;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::recipe::{Recipe, SegmentRef};
use larder_format::segment::{self, Segment};
use larder_gnode::forget::pin_of;
use larder_job::JobContext;
use larder_reader::{MetaChunks, RecipeReader, VersionReader};
use larder_store::catalog::Version;
use larder_testkit::data;
use larder_writer::{
    ContainerTotals, Destination, MetaSink, NodeWriter, Packer, Pool, Uploads, container_table, holdings, uses_of,
};

/// What is changed of a segment that is written again: its row and its records, both as the true version has them. The digest in the
/// row stays the true one unless it is changed too.
pub type ChangeSegment<'a> = &'a mut dyn FnMut(&mut SegmentRef, &mut Segment);

/// Creates the next generation of a version, with new segments and nodes. Returns its number.
pub fn forge(
    context: &JobContext,
    version: &Version,
    change: ChangeSegment<'_>,
    table: impl FnOnce(&mut Vec<ContainerUsage>),
) -> u32 {
    forge_over(context, version, &HashMap::new(), change, table)
}

/// The same, with chunks in these containers too.
pub fn forge_over(
    context: &JobContext,
    version: &Version,
    others: &HashMap<ContainerId, ContainerTotals>,
    change: ChangeSegment<'_>,
    table: impl FnOnce(&mut Vec<ContainerUsage>),
) -> u32 {
    let repository = &context.repository;
    let true_one = VersionReader::open(context, version).unwrap().manifest().clone();
    let generation = context.executor.block_on(repository.next_generation(pin_of(version))).unwrap();
    let job = JobId::new(4_000_000_000_000, data::random(u64::from(generation) + 77, 10).try_into().unwrap());
    let uploads = Uploads::new(repository.clone(), context.executor.clone(), context.cancel.clone());
    let pool = Pool::new(context, Compression::DEFAULT).unwrap();
    let destination = Destination::Store { pool: pool.handle().unwrap(), uploads: uploads.clone() };
    let fingerprinter = Arc::new(Fingerprinter::new(repository.keys().fingerprint()));
    let mut sink = MetaSink::new(Packer::new(destination, ContainerKind::Meta, job), fingerprinter);
    let mut recipe = |old: &Recipe| {
        let mut reader = RecipeReader::new(Arc::new(old.clone()), MetaChunks::new(context));
        let mut nodes = NodeWriter::new(None);
        for number in 0..reader.segments() {
            let (mut row, _) = reader.segment_ref(number).unwrap().unwrap();
            let mut segment = reader.whole_segment(number).unwrap().unwrap();
            let (uses, honest) = (row.uses.clone(), uses_of(&segment.records));
            row.uses = honest;
            change(&mut row, &mut segment);
            let is_honest = row.uses == uses;
            let bytes = segment::encode(&segment.records, &segment.superchunks).unwrap();
            row.chunk = sink.push(sink.fingerprint(&bytes), &bytes).unwrap();
            if is_honest {
                row.uses = uses_of(&segment.records);
            }
            nodes.push(row, &mut sink).unwrap();
        }
        nodes.finish(&mut sink).unwrap()
    };
    let (data, metadata) = (recipe(&true_one.data), recipe(&true_one.metadata));
    let usage = sink.finish().unwrap().usage;
    uploads.wait().unwrap();
    let (stored, of_old) = (uploads.stored(), holdings(&true_one.containers));
    let held = |id: &ContainerId| stored.get(id).or_else(|| others.get(id)).or_else(|| of_old.get(id)).copied();
    let mut containers = container_table(&usage, held).unwrap();
    table(&mut containers);
    let mut summary = true_one.summary.clone();
    summary.attempt = [66; 16];
    summary.roots = ContentRoots::of(&data, &metadata);
    let forged = Manifest { summary, data, metadata, containers };
    context
        .executor
        .block_on(repository.commit_generation(version.series, &forged, generation, version.generation))
        .unwrap();
    generation
}
