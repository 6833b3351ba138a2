//! Table I: the data set's parameters, measured by chunks.

use super::{begin_page, megabytes, spec};
use crate::Settings;
use crate::sdb::measure::{Measured, Measurer};
use crate::sdb::{Duplication, PAGE, SDb};
use crate::table::Table;

pub(crate) fn data(settings: &Settings) -> anyhow::Result<()> {
    let files = 12;
    let spec = spec(settings, files, 8.0, Duplication::Spread);
    let mut page = begin_page("data", "Table I: the data", settings)?;
    page.say(&format!(
        "{files} tables of {:.1} MiB in InnoDB-like files of {} KiB pages, changed by inserts, updates and deletes of rows. Measured with \
         MinCDC chunks of 4 KiB and an exact index: duplication = bytes in chunks that the version before has; self-reference = bytes in \
         chunks that occur earlier in the same version. The paper's S-DB: 25 versions, 0.84 (0.65 to 0.95 by file), 20 %.",
        spec.file_bytes as f64 / f64::from(1 << 20),
        PAGE >> 10
    ));
    let mut sdb = SDb::new(spec);
    let mut measurers: Vec<Measurer> = (0..files).map(|_| Measurer::new()).collect();
    let mut by_file = vec![(Measured::default(), 1.0_f64, 0.0_f64); files];
    let mut versions = Table::new(["version", "MB", "duplication", "self-reference", "unique MB, all so far"]);
    let (mut all, mut later) = (Measured::default(), Measured::default());
    for version in 0..settings.versions {
        if version > 0 {
            sdb.advance();
        }
        let mut whole = Measured::default();
        for ((file, measurer), total) in sdb.files().zip(&mut measurers).zip(&mut by_file) {
            let measured = measurer.version(file);
            whole.add(measured);
            if version > 0 {
                total.0.add(measured);
                total.1 = total.1.min(measured.duplication());
                total.2 = total.2.max(measured.duplication());
            }
        }
        all.add(whole);
        if version > 0 {
            later.add(whole);
        }
        versions.row([
            version.to_string(),
            format!("{:.1}", megabytes(whole.bytes)),
            if version > 0 { format!("{:.3}", whole.duplication()) } else { "-".to_owned() },
            format!("{:.3}", whole.self_reference()),
            format!("{:.1}", megabytes(all.unique)),
        ]);
    }
    let mut table = Table::new(["file", "meant", "measured", "least", "most", "self-reference"]);
    for (file, (measured, least, most)) in by_file.iter().enumerate() {
        table.row([
            file.to_string(),
            format!("{:.3}", Duplication::Spread.of(file, files)),
            format!("{:.3}", measured.duplication()),
            format!("{least:.3}"),
            format!("{most:.3}"),
            format!("{:.3}", measured.self_reference()),
        ]);
    }
    let mean = by_file.iter().map(|(measured, ..)| measured.duplication()).sum::<f64>() / files as f64;
    page.table(&table);
    page.say(&format!(
        "All files: duplication {mean:.3} (mean of files; by bytes {:.3}), self-reference {:.3}; {:.1} MB in {} versions, of which {:.1} MB are \
         unique: {:.2} x.",
        later.duplication(),
        later.self_reference(),
        megabytes(all.bytes),
        settings.versions,
        megabytes(all.unique),
        all.bytes as f64 / all.unique.max(1) as f64
    ));
    page.table(&versions);
    page.finish()
}
