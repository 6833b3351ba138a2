//! `larder serve-webdav`: snapshots as folders for WebDAV clients.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use larder_job::{Clock, SystemClock};
use larder_webdav::{Credentials, LeftOut, OnWrongPassword, Options, Server, Tls};
use serde_json::{Value, json};

use super::listen::host_of;
use super::reading_metrics;
use super::shown_tree::{Shown, Wanted, Way};
use crate::app::App;
use crate::args::ServeWebdavArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::password::PasswordSource;
use crate::sizes;

pub(super) fn run(app: &App, args: &ServeWebdavArgs) -> Result<Exit, Failure> {
    let address = address(&args.addr)?;
    expect_safe(args, address)?;
    let (credentials, tls, out) = (credentials(args)?, tls(args)?, app.out.clone());
    let tell = move |peer: IpAddr| out.warn(&format!("a request from {peer} had a wrong password"));
    let on_wrong_password = Some(OnWrongPassword { tell: Arc::new(tell), now: Arc::new(Instant::now) });
    let options = Options { credentials, tls, on_wrong_password };
    let way = Way {
        times: &args.time_template,
        owner_root: false,
        counts_names: false,
        doing: "serving snapshots",
        place: "the served folders",
    };
    let shown = Wanted::of(app, &args.shown, way)?.open(app, way)?;
    let (served, tree) = (shown.served(SystemClock.now_ms()), shown.tree.clone());
    let render = move || {
        served().render("larder_webdav_", |text| {
            text.gauge("snapshots", "Snapshots that are shown.", tree.snapshots() as u64);
        })
    };
    let _metrics = reading_metrics::start(app, args.metrics.as_deref(), Arc::new(render))?;
    let server = Server::start(address, shown.tree.clone(), options)
        .map_err(|error| Failure::of_file(&error).while_doing(&format!("cannot listen on {address}")))?;
    let announced = announce(app, args, &server, &shown);
    app.out.end_if_failed(announced);
    shown.until_the_end(app, || server.is_over());
    let exit = if server.is_over() { Exit::Failed } else { Exit::Done };
    let left_out = server.left_out();
    server.end();
    shown.end(app);
    app.out.end_if_failed(farewell(app, &shown, left_out));
    Ok(exit)
}

fn address(text: &OsStr) -> Result<SocketAddr, Failure> {
    let wrong = || Failure::usage("--addr takes HOST:PORT, such as 127.0.0.1:8080");
    let text = text.to_str().ok_or_else(wrong)?;
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
        _ => return Err(wrong()),
    }
    // Its name may be known later.
    let unknown = |why: String| Failure::new(Exit::Failed, format!("cannot find the address of {text}: {why}"));
    let mut found = text.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("there is none".to_owned()))
}

/// Refuses to show snapshots to a network without a password and encryption.
fn expect_safe(args: &ServeWebdavArgs, address: SocketAddr) -> Result<(), Failure> {
    if address.ip().is_loopback() || args.insecure {
        return Ok(());
    }
    let (missing, why) = match (&args.user, &args.tls_cert) {
        (None, _) => ("--user", "everybody who reaches it could read all snapshots"),
        (_, None) => ("--tls-cert", "everybody on the way could read the password and all files"),
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("{address} needs {missing}, because {why}"))
        .advise("--insecure allows it, and 127.0.0.1 is only for this machine"))
}

fn credentials(args: &ServeWebdavArgs) -> Result<Option<Credentials>, Failure> {
    let (Some(user), Some(file)) = (&args.user, &args.user_password_file) else { return Ok(None) };
    // Not a password of the repository, so neither its exit code nor its advice.
    let password = PasswordSource::File(file.clone()).get_of_user();
    let password = password.map_err(|failure| Failure::usage(format!("--user-password-file: {}", failure.message)))?;
    let credentials = Credentials::new(user, &password);
    credentials.map(Some).ok_or_else(|| Failure::usage("the name of --user cannot be empty or have a colon"))
}

fn tls(args: &ServeWebdavArgs) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    Tls::from_files(certificate, key).map(Some).map_err(|error| Failure::of(Exit::Failed, &error))
}

/// The address that clients use.
fn url(args: &ServeWebdavArgs, address: SocketAddr) -> String {
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    match address.ip().is_unspecified() {
        true => format!("{scheme}://{}:{}/", host_of(&address), address.port()),
        false => format!("{scheme}://{address}/"),
    }
}

fn announce(app: &App, args: &ServeWebdavArgs, server: &Server, shown: &Shown) -> Result<(), Failure> {
    let (url, is_local) = (url(args, server.address()), server.address().ip().is_loopback());
    match (&args.user, &args.tls_cert) {
        (None, _) if is_local => {
            app.out.remark(
                "note: all programs and users of this machine can read the snapshots; --user asks for a password",
            );
        }
        (None, _) => app.out.warn("everybody who reaches this server can read all snapshots"),
        (Some(_), None) if !is_local => app.out.warn("the password and all files are sent without encryption"),
        _ => {}
    }
    if app.out.is_json() {
        return event(app, "serving", |event| {
            event["url"] = json!(url);
            event["snapshots"] = json!(shown.tree.snapshots());
        });
    }
    app.out.line(format!("serving {}, read-only:", sizes::count(shown.tree.snapshots() as u64, "snapshot")))?;
    app.out.line(format!("  {url}"))?;
    app.out.info("Stop it with Ctrl-C or SIGTERM.")?;
    app.out.flush()
}

/// Says what was left out, and what was fetched.
fn farewell(app: &App, shown: &Shown, left_out: LeftOut) -> Result<(), Failure> {
    if app.out.is_json() {
        return event(app, "ended", |event| {
            event["links_left_out"] = json!(left_out.links);
            event["special_files_left_out"] = json!(left_out.special);
            shown.put_fetched(event);
        });
    }
    if left_out != LeftOut::default() {
        let counts = [(left_out.links, "link"), (left_out.special, "special file")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, kind)| sizes::count(count, kind)).collect();
        app.out.remark(&format!("note: not shown in folders: {}", counts.join(" and ")));
    }
    shown.tell_fetched(app);
    Ok(())
}

/// One line of JSON.
fn event(app: &App, name: &str, fill: impl FnOnce(&mut Value)) -> Result<(), Failure> {
    let mut event = json!({ "message_type": "serve_webdav", "event": name });
    fill(&mut event);
    app.out.json_now(&event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn networks_need_a_password_and_encryption() {
        let exit = |line: &str| {
            let words = ["larder", "serve-webdav"].into_iter().chain(line.split(' '));
            let Command::ServeWebdav(args) = Cli::try_parse_from(words).expect("accepted").command else {
                unreachable!("it is the verb")
            };
            address(&args.addr).and_then(|address| expect_safe(&args, address)).err().map(|failure| failure.exit)
        };
        for safe in [
            "--addr 127.0.0.1:0",
            "--addr [::1]:8080",
            "--addr 0.0.0.0:1 --insecure",
            "--addr 192.0.2.1:1 --user u --user-password-file f --tls-cert c --tls-key k",
        ] {
            assert_eq!(exit(safe), None, "{safe}");
        }
        for unsafe_ in [
            "--addr 0.0.0.0:1",
            "--addr 192.0.2.1:1 --user u --user-password-file f",
            "--addr [::]:1 --tls-cert c --tls-key k",
            "--addr 127.0.0.1",
            "--addr :",
        ] {
            assert_eq!(exit(unsafe_), Some(Exit::Usage), "{unsafe_}");
        }
    }
}
