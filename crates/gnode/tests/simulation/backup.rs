//! The backups of the simulation: real ones, in turns with everything else.

use std::io::Cursor;

use larder_format::compress::Compression;
use larder_format::layout::Layout;
use larder_index::Executor;
use larder_lnode::{BackupError, BackupOptions, Input, WhyBase, backup as real_backup};
use larder_store::jobs::CommitError;

use crate::node::{Node, Stop};

pub const SERIES: [&str; 2] = ["one", "two"];

/// The one file of every version.
pub const FILE: &[u8] = b"file";

/// Bytes of memory for finding duplicates.
const INDEX_MEMORY: usize = 1 << 20;

/// Backs up the next content of some series.
pub async fn backup(node: &Node) -> Result<(), Stop> {
    let ledger = &node.ledger;
    let series = SERIES[node.below(node.habits.series)];
    let layout = ledger.layout(series);
    let mut base = None;
    if layout == Layout::Standard && node.one_in(node.habits.wanders) {
        // Any version of any series, which is old news by the time it is announced.
        let versions = node.repository.catalog().await?.versions;
        let standard: Vec<_> = versions.iter().filter(|version| version.summary.layout == layout).collect();
        base = (!standard.is_empty()).then(|| standard[node.below(standard.len())].id());
    }
    let content = match node.habits.tries_again && !node.one_in(4) {
        true => ledger.tried(series).unwrap_or_else(|| ledger.edited(series, node.habits.blocks, &mut node.rng())),
        false => ledger.edited(series, node.habits.blocks, &mut node.rng()),
    };
    let bytes = content.concat();
    let token = ledger.means_to_commit(series, content);
    let options = BackupOptions {
        host: "node".to_owned(),
        // By this the simulation knows what a version holds.
        user: token.to_string(),
        program: "simulation".to_owned(),
        compression: Compression::Off,
        paranoid: node.one_in(8),
        skip_if_unchanged: node.one_in(4),
        base,
        index_memory: INDEX_MEMORY,
        layout,
        ..BackupOptions::new(series)
    };
    let size = node.one_in(2).then_some(bytes.len() as u64);
    let context = node.fickle_context();
    let done = Executor::stepped()
        .run(&node.repository, move |io| {
            let input = Input::Stream { path: FILE.to_vec(), reader: Box::new(Cursor::new(bytes)), size };
            real_backup(&context.on(&io.executor), input, &options)
        })
        .await;
    match done {
        Ok(report) => {
            let Some(version) = report.version else {
                ledger.count("unchanged");
                return Ok(());
            };
            ledger.told_committed(version.id, token, series);
            ledger.could_adopt(version.id, report.adopted.clone());
            let happened = [
                ("committed", true),
                ("on a base", !report.bases.is_empty()),
                ("on a base of another series", report.bases.iter().any(|base| base.series != series)),
                ("on several bases", report.bases.iter().any(|base| base.why == WhyBase::Before)),
                ("named for adoption", !report.adopted.is_empty()),
            ];
            happened.iter().filter(|(_, has)| *has).for_each(|(what, _)| ledger.count(what));
            Ok(())
        }
        Err(BackupError::Commit(CommitError::Fenced)) => {
            ledger.count("fenced");
            ledger.told_fenced(token);
            Ok(())
        }
        Err(BackupError::Interrupted) => {
            ledger.count("interrupted");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
