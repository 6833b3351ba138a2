//! A folder as a tar archive in the pax format, with all metadata that the format can hold. It
//! holds long and odd names, times to the nanosecond, and owners by name and number. It also holds
//! extended attributes (with ACLs and capabilities), hard links and devices. Holes are written as
//! zeros.
//!
//! Names are relative to the folder, as `tar -C FOLDER -c .` writes them. Attributes follow GNU tar
//! and star: a record `SCHILY.xattr.NAME` with `%` and `=` of the name escaped. Access lists also
//! have their records, `SCHILY.acl.access` and `SCHILY.acl.default`.

use std::io::Write;

use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_reader::VersionReader;
use larder_source::access_list;
use tar::{EntryType, Header};

use super::{copy_exactly, name_below};
use crate::failure::Failure;
use crate::output::output_failed;

/// Every part of an archive is a multiple of this.
const BLOCK: u64 = 512;

/// Largest size an octal field of 11 digits holds.
const SIZE_MAX: u64 = 0o777_7777_7777;

/// Largest number an octal field of 7 digits holds.
const ID_MAX: u64 = 0o777_7777;

/// Writes the folder `top` and all below it.
pub(super) fn write(reader: &VersionReader, top: &[u8], out: &mut dyn Write) -> Result<(), Failure> {
    reader.visit_contents(top, |entry, content| {
        let (header, records) = header(entry, top);
        if !records.is_empty() {
            write_records(&records, out)?;
        }
        put(out, header.as_bytes())?;
        if let EntryKind::File { size, .. } = entry.kind {
            copy_exactly(content, out, entry)?;
            pad(out, size)?;
        }
        Ok::<(), Failure>(())
    })?;
    // Two empty blocks end an archive.
    put(out, &[0; 2 * BLOCK as usize])
}

fn put(out: &mut dyn Write, bytes: &[u8]) -> Result<(), Failure> {
    out.write_all(bytes).map_err(output_failed)
}

fn pad(out: &mut dyn Write, size: u64) -> Result<(), Failure> {
    let rest = (size.next_multiple_of(BLOCK) - size) as usize;
    put(out, &[0; BLOCK as usize][..rest])
}

fn write_records(records: &Records, out: &mut dyn Write) -> Result<(), Failure> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    fill(&mut header, b"pax-header", |ustar| &mut ustar.name);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(records.0.len() as u64);
    header.set_cksum();
    put(out, header.as_bytes())?;
    put(out, &records.0)?;
    pad(out, records.0.len() as u64)
}

/// Extended records: `length key=value\n`, where the length counts itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Records(Vec<u8>);

impl Records {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while rest + length.to_string().len() != length {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        for part in [&b" "[..], key, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }
}

/// Puts text into a field of fixed width, up to its width. A record has text that does not fit.
fn fill(header: &mut Header, text: &[u8], field: fn(&mut tar::UstarHeader) -> &mut [u8]) {
    if let Some(ustar) = header.as_ustar_mut() {
        let field = field(ustar);
        let length = text.len().min(field.len());
        field[..length].copy_from_slice(&text[..length]);
    }
}

fn header(entry: &Entry, top: &[u8]) -> (Header, Records) {
    let mut header = Header::new_ustar();
    let mut records = Records::default();
    let name = archive_name(entry, top);
    text_field(&mut header, &mut records, &name, (b"path", 100), |ustar| &mut ustar.name);
    let mut link: Option<Vec<u8>> = None;
    let mut size = 0;
    let kind = match &entry.kind {
        EntryKind::File { size: bytes, .. } => {
            size = *bytes;
            EntryType::Regular
        }
        EntryKind::Directory => EntryType::Directory,
        EntryKind::Symlink { target } => {
            link = Some(target.clone());
            EntryType::Symlink
        }
        EntryKind::HardLink { target } => {
            link = Some(name_below(target, top).to_vec());
            EntryType::Link
        }
        EntryKind::Fifo => EntryType::Fifo,
        EntryKind::CharDevice { major, minor } => {
            device(&mut header, &mut records, *major, *minor);
            EntryType::Char
        }
        EntryKind::BlockDevice { major, minor } => {
            device(&mut header, &mut records, *major, *minor);
            EntryType::Block
        }
    };
    header.set_entry_type(kind);
    if let Some(link) = link {
        text_field(&mut header, &mut records, &link, (b"linkpath", 100), |ustar| &mut ustar.linkname);
    }
    header.set_mode(entry.mode);
    header.set_size(numeric(&mut records, b"size", size, SIZE_MAX));
    header.set_uid(numeric(&mut records, b"uid", u64::from(entry.uid), ID_MAX));
    header.set_gid(numeric(&mut records, b"gid", u64::from(entry.gid), ID_MAX));
    header.set_mtime(u64::try_from(entry.mtime.seconds).unwrap_or(0).min(SIZE_MAX));
    if entry.mtime.nanos != 0 || u64::try_from(entry.mtime.seconds).map_or(true, |seconds| seconds > SIZE_MAX) {
        records.put(b"mtime", decimal(entry.mtime).as_bytes());
    }
    if let Some(atime) = entry.atime {
        records.put(b"atime", decimal(atime).as_bytes());
    }
    if let Some(user) = &entry.user {
        text_field(&mut header, &mut records, user.as_bytes(), (b"uname", 31), |ustar| &mut ustar.uname);
    }
    if let Some(group) = &entry.group {
        text_field(&mut header, &mut records, group.as_bytes(), (b"gname", 31), |ustar| &mut ustar.gname);
    }
    for attribute in &entry.xattrs {
        let mut key = b"SCHILY.xattr.".to_vec();
        for byte in &attribute.name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                byte => key.push(*byte),
            }
        }
        records.put(&key, &attribute.value);
        if let (Some(key), Some(list)) = (access_list::record(&attribute.name), access_list::text(&attribute.value)) {
            records.put(key, list.as_bytes());
        }
    }
    header.set_cksum();
    (header, records)
}

