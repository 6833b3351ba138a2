//! Which containers each newest version leaves. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use larder_format::ids::ContainerId;
use larder_format::manifest::ContainerUsage;

use super::duplicates::Duplicates;
use super::newest::{Newest, Uses, is_below};
use super::{Budget, DefragmentOptions};

/// A container may be left for copies elsewhere. At most this share of its bytes (percent) may be
/// in containers that the version would use little of. Each of them is one more to read.
const SCATTERED_PERCENT: u8 = 10;

/// A container with less than this share of bytes in use (percent) frees more than it costs.
const CHEAP_SHARE_PERCENT: u8 = 50;

/// A container with at least this share of bytes in use (percent) stays, whatever the sum is. The
/// sparsest one of a version above the bound has less.
const DENSE_PERCENT: u8 = 90;

/// Fewer bytes than this cost less to read than the requests of a rewrite.
const UNUSED_LEAST: u64 = 256 << 10;

/// This number of small containers of about one size are copied together. Sizes up to a factor of
/// four are one size.
const SMALL_ONES: usize = 4;

/// A container that a version leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) usage: ContainerUsage,
    pub(super) why: Why,
    /// Its bytes that other containers have too, by container.
    pub(super) shared: Vec<(ContainerId, u64)>,
}

/// Why it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// The container was retired; the newest version must not need the index.
    ReclaimReport,
    /// A restore reads too much else for it, or too many small ones.
    Sparse,
    /// Some of it is used by no version, and the user wants less of that.
    Unused,
    /// Much of it is stored elsewhere too.
    Duplicate,
    /// Some of it is stored elsewhere too, in containers that are left as well.
    Scattered,
}

impl Leave {
    /// Bytes of it that are stored elsewhere too.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// Whether its chunks may be redirected to this container.
    pub(super) fn may_lead_to(&self, container: &ContainerId) -> bool {
        self.why != Why::Sparse || self.shared.iter().any(|(other, _)| other == container)
    }

    /// Bytes that have to be copied, at most. Only the recipe tells which of its chunks the version
    /// uses.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.usage.bytes_used.min(self.usage.bytes_held.saturating_sub(self.shared_bytes()))
    }
}

/// The containers that each of these versions leaves so that it stays fast to read, until the
/// budget is used up: see [`for_reading_of`].
pub(super) fn for_reading(newest: &[Newest], uses: &Uses, options: &DefragmentOptions) -> Vec<Vec<ContainerUsage>> {
    newest.iter().map(|newest| for_reading_of(newest, uses, options)).collect()
}

/// The sparsest containers, and small ones by fours.
///
/// Containers decay evenly when changes are scattered. So no limit for a single one bounds what a
/// version reads: all would pass it at once. The sum is bounded, and each pass leaves as few
/// containers as that takes. What stays below the bound is left for the next version.
fn for_reading_of(newest: &Newest, uses: &Uses, options: &DefragmentOptions) -> Vec<ContainerUsage> {
    // What stays in any case is no reason to leave others.
    let own = || newest.containers.iter().filter(|usage| !uses.is_elsewhere(&usage.container));
    let used: u64 = own().map(|usage| usage.bytes_used).sum();
    let mut held: u64 = own().map(|usage| usage.bytes_held).sum();
    let share = |usage: &ContainerUsage| u128::from(usage.bytes_used) * (1 << 32) / u128::from(usage.bytes_held).max(1);
    let mut rest = newest.containers.clone();
    rest.sort_by_key(|usage| (share(usage), usage.container));
    let mut budget = budget_of(newest, options);
    let (mut chosen, mut is_needed) = (Vec::new(), false);
    rest.retain(|usage| {
        let is_above = |percent: u8| held.saturating_sub(used) >= UNUSED_LEAST && !is_below(held, percent, used);
        let needs = is_above(options.held_percent)
            || is_above(options.cheap_percent) && is_below(usage.bytes_used, CHEAP_SHARE_PERCENT, usage.bytes_held);
        // A container that is dense for another newest version stays.
        let is_left = match needs {
            true => uses.is_sparse_for_all(&usage.container, DENSE_PERCENT.max(options.sparse_percent)),
            false => uses.is_sparse_for_all(&usage.container, options.sparse_percent),
        };
        let fits = budget.checked_sub(usage.bytes_used).filter(|_| is_left);
        if let Some(left) = fits {
            budget = left;
            held -= usage.bytes_held.saturating_sub(usage.bytes_used);
            is_needed |= needs;
            chosen.push(*usage);
        }
        fits.is_none()
    });
    // Small ones by their size, like runs of a sorted table: each byte is copied again only when
    // there is four times as much.
    let mut tiers: BTreeMap<u32, Vec<ContainerUsage>> = BTreeMap::new();
    let is_small = |usage: &ContainerUsage| usage.bytes_used < options.small_bytes && uses.is_of_one(&usage.container);
    for usage in rest.into_iter().filter(is_small) {
        tiers.entry(usage.bytes_used.max(1).ilog(SMALL_ONES as u64)).or_default().push(usage);
    }
    for mut small in tiers.into_values() {
        small.sort_by_key(|usage| (usage.bytes_used, usage.container));
        let bytes: u64 = small.iter().map(|usage| usage.bytes_used).sum();
        if small.len() >= SMALL_ONES && bytes <= budget {
            budget -= bytes;
            chosen.extend(small);
        }
    }
    // Below the bounds, the same number of containers in the place of others is no gain.
    let full = chosen.iter().map(|usage| usage.bytes_held).max().unwrap_or(0);
    let full = full.max(options.small_bytes * SMALL_ONES as u64).max(1);
    let bytes: u64 = chosen.iter().map(|usage| usage.bytes_used).sum();
    if is_needed || bytes.div_ceil(full) < chosen.len() as u64 { chosen } else { Vec::new() }
}

