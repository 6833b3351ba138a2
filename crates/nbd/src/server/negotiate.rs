//! Negotiation: from the greeting to the export that a client uses.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use super::answer::Agreed;
use super::input::{Input, left};
use super::shared::Shared;
use crate::codec::option::{ClientOption, OPTION_HEADER_LEN, OptionHeader, Queries, Wish, code, info};
use crate::codec::option_reply::{Info, OptionReply, Refusal};
use crate::codec::{self, EXPORT_NAME_ZEROES, OPTION_MAX, transmission};
use crate::export::{Abilities, BlockSizes, Export};
use crate::tls::ServerTls;
use crate::wire::Wire;

/// Contexts that a client can select.
const CONTEXTS_MAX: usize = 16;
/// Data of an option that is too long is skipped up to this. Beyond, the session ends.
const SKIPPED_MAX: u32 = 1 << 20;
/// Replies to one option are sent once they reach this number of bytes.
const BATCH: usize = 64 << 10;

/// Whether negotiation goes on.
enum Next {
    Option,
    Transmission(Agreed),
    Close,
}

type Refused = (Refusal, String);

struct Negotiation<'a> {
    wire: &'a Wire,
    shared: &'a Shared,
    /// TLS comes first, if this is set.
    tls: Option<&'a ServerTls>,
    deadline: Instant,
    no_zeroes: bool,
    structured: bool,
    /// The export that was looked at last, so that it is opened once.
    found: Option<(String, Arc<dyn Export>)>,
    /// Contexts that were selected, of which export.
    contexts: Option<(String, Vec<String>)>,
}

/// Negotiates. `None` if the client left or may not go on.
pub(super) fn run(
    wire: &Wire,
    shared: &Shared,
    tls: Option<&ServerTls>,
    input: &mut Input,
) -> io::Result<Option<Agreed>> {
    let deadline = Instant::now() + shared.limits.negotiation;
    let mut negotiation =
        Negotiation { wire, shared, tls, deadline, no_zeroes: false, structured: false, found: None, contexts: None };
    negotiation.send(&codec::greeting())?;
    if !input.wait_for(wire, 4, Some(deadline))? {
        return Ok(None);
    }
    let (fixed, no_zeroes) = codec::decode_client_flags(input.take()).map_err(io::Error::other)?;
    negotiation.no_zeroes = no_zeroes;
    for _ in 0..shared.limits.options {
        if !input.wait_for(wire, OPTION_HEADER_LEN, Some(deadline))? {
            return Ok(None);
        }
        let header = OptionHeader::decode(&input.take()).map_err(io::Error::other)?;
        if !fixed && header.code != code::EXPORT_NAME {
            return Err(io::Error::other("an option without fixed newstyle"));
        }
        match negotiation.option(header, input)? {
            Next::Option => {}
            Next::Transmission(agreed) => return Ok(Some(agreed)),
            Next::Close => return Ok(None),
        }
    }
    Err(io::Error::other("too many options"))
}

