//! The exhibits: what is damaged, how, and what is done about it. One file for each kind of object.

mod containers;
mod index;
mod manifests;
mod small;

use std::path::Path;

use self::Step::{PutBack, Restore, Run};
use crate::support::damage;

/// What is done with an exhibit, one after the other.
pub(super) enum Step {
    /// A command. `{one.1}` stands for the id of the first snapshot of series `one`.
    Run(&'static str),
    /// The newest snapshot of a series is restored and compared with its source.
    Restore(&'static str),
    /// Everything is put back as it was.
    PutBack,
    /// A paper key gives access.
    Import,
    /// An object is removed by hand.
    Remove(&'static str),
}

/// A damaged repository.
pub(super) struct Exhibit {
    /// Name of its label.
    pub(super) name: &'static str,
    /// What is damaged, in words.
    pub(super) title: &'static str,
    /// The object: the first whose name has the parts between `*` in it.
    pub(super) object: &'static str,
    /// It is not there before.
    pub(super) plants: bool,
    /// Another object that has a part in it.
    pub(super) other: Option<&'static str>,
    /// What happens.
    pub(super) damage: Damage,
    /// What is done then.
    pub(super) steps: &'static [Step],
}

/// Damages an object of a repository, maybe with another.
type Damage = fn(&Path, &str, Option<&str>);

fn missing(repository: &Path, object: &str, _: Option<&str>) {
    damage::remove(repository, object);
}

fn truncated(repository: &Path, object: &str, _: Option<&str>) {
    damage::truncate(repository, object);
}

fn emptied(repository: &Path, object: &str, _: Option<&str>) {
    damage::replace(repository, object, b"");
}

fn flipped_early(repository: &Path, object: &str, _: Option<&str>) {
    damage::flip(repository, object, 60);
}

fn flipped_late(repository: &Path, object: &str, _: Option<&str>) {
    let len = std::fs::metadata(repository.join(object)).expect("there").len() as usize;
    damage::flip(repository, object, len - 20);
}

fn swapped(repository: &Path, object: &str, other: Option<&str>) {
    damage::swap(repository, object, other.expect("another"));
}

fn garbage(repository: &Path, object: &str, _: Option<&str>) {
    let path = repository.join(object);
    let _ = std::fs::remove_file(&path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(&path, [b"garbage under a valid name ".as_slice(); 20].concat()).expect("written");
}

/// Garbage; `SERIES` in its name is the series of the other object.
fn planted_beside(repository: &Path, object: &str, other: Option<&str>) {
    let series = other.expect("another").split('/').nth(1).expect("a series");
    garbage(repository, &object.replace("SERIES", series), None);
}

/// The same objects under the name of another job: nothing that they say is about it.
fn copied(repository: &Path, object: &str, other: Option<&str>) {
    let content = std::fs::read(repository.join(other.expect("another"))).expect("readable");
    damage::replace(repository, object, &content);
}

/// Nothing but the objects themselves helps.
const PUT_BACK: &[Step] = &[Run("check"), Run("snapshots"), Restore("one"), PutBack, Run("check"), Restore("one")];

const CHECK: Step = Run("check --read-data");
const COLLECT: Step = Run("optimize --task collect");

/// Contents that are put back from files.
const HEAL: &[Step] = &[
    CHECK,
    Restore("one"),
    Run("repair --from kept --from one --from two --read-data --dry-run"),
    Run("repair --from kept --from one --from two --read-data"),
    COLLECT,
    CHECK,
    Restore("one"),
];

/// What is left is saved.
const SALVAGE: &[Step] =
    &[CHECK, Restore("one"), Run("repair snapshots --read-data --forget"), COLLECT, CHECK, Restore("one")];

/// The same, where nothing is left of the first snapshot.
const SALVAGE_AND_FORGET: &[Step] = &[
    CHECK,
    Restore("one"),
    Run("repair --from kept"),
    Run("repair snapshots --read-data"),
    Run("forget {one.1} {one.2}"),
    COLLECT,
    CHECK,
    Restore("one"),
];

/// A manifest that nobody forgot is missing.
const GIVE_UP_LOST: &[Step] =
    &[CHECK, Run("snapshots"), COLLECT, Restore("one"), Run("repair index"), COLLECT, CHECK, Restore("one")];

/// The index is rebuilt.
const INDEX: &[Step] = &[CHECK, Restore("one"), COLLECT, Run("repair index"), CHECK, COLLECT];

/// A pass deals with it.
const COLLECTED: &[Step] = &[CHECK, Run("snapshots"), COLLECT, CHECK, Restore("one"), Restore("two")];

/// The snapshot is retired.
const GIVE_UP_ONE: &[Step] = &[
    CHECK,
    Run("snapshots"),
    Restore("one"),
    Run("repair snapshots"),
    COLLECT,
    Run("forget {one.2}"),
    COLLECT,
    CHECK,
    Restore("two"),
];

/// All of them.
pub(super) fn exhibits() -> Vec<&'static Exhibit> {
    [small::SMALL, manifests::MANIFESTS, containers::CONTAINERS, index::INDEXES].into_iter().flatten().collect()
}
