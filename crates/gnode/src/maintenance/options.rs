//! Which tasks a round has, and how they are done. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_lifecycle::arrange::ArrangeOptions;

use crate::defragment::DefragmentOptions;
use crate::pass::PassOptions;
use crate::reclaim::{Exact, ReclaimOptions, Unused};

/// A task of maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Newest versions are rewritten.
    Defragment,
    /// Data of forgotten versions and dead jobs is deleted.
    Collect,
    /// Containers are retired whose chunks are stored elsewhere too. Includes [`Self::Collect`].
    Dedup,
    /// The same, and chunks that no version needs are searched for, whether it is worth it or not.
    /// Newest versions are rewritten until they have next to nothing twice.
    Exact,
    /// Series in the layout `lifecycle` are arranged, all of them. Includes [`Self::Collect`].
    Arrange,
}

/// Newest versions may have this percentage of their bytes twice when the user wants them exact.
const EXACT_EXCESS_PERCENT: f64 = 0.1;

/// A rewrite that waited for several backups has this share of the version (percent) as its budget,
/// so that it comes below the bound at once.
const WAITED_PERCENT: u8 = 25;

/// How a round is done.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceOptions {
    /// The tasks. Empty: all, those that cost much only where they are worth it.
    pub tasks: BTreeSet<Task>,
    /// Whether tasks that copy wait until that is worth its cost. If tasks are named, or a limit of
    /// unused data, nothing waits.
    pub when_worth: bool,
    /// After this time nothing more starts; `None`: no limit. Counts for the whole round, and
    /// replaces the limit of `pass`.
    pub max_duration: Option<Duration>,
    /// Bytes that may be copied, uncompressed; `None`: no limit. Counts for the whole round, and
    /// replaces the limit of `pass`.
    pub max_rewrite: Option<u64>,
    /// Percent of the data that may stay unused; `None`: the defaults apply. Counts for the whole
    /// round, and replaces the limits of `defragment` and `pass`.
    pub max_unused: Option<f64>,
    /// How newest versions are rewritten.
    pub defragment: DefragmentOptions,
    /// How passes are made. Its `dry_run` and its memory count for all tasks. Its reclaiming and
    /// arranging are restricted to the tasks.
    pub pass: PassOptions,
}

impl MaintenanceOptions {
    /// Whether a task is part of the round.
    pub fn wants(&self, task: Task) -> bool {
        self.tasks.is_empty() || self.tasks.contains(&task)
    }

    /// The part of the round that needs no contents: it collects. `None`: another task was asked
    /// for, and all others read or move chunks.
    pub fn without_contents(self) -> Option<Self> {
        if self.tasks.iter().any(|task| *task != Task::Collect) {
            return None;
        }
        let pass = PassOptions { reclaim: None, arrange: None, ..self.pass };
        Some(Self { tasks: BTreeSet::from([Task::Collect]), pass, ..self })
    }

    /// Whether tasks that copy wait until that is worth its cost.
    pub fn waits(&self) -> bool {
        self.when_worth && self.tasks.is_empty() && self.max_unused.is_none()
    }

    /// Whether a pass is part of it: every task but defragmentation is done by one.
    pub(super) fn wants_pass(&self) -> bool {
        [Task::Collect, Task::Dedup, Task::Exact, Task::Arrange].into_iter().any(|task| self.wants(task))
    }

    /// Whether newest versions are rewritten.
    pub(super) fn rewrites_newest(&self) -> bool {
        self.wants(Task::Defragment) || self.wants(Task::Exact)
    }

    /// How newest versions are rewritten.
    pub(super) fn defragment(&self) -> DefragmentOptions {
        let mut options = DefragmentOptions { unused_percent: self.max_unused, ..self.defragment };
        if self.tasks.contains(&Task::Exact) {
            options.excess_percent = EXACT_EXCESS_PERCENT;
            options.budget.version_percent = 100;
        }
        if self.waits() {
            options.budget.version_percent = WAITED_PERCENT;
        }
        match self.wants(Task::Defragment) {
            true => options,
            false => options.only_duplicates(),
        }
    }

    /// How a pass is made after this number of copied bytes, with this time left.
    pub(super) fn pass_after(&self, copied: u64, left: Option<Duration>) -> PassOptions {
        let max_rewrite = self.max_rewrite.map(|most| most.saturating_sub(copied));
        let reclaim = self.exact().zip(self.pass.reclaim.clone());
        let arrange = self.pass.arrange.clone().filter(|_| self.wants(Task::Arrange));
        let all = self.tasks.contains(&Task::Arrange);
        PassOptions {
            max_duration: left,
            reclaim: reclaim.map(|(exact, options)| {
                let unused = match (self.max_unused, options.unused) {
                    (Some(percent), _) => Unused::OfRepository(percent),
                    (None, Unused::OfContainer(container)) if self.waits() => Unused::WhenMuch { container },
                    (None, unused) => unused,
                };
                ReclaimOptions { exact, unused, max_rewrite, ..options }
            }),
            arrange: arrange.map(|options| ArrangeOptions { all, ..options }),
            ..self.pass.clone()
        }
    }

