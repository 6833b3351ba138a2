//! `larder completions SHELL`.

use clap::CommandFactory;

use crate::app::App;
use crate::args::{Cli, CompletionsArgs};
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &CompletionsArgs) -> Result<Exit, Failure> {
    // Written to memory first: the generator panics when its writer fails, like a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "larder", &mut script);
    app.out.raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
