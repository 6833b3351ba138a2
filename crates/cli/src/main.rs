//! The `larder` binary: arguments, progress, tables, JSON and exit codes only.
//!
//! A run: the command line becomes an [`args::Command`], and [`app::App`] opens the repository. The
//! verb's module in `commands` calls the crates below and prints, and `exit` gives kinds of errors
//! their exit codes. Everything useful to other programs is in the crates below: `gnode`,
//! `rewrite`, `lnode`, `reader`, `source`, `store`.

mod allocator;
mod app;
mod args;
mod commands;
mod configured;
mod durations;
mod environment;
mod exit;
mod failure;
mod foreign_options;
mod foreign_verbs;
mod key_child;
mod key_file;
mod logging;
mod machine;
mod output;
mod password;
mod patterns;
mod physical_memory;
mod refs;
mod restic;
mod secrecy;
mod signals;
mod sizes;
mod small_process;
mod text;
mod thread_limit;
mod time;

use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::app::App;
use crate::configured::{Configured, Refused};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

fn main() {
    secrecy::keep_memory_private();
    if key_child::is_child() {
        std::process::exit(key_child::answer());
    }
    key_child::set_up();
    allocator::set_up();
    std::panic::set_hook(Box::new(logging::report_bug));
    // The runtime's threads may still wait for a store that does not answer; no result is left to
    // wait for.
    std::process::exit(run().code());
}

fn run() -> Exit {
    if let Err(failure) = restic::adopt_variables() {
        Output::new(wants_json(), false, 0).failure(&failure);
        return failure.exit;
    }
    let argv = args::spell_levels(std::env::args_os());
    let (argv, has_byte_limit) = if restic::is_on() { restic::without_byte_limits(argv) } else { (argv, false) };
    let (mut cli, configured) = match parse(&argv) {
        Ok(parsed) => parsed,
        Err(Refused::Clap(error)) => return refuse(&error),
        Err(Refused::Failure(failure)) => {
            Output::new(wants_json(), false, 0).failure(&failure);
            return failure.exit;
        }
    };
    let out = Output::new(cli.global.json, cli.global.quiet, cli.global.verbose);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        logging::start(&cli.global, &out)?;
        larder_chunking::self_test().map_err(|error| {
            Failure::of(Exit::Failed, &error)
                .while_doing("this machine computes wrongly; nothing was read or written")
                .advise("the processor, its memory or this build of the program is faulty")
        })?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), verb = cli.command.name(), "begin");
        tell_of_ignored(&cli, has_byte_limit, &out);
        if let Some(total) = cli.command.total_memory() {
            small_process::begin(total, &mut cli.global)?;
        }
        if cli.command.mounts() {
            allocator::keep_parts_alone();
        }
        let app = App::new(cli.global, configured, out.clone());
        thread_limit::check(app.threads())?;
        let exit = commands::run(&app, cli.command)?;
        app.out.flush()?;
        Ok::<_, Failure>(app.final_exit(exit))
    }));
    let exit = report(ended, &out);
    tracing::info!(code = exit.code(), "end");
    exit
}

/// Reads the command line. A verb may be typed as two words.
fn parse(argv: &[OsString]) -> Result<(args::Cli, Configured), Refused> {
    match configured::parse(argv) {
        Err(Refused::Clap(error)) => match args::in_one_word(argv, &error) {
            Some(joined) => configured::parse(&joined),
            None => Err(Refused::Clap(error)),
        },
        parsed => parsed,
    }
}

/// Names the options that have no effect, once.
fn tell_of_ignored(cli: &args::Cli, has_byte_limit: bool, out: &Output) {
    let mut ignored = args::ignored(cli, restic::is_on());
    ignored.extend(has_byte_limit.then(|| "--max-unused in bytes".to_owned()));
    if !ignored.is_empty() {
        out.aside(&format!("without effect here: {}", ignored.join(", ")));
    }
}

/// Reports why the command failed, if it did.
fn report(ended: std::thread::Result<Result<Exit, Failure>>, out: &Output) -> Exit {
    match ended {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            drop(out.flush());
            out.failure(&failure);
            failure.exit
        }
        // The hook has reported it.
        Err(_) => Exit::Failed,
    }
}

/// Whether the reader of errors is a program, before the command line is understood.
fn wants_json() -> bool {
    std::env::args_os().take_while(|arg| arg != OsStr::new("--")).any(|arg| arg == OsStr::new("--json"))
}

/// The command line cannot be understood, or only asked for help.
fn refuse(error: &clap::Error) -> Exit {
    let wants_json = wants_json();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let failure = error.print().err().map(output::output_failed);
            // A reader that closed the pipe needs no more.
            let Some(failure) = failure.filter(|failure| failure.exit != Exit::OutputClosed) else { return Exit::Done };
            Output::new(wants_json, false, 0).failure(&failure);
            return failure.exit;
        }
        ErrorKind::InvalidSubcommand if let Some(failure) = stranger(error) => {
            Output::new(wants_json, false, 0).failure(&failure);
        }
        ErrorKind::UnknownArgument if let Some(failure) = foreign_options::known(error) => {
            Output::new(wants_json, false, 0).failure(&failure);
        }
        _ if wants_json => {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Output::new(true, false, 0).failure(&Failure::usage(first));
        }
        _ => {
            drop(error.print());
            if let Some(name) = variable(error) {
                Output::new(false, false, 0).warn(&format!("the value is that of the variable {name}"));
            }
        }
    }
    Exit::Usage
}

/// The variable that has the value which an option refuses.
fn variable(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let long = option.strip_prefix("--")?.split([' ', '=']).next()?;
    let command = args::command();
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long))?;
    let name = arg.get_env().filter(|name| std::env::var_os(name).is_some_and(|set| set == *value))?;
    let is_typed = std::env::args_os().any(|word| word.to_string_lossy().starts_with(&format!("--{long}")));
    (!is_typed).then(|| name.to_string_lossy().into_owned())
}

/// The failure for a verb of another program.
fn stranger(error: &clap::Error) -> Option<Failure> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) => foreign_verbs::known(verb),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
