//! What must hold whatever a decoder is given: an error, or a value that survives being encoded again and keeps the promises
//! of its type. Nothing here may panic but the checks themselves. Used by the tests of any damage and by the fuzz targets.

use larder_format::closed_domain::ClosedDomain;
use larder_format::compress::{Codec, Decompressor};
use larder_format::config::UnverifiedConfig;
use larder_format::container::ContainerIndex;
use larder_format::entry::{Entry, is_valid_path, path_order};
use larder_format::extents::Extents;
use larder_format::fleet::{
    Answer, CheckRange, CheckResult, CopyResult, CopyTask, FleetPlan, FleetWorker, MarkResult, MarkTask,
    READ_PROOF_LEN, Requests, Resolution, ScanItem, TaskRecord,
};
use larder_format::ids::{DomainId, SettingsOf};
use larder_format::index_manifest::{IndexHead, IndexManifest};
use larder_format::index_mark::IndexMark;
use larder_format::index_tables::{ChunkPlace, ContainerFacts, StreamKey};
use larder_format::kem::{OpeningPublic, OpeningSecret, PUBLIC_LEN};
use larder_format::key_file::{MachineKey, Unlock};
use larder_format::keys::Keys;
use larder_format::lease::{Done, Lease};
use larder_format::manifest::{Head, Manifest, Register, Summary};
use larder_format::mark::Forgotten;
use larder_format::metadata::{Block, BlockBuilder, decode_block};
use larder_format::page_run::{PAGE_ROOM, Page, VolumeTable};
use larder_format::pinning::PinEntry;
use larder_format::roles::Roles;
use larder_format::run::{RunBuilder, RunIndex, RunKey, prefix};
use larder_format::segment::Segment;
use larder_format::settings::SeriesSettings;
use larder_format::volume_log;
use larder_format::volume_manifest::VolumeManifest;
use larder_format::{Fingerprint, difference, key_file, names, recipe, segment};

use super::{
    CLOSED_DOMAIN, CONTAINER, ContainerParts, FILE, FLEET_TASK, FLEET_WORKER, Forger, JOB, KEY, REPOSITORY, RUN,
    RunParts, SERIES, WRAP, keys, records, superchunks,
};

const RANDOM: [u8; 32] = [3; 32];
const DOMAIN: DomainId = DomainId::DEFAULT;

pub fn segment(bytes: &[u8]) {
    if let Ok(read) = segment::decode(bytes) {
        let again = segment::encode(&read.records, &read.superchunks).expect("it was read");
        assert_eq!(segment::decode(&again), Ok(read));
    }
}

/// A difference to the segment of all kinds of records.
pub fn difference(bytes: &[u8]) {
    let base = Segment { records: records(), superchunks: superchunks() };
    let of_base = Fingerprint([5; 32]);
    if let Ok(read) = difference::decode(bytes, &of_base, &base) {
        let again = difference::encode(&of_base, &base, &read, usize::MAX).expect("it was read").expect("no limit");
        assert_eq!(difference::decode(&again, &of_base, &base), Ok(read));
    }
}

/// The plain text of a record of a volume store's log, or a copy of the anchor of that log.
pub fn volume_record(plain: &[u8]) {
    let anchor = volume_log::AnchorKey::of(&keys(), REPOSITORY).expect("all keys");
    if let Ok(durable_upto) = anchor.decode(plain) {
        assert_eq!(anchor.encode(durable_upto), plain);
    }
    if let Ok((durable_upto, events)) = volume_log::decode_plain(plain) {
        let mut again = Vec::new();
        volume_log::encode_plain(durable_upto, &events, &mut again).expect("it was read");
        assert_eq!(again, plain);
    }
}

/// The contents of a volume store's manifest.
pub fn volume_manifest(plain: &[u8]) {
    if let Ok(manifest) = VolumeManifest::decode_plain(7, plain) {
        assert_eq!(VolumeManifest::decode_plain(7, &manifest.encode_plain()), Ok(manifest));
    }
}

