//! Builds a tree with every odd thing a file system allows, for tests of backup and restore.
//!
//! The same tree is made by the tests of this crate and, through `examples/torture.rs`, by end-to-end tests. What it holds does not
//! depend on the run (contents are pseudo-random from fixed seeds, times are fixed), except for what the file system or the user's rights
//! do not allow: that is left out and reported.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fallocate, linkat, lsetxattr, makedev, mkdirat, mknodat, openat, utimensat,
};

/// How much to build.
#[derive(Debug, Clone)]
pub(crate) struct Torture {
    /// Entries of the directory that has many.
    pub(crate) many: usize,
    /// Logical size of the largest sparse file; nearly nothing of it is data.
    pub(crate) huge_sparse: u64,
    /// Also files of several MiB.
    pub(crate) large_files: bool,
}

impl Torture {
    /// Small and quick, for tests that run often.
    pub(crate) fn small() -> Self {
        Self { many: 300, huge_sparse: 100 << 30, large_files: false }
    }

    /// Builds the tree in `root`, which must be an empty folder. Returns what could not be made here.
    pub(crate) fn build(&self, root: &Path) -> io::Result<Vec<String>> {
        let mut builder = Builder { root: root.to_owned(), missing: Vec::new() };
        builder.names()?;
        builder.sizes(self.large_files)?;
        builder.sparse(self.huge_sparse)?;
        builder.links()?;
        builder.special();
        builder.modes_and_owners()?;
        builder.attributes()?;
        builder.long_paths()?;
        builder.many(self.many)?;
        builder.times()?;
        Ok(builder.missing)
    }
}

struct Builder {
    root: PathBuf,
    missing: Vec<String>,
}

impl Builder {
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Notes what this place does not allow.
    fn attempt<T, E: std::fmt::Display>(&mut self, what: &str, outcome: Result<T, E>) {
        if let Err(error) = outcome {
            self.missing.push(format!("{what}: {error}"));
        }
    }

