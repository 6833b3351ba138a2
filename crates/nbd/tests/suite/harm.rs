//! Clients that harm, and those beside them that must not notice.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use larder_nbd::client::{Client, Options};
use larder_nbd::codec::request::Command;
use larder_nbd::{Limits, Server};

use crate::support::{Gated, Raw, SIZE, connect, server, server_of};

fn client(server: &Server) -> Client {
    let options = Options { export: "disk".into(), ..Options::default() };
    Client::over_unix(connect(server), &options).unwrap()
}

#[test]
fn garbage_ends_its_own_session_only() {
    let server = server();
    let well = client(&server);
    let ticket = well.submit_read(0, 4096).unwrap();
    let mut raw = Raw::transmitting(&server, true);
    raw.send(&[0xff; 28]);
    assert_eq!(raw.rest(), []);
    well.wait(ticket).unwrap();
    well.write(0, b"alive", false).unwrap();
    assert_eq!(well.read(0, 5).unwrap(), b"alive");
}

#[test]
fn a_write_of_which_a_part_came_is_not_done() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    raw.request(Command::Write, 0, 0, 100_000);
    raw.send(&[1; 99_999]);
    raw.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.rest(), []);
    server.shutdown().unwrap();
    assert_eq!(export.gate.lock().writes, []);
}

#[test]
fn a_client_that_dies_in_the_middle_is_forgotten() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let mut raw = Raw::transmitting(&server, false);
    for _ in 0..5 {
        raw.request(Command::Read, 0, 1, 64 << 10);
    }
    export.wait_for(5);
    drop(raw);
    export.open();
    client(&server).read(0, 512).unwrap();
    // It waits for all connections: a leaked one would stop it.
    server.shutdown().unwrap();
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_write_too_long_to_be_skipped_ends_the_session() {
    let server = server();
    let mut raw = Raw::transmitting(&server, false);
    raw.request(Command::Write, 0, 0, (64 << 20) + 1);
    assert_eq!(raw.rest(), []);
}

fn small() -> Limits {
    Limits {
        request: 64 << 10,
        memory: 256 << 10,
        stalled: Duration::from_secs(3600),
        stalled_under_pressure: Duration::from_millis(100),
        ..Limits::default()
    }
}

#[test]
fn clients_that_stop_reading_harm_nobody() {
    let server = server_of(Gated::new(), small());
    let stopped: Vec<_> = (0..16)
        .map(|_| {
            let mut raw = Raw::transmitting(&server, false);
            // More than the socket takes: the server has memory for none of the later ones.
            (0..40).for_each(|_| raw.request(Command::Read, 0, 0, 60 << 10));
            raw
        })
        .collect();
    let well = client(&server);
    for round in 0..20 {
        well.write(2 * round, &[round as u8; 60 << 10], false).unwrap();
        assert_eq!(well.read(2 * round, 60 << 10).unwrap(), [round as u8; 60 << 10]);
    }
    drop(stopped);
}

#[test]
fn a_client_that_sends_half_a_write_gives_its_memory_back() {
    let server = server_of(Gated::new(), small());
    let mut stopped: Vec<_> = (0..16).map(|_| Raw::transmitting(&server, false)).collect();
    for raw in &mut stopped {
        raw.request(Command::Write, 0, 0, 60 << 10);
        raw.send(b"half");
    }
    let well = client(&server);
    for _ in 0..20 {
        well.read(0, 60 << 10).unwrap();
    }
}

#[test]
fn a_client_that_sends_byte_by_byte_gives_its_memory_back() {
    let server = server_of(Gated::new(), small());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let mut raw = Raw::transmitting(&server, false);
            raw.request(Command::Write, 0, 0, 60 << 10);
            // Until the server closes the connection.
            scope.spawn(move || {
                while raw.0.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let well = client(&server);
        for _ in 0..20 {
            well.read(0, 60 << 10).unwrap();
        }
        // Those that still hold memory end now.
        server.shutdown().unwrap();
    });
}

#[test]
fn a_client_that_takes_no_replies_cannot_send_requests_without_end() {
    let limits = Limits { stalled: Duration::from_secs(3600), ..Limits::default() };
    let server = server_of(Gated::new(), limits);
    let mut raw = Raw::transmitting(&server, true);
    // A reply that the socket does not take, from another thread than the one that reads.
    raw.request(Command::Read, 0, 0, 1 << 20);
    raw.take(20);
    raw.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let refused =
        larder_nbd::codec::request::Request { flags: 1 << 15, command: Command::Read, handle: 1, offset: 0, length: 1 };
    let many = refused.encode().repeat(1000);
    let sent = (0..1000).take_while(|_| raw.0.write_all(&many).is_ok()).count();
    assert!(sent < 1000, "the server keeps a reply of every request");
}

