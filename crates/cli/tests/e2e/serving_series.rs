//! `serve-block` of every snapshot of a series, while snapshots are forgotten and the repository is optimised.

use larder_nbd::client::Client;
use larder_testkit::data;

use crate::support::block_server::Serving;
use crate::support::{Play, tree};

/// Changes of an image from snapshot to snapshot: pages are overwritten, bytes inserted, ranges copied, the end moves.
fn change(image: &mut Vec<u8>, version: u64) {
    let mut random = data::Rng::new(version);
    for _ in 0..40 {
        let at = random.below(image.len() as u64 / 4096 - 1) as usize * 4096;
        image[at..at + 4096].copy_from_slice(&data::random(random.next_u64(), 4096));
    }
    let at = random.below(image.len() as u64) as usize;
    image.splice(at..at, tree::noise(version + 100, 10_000 + version as usize));
    let from = random.below(image.len() as u64 - 300_000) as usize;
    image.copy_within(from..from + 200_000, 100_000);
    image.truncate(image.len() - random.below(60_000) as usize);
}

/// Reads ranges of any length before an offset.
fn read_here_and_there(client: &Client, image: &[u8], end: usize, seed: u64) {
    let mut random = data::Rng::new(seed);
    for _ in 0..40 {
        let at = random.below(end as u64) as usize;
        let length = (1 + random.below(60_000) as usize).min(image.len() - at);
        let read = client.read(at as u64, length as u32).expect("it is whole");
        assert!(read == image[at..at + length], "seed {seed}: {length} bytes from {at}");
    }
}

#[test]
fn every_snapshot_of_a_series_is_what_dump_says_while_it_is_forgotten() {
    for layout in ["standard", "lifecycle"] {
        let play = Play::with_repository();
        play.larder(["series", "set", "vm", "--layout", layout]).ok();
        let mut image = tree::noise(1, 3_000_000);
        image.extend(vec![0; 500_000]);
        let mut versions = Vec::new();
        for version in 0..5 {
            change(&mut image, version);
            play.write("disk.img", &image);
            let id = play.backup(["disk.img", "--series", "vm"]);
            let file = format!("{id}:{}", play.path("disk.img").display());
            assert!(play.larder(["dump", &file]).ok().stdout == image);
            versions.push((id, image.clone()));
        }
        let serving: Vec<_> =
            versions.iter().map(|(id, _)| Serving::of(&play, &[id, "--prefetch", "0", "--cache-disk", "0"])).collect();
        let clients: Vec<_> = serving.iter().map(Serving::client).collect();
        let read_all = |seed: u64| {
            for (client, (_, image)) in clients.iter().zip(&versions) {
                assert_eq!(client.size(), image.len() as u64);
                // The rest is read when the passes are over: it must not be in memory before.
                read_here_and_there(client, image, image.len() / 4, seed);
            }
        };
        read_all(1);
        std::thread::scope(|scope| {
            let pass = scope.spawn(|| {
                // All but one of the snapshots that are served.
                for (id, _) in &versions[..4] {
                    play.larder(["forget", id]).ok();
                    play.larder(["optimize"]).ok();
                }
            });
            let mut seed = 2;
            while !pass.is_finished() {
                read_all(seed);
                seed += 1;
            }
            pass.join().expect("the passes end well");
        });
        for (client, (_, image)) in clients.iter().zip(&versions) {
            let whole = (0..image.len())
                .step_by(1 << 20)
                .flat_map(|at| client.read(at as u64, (image.len() - at).min(1 << 20) as u32).expect("it is whole"));
            assert!(whole.eq(image.iter().copied()), "{layout}");
            read_here_and_there(client, image, image.len(), 0);
        }
        drop(clients);
        serving.into_iter().for_each(|serving| drop(serving.end().0.ok()));
        play.larder(["optimize"]).ok();
        play.larder(["check", "--read-data"]).ok();
    }
}
