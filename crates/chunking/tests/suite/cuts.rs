//! Every cut depends only on the chunk's start, the content, the parameters and the seed.

use larder_chunking::{Algorithm, Chunker, ChunkerParams, StreamEnd, chunker};
use proptest::prelude::*;

/// Those that cut by content.
const BY_CONTENT: [Algorithm; 4] = [Algorithm::MinCdc, Algorithm::FastCdc, Algorithm::Rabin, Algorithm::MinCdcAes];

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Dense bytes with stretches of runs and repetitions between them.
fn mixed() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u64>(), 0..6000_usize).prop_map(|(seed, length)| content(seed, length)),
        (any::<u8>(), 0..6000_usize).prop_map(|(byte, length)| vec![byte; length]),
        (proptest::collection::vec(any::<u8>(), 1..40), 0..3000_usize).prop_map(|(period, length)| period
            .into_iter()
            .cycle()
            .take(length)
            .collect()),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn make(algorithm: Algorithm, average: u32, seed: &[u8; 32]) -> Box<dyn Chunker> {
    chunker(ChunkerParams::with_average(algorithm, average), seed).expect("parameters are valid")
}

fn cut(chunker: &dyn Chunker, data: &[u8]) -> Vec<u32> {
    let mut lengths = Vec::new();
    assert_eq!(chunker.cut_all(data, StreamEnd::Reached, &mut lengths), data.len());
    lengths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn chunks_cover_the_stream_within_bounds(data in mixed(), average in 256..3000_u32, seed in any::<[u8; 32]>()) {
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm, average, &seed);
            let params = chunker.params();
            let lengths = cut(&*chunker, &data);
            prop_assert_eq!(lengths.iter().sum::<u32>() as usize, data.len());
            prop_assert!(lengths.iter().all(|&length| length <= params.max && length > 0));
            let before_last = &lengths[..lengths.len().saturating_sub(1)];
            prop_assert!(before_last.iter().all(|&length| length >= params.min));
        }
    }

    /// However the stream arrives, in buffers of whatever size, the cuts are those of the whole.
    #[test]
    fn buffers_do_not_matter(data in mixed(), reads in proptest::collection::vec(1..9000_usize, 1..20)) {
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm, 512, &[1; 32]);
            let mut lengths = Vec::new();
            let mut buffer = Vec::new();
            let mut rest = data.as_slice();
            for count in reads.iter().cycle() {
                let (read, behind) = rest.split_at((*count).min(rest.len()));
                buffer.extend_from_slice(read);
                rest = behind;
                let end = if rest.is_empty() { StreamEnd::Reached } else { StreamEnd::Open };
                let used = chunker.cut_all(&buffer, end, &mut lengths);
                if end == StreamEnd::Open {
                    prop_assert!(buffer.len() - used < chunker.params().max as usize);
                }
                buffer.drain(..used);
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(lengths, cut(&*chunker, &data), "{}", algorithm);
        }
    }

    /// Nothing before a chunk's start matters: cutting from any cut on gives the rest of the cuts.
    #[test]
    fn nothing_is_carried_over_a_cut(data in mixed(), lead in mixed()) {
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm, 512, &[2; 32]);
            let mut joined = lead.clone();
            joined.extend_from_slice(&data);
            prop_assert_eq!(cut(&*chunker, &joined[lead.len()..]), cut(&*chunker, &data));
            let lengths = cut(&*chunker, &data);
            for (index, &length) in lengths.iter().enumerate().step_by(3) {
                let start: u32 = lengths[..index].iter().sum();
                prop_assert_eq!(chunker.next_cut(&data[start as usize..]), length as usize);
                prop_assert_eq!(&cut(&*chunker, &data[start as usize..])[..], &lengths[index..], "{}", algorithm);
            }
        }
    }

    /// No byte beyond max matters either.
    #[test]
    fn nothing_beyond_max_is_looked_at(data in mixed(), other in mixed()) {
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm, 512, &[3; 32]);
            let max = chunker.params().max as usize;
            if data.len() >= max {
                let length = chunker.next_cut(&data);
                prop_assert_eq!(chunker.next_cut(&data[..max]), length);
                prop_assert_eq!(chunker.next_cut(&[&data[..max], &other].concat()), length);
            }
        }
    }

    /// A chunk cut somewhere, met again in front of anything else, or of nothing: confirmed exactly when it is cut again.
    #[test]
    fn a_known_chunk_is_confirmed_exactly_where_it_is_cut_again(data in mixed(), other in mixed()) {
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm, 512, &[5; 32]);
            let mut lengths = Vec::new();
            chunker.cut_all(&data, StreamEnd::Reached, &mut lengths);
            let mut at = 0;
            for length in lengths.into_iter().map(|length| length as usize) {
                let known = &data[at..at + length];
                at += length;
                for behind in [&other[..], &other[..other.len().min(100)], &[]] {
                    let met = [known, behind].concat();
                    prop_assert_eq!(chunker.confirms(&met, length), chunker.next_cut(&met) == length, "{}", algorithm);
                }
            }
        }
    }
}

