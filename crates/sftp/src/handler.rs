//! The requests of one session, answered one after the other.

use std::collections::HashMap;
use std::fs::File as SystemFile;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use russh_sftp::extensions::{self, FsyncExtension, HardlinkExtension, StatvfsExtension};
use russh_sftp::protocol::{
    Attrs, Data, File, FileAttributes, Handle, Name, OpenFlags, Packet, Status, StatusCode, Version,
};
use russh_sftp::server::Handler;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::Rules;
use crate::folder::{Below, ENTRY, Folder};
use crate::packets::{self, BODY_MAX, HANDLES_MAX};
use crate::refusal::Refusal;

/// Entries of a folder in one answer.
const ENTRIES: usize = 100;

/// Entries of all open folders together, which bounds the memory of a session.
const LISTED_MAX: usize = 1 << 20;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    folder: Folder,
    rules: Rules,
    open: HashMap<String, Open>,
    /// Numbers the handles.
    next: u64,
    /// Files that this session has staged and not linked yet, with their handles.
    staged: HashMap<Below, String>,
    /// Bytes of all files; `None`: not counted yet.
    used: Option<u64>,
    /// Sent at the greeting of a client. Dropped with the session, which tells its end.
    greeted: mpsc::Sender<()>,
}

/// An open file or folder.
#[derive(Debug)]
enum Open {
    /// For reading, and where it is.
    Read(SystemFile, Below),
    /// A staged file.
    Write(SystemFile),
    /// A file that got its final name. It can only be synced.
    Linked(SystemFile),
    /// Entries still to tell.
    Folder(OwnedFd, Vec<String>),
}

impl Open {
    fn file(&self) -> Option<&SystemFile> {
        match self {
            Self::Read(file, _) | Self::Write(file) | Self::Linked(file) => Some(file),
            Self::Folder(..) => None,
        }
    }
}

fn done(id: u32) -> Status {
    Status { id, status_code: StatusCode::Ok, error_message: "done".to_owned(), language_tag: "en".to_owned() }
}

impl Session {
    /// A session, and the greetings of its client, which end with it.
    pub(crate) fn new(folder: Folder, rules: Rules) -> (Self, mpsc::Receiver<()>) {
        let (greeted, greetings) = mpsc::channel(1);
        let (open, staged) = (HashMap::new(), HashMap::new());
        (Self { folder, rules, open, next: 0, staged, used: None, greeted }, greetings)
    }

    fn opened(&mut self, id: u32, open: Open) -> Handle {
        self.next += 1;
        let handle = format!("h{}", self.next);
        self.open.insert(handle.clone(), open);
        Handle { id, handle }
    }

    fn handle(&self, handle: &str) -> Result<&Open, Refusal> {
        self.open.get(handle).ok_or(Refusal::Bad("there is no such handle"))
    }

    fn file(&self, handle: &str) -> Result<&SystemFile, Refusal> {
        self.handle(handle)?.file().ok_or(Refusal::Bad("this is a folder"))
    }

    /// The bytes that may still be written; `None`: no limit.
    fn left(&mut self) -> Result<Option<u64>, Refusal> {
        let Some(max) = self.rules.max_size else { return Ok(None) };
        let used = match self.used {
            Some(used) => used,
            None => self.count()?,
        };
        Ok(Some(max.saturating_sub(used)))
    }

    /// Counts what is there, with files that have no name any more and are still open here.
    fn count(&mut self) -> Result<u64, Refusal> {
        let mut used = self.folder.size()?;
        for file in self.open.values().filter_map(Open::file) {
            let stat = rustix::fs::fstat(file)?;
            if stat.st_nlink == 0 {
                used = used.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            }
        }
        self.used = Some(used);
        Ok(used)
    }

    /// Takes space, or refuses. At the limit everything is counted again: others may have deleted.
    fn take(&mut self, bytes: u64) -> Result<(), Refusal> {
        let Some(max) = self.rules.max_size else { return Ok(()) };
        if self.left()?.is_some_and(|left| bytes > left) && self.count()?.saturating_add(bytes) > max {
            return Err(Refusal::OverQuota);
        }
        self.used = self.used.map(|used| used.saturating_add(bytes));
        Ok(())
    }