/// A page of a page run before it is sealed; the first byte chooses the table.
pub fn volume_page(bytes: &[u8]) {
    let Some((table, plain)) = bytes.split_first() else { return };
    let table = VolumeTable::ALL[usize::from(*table) % VolumeTable::ALL.len()];
    let mut plain = plain.to_vec();
    plain.resize(PAGE_ROOM, 0);
    let Ok(page) = Page::of_plain(plain, table) else { return };
    for record in 0..page.count() {
        assert_eq!(page.first_at(page.key(record)), record);
        let _ = page.value(record);
    }
}

pub fn recipe_node(bytes: &[u8]) {
    if let Ok(segments) = recipe::decode_node(bytes) {
        assert_eq!(recipe::decode_node(&recipe::encode_node(&segments).expect("it was read")), Ok(segments));
    }
}

pub fn blocks(entries: &[Entry]) -> Vec<Block> {
    let mut builder = BlockBuilder::new();
    let mut blocks: Vec<_> = entries.iter().filter_map(|entry| builder.push(entry).expect("valid")).collect();
    blocks.extend(builder.finish());
    blocks
}

pub fn metadata_block(bytes: &[u8]) {
    let Ok(entries) = decode_block(bytes) else { return };
    for entry in &entries {
        assert!(is_valid_path(&entry.path));
        assert!(entry.stored_bytes() <= entry.size());
    }
    assert!(entries.is_sorted_by(|a, b| path_order(&a.path, &b.path).is_lt()));
    let decode = |block: &Block| decode_block(&block.bytes).expect("what is encoded is decoded");
    assert_eq!(blocks(&entries).iter().flat_map(decode).collect::<Vec<_>>(), entries);
}

/// A manifest or abort mark as it lies in the store.
pub fn manifest(object: &[u8]) {
    let head = Summary::decode_head(&keys(), SERIES, JOB, 0, object);
    match Manifest::decode(&keys(), SERIES, JOB, 0, object) {
        Ok(Register::Committed(manifest)) => {
            assert_eq!(head, Ok(Head::Complete(Register::Committed(Box::new(manifest.summary.clone())))));
            let again = manifest.encode(&keys(), SERIES, 0, RANDOM).expect("it was read");
            assert_eq!(Manifest::decode(&keys(), SERIES, JOB, 0, &again), Ok(Register::Committed(manifest)));
        }
        Ok(Register::Aborted) => assert_eq!(head, Ok(Head::Complete(Register::Aborted))),
        Err(_) => {}
    }
}

/// The two parts of a manifest before they are sealed.
pub fn manifest_parts(summary: &[u8], body: &[u8]) {
    manifest(&Forger::new().object(&names::version(SERIES, JOB, 0), b"LMAN", &[summary, body]));
}

/// A renewal or closing mark as it lies in the store.
pub fn lease(object: &[u8]) {
    let _ = Done::decode(&keys(), JOB, object);
    if let Ok(lease) = Lease::decode(&keys(), JOB, 4, object) {
        let again = lease.encode(&keys(), JOB, 4, RANDOM).expect("it was read");
        assert_eq!(Lease::decode(&keys(), JOB, 4, &again), Ok(Lease { is_signed: true, ..lease }));
    }
}

/// The fields of a lease before they are sealed.
pub fn lease_fields(plain: &[u8]) {
    lease(&Forger::new().object(&names::lease(JOB, 4), b"LLSE", &[plain]));
}

