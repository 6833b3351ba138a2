//! A batch of one process, which does every task.
//!
//! A failure of one image leaves the others. The image leaves the batch, with a register that says
//! so, and those who wait for its chunks store them. Only failures of the store or of the folder
//! for temporary files, and interruptions, end the batch.

use larder_format::fleet::Stage;
use larder_job::{Ending, JobContext};
use larder_store::catalog::Version;

use crate::begin::{self, Begun, Planned};
use crate::error::FleetError;
use crate::member::{Member, Step};
use crate::memory::high_water;
use crate::queue::MemoryQueue;
use crate::report::{BatchReport, FleetImage, FleetOptions, ImageFailure, ImageReport, Sources};
use crate::session::{Ended, ImageState};
use crate::shared::{Batch, KnownIndex};

use larder_format::lease::Done;

/// Backs up these images as one batch.
///
/// # Errors
/// The batch could not begin. Everything else is in the report.
pub fn run(
    context: &JobContext,
    images: &[FleetImage],
    sources: &mut dyn Sources,
    options: &FleetOptions,
) -> Result<BatchReport, FleetError> {
    let Begun { keeper, planned, .. } = begin::begin(context, images, options.partitions, &options.program, None)?;
    let result = planned.and_then(|planned| {
        let Planned { id, plan, newest, index } = planned;
        let newest = sharable(newest);
        let hosts_here = begin::hosts_at_once(&plan.hosts);
        let batch = Batch::new(context, options, id, plan, KnownIndex::new(index), newest, None, hosts_here)?;
        context.progress.expect(images.len() as u64, 0);
        Ok(all(&batch, images, sources))
    });
    // No other process works on it, and a reader leaves nothing to adopt: it is over in any case.
    keeper.end(Ending::Closed(Done::nothing()));
    result
}

/// Versions whose containers others may share.
pub(crate) fn sharable(mut newest: Vec<Version>) -> Vec<Version> {
    newest.retain(|version| version.summary.layout == larder_format::layout::Layout::Standard);
    newest
}

fn all(batch: &Batch<'_>, images: &[FleetImage], sources: &mut dyn Sources) -> BatchReport {
    let mut member = Member::new(batch, sources);
    let ended_by = loop {
        match member.step(&mut MemoryQueue) {
            Ok(Step::Done) => {}
            Ok(Step::Over) => break None,
            Ok(Step::Idle) => break Some(FleetError::NoPlace),
            // Other rounds need less.
            Err(error) => match error.full_scratch().map(|_| member.end_round_early(&error)) {
                Some(Ok(true)) => {}
                Some(Err(other)) => break Some(other),
                Some(Ok(false)) | None => break Some(error),
            },
        }
    };
    let (mut states, mut stored_bytes): (Vec<ImageState>, u64) =
        (images.iter().map(|_| ImageState::default()).collect(), 0);
    for Ended { images, stored_bytes: of_host } in member.end(ended_by.is_none()) {
        stored_bytes += of_host;
        for (number, state) in images {
            states[number as usize] = state;
        }
    }
    let all = states.into_iter().zip(images).zip(&batch.plan.images);
    let reports = all.map(|((state, image), planned)| ImageReport {
        image: image.clone(),
        job: planned.job,
        result: match (state.summary, state.failure) {
            (Some(summary), _) => Ok(summary),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(ImageFailure { stage: Stage::Finish, error: None }),
        },
        map: state.map,
        no_map: state.no_map,
        reread_bytes: state.reread_bytes,
        remark: None,
    });
    BatchReport {
        batch: batch.id,
        images: reports.collect(),
        ended_by,
        stored_bytes,
        asked_index: batch.context.repository.keys().secrets().index.is_some(),
        memory: high_water(),
    }
}
