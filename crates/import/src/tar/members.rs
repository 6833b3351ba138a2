//! Reads an archive from its first block to its last one: headers, their extensions, and where the
//! contents of each member begin.
//!
//! Old, ustar, GNU and pax archives are read. A damaged header is passed over block by block until
//! the next one that is whole, and reported.

use std::io::{self, Read};
use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind, Timestamp, Xattr};
use larder_source::access_list;
use tar::{EntryType, GnuExtSparseHeader, Header};

use super::records::Records;
use super::sparse::Map;
use crate::sound::{expect_target, sound_xattrs};

/// Every part of an archive is a multiple of this (bytes).
const BLOCK: u64 = 512;
/// Names and records that are longer are damaged (bytes).
const EXTENSION_MAX: u64 = 16 << 20;
/// Bytes of a path, and folders in it: each folder that the archive lacks gets an entry with its
/// whole path.
const PATH_MAX: usize = 32 << 10;
const DEPTH_MAX: usize = 1024;
/// Bytes of all records that hold for the rest of the archive, each of whose members looks at them.
const GLOBAL_MAX: usize = 1 << 20;

/// A member of an archive.
#[derive(Debug)]
pub(super) struct Member {
    /// Its entry. The path is as [`place`] makes it; a hard link's target too. Files have their
    /// extents.
    pub(super) entry: Entry,
    /// What could not be read of its metadata.
    pub(super) problems: Vec<String>,
}

/// What comes next in an archive.
#[derive(Debug)]
pub(super) enum Next {
    /// A member. Its stored bytes are read next, with [`Members::read`].
    Member(Box<Member>),
    /// A member that cannot be in a version, by its name.
    Refused(Vec<u8>, String),
    /// A part of the archive is damaged.
    Damaged(String),
    /// The archive has ended, as archives do.
    End,
}

/// See the module header.
pub(super) struct Members<R> {
    input: R,
    /// Bytes read so far.
    at: u64,
    global: Records,
    /// Stored bytes of the last member that were not read yet.
    unread: u64,
    /// Bytes behind these up to the next header.
    padding: u64,
    has_begun: bool,
    /// The header that was found behind a damaged one.
    found: Option<[u8; BLOCK as usize]>,
}

/// What precedes the header of a member.
#[derive(Default)]
struct Extensions {
    records: Records,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    is_damaged: bool,
}