/// The mark of a forgotten version or a closing mark as it lies in the store.
pub fn mark(object: &[u8]) {
    let forgotten = Forgotten::decode(&keys(), SERIES, JOB, object);
    let done = Done::decode(&keys(), JOB, object);
    assert!(forgotten.is_err() || done.is_err(), "no object is two marks");
    if let Ok(done) = done {
        let again = done.encode(&keys(), DOMAIN, JOB, RANDOM).expect("it was read");
        assert_eq!(Done::decode(&keys(), JOB, &again), Ok(Done { is_signed: true, ..done }));
    }
    if let Ok(mark) = forgotten {
        let again = mark.encode(&keys(), DOMAIN, SERIES, JOB, RANDOM).expect("it was read");
        assert_eq!(Forgotten::decode(&keys(), SERIES, JOB, &again), Ok(mark));
    }
    if let Ok(entry) = PinEntry::decode(&keys(), SERIES, JOB, 2, object) {
        let again = entry.encode(&keys(), DOMAIN, SERIES, JOB, 2, RANDOM).expect("it was read");
        assert_eq!(PinEntry::decode(&keys(), SERIES, JOB, 2, &again), Ok(entry));
    }
    if let Ok(mark) = IndexMark::decode(&keys(), 5, object) {
        let again = mark.encode(&keys(), 5, RANDOM).expect("it was read");
        assert_eq!(IndexMark::decode(&keys(), 5, &again), Ok(mark));
    }
}

/// The fields of a mark before they are sealed.
pub fn mark_fields(plain: &[u8]) {
    mark(&Forger::new().object(&names::forgotten(SERIES, JOB), b"LFGT", &[plain]));
    mark(&Forger::new().object(&names::pin(SERIES, JOB, 2), b"LPIN", &[plain]));
    mark(&Forger::new().object(&names::lease_done(JOB), b"LDON", &[plain]));
    mark(&Forger::new().object(&names::indexed(5), b"LIXM", &[plain]));
}

/// What is set for a series as it lies in the store.
pub fn settings(object: &[u8]) {
    for of in [SettingsOf::Default, SettingsOf::Series(SERIES)] {
        let Ok(settings) = SeriesSettings::decode(&keys(), of, 2, object) else { continue };
        assert!(settings.holes_percent.is_none_or(|percent| percent <= 100));
        let again = settings.encode(&keys(), of, 2, RANDOM).expect("it was read");
        assert_eq!(SeriesSettings::decode(&keys(), of, 2, &again), Ok(settings));
    }
}

/// The same before it is sealed.
pub fn settings_fields(plain: &[u8]) {
    for of in [SettingsOf::Default, SettingsOf::Series(SERIES)] {
        settings(&Forger::new().object(&names::settings(of, 2), b"LSET", &[plain]));
    }
}

/// The plan of a fleet batch, the register of a task, a claim, a sign of life, and a range of a check and a task of a pass with
/// their results, as they lie in the store.
pub fn fleet(object: &[u8]) {
    if let Ok(plan) = FleetPlan::decode(&keys(), JOB, object) {
        let again = plan.encode(&keys(), JOB, RANDOM).expect("it was read");
        assert_eq!(FleetPlan::decode(&keys(), JOB, &again), Ok(plan));
    }
    if let Ok(record) = TaskRecord::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = record.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(TaskRecord::decode(&keys(), JOB, FLEET_TASK, &again), Ok(record));
    }
    if let Ok(worker) = FleetWorker::decode_claim(&keys(), JOB, FLEET_TASK, 1, object) {
        let again = worker.encode_claim(&keys(), JOB, FLEET_TASK, 1, RANDOM).expect("it was read");
        assert_eq!(FleetWorker::decode_claim(&keys(), JOB, FLEET_TASK, 1, &again), Ok(worker));
    }
    if let Ok(worker) = FleetWorker::decode_beat(&keys(), JOB, FLEET_WORKER, 1, object) {
        let again = worker.encode_beat(&keys(), JOB, 1, RANDOM).expect("it was read");
        assert_eq!(FleetWorker::decode_beat(&keys(), JOB, FLEET_WORKER, 1, &again), Ok(worker));
    }
    fleet_check(object);
    fleet_copy(object);
    fleet_mark(object);
}

