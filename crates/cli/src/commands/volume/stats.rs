//! `larder volume stats`: the numbers of a store, once or again and again.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::control::Client;
use super::report::{Cache, PhaseTime, Report, TableRuns};
use super::request::Request;
use super::target::ask;
use crate::app::App;
use crate::args::VolumeStatsArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::cut;
use crate::sizes;
use crate::time;

/// Time between two looks of `--watch`.
const EVERY: Duration = Duration::from_secs(1);
/// Columns of the display.
const WIDTH: usize = 80;
/// Moves the cursor to the top of a terminal, and clears what is below.
const HOME: &str = "\x1b[H\x1b[J";

pub(super) fn run(app: &App, args: &VolumeStatsArgs) -> Result<Exit, Failure> {
    let request = Request::Stats { volume: args.name.clone(), usage: true };
    if args.watch {
        return watch(app, args, request);
    }
    let value = ask(app, &args.store, &args.password, &request)?;
    if app.out.is_json() {
        app.out.json(&value)?;
        return Ok(Exit::Done);
    }
    lines(&read(value)?, None).iter().try_for_each(|line| app.out.line(line))?;
    Ok(Exit::Done)
}

fn read(value: serde_json::Value) -> Result<Report, Failure> {
    let foreign =
        |error| Failure::new(Exit::Failed, format!("the server of the store answers something else: {error}"));
    serde_json::from_value(value).map_err(foreign)
}

/// Shows the numbers every second, with rates. Space is measured once.
fn watch(app: &App, args: &VolumeStatsArgs, first: Request) -> Result<Exit, Failure> {
    let Some(mut client) = Client::connect(&args.store)? else {
        return Err(Failure::usage("--watch shows the work of a server, and this store is not served")
            .advise("`larder volume serve` serves it"));
    };
    let cancel = app.interrupts.job_begins();
    let (sender, stopped) = channel();
    app.interrupts.on_cancel(move || {
        // Nobody waits at the end of the command.
        let _ = sender.send(());
    });
    let later = Request::Stats { volume: args.name.clone(), usage: false };
    let (mut request, mut before, mut space): (_, Option<Report>, _) = (&first, None, None);
    while !cancel.is_cancelled() {
        let value = client.ask(request)?;
        request = &later;
        if app.out.is_json() {
            app.out.json_now(&value)?;
        } else {
            let mut report = read(value)?;
            space = report.space.take().or(space);
            report.space.clone_from(&space);
            if app.out.stdout_is_terminal() {
                app.out.raw(HOME)?;
            }
            lines(&report, before.as_ref()).iter().try_for_each(|line| app.out.line(cut(line, WIDTH)))?;
            app.out.line("")?;
            app.out.flush()?;
            before = Some(report);
        }
        let _ = stopped.recv_timeout(EVERY);
    }
    Ok(Exit::Done)
}

/// The display. With an earlier report, rates since then.
fn lines(now: &Report, before: Option<&Report>) -> Vec<String> {
    let uptime = time::show_duration(Duration::from_millis(now.uptime_ms));
    let clients = now.connections.map_or_else(String::new, |count| format!("; {}", sizes::count(count, "connection")));
    let mut lines = vec![row("open for", &format!("{uptime}{clients}"))];
    if let Some(why) = &now.stopped {
        lines.push(row("stopped", why));
    }
    lines.extend(now.problems.iter().map(|problem| row("problem", problem)));
    if now.is_full {
        lines.push(row("full", "writes are refused; reads, discards and flushes are not"));
    }
    let (volumes, snapshots) = (sizes::count(now.volumes, "volume"), sizes::count(now.snapshots, "snapshot"));
    lines.push(row("volumes", &format!("{volumes}, {} in all; {snapshots}", sizes::show(now.logical_bytes))));
    if let Some(space) = &now.space {
        lines.push(row(
            "space",
            &format!(
                "data {}, unique {}, stored {}{}",
                sizes::show(space.data_bytes),
                sizes::show(space.unique_bytes),
                sizes::show(space.stored_bytes),
                ratio(space.data_bytes, space.stored_bytes)
            ),
        ));
        for volume in &space.volumes {
            let text = format!("{} of {} in use", sizes::show(volume.data_bytes), sizes::show(volume.size));
            lines.push(row(&format!("  {}", volume.name), &text));
        }
    }
    let runs = |name: &str, of: &TableRuns| {
        let (runs, records) = (sizes::count(of.runs, "run"), sizes::count(of.records, "record"));
        row(name, &format!("{runs}, {records}, {}", sizes::show(of.bytes)))
    };
    let containers = now
        .space
        .as_ref()
        .map_or_else(String::new, |space| format!("; {}", sizes::count(space.containers, "container")));
    lines.push(row("disk", &format!("{} free{containers}", sizes::show(now.free_bytes))));
    lines.push(runs("chunk index", &now.runs.chunks));
    lines.push(runs("block index", &now.runs.blocks));
    lines.push(runs("counts", &now.runs.counts));
    let log = &now.log;
    let used = format!("{} of {} slots of {}", log.slots_used, log.slots, sizes::show(log.slot_bytes));
    lines.push(row("log", &used));
    let memory = &now.memory;
    let waiting = format!("{} of {}", sizes::show(memory.waiting_bytes), sizes::show(memory.waiting_most_bytes));
    lines.push(row("memory", &format!("waiting writes {waiting}, tables {}", sizes::show(memory.table_bytes))));
    let replayed = &now.replayed;
    let replayed_text = format!("{} ({})", sizes::count(replayed.commits, "commit"), sizes::show(replayed.bytes));
    lines.push(row("replayed", &replayed_text));
    lines.push(String::new());
    lines.extend(work(now, before));
    lines
}

