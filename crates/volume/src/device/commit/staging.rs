//! New chunks of a commit: frames in containers that nothing names yet.
//!
//! Frames are filled in the order of the chunks, compressed by several threads, and written in
//! their order. So the bytes do not depend on how threads take turns.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_format::EncodeError;
use larder_format::compress::Compressor;
use larder_format::container::IdentifiedFrame;
use larder_format::volume_log::{Event, FramesEvent};
use larder_format::volume_map::Place;

use super::drafts::{Draft, Drafts, compress};
use super::frames::{self, Ready};
use crate::disk::DiskFile;
use crate::error::VolumeError;
use crate::store::{Contents, OpenContainer, Store, container_folder};
use crate::workers::{self, Beside};

/// Frames that are compressed together. They are written while the next ones are compressed.
const GROUP: usize = 64;

/// Containers as a commit changes them. Nothing of a batch counts before its record.
pub(super) struct Staging {
    /// The open one, and behind it those that this batch began.
    containers: Vec<OpenContainer>,
    /// Frames and chunks of the first one when the batch began.
    mark: (usize, usize),
    /// Bytes of it then.
    mark_len: u64,
    /// Whether the batch found an open one.
    had_container: bool,
    next_container: u32,
    next_before: u32,
}

/// A container that got frames, as readers see it when they are durable.
pub(super) struct Grown {
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) contents: Contents,
}

/// What a batch added.
#[derive(Default)]
pub(super) struct Added {
    /// Of the record.
    pub(super) events: Vec<Event>,
    pub(super) grown: Vec<Grown>,
    /// Folders of containers that the batch began. Their names are not durable.
    pub(super) folders: BTreeSet<String>,
    /// Full ones. They get their tables when the record is durable.
    pub(super) closing: Vec<OpenContainer>,
}

impl Staging {
    pub(super) fn new(container: Option<OpenContainer>, next_container: u32) -> Self {
        let containers: Vec<_> = container.into_iter().collect();
        let (mark, had_container) = ((0, 0), false);
        let mut staging = Self { containers, mark, mark_len: 0, had_container, next_container, next_before: 0 };
        staging.begin();
        staging
    }

    /// A batch begins.
    fn begin(&mut self) {
        let first = self.containers.first().map(|container| &container.contents);
        self.mark = first.map_or((0, 0), |contents| (contents.frames.len(), contents.chunks.len()));
        self.mark_len = first.map_or(0, Contents::object_len);
        self.had_container = first.is_some();
        self.next_before = self.next_container;
    }

    /// The batch failed. What was written is behind the last named frame, and is written over.
    pub(super) fn abort(&mut self) {
        self.containers.truncate(usize::from(self.had_container));
        if let Some(first) = self.containers.first_mut() {
            first.contents.truncate(self.mark);
        }
        self.next_container = self.next_before;
    }

    /// The open container, and the number of the next one. No batch is under way.
    pub(super) fn into_parts(mut self) -> (Option<OpenContainer>, u32) {
        (self.containers.pop(), self.next_container)
    }

    /// Compresses, seals and writes frames, not synced. Gives the places where they begin.
    pub(super) fn write(
        &mut self,
        store: &Store,
        compressors: &mut [Compressor],
        drafts: &Drafts<'_>,
    ) -> Result<Vec<Place>, VolumeError> {
        let mut places = Vec::with_capacity(drafts.frames.len());
        std::thread::scope(|scope| {
            let mut writing: Option<Beside<'_, _>> = None;
            let mut groups = drafts.frames.chunks(GROUP).peekable();
            while let Some(group) = groups.next() {
                let threads = store.threads_for(group.len(), 2);
                let compressed = workers::map_with(&mut compressors[..threads], group, compress);
                let ready = self.place(store, group, compressed, &mut places)?;
                writing.take().map_or(Ok(()), Beside::end)?;
                // The last group is written here: a small commit needs no thread.
                if groups.peek().is_none() {
                    frames::write(ready)?;
                } else {
                    writing = Some(workers::beside(scope, "write", move || frames::write(ready)));
                }
            }
            Ok::<_, VolumeError>(())
        })?;
        let begin = if self.had_container && self.containers.len() == 1 { self.mark_len } else { 0 };
        match self.containers.last_mut() {
            Some(last) if !places.is_empty() => last.write_ahead(begin)?,
            _ => {}
        }
        Ok(places)
    }

    /// Gives each frame its place.
    fn place(
        &mut self,
        store: &Store,
        drafts: &[Draft<'_>],
        compressed: Vec<Result<IdentifiedFrame, EncodeError>>,
        places: &mut Vec<Place>,
    ) -> Result<Vec<Ready>, VolumeError> {
        let mut ready = Vec::with_capacity(drafts.len());
        for (frame, draft) in compressed.into_iter().zip(drafts) {
            let frame = frame?;
            let number = self.container_for_frame(store)?;
            let OpenContainer { number, sealer, file, contents, .. } = &mut self.containers[number];
            let too_large = || VolumeError::BadRequest("a container is too large".into());
            let location = contents.push(frame.entry()).ok_or_else(too_large)?;
            contents.chunks.extend_from_slice(&draft.chunks);
            places.push(Place { container: *number, offset: location.payload_offset });
            ready.push(Ready { container: *number, file: file.clone(), sealer: sealer.clone(), location, frame });
        }
        Ok(ready)
    }

    /// Index of the container where the next frame belongs.
    fn container_for_frame(&mut self, store: &Store) -> Result<usize, VolumeError> {
        if self.containers.last().is_none_or(OpenContainer::is_full) {
            let (number, random) = (self.next_container, store.entropy.random()?);
            let target = store.options.container;
            let container = OpenContainer::create(&*store.disk, &store.keys, store.id, number, target, random)?;
            self.next_container += 1;
            self.containers.push(container);
        }
        Ok(self.containers.len() - 1)
    }

    /// The batch is complete: what its record says, and what readers see when that is durable. The
    /// next batch may begin.
    pub(super) fn end_batch(&mut self) -> Added {
        let mut added = Added::default();
        for (number, container) in self.containers.iter().enumerate() {
            let is_older = number == 0 && self.had_container;
            let (frames, chunks) = if is_older { self.mark } else { (0, 0) };
            let contents = &container.contents;
            if contents.frames.len() == frames {
                continue;
            }
            if !is_older {
                added.folders.insert(container_folder(container.number));
            }
            added.events.push(Event::Frames(FramesEvent {
                container: container.number,
                first: frames as u32,
                frames: contents.frames[frames..].iter().map(|frame| frame.entry).collect(),
                chunks: contents.chunks[chunks..].to_vec(),
            }));
            let (number, file) = (container.number, container.file.clone());
            added.grown.push(Grown { number, file, contents: contents.clone() });
        }
        let is_last_full = self.containers.last().is_some_and(OpenContainer::is_full);
        let full = if is_last_full { self.containers.len() } else { self.containers.len().saturating_sub(1) };
        added.closing = self.containers.drain(..full).collect();
        self.begin();
        added
    }
}
