//! `larder volume serve` over TLS, with the clients of libnbd.

use std::path::Path;
use std::process::{Command, Output};

use larder_testkit::data;
use rustix::process::Signal;

use crate::support::Play;
use crate::support::volume_server::Server;

/// Folders with the certificates of an authority, for a server and its clients.
const MAKE: &str = r#"
set -e
mkdir -p "$1" && cd "$1"
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -days 2 -subj "/CN=$(basename "$1")"
for side in server client; do
    openssl req -newkey rsa:2048 -nodes -keyout $side-key.pem -out $side.csr -subj /CN=localhost
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names
    openssl x509 -req -in $side.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -out $side-cert.pem -days 2 -extfile names
done
"#;

pub(crate) fn certificates(folder: &Path) {
    let mut command = Command::new("sh");
    let made = command.args(["-c", MAKE, "sh"]).arg(folder).output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn clients_of_other_machines_need_a_certificate() {
    if !["openssl", "nbdinfo", "nbdcopy"].into_iter().all(|program| {
        // openssl knows another word for it.
        program == "openssl" && Command::new(program).arg("version").output().is_ok() || has(program)
    }) {
        return;
    }
    let play = Play::new();
    play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf"]).ok();
    play.larder(["volume", "create", "store/disk", "3MiB"]).ok();
    let (ours, theirs) = (play.path("ours"), play.path("theirs"));
    certificates(&ours);
    certificates(&theirs);
    let server = Server::start_tls(&play, &ours);
    let uri = server.serving["exports"][0]["uri"].as_str().expect("a URI").to_owned();
    assert!(uri.starts_with("nbds://127.0.0.1:") && uri.ends_with("/disk"), "{uri}");
    let with = |folder: &Path| format!("{uri}?tls-certificates={}", folder.display());
    let run =
        |program: &str, words: &[&str]| -> Output { Command::new(program).args(words).output().expect("it runs") };
    let image = play.write("image", data::random(1, 3 << 20));
    let (image, back) = (image.to_str().expect("text"), play.path("back"));
    let info = run("nbdinfo", &["--size", &with(&ours)]);
    assert_eq!(String::from_utf8_lossy(&info.stdout).trim(), "3145728", "{info:?}");
    let copied = run("nbdcopy", &["--flush", image, &with(&ours)]);
    assert!(copied.status.success(), "{copied:?}");
    let copied = run("nbdcopy", &[&with(&ours), back.to_str().expect("text")]);
    assert!(copied.status.success() && std::fs::read(&back).expect("read") == std::fs::read(image).expect("read"));
    // Clients of another authority, one that also trusts ours, one without a certificate, and one
    // without TLS.
    let mixed = play.path("mixed");
    std::fs::create_dir(&mixed).expect("a folder");
    for (name, from) in [("ca-cert.pem", &ours), ("client-cert.pem", &theirs), ("client-key.pem", &theirs)] {
        std::fs::copy(from.join(name), mixed.join(name)).expect("copied");
    }
    let alone = play.path("alone");
    std::fs::create_dir(&alone).expect("a folder");
    std::fs::copy(ours.join("ca-cert.pem"), alone.join("ca-cert.pem")).expect("copied");
    let plain = uri.replace("nbds://", "nbd://");
    for refused in [with(&theirs), with(&mixed), with(&alone), plain] {
        let output = run("nbdinfo", &["--size", &refused]);
        assert!(!output.status.success(), "{refused}: {output:?}");
    }
    // None of them hurt it.
    assert!(run("nbdinfo", &["--size", &with(&ours)]).status.success());
    assert_eq!(server.signal(Signal::TERM), Some(0));
    // A folder without certificates: said before anything is served.
    let bad = play.path("alone");
    let bad = bad.to_str().expect("text");
    play.larder(["volume", "serve", "store", "--nbd", "127.0.0.1:0", "--tls", bad])
        .code(1)
        .says("server-cert.pem")
        .in_two_lines();
}
