//! Which images a round has, and how many rounds there are.
//!
//! The number of rounds is found by bisection: as many as fit the limit of time, because images of
//! a round are frozen together (the *iterated A* of dual bin packing). Packing takes the image of
//! the host with the most work left, and puts it where the round is shortest with it. Then images
//! of different rounds change places as long as less is overwritten.

use std::collections::BinaryHeap;

use super::cost::{HostLoad, Load};
use super::{Fleet, Plan, Round};

/// Rounds at most.
const ROUNDS_MAX: usize = 256;
/// Exchanges that are tried for each image, and in all.
const EXCHANGES_EACH: usize = 10;
const EXCHANGES_MAX: usize = 20_000;

/// Limits of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// This number of rounds, or one for each image if there are fewer; at least 1.
    pub rounds: Option<usize>,
    /// Seconds of all rounds.
    pub seconds: Option<f64>,
    /// Bytes that guests may overwrite while images are frozen. With it, there are no more rounds
    /// than it needs.
    pub overwritten_bytes: Option<f64>,
}

/// How images are put into rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// The largest image first, into the round that is shortest without it: as published.
    Published,
    /// The largest image of the host with the most work left, into the round that is shortest with
    /// it.
    Best,
}

/// The plan with the most rounds that the limit of time allows; without limits, one round.
pub fn plan(fleet: &Fleet, limits: Limits) -> Plan {
    plan_by(fleet, limits, Packing::Best)
}

/// The same with another packing.
pub fn plan_by(fleet: &Fleet, limits: Limits, packing: Packing) -> Plan {
    let most = rounds_most(fleet);
    let time = limits.seconds.unwrap_or(f64::INFINITY);
    let in_time = |count: usize| fleet.pack(count, packing).seconds() <= time;
    let count = match (limits.seconds, limits.overwritten_bytes) {
        (None, None) => 1,
        (None, Some(_)) => most,
        (Some(_), _) => largest(most, in_time),
    };
    let count = limits.rounds.map_or(count, |rounds| rounds.clamp(1, fleet.images.len().clamp(1, ROUNDS_MAX)));
    let count = match limits.overwritten_bytes {
        _ if limits.rounds.is_some() => count,
        None => count,
        Some(bytes) => {
            let is_too_much = |count: usize| fleet.pack(count, packing).overwritten_bytes() > bytes;
            // The first that is not too much, or the last that fits the time.
            if is_too_much(1) { (largest(count, is_too_much) + 1).min(count) } else { 1 }
        }
    };
    let mut plan = fleet.pack(count, packing);
    if packing == Packing::Best {
        exchange(fleet, &mut plan, time);
    }
    plan.rounds.retain(|round| !round.images.is_empty());
    plan.fits =
        plan.seconds() <= time && limits.overwritten_bytes.is_none_or(|bytes| plan.overwritten_bytes() <= bytes);
    plan
}

/// The bounds of the published search: no more than images, and no more than twice those of a host.
fn rounds_most(fleet: &Fleet) -> usize {
    let images = fleet.images.len();
    images.min(2 * images.div_ceil(fleet.hosts.max(1))).clamp(1, ROUNDS_MAX)
}

