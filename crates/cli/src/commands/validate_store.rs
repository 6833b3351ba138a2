//! `larder validate-store`: tests the guarantees of a store.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use larder_store::conformance::{CheckResult, Extent, VALIDATION_FOLDER, check};
use larder_store::repository::{SystemEntropy, random};
use larder_store::{Location, Store, StoreErrorKind};
use serde_json::json;

use super::init::tell_of_rclone;
use crate::app::App;
use crate::args::ValidateStoreArgs;
use crate::exit::Exit;
use crate::failure::{Failure, chain};

pub(super) fn run(app: &App, args: &ValidateStoreArgs) -> Result<Exit, Failure> {
    let location = match &args.location {
        Some(text) => Location::from_os(text)?,
        None => app.location()?,
    };
    let store = app.store_at(&location)?;
    // A store that cannot be reached is not tested.
    app.block_on(store.list(VALIDATION_FOLDER)).map(drop).or_else(|error| match error.kind {
        StoreErrorKind::NotFound => Ok(()),
        _ => Err(Failure::from(error)),
    })?;
    let made = MadeFolders::of(&location);
    let name = random::<8>(&SystemEntropy)?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    can_create(app, &store, &format!("{VALIDATION_FOLDER}/{name}/first"))?;
    if !made.0.is_empty() {
        app.out.aside(&format!("there was no folder {location}; the test makes it, and removes it at the end"));
    }
    app.out.info(format!("trying out {location}, below {VALIDATION_FOLDER}/{name}"))?;
    let out = app.out.clone();
    let mut printed = Ok(());
    let results = app.block_on(check(&store, &name, Extent::full_for(&location), &mut |result| {
        if printed.is_ok() {
            printed = report(&out, result);
        }
    }));
    printed?;
    let broken = results.iter().filter(|result| result.outcome.is_err()).count();
    if app.out.is_json() {
        let summary = json!({"message_type": "summary", "checks": results.len(), "num_errors": broken, "repository": location.to_string()});
        app.out.json(&summary)?;
    } else if broken == 0 {
        app.out.info("the store keeps all promises that a repository needs")?;
    } else {
        let text = crate::sizes::count(broken as u64, "promise");
        app.out.info(format!("the store breaks {text}: see above what that means for a repository on it"))?;
    }
    tell_of_rclone(app, &store);
    Ok(if broken == 0 { Exit::Done } else { Exit::Failed })
}

/// Folders that the test makes, the deepest first. They are removed at the end, also after an
/// error, unless somebody else put something into them.
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// The missing folders on the way to a location, before the test.
    fn of(location: &Location) -> Self {
        let Location::Local(path) = location else { return Self(Vec::new()) };
        let is_missing = |path: &&Path| {
            !path.as_os_str().is_empty()
                && path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        Self(path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect())
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            match std::fs::remove_dir(folder) {
                Ok(()) => {}
                // The test could not make it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::info!(%error, folder = %folder.display(), "a folder of the test stays");
                    return;
                }
            }
        }
    }
}

/// Fails if no object can be created: then no guarantee can be tested. The checks remove the
/// object.
fn can_create(app: &App, store: &Store, name: &str) -> Result<(), Failure> {
    match app.block_on(store.create(name, name.to_owned().into())) {
        Ok(_) => Ok(()),
        // A store without conditional creation refuses this way: the checks report that.
        Err(error) if matches!(error.kind, StoreErrorKind::Invalid | StoreErrorKind::AlreadyExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn report(out: &crate::output::Output, result: &CheckResult) -> Result<(), Failure> {
    let guarantee = result.guarantee;
    let failure = result.outcome.as_ref().err().map(|error| chain(error));
    if out.is_json() {
        let consequence = failure.as_ref().map(|_| guarantee.protects());
        let line = json!({
            "message_type": "check",
            "guarantee": guarantee.to_string(),
            "kept": failure.is_none(),
            "failure": failure,
            "consequence": consequence,
        });
        return out.json_now(&line);
    }
    match failure {
        None => out.info(format!("  kept    {guarantee}")),
        Some(failure) => {
            out.line(format!("  BROKEN  {guarantee}: {failure}"))?;
            out.line(format!("          {}", guarantee.protects()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_folders_that_were_missing_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (kept, below) = (dir.path().join("kept"), dir.path().join("kept/a/b"));
        std::fs::create_dir(&kept).expect("made");
        let location = Location::Local(below.clone());
        let made = MadeFolders::of(&location);
        assert_eq!(made.0, [below.clone(), kept.join("a")]);
        std::fs::create_dir_all(&below).expect("made");
        drop(made);
        assert!(kept.exists() && !kept.join("a").exists());

        let made = MadeFolders::of(&location);
        std::fs::create_dir_all(&below).expect("made");
        std::fs::write(kept.join("a/of somebody"), "x").expect("written");
        drop(made);
        assert!(!below.exists() && kept.join("a/of somebody").exists());

        assert!(MadeFolders::of(&Location::Local(kept)).0.is_empty());
    }
}
