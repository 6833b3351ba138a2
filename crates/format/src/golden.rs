//! Golden files (`src/golden/`): stored bytes that no later program may write or read otherwise.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::keys::{Keys, MasterKey};

/// The keys with which golden files are sealed. They are derived once: that takes longer than most tests.
pub(crate) fn keys() -> Keys {
    static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::derive(&MasterKey([1; 32])));
    KEYS.clone()
}

/// Asserts that a structure has the bytes of its golden file, and gives these. With `LARDER_BLESS=1`
/// in the environment, it writes the file instead. That is for a new version of a structure only.
#[track_caller]
pub(crate) fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "src", "golden", &format!("{name}.hex")].iter().collect();
    if std::env::var_os("LARDER_BLESS").is_some() {
        let lines: Vec<_> = bytes.chunks(64).map(hex::encode).collect();
        std::fs::write(&path, lines.join("\n") + "\n").expect("a golden file can be written");
    }
    let text: String = std::fs::read_to_string(&path).expect("a golden file").split_whitespace().collect();
    assert_eq!(hex::encode(bytes), text, "{name}");
    hex::decode(text).expect("valid hex")
}

/// Asserts that no cut of these bytes and none with a flipped bit is accepted. Of long structures, one
/// bit of each byte is flipped.
#[track_caller]
pub(crate) fn all_damage_is_noticed(bytes: &[u8], is_accepted: impl Fn(&[u8]) -> bool) {
    assert!(is_accepted(bytes), "the undamaged bytes");
    let mut damaged = bytes.to_vec();
    for at in 0..bytes.len() {
        let bits = if bytes.len() <= 2048 { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            damaged[at] ^= 1 << bit;
            assert!(!is_accepted(&damaged), "bit {bit} of byte {at}");
            damaged[at] ^= 1 << bit;
        }
        assert!(!is_accepted(&bytes[..at]), "cut to {at}");
    }
    assert!(!is_accepted(&[bytes, &[0]].concat()), "a zero byte behind it");
}
