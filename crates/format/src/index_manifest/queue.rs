//! The deletion queue: objects whose deletion is decided, and published with the index that decides
//! it.
//!
//! | what | fields                                                            |
//! |-----:|-------------------------------------------------------------------|
//! |    1 | container: varint container                                       |
//! |    2 | generation: varint series, varint job, varint generation          |
//! |    3 | job: varint series, varint job                                    |
//! |    4 | run: varint job, varint seq                                       |
//! |    5 | index: varint number                                              |
//!
//! Deletions follow the order of `docs/concurrency.md`; the order of rows has no meaning.

use super::{SeriesWriter, put_run_id, run_id, series_of};
use crate::ids::{ContainerId, JobId, RunId, SeriesKey};
use crate::places::{Places, PlacesWriter};
use crate::wire::{DecodeError, Put, Reader};

/// An object to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueuedObject {
    /// A container.
    Container(ContainerId),
    /// A superseded generation of a version's manifest, never its register.
    Generation {
        /// The version's series.
        series: SeriesKey,
        /// The version.
        job: JobId,
        /// Which generation; not 0.
        generation: u32,
    },
    /// All that is left of a job: its leases, its register with all generations, its closing mark,
    /// its mark of being forgotten.
    Job {
        /// The series of its register.
        series: SeriesKey,
        /// The job.
        job: JobId,
    },
    /// An object of a run that this index does not use any more.
    Run(RunId),
    /// An older manifest of the index.
    Index(u64),
}

/// Why it is to be deleted, which decides when it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No retained version and no live job needs it: it may go as soon as the decision is
    /// published.
    Collected,
    /// Its needed chunks have other copies, to which this index redirects. It may go as soon as the
    /// index is published: who still reads it looks again.
    Moved,
    /// A newer object replaces it: a generation, a run, an index.
    Superseded,
}

/// One row of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// The object.
    pub what: QueuedObject,
    /// Why.
    pub reason: Reason,
    /// Number of the index with which it was decided.
    pub decided: u64,
}

impl Queued {
    pub(super) fn encode(&self, out: &mut Vec<u8>, places: &mut PlacesWriter, series_writer: &mut SeriesWriter) {
        match self.what {
            QueuedObject::Container(id) => {
                out.put_u8(1);
                out.put_varint(places.container(id));
            }
            QueuedObject::Generation { series, job, generation } => {
                out.put_u8(2);
                out.put_varint(series_writer.number(series));
                out.put_varint(places.job(job));
                out.put_varint(u64::from(generation));
            }
            QueuedObject::Job { series, job } => {
                out.put_u8(3);
                out.put_varint(series_writer.number(series));
                out.put_varint(places.job(job));
            }
            QueuedObject::Run(id) => {
                out.put_u8(4);
                put_run_id(out, places, id);
            }
            QueuedObject::Index(number) => {
                out.put_u8(5);
                out.put_varint(number);
            }
        }
        out.put_u8(match self.reason {
            Reason::Collected => 1,
            Reason::Moved => 2,
            Reason::Superseded => 3,
        });
        out.put_varint(self.decided);
    }

    pub(super) fn decode(places: &Places, series: &[SeriesKey], reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let what = match reader.u8()? {
            1 => QueuedObject::Container(places.container(reader)?),
            2 => {
                let (series, job) = version(places, series, reader)?;
                QueuedObject::Generation { series, job, generation: reader.varint_u32()? }
            }
            3 => {
                let (series, job) = version(places, series, reader)?;
                QueuedObject::Job { series, job }
            }
            4 => QueuedObject::Run(run_id(places, reader)?),
            5 => QueuedObject::Index(reader.varint()?),
            _ => return Err(reader.invalid("unknown kind of object in the queue")),
        };
        let reason = match reader.u8()? {
            1 => Reason::Collected,
            2 => Reason::Moved,
            3 => Reason::Superseded,
            _ => return Err(reader.invalid("unknown reason in the queue")),
        };
        Ok(Self { what, reason, decided: reader.varint()? })
    }
}

fn version(places: &Places, series: &[SeriesKey], reader: &mut Reader<'_>) -> Result<(SeriesKey, JobId), DecodeError> {
    let series = series_of(series, reader)?;
    let job = reader.varint()?;
    Ok((series, places.job(job, reader)?))
}
