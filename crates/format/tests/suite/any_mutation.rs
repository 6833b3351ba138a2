//! Whatever is done to a valid encoding, decoding it gives an error or a valid value, never a panic.
//!
//! Damage from outside does not get past the authentication tags; this is about what lies behind them: a program with the key
//! and a bug, or somebody who has the key of one machine and wants to break another. `support/checks.rs` says what "valid" is.

use larder_format::compress::{Compression, Compressor};
use larder_format::container::ContainerIndex;
use larder_format::ids::{ContainerKind, DomainId, KeyId, SettingsOf};
use larder_format::index_manifest::IndexManifest;
use larder_format::key_file::{self, KdfCost, Unlock};
use larder_format::keys::MasterKey;
use larder_format::manifest::{Head, Manifest, Register, Summary};
use larder_format::roles::Roles;
use larder_format::run::{RunIndex, RunKey};
use larder_format::segment::Segment;
use larder_format::volume_log;
use larder_format::{Fingerprint, difference, metadata, names, recipe, segment};
use proptest::prelude::*;

use crate::mutate::{damaged, damages};
use crate::support::{self, CONTAINER, ContainerParts, Forger, JOB, RANDOM, SERIES, checks, container_parts, keys};

/// If the forger's objects did not open, the checks behind it would check nothing.
#[test]
fn the_forger_makes_what_the_crate_reads() {
    let object = Forger::new().container(CONTAINER, &container_parts());
    let index = ContainerIndex::decode(&keys(), CONTAINER, &object, object.len() as u64).expect("reads");
    assert_eq!((index.chunks.len(), index.frames().len()), (3, 2));
    checks::container(&object);
    let [summary, body] = support::manifest_parts();
    let object = Forger::new().object(&names::version(SERIES, JOB, 0), b"LMAN", &[&summary, &body]);
    assert_eq!(Manifest::decode(&keys(), SERIES, JOB, 0, &object), Ok(Register::Committed(support::manifest())));
    let [head, body] = support::index_manifest_parts();
    let object = Forger::new().object(&names::index(5), b"LIDX", &[&head, &body]);
    assert_eq!(IndexManifest::decode(&keys(), 5, &object), Ok(support::index_manifest()));
    let object = Forger::new().run(&support::run_parts());
    let index = RunIndex::decode(&RunKey::of(&keys(), support::RUN).expect("all keys"), &object, object.len() as u64)
        .expect("reads");
    let filter = index.filter_range();
    assert!(index.open_filter(&object[filter.start as usize..filter.end as usize]).expect("opens").is_some());
    for (number, records) in [(0, 3), (1, 2)] {
        let range = index.bytes_of(number..number + 1);
        let sealed = &object[range.start as usize..range.end as usize];
        assert_eq!(index.open_block(number, sealed, Vec::new()).expect("opens").count(), records);
    }
    checks::run(&object);
}

