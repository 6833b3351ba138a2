//! `larder series`: lists series with their layouts, and changes their settings.

use std::collections::{BTreeMap, HashSet};

use larder_format::ids::{SeriesKey, SettingsOf};
use larder_format::layout::Layout;
use larder_format::roles::Roles;
use larder_format::settings::SeriesSettings;
use larder_job::{Clock, SystemClock};
use larder_lifecycle::arrange::needing_rebuild;
use larder_lifecycle::convert_layout::{Converted, convert};
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::settings::{Settings, SettingsChange};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{ConvertArgs, FilterArgs, SeriesArgs, SeriesCommand, SetSeriesArgs, ShowSeriesArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Align, Meter, MeterKind, Table, safe};
use crate::refs::Versions;
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &SeriesArgs) -> Result<Exit, Failure> {
    match &args.command {
        SeriesCommand::List => list(app),
        SeriesCommand::Show(args) => show(app, args),
        SeriesCommand::Set(args) => set(app, args),
        SeriesCommand::Convert(args) => return convert_series(app, args),
    }?;
    Ok(Exit::Done)
}

fn convert_series(app: &App, args: &ConvertArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE.and(Roles::RESTORE), "converting a series")?;
    let mut meter = Meter::start(MeterKind::Repair, &app.out);
    let repository = of_domain(app, &opened.repository, args.domain.as_deref())?;
    let context = app.context(repository, meter.progress());
    let converted = convert(&context, &args.series, args.layout, app.compression(), app.scratch());
    meter.stop();
    let Converted { versions, were_already, overtaken, copied_bytes, shared_bytes, stored_bytes, left, unreadable } =
        converted?;
    let late = left.saturating_sub(unreadable.len() as u64);
    let exit = match (unreadable.is_empty(), late) {
        // As for restores: lost data of the repository takes precedence over unfinished work.
        (false, _) => Exit::Damage,
        (true, 0) => Exit::Done,
        (true, _) => Exit::Partly,
    };
    for version in &unreadable {
        let (id, why) = (version.id.short(), chain(&version.error));
        app.out.warn(&format!("snapshot {id} cannot be read and stays as it is: {why}; `larder check` says more"));
    }
    if app.out.is_json() {
        app.out.json(&json!({
            "message_type": "summary",
            "series": args.series,
            "layout": args.layout.name(),
            "snapshots": versions,
            "were_already": were_already,
            "overtaken": overtaken,
            "left": left,
            "unreadable": unreadable.iter().map(|version| json!({
                "id": version.id.to_string(),
                "error": chain(&version.error),
            })).collect::<Vec<_>>(),
            "copied_bytes": copied_bytes,
            "shared_bytes": shared_bytes,
            "stored_bytes": stored_bytes,
        }))?;
        return Ok(exit);
    }
    let (name, layout) = (safe(&args.series), args.layout);
    if versions == 0 && left == 0 {
        app.out.info(format!("{name} is in the layout {layout}; nothing to do"))?;
        return Ok(exit);
    }
    let (snapshots, copied) = (sizes::count(versions, "snapshot"), sizes::show(copied_bytes));
    let (shared, stored) = (sizes::show(shared_bytes), sizes::show(stored_bytes));
    app.out.info(format!(
        "converted {snapshots} of {name} to the layout {layout}: copied {copied} ({stored} stored), shared {shared}"
    ))?;
    if late > 0 {
        let late = sizes::count(late, "snapshot");
        app.out
            .warn(&format!("{late} created during the conversion are still in the old layout; run the command again"));
    }
    if versions > 0 {
        app.out.info("the next pass (`larder optimize`) deletes the old containers")?;
    }
    Ok(exit)
}

/// The repository as a machine of the named domain sees it.
fn of_domain(app: &App, repository: &Repository, domain: Option<&str>) -> Result<Repository, Failure> {
    Ok(match domain {
        Some(name) => app.block_on(repository.in_domain(name))?,
        None => repository.clone(),
    })
}

/// The layout that was asked for in a backup into this series. A series with versions keeps their
/// layout, whatever the settings are: the option must not contradict it.
pub(super) fn expect_layout(
    app: &App,
    repository: &Repository,
    series: &str,
    asked: Option<Layout>,
) -> Result<Option<Layout>, Failure> {
    let Some(asked) = asked else { return Ok(None) };
    match layout_there(app, repository, series)? {
        Some(layout) if layout != asked => Err(contradiction(series, layout, asked)),
        _ => Ok(Some(asked)),
    }
}

