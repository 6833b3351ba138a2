//! Opening the objects of runs.

use std::sync::Arc;

use bytes::Bytes;
use larder_format::DecodeError;
use larder_format::index_manifest::RunRef;
use larder_format::names;
use larder_format::run::{Filter, RunIndex, RunKey};
use larder_store::Repository;

use crate::error::{IndexError, damaged};
use crate::layout::layout_of;

/// Reads the end of an object: fences and trailer, and if asked for, the filter, in one request.
pub(crate) async fn open_run(
    repository: &Repository,
    run: &RunRef,
    with_filter: bool,
) -> Result<(RunIndex, Option<Filter>), IndexError> {
    let filter_bytes = if with_filter { u64::from(run.filter_bytes) } else { 0 };
    // Requested as the end of the object, because an L-node's cache keeps the ends of runs.
    let count = u64::from(run.tail_bytes) + filter_bytes;
    let (tail, object_bytes) = repository.store().get_tail(&names::run(run.id), count).await?;
    if object_bytes != run.object_bytes {
        let why = "it is not as long as the manifest of the index says";
        return Err(damaged(run.id)(DecodeError::Invalid { what: "index run", why }));
    }
    let index = decode_run(repository, run, &tail)?;
    let filter = if with_filter {
        let range = index.filter_range();
        let sealed = tail.get(..(range.end - range.start) as usize).unwrap_or_default();
        index.open_filter(sealed).map_err(damaged(run.id))?
    } else {
        None
    };
    Ok((index, filter))
}

/// Decodes the end of an object, and checks that it is the one that the manifest names.
pub(crate) fn decode_run(repository: &Repository, run: &RunRef, tail: &Bytes) -> Result<RunIndex, IndexError> {
    let key = RunKey::of(repository.keys(), run.id).map_err(damaged(run.id))?;
    let index = RunIndex::decode(&key, tail, run.object_bytes).map_err(damaged(run.id))?;
    let layout = layout_of(run.table);
    let is_as_listed = index.table == run.table
        && index.layout == layout
        && index.records == run.records
        && index.tombstones == run.tombstones
        && index.filter_range().end - index.filter_range().start == u64::from(run.filter_bytes);
    if !is_as_listed {
        return Err(damaged(run.id)(DecodeError::Invalid {
            what: "index run",
            why: "it is not what the manifest of the index says",
        }));
    }
    Ok(index)
}

/// An opened object, for those who look up keys.
#[derive(Debug)]
pub(crate) struct OpenedRun {
    pub(crate) index: RunIndex,
    pub(crate) filter: Option<Filter>,
}

impl OpenedRun {
    pub(crate) async fn open(repository: Repository, run: RunRef) -> Result<Arc<Self>, IndexError> {
        let (index, filter) = open_run(&repository, &run, true).await?;
        Ok(Arc::new(Self { index, filter }))
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.index.bytes_held() + self.filter.as_ref().map_or(0, Filter::bytes_held)
    }
}