impl<R: Read> Members<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, at: 0, global: Records::default(), unread: 0, padding: 0, has_begun: false, found: None }
    }

    /// Bytes of the archive that were read.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Whether something of an archive was found.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The input behind the last block that was read.
    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// Reads stored bytes of the last member; 0 at their end.
    ///
    /// # Errors
    /// The archive ends before, or cannot be read.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.unread).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let got = self.input.read(&mut buffer[..wanted])?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += got as u64;
        self.unread -= got as u64;
        Ok(got)
    }

    /// The next member.
    ///
    /// # Errors
    /// The archive is truncated, or cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(block) = self.block()? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if block.iter().all(|byte| *byte == 0) {
                return match self.block()? {
                    Some(second) if second.iter().any(|byte| *byte != 0) => {
                        self.found = Some(second);
                        Ok(Next::Damaged(format!("a block of zeros before byte {} is alone", self.at)))
                    }
                    Some(_) => Ok(Next::End),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            let header = Header::from_byte_slice(&block);
            if !is_whole(header) {
                if !self.has_begun {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no tar archive"));
                }
                return self.find_header();
            }
            self.has_begun = true;
            let size = match header.entry_size() {
                Ok(size) => size,
                // A field without digits.
                Err(_) if header.as_old().size.iter().all(|byte| matches!(byte, 0 | b' ')) => 0,
                Err(_) => return self.find_header(),
            };
            match header.entry_type() {
                EntryType::XHeader => {
                    let text = self.extension(size)?;
                    extensions.is_damaged |= extensions.records.add(&text).is_none();
                }
                EntryType::XGlobalHeader => {
                    let text = self.extension(size)?;
                    if self.global.add(&text).is_none() || self.global.bytes() > GLOBAL_MAX {
                        self.global = Records::default();
                        return Ok(Next::Damaged(format!(
                            "the global header before byte {} is damaged or too large",
                            self.at
                        )));
                    }
                }
                EntryType::GNULongName => extensions.name = Some(until_nul(self.extension(size)?)),
                EntryType::GNULongLink => extensions.link = Some(until_nul(self.extension(size)?)),
                // The name of a volume, and lists of an incremental archive.
                kind if matches!(kind.as_byte(), b'V' | b'N' | b'X') => self.contents(size),
                _ => match self.member(&block, size, extensions)? {
                    Some(next) => return Ok(next),
                    None => extensions = Extensions::default(),
                },
            }
        }
    }

    /// A member. `None`: it is the top of the tree, which has no entry.
    fn member(&mut self, block: &[u8], size: u64, extensions: Extensions) -> io::Result<Option<Next>> {
        let header = Header::from_byte_slice(block);
        let records = extensions.records.behind(&self.global);
        let size = records.number(b"size").unwrap_or(size);
        let own_name = || extensions.name.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        let name = records.get(b"GNU.sparse.name").or_else(|| records.get(b"path"));
        let name = name.map_or_else(own_name, <[u8]>::to_vec);
        let own_link = || extensions.link.clone().or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        let link = records.get(b"linkpath").map(<[u8]>::to_vec).or_else(own_link).unwrap_or_default();
        let kind = header.entry_type();
        let is_directory = kind.is_dir() || kind.as_byte() == b'D' || (kind.is_file() && name.ends_with(b"/"));
        // Types that are not known have contents, as files do.
        let is_known = matches!(kind.as_byte(), 0 | b'0'..=b'7' | b'S' | b'D');
        let has_contents = !matches!(kind.as_byte(), b'1'..=b'6');
        // Before anything can be refused: the next header is behind the contents.
        let map = match kind.as_byte() {
            b'S' => Some(self.old_map(header)?),
            _ => None,
        };
        let size = if has_contents { size } else { 0 };
        self.contents(size);
        let path = match place(&name) {
            _ if extensions.is_damaged => return Ok(refused(name, "its extended header is damaged")),
            Ok(Some(path)) => path,
            Ok(None) if is_directory => return Ok(None),
            Ok(None) => return Ok(refused(name, "it has no name")),
            Err(why) => return Ok(refused(name, why)),
        };
        if kind.as_byte() == b'M' || records.get(b"GNU.volume.offset").is_some() {
            return Ok(refused(name, "it goes on from another volume, and archives of several volumes are not read"));
        }
        let mut problems = Vec::new();
        let kind = match kind {
            _ if is_directory => EntryKind::Directory,
            EntryType::Symlink => match expect_target(&link) {
                Ok(()) => EntryKind::Symlink { target: link },
                Err(why) => return Ok(refused(name, why)),
            },
            EntryType::Link => match place(&link) {
                Ok(Some(target)) => EntryKind::HardLink { target },
                Ok(None) => return Ok(refused(name, "it is a link to nothing")),
                Err(_) => return Ok(refused(name, "it is a link out of the archive")),
            },
            EntryType::Fifo => EntryKind::Fifo,
            EntryType::Char | EntryType::Block => {
                let number = |key, own: io::Result<Option<u32>>| match records.number(key) {
                    Some(number) => u32::try_from(number).ok(),
                    None => own.ok().flatten(),
                };
                let major = number(b"SCHILY.devmajor", header.device_major());
                let minor = number(b"SCHILY.devminor", header.device_minor());
                match (major.zip(minor), kind) {
                    (Some((major, minor)), EntryType::Char) => EntryKind::CharDevice { major, minor },
                    (Some((major, minor)), _) => EntryKind::BlockDevice { major, minor },
                    (None, _) => return Ok(refused(name, "its device number is damaged")),
                }
            }
            _ if is_known => match self.file(&records, map)? {
                Ok(kind) => kind,
                Err(why) => return Ok(refused(name, why)),
            },
            kind => {
                let why = format!("members of the type {:?} are not known", char::from(kind.as_byte()));
                return Ok(refused(name, &why));
            }
        };
        let entry = entry(header, &records, path, kind, &mut problems);
        Ok(Some(Next::Member(Box::new(Member { entry, problems }))))
    }

    /// The kind of a file, with its holes. Reads a map that is before the data.
    fn file(&mut self, records: &Records, old: Option<(Map, u64)>) -> io::Result<Result<EntryKind, &'static str>> {
        let damaged = "its map of holes is damaged";
        let (map, size) = if let Some((map, size)) = old {
            (map, size)
        } else if records.number(b"GNU.sparse.major") == Some(1) {
            let (Some(map), Some(size)) = (self.map_before_data()?, records.number(b"GNU.sparse.realsize")) else {
                return Ok(Err(damaged));
            };
            (map, size)
        } else if let Some(size) = records.number(b"GNU.sparse.size").or_else(|| records.number(b"GNU.sparse.realsize"))
        {
            let Some(map) = Map::of_records(records) else { return Ok(Err(damaged)) };
            (map, size)
        } else {
            return Ok(Ok(EntryKind::File { size: self.unread, extents: None }));
        };
        Ok(map.extents(size, self.unread).map(|extents| EntryKind::File { size, extents }))
    }

    /// The map in an old GNU header and the blocks behind it, and the size of the file.
    fn old_map(&mut self, header: &Header) -> io::Result<(Map, u64)> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a map of holes is damaged");
        let gnu = header.as_gnu().ok_or_else(damaged)?;
        let mut map = Map::default();
        let mut add = |pieces: &[tar::GnuSparseHeader]| {
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                map.push(piece.offset()?, piece.length()?);
            }
            Ok::<(), io::Error>(())
        };
        add(&gnu.sparse)?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let block = self.block()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let mut more = GnuExtSparseHeader::new();
            more.as_mut_bytes().copy_from_slice(&block);
            add(more.sparse())?;
            goes_on = more.is_extended();
        }
        Ok((map, gnu.real_size()?))
    }

    /// The map of the form 1.0: a count, and an offset and a length for each piece, one a line.
    fn map_before_data(&mut self) -> io::Result<Option<Map>> {
        let mut numbers: Vec<u64> = Vec::new();
        let mut line = String::new();
        let mut wanted = 1;
        while numbers.len() < wanted {
            if self.unread < BLOCK {
                return Ok(None);
            }
            let mut block = [0; BLOCK as usize];
            let mut filled = 0;
            while filled < block.len() {
                filled += self.read(&mut block[filled..])?;
            }
            for byte in block {
                match byte {
                    b'\n' if numbers.len() < wanted => {
                        let Ok(number) = line.parse() else { return Ok(None) };
                        numbers.push(number);
                        line.clear();
                        if let [count] = *numbers {
                            if count > EXTENSION_MAX {
                                return Ok(None);
                            }
                            wanted = 1 + 2 * count as usize;
                        }
                    }
                    b'0'..=b'9' if numbers.len() < wanted && line.len() < 20 => line.push(char::from(byte)),
                    _ if numbers.len() >= wanted => {}
                    _ => return Ok(None),
                }
            }
        }
        let mut map = Map::default();
        for [offset, length] in numbers[1..].as_chunks::<2>().0 {
            map.push(*offset, *length);
        }
        Ok(Some(map))
    }

    /// Contents of this length follow.
    fn contents(&mut self, size: u64) {
        self.unread = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    /// Passes over what is left of the last member.
    fn skip(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.unread).saturating_add(std::mem::take(&mut self.padding));
        let passed = io::copy(&mut (&mut self.input).take(rest), &mut io::sink())?;
        self.at += passed;
        if passed < rest { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// The next block; `None` at the end of the input.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK as usize]>> {
        if let Some(found) = self.found.take() {
            return Ok(Some(found));
        }
        let mut block = [0; BLOCK as usize];
        let mut filled = 0;
        while filled < block.len() {
            match self.input.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                got => filled += got,
            }
        }
        self.at += BLOCK;
        Ok(Some(block))
    }

    /// The contents of an extension.
    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > EXTENSION_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an extended header is too large"));
        }
        self.contents(size);
        let mut bytes = vec![0; size as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.read(&mut bytes[filled..])?;
        }
        Ok(bytes)
    }

    /// Behind a damaged header, passes over blocks up to one that is a header, which is read next.
    fn find_header(&mut self) -> io::Result<Next> {
        let from = self.at - BLOCK;
        while let Some(block) = self.block()? {
            if is_whole(Header::from_byte_slice(&block)) {
                self.found = Some(block);
                break;
            }
        }
        let bytes = self.at - from - if self.found.is_some() { BLOCK } else { 0 };
        let next = self.found.as_ref().map(|found| {
            let name = String::from_utf8_lossy(&Header::from_byte_slice(found).path_bytes()).into_owned();
            format!("; {name}, which is next, may be a part of a lost file, or have another name")
        });
        let next = next.unwrap_or_default();
        Ok(Next::Damaged(format!("the header at byte {from} is damaged; {bytes} bytes were passed over{next}")))
    }
}

