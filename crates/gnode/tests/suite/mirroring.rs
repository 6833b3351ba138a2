//! The promise: no copy is forgotten whose original may still be there, and no version for a successor that may be forgotten itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, HashSet};

use crate::support::*;
use larder_format::ids::{JobId, RepositoryId};
use larder_format::manifest::Origin;
use larder_format::mark::Forgotten;
use larder_gnode::forget::{Replaced, Replacement, pin_of, replace};
use larder_gnode::mirror::{Kept, MirrorQuestion, Mirrored, mirror};
use larder_job::JobContext;
use larder_rewrite::change::stands;
use larder_store::catalog::{Filter, Version};
use larder_store::forget_marks::OwnedVersion;
use larder_store::pins::PinError;
use larder_store::tags::TagChange;

fn mark() -> Forgotten {
    Forgotten { time_ms: 1, host: "host".to_owned(), reason: "test".to_owned() }
}

/// Three versions, and their copies in a repository that is the same one under another id: only their summaries count here.
struct Mirror {
    scene: Scene,
    context: JobContext,
    originals: Vec<Version>,
    copies: Vec<Version>,
}

impl Mirror {
    fn new() -> Self {
        let scene = Scene::new();
        for edition in 0..3 {
            scene.version("a", edition);
        }
        let context = scene.context();
        let originals = versions(&context);
        let from = context.repository.config().repository;
        let copy = |original: &Version| {
            let mut copy = original.clone();
            copy.summary.id = JobId([copy.summary.id.0[15]; 16]);
            copy.summary.origin = Some(Origin::of(from, &original.summary));
            copy.summary.tags = vec!["nightly".to_owned()];
            copy
        };
        let copies = originals.iter().map(copy).collect();
        Self { scene, context, originals, copies }
    }

    fn ask(&self, versions: &[Version], filter: &Filter) -> Mirrored {
        let lines = self.context.executor.block_on(self.context.repository.pin_lines()).unwrap();
        let question =
            MirrorQuestion { source: &self.context.repository, versions, copies: &self.copies, lines: &lines, filter };
        self.context.executor.block_on(mirror(&question)).unwrap()
    }

    fn gone(&self, versions: &[Version], filter: &Filter) -> (Vec<JobId>, Vec<(JobId, Kept)>) {
        let Mirrored { gone, kept } = self.ask(versions, filter);
        (gone.iter().map(Version::id).collect(), kept)
    }
}

#[test]
fn a_version_that_only_the_listing_lacks_is_there() {
    let mirror = Mirror::new();
    let any = Filter::default();
    assert_eq!(mirror.gone(&mirror.originals, &any), (vec![], vec![]));
    // A listing without the first one: the store has it.
    let listed = &mirror.originals[1..];
    let first = mirror.copies[0].id();
    let asked = mirror.ask(listed, &any);
    assert!(asked.is_unreliable() && asked.gone.is_empty() && asked.kept == [(first, Kept::StillThere)]);
    mirror.scene.runtime.block_on(mirror.context.repository.forget(&mirror.originals[0], &mark())).unwrap();
    assert_eq!(mirror.gone(listed, &any), (vec![first], vec![]));
    // So after a pass, when nothing is left of it.
    mirror.scene.pass().unwrap();
    assert_eq!(mirror.gone(listed, &any), (vec![first], vec![]));
    // Copies of other repositories are none of this one's business.
    let mut other = Mirror::new();
    let from = RepositoryId([99; 16]);
    for copy in &mut other.copies {
        copy.summary.origin = copy.summary.origin.map(|origin| Origin { repository: from, ..origin });
    }
    assert_eq!(other.gone(&[], &any), (vec![], vec![]));
}

#[test]
fn pins_later_tags_and_saved_rests_keep_copies() {
    let mirror = Mirror::new();
    mirror.scene.runtime.block_on(mirror.context.repository.forget(&mirror.originals[0], &mark())).unwrap();
    let listed = &mirror.originals[1..];
    let first = mirror.copies[0].id();
    let nightly = Filter { tags: vec![vec!["nightly".to_owned()]], ..Filter::default() };
    assert_eq!(mirror.gone(listed, &nightly).0, [first]);
    // The lines of the pins are those of the copies, which are in the same repository here.
    let in_lines = |change: &dyn Fn(&Mirror)| {
        let mut mirror = Mirror::new();
        mirror.scene.runtime.block_on(mirror.context.repository.forget(&mirror.originals[0], &mark())).unwrap();
        // The copy of the first one has the line of the second one.
        mirror.copies[0].summary.id = mirror.originals[1].id();
        change(&mirror);
        mirror.gone(&mirror.originals[1..], &nightly)
    };
    let remove = TagChange::AddRemove { add: Vec::new(), remove: vec!["nightly".to_owned()] };
    let add = TagChange::AddRemove { add: vec!["nightly".to_owned(), "x".to_owned()], remove: Vec::new() };
    let tag = |mirror: &Mirror, change: &TagChange| {
        let tagged = mirror.context.repository.tag(&mirror.copies[0], change, 1, "host", "test");
        mirror.scene.runtime.block_on(tagged).unwrap();
    };
    assert_eq!(in_lines(&|mirror| tag(mirror, &remove)), (vec![], vec![]));
    assert_eq!(in_lines(&|mirror| tag(mirror, &add)).0.len(), 1);
    let pin = |mirror: &Mirror| {
        let pinned = mirror.context.repository.pin(&mirror.originals[1], 1, "host", "wanted");
        mirror.scene.runtime.block_on(pinned).unwrap();
    };
    let (gone, kept) = in_lines(&pin);
    assert!(gone.is_empty() && matches!(kept[..], [(_, Kept::Pinned)]));
    // Only a part of the original was saved.
    let mut saved = mirror.originals[1].clone();
    saved.summary.tags = vec![format!("repaired-from:{}", mirror.originals[0].id().short())];
    assert_eq!(
        mirror.gone(&[saved], &Filter { tags: vec![vec!["nightly".to_owned()]], ..Filter::default() }).1[0].1,
        Kept::OnlyWhole
    );
}

