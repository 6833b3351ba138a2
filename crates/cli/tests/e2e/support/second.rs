//! A second repository beside that of the play, with another password and longer chunks, which gets copies.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{PASSWORD, Play, Ran, run, schema};

/// The password of the second repository.
pub(crate) const OTHER: &str = "another password";

/// See the module header.
pub(crate) struct Second<'a> {
    pub(crate) play: &'a Play,
}

impl<'a> Second<'a> {
    pub(crate) fn of(play: &'a Play) -> Self {
        let second = Self { play };
        second.larder(["init", "--insecure-kdf", "--chunk-size", "16KiB"]).ok();
        second
    }

    /// A run that has not begun. The second repository is that of the command.
    pub(crate) fn command<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Command {
        let mut command = self.play.command(args);
        command.env("LARDER_REPOSITORY", self.play.path("second")).env("LARDER_PASSWORD", OTHER);
        command.env("LARDER_FROM_REPOSITORY", self.play.repository()).env("LARDER_FROM_PASSWORD", PASSWORD);
        command
    }

    pub(crate) fn larder<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Ran {
        run(&mut self.command(args))
    }

    /// Copies, and gives the messages of copied snapshots and the summary.
    #[track_caller]
    pub(crate) fn copy(&self, args: &[&str]) -> (Vec<Value>, Value) {
        copied(self.larder([&["copy", "--json"], args].concat()).ok())
    }

    /// The same with another exit code.
    #[track_caller]
    pub(crate) fn copy_with(&self, code: i32, args: &[&str]) -> (Value, String) {
        let ran = self.larder([&["copy", "--json"], args].concat()).code(code);
        let stderr = ran.stderr.clone();
        (copied(ran).1, stderr)
    }

    /// Copies from the second repository into that of the play.
    #[track_caller]
    pub(crate) fn copy_back(&self, args: &[&str]) -> Value {
        let mut command = self.play.command([&["copy", "--json"], args].concat());
        command.env("LARDER_FROM_REPOSITORY", self.play.path("second")).env("LARDER_FROM_PASSWORD", OTHER);
        copied(run(&mut command).ok()).1
    }

    pub(crate) fn snapshots(&self) -> Vec<Value> {
        let all = self.larder(["snapshots", "--json"]).ok().json();
        schema::check("snapshots", &all);
        all.as_array().expect("an array").clone()
    }
}

/// The messages of a run of `copy`, which fit their schema.
pub(crate) fn copied(ran: Ran) -> (Vec<Value>, Value) {
    for line in ran.json_lines().iter().filter(|line| line["message_type"] != "status") {
        schema::check("copy", line);
    }
    (ran.messages("copied"), ran.messages("summary").remove(0))
}

/// Where a restore into `target` put the source of the play.
pub(crate) fn restored(play: &Play, target: &str) -> std::path::PathBuf {
    play.path(target).join(play.path("source").strip_prefix("/").expect("absolute"))
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value:#}"))
}

/// Sets an attribute where the file system takes it.
pub(crate) fn set_attribute(path: &Path) {
    let _ = rustix::fs::setxattr(path, "user.larder", b"value", rustix::fs::XattrFlags::empty());
}
