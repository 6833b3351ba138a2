//! What is fuzzed: for each decoder a function that takes any input, and asserts what must hold of it.
//!
//! The programs of `fuzz/` give these functions to a fuzzer, for hours. The tests of this crate give them the seeds, whole and
//! damaged, in each run of the gate. What must hold of stored objects and of NBD stands in the tests of the crates `larder-format` and
//! `larder-nbd`, which try the same on what they make themselves.
//!
//! A sealed object is fuzzed twice: as it lies in the store, where everything must be refused that is not authentic, and by its
//! contents, which the forger of those tests seals under a known key.

pub mod assembled;
pub mod nbd;
pub mod objects;
#[path = "../../format/tests/support/mod.rs"]
mod support;
pub mod text;

/// Asserts what must hold of a decoder, for any input.
pub type Target = fn(&[u8]);

/// All targets, by the names of their programs and of the folders of their seeds.
pub const TARGETS: &[(&str, Target)] = &[
    ("changed_map", text::changed_map),
    ("closed_domain", objects::closed_domain),
    ("compressed_frame", assembled::compressed_frame),
    ("config", objects::config),
    ("container", assembled::container),
    ("difference", objects::difference),
    ("fleet", objects::fleet),
    ("index_manifest", assembled::index_manifest),
    ("index_record", objects::index_record),
    ("index_run", assembled::index_run),
    ("key_fields", objects::key_fields),
    ("key_payload", assembled::key_payload),
    ("lease", objects::lease),
    ("machine_key", text::machine_key),
    ("manifest", assembled::manifest),
    ("mark", objects::mark),
    ("metadata_block", objects::metadata_block),
    ("nbd_client", nbd::client),
    ("nbd_client_messages", nbd::client_messages),
    ("nbd_server", nbd::server),
    ("nbd_server_messages", nbd::server_messages),
    ("object_name", text::object_name),
    ("paper_key", text::paper_key),
    ("qmp_lines", text::qmp_lines),
    ("recipe_node", objects::recipe_node),
    ("segment", objects::segment),
    ("settings", objects::settings),
    ("toml_document", text::toml_document),
    ("volume_manifest", objects::volume_manifest),
    ("volume_page", objects::volume_page),
    ("volume_record", objects::volume_record),
    ("wrap", objects::wrap),
];

/// Gives input to the target of this name.
///
/// # Panics
/// The target finds something, or there is none of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(bytes);
}
