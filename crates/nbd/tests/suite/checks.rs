//! What must hold for any bytes that a decoder is given: an error, or a value that survives being
//! encoded again. Used by the tests and by the fuzz targets.

use larder_nbd::codec::option::{ClientOption, OPTION_HEADER_LEN, OptionHeader};
use larder_nbd::codec::option_reply::{OPTION_REPLY_HEADER_LEN, OptionReply, OptionReplyHeader};
use larder_nbd::codec::reply::{self, CHUNK_HEADER_LEN, Chunk, ReplyHeader};
use larder_nbd::codec::request::Request;
use larder_nbd::codec::{decode_client_flags, decode_greeting, greeting};

/// Takes as many bytes as an array has.
fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// Anything that a client sends, each at the start of `bytes`.
pub fn client_messages(bytes: &[u8]) {
    if let Some(flags) = array(bytes)
        && let Ok((fixed, no_zeroes)) = decode_client_flags(flags)
    {
        assert_eq!(u32::from_be_bytes(flags), u32::from(fixed) | u32::from(no_zeroes) << 1);
    }
    if let Some(request) = array(bytes)
        && let Ok(decoded) = Request::decode(&request)
    {
        assert_eq!(decoded.encode(), request);
    }
    let Some(header) = array::<OPTION_HEADER_LEN>(bytes) else { return };
    let Ok(header) = OptionHeader::decode(&header) else { return };
    let data = &bytes[OPTION_HEADER_LEN..];
    let data = &data[..data.len().min(header.length as usize)];
    if let Ok(option) = ClientOption::decode(header.code, data) {
        assert_eq!(option.code(), header.code);
        let again = option.encode();
        let decoded = OptionHeader::decode(&array(&again).expect("a header")).expect("it was encoded");
        assert_eq!(decoded.length as usize, again.len() - OPTION_HEADER_LEN);
        assert_eq!(ClientOption::decode(decoded.code, &again[OPTION_HEADER_LEN..]), Ok(option));
    }
}

/// Anything that a server sends, each at the start of `bytes`.
pub fn server_messages(bytes: &[u8]) {
    if let Some(first) = array(bytes)
        && let Ok(flags) = decode_greeting(&first)
    {
        assert_eq!(first[..16], greeting()[..16]);
        assert_eq!(first[16..], flags.to_be_bytes());
    }
    option_reply(bytes);
    let Some(magic) = array(bytes) else { return };
    let Ok(length) = ReplyHeader::length(magic) else { return };
    let Some((header, payload)) = bytes.split_at_checked(length) else { return };
    match ReplyHeader::decode(header).expect("its magic number is right") {
        ReplyHeader::Simple { handle, error } => {
            let mut again = Vec::new();
            reply::simple(handle, error, &mut again);
            assert_eq!(ReplyHeader::decode(&again), Ok(ReplyHeader::Simple { handle, error }));
        }
        ReplyHeader::Chunk { handle, done, kind, length } => {
            let payload = &payload[..payload.len().min(length as usize)];
            if reply::is_data(kind) {
                return;
            }
            let Ok(chunk) = Chunk::decode(kind, payload) else { return };
            let mut again = Vec::new();
            chunk.encode(handle, done, &mut again);
            let (header, payload) = again.split_at(CHUNK_HEADER_LEN);
            let decoded = ReplyHeader::decode(header).expect("it was encoded");
            let ReplyHeader::Chunk { handle: same, done: also, kind, length } = decoded else {
                panic!("a chunk became a simple reply")
            };
            assert_eq!((same, also, length as usize), (handle, done, payload.len()));
            assert_eq!(shortened(Chunk::decode(kind, payload).expect("it was encoded")), shortened(chunk));
        }
    }
}

/// Messages are cut when they are sent.
fn shortened(chunk: Chunk) -> Chunk {
    match chunk {
        Chunk::Error { code, mut message, offset } => {
            message.truncate(message.floor_char_boundary(reply::MESSAGE_MAX));
            Chunk::Error { code, message, offset }
        }
        other => other,
    }
}

fn option_reply(bytes: &[u8]) {
    let Some(header) = array::<OPTION_REPLY_HEADER_LEN>(bytes) else { return };
    let Ok(header) = OptionReplyHeader::decode(&header) else { return };
    let data = &bytes[OPTION_REPLY_HEADER_LEN..];
    let data = &data[..data.len().min(header.length as usize)];
    let Ok(reply) = OptionReply::decode(header.kind, data) else { return };
    let mut again = Vec::new();
    reply.encode(header.option, &mut again);
    // A message that was no text is longer as text.
    if let Ok(decoded) = OptionReplyHeader::decode(&array(&again).expect("a header")) {
        assert_eq!(decoded.length as usize, again.len() - OPTION_REPLY_HEADER_LEN);
        assert_eq!(OptionReply::decode(decoded.kind, &again[OPTION_REPLY_HEADER_LEN..]), Ok(reply));
    }
}
