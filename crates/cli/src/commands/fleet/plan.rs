//! `larder fleet plan`: gathers facts about images, and shows what a batch of them would take. The
//! model is `larder_fleet::plan`.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_fleet::inventory::{self, Listed};
use larder_fleet::plan::{Fleet, Limits, Plan, PlannedImage, Rates, Requests, Stages, plan};
use larder_format::index_manifest::Table;
use larder_format::manifest::Summary;
use larder_index::IndexSnapshot;
use larder_store::Repository;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{FleetPlanArgs, FleetPlannerArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::safe;
use crate::{sizes, time};

/// Between the two newest snapshots, if there is one only (milliseconds).
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Facts that replace those that were found.
#[derive(Debug, Default)]
struct WhatIf {
    hosts: Option<usize>,
    rates: Rates,
    /// Bytes of an image without a snapshot whose size cannot be seen.
    size: Option<u64>,
    /// The share of each image that is looked up.
    changed: Option<f64>,
    /// Bytes that each guest writes in a second, and again and again.
    writes: Option<u64>,
    hot: Option<u64>,
}

impl WhatIf {
    fn of(given: &[String]) -> Result<Self, Failure> {
        let mut all = Self::default();
        for text in given {
            let wrong = |why: String| Failure::usage(format!("--what-if {}: {why}", safe(text)));
            let (key, value) = text.split_once('=').ok_or_else(|| wrong("write KEY=VALUE".to_owned()))?;
            all.set(key.trim(), value.trim()).map_err(wrong)?;
        }
        let Rates { known, shared, .. } = all.rates;
        if known + shared > 1.0 {
            return Err(Failure::usage("--what-if: known and shared are more than 100 together"));
        }
        Ok(all)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |least: f64, most: f64| match value.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("a number from {least} to {most} is expected")),
        };
        let percent = || number(0.0, 100.0).map(|number| number / 100.0);
        let bytes = || sizes::parse_bytes(value.trim_end_matches("/s"));
        let rate = || match bytes()? {
            0 => Err("a rate above 0 is expected".to_owned()),
            rate => Ok(rate as f64),
        };
        let rates = &mut self.rates;
        match key {
            "hosts" => self.hosts = Some(number(1.0, 4096.0)? as usize),
            "read" => rates.read = rate()?,
            "scratch" => rates.scratch = rate()?,
            "compute" => rates.compute = rate()?,
            "network" => rates.network = rate()?,
            "request" => rates.request = number(0.0, 60.0)?,
            "parallel" => rates.parallel = number(1.0, 10_000.0)?,
            "known" => rates.known = percent()?,
            "shared" => rates.shared = percent()?,
            "size" => self.size = Some(bytes()?),
            "changed" => self.changed = Some(percent()?),
            "writes" => self.writes = Some(bytes()?),
            "hot" => self.hot = Some(bytes()?),
            "write-price" => rates.write_price = number(0.0, 1e6)?,
            "read-price" => rates.read_price = number(0.0, 1e6)?,
            "month-price" => rates.month_price = number(0.0, 1e6)?,
            _ => return Err("there is no such fact; `larder help fleet plan` lists them".to_owned()),
        }
        Ok(())
    }
}

pub(super) fn run(app: &App, args: &FleetPlanArgs) -> Result<Exit, Failure> {
    // Mistakes in options come before those in the repository.
    WhatIf::of(&args.planner.what_if)?;
    let listed = inventory::read(&args.inventory)
        .map_err(|error| Failure::usage(error.to_string()).advise("`larder help fleet run` has the form"))?;
    let opened = app.open()?;
    let (fleet, plan) = planned(app, &opened.repository, &args.planner, &listed)?;
    match app.out.is_json() {
        true => app.out.json(&as_json(&fleet, &plan, &listed))?,
        false => show(app, &fleet, &plan, &listed)?,
    }
    if !plan.fits {
        app.out.warn("the limits cannot be kept; this is the plan that comes nearest");
    }
    Ok(Exit::Done)
}

