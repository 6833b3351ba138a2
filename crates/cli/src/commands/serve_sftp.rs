//! `larder serve-sftp`: a folder for repositories, served on standard streams. An SSH server starts
//! it instead of its own SFTP server.

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
    let parent = args.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(missing) = parent.filter(|parent| !parent.exists()) {
        let why = format!("cannot serve {}: there is no folder {}", args.folder.display(), missing.display());
        return Err(Failure::usage(why).advise("check the path in authorized_keys"));
    }
    if args.folder.exists() && !args.folder.is_dir() {
        return Err(Failure::usage(format!("cannot serve {}: it is not a folder", args.folder.display())));
    }
    let rules = Rules { append_only: args.append_only, max_size: args.max_size };
    let served = app.block_on(larder_sftp::serve(&args.folder, rules, StandardStreams::default()));
    let was_greeted = served.map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot serve {}", args.folder.display()))
    })?;
    match was_greeted {
        true => Ok(Exit::Done),
        false => Err(Failure::usage("nothing on standard input spoke SFTP")
            .advise("sshd starts this command for a client: command=\"larder serve-sftp FOLDER\" in authorized_keys")),
    }
}
