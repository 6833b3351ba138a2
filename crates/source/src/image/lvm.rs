//! The programs of LVM, for volumes in thin pools.
//!
//! Names of volumes and groups are checked before, so none is taken for an option.

use std::fmt;
use std::path::{Path, PathBuf};

use larder_format::ids::JobId;
use serde::Deserialize;

use super::ImageError;
use super::pool::{DMSETUP, MAPPED, Pool};
use super::tool::{failed, run};
use super::tracked::Names;

const LVS: &str = "lvs";
/// Makes the text of `lvs` independent of the settings of the machine.
const PLAIN: &str = "report{compact_output=0 prefixes=0} log{prefix=\"\"}";
/// Longest name of a volume or group (bytes).
const NAME_MAX: usize = 127;

/// A volume group, and a volume in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinName {
    group: String,
    volume: String,
}

impl ThinName {
    /// Reads `GROUP/VOLUME`. `None`: it is no such name.
    pub fn parse(text: &str) -> Option<Self> {
        let (group, volume) = text.split_once('/')?;
        let is_name = |name: &str| {
            let may = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
            (1..=NAME_MAX).contains(&name.len()) && !name.starts_with(['-', '.']) && name.bytes().all(may)
        };
        (is_name(group) && is_name(volume)).then(|| Self { group: group.to_owned(), volume: volume.to_owned() })
    }

    /// The name of the volume alone.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// Another volume of the same group.
    pub(super) fn beside(&self, volume: String) -> Self {
        Self { group: self.group.clone(), volume }
    }

    pub(super) fn wrong(&self, why: impl ToString) -> ImageError {
        ImageError::Volume { volume: self.to_string(), why: why.to_string() }
    }
}

impl fmt::Display for ThinName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.volume)
    }
}

/// A volume, as `lvs` lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listed {
    lv_name: String,
    /// Empty outside of thin pools.
    pool_lv: String,
    /// The volume that it is a snapshot of, if that is still there.
    origin: String,
    /// Its number in the pool.
    thin_id: String,
    /// Bytes.
    lv_size: String,
    lv_path: PathBuf,
    lv_dm_path: String,
}

#[derive(Deserialize)]
struct Report {
    report: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    lv: Vec<Listed>,
}

/// The volumes of a group.
pub(super) struct Volumes(Vec<Listed>);

impl Volumes {
    /// Lists the group of a volume.
    pub(super) fn of(name: &ThinName) -> Result<Self, ImageError> {
        let columns = "lv_name,pool_lv,origin,thin_id,lv_size,lv_path,lv_dm_path";
        let form = ["--config", PLAIN, "--reportformat", "json", "--units", "b", "--nosuffix"];
        let args = form.into_iter().chain(["-o", columns, &*name.group]);
        let report: Report = serde_json::from_slice(&run(LVS, args)?).map_err(|error| failed(LVS, error))?;
        Ok(Self(report.report.into_iter().flat_map(|group| group.lv).collect()))
    }

    fn find(&self, volume: &str) -> Option<&Listed> {
        self.0.iter().find(|listed| listed.lv_name == volume)
    }

    /// A volume in a thin pool.
    pub(super) fn thin(&self, name: &ThinName) -> Result<&Listed, ImageError> {
        let listed = self.find(&name.volume).ok_or_else(|| name.wrong("there is no such volume"))?;
        match listed.pool_lv.is_empty() || listed.thin_id.is_empty() {
            true => Err(name.wrong("it is in no thin pool; give the path of a snapshot of it in place of thin:")),
            false => Ok(listed),
        }
    }

    /// The snapshots that backups of a series made, with their versions. Not those of other volumes
    /// that are still there.
    pub(super) fn snapshots(&self, of: &ThinName, names: &Names) -> Vec<(JobId, Listed)> {
        let is_of_other = |listed: &Listed| listed.origin != of.volume && self.find(&listed.origin).is_some();
        let snapshot = |listed: &Listed| Some((names.version(&listed.lv_name)?, listed.clone()));
        self.0.iter().filter(|listed| !is_of_other(listed)).filter_map(snapshot).collect()
    }

    /// The pool of a volume.
    pub(super) fn pool(&self, of: &Listed) -> Result<Pool, ImageError> {
        let pool = self.find(&of.pool_lv).and_then(|pool| pool.lv_dm_path.strip_prefix(MAPPED));
        pool.map(Pool::new).ok_or_else(|| failed(LVS, format!("the pool {} is not listed", of.pool_lv)))
    }
}

impl Listed {
    /// The path of its device.
    pub(super) fn device(&self) -> &Path {
        &self.lv_path
    }

    /// Its number in the pool.
    pub(super) fn number(&self) -> &str {
        &self.thin_id
    }

    /// Its name, without that of the group.
    pub(super) fn name(&self) -> &str {
        &self.lv_name
    }

    /// Whether it is a snapshot of the volume, in the same pool.
    pub(super) fn is_snapshot_of(&self, volume: &Self) -> bool {
        self.origin == volume.lv_name && self.pool_lv == volume.pool_lv
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> Result<u64, ImageError> {
        self.lv_size.parse().map_err(|_| failed(LVS, format!("{:?} is no size", self.lv_size)))
    }

    /// Whether blocks that the pool does not have read as zeros, and not as those of another
    /// volume.
    pub(super) fn has_zeros(&self) -> Result<bool, ImageError> {
        let device = self.lv_dm_path.strip_prefix(MAPPED).unwrap_or(&self.lv_dm_path);
        let table = run(DMSETUP, ["table", device])?;
        // START LENGTH thin POOL NUMBER [ORIGIN]
        let table = String::from_utf8_lossy(&table);
        let lines: Vec<Vec<_>> = table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
        Ok(lines.len() == 1 && lines[0].len() == 5 && lines[0][2] == "thin")
    }
}

/// Makes a snapshot of a thin volume, with a device.
pub(super) fn snapshot(of: &ThinName, name: &ThinName) -> Result<(), ImageError> {
    // It has the file systems of its volume, with the same UUIDs. So a start of the machine does
    // not give it a device.
    let how = ["--snapshot", "--permission", "r", "--setactivationskip", "y", "--addtag", "larder"];
    run("lvcreate", how.into_iter().chain(["--name", &*name.volume, &*of.to_string()]))?;
    run("lvchange", ["--activate", "y", "--ignoreactivationskip", &*name.to_string()]).map(drop)
}

/// Takes the device of a snapshot away.
pub(super) fn deactivate(name: &ThinName) -> Result<(), ImageError> {
    run("lvchange", ["--activate", "n", &*name.to_string()]).map(drop)
}

/// Removes a snapshot, if it is still there.
pub(super) fn remove(name: &ThinName) -> Result<(), ImageError> {
    match run("lvremove", ["--yes", &*name.to_string()]) {
        Err(ImageError::Tool { why, .. }) if why.contains("Failed to find logical volume") => Ok(()),
        removed => removed.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_group_and_a_volume() {
        let name = ThinName::parse("vg/web-1").expect("a name");
        assert_eq!((name.to_string().as_str(), name.volume()), ("vg/web-1", "web-1"));
        for odd in ["", "web", "/web", "vg/", "vg/a/b", "-vg/web", "vg/-web", "vg/../x", "vg/a b", "vg/a@b", "vg/é"] {
            assert_eq!(ThinName::parse(odd), None, "{odd}");
        }
        assert_eq!(ThinName::parse(&format!("vg/{}", "a".repeat(NAME_MAX + 1))), None);
    }
}
