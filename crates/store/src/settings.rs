//! Settings of series: those of one, the defaults of all others, and the resulting values for a
//! series.
//!
//! Each is a sequence of numbered entries (`larder_format::settings`), of which the highest that
//! opens counts. A change reads the entries and creates the next number if absent. Of two at once
//! one wins, and the other reads again and changes the new state. An entry that does not open,
//! damaged or planted, is warned of and does not count.
//!
//! Backups ask for the layout of a new series, passes for the percentage of holes. Nothing safe
//! depends on the answers.
//!
//! Passes delete entries below the highest that opens ([`Repository::superseded_settings`]), and
//! create-if-absent forgets deleted names. So a reader that finds a listed entry gone lists again,
//! because there is a higher one. After a create, the program looks for a higher entry: the number
//! may have been taken, and cleaned up, before.

use std::collections::BTreeMap;

use futures::StreamExt;
use larder_format::ErrorKind;
use larder_format::ids::{SeriesKey, SettingsOf};
use larder_format::layout::Layout;
use larder_format::names;
use larder_format::settings::{ARRANGE_EVERY, HOLES_PERCENT, SETTINGS_MAX, SeriesSettings};

use crate::StoreErrorKind;
use crate::forget_marks::read_if_there;
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, random};

/// How often a change is tried while others change the same settings, or hold numbers with garbage.
/// Also how often entries are listed again that others clean up meanwhile.
const TRIES: u32 = 64;

/// The values in force for a series, set for it or by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its layout if it has no version yet; one that has keeps its layout.
    pub layout: Layout,
    /// Percentage of holes at which an active container of the layout `lifecycle` is rewritten; at
    /// most 100.
    pub holes_percent: u8,
    /// Number of versions of the layout `lifecycle` after which containers are retired, at least 1.
    pub arrange_every: u8,
}

impl Settings {
    /// The values that follow from the settings of a series and of the repository.
    pub fn of(series: &SeriesSettings, default: &SeriesSettings) -> Self {
        Self {
            layout: series.layout.or(default.layout).unwrap_or_default(),
            holes_percent: series.holes_percent.or(default.holes_percent).unwrap_or(HOLES_PERCENT),
            arrange_every: series.arrange_every.or(default.arrange_every).unwrap_or(ARRANGE_EVERY),
        }
    }
}

/// The values to set; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// The layout of a series that has no version yet.
    pub layout: Option<Layout>,
    /// How many of a hundred bytes may be holes, at most 100.
    pub holes_percent: Option<u8>,
    /// Number of versions after which containers are retired, at least 1.
    pub arrange_every: Option<u8>,
}

impl SettingsChange {
    fn applied_to(&self, before: &SeriesSettings) -> SeriesSettings {
        SeriesSettings {
            layout: self.layout.or(before.layout),
            holes_percent: self.holes_percent.or(before.holes_percent),
            arrange_every: self.arrange_every.or(before.arrange_every),
            ..before.clone()
        }
    }
}

/// Settings could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Others change them all the time.
    #[error("somebody else changes these settings all the time")]
    Contended,
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl SettingsError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Contended => ErrorKind::LostRace,
            Self::Repository(error) => error.kind(),
        }
    }
}

/// An entry that does not open, damaged or planted. It does not count.
#[derive(Debug)]
pub struct FaultyEntry {
    /// Its name.
    pub name: String,
    /// The reason.
    pub error: RepositoryError,
}

/// A line of entries, as it was read.
#[derive(Debug, Default)]
struct Line {
    /// The contents of the last entry that opens, and its number.
    last: Option<(u32, SeriesSettings)>,
    /// The number after the highest there is; `None`: there is none left.
    next: Option<u32>,
    /// Numbers below that of the last entry that opens.
    below: Vec<u32>,
    /// Entries above it, which do not open.
    faulty: Vec<FaultyEntry>,
}

impl Line {
    fn settings(self) -> SeriesSettings {
        self.last.map(|(_, settings)| settings).unwrap_or_default()
    }
}

impl Repository {
    /// The values in force for a series: its own settings, else the repository's, else the
    /// program's.
    pub async fn settings(&self, series: SeriesKey) -> Result<Settings, RepositoryError> {
        let (own, default) =
            futures::try_join!(self.settings_of(SettingsOf::Series(series)), self.settings_of(SettingsOf::Default))?;
        Ok(Settings::of(&own, &default))
    }

    /// The settings of one series, or of the repository, asked of the store and never of a cache.
    pub async fn settings_of(&self, of: SettingsOf) -> Result<SeriesSettings, RepositoryError> {
        Ok(self.settings_line(of).await?.settings())
    }

    /// All settings.
    pub async fn all_settings(&self) -> Result<BTreeMap<SettingsOf, SeriesSettings>, RepositoryError> {
        let lines = self.settings_lines().await?.into_iter();
        Ok(lines.filter_map(|(of, line)| Some((of, line.last?.1))).collect())
    }

    /// Entries that do not open, of all sequences; those below one that opens are not read.
    pub async fn faulty_settings(&self) -> Result<Vec<FaultyEntry>, RepositoryError> {
        Ok(self.settings_lines().await?.into_values().flat_map(|line| line.faulty).collect())
    }

