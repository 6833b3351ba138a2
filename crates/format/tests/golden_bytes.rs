//! The bytes of the structures that lie inside containers, and of the paper key, never change.
//!
//! Sealed objects have their golden bytes beside their code, because their salts are arguments there.

mod support;

use larder_format::key_file::{from_paper, to_paper};
use larder_format::seal::MasterKey;
use larder_format::segment::Segment;
use larder_format::{metadata, recipe, segment};

fn golden(text: &str) -> Vec<u8> {
    hex::decode(text.split_whitespace().collect::<String>()).expect("valid hex")
}

#[test]
fn segment_version_1() {
    let golden = golden(include_str!("golden/segment_v1.hex"));
    assert_eq!(
        hex::encode(segment::encode(&support::records(), &support::superchunks()).expect("valid")),
        hex::encode(&golden)
    );
    let superchunks = support::superchunks();
    assert_eq!(segment::decode(&golden), Ok(Segment { records: support::records(), superchunks }));
}

#[test]
fn segment_version_1_with_even_sizes() {
    let golden = golden(include_str!("golden/segment_even_v1.hex"));
    let records = &support::records()[3..5];
    assert_eq!(hex::encode(segment::encode(records, &[]).expect("valid")), hex::encode(&golden));
    assert_eq!(segment::decode(&golden), Ok(Segment { records: records.to_vec(), superchunks: Vec::new() }));
}

#[test]
fn recipe_node_version_2() {
    let golden = golden(include_str!("golden/recipe_node_v2.hex"));
    assert_eq!(hex::encode(recipe::encode_node(&support::segments()).expect("valid")), hex::encode(&golden));
    assert_eq!(recipe::decode_node(&golden), Ok(support::segments()));
}

#[test]
fn metadata_block_version_1() {
    let golden = golden(include_str!("golden/metadata_block_v1.hex"));
    let mut builder = metadata::BlockBuilder::new();
    assert!(support::entries().iter().all(|entry| builder.push(entry) == Ok(None)), "all fit one block");
    let block = builder.finish().expect("a block");
    assert_eq!(hex::encode(&block.bytes), hex::encode(&golden));
    assert_eq!(metadata::decode_block(&golden), Ok(support::entries()));
}

#[test]
fn paper_key_version_1() {
    let golden = include_str!("golden/paper_key_v1.txt");
    let master = MasterKey(std::array::from_fn(|n| n as u8 * 7));
    assert_eq!(to_paper(&master, support::REPOSITORY).join("\n"), golden.trim());
    let (read, repository) = from_paper(golden).expect("reads");
    assert_eq!((read.0, repository), (master.0, support::REPOSITORY));
}

/// The chain from the master key to the keys in use: another derivation would make every repository unreadable.
#[test]
fn key_derivation_version_1() {
    let keys = support::keys();
    assert_eq!(hex::encode(keys.fingerprint), include_str!("golden/fingerprint_key_v1.hex").trim());
    assert_eq!(hex::encode(keys.chunking), include_str!("golden/chunking_key_v1.hex").trim());
    assert_eq!(hex::encode(keys.runs), include_str!("golden/runs_key_v1.hex").trim());
    assert_eq!(keys.series_key("host:/home"), support::SERIES);
    assert_eq!(support::SERIES.to_string(), include_str!("golden/series_key_v1.hex").trim());
}
