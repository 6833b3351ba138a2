//! A client believes no server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use larder_nbd::ErrorCode;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::option::{ClientOption, OPTION_HEADER_LEN, OptionHeader, Wish, code};
use larder_nbd::codec::option_reply::{Info, OptionReply, Refusal};
use larder_nbd::codec::reply::{self, Chunk};
use larder_nbd::codec::request::{REQUEST_LEN, Request};
use larder_nbd::codec::{self, transmission};

/// A server that negotiates well and answers the first request with the bytes that `answer` makes.
/// Then it waits for the client to close.
fn lying(
    structured: bool,
    call: impl FnOnce(&Client) -> Result<Vec<u8>, ClientError>,
    answer: impl FnOnce(Request) -> Vec<u8> + Send,
) -> Result<Vec<u8>, ClientError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            theirs.write_all(&codec::greeting()).unwrap();
            theirs.read_exact(&mut [0; 4]).unwrap();
            loop {
                let mut header = [0; OPTION_HEADER_LEN];
                theirs.read_exact(&mut header).unwrap();
                let header = OptionHeader::decode(&header).unwrap();
                let mut data = vec![0; header.length as usize];
                theirs.read_exact(&mut data).unwrap();
                let option = ClientOption::decode(header.code, &data).unwrap();
                let (size, flags) = (1 << 20, transmission::HAS_FLAGS);
                let mut replies = match option {
                    ClientOption::Go(_) => vec![OptionReply::Info(Info::Export { size, flags })],
                    ClientOption::SetContexts(_) => vec![OptionReply::Context { id: 5, name: "a:b".into() }],
                    _ => vec![],
                };
                replies.push(OptionReply::Ack);
                let mut bytes = Vec::new();
                replies.iter().for_each(|reply| reply.encode(header.code, &mut bytes));
                theirs.write_all(&bytes).unwrap();
                if header.code == code::GO {
                    break;
                }
            }
            let mut request = [0; REQUEST_LEN];
            theirs.read_exact(&mut request).unwrap();
            // A client that has seen enough closes.
            let _ = theirs.write_all(&answer(Request::decode(&request).unwrap()));
            let _ = theirs.read_to_end(&mut Vec::new());
        });
        let options = Options { contexts: vec!["a:b".into()], structured, ..Options::default() };
        let client = Client::over_unix(ours, &options).unwrap();
        call(&client)
    })
}

fn data(request: Request, done: bool, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply::data_header(request.handle, done, offset, data.len() as u32, &mut bytes);
    [bytes, data.into()].concat()
}

fn chunk(request: Request, done: bool, chunk: Chunk) -> Vec<u8> {
    let mut bytes = Vec::new();
    chunk.encode(request.handle, done, &mut bytes);
    bytes
}

fn read(client: &Client) -> Result<Vec<u8>, ClientError> {
    client.read(100, 10)
}

#[test]
fn pieces_in_any_order_make_a_read() {
    let read = lying(true, read, |request| {
        [
            data(request, false, 106, b"ghij"),
            chunk(request, false, Chunk::Hole { offset: 102, length: 4 }),
            data(request, false, 100, b"ab"),
            chunk(request, true, Chunk::None),
        ]
        .concat()
    });
    assert_eq!(read.unwrap(), b"ab\0\0\0\0ghij");
    let simple = lying(false, self::read, |request| {
        let mut bytes = Vec::new();
        reply::simple(request.handle, None, &mut bytes);
        [bytes, b"0123456789".to_vec()].concat()
    });
    assert_eq!(simple.unwrap(), b"0123456789");
}

