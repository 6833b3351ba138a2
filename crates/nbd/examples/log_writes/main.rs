//! A device that writes down every change, and the disks that a power cut could leave of it.
//!
//! ```text
//! log_writes serve DEVICE LOG SOCKET       serves the file DEVICE as `disk` until its input ends
//! log_writes cuts LOG FROM COUNT SEED      COUNT places of the log behind FROM, in order
//! log_writes cut LOG BASE CUT SEED UNIT OUT
//!                                          OUT: the disk when the power failed at CUT
//! ```
//!
//! This is dm-log-writes in user space. `cut` brings the file BASE up to the last flush before the
//! cut, copies it to OUT, and applies parts of later writes to OUT, of UNIT bytes (512, or a
//! multiple of it). Cuts of one BASE must come in order. `BASE.position` has the place in the log that BASE is at.

mod copy;
mod cut;
mod device;
mod record;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_nbd::{Limits, Server, Single};

use self::cut::Image;
use self::device::Logged;
use self::record::Log;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str =
    "usage: log_writes (serve DEVICE LOG SOCKET | cuts LOG FROM COUNT SEED | cut LOG BASE CUT SEED UNIT OUT)";

fn writable(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn serve(device: &str, log: &str, socket: &str) -> Fallible<()> {
    let log = OpenOptions::new().append(true).create_new(true).open(log)?;
    let export = Arc::new(Logged::new(writable(device)?, log)?);
    let server = Server::new(Arc::new(Single::new("disk", export)), Limits::default());
    server.listen_unix(Path::new(socket))?;
    writeln!(std::io::stdout(), "{socket}")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown()?;
    Ok(())
}

fn cut(log: &str, base: &str, cut: u64, (seed, unit): (u64, u64), out: &str) -> Fallible<()> {
    let log = Log::open(Path::new(log))?;
    let position = PathBuf::from(format!("{base}.position"));
    let at = match std::fs::read_to_string(&position) {
        Ok(text) => text.trim().parse()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let flushed = log.last_flush(at, cut)?;
    Image::new(writable(base)?).apply(&log, at, flushed)?;
    std::fs::write(&position, flushed.to_string())?;
    copy::sparse(Path::new(base), Path::new(out))?;
    let scattered = Image::new(writable(out)?).scatter(&log, (flushed, cut), seed, unit)?;
    writeln!(std::io::stdout(), "cut {cut} seed {seed}: flush at {flushed}, then {scattered}")?;
    Ok(())
}

fn main() -> Fallible<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", device, log, socket] => serve(device, log, socket),
        ["cuts", log, from, count, seed] => {
            for place in Log::open(Path::new(log))?.cuts(from.parse()?, count.parse()?, seed.parse()?)? {
                writeln!(std::io::stdout(), "{place}")?;
            }
            Ok(())
        }
        ["cut", log, base, at, seed, unit, out] => cut(log, base, at.parse()?, (seed.parse()?, unit.parse()?), out),
        _ => Err(USAGE.into()),
    }
}
