//! The second repository of a command. Options and variables that the configuration has for the
//! first one are none of its own.

use std::ffi::{OsStr, OsString};

use super::{Configured, Definitions, Wanted, name_in, step};
use crate::args::{Global, StorageArgs};
use crate::failure::Failure;

/// Typed options that are about the first repository.
const OF_FIRST: [&str; 12] = [
    "--repo=",
    "--repository-file=",
    "--key-file=",
    "--password-file=",
    "--password-command=",
    "--password-fd=",
    "--insecure-no-password",
    "--insecure-tls",
    "--cacert=",
    "--tls-client-cert=",
    "--option=",
    "--prices=",
];

/// The options and the configuration for a second repository at a location, which may be a name of
/// the configuration; and whether it is. `own` are the options of the command.
pub(crate) fn second(
    configured: &Configured,
    own: &Global,
    location: Option<&OsStr>,
) -> Result<(Global, Configured, bool), Failure> {
    let Some(config) = &configured.config else {
        // Who does not verify one storage may still verify the other one.
        let own = Global {
            insecure_tls: false,
            cacert: None,
            tls_client_cert: None,
            storage: StorageArgs::default(),
            prices: None,
            ..own.clone()
        };
        return Ok((own, Configured::default(), false));
    };
    let name = location.map(|location| name_in(config, location)).transpose()?.flatten();
    let repository = name.as_deref().and_then(|name| config.repository(name));
    let is_of_first = |word: &&OsString| {
        let word = word.to_string_lossy();
        OF_FIRST.iter().any(|option| word.starts_with(option))
    };
    let typed: Vec<OsString> = configured.typed.iter().filter(|word| !is_of_first(word)).cloned().collect();
    let wanted = Wanted { profile: None, repository, copy: None };
    // Any verb that has no options of its own.
    let (cli, configured) = step(&Definitions::new(), config, wanted, "unlock", &typed)?;
    let global = Global {
        json: own.json,
        quiet: own.quiet,
        verbose: own.verbose,
        // Both repositories share what one command may use.
        memory: own.memory,
        threads: own.threads,
        limit_upload: own.limit_upload,
        limit_download: own.limit_download,
        timeout: own.timeout,
        ..cli.global
    };
    Ok((global, configured, repository.is_some()))
}
