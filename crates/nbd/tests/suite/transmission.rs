//! Requests and their replies, byte by byte.

use larder_nbd::codec::request::{Command, flag};
use larder_nbd::{Abilities, Export, Limits, MemoryExport, Zeroing};

use crate::support::{Gated, Raw, SIZE, server, server_of};

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ENOTSUP: u32 = 95;

/// Every request that must be refused: command, flags, offset, length, error.
fn refused() -> Vec<(Command, u16, u64, u32, u32)> {
    use Command::{BlockStatus, Cache, Flush, Read, Trim, Unknown, Write, WriteZeroes};
    vec![
        (Read, 0, SIZE - 10, 11, EINVAL),
        (Read, 0, SIZE, 1, EINVAL),
        (Read, 0, u64::MAX, 2, EINVAL),
        (Read, 0, 0, (32 << 20) + 1, EINVAL),
        (Read, flag::NO_HOLE, 0, 512, EINVAL),
        (Read, flag::REQ_ONE, 0, 512, EINVAL),
        (Read, 1 << 5, 0, 512, EINVAL),
        (Write, 0, SIZE - 10, 11, ENOSPC),
        (Write, 0, SIZE + 1, 0, ENOSPC),
        (Write, 0, u64::MAX, 512, ENOSPC),
        (Write, 0, 0, (32 << 20) + 1, EINVAL),
        (Write, flag::DF, 0, 512, EINVAL),
        (Write, flag::FAST_ZERO, 0, 512, EINVAL),
        (WriteZeroes, 0, SIZE - 10, 11, ENOSPC),
        (WriteZeroes, flag::DF, 0, 512, EINVAL),
        (Trim, 0, SIZE - 10, 11, EINVAL),
        (Trim, flag::NO_HOLE, 0, 512, EINVAL),
        (Cache, 0, SIZE - 10, 11, EINVAL),
        (Flush, 0, 512, 0, EINVAL),
        (Flush, 0, 0, 512, EINVAL),
        (BlockStatus, 0, SIZE - 10, 11, EINVAL),
        (BlockStatus, 0, 0, 0, EINVAL),
        (BlockStatus, flag::DF, 0, 512, EINVAL),
        (Unknown(8), 0, 0, 0, EINVAL),
        (Unknown(999), 0, 0, 512, EINVAL),
    ]
}

fn send(raw: &mut Raw, (command, flags, offset, length, _): (Command, u16, u64, u32, u32)) {
    raw.request(command, flags, offset, length);
    if command == Command::Write {
        raw.send(&vec![1; length as usize]);
    }
}

#[test]
fn bad_requests_are_refused_and_the_session_goes_on() {
    let server = server();
    let (mut simple, mut structured) = (Raw::transmitting(&server, false), Raw::transmitting(&server, true));
    for case in refused() {
        send(&mut simple, case);
        assert_eq!(simple.simple(), case.4, "{case:?}");
        send(&mut structured, case);
        assert_eq!(structured.error(), case.4, "{case:?}");
    }
    // DF and block status belong to structured replies.
    for (command, flags) in [(Command::Read, flag::DF), (Command::BlockStatus, 0)] {
        simple.request(command, flags, 0, 512);
        assert_eq!(simple.simple(), EINVAL);
    }
    // Nothing of all that was written.
    simple.request(Command::Read, 0, 0, 512);
    assert_eq!(simple.simple(), 0);
    assert_eq!(simple.take(512), [0; 512]);
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    let export =
        MemoryExport::with_abilities(SIZE, Abilities { trim: true, write_zeroes: true, ..Abilities::READ_ONLY });
    let server = server_of(std::sync::Arc::new(export), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
        send(&mut raw, (command, 0, 0, 512, 0));
        assert_eq!(raw.simple(), EPERM, "{command:?}");
    }
    raw.request(Command::Flush, 0, 0, 0);
    assert_eq!(raw.simple(), 0);
    raw.request(Command::Read, 0, 0, 512);
    assert_eq!(raw.simple(), 0);
    assert_eq!(raw.take(512), [0; 512]);
}

