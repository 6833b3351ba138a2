//! How users name snapshots: `latest`, `latest~2`, the beginning or the end of an id, and
//! `SNAPSHOT:PATH`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, Summary};
use larder_job::JobContext;
use larder_reader::{ReadError, Reading};
use larder_store::catalog::{Catalog, DamagedVersion, Filter, RefError, Version};
use larder_store::forget_marks::FaultyObject;
use larder_store::pins::PinLine;
use larder_store::{Repository, RepositoryError};

use crate::app::App;
use crate::args::FilterArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{absolute, cut, safe};
use crate::restic;
use crate::sizes;

/// A snapshot as it was named, and a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The name of the snapshot.
    pub(crate) snapshot: String,
    /// The path; `None`: all.
    pub(crate) path: Option<Vec<u8>>,
}

/// Splits `SNAPSHOT[:PATH]`.
pub(crate) fn parse(given: &OsStr) -> Result<Reference, Failure> {
    let bytes = given.as_bytes();
    let (snapshot, path) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let snapshot = String::from_utf8_lossy(snapshot).into_owned();
    let path = path.map(clean_path).transpose()?.filter(|path| !path.is_empty());
    Ok(Reference { snapshot, path })
}

/// Normalizes a path to the form in a version: relative to its root, without `.` and double
/// slashes.
pub(crate) fn clean_path(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut names = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(Failure::usage(format!("{}: a path in a snapshot cannot hold ..", absolute(path)))),
            name => names.push(name),
        }
    }
    Ok(names.join(&b"/"[..]))
}

/// Makes a filter of the options.
pub(crate) fn filter(args: &FilterArgs) -> Result<Filter, Failure> {
    Ok(Filter {
        hosts: args.host.clone(),
        tags: args.tag.iter().map(|tags| split_tags(tags)).collect(),
        paths: args.path.iter().map(environment::absolute).collect::<Result<_, _>>()?,
        series: args.series.clone(),
    })
}

/// Refused snapshots that one warning names.
const REFUSED_NAMED: usize = 5;

/// Tags of one `--tag`.
pub(crate) fn split_tags(tags: &str) -> Vec<String> {
    tags.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect()
}

/// Characters of a tag that are shown in messages and tables.
pub(crate) const TAG_SHOWN: usize = 60;

/// Bytes of a tag at most.
const TAG_MAX: usize = 256;

/// Tags to record, of all options that name some.
pub(crate) fn new_tags(lists: &[String]) -> Result<Vec<String>, Failure> {
    let tags: Vec<String> = lists.iter().flat_map(|tags| split_tags(tags)).collect();
    for tag in &tags {
        let shown = || cut(&safe(tag), TAG_SHOWN);
        if tag.len() > TAG_MAX {
            return Err(Failure::usage(format!(
                "a tag has at most {TAG_MAX} bytes, and {} has {}",
                shown(),
                tag.len()
            )));
        }
        if tag.chars().any(char::is_control) {
            return Err(Failure::usage(format!("a tag has no control characters, and {} has some", shown())));
        }
    }
    Ok(tags)
}

/// The versions of a repository, for finding named ones.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Those that the filter admits, oldest first.
    pub(crate) admitted: Vec<Version>,
    others: Vec<Version>,
    damaged: Vec<DamagedVersion>,
    faulty: Vec<FaultyObject>,
    /// Those that do not count, because their domain was closed without them.
    refused: Vec<Version>,
    /// Objects that pretend to close a domain.
    faulty_ends: Vec<(String, RepositoryError)>,
    has_unreadable: bool,
    /// The text of the filter; empty without one.
    filter: String,
}

impl Versions {
    /// Reads the catalog. Without a filter for tags, summaries have the tags that the versions were
    /// made with.
    pub(crate) fn load(app: &App, repository: &Repository, args: &FilterArgs) -> Result<Self, Failure> {
        match args.tag.is_empty() {
            true => Ok(Self::load_beside(app, repository, args, async {})?.0),
            false => Ok(Self::load_tagged(app, repository, args)?.0),
        }
    }

    /// The same with the present tags, for verbs that show them. Also gives the lines of the pins,
    /// which have them.
    pub(crate) fn load_tagged(
        app: &App,
        repository: &Repository,
        args: &FilterArgs,
    ) -> Result<(Self, BTreeMap<Pin, PinLine>), Failure> {
        let (catalog, lines) = app.block_on(repository.tagged_catalog())?;
        Ok((Self::of(repository, args, &filter(args)?, catalog), lines))
    }