/// A range of a check and its result as they lie in the store.
fn fleet_check(object: &[u8]) {
    if let Ok(range) = CheckRange::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = range.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(CheckRange::decode(&keys(), JOB, FLEET_TASK, &again), Ok(range));
    }
    if let Ok(result) = CheckResult::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = result.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(CheckResult::decode(&keys(), JOB, FLEET_TASK, &again).as_ref(), Ok(&result));
        for count in [0, 1, result.not_whole.len() + result.proofs.len() / READ_PROOF_LEN] {
            assert!(result.by_position(count).is_none_or(|all| all.len() == count));
        }
    }
}

/// A task of a pass and its result as they lie in the store.
fn fleet_copy(object: &[u8]) {
    if let Ok(task) = CopyTask::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = task.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(CopyTask::decode(&keys(), JOB, FLEET_TASK, &again), Ok(task));
    }
    if let Ok(result) = CopyResult::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = result.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(CopyResult::decode(&keys(), JOB, FLEET_TASK, &again).as_ref(), Ok(&result));
        let containers = result.containers(JOB, FLEET_TASK);
        assert!(containers.is_none_or(|all| all.len() as u64 == u64::from(result.containers)));
    }
}

/// A task of an exact collection and its result as they lie in the store.
fn fleet_mark(object: &[u8]) {
    if let Ok(task) = MarkTask::decode(&keys(), JOB, FLEET_TASK, object) {
        assert!(MarkTask::mentions(&task.segments) > 0);
        let again = task.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(MarkTask::decode(&keys(), JOB, FLEET_TASK, &again), Ok(task));
    }
    if let Ok(result) = MarkResult::decode(&keys(), JOB, FLEET_TASK, object) {
        let again = result.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("it was read");
        assert_eq!(MarkResult::decode(&keys(), JOB, FLEET_TASK, &again), Ok(result));
    }
}

/// The same before they are sealed.
pub fn fleet_fields(plain: &[u8]) {
    fleet(&Forger::new().object(&names::fleet_plan(JOB), b"LFPL", &[plain]));
    fleet(&Forger::new().object(&names::fleet_done(JOB, FLEET_TASK), b"LFTR", &[plain]));
    fleet(&Forger::new().object(&names::fleet_claim(JOB, FLEET_TASK, 1), b"LFCL", &[plain]));
    fleet(&Forger::new().object(&names::fleet_range(JOB, FLEET_TASK), b"LFCR", &[plain]));
    fleet(&Forger::new().object(&names::fleet_done(JOB, FLEET_TASK), b"LFCD", &[plain]));
    fleet(&Forger::new().object(&names::fleet_range(JOB, FLEET_TASK), b"LFCP", &[plain]));
    fleet(&Forger::new().object(&names::fleet_done(JOB, FLEET_TASK), b"LFCE", &[plain]));
    fleet(&Forger::new().object(&names::fleet_range(JOB, FLEET_TASK), b"LFMT", &[plain]));
    fleet(&Forger::new().object(&names::fleet_done(JOB, FLEET_TASK), b"LFMR", &[plain]));
    fleet(&Forger::new().object(&names::fleet_beat(JOB, FLEET_WORKER, 1), b"LFWB", &[plain]));
}

/// The records of fleet tasks.
pub fn fleet_records(plain: &[u8]) {
    if let Ok(item) = ScanItem::decode(plain) {
        assert_eq!(item.encode().expect("it was read"), plain);
    }
    if let Ok(answer) = Answer::decode(plain) {
        assert_eq!(answer.encode(), plain);
    }
    if let Ok(resolution) = Resolution::decode(plain) {
        assert_eq!(resolution.encode(), plain);
    }
    if let Ok((chunk, at)) = Requests::parse(plain) {
        assert_eq!(Requests::key(&chunk, at), plain);
    }
}