fn refused(name: Vec<u8>, why: &str) -> Option<Next> {
    Some(Next::Refused(name, why.to_owned()))
}

/// Whether the checksum of a header is right.
fn is_whole(header: &Header) -> bool {
    let sum = |of: &dyn Fn(u8) -> i64| -> i64 {
        let bytes = header.as_bytes().iter().enumerate();
        bytes.map(|(at, byte)| if (148..156).contains(&at) { 32 } else { of(*byte) }).sum()
    };
    // Some old programs added signed bytes.
    header.cksum().is_ok_and(|known| {
        let known = i64::from(known);
        sum(&|byte| i64::from(byte)) == known || sum(&|byte| i64::from(byte.cast_signed())) == known
    })
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// The path of a member in a version: without a leading `/`, `.` or doubled `/`. `None` for the top
/// of the tree.
fn place(name: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err("its name leads out of the archive");
    }
    if name.contains(&0) {
        return Err("its name has a NUL");
    }
    if name.len() > PATH_MAX || parts.len() > DEPTH_MAX {
        return Err("its name is longer than 32 KiB, or has more than 1024 folders");
    }
    Ok((!parts.is_empty()).then(|| parts.join(&b'/')))
}

/// The metadata of a member.
fn entry(header: &Header, records: &Records, path: Vec<u8>, kind: EntryKind, problems: &mut Vec<String>) -> Entry {
    let mut owner = |key: &[u8], own: io::Result<u64>| {
        let number = records.number(key).map_or(own, Ok).ok().and_then(|number| u32::try_from(number).ok());
        number.unwrap_or_else(|| {
            problems.push("its owner is damaged".to_owned());
            0
        })
    };
    let (uid, gid) = (owner(b"uid", header.uid()), owner(b"gid", header.gid()));
    let name = |key: &[u8], own: Option<&[u8]>| {
        let name = records.get(key).or(own).filter(|name| !name.is_empty())?;
        std::str::from_utf8(name).ok().map(Arc::from)
    };
    let of_header = |time: io::Result<u64>| {
        // Before 1970, headers have a negative number.
        time.ok().map(|seconds| Timestamp { seconds: seconds.cast_signed(), nanos: 0 })
    };
    let mtime = records.time(b"mtime").or_else(|| of_header(header.mtime())).unwrap_or_default();
    Entry {
        path,
        kind,
        mode: header.mode().unwrap_or(0) & 0o7777,
        uid,
        gid,
        user: name(b"uname", header.username_bytes()),
        group: name(b"gname", header.groupname_bytes()),
        mtime,
        ctime: records.time(b"ctime").unwrap_or(mtime),
        atime: records.time(b"atime"),
        inode: 0,
        xattrs: xattrs(records, problems),
    }
}