    /// The same, and does something else beside that does not depend on it.
    pub(crate) fn load_beside<T>(
        app: &App,
        repository: &Repository,
        args: &FilterArgs,
        beside: impl Future<Output = T>,
    ) -> Result<(Self, T), Failure> {
        let (catalog, beside) = app.block_on(async { tokio::join!(repository.catalog(), beside) });
        Ok((Self::of(repository, args, &filter(args)?, catalog?), beside))
    }

    /// The versions that these references mean, and nothing else that needs reading. Other than to
    /// find them, the result is of no use. With a filter for tags, all are read: versions do not
    /// have their present tags.
    pub(crate) fn load_named(
        app: &App,
        repository: &Repository,
        args: &FilterArgs,
        references: &[&str],
    ) -> Result<Self, Failure> {
        if !args.tag.is_empty() {
            return Ok(Self::load_tagged(app, repository, args)?.0);
        }
        let filter = filter(args)?;
        let references: Vec<&str> = references.iter().map(|text| restic::own_id(text)).collect();
        let catalog = app.block_on(repository.catalog_for(&references, &filter))?;
        Ok(Self::of(repository, args, &filter, catalog))
    }

    fn of(repository: &Repository, args: &FilterArgs, filter: &Filter, catalog: Catalog) -> Self {
        let (admitted, others) = catalog.versions.into_iter().partition(|version| filter.admits(&version.summary));
        let mut damaged = catalog.damaged;
        let has_unreadable = !damaged.is_empty();
        if !filter.series.is_empty() {
            let wanted: Vec<_> = filter.series.iter().map(|series| repository.keys().series_key(series)).collect();
            // A damaged manifest does not tell its series, but its name does.
            let series = |name: &str| larder_format::names::parse_version(name).map(|(series, ..)| series);
            damaged.retain(|version| series(&version.name).is_none_or(|series| wanted.contains(&series)));
        }
        Self {
            admitted,
            others,
            damaged,
            faulty: catalog.faulty,
            refused: catalog.refused,
            faulty_ends: catalog.faulty_ends,
            has_unreadable,
            filter: filter_text(args),
        }
    }

    /// All readable versions, with or without a match of the filter, oldest first.
    pub(crate) fn all(&self) -> Vec<Version> {
        let mut all: Vec<Version> = self.admitted.iter().chain(&self.others).cloned().collect();
        all.sort_by_key(Version::rank);
        all
    }

    /// The same with those that a closed domain refuses: they are there.
    pub(crate) fn all_and_refused(&self) -> Vec<Version> {
        self.all().into_iter().chain(self.refused.iter().cloned()).collect()
    }

    /// Whether the repository has no snapshots, not even unreadable ones.
    pub(crate) fn has_none(&self) -> bool {
        !self.has_unreadable && self.all_and_refused().is_empty()
    }

    /// Snapshots whose manifests cannot be read.
    pub(crate) fn damaged(&self) -> &[DamagedVersion] {
        &self.damaged
    }

