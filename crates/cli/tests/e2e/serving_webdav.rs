//! `serve-webdav`: snapshots over WebDAV, against the files that were backed up.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::freezer::Freezer;
use crate::support::webdav::{Answer, Serving, WAIT};
use crate::support::{Play, damage, mounting::until, tree};

fn link(play: &Play, target: impl AsRef<Path>, name: &str) {
    std::os::unix::fs::symlink(target, play.path("source").join(name)).expect("linked");
}

/// Compares a folder of the server with one of this machine: links appear as their target, what
/// `left_out` names does not appear. Returns the number of files.
#[track_caller]
fn same(serving: &Serving, href: &str, folder: &Path, left_out: &[&str]) -> usize {
    let (mut files, mut shown) = (0, BTreeSet::new());
    for entry in serving.list(href).into_iter().skip(1) {
        let path = folder.join(entry.file_name());
        assert!(shown.insert(entry.file_name()), "{path:?} appears twice");
        let real = std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!((entry.is_folder, entry.href.ends_with('/')), (real.is_dir(), real.is_dir()), "{path:?}");
        let modified = jiff::fmt::rfc2822::parse(&entry.modified).expect("a date").timestamp();
        assert_eq!(modified.as_second(), real.mtime().max(0), "{path:?}");
        if real.is_dir() {
            files += same(serving, &entry.href, &path, left_out);
            continue;
        }
        files += 1;
        assert_eq!(entry.size, Some(real.len()), "{path:?}");
        let got = serving.get(&entry.href);
        assert_eq!((got.status, got.is_cut), (200, false), "{path:?}");
        assert!(got.body == std::fs::read(&path).expect("readable"), "{path:?}");
        assert_eq!((got.header("etag"), entry.etag.is_some()), (entry.etag.as_deref(), true), "{path:?}");
        let head = serving.ask("HEAD", &entry.href, &[]);
        assert_eq!(head.header("content-length"), Some(real.len().to_string().as_str()), "{path:?}");
    }
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let is_left_out = left_out.iter().any(|left_out| name == **left_out);
        assert_ne!(shown.contains(&name), is_left_out, "{name:?} in {folder:?}");
    }
    files
}

#[test]
fn the_whole_tree_is_as_it_was() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.write("source/a b%20?#&;'\"<>/x:y", "odd for URLs");
    play.write("outside", "not in the snapshot");
    link(&play, "../plain.txt", "folder/up");
    link(&play, "link", "link of a link");
    link(&play, play.path("source/folder/text"), "absolute");
    link(&play, "folder", "link of a folder");
    link(&play, "../outside", "leaves");
    link(&play, "/etc/hostname", "leaves too");
    link(&play, "..", "folder/back");
    link(&play, ".", "self");
    link(&play, "ring b", "ring a");
    link(&play, "ring a", "ring b");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        play.path("source/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("made");
    let old = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH - std::time::Duration::from_secs(1_000_000));
    std::fs::File::open(play.path("source/folder/text")).expect("there").set_times(old).expect("set");
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    let left_out = ["leaves", "leaves too", "dangling", "back", "self", "ring a", "ring b", "pipe"];
    let files = same(&serving, "/", &play.path("source"), &left_out);
    assert_eq!(files, 17);
    for path in ["/leaves", "/pipe", "/plain.txt/x", "/absent", "/folder/back/plain.txt"] {
        assert_eq!(serving.get(path).status, 404, "{path}");
    }
    // The same folder again by a browser.
    let page = serving.get("/link%20of%20a%20folder/");
    assert!(page.text().contains("<a href=\"./large\">large</a></td><td>3000000"), "{}", page.text());
    assert_eq!(serving.ask("GET", "/folder", &[]).header("location"), Some("/folder/"));
    let (ran, ended) = serving.end();
    ran.ok();
    assert_eq!((&ended["links_left_out"], &ended["special_files_left_out"]), (&7.into(), &1.into()));
    assert_eq!(play.open_leases(), 0);
}

