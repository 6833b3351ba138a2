//! Reads an export of any server by the client of this crate: for tests with other programs.
//!
//! `nbd_read (unix:PATH | tcp:HOST:PORT) EXPORT (data | CONTEXT) [--tls FOLDER]`
//!
//! Writes the data of the whole export, or a line for each extent of a metadata context: offset,
//! length and flags.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;

use larder_nbd::ClientTls;
use larder_nbd::client::{Address, Client, Options};

/// Reads that are in flight together, and their length in bytes.
const IN_FLIGHT: usize = 8;
const LENGTH: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (words, folder) = match &words[..] {
        [first @ .., option, folder] if option == "--tls" => (first, Some(folder)),
        all => (all, None),
    };
    let [address, export, wanted] = words else { return Err("usage: nbd_read ADDRESS EXPORT (data | CONTEXT)".into()) };
    let tls = folder.map(|folder| ClientTls::from_folder(Path::new(folder))).transpose()?;
    let address = match (address.split_once(':'), &tls) {
        (Some(("unix", path)), None) => Address::Unix(Path::new(path)),
        (Some(("tcp", host)), None) => Address::Tcp(host),
        (Some(("tcp", host)), Some(tls)) => Address::Tls(host, tls),
        _ => return Err("unix:PATH or tcp:HOST:PORT".into()),
    };
    let contexts = if wanted == "data" { Vec::new() } else { vec![wanted.clone()] };
    let client = Client::connect(&address, &Options { export: export.clone(), contexts, ..Options::default() })?;
    let mut out = std::io::stdout().lock();
    let mut at = 0;
    if wanted != "data" {
        while at < client.size() {
            let length = (client.size() - at).min(1 << 30) as u32;
            for extent in client.block_status(wanted, at, length)? {
                writeln!(out, "{at} {} {}", extent.length, extent.flags)?;
                at += extent.length;
            }
        }
        return Ok(());
    }
    let mut tickets = VecDeque::new();
    while at < client.size() || !tickets.is_empty() {
        if at < client.size() && tickets.len() < IN_FLIGHT {
            let length = LENGTH.min(client.size() - at);
            tickets.push_back(client.submit_read(at, length as u32)?);
            at += length;
        } else if let Some(ticket) = tickets.pop_front() {
            out.write_all(&client.wait(ticket)?)?;
        }
    }
    Ok(())
}
