//! Messages about runs, and their metrics.

use super::*;

/// A server that answers every request with success, and gives what it was sent.
fn listening() -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let mut reader = std::io::BufReader::new(stream);
            let (mut text, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if std::io::BufRead::read_line(&mut reader, &mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                text.push_str(&line);
            }
            let mut body = vec![0; length];
            drop(std::io::Read::read_exact(&mut reader, &mut body));
            text.push_str(&String::from_utf8_lossy(&body));
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            drop(std::io::Write::write_all(reader.get_mut(), answer));
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    (port, receiver)
}

#[test]
fn services_and_programs_are_told_how_runs_end() {
    let (port, sent) = listening();
    let notify = "[notify.hc]\nkind = \"healthchecks\"\nurl-file = \"@/url\"\n[notify.hook]\nkind = \"webhook\"\nurl-file = \"@/url\"\n\
                  on = [\"failure\", \"recovery\"]\n[notify.me]\nkind = \"command\"\nrun = \"echo $LARDER_EVENT >> @/told\"\n\
                  on = [\"success\", \"failure\"]\n";
    let it = simple(notify);
    it.play.write("url", format!("http://127.0.0.1:{port}/ping/secret\n"));
    std::fs::set_permissions(it.play.path("url"), PermissionsExt::from_mode(0o600)).expect("ours");
    it.larder(&["run", "home"]).ok();
    let next = || sent.recv_timeout(Duration::from_secs(30)).expect("a request");
    assert!(next().starts_with("POST /ping/secret/start HTTP/1.1\r\n"));
    let end = next();
    assert!(end.starts_with("POST /ping/secret HTTP/1.1\r\n"), "{end}");
    schema::check("run_summary", &serde_json::from_str(end.lines().last().expect("a body")).expect("JSON"));
    // A failure, and the first success after it.
    it.play.write("password", "wrong");
    it.larder(&["run", "home"]).code(12);
    assert!(next().starts_with("POST /ping/secret/start "));
    assert!(next().starts_with("POST /ping/secret/fail "));
    assert!(next().to_lowercase().contains("x-larder-event: failure"));
    it.play.write("password", PASSWORD);
    it.larder(&["run", "home"]).ok();
    assert!(next().starts_with("POST /ping/secret/start "));
    assert!(next().starts_with("POST /ping/secret HTTP"));
    assert!(next().to_lowercase().contains("x-larder-event: recovery"));
    assert_eq!(it.text("told"), "success\nfailure\nsuccess\n");
    // A dry run tells nobody.
    it.larder(&["run", "home", "--dry-run"]).ok();
    assert!(sent.try_recv().is_err());
}

/// A service that cannot be reached is a warning, which does not show its address.
#[test]
fn messages_that_are_not_sent_change_nothing() {
    let it = simple("[notify.hc]\nkind = \"webhook\"\nurl-file = \"@/url\"\non = \"success\"\n");
    it.play.write("url", "http://127.0.0.1:9/secret");
    let ran = it.larder(&["run", "home"]).ok().says("can be read by others");
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    std::fs::set_permissions(it.play.path("url"), PermissionsExt::from_mode(0o600)).expect("ours");
    let ran = it.larder(&["run", "home"]).ok().says("the notification hc was not sent");
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
}

/// Goal: services and programs that hang are left after their time, and the exit code stays that of the backup.
#[test]
fn messages_that_hang_are_left() {
    // The system accepts connections, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let it = simple(
        "[notify.hc]\nkind = \"webhook\"\nurl-file = \"@/url\"\non = [\"success\", \"failure\"]\ntimeout = \"1s\"\n\
         [notify.mail]\nkind = \"command\"\non = [\"success\", \"failure\"]\n\
         run = { run = [\"sleep\", \"100000\"], timeout = \"1s\" }\n",
    );
    it.play.write("url", format!("http://127.0.0.1:{port}/secret"));
    std::fs::set_permissions(it.play.path("url"), PermissionsExt::from_mode(0o600)).expect("ours");
    it.larder(&["config", "check"]).ok();
    let told = |ran: Ran| {
        let ran = ran.says("the notification hc was not sent: no answer within 1s");
        let ran = ran.says("the notification mail was not sent").says("did not end within 1s and was stopped");
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    };
    told(it.larder(&["run", "home"]).ok());
    it.play.write("password", "wrong");
    told(it.larder(&["run", "home"]).code(12));
}

#[test]
fn metrics_have_all_profiles() {
    let it = simple(
        "[profiles.gone]\nsources = [\"@/none\"]\nrepositories = [\"nas\"]\n[metrics]\nfile = \"@/larder.prom\"\n",
    );
    it.larder(&["run", "home"]).ok();
    let first = it.text("larder.prom");
    for sample in [
        "larder_run_success{profile=\"home\",repository=\"\",command=\"run\"} 1",
        "larder_run_exit_code{profile=\"home\",repository=\"nas\",command=\"backup\"} 0",
        "larder_backup_files_new{profile=\"home\",repository=\"nas\"} 2",
    ] {
        assert!(first.lines().any(|line| line == sample), "{sample} is not in\n{first}");
    }
    // So are numbers of the repository: series of all machines, and what is stored.
    assert!(
        first.contains("larder_snapshots{repository=\"nas\",series=\"") && first.contains(":home\"} 1\n"),
        "{first}"
    );
    for name in
        ["larder_series_newest_timestamp_seconds", "larder_repository_stored_bytes", "larder_repository_objects"]
    {
        let sample = first.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        assert!(sample.is_some_and(|(_, value)| value != "0"), "{name} in\n{first}");
    }
    assert!(first.contains("larder_unreadable_snapshots{repository=\"nas\"} 0\n"), "{first}");
    // Others keep their last values.
    it.larder(&["run", "gone", "--metrics-file", "other.prom"]);
    let second = it.text("other.prom");
    assert!(second.contains("profile=\"gone\"") && second.contains("profile=\"home\""), "{second}");
    assert_eq!(it.text("larder.prom"), first, "the option takes the place of the table");
    // One that cannot be written is a warning.
    it.larder(&["run", "home", "--metrics-file", "/no/such/folder/x.prom"]).ok().says("cannot be written");
}
