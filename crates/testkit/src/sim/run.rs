//! The scheduler: polls actors, lets requests be answered, makes actors crash and time pass, all
//! from one seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::task::{ArcWake, AtomicWaker, waker};
use object_store::ObjectStore;
use tokio::time::Instant;

use super::request::Ask;
use super::state::{START_MS, Weather};
use super::trace::Trace;
use super::world::World;

/// One life of an actor, from its start to its end or its crash.
pub struct Life {
    /// Its way to the bucket.
    pub store: Arc<dyn ObjectStore>,
    /// The machine it runs on.
    pub machine: Machine,
    /// Counts an actor's lives from 0.
    pub number: u64,
    /// A seed of its own.
    pub seed: u64,
}

/// Where an actor runs.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) world: World,
    pub(super) actor: Option<usize>,
}

impl Machine {
    /// The process is suspended for this number of requests of others, or until no other has one.
    /// Time need not pass. To be called where it hurts: the scheduler stops an actor before any of
    /// its requests, but rarely before just this one.
    pub async fn linger(&self, requests: u64) {
        if let Some(actor) = self.actor {
            // The process continues, with any outcome of the request.
            let _ = self.world.ask(actor, Ask::Linger(requests)).await;
        }
    }

    /// Writes a line into the trace.
    pub fn note(&self, line: &str) {
        self.world.note(line);
    }
}

type Begin = Box<dyn FnMut(Life) -> LocalBoxFuture<'static, ()>>;

struct Actor {
    begin: Begin,
    lives: u64,
    running: Option<LocalBoxFuture<'static, ()>>,
    flag: Arc<Flag>,
}

/// Says that an actor can go on, and wakes the scheduler.
#[derive(Default)]
struct Flag {
    set: AtomicBool,
    scheduler: Arc<AtomicWaker>,
}

impl ArcWake for Flag {
    fn wake_by_ref(flag: &Arc<Self>) {
        flag.set.store(true, Ordering::Relaxed);
        flag.scheduler.wake();
    }
}

/// An invariant does not hold.
#[derive(Debug)]
pub struct Failed {
    /// The message of the caller's check.
    pub what: String,
    /// At which step.
    pub step: u64,
    /// The events until then.
    pub trace: Trace,
}

/// A simulation.
pub struct Sim {
    world: World,
    actors: Vec<Actor>,
    scheduler: Arc<AtomicWaker>,
}

impl Sim {
    /// An empty bucket without actors.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self { world: World::new(seed, weather), actors: Vec::new(), scheduler: Arc::default() }
    }

    /// The bucket.
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// Adds an actor. `begin` starts it, and starts it again whenever it has crashed or ended.
    pub fn actor(&mut self, name: &str, mut begin: impl FnMut(Life) -> LocalBoxFuture<'static, ()> + 'static) {
        self.world.0.lock().names.push(name.to_owned());
        self.actors.push(Actor {
            begin: Box::new(move |life| begin(life)),
            lives: 0,
            running: None,
            flag: Arc::new(Flag { set: AtomicBool::new(true), scheduler: self.scheduler.clone() }),
        });
    }

    /// Runs this number of steps and calls `check` after each of them. Afterwards, all actors are
    /// gone, and requests under way have arrived or never will.
    pub fn run(
        &mut self,
        steps: u64,
        mut check: impl FnMut(&World, u64) -> Result<(), String>,
    ) -> Result<Trace, Box<Failed>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O needs nothing");
        let scheduled = tokio::task::unconstrained(async {
            let begin = Instant::now();
            for step in 0..steps {
                self.step().await;
                self.world.0.lock().now_ms = START_MS + begin.elapsed().as_millis() as u64;
                self.ask(step, &mut check)?;
            }
            self.actors.iter_mut().for_each(|actor| actor.running = None);
            self.world.settle();
            self.ask(steps, &mut check)
        });
        runtime.block_on(scheduled)?;
        Ok(self.world.trace())
    }

    /// Runs one future to its end on the clock of a simulation, undisturbed.
    pub fn alone<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without I/O needs nothing").block_on(tokio::task::unconstrained(future))
    }

    fn ask(&self, step: u64, check: &mut impl FnMut(&World, u64) -> Result<(), String>) -> Result<(), Box<Failed>> {
        check(&self.world, step).map_err(|what| Box::new(Failed { what, step, trace: self.world.trace() }))
    }

    async fn step(&mut self) {
        let killed = std::mem::take(&mut self.world.0.lock().killed);
        for name in killed {
            let at = self.world.0.lock().names.iter().position(|other| *other == name);
            at.into_iter().for_each(|at| self.crash(at));
        }
        self.poll_all();
        let (crash, delay) = {
            let mut state = self.world.0.lock();
            let weather = state.weather;
            let crash = (state.rng.below(10_000) < weather.crashes).then(|| state.rng.below(self.actors.len() as u64));
            let delay = (state.rng.below(10_000) < weather.delays).then(|| state.rng.within(1..60));
            (crash, delay)
        };
        if let Some(at) = crash {
            self.crash(at as usize);
            self.poll_all();
        }
        if let Some(seconds) = delay {
            self.world.note(format!("{seconds} seconds pass"));
            tokio::time::advance(Duration::from_secs(seconds)).await;
            self.poll_all();
        }
        if !self.world.go_on() {
            // All sleep, or wait for an event that will not come.
            self.woken().await;
        }
    }

    fn crash(&mut self, at: usize) {
        let name = self.world.0.lock().name(at);
        self.world.note(format!("{name}: crashes"));
        self.actors[at].running = None;
        self.world.forget(at);
    }

    /// Polls the actors that can continue, until none can.
    fn poll_all(&mut self) {
        loop {
            let mut polled = false;
            for at in 0..self.actors.len() {
                if self.actors[at].running.is_none() {
                    self.begin(at);
                }
                if self.world.is_still(at) {
                    continue;
                }
                let actor = &mut self.actors[at];
                let Some(running) = &mut actor.running else { continue };
                if !actor.flag.set.swap(false, Ordering::Relaxed) {
                    continue;
                }
                polled = true;
                let waker: Waker = waker(actor.flag.clone());
                if running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    actor.running = None;
                }
            }
            if !polled {
                return;
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let seed = self.world.0.lock().rng.next_u64();
        let actor = &mut self.actors[at];
        let life = Life {
            store: self.world.client(at),
            machine: Machine { world: self.world.clone(), actor: Some(at) },
            number: actor.lives,
            seed,
        };
        actor.lives += 1;
        actor.running = Some((actor.begin)(life));
        actor.flag.set.store(true, Ordering::Relaxed);
    }

    async fn woken(&self) {
        let moving = self.actors.iter().enumerate().filter(|(at, _)| !self.world.is_still(*at));
        let flags: Vec<_> = moving.map(|(_, actor)| actor.flag.clone()).collect();
        let woken = std::future::poll_fn(|context| {
            self.scheduler.register(context.waker());
            if flags.iter().any(|flag| flag.set.load(Ordering::Relaxed)) { Poll::Ready(()) } else { Poll::Pending }
        });
        // Where all wait for ever, a day passes.
        if tokio::time::timeout(Duration::from_secs(86_400), woken).await.is_err() {
            self.world.wake_all();
        }
    }
}

impl World {
    /// The life of a client that is not part of the simulation.
    pub fn outside(&self, seed: u64) -> Life {
        Life { store: self.plain(), machine: Machine { world: self.clone(), actor: None }, number: 0, seed }
    }
}
