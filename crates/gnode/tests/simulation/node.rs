//! One process of the simulation: its view of the repository, its clock, its dice.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::keys::{Keys, MasterKey};
use larder_format::names;
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress, Progress};
use larder_store::jobs::RENEW_EVERY;
use larder_store::repository::Entropy;
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use larder_testkit::data::Rng;
use larder_testkit::sim::{Life, Sim, World};
use parking_lot::Mutex;

use crate::ledger::{BLOCK, Ledger};
use crate::situation::Habits;

/// Why a process ends early. Nobody looks at it: it is in the trace what happened.
pub type Stop = Box<dyn std::error::Error>;

const MASTER: [u8; 32] = [9; 32];
/// Payload of a container: few chunks, so that there are many containers.
const PAYLOAD: usize = 2 * BLOCK as usize;
/// Bytes of memory for a job that reads.
pub const MEMORY: usize = 4 << 20;

#[derive(Debug)]
struct Dice(Mutex<Rng>);

impl Entropy for Dice {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RepositoryError> {
        self.0.lock().fill(bytes);
        Ok(())
    }
}

/// See the module header.
pub struct Node {
    pub repository: Repository,
    pub ledger: Ledger,
    pub habits: Habits,
    rng: RefCell<Rng>,
    /// By how much this process's clock is wrong.
    jump_ms: i64,
}

/// Makes the repository.
pub fn init(world: &World) {
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::Fixed, BLOCK),
        page_cuts: false,
    };
    let bytes = config.encode(&Keys::derive(&MasterKey(MASTER))).unwrap();
    let store = Store::from_object_store(world.plain(), "", &StoreOptions::default()).unwrap();
    Sim::alone(store.create(names::CONFIG, bytes.into())).unwrap();
    world.take_changes();
}

impl Node {
    /// A process that begins to live.
    pub async fn start(life: Life, ledger: &Ledger, habits: Habits, broken: &[Rule]) -> Result<Self, Stop> {
        let mut rng = Rng::new(life.seed);
        let options = StoreOptions {
            retry_deadline: Duration::from_secs(120),
            first_deadline: Duration::from_secs(120),
            attempt_timeout: Duration::from_secs(10),
            jitter_seed: rng.next_u64(),
            ..StoreOptions::default()
        };
        let store = Store::from_object_store(life.store, "", &options)?;
        let dice = Arc::new(Dice(Mutex::new(Rng::new(rng.next_u64()))));
        // Some minutes to and fro; at times a day, but backward: what comes from the future would be everybody's base for ever.
        let jump_ms = match rng.below(12) {
            0..3 => rng.below(1_200_000) as i64 - 600_000,
            3 => -86_400_000,
            _ => 0,
        };
        let repository = Repository::open_with_master(store, MasterKey(MASTER), dice).await?;
        let repository = repository.with_container_payload(PAYLOAD);
        Ok(Self {
            repository: broken.iter().fold(repository, |repository, rule| repository.without_rule(*rule)),
            ledger: ledger.clone(),
            habits,
            rng: RefCell::new(rng),
            jump_ms,
        })
    }

    pub fn now_ms(&self) -> u64 {
        self.ledger.tick().saturating_add_signed(self.jump_ms)
    }

    /// What the real jobs are given. Whatever they do, they do in turns with everything else.
    pub fn context(&self) -> JobContext {
        JobContext {
            repository: self.repository.clone(),
            executor: tokio::runtime::Handle::current().into(),
            clock: Arc::new(Ticking(AtomicU64::new(self.now_ms()))),
            threads: NonZeroUsize::MIN,
            memory: MEMORY,
            renew_every: if self.one_in(4) { Duration::from_secs(5) } else { RENEW_EVERY },
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            identity: Identity { host: "node".to_owned(), program: "simulation".to_owned(), process: 1 },
            machine: Machine::for_tests(self.repository.config().repository),
        }
    }

    /// The same, of a job that somebody may interrupt.
    pub fn fickle_context(&self) -> JobContext {
        let context = self.context();
        if !self.one_in(self.habits.interrupts) {
            return context;
        }
        let left = AtomicU64::new(self.below(4) as u64);
        let progress = Arc::new(Fickle { left, cancel: context.cancel.clone() });
        JobContext { progress, ..context }
    }

    /// The same, and what people would be told.
    pub fn noted_context(&self) -> (JobContext, Arc<Mutex<Vec<String>>>) {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let progress = Arc::new(Notes(notes.clone()));
        (JobContext { progress, ..self.context() }, notes)
    }

    pub fn below(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound as u64) as usize
    }

    pub fn one_in(&self, n: u64) -> bool {
        self.rng.borrow_mut().one_in(n)
    }

    /// One of some values.
    pub fn pick<T: Copy>(&self, of: &[T]) -> T {
        *self.rng.borrow_mut().pick(of)
    }

    pub fn rng(&self) -> std::cell::RefMut<'_, Rng> {
        self.rng.borrow_mut()
    }

    /// Some time passes.
    pub async fn pause(&self) {
        let seconds = self.rng().below(self.habits.rest);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Moves on by a second at every look.
pub struct Ticking(pub AtomicU64);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

/// Cancels a job after some of its work.
struct Fickle {
    left: AtomicU64,
    cancel: Cancel,
}

impl Progress for Fickle {
    fn done(&self, _: u64, _: u64) {
        if self.left.load(Ordering::Relaxed) == 0 {
            self.cancel.cancel();
        } else {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Remembers what people would be told.
struct Notes(Arc<Mutex<Vec<String>>>);

impl Progress for Notes {
    fn note(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}
