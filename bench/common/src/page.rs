//! What an experiment leaves: a markdown page, printed and written, and its plots.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::table::Table;

/// See the module header.
pub struct Page {
    name: String,
    folder: PathBuf,
    load: String,
    text: String,
}

impl Page {
    /// A page that will lie in a folder. `settings` are those that it was made with, in words.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(name: &str, title: &str, settings: &str, folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let text = format!("# {title}\n\n{settings}; {} on {cores} cores.\n\n", processor());
        Ok(Self { name: name.to_owned(), folder: folder.to_owned(), load: load(), text })
    }

    /// Appends a paragraph, or a heading.
    pub fn say(&mut self, words: &str) {
        self.text.push_str(words);
        self.text.push_str("\n\n");
    }

    /// Appends a table.
    pub fn table(&mut self, table: &Table) {
        self.text.push_str(&table.render());
        self.text.push('\n');
    }

    /// Writes a plot and shows it here.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn plot(&mut self, name: &str, svg: &str) -> anyhow::Result<()> {
        let file = format!("{}-{name}.svg", self.name);
        let path = self.folder.join(&file);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        self.say(&format!("![{name}]({file})"));
        Ok(())
    }

    /// Prints the page and writes it.
    ///
    /// # Errors
    /// When it cannot be written or printed.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let words = format!(
            "Load of the machine when this began {}, and when it ended {}; the run itself makes 1.",
            self.load,
            load()
        );
        self.say(&words);
        let path = self.folder.join(format!("{}.md", self.name));
        let text = format!("{}\n", self.text.trim_end());
        fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the page")
    }
}

/// How many processes wanted a core in the last minute: what was measured beside many others is slower than it need be.
fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split_ascii_whitespace().next().unwrap_or("unknown").to_owned()
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