    /// Whether any snapshot cannot be read, with or without a match of the filter.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.has_unreadable
    }

    /// Warns of manifests that could not be read, and ensures that the run does not count as clean.
    /// Also warns of objects that do not match their names; these mean no loss.
    pub(crate) fn warn_of_damage(&self, app: &App) {
        for version in &self.damaged {
            let (id, why) = (version.id.short(), chain(&version.error));
            app.out.warn(&format!("snapshot {id} cannot be read: {why}; `larder check` says more"));
            app.note_damage();
        }
        for object in &self.faulty {
            let (name, why) = (safe(&object.name), chain(&object.error));
            app.out.warn(&format!("{name} is ignored: {why}; `larder check` says more"));
        }
        for (name, error) in &self.faulty_ends {
            let why = chain(error);
            app.out
                .warn(&format!("{name} closes no domain: {why}; if one was closed, put the object back from a copy"));
        }
        self.warn_of_refused(app);
    }

    /// Names the snapshots that a closed domain refuses, a line a domain.
    fn warn_of_refused(&self, app: &App) {
        let mut domains: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for version in &self.refused {
            domains.entry(&version.summary.domain_name).or_default().push(version.id().short());
        }
        for (domain, ids) in domains {
            let (count, domain) = (sizes::count(ids.len() as u64, "snapshot"), safe(domain));
            let verb = if ids.len() == 1 { "does" } else { "do" };
            let more = if ids.len() > REFUSED_NAMED { ", …" } else { "" };
            let named = ids[..ids.len().min(REFUSED_NAMED)].join(", ");
            app.out.warn(&format!(
                "domain {domain} is closed, and {count} that its end does not name {verb} not count ({named}{more}); `larder optimize` forgets what came later"
            ));
        }
    }

    /// Finds the version that `text` names. The filter applies to `latest`; an id is found without
    /// it. A version that a closed domain refuses is found by its id only, with a warning.
    pub(crate) fn find(&self, app: &App, text: &str) -> Result<Version, Failure> {
        let text = restic::own_id(text);
        let by_time = text.starts_with("latest");
        let mut versions = self.admitted.clone();
        if !by_time {
            versions.extend(self.others.iter().cloned());
        }
        let catalog = Catalog { versions, ..Catalog::default() };
        let mut found = catalog.find(text);
        let admitted;
        // Somebody may have given another version the same id: then the filter decides.
        if matches!(found, Err(RefError::Ambiguous { .. })) && !by_time && !self.filter.is_empty() {
            admitted = Catalog { versions: self.admitted.clone(), ..Catalog::default() };
            found = admitted.find(text);
        }
        match found {
            Ok(version) => {
                if by_time {
                    self.warn_of_newer_damage(app, version);
                }
                Ok(version.clone())
            }
            Err(RefError::NotFound { .. }) if !by_time && let Some(version) = self.find_refused(text) => {
                let (shown, domain) = (shown(&version.summary), safe(&version.summary.domain_name));
                app.out.warn(&format!("{shown} does not count: domain {domain} was closed without it"));
                Ok(version)
            }
            Err(error) => Err(self.not_found(text, error)),
        }
    }

    /// The refused version with this id. People look at it, and then forget it.
    fn find_refused(&self, text: &str) -> Option<Version> {
        let refused = Catalog { versions: self.refused.clone(), ..Catalog::default() };
        refused.find(text).ok().cloned()
    }

    /// The unreadable version that `text` names, by the whole id or its short form in listings.
    pub(crate) fn find_unreadable(&self, text: &str) -> Option<Pin> {
        let wanted = restic::own_id(text).to_ascii_lowercase();
        let named = |damaged: &&DamagedVersion| wanted == damaged.id.to_string() || wanted == damaged.id.short();
        let (series, job, _) = larder_format::names::parse_version(&self.damaged.iter().find(named)?.name)?;
        Some(Pin { series, job })
    }

    /// Finds all of several names; without any, all that match the filter.
    pub(crate) fn find_all(&self, app: &App, texts: &[String]) -> Result<Vec<Version>, Failure> {
        if texts.is_empty() {
            return Ok(self.admitted.clone());
        }
        let mut found: Vec<Version> = Vec::new();
        for text in texts {
            let version = self.find(app, text)?;
            if !found.iter().any(|known| known.id() == version.id()) {
                found.push(version);
            }
        }
        Ok(found)
    }

    /// The latest snapshot may be unreadable: then this one is not the latest.
    fn warn_of_newer_damage(&self, app: &App, found: &Version) {
        for damaged in self.damaged.iter().filter(|damaged| damaged.id.unix_ms() > found.id().unix_ms()) {
            let (id, short) = (damaged.id.short(), found.id().short());
            app.out.warn(&format!("a newer snapshot, {id}, is damaged; {short} is used instead"));
            app.note_damage();
        }
    }

    fn not_found(&self, text: &str, error: RefError) -> Failure {
        let wanted = text.to_ascii_lowercase();
        let fits = |damaged: &&DamagedVersion| !wanted.is_empty() && damaged.id.fits(&wanted);
        match self.damaged.iter().find(fits) {
            Some(damaged) if matches!(error, RefError::NotFound { .. }) => {
                let message = format!("snapshot {} cannot be read: {}", damaged.id.short(), chain(&damaged.error));
                Failure::new(Exit::Damage, message).advise("the others can: `larder snapshots` lists them")
            }
            _ => self.named(text, error),
        }
    }

    /// Adds the filter that excluded the snapshot.
    fn named(&self, text: &str, error: RefError) -> Failure {
        let is_filtered = !self.filter.is_empty() && text.starts_with("latest");
        match error {
            RefError::NotFound { .. } if is_filtered => {
                Failure::new(Exit::Failed, format!("no snapshot fits {text:?} with {}", self.filter))
                    .advise("`larder snapshots` lists what there is")
            }
            error => error.into(),
        }
    }

    /// No snapshot matches the filter.
    pub(crate) fn nothing_fits(&self) -> Failure {
        let with = if self.filter.is_empty() { String::new() } else { format!(" {}", self.filter) };
        Failure::new(Exit::Failed, format!("no snapshot fits{with}")).advise("`larder snapshots` lists what there is")
    }
}

