//! The one place that makes chunkers.

use crate::chunker::Chunker;
use crate::fastcdc::FastCdc;
use crate::fixed::Fixed;
use crate::mincdc::MinCdc;
use crate::params::{Algorithm, ChunkerParams, ParamsError};
use crate::rabin::Rabin;

/// Makes the chunker for these parameters. `seed` is secret and belongs to the repository: without
/// it, chunk sizes do not reveal which known file was stored.
///
/// # Errors
/// When the parameters are not valid.
pub fn chunker(params: ChunkerParams, seed: &[u8; 32]) -> Result<Box<dyn Chunker>, ParamsError> {
    params.validate()?;
    Ok(match params.algorithm {
        Algorithm::MinCdc => Box::new(MinCdc::new(params, seed)),
        Algorithm::FastCdc => Box::new(FastCdc::new(params, seed)),
        Algorithm::Rabin => Box::new(Rabin::new(params, seed)),
        Algorithm::Fixed => Box::new(Fixed::new(params)),
    })
}
