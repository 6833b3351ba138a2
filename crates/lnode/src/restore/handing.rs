//! Containers that successive windows need are read once, as far as memory allows.
//!
//! A window ends in the middle of containers, and the next one goes on there. So each window keeps
//! whole containers that it uses last, if the version needs more of them. The next one takes those
//! that it needs too, and does not request them. All of this is known before anything is fetched,
//! so an estimate counts the same requests.
//!
//! Other whole containers are handed on if the next window is planned before they are written.
//!
//! All together hold at most half of the memory for containers. The other half is then left for the
//! present window, and no container counts for more than that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crossbeam_channel::Sender;
use larder_format::ids::ContainerId;

use super::fetching::{Asked, FetchTask, Fetched, Fetcher, Fetches};
use super::plan::Window;

/// The containers that a window keeps for the next one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    kept: HashSet<ContainerId>,
    /// Bytes that windows have used so far, of all containers.
    used: HashMap<ContainerId, u64>,
    /// Others that it reads whole.
    others: HashSet<ContainerId>,
}

impl Kept {
    /// Whether a container is kept.
    pub(super) fn has(&self, id: &ContainerId) -> bool {
        self.kept.contains(id)
    }

    /// For the window that follows: nothing is kept yet.
    pub(super) fn following(&self) -> Self {
        Self { used: self.used.clone(), ..Self::default() }
    }

    /// The window uses so much of a container. Returns what was used of it so far, with this.
    pub(super) fn note_used(&mut self, id: ContainerId, bytes: u64) -> u64 {
        let used = self.used.entry(id).or_default();
        *used = used.saturating_add(bytes);
        *used
    }

    /// A container is kept.
    pub(super) fn keep(&mut self, id: ContainerId) {
        self.kept.insert(id);
    }

    /// Notes which others the window reads whole.
    pub(super) fn note_others(&mut self, tasks: &[FetchTask]) {
        let others = tasks.iter().filter(|task| task.ranges.is_none() && !self.has(&task.id));
        self.others = others.map(|task| task.id).collect();
    }

    /// Whether the next window may get a container that it reads whole, depending on time.
    pub(super) fn may_hand(&self, task: &FetchTask) -> bool {
        task.ranges.is_none() && self.others.contains(&task.id)
    }
}

/// Written containers on their way to the next window.
#[derive(Default)]
pub(super) struct Handing {
    /// They wait until that window is planned.
    waiting: Vec<Fetched>,
    next: Option<NextWindow>,
}

/// The window that comes next, for containers that it needs too.
pub(super) struct NextWindow {
    /// Those that it does not request, because the window before keeps them.
    reserved: HashSet<ContainerId>,
    /// Others that it reads whole.
    needs: HashSet<ContainerId>,
    out: Sender<Fetched>,
    asked: Arc<Asked>,
    /// Units of memory of other containers that may be handed on.
    room: u32,
}

impl Handing {
    /// A container was written. `is_kept`: its window keeps it.
    pub(super) fn written(&mut self, mut fetched: Fetched, is_kept: bool) {
        match &mut self.next {
            Some(next) => next.hand(fetched, is_kept),
            None if is_kept && fetched.is_whole && fetched.memory.is_some() => {
                fetched.turn = None;
                self.waiting.push(fetched);
            }
            None => {}
        }
    }

    /// This window comes next. It gets the containers that wait.
    pub(super) fn announce(&mut self, mut next: NextWindow) {
        self.waiting.drain(..).for_each(|fetched| next.hand(fetched, true));
        self.next = Some(next);
    }

    /// No window comes next, until another one is announced.
    pub(super) fn withdraw(&mut self) {
        self.next = None;
    }

    /// The same, and nothing waits for it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl NextWindow {
    /// The window of these fetches. It requests `tasks`, and not what the one before keeps:
    /// `reserved`.
    pub(super) fn of(
        fetcher: &Fetcher,
        fetches: &Fetches,
        tasks: &[FetchTask],
        reserved: &[FetchTask],
    ) -> Option<Self> {
        let (out, asked) = fetches.entrance()?;
        let held: u32 = reserved.iter().map(|task| fetcher.units(task.bytes)).sum();
        Some(Self {
            reserved: reserved.iter().map(|task| task.id).collect(),
            needs: tasks.iter().filter(|task| task.ranges.is_none()).map(|task| task.id).collect(),
            out,
            asked,
            room: fetcher.room_for_kept().saturating_sub(held),
        })
    }

    /// Takes a written container, if the window needs it and has not asked for it.
    fn hand(&mut self, fetched: Fetched, is_kept: bool) {
        let Fetched { id, container: Ok(container), memory: Some(memory), is_whole: true, .. } = fetched else {
            return;
        };
        let units = memory.num_permits() as u32;
        let is_reserved = is_kept && self.reserved.contains(&id);
        let has_room = is_reserved || (units <= self.room && self.needs.remove(&id) && fetched.turn.is_none());
        if !has_room || !self.asked.insert(id) {
            return;
        }
        if !is_reserved {
            self.room -= units;
        }
        let memory = Some(memory);
        let handed = Fetched { id, container: Ok(container), memory, turn: None, is_handed: true, is_whole: true };
        let _ = self.out.send(handed);
    }
}

/// The containers of a window, the last used first. Its runs are in the order of the stream.
pub(super) fn last_used(window: &Window) -> Vec<ContainerId> {
    let mut seen = vec![false; window.containers.len()];
    let runs = window.runs.iter().rev();
    let last = runs.filter(|run| !std::mem::replace(&mut seen[run.container as usize], true));
    last.map(|run| window.containers[run.container as usize]).collect()
}