/// The layout of the newest version that can be read, in the order in which backups began.
fn layout_there(app: &App, repository: &Repository, series: &str) -> Result<Option<Layout>, Failure> {
    let found = app.block_on(repository.newest_in_series(series, |versions| !versions.is_empty()))?;
    Ok(newest(&found.catalog.versions).map(|version| version.summary.layout))
}

fn newest(versions: &[Version]) -> Option<&Version> {
    versions.iter().max_by_key(|version| version.id())
}

fn contradiction(series: &str, layout: Layout, asked: Layout) -> Failure {
    let message = format!("series {} has snapshots in the layout {layout}, which it keeps: not {asked}", safe(series));
    Failure::new(Exit::Failed, message)
        .advise("nothing was changed; `larder series convert` changes the layout of a series that has snapshots")
}

/// The facts about one series.
struct Known {
    key: SeriesKey,
    name: String,
    /// Name of its domain; empty for the default domain.
    domain: String,
    versions: Vec<Version>,
    set: SeriesSettings,
    holds: Settings,
    /// Whether the settings of the repository have a layout.
    is_layout_by_default: bool,
    /// Whether passes cannot arrange it, because the index was rebuilt.
    needs_rebuild: bool,
}

impl Known {
    /// Its present or future layout.
    fn layout(&self) -> Layout {
        newest(&self.versions).map_or(self.holds.layout, |newest| newest.summary.layout)
    }

    /// What decides its layout: its snapshots, its settings, those of the repository, or this
    /// program.
    fn layout_from(&self) -> &'static str {
        match () {
            () if !self.versions.is_empty() => "snapshots",
            () if self.set.layout.is_some() => "series",
            () if self.is_layout_by_default => "repository",
            () => "program",
        }
    }

    fn newest_by_time(&self) -> Option<&Version> {
        self.versions.iter().max_by_key(|version| version.rank())
    }

    /// Of the chunks that the base of the newest version did not have, the share (permille) that
    /// the version before the base had.
    fn skip_permille(&self) -> Option<u32> {
        let newest = self.newest_by_time()?;
        // A converted version keeps the measurement of its backup, which does not apply to its new
        // layout.
        newest.summary.statistics.skip_permille.filter(|_| newest.summary.layout == Layout::Lifecycle)
    }

    fn added(&self) -> u64 {
        self.versions.iter().map(|version| version.summary.statistics.stored_bytes).sum()
    }

    fn json(&self) -> Value {
        let newest = self.newest_by_time();
        json!({
            "series": self.name,
            "domain": self.domain,
            "layout": self.layout().name(),
            "layout_from": self.layout_from(),
            "needs_rebuild": self.needs_rebuild,
            "holes_percent": self.holds.holes_percent,
            "arrange_every": self.holds.arrange_every,
            "snapshots": self.versions.len(),
            "newest": newest.map(|version| version.id().to_string()),
            "newest_time": newest.map(|version| time::rfc3339(version.summary.time_ms)),
            "newest_bytes": newest.map(|version| version.summary.statistics.logical_bytes),
            "newest_skip_permille": self.skip_permille(),
            "added_bytes": self.added(),
            "settings": settings_json(&self.set),
        })
    }
}

fn settings_json(set: &SeriesSettings) -> Value {
    json!({
        "layout": set.layout.map(Layout::name),
        "holes_percent": set.holes_percent,
        "arrange_every": set.arrange_every,
        "time": (set.time_ms > 0).then(|| time::rfc3339(set.time_ms)),
        "host": (!set.host.is_empty()).then_some(&set.host),
    })
}

/// All series with versions or settings, by name, and the settings of the repository.
fn known(app: &App, repository: &Repository) -> Result<(Vec<Known>, SeriesSettings, Versions), Failure> {
    let beside = async { tokio::join!(repository.all_settings(), series_needing_rebuild(repository)) };
    let (versions, (all, needing_rebuild)) = Versions::load_beside(app, repository, &FilterArgs::default(), beside)?;
    let mut all = all?;
    let default = all.remove(&SettingsOf::Default).unwrap_or_default();
    let mut known: BTreeMap<SeriesKey, Known> = BTreeMap::new();
    let new = |key, name: &str, domain: &str| {
        let set = all.get(&SettingsOf::Series(key)).cloned().unwrap_or_default();
        let (name, domain) = (name.to_owned(), domain.to_owned());
        let (holds, needs_rebuild) = (Settings::of(&set, &default), needing_rebuild.contains(&key));
        let is_layout_by_default = default.layout.is_some();
        Known { key, name, domain, versions: Vec::new(), set, holds, is_layout_by_default, needs_rebuild }
    };
    for version in &versions.admitted {
        let (key, summary) = (version.series, &version.summary);
        let known = known.entry(key).or_insert_with(|| new(key, &summary.series, &summary.domain_name));
        known.versions.push(version.clone());
    }
    for (of, set) in &all {
        if let SettingsOf::Series(key) = of {
            known.entry(*key).or_insert_with(|| new(*key, &set.series, ""));
        }
    }
    let mut known: Vec<_> = known.into_values().collect();
    known.sort_by(|a, b| (&a.name, &a.domain).cmp(&(&b.name, &b.domain)));
    Ok((known, default, versions))
}

