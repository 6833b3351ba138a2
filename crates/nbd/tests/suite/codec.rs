//! Messages as bytes: fixed examples from the protocol document, and any bytes.

use larder_nbd::codec::option::{ClientOption, Queries, Wish};
use larder_nbd::codec::option_reply::{Info, OptionReply, Refusal};
use larder_nbd::codec::reply::{self, Chunk};
use larder_nbd::codec::request::{Command, Request, flag};
use larder_nbd::codec::{decode_greeting, greeting};
use larder_nbd::{BlockSizes, ErrorCode, Extent};
use proptest::prelude::*;

use crate::checks;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

#[test]
fn greetings() {
    assert_eq!(greeting().to_vec(), hex("4e42444d41474943 49484156454f5054 0003"));
    assert_eq!(decode_greeting(&greeting()), Ok(3));
    let mut oldstyle = greeting();
    oldstyle[8..16].copy_from_slice(&0x0000_4202_8186_1253_u64.to_be_bytes());
    assert!(decode_greeting(&oldstyle).is_err());
    let mut not_fixed = greeting();
    not_fixed[17] = 2;
    assert!(decode_greeting(&not_fixed).is_err());
}

#[test]
fn options() {
    let golden = |option: ClientOption, bytes: &str| {
        assert_eq!(option.encode(), hex(bytes));
        assert_eq!(ClientOption::decode(option.code(), &hex(bytes)[16..]), Ok(option));
    };
    golden(ClientOption::ExportName("ab".into()), "49484156454f5054 00000001 00000002 6162");
    golden(ClientOption::Abort, "49484156454f5054 00000002 00000000");
    golden(ClientOption::List, "49484156454f5054 00000003 00000000");
    golden(ClientOption::StartTls, "49484156454f5054 00000005 00000000");
    let wish = Wish { name: "ab".into(), infos: vec![3, 1] };
    golden(ClientOption::Info(wish.clone()), "49484156454f5054 00000006 0000000c 00000002 6162 0002 0003 0001");
    golden(ClientOption::Go(wish), "49484156454f5054 00000007 0000000c 00000002 6162 0002 0003 0001");
    golden(ClientOption::StructuredReply, "49484156454f5054 00000008 00000000");
    let queries = Queries { name: "a".into(), queries: vec!["x:".into(), String::new()] };
    let bytes = "00000013 00000001 61 00000002 00000002 783a 00000000";
    golden(ClientOption::ListContexts(queries.clone()), &format!("49484156454f5054 00000009 {bytes}"));
    golden(ClientOption::SetContexts(queries), &format!("49484156454f5054 0000000a {bytes}"));
}

#[test]
fn replies_to_options() {
    let golden = |reply: OptionReply, kind: u32, data: &str| {
        let mut bytes = Vec::new();
        reply.encode(7, &mut bytes);
        let data = hex(data);
        let header =
            [hex("0003e889045565a9 00000007"), kind.to_be_bytes().into(), (data.len() as u32).to_be_bytes().into()];
        assert_eq!(bytes, [header.concat(), data.clone()].concat());
        assert_eq!(OptionReply::decode(kind, &data), Ok(reply));
    };
    golden(OptionReply::Ack, 1, "");
    golden(OptionReply::Server { name: "a".into(), description: "bc".into() }, 2, "00000001 61 6263");
    golden(OptionReply::Info(Info::Export { size: 5, flags: 9 }), 3, "0000 0000000000000005 0009");
    golden(OptionReply::Info(Info::Name("a".into())), 3, "0001 61");
    golden(OptionReply::Info(Info::Description("a".into())), 3, "0002 61");
    let sizes = BlockSizes { minimum: 1, preferred: 2, maximum: 3 };
    golden(OptionReply::Info(Info::BlockSize(sizes)), 3, "0003 00000001 00000002 00000003");
    golden(OptionReply::Context { id: 4, name: "a:".into() }, 4, "00000004 613a");
    use Refusal::{BlockSizeRequired, Invalid, Policy, Shutdown, TlsRequired, TooBig, Unknown, Unsupported};
    for (refusal, number) in [
        (Unsupported, 1),
        (Policy, 2),
        (Invalid, 3),
        (TlsRequired, 5),
        (Unknown, 6),
        (Shutdown, 7),
        (BlockSizeRequired, 8),
        (TooBig, 9),
    ] {
        golden(OptionReply::Refused(refusal, "a".into()), 0x8000_0000 + number, "61");
    }
}

