//! The stretches of containers that new versions use: their recipes, sorted by container.

use larder_format::extents::{decode_key, encode_key};
use larder_format::ids::ContainerId;
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Cursor, IndexError, IndexPass, Sorted, Sorter};

use super::ArrangeError;
use super::{Unarranged, Work, interrupted};

/// Of the memory of the pass for tables, one part in this number holds them.
const USES_ONE_IN: usize = 4;

/// Container, beginning of the stretch, version, length; without a value.
const USES: RecordLayout = RecordLayout { key_len: 33, value: ValueWidth::Fixed(0) };

/// A stretch of a container that a version uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) from: u32,
    pub(super) length: u32,
    pub(super) version: u32,
}

/// Uses in order of their containers.
pub(super) struct Uses {
    sorted: Sorted,
    /// The next one, of another container.
    next: Option<(ContainerId, Use)>,
}

impl Uses {
    fn new(sorted: Sorted) -> Result<Self, IndexError> {
        let mut uses = Self { sorted, next: None };
        uses.advance()?;
        Ok(uses)
    }

    fn advance(&mut self) -> Result<(), IndexError> {
        self.next = if self.sorted.advance()? { Some(decode(self.sorted.key())?) } else { None };
        Ok(())
    }

    /// The container of the next uses.
    pub(super) fn container(&self) -> Option<ContainerId> {
        self.next.map(|(container, _)| container)
    }

    /// The uses of a container, in order; containers must be asked for in their order. Uses before
    /// it are skipped.
    pub(super) fn of(&mut self, container: &ContainerId) -> Result<Vec<Use>, IndexError> {
        let mut uses = Vec::new();
        while let Some((next, used)) = self.next.filter(|(next, _)| next <= container) {
            if next == *container {
                uses.push(used);
            }
            self.advance()?;
        }
        Ok(uses)
    }
}

fn decode(key: &[u8]) -> Result<(ContainerId, Use), IndexError> {
    let (container, numbers) = key.split_at(21);
    let container = decode_key(container).map_err(|source| IndexError::WrongRecord {
        table: larder_format::index_manifest::Table::Extents,
        key: key.to_vec(),
        source,
    })?;
    let number = |at: usize| numbers[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    Ok((container, Use { from: number(0), version: number(4), length: number(8) }))
}

/// The uses by versions, if they are known.
pub(super) enum References {
    /// Of all that are new.
    All(Uses),
    /// One of them is gone: another pass was faster, and this one will not publish.
    Overtaken,
    /// One of them cannot be read.
    Damaged,
}

/// The uses by new versions.
pub(super) fn references(pass: &IndexPass, work: &Work, unarranged: &Unarranged) -> Result<References, ArrangeError> {
    let repository = &pass.io.repository;
    let mut sorter = Sorter::new(repository, USES, pass.memory / USES_ONE_IN, &pass.folder)?;
    for version in unarranged.versions.iter().filter(|version| !version.is_arranged) {
        let pin = Pin { series: version.series, job: version.job };
        let manifest = match pass.io.executor.block_on(repository.read_register(pin, version.generation)) {
            Ok(Some(Register::Committed(manifest))) => manifest,
            Ok(Some(Register::Aborted) | None) => return Ok(References::Overtaken),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "what a version uses is not known, so its series is not arranged");
                return Ok(References::Damaged);
            }
            Err(error) => return Err(error.into()),
        };
        let mut stretch: Option<(ContainerId, Use)> = None;
        let mut push = |stretch: (ContainerId, Use)| sorter.push(&encode(&stretch), Some(&[]));
        let walked =
            larder_reader::References::new(&work.context.on(&pass.io.executor)).visit(&manifest.data, |chunk| {
                if work.context.cancel.is_cancelled() {
                    return Err(interrupted());
                }
                match &mut stretch {
                    Some((container, used))
                        if *container == chunk.container
                            && used.from.checked_add(used.length) == Some(chunk.offset) =>
                    {
                        used.length = used.length.saturating_add(chunk.size);
                    }
                    _ => {
                        let used = Use { from: chunk.offset, length: chunk.size, version: version.number };
                        if let Some(before) = stretch.replace((chunk.container, used)) {
                            push(before)?;
                        }
                    }
                }
                Ok::<_, ArrangeError>(())
            });
        match walked {
            Ok(()) => stretch.map_or(Ok(()), push)?,
            Err(ArrangeError::Index(error)) if error.is_damage() => {
                tracing::warn!(%error, "what a version uses is not known, so its series is not arranged");
                return Ok(References::Damaged);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(References::All(Uses::new(sorter.finish()?)?))
}

fn encode((container, used): &(ContainerId, Use)) -> [u8; 33] {
    let mut key = [0; 33];
    key[..21].copy_from_slice(&encode_key(container));
    key[21..25].copy_from_slice(&used.from.to_be_bytes());
    key[25..29].copy_from_slice(&used.version.to_be_bytes());
    key[29..].copy_from_slice(&used.length.to_be_bytes());
    key
}