/// Folders that link to each other appear below one link, not in all orders.
#[test]
fn links_to_folders_multiply_nothing() {
    let play = Play::with_repository();
    for number in 0..6 {
        play.write(format!("source/{number}/file"), "content");
        for other in (0..6).filter(|other| *other != number) {
            link(&play, format!("../{other}"), &format!("{number}/to {other}"));
        }
    }
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--path-template", "%T"]);
    let mut waiting = vec![format!("/latest{}/", play.path("source").display())];
    let mut files = 0;
    while let Some(folder) = waiting.pop() {
        for entry in serving.list(&folder).into_iter().skip(1) {
            if entry.is_folder {
                waiting.push(entry.href);
            } else {
                files += 1;
            }
        }
    }
    assert_eq!(files, 6 + 6 * 5);
    serving.end().0.ok();
}

#[test]
fn snapshots_appear_and_go_as_in_a_mount() {
    let play = Play::with_repository();
    play.write("source/file", "first");
    let first = play.backup(["source", "--time", "@1000000000", "--tag", "a,b/c", "--series", "x:/y"]);
    let serving = Serving::of(&play, &["--refresh", "0", "--keep", "0", "--time-template", "%Y-%m-%d"]);
    assert_eq!(serving.first["snapshots"], 1);
    assert_eq!(serving.names("/"), ["hosts", "ids", "series", "snapshots", "tags"]);
    assert_eq!(serving.names("/series/x%3A_y/"), ["2001-09-09", "latest"]);
    assert_eq!(serving.names("/tags/"), ["a", "b_c"]);
    let below = play.path("source/file").display().to_string();
    let latest = format!("/series/x%3A_y/latest{below}");
    let got = serving.get(&latest);
    assert_eq!((got.status, got.text().as_str()), (200, "first"));
    let tag = got.header("etag").expect("a tag").to_owned();
    assert_eq!(serving.ask("GET", &latest, &[&format!("If-None-Match: {tag}")]).status, 304);

    play.write("source/file", "other");
    play.backup(["source", "--time", "@1100000000", "--series", "x:/y"]);
    assert_eq!(serving.names("/series/x%3A_y/"), ["2001-09-09", "2004-11-09", "latest"]);
    // Equal sizes, other contents: the tag is another one.
    let got = serving.ask("GET", &latest, &[&format!("If-None-Match: {tag}")]);
    assert_eq!((got.status, got.text().as_str()), (200, "other"));
    play.larder(["forget", &first]).ok();
    until("the forgotten snapshot is let go", || serving.names("/series/x%3A_y/") == ["2004-11-09", "latest"]);
    assert_eq!(serving.get(&format!("/series/x%3A_y/2001-09-09{below}")).status, 404);
    serving.end().0.ok();
}

