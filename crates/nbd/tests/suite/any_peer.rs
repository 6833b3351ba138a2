//! Sessions with a peer that sends a recorded session with damage, or anything.

use proptest::prelude::*;

use crate::{recorded, sessions};

/// A recorded session of which some bytes are other ones, and perhaps the end is missing.
fn damaged(client: bool) -> impl Strategy<Value = Vec<u8>> {
    let (structured, simple) = (recorded::session(true), recorded::session(false));
    let whole = if client { vec![structured.0, simple.0] } else { vec![structured.1, simple.1] };
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(whole), changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut bytes, changes, cut, shorter)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if shorter {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes
        },
    )
}

proptest! {
    #[test]
    fn a_server_survives_any_client(bytes in damaged(true)) {
        sessions::server(&bytes);
    }

    #[test]
    fn a_client_survives_any_server(bytes in damaged(false)) {
        sessions::client(&bytes);
    }
}