#[test]
fn commands_that_were_not_offered_are_refused() {
    let none = Abilities { read_only: false, flush: false, ..Abilities::READ_ONLY };
    let server = server_of(std::sync::Arc::new(MemoryExport::with_abilities(SIZE, none)), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    for command in [Command::Flush, Command::Trim, Command::WriteZeroes, Command::Cache] {
        raw.request(command, 0, 0, 0);
        assert_eq!(raw.simple(), EINVAL, "{command:?}");
    }
    raw.request(Command::Read, flag::FUA, 0, 512);
    assert_eq!(raw.simple(), EINVAL, "FUA was not offered");
}

#[test]
fn empty_requests_succeed_and_change_nothing() {
    let server = server_of(Gated::new(), Limits::default());
    let (mut simple, mut structured) = (Raw::transmitting(&server, false), Raw::transmitting(&server, true));
    for command in [Command::Read, Command::Write, Command::Trim, Command::WriteZeroes, Command::Cache] {
        simple.request(command, 0, SIZE, 0);
        assert_eq!(simple.simple(), 0, "{command:?}");
        structured.request(command, 0, SIZE, 0);
        assert_eq!(structured.chunk(), (1, 0, vec![]), "{command:?}");
    }
}

#[test]
fn fua_is_allowed_on_every_command_and_reaches_the_export() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::Write, flag::FUA, 8, 4);
    raw.send(b"abcd");
    assert_eq!(raw.chunk(), (1, 0, vec![]));
    raw.request(Command::Write, 0, 16, 1);
    raw.send(b"e");
    assert_eq!(raw.chunk(), (1, 0, vec![]));
    raw.request(Command::WriteZeroes, flag::FUA | flag::NO_HOLE | flag::FAST_ZERO, 9, 2);
    assert_eq!(raw.chunk(), (1, 0, vec![]));
    raw.request(Command::Read, flag::FUA, 8, 4);
    assert_eq!(raw.chunk(), (1, 1, [&8_u64.to_be_bytes()[..], b"a\0\0d"].concat()));
    for command in [Command::Trim, Command::Cache] {
        raw.request(command, flag::FUA, 8, 4);
        assert_eq!(raw.chunk(), (1, 0, vec![]));
    }
    raw.request(Command::Flush, flag::FUA, 0, 0);
    assert_eq!(raw.chunk(), (1, 0, vec![]));
    let gate = export.gate.lock();
    assert_eq!(gate.writes, [(8, 4, true), (16, 1, false)]);
    assert_eq!(gate.zeroings, [Zeroing { no_hole: true, fast: true, fua: true }]);
    assert_eq!(gate.flushes, 1);
}

#[test]
fn zeroes_fail_as_unsupported_only_where_they_had_to_be_fast() {
    let server = server_of(Gated::new(), Limits::default());
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::WriteZeroes, flag::FAST_ZERO, 0, 4);
    assert_eq!(raw.error(), ENOTSUP);
    raw.request(Command::WriteZeroes, 0, 0, 4);
    assert_eq!(raw.error(), EIO);
}

#[test]
fn holes_are_sent_as_holes_unless_the_client_wants_one_piece() {
    let export = MemoryExport::new(SIZE);
    export.write(64 << 10, &[7; 64 << 10], false).unwrap();
    let server = server_of(std::sync::Arc::new(export), Limits::default());
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::Read, 0, 1, 256 << 10);
    let hole = |offset: u64, length: u32| [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat();
    assert_eq!(raw.chunk(), (0, 2, hole(1, (64 << 10) - 1)));
    let data = [&(64_u64 << 10).to_be_bytes()[..], &[7; 64 << 10]].concat();
    assert_eq!(raw.chunk(), (0, 1, data));
    assert_eq!(raw.chunk(), (1, 2, hole(128 << 10, (128 << 10) + 1)));
    raw.request(Command::Read, flag::DF, 0, 128 << 10);
    let (flags, kind, payload) = raw.chunk();
    assert_eq!((flags, kind), (1, 1));
    assert_eq!(payload, [&0_u64.to_be_bytes()[..], &[0; 64 << 10], &[7; 64 << 10]].concat());
}

#[test]
fn block_status_has_one_chunk_a_context_and_stays_in_the_range() {
    let server = server_of(Gated::new(), Limits::default());
    let mut raw = Raw::new(&server, 3);
    use larder_nbd::codec::option::{ClientOption, Queries, Wish};
    raw.ask(&ClientOption::StructuredReply);
    let queries = vec!["test:even".to_owned(), "test:odd".to_owned()];
    raw.ask(&ClientOption::SetContexts(Queries { name: "disk".into(), queries }));
    raw.ask(&ClientOption::Go(Wish { name: "disk".into(), infos: vec![] }));
    for flags in [0, flag::REQ_ONE] {
        raw.request(Command::BlockStatus, flags, 512, 1001);
        let status = |id: u32, flags: u32| [id, 1001, flags].map(u32::to_be_bytes).concat();
        assert_eq!(raw.chunk(), (0, 5, status(1, 0)));
        assert_eq!(raw.chunk(), (1, 5, status(2, 1)));
    }
}

