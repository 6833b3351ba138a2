//! The mounts that this process sees, and further paths at which a folder can be reached.
//!
//! A bind mount, or a second mount of a file system, shows the same folder at two paths. A program
//! that compares paths would take the second one for another folder.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Mounts in the order in which they were made. Empty: the system does not tell.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    /// The file system, as `major:minor`.
    device: Vec<u8>,
    /// The folder in the file system that is shown.
    root: PathBuf,
    /// Where it is shown.
    point: PathBuf,
}

impl Mounts {
    pub(super) fn of_this_process() -> Self {
        std::fs::read("/proc/self/mountinfo").map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Lines of proc(5): id, parent, device, root, mount point, and more that is of no interest.
    fn parse(text: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let mut path = || fields.next().map(<[u8]>::to_vec);
            let (device, root, point) = (path()?, path()?, path()?);
            Some(Mount { device, root: unescaped(&root), point: unescaped(&point) })
        };
        Self(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// All paths at which `folder`, or a part of it, is reached. The first is `folder` itself, a
    /// path without links.
    pub(super) fn paths_of(&self, folder: &Path) -> Vec<PathBuf> {
        let mut paths = vec![folder.to_owned()];
        let inside = self.0.iter().filter(|mount| mount.point.starts_with(folder)).map(|mount| (mount, &*mount.point));
        for (mount, path) in self.of(folder).map(|mount| (mount, folder)).into_iter().chain(inside) {
            let Ok(below) = path.strip_prefix(&mount.point) else { continue };
            let place = joined(&mount.root, below);
            for other in self.0.iter().filter(|other| other.device == mount.device) {
                let seen = match place.strip_prefix(&other.root) {
                    Ok(below) => joined(&other.point, below),
                    Err(_) if other.root.starts_with(&place) => other.point.clone(),
                    Err(_) => continue,
                };
                // Another mount may cover it.
                let is_seen = self.of(&seen).is_some_and(|top| std::ptr::eq(top, other));
                if is_seen && !paths.contains(&seen) {
                    paths.push(seen);
                }
            }
        }
        paths
    }

    /// The mount to which a path belongs: of those above it the longest, and of equals the last.
    fn of(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.as_os_str().len())
    }
}

/// Without a slash at the end where nothing is below.
fn joined(above: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { above.to_owned() } else { above.join(below) }
}

/// Blanks, line ends and backslashes are written as `\` with three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /tmp rw - tmpfs tmpfs rw
23 21 8:2 / /srv rw - ext4 /dev/sdb1 rw
24 21 8:1 / /host rw - ext4 /dev/sda1 rw
25 24 8:2 / /host/srv rw - ext4 /dev/sdb1 rw
26 21 8:2 /my\\040repo/data /inner rw - ext4 /dev/sdb1 rw
27 21 8:2 /other /unlike rw - ext4 /dev/sdb1 rw
28 21 8:2 / /hidden rw - ext4 /dev/sdb1 rw
29 28 0:21 / /hidden rw - tmpfs tmpfs rw
";

    fn paths(folder: &str) -> Vec<String> {
        let paths = Mounts::parse(TABLE).paths_of(Path::new(folder));
        paths.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_folder_is_found_at_each_mount_of_it_or_of_a_part() {
        assert_eq!(paths("/srv/my repo"), ["/srv/my repo", "/host/srv/my repo", "/inner"]);
        assert_eq!(paths("/host/srv/my repo"), ["/host/srv/my repo", "/srv/my repo", "/inner"]);
        assert_eq!(paths("/home/repo"), ["/home/repo", "/host/home/repo"]);
        assert_eq!(paths("/tmp/repo"), ["/tmp/repo"]);
    }

    #[test]
    fn a_mount_in_the_folder_is_a_part_of_it() {
        // The host's root shows only an empty folder in the place of /srv.
        assert_eq!(paths("/srv"), ["/srv", "/host/srv", "/inner", "/unlike"]);
        assert!(paths("/host").starts_with(&["/host".into(), "/".into()]));
    }

    #[test]
    fn without_a_table_only_the_folder_is_known() {
        assert_eq!(Mounts::default().paths_of(Path::new("/srv/repo")), [Path::new("/srv/repo")]);
    }
}
