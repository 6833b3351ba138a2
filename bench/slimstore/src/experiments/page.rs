//! What an experiment leaves: a markdown page, printed and written, and its plots.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::Settings;
use crate::table::Table;

/// See the module header.
pub(super) struct Page {
    name: &'static str,
    folder: PathBuf,
    load: String,
    text: String,
}

impl Page {
    pub(super) fn new(name: &'static str, title: &str, settings: &Settings) -> anyhow::Result<Self> {
        fs::create_dir_all(&settings.out).with_context(|| format!("cannot make {}", settings.out.display()))?;
        let Settings { scale, seed, versions, .. } = settings;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let text = format!(
            "# {title}\n\nScale {scale}, seed {seed}, at most {versions} versions; {} on {cores} cores.\n\n",
            processor()
        );
        Ok(Self { name, folder: settings.out.clone(), load: load(), text })
    }

    pub(super) fn say(&mut self, words: &str) {
        self.text.push_str(words);
        self.text.push_str("\n\n");
    }

    pub(super) fn table(&mut self, table: &Table) {
        self.text.push_str(&table.render());
        self.text.push('\n');
    }

    /// Writes a plot and shows it here.
    pub(super) fn plot(&mut self, name: &str, svg: &str) -> anyhow::Result<()> {
        let file = format!("{}-{name}.svg", self.name);
        let path = self.folder.join(&file);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        self.say(&format!("![{name}]({file})"));
        Ok(())
    }

    /// Prints the page and writes it.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
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