#[test]
fn memory_in_flight_is_bounded_over_all_connections() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits { stalled_under_pressure: Duration::from_secs(3600), ..small() });
    let clients: Vec<_> = (0..16).map(|_| client(&server)).collect();
    let tickets: Vec<_> = clients.iter().map(|client| client.submit_read(1, 60 << 10).unwrap()).collect();
    // 4 of 61,952 bytes fit into 262,144.
    export.wait_for(4);
    let small = client(&server);
    drop(small);
    export.open();
    for (client, ticket) in clients.iter().zip(tickets) {
        assert_eq!(client.wait(ticket).unwrap(), [0; 60 << 10]);
    }
    assert_eq!(export.gate.lock().most_bytes, 4 * (60 << 10));
}

#[test]
fn one_connection_has_so_many_requests_in_flight_and_no_more() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits { in_flight: 4, workers: 8, ..Limits::default() });
    let client = client(&server);
    let tickets: Vec<_> = (0..12).map(|_| client.submit_read(1, 512).unwrap()).collect();
    export.wait_for(4);
    // Time for a fifth one, if anything lets it in.
    std::thread::sleep(Duration::from_millis(100));
    export.open();
    for ticket in tickets {
        client.wait(ticket).unwrap();
    }
    assert_eq!(export.gate.lock().most, 4);
}

#[test]
fn without_threads_requests_are_served_nevertheless() {
    let export = Gated::new();
    export.open();
    let server = server_of(export.clone(), Limits { all_workers: 1, ..Limits::default() });
    let clients: Vec<_> = (0..4).map(|_| client(&server)).collect();
    for _ in 0..50 {
        let tickets: Vec<_> = clients.iter().map(|client| client.submit_read(1, 512).unwrap()).collect();
        for (client, ticket) in clients.iter().zip(tickets) {
            client.wait(ticket).unwrap();
        }
    }
}

#[test]
fn further_connections_are_closed() {
    let server = server_of(Gated::new(), Limits { connections: 2, ..Limits::default() });
    let (first, second) = (client(&server), client(&server));
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(server.serve_unix(theirs).is_err());
    assert_eq!(Raw(ours).rest(), []);
    first.read(0, 512).unwrap();
    second.read(0, 512).unwrap();
    drop(first);
    while server.connections() == 2 {
        std::thread::yield_now();
    }
    client(&server).read(0, 512).unwrap();
}

#[test]
fn shutdown_answers_what_was_read_and_flushes_once() {
    let export = Gated::new();
    let server = server_of(export.clone(), Limits::default());
    let (mut raw, idle) = (Raw::transmitting(&server, false), client(&server));
    idle.write(512, b"volatile", false).unwrap();
    raw.request(Command::Read, 0, 1, 3);
    export.wait_for(1);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| server.shutdown());
        // The idle connection is closed while the other one still waits for its answer.
        let closed = loop {
            if let Err(error) = idle.read(0, 512) {
                break error;
            }
        };
        assert!(!closed.to_string().is_empty());
        assert_eq!(export.gate.lock().flushes, 0, "a flush must cover what is in flight");
        export.open();
        assert_eq!(raw.simple(), 0);
        assert_eq!(raw.rest(), [0; 3]);
        ending.join().unwrap().unwrap();
    });
    assert_eq!(export.gate.lock().flushes, 1);
    let (mut late, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(server.serve_unix(theirs).is_err());
    assert!(late.write_all(&[0; 1 << 20]).is_err());
    drop(server);
    assert_eq!(export.gate.lock().flushes, 1);
}

#[test]
fn a_client_that_takes_no_replies_does_not_hold_up_a_shutdown() {
    let server = server_of(Gated::new(), small());
    let mut raw = Raw::transmitting(&server, false);
    (0..40).for_each(|_| raw.request(Command::Read, 0, 0, 60 << 10));
    // The first reply is on its way.
    raw.take(16);
    server.shutdown().unwrap();
}

#[test]
fn writes_from_many_connections_are_all_there() {
    let server = server();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let client = client(&server);
            scope.spawn(move || {
                let tickets: Vec<_> = (0..100)
                    .map(|piece| {
                        let at = (piece * 8 + thread) * 1000;
                        client.submit_write(at, &[thread as u8 + 1; 1000], piece % 7 == 0).unwrap()
                    })
                    .collect();
                tickets.into_iter().for_each(|ticket| drop(client.wait(ticket).unwrap()));
                client.flush().unwrap();
            });
        }
    });
    let client = client(&server);
    for piece in 0..800_u64 {
        let byte = (piece % 8) as u8 + 1;
        assert_eq!(client.read(piece * 1000, 1000).unwrap(), [byte; 1000]);
    }
    assert_eq!(client.size(), SIZE);
}
