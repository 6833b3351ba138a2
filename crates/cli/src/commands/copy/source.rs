//! Opens the repository that is copied from.

use std::ffi::OsString;

use crate::app::App;
use crate::args::CopyArgs;
use crate::configured::{Configured, environment_file, second};
use crate::environment::variable;
use crate::failure::Failure;

/// The context of commands on that repository. Only its own variables, and those of the process,
/// count for its storage.
pub(super) fn source(app: &App, args: &CopyArgs) -> Result<App, Failure> {
    let from = &args.from;
    let of_variable = || variable("LARDER_FROM_REPOSITORY").filter(|_| from.from_repository_file.is_none());
    let location: Option<OsString> = from.from_repo.clone().or_else(of_variable);
    let (base, configured, is_named) = second(&app.configured, &app.global, location.as_deref())?;
    let mut variables = configured.variables;
    if let Some(file) = &from.storage.from_environment_file {
        variables.extend(environment_file::read(file)?);
    }
    let repository = configured.repository.or_else(|| Some("to copy from".to_owned()));
    let secret = app.configured.secret_of_source.clone();
    let configured =
        Configured { config: app.configured.config.clone(), repository, variables, secret, ..Configured::default() };
    Ok(app.step(from.global(base, is_named), configured, app.out.clone()))
}
