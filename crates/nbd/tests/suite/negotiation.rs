//! Everything before an export is in use.

use larder_nbd::codec::option::{ClientOption, Queries, Wish, code, info};
use larder_nbd::codec::option_reply::{Info, OptionReply, Refusal};
use larder_nbd::{BlockSizes, Export, ExportError, Limits, MemoryExport};

use crate::support::{Gated, Named, Raw, SIZE, server, server_of};

fn refusal(reply: &OptionReply) -> Refusal {
    match reply {
        OptionReply::Refused(refusal, message) => {
            assert!(!message.is_empty(), "a refusal says why");
            *refusal
        }
        other => panic!("{other:?} is no refusal"),
    }
}

fn wish(name: &str, infos: &[u16]) -> Wish {
    Wish { name: name.into(), infos: infos.into() }
}

fn queries(name: &str, queries: &[&str]) -> Queries {
    Queries { name: name.into(), queries: queries.iter().map(|query| (*query).to_owned()).collect() }
}

/// All abilities of a device in memory, without DF.
const FLAGS: u16 = 0b1101_0110_1101;
const DF: u16 = 1 << 7;

#[test]
fn export_name_ends_with_124_zeroes_unless_nobody_wants_them() {
    for (flags, zeroes) in [(1, 124), (3, 0), (0, 124), (2, 0)] {
        let server = server();
        let mut raw = Raw::new(&server, flags);
        raw.send(&ClientOption::ExportName("disk".into()).encode());
        let mut wanted = SIZE.to_be_bytes().to_vec();
        wanted.extend_from_slice(&FLAGS.to_be_bytes());
        wanted.resize(wanted.len() + zeroes, 0);
        assert_eq!(raw.take(wanted.len()), wanted);
        // The next bytes belong to the reply of a request.
        raw.request(larder_nbd::codec::request::Command::Flush, 0, 0, 0);
        assert_eq!(raw.simple(), 0);
    }
}

#[test]
fn an_export_name_that_is_not_there_ends_the_session() {
    let server = server();
    let mut raw = Raw::new(&server, 3);
    raw.send(&ClientOption::ExportName("tape".into()).encode());
    assert_eq!(raw.rest(), []);
}

#[test]
fn unknown_client_flags_end_the_session() {
    for flags in [4, 7, 1 << 31] {
        let server = server();
        assert_eq!(Raw::new(&server, flags).rest(), []);
    }
}

#[test]
fn without_fixed_newstyle_only_export_name_is_allowed() {
    let server = server();
    let mut raw = Raw::new(&server, 0);
    raw.send(&ClientOption::List.encode());
    assert_eq!(raw.rest(), []);
}

#[test]
fn go_describes_the_export() {
    let server = server();
    for option in [ClientOption::Info, ClientOption::Go] {
        let mut raw = Raw::new(&server, 3);
        let asked = [info::BLOCK_SIZE, info::NAME, info::DESCRIPTION, 99];
        let sizes = BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 };
        assert_eq!(
            raw.ask(&option(wish("disk", &asked))),
            [
                OptionReply::Info(Info::Export { size: SIZE, flags: FLAGS }),
                OptionReply::Info(Info::Name("disk".into())),
                OptionReply::Info(Info::Description("memory".into())),
                OptionReply::Info(Info::BlockSize(sizes)),
                OptionReply::Ack
            ]
        );
    }
    let mut raw = Raw::new(&server, 3);
    raw.ask(&ClientOption::StructuredReply);
    assert_eq!(
        raw.ask(&ClientOption::Info(wish("disk", &[]))),
        [OptionReply::Info(Info::Export { size: SIZE, flags: FLAGS | DF }), OptionReply::Ack]
    );
    // It was only asked: negotiation goes on.
    assert_eq!(refusal(&raw.ask(&ClientOption::Go(wish("tape", &[])))[0]), Refusal::Unknown);
    assert_eq!(raw.ask(&ClientOption::Go(wish("disk", &[]))).pop(), Some(OptionReply::Ack));
}

