//! Hard links: each is made to its first name, or gets the contents itself.

use larder_format::entry::{Entry, EntryKind};
use larder_reader::PlacedEntry;
use larder_source::target::{LinkDecision, Overwrite};

use super::Restore;
use crate::restore::RestoreError;
use crate::restore::execute::add;

impl Restore<'_> {
    /// The first name of a hard link, as the version has it. `None`: it cannot be known, which is
    /// reported as damage of the link.
    fn first_of(&self, link: &Entry) -> Result<Option<PlacedEntry>, RestoreError> {
        let EntryKind::HardLink { target } = &link.kind else { return Ok(None) };
        // The path in the version, when the link was rebased already.
        let rebased = || {
            let prefix = self.root.subpath.get(..self.root.strip.saturating_sub(1)).unwrap_or_default();
            let path = if prefix.is_empty() { target.clone() } else { [prefix, b"/", target].concat() };
            self.reader.placed(&path)
        };
        let placed = match self.reader.placed(target) {
            Ok(None) => rebased(),
            placed => placed,
        };
        let message = match placed {
            Ok(Some(first)) => return Ok(Some(first)),
            Ok(None) => "the file it is a hard link to is not in the version".to_owned(),
            Err(error) => self.execution().expect_damage(error)?.to_string(),
        };
        self.execution().damage(&link.path, &message);
        Ok(None)
    }

    /// Whether first names may be files that are not the version's: those that the policy keeps,
    /// and those of earlier runs that the selection leaves out.
    fn may_keep_first_names(&self) -> bool {
        let overwrites = matches!(self.target.options().overwrite, Overwrite::Always | Overwrite::IfChanged);
        !overwrites || self.options.selection.is_some()
    }

    /// Makes a hard link, or restores the contents under its name.
    pub(super) fn link(&mut self, link: Entry) -> Result<(), RestoreError> {
        let mut size = None;
        if self.may_keep_first_names() {
            let Some(first) = self.first_of(&link)? else { return Ok(()) };
            size = matches!(first.entry.kind, EntryKind::File { .. }).then(|| first.entry.size());
        }
        let result = self.target.make_link_of_size(&link, size);
        match self.single(&link.path, result)? {
            Some(LinkDecision::NeedsContent) => self.contents_of_link(link)?,
            Some(LinkDecision::Kept(_)) => add(&self.execution.counters.files_kept, 1),
            Some(_) => self.others += 1,
            None => {}
        }
        Ok(())
    }

    /// A hard link whose first name is not restored gets the contents itself.
    pub(super) fn contents_of_link(&mut self, mut entry: Entry) -> Result<(), RestoreError> {
        let Some(first) = self.first_of(&entry)? else { return Ok(()) };
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
