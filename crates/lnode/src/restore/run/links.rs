//! Hard links: each is made to its first name, or gets the contents itself.

use larder_format::entry::EntryKind;
use larder_reader::PlacedEntry;
use larder_source::target::{LinkDecision, Overwrite};

use super::{Restore, is_below};
use crate::restore::RestoreError;
use crate::restore::execute::add;
use crate::restore::plan::Link;

impl Restore<'_> {
    /// Where the target has the file of a first name, or gets it before the links to it. `None`:
    /// that name is not restored, and no link has its contents so far.
    pub(super) fn place_of_first(&mut self, first: &[u8]) -> Option<Vec<u8>> {
        let name = if self.restores_name(first) { Some(first) } else { self.stand_ins.get(first) };
        name.and_then(|name| self.root.path(name))
    }

    /// Whether a file at this path of the version is restored.
    pub(in crate::restore) fn restores_name(&self, path: &[u8]) -> bool {
        let is_selected = self.options.selection.as_ref().is_none_or(|selection| selection.wants(path, false));
        is_selected && (is_below(path, &self.root.subpath) || path == self.root.subpath)
    }

    /// The first name of a hard link, as the version has it. `None`: it cannot be known, which is
    /// reported as damage of the link.
    fn first_of(&self, link: &Link) -> Result<Option<PlacedEntry>, RestoreError> {
        let message = match self.reader.placed(&link.first) {
            Ok(Some(first)) => return Ok(Some(first)),
            Ok(None) => "the file it is a hard link to is not in the version".to_owned(),
            Err(error) => self.execution().expect_damage(error)?.to_string(),
        };
        self.execution().damage(&link.entry.path, &message);
        Ok(None)
    }

    /// Whether first names may be files that are not the version's, which the policy keeps.
    fn may_keep_first_names(&self) -> bool {
        !matches!(self.target.options().overwrite, Overwrite::Always | Overwrite::IfChanged)
    }

    /// Makes a hard link, or restores the contents under its name.
    pub(super) fn link(&mut self, link: Link) -> Result<(), RestoreError> {
        let mut size = None;
        if self.may_keep_first_names() {
            let Some(first) = self.first_of(&link)? else { return Ok(()) };
            size = matches!(first.entry.kind, EntryKind::File { .. }).then(|| first.entry.size());
        }
        let result = self.target.make_link_of_size(&link.entry, size);
        match self.single(&link.entry.path, result)? {
            Some(LinkDecision::NeedsContent) => self.contents_of_link(link)?,
            Some(LinkDecision::Kept(_)) => add(&self.execution.counters.files_kept, 1),
            Some(_) => self.others += 1,
            None => {}
        }
        Ok(())
    }

    /// A hard link whose first name is not restored gets the contents itself.
    pub(super) fn contents_of_link(&mut self, link: Link) -> Result<(), RestoreError> {
        let Some(first) = self.first_of(&link)? else { return Ok(()) };
        let Link { mut entry, .. } = link;
        entry.kind = first.entry.kind;
        match entry.kind {
            EntryKind::File { .. } => self.file(entry, first.data_offset),
            _ => {
                let result = self.target.make_node(&entry);
                self.single(&entry.path, result)?;
                Ok(())
            }
        }
    }
}