/// The round of each image of an inventory, as planned; empty: one for all.
pub(super) fn rounds(
    app: &App,
    repository: &Repository,
    args: &FleetPlannerArgs,
    listed: &[Listed],
) -> Result<Vec<u32>, Failure> {
    WhatIf::of(&args.what_if)?;
    let is_one = args.rounds.unwrap_or(1) == 1 && args.time_limit.is_none() && args.overwritten_limit.is_none();
    if is_one {
        return Ok(Vec::new());
    }
    let (_, plan) = planned(app, repository, args, listed)?;
    let mut rounds = vec![0; listed.len()];
    for (number, round) in (0_u32..).zip(&plan.rounds) {
        round.images.iter().for_each(|image| rounds[*image] = number);
    }
    if !plan.fits {
        app.out.warn("the limits of the plan cannot be kept; the batch follows the plan that comes nearest");
    }
    Ok(rounds)
}

/// Gathers the facts about all images, and plans their rounds.
fn planned(
    app: &App,
    repository: &Repository,
    args: &FleetPlannerArgs,
    listed: &[Listed],
) -> Result<(Fleet, Plan), Failure> {
    let what_if = WhatIf::of(&args.what_if)?;
    let newest = app.block_on(repository.newest_of_every_series())?;
    let newest: BTreeMap<_, _> = newest.iter().map(|version| (version.series, &version.summary)).collect();
    let index = app.block_on(IndexSnapshot::newest(repository))?.snapshot;
    let index_bytes: u64 = index.runs_of(Table::Chunks).iter().map(|run| run.object_bytes).sum();
    let chunk = f64::from(repository.config().chunker.average);
    let rates = Rates { chunk, index_bytes: index_bytes as f64, ..what_if.rates };
    let mut hosts: Vec<Option<&str>> = Vec::new();
    let mut images = Vec::with_capacity(listed.len());
    for listed in listed {
        let name = listed.host.as_deref();
        let host = hosts.iter().position(|known| *known == name).unwrap_or_else(|| {
            hosts.push(name);
            hosts.len() - 1
        });
        let summary = newest.get(&repository.keys().series_key(&listed.series)).copied();
        images.push(image(listed, host, summary, &what_if, &rates)?);
    }
    let fleet = Fleet { images, hosts: hosts.len(), rates };
    let fleet = match what_if.hosts {
        Some(hosts) => fleet.on_hosts(hosts),
        None => fleet,
    };
    let overwritten_bytes = args.overwritten_limit.map(|bytes| bytes as f64);
    let rounds = args.rounds.map(|rounds| rounds as usize);
    let limits = Limits { rounds, seconds: args.time_limit.map(|time| time.as_secs_f64()), overwritten_bytes };
    let plan = plan(&fleet, limits);
    Ok((fleet, plan))
}

/// What is known of an image: from its newest snapshot, or from its file.
fn image(
    listed: &Listed,
    host: usize,
    newest: Option<&Summary>,
    what_if: &WhatIf,
    rates: &Rates,
) -> Result<PlannedImage, Failure> {
    let has_map = listed.map.is_some() || listed.context.is_some();
    let (bytes, read, changed, seconds) = match newest {
        Some(Summary { id, base, statistics, .. }) => {
            let bytes = statistics.stream_bytes;
            let read = if has_map && base.is_some() { statistics.read_bytes.min(bytes) } else { bytes };
            // What was new is the rest of what was looked up.
            let looked_up = statistics.added_bytes as f64 / rates.new_share().max(0.01);
            let since = base.map_or(DAY_MS, |base| id.unix_ms().saturating_sub(base.unix_ms()));
            let changed = if base.is_some() { (looked_up as u64).min(read) } else { read };
            (bytes, read, changed, (since as f64 / 1000.0).max(1.0))
        }
        None => {
            let size = what_if.size.or_else(|| size_of(&listed.source));
            let size = size.ok_or_else(|| {
                Failure::usage(format!("image {} has no snapshot, and its size cannot be seen", safe(&listed.name)))
                    .advise("give it with --what-if size=SIZE")
            })?;
            (size, size, size, DAY_MS as f64 / 1000.0)
        }
    };
    let is_first = newest.is_none();
    let share = |share: f64| (bytes as f64 * share) as u64;
    let (read, changed) = match what_if.changed.map(share) {
        Some(changed) => (if has_map { changed } else { bytes }, changed),
        None => (read, changed),
    };
    // What changed since the last snapshot was written in that time, at least once.
    let (rate, hot) = if is_first { (0.0, 0) } else { (changed as f64 / seconds, changed) };
    Ok(PlannedImage {
        host,
        bytes,
        read_bytes: read,
        changed_bytes: changed,
        write_rate: what_if.writes.map_or(rate, |writes| writes as f64),
        hot_bytes: what_if.hot.unwrap_or(if what_if.writes.is_some() { hot.max(bytes / 20) } else { hot }),
        is_first,
    })
}

