//! Everything else: backups, restores, checks and conversions.

use larder_format::compress::Compression;
use larder_format::layout::Layout;
use larder_lifecycle::convert_layout::convert;
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};

use super::passes::LAYOUTS;
use super::*;

/// A backup that ends well has made a version that restores.
#[test]
fn backups() {
    for layout in LAYOUTS {
        for series in ["a", "c"] {
            let stage = Stage::grown(layout).with_a_running_backup(layout);
            let from = if series == "c" { "b" } else { series };
            stage.scene.fill(
                series,
                &[("shared", 7, 9000), ("never", u64::from(from.as_bytes()[0]), 14_000), ("always", 77, 12_000)],
            );
            let truth = stage.scene.fork();
            let id = backup(&truth.context(), &truth.source(series), series).unwrap().version.unwrap().id;
            let contents = truth.contents().remove(&id).unwrap();
            tell_every_lie(&stage, |scene, context| {
                let options = |options: &mut larder_lnode::BackupOptions| options.layout = layout;
                let made = backup_with(context, &scene.source(series), series, options);
                let made = made.ok().and_then(|report| report.version).map(|version| (version.id, contents.clone()));
                Did { made: made.into_iter().collect(), ..Did::default() }
            });
        }
    }
}

/// What is read without an error is right.
#[test]
fn restores() {
    for layout in LAYOUTS {
        let stage = Stage::grown(layout).with_a_running_backup(layout);
        let versions = stage.scene.versions();
        tell_every_lie(&stage, |_, context| {
            let mut did = Did::default();
            for version in versions.iter().filter(|version| stage.whole.contains_key(&version.id())) {
                if try_contents(context, version).is_ok_and(|read| read != stage.whole[&version.id()]) {
                    did.wrong.push(format!("snapshot {} was read wrong", version.id()));
                }
            }
            did
        });
    }
}

#[test]
fn checks() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    tell_every_lie(&stage, |_, context| {
        let _ = check(context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() });
        let _ = context.executor.block_on(repair::compare(context));
        Did::default()
    });
}

#[test]
fn conversions() {
    for (from, to) in [(Layout::Standard, Layout::Lifecycle), (Layout::Lifecycle, Layout::Standard)] {
        let stage = Stage::grown(from).with_a_running_backup(from);
        tell_every_lie(&stage, |_, context| {
            let _ = convert(context, "a", to, Compression::DEFAULT, None);
            Did::default()
        });
    }
}
