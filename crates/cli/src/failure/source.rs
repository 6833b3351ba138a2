//! Failures of the input that a user chose: paths, patterns, lists and commands. Their own messages
//! suffice.

use larder_source::exclude::TagFileError;
use larder_source::image::ImageError;
use larder_source::pattern_file::PatternFileError;
use larder_source::{CommandError, ListError, PatternError, RootsError};

use super::Failure;

impl From<RootsError> for Failure {
    fn from(error: RootsError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<PatternError> for Failure {
    fn from(error: PatternError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<PatternFileError> for Failure {
    fn from(error: PatternFileError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<TagFileError> for Failure {
    fn from(error: TagFileError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        Self::of(error.kind(), &error).advise("no snapshot was made")
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Self::of(error.kind(), &error).advise("no snapshot was made")
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        let failure = Self::of(error.kind(), &error);
        match &error {
            ImageError::Tool { why, .. } if why.contains("lock") => failure
                .advise("another program has the image open: stop it, or name the disk as a network block device"),
            ImageError::Tool { program, why } if why.contains("No such file or directory (os error 2)") => failure
                .advise(match program.as_str() {
                    "lvs" | "lvcreate" | "lvchange" | "lvremove" | "dmsetup" => "install lvm2",
                    "thin_delta" => {
                        "install thin_delta (Debian: thin-provisioning-tools; Fedora: device-mapper-persistent-data)"
                    }
                    _ => "install the tools of QEMU (Debian: qemu-utils; Fedora: qemu-img)",
                }),
            _ => failure.advise("no snapshot was made"),
        }
    }
}
