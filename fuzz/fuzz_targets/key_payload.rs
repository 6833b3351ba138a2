//! Payloads of key objects, of a role that the first byte chooses.

#![no_main]

use larder_format::roles::Roles;
use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, payload)) = bytes.split_first() else { return };
    let roles = [Roles::ALL, Roles::BACKUP, Roles::RESTORE, Roles::OPERATE];
    checks::key_payload(roles[usize::from(*which) % roles.len()], payload);
});
