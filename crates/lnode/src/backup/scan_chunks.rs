//! The front of the pipeline alone: reads and cuts a tree as a backup would, and shows every chunk.
//!
//! For searches of chunks by their names (`repair`). Nothing is compared with a base and nothing is
//! stored.

use std::sync::Arc;

use crossbeam_channel::{bounded, unbounded};
use larder_format::Fingerprint;
use larder_job::JobContext;
use larder_source::Walk;
use larder_store::RepositoryError;
use larder_writer::{Chunks, Cutting, Pool};

use super::batch::Ready;
use super::feed::{FeedItem, Feeder, Feeding};
use super::sequence::wait;
use super::unchanged_files::{Comparison, Rules};
use super::{BackupError, ReadBudget, in_flight};

/// The reaction to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoOn {
    /// More chunks are wanted.
    Yes,
    /// All wanted chunks were seen.
    No,
}

/// Receives a chunk: its name and its bytes.
pub type Show<'a> = dyn FnMut(&Fingerprint, &[u8]) -> Result<GoOn, RepositoryError> + 'a;

/// Shows every chunk of a tree, in path order. Unreadable entries are reported to the context's
/// progress, as in a backup.
pub fn collect(
    context: &JobContext,
    walk: Walk,
    cutting: &Arc<Cutting>,
    pool: &Pool,
    show: &mut Show<'_>,
) -> Result<(), BackupError> {
    let (spare, spares) = unbounded();
    let (out, fed) = if context.executor.is_in_turns() { unbounded() } else { bounded(in_flight(context)) };
    let feeder = Feeder {
        pool: pool.handle().ok_or(BackupError::WorkerDied)?,
        read: ReadBudget::default(),
        cutting: cutting.clone(),
        out,
        cancel: context.cancel.clone(),
        predictor: None,
        spare: spares,
        remarks: None,
    };
    let feeding = Feeding::begin(context, move || drop(feeder.tree(walk, Comparison::new(None, Rules::default()))))?;
    let mut result = Ok(());
    for item in &fed {
        watch(context, &item);
        let chunks = match item {
            FeedItem::Batch(promise) => match wait(&promise) {
                Ok(done) => {
                    done.items.iter().for_each(|item| watch_ready(context, item));
                    done.chunks
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            },
            FeedItem::Block(promise) => match wait(&promise) {
                Ok(chunks) => {
                    context.progress.done(0, chunks.lengths.iter().map(|length| u64::from(*length)).sum());
                    chunks
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            },
            _ => continue,
        };
        match show_all(&chunks, show) {
            Ok(GoOn::Yes) => drop(spare.send(chunks)),
            Ok(GoOn::No) => break,
            Err(error) => {
                result = Err(error.into());
                break;
            }
        }
    }
    // Unblocks a feeder that waits for room in the channel.
    drop(fed);
    feeding.end()?;
    if context.cancel.is_cancelled() {
        return Err(BackupError::Interrupted);
    }
    result
}

fn show_all(chunks: &Chunks, show: &mut Show<'_>) -> Result<GoOn, RepositoryError> {
    let mut from = 0;
    for (fingerprint, length) in chunks.fingerprints.iter().zip(&chunks.lengths) {
        let to = from + *length as usize;
        if show(fingerprint, &chunks.bytes[from..to])? == GoOn::No {
            return Ok(GoOn::No);
        }
        from = to;
    }
    Ok(GoOn::Yes)
}

fn watch(context: &JobContext, fed: &FeedItem) {
    match fed {
        FeedItem::End(ended) => {
            context.progress.current(&ended.entry.path);
            context.progress.done(1, 0);
            ended.problems.iter().for_each(|problem| context.progress.problem(problem));
        }
        FeedItem::Lost { problem, .. } => context.progress.problem(problem),
        _ => {}
    }
}

fn watch_ready(context: &JobContext, item: &Ready) {
    match item {
        Ready::Entry { entry, .. } => {
            context.progress.current(&entry.path);
            context.progress.done(1, entry.size());
        }
        Ready::Lost { problem, .. } | Ready::Problem(problem) => context.progress.problem(problem),
        Ready::Keep { .. } | Ready::Link { .. } => {}
    }
}
