//! A list of containers in the head of an index: those that a rebuild searched for, or whose chunks
//! are not listed yet.
//!
//! A string of bytes, 21 for each container: 1 byte kind (0 data, 1 metadata), 16 bytes of job, u32
//! number, big-endian; rising.

use minicbor::decode::{Decode, Decoder, Error as DecodeFailure};
use minicbor::encode::{Encode, Encoder, Error as EncodeFailure, Write};

use crate::ids::{ContainerId, ContainerKind, JobId};

/// Most containers in a list.
pub const LIST_MAX: usize = 4096;
const ROW: usize = 21;

/// Containers, each once, in order. See the module header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerList(Vec<ContainerId>);

impl ContainerList {
    /// Of these; `None` when there are none or too many.
    pub fn of(containers: impl IntoIterator<Item = ContainerId>) -> Option<Self> {
        let mut all: Vec<ContainerId> = containers.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        (1..=LIST_MAX).contains(&all.len()).then_some(Self(all))
    }

    /// The first of these, as many as there is room for; `None` when there are none.
    pub fn first_of(containers: impl IntoIterator<Item = ContainerId>) -> Option<Self> {
        let mut all: Vec<ContainerId> = containers.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(LIST_MAX);
        Self::of(all)
    }

    /// Whether there is no room for another one, so that some may be missing.
    pub fn is_full(&self) -> bool {
        self.0.len() == LIST_MAX
    }

    /// All of them, rising.
    pub fn ids(&self) -> &[ContainerId] {
        &self.0
    }
}

impl<C> Encode<C> for ContainerList {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeFailure<W::Error>> {
        let mut bytes = Vec::with_capacity(self.0.len() * ROW);
        for id in &self.0 {
            bytes.push(u8::from(id.kind == ContainerKind::Meta));
            bytes.extend_from_slice(&id.job.0);
            bytes.extend_from_slice(&id.seq.to_be_bytes());
        }
        encoder.bytes(&bytes)?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for ContainerList {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, DecodeFailure> {
        let bytes = decoder.bytes()?;
        let rows = bytes.chunks_exact(ROW);
        if !rows.remainder().is_empty() || !(1..=LIST_MAX).contains(&rows.len()) {
            return Err(DecodeFailure::message("a list of containers has an impossible length"));
        }
        let id = |row: &[u8]| {
            let kind = match row.first()? {
                0 => ContainerKind::Data,
                1 => ContainerKind::Meta,
                _ => return None,
            };
            let job = JobId(*row.get(1..)?.first_chunk()?);
            Some(ContainerId { kind, job, seq: u32::from_be_bytes(*row.last_chunk()?) })
        };
        let ids: Option<Vec<ContainerId>> = rows.map(id).collect();
        let ids = ids.filter(|ids| ids.is_sorted_by(|a, b| a < b));
        ids.map(Self).ok_or(DecodeFailure::message("a list of containers is not in order"))
    }
}
