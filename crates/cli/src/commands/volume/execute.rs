//! [`Host::execute`]: does what a store is asked.

use std::time::{Duration, Instant};

use larder_format::volume_manifest::{Parent, SnapshotEntry, VolumeEntry};
use larder_job::{Clock, SystemClock};
use larder_volume::{CollectOptions, VolumeError};
use serde_json::{Value, json};

use super::host::Host;
use super::hydrate::hydrated;
use super::report;
use super::request::{Parts, Request};
use super::users::Used;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{sizes, time};

/// Time between two parts with the progress of a copy.
const TELL: Duration = Duration::from_millis(250);
/// Ranges of blocks in a part.
const RANGES: usize = 10_000;
/// A client that has said goodbye is gone within this time.
const LEAVING: Duration = Duration::from_millis(500);

impl Host {
    /// Does what was asked.
    pub(super) fn execute(&self, request: &Request, parts: Parts<'_>) -> Result<Value, Failure> {
        match request {
            Request::List => Ok(self.list()),
            Request::Attach => Err(Failure::usage("this request needs a connection of its own")),
            Request::Changes { since, until } => self.changes(*since, *until, parts),
            Request::Hydrate { name } => self.hydrate(name, parts),
            Request::CreateOver { name, below } => match &self.create_over {
                Some(create) => create(name, below),
                None => Err(Failure::usage("only a server does this")),
            },
            Request::Mark { id, mark } => {
                self.store.mark_snapshot(*id, Some(mark))?;
                let (name, snapshot) = self.snapshot_of(*id)?;
                Ok(changed("marked", *id, &name, snapshot.size))
            }
            Request::DeleteSnapshot { id } => {
                let (name, snapshot) = self.snapshot_of(*id)?;
                // Another backup may read it.
                self.expect_unused("snapshot", &name, Used::Snapshot(*id, snapshot.volume), false)?;
                self.store.delete_snapshot(*id)?;
                Ok(changed("deleted", *id, &name, snapshot.size))
            }
            Request::Create { name, size } => {
                let volume = self.store.create_volume(name, *size, SystemClock.now_ms())?;
                Ok(json!({"message_type": "volume_created", "name": volume.name, "size": volume.size}))
            }
            Request::Clone { name, of } => {
                let volume = self.clone_of(name, of)?;
                Ok(json!({"message_type": "volume_created", "name": volume.name, "size": volume.size}))
            }
            Request::Snapshot { volume, snapshot, mark } => {
                let of = self.store.volume(volume)?;
                let made = self.store.create_snapshot(of.id, snapshot, mark.as_deref(), SystemClock.now_ms())?;
                Ok(changed("snapshot", made.id, &format!("{volume}@{}", made.name), made.size))
            }
            Request::Resize { name, size, shrink } => self.resize(name, *size, *shrink),
            Request::Rename { name, to } => {
                let volume = self.store.rename_volume(self.store.volume(name)?.id, to)?;
                Ok(changed("renamed", volume.id, &volume.name, volume.size))
            }
            Request::Delete { name, snapshots, force } => self.delete(name, *snapshots, *force),
            Request::Collect { until_free } => {
                let options = CollectOptions { until_free: *until_free, ..CollectOptions::default() };
                let done = self.store.collect(&options)?;
                Ok(json!({
                    "message_type": "volume_collected",
                    "containers": done.containers,
                    "bytes_freed": done.freed,
                    "chunks_copied": done.copied_chunks,
                    "bytes_copied": done.copied,
                    "rounds": done.rounds,
                }))
            }
            Request::Stats { volume, usage } => {
                let usage = usage.then(|| self.store.space(volume.as_deref())).transpose()?;
                if let Some(name) = volume {
                    self.store.volume(name)?;
                }
                Ok(report::of(self, usage.as_ref()))
            }
        }
    }

    fn list(&self) -> Value {
        let snapshots = self.store.snapshots();
        let volumes = self.store.volumes().into_iter().map(|volume| {
            let snapshots = snapshots.iter().filter(|snapshot| snapshot.volume == volume.id).map(|of| {
                let created = time::rfc3339(of.created_ms);
                json!({"id": of.id, "name": of.name, "size": of.size, "created": created, "mark": of.mark})
            });
            json!({
                "id": volume.id,
                "name": volume.name,
                "size": volume.size,
                "created": time::rfc3339(volume.created_ms),
                "parent": self.parent(&volume),
                "snapshots": snapshots.collect::<Vec<_>>(),
            })
        });
        Value::Array(volumes.collect())
    }

    /// What a volume has its first content from.
    fn parent(&self, volume: &VolumeEntry) -> Option<String> {
        match volume.parent.as_ref()? {
            Parent::Outside(text) => Some(text.clone()),
            Parent::Snapshot(id) => {
                let snapshot = self.store.snapshots().into_iter().find(|snapshot| snapshot.id == *id)?;
                let of = self.store.volumes().into_iter().find(|volume| volume.id == snapshot.volume)?;
                Some(format!("{}@{}", of.name, snapshot.name))
            }
        }
    }