    /// Opens a new file under way.
    fn stage(&mut self, below: Below) -> Result<(Below, SystemFile), Refusal> {
        if !below.is_staging() {
            return Err(Refusal::Rule("new files begin in a folder .staging-sftp, and are linked from there"));
        }
        self.take(ENTRY)?;
        let (parent, name) = self.folder.parent(&below)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o666))?;
        Ok((below, file.into()))
    }

    /// Gives a staged file its final name, on disk.
    fn link(&mut self, old: &Below, new: &Below) -> Result<(), Refusal> {
        let Some(handle) = self.staged.get(old).cloned() else {
            return Err(Refusal::Rule("a session links the files that it has staged itself, once"));
        };
        if !new.is_final() {
            return Err(Refusal::Rule("no part of the name of a file begins with a dot"));
        }
        let (to, new_name) = self.folder.parent(new)?;
        let file = self.file(&handle)?;
        file.sync_all()?;
        // By its descriptor: another session may have put its own file under the staging name, and
        // still write to that one.
        let staged = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, &*staged, &to, new_name, AtFlags::SYMLINK_FOLLOW)?;
        self.staged.remove(old);
        // From here on the file is an object: nobody writes to it.
        if let Some(Open::Write(file)) = self.open.remove(&handle) {
            self.open.insert(handle, Open::Linked(file));
        }
        if let Err(errno) = rustix::fs::fsync(&to) {
            // The client must not find it, and take it for that of another.
            let _ = rustix::fs::unlinkat(&to, new_name, AtFlags::empty());
            return Err(errno.into());
        }
        Ok(())
    }

    fn write_to(&mut self, handle: &str, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        let Open::Write(file) = self.handle(handle)? else {
            return Err(Refusal::Rule("only files in .staging-sftp are written, and no longer once they are linked"));
        };
        let end = offset.checked_add(data.len() as u64).ok_or(Refusal::Bad("the file is too long"))?;
        let grows = end.saturating_sub(file.metadata()?.len());
        self.take(grows)?;
        let file = self.file(handle)?;
        file.write_all_at(data, offset)?;
        Ok(())
    }

    fn delete(&mut self, below: &Below) -> Result<(), Refusal> {
        if self.rules.append_only && !below.is_staging() {
            return Err(Refusal::Rule("this server is append-only: clients delete nothing"));
        }
        let (parent, name) = self.folder.parent(below)?;
        // What this frees is counted when the limit is reached: the file may still be open.
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        self.staged.remove(below);
        rustix::fs::fsync(parent)?;
        Ok(())
    }

    /// A folder and the names in it. Names that are not UTF-8 are none of a client's.
    fn names(&self, below: &Below) -> Result<(OwnedFd, Vec<String>), Refusal> {
        let folder = self.folder.folder(below)?;
        let of = |open: &Open| if let Open::Folder(_, names) = open { names.len() } else { 0 };
        let listed: usize = self.open.values().map(of).sum();
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if !matches!(name, "." | "..") {
                names.push(name.to_owned());
            }
            if listed + names.len() > LISTED_MAX {
                return Err(Refusal::System(Errno::MFILE));
            }
        }
        // They are taken from the end.
        names.reverse();
        Ok((folder, names))
    }

    fn extension(&mut self, id: u32, request: &str, data: Vec<u8>) -> Result<Packet, Refusal> {
        fn read<T: for<'a> serde::Deserialize<'a>>(data: Vec<u8>) -> Result<T, Refusal> {
            russh_sftp::de::from_bytes(&mut data.into()).map_err(|_| Refusal::Bad("the request has another form"))
        }
        match request {
            extensions::LIMITS => Ok(packets::limits(id)),
            extensions::FSYNC => {
                let FsyncExtension { handle } = read(data)?;
                self.file(&handle)?.sync_all()?;
                // An object whose link was not answered: its name is to be on disk, too.
                if let Open::Read(_, below) = self.handle(&handle)? {
                    rustix::fs::fsync(self.folder.parent(below)?.0)?;
                }
                Ok(done(id).into())
            }
            extensions::HARDLINK => {
                let HardlinkExtension { oldpath, newpath } = read(data)?;
                self.link(&Below::parse(&oldpath)?, &Below::parse(&newpath)?)?;
                Ok(done(id).into())
            }
            extensions::STATVFS => {
                let StatvfsExtension { path } = read(data)?;
                Below::parse(&path)?;
                let system = rustix::fs::fstatvfs(self.folder.root())?;
                Ok(packets::statvfs(id, &system, self.left()?))
            }
            _ => Err(Refusal::Unknown),
        }
    }
}

impl Handler for Session {
    type Error = Refusal;

    fn unimplemented(&self) -> Refusal {
        Refusal::Unknown
    }

