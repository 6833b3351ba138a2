//! Containers by their names, while an index is rebuilt: those that versions name, and those that
//! were listed. Both are as many as the repository has, so they are in pages.

use std::io;
use std::path::Path;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::layout::Layout;
use larder_spill::{KeyedPages, KeyedRow, Row, RowReader, RowWriter};
use parking_lot::Mutex;

use crate::spilled::{ID_BYTES, id_from, put_id};

/// Rows of one read.
const SCANNED: u64 = 256;

/// It is of the layout `lifecycle`.
const ARRANGED: u8 = 1;
/// It is data, and was not listed.
const GONE: u8 = 2;

/// A container that versions name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) id: ContainerId,
    pub(super) number: u32,
    marks: u8,
}

impl Named {
    pub(super) fn new(id: ContainerId, number: u32, layout: Layout) -> Self {
        Self { id, number, marks: if layout == Layout::Lifecycle { ARRANGED } else { 0 } }
    }

    pub(super) fn is_arranged(&self) -> bool {
        self.marks & ARRANGED != 0
    }

    pub(super) fn is_gone(&self) -> bool {
        self.marks & GONE != 0
    }
}

impl Row for Named {
    const BYTES: usize = ID_BYTES + size_of::<u32>() + 1;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.id);
        row.u32(self.number);
        row.bytes(&[self.marks]);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let (id, number) = (id_from(row), row.u32());
        let [marks] = row.bytes();
        Self { id, number, marks }
    }
}

impl KeyedRow for Named {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.id
    }
}

/// A container that was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Listed(ContainerId);

impl Row for Listed {
    const BYTES: usize = ID_BYTES;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.0);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self(id_from(row))
    }
}

impl KeyedRow for Listed {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.0
    }
}

/// See the module header. To be filled, then [settled](Self::settle), then asked. A lock is held
/// for one call only.
#[derive(Debug)]
pub(super) struct Names {
    named: Mutex<KeyedPages<Named>>,
    listed: Mutex<KeyedPages<Listed>>,
}

