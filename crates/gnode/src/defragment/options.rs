//! When a newest version is rewritten, and how much is written then.

use larder_format::compress::Compression;

/// When a container is left, and how much may be written about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DefragmentOptions {
    /// What all containers of a version hold, by what the version uses of them (percent, at least
    /// 100). Above it, the sparsest container is left, and the next one.
    pub held_percent: u8,
    /// The same bound for containers of which less than half is used: to copy these costs less than
    /// it frees.
    pub cheap_percent: u8,
    /// A container is sparse when every newest version that uses it uses less than this share of
    /// its bytes (percent). Such a container is left, whatever the sum is, if the containers become
    /// fewer.
    pub sparse_percent: u8,
    /// A container of which its only newest version uses less than this many bytes is small,
    /// however dense it is. Some of about one size are copied together. Otherwise a version would
    /// need as many containers as it has predecessors.
    pub small_bytes: u64,
    /// What a rewrite may copy; the sparsest containers come first. Sharing copies nothing.
    pub budget: Budget,
    /// A container is left for copies elsewhere when there are some of at least this share of its
    /// bytes (percent). Above 100: never.
    pub duplicate_percent: u8,
    /// A version is redirected to a container only if it then uses at least this share of its bytes
    /// (percent). Up to a tenth of a container may be in others.
    pub dense_percent: u8,
    /// Newest versions may have this percentage of their bytes twice. Above it, duplicates that are
    /// scattered are gathered in containers of their own.
    pub excess_percent: f64,
    /// Of the bytes in containers that newest versions use, at most this percentage may stay
    /// unused. `None`: containers are left for what restores read, within the budget. A limit needs
    /// all manifests, and copies without a budget.
    pub unused_percent: Option<f64>,
    /// A manifest of at most this many bytes is read in any case. A larger one is read if it takes
    /// a small part of the memory.
    pub manifest_least: u64,
    /// How the copies are compressed.
    pub compression: Compression,
}

impl DefragmentOptions {
    /// The same, but containers are left for their duplicates and unused bytes alone.
    pub fn only_duplicates(self) -> Self {
        Self { held_percent: u8::MAX, cheap_percent: u8::MAX, sparse_percent: 0, small_bytes: 0, ..self }
    }
}

/// How many bytes one rewrite of a version may copy, uncompressed. The parts are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// A share of the version's bytes (percent).
    pub version_percent: u8,
    /// A share of the bytes that its own backup stored (percent).
    pub new_percent: u16,
    /// Whether one container may be copied in any case. Otherwise a version of few containers could
    /// do nothing.
    pub has_least: bool,
}

impl Budget {
    /// This share of the version (percent), and nothing else.
    pub const fn of_version(percent: u8) -> Self {
        Self { version_percent: percent, new_percent: 0, has_least: false }
    }
}

impl Default for Budget {
    /// In a steady state, a bound of 120 % costs one to three copied bytes for a new one
    /// (`bench/slimstore`, figure 9). So a backup of much that is new pays for much.
    fn default() -> Self {
        Self { version_percent: 5, new_percent: 300, has_least: true }
    }
}

impl Default for DefragmentOptions {
    fn default() -> Self {
        Self {
            // With 110 %, slow changes cost five copied bytes for a new one.
            held_percent: 120,
            cheap_percent: 115,
            // As in the paper (SlimStore section V-B).
            sparse_percent: 30,
            // A quarter of what backups fill.
            small_bytes: 2 << 20,
            budget: Budget::default(),
            duplicate_percent: 20,
            // What is read stays within the bound of all containers, and a little more.
            dense_percent: 80,
            excess_percent: 1.0,
            unused_percent: None,
            manifest_least: 1 << 20,
            compression: Compression::DEFAULT,
        }
    }
}