    /// When chunks are searched for that no version needs; `None`: nothing is retired.
    fn exact(&self) -> Option<Exact> {
        match (self.tasks.is_empty(), self.tasks.contains(&Task::Exact), self.tasks.contains(&Task::Dedup)) {
            // Only the recipes say which chunks are unused.
            (true, ..) if self.max_unused.is_some() => Some(Exact::Always),
            (true, ..) => Some(Exact::WhenWorth),
            (false, true, _) => Some(Exact::Always),
            (false, false, true) => Some(Exact::Never),
            (false, false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::compress::Compression;

    fn only<const N: usize>(tasks: [Task; N]) -> MaintenanceOptions {
        MaintenanceOptions { tasks: tasks.into(), ..MaintenanceOptions::default() }
    }

    #[test]
    fn each_task_asks_for_its_part_of_a_pass() {
        let exact = |options: &MaintenanceOptions| options.pass_after(0, None).reclaim.map(|reclaim| reclaim.exact);
        let all_series = |options: &MaintenanceOptions| options.pass_after(0, None).arrange.map(|arrange| arrange.all);
        let all = only([]);
        assert!(all.wants_pass() && all.wants(Task::Defragment));
        assert_eq!((exact(&all), all_series(&all)), (Some(Exact::WhenWorth), Some(false)));
        assert!(!only([Task::Defragment]).wants_pass());
        let parts = [
            (only([Task::Collect]), None, None),
            (only([Task::Dedup]), Some(Exact::Never), None),
            (only([Task::Exact]), Some(Exact::Always), None),
            (only([Task::Dedup, Task::Exact]), Some(Exact::Always), None),
            (only([Task::Arrange]), None, Some(true)),
        ];
        for (options, reclaims, arranges) in parts {
            assert!(options.wants_pass() && !options.wants(Task::Defragment), "{options:?}");
            assert_eq!((exact(&options), all_series(&options)), (reclaims, arranges), "{:?}", options.tasks);
        }
    }

    #[test]
    fn the_exact_task_rewrites_newest_versions_for_their_duplicates_alone() {
        let of = |tasks: &[Task]| MaintenanceOptions {
            tasks: tasks.iter().copied().collect(),
            ..MaintenanceOptions::default()
        };
        assert_eq!(of(&[]).defragment(), DefragmentOptions::default());
        assert!(!of(&[Task::Dedup, Task::Collect]).rewrites_newest());
        let (exact, both) = (of(&[Task::Exact]), of(&[Task::Exact, Task::Defragment]));
        assert!(exact.rewrites_newest() && both.rewrites_newest());
        let excess = [&exact, &both].map(|options| options.defragment().excess_percent);
        assert_eq!(excess, [EXACT_EXCESS_PERCENT; 2]);
        assert_eq!(exact.defragment(), both.defragment().only_duplicates());
    }

    #[test]
    fn a_pass_has_the_budget_and_the_time_that_the_tasks_before_it_left() {
        let second = Duration::from_secs(1);
        let budget = |max_rewrite, copied| {
            let options = MaintenanceOptions { max_rewrite, ..MaintenanceOptions::default() };
            let pass = options.pass_after(copied, Some(second));
            assert_eq!(pass.max_duration, Some(second));
            pass.reclaim.expect("wanted").max_rewrite
        };
        assert_eq!(
            [(Some(10), 0), (Some(10), 4), (Some(10), 14)].map(|(most, copied)| budget(most, copied)),
            [Some(10), Some(6), Some(0)]
        );
        assert_eq!(budget(None, 14), None);
    }

    #[test]
    fn the_limit_of_unused_data_holds_for_all_tasks() {
        let limited = |tasks: BTreeSet<Task>| {
            let options = MaintenanceOptions { tasks, max_unused: Some(5.0), ..MaintenanceOptions::default() };
            let reclaim = options.pass_after(0, None).reclaim.expect("wanted");
            assert_eq!((options.defragment().unused_percent, reclaim.unused), (Some(5.0), Unused::OfRepository(5.0)));
            reclaim.exact
        };
        assert_eq!(limited(BTreeSet::new()), Exact::Always);
        assert_eq!(limited([Task::Dedup].into()), Exact::Never);
        let unlimited = MaintenanceOptions::default();
        let reclaim = unlimited.pass_after(0, None).reclaim.expect("wanted");
        assert_eq!((unlimited.defragment(), reclaim.unused), (unlimited.defragment, ReclaimOptions::default().unused));
    }

    #[test]
    fn a_pass_keeps_all_other_options() {
        let reclaim = ReclaimOptions { compression: Compression::Off, ..ReclaimOptions::default() };
        let arrange = ArrangeOptions { compression: Compression::Off, ..ArrangeOptions::default() };
        let pass =
            PassOptions { dry_run: true, reclaim: Some(reclaim), arrange: Some(arrange), ..PassOptions::default() };
        let made = MaintenanceOptions { pass, ..MaintenanceOptions::default() }.pass_after(0, None);
        assert!(made.dry_run);
        assert_eq!(made.reclaim.expect("wanted").compression, Compression::Off);
        assert_eq!(made.arrange.expect("wanted").compression, Compression::Off);
    }
}
