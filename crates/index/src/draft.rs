//! [`Draft`]: the index that a pass makes from the newest one.
//!
//! A pass takes the newest snapshot, changes tables, reads them as they are with its changes,
//! merges runs, and publishes the manifest. Until then, no reader sees anything of it; afterwards,
//! all see all of it. [`Draft::superseded`] tells which objects the pass wrote and no longer uses,
//! and which the base had and the draft has not.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use larder_format::ids::RunId;
use larder_format::index_manifest::{IndexManifest, RunRef, Table};

use crate::error::IndexError;
use crate::lookup::LookupOptions;
use crate::merge_plan::{MergePlan, merge_runs};
use crate::pass::IndexPass;
use crate::snapshot::IndexSnapshot;
use crate::tables::{Changes, TableView, TypedTable};

/// An index that is being made from another.
#[derive(Debug)]
pub struct Draft<'a> {
    pass: &'a IndexPass,
    /// The manifest to publish. Tables are changed through the draft, everything else is the pass's
    /// to set.
    pub manifest: IndexManifest,
    /// Objects that the base uses or the pass has written.
    known: BTreeSet<RunId>,
    /// Those of them that the base uses.
    base: BTreeSet<RunId>,
}

impl<'a> Draft<'a> {
    /// Begins with the base as it is.
    pub fn new(pass: &'a IndexPass, base: &IndexSnapshot) -> Self {
        let mut manifest = (*base.manifest).clone();
        // A pass may have added runs of its own.
        manifest.sort();
        let known: BTreeSet<RunId> = manifest.runs.iter().map(|run| run.id).collect();
        Self { pass, manifest, base: known.clone(), known }
    }

    /// Begins with nothing, as a repair does.
    pub fn empty(pass: &'a IndexPass) -> Self {
        Self::new(pass, &IndexSnapshot::empty())
    }

    /// Makes changes of a table part of the draft. None at all are none.
    pub fn apply<T: TypedTable>(&mut self, changes: Changes<T>) -> Result<(), IndexError> {
        let age = self.manifest.head.next_age;
        let mut writer = self.pass.writer::<T>(age);
        writer.push_all(&mut changes.sorted()?.into_cursor())?;
        self.add(writer.finish()?);
        Ok(())
    }

    /// Makes runs of one age, which are newer than all others, part of the draft. The age is the
    /// head's `next_age`.
    pub fn add(&mut self, runs: Vec<RunRef>) {
        if let Some(newest) = runs.iter().map(|run| run.age).max() {
            self.known.extend(runs.iter().map(|run| run.id));
            self.manifest.runs.extend(runs);
            self.manifest.head.next_age = self.manifest.head.next_age.max(newest + 1);
            self.manifest.sort();
        }
    }

    /// Leaves a table without records.
    pub fn clear(&mut self, table: Table) {
        self.manifest.runs.retain(|run| run.table != table);
    }

    /// A table as it is with the changes so far.
    pub fn view<T: TypedTable>(&self, options: LookupOptions) -> TableView<T> {
        TableView::new(self.pass.io.clone(), self.manifest.runs_of(T::TABLE), options)
    }

    /// Merges runs of a table now, by size. Whether anything was.
    pub fn merge(&mut self, table: Table) -> Result<bool, IndexError> {
        match MergePlan::plan(self.manifest.runs_of(table)) {
            Some(plan) => self.merge_planned(table, &plan, 0..=u64::MAX).map(|()| true),
            None => Ok(false),
        }
    }

    /// Merges the runs of a plan for the keys with prefixes in `range`.
    pub fn merge_planned(
        &mut self,
        table: Table,
        plan: &MergePlan,
        range: RangeInclusive<u64>,
    ) -> Result<(), IndexError> {
        let runs = merge_runs(self.pass, table, self.manifest.runs_of(table), plan, range)?;
        self.known.extend(runs.iter().map(|run| run.id));
        self.clear(table);
        self.manifest.runs.extend(runs);
        self.manifest.sort();
        Ok(())
    }

    /// Objects that the pass has written and the draft does not use: no reader ever saw them.
    pub fn intermediate(&self) -> Vec<RunId> {
        self.superseded().into_iter().filter(|id| !self.base.contains(id)).collect()
    }

    /// Objects that the base uses or the pass has written, and the draft does not use: to be queued
    /// for deletion. Readers of older indexes may still want them.
    pub fn superseded(&self) -> Vec<RunId> {
        let used: BTreeSet<RunId> = self.manifest.runs.iter().map(|run| run.id).collect();
        self.known.difference(&used).copied().collect()
    }
}