fn pair(old: &Version, new: &Version) -> Replaced {
    Replaced { old: OwnedVersion::from(old), new: OwnedVersion::from(new), tags: old.summary.tags.clone() }
}

#[test]
fn a_successor_cannot_be_forgotten_while_its_predecessor_is() {
    let mirror = Mirror::new();
    let (context, runtime) = (&mirror.context, &mirror.scene.runtime);
    let [old, new, third] = &mirror.originals[..] else { panic!("three") };
    let is_there = |version: &Version| runtime.block_on(context.repository.is_retained(pin_of(version))).unwrap();
    // Another operator forgets the successor, between the look at it and the mark.
    let Replacement { forgot, unheld } = replace(context, &[pair(old, new)], &mark(), || {
        let raced = runtime.block_on(context.repository.forget(new, &mark()));
        assert!(matches!(raced, Err(PinError::Pinned { .. })), "{raced:?}");
        Ok::<_, PinError>(HashSet::from([old.id()]))
    })
    .unwrap();
    assert!(forgot.done == [old.id()] && unheld.is_empty() && !is_there(old) && is_there(new));
    // Then it can be forgotten like any other version.
    assert!(runtime.block_on(context.repository.pinned()).unwrap().is_empty());
    runtime.block_on(context.repository.forget(new, &mark())).unwrap();
    // What is forgotten is no successor.
    let replaced = replace(context, &[pair(third, new)], &mark(), || Ok::<_, PinError>(HashSet::from([third.id()])));
    let Replacement { forgot, unheld } = replaced.unwrap();
    assert!(forgot.done.is_empty() && is_there(third));
    assert!(matches!(&unheld[..], [(id, PinError::Forgotten { .. })] if *id == third.id()));
    // Nor is anything forgotten if the look fails or finds nothing.
    let scene = Mirror::new();
    let [old, new, _] = &scene.originals[..] else { panic!("three") };
    let failed = replace(&scene.context, &[pair(old, new)], &mark(), || Err::<HashSet<JobId>, _>(PinError::Contended));
    assert!(matches!(failed, Err(PinError::Contended)));
    let nothing = replace(&scene.context, &[pair(old, new)], &mark(), || Ok::<_, PinError>(HashSet::new())).unwrap();
    assert!(nothing.forgot.done.is_empty());
    assert_eq!(versions(&scene.context).len(), 3);
    let pinned: BTreeMap<_, _> = scene.scene.runtime.block_on(scene.context.repository.pinned()).unwrap();
    assert!(pinned.is_empty());
}

/// A version stands if it is there, not forgotten, and misses nothing that its manifest names.
#[test]
fn a_version_stands_only_if_it_is_whole_and_there() {
    let scene = Scene::new();
    let id = scene.version("a", 0);
    let look = |scene: &Scene| {
        let context = scene.context();
        let version = versions(&scene.context()).into_iter().find(|version| version.id() == id);
        let pin = version.as_ref().map(pin_of);
        pin.map(|pin| stands(&context, pin).unwrap())
    };
    assert_eq!(look(&scene), Some(true));
    for prefix in ["meta/", "data/"] {
        let fork = scene.fork();
        let names = fork.runtime.block_on(fork.memory.paths());
        let name = names.iter().find(|name| name.starts_with(prefix)).unwrap();
        fork.runtime.block_on(fork.memory.remove(name));
        assert_eq!(look(&fork), Some(false), "without {name}");
    }
    let fork = scene.fork();
    let context = fork.context();
    let version = versions(&context).remove(0);
    fork.runtime.block_on(context.repository.forget(&version, &mark())).unwrap();
    assert!(!stands(&context, pin_of(&version)).unwrap(), "it is forgotten");
    let other = larder_format::lease::Pin { job: JobId([3; 16]), ..pin_of(&version) };
    assert!(!stands(&context, other).unwrap(), "it never was");
}
