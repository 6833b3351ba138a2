//! The commands of Larder and restic, each with its own defaults.

use std::path::{Path, PathBuf};
use std::process::Command;

use larder_bench_common::node::PASSWORD;

use super::Minio;

/// A program with a repository of its own. Jobs are told apart by series (Larder) or tag (restic).
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    kind: Kind,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Larder,
    Restic,
}

impl Tool {
    pub(crate) fn larder(program: &Path, repository: &str, cache: &Path) -> Self {
        let variables = [
            ("LARDER_REPOSITORY", repository.to_owned()),
            ("LARDER_PASSWORD", PASSWORD.to_owned()),
            ("LARDER_CACHE_DIR", cache.display().to_string()),
            ("LARDER_STATE", cache.with_extension("state").display().to_string()),
        ];
        Self { name: "Larder", kind: Kind::Larder, program: program.to_owned(), variables: variables.to_vec() }
    }

    pub(crate) fn restic(program: &Path, repository: &str, cache: &Path) -> Self {
        let variables = [
            ("RESTIC_REPOSITORY", repository.to_owned()),
            ("RESTIC_PASSWORD", PASSWORD.to_owned()),
            ("RESTIC_CACHE_DIR", cache.display().to_string()),
        ];
        Self { name: "restic", kind: Kind::Restic, program: program.to_owned(), variables: variables.to_vec() }
    }

    /// The same with keys for this server.
    pub(crate) fn at(mut self, _: &Minio) -> Self {
        self.variables.extend(Minio::variables().map(|(name, value)| (name, value.to_owned())));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--quiet").envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    pub(crate) fn init(&self) -> Command {
        let mut command = self.command();
        command.arg("init");
        command
    }

    pub(crate) fn back_up(&self, series: &str, folder: &Path) -> Command {
        let mut command = self.command();
        command.arg("backup").arg(if self.kind == Kind::Larder { "--series" } else { "--tag" });
        command.arg(series).arg(folder);
        command
    }

    /// Where [`Tool::restore`] put what was in `folder`: both keep the whole path.
    pub(crate) fn restored(&self, target: &Path, folder: &Path) -> PathBuf {
        target.join(folder.strip_prefix("/").unwrap_or(folder))
    }

    /// A stream of what was in `folder` in the newest version of a series, which nobody reads.
    pub(crate) fn dump(&self, series: &str, folder: &Path) -> Command {
        let mut command = self.command();
        command
            .args(["dump", if self.kind == Kind::Larder { "--series" } else { "--tag" }, series, "latest"])
            .arg(folder);
        command
    }

    /// One task of a pass, which tells what it did as JSON. Only Larder has it.
    pub(crate) fn optimize(&self, task: &str) -> Command {
        let mut command = self.command();
        command.args(["optimize", "--json", "--task", task]);
        command
    }

    pub(crate) fn list(&self) -> Command {
        let mut command = self.command();
        command.arg("snapshots");
        command
    }

    /// The newest version of a series.
    pub(crate) fn restore(&self, series: &str, target: &Path) -> Command {
        let mut command = self.command();
        command.args(["restore", "latest", if self.kind == Kind::Larder { "--series" } else { "--tag" }, series]);
        command.arg("--target").arg(target);
        command
    }
}