/// The end of a domain as it lies in the store.
pub fn closed_domain(object: &[u8]) {
    let domain = keys().domain_id(CLOSED_DOMAIN, 0);
    let Ok(closed) = ClosedDomain::decode(&keys(), domain, object) else { return };
    assert!(closed.versions.iter().all(|version| closed.admits(*version)));
    let again = closed.encode(&keys(), RANDOM).expect("it was read");
    assert_eq!(ClosedDomain::decode(&keys(), domain, &again), Ok(closed));
}

/// The same before it is sealed.
pub fn closed_domain_fields(plain: &[u8]) {
    let name = names::closed(keys().domain_id(CLOSED_DOMAIN, 0));
    closed_domain(&Forger::new().object(&name, b"LCLS", &[plain]));
}

/// A container as it lies in the store.
pub fn container(object: &[u8]) {
    let object_len = object.len() as u64;
    if let Ok(tail) = ContainerIndex::tail_len(&keys(), CONTAINER, object, object_len) {
        assert!(tail as u64 <= object_len);
    }
    let Ok(index) = ContainerIndex::decode(&keys(), CONTAINER, object, object_len) else { return };
    let mut end = 0;
    for frame in index.frames() {
        assert_eq!(frame.payload_range().start, end);
        end = frame.payload_range().end;
        let range = frame.object_range();
        let mut sealed = object[range.start as usize..range.end as usize].to_vec();
        // A declared size is bounded but may still be large; nobody hostile gets here without the key.
        let mut raw = vec![0; frame.entry.raw_len.min(1 << 20) as usize];
        let opener = index.opener();
        let _ = opener.open_frame(&keys(), frame, &mut sealed.clone(), &mut raw, &mut Decompressor::new());
        let _ = opener.open_frame(&keys(), frame, &mut sealed, &mut [], &mut Decompressor::new());
    }
    assert_eq!(end, index.payload_len);
    assert_eq!(index.frame_at(end), None);
    for chunk in index.chunk_refs() {
        let frame = index.frame_at(chunk.offset).expect("every chunk has a frame");
        assert!(frame.payload_range().end >= chunk.offset + chunk.size);
    }
}

/// A container before it is sealed.
pub fn container_parts(parts: &ContainerParts) {
    container(&Forger::new().container(CONTAINER, parts));
}

/// A manifest of the index as it lies in the store.
pub fn index_manifest(object: &[u8]) {
    let head = IndexHead::decode_head(&keys(), 5, object);
    if let Ok(manifest) = IndexManifest::decode(&keys(), 5, object) {
        assert_eq!(head, Ok(Ok(manifest.head.clone())));
        let again = manifest.encode(&keys(), RANDOM).expect("it was read");
        assert_eq!(IndexManifest::decode(&keys(), 5, &again), Ok(manifest));
    }
}

/// The two parts of a manifest of the index before they are sealed.
pub fn index_manifest_parts(head: &[u8], body: &[u8]) {
    index_manifest(&Forger::new().object(&names::index(5), b"LIDX", &[head, body]));
}

fn run_key() -> RunKey {
    RunKey::of(&keys(), RUN).expect("all keys")
}

