//! Sketches: a few fingerprints of the head of a stream, by which similar streams find each other.
//!
//! A sketch is a CBOR byte string of samples, 8 bytes little-endian each: the first 64 bits of
//! fingerprints. The fingerprints alone decide which chunks are sampled: those that end in most
//! zero bits first. So two streams that share chunks share samples, wherever the chunks are. A
//! sketch only affects how many duplicates are found. A reader may ignore it, and it says nothing
//! about the content of a version.

use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

/// Samples of one sketch at most.
pub const SKETCH_SAMPLES_MAX: usize = 256;

/// The samples of one stream; empty when there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch(Vec<u64>);

impl Sketch {
    /// A sketch of these samples, or of those of them that come first.
    pub fn new(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable_by_key(|sample| rank(*sample));
        samples.dedup();
        samples.truncate(SKETCH_SAMPLES_MAX);
        Self(samples)
    }

    /// Whether it holds no sample.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The samples, by rising [`rank`].
    pub fn samples(&self) -> &[u64] {
        &self.0
    }

    /// The rank up to which it is complete: samples behind it may have been left out for lack of
    /// room.
    pub fn reach(&self) -> u64 {
        match self.0.last() {
            Some(last) if self.0.len() == SKETCH_SAMPLES_MAX => rank(*last),
            _ => u64::MAX,
        }
    }
}

/// The order of samples: those with most zero bits at their end come first.
pub fn rank(sample: u64) -> u64 {
    sample.reverse_bits()
}

impl<C> Encode<C> for Sketch {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        e.bytes(&bytes)?.ok()
    }

    fn is_nil(&self) -> bool {
        self.is_empty()
    }
}

impl<'b, C> Decode<'b, C> for Sketch {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        let (samples, rest) = d.bytes()?.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Error::message("a sketch ends within a sample"));
        }
        Ok(Self::new(samples.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()))
    }

    fn nil() -> Option<Self> {
        Some(Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_roundest_samples_are_kept_and_the_reach_says_so() {
        let sketch = Sketch::new((1..=1024).collect());
        assert_eq!(sketch.samples().len(), SKETCH_SAMPLES_MAX);
        assert_eq!(sketch.samples()[0], 1024);
        assert!(sketch.samples().iter().all(|sample| sample.is_multiple_of(4)));
        assert_eq!(sketch.reach(), rank(sketch.samples()[255]));
        assert_eq!(Sketch::new(vec![5, 5, 4]), Sketch::new(vec![4, 5]));
        assert_eq!(Sketch::new(vec![5]).reach(), u64::MAX);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(samples in prop::collection::vec(any::<u64>(), 0..400)) {
            let sketch = Sketch::new(samples);
            let bytes = crate::cbor::encode(&sketch);
            prop_assert_eq!(crate::cbor::decode::<Sketch>(&bytes, "sketch"), Ok(sketch));
        }
    }
}
