//! Archives of GNU tar.

use std::io::Read;
use std::os::unix::fs::FileExt;

use super::{all_kinds, imported, same_as, summary, tool};
use crate::support::{Play, run};

/// Goal: what GNU tar keeps of a tree, an import and a restore give back, in every format of archives.
#[test]
fn an_archive_of_all_kinds_comes_back_equal() {
    let play = Play::with_repository();
    all_kinds(&play, "source");
    // Readers of pax archives see all of it.
    tool(&play, &["tar", "--create", "--sparse", "--acls", "--xattrs", "--file=pax.tar", "source"]);
    tool(
        &play,
        &["sh", "-c", "gzip -1 < pax.tar > pax.tar.gz; zstd -q -1 pax.tar -o pax.tar.zst || cp pax.tar pax.tar.zst"],
    );
    let first = imported(
        &play.larder(["import", "tar", "pax.tar", "--json", "--compare", "--time", "2020-01-02 03:04:05"]).ok(),
    );
    let id = first["snapshot_id"].as_str().expect("an id");
    assert_eq!((&first["series"], &first["compared_different"]), (&"testhost:pax".into(), &0.into()), "{first:#}");
    assert!(first["compared_equal"].as_u64() > Some(25) && first["error_count"] == 0, "{first:#}");
    same_as(&play, id, "source", "source");
    // Compressed, and through a pipe, it is another archive with the same files.
    for (line, stdin) in [
        (&["import", "tar", "pax.tar.gz", "--json", "--series", "s"][..], None),
        (&["import", "tar", "-", "--json", "--series", "s", "--host", "web", "--tag", "a,b"], Some("pax.tar.zst")),
    ] {
        let ran = match stdin {
            None => play.larder(line),
            Some(name) => play.larder_with_stdin(line, &std::fs::read(play.path(name)).expect("there")),
        };
        let one = imported(&ran.ok());
        same_as(&play, one["snapshot_id"].as_str().expect("an id"), "source", "source");
        assert!(one["data_added"].as_u64() < Some(200_000), "it is stored once: {one:#}");
    }
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let of = |key: &str| all.as_array().expect("all").iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert!(of("time").iter().any(|time| time.as_str().is_some_and(|time| time.starts_with("2020-01-02T03:04:05"))));
    assert!(of("hostname").contains(&"web".into()) && of("tags").contains(&serde_json::json!(["a", "b"])));
    play.larder(["check", "--read-data"]).ok();
}

/// Goal: formats that keep less give back what they keep; members may come in any order, twice, and without their folders.
#[test]
fn old_formats_and_odd_orders_are_read() {
    let play = Play::with_repository();
    for name in ["t/b/2", "t/b/1", "t/a", "t/c"] {
        play.write(name, format!("content of {name}"));
    }
    std::fs::hard_link(play.path("t/c"), play.path("t/b/0")).expect("linked");
    let sparse = std::fs::File::create(play.path("t/sparse")).expect("made");
    sparse.set_len(3_000_000).expect("sized");
    for piece in 0..30 {
        sparse.write_all_at(b"data", piece * 90_000).expect("written");
    }
    drop(sparse);
    tool(&play, &["find", "t", "-exec", "touch", "-h", "-d", "2001-02-03 04:05:06", "{}", "+"]);
    let order = "t/c t/sparse t/b/2 t/b/0 t/a t/b/1 t/a t t/b";
    for format in ["v7", "ustar", "oldgnu", "gnu", "posix", "posix --sparse-version=0.0", "posix --sparse-version=0.1"]
    {
        let sparse = if matches!(format, "v7" | "ustar") { "" } else { "--sparse" };
        let line = format!(
            "rm -f x.tar; for f in {order}; do tar rf x.tar --no-recursion --format={format} {sparse} $f; done"
        );
        // Links are links only within one run.
        let line = format!("{line}; tar rf x.tar --no-recursion --format={format} t/c t/b/0");
        tool(&play, &["sh", "-c", &line]);
        let one = imported(&play.larder(["import", "tar", "x.tar", "--json", "--compare", "--series", format]).code(0));
        same_as(&play, one["snapshot_id"].as_str().expect("an id"), "t", "t");
    }
    // Folders that an archive does not have are added.
    tool(&play, &["tar", "cf", "one.tar", "t/b/1"]);
    let one = imported(&play.larder(["import", "tar", "one.tar", "--json"]).ok());
    assert_eq!((&one["dirs_new"], &one["files_new"]), (&2.into(), &1.into()), "{one:#}");
}