/// Bytes of the file that a source names, if it is one.
fn size_of(source: &str) -> Option<u64> {
    let path = source.strip_prefix("raw:").or_else(|| source.strip_prefix("qcow2:")).unwrap_or(source);
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
}

fn duration(seconds: f64) -> String {
    time::show_duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}

fn show(app: &App, fleet: &Fleet, plan: &Plan, listed: &[Listed]) -> Result<(), Failure> {
    let (out, count) = (&app.out, |count: usize, what: &str| sizes::count(count as u64, what));
    let bytes: u64 = fleet.images.iter().map(|image| image.bytes).sum();
    let (images, hosts) = (count(fleet.images.len(), "image"), count(fleet.hosts, "host"));
    out.line(format!(
        "{images} ({}) on {hosts}: {} in {}",
        sizes::show(bytes),
        count(plan.rounds.len(), "round"),
        duration(plan.seconds())
    ))?;
    for (number, round) in plan.rounds.iter().enumerate() {
        let Stages { scan, send, join, store, resolve, finish } = round.stages;
        let stages = [
            ("scan", scan),
            ("send", send),
            ("join", join),
            ("store", store),
            ("resolve", resolve),
            ("finish", finish),
        ];
        let stages: Vec<_> = stages.iter().map(|(name, seconds)| format!("{name} {}", duration(*seconds))).collect();
        let names: Vec<_> = round.images.iter().map(|image| safe(&listed[*image].name)).collect();
        out.line(format!(
            "round {}: {}, {}; overwritten meanwhile {}",
            number + 1,
            count(round.images.len(), "image"),
            stages.join(", "),
            sizes::show(round.overwritten_bytes as u64)
        ))?;
        out.line(format!("  {}", names.join(" ")))?;
    }
    let Requests { writes, reads } = plan.requests();
    out.line(format!(
        "new data {} before compression; {writes} requests that write, {reads} that read; {:.2} for these and a month",
        sizes::show(plan.new_bytes()),
        plan.price(&fleet.rates)
    ))
}

fn as_json(fleet: &Fleet, plan: &Plan, listed: &[Listed]) -> Value {
    let rounds: Vec<_> = plan
        .rounds
        .iter()
        .map(|round| {
            let Stages { scan, send, join, store, resolve, finish } = round.stages;
            json!({
                "images": round.images.iter().map(|image| listed[*image].name.clone()).collect::<Vec<_>>(),
                "seconds": round.stages.sum(),
                "scan": scan,
                "send": send,
                "join": join,
                "store": store,
                "resolve": resolve,
                "finish": finish,
                "overwritten_bytes": round.overwritten_bytes as u64,
                "read_bytes": round.read_bytes,
                "new_bytes": round.new_bytes,
                "exchanged_bytes": round.exchanged_bytes,
                "requests_write": round.requests.writes,
                "requests_read": round.requests.reads,
            })
        })
        .collect();
    json!({
        "message_type": "fleet_plan",
        "images": fleet.images.len(),
        "hosts": fleet.hosts,
        "bytes": fleet.images.iter().map(|image| image.bytes).sum::<u64>(),
        "seconds": plan.seconds(),
        "overwritten_bytes": plan.overwritten_bytes() as u64,
        "new_bytes": plan.new_bytes(),
        "requests_write": plan.requests().writes,
        "requests_read": plan.requests().reads,
        "price": plan.price(&fleet.rates),
        "fits": plan.fits,
        "rounds": rounds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_and_wrong_ones_refused() {
        let of = |given: &[&str]| WhatIf::of(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let all = of(&["hosts=16", "read=200MB/s", "request=0.01", "known=80", "shared=5", "hot=2G"]).expect("facts");
        assert_eq!((all.hosts, all.hot), (Some(16), Some(2 << 30)));
        assert!((all.rates.read - 200e6).abs() < 1.0 && (all.rates.new_share() - 0.15).abs() < 1e-9);
        for wrong in ["hosts", "hosts=0", "hosts=x", "read=0", "known=101", "speed=3", "request=-1"] {
            let refused = of(&[wrong]).expect_err(wrong);
            assert!(refused.message.contains(wrong), "{}", refused.message);
        }
        of(&["known=80", "shared=30"]).expect_err("more than all");
    }
}
