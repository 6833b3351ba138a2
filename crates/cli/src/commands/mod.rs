//! One module for each verb: calls the crates below with its arguments, prints, and returns the
//! exit code.

mod acceptor;
mod backup;
mod cat;
mod check;
mod client_lines;
mod completions;
mod config;
mod copy;
mod diff;
mod drill;
mod dump;
mod find;
mod fleet;
mod forget;
mod gnode;
mod history;
mod import;
mod init;
mod key;
mod layout;
mod listen;
mod ls;
mod man;
mod metrics_server;
mod metrics_text;
mod mount;
mod optimize;
mod pin;
mod read_limit;
mod reading_metrics;
mod reclaimable;
mod repair;
mod repository_numbers;
mod restore;
mod rewrite;
mod run;
mod schedule;
mod series;
mod serve_block;
mod serve_sftp;
mod serve_webdav;
mod shown_tree;
mod snapshots;
mod stats;
mod storing;
mod tag;
mod unlock;
mod validate_store;
mod version;
mod volume;

use crate::app::App;
use crate::args::Command;
use crate::durations;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command, and notes how long it took.
pub(crate) fn run(app: &App, command: Command) -> Result<Exit, Failure> {
    let kind = durations::kind(&command);
    let exit = dispatch(app, command)?;
    if let Some(kind) = kind {
        durations::note(app, kind, exit);
    }
    Ok(exit)
}

fn dispatch(app: &App, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Init(args) => init::run(app, &args),
        Command::Backup(args) => backup::run(app, &args),
        Command::Snapshots(args) => snapshots::run(app, &args),
        Command::Ls(args) => ls::run(app, &args),
        Command::Find(args) => find::run(app, &args),
        Command::History(args) => history::run(app, &args),
        Command::Diff(args) => diff::run(app, &args),
        Command::Stats(args) => stats::run(app, &args),
        Command::Restore(args) => restore::run(app, &args),
        Command::Dump(args) => dump::run(app, &args),
        Command::Mount(args) => mount::run(app, &args),
        Command::ServeBlock(args) => serve_block::run(app, &args),
        Command::ServeSftp(args) => serve_sftp::run(app, &args),
        Command::ServeWebdav(args) => serve_webdav::run(app, &args),
        Command::Check(args) => check::run(app, &args),
        Command::Drill(args) => drill::run(app, &args),
        Command::Forget(args) => forget::run(app, &args),
        Command::Pin(args) => pin::pin(app, &args),
        Command::Unpin(args) => pin::unpin(app, &args),
        Command::Tag(args) => tag::run(app, &args),
        Command::Copy(args) => copy::run(app, &args),
        Command::Import(args) => import::run(app, &args),
        Command::Rewrite(args) => rewrite::run(app, &args),
        Command::Series(args) => series::run(app, &args),
        Command::Layout(args) => layout::run(app, &args),
        Command::Optimize(args) => optimize::run(app, &args),
        Command::Gnode(args) => gnode::run(app, &args),
        Command::Run(args) => run::run(app, &args),
        Command::Schedule(args) => schedule::run(app, &args),
        Command::Config(args) => config::run(app, &args),
        Command::Fleet(args) => fleet::run(app, &args),
        Command::Repair(args) => repair::run(app, &args),
        Command::Key(args) => key::run(app, &args),
        Command::ValidateStore(args) => validate_store::run(app, &args),
        Command::Unlock(_) => unlock::run(app),
        Command::Cat(args) => cat::run(app, &args),
        Command::Completions(args) => completions::run(app, &args),
        Command::Man(args) => man::run(app, &args),
        Command::Volume(args) => volume::run(app, &args),
        Command::Version => version::run(app),
    }
}
