//! Fleet batches with a NATS server: a real one, which is killed, stopped, loses everything, or refuses. Without one in the path, the
//! tests pass and say so; the gate installs one. Every wait has a limit.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use larder_testkit::data;
use serde_json::Value;

use crate::fleet::{KIB, dumped, signal, until};
use crate::support::{Play, Ran, schema};
use crate::volume_tls::certificates;

/// No process of these tests takes this long.
const LIMIT: Duration = Duration::from_secs(120);

/// A server on a free port of this machine, with its files in a folder of the play.
pub(crate) struct Server {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// `None`: there is no such program.
    #[expect(clippy::print_stderr, reason = "a test that tests nothing says so")]
    pub(crate) fn start(play: &Play, options: &[&str]) -> Option<Self> {
        let cached = std::env::home_dir().map(|home| home.join(".cache/larder-ci/bin/nats-server"));
        let program = [Some(PathBuf::from("nats-server")), cached].into_iter().flatten();
        let found = program.into_iter().find(|program| Command::new(program).arg("--version").output().is_ok());
        let Some(program) = found else {
            eprintln!("skipped: there is no nats-server in the path");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { program, folder: play.path("nats"), port, options, child: None };
        server.run();
        Some(server)
    }

    fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(&self.folder).args(&self.options);
        let log = File::create(self.folder.with_extension("log")).expect("a log");
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts"));
        for _ in 0..1000 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{}", std::fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is killed");
            child.wait().expect("it ends");
        }
    }

    /// It keeps its connections, and answers nothing any more.
    fn stop(&self) {
        signal(self.child.as_ref().expect("it runs"), "-STOP");
    }

    pub(crate) fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Images of two hosts and one that is shared, and what is in them.
fn inventory(play: &Play) -> Vec<Vec<u8>> {
    let common = data::random(1, 400 * KIB);
    let disk = |own: u64| [&common[..], &data::random(own, 80 * KIB)].concat();
    let disks: Vec<_> = (2..6).map(disk).collect();
    for (number, bytes) in disks.iter().enumerate() {
        play.write(format!("web-{number}.raw"), bytes);
    }
    play.write(
        "images.toml",
        "[[image]]\nsource = \"web-[01].raw\"\nhost = \"a\"\n[[image]]\nsource = \"web-2.raw\"\nhost = \"b\"\n\
         [[image]]\nsource = \"web-3.raw\"\nshared = true\n",
    );
    disks
}

fn start(play: &Play, line: &[&str]) -> Child {
    play.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// A worker for one batch. It logs to a file with its name.
fn work(play: &Play, host: &str, queue: &str, more: &[&str]) -> Child {
    let log = format!("{host}.log");
    let line = ["fleet", "work", "images.toml", "--once", "--host", host, "--queue", queue, "--log-file", &log];
    start(play, &[&line[..], more].concat())
}

/// What a process said. One that does not end is killed, and its exit code is wrong.
fn ended(child: Child) -> Ran {
    let id = child.id().to_string();
    let (over, watched) = channel::<()>();
    let watch = thread::spawn(move || {
        if watched.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            drop(Command::new("kill").args(["-KILL", &id]).status());
        }
    });
    let output = child.wait_with_output().expect("it ends");
    drop(over);
    watch.join().expect("it ends as well");
    Ran::from(output)
}

fn run(play: &Play, line: &[&str]) -> Ran {
    ended(start(play, line))
}

/// All images are saved, byte for byte.
fn are_saved(play: &Play, ran: &Ran, disks: &[Vec<u8>]) {
    let images = ran.messages("fleet_image");
    assert_eq!(images.len(), disks.len(), "{}", ran.stderr);
    for (image, disk) in images.iter().zip(disks) {
        assert!(image.get("snapshot_id").is_some(), "{image}\n{}", ran.stderr);
        assert!(dumped(play, image) == *disk, "{image}");
    }
}

/// How many messages a worker got.
fn given(play: &Play, host: &str) -> usize {
    let log = std::fs::read_to_string(play.path(format!("{host}.log"))).unwrap_or_default();
    log.matches("a message of the NATS server names a task").count()
}

fn snapshots(play: &Play) -> usize {
    play.larder(["snapshots", "--json"]).ok().json().as_array().map_or(0, Vec::len)
}

