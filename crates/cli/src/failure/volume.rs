//! Failures of volume stores.

use larder_volume::VolumeError;

use larder_format::ErrorKind;

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
            VolumeError::Damaged { .. } | VolumeError::Blocks { .. } if error.kind() == ErrorKind::Damaged => failure
                .advise("`larder volume check --read-data` lists all damage of the store; nothing was changed"),
            VolumeError::Collision { .. } => failure.advise(
                "the stored chunk or the memory of this machine is damaged: run `larder volume check --read-data`",
            ),
            VolumeError::Stopped(_) => failure.advise("reads go on; what was flushed before is kept"),
            VolumeError::NotEmpty(_) => failure.advise("name a folder that does not exist, or an empty one"),
            VolumeError::Full => failure.advise("free space on the file system of the store"),
            VolumeError::WrongKey => failure.advise("nothing was changed"),
            _ => failure,
        }
    }
}