/// Goal: an insertion disturbs the cuts around it and no others. Method: cut a stream before and after, compare chunks as
/// content. Guards against state that leaks over a cut.
#[test]
fn an_insertion_is_forgotten_after_a_few_chunks() {
    let data = content(5, 400_000);
    let edited = [&data[..100_000], b"inserted", &data[100_000..]].concat();
    for algorithm in BY_CONTENT {
        let chunker = make(algorithm, 2048, &[5; 32]);
        let chunks = |data: &[u8]| {
            let mut rest = data.to_vec();
            let mut chunks = Vec::new();
            for length in cut(&*chunker, data) {
                let behind = rest.split_off(length as usize);
                chunks.push(rest);
                rest = behind;
            }
            chunks
        };
        let (before, after) = (chunks(&data), chunks(&edited));
        let new = after.iter().filter(|chunk| !before.contains(chunk)).count();
        assert!((1..=6).contains(&new), "{algorithm}: {new} new chunks");
    }
}

/// With a mean as short as this, most tables would cut the runs of some byte if they were taken as they are drawn.
#[test]
fn runs_of_any_byte_are_cut_at_max() {
    for algorithm in Algorithm::ALL {
        let chunker = make(algorithm, 256, &[6; 32]);
        let max = chunker.params().max;
        for byte in 0..=255 {
            assert_eq!(cut(&*chunker, &vec![byte; 5 * max as usize]), vec![max; 5], "{algorithm} {byte}");
        }
    }
}

/// MinCDC's even lengths and the corrected normal point of FastCDC are claims of their headers.
#[test]
fn mean_length_on_random_data_is_the_average() {
    let data = content(7, 8 << 20);
    for algorithm in Algorithm::ALL {
        for average in [1024, 3000] {
            let count = cut(&*make(algorithm, average, &[7; 32]), &data).len();
            let ratio = data.len() as f64 / count as f64 / f64::from(average);
            assert!((0.96..1.05).contains(&ratio), "{algorithm} {average}: {ratio:.3}");
        }
    }
}

#[test]
fn seeds_cut_differently_and_repeat() {
    let data = content(8, 100_000);
    for algorithm in BY_CONTENT {
        let cuts = |seed: u8| cut(&*make(algorithm, 1024, &[seed; 32]), &data);
        assert_eq!(cuts(1), cuts(1));
        assert_ne!(cuts(1), cuts(2));
    }
}

#[test]
fn empty_streams_have_no_chunks() {
    for algorithm in Algorithm::ALL {
        let chunker = make(algorithm, 1024, &[9; 32]);
        let mut lengths = Vec::new();
        assert_eq!(chunker.cut_all(&[], StreamEnd::Open, &mut lengths), 0);
        assert_eq!(chunker.cut_all(&[], StreamEnd::Reached, &mut lengths), 0);
        assert!(lengths.is_empty());
        assert_eq!(chunker.next_cut(&[]), 0);
    }
}

#[test]
fn impossible_parameters_make_no_chunker() {
    assert!(chunker(ChunkerParams::with_average(Algorithm::MinCdc, 100), &[0; 32]).is_err());
}