/// Extended attributes, as GNU tar, star, and libarchive write them.
fn xattrs(records: &Records, problems: &mut Vec<String>) -> Vec<Xattr> {
    let mut xattrs: Vec<Xattr> = Vec::new();
    let mut put = |name: Vec<u8>, value: Vec<u8>| xattrs.push(Xattr { name, value });
    for (key, value) in records.iter() {
        match access_list::of_record(key, value) {
            Some((name, Ok(Some(attribute)))) => put(name.to_vec(), attribute),
            Some((_, Ok(None))) => {}
            Some((_, Err(line))) => problems.push(format!("its access list is not known here: {line:?}")),
            None => {}
        }
        if key == b"RHT.security.selinux" {
            put(b"security.selinux".to_vec(), [value, b"\0"].concat());
        }
        if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.")
            && let Some(value) = base64(value)
        {
            put(unescaped(name), value);
        }
    }
    // These say exactly what the kernel showed.
    for (key, value) in records.iter() {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            put(unescaped(name), value.to_vec());
        }
    }
    sound_xattrs(xattrs, problems)
}

fn base64(value: &[u8]) -> Option<Vec<u8>> {
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    data_encoding::BASE64_NOPAD.decode(&value[..end]).ok()
}

/// A name with `%XX` for some bytes.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = (*byte == b'%').then(|| behind.get(..2)).flatten();
        match escaped.and_then(|digits| data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()) {
            Some(byte) => {
                bytes.extend_from_slice(&byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bounded() {
        assert_eq!(place(b"/a/./b//c"), Ok(Some(b"a/b/c".to_vec())));
        assert_eq!(place(b"./"), Ok(None));
        assert!(place(&b"a/".repeat(DEPTH_MAX)).is_ok() && place(&b"a/".repeat(DEPTH_MAX + 1)).is_err());
        assert!(place(&vec![b'a'; PATH_MAX]).is_ok() && place(&vec![b'a'; PATH_MAX + 1]).is_err());
    }
}
