//! The restore of the newest version by requests ahead, the real program, from a real S3 server.

use std::process::Command;

use super::{begin_page, megabytes, rate, spec};
use crate::clock::Link;
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::real::{Folder, Minio, SlowLink, Tool, Used, compare, remove, run, write};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Programs, Settings};

const THREADS: [usize; 7] = [0, 1, 2, 4, 6, 10, 16];
const VERSIONS: usize = 8;
/// Requests of the fetch that says what the store gives.
const FETCH: [usize; 4] = [1, 6, 10, 16];

pub(crate) fn s3(settings: &Settings, programs: &Programs) -> anyhow::Result<()> {
    let folder = Folder::new(&programs.work)?;
    let minio = Minio::start(&programs.minio, folder.join("minio"))?;
    let slow = SlowLink::to(minio.address, Link::SLOW)?;
    let (source, cache) = (folder.join("source"), folder.join("cache"));
    let versions = VERSIONS.min(settings.versions);
    let direct = Tool::larder(&programs.larder, &Minio::repository(minio.address), &cache).at(&minio);
    run(direct.init())?;
    let mut sdb = SDb::new(spec(settings, 2, 128.0, Duplication::Spread));
    for version in 0..versions {
        if version > 0 {
            sdb.advance();
        }
        write(&sdb, &source)?;
        run(direct.back_up("tables", &source))?;
    }
    let bytes: u64 = sdb.files().map(|file| file.len() as u64).sum();
    drop(sdb);
    let keys = minio.containers()?;
    let mut page = begin_page("s3", "Figure 8 on a real S3 server", settings)?;
    page.say(&format!(
        "The real program and MinIO, both on this machine. Two tables of {:.0} MB together were backed up in {versions} versions; the newest is \
         restored into a folder with an empty cache, with so many requests ahead, and compared. Wall times, with the key derived from the \
         password and the repository opened; the less disturbed of two runs, but for streams. \"Loopback\" is MinIO as it is; \"slow link\" has a proxy in between, through which every answer comes \
         30 ms late and at 90 MB/s at most on each connection.",
        megabytes(bytes)
    ));
    let ways = [("loopback", minio.address), ("slow link", slow.address)];
    let tool = |address| Tool::larder(&programs.larder, &Minio::repository(address), &cache).at(&minio);
    let mut speeds: Vec<Line> = Vec::new();
    for (way, address) in ways {
        let mut table = Table::new(["requests ahead", "MB/s", "x none", "seconds", "CPU seconds"]);
        let mut points = Vec::new();
        for threads in THREADS {
            let used = least(|| {
                remove(&cache)?;
                let target = folder.join("restored");
                let used = run(ahead(tool(address).restore("tables", &target), threads))?;
                compare(&source, &tool(address).restored(&target, &source))?;
                remove(&target)?;
                Ok(used)
            })?;
            points.push((threads as f64, rate(bytes, used.wall)));
            table.row([
                threads.to_string(),
                format!("{:.0}", rate(bytes, used.wall)),
                format!("{:.2}", rate(bytes, used.wall) / points[0].1),
                format!("{:.2}", used.wall),
                format!("{:.2}", used.cpu),
            ]);
        }
        page.say(&format!("## Files, {way}"));
        page.table(&table);
        speeds.push(Line::new(format!("files, {way}"), points));
    }
    for (way, address) in ways {
        let mut table = Table::new(["requests ahead, memory", "MB/s", "seconds", "CPU seconds"]);
        for memory in [None, Some("2.4GiB")] {
            for threads in [0, 1, 6] {
                remove(&cache)?;
                let mut command = ahead(tool(address).dump("tables", &source), threads);
                command.args(memory.iter().flat_map(|memory| ["--memory", memory]));
                let used = run(command)?;
                table.row([
                    format!("{threads}, {}", memory.unwrap_or("default")),
                    format!("{:.0}", rate(bytes, used.wall)),
                    format!("{:.2}", used.wall),
                    format!("{:.2}", used.cpu),
                ]);
            }
        }
        page.say(&format!("## A stream (`dump` of the folder), {way}"));
        page.table(&table);
    }
    let mut starts = Vec::new();
    for (way, address) in ways {
        remove(&cache)?;
        starts.push(format!("{:.2} s ({way})", run(tool(address).list())?.wall));
    }
    page.say(&format!(
        "Of each time, what the program takes to derive its key and find the version: listing the snapshots alone takes {}.",
        starts.join(", ")
    ));
    let mut limits = Table::new(["curl, requests at once", "loopback MB/s", "seconds", "slow link MB/s", "seconds"]);
    let stored = minio.bytes(&keys)?;
    for at_once in FETCH {
        let mut row = vec![at_once.to_string()];
        for (_, address) in ways {
            let used = least(|| run(Minio::fetch(address, &keys, at_once)))?;
            row.extend([format!("{:.0}", rate(stored, used.wall)), format!("{:.2}", used.wall)]);
        }
        limits.row(row);
    }
    page.say(&format!(
        "## The store's limit\n\nWhat the store gives: curl fetching all {} containers ({:.0} MB as stored, compressed) and throwing them away.",
        keys.len(),
        megabytes(stored)
    ));
    page.table(&limits);
    let labels = Labels { title: "Restore of the newest version from MinIO", x: "requests ahead", y: "MB/s" };
    page.plot("a-requests-ahead", &lines(&labels, Axis::Linear, Floor::Zero, &speeds))?;
    page.finish()
}

fn ahead(mut command: Command, requests: usize) -> Command {
    command.args(["--prefetch", &requests.to_string()]);
    command
}

/// The run that was disturbed less.
fn least(mut work: impl FnMut() -> anyhow::Result<Used>) -> anyhow::Result<Used> {
    Ok(work()?.least(work()?))
}