#[test]
fn parts_of_files_are_read() {
    let play = Play::with_repository();
    let content = tree::noise(3, 1_500_000);
    play.write("source/file", &content);
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    for (range, part) in [
        ("0-0", 0..1),
        ("700000-1199999", 700_000..1_200_000),
        ("1499999-", 1_499_999..1_500_000),
        ("-10", 1_499_990..1_500_000),
        ("1499990-2000000", 1_499_990..1_500_000),
    ] {
        let got = serving.ask("GET", "/file", &[&format!("Range: bytes={range}")]);
        assert_eq!((got.status, got.is_cut), (206, false), "{range}");
        let shown = format!("bytes {}-{}/1500000", part.start, part.end - 1);
        assert_eq!(got.header("content-range"), Some(shown.as_str()));
        assert!(got.body == content[part], "{range}");
    }
    let beyond = serving.ask("GET", "/file", &["Range: bytes=1500000-"]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */1500000")));
    // A part has a meaning for GET alone.
    for range in ["Range: bytes=0-9", "Range: bytes=1500000-"] {
        let head = serving.ask("HEAD", "/file", &[range]);
        assert_eq!((head.status, head.header("content-length")), (200, Some("1500000")), "{range}");
        assert_eq!((head.header("content-range"), head.header("accept-ranges")), (None, Some("bytes")), "{range}");
    }
    let other = serving.ask("GET", "/file", &["Range: bytes=0-9", "If-Range: \"other\""]);
    assert_eq!((other.status, other.body.len()), (200, content.len()));
    // Only a tag says that it is the same file: `latest` may become an older one.
    let tag = serving.get("/file").header("etag").expect("a tag").to_owned();
    let same = serving.ask("GET", "/file", &["Range: bytes=0-9", &format!("If-Range: {tag}")]);
    assert_eq!((same.status, same.body.len()), (206, 10));
    // Tags are strong. One that a proxy made weak is good for nothing but to say that nothing changed.
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    for method in ["GET", "HEAD"] {
        for same in [format!("If-None-Match: W/{tag}"), format!("If-None-Match: \"other\", {tag}")] {
            let unchanged = serving.ask(method, "/file", &[&same, "Range: bytes=0-9"]);
            assert_eq!((unchanged.status, unchanged.body.len()), (304, 0), "{method} {same}");
            assert_eq!(unchanged.header("etag"), Some(tag.as_str()));
        }
    }
    let weak = serving.ask("GET", "/file", &["Range: bytes=0-9", &format!("If-Range: W/{tag}")]);
    assert_eq!((weak.status, weak.body.len()), (200, content.len()));
    assert_eq!(serving.ask("GET", "/file", &[&format!("If-Match: W/{tag}")]).status, 412);
    assert_eq!(serving.ask("GET", "/file", &["Range: bytes=0-9", &format!("If-Match: {tag}")]).status, 206);
    let dates = [
        "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT".to_owned(),
        "If-Unmodified-Since: Fri, 31 Dec 2100 23:59:59 GMT".to_owned(),
        format!("If-Range: {}", serving.list("/")[1].modified),
    ];
    for (number, date) in dates.iter().enumerate() {
        let lines = ["Range: bytes=0-9", date.as_str()];
        let dated = if number == 0 { &lines[1..] } else { &lines[..] };
        let whole = serving.ask("GET", "/file", dated);
        assert_eq!((whole.status, whole.body.len()), (200, content.len()), "{dated:?}");
    }
    // Many ranges are one file, and so are those with numbers beyond all files.
    let odd = [
        &["Range: bytes=0-,0-,0-,0-"][..],
        &["Range: bytes=0-9", "Range: bytes=5-9"],
        &["Range: bytes=0-18446744073709551615"],
        &["Range: bytes=5-18446744073709551615"],
    ];
    for ranges in odd {
        let many = serving.ask("GET", "/file", ranges);
        assert_eq!((many.status, many.body.len()), (200, content.len()));
    }
    serving.end().0.ok();
}

#[test]
fn only_reading_is_answered() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    let methods = ["PUT", "DELETE", "MKCOL", "MOVE", "COPY", "PROPPATCH", "LOCK", "UNLOCK", "PATCH", "POST", "TRACE"];
    for method in methods {
        let answer = serving.ask(method, "/file", &["Destination: /other", "Depth: 0"]);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("OPTIONS, GET, HEAD, PROPFIND")), "{method}");
    }
    let options = serving.ask("OPTIONS", "/", &[]);
    assert_eq!((options.status, options.header("dav")), (200, Some("1")));
    assert_eq!(options.header("allow"), Some("OPTIONS, GET, HEAD, PROPFIND"));
    // Answers have a bound.
    for depth in [&["Depth: infinity"][..], &["Depth: infinity", "X-Litmus: props"], &[]] {
        let answer = serving.ask("PROPFIND", "/", depth);
        assert_eq!(answer.status, 403, "{depth:?}");
        assert!(answer.text().contains("propfind-finite-depth"));
    }
    assert_eq!(serving.ask("PROPFIND", "/", &["Depth: 2"]).status, 400);
    // Requests too.
    let ask = |body: &str| serving.ask_with("PROPFIND", "/file", &["Depth: 0"], body).status;
    let named = "<propfind xmlns=\"DAV:\"><prop><getetag/><owner/></prop></propfind>";
    assert_eq!(ask(named), 207);
    let absent = "<propfind xmlns=\"DAV:\"><prop><quota-used-bytes/></prop></propfind>";
    let answer = serving.ask_with("PROPFIND", "/", &["Depth: 0"], absent);
    assert!(answer.text().contains("404 Not Found</D:status></D:propstat></D:response>"), "{}", answer.text());
    assert_eq!(ask("<propfind"), 400);
    assert_eq!(ask(&"<a>".repeat(60)), 400);
    assert_eq!(ask(&named.replace("<prop>", &format!("<prop{}>", " xmlns:a=\"b\"".repeat(17)))), 400);
    assert_eq!(ask(&"<a>".repeat(1000)), 400);
    assert_eq!(ask(&"x".repeat(5_000)), 413);
    // Who does not notice the end of a list gets none.
    let mut stream = std::net::TcpStream::connect(&serving.host).expect("it listens");
    stream.set_read_timeout(Some(WAIT)).expect("set");
    write!(stream, "GET / HTTP/1.0\r\nHost: {}\r\n\r\n", serving.host).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains(" 505 "), "{answer}");
    assert_eq!(ask(&format!("<!DOCTYPE a [<!ENTITY x \"y\">]>{named}")), 400);
    assert_eq!(serving.ask("GET", "/file", &[&format!("X: {}", "x".repeat(100_000))]).status, 431);
    // Names of the machine, not of the snapshot.
    for path in ["/..", "/%2e%2e/%2e%2e/etc/passwd", "/../../etc/passwd", "/a/../../x"] {
        assert_eq!(serving.get(path).status, 403, "{path}");
    }
    assert_eq!(serving.get("/x/../file").text(), "content");
    for path in ["/file%00", "/..%2f..%2fetc/passwd", "/%ff%fe", "//etc/passwd"] {
        assert!([400, 404].contains(&serving.get(path).status), "{path}");
    }
    // A page of another host, whose name was made to lead here.
    assert_eq!(serving.ask("GET", "/file", &["Host: rebound.example.org"]).status, 403);
    assert_eq!(serving.ask("GET", "/file", &["Host: localhost:1"]).status, 200);
    // A proxy would let everybody in.
    assert_eq!(serving.ask("GET", "/file", &["X-Forwarded-For: 192.0.2.1"]).status, 403);
    let got = serving.get("/file");
    let policy = "sandbox; default-src 'none'; frame-ancestors 'none'";
    assert_eq!(got.header("content-security-policy"), Some(policy));
    assert_eq!(got.header("cross-origin-resource-policy"), Some("same-origin"));
    assert_eq!(got.header("cache-control"), Some("private, no-cache"));
    let of_a_page = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"];
    assert_eq!(serving.ask("GET", "/file", &of_a_page).status, 403);
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    serving.end().0.ok();
}

