//! Figure 9 by change rate: the newest version's layout at slow and fast change, and the bytes that were copied for it.
//!
//! HAR and Capping run twice: with their own limits, and with as many copied bytes as Larder took in the same versions.

use std::sync::Arc;

use larder_bench_common::megabytes;
use larder_format::ChunkRef;

use super::fig9::{CONTAINER, Layout, Oracle, Run};
use super::{begin_page, spec};
use crate::backup::{Capping, Detector, Har, Output, Piece, detect};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Offline, Settings};

/// The share of a version that is new.
const RATES: [f64; 3] = [0.01, 0.03, 0.16];
/// From this version on the layout of the newest version is to stay as it is.
const FROM: usize = 7;

/// How a way has come through all versions.
struct Row {
    name: &'static str,
    layouts: Vec<Layout>,
    stored: u64,
    /// Bytes copied for the newest version, and for older ones.
    copied: [u64; 2],
}

struct Rival {
    row: Row,
    detector: Box<dyn Detector>,
    output: Output,
}

impl Rival {
    fn new(name: &'static str, detector: impl Detector + 'static) -> Self {
        let row = Row { name, layouts: Vec::new(), stored: 0, copied: [0, 0] };
        Self { row, detector: Box::new(detector), output: Output::new(CONTAINER) }
    }
}

/// Rows of one rate, bytes that were new after the first version, and all different bytes.
fn measure(settings: &Settings, offline: Offline, rate: f64) -> anyhow::Result<(Vec<Row>, u64, u64)> {
    let mut run = Run::optimized(settings)?;
    let mut rivals = [
        Rival::new("HAR", Har::new()),
        Rival::new("HAR, Larder's copies", Har::within_allowance()),
        Rival::new("Capping", Capping::new()),
        Rival::new("Capping, Larder's copies", Capping::within_allowance()),
    ];
    let mut exact = Oracle::default();
    let mut first = 0;
    let mut sdb = SDb::new(spec(settings, 4, 64.0, Duplication::Fixed(1.0 - rate)));
    for version in 0..settings.versions {
        if version > 0 {
            sdb.advance();
        }
        let stream: Arc<[u8]> = sdb.files().collect::<Vec<_>>().concat().into();
        let recipe = run.step(version, &stream, offline, version + 1 == settings.versions)?;
        let before = exact.bytes;
        exact.add(&recipe, usize::MAX);
        let new = exact.bytes - before;
        first = if version == 0 { new } else { first };
        let allowance = run.samples.last().map_or(0, |sample| sample.copied.iter().sum());
        let piece = |chunk: &ChunkRef| Piece { fingerprint: chunk.fingerprint, size: chunk.size };
        let pieces = [recipe.iter().map(piece).collect::<Vec<_>>()];
        for Rival { row, detector, output } in &mut rivals {
            detector.allow(allowance, stream.len() as u64);
            detect(&mut **detector, &pieces, output);
            row.copied[0] += output.stored_bytes() - row.stored - new;
            row.stored = output.stored_bytes();
            row.layouts.push(Layout::new(output.recipe(), output.catalogue()));
        }
    }
    let copied = |which: usize| run.samples.iter().map(|sample| sample.copied[which]).sum();
    let larder = Row {
        name: "Larder, `optimize`",
        layouts: run.samples.iter().map(|sample| sample.layout).collect(),
        stored: run.samples.last().map_or(0, |sample| sample.held),
        copied: [copied(0), copied(1)],
    };
    let rows = std::iter::once(larder).chain(rivals.into_iter().map(|rival| rival.row));
    Ok((rows.collect(), exact.bytes - first, exact.bytes))
}

pub(crate) fn rates(settings: &Settings, offline: Offline) -> anyhow::Result<()> {
    anyhow::ensure!(settings.versions > FROM, "more than {FROM} versions are needed");
    let mut page =
        begin_page("fig9-rates", "Figure 9 by change rate: the newest version, and what was copied", settings)?;
    page.say(&format!(
        "As figure 9: one series, one stream of four tables a version, chunks of {} KiB by {}, containers of {} MiB. Of each table the given \
         share is new in each version, by the generator's estimate; \"new\" is what came out. After every version Larder runs what `larder \
         optimize` does. HAR and Capping run with their own limits, and once more with as many copied bytes as Larder took so far, for the \
         newest and for older versions. Copied: bytes that were stored although they were there. Held: bytes in the newest version's \
         containers for a byte of its different chunks. Read: bytes that the modelled restore reads for such a byte. MB/s: the \
         modelled restore of figure 9. Most, mean and least are of the versions from {FROM} on.",
        settings.chunk_kib,
        settings.chunker,
        CONTAINER >> 20,
    ));
    for rate in RATES {
        let (rows, new, exact) = measure(settings, offline, rate)?;
        let mut table = Table::new([
            "way",
            "copied MB: newest",
            "older",
            "copied / new",
            "held, most",
            "held, mean",
            "read, mean",
            "containers / 100 MB, last",
            "MB/s, first",
            "least",
            "last",
            "x exact",
        ]);
        for Row { name, layouts, stored, copied } in &rows {
            let (Some(first), Some(last)) = (layouts.first(), layouts.last()) else { continue };
            let late = &layouts[FROM - 1..];
            let mean = |of: fn(&Layout) -> f64| late.iter().map(of).sum::<f64>() / late.len() as f64;
            table.row([
                (*name).to_owned(),
                format!("{:.1}", megabytes(copied[0])),
                format!("{:.1}", megabytes(copied[1])),
                format!("{:.2}", (copied[0] + copied[1]) as f64 / new.max(1) as f64),
                format!("{:.3}", late.iter().map(Layout::held).fold(0.0, f64::max)),
                format!("{:.3}", mean(Layout::held)),
                format!("{:.3}", mean(Layout::amplification)),
                format!("{:.1}", last.per_100_mb()),
                format!("{:.0}", first.speed()),
                format!("{:.0}", late.iter().map(Layout::speed).fold(f64::MAX, f64::min)),
                format!("{:.0}", last.speed()),
                format!("{:.3}", *stored as f64 / exact.max(1) as f64),
            ]);
        }
        let per_version = new as f64 / (settings.versions - 1) as f64;
        let version = rows[0].layouts.last().map_or(1, |layout| layout.bytes());
        page.say(&format!(
            "## {:.0} % of each version\n\n{:.1} MB new in each version, {:.1} % of it.",
            rate * 100.0,
            per_version / 1e6,
            per_version * 100.0 / version as f64
        ));
        page.table(&table);
    }
    page.finish()
}
