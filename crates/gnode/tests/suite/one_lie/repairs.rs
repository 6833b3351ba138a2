//! Repairs of the index and of snapshots.

use larder_format::compress::Compression;
use larder_format::layout::Layout;
use larder_gnode::forget::create_marks;
use larder_rewrite::check::ReadData;
use larder_rewrite::repair::{HealOptions, SalvageOptions, heal, replaced, salvage};
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::forget_marks::OwnedVersion;

use super::passes::LAYOUTS;
use super::*;

fn rebuild(context: &JobContext) -> Did {
    let _ = context.executor.block_on(repair::rebuild(context));
    Did::default()
}

#[test]
fn a_rebuild_of_the_index() {
    for layout in LAYOUTS {
        let stage = Stage::grown(layout).with_a_running_backup(layout);
        tell_every_lie(&stage, |_, context| rebuild(context));
    }
}

#[test]
fn a_rebuild_of_an_index_that_is_lost() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    stage.scene.lose_index();
    tell_every_lie(&stage, |_, context| rebuild(context));
}

#[test]
fn a_pass_whose_index_is_lost() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    stage.scene.lose_index();
    tell_every_lie(&stage, |_, context| {
        let options = PassOptions { dead_after: PassOptions::default().dead_after, ..eager() };
        let _ = context.executor.block_on(larder_gnode::pass::run(context, &options));
        Did::default()
    });
}

/// `repair --from`, with the files of one version.
#[test]
fn contents_put_back() {
    for damaged in [false, true] {
        let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
        let stage = if damaged { stage.without_a_container() } else { stage };
        tell_every_lie(&stage, |scene, context| {
            use std::os::unix::ffi::OsStrExt;
            let source = scene.source("b");
            let roots = Roots::new([source.as_os_str().as_bytes()], b"/").unwrap();
            let options = HealOptions {
                read_data: ReadData::All,
                versions: Vec::new(),
                dry_run: false,
                compression: Compression::DEFAULT,
            };
            let _ = heal(context, Walk::new(roots, WalkOptions::default()), &options);
            Did::default()
        });
    }
}

/// `repair snapshots --forget`: only what is damaged in truth is forgotten, and only when what is left of it is saved.
#[test]
fn damaged_snapshots_replaced() {
    for damaged in [false, true] {
        let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
        let stage = if damaged { stage.without_a_container() } else { stage };
        let before = stage.scene.marked();
        tell_every_lie(&stage, |scene, context| {
            let options = SalvageOptions {
                read_data: ReadData::All,
                versions: Vec::new(),
                dry_run: false,
                program: "test".to_owned(),
                compression: Compression::DEFAULT,
            };
            let mut did = Did::default();
            let Ok(report) = salvage(context, &options) else { return did };
            let Ok(replaced) = replaced(context, &report, &options) else { return did };
            let found = versions(&scene.context());
            let gone = found.iter().filter(|version| replaced.contains(&version.id()));
            let marks = gone.map(|version| (OwnedVersion::from(version), stage::mark())).collect();
            context.executor.block_on(create_marks(&context.repository, marks));
            for id in scene.marked().difference(&before) {
                if stage.whole.contains_key(id) {
                    did.wrong.push(format!("snapshot {id}, which is whole, was forgotten"));
                }
                let is_saved = found.iter().any(|version| version.summary.base == Some(*id));
                if !is_saved {
                    did.wrong.push(format!("snapshot {id} was forgotten, and nothing of it is saved"));
                }
            }
            did
        });
    }
}