#[test]
fn a_password_is_asked_for() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let file = play.write("secret", "pass:word\n");
    let file = file.to_str().expect("text");
    let serving = Serving::of(&play, &["--user", "ann", "--user-password-file", file]);
    let with = |credentials: &str| {
        let encoded = data_encoding::BASE64.encode(credentials.as_bytes());
        serving.ask("PROPFIND", "/", &["Depth: 1", "Host: any.example.org", &format!("Authorization: Basic {encoded}")])
    };
    assert_eq!(with("ann:pass:word").status, 207);
    for wrong in ["ann:password", "bob:pass:word"] {
        assert_eq!(with(wrong).status, 401, "{wrong}");
    }
    for method in ["GET", "OPTIONS", "PUT", "PROPFIND"] {
        let refused = serving.ask(method, "/", &[]);
        assert_eq!(refused.status, 401, "{method}");
        assert!(refused.header("www-authenticate").is_some_and(|asked| asked.starts_with("Basic realm=")));
    }
    let ran = serving.end().0.ok().says("127.0.0.1 had a wrong password");
    assert_eq!(ran.stderr.matches("wrong password").count(), 1, "{}", ran.stderr);
    let refused = |args: &[&str], code: i32, text: &str| {
        play.larder([&["serve-webdav"], args].concat()).code(code).says(text).in_two_lines();
    };
    refused(&["--addr", "0.0.0.0:0"], 2, "needs --user");
    refused(&["--addr", "0.0.0.0:0", "--user", "ann", "--user-password-file", file], 2, "needs --tls-cert");
    refused(&["--addr", "nonsense"], 2, "HOST:PORT");
    refused(&["--user", "a:b", "--user-password-file", file], 2, "colon");
    refused(&["--user", "", "--user-password-file", file], 2, "empty");
    for unusable in ["absent", "nothing"] {
        play.write("nothing", "");
        refused(&["--user", "ann", "--user-password-file", unusable], 2, "--user-password-file");
    }
    refused(&["--tls-cert", file, "--tls-key", file], 1, "secret");
    // In two words, and on all addresses.
    let serving = Serving::start(play.command(["serve", "webdav", "--addr", "0.0.0.0:0", "--insecure"]));
    serving.end().0.ok().says("everybody who reaches this server");
}

