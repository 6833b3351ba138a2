//! Failures of volume stores.

use larder_volume::VolumeError;

use super::Failure;

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        let failure = Self::of(error.kind(), &error);
        match &error {
            VolumeError::InUse => {
                failure.advise("end the server or command that has it open first, or use the volumes through the server")
            }
            VolumeError::NoStore(_) => failure.advise("`larder volume init` creates one"),
            VolumeError::NoVolume(_) => failure.advise("`larder volume list` shows the volumes"),
            VolumeError::NoSnapshot(_) => failure.advise("`larder volume list` shows the snapshots"),
            VolumeError::Needed { .. } => {
                failure.advise("delete them first; --snapshots deletes those of a volume too")
            }
            VolumeError::DamagedLog { .. } => failure.advise(
                "`larder volume check` lists the writes that are lost, and with --accept-loss it opens the store without them",
            ),
            VolumeError::Full => failure.advise("free space on the file system of the store"),
            VolumeError::WrongKey => failure.advise("nothing was changed"),
            _ => failure,
        }
    }
}