#[test]
fn a_list_has_every_export() {
    let mut named = Named::default();
    for name in ["a", "ü", ""] {
        named.0.insert(name.into(), Gated::new());
    }
    let server = larder_nbd::Server::new(std::sync::Arc::new(named), Limits::default());
    let mut raw = Raw::new(&server, 3);
    let listed =
        ["", "a", "ü"].map(|name| OptionReply::Server { name: name.into(), description: format!("of {name}") });
    assert_eq!(raw.ask(&ClientOption::List), [&listed[..], &[OptionReply::Ack]].concat());
    assert_eq!(raw.ask(&ClientOption::Abort), [OptionReply::Ack]);
    assert_eq!(raw.rest(), []);
}

#[test]
fn unknown_and_malformed_options_are_refused_and_the_session_goes_on() {
    let server = server();
    let mut raw = Raw::new(&server, 3);
    for (option, data, expected) in [
        (4, &b""[..], Refusal::Unsupported),
        (11, b"", Refusal::Unsupported),
        (12345, b"data", Refusal::Unsupported),
        (code::STARTTLS, b"", Refusal::Policy),
        (code::STARTTLS, b"x", Refusal::Invalid),
        (code::LIST, b"x", Refusal::Invalid),
        (code::STRUCTURED_REPLY, b"x", Refusal::Invalid),
        (code::INFO, b"", Refusal::Invalid),
        (code::GO, b"\0\0\0\x04disk\0", Refusal::Invalid),
        (code::GO, b"\0\0\0\x04disk\0\x01\0", Refusal::Invalid),
        (code::GO, b"\0\0\0\x04disk\0\0\0", Refusal::Invalid),
        (code::GO, b"\xff\xff\xff\xffdisk\0\0", Refusal::Invalid),
        (code::GO, b"\0\0\0\x02\xc3\x28\0\0", Refusal::Invalid),
        (code::GO, b"\0\0\0\x02\0\0\0\0", Refusal::Invalid),
        (code::SET_META_CONTEXT, b"\0\0\0\x04disk\xff\xff\xff\xff", Refusal::Invalid),
        (code::GO, &[&5000_u32.to_be_bytes()[..], &[b'a'; 5000], &[0; 2]].concat(), Refusal::Invalid),
        (code::GO, &vec![0; 100_000], Refusal::TooBig),
        (77, &vec![0; 1 << 20], Refusal::TooBig),
    ] {
        assert_eq!(refusal(&raw.raw_option(option, data)), expected, "{option} {:?}", &data[..data.len().min(20)]);
    }
    assert_eq!(raw.ask(&ClientOption::Go(wish("disk", &[]))).pop(), Some(OptionReply::Ack));
}

#[test]
fn a_broken_or_huge_option_ends_the_session() {
    let huge = |option: u32| [b"IHAVEOPT", &option.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
    let name = [b"IHAVEOPT", &1_u32.to_be_bytes()[..], &5000_u32.to_be_bytes(), &[b'a'; 5000]].concat();
    for bytes in [b"IHAVEOPS\0\0\0\x03\0\0\0\0".to_vec(), huge(7), huge(1), huge(99), name, b"IHAVE".to_vec()] {
        let server = server();
        let mut raw = Raw::new(&server, 3);
        raw.send(&bytes);
        raw.0.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(raw.rest(), []);
    }
}

#[test]
fn options_have_a_limit() {
    let server = server_of(Gated::new(), Limits { options: 3, ..Limits::default() });
    let mut raw = Raw::new(&server, 3);
    for _ in 0..3 {
        raw.ask(&ClientOption::List);
    }
    assert_eq!(raw.rest(), []);
}

#[test]
fn a_client_that_does_not_finish_is_dropped() {
    let limits = Limits { negotiation: std::time::Duration::from_millis(50), ..Limits::default() };
    let server = server_of(Gated::new(), limits);
    let mut silent = Raw::new(&server, 3);
    let mut halfway = Raw::new(&server, 3);
    halfway.send(b"IHAVEOPT\0\0\0\x07\0\0\0\x20half");
    assert_eq!(silent.rest(), []);
    assert_eq!(halfway.rest(), []);
}

#[test]
fn contexts_are_listed_and_selected_by_queries() {
    let server = server_of(Gated::new(), Limits::default());
    let mut raw = Raw::new(&server, 3);
    let option = ClientOption::ListContexts(queries("disk", &[]));
    assert_eq!(refusal(&raw.ask(&option)[0]), Refusal::Invalid, "structured replies come first");
    raw.ask(&ClientOption::StructuredReply);
    let mut list = |asked: &[&str]| {
        let replies = raw.ask(&ClientOption::ListContexts(queries("disk", asked)));
        let name = |reply| match reply {
            OptionReply::Context { id: 0, name } => Some(name),
            OptionReply::Ack => None,
            other => panic!("{other:?}"),
        };
        replies.into_iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), ["base:allocation", "test:even", "test:odd"]);
    assert_eq!(list(&["test:"]), ["test:even", "test:odd"]);
    assert_eq!(list(&["test:odd", "base:allocation", "qemu:dirty-bitmap:a"]), ["base:allocation", "test:odd"]);
    assert_eq!(list(&["test:o"]), [""; 0]);
    let mut set = |name: &str, asked: &[&str]| raw.ask(&ClientOption::SetContexts(queries(name, asked)));
    let context = |id, name: &str| OptionReply::Context { id, name: name.into() };
    assert_eq!(set("disk", &["test:odd"]), [context(1, "test:odd"), OptionReply::Ack]);
    assert_eq!(set("disk", &["test:"]), [OptionReply::Ack], "only full names are selected");
    assert_eq!(set("disk", &[]), [OptionReply::Ack]);
    assert_eq!(refusal(&set("tape", &["test:odd"])[0]), Refusal::Unknown);
    assert_eq!(refusal(&set("disk", &["odd"])[0]), Refusal::Invalid);
}

