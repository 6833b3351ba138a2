//! Restores what a walk finds: the reading half and the restoring half with nothing between them but memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use larder_format::entry::{Entry, EntryKind};
use larder_source::target::{FileDecision, LinkDecision, Target, TargetError};
use larder_source::{Item, Roots, Walk, WalkOptions};

/// A tree in memory.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Each with its stored bytes, in the order of a version.
    pub(crate) entries: Vec<(Entry, Vec<u8>)>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
}

impl Held {
    /// Reads the tree at `root`; paths are relative to it.
    pub(crate) fn read(root: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let root = root.strip_prefix(b"/").ok_or("the root must be an absolute path")?;
        let mut held = Self::default();
        for item in Walk::new(Roots::new([[b"/", root].concat()], b"/")?, WalkOptions::default()) {
            let mut found = match item {
                Item::Found(found) => found,
                Item::Skipped { .. } => continue,
                Item::Problem(problem) => {
                    held.problems.push(problem.to_string());
                    continue;
                }
            };
            let mut content = Vec::new();
            if matches!(found.entry.kind, EntryKind::File { .. }) {
                let mut reader = found.open()?;
                held.problems.extend(found.complete_from(&reader).iter().map(ToString::to_string));
                content.resize(usize::try_from(reader.expected().unwrap_or(0))? + 1, 0);
                let mut filled = 0;
                loop {
                    match reader.read(&mut content[filled..])? {
                        0 => break,
                        more => filled += more,
                    }
                }
                content.truncate(filled);
                reader.finish(&mut found.entry);
            } else {
                held.problems.extend(found.complete().iter().map(ToString::to_string));
            }
            let below =
                |path: &[u8]| path.strip_prefix(root).and_then(|rest| rest.strip_prefix(b"/")).map(<[u8]>::to_vec);
            let mut entry = found.entry;
            let Some(path) = below(&entry.path) else { continue };
            entry.path = path;
            if let EntryKind::HardLink { target } = &mut entry.kind {
                *target = below(target).ok_or("a link out of the tree")?;
            }
            held.entries.push((entry, content));
        }
        Ok(held)
    }

    /// Restores everything, files by `threads` at once. Files larger than `piece` come in pieces of that size, last first.
    pub(crate) fn restore(&self, target: &Target, threads: usize, piece: usize) -> Result<(), TargetError> {
        for (entry, _) in &self.entries {
            if entry.kind == EntryKind::Directory {
                target.make_dir(entry)?;
            }
        }
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        while let Some(part) = self.entries.chunks(64).nth(next.fetch_add(1, Ordering::Relaxed)) {
                            for (entry, content) in part {
                                restore_one(target, entry, content, piece)?;
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        assert!(target.finish_overwritten()?.is_empty());
        for (entry, _) in &self.entries {
            if matches!(entry.kind, EntryKind::HardLink { .. }) {
                assert_ne!(target.make_link(entry)?, LinkDecision::NeedsContent, "{entry:?}");
            }
        }
        target.finish_dirs()
    }
}

fn restore_one(target: &Target, entry: &Entry, content: &[u8], piece: usize) -> Result<(), TargetError> {
    match &entry.kind {
        EntryKind::Directory | EntryKind::HardLink { .. } => Ok(()),
        EntryKind::File { extents, size } if content.len() > piece => {
            let FileDecision::Write(writer) = target.begin_file(entry)? else { return Ok(()) };
            let whole = [larder_format::entry::Extent { offset: 0, length: *size }];
            let mut rest = content;
            for run in extents.as_deref().unwrap_or(&whole) {
                let (bytes, after) = rest.split_at(usize::try_from(run.length).unwrap_or(rest.len()));
                for (number, part) in bytes.chunks(piece).enumerate().rev() {
                    writer.write_at(run.offset + (number * piece) as u64, part)?;
                }
                rest = after;
            }
            writer.finish(entry)
        }
        EntryKind::File { .. } => target.put_file(entry, content).map(|_| ()),
        _ => target.make_node(entry).map(|_| ()),
    }
}
