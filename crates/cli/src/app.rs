//! [`App`]: the context of every command, made from the global options: output, a runtime for
//! requests, signals, the repository.

use std::future::Future;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_format::compress::Compression;
use larder_format::ids::RepositoryId;
use larder_format::names;
use larder_job::{Cancel, JobContext, Machine, Progress, SystemClock};
use larder_reader::FetchOptions;
use larder_store::config::{find_config, find_config_and_keys};
use larder_store::jobs::RENEW_EVERY;
use larder_store::prices::Prices;
use larder_store::repository::{SystemEntropy, random};
use larder_store::{
    CacheOptions, Environment, Location, OpenHints, Repository, RepositoryError, SftpLocation, Store, StoreErrorKind,
    StoreOptions, TlsOptions, Unlisted,
};
use parking_lot::Mutex;

use crate::args::{FetchArgs, Global};
use crate::configured::{Configured, no_file};
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::key_file;
use crate::machine;
use crate::output::Output;
use crate::password::{Password, PasswordSource};
use crate::signals::Interrupts;

/// How often a user may try a password.
const PROMPTS: usize = 3;

/// Disk space for containers of a remote repository that are read again.
const CACHE_DISK_DEFAULT: u64 = 1 << 30;

/// Threads that read and write files of a local repository. The heap keeps freed containers for
/// each thread, so more threads than a disk can use would only cost memory. With eight a dump needs
/// half as much again.
const FILE_THREADS: usize = 2;

/// The context of every command.
pub(crate) struct App {
    pub(crate) global: Global,
    /// The part of the configuration file that this command uses.
    pub(crate) configured: Configured,
    pub(crate) out: Output,
    pub(crate) interrupts: Interrupts,
    /// The steps of a run share one.
    runtime: Arc<OnceLock<tokio::runtime::Runtime>>,
    found_damage: AtomicBool,
    /// Objects that listings could not examine.
    pub(crate) unlisted: Arc<Unlisted>,
    /// When this command opened its repository.
    pub(crate) began: Mutex<Option<Began>>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("global", &self.global).finish_non_exhaustive()
    }
}

/// Shows remarks for users, and nothing else.
struct Remarks(Output);

impl Progress for Remarks {
    fn note(&self, text: &str) {
        self.0.remark(&format!("note: {text}"));
    }

    fn aside(&self, text: &str) {
        self.0.aside(text);
    }
}

/// What opened a repository.
#[derive(Debug)]
pub(crate) enum Unlocked {
    /// A password.
    Password(Password),
    /// The key file of this machine.
    KeyFile,
}

/// An opened repository, and what opened it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) repository: Repository,
    pub(crate) unlocked: Unlocked,
}

/// The repository that a command works on, and since when. Typing a password takes no part.
#[derive(Debug)]
pub(crate) struct Began {
    pub(crate) store: Store,
    pub(crate) repository: RepositoryId,
    pub(crate) at: Instant,
}

impl Began {
    fn now(repository: &Repository) -> Self {
        Self { store: repository.store().clone(), repository: repository.config().repository, at: Instant::now() }
    }
}

impl App {
    /// Prepares; touches nothing yet.
    pub(crate) fn new(global: Global, configured: Configured, out: Output) -> Self {
        let interrupts = Interrupts::listen(&out);
        let (found_damage, unlisted) = (AtomicBool::new(false), Arc::default());
        Self {
            global,
            configured,
            out,
            interrupts,
            runtime: Arc::default(),
            found_damage,
            unlisted,
            began: Mutex::default(),
        }
    }

    /// The context of a step of this command, with options of its own.
    pub(crate) fn step(&self, global: Global, configured: Configured, out: Output) -> Self {
        let (interrupts, runtime) = (self.interrupts.clone(), self.runtime.clone());
        let (found_damage, unlisted) = (AtomicBool::new(false), Arc::default());
        Self { global, configured, out, interrupts, runtime, found_damage, unlisted, began: Mutex::default() }
    }

    /// Notes damage that does not stop the command: it must not end with success.
    pub(crate) fn note_damage(&self) {
        self.found_damage.store(true, Ordering::Relaxed);
    }

    /// The exit code of the process for this end of a command.
    pub(crate) fn final_exit(&self, exit: Exit) -> Exit {
        for error in self.unlisted.take() {
            let why = error.source.as_ref().map_or_else(|| error.kind.to_string(), ToString::to_string);
            self.out.warn(&format!("{} cannot be examined: {why}", error.name));
            self.note_damage();
        }
        if exit == Exit::Done && self.found_damage.load(Ordering::Relaxed) { Exit::Damage } else { exit }
    }