impl Negotiation<'_> {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(&[bytes], &|_| left(self.deadline).map(drop))
    }

    fn reply(&self, option: u32, replies: &[OptionReply]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for reply in replies {
            reply.encode(option, &mut bytes);
            if bytes.len() >= BATCH {
                self.send(&bytes)?;
                bytes.clear();
            }
        }
        self.send(&bytes)
    }

    fn refuse(&self, option: u32, refusal: Refusal, message: &str) -> io::Result<Next> {
        self.reply(option, &[OptionReply::Refused(refusal, message.into())])?;
        Ok(Next::Option)
    }

    fn option(&mut self, header: OptionHeader, input: &mut Input) -> io::Result<Next> {
        let in_time = |_: Duration| left(self.deadline).map(drop);
        if header.length as usize > OPTION_MAX {
            if header.length > SKIPPED_MAX || header.code == code::EXPORT_NAME {
                return Err(io::Error::other("an option is too long"));
            }
            input.skip(self.wire, u64::from(header.length), &in_time)?;
            return self.refuse(header.code, Refusal::TooBig, "the option is too long");
        }
        let mut data = vec![0; header.length as usize];
        input.fill(self.wire, &mut data, &in_time)?;
        let plain = self.tls.is_some() && !self.wire.is_tls();
        if plain && !matches!(header.code, code::STARTTLS | code::ABORT) {
            if header.code == code::EXPORT_NAME {
                return Err(io::Error::other("an export was asked for without TLS"));
            }
            return self.refuse(header.code, Refusal::TlsRequired, "this server is reached over TLS only");
        }
        if self.shared.is_stopping() && !matches!(header.code, code::ABORT | code::EXPORT_NAME) {
            return self.refuse(header.code, Refusal::Shutdown, "the server is shutting down");
        }
        match ClientOption::decode(header.code, &data) {
            Ok(option) => self.decoded(option, input),
            Err(error) if header.code == code::EXPORT_NAME => Err(io::Error::other(error)),
            Err(error) => {
                if header.code == code::SET_META_CONTEXT {
                    self.contexts = None;
                }
                self.refuse(header.code, Refusal::Invalid, error.0)
            }
        }
    }

    fn decoded(&mut self, option: ClientOption, input: &Input) -> io::Result<Next> {
        let code = option.code();
        let result = match option {
            ClientOption::ExportName(name) => return self.export_name(&name).map(Next::Transmission),
            ClientOption::Abort => {
                // The client may be gone without waiting for it.
                let _ = self.reply(code, &[OptionReply::Ack]);
                return Ok(Next::Close);
            }
            ClientOption::StartTls => return self.start_tls(input),
            ClientOption::List => Ok(self.list()),
            ClientOption::Info(wish) => self.describe(&wish).map(|(_, replies)| replies),
            ClientOption::Go(wish) => match self.describe(&wish) {
                Ok((agreed, replies)) => {
                    self.reply(code, &replies)?;
                    return Ok(Next::Transmission(agreed));
                }
                Err(refused) => Err(refused),
            },
            ClientOption::StructuredReply => {
                self.structured = true;
                Ok(vec![OptionReply::Ack])
            }
            ClientOption::ListContexts(queries) => self.list_contexts(&queries),
            ClientOption::SetContexts(queries) => {
                self.contexts = None;
                self.set_contexts(queries)
            }
            ClientOption::Unknown(_) => Err((Refusal::Unsupported, "unknown option".into())),
        };
        match result {
            Ok(replies) => self.reply(code, &replies)?,
            Err((refusal, message)) => return self.refuse(code, refusal, &message),
        }
        Ok(Next::Option)
    }

    fn find(&mut self, name: &str) -> Result<Arc<dyn Export>, Refused> {
        if let Some((known, export)) = &self.found
            && known == name
        {
            return Ok(export.clone());
        }
        match self.shared.exports.find(name) {
            Ok(Some(export)) => {
                self.found = Some((name.to_owned(), export.clone()));
                Ok(export)
            }
            Ok(None) => Err((Refusal::Unknown, format!("there is no export {name:?}"))),
            Err(error) => Err((Refusal::Policy, error.message)),
        }
    }

    fn start_tls(&mut self, input: &Input) -> io::Result<Next> {
        let Some(tls) = self.tls else {
            return self.refuse(code::STARTTLS, Refusal::Policy, "this server has no TLS");
        };
        if self.wire.is_tls() {
            return self.refuse(code::STARTTLS, Refusal::Invalid, "TLS is already in use");
        }
        if input.arrived() > 0 {
            // Somebody between might have put it there, to be taken for what the client says.
            return Err(io::Error::other("plain text behind STARTTLS"));
        }
        self.reply(code::STARTTLS, &[OptionReply::Ack])?;
        let state = ServerConnection::new(tls.config().clone()).map_err(io::Error::other)?;
        self.wire.set_read_timeout(Some(self.shared.tick()))?;
        self.wire.start_tls(state.into(), &|| left(self.deadline).map(drop))?;
        // Nothing that was said in the open counts.
        (self.structured, self.contexts) = (false, None);
        Ok(Next::Option)
    }

    fn list(&self) -> Vec<OptionReply> {
        let listed = self.shared.exports.list().into_iter();
        let listed = listed.filter(|listed| listed.name.len() <= codec::STRING_MAX);
        let servers =
            listed.map(|export| OptionReply::Server { description: shortened(export.description), name: export.name });
        servers.chain([OptionReply::Ack]).collect()
    }

    fn agree(&self, name: &str, export: Arc<dyn Export>) -> Agreed {
        let BlockSizes { minimum, maximum, .. } = sizes(&*export, self.shared.limits.request);
        let contexts = match &self.contexts {
            Some((of, contexts)) if of == name && self.structured => contexts.clone(),
            _ => Vec::new(),
        };
        Agreed {
            size: export.size(),
            abilities: export.abilities(),
            export,
            minimum,
            maximum,
            structured: self.structured,
            spares: self.shared.spares.clone(),
            contexts: (1..).zip(contexts).collect(),
        }
    }

    fn describe(&mut self, wish: &Wish) -> Result<(Agreed, Vec<OptionReply>), Refused> {
        let export = self.find(&wish.name)?;
        let sizes = sizes(&*export, self.shared.limits.request);
        if sizes.minimum > 512 && !wish.infos.contains(&info::BLOCK_SIZE) {
            return Err((Refusal::BlockSizeRequired, "requests must be aligned: ask for block sizes".into()));
        }
        let agreed = self.agree(&wish.name, export);
        let mut infos = vec![Info::Export { size: agreed.size, flags: flags(&agreed) }];
        let description = shortened(agreed.export.description());
        for kind in [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE] {
            match kind {
                _ if !wish.infos.contains(&kind) => {}
                info::NAME => infos.push(Info::Name(wish.name.clone())),
                info::DESCRIPTION if !description.is_empty() => infos.push(Info::Description(description.clone())),
                info::BLOCK_SIZE => infos.push(Info::BlockSize(sizes)),
                _ => {}
            }
        }
        let replies = infos.into_iter().map(OptionReply::Info).chain([OptionReply::Ack]).collect();
        Ok((agreed, replies))
    }

    /// The old way to use an export. It has no error replies: the session ends instead.
    fn export_name(&mut self, name: &str) -> io::Result<Agreed> {
        if self.shared.is_stopping() {
            return Err(io::Error::other("the server is shutting down"));
        }
        let export = self.find(name).map_err(|(_, message)| io::Error::new(ErrorKind::NotFound, message))?;
        if sizes(&*export, self.shared.limits.request).minimum > 512 {
            return Err(io::Error::other("the client does not know that requests must be aligned"));
        }
        let agreed = self.agree(name, export);
        let mut bytes = agreed.size.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags(&agreed).to_be_bytes());
        if !self.no_zeroes {
            bytes.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        self.send(&bytes)?;
        Ok(agreed)
    }

    fn contexts_of(&mut self, queries: &Queries) -> Result<Vec<String>, Refused> {
        if !self.structured {
            return Err((Refusal::Invalid, "structured replies come first".into()));
        }
        if queries.queries.iter().any(|query| !query.contains(':')) {
            return Err((Refusal::Invalid, "a query needs a namespace".into()));
        }
        Ok(self.find(&queries.name)?.contexts())
    }

    fn list_contexts(&mut self, queries: &Queries) -> Result<Vec<OptionReply>, Refused> {
        let known = self.contexts_of(queries)?.into_iter();
        let listed = known.filter(|name| {
            let matches = |query: &String| name == query || (query.ends_with(':') && name.starts_with(query));
            queries.queries.is_empty() || queries.queries.iter().any(matches)
        });
        Ok(listed.map(|name| OptionReply::Context { id: 0, name }).chain([OptionReply::Ack]).collect())
    }

    fn set_contexts(&mut self, queries: Queries) -> Result<Vec<OptionReply>, Refused> {
        let known = self.contexts_of(&queries)?;
        let selected: Vec<_> = known.into_iter().filter(|name| queries.queries.contains(name)).collect();
        if selected.len() > CONTEXTS_MAX {
            return Err((Refusal::TooBig, format!("at most {CONTEXTS_MAX} contexts")));
        }
        let contexts = (1..).zip(&selected).map(|(id, name)| OptionReply::Context { id, name: name.clone() });
        let replies = contexts.chain([OptionReply::Ack]).collect();
        self.contexts = Some((queries.name, selected));
        Ok(replies)
    }
}

