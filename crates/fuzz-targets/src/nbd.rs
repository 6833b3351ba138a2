//! The protocol NBD: messages, and whole sessions.

/// What must hold of messages; the crate `larder-nbd` tests the same.
#[path = "../../nbd/tests/suite/checks.rs"]
#[allow(unreachable_pub, reason = "tests of the crate `larder-nbd` use it too")]
mod checks;
/// What must hold of whole sessions.
#[path = "../../nbd/tests/suite/sessions.rs"]
#[allow(unreachable_pub, reason = "tests of the crate `larder-nbd` use it too")]
mod sessions;

/// A whole NBD session: the input is everything that the server sends.
pub fn client(bytes: &[u8]) {
    sessions::client(bytes);
}

/// Messages of an NBD client, as the server decodes them.
pub fn client_messages(bytes: &[u8]) {
    checks::client_messages(bytes);
}

/// A whole NBD session: the input is everything that the client sends.
pub fn server(bytes: &[u8]) {
    sessions::server(bytes);
}

/// Messages of an NBD server, as the client decodes them.
pub fn server_messages(bytes: &[u8]) {
    checks::server_messages(bytes);
}
