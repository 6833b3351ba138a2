//! Before the first hook: every repository is opened once. Nobody is asked for a password in the
//! middle of the night, and a wrong key costs nothing.

use larder_profile::config::Repository;

use crate::app::{App, Opened};
use crate::configured::{Wanted, step};
use crate::failure::Failure;

use super::runner::Runner;

impl Runner<'_> {
    /// Opens each repository, and reports those that cannot be opened. A signal ends the process
    /// meanwhile.
    pub(super) fn open_all(&mut self, repositories: &[&Repository]) {
        for repository in repositories {
            if let Err(failure) = self.open(repository) {
                self.app.out.of_step(self.labels(None, Some(repository), "open")).failure(&failure);
                self.opened.failed.insert(repository.name.clone(), failure.exit);
            }
        }
    }

    /// Opens a repository with the options of the file.
    pub(super) fn open(&mut self, repository: &Repository) -> Result<(App, Opened), Failure> {
        let wanted = Wanted { profile: None, repository: Some(repository), copy: None };
        let (cli, mut configured) = step(self.definitions, self.config, wanted, "check", &self.app.configured.typed)?;
        configured.secret = self.opened.secret(repository);
        let out = self.app.out.of_step(self.labels(None, Some(repository), "open"));
        let app = self.app.step(cli.global, configured, out);
        let opened = app.open().map_err(|failure| failure.while_doing(&format!("repository {}", repository.name)));
        Ok((app, opened?))
    }
}
