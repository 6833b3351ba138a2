//! Properties of fleet batches: exact deduplication whatever the images, hosts and partitions are; and inventories of any text.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;
use std::path::Path;

use larder_fleet::inventory;
use larder_testkit::data;
use proptest::prelude::*;

use crate::fleet::{Given, batch_within, chunks, given, is_saved};
use crate::support::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const HOSTS: [&str; 4] = ["one", "two", "three", "any"];

/// Host and parts of an image. A part is the seed and the length of noise.
type Described = (&'static str, Vec<(u64, usize)>);

/// Images of parts from a small stock, so that parts return within an image and in others.
fn described() -> impl Strategy<Value = Vec<Described>> {
    let part = (0_u64..6, 1_usize..6);
    let image = (prop::sample::select(&HOSTS[..]), prop::collection::vec(part, 1..6));
    prop::collection::vec(image, 1..=NAMES.len())
}

fn images(described: &[Described]) -> Vec<Given> {
    let bytes = |parts: &[(u64, usize)]| -> Vec<u8> {
        parts.iter().flat_map(|(seed, length)| data::random(*seed, length * 25_000)).collect()
    };
    NAMES.iter().zip(described).map(|(name, (host, parts))| given(name, host, bytes(parts))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// The oracle is a set of fingerprints: each distinct chunk is stored once, and the number of chunks does not depend on how the
    /// work is divided.
    #[test]
    fn a_batch_stores_what_exact_deduplication_stores(
        described in described(),
        partitions in prop::collection::vec(1_u32..20, 2),
        memory in prop::sample::select(vec![1_usize, 64 << 10, 4 << 20]),
    ) {
        let (images, origin) = (images(&described), Scene::new());
        let mut counts = BTreeSet::new();
        for partitions in partitions {
            let scene = origin.fork();
            let report = batch_within(&scene.context(), &scene, &images, partitions, memory).unwrap();
            prop_assert!(report.ended_by.is_none() && report.images.iter().all(|image| image.result.is_ok()));
            is_saved(&scene, &images);
            let (distinct, count) = chunks(&scene);
            prop_assert_eq!(distinct, count, "{} partitions", partitions);
            counts.insert(count);
        }
        prop_assert_eq!(counts.len(), 1);
    }
}

proptest! {
    /// Any text is an inventory, or an error. Names, series and sources occur once.
    #[test]
    fn any_text_is_an_inventory_or_an_error(
        noise in any::<String>(),
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "[[image]]\n", "[image]\n", "source = \"x.raw\"\n", "source = \"nbd://h/y\"\n", "source = \"/no*such\"\n",
                "name = \"x\"\n", "name = 1\n", "series = \"vm/x\"\n", "series = \"larder:x\"\n", "host = \"a\"\n",
                "shared = true\n", "map = \"{name}\"\n", "context = \"c\"\n", "since = \"latest\"\n", "image = []\n", "=", "\"", "#",
            ]),
            0..14,
        ),
    ) {
        for text in [noise, pieces.concat()] {
            let Ok(listed) = inventory::parse(Path::new("/folder/i.toml"), &text) else { continue };
            prop_assert!(!listed.is_empty());
            let once = |of: fn(&inventory::Listed) -> &String| {
                listed.iter().map(of).collect::<BTreeSet<_>>().len() == listed.len()
            };
            prop_assert!(once(|one| &one.name) && once(|one| &one.series) && once(|one| &one.source));
            prop_assert!(listed.iter().all(|one| !one.series.starts_with(inventory::RESERVED)));
            prop_assert!(listed.iter().all(|one| !(one.is_shared && one.host.is_some())));
        }
    }
}
