//! `larder man [DIR]`: the manual pages, made from the same texts as `--help`.

mod sections;

use std::io;
use std::path::Path;

use clap_mangen::Man;

use crate::app::App;
use crate::args::ManArgs;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &ManArgs) -> Result<Exit, Failure> {
    let pages = pages();
    let failed = |error: io::Error| Failure::of_file(&error).while_doing("cannot write the manual pages");
    match &args.dir {
        None => {
            let main = pages.iter().find(|page| page.path.is_empty()).map_or(Ok(Vec::new()), Page::render);
            app.out.raw(&String::from_utf8_lossy(&main.map_err(failed)?))?;
        }
        Some(dir) => {
            if dir.is_file() {
                return Err(Failure::usage(format!("{} is not a folder", dir.display())));
            }
            write_all(&pages, dir).map_err(failed)?;
            let count = crate::sizes::count(pages.len() as u64, "manual page");
            app.out.info(format!("{count} written to {}", dir.display()))?;
        }
    }
    Ok(Exit::Done)
}

/// The page of a verb.
struct Page {
    /// The words of the verb; none for the program.
    path: Vec<String>,
    command: clap::Command,
    /// Names of the verbs next to it, if it is below a verb.
    siblings: Vec<String>,
}

/// A page for the program, each verb and each verb's verb.
fn pages() -> Vec<Page> {
    let mut larder = for_pages(crate::args::command());
    larder.build();
    let mut pages = Vec::new();
    let mut waiting = vec![Page { path: Vec::new(), command: larder, siblings: Vec::new() }];
    while let Some(page) = waiting.pop() {
        let verbs: Vec<_> = page.command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
        let siblings: Vec<_> = verbs.iter().map(|verb| verb.get_name().to_owned()).collect();
        for verb in verbs {
            let path = [&page.path[..], &[verb.get_name().to_owned()]].concat();
            let siblings = if page.path.is_empty() { Vec::new() } else { siblings.clone() };
            waiting.push(Page { path, command: verb.clone(), siblings });
        }
        pages.push(page);
    }
    pages
}

/// The command line as the pages show it: every option has its text, and there is no verb `help`.
fn for_pages(command: clap::Command) -> clap::Command {
    // The generator of pages omits the text of options that `-h` does not show.
    let command = command.disable_help_subcommand(true).mut_args(|arg| arg.hide_short_help(false));
    command.mut_subcommands(for_pages)
}

impl Page {
    /// The name of the page: `larder-key-add`.
    fn name(&self) -> String {
        [&["larder".to_owned()], &self.path[..]].concat().join("-")
    }

    fn render(&self) -> io::Result<Vec<u8>> {
        let mut command = self.command.clone();
        let usage = command.render_usage().to_string();
        let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
        // The name of a page is its title, and the list of verbs refers to pages by that name.
        let man = Man::new(command.name(self.name()).display_name(self.name()))
            .source(format!("larder {}", env!("CARGO_PKG_VERSION")))
            .manual("Larder Manual");
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if self.command.get_subcommands().any(|verb| !verb.is_hide_set()) {
            man.render_subcommands_section(&mut page)?;
        }
        sections::render(self, &mut page)?;
        Ok(page)
    }
}

/// Writes every page into a folder.
fn write_all(pages: &[Page], dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    pages.iter().try_for_each(|page| std::fs::write(dir.join(format!("{}.1", page.name())), page.render()?))
}
