//! Failures of volume stores.

use larder_volume::VolumeError;

use super::Failure;

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        let failure = Self::of(error.kind(), &error);
        match &error {
            VolumeError::InUse => failure.advise("end its server first, or use the volumes through it"),
            VolumeError::NoStore(_) => failure.advise("`larder volume init` creates one"),
            VolumeError::NoVolume(_) => failure.advise("`larder volume list` shows the volumes"),
            VolumeError::WrongKey => failure.advise("nothing was changed"),
            _ => failure,
        }
    }
}