/// Two rounds, two workers, and messages for their hosts. Nobody is lost, so each task is claimed once.
#[test]
fn a_nats_server_gives_tasks_to_workers() {
    let play = Play::with_repository();
    let Some(server) = Server::start(&play, &["-js"]) else { return };
    let disks = inventory(&play);
    let address = server.address();
    let workers = [work(&play, "a", &address, &["--json"]), work(&play, "b", &address, &["--json"])];
    // Long before the store would be asked, messages come.
    let patience = ["--claim-timeout", "10m", "--rounds", "2", "--no-pass", "--json"];
    let ran = run(&play, &[&["fleet", "run", "images.toml", "--queue", &address][..], &patience].concat()).ok();
    for worker in workers {
        let ran = ended(worker).code(0);
        assert!(!ran.stderr.contains("NATS"), "{}", ran.stderr);
        ran.messages("fleet_work").iter().for_each(|work| schema::check("fleet_work", work));
    }
    are_saved(&play, &ran, &disks);
    assert!(!ran.stderr.contains("NATS"), "{}", ran.stderr);
    let said = play.larder(["fleet", "status", "--json"]).ok().json();
    assert_eq!((&said[0]["retries"], &said[0]["rounds"]), (&0.into(), &2.into()), "{said}");
    assert!(given(&play, "a") > 0 && given(&play, "b") > 0, "{} {}", given(&play, "a"), given(&play, "b"));
    play.larder(["check", "--read-data"]).ok();
}

/// Two batches on one server. Workers have images of one of them, and help with the other.
#[test]
fn two_batches_share_a_nats_server() {
    let play = Play::with_repository();
    let Some(server) = Server::start(&play, &["-js"]) else { return };
    let address = server.address();
    let disks: Vec<_> = (0..2).map(|own| data::random(own + 2, 200 * KIB)).collect();
    for (host, disk) in ["a", "b"].into_iter().zip(&disks) {
        play.write(format!("{host}.raw"), disk);
        play.write(format!("{host}.toml"), format!("[[image]]\nsource = \"{host}.raw\"\nhost = \"{host}\"\n"));
    }
    let plan = |host: &str| {
        let inventory = format!("{host}.toml");
        start(&play, &["fleet", "run", &inventory, "--queue", &address, "--no-pass", "--json"])
    };
    let both = [plan("a"), plan("b")];
    let workers = ["a", "b"].map(|host| {
        let (inventory, log) = (format!("{host}.toml"), format!("{host}.log"));
        start(&play, &["fleet", "work", &inventory, "--host", host, "--queue", &address, "--log-file", &log])
    });
    let both = both.map(|planner| ended(planner).code(0));
    for (ran, disk) in both.iter().zip(&disks) {
        are_saved(&play, ran, std::slice::from_ref(disk));
        assert!(!ran.stderr.contains("NATS"), "{}", ran.stderr);
    }
    for worker in workers {
        signal(&worker, "-TERM");
        let ran = ended(worker);
        assert!(!ran.stderr.contains("NATS"), "{}", ran.stderr);
    }
    assert_eq!(snapshots(&play), 2);
    play.larder(["check", "--read-data"]).ok();
}

/// A worker is killed when it holds the message of its host. The message comes again, to the next worker of this host.
#[test]
fn a_message_of_a_killed_worker_comes_again() {
    let play = Play::with_repository();
    let Some(server) = Server::start(&play, &["-js"]) else { return };
    let address = server.address();
    let disk = data::random(1, 20_000 * KIB);
    play.write("a.raw", &disk);
    play.write("images.toml", "[[image]]\nsource = \"a.raw\"\nhost = \"a\"\n");
    let patience = ["--claim-timeout", "3s", "--task-timeout", "20s", "--no-pass", "--json"];
    let planner = start(&play, &[&["fleet", "run", "images.toml", "--queue", &address][..], &patience].concat());
    let mut killed = work(&play, "a", &address, &[]);
    until(&play, "/claim/send/0/0/0");
    signal(&killed, "-KILL");
    killed.wait().expect("it ends");
    let is_scanned = play.objects().iter().any(|(name, _)| name.contains("/done/send/"));
    std::fs::remove_file(play.path("a.log")).expect("its log");
    let next = work(&play, "a", &address, &["--json"]);
    let ran = ended(planner);
    let next = ended(next);
    assert!(!next.stderr.contains("NATS") && !ran.stderr.contains("NATS"), "{}\n{}", next.stderr, ran.stderr);
    let images = ran.messages("fleet_image");
    match images[0]["error"].as_str() {
        None => assert!(dumped(&play, &images[0]) == disk),
        Some(why) => assert!(is_scanned && why.contains("no sign of life"), "{why}"),
    }
    // It is there from a half of the time for claims on, and asked for before the store is.
    assert!(is_scanned || given(&play, "a") > 0, "the message came again");
    play.larder(["check", "--read-data"]).ok();
}

