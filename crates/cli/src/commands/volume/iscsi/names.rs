//! Names of iSCSI targets: lower case letters, digits, `-` and `.` only.

use std::collections::BTreeSet;

use larder_format::volume_manifest::VolumeEntry;

use crate::environment;

/// Before the host's name. `local` is a domain that belongs to nobody.
const PREFIX: &str = "iqn.2026-01.local.larder";

/// A name for each volume. Two volumes never have the same one, nor one of `taken`.
pub(super) fn of(volumes: &[VolumeEntry], taken: &[String]) -> Vec<String> {
    let host = plain(&environment::host());
    let mut used: BTreeSet<String> = taken.iter().cloned().collect();
    let mut names = Vec::new();
    for volume in volumes {
        let mut name = format!("{PREFIX}:{host}.{}", plain(&volume.name));
        if !used.insert(name.clone()) {
            name.push_str(&format!("-{}", volume.id));
            used.insert(name.clone());
        }
        names.push(name);
    }
    names
}

fn plain(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    lower
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_differ() {
        let volume = |id, name: &str| VolumeEntry { id, name: name.to_owned(), size: 512, created_ms: 0, parent: None };
        let names = of(&[volume(1, "Disk_1"), volume(2, "disk-1")], &[]);
        assert!(names[0].starts_with("iqn.2026-01.local.larder:") && names[0].ends_with(".disk-1"), "{names:?}");
        assert_eq!(names[1], format!("{}-2", names[0]));
    }
}
