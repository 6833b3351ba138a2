//! One process of the simulation: its view of the repository, its clock, its dice.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{JobId, RepositoryId};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::names;
use larder_format::seal::{Keys, MasterKey};
use larder_store::repository::{Entropy, random};
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use larder_testkit::data::Rng;
use larder_testkit::sim::{Life, Machine, Sim, World};
use parking_lot::Mutex;

use crate::simulation::ledger::{Broken, Ledger};

/// Why a process ends early. Nobody looks at it: it is in the trace what happened.
pub type Stop = Box<dyn std::error::Error>;

const MASTER: [u8; 32] = [9; 32];

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
    pub broken: Broken,
    machine: Machine,
    rng: RefCell<Rng>,
    /// By how much this process's clock is wrong.
    jump_ms: i64,
}

/// Makes the repository.
pub fn init(world: &World) {
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::MinCdc, 4096),
        page_cuts: true,
    };
    let bytes = config.encode(&Keys::derive(&MasterKey(MASTER))).unwrap();
    let store = Store::from_object_store(world.plain(), "", &StoreOptions::default()).unwrap();
    Sim::alone(store.create(names::CONFIG, bytes.into())).unwrap();
    world.take_changes();
}

impl Node {
    /// A process that begins to live.
    pub async fn start(life: Life, ledger: &Ledger, broken: Broken) -> Result<Self, Stop> {
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
        Ok(Self {
            repository: Repository::open_with_master(store, MasterKey(MASTER), dice).await?,
            ledger: ledger.clone(),
            broken,
            machine: life.machine,
            rng: RefCell::new(rng),
            jump_ms,
        })
    }

    pub fn now_ms(&self) -> u64 {
        self.ledger.tick().saturating_add_signed(self.jump_ms)
    }

    pub fn new_job(&self) -> Result<JobId, Stop> {
        Ok(JobId::new(self.now_ms(), random(self.repository.entropy())?))
    }

    /// The lease of a task that gives a version a new generation. `pins`: that version, and others that the task may share with.
    pub fn task_lease(&self, host: &str, series: &str, pins: Vec<Pin>, generation: u32) -> Lease {
        Lease {
            kind: JobKind::Task,
            series: series.to_owned(),
            pins,
            adopts: Vec::new(),
            host: host.to_owned(),
            process: 1,
            written_ms: self.now_ms(),
            renew_seconds: 300,
            claims: None,
            generation: Some(generation),
            layout: None,
            ended: None,
        }
    }

    pub fn below(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound as u64) as usize
    }

    pub fn one_in(&self, n: u64) -> bool {
        self.rng.borrow_mut().one_in(n)
    }

    pub fn rng(&self) -> std::cell::RefMut<'_, Rng> {
        self.rng.borrow_mut()
    }

    /// At times this process is suspended here, for as long as others need to change everything.
    pub async fn linger(&self) {
        if self.one_in(3) {
            let most = *self.rng().pick(&[30, 100, 400]);
            let requests = self.below(most) as u64;
            self.machine.linger(requests).await;
        }
    }

    /// Some time passes.
    pub async fn pause(&self) {
        let seconds = self.below(60) as u64;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// In a random order.
    pub fn shuffled<T>(&self, mut items: Vec<T>) -> Vec<T> {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
        items
    }
}
