//! The kind of every error of this crate.

use std::io;
use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::fleet::{Stage, TaskId};
use larder_format::ids::JobId;
use larder_index::IndexError;
use larder_lnode::BackupError;
use larder_lnode::assemble::AssembleError;
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::{FleetError, FullScratch, NatsError};

#[test]
fn every_error_has_its_kind() {
    let task = TaskId { stage: Stage::Scan, round: 0, number: 0 };
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    assert_kinds!(FleetError {
        FleetError::Source { .. } => FleetError::Source { message: String::new() }, ErrorKind::Resource;
        FleetError::Elsewhere { .. } => FleetError::Elsewhere { why: String::new() }, ErrorKind::Resource;
        FleetError::NotForUs { .. } => FleetError::NotForUs { batch: JobId([1; 16]), why: String::new() }, ErrorKind::Precondition;
        FleetError::Changed { .. } => FleetError::Changed { offset: 0 }, ErrorKind::Resource;
        FleetError::Reread { .. } => FleetError::Reread { source: io::Error::other("x") }, ErrorKind::Resource;
        FleetError::Lifecycle { .. } => FleetError::Lifecycle { series: String::new() }, ErrorKind::Precondition;
        FleetError::BaseGone => FleetError::BaseGone, ErrorKind::LostRace;
        FleetError::BatchOver { .. } => FleetError::BatchOver { is_closed: true }, ErrorKind::LostRace;
        FleetError::Undecided { .. } => FleetError::Undecided { batch: JobId([1; 16]) }, ErrorKind::Resource;
        FleetError::StoreAborted => FleetError::StoreAborted, ErrorKind::LostRace;
        FleetError::TooManyChunks => FleetError::TooManyChunks, ErrorKind::Resource;
        FleetError::Taken { .. } => FleetError::Taken { task }, ErrorKind::LostRace;
        FleetError::NoPlace => FleetError::NoPlace, ErrorKind::Bug;
        FleetError::Scratch { .. } => FleetError::Scratch { source: io::Error::other("x") }, ErrorKind::Resource;
        FleetError::Scratch { .. } => FleetError::Scratch { source: full() }, ErrorKind::Full;
        FleetError::Nats(_) => FleetError::Nats(NatsError::Refused { address: String::new() }), ErrorKind::Precondition;
        FleetError::ScratchFull(_) => FleetError::ScratchFull(Arc::new(FullScratch {
            host: String::new(),
            at: String::new(),
            stage: Stage::Scan,
            folder: String::new(),
            free: 0,
            needed: 0,
            source: full(),
        })), ErrorKind::Full;
        FleetError::Backup(_) => FleetError::Backup(BackupError::Interrupted), ErrorKind::Interrupted;
        FleetError::Assemble(_) => FleetError::Assemble(AssembleError::NoThreads), ErrorKind::Resource;
        FleetError::Index(_) => FleetError::Index(IndexError::Spill { doing: "write", source: full() }), ErrorKind::Full;
        FleetError::Index(_) => FleetError::Index(IndexError::Unstable { attempts: 1 }), ErrorKind::LostRace;
        FleetError::Repository(_) => FleetError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
}

#[test]
fn servers_that_are_of_no_use_have_kinds() {
    let (address, why) = (String::new, String::new);
    assert_kinds!(NatsError {
        NatsError::Address { .. } => NatsError::Address { address: address(), why: why() }, ErrorKind::Precondition;
        NatsError::File { .. } => NatsError::File { what: "credentials", path: String::new(), why: why() }, ErrorKind::Resource;
        NatsError::Unreachable { .. } => NatsError::Unreachable { address: address(), why: why() }, ErrorKind::Resource;
        NatsError::Refused { .. } => NatsError::Refused { address: address() }, ErrorKind::Precondition;
        NatsError::NoJetStream { .. } => NatsError::NoJetStream { address: address() }, ErrorKind::Precondition;
        NatsError::NoRights { .. } => NatsError::NoRights { address: address(), why: why() }, ErrorKind::Precondition;
        NatsError::NoStream { .. } => NatsError::NoStream { address: address(), why: why() }, ErrorKind::Precondition;
    });
}

/// An image that cannot be read leaves the others; a full folder for temporary files leaves nobody.
#[test]
fn failures_of_images_are_told_from_those_of_batches() {
    let full = FleetError::Scratch { source: io::ErrorKind::StorageFull.into() };
    for error in [full, FleetError::StoreAborted, FleetError::Backup(BackupError::Interrupted)] {
        assert!(error.is_of_batch(), "{error}");
    }
    let reread = FleetError::Reread { source: io::Error::other("x") };
    for error in [reread, FleetError::BaseGone, FleetError::Changed { offset: 1 }, FleetError::TooManyChunks] {
        assert!(!error.is_of_batch(), "{error}");
    }
}
