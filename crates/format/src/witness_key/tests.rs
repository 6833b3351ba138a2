//! The witness covers what tells the contents, and nothing in which later generations differ.

use super::*;
use crate::content::ContentRoots;
use crate::ids::{ContentDigest, DomainId, JobId};
use crate::manifest::{Origin, SourceKind, Statistics};

fn key(secret: u8) -> WitnessKey {
    WitnessKey::new(&Secret([secret; 32]), RepositoryId([1; 16]))
}

fn summary() -> Summary {
    Summary {
        id: JobId([2; 16]),
        series: "host:/".to_owned(),
        base: None,
        time_ms: 1,
        started_ms: 2,
        ended_ms: 3,
        host: "host".to_owned(),
        user: "alice".to_owned(),
        tags: vec!["daily".to_owned()],
        paths: vec![b"/".to_vec()],
        program: "larder".to_owned(),
        source: SourceKind::Tree,
        statistics: Statistics::default(),
        attempt: [4; 16],
        sketch: Sketch::default(),
        layout: Layout::Standard,
        more_bases: Vec::new(),
        roots: ContentRoots { data: ContentDigest([5; 32]), metadata: ContentDigest([6; 32]) },
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
        domain: DomainId::DEFAULT,
        is_signed: false,
    }
}

fn witnessed() -> Summary {
    Summary { witness: Some(key(7).witness(&summary())), ..summary() }
}

#[test]
fn version_2_bytes_never_change() {
    let witness = key(7).witness(&summary());
    assert_eq!(
        (hex::encode(witness.id), hex::encode(witness.mac)),
        ("286cdb549a7cb53c".to_owned(), "980570a54f5711f8a5895685fe89f3b6".to_owned())
    );
    assert_eq!(
        hex::encode(cbor::encode(&witness)),
        ["5818", "286cdb549a7cb53c", "980570a54f5711f8a5895685fe89f3b6"].concat()
    );
}

#[test]
fn a_machine_recognises_what_it_made_and_nothing_else() {
    assert!(key(7).made(&witnessed()));
    assert!(!key(7).made(&summary()), "no witness");
    assert!(!key(8).made(&witnessed()), "the secret of another machine");
    let elsewhere = WitnessKey::new(&Secret([7; 32]), RepositoryId([2; 16]));
    assert!(!elsewhere.made(&witnessed()), "another repository");
}

/// What a client could claim beside a witness that it copied.
#[test]
fn every_field_that_tells_the_contents_is_covered() {
    let roots = ContentRoots { data: ContentDigest([9; 32]), ..summary().roots };
    let forged = [
        Summary { id: JobId([3; 16]), ..witnessed() },
        Summary { series: "other:/".to_owned(), ..witnessed() },
        Summary { roots, ..witnessed() },
        Summary { domain: DomainId([1; 16]), ..witnessed() },
        Summary { started_ms: u64::MAX, ..witnessed() },
        Summary { source: SourceKind::Stream, ..witnessed() },
        Summary { paths: vec![b"/etc".to_vec()], ..witnessed() },
        Summary { origin: Some(Origin::of(RepositoryId([1; 16]), &summary())), ..witnessed() },
    ];
    for summary in forged {
        assert!(!key(7).made(&summary), "{summary:?}");
    }
}

/// A later generation has the witness of the first.
#[test]
fn fields_of_a_generation_are_not_covered() {
    let first = Summary { sketch: Sketch::new(vec![1, 2]), ..witnessed() };
    let later = Summary {
        attempt: [8; 16],
        layout: Layout::Lifecycle,
        program: "larder of next year".to_owned(),
        is_signed: true,
        ..witnessed()
    };
    assert!(later.is_generation_of(&first));
    assert!(key(7).made(&first));
    assert!(key(7).made(&later));
}

#[test]
fn other_lengths_are_refused() {
    for len in [0, 23, 25] {
        let bytes = cbor::encode(&minicbor::bytes::ByteVec::from(vec![0; len]));
        assert!(cbor::decode::<Witness>(&bytes, "witness").is_err(), "{len}");
    }
}
