//! Rabin chunking: the remainder of the last 64 bytes modulo a secret polynomial decides.
//!
//! Bytes are polynomials over the field of two elements. The hash of a place is the remainder of
//! the 64 bytes before it modulo an irreducible polynomial of degree 53. Two tables keep it up to
//! date. A place is a cut when the remainder is in the top `1/(average - min)` of all remainders.
//! The top and not the bottom: the remainder of zeros is zero, and a run of zeros must not be cut
//! at every min.
//!
//! The polynomial is drawn from the seed. The hash of a place depends on the same 64 bytes in every
//! chunk, because min holds a whole window.
//!
//! Used for comparison with the papers, where it is the standard; it is some thirty times slower
//! than MinCDC.

use crate::chunker::Chunker;
use crate::params::ChunkerParams;
use crate::seed::SeedStream;

/// Bytes that a hash depends on.
const WINDOW: usize = 64;

/// Degree of the polynomial. Prime, which makes the test for irreducibility short; and small enough
/// that a remainder shifted by a byte still fits a word.
const DEGREE: u32 = 53;
const _: () = assert!(DEGREE + 8 <= u64::BITS);

/// See the module's header.
pub(crate) struct Rabin {
    params: ChunkerParams,
    threshold: u64,
    tables: Box<Tables>,
}

struct Tables {
    /// By the 8 bits that a shift pushes beyond the degree: the value that removes them and adds
    /// their remainder.
    reduce: [u64; 256],
    /// By the byte that leaves the window: its contribution to the hash.
    leave: [u64; 256],
}

impl Rabin {
    pub(crate) fn new(params: ChunkerParams, seed: &[u8; 32]) -> Self {
        let range = 1_u64 << DEGREE;
        let threshold = range - range / u64::from(params.average - params.min);
        let mut stream = SeedStream::new(seed, "larder rabin 1");
        loop {
            let polynomial = irreducible(&mut stream);
            let tables = Tables::new(polynomial);
            // A run of one byte value has one hash everywhere. If it qualified, such a run would be
            // cut at every min.
            let runs_qualify = (0..=255).any(|byte| tables.hash(&[byte; WINDOW]) >= threshold);
            if !runs_qualify {
                break Self { params, threshold, tables: Box::new(tables) };
            }
        }
    }
}

impl Tables {
    fn new(polynomial: u64) -> Self {
        let reduce = std::array::from_fn(|bits| {
            let high = (bits as u64) << DEGREE;
            high | remainder(u128::from(high), polynomial)
        });
        let mut tables = Self { reduce, leave: [0; 256] };
        for byte in 0..=255 {
            let mut window = [0; WINDOW];
            window[0] = byte;
            tables.leave[usize::from(byte)] = tables.hash(&window);
        }
        tables
    }

    fn append(&self, hash: u64, byte: u8) -> u64 {
        let shifted = hash << 8 | u64::from(byte);
        shifted ^ self.reduce[(shifted >> DEGREE) as usize]
    }

    fn hash(&self, window: &[u8]) -> u64 {
        window.iter().fold(0, |hash, &byte| self.append(hash, byte))
    }
}

impl Chunker for Rabin {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let min = self.params.min as usize;
        let last = data.len().min(self.params.max as usize);
        if last <= min {
            return last;
        }
        let mut hash = self.tables.hash(&data[min - WINDOW..min]);
        let pairs = data[min - WINDOW..].iter().zip(&data[min..last]);
        for (offset, (&leaving, &entering)) in pairs.enumerate() {
            if hash >= self.threshold {
                return min + offset;
            }
            hash = self.tables.append(hash ^ self.tables.leave[usize::from(leaving)], entering);
        }
        last
    }

    fn is_worth_predicting(&self) -> bool {
        true
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        let min = self.params.min as usize;
        let last = data.len().min(self.params.max as usize);
        let qualifies = || self.tables.hash(&data[length - WINDOW..length]) >= self.threshold;
        length == last || ((min..last).contains(&length) && qualifies())
    }
}

/// Draws polynomials until one is irreducible: about one in thirteen of those tried is.
fn irreducible(stream: &mut SeedStream) -> u64 {
    loop {
        let low = stream.next_u64() & ((1 << DEGREE) - 1);
        let candidate = 1 << DEGREE | low | 1;
        if is_irreducible(candidate) {
            return candidate;
        }
    }
}

/// Rabin's test. Since the degree is prime, a polynomial is irreducible when it has no root 0 or 1,
/// and x^(2^degree) = x modulo it.
fn is_irreducible(polynomial: u64) -> bool {
    const X: u64 = 2;
    let has_root = polynomial & 1 == 0 || polynomial.count_ones().is_multiple_of(2);
    !has_root && (0..DEGREE).fold(X, |power, _| remainder(square(power), polynomial)) == X
}

/// Over two elements, squaring puts a zero between all bits.
fn square(value: u64) -> u128 {
    (0..DEGREE).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum | 1 << (2 * bit))
}

fn remainder(mut value: u128, polynomial: u64) -> u64 {
    for bit in (DEGREE..u128::BITS).rev() {
        if value >> bit & 1 == 1 {
            value ^= u128::from(polynomial) << (bit - DEGREE);
        }
    }
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Algorithm;

    #[test]
    fn irreducibility_test_knows_products() {
        let mut stream = SeedStream::new(&[1; 32], "test");
        let polynomial = irreducible(&mut stream);
        assert!(is_irreducible(polynomial));
        // x^53 + 1 has the root 1; and (x^2 + x + 1) * (x^51 + x + 1) has no root but two factors.
        assert!(!is_irreducible(1 << 53 | 1));
        let factor = 1_u64 << 51 | 0b11;
        assert!(!is_irreducible(factor << 2 ^ factor << 1 ^ factor));
    }

    #[test]
    fn rolling_hash_equals_the_hash_of_the_window() {
        let params = ChunkerParams::with_average(Algorithm::Rabin, 512);
        let chunker = Rabin::new(params, &[3; 32]);
        let mut stream = SeedStream::new(&[4; 32], "test data");
        let data: Vec<u8> = (0..30_000).map(|_| stream.next_u32() as u8).collect();
        for start in (0..28_000).step_by(41) {
            let rest = &data[start..];
            let last = rest.len().min(params.max as usize);
            let expected = (params.min as usize..last)
                .find(|&length| chunker.tables.hash(&rest[length - WINDOW..length]) >= chunker.threshold)
                .unwrap_or(last);
            assert_eq!(chunker.next_cut(rest), expected, "from {start}");
        }
    }
}
