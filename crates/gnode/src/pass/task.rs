//! A task of a pass: work on containers that versions still name, in the draft of the next index.
//!
//! A pass has a list of tasks ([`super::tasks`]). A dry run asks each for its plan. Any other pass
//! runs them in their order, after the draft has the chunks of new containers, and publishes the
//! draft. To add a task: implement [`MaintenanceTask`], add its numbers to [`TaskPlan`] and
//! [`TaskReport`], and put it into the list.
//!
//! Containers that a task retires may be deleted as soon as the draft is published. Containers that
//! it wrote and no index has are found by the lease of its pass.

use larder_index::{Draft, IndexPass};
use larder_lifecycle::arrange::{self, ArrangePlan, Arranged, RetiredContainers};

use crate::reclaim::{self, ReclaimError, ReclaimPlan, ReclaimReport};

/// See the module header.
pub(super) trait MaintenanceTask: Send {
    /// The plan, as far as the index knows. Changes nothing.
    fn plan(&self, pass: &IndexPass, draft: &Draft<'_>) -> Result<TaskPlan, ReclaimError>;

    /// Runs the task, and changes the draft. The data containers that it writes have numbers from
    /// `first_number` on.
    fn run(&self, pass: &IndexPass, draft: &mut Draft<'_>, first_number: u32) -> Result<TaskOutcome, ReclaimError>;
}

/// The plan of a task, for the report.
pub(super) enum TaskPlan {
    Reclaim(ReclaimPlan),
    Arrange(ArrangePlan),
}

/// The result of a task, for the report.
pub(super) enum TaskReport {
    Reclaim(ReclaimReport),
    Arrange(Arranged),
}

/// The outcome of a task, for its pass.
pub(super) struct TaskOutcome {
    pub(super) report: TaskReport,
    /// Containers that may be deleted when the draft is published.
    pub(super) retired: RetiredContainers,
    /// Whether the draft changed enough to be published for that alone.
    pub(super) is_news: bool,
    /// Whether it wrote containers.
    pub(super) has_written: bool,
    /// Whether it may have written containers that the draft does not have.
    pub(super) may_have_left: bool,
    /// Whether it stopped early: the next pass continues.
    pub(super) was_stopped: bool,
    /// The number that the next data container of the pass gets.
    pub(super) next_number: u32,
}

/// The outcome of all tasks.
#[derive(Default)]
pub(super) struct TaskOutcomes {
    pub(super) reports: Vec<TaskReport>,
    /// Of each task.
    pub(super) retired: Vec<RetiredContainers>,
    pub(super) is_news: bool,
    pub(super) has_written: bool,
    pub(super) may_have_left: bool,
    pub(super) was_stopped: bool,
}

/// Runs tasks one after the other.
pub(super) fn run_all(
    tasks: &[Box<dyn MaintenanceTask>],
    pass: &IndexPass,
    draft: &mut Draft<'_>,
) -> Result<TaskOutcomes, ReclaimError> {
    let mut all = TaskOutcomes::default();
    // No name is used twice.
    let mut next_number = 0;
    for task in tasks {
        let done = task.run(pass, draft, next_number)?;
        next_number = next_number.max(done.next_number);
        all.reports.push(done.report);
        all.retired.push(done.retired);
        all.is_news |= done.is_news;
        all.has_written |= done.has_written;
        all.may_have_left |= done.may_have_left;
        all.was_stopped |= done.was_stopped;
    }
    Ok(all)
}

impl MaintenanceTask for reclaim::Work {
    fn plan(&self, pass: &IndexPass, draft: &Draft<'_>) -> Result<TaskPlan, ReclaimError> {
        Ok(TaskPlan::Reclaim(reclaim::plan(pass, draft, self)?))
    }

    fn run(&self, pass: &IndexPass, draft: &mut Draft<'_>, first_number: u32) -> Result<TaskOutcome, ReclaimError> {
        let report = reclaim::reclaim(pass, draft, self, first_number)?;
        // They are not more than fit into the share of those to retire.
        let mut retired = RetiredContainers::new(&pass.folder, usize::MAX);
        report.containers.iter().try_for_each(|container| retired.push(*container))?;
        Ok(TaskOutcome {
            is_news: !retired.is_empty(),
            retired,
            has_written: report.written > 0,
            may_have_left: report.was_stopped
                || report.may_have_others
                || !report.unreadable.is_empty()
                || report.cold.containers > 0,
            was_stopped: report.was_stopped,
            next_number: report.next_number,
            report: TaskReport::Reclaim(report),
        })
    }
}

impl MaintenanceTask for arrange::Work {
    fn plan(&self, pass: &IndexPass, draft: &Draft<'_>) -> Result<TaskPlan, ReclaimError> {
        Ok(TaskPlan::Arrange(arrange::plan(pass, draft, self)?))
    }

    fn run(&self, pass: &IndexPass, draft: &mut Draft<'_>, first_number: u32) -> Result<TaskOutcome, ReclaimError> {
        let (report, retired) = arrange::arrange(pass, draft, self, first_number)?;
        Ok(TaskOutcome {
            retired,
            is_news: !report.is_nothing(),
            has_written: report.written > 0,
            may_have_left: report.may_have_left(),
            was_stopped: report.was_stopped,
            next_number: report.next_number,
            report: TaskReport::Arrange(report),
        })
    }
}
