//! What becomes of a store that no protocol can prevent: it loses an object, spoils one, answers wrongly. At most one a run.
//!
//! Each accident comes at the moment at which one rule decides whether it stays the only loss.

use std::collections::BTreeMap;
use std::rc::Rc;

use larder_format::ids::{ContainerId, JobId};
use larder_format::manifest::Manifest;
use larder_format::names;
use larder_testkit::data::Rng;
use larder_testkit::sim::{Change, World, Wrong, WrongAnswer};

use crate::moved::ReclaimReport;

/// An accident that a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accident {
    /// The newest index is lost.
    LostIndex,
    /// An index rots before it is marked.
    SpoiltIndex,
    /// A register is lost before an index knows its version.
    LostRegister,
    /// The pass dies that retired containers, and one is lost that they forward to.
    LostForward,
    /// Generations above 0 are answered wrongly to backups.
    UnreadableGeneration,
    /// One answer is wrong.
    WrongAnswer,
    /// A create replaces what is there.
    Overwriting,
}

/// An accident that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    IndexLost(u64),
    IndexSpoilt(u64),
    /// Under this name, which is about to be lost.
    RegisterLost(String),
    ForwardLost,
}

/// The accident of a run.
#[derive(Debug)]
pub struct Accidents {
    accident: Option<Accident>,
    dice: Rng,
    /// So many chances are let go by.
    skips: u64,
    /// What is lost, and after how many steps.
    pending: Option<(String, u64)>,
}

/// One wrong answer each.
const ANSWERS: &[(&str, &str, &str, Wrong)] = &[
    ("G", "list jobs", "", Wrong::Lacks),
    ("G", "list jobs", "", Wrong::Lacks),
    ("G", "list versions", "", Wrong::Lacks),
    ("G", "list data", "", Wrong::Lacks),
    ("G", "list index", "", Wrong::Lacks),
    ("G", "read jobs/", "", Wrong::Missing),
    ("G", "read versions/", "", Wrong::Missing),
    ("L", "read forgotten/", "", Wrong::Missing),
    ("L", "read versions/", "", Wrong::Missing),
    ("L", "list versions/", "", Wrong::Lacks),
];

impl Accidents {
    pub fn new(accident: Option<Accident>, seed: u64, world: &World) -> Self {
        let mut dice = Rng::new(seed ^ 0xacc1);
        match accident {
            Some(Accident::UnreadableGeneration) => {
                let read = WrongAnswer { actor: "L", to: "read versions/", not: "/0", wrong: Wrong::Garbage, after: 0 };
                // As often as it is asked for.
                (0..50).for_each(|_| world.answer_wrongly(read));
            }
            Some(Accident::WrongAnswer) => {
                let (actor, to, not, wrong) = *dice.pick(ANSWERS);
                world.answer_wrongly(WrongAnswer { actor, to, not, wrong, after: dice.below(60) });
            }
            Some(Accident::Overwriting) => world.set_overwrites(true),
            _ => {}
        }
        let skips = dice.below(6);
        Self { accident, dice, skips, pending: None }
    }

    /// Whether this is the chance that is taken.
    fn is_taken(&mut self) -> bool {
        let is_taken = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        is_taken
    }

    /// After every step. `reclaimed` is what the newest index says.
    pub fn look(
        &mut self,
        world: &World,
        changes: &[Change],
        reclaimed: &ReclaimReport,
        versions: &BTreeMap<JobId, Rc<Manifest>>,
    ) -> Option<Happened> {
        let accident = self.accident?;
        for change in changes {
            let Change::Created(name) = change else { continue };
            match accident {
                Accident::LostIndex
                    if names::parse_index(name).is_some() && (self.pending.is_some() || self.is_taken()) =>
                {
                    // Mostly it is marked by then.
                    self.pending = Some((name.clone(), self.dice.within(5..60)));
                }
                Accident::SpoiltIndex => {
                    if let Some(number) = names::parse_index(name)
                        && self.is_taken()
                    {
                        world.spoil(name);
                        self.accident = None;
                        return Some(Happened::IndexSpoilt(number));
                    }
                }
                Accident::LostRegister => {
                    if names::parse_index(name).is_some() {
                        // It may know the version.
                        self.pending = None;
                    } else if matches!(names::parse_version(name), Some((.., 0))) && self.is_taken() {
                        self.pending = Some((name.clone(), self.dice.within(0..12)));
                    }
                }
                Accident::LostForward if names::parse_indexed(name).is_some() => {
                    let there = |id: &ContainerId| world.has(&names::container(*id));
                    let is_named = |id: &ContainerId| {
                        versions.values().any(|version| version.containers.iter().any(|usage| usage.container == *id))
                    };
                    let mut forwards = reclaimed.values().flatten().filter(|to| there(to) && !is_named(to));
                    let is_lost = forwards.find(|to| {
                        // All that it has is still where it was, and stays there for anything that was sent before.
                        let mut from = reclaimed.iter().filter(|(_, forwards)| forwards.contains(to));
                        from.all(|(from, _)| there(from) && !world.is_being_deleted(&names::container(*from)))
                    });
                    if let Some(lost) = is_lost
                        && self.is_taken()
                    {
                        let name = names::container(*lost);
                        world.kill("G1");
                        world.lose(&name);
                        self.accident = None;
                        return Some(Happened::ForwardLost);
                    }
                }
                _ => {}
            }
        }
        let (name, left) = self.pending.take()?;
        if left > 0 {
            self.pending = Some((name, left - 1));
            return None;
        }
        self.accident = None;
        world.has(&name).then(|| match names::parse_index(&name) {
            Some(number) => {
                world.lose(&name);
                Happened::IndexLost(number)
            }
            None => Happened::RegisterLost(name),
        })
    }
}
