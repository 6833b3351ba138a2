//! The restore of the newest version by requests ahead, the real program, from a real S3 server.

use super::page::Page;
use super::{megabytes, rate, spec};
use crate::clock::Link;
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::real::{Folder, Minio, SlowLink, Tool, compare, remove, run, write};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Programs, Settings};

const THREADS: [usize; 8] = [0, 1, 2, 4, 6, 8, 10, 16];
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
    let mut page = Page::new("s3", "Figure 8 on a real S3 server", settings)?;
    page.say(&format!(
        "The real program and MinIO, both on this machine. Two tables of {:.0} MB together were backed up in {versions} versions; the newest is \
         restored into a folder with an empty cache, with so many requests ahead, and compared. Wall times, with the key derived from the \
         password and the repository opened. \"Loopback\" is MinIO as it is; \"slow link\" has a proxy in between, through which every answer comes \
         30 ms late and at 90 MB/s at most on each connection.",
        megabytes(bytes)
    ));
    let mut table = Table::new([
        "requests ahead",
        "loopback MB/s",
        "slow link MB/s",
        "x none",
        "stream from slow link MB/s",
        "x none",
    ]);
    let mut speeds = [Vec::new(), Vec::new(), Vec::new()];
    for threads in THREADS {
        let mut seconds = [0.0; 3];
        for (way, seconds) in seconds.iter_mut().enumerate() {
            let address = if way == 0 { minio.address } else { slow.address };
            let tool = Tool::larder(&programs.larder, &Minio::repository(address), &cache).at(&minio);
            let target = folder.join("restored");
            remove(&cache)?;
            let mut command = if way < 2 { tool.restore("tables", &target) } else { tool.dump("tables", &source) };
            command.args(["--prefetch", &threads.to_string()]);
            *seconds = run(command)?.wall;
            if way < 2 {
                compare(&source, &tool.restored(&target, &source))?;
                remove(&target)?;
            }
        }
        for (points, seconds) in speeds.iter_mut().zip(seconds) {
            points.push((threads as f64, rate(bytes, seconds)));
        }
        let last = |way: usize| speeds[way].last().map_or(0.0, |point| point.1);
        table.row([
            threads.to_string(),
            format!("{:.0}", last(0)),
            format!("{:.0}", last(1)),
            format!("{:.2}", last(1) / speeds[1][0].1),
            format!("{:.0}", last(2)),
            format!("{:.2}", last(2) / speeds[2][0].1),
        ]);
    }
    page.table(&table);
    let mut limits = Table::new(["curl, requests at once", "loopback MB/s", "slow link MB/s"]);
    let stored = minio.bytes(&keys)?;
    for at_once in FETCH {
        let fetch = |through| anyhow::Ok(rate(stored, run(Minio::fetch(through, &keys, at_once))?.wall));
        limits.row([
            at_once.to_string(),
            format!("{:.0}", fetch(minio.address)?),
            format!("{:.0}", fetch(slow.address)?),
        ]);
    }
    page.say(&format!(
        "What the store gives: curl fetching all {} containers ({:.0} MB as stored, compressed) and throwing them away.",
        keys.len(),
        megabytes(stored)
    ));
    page.table(&limits);
    let names = ["loopback, files", "slow link, files", "slow link, stream"];
    let lines_of: Vec<Line> = names.into_iter().zip(speeds).map(|(name, points)| Line::new(name, points)).collect();
    let labels = Labels { title: "Restore of the newest version from MinIO", x: "requests ahead", y: "MB/s" };
    page.plot("a-requests-ahead", &lines(&labels, Axis::Linear, Floor::Zero, &lines_of))?;
    page.finish()
}
