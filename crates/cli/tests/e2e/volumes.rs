//! `larder volume`: stores, servers, crashes of the server.

use larder_testkit::data;
use rustix::process::Signal;

use crate::support::volume_server::Server;
use crate::support::{Play, schema};

const MIB: u64 = 1 << 20;

fn with_store(size: &str) -> Play {
    let play = Play::new();
    let made = play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf", "--json"]).ok();
    schema::check("volume_initialized", &made.json());
    let made = play.larder(["volume", "create", "store/disk", size, "--json"]).ok();
    schema::check("volume_created", &made.json());
    play
}

#[test]
fn what_was_flushed_survives_a_kill() {
    let play = with_store("64MiB");
    let content = data::random(1, 3 * MIB as usize);
    let server = Server::start(&play, &[]);
    assert_eq!(server.serving["exports"][0]["name"], "disk");
    assert_eq!(server.serving["commits_replayed"], 0);
    let client = server.client("disk");
    assert_eq!(client.size(), 64 * MIB);
    client.write(5000, &content, false).expect("written");
    assert_eq!(client.read(5000, content.len() as u32).expect("read"), content);
    client.flush().expect("flushed");
    client.write(40 * MIB, &content[..4096], true).expect("written");
    assert_eq!(server.signal(Signal::KILL), None);
    drop(client);
    let server = Server::start(&play, &[]);
    assert!(server.serving["commits_replayed"].as_u64() >= Some(1), "{}", server.serving);
    let client = server.client("disk");
    assert_eq!(client.read(5000, content.len() as u32).expect("read"), content);
    assert_eq!(client.read(40 * MIB, 4096).expect("read"), content[..4096]);
    client.trim(0, 8 * MIB as u32).expect("trimmed");
    assert_eq!(client.read(5000, 100).expect("read"), [0; 100]);
    client.write(0, b"the end", false).expect("written");
    drop(client);
    // Without a flush: a signal makes it durable.
    assert_eq!(server.signal(Signal::TERM), Some(0));
    let server = Server::start(&play, &[]);
    assert_eq!(server.serving["commits_replayed"], 0);
    assert_eq!(server.client("disk").read(0, 7).expect("read"), b"the end");
    assert_eq!(server.signal(Signal::INT), Some(0));
    let checked = play.larder(["volume", "check", "store", "--read-data", "--json"]).ok();
    schema::check("volume_check", &checked.json());
    assert_eq!(checked.json()["errors"], 0);
}

#[test]
fn a_server_killed_again_and_again_loses_nothing_flushed() {
    const BLOCK: usize = 64 << 10;
    let play = with_store("16MiB");
    // What each block may hold: its last flushed content, or one written since.
    let mut blocks: Vec<Vec<Vec<u8>>> = vec![vec![vec![0; BLOCK]]; 32];
    for round in 0..6u64 {
        let server = Server::start(&play, &[]);
        if round == 3 {
            // Killed before it was used: right after it recovered.
            assert_eq!(server.signal(Signal::KILL), None);
            continue;
        }
        let client = server.client("disk");
        for (number, values) in blocks.iter_mut().enumerate() {
            let found = client.read((number * BLOCK) as u64, BLOCK as u32).expect("read");
            assert!(values.contains(&found), "round {round}, block {number}");
            *values = vec![found];
        }
        for step in 0..40 {
            let pick = (data::random(round * 100 + step, 1)[0] % 32) as usize;
            let content = data::random(round * 1000 + step % 9, BLOCK);
            client.write((pick * BLOCK) as u64, &content, false).expect("written");
            blocks[pick].push(content);
            if step % 11 == 5 {
                client.flush().expect("flushed");
                blocks.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
            }
        }
        assert_eq!(server.signal(Signal::KILL), None);
    }
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    let play = with_store("1MiB");
    play.larder(["volume", "create", "store/disk", "1MiB"]).code(2).says("exists already").in_two_lines();
    play.larder(["volume", "create", "store/.x", "1MiB"]).code(2).in_two_lines();
    play.larder(["volume", "create", "store", "1MiB"]).code(2).says("STORE/NAME").in_two_lines();
    play.larder(["volume", "create", "store/b", "100"]).code(2).says("multiples of 512").in_two_lines();
    play.larder(["volume", "init", "store"]).code(2).says("not an empty folder").in_two_lines();
    play.larder(["volume", "init", "other", "--log", "1MiB"]).code(2).in_two_lines();
    play.larder(["volume", "check", "nowhere"]).code(10).says("no volume store").in_two_lines();
    play.larder(["volume", "list", "nowhere"]).code(10).in_two_lines();
    play.larder(["volume", "serve", "store", "--nbd", "0.0.0.0:0"]).code(2).says("--tls").in_two_lines();
    let mut wrong = play.command(["volume", "check", "store"]);
    crate::support::run(wrong.env("LARDER_PASSWORD", "wrong")).code(12).says("opens no key").in_two_lines();
    let server = Server::start(&play, &[]);
    play.larder(["volume", "serve", "store"]).code(11).says("in use").in_two_lines();
    let listed = play.larder(["volume", "list", "store", "--json"]).ok();
    schema::check("volume_list", &listed.json());
    assert_eq!(listed.json()[0]["size"], MIB);
    let client = server.client("disk");
    client.write(0, &data::random(1, 1 << 16), true).expect("written");
    assert_eq!(server.signal(Signal::TERM), Some(0));
    assert!(play.larder(["volume", "list", "store"]).ok().text().contains("disk"));
    // A flipped byte of the only container: its blocks are named, and the exit code is that of damage.
    let path = play.path("store/containers/0/0");
    let mut bytes = std::fs::read(&path).expect("it exists");
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).expect("it is written");
    play.larder(["volume", "check", "store"]).ok();
    play.larder(["volume", "check", "store", "--read-data"]).code(13).says("volume disk, blocks 0 to 0");
}
