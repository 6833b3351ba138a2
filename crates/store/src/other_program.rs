//! Backup programs whose repositories may be in the place of one of Larder.

/// A backup program whose repositories have an object `config`, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherProgram {
    /// restic.
    Restic,
    /// Borg.
    Borg,
}

impl OtherProgram {
    /// Its name, as it writes it.
    pub(crate) fn name_of(program: Option<Self>) -> &'static str {
        match program {
            Some(Self::Restic) => "restic",
            Some(Self::Borg) => "Borg",
            None => "another program",
        }
    }
}