/// Bytes that a version may copy: at least one container, because small versions could do nothing
/// otherwise.
fn budget_of(newest: &Newest, options: &DefragmentOptions) -> u64 {
    let Budget { version_percent, new_percent, has_least } = options.budget;
    let percent = |bytes: u64, percent: u16| (u128::from(bytes) * u128::from(percent) / 100) as u64;
    let one = newest.containers.iter().map(|usage| usage.bytes_used).max().unwrap_or(0);
    let least = if has_least { one } else { 0 };
    let all = (percent(newest.bytes, version_percent.into()) + percent(newest.stored_bytes(), new_percent)).max(least);
    all.saturating_sub(newest.spent)
}

/// The containers that each of these versions leaves, given the copies elsewhere. It leaves sparse,
/// partly unused and retired ones, and those with enough duplicates, most first. The budget does
/// not bound unused bytes.
pub(super) fn choose(
    newest: &[Newest],
    uses: &Uses,
    sparse: Vec<Vec<ContainerUsage>>,
    unused: Vec<Vec<ContainerUsage>>,
    duplicates: &Duplicates,
    options: &DefragmentOptions,
) -> Chosen {
    let leave = |usage: ContainerUsage, why| {
        let shared = duplicates.shared.get(&usage.container).cloned().unwrap_or_default();
        Leave { usage, why, shared }
    };
    let mut leaves: Vec<Vec<Leave>> = Vec::new();
    let mut budgets = Vec::new();
    let mut taken: HashSet<ContainerId> = HashSet::new();
    for ((newest, sparse), unused) in newest.iter().zip(sparse).zip(unused) {
        let mut budget = budget_of(newest, options);
        let reclaimed = newest.containers.iter().filter(|usage| duplicates.reclaimed.contains(&usage.container));
        let reclaimed = reclaimed.map(|usage| leave(*usage, Why::ReclaimReport));
        let sparse = sparse.into_iter().filter(|usage| !duplicates.reclaimed.contains(&usage.container));
        let unused = unused.into_iter().filter(|usage| !duplicates.reclaimed.contains(&usage.container));
        let mut own: Vec<_> = unused.map(|usage| leave(usage, Why::Unused)).collect();
        taken.extend(own.iter().map(|leave| leave.usage.container));
        let sparse = sparse.map(|usage| for_less(newest, uses, leave(usage, Why::Sparse)));
        for leave in sparse.chain(reclaimed) {
            let cost = leave.copied_bytes();
            if cost <= budget {
                budget -= cost;
                taken.insert(leave.usage.container);
                own.push(leave);
            }
        }
        leaves.push(own);
        budgets.push(budget);
    }
    for (container, shared) in worth_leaving(uses, &taken, duplicates, options) {
        let users = uses.of(container);
        let of_user =
            |used: &super::newest::Use| Leave { usage: used.usage, why: Why::Duplicate, shared: shared.clone() };
        // A container that only some leave is not freed, and their copies of its chunks would be
        // duplicates.
        if users.iter().all(|used| of_user(used).copied_bytes() <= budgets[used.version]) {
            for used in users {
                budgets[used.version] -= of_user(used).copied_bytes();
                leaves[used.version].push(of_user(used));
            }
        }
    }
    drop_scattered(uses, &mut leaves, options);
    Chosen { leaves, budget: budgets.iter().sum() }
}

/// A sparse container, with redirects only if the version then reads less in all. Otherwise they
/// could lead from one sparse container to the next and back, in each plan again.
fn for_less(newest: &Newest, uses: &Uses, mut leave: Leave) -> Leave {
    let is_used = |container: &ContainerId| newest.containers.iter().any(|usage| usage.container == *container);
    let held = |container: &ContainerId| uses.of(container).first().map_or(u64::MAX, |used| used.usage.bytes_held);
    let new = leave.shared.iter().filter(|(container, _)| !is_used(container));
    let after = new.fold(leave.copied_bytes(), |sum, (container, _)| sum.saturating_add(held(container)));
    if after >= leave.usage.bytes_held {
        leave.shared.retain(|(container, _)| is_used(container));
    }
    leave
}