#[test]
fn tls_is_spoken() {
    let made = Command::new("sh")
        .args(["-c", "openssl version && curl --version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !made {
        return;
    }
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    play.write("secret", "word");
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
                  -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = play.command_of(Path::new("sh"), ["-ec", script]).output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--user", "ann", "--user-password-file", "secret"];
    let serving = Serving::of(&play, &tls);
    let url = serving.first["url"].as_str().expect("text").to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let curl = |more: &[&str]| {
        let args = [&["-sS", "--max-time", "60", "--cacert", "cert.pem", "-u", "ann:word"], more].concat();
        let output = play.command_of(Path::new("curl"), args).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = format!("{url}snapshots/latest{}", play.path("source/file").display());
    assert_eq!(curl(&["-r", "1-3", &file]), "ont");
    // Without TLS there is no answer.
    let mut stream = serving.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(Answer::read(stream, false).is_err());
    assert_eq!(curl(&["-r", "0-1", &file]), "co", "and the next one has");
    serving.end().0.ok();
}

#[test]
fn damage_is_an_error_of_one_file() {
    let play = Play::with_repository();
    play.write("source/bad", tree::noise(7, 3_000_000));
    play.backup(["source", "--series", "s"]);
    let data = damage::named(&play.repository(), "data/");
    play.write("source/good", tree::noise(8, 500_000));
    play.backup(["source", "--series", "s"]);
    let length = std::fs::metadata(play.repository().join(&data[0])).expect("there").len() as usize;
    // The first frame, and one that is read when the answer has begun.
    damage::flip(&play.repository(), &data[0], 1000);
    damage::flip(&play.repository(), &data[0], length / 2);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    for _ in 0..2 {
        let got = serving.get("/bad");
        assert_eq!((got.status, got.is_cut), (500, false));
        let good = serving.get("/good");
        assert!(good.status == 200 && good.body == tree::noise(8, 500_000));
    }
    assert_eq!(serving.names("/"), ["bad", "good"]);
    let late = serving.ask("GET", "/bad", &["Range: bytes=700000-"]);
    assert!(late.is_cut || late.status == 500, "{} {}", late.status, late.body.len());
    assert_eq!(serving.ask("GET", "/bad", &["Range: bytes=1-9"]).status, 500);
    let (ran, _) = serving.end();
    let ran = ran.code(13).says(&data[0]);
    assert_eq!(ran.stderr.matches("source/bad").count(), 1, "{}", ran.stderr);
}

/// A list that cannot be read to its end is no shorter list: a client would delete what it lacks.
#[test]
fn a_damaged_folder_is_never_a_shorter_one() {
    let play = Play::with_repository();
    for number in 0..6000 {
        let name = data_encoding::HEXLOWER.encode(&tree::noise(number, 110));
        play.write(format!("source/{name}"), "");
    }
    play.backup(["source"]);
    // The frames of a container are opened one by one, and where they begin depends on the key. The damage is in one of names, not in what
    // leads to the folder.
    let metadata = damage::sizes(&play.repository(), "meta/");
    let (name, size) = metadata.iter().max_by_key(|(_, size)| *size).expect("there is some");
    let is_within = (1..10).rev().any(|tenths| {
        let flip = || damage::flip(&play.repository(), name, *size as usize * tenths / 10);
        flip();
        let ran = play.larder(["ls", &play.latest_of("source")]);
        let is_within = ran.code == 13 && ran.stdout.len() > 100_000;
        if !is_within {
            flip();
        }
        is_within
    });
    assert!(is_within);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    let answer = serving.ask("PROPFIND", "/", &["Depth: 1"]);
    assert!(answer.status == 500 || answer.is_cut, "{} {}", answer.status, answer.body.len());
    let page = serving.get("/");
    assert!(page.status == 500 || page.is_cut, "{} {}", page.status, page.body.len());
    serving.end().0.code(13);
}

/// What is not there now is no damage: clients may ask later.
#[test]
fn cold_files_cannot_be_read_now() {
    let (play, freezer) = (Play::new(), Freezer::default());
    let bucket = freezer.serve(play.path("bucket"), 1);
    bucket.larder(&play, ["init", "--insecure-kdf"]).ok();
    play.write("source/file", tree::noise(1, 300_000));
    bucket.larder(&play, ["backup", "source"]).ok();
    freezer.freeze(&play.path("bucket"), "GLACIER");
    let command =
        bucket.command(&play, ["serve-webdav", "--addr", "127.0.0.1:0", "--snapshot", &play.latest_of("source")]);
    let serving = Serving::start(command);
    assert_eq!(serving.names("/"), ["file"]);
    let refused = serving.get("/file");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("30")), "{}", refused.text());
    freezer.clear();
    assert!(serving.get("/file").body == tree::noise(1, 300_000));
    serving.end().0.ok().says("cold storage");
}