#[test]
fn tables_that_claim_to_be_longer_than_their_object_are_refused() {
    for lens in [
        [Some(u32::MAX), Some(u32::MAX), None],
        [Some(10_000), None, None],
        [None, Some(u32::MAX), None],
        [None, None, Some(31)],
        [None, None, Some(u32::MAX)],
    ] {
        let object = Forger::new().container(CONTAINER, &ContainerParts { lens, ..container_parts() });
        assert!(
            lens[2] == Some(u32::MAX)
                || ContainerIndex::tail_len(&keys(), CONTAINER, &object, object.len() as u64).is_err()
        );
        assert!(ContainerIndex::decode(&keys(), CONTAINER, &object, object.len() as u64).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn of_a_segment(damages in damages()) {
        checks::segment(&damaged(&segment::encode(&support::records(), &support::superchunks()).expect("valid"), &damages));
    }

    #[test]
    fn of_a_difference(damages in damages()) {
        let base = Segment { records: support::records(), superchunks: support::superchunks() };
        let to = Segment { records: support::records()[1..].to_vec(), superchunks: Vec::new() };
        let bytes = difference::encode(&Fingerprint([5; 32]), &base, &to, 9).expect("valid").expect("few are new");
        checks::difference(&damaged(&bytes, &damages));
    }

    #[test]
    fn of_a_recipe_node(damages in damages()) {
        checks::recipe_node(&damaged(&recipe::encode_node(&support::segments()).expect("valid"), &damages));
    }

    #[test]
    fn of_a_metadata_block(damages in damages()) {
        let block: &metadata::Block = &checks::blocks(&support::entries())[0];
        checks::metadata_block(&damaged(&block.bytes, &damages));
    }

    #[test]
    fn of_the_parts_of_a_manifest(summary_damages in damages(), body_damages in damages(), which in 0..3) {
        let [mut summary, mut body] = support::manifest_parts();
        if which != 1 {
            summary = damaged(&summary, &summary_damages);
        }
        if which != 0 {
            body = damaged(&body, &body_damages);
        }
        checks::manifest_parts(&summary, &body);
    }

    #[test]
    fn of_a_sealed_object_from_outside(damages in damages()) {
        let valid = support::manifest().encode(&keys(), SERIES, 0, RANDOM).expect("valid");
        let object = damaged(&valid, &damages);
        if object != valid {
            prop_assert!(Manifest::decode(&keys(), SERIES, JOB, 0, &object).is_err());
        }
        if let Ok(Head::Complete(Register::Committed(summary))) = Summary::decode_head(&keys(), SERIES, JOB, 0, &object) {
            prop_assert_eq!(*summary, support::manifest().summary);
        }
    }

    #[test]
    fn of_a_lease(damages in damages()) {
        let sealed = support::lease().encode(&keys(), JOB, 4, RANDOM).expect("valid");
        checks::lease(&damaged(&sealed, &damages));
        checks::lease_fields(&damaged(&support::open(&names::lease(JOB, 4), &sealed)[0], &damages));
    }

    #[test]
    fn of_a_mark(damages in damages()) {
        let sealed = support::forgotten().encode(&keys(), DomainId::DEFAULT, SERIES, JOB, RANDOM).expect("fits");
        checks::mark(&damaged(&sealed, &damages));
        let done = support::done().encode(&keys(), DomainId::DEFAULT, JOB, RANDOM).expect("fits");
        checks::mark(&damaged(&done, &damages));
        checks::mark_fields(&damaged(&support::open(&names::lease_done(JOB), &done)[0], &damages));
        checks::mark_fields(&damaged(&support::open(&names::forgotten(SERIES, JOB), &sealed)[0], &damages));
    }

    #[test]
    fn of_the_end_of_a_domain(damages in damages()) {
        let sealed = support::closed_domain().encode(&keys(), RANDOM).expect("fits");
        checks::closed_domain(&damaged(&sealed, &damages));
        let name = names::closed(keys().domain_id(support::CLOSED_DOMAIN, 0));
        checks::closed_domain_fields(&damaged(&support::open(&name, &sealed)[0], &damages));
    }

    #[test]
    fn of_what_fleet_tasks_leave(damages in damages()) {
        for (name, sealed) in support::fleet() {
            checks::fleet(&damaged(&sealed, &damages));
            checks::fleet_fields(&damaged(&support::open(&name, &sealed)[0], &damages));
        }
        checks::fleet_records(&damaged(&support::scan_item(), &damages));
    }

    #[test]
    fn of_settings(damages in damages()) {
        let of = SettingsOf::Series(SERIES);
        let sealed = support::settings().encode(&keys(), of, 2, RANDOM).expect("fits");
        checks::settings(&damaged(&sealed, &damages));
        let fields = support::open(&names::settings(of, 2), &sealed);
        checks::settings_fields(&damaged(&fields[0], &damages));
    }

    #[test]
    fn of_the_parts_of_a_manifest_of_the_index(head_damages in damages(), body_damages in damages(), which in 0..3) {
        let [mut head, mut body] = support::index_manifest_parts();
        if which != 1 {
            head = damaged(&head, &head_damages);
        }
        if which != 0 {
            body = damaged(&body, &body_damages);
        }
        checks::index_manifest_parts(&head, &body);
    }

    #[test]
    fn of_a_manifest_of_the_index_from_outside(damages in damages()) {
        let valid = support::index_manifest().encode(&keys(), RANDOM).expect("valid");
        let object = damaged(&valid, &damages);
        prop_assert!(object == valid || IndexManifest::decode(&keys(), 5, &object).is_err());
        checks::index_manifest(&object);
    }

    #[test]
    fn of_the_parts_of_a_run(damages in damages(), which in 0usize..5, tail: [u8; 2]) {
        let mut parts = support::run_parts();
        match which {
            0 | 1 => {
                parts.blocks[which] = damaged(&parts.blocks[which], &damages);
                // The fences fit, so that what is inside the block matters.
                parts.fences[2 + which * 4] = (parts.blocks[which].len() as u8).saturating_add(32);
            }
            2 => parts.filter = damaged(&parts.filter, &damages),
            3 => parts.fences = damaged(&parts.fences, &damages),
            _ => {
                let head = damaged(&parts.head, &damages);
                parts.head.iter_mut().zip(head).for_each(|(byte, to)| *byte = to);
            }
        }
        if tail[0] < 8 {
            parts.lens[usize::from(tail[0] % 2)] = Some(u32::from(tail[1]) << (tail[0] * 4));
        }
        checks::run_parts(&parts);
    }

    #[test]
    fn of_a_run_from_outside(damages in damages()) {
        checks::run(&damaged(&Forger::new().run(&support::run_parts()), &damages));
    }

    #[test]
    fn of_a_record_of_the_index(damages in damages()) {
        let mut facts = Vec::new();
        support::container_facts().encode(&mut facts).expect("valid");
        checks::index_record(&damaged(&facts, &damages));
        checks::index_record(&damaged(&hex::decode("020b0104").expect("valid"), &damages));
    }

    #[test]
    fn of_the_tables_of_a_container(
        chunk_damages in damages(), frame_damages in damages(), which in 0..4, chunks in 0u32..5, frames in 0u32..4,
    ) {
        let mut parts = container_parts();
        if which & 1 != 0 {
            parts.chunk_table = damaged(&parts.chunk_table, &chunk_damages);
            parts.chunk_count = chunks;
        }
        if which & 2 != 0 {
            parts.frame_table = damaged(&parts.frame_table, &frame_damages);
            parts.frame_count = frames;
        }
        checks::container_parts(&parts);
    }

    #[test]
    fn of_the_padding_of_a_container(padding in prop::collection::vec(0u8..2, 0..40)) {
        let parts = ContainerParts { padding: padding.clone(), ..container_parts() };
        let object = Forger::new().container(CONTAINER, &parts);
        let read = ContainerIndex::decode(&keys(), CONTAINER, &object, object.len() as u64);
        prop_assert_eq!(read.is_ok(), padding.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn of_a_container_from_outside(damages in damages()) {
        checks::container(&damaged(&Forger::new().container(CONTAINER, &container_parts()), &damages));
    }

    #[test]
    fn of_a_compressed_frame(damages in damages()) {
        let raw: Vec<u8> = (0..2000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        let mut compressor = Compressor::new(Compression::DEFAULT);
        let (_, stored) = compressor.compress(&raw);
        checks::compressed_frame(&damaged(stored, &damages), raw.len());
    }

    #[test]
    fn of_a_configuration(damages in damages()) {
        let valid = support::config().encode(&keys()).expect("valid");
        prop_assert!(checks::config(&valid));
        let outside = damaged(&valid, &damages);
        prop_assert!(outside == valid || !checks::config(&outside));
        checks::config_fields(&damaged(&valid[..valid.len() - 64], &damages));
    }

    #[test]
    fn of_the_readable_part_of_a_key(damages in damages()) {
        let (fields, config) = (support::key_fields(Some(KdfCost::TEST), Roles::ALL), support::config().encode(&keys()).expect("valid"));
        let (unlock, id) = (Unlock::Password(b"secret"), support::KEY);
        let valid = key_file::wrap(&keys(), keys().secrets(), unlock, &fields, id, support::REPOSITORY, &config).expect("wraps");
        checks::key_fields(&damaged(&valid, &damages));
    }

    #[test]
    fn of_the_payload_of_a_key(damages in damages(), bits in 1usize..5) {
        let roles = [Roles::ALL, Roles::BACKUP, Roles::RESTORE, Roles::OPERATE][bits - 1];
        let payload = Forger::new().open_key(support::KEY, &support::FILE, &support::key_of(roles));
        checks::key_payload(roles, &damaged(&payload, &damages));
    }

    #[test]
    fn of_a_key_file(damages in damages()) {
        let text = format!("# backup\n{}\n", *support::machine_key().to_line());
        let text = String::from_utf8_lossy(&damaged(text.as_bytes(), &damages)).into_owned();
        checks::machine_key(&text);
    }

    #[test]
    fn of_a_wrap(damages in damages()) {
        checks::wrap(&damaged(&support::WRAP, &damages));
        checks::wrap(&damaged(keys().opening_public().as_bytes(), &damages));
    }

    #[test]
    fn of_a_paper_key(damages in damages()) {
        let valid = key_file::to_paper(&MasterKey(support::MASTER), support::REPOSITORY).join("\n");
        let text = String::from_utf8_lossy(&damaged(valid.as_bytes(), &damages)).into_owned();
        checks::paper_key(&text);
        // One or three typing errors do not give another key.
        if let Ok((master, repository)) = key_file::from_paper(&text) {
            prop_assert_eq!((master.0, repository), (support::MASTER, support::REPOSITORY));
        }
    }

    #[test]
    fn of_an_object_name(damages in damages(), which in 0usize..9) {
        let id = |kind| support::container_id(kind, JOB, 10);
        let valid = [
            names::container(id(ContainerKind::Data)),
            names::container(id(ContainerKind::Meta)),
            names::lease(JOB, 10),
            names::lease_done(JOB),
            names::version(SERIES, JOB, 10),
            names::forgotten(SERIES, JOB),
            names::key(KeyId([3; 8])),
            names::index(10),
            names::run(support::RUN),
        ];
        checks::object_name(&valid[which]);
        checks::object_name(&String::from_utf8_lossy(&damaged(valid[which].as_bytes(), &damages)));
    }
}

proptest! {
    #[test]
    fn structures_of_volume_stores(damages in damages()) {
        let mut record = Vec::new();
        volume_log::encode_plain(8, &support::volume_events(), &mut record).expect("valid");
        checks::volume_record(&record);
        checks::volume_record(&damaged(&record, &damages));
        let manifest = support::volume_manifest().encode_plain();
        checks::volume_manifest(&manifest);
        checks::volume_manifest(&damaged(&manifest, &damages));
        for page in [support::volume_page(), support::volume_counts_page()] {
            checks::volume_page(&page);
            checks::volume_page(&damaged(&page, &damages));
        }
    }
}