    fn names(&mut self) -> io::Result<()> {
        let folder = self.folder("names")?;
        let longest = [b'x'; 255];
        let names: [&[u8]; 30] = [
            b" ",
            b" leading",
            b"trailing ",
            b"two  spaces",
            b"-rf",
            b"--help",
            b"new\nline",
            b"tab\tand\rreturn",
            b"quote'double\"back`",
            b"back\\slash\\",
            b"*",
            b"?[a-z]{x,y}",
            b"$HOME;rm -rf &|<>()!#~%^=+,:@",
            b"...",
            b"..hidden",
            b".dot",
            b"\x01\x02\x1f\x7f",
            b"\x1b[31mred\x1b[0m",
            b"\xff\xfe not UTF-8 \x80",
            b"\xc3",
            b"\xed\xa0\x80 surrogate",
            "Zo\u{eb} composed".as_bytes(),
            "Zoe\u{308} decomposed".as_bytes(),
            "日本語 🦀".as_bytes(),
            "\u{202e}fdp.exe right to left".as_bytes(),
            b"CON",
            b"NUL.txt",
            b"UPPER",
            b"upper",
            &longest,
        ];
        for name in names {
            fs::write(folder.join(std::ffi::OsStr::from_bytes(name)), name)?;
        }
        // Siblings whose order depends on where `/` sorts.
        let order = self.folder("order")?;
        for name in ["a/b", "a/\u{1}", "a\u{1}/b", "a-/b", "a.b/c", "a0", "aa/b", "a b", "A", "ab"] {
            let path = order.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&order))?;
            fs::write(path, name)?;
        }
        self.folder("empty folder")?;
        self.folder("folders/in/folders")?;
        Ok(())
    }

    fn sizes(&mut self, large: bool) -> io::Result<()> {
        let folder = self.folder("sizes")?;
        let limits: &[u64] =
            if large { &[4 << 10, 64 << 10, 1 << 20, 2 << 20, 8 << 20] } else { &[4 << 10, 64 << 10, 256 << 10] };
        let mut sizes: Vec<u64> = vec![0, 1, 2];
        sizes.extend(limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1]));
        for size in sizes {
            fs::write(folder.join(format!("{size}")), noise(size, size as usize))?;
        }
        fs::write(folder.join("zeros"), vec![0; 100_000])?;
        fs::write(folder.join("text"), "the same line again\n".repeat(5_000))
    }

    fn sparse(&mut self, huge: u64) -> io::Result<()> {
        let folder = self.folder("sparse")?;
        let make = |name: &str, size: u64, runs: &[(u64, usize)]| -> io::Result<File> {
            let file = File::create(folder.join(name))?;
            file.set_len(size)?;
            for (offset, length) in runs {
                file.write_all_at(&noise(*offset + 7, *length), *offset)?;
            }
            Ok(file)
        };
        make("hole at the start", 1 << 20, &[(1 << 19, 1 << 19)])?;
        make("hole in the middle", 1 << 20, &[(0, 10_000), (900_000, 148_576)])?;
        make("hole at the end", 1 << 20, &[(0, 10_000)])?;
        make("only a hole", 1 << 20, &[])?;
        make("odd edges", 999_999, &[(12_345, 1), (500_001, 4_097), (999_998, 1)])?;
        let comb: Vec<(u64, usize)> = (0..500).map(|tooth| (tooth * 16_384, 5)).collect();
        make("comb", 500 * 16_384 + 3, &comb)?;
        let outcome = make("huge", huge, &[(0, 1), (huge / 2, 5_000), (huge.saturating_sub(1), 1)]).map(drop);
        self.attempt("huge sparse file", outcome);
        // Space that is reserved but was never written reads as zeros but is not free to others.
        let reserved = make("reserved", 0, &[])?;
        self.attempt("reserved space", fallocate(&reserved, FallocateFlags::empty(), 0, 100_000));
        Ok(())
    }

    fn links(&mut self) -> io::Result<()> {
        let folder = self.folder("links")?;
        fs::create_dir_all(folder.join("z/deep"))?;
        fs::create_dir_all(folder.join("a"))?;
        fs::write(folder.join("m"), b"three names")?;
        fs::hard_link(folder.join("m"), folder.join("a/first"))?;
        fs::hard_link(folder.join("m"), folder.join("z/deep/last"))?;
        fs::write(folder.join("empty 1"), b"")?;
        fs::hard_link(folder.join("empty 1"), folder.join("empty 2"))?;
        // One name lies outside of what a test may pick as its root.
        fs::write(folder.join("half"), b"two names")?;
        fs::hard_link(folder.join("half"), self.root.join("order/the other half"))?;

        symlink("m", folder.join("relative"))?;
        symlink("/no/such/absolute", folder.join("absolute"))?;
        symlink("nowhere", folder.join("dangling"))?;
        symlink("loop b", folder.join("loop a"))?;
        symlink("loop a", folder.join("loop b"))?;
        symlink(".", folder.join("itself"))?;
        symlink("..", folder.join("z/up"))?;
        symlink(std::ffi::OsStr::from_bytes(b"\xff\n*"), folder.join("odd target"))?;
        symlink("t".repeat(4_000), folder.join("long target"))?;
        linkat(CWD, folder.join("dangling"), CWD, folder.join("dangling too"), AtFlags::empty())?;
        Ok(())
    }

    fn special(&mut self) {
        let folder = self.root.join("special");
        let made = fs::create_dir_all(&folder);
        self.attempt("folder of special files", made);
        let mode = Mode::from_raw_mode(0o640);
        let node = |name: &str, file_type, device| mknodat(CWD, folder.join(name), file_type, mode, device);
        let outcomes = [
            ("FIFO", node("fifo", FileType::Fifo, 0)),
            ("socket", node("socket", FileType::Socket, 0)),
            ("character device", node("null", FileType::CharacterDevice, makedev(1, 3))),
            (
                "character device with large numbers",
                node("large numbers", FileType::CharacterDevice, makedev(4_000, 1_000_000)),
            ),
            ("block device", node("block", FileType::BlockDevice, makedev(7, 200))),
        ];
        for (what, outcome) in outcomes {
            self.attempt(what, outcome);
        }
        self.attempt("second name of a FIFO", fs::hard_link(folder.join("fifo"), folder.join("fifo again")));
    }

    fn modes_and_owners(&mut self) -> io::Result<()> {
        let folder = self.folder("modes")?;
        for mode in
            [0o000, 0o111, 0o200, 0o400, 0o444, 0o600, 0o644, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o6711, 0o7777]
        {
            let (file, directory) =
                (folder.join(format!("file {mode:04o}")), folder.join(format!("folder {mode:04o}")));
            fs::write(&file, format!("{mode:o}"))?;
            fs::create_dir(&directory)?;
            fs::write(directory.join("inside"), b"x")?;
            let set = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(mode));
            self.attempt("mode of a file", set(&file));
            self.attempt("mode of a folder", set(&directory));
        }
        let owned = self.folder("owners")?;
        fs::write(owned.join("stranger"), b"x")?;
        symlink("nowhere", owned.join("stranger's link"))?;
        fs::create_dir(owned.join("stranger's folder"))?;
        for name in ["stranger", "stranger's link", "stranger's folder"] {
            let (uid, gid) = (Uid::from_raw(12_345), Gid::from_raw(3_000_000_000));
            let outcome = chownat(CWD, owned.join(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            self.attempt("foreign owner", outcome);
        }
        Ok(())
    }

    fn attributes(&mut self) -> io::Result<()> {
        let folder = self.folder("attributes")?;
        let file = |name: &str| -> io::Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, name)?;
            Ok(path)
        };
        let set = |path: &Path, name: &str, value: &[u8]| lsetxattr(path, name, value, XattrFlags::empty());

        let few = file("few")?;
        self.attempt("user attribute", set(&few, "user.note", b"text \0 and \xff"));
        self.attempt("empty attribute", set(&few, "user.empty", b""));
        self.attempt("odd attribute name", set(&few, "user.with space\nand line\u{ff}", b"1"));
        let many = file("many")?;
        for number in 0..60 {
            self.attempt(
                "many attributes",
                set(&many, &format!("user.number {number}"), format!("{number}").as_bytes()),
            );
        }
        let large = file("large")?;
        self.attempt("attribute of 60 KB", set(&large, "user.large", &noise(60, 60_000)));
        let medium = file("medium")?;
        self.attempt("attribute of 3 KB", set(&medium, "user.medium", &noise(3, 3_000)));
        let sub = folder.join("folder");
        fs::create_dir(&sub)?;
        self.attempt("attribute of a folder", set(&sub, "user.note", b"folder"));

        let with_acl = file("acl")?;
        self.attempt("ACL", set(&with_acl, "system.posix_acl_access", &acl()));
        self.attempt("ACL of a folder", set(&sub, "system.posix_acl_access", &acl()));
        self.attempt("default ACL", set(&sub, "system.posix_acl_default", &acl()));

        let program = file("program")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        self.attempt("file capability", set(&program, "security.capability", &capability()));
        self.attempt("trusted attribute", set(&few, "trusted.note", b"root only"));
        let link = folder.join("link");
        symlink("few", &link)?;
        self.attempt("attribute of a symlink", set(&link, "trusted.note", b"of the link itself"));
        let fifo = folder.join("fifo");
        self.attempt("FIFO", mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0));
        self.attempt("attribute of a FIFO", set(&fifo, "trusted.note", b"of the FIFO"));
        Ok(())
    }

    fn long_paths(&mut self) -> io::Result<()> {
        // 20 names of 250 bytes: longer than the kernel takes in one path. The first folder is shorter, so that there are paths of
        // 4,095, 4,096 and 4,097 bytes nearby whatever lies above.
        let long = self.folder("long")?;
        let name = "n".repeat(250);
        let mut at = open_folder(&long)?;
        for level in 0..20u8 {
            mkdirat(&at, &name, Mode::from_raw_mode(0o755))?;
            at = openat(&at, &name, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            write_at(&at, "file", &[level; 10])?;
        }
        rustix::fs::symlinkat("nowhere", &at, "link")?;
        self.attempt("attribute at the end of a long path", {
            let path = format!("/proc/self/fd/{}/file", rustix::fd::AsRawFd::as_raw_fd(&at));
            lsetxattr(path, "user.deep", b"yes", XattrFlags::empty())
        });
        // Deeper than any walk holds directories open.
        let mut at = open_folder(&self.folder("deep")?)?;
        for level in 0..400u32 {
            mkdirat(&at, "d", Mode::from_raw_mode(0o755))?;
            if level % 50 == 0 {
                write_at(&at, "after", b"found on the way back")?;
                write_at(&at, "a", b"found on the way in")?;
            }
            at = openat(&at, "d", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        }
        write_at(&at, "bottom", b"400 levels down")
    }

    fn many(&mut self, count: usize) -> io::Result<()> {
        let folder = self.folder("many")?;
        for number in 0..count {
            // Spread, so that the order of creation is not that of the names.
            File::create(folder.join(format!("{:08x}-{number}", (number as u32).wrapping_mul(0x9e37_79b9))))?;
        }
        Ok(())
    }

    /// Sets times of all kinds, deepest folders first, so that nothing made later changes them.
    fn times(&mut self) -> io::Result<()> {
        let times = self.folder("times")?;
        let cases: [(&str, i64, i64); 8] = [
            ("nanoseconds", 1_700_000_000, 123_456_789),
            ("epoch", 0, 0),
            ("just before the epoch", -1, 999_999_999),
            ("1969", -1_000_000, 1),
            ("1901", -2_147_483_648, 0),
            ("2038", 2_147_483_648, 5),
            ("2106", 4_294_967_296, 999_999_999),
            ("2400", 13_569_465_600, 0),
        ];
        for (name, _, _) in cases {
            fs::write(times.join(name), name)?;
            fs::create_dir(times.join(format!("folder {name}")))?;
            symlink("nowhere", times.join(format!("link {name}")))?;
        }
        for (name, seconds, nanos) in cases {
            for name in [name.to_owned(), format!("folder {name}"), format!("link {name}")] {
                let outcome = set_times(&times.join(name), seconds, nanos);
                self.attempt("times", outcome);
            }
        }
        // Folders got new times by what was made in them.
        for (number, name) in
            ["times", "names", "links", "links/z", "order/a", "order", "many", "modes"].iter().enumerate()
        {
            set_times(&self.root.join(name), 1_600_000_000 + number as i64, 111 * number as i64)?;
        }
        Ok(())
    }
}

fn set_times(path: &Path, seconds: i64, nanos: i64) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn write_at(folder: &OwnedFd, name: &str, contents: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(folder, name, flags, Mode::from_raw_mode(0o644))?).write_all(contents)
}

/// An access control list as the kernel takes it: version 2, then tag, permissions and id of each entry.
fn acl() -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 6] = [
        (0x01, 6, nobody),
        (0x02, 4, 1_234),
        (0x04, 4, nobody),
        (0x08, 5, 4_321),
        (0x10, 5, nobody),
        (0x20, 0, nobody),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The capability to bind low ports, effective: revision 2, then permitted and inheritable sets in two halves.
fn capability() -> Vec<u8> {
    [0x0200_0001u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes that do not compress, the same for every run.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
