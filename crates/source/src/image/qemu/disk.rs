//! Disks, and other nodes, as QEMU describes them.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use super::super::ImageError;
use super::super::qmp::Qmp;
use super::super::tracked::{Bitmap, Names};

/// Names of all that backups have in QEMU begin so.
pub(super) const OWN: &str = "larder-";

/// A disk of QEMU.
pub(super) struct Disk {
    pub(super) node: String,
    /// Bytes.
    pub(super) size: u64,
    /// Whether its bitmaps outlive QEMU.
    pub(super) is_persistent: bool,
    pub(super) bitmaps: Vec<Listed>,
    /// The place in QEMU's tree of objects of the device that uses it; `None` without one.
    pub(super) device: Option<String>,
}

/// A node as QEMU describes it.
#[derive(Deserialize)]
pub(super) struct Node {
    #[serde(rename = "node-name")]
    pub(super) name: Option<String>,
    drv: String,
    /// Its file, as QEMU names it.
    pub(super) file: Option<PathBuf>,
    image: Described,
    #[serde(rename = "dirty-bitmaps", default)]
    bitmaps: Vec<Listed>,
}

impl Node {
    /// Whether it has this name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// The names of its bitmaps.
    pub(super) fn bitmaps(&self) -> impl Iterator<Item = &String> {
        self.bitmaps.iter().filter_map(|bitmap| bitmap.name.as_ref())
    }
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "virtual-size")]
    size: u64,
}

/// A dirty bitmap.
#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) name: Option<String>,
    recording: bool,
    #[serde(default)]
    inconsistent: bool,
    granularity: u32,
}

impl Listed {
    pub(super) fn of(&self, names: &Names) -> Option<Bitmap> {
        let name = self.name.clone()?;
        let version = names.version(&name)?;
        Some(Bitmap { name, version, is_whole: self.recording && !self.inconsistent, granularity: self.granularity })
    }
}

/// A device as QEMU describes it.
#[derive(Deserialize)]
pub(super) struct Device {
    device: String,
    qdev: Option<String>,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
struct Inserted {
    #[serde(rename = "node-name")]
    node: Option<String>,
}

impl Device {
    /// Whether it uses this node.
    pub(super) fn uses(&self, node: &str) -> bool {
        self.inserted.as_ref().and_then(|inserted| inserted.node.as_deref()) == Some(node)
    }

    /// Its place in QEMU's tree of objects. It is described by that, or by the name that a person
    /// gave it.
    pub(super) fn place(&self) -> Option<String> {
        let named = self.qdev.as_deref()?;
        Some(if named.starts_with('/') { named.to_owned() } else { format!("/machine/peripheral/{named}") })
    }
}

/// All devices. A storage daemon has none.
pub(super) fn devices(qmp: &mut Qmp) -> Result<Vec<Device>, ImageError> {
    match qmp.try_ask("query-block", json!({}))? {
        Ok(devices) => serde_json::from_value(devices).map_err(|error| qmp.failed(error)),
        Err(_) => Ok(Vec::new()),
    }
}

/// All nodes.
pub(super) fn nodes(qmp: &mut Qmp) -> Result<Vec<Node>, ImageError> {
    let nodes = qmp.ask("query-named-block-nodes", json!({"flat": true}))?;
    serde_json::from_value(nodes).map_err(|error| qmp.failed(error))
}

/// Finds a disk by the name of its node, or of the device that uses it.
pub(super) fn disk(qmp: &mut Qmp, device: &str) -> Result<Disk, ImageError> {
    let devices = devices(qmp)?;
    let is_it = |found: &&Device| found.device == device || found.qdev.as_deref() == Some(device);
    let used = devices.iter().filter(is_it).find_map(|found| found.inserted.as_ref()?.node.clone());
    let wanted = used.unwrap_or_else(|| device.to_owned());
    let node = nodes(qmp)?.into_iter().find(|node| node.name.as_ref() == Some(&wanted));
    let Some(Node { drv, image, bitmaps, .. }) = node else {
        return Err(qmp.failed(format!("it has no disk {device}")));
    };
    if wanted.starts_with(OWN) {
        return Err(qmp.failed(format!(
            "another backup of {device} runs, or was killed ({wanted} is in front of the disk): wait for it, or repeat it"
        )));
    }
    let device = devices.iter().find(|found| found.uses(&wanted)).and_then(Device::place);
    Ok(Disk { node: wanted, size: image.size, is_persistent: drv == "qcow2", bitmaps, device })
}
