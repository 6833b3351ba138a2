//! Contents of files in order: every entry with a reader of its content.

use larder_format::entry::{Entry, EntryKind};
use larder_store::RepositoryError;

use crate::data_reader::{ContentReader, DataReader, Reach};
use crate::entries::{PlacedEntry, is_at_or_below};
use crate::stand_ins::StandIns;
use crate::version::VersionReader;

impl VersionReader {
    /// Walks the entry at `path` and all below it, and passes the visitor each entry with a reader
    /// of its content. A file has its whole logical content, with holes as zeros. If the first name
    /// of a hard link is outside `path`, the first one inside becomes a file with content, and
    /// others link to it. The visitor may leave a reader unread. Containers are fetched ahead in
    /// stream order, and memory is bounded.
    pub fn visit_contents<E>(
        &self,
        path: &[u8],
        mut visitor: impl FnMut(&Entry, &mut dyn std::io::Read) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<RepositoryError>,
    {
        let reach = Reach::Range(self.data_range(path)?);
        self.visit_readers(path, reach, |name| is_at_or_below(name, path), |entry, content| visitor(entry, content))
    }

    /// As [`Self::visit_contents`], over a part of the data stream, with readers that know holes.
    /// Of a file with several names, the visitor needs the contents under the first one that
    /// `wants`, if that is not its first name.
    pub fn visit_readers<E>(
        &self,
        path: &[u8],
        reach: Reach,
        wants: impl Fn(&[u8]) -> bool,
        mut visitor: impl FnMut(&Entry, &mut ContentReader<'_>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<RepositoryError>,
    {
        let mut data = DataReader::new(self, reach);
        let mut stand_ins = StandIns::new(&self.context);
        for placed in self.placed_below(path) {
            let PlacedEntry { mut entry, mut data_offset } = placed?;
            if let EntryKind::HardLink { target } = &mut entry.kind
                && !wants(target)
                && wants(&entry.path)
            {
                match stand_ins.get(target) {
                    Some(stand_in) => *target = stand_in.to_vec(),
                    None => {
                        if let Some(first) = self.placed(target)? {
                            stand_ins.insert(std::mem::take(target), entry.path.clone());
                            entry.kind = first.entry.kind;
                            data_offset = first.data_offset;
                        }
                    }
                }
            }
            visitor(&entry, &mut ContentReader::new(&mut data, &entry, data_offset))?;
        }
        Ok(())
    }
}
