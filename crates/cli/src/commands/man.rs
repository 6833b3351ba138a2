//! `larder man [DIR]`: the manual pages, made from the same texts as `--help`.

use std::io;
use std::path::Path;

use clap_mangen::Man;

use crate::app::App;
use crate::args::ManArgs;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &ManArgs) -> Result<Exit, Failure> {
    let mut larder = crate::args::command();
    larder.build();
    let failed = |error: io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot write the manual pages");
    match &args.dir {
        None => {
            let mut page = Vec::new();
            Man::new(larder).render(&mut page).map_err(failed)?;
            app.out.raw(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            let count = write_all(larder, dir).map_err(failed)?;
            app.out.info(format!("{} written to {}", crate::sizes::count(count, "manual page"), dir.display()))?;
        }
    }
    Ok(Exit::Done)
}

/// Writes a page for the program, each verb and each verb's verb.
fn write_all(larder: clap::Command, dir: &Path) -> io::Result<u64> {
    std::fs::create_dir_all(dir)?;
    let mut waiting = vec![(larder, "larder".to_owned())];
    let mut count = 0;
    while let Some((command, name)) = waiting.pop() {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
            waiting.push((verb.clone(), format!("{name}-{}", verb.get_name())));
        }
        let mut page = Vec::new();
        // A page is called what it is about, and the list of verbs refers to pages by that name.
        Man::new(command.name(&name).display_name(&name)).render(&mut page)?;
        std::fs::write(dir.join(format!("{name}.1")), page)?;
        count += 1;
    }
    Ok(count)
}
