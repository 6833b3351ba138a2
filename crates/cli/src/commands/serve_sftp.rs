//! `larder serve-sftp`: a folder for repositories, served on standard streams. An SSH server starts
//! it in the place of its own SFTP server.

use std::io::IsTerminal;

use larder_sftp::{Rules, StandardStreams};

use crate::app::App;
use crate::args::ServeSftpArgs;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &ServeSftpArgs) -> Result<Exit, Failure> {
    if std::io::stdin().is_terminal() {
        return Err(Failure::usage("serve-sftp speaks with a program on its standard streams, not with a terminal")
            .advise("let sshd start it: command=\"larder serve-sftp FOLDER --append-only\" in authorized_keys"));
    }
    let rules = Rules { append_only: args.append_only, max_size: args.max_size };
    let served = app.block_on(larder_sftp::serve(&args.folder, rules, StandardStreams::default()));
    served.map(|()| Exit::Done).map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot serve {}", args.folder.display()))
    })
}
