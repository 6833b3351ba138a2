//! Options of restic that scripts pass and that have no effect here. They are accepted, and named
//! once on standard error.
//!
//! `--no-lock` and `--retry-lock` are not among them: every script has these, and what they ask for
//! is always so.

use clap::Args;

/// Such options of every verb.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IgnoredArgs {
    /// For scripts written for restic: the cache cleans itself
    #[arg(long, global = true, hide = true)]
    cleanup_cache: bool,

    /// For scripts written for restic: the password is tried on the right key first
    #[arg(long, value_name = "ID", global = true, hide = true)]
    key_hint: Option<String>,

    /// For scripts written for restic: containers have one size
    #[arg(long, value_name = "SIZE", global = true, hide = true)]
    pack_size: Option<String>,

    /// For scripts written for restic: uploads are verified by the storage
    #[arg(long, global = true, hide = true)]
    no_extra_verify: bool,

    /// For scripts written for restic: the storage does not need to know
    #[arg(long, value_name = "TEXT", global = true, hide = true)]
    http_user_agent: Option<String>,

    /// For scripts written for restic: a request that makes no progress is repeated anyway
    #[arg(long, value_name = "TIME", global = true, hide = true)]
    stuck_request_timeout: Option<String>,
}

/// Such options of passes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IgnoredByPasses {
    /// For scripts written for restic: passes choose containers by their use
    #[arg(long, hide = true)]
    repack_small: bool,

    /// For scripts written for restic: all data is compressed
    #[arg(long, hide = true)]
    repack_uncompressed: bool,

    /// For scripts written for restic: passes choose containers by their use
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, default_missing_value = "true")]
    repack_cacheable_only: Option<String>,

    /// For people who know restic: is refused, with what to do
    #[arg(long, value_name = "ID", hide = true, value_parser = refuse_recovery)]
    unsafe_recover_no_free_space: Option<String>,
}

/// The index is never deleted to make room: the option has no counterpart.
fn refuse_recovery(_: &str) -> Result<String, &'static str> {
    Err("a pass stores some small objects before it deletes anything, and it never deletes the index. Make room for \
         a few MiB on the storage, then use `larder forget` and `larder prune`")
}

impl IgnoredArgs {
    /// The given ones, as they are written.
    pub(super) fn given(&self) -> Vec<String> {
        let Self { cleanup_cache, key_hint, pack_size, no_extra_verify, http_user_agent, stuck_request_timeout } = self;
        named(&[
            (*cleanup_cache, "--cleanup-cache"),
            (key_hint.is_some(), "--key-hint"),
            (pack_size.is_some(), "--pack-size"),
            (*no_extra_verify, "--no-extra-verify"),
            (http_user_agent.is_some(), "--http-user-agent"),
            (stuck_request_timeout.is_some(), "--stuck-request-timeout"),
        ])
    }
}

impl IgnoredByPasses {
    /// The given ones, as they are written.
    pub(super) fn given(&self) -> Vec<String> {
        let Self { repack_small, repack_uncompressed, repack_cacheable_only, unsafe_recover_no_free_space: _ } = self;
        named(&[
            (*repack_small, "--repack-small"),
            (*repack_uncompressed, "--repack-uncompressed"),
            (repack_cacheable_only.is_some(), "--repack-cacheable-only"),
        ])
    }
}

/// The names of those that are given.
pub(super) fn named(options: &[(bool, &str)]) -> Vec<String> {
    options.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| (*name).to_owned()).collect()
}