/// Sizes of requests as they are told to clients: those of the export where they make sense.
fn sizes(export: &dyn Export, longest: u32) -> BlockSizes {
    let asked = export.block_sizes();
    let minimum = asked.minimum.clamp(1, 64 << 10).next_power_of_two();
    let preferred = asked.preferred.clamp(minimum.max(512), 32 << 20).next_power_of_two();
    let maximum = asked.maximum.min(longest).max(preferred.min(longest));
    BlockSizes { minimum, preferred: preferred.min(maximum), maximum: maximum - maximum % minimum }
}

fn flags(agreed: &Agreed) -> u16 {
    let Abilities { read_only, flush, fua, trim, write_zeroes, fast_zero, cache, multi_conn, rotational, .. } =
        agreed.abilities;
    let writable = !read_only;
    let table = [
        (true, transmission::HAS_FLAGS),
        (read_only, transmission::READ_ONLY),
        (flush, transmission::SEND_FLUSH),
        (fua, transmission::SEND_FUA),
        (rotational, transmission::ROTATIONAL),
        (trim && writable, transmission::SEND_TRIM),
        (write_zeroes && writable, transmission::SEND_WRITE_ZEROES),
        (agreed.structured, transmission::SEND_DF),
        (multi_conn, transmission::CAN_MULTI_CONN),
        (cache, transmission::SEND_CACHE),
        (write_zeroes && fast_zero && writable, transmission::SEND_FAST_ZERO),
    ];
    table.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag)
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(codec::STRING_MAX));
    text
}