    /// The runtime that serves requests, started when first needed.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.get_or_init(|| {
            // Requests wait for the network and do not compute; two threads serve many of them.
            let (workers, files) = if self.global.total_memory.is_some() { (1, 2) } else { (2, FILE_THREADS) };
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(workers)
                .max_blocking_threads(files)
                .thread_name("requests")
                .enable_all()
                .build()
                .expect("the system can start two threads")
        })
    }

    /// Waits for a request.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime().block_on(future)
    }

    /// How to reach a store.
    fn store_options(&self) -> StoreOptions {
        let mut options = StoreOptions {
            upload_limit: self.global.limit_upload.and_then(NonZeroU64::new),
            download_limit: self.global.limit_download.and_then(NonZeroU64::new),
            jitter_seed: jitter_seed(),
            tls: TlsOptions {
                authorities: self.global.cacert.clone(),
                accepts_anyone: self.global.insecure_tls,
                identity: self.global.tls_client_cert.clone(),
            },
            sftp: self.global.storage.sftp(),
            s3: self.global.storage.s3(),
            ..StoreOptions::default()
        };
        if let Some(timeout) = self.global.timeout {
            options.retry_deadline = timeout;
            options.first_deadline = timeout;
            options.attempt_timeout = options.attempt_timeout.min(timeout.max(Duration::from_secs(1)));
        }
        options
    }

    /// The store at a location, as the options say.
    pub(crate) fn store_at(&self, location: &Location) -> Result<Store, Failure> {
        self.store_for(location, None)
    }

    /// The same; for a rehearsal, with the folder for what would be created.
    fn store_for(&self, location: &Location, rehearse_in: Option<PathBuf>) -> Result<Store, Failure> {
        if let Location::Local(path) = location
            && std::fs::metadata(path).is_ok_and(|found| !found.is_dir())
        {
            let why = format!("there is no Larder repository at {}: it is not a folder", path.display());
            return Err(Failure::new(Exit::NoRepository, why).advise(format!("check {}", self.repository_option())));
        }
        let mut options = self.store_options();
        // Copies on this machine help only where requests are slow. What a rehearsal creates is no
        // object of the store, and must not be kept as one.
        if !matches!(location, Location::Local(_) | Location::Memory) && rehearse_in.is_none() {
            options.cache = environment::cache_dir(&self.global).map(CacheOptions::new);
        }
        options.rehearse_in = rehearse_in;
        let variables = Environment::of_process().with(self.configured.variables.clone());
        let store = Store::open_with(location, &options, &variables)?;
        let waiting = store.waiting().clone();
        self.interrupts.on_cancel(move || waiting.end());
        if !matches!(location, Location::Local(_) | Location::Memory) {
            let out = self.out.clone();
            store.waiting().on_silence(move |text| out.warn(text));
        }
        Ok(store.past_unlisted(&self.unlisted))
    }

    /// The location of the repository.
    pub(crate) fn location(&self) -> Result<Location, Failure> {
        let names = self.configured.config.as_ref().map(|config| config.repository_names());
        let location =
            environment::location(&self.global).map_err(|failure| match names.filter(|names| !names.is_empty()) {
                Some(names) if !environment::names_repository(&self.global) => {
                    failure.advise(format!("use -r with a location or one of the names {names}, or -P with a profile"))
                }
                _ => failure,
            })?;
        // `@nas` without a configuration; a folder of that name is `./@nas`.
        match &location {
            Location::Local(path) if path.to_str().is_some_and(|path| path.starts_with('@')) => {
                Err(no_file(format!("there is no configuration with a repository \"{}\"", path.display())))
            }
            _ => Ok(location),
        }
    }

    /// The prices of the repository's storage: those that were given, else list prices. `None`: it
    /// charges nothing, or its prices are unknown.
    pub(crate) fn prices(&self) -> Option<Prices> {
        if self.global.prices.is_some() {
            return self.global.prices.clone();
        }
        let variables = Environment::of_process().with(self.configured.variables.clone());
        Prices::listed(&self.location().ok()?, variables.s3_endpoint())
    }

    /// The option that names the repository.
    fn repository_option(&self) -> &'static str {
        if self.global.is_source { "--from-repo" } else { "-r/--repo" }
    }

    /// The names of the repositories in the configuration, if a location looks like one and is
    /// none.
    pub(crate) fn like_a_name(&self, location: &Location) -> Option<String> {
        let names = self.configured.config.as_ref().map(|config| config.repository_names())?;
        let Location::Local(path) = location else { return None };
        let is_word = path.is_relative() && !path.as_os_str().as_encoded_bytes().contains(&b'/');
        (is_word && !names.is_empty() && self.configured.repository.is_none()).then_some(names)
    }

    /// The store of the repository.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
        self.store_at(&self.location()?)
    }

    /// Opens the repository with the password.
    pub(crate) fn open(&self) -> Result<Opened, Failure> {
        self.open_on(self.store()?)
    }

    /// Opens the repository for a rehearsal: no change reaches the storage, and the counters are
    /// those of a run.
    pub(crate) fn rehearse(&self) -> Result<Opened, Failure> {
        let scratch = self.scratch().unwrap_or_else(std::env::temp_dir);
        self.open_on(self.store_for(&self.location()?, Some(scratch))?)
    }

    fn open_on(&self, store: Store) -> Result<Opened, Failure> {
        if let Some(path) = PasswordSource::key_file(&self.global) {
            return self.open_with_key_file(store, &path);
        }
        // Before a password is asked for, it must be clear that there is a repository.
        // A machine that remembers a repository knows which of the keys it needs.
        let found = match machine::remembers_any(&self.global) {
            true => self.block_on(find_config(&store)),
            false => self.block_on(find_config_and_keys(&store)),
        };
        let found = found.map_err(|error| self.not_opened(error))?;
        let memory = found.claimed_repository().map(|id| machine::Memory::open(&self.global, id));
        let last = memory.as_ref().and_then(machine::Memory::last_key);
        let hints = OpenHints { last, takes_costly_keys: self.global.costly_keys };
        let source = PasswordSource::of(&self.global);
        for attempt in 1.. {
            let known = if source.is_prompt() { self.configured.secret.lock().take() } else { None };
            let name = self.configured.repository.as_deref();
            let get = || match (self.global.is_source, name) {
                (true, name) => source.get_of_source(name.unwrap_or("to copy from")),
                (false, name) => source.get_of(name),
            };
            let password = known.map_or_else(get, Ok)?;
            let open = Repository::open_knowing(store.clone(), &password, &found, hints, Arc::new(SystemEntropy));
            match self.block_on(open) {
                Err(RepositoryError::WrongPassword { .. }) if source.is_prompt() && attempt < PROMPTS => {
                    self.out.remark("wrong password, try again");
                }
                Err(error) => return Err(error.into()),
                Ok(repository) => {
                    if let (Some(memory), Some(key)) = (&memory, repository.opened_by()) {
                        memory.note_key(key);
                    }
                    if source.is_prompt() {
                        // The next step, or the next repository with the same password, asks not
                        // again.
                        *self.configured.secret.lock() = Password::copy_of(&password).ok();
                    }
                    return Ok(self.opened(&store, &repository, Unlocked::Password(password)));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Opens the repository with the key file of this machine.
    fn open_with_key_file(&self, store: Store, path: &Path) -> Result<Opened, Failure> {
        let keys = key_file::read(path)?;
        let open = Repository::open_with_machine_key(store.clone(), &keys, Arc::new(SystemEntropy));
        let repository = self.block_on(open).map_err(|error| self.not_opened(error))?;
        Ok(self.opened(&store, &repository, Unlocked::KeyFile))
    }

    fn opened(&self, store: &Store, repository: &Repository, unlocked: Unlocked) -> Opened {
        if let Some(problem) = repository.config_problem() {
            self.out.warn(&format!("{}; `larder repair config` restores it", config_words(problem)));
        }
        // The repository's id is proved only now, and the cache must never mix two repositories.
        let cached = store.with_cache_of(repository.config().repository);
        let repository = repository.through(cached);
        self.began.lock().get_or_insert_with(|| Began::now(&repository));
        Opened { repository, unlocked }
    }

    /// The first request failed: the reason is the location, not one object.
    fn not_opened(&self, error: RepositoryError) -> Failure {
        // Failures with a message of their own keep it.
        let is_place = matches!(&error, RepositoryError::Store(error)
        if error.name == names::CONFIG && !error.is_wrong_clock() && !matches!(
            error.kind,
            StoreErrorKind::NoConnection | StoreErrorKind::NoBucket | StoreErrorKind::Foreign
        ));
        let is_of_sftp = matches!(&error, RepositoryError::Store(error) if error.is_of_sftp());
        let is_of_other_program = matches!(&error, RepositoryError::OtherConfig { .. });
        let failure = Failure::from(error);
        let Ok(location) = environment::location(&self.global) else { return failure };
        match failure.exit {
            Exit::NoRepository if is_of_other_program => failure,
            Exit::NoRepository if self.global.is_source => failure.advise("check --from-repo"),
            Exit::NoRepository => match (&self.configured.repository, self.like_a_name(&location)) {
                (Some(name), _) => failure.advise(format!("`larder -r {name} init` creates it")),
                (None, Some(names)) => failure.advise(format!("it is no name in the configuration, which has {names}")),
                (None, None) => failure,
            },
            Exit::Unreachable if is_place => failure
                .while_doing(&format!("cannot open the repository at {location}"))
                .advise(self.advice_on_place(&location, is_of_sftp)),
            Exit::Unreachable if is_of_sftp => failure.advise(self.advice_on_place(&location, true)),
            _ => failure,
        }
    }

    /// Advice about a location that does not answer.
    fn advice_on_place(&self, location: &Location, is_of_sftp: bool) -> String {
        let option = self.repository_option();
        match location {
            Location::Sftp(_) if is_of_sftp && self.global.storage.sftp().command.is_some() => {
                format!("check {option}, and run the command of sftp.command by hand")
            }
            Location::Sftp(place) if is_of_sftp => format!("check {option}, and try `{}` by hand", by_hand(place)),
            _ => format!("check {option}, the network, and the credentials and what they may do"),
        }
    }

    /// The context of a job.
    pub(crate) fn context(&self, repository: Repository, progress: Arc<dyn Progress>) -> JobContext {
        JobContext { cancel: self.interrupts.job_begins(), progress, ..self.reading(repository) }
    }

    /// The context of reading without a lease: it may be interrupted at any moment.
    pub(crate) fn reading(&self, repository: Repository) -> JobContext {
        JobContext {
            repository,
            executor: self.runtime().handle().into(),
            clock: Arc::new(SystemClock),
            threads: self.threads(),
            memory: self.global.memory(),
            renew_every: RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(Remarks(self.out.clone())),
            identity: environment::identity(),
            machine: Machine::default(),
        }
    }

    /// The context of a pass or a repair of the index, which `cancel` stops.
    pub(crate) fn maintaining(&self, repository: &Repository, cancel: &Cancel) -> JobContext {
        let machine = machine::noting(&self.global, &self.out, repository);
        JobContext { cancel: cancel.clone(), machine, ..self.reading(repository.clone()) }
    }

    /// How contents are fetched.
    pub(crate) fn fetching(&self, args: &FetchArgs) -> Result<FetchOptions, Failure> {
        let is_near = matches!(self.location()?, Location::Local(_) | Location::Memory);
        let mut options = FetchOptions::default();
        options.prefetch = args.prefetch.unwrap_or(options.prefetch);
        let cache = environment::cache_dir(&self.global);
        // A local repository is already on disk. Without a cache folder there is only the folder
        // for temporary files, which often is memory: it is used only on request.
        let default = if is_near || cache.is_none() { 0 } else { CACHE_DISK_DEFAULT };
        options.cache_disk = args.cache_disk.unwrap_or(default);
        if let Some(scratch) = self.scratch() {
            options.scratch = scratch;
        }
        Ok(options)
    }

    /// Folder for temporary files that may be large. The usual one often is memory, so there is
    /// none without a cache folder.
    pub(crate) fn scratch(&self) -> Option<PathBuf> {
        environment::cache_dir(&self.global).map(|dir| dir.join("scratch"))
    }

    pub(crate) fn threads(&self) -> std::num::NonZeroUsize {
        let all = || std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN);
        self.global.threads.unwrap_or_else(all)
    }

    /// How new data is compressed.
    pub(crate) fn compression(&self) -> Compression {
        self.global.compression()
    }
}

/// The damage of the object `config`, whose copy is used.
pub(crate) fn config_words(problem: &RepositoryError) -> String {
    match problem {
        RepositoryError::NotARepository { .. } => "config is missing".to_owned(),
        RepositoryError::ConfigUnusable { reason } => reason.clone(),
        problem => chain(problem),
    }
}

/// A command that connects to an SFTP server as this program does.
fn by_hand(place: &SftpLocation) -> String {
    let host = match &place.user {
        Some(user) => format!("{user}@{}", place.host),
        None => place.host.clone(),
    };
    match place.port {
        Some(port) => format!("ssh -p {port} {host}"),
        None => format!("ssh {host}"),
    }
}

/// Differs between processes; only politeness depends on it.
fn jitter_seed() -> u64 {
    // Without random bytes all clients have the same jitter.
    random(&SystemEntropy).map_or(0, u64::from_le_bytes)
}