    /// A clone of a volume needs a snapshot of it, which stays as long as the clone.
    fn clone_of(&self, name: &str, of: &str) -> Result<VolumeEntry, VolumeError> {
        let now_ms = SystemClock.now_ms();
        if of.contains('@') {
            return self.store.clone_snapshot(name, self.store.snapshot(of)?.id, now_ms);
        }
        let volume = self.store.volume(of)?;
        // That of an earlier clone of this name is there until somebody deletes it.
        let snapshots = self.store.snapshots();
        let is_free = |name: &String| !snapshots.iter().any(|of| of.volume == volume.id && of.name == *name);
        let first = format!("clone-{name}");
        let free = (2..).map(|number| format!("{first}-{number}")).find(is_free).filter(|_| !is_free(&first));
        let snapshot = self.store.create_snapshot(volume.id, &free.unwrap_or(first), None, now_ms)?;
        self.store.clone_snapshot(name, snapshot.id, now_ms).inspect_err(|_| {
            // The snapshot was only for the clone. If it stays, the list shows it.
            drop(self.store.delete_snapshot(snapshot.id));
        })
    }

    /// A smaller size loses data, so it must be meant.
    fn resize(&self, name: &str, size: u64, shrink: bool) -> Result<Value, Failure> {
        let volume = self.store.volume(name)?;
        if size < volume.size && !shrink {
            let (is, lost) = (sizes::show(volume.size), sizes::show(volume.size - size));
            let message = format!("volume {name} has {is}, and the smaller size discards the last {lost} of it");
            return Err(Failure::usage(message)
                .advise("shrink the file system first, then add --shrink; a snapshot before keeps the data"));
        }
        let volume = self.store.resize_volume(volume.id, size)?;
        Ok(changed("resized", volume.id, &volume.name, volume.size))
    }

    fn delete(&self, name: &str, snapshots: bool, force: bool) -> Result<Value, Failure> {
        if name.contains('@') {
            if snapshots {
                return Err(Failure::usage("--snapshots goes with a volume"));
            }
            let snapshot = self.store.snapshot(name)?;
            self.expect_unused("snapshot", name, Used::Snapshot(snapshot.id, snapshot.volume), force)?;
            self.store.delete_snapshot(snapshot.id)?;
            return Ok(changed("deleted", snapshot.id, name, snapshot.size));
        }
        let volume = self.store.volume(name)?;
        self.expect_unused("volume", name, Used::Volume(volume.id), force)?;
        self.store.delete_volume(volume.id, snapshots)?;
        Ok(changed("deleted", volume.id, name, volume.size))
    }

    /// Refuses to delete something that clients would lose.
    fn expect_unused(&self, what: &str, name: &str, of: Used, force: bool) -> Result<(), Failure> {
        let clients = if force { 0 } else { self.users.of_after(of, LEAVING) };
        if clients == 0 {
            return Ok(());
        }
        let message = format!("{what} {name} is in use by {}", sizes::count(clients as u64, "client"));
        Err(Failure::new(Exit::Busy, message)
            .advise("disconnect them first; with --force it is deleted, and they get errors"))
    }

    /// A snapshot by its number, and its full name.
    fn snapshot_of(&self, id: u32) -> Result<(String, SnapshotEntry), Failure> {
        let missing = || VolumeError::NoSnapshot(format!("number {id}"));
        let snapshot = self.store.snapshots().into_iter().find(|snapshot| snapshot.id == id).ok_or_else(missing)?;
        let of = self.store.volumes().into_iter().find(|volume| volume.id == snapshot.volume).ok_or_else(missing)?;
        Ok((format!("{}@{}", of.name, snapshot.name), snapshot))
    }

    fn changes(&self, since: u32, until: u32, parts: Parts<'_>) -> Result<Value, Failure> {
        let (name, snapshot) = self.snapshot_of(until)?;
        let (mut ranges, mut blocks) = (Vec::new(), 0);
        for range in self.store.changed_blocks(snapshot.volume, Some(since), Some(until))? {
            let range = range?;
            blocks += range.end - range.start;
            ranges.push([range.start, range.end]);
            if ranges.len() == RANGES {
                parts(json!({"ranges": std::mem::take(&mut ranges)}))?;
            }
        }
        parts(json!({"ranges": ranges}))?;
        Ok(json!({"message_type": "volume_changes", "name": name, "blocks": blocks}))
    }

    fn hydrate(&self, name: &str, parts: Parts<'_>) -> Result<Value, Failure> {
        let volume = self.store.volume(name)?;
        let mut told: Option<Instant> = None;
        let copied = self.parents.copy(&self.store, &volume, &self.cancel, &mut |done| {
            if told.is_some_and(|told| told.elapsed() < TELL) {
                return Ok(());
            }
            told = Some(Instant::now());
            parts(json!({"bytes_done": done.bytes, "bytes_total": done.of}))
        })?;
        Ok(hydrated(&volume, &copied))
    }
}

fn changed(what: &str, id: u32, name: &str, size: u64) -> Value {
    json!({"message_type": "volume_changed", "change": what, "id": id, "name": name, "size": size})
}