/// Series that passes cannot arrange, because the index was rebuilt. Unknown without an index.
pub(super) async fn series_needing_rebuild(repository: &Repository) -> HashSet<SeriesKey> {
    match needing_rebuild(repository).await {
        Ok(all) => all.into_keys().collect(),
        Err(error) => {
            tracing::warn!(%error, "the index cannot be read");
            HashSet::new()
        }
    }
}

/// Advice on such a series.
pub(super) fn order_advice(series: &str) -> String {
    format!(
        "the index was rebuilt: passes do not arrange this series until `larder series convert {} --layout lifecycle`",
        safe(series)
    )
}

fn list(app: &App) -> Result<(), Failure> {
    let opened = app.open()?;
    let (all, default, versions) = known(app, &opened.repository)?;
    if app.out.is_json() {
        app.out.json(&all.iter().map(Known::json).collect::<Vec<_>>())?;
    } else {
        let mut table = Table::new(&[
            ("Series", Align::Cut),
            ("Domain", Align::Cut),
            ("Layout", Align::Left),
            ("From", Align::Left),
            ("Snapshots", Align::Right),
            ("Newest", Align::Left),
            ("Size", Align::Right),
            ("Stored", Align::Right),
        ])
        .optional(&["From", "Layout", "Stored"]);
        for known in &all {
            let newest = known.newest_by_time();
            let size = newest.map(|version| sizes::show(version.summary.statistics.logical_bytes));
            table.row(vec![
                safe(&known.name),
                safe(&known.domain),
                if known.needs_rebuild {
                    format!("{}, not arranged", known.layout())
                } else {
                    known.layout().to_string()
                },
                known.layout_from().to_owned(),
                known.versions.len().to_string(),
                newest.map_or_else(String::new, |version| time::show(version.summary.time_ms)),
                size.unwrap_or_default(),
                sizes::show(known.added()),
            ]);
        }
        if all.iter().all(|known| known.domain.is_empty()) {
            table.leave_out("Domain");
        }
        if all.is_empty() {
            app.out.info("no series")?;
        } else {
            app.out.table(table)?;
        }
        let Settings { layout, holes_percent, arrange_every } = Settings::of(&SeriesSettings::default(), &default);
        let arranged = format!("holes up to {holes_percent} %, arranged after every {}", snapshots(arrange_every));
        app.out.info(format!("new series: layout {layout}, {arranged}"))?;
    }
    versions.warn_of_damage(app);
    Ok(())
}

fn show(app: &App, args: &ShowSeriesArgs) -> Result<(), Failure> {
    let opened = app.open()?;
    let Some(name) = &args.which.series else {
        let set = app.block_on(opened.repository.settings_of(SettingsOf::Default))?;
        return show_default(app, &set);
    };
    let (all, _, versions) = known(app, &opened.repository)?;
    let key = of_domain(app, &opened.repository, args.domain.as_deref())?.keys().series_key(name);
    let named: Vec<_> = all.iter().filter(|known| known.name == *name).collect();
    let known = match (all.iter().find(|known| known.key == key), &*named) {
        (Some(known), _) => known,
        (None, [only]) if args.domain.is_none() => only,
        (None, [_, _, ..]) if args.domain.is_none() => {
            return Err(Failure::usage(format!("there is a series {} in several domains", safe(name)))
                .advise("name one of them with --domain; `larder series list` lists them"));
        }
        (None, _) => return Err(no_such(name)),
    };
    if app.out.is_json() {
        app.out.json(&known.json())?;
    } else {
        show_text(app, known)?;
    }
    versions.warn_of_damage(app);
    Ok(())
}

