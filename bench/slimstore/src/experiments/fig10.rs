//! Figure 10: jobs side by side on one repository, the real programs.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{begin_page, megabytes, rate, spec};
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::real::{Folder, Tool, Used, compare, remove, run, together, write};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Programs, Settings};

const JOBS: [usize; 4] = [1, 2, 4, 8];
/// The least wall time counts, step by step.
const REPEATS: usize = 2;
const STEPS: [&str; 3] = ["first version", "next version", "restore"];

pub(crate) fn fig10(settings: &Settings, programs: &Programs) -> anyhow::Result<()> {
    let folder = Folder::new(&programs.work)?;
    let most = JOBS[JOBS.len() - 1];
    let mut bytes = 0;
    for series in 0..most {
        let mut data = spec(settings, 1, 128.0, Duplication::Spread);
        data.seed += series as u64;
        let mut sdb = SDb::new(data);
        for version in ["version-1", "version-2"] {
            write(&sdb, &folder.join(version).join(name(series)))?;
            bytes = sdb.files().map(|file| file.len() as u64).sum();
            sdb.advance();
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut page = begin_page("fig10", "Figure 10: jobs side by side", settings)?;
    page.say(&format!(
        "The real programs with their own defaults, {cores} cores. Each job has a series of its own: a table of {:.0} MB, backed up first, then \
         in its next version (about 0.85 of it unchanged), then restored; jobs of one row start at once and share one repository in a local \
         folder. MB/s: bytes of all jobs by the wall time until the last one ends, keys derived from passwords included. Memory: sum of the \
         processes' peaks of resident memory. The least disturbed of {REPEATS} runs; every run starts with a new repository.",
        megabytes(bytes)
    ));
    let mut lines_of: Vec<Line> = Vec::new();
    let mut larder = Vec::new();
    for restic in [false, true] {
        let mut table = Table::new(["step, jobs", "MB/s", "x one job", "CPU s/GB", "memory MB", "x one job"]);
        let mut all = Vec::new();
        for jobs in JOBS {
            let repository = folder.join("repository");
            let (path, cache) = (repository.display().to_string(), folder.join("cache"));
            let tool = match restic {
                true => Tool::restic(&programs.restic, &path, &cache),
                false => Tool::larder(&programs.larder, &path, &cache),
            };
            let mut best: Option<[Used; 3]> = None;
            for _ in 0..REPEATS {
                let again = measure(&tool, &folder, jobs)?;
                best = Some(best.map_or(again, |best| std::array::from_fn(|step| best[step].least(again[step]))));
                remove(&repository)?;
                remove(&cache)?;
            }
            all.extend(best);
        }
        let title = if restic { "restic" } else { "Larder" };
        for (step, step_name) in STEPS.into_iter().enumerate() {
            let mbs = |row: usize| rate(bytes * JOBS[row] as u64, all[row][step].wall);
            for (row, jobs) in JOBS.into_iter().enumerate() {
                let used: Used = all[row][step];
                table.row([
                    format!("{step_name}, {jobs}"),
                    format!("{:.0}", mbs(row)),
                    format!("{:.2}", mbs(row) / mbs(0)),
                    format!("{:.2}", used.cpu / (bytes as f64 * jobs as f64 / 1e9)),
                    format!("{:.0}", megabytes(used.memory)),
                    format!("{:.2}", used.memory as f64 / all[0][step].memory as f64),
                ]);
            }
            let points = (0..JOBS.len()).map(|row| (JOBS[row] as f64, mbs(row)));
            lines_of.push(Line::new(format!("{title}, {step_name}"), points));
        }
        page.say(&format!("## {title}"));
        page.table(&table);
        if !restic {
            larder = all;
        }
    }
    let of_cores = JOBS.iter().position(|jobs| *jobs >= cores).unwrap_or(JOBS.len() - 1);
    for (step, name) in STEPS.into_iter().enumerate() {
        let mbs = |row: usize| rate(bytes * JOBS[row] as u64, larder[row][step].wall);
        let memory = |row: usize| larder[row][step].memory as f64;
        let last = JOBS.len() - 1;
        page.say(&format!(
            "Larder, {name}: {most} jobs make {:.2} of what {} make (one stream a core), and take {:.2} of the memory of one.",
            mbs(last) / mbs(of_cores),
            JOBS[of_cores],
            memory(last) / memory(0)
        ));
    }
    let labels = Labels { title: "Jobs side by side on one repository", x: "jobs", y: "MB/s, all jobs" };
    page.plot("a-jobs", &lines(&labels, Axis::Doubling, Floor::Zero, &lines_of))?;
    page.finish()
}

fn name(series: usize) -> String {
    format!("series-{series}")
}

/// So many jobs at once: the first version, the next one, and the restore of that.
fn measure(tool: &Tool, folder: &Folder, jobs: usize) -> anyhow::Result<[Used; 3]> {
    run(tool.init())?;
    let current = folder.join("current");
    let mut used = [Used::default(); 3];
    for (step, version) in ["version-1", "version-2"].into_iter().enumerate() {
        // Versions take each other's place, so that paths are the same.
        rename(&folder.join(version), &current)?;
        let commands = (0..jobs).map(|series| tool.back_up(&name(series), &current.join(name(series))));
        used[step] =
            together(commands.collect()).with_context(|| format!("{} with {jobs} backups at once", tool.name))?;
        rename(&current, &folder.join(version))?;
    }
    let restored = folder.join("restored");
    let commands = (0..jobs).map(|series| tool.restore(&name(series), &restored.join(name(series))));
    used[2] = together(commands.collect()).with_context(|| format!("{} with {jobs} restores at once", tool.name))?;
    for series in 0..jobs {
        let target = restored.join(name(series));
        compare(&folder.join("version-2").join(name(series)), &tool.restored(&target, &current.join(name(series))))?;
    }
    remove(&restored)?;
    Ok(used)
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}