#[test]
fn an_error_chunk_fails_the_request_whatever_else_was_sent() {
    let error = |offset| Chunk::Error { code: ErrorCode::NoMemory, message: "why".into(), offset };
    for offset in [None, Some(104)] {
        let read = lying(true, read, |request| {
            [
                data(request, false, 100, &[1; 10]),
                chunk(request, false, error(offset)),
                chunk(request, true, Chunk::None),
            ]
            .concat()
        });
        match read {
            Err(ClientError::Refused(refused)) => {
                assert_eq!((refused.code, &refused.message[..]), (ErrorCode::NoMemory, "why"))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lies_end_the_session() {
    type Lie = fn(Request) -> Vec<u8>;
    let lies: [(&str, Lie); 12] = [
        ("garbage", |_| vec![7; 20]),
        ("another handle", |request| data(Request { handle: 99, ..request }, true, 100, &[1; 10])),
        ("before the range", |request| data(request, true, 99, &[1; 10])),
        ("behind the range", |request| data(request, true, 101, &[1; 10])),
        ("far behind", |request| data(request, true, u64::MAX, &[1; 10])),
        ("no data", |request| data(request, true, 100, &[])),
        ("too little", |request| data(request, true, 100, &[1; 9])),
        ("a gap", |request| [data(request, false, 100, &[1; 4]), data(request, true, 105, &[1; 5])].concat()),
        ("twice", |request| [data(request, false, 100, &[1; 6]), data(request, true, 105, &[1; 5])].concat()),
        ("twice, other order", |request| {
            [data(request, false, 105, &[1; 5]), data(request, true, 100, &[1; 6])].concat()
        }),
        ("too large a hole", |request| chunk(request, true, Chunk::Hole { offset: 100, length: u32::MAX })),
        ("a simple reply", |request| {
            let mut bytes = Vec::new();
            reply::simple(request.handle, None, &mut bytes);
            bytes
        }),
    ];
    for (what, lie) in lies {
        match lying(true, read, lie) {
            Err(ClientError::Closed(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    let chunk_without_agreement = lying(false, read, |request| data(request, true, 100, &[1; 10]));
    assert!(matches!(chunk_without_agreement, Err(ClientError::Closed(_))));
    let huge = lying(true, read, |request| {
        let mut bytes = chunk(request, true, Chunk::None);
        bytes[6..8].copy_from_slice(&5_u16.to_be_bytes());
        bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        bytes
    });
    assert!(matches!(huge, Err(ClientError::Closed(_))));
}

#[test]
fn extents_must_belong_to_the_request() {
    use larder_nbd::Extent;
    let status = |client: &Client| {
        let extents = client.block_status("a:b", 0, 1000)?;
        Ok(extents.iter().map(|extent| extent.length as u8).collect())
    };
    let extents =
        |lengths: &[u64]| lengths.iter().map(|length| Extent { length: *length, flags: 0 }).collect::<Vec<_>>();
    let answer = |request, context, lengths: &[u64]| {
        chunk(request, true, Chunk::BlockStatus { context, extents: extents(lengths) })
    };
    // The last one may end behind the range, as the protocol allows for one extent.
    assert_eq!(lying(true, status, |request| answer(request, 5, &[10, 999])).unwrap(), [10, 999_u64 as u8]);
    assert!(lying(true, status, |request| answer(request, 5, &[1000, 1])).is_err(), "an extent outside");
    assert!(lying(true, status, |request| answer(request, 6, &[1000])).is_err(), "another context");
    assert!(lying(true, status, |request| chunk(request, true, Chunk::None)).is_err(), "nothing");
    // Extents that nobody asked for would cost memory without end.
    let more = |request: Request| {
        let other = Chunk::BlockStatus { context: 6, extents: extents(&[1000]) };
        [chunk(request, false, other), answer(request, 5, &[1000])].concat()
    };
    assert!(lying(true, status, more).is_err(), "one more context");
}

#[test]
fn data_in_very_many_parts_ends_the_session() {
    let read = |client: &Client| client.read(0, 10_000);
    // Each second byte, and then the others.
    let scattered = lying(true, read, |request| {
        let places = (0..10_000).step_by(2).chain((1..10_000).step_by(2));
        places.flat_map(|at| data(request, at == 9999, at, &[7])).collect()
    });
    assert!(matches!(scattered, Err(ClientError::Closed(why)) if why.contains("too many parts")));
    let backwards =
        lying(true, read, |request| (0..10_000).rev().flat_map(|at| data(request, at == 0, at, &[at as u8])).collect());
    assert_eq!(backwards.unwrap(), (0..10_000).map(|at| at as u8).collect::<Vec<_>>());
}

#[test]
fn more_contexts_than_were_asked_for_are_refused() {
    selected(&[(0, "a:0"), (1, "a:1"), (2, "a:2")]);
}

/// Else the extents of one would count for the other.
#[test]
fn contexts_that_cannot_be_told_apart_are_refused() {
    selected(&[(3, "a:0"), (3, "a:1")]);
    selected(&[(3, "a:0"), (4, "a:0")]);
    selected(&[(3, "a:7")]);
}

/// A server that selects these contexts is refused.
fn selected(contexts: &'static [(u32, &'static str)]) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        theirs.write_all(&codec::greeting()).unwrap();
        let mut bytes = Vec::new();
        OptionReply::Ack.encode(code::STRUCTURED_REPLY, &mut bytes);
        for (id, name) in contexts {
            OptionReply::Context { id: *id, name: (*name).into() }.encode(code::SET_META_CONTEXT, &mut bytes);
        }
        OptionReply::Ack.encode(code::SET_META_CONTEXT, &mut bytes);
        theirs.write_all(&bytes).unwrap();
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    let refused =
        Client::over_unix(ours, &Options { contexts: vec!["a:0".into(), "a:1".into()], ..Options::default() });
    assert!(matches!(refused, Err(ClientError::Malformed(_))));
    drop(refused);
    server.join().unwrap();
}

#[test]
fn a_refusal_to_serve_has_the_reason() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        theirs.write_all(&codec::greeting()).unwrap();
        theirs.read_exact(&mut [0; 4 + 16]).unwrap();
        let mut bytes = Vec::new();
        OptionReply::Refused(Refusal::Unsupported, String::new()).encode(code::STRUCTURED_REPLY, &mut bytes);
        OptionReply::Refused(Refusal::Unknown, "no such disk".into()).encode(code::GO, &mut bytes);
        theirs.write_all(&bytes).unwrap();
        let wish = Wish { name: String::new(), infos: vec![2, 3] };
        let go = ClientOption::Go(wish).encode();
        theirs.read_exact(&mut vec![0; go.len()]).unwrap();
        // A client must not leave without a word.
        let mut farewell = [0; 16];
        theirs.read_exact(&mut farewell).unwrap();
        assert_eq!(farewell[..], ClientOption::Abort.encode());
    });
    match Client::over_unix(ours, &Options::default()) {
        Err(ClientError::Option(why)) => assert!(why.contains("no such disk"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was refused"),
    }
    server.join().unwrap();
}
