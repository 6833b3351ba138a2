//! Reading an object of a run from end to end, for `check`.

use larder_format::DecodeError;
use larder_format::index_manifest::RunRef;
use larder_format::names;
use larder_format::run::{key_hash, prefix};
use larder_store::Repository;

use crate::error::{IndexError, damaged};
use crate::io::open_run;

/// Reads all of an object. It checks that every part opens and that the sums are those of the
/// manifest. It also checks that the manifest's range is within the keys, and that the filter hides
/// none of them. An error names the object.
pub async fn verify_run(repository: &Repository, run: &RunRef) -> Result<(), IndexError> {
    let (index, filter) = open_run(repository, run, true).await?;
    let name = names::run(run.id);
    let mut buffer = Vec::new();
    let mut tombstones = 0;
    for number in 0..index.blocks() {
        let sealed = repository.store().get_range(&name, index.bytes_of(number..number + 1)).await?;
        let block = index.open_block(number, &sealed, buffer).map_err(damaged(run.id))?;
        for record in 0..block.count() {
            let key = block.key(record);
            if filter.as_ref().is_some_and(|filter| !filter.admits(key_hash(key))) {
                return Err(IndexError::Hidden { id: run.id, key: key.to_vec() });
            }
            tombstones += u64::from(block.value(record).is_none());
        }
        buffer = block.into_buffer();
    }
    let invalid = |why| Err(damaged(run.id)(DecodeError::Invalid { what: "index run", why }));
    if tombstones != run.tombstones {
        return invalid("it has another number of tombstones than it says");
    }
    if run.first < prefix(index.first_key(0)) || run.last > prefix(index.last_key()) {
        return invalid("the manifest of the index says that it has keys which it has not");
    }
    Ok(())
}