    /// Names of entries that mean nothing any more, because a higher one of their line opens. Any
    /// program may delete them at any time. Entries above it that do not open stay: a program of
    /// another version may read them.
    pub async fn superseded_settings(&self) -> Result<Vec<String>, RepositoryError> {
        let lines = self.settings_lines().await?.into_iter();
        Ok(lines.flat_map(|(of, line)| line.below.into_iter().map(move |number| names::settings(of, number))).collect())
    }

    /// Changes the settings of the series with this name, or of the repository, and returns the new
    /// ones. Done as well if it is so already.
    pub async fn set_settings(
        &self,
        series: Option<&str>,
        change: SettingsChange,
        time_ms: u64,
        host: &str,
    ) -> Result<SeriesSettings, SettingsError> {
        let of = series.map_or(SettingsOf::Default, |series| SettingsOf::Series(self.keys.series_key(series)));
        for _ in 0..TRIES {
            let line = self.settings_line(of).await?;
            let next = line.next;
            let before = line.settings();
            let wanted = change.applied_to(&before);
            if wanted == before {
                return Ok(before);
            }
            let Some(number) = next else { break };
            let series = series.unwrap_or_default().to_owned();
            let wanted = SeriesSettings { time_ms, host: host.to_owned(), series, ..wanted };
            let salt = random(self.entropy())?;
            let bytes = wanted.encode(&self.keys, of, number, salt).map_err(RepositoryError::from)?;
            match self.store.create(&names::settings(of, number), bytes.into()).await {
                // A program that sleeps between listing and creating wins a number that was used
                // and cleaned up meanwhile. The change is then not made. If a higher one was built
                // on this one, it says so too.
                Ok(_) if self.settings_line(of).await?.next.is_none_or(|next| next > number.saturating_add(1)) => {}
                Ok(_) => return Ok(wanted),
                Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
                Err(error) => return Err(RepositoryError::from(error).into()),
            }
        }
        Err(SettingsError::Contended)
    }

    async fn settings_line(&self, of: SettingsOf) -> Result<Line, RepositoryError> {
        let mut lines = self.settings_below(&names::settings_of(of)).await?;
        Ok(lines.remove(&of).unwrap_or(Line { next: Some(0), ..Line::default() }))
    }

    /// All lines, one after the other if there are many.
    async fn settings_lines(&self) -> Result<BTreeMap<SettingsOf, Line>, RepositoryError> {
        self.settings_below(names::SETTINGS).await
    }

    /// The sequences whose names begin so; those with listed entries that are gone are listed
    /// again.
    async fn settings_below(&self, prefix: &str) -> Result<BTreeMap<SettingsOf, Line>, RepositoryError> {
        let mut numbers: BTreeMap<SettingsOf, Vec<u32>> = BTreeMap::new();
        for object in self.store.without_cache().list(prefix).await? {
            if let Some((of, number)) = names::parse_settings(&object.name) {
                numbers.entry(of).or_default().push(number);
            }
        }
        let reads = numbers.into_iter().map(|(of, numbers)| async move {
            let mut numbers = numbers;
            for _ in 0..TRIES {
                if let Some(line) = self.read_settings_line(of, numbers).await? {
                    return Ok((of, line));
                }
                let listed = self.store.without_cache().list(&names::settings_of(of)).await?;
                numbers = listed.iter().filter_map(|object| Some(names::parse_settings(&object.name)?.1)).collect();
            }
            // If another program deletes them, the reason is not that they are superseded.
            Ok((of, Line { next: Some(0), ..Line::default() }))
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut lines = BTreeMap::new();
        while let Some(read) = reads.next().await {
            let (of, line) = read.map_err(|error: RepositoryError| error)?;
            lines.insert(of, line);
        }
        Ok(lines)
    }

    /// `None`: an entry is gone that was listed, so a higher one came and counts.
    async fn read_settings_line(&self, of: SettingsOf, mut numbers: Vec<u32>) -> Result<Option<Line>, RepositoryError> {
        numbers.sort_unstable();
        let mut line = Line { next: numbers.last().map_or(Some(0), |last| last.checked_add(1)), ..Line::default() };
        let store = self.store.without_cache();
        while let Some(number) = numbers.pop() {
            let name = names::settings(of, number);
            let read = async {
                let Some(bytes) = read_if_there(&store, &name, SETTINGS_MAX).await? else { return Ok(None) };
                let entry = SeriesSettings::decode(&self.keys, of, number, &bytes);
                entry.map(Some).map_err(RepositoryError::damaged(&*name))
            };
            match read.await {
                Ok(Some(last)) => {
                    (line.last, line.below) = (Some((number, last)), numbers);
                    break;
                }
                Ok(None) => return Ok(None),
                // Of a series of another machine, which this key does not see.
                Err(error) if error.is_foreign() => {}
                Err(error) if error.is_of_object() => {
                    tracing::warn!(object = %name, %error, "not what its name says; it does not count");
                    line.faulty.push(FaultyEntry { name, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(line))
    }
}
