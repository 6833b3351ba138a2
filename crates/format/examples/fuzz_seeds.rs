//! Writes a valid input for every fuzz target into a folder: `fuzz_seeds FOLDER`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use larder_format::compress::{Compression, Compressor};
use larder_format::ids::{ContainerKind, DomainId, KeyId, SettingsOf};
use larder_format::index_mark::IndexMark;
use larder_format::key_file::{KdfCost, Unlock, to_paper, wrap};
use larder_format::keys::MasterKey;
use larder_format::roles::Roles;
use larder_format::segment::Segment;
use larder_format::volume_log::encode_plain;
use larder_format::{Fingerprint, difference, names, recipe, segment};
use support::{CONTAINER, FILE, Forger, JOB, KEY, RANDOM, SERIES, WRAP, keys};

/// A part as the targets split their input: a length and the bytes.
fn part(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: fuzz_seeds FOLDER")?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    let (keys, master) = (keys(), MasterKey(support::MASTER));
    let config = support::config().encode(&keys)?;
    write("config", "sealed", &config)?;
    write("config", "fields", &config[..config.len() - 64])?;
    let lease = support::lease().encode(&keys, JOB, 4, RANDOM)?;
    write("lease", "sealed", &lease)?;
    write("lease", "fields", &support::open(&names::lease(JOB, 4), &lease)[0])?;
    let mark = support::forgotten().encode(&keys, DomainId::DEFAULT, SERIES, JOB, RANDOM)?;
    write("mark", "forgotten", &mark)?;
    write("mark", "fields", &support::open(&names::forgotten(SERIES, JOB), &mark)[0])?;
    let done = support::done().encode(&keys, DomainId::DEFAULT, JOB, RANDOM)?;
    write("mark", "done", &done)?;
    write("mark", "done_fields", &support::open(&names::lease_done(JOB), &done)[0])?;
    let mark = IndexMark::Counts([8; 16]).encode(&keys, 5, RANDOM)?;
    write("mark", "index", &mark)?;
    write("mark", "index_fields", &support::open(&names::indexed(5), &mark)[0])?;
    let of = SettingsOf::Series(SERIES);
    let settings = support::settings().encode(&keys, of, 2, RANDOM)?;
    write("settings", "sealed", &settings)?;
    write("settings", "fields", &support::open(&names::settings(of, 2), &settings)[0])?;
    let closed = support::closed_domain().encode(&keys, RANDOM)?;
    let closed_name = names::closed(keys.domain_id(support::CLOSED_DOMAIN, 0));
    write("closed_domain", "sealed", &closed)?;
    write("closed_domain", "fields", &support::open(&closed_name, &closed)[0])?;
    write("manifest", "sealed", &support::manifest().encode(&keys, SERIES, 0, RANDOM)?)?;
    let [summary, body] = support::manifest_parts();
    write("manifest", "parts", &[part(&summary), body].concat())?;
    let parts = support::container_parts();
    write("container", "sealed", &Forger::new().container(CONTAINER, &parts))?;
    let payload = parts.payload_len.to_le_bytes();
    let fields = [parts.chunk_count as u8, parts.frame_count as u8, payload[0], payload[1], payload[2], 0, 0];
    let frames: Vec<u8> = parts.frames.iter().flat_map(|frame| part(frame)).collect();
    let tables = [part(&parts.chunk_table), part(&parts.frame_table), part(&parts.padding)].concat();
    write("container", "parts", &[&fields[..], &tables, &frames].concat())?;
    write("index_manifest", "sealed", &support::index_manifest().encode(&keys, RANDOM)?)?;
    let [head, body] = support::index_manifest_parts();
    write("index_manifest", "parts", &[part(&head), body].concat())?;
    let parts = support::run_parts();
    write("index_run", "sealed", &Forger::new().run(&parts))?;
    let blocks: Vec<u8> = parts.blocks.iter().flat_map(|block| part(block)).collect();
    write(
        "index_run",
        "parts",
        &[&parts.head[..], &[0], &part(&parts.filter), &part(&parts.fences), &blocks].concat(),
    )?;
    let mut facts = Vec::new();
    support::container_facts().encode(&mut facts)?;
    write("index_record", "facts", &facts)?;
    write("index_record", "set", &[2, 11, 1, 4])?;
    let raw = b"compressed compressed compressed compressed compressed compressed";
    let mut compressor = Compressor::new(Compression::DEFAULT);
    let (_, stored) = compressor.compress(raw);
    write("compressed_frame", "zstd", &[&(raw.len() as u16).to_le_bytes()[..], stored].concat())?;
    write("segment", "valid", &segment::encode(&support::records(), &support::superchunks())?)?;
    write("segment", "even", &segment::encode(&support::records()[3..5], &[])?)?;
    let base = Segment { records: support::records(), superchunks: Vec::new() };
    let changed = Segment { records: support::records()[1..].to_vec(), superchunks: Vec::new() };
    let difference = difference::encode(&Fingerprint([5; 32]), &base, &changed, usize::MAX)?;
    write("difference", "valid", &difference.ok_or("no difference")?)?;
    write("recipe_node", "valid", &recipe::encode_node(&support::segments())?)?;
    write("metadata_block", "valid", &support::checks::blocks(&support::entries())[0].bytes)?;
    let fields = support::key_fields(Some(KdfCost::TEST), Roles::ALL);
    let unlock = Unlock::Password(b"secret");
    let key = wrap(&keys, keys.secrets(), unlock, &fields, KEY, support::REPOSITORY, &config)?;
    write("key_fields", "valid", &key)?;
    write("key_fields", "file", &support::key_of(Roles::BACKUP))?;
    // Their first byte chooses the role, as in the target.
    for (number, roles) in [Roles::ALL, Roles::BACKUP, Roles::RESTORE, Roles::OPERATE].into_iter().enumerate() {
        let payload = Forger::new().open_key(KEY, &FILE, &support::key_of(roles));
        write("key_payload", &roles.to_string(), &[&[number as u8][..], &payload].concat())?;
    }
    write("machine_key", "valid", format!("# a machine\n{}\n", *support::machine_key().to_line()).as_bytes())?;
    write("wrap", "ciphertext", &WRAP)?;
    write("wrap", "public", keys.opening_public().as_bytes())?;
    let mut record = Vec::new();
    encode_plain(8, &support::volume_events(), &mut record)?;
    write("volume_record", "plain", &record)?;
    write("volume_manifest", "plain", &support::volume_manifest().encode_plain())?;
    write("volume_page", "chunks", &support::volume_page())?;
    write("volume_page", "counts", &support::volume_counts_page())?;
    write("paper_key", "valid", to_paper(&master, support::REPOSITORY).join("\n").as_bytes())?;
    let container = support::container_id(ContainerKind::Meta, JOB, 10);
    for (name, text) in [
        ("container", names::container(container)),
        ("lease", names::lease(JOB, 10)),
        ("done", names::lease_done(JOB)),
        ("version", names::version(SERIES, JOB, 10)),
        ("forgotten", names::forgotten(SERIES, JOB)),
        ("key", names::key(KeyId([3; 8]))),
        ("index", names::index(10)),
        ("indexed", names::indexed(10)),
        ("run", names::run(support::RUN)),
        ("closed", closed_name),
        ("settings", names::settings(SettingsOf::Series(SERIES), 10)),
        ("settings_default", names::settings(SettingsOf::Default, 10)),
    ] {
        write("object_name", name, text.as_bytes())?;
    }
    Ok(())
}