#[test]
fn requests() {
    use Command::{BlockStatus, Cache, Disconnect, Flush, Read, Trim, Unknown, Write, WriteZeroes};
    let commands = [Read, Write, Disconnect, Flush, Trim, Cache, WriteZeroes, BlockStatus, Unknown(8)];
    for (number, command) in commands.into_iter().enumerate() {
        let flags = flag::FUA | flag::FAST_ZERO;
        let request = Request { flags, command, handle: 0x0102_0304_0506_0708, offset: 0x1000, length: 0x200 };
        let bytes = hex(&format!("25609513 0011 {number:04x} 0102030405060708 0000000000001000 00000200"));
        assert_eq!(request.encode().to_vec(), bytes);
    }
}

#[test]
fn replies_to_requests() {
    let mut bytes = Vec::new();
    reply::simple(1, Some(ErrorCode::NoSpace), &mut bytes);
    assert_eq!(bytes, hex("67446698 0000001c 0000000000000001"));
    let golden = |chunk: Chunk, done: bool, rest: &str| {
        let mut bytes = Vec::new();
        chunk.encode(2, done, &mut bytes);
        assert_eq!(bytes, hex(&format!("668e33ef {rest}")));
        assert_eq!(Chunk::decode(u16::from_be_bytes([bytes[6], bytes[7]]), &bytes[20..]), Ok(chunk));
    };
    golden(Chunk::None, true, "0001 0000 0000000000000002 00000000");
    golden(
        Chunk::Hole { offset: 3, length: 4 },
        false,
        "0000 0002 0000000000000002 0000000c 0000000000000003 00000004",
    );
    let extents = vec![Extent { length: 5, flags: 3 }, Extent { length: 6, flags: 0 }];
    let status = Chunk::BlockStatus { context: 1, extents };
    golden(status, true, "0001 0005 0000000000000002 00000014 00000001 00000005 00000003 00000006 00000000");
    let error = |offset| Chunk::Error { code: ErrorCode::Io, message: "a".into(), offset };
    golden(error(None), true, "0001 8001 0000000000000002 00000007 00000005 0001 61");
    golden(error(Some(9)), false, "0000 8002 0000000000000002 0000000f 00000005 0001 61 0000000000000009");
    let mut bytes = Vec::new();
    reply::data_header(2, true, 3, 4, &mut bytes);
    assert_eq!(bytes, hex("668e33ef 0001 0001 0000000000000002 0000000c 0000000000000003"));
}

#[test]
fn chunks_that_make_no_sense_are_refused() {
    for (kind, payload) in [
        (0, "00"),
        (2, "0000000000000003 00000000"),
        (2, "0000000000000003 0000"),
        (5, "00000001"),
        (5, "00000001 00000000 00000000"),
        (5, "00000001 00000005 000000"),
        (3, ""),
        (0x8001, "00000000 0000"),
        (0x8001, "00000005 0002 61"),
        (0x8002, "00000005 0000 00000000"),
    ] {
        assert!(Chunk::decode(kind, &hex(payload)).is_err(), "{kind} {payload}");
    }
    // An unknown kind of error is an error nevertheless.
    let error = Chunk::Error { code: ErrorCode::Io, message: String::new(), offset: None };
    assert_eq!(Chunk::decode(0x8007, &hex("00000005 0000 abcd")), Ok(error));
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let error = Chunk::Error { code: ErrorCode::Io, message: "ü".repeat(600) + "a", offset: None };
    let mut bytes = Vec::new();
    error.encode(1, true, &mut bytes);
    let cut = Chunk::Error { code: ErrorCode::Io, message: "ü".repeat(512), offset: None };
    assert_eq!(Chunk::decode(0x8001, &bytes[20..]), Ok(cut));
}

/// Bytes that begin like a message.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let starts = prop::sample::select(vec![
        "",
        "25609513",
        "67446698",
        "668e33ef 0001",
        "4e42444d41474943 49484156454f5054",
        "49484156454f5054 000000",
        "0003e889045565a9 00000007 000000",
        "0003e889045565a9 00000007 800000",
    ]);
    let small = prop_oneof![0..12_u8, any::<u8>(), Just(0)];
    (starts, prop::collection::vec(small, 0..80)).prop_map(|(start, rest)| [hex(start), rest].concat())
}

proptest! {
    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in almost()) {
        checks::client_messages(&bytes);
        checks::server_messages(&bytes);
    }
}
