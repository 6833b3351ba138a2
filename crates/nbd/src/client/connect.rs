//! Negotiation as a client.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::{Address, ClientError, Options};
use crate::codec::option::{ClientOption, Queries, Wish, info};
use crate::codec::option_reply::{Info, OPTION_REPLY_HEADER_LEN, OptionReply, OptionReplyHeader, Refusal};
use crate::codec::{self, FIXED_NEWSTYLE, GREETING_LEN, Malformed, NO_ZEROES};
use crate::export::{BlockSizes, Listed};
use crate::tls::ClientTls;
use crate::wire::{Socket, Wire};

/// Replies to one option that are read.
const REPLIES_MAX: usize = 100_000;
/// Bytes of the replies to one option that are read.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// What client and server agreed on.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) size: u64,
    pub(super) flags: u16,
    pub(super) sizes: BlockSizes,
    pub(super) description: String,
    pub(super) structured: bool,
    pub(super) contexts: Vec<(u32, String)>,
}

type Named = (ClientTls, ServerName<'static>);

pub(super) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
}

/// The TLS of an address, and the name of the server.
pub(super) fn tls_of(address: &Address<'_>) -> io::Result<Option<Named>> {
    let Address::Tls(host, tls) = address else { return Ok(None) };
    let name = host.rsplit_once(':').map_or(*host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    Ok(Some(((*tls).clone(), server_name(name)?)))
}

pub(super) fn open(address: &Address<'_>, tick: Duration) -> io::Result<Wire> {
    let socket = match address {
        Address::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        Address::Tcp(host) | Address::Tls(host, _) => {
            let found: Vec<_> = host.to_socket_addrs()?.collect();
            Socket::Tcp(TcpStream::connect(&found[..])?)
        }
    };
    Wire::new(socket, tick)
}

/// A connection to a server that spoke first, and over TLS if that was wanted.
pub(super) struct Greeted<'a> {
    wire: &'a Wire,
    deadline: Instant,
}

impl<'a> Greeted<'a> {
    pub(super) fn new(wire: &'a Wire, timeout: Duration, tls: Option<Named>) -> Result<Self, ClientError> {
        let greeted = Self { wire, deadline: Instant::now() + timeout };
        let flags = codec::decode_greeting(&greeted.take::<GREETING_LEN>()?)?;
        greeted.send(&u32::from(FIXED_NEWSTYLE | (flags & NO_ZEROES)).to_be_bytes())?;
        if let Some((tls, name)) = tls {
            greeted.ask(&ClientOption::StartTls)?;
            let state = ClientConnection::new(tls.config().clone(), name).map_err(io::Error::other)?;
            wire.set_read_timeout(Some(greeted.left()?))?;
            wire.start_tls(state.into(), &|| greeted.left().map(drop))?;
        }
        Ok(greeted)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn fill(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < buffer.len() {
            self.wire.set_read_timeout(Some(self.left()?))?;
            match self.wire.read(&mut buffer[at..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => at += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(&[bytes], &|_| self.left().map(drop))
    }

    /// Sends an option and gives its replies up to the last one. A refusal is an error.
    fn ask(&self, option: &ClientOption) -> Result<Vec<OptionReply>, ClientError> {
        let replies = self.try_ask(option)?;
        replies.map_err(|(refusal, message)| ClientError::Option(format!("{refusal:?}: {message}")))
    }

    /// The same, with the refusal as it is.
    fn try_ask(&self, option: &ClientOption) -> Result<Result<Vec<OptionReply>, (Refusal, String)>, ClientError> {
        self.send(&option.encode())?;
        let (mut replies, mut bytes) = (Vec::new(), 0);
        while replies.len() < REPLIES_MAX && bytes < REPLY_BYTES_MAX {
            let header = OptionReplyHeader::decode(&self.take::<OPTION_REPLY_HEADER_LEN>()?)?;
            if header.option != option.code() {
                return Err(Malformed("a reply to another option").into());
            }
            let mut data = vec![0; header.length as usize];
            self.fill(&mut data)?;
            bytes += data.len();
            match OptionReply::decode(header.kind, &data)? {
                OptionReply::Ack => return Ok(Ok(replies)),
                OptionReply::Refused(refusal, message) => return Ok(Err((refusal, message))),
                reply => replies.push(reply),
            }
        }
        Err(Malformed("too many replies to an option").into())
    }

    pub(super) fn list(&self) -> Result<Vec<Listed>, ClientError> {
        let listed = self.ask(&ClientOption::List)?.into_iter().filter_map(|reply| match reply {
            OptionReply::Server { name, description } => Some(Listed { name, description }),
            _ => None,
        });
        let listed = listed.collect();
        self.leave();
        Ok(listed)
    }

    /// Ends the session before any export is in use.
    fn leave(&self) {
        // A server may close without an answer.
        let _ = self.try_ask(&ClientOption::Abort);
        self.wire.close(true);
    }

    pub(super) fn go(&self, options: &Options) -> Result<Agreed, ClientError> {
        let agreed = self.agree(options);
        if matches!(agreed, Err(ClientError::Option(_))) {
            self.leave();
        }
        agreed
    }

    fn agree(&self, options: &Options) -> Result<Agreed, ClientError> {
        let structured = options.structured && self.try_ask(&ClientOption::StructuredReply)?.is_ok();
        let mut contexts = Vec::new();
        if structured && !options.contexts.is_empty() {
            let queries = Queries { name: options.export.clone(), queries: options.contexts.clone() };
            // A server without contexts refuses the option: then none is selected.
            for reply in self.try_ask(&ClientOption::SetContexts(queries))?.unwrap_or_default() {
                let OptionReply::Context { id, name } = reply else { continue };
                // Each answer may have extents of all of them, so their number has a limit.
                if contexts.len() == options.contexts.len() {
                    return Err(Malformed("more contexts than were asked for").into());
                }
                // With one number for two, extents of one would count for the other.
                if contexts.iter().any(|(other, known)| *other == id || *known == name) {
                    return Err(Malformed("a context twice").into());
                }
                if !options.contexts.iter().any(|query| is_asked_by(&name, query)) {
                    return Err(Malformed("a context that was not asked for").into());
                }
                contexts.push((id, name));
            }
        }
        let wish = Wish { name: options.export.clone(), infos: vec![info::DESCRIPTION, info::BLOCK_SIZE] };
        let mut agreed = Agreed {
            size: 0,
            flags: 0,
            sizes: BlockSizes::default(),
            description: String::new(),
            structured,
            contexts,
        };
        for reply in self.ask(&ClientOption::Go(wish))? {
            match reply {
                OptionReply::Info(Info::Export { size, flags }) => (agreed.size, agreed.flags) = (size, flags),
                OptionReply::Info(Info::Description(description)) => agreed.description = description,
                OptionReply::Info(Info::BlockSize(sizes)) => agreed.sizes = sizes,
                _ => {}
            }
        }
        if agreed.flags & codec::transmission::HAS_FLAGS == 0 {
            return Err(Malformed("the server did not describe the export").into());
        }
        Ok(agreed)
    }
}

/// Whether a query selects a context: its name, or all of a namespace (`qemu:`).
fn is_asked_by(context: &str, query: &str) -> bool {
    context == query || (query.ends_with(':') && context.starts_with(query))
}