#[test]
fn a_selection_counts_for_its_export_only_and_ends_with_the_next_one() {
    type Lose = fn(&mut Raw);
    let lose: [(&str, Lose); 4] = [
        ("of another export", |raw| {
            raw.ask(&ClientOption::SetContexts(queries("other", &["base:allocation"])));
        }),
        ("of nothing", |raw| {
            raw.ask(&ClientOption::SetContexts(queries("disk", &[])));
        }),
        ("refused", |raw| {
            raw.ask(&ClientOption::SetContexts(queries("tape", &["base:allocation"])));
        }),
        ("malformed", |raw| {
            raw.raw_option(code::SET_META_CONTEXT, b"x");
        }),
    ];
    for (what, lose) in lose {
        let mut named = Named::default();
        named.0.insert("disk".into(), Gated::new());
        named.0.insert("other".into(), Gated::new());
        let server = larder_nbd::Server::new(std::sync::Arc::new(named), Limits::default());
        let mut raw = Raw::new(&server, 3);
        raw.ask(&ClientOption::StructuredReply);
        raw.ask(&ClientOption::SetContexts(queries("disk", &["base:allocation"])));
        lose(&mut raw);
        raw.ask(&ClientOption::Go(wish("disk", &[])));
        raw.request(larder_nbd::codec::request::Command::BlockStatus, 0, 0, 512);
        assert_eq!(raw.error(), 22, "{what}");
    }
}

/// A device of large sectors.
struct Sectors(MemoryExport);

impl Export for Sectors {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn abilities(&self) -> larder_nbd::Abilities {
        self.0.abilities()
    }
    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { minimum: 4096, preferred: 1000, maximum: 1_000_000 }
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.0.read(offset, buffer)
    }
}

#[test]
fn large_sectors_are_only_for_clients_that_ask_for_sizes() {
    let server = server_of(std::sync::Arc::new(Sectors(MemoryExport::new(SIZE))), Limits::default());
    let mut raw = Raw::new(&server, 3);
    assert_eq!(refusal(&raw.ask(&ClientOption::Go(wish("disk", &[])))[0]), Refusal::BlockSizeRequired);
    let sizes = BlockSizes { minimum: 4096, preferred: 4096, maximum: 999_424 };
    let replies = raw.ask(&ClientOption::Go(wish("disk", &[info::BLOCK_SIZE])));
    assert_eq!(replies[1], OptionReply::Info(Info::BlockSize(sizes)));
    raw.request(larder_nbd::codec::request::Command::Read, 0, 512, 4096);
    assert_eq!(raw.simple(), 22);
    raw.request(larder_nbd::codec::request::Command::Read, 0, 4096, 512);
    assert_eq!(raw.simple(), 22);
    raw.request(larder_nbd::codec::request::Command::Read, 0, 4096, 4096);
    assert_eq!(raw.simple(), 0);
    let mut old = Raw::new(&server, 3);
    old.send(&ClientOption::ExportName("disk".into()).encode());
    assert_eq!(old.rest(), []);
}
