//! The transport for SFTP servers, against the one of OpenSSH on pipes. Without that program the tests say so and skip.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_store::conformance::{self, Extent};
use larder_store::{Location, SftpLocation, SftpOptions, Store, StoreErrorKind, StoreOptions, Unlisted};
use tempfile::TempDir;

/// The server of OpenSSH, if it is installed.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn server() -> Option<&'static str> {
    let places = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];
    let found = places.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("skipped: there is no sftp-server (package openssh-sftp-server)");
    }
    found
}

/// A store over a command, in a folder that is not there yet.
struct Served {
    above: TempDir,
    store: Store,
}

impl Served {
    fn by(command: &str) -> Self {
        let above = tempfile::tempdir().expect("temporary folder");
        let store = open(&above.path().join("a/repo"), command);
        Self { above, store }
    }

    fn folder(&self) -> PathBuf {
        self.above.path().join("a/repo")
    }

    fn staged(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder().join(".staging-sftp")).into_iter().flatten();
        entries.map(|entry| entry.expect("readable").path()).collect()
    }
}

fn open(folder: &Path, command: &str) -> Store {
    let path = folder.to_str().expect("UTF-8").to_owned();
    let location = Location::Sftp(SftpLocation { user: None, host: "nas".into(), port: None, path });
    let sftp = SftpOptions { command: Some(command.to_owned()), ..SftpOptions::default() };
    let soon = Duration::from_secs(20);
    let options = StoreOptions { sftp, retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() };
    Store::open(&location, &options).expect("opens")
}