/// An object of a run of the index as it lies in the store.
pub fn run(object: &[u8]) {
    let Ok(index) = RunIndex::decode(&run_key(), object, object.len() as u64) else { return };
    let part = |range: std::ops::Range<u64>| &object[range.start as usize..range.end as usize];
    let _ = index.open_filter(part(index.filter_range()));
    let mut records = Vec::new();
    for number in 0..index.blocks() {
        let Ok(block) = index.open_block(number, part(index.bytes_of(number..number + 1)), Vec::new()) else { return };
        for record in 0..block.count() {
            let key = block.key(record);
            assert_eq!((index.block_of(key), block.seek(0, key)), (Some(number), record));
            assert!(index.blocks_within(prefix(key), prefix(key)).contains(&number));
            records.push((key.to_vec(), block.value(record).map(<[u8]>::to_vec)));
        }
    }
    assert!(records.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(records.len() as u64, index.records);
    let mut again = RunBuilder::new(run_key(), RANDOM, index.table, index.layout, true).expect("it was read");
    for (key, value) in &records {
        again.push(key, value.as_deref()).expect("it was read");
    }
    assert_eq!(again.finish().expect("it has records").run.records, index.records);
}

/// An object of a run before it is sealed.
pub fn run_parts(parts: &RunParts) {
    run(&Forger::new().run(parts));
}

/// Values of records of the index. What is read is spelled in one way.
pub fn index_record(bytes: &[u8]) {
    if let Ok(facts) = ContainerFacts::decode(bytes) {
        let mut again = Vec::new();
        facts.encode(&mut again).expect("it was read");
        assert_eq!(again, bytes);
    }
    if let Ok(extents) = Extents::decode(bytes) {
        let mut again = Vec::new();
        extents.encode(&mut again).expect("it was read");
        assert_eq!(again, bytes);
    }
    if let Ok(place) = ChunkPlace::decode(bytes) {
        assert_eq!(place.encode(), bytes);
    }
    if let Ok(key) = StreamKey::decode(bytes) {
        assert_eq!(key.encode(), bytes);
    }
}

/// The stored bytes of one frame, opened.
pub fn compressed_frame(stored: &[u8], raw_len: usize) {
    let mut raw = vec![0; raw_len];
    for codec in [Codec::Raw, Codec::Zstd] {
        let _ = Decompressor::new().decompress_into(codec, stored, &mut raw);
    }
}

/// A configuration as it lies in the store. Whether it verified.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(unverified) = UnverifiedConfig::decode(bytes) else { return false };
    let _ = unverified.claimed_repository();
    let Ok(config) = unverified.verify(&keys()) else { return false };
    let again = UnverifiedConfig::decode(&config.encode(&keys()).expect("it was read")).expect("reads").verify(&keys());
    assert_eq!(again, Ok(config));
    true
}

/// A configuration without its signature, which is made here.
pub fn config_fields(signed: &[u8]) {
    config(&Forger::new().config(signed));
}

/// What anyone can read of a key. The password is not tried: that takes as long as the key asks for.
pub fn key_fields(bytes: &[u8]) {
    let Ok(fields) = key_file::read_fields(bytes) else { return };
    // What follows from it is only proved with the master key.
    let copy = key_file::config_copy(bytes).expect("reads like the rest");
    config(&copy);
    let mut encoded = minicbor::to_vec(&fields).expect("encodes");
    // The copy is one more field.
    encoded[0] += 1;
    encoded.push(7);
    minicbor::Encoder::new(&mut encoded).bytes(&copy).expect("encodes");
    let again = Forger::new().key(KEY, &FILE, &encoded, b"payload");
    assert_eq!(key_file::read_fields(&again), Ok(fields));
    let _ = key_file::is_genuine(bytes, &keys(), KEY, REPOSITORY);
}

/// The payload of a key object, sealed under the secret of a key file.
pub fn key_payload(roles: Roles, payload: &[u8]) {
    let shown = super::key_fields(None, roles);
    let mut fields = minicbor::to_vec(&shown).expect("encodes");
    fields[0] += 1;
    fields.extend_from_slice(&[7, 0x40]);
    let object = Forger::new().key(KEY, &FILE, &fields, payload);
    let unwrap = |object: &[u8]| key_file::unwrap(object, Unlock::File(&FILE), KEY, REPOSITORY);
    let Ok(secrets) = unwrap(&object) else { return };
    assert_eq!(secrets.roles, roles);
    let again = key_file::wrap(&keys(), &secrets, Unlock::File(&FILE), &shown, KEY, REPOSITORY, &[]);
    assert_eq!(unwrap(&again.expect("it was read")), Ok(secrets.clone()));
    let _ = Keys::of(secrets, keys().opening_public().clone());
}

