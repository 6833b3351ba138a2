//! The options of `larder backup` for disk images.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::sizes;

/// Disk images, and maps of their changes.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Back up a disk image as one file; holes are not read, and with a map only changes are
    ///
    /// SOURCE is a raw file or block device (PATH, raw:PATH), or a qcow2 image that no program has
    /// open (qcow2:PATH). It may be a disk of a running QEMU (qemu:DEVICE@QMP-SOCKET), or a volume
    /// in a thin pool of LVM (thin:GROUP/VOLUME). It may be a network block device:
    /// nbd://HOST/EXPORT, nbds://HOST/EXPORT?tls-certificates=FOLDER,
    /// nbd+unix:///EXPORT?socket=PATH. The disks of QEMU get a bitmap that notes their changes
    /// until the next backup, and a thin volume gets a snapshot. A running QEMU keeps the disk as
    /// it is when the backup begins, and so does a snapshot. Other images must not be written to
    /// meanwhile.
    #[arg(
        long,
        value_name = "SOURCE",
        conflicts_with_all = ["paths", "stdin", "stdin_from_command", "read_special"],
        help_heading = "Disk images"
    )]
    pub(crate) image: Option<OsString>,

    /// Read only the ranges that a file names: lines OFFSET LENGTH, JSON, or XML of thin_delta
    #[arg(long, value_name = "FILE", requires = "image", help_heading = "Disk images")]
    pub(crate) changed_map: Option<PathBuf>,

    /// Read only the ranges that the NBD server calls dirty in this context, such as
    /// qemu:dirty-bitmap:NAME
    #[arg(long, value_name = "NAME", requires = "image", conflicts_with = "changed_map", help_heading = "Disk images")]
    pub(crate) changed_context: Option<String>,

    /// The snapshot from which the changes are counted; another base makes the whole image be read
    #[arg(long, value_name = "SNAPSHOT", requires = "image", help_heading = "Disk images")]
    pub(crate) changed_since: Option<OsString>,

    /// Folder for what a running QEMU overwrites during the backup; QEMU has to be able to write
    /// there [default: a folder of the cache]
    #[arg(long, value_name = "FOLDER", requires = "image", help_heading = "Disk images")]
    pub(crate) image_scratch: Option<PathBuf>,

    /// In every Nth backup, compare everything outside the map with the stored data; in the others,
    /// and with 0 in all, compare samples only [default: 10]
    #[arg(long, value_name = "N", requires = "image", help_heading = "Disk images")]
    pub(crate) verify_every: Option<u32>,

    /// Limit reading of the image to this rate per second, in KiB or with a unit such as 50MiB
    #[arg(long, value_name = "RATE", value_parser = sizes::parse_rate, requires = "image", help_heading = "Disk images")]
    pub(crate) limit_read: Option<u64>,
}
