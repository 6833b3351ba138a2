//! The one place that makes chunkers.

use crate::chunker::Chunker;
use crate::fastcdc::FastCdc;
use crate::fixed::Fixed;
use crate::mincdc::{Cipher, MinCdc, Multiply, Order};
use crate::params::{Algorithm, ChunkerParams, ParamsError};
use crate::rabin::Rabin;

/// Makes the chunker for these parameters. `seed` is secret and belongs to the repository. Of the
/// orders of MinCDC, only [`Algorithm::MinCdcAes`] keeps it from an observer who knows contents and
/// lengths of chunks.
///
/// # Errors
/// When the parameters are not valid.
pub fn chunker(params: ChunkerParams, seed: &[u8; 32]) -> Result<Box<dyn Chunker>, ParamsError> {
    params.validate()?;
    Ok(match params.algorithm {
        Algorithm::MinCdc => Box::new(MinCdc::<Multiply>::new(params, seed)),
        Algorithm::FastCdc => Box::new(FastCdc::new(params, seed)),
        Algorithm::Rabin => Box::new(Rabin::new(params, seed)),
        Algorithm::Fixed => Box::new(Fixed::new(params)),
        Algorithm::MinCdcAes => Box::new(MinCdc::<Cipher>::new(params, seed)),
    })
}

/// A chunker and the name of its kernel.
#[doc(hidden)]
pub type NamedChunker = (String, Box<dyn Chunker>);

/// One chunker for each kernel of MinCDC that this machine runs, in both orders, the slowest of
/// each first. For measurements: [`chunker`] takes the fastest.
///
/// # Errors
/// When the mean gives no valid parameters.
#[doc(hidden)]
pub fn chunkers_by_kernel(average: u32, seed: &[u8; 32]) -> Result<Vec<NamedChunker>, ParamsError> {
    let mut chunkers = Vec::new();
    add_kernels::<Multiply>(average, seed, &mut chunkers)?;
    add_kernels::<Cipher>(average, seed, &mut chunkers)?;
    Ok(chunkers)
}

fn add_kernels<O: Order>(average: u32, seed: &[u8; 32], chunkers: &mut Vec<NamedChunker>) -> Result<(), ParamsError> {
    let params = ChunkerParams::with_average(O::ALGORITHM, average);
    params.validate()?;
    for kernel in O::kernels() {
        let name = format!("{} {kernel:?}", O::ALGORITHM).replace("(Available(()))", "");
        chunkers.push((name, Box::new(MinCdc::<O>::with_kernel(params, seed, kernel))));
    }
    Ok(())
}