fn container(seq: u32) -> String {
    names::container(ContainerId { kind: ContainerKind::Data, job: JobId::new(1, [7; 10]), seq })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_sftp_server_keeps_every_promise() {
    let Some(server) = server() else { return };
    let served = Served::by(server);
    let results = conformance::check(&served.store, "t1", Extent { many: 300, large: 16 << 20 }, &mut |_| ()).await;
    for result in &results {
        let outcome = result.outcome.as_ref().map_err(|failure| failure.to_string());
        assert_eq!(outcome, Ok(&()), "{}", result.guarantee);
    }
    assert!(results.len() >= 11);
    assert_eq!(served.staged(), Vec::<PathBuf>::new());
    let left: Vec<_> =
        fs::read_dir(served.folder()).expect("made").map(|entry| entry.expect("readable").file_name()).collect();
    assert_eq!(left, [".staging-sftp"], "deleting leaves no empty folders");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_the_same_repository_through_a_server_and_without() {
    let Some(server) = server() else { return };
    let served = Served::by(server);
    let local = Store::open(&Location::Local(served.folder()), &StoreOptions::default()).expect("opens");
    for seq in 0..40 {
        let store = if seq % 2 == 0 { &served.store } else { &local };
        store.create(&container(seq), Bytes::from(vec![seq as u8; 1 + 7_000 * seq as usize])).await.expect("created");
    }
    for (one, other) in [(&served.store, &local), (&local, &served.store)] {
        let error = one.create(&container(3), Bytes::from_static(b"another")).await.expect_err("taken");
        assert_eq!(error.kind, StoreErrorKind::AlreadyExists);
        let listed = |list: Vec<larder_store::Listed>| -> Vec<_> {
            list.into_iter().map(|object| (object.name, object.size, object.modified_ms / 1000)).collect()
        };
        let after = container(17);
        assert_eq!(
            listed(one.list(names::DATA).await.expect("listed")),
            listed(other.list(names::DATA).await.expect("listed"))
        );
        for seq in [0, 1, 39] {
            assert_eq!(one.get(&container(seq)).await.expect("read"), other.get(&container(seq)).await.expect("read"));
        }
        assert_eq!(one.size(&after).await.expect("there"), 1 + 7_000 * 17);
        assert_eq!(one.get(&container(77)).await.expect_err("missing").kind, StoreErrorKind::NotFound);
        assert_eq!(one.get("data").await.expect_err("a folder").kind, StoreErrorKind::NotFound);
    }
}

/// The first attempts meet a server that ends in the middle of every third object.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_cost_time_and_no_object() {
    let Some(server) = server() else { return };
    let cut = "perl -e \"$n = 700000; while ($n > 0 && sysread(STDIN, $b, $n > 65536 ? 65536 : $n)) { $n -= syswrite(STDOUT, $b) }\"";
    let served = Served::by(&format!("{} | {server}", cut.replace('"', "'")));
    for seq in 0..8 {
        served.store.create(&container(seq), Bytes::from(vec![seq as u8; 300_000])).await.expect("created in the end");
    }
    assert!(served.store.stats().retries > 0, "{:?}", served.store.stats());
    for seq in 0..8 {
        assert_eq!(served.store.get(&container(seq)).await.expect("whole"), vec![seq as u8; 300_000]);
    }
    assert_eq!(served.store.list(names::DATA).await.expect("listed").len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_share_the_connections() {
    let Some(server) = server() else { return };
    let count = tempfile::NamedTempFile::new().expect("temporary file");
    let served = Served::by(&format!("sh -c 'echo >> {}; exec {server}'", count.path().display()));
    served.store.create("config", Bytes::from_static(b"c")).await.expect("created");
    served.store.get("config").await.expect("read");
    let connections = || fs::read_to_string(count.path()).expect("readable").lines().count();
    assert_eq!(connections(), 1, "a short command connects once");
    let all = (0..200).map(|seq| {
        let store = served.store.clone();
        tokio::spawn(async move { store.create(&container(seq), Bytes::from(vec![1; 100_000])).await })
    });
    for created in futures::future::join_all(all).await {
        created.expect("no panic").expect("created");
    }
    assert!((2..=4).contains(&connections()), "{}", connections());
    assert_eq!(served.staged(), Vec::<PathBuf>::new());
}

/// A server may limit sessions, and a login may need a person: the connection that is there does the work.
#[tokio::test(flavor = "multi_thread")]
async fn a_further_connection_that_is_refused_fails_no_request() {
    let Some(server) = server() else { return };
    let count = tempfile::NamedTempFile::new().expect("temporary file");
    let path = count.path().display();
    let only = format!(
        "echo >> {path}; test $(wc -l < {path}) -lt 2 || {{ echo 'Permission denied (publickey).' >&2; exit 255; }}"
    );
    let served = Served::by(&format!("{only}; exec {server}"));
    served.store.create("config", Bytes::from_static(b"c")).await.expect("created");
    let all = (0..100).map(|seq| {
        let store = served.store.clone();
        tokio::spawn(async move {
            store.create(&container(seq), Bytes::from(vec![1; 100_000])).await?;
            store.get(&container(seq)).await
        })
    });
    for read in futures::future::join_all(all).await {
        assert_eq!(read.expect("no panic").expect("read").len(), 100_000);
    }
    let lines = fs::read_to_string(count.path()).expect("readable").lines().count();
    assert!((2..=4).contains(&lines), "each slot is tried, and not again for a minute: {lines}");
    assert_eq!(served.store.stats().retries, 0, "{:?}", served.store.stats());
}

/// The connection ends when the link is made and the answer is not there yet. The next attempt finds the object, and
/// makes its name durable before it counts as created.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_synced_although_the_link_was_not_answered() {
    let Some(server) = server() else { return };
    let above = tempfile::tempdir().expect("temporary folder");
    let (mark, log) = (above.path().join("mark"), above.path().join("log"));
    let cut = format!(
        "perl -e 'while (sysread(STDIN, $b, 65536)) {{ syswrite(STDOUT, $b); \
         if ($b =~ /hardlink.openssh/ && mkdir \"{}\") {{ exit }} }}'",
        mark.display()
    );
    let served = Served::by(&format!("{cut} | {server} -e -l DEBUG3 2>> {}", log.display()));
    served.store.create(&container(0), Bytes::from_static(b"whole")).await.expect("created");
    let log = || fs::read_to_string(&log).expect("readable");
    // The first link met a missing folder.
    if !log().contains(&format!("{}\" flags READ", container(0))) {
        fs::remove_dir(&mark).expect("cut");
        served.store.create(&container(1), Bytes::from_static(b"whole")).await.expect("created");
    }
    let synced = |seq| log().contains(&format!("fsync \"{}", served.folder().join(container(seq)).display()));
    assert!(synced(0) || synced(1), "{}", log());
}

/// A disk that is not mounted must not look like lost objects.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_nowhere_is_no_empty_folder() {
    let Some(server) = server() else { return };
    let served = Served::by(server);
    served.store.create("config", Bytes::from_static(b"c")).await.expect("created");
    assert_eq!(served.store.list(names::DATA).await.expect("not made yet"), []);
    assert_eq!(served.store.get(&container(0)).await.expect_err("none").kind, StoreErrorKind::NotFound);
    let data = served.folder().join("data");
    std::os::unix::fs::symlink("/nowhere", &data).expect("linked");
    for broken in ["a link", "a file"] {
        assert_eq!(served.store.list(names::DATA).await.expect_err(broken).kind, StoreErrorKind::Unreadable);
        assert_eq!(served.store.get(&container(0)).await.expect_err(broken).kind, StoreErrorKind::Unreadable);
        assert_eq!(served.store.size(&container(0)).await.expect_err(broken).kind, StoreErrorKind::Unreadable);
        fs::remove_file(&data).expect("removed");
        fs::write(&data, "a file").expect("written");
    }
    fs::remove_file(&data).expect("removed");
    fs::create_dir(served.folder().join("disk")).expect("made");
    std::os::unix::fs::symlink("disk", &data).expect("linked");
    assert_eq!(served.store.list(names::DATA).await.expect("mounted"), []);
}

/// Without hard links, a server has no way to create without overwriting.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_hard_links_is_refused() {
    let Some(server) = server() else { return };
    let served = Served::by(&format!("{server} -P hardlink"));
    let error = served.store.create("config", Bytes::from_static(b"c")).await.expect_err("not safe");
    let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("makes no hard links"), "{error}: {text}");
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    assert!(!served.folder().join("config").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn staging_files_of_yesterday_are_removed() {
    let Some(server) = server() else { return };
    let served = Served::by(server);
    let staging = served.folder().join(".staging-sftp");
    fs::create_dir_all(&staging).expect("made");
    for (name, age) in [("old", 25 * 3600), ("young", 3600)] {
        let file = fs::File::create(staging.join(name)).expect("made");
        let now = file.metadata().and_then(|metadata| metadata.modified()).expect("known");
        file.set_modified(now - Duration::from_secs(age)).expect("set");
    }
    served.store.create("config", Bytes::from_static(b"c")).await.expect("created");
    assert_eq!(served.staged(), [staging.join("young")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_entries_are_named_and_the_others_follow() {
    let Some(server) = server() else { return };
    let served = Served::by(server);
    for seq in [0, 2] {
        served.store.create(&container(seq), Bytes::from_static(b"x")).await.expect("created");
    }
    let odd = served.folder().join(container(1));
    fs::create_dir(&odd).expect("made");
    std::os::unix::fs::symlink("/nowhere", served.folder().join(container(3))).expect("linked");
    fs::write(served.folder().join("data/foreign file"), "x").expect("written");
    let unlisted = Arc::<Unlisted>::default();
    let listed = served.store.past_unlisted(&unlisted).list(names::DATA).await.expect("listed");
    let examined = |object: &larder_store::Listed| (object.name.clone(), object.modified_ms != u64::MAX);
    let expected =
        [(0, true), (1, false), (2, true), (3, false)].map(|(seq, is_examined)| (container(seq), is_examined));
    assert_eq!(listed.iter().map(examined).collect::<Vec<_>>(), expected);
    let told = unlisted.take();
    assert_eq!(told.len(), 2, "{told:?}");
    for name in [container(1), container(3)] {
        assert!(told.iter().any(|told| told.to_string().contains(&name)), "{told:?}");
    }
    let error = served.store.get(&container(1)).await.expect_err("a folder");
    assert_eq!(error.kind, StoreErrorKind::Unreadable);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ssh_says_is_in_the_error() {
    for (says, kind) in [
        ("me@nas: Permission denied (publickey).", StoreErrorKind::PermissionDenied),
        ("Host key verification failed.", StoreErrorKind::Invalid),
        ("subsystem request failed on channel 0", StoreErrorKind::Invalid),
        ("ssh: Could not resolve hostname nas: Name or service not known", StoreErrorKind::NoConnection),
    ] {
        let served = Served::by(&format!("sh -c 'echo \"{says}\" >&2; exit 255'"));
        let error = served.store.get("config").await.expect_err("no session");
        assert_eq!(error.kind, kind, "{error}");
        let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(text.contains("nas") && text.contains(says), "{text}");
    }
}
