//! qcow2 images that no program has open.
//!
//! `qemu-nbd` reads them, with their backing files. Changes are noted in persistent bitmaps
//! (`tracked`): QEMU keeps them in the image whenever a virtual machine runs on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use larder_nbd::client::Client;
use serde::Deserialize;

use super::nbd::NbdImage;
use super::stops::Stops;
use super::tool::{QemuNbd, run};
use super::tracked::{Bitmap, Ending, Names, Opening, Tracked};
use super::{Changes, ImageError};

const QEMU_IMG: &str = "qemu-img";

/// Opens an image. The folder is private to this process.
pub fn open(path: &Path, opening: Opening<'_>) -> Result<Tracked, ImageError> {
    let Opening { names, folder, keeps, stops } = opening;
    let bitmaps = bitmaps(path, &names)?;
    stops.check(QEMU_IMG)?;
    let (mut remarks, mut own) = (Vec::new(), None);
    if keeps {
        let name = names.of(names.job());
        // Before the image is read: what somebody writes behind that is noted.
        match bitmap(path, "--add", &name) {
            Ok(()) => own = Some(name),
            Err(error) => remarks.push(format!(
                "changes of {} cannot be noted, so the next backup reads the whole image: {error}",
                path.display()
            )),
        }
    }
    let old = bitmaps.iter().map(|bitmap| bitmap.name.clone()).collect();
    let mut ending = Box::new(AtRest { path: path.to_owned(), own, old, server: None, keeps });
    match serve(path, &bitmaps, folder, stops, &mut ending.server) {
        Ok((image, changes)) => {
            let extents = image.extents();
            match extents {
                Ok(extents) => {
                    let notes = Vec::new();
                    Ok(Tracked { image: Box::new(image), extents, changes, remarks, notes, ending })
                }
                Err(error) => {
                    drop(image);
                    ending.failed();
                    Err(error)
                }
            }
        }
        Err(error) => {
            ending.failed();
            Err(error)
        }
    }
}

/// Starts a server for the image, and asks it for the changes.
fn serve(
    path: &Path,
    bitmaps: &[Bitmap],
    folder: &Path,
    stops: &Stops,
    server: &mut Option<QemuNbd>,
) -> Result<(NbdImage, Vec<Changes>), ImageError> {
    let usable: Vec<_> = bitmaps.iter().filter(|bitmap| bitmap.is_whole).collect();
    let mut args: Vec<&OsStr> = ["--read-only", "--format=qcow2"].map(OsStr::new).into();
    // Newer programs take several; with older ones the last one counts.
    for bitmap in &usable {
        args.extend(["--bitmap", &*bitmap.name].map(OsStr::new));
    }
    args.extend([OsStr::new("--"), path.as_os_str()]);
    let (child, stream) = QemuNbd::start(args, folder)?;
    let context = |bitmap: &Bitmap| format!("qemu:dirty-bitmap:{}", bitmap.name);
    let contexts: Vec<_> = usable.iter().map(|bitmap| context(bitmap)).collect();
    let what = path.display().to_string();
    let connected = Client::over_unix(stream, &NbdImage::options("", &contexts));
    let image = match connected.map_err(|source| ImageError::Nbd { what: what.clone(), source }) {
        Ok(device) => NbdImage::over(device, what, stops),
        Err(error) => return Err(child.explain(error)),
    };
    *server = Some(child);
    let mut changes = Vec::new();
    for (bitmap, context) in usable.iter().zip(&contexts).filter(|(_, context)| image.has_context(context)) {
        let (size, ranges) = (super::Image::size(&image), image.changes(context)?);
        changes.push(Changes { since: bitmap.version, size, ranges });
    }
    Ok((image, changes))
}

/// Information of `qemu-img info`, as far as it is of interest.
#[derive(Deserialize)]
struct Info {
    #[serde(rename = "format-specific")]
    specific: Option<Specific>,
}

#[derive(Deserialize)]
struct Specific {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    bitmaps: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    flags: Vec<String>,
    granularity: u32,
}

/// The bitmaps of a series.
fn bitmaps(path: &Path, names: &Names) -> Result<Vec<Bitmap>, ImageError> {
    let args = ["info", "--output=json", "-f", "qcow2", "--"].map(OsStr::new);
    let output = run(QEMU_IMG, args.into_iter().chain([path.as_os_str()]))?;
    let odd = |error: serde_json::Error| ImageError::Tool { program: QEMU_IMG.to_owned(), why: error.to_string() };
    let info: Info = serde_json::from_slice(&output).map_err(odd)?;
    let listed = info.specific.map(|specific| specific.data.bitmaps).unwrap_or_default();
    let bitmap = |Listed { name, flags, granularity }| {
        let version = names.version(&name)?;
        let has = |wanted: &str| flags.iter().any(|flag| flag == wanted);
        // A machine that did not end well leaves it in use, and without its last changes.
        Some(Bitmap { name, version, is_whole: has("auto") && !has("in-use"), granularity })
    };
    Ok(listed.into_iter().filter_map(bitmap).collect())
}

fn bitmap(path: &Path, action: &str, name: &str) -> Result<(), ImageError> {
    let args = [OsStr::new("bitmap"), action.as_ref(), "-f".as_ref(), "qcow2".as_ref(), "--".as_ref()];
    run(QEMU_IMG, args.into_iter().chain([path.as_os_str(), name.as_ref()])).map(drop)
}

/// What comes after a backup.
struct AtRest {
    path: PathBuf,
    /// The bitmap of the new version.
    own: Option<String>,
    /// Those of earlier ones.
    old: Vec<String>,
    server: Option<QemuNbd>,
    keeps: bool,
}

impl AtRest {
    fn remove(&mut self, names: Vec<String>) -> Vec<String> {
        // The image is open until then.
        self.server = None;
        let remove = |name: String| match bitmap(&self.path, "--remove", &name) {
            Ok(()) => None,
            Err(error) => Some(format!("bitmap {name} of {} stays: {error}", self.path.display())),
        };
        names.into_iter().filter_map(remove).collect()
    }
}

impl Ending for AtRest {
    fn committed(mut self: Box<Self>) -> Vec<String> {
        let old = std::mem::take(&mut self.old);
        if self.keeps { self.remove(old) } else { Vec::new() }
    }

    fn failed(mut self: Box<Self>) -> Vec<String> {
        let own = self.own.take().into_iter().collect();
        self.remove(own)
    }
}
