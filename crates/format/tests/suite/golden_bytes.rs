//! The bytes of the structures that lie inside containers, and of the paper key, never change.
//!
//! Sealed objects have their golden bytes beside their code, because their salts are arguments there.

use std::path::PathBuf;

use larder_format::key_file::{from_paper, to_paper};
use larder_format::keys::{DomainSecrets, MasterKey, Secrets};
use larder_format::recipe::SegmentRef;
use larder_format::segment::{ChunkRecord, Segment};
use larder_format::{Fingerprint, difference, metadata, recipe, segment};

use crate::support;

/// Asserts that a structure has the bytes of its golden file, and gives these. With `LARDER_BLESS=1`
/// in the environment, it writes the file instead. That is for a new version of a structure only.
#[track_caller]
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &format!("{name}.hex")].iter().collect();
    if std::env::var_os("LARDER_BLESS").is_some() {
        let lines: Vec<_> = bytes.chunks(64).map(hex::encode).collect();
        std::fs::write(&path, lines.join("\n") + "\n").expect("a golden file can be written");
    }
    let text: String = std::fs::read_to_string(&path).expect("a golden file").split_whitespace().collect();
    assert_eq!(hex::encode(bytes), text, "{name}");
    hex::decode(text).expect("valid hex")
}

#[test]
fn segment_version_2() {
    let encoded = segment::encode(&support::records(), &support::superchunks()).expect("valid");
    let golden = golden("segment_v2", &encoded);
    let superchunks = support::superchunks();
    assert_eq!(segment::decode(&golden), Ok(Segment { records: support::records(), superchunks }));
}

#[test]
fn segment_version_2_with_even_sizes() {
    let records = &support::records()[3..5];
    let golden = golden("segment_even_v2", &segment::encode(records, &[]).expect("valid"));
    assert_eq!(segment::decode(&golden), Ok(Segment { records: records.to_vec(), superchunks: Vec::new() }));
}

#[test]
fn recipe_node_version_3() {
    let golden = golden("recipe_node_v3", &recipe::encode_node(&support::segments()).expect("valid"));
    assert_eq!(recipe::decode_node(&golden), Ok(support::segments()));
}

/// Version 2 had no bases. It is read, and no longer written.
#[test]
fn recipe_node_version_2() {
    let whole = |segment| SegmentRef { bases: Vec::new(), ..segment };
    let segments: Vec<_> = support::segments().into_iter().map(whole).collect();
    let text: String = include_str!("../golden/recipe_node_v2.hex").split_whitespace().collect();
    assert_eq!(recipe::decode_node(&hex::decode(text).expect("valid hex")), Ok(segments));
}

#[test]
fn difference_version_2() {
    let base = Segment { records: support::records(), superchunks: support::superchunks() };
    let mut changed = base.clone();
    changed.records.remove(0);
    changed.records[2].chunk.fingerprint.0[0] ^= 1;
    changed.superchunks.clear();
    let encoded = difference::encode(&Fingerprint([5; 32]), &base, &changed, 9).expect("valid").expect("few are new");
    let golden = golden("difference_v2", &encoded);
    assert_eq!(difference::decode(&golden, &Fingerprint([5; 32]), &base), Ok(changed));
}

/// Superchunks of the base stay.
#[test]
fn difference_version_3() {
    let base = Segment { records: support::records(), superchunks: support::superchunks() };
    let mut changed = base.clone();
    changed.records.push(ChunkRecord { born: base.records[1].born, ..base.records[0] });
    let encoded = difference::encode(&Fingerprint([5; 32]), &base, &changed, 9).expect("valid").expect("few are new");
    let golden = golden("difference_v3", &encoded);
    assert_eq!(difference::decode(&golden, &Fingerprint([5; 32]), &base), Ok(changed));
}

#[test]
fn metadata_block_version_2() {
    let mut builder = metadata::BlockBuilder::new();
    assert!(support::entries().iter().all(|entry| builder.push(entry) == Ok(None)), "all fit one block");
    let block = builder.finish().expect("a block");
    let golden = golden("metadata_block_v2", &block.bytes);
    assert_eq!(metadata::decode_block(&golden), Ok(support::entries()));
}

#[test]
fn paper_key_version_1() {
    let golden = include_str!("../golden/paper_key_v1.txt");
    let master = MasterKey(std::array::from_fn(|n| n as u8 * 7));
    assert_eq!(to_paper(&master, support::REPOSITORY).join("\n"), golden.trim());
    let (read, repository) = from_paper(golden).expect("reads");
    assert_eq!((read.0, repository), (master.0, support::REPOSITORY));
}

/// The chain from the master key to the keys in use: another derivation would make every repository
/// unreadable.
#[test]
fn key_derivation_version_2() {
    let secrets = Secrets::of(&MasterKey(support::MASTER));
    let cuts = secrets.cuts.expect("all");
    let DomainSecrets::All(domains) = secrets.domains else { panic!("all") };
    for (name, secret) in [
        ("fingerprint_key_v2", secrets.fingerprints.0),
        ("chunking_key_v2", cuts.chunking.0),
        ("runs_key_v2", cuts.runs.0),
        ("names_key_v2", secrets.names.0),
        ("common_key_v2", secrets.common.0),
        ("domains_key_v2", domains.0),
        ("bind_key_v2", secrets.bind.expect("all").0),
        ("open_key_v2", secrets.open.expect("all").0),
        ("index_key_v2", secrets.index.expect("all").0),
        ("sign_key_v2", secrets.sign.expect("all").0),
        ("operator_public_v2", secrets.operator_public),
        ("opening_hash_v2", secrets.opening_hash),
    ] {
        golden(name, &secret);
    }
    let keys = support::keys();
    golden("opening_public_v2", keys.opening_public().as_bytes());
    golden("run_mac_key_v2", &keys.run_mac().expect("all")[..]);
    assert_eq!(keys.series_key("host:/home"), support::SERIES);
    golden("series_key_v2", &support::SERIES.0);
    golden("domain_id_v2", &keys.domain_id("laptop", 1).0);
    golden("series_of_domain_v2", &keys.series_key_in(keys.domain_id("laptop", 1), "host:/home").0);
}