#[test]
fn req_one_gives_one_extent() {
    let export = MemoryExport::new(SIZE);
    export.write(64 << 10, &[7], false).unwrap();
    let server = server_of(std::sync::Arc::new(export), Limits::default());
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::BlockStatus, flag::REQ_ONE, 0, SIZE as u32);
    assert_eq!(raw.chunk().2, [1, 64 << 10, 3_u32].map(u32::to_be_bytes).concat());
    raw.request(Command::BlockStatus, 0, 0, SIZE as u32);
    let rest = SIZE as u32 - (128 << 10);
    assert_eq!(raw.chunk().2, [1, 64 << 10, 3, 64 << 10, 0, rest, 3].map(u32::to_be_bytes).concat());
}

#[test]
fn an_export_with_many_extents_is_told_in_parts() {
    // Also with less memory than the extents of all contexts might take.
    let limits = Limits { request: 64 << 10, memory: 128 << 10, ..Limits::default() };
    let server = server_of(Gated::new(), limits);
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::BlockStatus, 0, 0, 100_000);
    assert_eq!(raw.chunk().2.len(), 4 + 4096 * 8);
    raw.request(Command::BlockStatus, flag::REQ_ONE, 0, 100_000);
    assert_eq!(raw.chunk().2, [1, 1, 0_u32].map(u32::to_be_bytes).concat());
    use larder_nbd::codec::option::{ClientOption, Queries, Wish};
    let mut raw = Raw::new(&server, 3);
    raw.ask(&ClientOption::StructuredReply);
    let queries = ["base:allocation", "test:even", "test:odd"].map(str::to_owned).to_vec();
    raw.ask(&ClientOption::SetContexts(Queries { name: "disk".into(), queries }));
    raw.ask(&ClientOption::Go(Wish { name: "disk".into(), infos: vec![] }));
    raw.request(Command::BlockStatus, 0, 0, 100_000);
    assert_eq!((0..3).map(|_| raw.chunk().2.len()).collect::<Vec<_>>(), [4 + 4096 * 8, 12, 12]);
}

#[test]
fn a_request_that_waits_does_not_hold_up_those_behind_it() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    raw.request(Command::Read, 0, 1, 3);
    export.wait_for(1);
    raw.request(Command::Flush, 0, 0, 0);
    assert_eq!(raw.take(16)[4..8], [0; 4], "the flush is answered");
    raw.request(Command::Read, 0, 0, 0);
    raw.take(16);
    export.open();
    assert_eq!(raw.take(16 + 3).len(), 19);
}

#[test]
fn a_panic_of_an_export_fails_one_request() {
    let server = server_of(Gated::new(), Limits::default());
    let mut raw = Raw::transmitting(&server, true);
    raw.request(Command::Read, 0, 666, 2);
    assert_eq!(raw.error(), EIO);
    raw.request(Command::Read, 0, 4, 2);
    assert_eq!(raw.chunk().1, 1);
}

#[test]
fn disconnect_finishes_what_was_asked_before() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    raw.request(Command::Read, 0, 1, 3);
    raw.request(Command::Disconnect, 0, 0, 0);
    export.wait_for(1);
    export.open();
    assert_eq!(raw.simple(), 0);
    assert_eq!(raw.rest(), [0; 3]);
}

#[test]
fn a_request_in_pieces_is_one_request() {
    let server = server();
    let mut raw = Raw::transmitting(&server, false);
    let request = larder_nbd::codec::request::Request {
        flags: 0,
        command: Command::Write,
        handle: 77,
        offset: 5,
        length: 40_000,
    };
    for piece in [&request.encode()[..], &[9; 40_000]].concat().chunks(999) {
        raw.send(piece);
    }
    assert_eq!(raw.simple(), 0);
    raw.request(Command::Read, 0, 4, 40_002);
    assert_eq!(raw.simple(), 0);
    assert_eq!(raw.take(40_002), [&[0][..], &[9; 40_000], &[0]].concat());
}
