//! Serves a device in memory, or a file, until SIGTERM would end it: for tests with other programs.
//!
//! `nbd_serve (memory:BYTES | file:PATH) [--read-only] (unix:PATH | tcp:ADDRESS [--tls FOLDER])`
//!
//! It ends gracefully when its standard input ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use larder_nbd::{
    Abilities, BASE_ALLOCATION, Export, ExportError, Extent, Limits, MemoryExport, Server, ServerTls, Single, Zeroing,
};
use rustix::fs::{FallocateFlags, SeekFrom};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A file as a device.
struct FileExport {
    file: File,
    size: u64,
    read_only: bool,
}

impl Export for FileExport {
    fn size(&self) -> u64 {
        self.size
    }

    fn abilities(&self) -> Abilities {
        if self.read_only {
            return Abilities { sparse_reads: true, ..Abilities::READ_ONLY };
        }
        Abilities {
            read_only: false,
            fua: true,
            trim: true,
            write_zeroes: true,
            sparse_reads: true,
            ..Abilities::READ_ONLY
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        Ok(self.file.read_exact_at(buffer, offset)?)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.file.write_all_at(data, offset)?;
        if fua { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(self.file.sync_data()?)
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.write_zeroes(offset, length, Zeroing { fua, ..Zeroing::default() })
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        let flags = if how.no_hole { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
        rustix::fs::fallocate(&self.file, flags | FallocateFlags::KEEP_SIZE, offset, length)
            .map_err(std::io::Error::from)?;
        if how.fua { self.flush() } else { Ok(()) }
    }

    fn contexts(&self) -> Vec<String> {
        vec![BASE_ALLOCATION.into()]
    }

    fn block_status(&self, _: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let (mut at, end, mut extents) = (offset, offset + length, Vec::new());
        let seek = |from| rustix::fs::seek(&self.file, from).unwrap_or(self.size).min(end);
        while at < end && extents.len() < most {
            let data = seek(SeekFrom::Data(at));
            if data > at {
                extents.push(Extent { length: data - at, flags: Extent::HOLE | Extent::ZERO });
            } else {
                extents.push(Extent { length: seek(SeekFrom::Hole(at)) - at, flags: 0 });
            }
            at += extents.last().map_or(0, |extent| extent.length);
        }
        Ok(extents)
    }
}

fn export(spec: &str, read_only: bool) -> Fallible<Arc<dyn Export>> {
    match spec.split_once(':') {
        Some(("memory", bytes)) => Ok(Arc::new(MemoryExport::new(bytes.parse()?))),
        Some(("file", path)) => {
            let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
            let size = file.metadata()?.len();
            Ok(Arc::new(FileExport { file, size, read_only }))
        }
        _ => Err("memory:BYTES or file:PATH".into()),
    }
}

fn main() -> Fallible<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let read_only = words.iter().any(|word| word == "--read-only");
    words.retain(|word| word != "--read-only");
    let tls = words.iter().position(|word| word == "--tls").map(|at| words.split_off(at));
    let [device, address] = &words[..] else {
        return Err("usage: nbd_serve DEVICE [--read-only] ADDRESS [--tls FOLDER]".into());
    };
    let server = Server::new(Arc::new(Single::new("disk", export(device, read_only)?)), Limits::default());
    let mut out = std::io::stdout();
    match (address.split_once(':'), tls) {
        (Some(("unix", path)), None) => {
            server.listen_unix(Path::new(path))?;
            writeln!(out, "{path}")?;
        }
        (Some(("tcp", address)), None) => writeln!(out, "{}", server.listen_insecure(address.parse()?)?)?,
        (Some(("tcp", address)), Some(tls)) => {
            let folder = tls.get(1).ok_or("--tls needs a folder")?;
            let tls = ServerTls::from_folder(Path::new(folder))?;
            writeln!(out, "{}", server.listen_tls(address.parse()?, tls)?)?;
        }
        _ => return Err("unix:PATH or tcp:ADDRESS".into()),
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown()?;
    Ok(())
}