/// The series does not exist.
pub(super) fn no_such(name: &str) -> Failure {
    Failure::new(Exit::Failed, format!("there is no series {}", safe(name)))
        .advise("`larder series list` lists what there is")
}

fn show_text(app: &App, known: &Known) -> Result<(), Failure> {
    let by = |is_own: bool| if is_own { "set for this series" } else { "as for all" };
    let layout = match known.versions.is_empty() {
        true if known.layout_from() == "program" => format!("{}: it has no snapshot yet", known.layout()),
        true => format!("{}, {}: it has no snapshot yet", known.layout(), by(known.set.layout.is_some())),
        false => format!("{}, as its snapshots are", known.layout()),
    };
    let Settings { holes_percent, arrange_every, .. } = known.holds;
    let mut lines = vec![
        match known.domain.is_empty() {
            true => format!("Series     {}", safe(&known.name)),
            false => format!("Series     {} of domain {}", safe(&known.name), safe(&known.domain)),
        },
        format!("Layout     {layout}"),
        format!("Holes      up to {holes_percent} %, {}", by(known.set.holes_percent.is_some())),
        format!("Arranged   after every {arrange_every}, {}", by(known.set.arrange_every.is_some())),
        format!("Snapshots  {}", known.versions.len()),
    ];
    if let Some(newest) = known.newest_by_time() {
        let summary = &newest.summary;
        let (id, when) = (newest.id().short(), time::show(summary.time_ms));
        lines.push(format!("Newest     {id} of {when}, {}", sizes::show(summary.statistics.logical_bytes)));
        lines.push(format!("Stored     {} by all of them", sizes::show(known.added())));
        if let Some(permille) = known.skip_permille() {
            let share = sizes::percent_of_thousand(permille);
            lines.push(format!("Skipped    {share} of what its base does not have was in the snapshot before that"));
        }
    }
    if known.needs_rebuild {
        lines.push(format!("Order      {}", order_advice(&known.name)));
    }
    if known.set.time_ms > 0 {
        lines.push(format!("Set        {} on {}", time::show(known.set.time_ms), safe(&known.set.host)));
    }
    lines.iter().try_for_each(|line| app.out.line(line))
}

fn show_default(app: &App, set: &SeriesSettings) -> Result<(), Failure> {
    let Settings { layout, holes_percent, arrange_every } = Settings::of(set, &SeriesSettings::default());
    if app.out.is_json() {
        return app.out.json(&json!({
            "series": null,
            "layout": layout.name(),
            "holes_percent": holes_percent,
            "arrange_every": arrange_every,
            "settings": settings_json(set),
        }));
    }
    app.out.line(format!("Layout    {layout}, for series without snapshots"))?;
    app.out.line(format!("Holes     up to {holes_percent} %"))?;
    app.out.line(format!("Arranged  after every {arrange_every}"))
}

fn set(app: &App, args: &SetSeriesArgs) -> Result<(), Failure> {
    if args.layout.is_none() && args.holes.is_none() && args.arrange_every.is_none() {
        return Err(Failure::usage("no setting was given").advise("use --layout"));
    }
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "changing settings")?;
    let repository = &of_domain(app, &opened.repository, args.domain.as_deref())?;
    let series = args.which.series.as_deref();
    if series == Some("") {
        return Err(Failure::usage("a series needs a name"));
    }
    if let (Some(series), Some(asked)) = (series, args.layout)
        && let Some(layout) = layout_there(app, repository, series)?
        && layout != asked
    {
        return Err(contradiction(series, layout, asked));
    }
    let change = SettingsChange { layout: args.layout, holes_percent: args.holes, arrange_every: args.arrange_every };
    let host = environment::host();
    let set = app.block_on(repository.set_settings(series, change, SystemClock.now_ms(), &host))?;
    if app.out.is_json() {
        return app.out.json(&json!({ "message_type": "settings", "series": series, "settings": settings_json(&set) }));
    }
    let what = [
        set.layout.map(|layout| format!("layout {layout}")),
        set.holes_percent.map(|percent| format!("holes up to {percent} %")),
        set.arrange_every.map(|versions| format!("arranged after every {}", snapshots(versions))),
    ];
    let what: Vec<String> = what.into_iter().flatten().collect();
    let of =
        series.map_or_else(|| "all series without settings".to_owned(), |series| format!("series {}", safe(series)));
    app.out.info(format!("set for {of}: {}", what.join(", ")))
}

/// `snapshot` or `3 snapshots`, after "every".
fn snapshots(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "snapshot".to_owned(),
        count => sizes::count(count, "snapshot"),
    }
}
