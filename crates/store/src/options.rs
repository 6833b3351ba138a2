//! Settings of the store: the choices of a user or a job about how it is reached.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// How to reach a store. None of these settings changes stored data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// How long one request is repeated before its failure is reported. Default: 15 minutes.
    pub retry_deadline: Duration,
    /// The same for as long as the store has not answered anything at all, so that a mistyped host
    /// is reported soon. Default: 1 minute, enough to ask once more after an attempt that hung.
    pub first_deadline: Duration,
    /// How long one attempt may go without progress. An upload is given more in proportion to its
    /// size, and twice as much again with each attempt. Default: 30 seconds.
    pub attempt_timeout: Duration,
    /// How many requests with large bodies, and creates and deletes, may be under way at once.
    /// Default: 16.
    pub concurrency: NonZeroUsize,
    /// How many reads of small objects, and of small parts, may be under way beside them. They wait
    /// for the store and not for the network. Default: 64.
    pub small_concurrency: NonZeroUsize,
    /// Bytes a second sent at most; `None` (the default) for no limit.
    pub upload_limit: Option<NonZeroU64>,
    /// Bytes a second received at most; `None` (the default) for no limit.
    pub download_limit: Option<NonZeroU64>,
    /// Where to keep a copy of metadata; `None` (the default) for nowhere.
    pub cache: Option<CacheOptions>,
    /// Whom to trust beside the system's authorities.
    pub tls: TlsOptions,
    /// How to connect to SFTP servers.
    pub sftp: SftpOptions,
    /// How objects are stored on S3.
    pub s3: S3Options,
    /// Rehearse: read the store and never change it. What would be created is kept in a temporary
    /// file of this folder, and hides or shows as after a real run. `None` (the default): do not.
    pub rehearse_in: Option<PathBuf>,
    /// Varies the pauses between attempts from one process to the next, and names its staging files
    /// on SFTP servers. Draw it at random. Equal seeds are safe, but such clients disturb one
    /// another.
    pub jitter_seed: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            retry_deadline: Duration::from_secs(15 * 60),
            first_deadline: Duration::from_secs(60),
            attempt_timeout: Duration::from_secs(30),
            concurrency: const { NonZeroUsize::new(16).expect("not zero") },
            small_concurrency: const { NonZeroUsize::new(64).expect("not zero") },
            upload_limit: None,
            download_limit: None,
            cache: None,
            tls: TlsOptions::default(),
            sftp: SftpOptions::default(),
            s3: S3Options::default(),
            rehearse_in: None,
            jitter_seed: 0,
        }
    }
}

/// Whom a client trusts over HTTPS, and who it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A file in PEM with authorities to trust besides the system's.
    pub authorities: Option<PathBuf>,
    /// Accept every certificate: anybody on the way can read credentials and requests. Contents are
    /// sealed anyway.
    pub accepts_anyone: bool,
    /// A file in PEM with the client's own certificate and its key, for servers that ask for one.
    pub identity: Option<PathBuf>,
}

/// How objects are stored on S3.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The storage class of new data containers, such as `DEEP_ARCHIVE`; `None`: that of the
    /// bucket. All other objects have that of the bucket, because every command needs them.
    pub storage_class: Option<String>,
}

/// How an SFTP server is reached. The names are restic's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpOptions {
    /// A command for the shell that speaks SFTP on its standard streams, in the place of `ssh`.
    pub command: Option<String>,
    /// Further arguments for `ssh`, as the shell splits them.
    pub args: Option<String>,
    /// Connections at most. Default: 4.
    pub connections: NonZeroUsize,
}

impl Default for SftpOptions {
    fn default() -> Self {
        Self { command: None, args: None, connections: const { NonZeroUsize::new(4).expect("not zero") } }
    }
}

/// Where and how much metadata is kept on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder of all repositories' caches. It can be deleted at any time.
    pub dir: PathBuf,
    /// How large one repository's cache may grow; the objects that were stored in it first go
    /// first. Default: 2 GiB.
    pub max_bytes: u64,
}

impl CacheOptions {
    /// A cache in `dir` of the default size.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), max_bytes: 2 << 30 }
    }
}