/// What each version leaves.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) leaves: Vec<Vec<Leave>>,
    /// Bytes that all versions together may copy beside that.
    budget: u64,
}

impl Chosen {
    /// All of them.
    pub(super) fn containers(&self) -> HashSet<ContainerId> {
        self.leaves.iter().flatten().map(|leave| leave.usage.container).collect()
    }

    /// Whether some have copies elsewhere.
    pub(super) fn has_redirects(&self) -> bool {
        self.leaves.iter().flatten().any(|leave| leave.why == Why::Duplicate || !leave.shared.is_empty())
    }

    /// Adds containers with scattered duplicates, as many as the budget of all versions allows. All
    /// newest versions that use a container leave it.
    pub(super) fn gather(&mut self, uses: &Uses, duplicates: &Duplicates) {
        let taken = self.containers();
        let may_leave = |container: &&ContainerId| !taken.contains(container) && !uses.is_elsewhere(container);
        for container in duplicates.gathering.iter().filter(may_leave) {
            let shared = duplicates.shared.get(container).cloned().unwrap_or_default();
            let leave =
                |used: &super::newest::Use| Leave { usage: used.usage, why: Why::Scattered, shared: shared.clone() };
            let users = uses.of(container);
            let cost = users.iter().map(|used| leave(used).copied_bytes()).sum();
            if let Some(left) = self.budget.checked_sub(cost) {
                self.budget = left;
                users.iter().for_each(|used| self.leaves[used.version].push(leave(used)));
            }
        }
    }
}

/// Containers with enough copies elsewhere, worst first.
fn worth_leaving<'a>(
    uses: &Uses,
    taken: &HashSet<ContainerId>,
    duplicates: &'a Duplicates,
    options: &DefragmentOptions,
) -> Vec<(&'a ContainerId, &'a Vec<(ContainerId, u64)>)> {
    let mut worth = Vec::new();
    for (container, shared) in &duplicates.shared {
        let Some(used) = uses.of(container).first() else { continue };
        let (bytes, held) = (shared.iter().map(|(_, bytes)| *bytes).sum::<u64>(), used.usage.bytes_held);
        let may_leave = !taken.contains(container) && !uses.is_elsewhere(container);
        if bytes > 0 && may_leave && !is_below(bytes, options.duplicate_percent, held) {
            worth.push((Reverse(u128::from(bytes) * (1 << 32) / u128::from(held).max(1)), container, shared));
        }
    }
    worth.sort_unstable_by_key(|(share, container, _)| (*share, **container));
    worth.into_iter().map(|(_, container, shared)| (container, shared)).collect()
}

/// Takes back choices that redirect a version to too many containers of which it uses little: they
/// would be rewritten in their turn.
fn drop_scattered(uses: &Uses, leaves: &mut [Vec<Leave>], options: &DefragmentOptions) {
    // What a version uses of a container, and what that holds.
    let before = |version: usize, container: &ContainerId| {
        let users = uses.of(container);
        let own = users.iter().find(|used| used.version == version).map_or(0, |used| used.usage.bytes_used);
        (own, users.first().map_or(u64::MAX, |used| used.usage.bytes_held))
    };
    loop {
        let mut dropped: HashSet<ContainerId> = HashSet::new();
        for (version, leaves) in leaves.iter().enumerate() {
            let mut after: HashMap<ContainerId, (u64, u64)> = HashMap::new();
            for (container, bytes) in leaves.iter().flat_map(|leave| &leave.shared) {
                after.entry(*container).or_insert_with(|| before(version, container)).0 += bytes;
            }
            let is_thin = |container: &ContainerId| {
                after.get(container).is_some_and(|(used, held)| is_below(*used, options.dense_percent, *held))
            };
            for leave in leaves.iter().filter(|leave| leave.why == Why::Duplicate) {
                let thin = leave.shared.iter().filter(|(container, _)| is_thin(container));
                let thin: u64 = thin.map(|(_, bytes)| *bytes).sum();
                if thin > 0 && !is_below(thin, SCATTERED_PERCENT, leave.usage.bytes_held) {
                    dropped.insert(leave.usage.container);
                }
            }
        }
        if dropped.is_empty() {
            return;
        }
        for leaves in leaves.iter_mut() {
            leaves.retain(|leave| leave.why != Why::Duplicate || !dropped.contains(&leave.usage.container));
        }
    }
}

#[cfg(test)]
mod tests;