/// Begins to read the snapshot that `text` names, found as `version`.
///
/// The snapshot may be forgotten between the listing and the lease, and a pass may delete it then.
/// If `text` means the latest one, the repository is listed once more, and the next one is read.
pub(crate) fn begin(
    app: &App,
    context: &JobContext,
    version: Version,
    args: &FilterArgs,
    text: &str,
) -> Result<(Version, Reading, Manifest), Failure> {
    let error = match Reading::begin(context, &version) {
        Ok((reading, manifest)) => return Ok((version, reading, manifest)),
        Err(error @ ReadError::Forgotten { .. }) if text.starts_with("latest") => error,
        Err(error) => return Err(error.into()),
    };
    let next = Versions::load_named(app, &context.repository, args, &[text])?.find(app, text)?;
    // Its mark or its register cannot be read, which listings ignore.
    if (next.series, next.id()) == (version.series, version.id()) {
        return Err(error.into());
    }
    let (forgotten, shown) = (version.id().short(), next.id().short());
    app.out.warn(&format!("snapshot {forgotten} was forgotten meanwhile; {shown} is read instead"));
    let (reading, manifest) = Reading::begin(context, &next)?;
    Ok((next, reading, manifest))
}

/// A snapshot as messages name it: `snapshot 1a2b3c4d of series host:/home`.
pub(crate) fn shown(summary: &Summary) -> String {
    format!("snapshot {} of series {}", summary.id.short(), safe(&summary.series))
}

/// The options of a filter, as they were written.
pub(crate) fn filter_text(args: &FilterArgs) -> String {
    let quoted = |text: &str| if text.is_empty() { "''".to_owned() } else { safe(text) };
    let of = |option: &str, values: &[String]| -> Vec<String> {
        values.iter().map(|value| format!("--{option} {}", quoted(value))).collect()
    };
    let paths: Vec<String> = args.path.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    [of("host", &args.host), of("tag", &args.tag), of("path", &paths), of("series", &args.series)].concat().join(" ")
}

/// The path named with the snapshot and, or, after it.
pub(crate) fn one_path(reference: &Reference, path: Option<&OsString>) -> Result<Option<Vec<u8>>, Failure> {
    match (reference.path.clone(), path) {
        (Some(_), Some(_)) => Err(Failure::usage("the path was given twice: with the snapshot and after it")),
        (Some(path), None) => Ok(Some(path)),
        (None, Some(path)) => Ok(Some(clean_path(path.as_bytes())?).filter(|path| !path.is_empty())),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_taken_apart_at_the_first_colon() {
        let reference = |text: &str| parse(OsStr::new(text)).map(|found| (found.snapshot, found.path));
        assert_eq!(reference("latest"), Ok(("latest".to_owned(), None)));
        assert_eq!(reference("latest:/"), Ok(("latest".to_owned(), None)));
        assert_eq!(reference("1a:/home//u/./x:y/"), Ok(("1a".to_owned(), Some(b"home/u/x:y".to_vec()))));
        assert_eq!(reference("1a:home/../x").expect_err("refused").exit, Exit::Usage);
    }

    #[test]
    fn tags_are_separated_by_commas() {
        assert_eq!(split_tags("a, b,,c "), ["a", "b", "c"]);
        assert!(split_tags("").is_empty());
        let new = |tags: &str| new_tags(&[tags.to_owned()]);
        assert_eq!(new(&format!("a,{}", "x".repeat(TAG_MAX))).map(|tags| tags.len()), Ok(2));
        let failure = new(&"x".repeat(TAG_MAX + 1)).expect_err("too long");
        assert!(failure.message.ends_with("xxx… has 257"), "{}", failure.message);
        let failure = new("a\u{1b}[2J").expect_err("it would move the cursor");
        assert_eq!(failure.message, "a tag has no control characters, and a\\x1b[2J has some");
    }

    #[test]
    fn a_filter_is_named_as_it_was_written() {
        let args = FilterArgs {
            host: vec!["web".to_owned()],
            tag: vec![String::new()],
            path: vec!["/home".into()],
            series: Vec::new(),
        };
        assert_eq!(filter_text(&args), "--host web --tag '' --path /home");
        assert_eq!(filter_text(&FilterArgs::default()), "");
    }
}