fn archive_name(entry: &Entry, top: &[u8]) -> Vec<u8> {
    let mut name = name_below(&entry.path, top).to_vec();
    if name.is_empty() {
        name.push(b'.');
    }
    if entry.kind == EntryKind::Directory {
        name.push(b'/');
    }
    name
}

fn text_field(
    header: &mut Header,
    records: &mut Records,
    text: &[u8],
    (key, width): (&[u8], usize),
    field: fn(&mut tar::UstarHeader) -> &mut [u8],
) {
    fill(header, text, field);
    let is_text = std::str::from_utf8(text).is_ok();
    if text.len() > width || (is_text && !text.is_ascii()) {
        // Names in records are UTF-8 unless declared otherwise.
        if !is_text {
            records.put(b"hdrcharset", b"BINARY");
        }
        records.put(key, text);
    }
}

/// The number for the header; one that is too large goes into a record.
fn numeric(records: &mut Records, key: &[u8], value: u64, max: u64) -> u64 {
    if value <= max {
        return value;
    }
    records.put(key, value.to_string().as_bytes());
    0
}

fn device(header: &mut Header, records: &mut Records, major: u32, minor: u32) {
    let major = numeric(records, b"SCHILY.devmajor", u64::from(major), ID_MAX);
    let minor = numeric(records, b"SCHILY.devminor", u64::from(minor), ID_MAX);
    // Fails only for headers without these fields.
    drop(header.set_device_major(major as u32));
    drop(header.set_device_minor(minor as u32));
}

/// Seconds with as many decimals as needed. Before 1970 the fraction counts backward.
fn decimal(time: Timestamp) -> String {
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let (sign, nanos) = if nanos < 0 { ("-", -nanos) } else { ("", nanos) };
    let text = format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::Xattr;

    fn entry(kind: EntryKind, path: &[u8]) -> Entry {
        let time = Timestamp { seconds: 1_790_000_000, nanos: 0 };
        Entry {
            path: path.to_vec(),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            user: None,
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn a_record_counts_its_own_length() {
        let mut records = Records::default();
        records.put(b"a", b"b");
        records.put(b"path", &[b'x'; 91]);
        let text = String::from_utf8(records.0).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "6 a=b");
        assert!(lines[1].starts_with("101 path=") && lines[1].len() == 100, "{}", lines[1]);
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let text = |seconds, nanos| decimal(Timestamp { seconds, nanos });
        assert_eq!(text(5, 0), "5");
        assert_eq!(text(5, 120_000_000), "5.12");
        assert_eq!(text(-1, 999_999_999), "-0.000000001");
        assert_eq!(text(-2, 0), "-2");
    }

    #[test]
    fn what_a_header_cannot_hold_stands_in_records() {
        let mut file = entry(EntryKind::File { size: 9 << 30, extents: None }, b"top/dir/n\xff");
        file.uid = u32::MAX - 1;
        file.xattrs.push(Xattr { name: b"user.a=b%".to_vec(), value: b"\0v\n".to_vec() });
        let (header, records) = header(&file, b"top");
        assert_eq!(&*header.path_bytes(), b"dir/n\xff");
        let text = String::from_utf8_lossy(&records.0).into_owned();
        for record in ["size=9663676416\n", "uid=4294967294\n", "SCHILY.xattr.user.a%3Db%25=\0v\n\n"] {
            assert!(text.contains(record), "{record:?} in {text:?}");
        }
        let long = entry(EntryKind::Directory, &[b'd'; 200]);
        let (_, records) = super::header(&long, b"");
        assert!(String::from_utf8_lossy(&records.0).contains("path=dddd"));
    }

    #[test]
    fn hard_links_point_inside_the_archive() {
        let link = entry(EntryKind::HardLink { target: b"top/a".to_vec() }, b"top/b");
        let (header, _) = header(&link, b"top");
        assert_eq!(header.entry_type(), EntryType::Link);
        assert_eq!(header.link_name_bytes().as_deref(), Some(&b"a"[..]));
        assert_eq!(archive_name(&entry(EntryKind::Directory, b"top"), b"top"), b"./");
    }
}