/// The server is killed while an image is scanned, and comes back, with its files or without. A worker is killed as well. Each image
/// that is named as saved restores, and a retry saves the others.
fn outlives_its_server_and_a_worker(keeps_files: bool) {
    let play = Play::with_repository();
    let Some(mut server) = Server::start(&play, &["-js"]) else { return };
    let disks = inventory(&play);
    let address = server.address();
    let patience = ["--claim-timeout", "2s", "--task-timeout", "20s", "--no-pass", "--json"];
    let planner = start(&play, &[&["fleet", "run", "images.toml", "--queue", &address][..], &patience].concat());
    let mut killed = work(&play, "b", &address, &[]);
    until(&play, "/claim/send/0/1/0");
    signal(&killed, "-KILL");
    killed.wait().expect("it ends");
    server.kill();
    if !keeps_files {
        std::fs::remove_dir_all(&server.folder).expect("its files go");
    }
    // It refuses to begin without its server: the person who starts it should know.
    let refused = ended(work(&play, "a", &address, &[]));
    assert!(refused.code != 0 && refused.stderr.contains("cannot reach the NATS server"), "{}", refused.stderr);
    server.run();
    let workers = [work(&play, "a", &address, &[]), work(&play, "b", &address, &[])];
    let ran = ended(planner);
    workers.into_iter().for_each(|worker| drop(ended(worker)));
    let images = ran.messages("fleet_image");
    let mut lost = 0;
    for (image, disk) in images.iter().zip(&disks) {
        match image["error"].as_str() {
            None => assert!(dumped(&play, image) == *disk, "{image}"),
            Some(why) => {
                assert!(why.contains("no sign of life for"), "{why}");
                lost += 1;
            }
        }
    }
    if lost > 0 {
        let batch = ran.messages("fleet_summary")[0]["batch"].as_str().expect("an id").to_owned();
        let workers = [work(&play, "a", &address, &[]), work(&play, "b", &address, &[])];
        run(&play, &[&["fleet", "retry", &batch, "--queue", &address][..], &patience].concat()).code(0);
        workers.into_iter().for_each(|worker| drop(ended(worker)));
    }
    assert_eq!(snapshots(&play), disks.len());
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn a_batch_outlives_its_nats_server_and_a_worker() {
    outlives_its_server_and_a_worker(false);
}

/// Its stream has messages of tasks that were decided meanwhile, and those that the killed worker held.
#[test]
fn a_batch_outlives_its_nats_server_that_keeps_its_files_and_a_worker() {
    outlives_its_server_and_a_worker(true);
}

/// The server is of no use any more when a worker has its tasks: the repository has all that is needed. Returns how often this was said.
fn ends_without_its_server(lose: impl FnOnce(&mut Server)) -> Option<usize> {
    let play = Play::with_repository();
    let mut server = Server::start(&play, &["-js"])?;
    let disks = inventory(&play);
    let address = server.address();
    let planner = start(
        &play,
        &["fleet", "run", "images.toml", "--queue", &address, "--claim-timeout", "2s", "--no-pass", "--json"],
    );
    let one = work(&play, "a", &address, &[]);
    until(&play, "/claim/send/0/0/0");
    lose(&mut server);
    let other = work(&play, "b", "store", &[]);
    let ran = ended(planner).code(0);
    are_saved(&play, &ran, &disks);
    let said: Vec<Value> = ran.errors("warning");
    let of_server = |said: &&Value| said["message"].as_str().is_some_and(|text| text.contains(&server.address()));
    let of_server: Vec<_> = said.iter().filter(of_server).collect();
    let is_understood =
        |said: &&Value| said["message"].as_str().is_some_and(|text| text.contains("goes on through the repository"));
    assert!(of_server.iter().copied().all(|said| is_understood(&said)), "{said:?}");
    for worker in [one, other] {
        ended(worker).code(0);
    }
    Some(of_server.len())
}

#[test]
fn a_batch_ends_without_its_nats_server() {
    if let Some(said) = ends_without_its_server(Server::kill) {
        assert_eq!(said, 1, "it is said once");
    }
}

/// A connection that is open and silent, as behind a link that is cut. The batch may end before a request has waited long enough.
#[test]
fn a_batch_ends_with_a_nats_server_that_is_silent() {
    if let Some(said) = ends_without_its_server(|server| server.stop()) {
        assert!(said <= 1, "{said} times");
    }
}

#[test]
fn servers_that_are_of_no_use_say_why() {
    let play = Play::with_repository();
    let Some(mut server) = Server::start(&play, &[]) else { return };
    inventory(&play);
    let with = |options: &[&str]| {
        let line = ["fleet", "run", "images.toml", "--no-pass", "--claim-timeout", "1s", "--task-timeout", "1s"];
        run(&play, &[&line[..], options].concat())
    };
    let address = server.address();
    with(&["--queue", &address]).says("has no JetStream").says("-js").code(1);
    server.kill();
    with(&["--queue", &address]).says("cannot reach the NATS server").says("--queue store").says(&address).code(1);
    ended(work(&play, "a", "store", &["--metrics", "nowhere"])).code(2).says("--metrics takes HOST:PORT");
    with(&["--queue", "http://host"]).code(2).says("nats://HOST:PORT");
    with(&["--queue", "store", "--nats-credentials", "x"]).code(2).says("--queue nats://");
    ended(work(&play, "a", "memory", &[])).code(2).says("nats://HOST:PORT");
    assert!(play.larder(["fleet", "status"]).ok().text().contains("no batch"), "nothing was begun");

    // A user with the rights that the guide names, by password or key; one who may not use JetStream; one who may not offer tasks; and strangers.
    play.write(
        "nats.conf",
        "jetstream: {}\nauthorization { users = [\n  { user: full, password: right, permissions: { publish: [\"larder.>\", \"$JS.API.>\", \"$JS.ACK.>\"], subscribe: \
         [\"larder.>\", \"_INBOX.>\"] } }\n  { nkey: \
         UBBW674NK5BOT3K4KJWBYX6AFSKVWAY2REGPL4GY34HL5QZ2BTTYTX2N }\n  { user: poor, password: right, permissions: { publish: \
         [\"other.>\"], subscribe: [\"_INBOX.>\"] } }\n  { user: idle, password: right, permissions: { publish: { deny: \
         [\"larder.>\"] } } }\n] }\n",
    );
    server.options = vec!["-c".to_owned(), play.path("nats.conf").display().to_string()];
    server.run();
    let secret = |name: &str, text: &str, mode: &str| {
        play.write(name, text);
        assert!(Command::new("chmod").arg(mode).arg(play.path(name)).status().expect("chmod runs").success());
        name.to_owned()
    };
    let as_user = |name: String| with(&["--queue", &address, "--nats-credentials", &name]);
    with(&["--queue", &address]).says("does not accept these credentials").code(1);
    as_user(secret("wrong", "full:wrong\n", "600")).says("does not accept these credentials").code(1);
    as_user(secret("open", "full:right\n", "644")).says("can be read by others").code(2);
    as_user(secret("poor", "poor:right\n", "600")).says("refuses: ").says("Permissions Violation").code(1);
    assert!(play.larder(["fleet", "status"]).ok().text().contains("no batch"), "nothing was begun");
    // Nobody reads the images of other hosts.
    let seed = "SUAJG4MUBX5DYI6E73JQJ76J76U6Y4GSQXYSN34RASGPJVOVKYMASKF4EI\n";
    for (name, text) in [("full", "full:right\n"), ("seed", seed)] {
        let ran = as_user(secret(name, text, "600")).says("no worker for host a").code(3);
        assert!(!ran.stderr.contains("NATS"), "these rights suffice: {}", ran.stderr);
    }
    let idle = as_user(secret("idle", "idle:right\n", "600")).says("no worker for host a").code(3);
    idle.says("goes on through the repository").says("Permissions Violation");
}

/// Workers that are to be small, in a program without optimisations. What others wrote is read in pieces: here is more than one has.
#[test]
fn small_workers_save_the_same() {
    let play = Play::with_repository();
    let common = data::random(1, 14_000 * KIB);
    let disks = [2, 3].map(|own| [&common[..], &data::random(own, 12_000 * KIB)].concat());
    let mut inventory = String::new();
    for (host, disk) in ["a", "b"].into_iter().zip(&disks) {
        play.write(format!("{host}.raw"), disk);
        inventory += &format!("[[image]]\nsource = \"{host}.raw\"\nhost = \"{host}\"\n");
    }
    play.write("images.toml", inventory);
    let workers = ["a", "b"].map(|host| work(&play, host, "store", &["--total-memory", "35M", "--json"]));
    let ran = run(&play, &["fleet", "run", "images.toml", "--queue", "store", "--no-pass", "--json"]).ok();
    are_saved(&play, &ran, &disks);
    for worker in workers {
        let peak = ended(worker).code(0).messages("fleet_work")[0]["memory_bytes"].as_u64().expect("a number");
        assert!(peak < 64 << 20, "{peak}");
    }
    play.larder(["check", "--read-data"]).ok();
}

/// A server may name others, as those of a cluster do. None of them gets what was meant for it: that may be a password.
#[test]
fn servers_that_a_server_names_are_not_asked() {
    let play = Play::with_repository();
    inventory(&play);
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (given, named) = (listen(), listen());
    let port = |of: &TcpListener| of.local_addr().expect("an address").port();
    let address = format!("nats://127.0.0.1:{}", port(&given));
    let info = format!(
        "INFO {{\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"host\":\"127.0.0.1\",\"port\":{},\
         \"max_payload\":1048576,\"headers\":true,\"connect_urls\":[\"127.0.0.1:{}\"]}}\r\n",
        port(&given),
        port(&named),
    );
    // It greets, and goes away for good.
    given.set_nonblocking(true).expect("it is ours");
    let greets = thread::spawn(move || {
        let comes = (0..LIMIT.as_secs() * 20).find_map(|_| {
            thread::sleep(Duration::from_millis(50));
            given.accept().ok()
        });
        let (mut client, _) = comes.expect("a client comes");
        client.set_read_timeout(Some(LIMIT))?;
        client.write_all(info.as_bytes())?;
        let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
        while !said.ends_with(b"PING\r\n") {
            match client.read(&mut bytes)? {
                0 => break,
                count => said.extend_from_slice(&bytes[..count]),
            }
        }
        client.write_all(b"PONG\r\n")?;
        Ok::<_, std::io::Error>(said)
    });
    named.set_nonblocking(true).expect("it is ours");
    play.write("secret", "user:password\n");
    assert!(Command::new("chmod").arg("600").arg(play.path("secret")).status().expect("chmod runs").success());
    let line = ["fleet", "run", "images.toml", "--no-pass", "--queue", &address, "--nats-credentials", "secret"];
    run(&play, &line).code(1).says("the NATS server");
    let said = greets.join().expect("it ends").expect("a client came");
    assert!(String::from_utf8_lossy(&said).contains("\"password\""), "it was greeted, and said who it is");
    assert!(named.accept().is_err(), "nobody asks the other one");
}

/// With TLS, and an authority of its own.
#[test]
fn a_nats_server_behind_tls_needs_its_authority() {
    let play = Play::with_repository();
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    certificates(&play.path("ours"));
    let (cert, key) = (play.path("ours/server-cert.pem"), play.path("ours/server-key.pem"));
    let tls = ["-js", "--tls", "--tlscert", cert.to_str().expect("text"), "--tlskey", key.to_str().expect("text")];
    let Some(server) = Server::start(&play, &tls) else { return };
    let disk = data::random(1, 100 * KIB);
    play.write("a.raw", &disk);
    play.write("images.toml", "[[image]]\nsource = \"a.raw\"\n");
    let address = format!("tls://localhost:{}", server.port);
    let with = |more: &[&str]| {
        run(&play, &[&["fleet", "run", "images.toml", "--no-pass", "--json", "--queue", &address][..], more].concat())
    };
    with(&[]).says("cannot reach the NATS server").says("certificate").code(1);
    with(&["--nats-cacert", "missing.pem"]).says("cannot use the NATS authorities in missing.pem").code(1);
    are_saved(&play, &with(&["--nats-cacert", "ours/ca-cert.pem"]).ok(), &[disk]);
}

/// A worker without a batch looks at the repository now and then only. The news of a batch wake it before its hosts are lost.
#[test]
fn a_worker_without_a_batch_is_woken_by_the_next_one() {
    let play = Play::with_repository();
    let Some(server) = Server::start(&play, &["-js"]) else { return };
    let address = server.address();
    let disk = data::random(1, 100 * KIB);
    play.write("a.raw", &disk);
    play.write("images.toml", "[[image]]\nsource = \"a.raw\"\nhost = \"a\"\n");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let metrics = format!("127.0.0.1:{port}");
    let worker = work(&play, "a", &address, &["--metrics", &metrics]);
    // It has looked once, and waits.
    let has_looked = || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        let mut text = String::new();
        let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        asked.and_then(|()| stream.read_to_string(&mut text)).expect("it answers");
        text.lines().any(|line| {
            let lists = line.strip_prefix("larder_fleet_worker_requests_total{kind=\"list\"} ");
            lists.and_then(|count| count.parse::<f64>().ok()).is_some_and(|count| count > 0.0)
        })
    };
    (0..2000)
        .find(|_| {
            has_looked() || {
                thread::sleep(Duration::from_millis(10));
                false
            }
        })
        .expect("it looks");
    let patience = ["--claim-timeout", "1s", "--task-timeout", "7s", "--no-pass", "--json"];
    let ran = run(&play, &[&["fleet", "run", "images.toml", "--queue", &address][..], &patience].concat()).code(0);
    are_saved(&play, &ran, &[disk]);
    ended(worker).code(0);
}
