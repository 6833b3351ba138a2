//! Extended attributes of every kind of entry come as the kernel has them, whichever way they are read.

use std::process::Command;

use crate::support::torture::{Torture, noise};
use crate::support::{Walked, relative};
use larder_format::entry::{EntryKind, Xattr};

fn attributes(found: &mut larder_source::Found) -> Vec<Xattr> {
    let problems = found.complete();
    assert!(problems.is_empty(), "{problems:?}");
    found.entry.xattrs.clone()
}

#[test]
fn all_attributes_of_the_torture_tree_are_read_by_name_and_by_descriptor() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing = Torture::small().build(dir.path()).expect("built");
    let mut walked = Walked::plain(&[dir.path()]);
    let mut total = 0;
    for found in &mut walked.found {
        let by_name = attributes(found);
        assert!(by_name.is_sorted_by(|a, b| a.name < b.name));
        total += by_name.len();
        if matches!(found.entry.kind, EntryKind::File { .. }) {
            let reader = found.open().expect("opens");
            found.entry.xattrs.clear();
            assert!(found.complete_from(&reader).is_empty());
            assert_eq!(found.entry.xattrs, by_name);
        }
    }
    if missing.iter().any(|what| what.starts_with("user attribute")) {
        return;
    }
    assert!(total >= 60);
    let entries = walked.by_path();
    let of = |path: &str| -> Vec<(&str, &[u8])> {
        let path = relative(&dir.path().join(path));
        let xattrs = &entries[path.as_slice()].entry.xattrs;
        let text = |name| std::str::from_utf8(name).expect("text");
        xattrs
            .iter()
            .map(|xattr| (text(&xattr.name), xattr.value.as_slice()))
            .filter(|x| x.0 != "security.selinux")
            .collect()
    };
    let few: Vec<_> = of("attributes/few").into_iter().filter(|xattr| xattr.0.starts_with("user.")).collect();
    let odd = "user.with space\nand line\u{ff}";
    assert_eq!(few, [("user.empty", &b""[..]), ("user.note", b"text \0 and \xff"), (odd, b"1")]);
    assert_eq!(of("attributes/many").len(), 60);
    assert_eq!(of("attributes/medium"), [("user.medium", noise(3, 3_000).as_slice())]);
    if !missing.iter().any(|what| what.starts_with("attribute of 60 KB")) {
        assert_eq!(of("attributes/large"), [("user.large", noise(60, 60_000).as_slice())]);
    }
    if !missing.iter().any(|what| what.contains("ACL")) {
        assert_eq!(of("attributes/acl")[0].0, "system.posix_acl_access");
        assert_eq!(of("attributes/acl")[0].1.len(), 4 + 6 * 8);
        let folder: Vec<&str> = of("attributes/folder").iter().map(|xattr| xattr.0).collect();
        assert_eq!(folder, ["system.posix_acl_access", "system.posix_acl_default", "user.note"]);
    }
    if crate::support::is_superuser()
        && !missing.iter().any(|what| what.contains("capability") || what.contains("trusted"))
    {
        assert_eq!(of("attributes/program")[0].0, "security.capability");
        assert_eq!(of("attributes/link"), [("trusted.note", &b"of the link itself"[..])]);
        assert_eq!(of("attributes/fifo"), [("trusted.note", &b"of the FIFO"[..])]);
    }
    assert_eq!(of("sizes/1"), []);
    let deep = walked.found.iter().filter(|found| found.entry.path.len() > 4_096);
    assert!(deep.into_iter().any(|found| found.entry.xattrs.iter().any(|xattr| xattr.name == b"user.deep")));
}

/// The same view as `getfattr`, an independent program, where it is installed.
#[test]
fn getfattr_sees_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    let folder = dir.path().join("attributes");
    let mut walked = Walked::plain(&[&folder]);
    let mut lines = Vec::new();
    for found in &mut walked.found {
        attributes(found);
        if found.entry.path.starts_with(&relative(&folder)) {
            for xattr in &found.entry.xattrs {
                let hex: String = xattr.value.iter().map(|byte| format!("{byte:02x}")).collect();
                lines.push(format!("{}=0x{hex}", String::from_utf8_lossy(&xattr.name)));
            }
        }
    }
    let listing = Command::new("getfattr").args(["-R", "-P", "-h", "-d", "-m", "-", "-e", "hex"]).arg(&folder).output();
    let Ok(listing) = listing else { return };
    let mut expected: Vec<String> = String::from_utf8_lossy(&listing.stdout)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        // It escapes odd bytes in names and writes nothing after `=` for an empty value in some versions.
        .map(|line| line.replace("\\012", "\n").replace("\\040", " ").replace("\\303\\277", "\u{ff}"))
        .map(|line| if line.contains('=') { line } else { format!("{line}=") })
        .map(|line| if line.ends_with('=') { format!("{line}0x") } else { line })
        .collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
}

#[test]
fn file_systems_without_attributes_have_none() {
    let mut walked = Walked::plain(&["/proc/self/status".as_ref()]);
    for found in &mut walked.found {
        assert!(found.complete().is_empty());
    }
}
