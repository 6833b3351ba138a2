//! Structures of version 1, which development versions wrote, are refused by name.

use crate::config::UnverifiedConfig;
use crate::extents::Extents;
use crate::golden::keys;
use crate::ids::{ContainerId, ContainerKind, JobId, RunId, SeriesKey, SettingsOf};
use crate::index_manifest::{IndexHead, IndexManifest};
use crate::index_mark::IndexMark;
use crate::index_tables::ContainerFacts;
use crate::lease::{Done, Lease};
use crate::manifest::{Manifest, Summary};
use crate::mark::Forgotten;
use crate::pinning::PinEntry;
use crate::run::{RunIndex, RunKey};
use crate::settings::SeriesSettings;
use crate::{DecodeError, key_file, metadata, recipe, segment};

const JOB: JobId = JobId([7; 16]);
const SERIES: SeriesKey = SeriesKey([6; 16]);

/// An object that begins like one of version 1.
fn object(magic: &[u8; 4]) -> Vec<u8> {
    [&magic[..], &[1, 1, 0, 0], &[9; 200]].concat()
}

#[test]
fn every_structure_of_a_development_version_is_refused_by_name() {
    let (keys, rows) = (keys(), [1; 60]);
    let tail = |magic: &[u8; 3]| [&[9; 2000][..], magic, &[1]].concat();
    let id = |kind| ContainerId { kind, job: JOB, seq: 0 };
    let container = |kind| {
        let bytes = tail(b"LCT");
        crate::container::ContainerIndex::decode(&keys, id(kind), &bytes, bytes.len() as u64).err()
    };
    let run = RunKey::of(&keys, RunId { job: JOB, seq: 0 }).expect("all keys");
    let refused = [
        UnverifiedConfig::decode(&object(b"LCFG")).err(),
        key_file::read_fields(&object(b"LKEY")).err(),
        Lease::decode(&keys, JOB, 0, &object(b"LLSE")).err(),
        Done::decode(&keys, JOB, &object(b"LDON")).err(),
        Manifest::decode(&keys, SERIES, JOB, 0, &object(b"LMAN")).err(),
        Manifest::decode(&keys, SERIES, JOB, 0, &object(b"LABT")).err(),
        Summary::decode_head(&keys, SERIES, JOB, 0, &object(b"LABT")).err(),
        Forgotten::decode(&keys, SERIES, JOB, &object(b"LFGT")).err(),
        PinEntry::decode(&keys, SERIES, JOB, 0, &object(b"LPIN")).err(),
        SeriesSettings::decode(&keys, SettingsOf::Default, 0, &object(b"LSET")).err(),
        IndexManifest::decode(&keys, 5, &object(b"LIDX")).err(),
        IndexMark::decode(&keys, 5, &object(b"LIXM")).err(),
        container(ContainerKind::Data),
        container(ContainerKind::Meta),
        RunIndex::decode(&run, &tail(b"LRN"), 2004).err(),
        segment::decode(&rows).err(),
        recipe::decode_node(&rows).err(),
        metadata::decode_block(&rows).err(),
        Extents::decode(&rows).err(),
        ContainerFacts::decode(&rows).err(),
    ];
    for (number, error) in refused.into_iter().enumerate() {
        assert!(matches!(error, Some(DecodeError::Development { .. })), "{number}: {error:?}");
    }
}

/// A listing reads the first bytes alone, which in version 1 had the length of the first part elsewhere.
#[test]
fn heads_of_a_development_version_are_refused_by_name() {
    let keys = keys();
    let head = Summary::decode_head(&keys, SERIES, JOB, 0, &object(b"LMAN"));
    assert!(matches!(head, Err(DecodeError::Development { .. })), "{head:?}");
    let head = IndexHead::decode_head(&keys, 5, &object(b"LIDX"));
    assert!(matches!(head, Err(DecodeError::Development { .. })), "{head:?}");
}
