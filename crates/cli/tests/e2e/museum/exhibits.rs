//! The exhibits: what is damaged, how, and what is done about it.

use std::path::Path;

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

use Step::{Import, PutBack, Remove, Restore, Run};

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

/// The index is made anew.
const INDEX: &[Step] = &[CHECK, Restore("one"), COLLECT, Run("repair index"), CHECK, COLLECT];

/// A pass deals with it.
const COLLECTED: &[Step] = &[CHECK, Run("snapshots"), COLLECT, CHECK, Restore("one"), Restore("two")];

/// The snapshot is given up.
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
pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit {
        name: "config-missing",
        title: "The configuration is missing.",
        object: "config",
        plants: false,
        other: None,
        damage: missing,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "config-truncated",
        title: "The configuration is truncated.",
        object: "config",
        plants: false,
        other: None,
        damage: truncated,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "config-flipped",
        title: "The configuration is flipped in a bit.",
        object: "config",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "config-garbage",
        title: "Garbage has the name of the configuration.",
        object: "config",
        plants: false,
        other: None,
        damage: garbage,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "config-swapped",
        title: "The configuration and a key have changed places.",
        object: "config",
        plants: false,
        other: Some("keys/*"),
        damage: swapped,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "key-missing",
        title: "The only key is missing.",
        object: "keys/*",
        plants: false,
        other: None,
        damage: missing,
        steps: &[Run("check"), Run("snapshots"), Import, Run("check"), Restore("one")],
    },
    Exhibit {
        name: "key-truncated",
        title: "The only key is truncated.",
        object: "keys/*",
        plants: false,
        other: None,
        damage: truncated,
        steps: &[Run("check"), Remove("keys/*"), Import, Run("check"), Restore("one")],
    },
    Exhibit {
        name: "key-flipped",
        title: "The only key is flipped in a bit.",
        object: "keys/*",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: PUT_BACK,
    },
    Exhibit {
        name: "key-planted",
        title: "Garbage has the name of a further key.",
        object: "keys/0000000000000000",
        plants: true,
        other: None,
        damage: garbage,
        steps: &[CHECK, Run("key remove 0000"), CHECK, Restore("one")],
    },
    Exhibit {
        name: "lease-flipped",
        title: "The lease of a forgotten backup is flipped in a bit.",
        object: "jobs/{four.1}/0",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: COLLECTED,
    },
    Exhibit {
        name: "lease-missing",
        title: "The lease of a forgotten backup is missing.",
        object: "jobs/{four.1}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: COLLECTED,
    },
    Exhibit {
        name: "lease-planted",
        title: "Garbage has the name of a lease of nobody.",
        object: "jobs/00000000000000000000000000000007/0",
        plants: true,
        other: None,
        damage: garbage,
        steps: &[CHECK, COLLECT, Remove("jobs/00000000000000000000000000000007/0"), COLLECT, CHECK, Restore("one")],
    },
    Exhibit {
        name: "done-flipped",
        title: "The closing mark of a forgotten backup is flipped in a bit.",
        object: "jobs/{four.1}/done",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: COLLECTED,
    },
    Exhibit {
        name: "done-missing",
        title: "The closing mark of a backup is missing.",
        object: "jobs/{one.2}/done",
        plants: false,
        other: None,
        damage: missing,
        steps: COLLECTED,
    },
    Exhibit {
        name: "done-swapped",
        title: "The closing marks of two backups have changed places.",
        object: "jobs/{one.2}/done",
        plants: false,
        other: Some("jobs/{two.1}/done"),
        damage: swapped,
        steps: COLLECTED,
    },
    Exhibit {
        name: "mark-missing",
        title: "The mark of a forgotten snapshot is missing: it is back.",
        object: "forgotten/*{four.1}",
        plants: false,
        other: None,
        damage: missing,
        steps: COLLECTED,
    },
    Exhibit {
        name: "mark-flipped",
        title: "The mark of a forgotten snapshot is flipped in a bit.",
        object: "forgotten/*{four.1}",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: &[
            CHECK,
            Run("snapshots"),
            COLLECT,
            Remove("forgotten/*{four.1}"),
            Run("forget {four.1}"),
            COLLECT,
            CHECK,
        ],
    },
    Exhibit {
        name: "mark-garbage",
        title: "Garbage has the name of the mark of a snapshot.",
        object: "forgotten/SERIES/{one.2}",
        plants: true,
        other: Some("versions/*{one.2}/0"),
        damage: planted_beside,
        steps: &[CHECK, Run("snapshots"), COLLECT, Restore("one"), Remove("forgotten/*{one.2}"), COLLECT, CHECK],
    },
    Exhibit {
        name: "settings-flipped",
        title: "The newest settings of a series are flipped in a bit: those before hold.",
        object: "settings/*/1",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: &[
            CHECK,
            Run("series show one"),
            Run("series set one --holes 7"),
            COLLECT,
            Run("series show one"),
            CHECK,
        ],
    },
    Exhibit {
        name: "settings-swapped",
        title: "The newest settings of a series and those of the repository are swapped: neither counts.",
        object: "settings/default/0",
        plants: false,
        other: Some("settings/*/1"),
        damage: swapped,
        steps: &[
            CHECK,
            Run("series show --default"),
            Run("series set --default --holes 30"),
            Run("series set one --holes 10"),
            COLLECT,
            CHECK,
        ],
    },
    Exhibit {
        name: "pin-missing",
        title: "The pin of a snapshot is missing.",
        object: "pins/*{two.1}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: &[CHECK, Run("forget {two.1} --dry-run"), Run("pin {two.1}"), Run("forget {two.1}")],
    },
    Exhibit {
        name: "pin-flipped",
        title: "The pin of a snapshot is flipped in a bit.",
        object: "pins/*{two.1}/0",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: &[
            CHECK,
            Run("forget {two.1}"),
            Run("pin {two.1}"),
            Run("forget {two.1}"),
            Run("unpin {two.1}"),
            Run("forget {two.1}"),
            CHECK,
        ],
    },
    Exhibit {
        name: "manifest-missing",
        title: "The manifest of the newest snapshot is missing.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: GIVE_UP_LOST,
    },
    Exhibit {
        name: "manifest-truncated",
        title: "The manifest of the newest snapshot is truncated.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: truncated,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "manifest-emptied",
        title: "The manifest of the newest snapshot is empty.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: emptied,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "manifest-flipped-early",
        title: "The manifest of the newest snapshot is flipped in a bit of its summary.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "manifest-flipped-late",
        title: "The manifest of the newest snapshot is flipped in a bit of its recipes.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "manifest-garbage",
        title: "The manifest of the newest snapshot is garbage.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: None,
        damage: garbage,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "manifest-swapped",
        title: "The manifests of two snapshots have changed places.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: Some("versions/*{two.1}/0"),
        damage: swapped,
        steps: &[CHECK, Run("snapshots"), Restore("one"), COLLECT, PutBack, CHECK],
    },
    Exhibit {
        name: "manifest-copied",
        title: "The manifest of a snapshot lies under the name of another of its series.",
        object: "versions/*{one.2}/0",
        plants: false,
        other: Some("versions/*{one.1}/0"),
        damage: copied,
        steps: GIVE_UP_ONE,
    },
    Exhibit {
        name: "generation-missing",
        title: "The second generation of a manifest is missing, and the first names what is gone.",
        object: "versions/*{three.1}/1",
        plants: false,
        other: None,
        damage: missing,
        steps: &[CHECK, Restore("three"), COLLECT, Restore("three"), PutBack, CHECK, COLLECT, Restore("three")],
    },
    Exhibit {
        name: "generation-flipped",
        title: "The second generation of a manifest is flipped in a bit.",
        object: "versions/*{three.1}/1",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: &[
            CHECK,
            Restore("three"),
            COLLECT,
            Run("repair --from three"),
            CHECK,
            Restore("three"),
            COLLECT,
            Remove("versions/*{three.1}/1"),
            CHECK,
            COLLECT,
        ],
    },
    Exhibit {
        name: "generation-planted",
        title: "Garbage has the name of a later generation of a manifest.",
        object: "versions/SERIES/{one.2}/7",
        plants: true,
        other: Some("versions/*{one.2}/0"),
        damage: planted_beside,
        steps: &[CHECK, Restore("one"), COLLECT, Remove("versions/*{one.2}/7"), CHECK, COLLECT],
    },
    Exhibit {
        name: "metadata-missing",
        title: "The metadata that the first snapshot of a series wrote is missing.",
        object: "meta/{one.1}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: SALVAGE_AND_FORGET,
    },
    Exhibit {
        name: "metadata-truncated",
        title: "The metadata that the first snapshot of a series wrote is truncated.",
        object: "meta/{one.1}/0",
        plants: false,
        other: None,
        damage: truncated,
        steps: SALVAGE_AND_FORGET,
    },
    Exhibit {
        name: "metadata-flipped",
        title: "The metadata that the first snapshot of a series wrote is flipped in a bit.",
        object: "meta/{one.1}/0",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: SALVAGE_AND_FORGET,
    },
    Exhibit {
        name: "metadata-flipped-table",
        title: "The metadata that the first snapshot of a series wrote is flipped in a bit of its tables.",
        object: "meta/{one.1}/0",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: SALVAGE_AND_FORGET,
    },
    Exhibit {
        name: "metadata-garbage",
        title: "The metadata that the first snapshot of a series wrote is garbage.",
        object: "meta/{one.1}/0",
        plants: false,
        other: None,
        damage: garbage,
        steps: SALVAGE_AND_FORGET,
    },
    Exhibit {
        name: "metadata-swapped",
        title: "The metadata of two snapshots have changed places.",
        object: "meta/{one.1}/0",
        plants: false,
        other: Some("meta/{two.1}/0"),
        damage: swapped,
        steps: &[CHECK, Restore("one"), Run("repair snapshots --read-data --dry-run"), PutBack, CHECK],
    },
    Exhibit {
        name: "metadata-of-the-newest-missing",
        title: "The metadata that the newest snapshot wrote are missing.",
        object: "meta/{one.2}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: &[
            CHECK,
            Restore("one"),
            Run("repair snapshots --forget"),
            Run("forget {one.2}"),
            COLLECT,
            CHECK,
            Restore("one"),
        ],
    },
    Exhibit {
        name: "data-missing",
        title: "The container that both snapshots of a series use is missing.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: HEAL,
    },
    Exhibit {
        name: "data-truncated",
        title: "The container that both snapshots of a series use is truncated.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: truncated,
        steps: HEAL,
    },
    Exhibit {
        name: "data-emptied",
        title: "The container that both snapshots of a series use is empty.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: emptied,
        steps: HEAL,
    },
    Exhibit {
        name: "data-flipped",
        title: "The container that both snapshots of a series use is flipped in a bit.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: HEAL,
    },
    Exhibit {
        name: "data-flipped-table",
        title: "The container that both snapshots of a series use is flipped in a bit of its tables.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: HEAL,
    },
    Exhibit {
        name: "data-garbage",
        title: "The container that both snapshots of a series use is garbage.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: garbage,
        steps: HEAL,
    },
    Exhibit {
        name: "data-swapped",
        title: "The containers of two series have changed places.",
        object: "data/{one.1}/0",
        plants: false,
        other: Some("data/{two.1}/0"),
        damage: swapped,
        steps: HEAL,
    },
    Exhibit {
        name: "data-missing-saved",
        title: "The container that both snapshots of a series use is missing, and no file is left.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: SALVAGE,
    },
    Exhibit {
        name: "data-flipped-saved",
        title: "The container that both snapshots of a series use is flipped in a bit, and no file is left.",
        object: "data/{one.1}/0",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: &[CHECK, Restore("one"), Run("repair snapshots --read-data --forget"), COLLECT, CHECK, Restore("one")],
    },
    Exhibit {
        name: "data-of-the-newest-missing",
        title: "The container that the newest snapshot wrote is missing.",
        object: "data/{one.2}/0",
        plants: false,
        other: None,
        damage: missing,
        steps: HEAL,
    },
    Exhibit {
        name: "index-missing",
        title: "The only index is missing.",
        object: "index/1",
        plants: false,
        other: None,
        damage: missing,
        steps: &[CHECK, Restore("one"), COLLECT, CHECK],
    },
    Exhibit {
        name: "index-truncated",
        title: "The only index is truncated.",
        object: "index/1",
        plants: false,
        other: None,
        damage: truncated,
        steps: INDEX,
    },
    Exhibit {
        name: "index-flipped",
        title: "The only index is flipped in a bit.",
        object: "index/1",
        plants: false,
        other: None,
        damage: flipped_late,
        steps: INDEX,
    },
    Exhibit {
        name: "index-garbage",
        title: "The only index is garbage.",
        object: "index/1",
        plants: false,
        other: None,
        damage: garbage,
        steps: INDEX,
    },
    Exhibit {
        name: "index-planted",
        title: "Garbage has the name of a later index.",
        object: "index/9",
        plants: true,
        other: None,
        damage: garbage,
        steps: INDEX,
    },
    Exhibit {
        name: "run-missing",
        title: "A run of the index is missing.",
        object: "index/runs/*/0",
        plants: false,
        other: None,
        damage: missing,
        steps: INDEX,
    },
    Exhibit {
        name: "run-truncated",
        title: "A run of the index is truncated.",
        object: "index/runs/*/0",
        plants: false,
        other: None,
        damage: truncated,
        steps: INDEX,
    },
    Exhibit {
        name: "run-flipped",
        title: "A run of the index is flipped in a bit.",
        object: "index/runs/*/0",
        plants: false,
        other: None,
        damage: flipped_early,
        steps: INDEX,
    },
    Exhibit {
        name: "run-swapped",
        title: "Two runs of the index have changed places.",
        object: "index/runs/*/0",
        plants: false,
        other: Some("index/runs/*/1"),
        damage: swapped,
        steps: INDEX,
    },
];
