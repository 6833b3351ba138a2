//! Whether the newest index is right, for a check of the repository.
//!
//! [`index_check`](crate::index_check) compares; this finds the newest index. It looks again if
//! another pass published one meanwhile and deleted objects of the older one. Takes no lease,
//! because it reads no contents. The second look tells objects that were deleted meanwhile from
//! errors.
//!
//! `after_check`: combines the result with that of a check of versions and containers.
//!
//! Costs a read for every manifest and every container's tables, and a sort of all chunks (on disk
//! beyond the memory of a pass). Memory is some 200 bytes a container.

mod after_check;

use larder_format::ids::JobId;
use larder_index::{Current, IndexPass, PassRuns};
use larder_job::JobContext;

use crate::error::PassError;
use crate::index_check::{IndexCheck, index_check_watched};
use crate::tables::{IndexWork, Limits, MEMORY_DEFAULT, index_pass};

pub use after_check::{IndexState, prove_after};

/// How often a newer index is checked instead.
const ATTEMPTS: u32 = 8;

/// The findings about the newest index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Its number; 0: there is none, or passes kept publishing, and nothing was compared.
    pub number: u64,
    /// The result of the comparison.
    pub check: IndexCheck,
}

/// Compares the newest index with containers and versions, as the store has them.
pub async fn prove(context: &JobContext) -> Result<Proof, PassError> {
    let repository = context.repository.through(context.repository.store().without_cache());
    for attempt in 1.. {
        let index = Current::look(&repository).await?.base()?;
        let number = index.number;
        if number == 0 {
            return Ok(Proof::default());
        }
        let (progress, cancel) = (context.progress.clone(), context.cancel.clone());
        let limits = Limits::of_memory(MEMORY_DEFAULT);
        let work = IndexWork { executor: &context.executor, repository: &repository, limits };
        let compared = work
            .run(move |io| {
                // It writes nothing, so its runs need no name.
                let pass: IndexPass = index_pass(io, PassRuns::new(JobId([0; 16])), limits);
                index_check_watched(&pass, &index, &*progress, &cancel)
            })
            .await;
        let is_clean = matches!(&compared, Ok(Some(check)) if check.count == 0);
        if !is_clean && !context.cancel.is_cancelled() {
            let newest = Current::look(&repository).await?.base()?;
            match newest.number != number {
                true if attempt < ATTEMPTS => continue,
                true => return Ok(Proof::default()),
                false => {}
            }
        }
        return match compared? {
            Some(check) => Ok(Proof { number, check }),
            None => Err(PassError::Interrupted),
        };
    }
    unreachable!("the last attempt returns")
}
