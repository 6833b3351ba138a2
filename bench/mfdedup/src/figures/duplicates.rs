//! Figure 2.

use larder_bench_common::megabytes;
use larder_bench_common::page::Page;
use larder_bench_common::table::Table;

use super::{is_shown, line, plot};
use crate::Settings;
use crate::run::{Kinds, Results};

pub(super) fn fig2(page: &mut Page, results: &Results, _: &Settings) -> anyhow::Result<()> {
    page.say(
        "Shares of a version's bytes, for exact deduplication over all versions so far: internal duplicates are in the same version, adjacent \
         ones in the version before, skip duplicates only in some version before that. \"Skip of duplicates\" is what looking at neighbours \
         alone loses.",
    );
    let mut table =
        Table::new(["version", "MB", "internal %", "adjacent %", "skip %", "unique %", "skip of duplicates %"]);
    let mut row = |name: String, kinds: &Kinds| {
        let share = |part: u64, whole: u64| format!("{:.2}", part as f64 * 100.0 / whole.max(1) as f64);
        let whole = kinds.bytes();
        let mut cells = vec![name, format!("{:.1}", megabytes(whole))];
        cells.extend([kinds.internal, kinds.adjacent, kinds.skip, kinds.unique].map(|part| share(part, whole)));
        cells.push(format!("{:.3}", kinds.skip as f64 * 100.0 / kinds.duplicates().max(1) as f64));
        table.row(cells);
    };
    let (mut all, count) = (Kinds::default(), results.versions.len());
    for (place, version) in results.versions.iter().enumerate() {
        all += version.kinds;
        if is_shown(place + 1, count) {
            row((place + 1).to_string(), &version.kinds);
        }
    }
    row("all".to_owned(), &all);
    page.table(&table);
    let share = |name: &str, part: fn(&Kinds) -> u64| {
        let versions = results.versions.iter().map(|version| &version.kinds);
        line(name, versions.map(|kinds| part(kinds) as f64 * 100.0 / kinds.bytes().max(1) as f64))
    };
    let kinds = [
        share("internal", |kinds| kinds.internal),
        share("adjacent", |kinds| kinds.adjacent),
        share("skip", |kinds| kinds.skip),
        share("unique", |kinds| kinds.unique),
    ];
    plot(page, results.set, "kinds", "kinds of chunks", "% of bytes", &kinds)?;
    page.say("The paper: skip duplicates are less than 0.5 % of all duplicates in most sets.");
    Ok(())
}