/// Goal: nothing is imported twice, a wish to see changes nothing, and a series follows its archives.
#[test]
fn an_archive_is_imported_once() {
    let play = Play::with_repository();
    play.write("t/large", crate::support::tree::noise(1, 6_000_000));
    tool(&play, &["tar", "cf", "a.tar", "t"]);
    let planned = play.larder(["import", "tar", "a.tar", "-n", "--json"]).ok();
    assert_eq!((planned.messages("would_import").len(), &summary(&planned)["imported"]), (1, &1.into()));
    imported(&play.larder(["import", "tar", "a.tar", "--json", "--series", "{host}/{name}"]).ok());
    std::fs::rename(play.path("a.tar"), play.path("b.tar")).expect("renamed");
    let again = play.larder(["import", "tar", "b.tar", "--json", "--series", "testhost/a"]).ok();
    assert_eq!((&summary(&again)["imported"], &summary(&again)["imported_before"]), (&0.into(), &1.into()));
    play.write("t/more", "more");
    tool(&play, &["tar", "cf", "a.tar", "t"]);
    let next = imported(&play.larder(["import", "tar", "a.tar", "--json", "--series", "testhost/a"]).ok());
    assert!(next["data_added"].as_u64() < Some(20_000) && next["files_unmodified"] == 0, "{next:#}");
    assert!(next["parent"].is_string(), "{next:#}");
    let list = play.larder(["snapshots", "--series", "testhost/a", "--json"]).ok().json();
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    play.larder(["import", "tar", "a.tar", "--series", "{absent}"]).code(2).says("{name}");
}

/// Goal: what is whole comes over, each lost file is named, and the exit code says so.
#[test]
fn what_is_whole_in_a_damaged_archive_comes_over() {
    let play = Play::with_repository();
    for name in ["1", "2", "3", "4"] {
        play.write(format!("t/{name}"), crate::support::tree::noise(9, 200_000));
    }
    tool(&play, &["tar", "cf", "whole.tar", "--sort=name", "t"]);
    let mut whole = Vec::new();
    std::fs::File::open(play.path("whole.tar")).expect("there").read_to_end(&mut whole).expect("read");
    // Cut off within the third file; a damaged header of the second one; a link to nothing; paths that lead outside.
    let header_of = |name: &[u8]| whole.windows(name.len()).position(|at| at == name).expect("there");
    play.write("cut.tar", &whole[..header_of(b"t/3\0") + 5000]);
    let mut flipped = whole.clone();
    flipped[header_of(b"t/2\0") + 100] ^= 1;
    play.write("flipped.tar", &flipped);
    tool(
        &play,
        &["sh", "-c", "tar cPf out.tar t/1 ../escape --transform 's,^t/1,../up,' 2>/dev/null; tar rf out.tar t/2"],
    );
    for (archive, named, files) in [("cut.tar", "t/3", 2), ("flipped.tar", "header", 3), ("out.tar", "../up", 1)] {
        let ran = play.larder(["import", "tar", archive, "--json"]).code(3);
        let one = imported(&ran);
        assert_eq!(
            (&one["files_new"], one["error_count"].as_u64() >= Some(1)),
            (&files.into(), true),
            "{archive}: {one:#}"
        );
        assert!(ran.stderr.contains(named), "{archive}: {}", ran.stderr);
    }
    let mut compressed = tool(&play, &["gzip", "-c", "whole.tar"]);
    compressed.truncate(compressed.len() / 2);
    let ran = play.larder_with_stdin(["import", "tar", "-", "--json", "--series", "gz"], &compressed).code(3);
    assert!(
        imported(&ran)["files_new"].as_u64() >= Some(1) && ran.stderr.contains("truncated or damaged")
            || ran.stderr.contains("within its contents"),
        "{}",
        ran.stderr
    );
    play.larder(["check", "--read-data"]).ok();
    // What is no archive makes no snapshot.
    play.write("text.tar", "this is no archive ".repeat(100));
    play.larder(["import", "tar", "text.tar"]).code(1).says("no tar archive");
    play.write("empty.tar", "");
    play.larder(["import", "tar", "empty.tar"]).code(1).says("no tar archive");
    play.write("x.tar.xz", b"\xfd7zXZ\0\0\0");
    play.larder(["import", "tar", "x.tar.xz"]).code(1).says("xz -dc");
    play.larder(["import", "tar", "absent.tar"]).code(1).says("absent.tar");
}