/// The largest number up to `most` for which it holds, if it holds for all below; else 1 or any
/// number for which it holds.
fn largest(most: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

impl Fleet {
    /// Packs all images into this number of rounds. First backups have some of their own, if there
    /// is more than one round.
    fn pack(&self, count: usize, packing: Packing) -> Plan {
        let all: Vec<usize> = (0..self.images.len()).collect();
        let (firsts, others): (Vec<_>, Vec<_>) = all.iter().partition(|number| self.images[**number].is_first);
        let groups = match (firsts.is_empty() || others.is_empty(), count) {
            (true, _) | (_, 1) => vec![(all, count)],
            (false, _) => {
                let work = |group: &[usize]| group.iter().map(|number| self.images[*number].changed_bytes).sum::<u64>();
                let (of_firsts, of_all) = (work(&firsts), work(&all).max(1));
                let share = (u128::from(of_firsts) * count as u128 / u128::from(of_all)) as usize;
                // No round is empty, as there are no more rounds than images.
                let least = count.saturating_sub(others.len()).max(1);
                let of_firsts = share.clamp(least, firsts.len().min(count - 1).max(least));
                vec![(firsts, of_firsts), (others, count - of_firsts)]
            }
        };
        let rounds = groups.into_iter().flat_map(|(images, count)| self.pack_group(&images, count, packing)).collect();
        Plan { rounds, fits: true }
    }

    fn pack_group(&self, images: &[usize], count: usize, packing: Packing) -> Vec<Round> {
        let rates = &self.rates;
        let mut loads = vec![Load::new(self.hosts); count];
        let mut members = vec![Vec::new(); count];
        for number in self.order(images, packing) {
            let image = &self.images[number];
            let seconds = |load: &Load| match packing {
                Packing::Published => load.stages(rates).sum(),
                Packing::Best => load.seconds_with(image, rates),
            };
            // Of equal ones the first that has the fewest images.
            let place = (0..count).min_by(|a, b| {
                let by_time = seconds(&loads[*a]).total_cmp(&seconds(&loads[*b]));
                by_time.then(members[*a].len().cmp(&members[*b].len()))
            });
            let place = place.unwrap_or_default();
            loads[place].add(image, rates);
            members[place].push(number);
        }
        members.into_iter().map(|images| self.round(images)).collect()
    }

    /// The order in which images are packed.
    fn order(&self, images: &[usize], packing: Packing) -> Vec<usize> {
        let size = |number: &usize| self.images[*number].read_bytes;
        let mut order = images.to_vec();
        order.sort_by_key(|number| (std::cmp::Reverse(size(number)), *number));
        if packing == Packing::Published {
            return order;
        }
        let mut of_host = vec![std::collections::VecDeque::new(); self.hosts];
        order.iter().for_each(|number| of_host[self.images[*number].host].push_back(*number));
        let work = |queue: &std::collections::VecDeque<usize>| queue.iter().map(size).sum::<u64>();
        let mut hosts: BinaryHeap<(u64, std::cmp::Reverse<usize>)> =
            of_host.iter().enumerate().map(|(host, queue)| (work(queue), std::cmp::Reverse(host))).collect();
        let mut picked = Vec::with_capacity(order.len());
        while let Some((left, host)) = hosts.pop() {
            if let Some(number) = of_host[host.0].pop_front() {
                picked.push(number);
                hosts.push((left - size(&number), host));
            }
        }
        picked
    }

    /// A round of these images. Each is released when its own chunks are stored: those that are
    /// written most come first on their host.
    fn round(&self, mut images: Vec<usize>) -> Round {
        images.sort_unstable();
        let mut load = Load::new(self.hosts);
        images.iter().for_each(|number| load.add(&self.images[*number], &self.rates));
        let before = load.stages(&self.rates).before_store();
        let mut order = images.clone();
        order.sort_by(|a, b| self.images[*b].write_rate.total_cmp(&self.images[*a].write_rate).then(a.cmp(b)));
        let mut released = vec![before; self.hosts];
        let mut overwritten_bytes = 0.0;
        for number in order {
            let image = &self.images[number];
            released[image.host] += HostLoad::of(image).store(&self.rates);
            overwritten_bytes += image.overwritten(released[image.host]);
        }
        Round { overwritten_bytes, ..load.round(images, &self.rates) }
    }
}

/// Lets images of different rounds change places while less is overwritten and the time holds.
/// First backups stay among themselves.
fn exchange(fleet: &Fleet, plan: &mut Plan, time: f64) {
    let count = plan.rounds.len();
    let mut left = (EXCHANGES_EACH * fleet.images.len()).min(EXCHANGES_MAX);
    let mut seconds = plan.seconds();
    let mut is_better = count > 1;
    while is_better {
        is_better = false;
        for a in 0..count {
            for b in a + 1..count {
                let pairs = plan.rounds[a].images.len().min(plan.rounds[b].images.len());
                for at in 0..pairs {
                    if left == 0 {
                        return;
                    }
                    left -= 1;
                    let (first, second) = (plan.rounds[a].images[at], plan.rounds[b].images[at]);
                    if fleet.images[first].is_first != fleet.images[second].is_first {
                        continue;
                    }
                    let with = |round: &Round, gone: usize, new: usize| {
                        let kept = round.images.iter().copied().filter(|number| *number != gone);
                        fleet.round(kept.chain([new]).collect())
                    };
                    let (one, other) = (with(&plan.rounds[a], first, second), with(&plan.rounds[b], second, first));
                    let (old_one, old_other) = (&plan.rounds[a], &plan.rounds[b]);
                    let overwritten = |a: &Round, b: &Round| a.overwritten_bytes + b.overwritten_bytes;
                    let took = |a: &Round, b: &Round| a.stages.sum() + b.stages.sum();
                    let after = seconds - took(old_one, old_other) + took(&one, &other);
                    let gain = overwritten(old_one, old_other) - overwritten(&one, &other);
                    // Less than a byte is a rounding error.
                    if gain > 1.0 && after <= time.max(seconds) {
                        (plan.rounds[a], plan.rounds[b]) = (one, other);
                        seconds = after;
                        is_better = true;
                    }
                }
            }
        }
    }
}