/// The text of a machine's key file.
pub fn machine_key(text: &str) {
    let Ok(read) = MachineKey::read_all(text) else { return };
    assert!(!read.is_empty());
    let lines: Vec<_> = read.iter().map(|key| key.to_line().to_string()).collect();
    assert_eq!(MachineKey::read_all(&lines.join("\n")), Ok(read));
}

/// A ciphertext of X-Wing, alone and as the wrap of a container, and a public half.
pub fn wrap(bytes: &[u8]) {
    let mut wrap = WRAP;
    wrap.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = *from);
    let secret = OpeningSecret([7; 32]);
    let shared = secret.decapsulate(&wrap).map(|shared| shared.0).ok();
    assert_eq!(secret.decapsulate(&wrap).map(|shared| shared.0).ok(), shared);
    container_parts(&ContainerParts { wrap: Some(wrap.to_vec()), ..super::container_parts() });
    let mut public = [9; PUBLIC_LEN];
    public.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = *from);
    let public = OpeningPublic::from_bytes(&public).expect("its length is right");
    let _ = public.encapsulate(&[5; 64]);
    assert_eq!(OpeningPublic::from_bytes(bytes).is_ok(), bytes.len() == PUBLIC_LEN);
}

pub fn paper_key(text: &str) {
    if let Ok((master, repository)) = key_file::from_paper(text) {
        let again = key_file::to_paper(&master, repository).join("\n");
        let (master_again, repository_again) = key_file::from_paper(&again).expect("reads its own");
        assert_eq!((master_again.0, repository_again), (master.0, repository));
    }
}

/// One object has one name: what is read from a name gives that name again.
pub fn object_name(name: &str) {
    if let Some(id) = names::parse_container(name) {
        assert_eq!(names::container(id), name);
    }
    if let Some((series, job, generation)) = names::parse_version(name) {
        assert_eq!(names::version(series, job, generation), name);
    }
    if let Some((series, job)) = names::parse_forgotten(name) {
        assert_eq!(names::forgotten(series, job), name);
    }
    if let Some((series, job, number)) = names::parse_pin(name) {
        assert_eq!(names::pin(series, job, number), name);
    }
    if let Some((of, number)) = names::parse_settings(name) {
        assert_eq!(names::settings(of, number), name);
    }
    if let Some(number) = names::parse_index(name) {
        assert_eq!(names::index(number), name);
    }
    if let Some(number) = names::parse_indexed(name) {
        assert_eq!(names::indexed(number), name);
    }
    if let Some(id) = names::parse_run(name) {
        assert_eq!(names::run(id), name);
    }
    if let Some(domain) = names::parse_closed(name) {
        assert_eq!(names::closed(domain), name);
    }
    if let Some(id) = names::parse_key(name) {
        assert_eq!(names::key(id), name);
    }
    match names::parse_fleet(name) {
        Some((batch, names::FleetObject::Plan)) => assert_eq!(names::fleet_plan(batch), name),
        Some((batch, names::FleetObject::Done(task))) => assert_eq!(names::fleet_done(batch, task), name),
        Some((batch, names::FleetObject::Range(task))) => assert_eq!(names::fleet_range(batch, task), name),
        Some((batch, names::FleetObject::Output(task, attempt, number))) => {
            assert_eq!(names::fleet_output(batch, task, attempt, number), name);
        }
        Some((batch, names::FleetObject::Claim(task, epoch))) => {
            assert_eq!(names::fleet_claim(batch, task, epoch), name);
        }
        Some((batch, names::FleetObject::Beat(worker, number))) => {
            assert_eq!(names::fleet_beat(batch, worker, number), name);
        }
        None => {}
    }
    match names::parse_lease(name) {
        Some((job, names::LeaseObject::Renewal(number))) => assert_eq!(names::lease(job, number), name),
        Some((job, names::LeaseObject::Done)) => assert_eq!(names::lease_done(job), name),
        None => {}
    }
}