/// Goal: killed anywhere, the next run makes the snapshot, and it is equal.
#[test]
fn a_killed_import_goes_on() {
    let play = Play::with_repository();
    for file in 0..40 {
        play.write(format!("t/{file}"), crate::support::tree::noise(file, 700_000));
    }
    tool(&play, &["tar", "cf", "a.tar", "t"]);
    for delay in [40, 150, 300, 450, 600, 800] {
        let mut child = play.spawn(&mut play.command(["import", "tar", "a.tar"]));
        std::thread::sleep(std::time::Duration::from_millis(delay));
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let last = run(&mut play.command(["import", "tar", "a.tar", "--compare", "--json"])).ok();
    let done = summary(&last);
    assert_eq!(done["imported"].as_u64().expect("a number") + done["imported_before"].as_u64().expect("a number"), 1);
    let list = play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    same_as(&play, "latest", "t", "t");
}

/// A member in the format ustar.
fn member(name: &str, kind: u8, link: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\x000000000\x000000000\0");
    put(124, format!("{:011o}\x0000000000001\0        ", contents.len()).as_bytes());
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.extend_from_slice(contents);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

/// Goal: what is found behind damage replaces nothing; contents of unknown members are no members; what no restore could make is named.
#[test]
fn members_that_are_in_doubt_replace_nothing() {
    let play = Play::with_repository();
    let end = [0; 1024];
    let inner = [member("etc/passwd", b'0', "", b"STALE"), member("z", b'1', "etc/passwd", b"")].concat();
    let mut outer = member("inner.tar", b'0', "", &inner);
    outer[3] ^= 1;
    let before = [member("etc/passwd", b'0', "", b"REAL"), member("before", b'1', "etc/passwd", b"")].concat();
    play.write("doubt.tar", [&*before, &outer, &member("last", b'0', "", b"last"), &end].concat());
    let planned = play.larder(["import", "tar", "doubt.tar", "-n", "--json"]).code(3);
    assert!(planned.stderr.contains("etc/passwd, which is next"), "{}", planned.stderr);
    let ran = play.larder(["import", "tar", "doubt.tar", "--json"]).code(3);
    assert_eq!(
        (&imported(&ran)["files_new"], &imported(&ran)["error_count"]),
        (&3.into(), &3.into()),
        "{}",
        ran.stderr
    );
    for name in ["etc/passwd", "before"] {
        assert_eq!(play.larder(["dump", "latest", &format!("/{name}")]).ok().text(), "REAL");
    }
    assert!(ran.stderr.contains("is behind damage"), "{}", ran.stderr);
    // The next run says that it was not whole.
    let again = play.larder(["import", "tar", "doubt.tar", "--json"]).ok();
    assert_eq!(summary(&again)["imported_before_with_errors"], 1);
    let odd = [
        member("unknown", b'Q', "", &inner),
        member("volume", b'M', "", &inner),
        member("to nothing", b'2', "", b""),
        member("whole", b'0', "", b"whole"),
    ];
    play.write("odd.tar", [&*odd.concat(), &end].concat());
    let ran = play.larder(["import", "tar", "odd.tar", "--json"]).code(3);
    assert_eq!(
        (&imported(&ran)["files_new"], &imported(&ran)["error_count"]),
        (&1.into(), &3.into()),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("several volumes") && ran.stderr.contains("link to nothing"), "{}", ran.stderr);
    // Zeros behind a compressed archive are those of a tape.
    play.write("whole.tar", [&*member("whole", b'0', "", b"whole"), &end].concat());
    let padded = [tool(&play, &["gzip", "-c", "whole.tar"]), vec![0; 5000]].concat();
    play.write("padded.tgz", padded);
    play.larder(["import", "tar", "padded.tgz"]).ok();
    play.larder(["check", "--read-data"]).ok();
}