    async fn init(&mut self, _: u32, _: HashMap<String, String>) -> Result<Version, Refusal> {
        let mut version = Version::new();
        let known = [
            (extensions::LIMITS, "1"),
            (extensions::HARDLINK, "1"),
            (extensions::FSYNC, "1"),
            (extensions::STATVFS, "2"),
        ];
        version.extensions = known.map(|(name, number)| (name.to_owned(), number.to_owned())).into();
        // One greeting is enough.
        let _ = self.greeted.try_send(());
        Ok(version)
    }

    async fn open(&mut self, id: u32, path: String, flags: OpenFlags, _: FileAttributes) -> Result<Handle, Refusal> {
        if self.open.len() >= HANDLES_MAX {
            return Err(Refusal::System(Errno::MFILE));
        }
        let below = Below::parse(&path)?;
        if !flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::CREATE | OpenFlags::TRUNCATE) {
            let file = self.folder.file(&below)?;
            return Ok(self.opened(id, Open::Read(file.into(), below)));
        }
        if !flags.contains(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE) {
            return Err(Refusal::Rule("files are created, and never opened for writing again"));
        }
        let (below, file) = self.stage(below)?;
        let handle = self.opened(id, Open::Write(file));
        self.staged.insert(below, handle.handle.clone());
        Ok(handle)
    }

    async fn close(&mut self, id: u32, handle: String) -> Result<Status, Refusal> {
        self.staged.retain(|_, of| *of != handle);
        self.open.remove(&handle).map(|_| done(id)).ok_or(Refusal::Bad("there is no such handle"))
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, len: u32) -> Result<Data, Refusal> {
        let Open::Read(file, _) = self.handle(&handle)? else {
            return Err(Refusal::Rule("this was not opened for reading"));
        };
        let mut data = vec![0; len.min(BODY_MAX) as usize];
        let mut filled = 0;
        while filled < data.len() {
            match file.read_at(&mut data[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        data.truncate(filled);
        if data.is_empty() { Err(Refusal::End) } else { Ok(Data { id, data }) }
    }

    async fn write(&mut self, id: u32, handle: String, offset: u64, data: Vec<u8>) -> Result<Status, Refusal> {
        self.write_to(&handle, offset, &data).map(|()| done(id))
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Result<Attrs, Refusal> {
        let stat = rustix::fs::fstat(self.file(&handle)?)?;
        Ok(Attrs { id, attrs: packets::attributes(&stat) })
    }

    async fn lstat(&mut self, id: u32, path: String) -> Result<Attrs, Refusal> {
        let stat = self.folder.stat(&Below::parse(&path)?)?;
        Ok(Attrs { id, attrs: packets::attributes(&stat) })
    }

    async fn stat(&mut self, id: u32, path: String) -> Result<Attrs, Refusal> {
        self.lstat(id, path).await
    }

    async fn opendir(&mut self, id: u32, path: String) -> Result<Handle, Refusal> {
        if self.open.len() >= HANDLES_MAX {
            return Err(Refusal::System(Errno::MFILE));
        }
        let (folder, names) = self.names(&Below::parse(&path)?)?;
        Ok(self.opened(id, Open::Folder(folder, names)))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Result<Name, Refusal> {
        let Some(Open::Folder(folder, names)) = self.open.get_mut(&handle) else {
            return Err(Refusal::Bad("there is no such folder"));
        };
        let mut files = Vec::new();
        while let Some(name) = names.pop() {
            match rustix::fs::statat(&*folder, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                stat => files.push(File { attrs: packets::attributes(&stat?), longname: name.clone(), filename: name }),
            }
            if files.len() == ENTRIES {
                break;
            }
        }
        if files.is_empty() { Err(Refusal::End) } else { Ok(Name { id, files }) }
    }

    async fn remove(&mut self, id: u32, path: String) -> Result<Status, Refusal> {
        self.delete(&Below::parse(&path)?).map(|()| done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, _: FileAttributes) -> Result<Status, Refusal> {
        let below = Below::parse(&path)?;
        if !below.may_be_folder() {
            return Err(Refusal::Rule("no part of the name of a folder begins with a dot"));
        }
        let (parent, name) = self.folder.parent(&below)?;
        self.take(ENTRY)?;
        let made = rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777));
        // Also when it exists: the session that made it may have ended before this.
        rustix::fs::fsync(parent)?;
        made?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Result<Status, Refusal> {
        if self.rules.append_only {
            return Err(Refusal::Rule("this server is append-only: clients delete nothing"));
        }
        let below = Below::parse(&path)?;
        let (parent, name) = self.folder.parent(&below)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
        Ok(done(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Result<Name, Refusal> {
        Ok(Name { id, files: vec![File::dummy(Below::parse(&path)?.shown())] })
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Result<Packet, Refusal> {
        self.extension(id, &request, data)
    }
}
