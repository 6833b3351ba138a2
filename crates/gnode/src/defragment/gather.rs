//! Duplicates that are scattered: a few chunks in each of many containers.
//!
//! To redirect a version to containers of which it needs little would make it slow to read. So all
//! newest versions leave these containers. The first one copies the chunks that others need too
//! into containers of their own, and the others share them there. Then each version reads nothing
//! else with them. That copies whole containers, so it is done only when duplicates exceed a limit,
//! and for as few containers as possible.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use larder_format::ids::ContainerId;
use larder_format::index_tables::ChunkPlace;
use larder_index::IndexError;

use super::duplicates::{Duplicates, Found, Search, drop_into};

/// Containers are examined with at least this share of chunks in common (millionths), one limit
/// after the other.
const SHARES: [u64; 8] = [200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 1_000, 0];

/// A container with this share of chunks in common (millionths) has been gathered. It stays, and
/// others are redirected to it.
const GATHERED: u64 = 900_000;

/// The part that a container plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is left for another reason.
    Left,
    /// Others are redirected to it.
    Target,
    /// It is left from this limit of [`SHARES`] on.
    From(usize),
}

impl Search<'_> {
    /// Finds containers to gather, so that at most `most` bytes are duplicates afterwards. Nothing
    /// may be redirected in the same plan.
    pub(super) fn gather(
        &mut self,
        leaving: &HashSet<ContainerId>,
        most: u64,
        duplicates: &mut Duplicates,
    ) -> Result<(), IndexError> {
        // They lead to containers of which a version would need little.
        duplicates.clear_redirects();
        let chunks_max = self.chunks_max();
        let (tables, used) = (&mut self.tables, &mut self.used);
        // Containers that are used elsewhere stay, with all that they have in common with others.
        let is_elsewhere: HashSet<u32> =
            used.iter().filter(|(_, used)| used.is_elsewhere).map(|(number, _)| *number).collect();
        let own = |copies: &[ChunkPlace]| -> Vec<ChunkPlace> {
            let own = copies.iter().filter(|copy| !is_elsewhere.contains(&copy.container)).copied();
            Some(own.collect()).filter(|own: &Vec<_>| own.len() > 1).unwrap_or_default()
        };
        let mut common: HashMap<u32, u32> = HashMap::new();
        tables.groups(|_, copies| {
            for copy in own(copies) {
                *common.entry(copy.container).or_default() += 1;
            }
        })?;
        let share = |number: &u32, count: u32| {
            u64::from(count) * 1_000_000 / used.get(number).map_or(1, |used| u64::from(used.chunks.max(1)))
        };
        let mut roles: HashMap<u32, Role> = HashMap::new();
        for (number, count) in &common {
            let Some(container) = used.get(number) else { continue };
            let share = share(number, *count);
            let role = match leaving.contains(&container.id) {
                true => Role::Left,
                false if share >= GATHERED && container.may_be_led_to => Role::Target,
                false => Role::From(SHARES.iter().position(|limit| share >= *limit).unwrap_or(SHARES.len() - 1)),
            };
            roles.insert(*number, role);
        }
        let mut left = [0u64; SHARES.len()];
        tables.groups(|_, copies| {
            let copies = own(copies);
            let role = |number: &u32| roles.get(number).copied().unwrap_or(Role::Left);
            let size = copies.first().and_then(|copy| used.get(&copy.container)).map_or(0, |used| used.bytes_of(1));
            let has_target = copies.iter().any(|copy| role(&copy.container) == Role::Target);
            for (limit, left) in left.iter_mut().enumerate() {
                let is_gathered = |number: &u32| matches!(role(number), Role::From(from) if from <= limit);
                let gathered = copies.iter().filter(|copy| is_gathered(&copy.container)).count();
                let kept = copies.len() - gathered + usize::from(gathered > 0 && !has_target);
                *left += kept.saturating_sub(1) as u64 * size;
            }
        })?;
        let limit = left.iter().position(|left| *left <= most).unwrap_or(SHARES.len() - 1);
        let mut chosen: Vec<_> = roles
            .iter()
            .filter(|(_, role)| matches!(role, Role::From(from) if *from <= limit))
            .map(|(number, _)| (common.get(number).copied().unwrap_or(0), *number))
            .collect();
        chosen.sort_by_key(|(count, number)| (Reverse(share(number, *count)), *number));
        let mut chunks = 0;
        let fits = |(count, _): &&(u32, u32)| {
            chunks += *count as usize;
            chunks <= chunks_max
        };
        let taken = chosen.iter().take_while(fits).count().max(1).min(chosen.len());
        duplicates.has_more |= taken < chosen.len();
        used.values_mut().for_each(|used| used.may_leave = false);
        for (_, number) in &chosen[..taken] {
            if let Some(used) = used.get_mut(number) {
                used.may_leave = true;
                duplicates.gathering.push(used.id);
            }
        }
        let (mut found, common) = (Vec::new(), &mut duplicates.common);
        tables.groups(|key, copies| {
            let copies = own(copies);
            let leaves = |number: &u32| used.get(number).is_some_and(|used| used.may_leave);
            let losers: Vec<u32> = copies.iter().map(|copy| copy.container).filter(leaves).collect();
            if losers.is_empty() {
                return;
            }
            let is_target = |number: &u32| roles.get(number) == Some(&Role::Target);
            match copies.iter().filter(|copy| is_target(&copy.container)).max_by_key(|copy| copy.container) {
                Some(winner) => found.push(Found { key, winner: *winner, losers }),
                None => drop(common.insert(key)),
            }
        })?;
        drop_into(self.context, used, found, duplicates)
    }

    /// About how many bytes are duplicates when these containers are left.
    pub(super) fn left(&mut self, leaving: &HashSet<ContainerId>, duplicates: &Duplicates) -> Result<u64, IndexError> {
        if self.excess_bytes == 0 {
            return Ok(0);
        }
        let used = &self.used;
        let mut left = 0;
        self.tables.groups(|key, copies| {
            let of = |number: &u32| used.get(number);
            let leaves = |number: &u32| of(number).is_some_and(|used| leaving.contains(&used.id));
            let gone = copies.iter().filter(|copy| leaves(&copy.container)).count();
            let kept = copies.len() - gone + usize::from(gone > 0 && !duplicates.places.contains_key(&key));
            let size = copies.first().and_then(|copy| of(&copy.container)).map_or(0, |used| used.bytes_of(1));
            left += kept.saturating_sub(1) as u64 * size;
        })?;
        Ok(left)
    }
}