impl Names {
    /// None. They take about `memory` bytes of memory at most; files are in `folder`.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        let (named, listed) = (KeyedPages::new(folder, memory / 2), KeyedPages::new(folder, memory / 2));
        Self { named: Mutex::new(named), listed: Mutex::new(listed) }
    }

    pub(super) fn name(&mut self, container: Named) -> io::Result<()> {
        self.named.get_mut().push(container)
    }

    pub(super) fn list(&mut self, container: ContainerId) -> io::Result<()> {
        self.listed.get_mut().push(Listed(container))
    }

    /// After all that was added: makes it findable, and notes which named ones are gone.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let (named, listed) = (self.named.get_mut(), self.listed.get_mut());
        named.merge()?;
        listed.merge()?;
        for first in (0..named.len()).step_by(SCANNED as usize) {
            for (place, row) in (first..).zip(named.read(first..first + SCANNED)?) {
                let is_gone = row.id.kind == ContainerKind::Data && listed.find(row.id)?.is_none();
                let marks = if is_gone { row.marks | GONE } else { row.marks & !GONE };
                if marks != row.marks {
                    named.replace(place, Named { marks, ..row })?;
                }
            }
        }
        Ok(())
    }

    /// A container that versions name.
    pub(super) fn find(&self, id: &ContainerId) -> io::Result<Option<Named>> {
        self.named.lock().find(*id)
    }

    /// All that versions name, by their names.
    pub(super) fn named(&self) -> impl Iterator<Item = io::Result<Named>> {
        all(&self.named)
    }

    /// Data that was listed and that no version names.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = io::Result<ContainerId>> {
        let listed = all(&self.listed).filter(|row| !matches!(row, Ok(row) if row.0.kind != ContainerKind::Data));
        listed.filter_map(|row| match row.and_then(|row| Ok((row.0, self.find(&row.0)?))) {
            Ok((id, None)) => Some(Ok(id)),
            Ok((_, Some(_))) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Those of the named ones that are gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = io::Result<Named>> {
        self.named().filter(|row| !matches!(row, Ok(row) if !row.is_gone()))
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    fn bytes_in_memory(&self) -> usize {
        self.named.lock().bytes_in_memory() + self.listed.lock().bytes_in_memory()
    }
}

/// All rows in their order. Nothing follows an error.
fn all<R: KeyedRow>(rows: &Mutex<KeyedPages<R>>) -> impl Iterator<Item = io::Result<R>> {
    let (mut next, mut read) = (Some(0), Vec::new().into_iter());
    std::iter::from_fn(move || {
        if read.len() == 0 {
            let first = next.take()?;
            match rows.lock().read(first..first + SCANNED) {
                Ok(rows) => {
                    next = (!rows.is_empty()).then_some(first + rows.len() as u64);
                    read = rows.into_iter();
                }
                Err(error) => return Some(Err(error)),
            }
        }
        read.next().map(Ok)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::env::temp_dir;

    use larder_format::ids::JobId;
    use proptest::prelude::*;

    use super::*;

    fn id(seq: u32) -> ContainerId {
        let kind = if seq.is_multiple_of(4) { ContainerKind::Meta } else { ContainerKind::Data };
        ContainerId { kind, job: JobId([(seq % 3) as u8; 16]), seq }
    }

    proptest! {
        /// The oracle is a map and a set.
        #[test]
        fn what_is_named_and_not_listed_is_gone(
            named in proptest::collection::btree_map(0u32..60, any::<bool>(), 0..40),
            first in proptest::collection::vec(0u32..60, 0..60),
            second in proptest::collection::vec(0u32..60, 0..20),
            memory in prop_oneof![Just(0usize), Just(1 << 20)],
        ) {
            let mut names = Names::new(&temp_dir(), memory);
            for (seq, is_arranged) in &named {
                let layout = if *is_arranged { Layout::Lifecycle } else { Layout::Standard };
                names.name(Named::new(id(*seq), seq + 100, layout)).expect("written");
            }
            let mut listed = BTreeSet::new();
            // A second listing may show what the first one lacked.
            for listing in [first, second] {
                for seq in listing {
                    names.list(id(seq)).expect("written");
                    listed.insert(seq);
                }
                names.settle().expect("written");
                let gone: BTreeMap<u32, bool> =
                    names.gone().map(|row| row.expect("read")).map(|row| (row.id.seq, row.is_arranged())).collect();
                let is_data = |seq: &u32| id(*seq).kind == ContainerKind::Data;
                let mut expected = named.clone();
                expected.retain(|seq, _| is_data(seq) && !listed.contains(seq));
                prop_assert_eq!(gone, expected);
                let unnamed: BTreeSet<u32> = names.unnamed().map(|id| id.expect("read").seq).collect();
                let expected = listed.iter().filter(|seq| is_data(seq) && !named.contains_key(seq));
                prop_assert_eq!(unnamed, expected.copied().collect::<BTreeSet<_>>());
            }
            for seq in 0..60 {
                let found = names.find(&id(seq)).expect("read").map(|row| row.number);
                prop_assert_eq!(found, named.get(&seq).map(|_| seq + 100));
            }
        }
    }

    #[test]
    fn with_little_memory_the_same_is_gone() {
        let memory = 256 << 10;
        let gone = |memory: usize| {
            let mut names = Names::new(&temp_dir(), memory);
            for seq in 0..40_000 {
                names.name(Named::new(id(seq), seq, Layout::Standard)).expect("written");
                names.list(id(seq + seq % 2 * 40_000)).expect("written");
            }
            names.settle().expect("written");
            let gone: Vec<u32> = names.gone().map(|row| row.expect("read").number).collect();
            (gone, names.unnamed().map(|id| id.expect("read").seq).collect::<Vec<_>>(), names.bytes_in_memory())
        };
        let ((gone_of_little, unnamed_of_little, in_memory), (gone, unnamed, plenty)) = (gone(memory), gone(1 << 30));
        assert!(in_memory <= memory && plenty > 4 * memory, "{in_memory} {plenty}");
        assert!(gone_of_little == gone && unnamed_of_little == unnamed);
        assert!(gone.len() == 20_000 && unnamed.len() == 20_000);
    }
}