/// Requests, commits and caches, with rates since an earlier report, else since the start.
fn work(now: &Report, before: Option<&Report>) -> Vec<String> {
    let millis = now.uptime_ms.saturating_sub(before.map_or(0, |before| before.uptime_ms)).max(1);
    let rate = |value: fn(&Report) -> u64| {
        let more = value(now).saturating_sub(before.map_or(0, value));
        u64::try_from(u128::from(more) * 1000 / u128::from(millis)).unwrap_or(u64::MAX)
    };
    let bytes = |value: fn(&Report) -> u64| format!("{}/s", sizes::show(rate(value)));
    let requests = |name: &str, count: fn(&Report) -> u64, of: fn(&Report) -> u64| {
        let text = format!("{:>12}  {:>10}  {:>8}/s  {:>12}", count(now), sizes::show(of(now)), rate(count), bytes(of));
        row(name, &text)
    };
    let mut lines = vec![
        requests("reads", |of| of.requests.reads, |of| of.requests.read_bytes),
        requests("writes", |of| of.requests.writes, |of| of.requests.written_bytes),
        requests("discards", |of| of.requests.discards, |of| of.requests.discarded_bytes),
        row("flushes", &format!("{:>12}  {:>10}  {:>8}/s", now.requests.flushes, "", rate(|of| of.requests.flushes))),
        requests("commits", |of| of.commits.commits, |of| of.commits.sealed_bytes),
    ];
    let waited = format!("{:.1} s, all writes together, for room in memory", now.requests.waited_micros as f64 / 1e6);
    lines.push(row("waited", &waited));
    let commits = &now.commits;
    let (cut, new, sealed) = (commits.cut_bytes, commits.new_bytes, commits.sealed_bytes);
    let text = format!(
        "cut {}, new {}, stored {}{}",
        sizes::show(cut),
        sizes::show(new),
        sizes::show(sealed),
        ratio(cut, sealed)
    );
    lines.push(row("chunks", &text));
    lines.push(row("blocks", &format!("{} committed, {} unchanged", commits.blocks, commits.unchanged_blocks)));
    let all: u64 = commits.phases.iter().map(|phase| phase.micros).sum();
    let share = |phase: &PhaseTime| format!("{} {}", phase.name, percent(phase.micros, all));
    // Two lines, because a screen may have 80 columns.
    for (number, phases) in commits.phases.chunks(3).enumerate() {
        let name = if number == 0 { "time" } else { "" };
        lines.push(row(name, &phases.iter().map(share).collect::<Vec<_>>().join(", ")));
    }
    let hits = |cache: &Cache| percent(cache.hits, cache.hits + cache.misses);
    let caches = format!("pages {}, frames {} of look-ups", hits(&now.caches.pages), hits(&now.caches.frames));
    lines.push(row("cached", &caches));
    if !now.filters.is_empty() {
        lines.push(row("filter", &columns(&["asked", "stored", "likely", "new", "ms"])));
    }
    for filter in &now.filters {
        let numbers = [filter.asked, filter.existing, filter.strong, filter.non_existing, filter.micros / 1000];
        lines.push(row(&filter.name, &columns(&numbers)));
    }
    lines
}

fn columns(cells: &[impl std::fmt::Display]) -> String {
    cells.iter().map(|cell| format!("{cell:>12}")).collect()
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<12}  {text}").trim_end().to_owned()
}

fn percent(part: u64, all: u64) -> String {
    // No percentage of nothing.
    if all == 0 { "-".to_owned() } else { format!("{} %", u128::from(part) * 100 / u128::from(all)) }
}

fn ratio(data: u64, stored: u64) -> String {
    if stored == 0 { String::new() } else { format!(", ratio {:.2}", data as f64 / stored as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_ratios_of_nothing_are_left_out() {
        assert_eq!((percent(0, 0), percent(1, 3)), ("-".to_owned(), "33 %".to_owned()));
        assert_eq!((ratio(5, 0), ratio(5, 2)), (String::new(), ", ratio 2.50".to_owned()));
    }
}
