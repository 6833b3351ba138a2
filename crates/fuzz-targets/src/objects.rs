//! Stored objects, and structures in them, of one part.

use crate::support::checks;

/// The end of a domain: as it lies in the store, and sealed from fuzzed fields.
pub fn closed_domain(bytes: &[u8]) {
    checks::closed_domain(bytes);
    checks::closed_domain_fields(bytes);
}

/// The configuration: as it lies in the store, and with a signature that fits.
pub fn config(bytes: &[u8]) {
    checks::config(bytes);
    checks::config_fields(bytes);
}

/// Differences: changes of a segment.
pub fn difference(bytes: &[u8]) {
    checks::difference(bytes);
}

/// What tasks of a fleet batch leave for one another: as it lies in the store, sealed from fuzzed fields, and records.
pub fn fleet(bytes: &[u8]) {
    checks::fleet(bytes);
    checks::fleet_fields(bytes);
    checks::fleet_records(bytes);
}

/// Values of the records of the index.
pub fn index_record(bytes: &[u8]) {
    checks::index_record(bytes);
}

/// Key objects, as far as they are read without a password.
pub fn key_fields(bytes: &[u8]) {
    checks::key_fields(bytes);
}

/// Leases: as they lie in the store, and sealed from fuzzed fields.
pub fn lease(bytes: &[u8]) {
    checks::lease(bytes);
    checks::lease_fields(bytes);
}

/// Marks of forgotten versions and closing marks: as they lie in the store, and sealed from fuzzed fields.
pub fn mark(bytes: &[u8]) {
    checks::mark(bytes);
    checks::mark_fields(bytes);
}

/// Metadata blocks: entries of a version.
pub fn metadata_block(bytes: &[u8]) {
    checks::metadata_block(bytes);
}

/// Recipe nodes: lists of segments.
pub fn recipe_node(bytes: &[u8]) {
    checks::recipe_node(bytes);
}

/// Segments: runs of chunk records.
pub fn segment(bytes: &[u8]) {
    checks::segment(bytes);
}

/// What is set for series: as it lies in the store, and sealed from fuzzed fields.
pub fn settings(bytes: &[u8]) {
    checks::settings(bytes);
    checks::settings_fields(bytes);
}

/// Manifests of a volume store, before they are sealed.
pub fn volume_manifest(bytes: &[u8]) {
    checks::volume_manifest(bytes);
}

/// Pages of page runs, before they are sealed.
pub fn volume_page(bytes: &[u8]) {
    checks::volume_page(bytes);
}

/// Records of a volume store's log, before they are sealed, and the anchor of the log.
pub fn volume_record(bytes: &[u8]) {
    checks::volume_record(bytes);
}

/// Ciphertexts and public halves of X-Wing, and containers with such a wrap.
pub fn wrap(bytes: &[u8]) {
    checks::wrap(bytes);
}