#[test]
fn clients_that_wait_for_ever_hinder_nobody() {
    let play = Play::with_repository();
    let content = tree::noise(9, 8_000_000);
    play.write("source/file", &content);
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    let _silent: Vec<_> = (0..20).map(|_| serving.connect()).collect();
    let mut slow = serving.connect();
    slow.write_all(b"GET /file HTTP/1.1\r\nHost: loc").expect("sent");
    // One that reads nothing of its answer.
    let mut lazy = serving.connect();
    lazy.write_all(b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(serving.get("/file").body == content));
        }
    });
    assert_eq!(play.open_leases(), 1);
    let (ran, _) = serving.end();
    ran.ok();
    assert_eq!(play.open_leases(), 0);
    drop((slow, lazy));
}

/// The clients that people use, where they are installed.
#[test]
fn rclone_finds_everything_the_same() {
    let has = Command::new("rclone").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: rclone is not installed");
        return;
    }
    let play = Play::with_repository();
    for number in 0..30 {
        play.write(format!("source/{}/file {number}", number % 4), tree::noise(number, number as usize * 9_000));
    }
    play.backup(["source"]);
    let serving = Serving::of(&play, &["--snapshot", &play.latest_of("source")]);
    let remote = format!(":webdav,url='http://{}/':", serving.host);
    let args = ["check", "--download", "--retries", "1", "--contimeout", "10s", "--timeout", "50s", "source", &remote];
    let mut command =
        play.command_of(Path::new("timeout"), [&[WAIT.as_secs().to_string().as_str(), "rclone"], &args[..]].concat());
    let checked = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.contains("30 matching files"), "{said}");
    serving.end().0.ok();
}
