//! Random histories against models that know nothing of containers, volumes or passes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_bench_common::front::Piece;
use larder_chunking::Fingerprint;
use proptest::prelude::*;

use super::*;

/// A chunk's size follows from its name. Large, so that containers of 4 MiB fill up with few of them.
fn piece(name: u8) -> Piece {
    Piece { fingerprint: Fingerprint([name; 32]), size: 100_000 + u32::from(name) * 1000 }
}

fn distinct_bytes<'a>(versions: impl IntoIterator<Item = &'a Vec<Piece>>) -> u64 {
    let all: HashMap<Fingerprint, u32> = versions.into_iter().flatten().map(|p| (p.fingerprint, p.size)).collect();
    all.values().map(|size| u64::from(*size)).sum()
}

/// Bytes that have to be stored when a chunk is known only as long as every version has it: once for every stretch of versions in a row
/// that have it, if one of them is retained.
fn neighbour_bytes(versions: &BTreeMap<Number, Vec<Piece>>, newest: Number, retained: &BTreeSet<Number>) -> u64 {
    let mut bytes = 0;
    for name in 0..=u8::MAX {
        let piece = piece(name);
        let mut is_counted = false;
        for number in 1..=newest {
            if !versions[&number].contains(&piece) {
                is_counted = false;
            } else if retained.contains(&number) && !is_counted {
                is_counted = true;
                bytes += u64::from(piece.size);
            }
        }
    }
    bytes
}

/// Names of a version's chunks, from those of the one before: some leave, some come, some come twice, and a few come back.
fn histories() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let change = prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 0..25);
    (prop::collection::vec(any::<u8>(), 20..120), prop::collection::vec(change, 3..14)).prop_map(|(first, changes)| {
        let mut versions = vec![first];
        for change in changes {
            let mut names = versions[versions.len() - 1].clone();
            for (place, kind, name) in change {
                match kind {
                    0 => drop(names.remove(place.index(names.len()))),
                    1 => names.insert(place.index(names.len() + 1), name),
                    _ => {
                        let place = place.index(names.len());
                        names[place] = name;
                    }
                }
                if names.is_empty() {
                    names.push(name);
                }
            }
            versions.push(names);
        }
        versions
    })
}

fn all_schemes() -> Vec<Box<dyn Scheme>> {
    let mut schemes: Vec<Box<dyn Scheme>> = Vec::new();
    for collection in [Collection::Perfect, Collection::Markers] {
        for rule in [Rule::Exact, Rule::Har, Rule::Capping] {
            schemes.push(Box::new(Classic::new(rule, collection)));
        }
    }
    schemes.push(Box::new(MfDedup::default()));
    for holes in [0.0, 0.2, 0.5] {
        schemes.push(Box::new(Larder::new(Lifecycle::with_holes(holes))));
    }
    // Rarer passes keep every promise but those about holes.
    schemes.push(Box::new(Larder::new(Lifecycle { every: 3, container_bytes: 1 << 20, ..Lifecycle::with_holes(0.2) })));
    schemes.push(Box::new(Larder::new(Lifecycle { bases: Bases::WhenLost(3), ..Lifecycle::with_holes(0.2) })));
    schemes
}

/// What comes back from the version before the base.
#[test]
fn further_bases_are_asked_after_too_much_was_lost() {
    let all: Vec<Piece> = (0..40).map(piece).collect();
    let fifth: Vec<Piece> = all[..1].iter().chain(&all[20..]).copied().collect();
    let stored = |bases| {
        let mut larder = Larder::new(Lifecycle { bases, ..Lifecycle::with_holes(0.0) });
        // It shows in the third version; the fifth has one of the second before it, the sixth the others of the third before it.
        let versions = [&all[..], &all[20..], &all[..], &all[20..], &fifth[..], &all[..]];
        for (number, pieces) in (1..).zip(versions) {
            larder.back_up(number, pieces);
            larder.arrange();
            assert!(larder.content(number) == pieces);
        }
        (1..=6).for_each(|number| assert!(larder.content(number) == versions[number as usize - 1], "{number}"));
        larder.stored()
    };
    let half = distinct_bytes([&all[..20].to_vec()]);
    let whole = distinct_bytes([&all]);
    assert_eq!(stored(Bases::One), whole + 2 * half);
    assert_eq!(stored(Bases::WhenLost(2)), whole + 2 * half - u64::from(all[0].size));
    assert_eq!(stored(Bases::WhenLost(3)), whole + half);
}

const EXACT: usize = 0;
/// From here on deletions move nothing.
const MARKERS: usize = 3;
const MFDEDUP: usize = 6;
const LARDER_ZERO: usize = 7;
const LARDER: usize = 8;

/// Plays a history. `deleted` picks, after each version, which one of those before it goes, if any.
fn play(
    history: &[Vec<u8>],
    deleted: impl Fn(usize, &BTreeSet<Number>) -> Option<Number>,
) -> Result<(), TestCaseError> {
    let mut schemes = all_schemes();
    let mut versions: BTreeMap<Number, Vec<Piece>> = BTreeMap::new();
    let mut retained = BTreeSet::new();
    for (place, names) in history.iter().enumerate() {
        let number = place as Number + 1;
        let pieces: Vec<Piece> = names.iter().map(|name| piece(*name)).collect();
        let gone = deleted(place, &retained);
        versions.insert(number, pieces);
        retained.insert(number);
        if let Some(gone) = gone {
            retained.remove(&gone);
        }
        for (place, scheme) in schemes.iter_mut().enumerate() {
            scheme.back_up(number, &versions[&number]);
            if let Some(gone) = gone {
                let work = scheme.delete(gone);
                let is_free = work.read == Reading::default() && work.written == 0;
                prop_assert!(place < MARKERS || is_free, "{}: {work:?}", scheme.name());
            }
            scheme.arrange();
            for version in &retained {
                let content = scheme.content(*version);
                prop_assert!(content == versions[version], "{}: version {version} after {number}", scheme.name());
            }
        }
        let stored: Vec<u64> = schemes.iter().map(|scheme| scheme.stored()).collect();
        let exact = distinct_bytes(retained.iter().map(|version| &versions[version]));
        let by_neighbours = neighbour_bytes(&versions, number, &retained);
        prop_assert_eq!(stored[EXACT], exact);
        prop_assert!(stored.iter().all(|stored| *stored >= exact), "{:?} under {}", stored, exact);
        prop_assert_eq!(stored[MFDEDUP], by_neighbours);
        prop_assert_eq!(stored[LARDER_ZERO], by_neighbours);
        // No container has more than h/2 that nobody needs.
        prop_assert!(stored[LARDER] as f64 <= by_neighbours as f64 / 0.9 + 1.0);
        for version in &retained {
            let needed = distinct_bytes([&versions[version]]);
            for exactly in [MFDEDUP, LARDER_ZERO] {
                let restored = schemes[exactly].restore(*version, 0);
                prop_assert_eq!(restored.once.bytes, needed, "{}: {}", schemes[exactly].name(), version);
            }
            for scheme in &schemes {
                let Restored { usual, once } = scheme.restore(*version, 8 << 20);
                prop_assert!(once.bytes >= needed && usual.bytes >= once.bytes, "{}: {version}", scheme.name());
            }
        }
        let newest = distinct_bytes([&versions[&number]]) as f64;
        prop_assert!(schemes[LARDER].restore(number, 0).once.bytes as f64 <= newest / 0.8 + 1.0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Under any retention, the oldest first or any other order, every scheme keeps every retained version, stores no less than what these
    /// need and, where it promises that, no more, and layouts by lifecycle read exactly what a version needs.
    #[test]
    fn every_scheme_keeps_its_word(history in histories(), keep in 1usize..6, picks in prop::collection::vec(any::<prop::sample::Index>(), 14)) {
        play(&history, |place, _| (place + 1).checked_sub(keep).filter(|gone| *gone > 0).map(|gone| gone as Number))?;
        play(&history, |place, retained| {
            let older: Vec<Number> = retained.iter().copied().collect();
            (older.len() > keep).then(|| older[picks[place].index(older.len())])
        })?;
    }
}

/// What leaves at once and alone is only marked; when a fifth has left, the container is arranged, and only then.
#[test]
fn larder_moves_nothing_before_enough_has_left() {
    let names: Vec<u8> = (0..20).collect();
    let pieces = |names: &[u8]| names.iter().map(|name| piece(*name)).collect::<Vec<_>>();
    let mut larder = Larder::new(Lifecycle::with_holes(0.2));
    larder.back_up(1, &pieces(&names));
    assert_eq!(larder.arrange(), Work::default());
    larder.back_up(2, &pieces(&names[3..]));
    assert_eq!(larder.arrange(), Work::default());
    larder.back_up(3, &pieces(&names[5..]));
    let whole: u64 = pieces(&names).iter().map(|piece| u64::from(piece.size)).sum();
    let work = larder.arrange();
    assert_eq!((work.read.bytes, work.written, work.deleted), (whole, whole, 1));
    // Now the newest version reads what it has and no more, and deleting the oldest frees what only it had, for nothing.
    assert_eq!(larder.restore(3, 0).once.bytes, distinct_bytes([&pieces(&names[5..])]));
    let work = larder.delete(1);
    assert_eq!((work.read.bytes, work.written, work.deleted), (0, 0, 1));
    assert_eq!(larder.stored(), whole - distinct_bytes([&pieces(&names[..3])]));
}

/// The paper's arranging reads and writes all that was active, whatever left.
#[test]
fn mfdedup_moves_everything_every_time() {
    let pieces: Vec<Piece> = (0..20).map(piece).collect();
    let mut scheme = MfDedup::default();
    scheme.back_up(1, &pieces);
    scheme.arrange();
    scheme.back_up(2, &pieces[1..]);
    let work = scheme.arrange();
    assert_eq!((work.read.bytes, work.written), (distinct_bytes([&pieces]), distinct_bytes([&pieces])));
    assert_eq!(scheme.volumes(), [(1, u64::from(pieces[0].size))]);
    assert_eq!(scheme.delete(1).deleted, 1);
    assert_eq!(scheme.volumes(), []);
}

/// HAR stores again what lies in containers that the version before hardly used, within its limit.
#[test]
fn har_rewrites_and_the_old_copies_go_with_the_old_versions() {
    let all: Vec<Piece> = (0..200).map(piece).collect();
    let mut scheme = Classic::new(Rule::Har, Collection::Perfect);
    scheme.back_up(1, &all);
    // Everything but the containers of the first chunks, of which one stays: 5 % is room for it.
    let most: Vec<Piece> = std::iter::once(all[0]).chain(all[80..].iter().copied()).collect();
    scheme.back_up(2, &most);
    let before = scheme.stored();
    scheme.back_up(3, &most);
    let again = scheme.stored() - before;
    assert!(again >= u64::from(all[0].size) && again <= distinct_bytes([&most]) / 20, "{again} bytes");
    scheme.delete(1);
    scheme.delete(2);
    assert_eq!(scheme.stored(), distinct_bytes([&most]));
}
