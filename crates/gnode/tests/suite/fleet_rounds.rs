//! Rounds of a fleet batch: images are open in their own round only, later rounds store nothing that earlier ones stored, and
//! what is lost in a round leaves the others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_fleet::{OpenedImage, Patience, Sources, StageId, coordinate, read_plan, run, status, to_retry, work};
use larder_format::fleet::Stage;
use larder_format::ids::JobId;
use larder_source::image::Image;
use larder_testkit::data;

use crate::fleet::{Disks, Given, chunks, fleet_images, given, is_clean, is_saved, options, three};
use crate::fleet_workers::{as_host, worker};
use crate::support::*;

/// How many images are open, and were at once.
#[derive(Default)]
struct Count {
    open: AtomicUsize,
    most: AtomicUsize,
}

struct Counted {
    image: Box<dyn Image>,
    count: Arc<Count>,
}

impl Image for Counted {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buffer)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.open.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Counting<'a>(Disks<'a>, Arc<Count>);

impl Sources for Counting<'_> {
    fn open(&mut self, number: usize, job: JobId) -> Result<OpenedImage, String> {
        let opened = self.0.open(number, job)?;
        let open = self.1.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.most.fetch_max(open, Ordering::SeqCst);
        Ok(OpenedImage { image: Box::new(Counted { image: opened.image, count: self.1.clone() }), ..opened })
    }

    fn remark(&mut self, number: usize, remark: &str) {
        self.0.remark(number, remark);
    }
}

/// The same in rounds, by their places.
fn in_rounds(mut images: Vec<Given>, rounds: &[u32]) -> Vec<Given> {
    images.iter_mut().zip(rounds).for_each(|(image, round)| image.round = *round);
    images
}

#[test]
fn images_are_open_in_their_round_and_later_ones_store_nothing_twice() {
    for partitions in [1, 3] {
        let scene = Scene::new();
        // The rounds are not in the order of the images, and one of them has none.
        let images = in_rounds(three(), &[3, 0, 1]);
        let count = Arc::new(Count::default());
        let mut sources = Counting(Disks(&images), count.clone());
        let report =
            run(&scene.context(), &fleet_images(&images), &mut sources, &options(&scene, partitions, 4 << 20)).unwrap();
        assert!(report.ended_by.is_none(), "{:?}", report.ended_by);
        assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
        assert_eq!((count.most.load(Ordering::SeqCst), count.open.load(Ordering::SeqCst)), (1, 0));
        is_saved(&scene, &images);
        let (distinct, count) = chunks(&scene);
        assert_eq!(distinct, count, "every chunk is stored once");
        let repository = scene.repository(scene.memory.store());
        let said = status(&repository, &scene.runtime.handle().clone().into(), report.batch).unwrap().unwrap();
        for (round, is_there) in [(0, true), (1, true), (2, false), (3, true)] {
            let finish = said.stages.get(&StageId { round, stage: Stage::Finish, waited: 0 });
            assert_eq!(finish.is_some_and(|finish| finish.done == 1), is_there, "{round}");
        }
        assert!(said.due.is_none() && said.plan.rounds() == 4);
        scene.pass().unwrap();
        is_saved(&scene, &images);
        is_clean(&scene, "after a batch of rounds");
    }
}

/// All that is lost in the first round: an image is gone, one changes, and the owner of a chunk fails. The second round has what it
/// shares with them all the same.
#[test]
fn a_round_that_fails_leaves_the_later_ones() {
    let scene = Scene::new();
    let shared = data::random(1, 500_000);
    let image = |own: u64| [&shared[..], &data::random(own, 50_000)].concat();
    let mut images = in_rounds(
        vec![
            given("a", "one", image(10)),
            given("b", "two", Vec::new()),
            given("c", "one", image(12)),
            given("d", "two", image(13)),
        ],
        &[0, 0, 1, 1],
    );
    images[0].spoiled = Some((images[0].bytes.len() as u64, true));
    let report =
        run(&scene.context(), &fleet_images(&images), &mut Disks(&images), &options(&scene, 2, 4 << 20)).unwrap();
    let states: Vec<_> =
        report.images.iter().map(|image| image.result.as_ref().err().map(|error| error.stage)).collect();
    assert_eq!(states, [Some(Stage::Store), Some(Stage::Scan), None, None]);
    is_saved(&scene, &images[2..]);
    let (distinct, count) = chunks(&scene);
    assert_eq!(distinct, count, "every chunk is stored once");
    scene.pass().unwrap();
    is_saved(&scene, &images[2..]);
    is_clean(&scene, "after a round that failed");
}

/// Two workers, three rounds. The worker of one host ends after its first one: its images are named, without waiting for the
/// whole time in each round, and a retry has them, in one round or in several.
#[test]
fn workers_go_through_the_rounds_and_one_is_lost() {
    let scene = Scene::new();
    let mut images = three();
    images.push(given("d", "two", data::random(21, 200_000)));
    images.push(given("e", "two", data::random(22, 200_000)));
    let images = in_rounds(images, &[0, 0, 2, 1, 2]);
    let patience = Patience { claim: Duration::from_secs(1), task: Duration::from_secs(3) };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(worker(&scene, &scene.context(), "one", &images).unwrap(), ["a", "c"]));
        scope.spawn(|| {
            let context = scene.context();
            let cancel = context.cancel.clone();
            let mut sources = Until(Disks(&images), cancel, 3);
            let fleet = fleet_images(&images);
            let ended = work(&context, &fleet, &mut sources, &as_host(&scene, "two"), true, &mut |_| {});
            ended.unwrap_err();
        });
        let fleet = fleet_images(&images);
        coordinate(&scene.context(), &fleet, &[], &mut Disks(&[]), &as_host(&scene, "elsewhere"), patience).unwrap()
    });
    let saved: Vec<_> =
        report.images.iter().filter(|image| image.result.is_ok()).map(|image| &*image.image.name).collect();
    assert_eq!(saved, ["a", "b", "c"], "{:?}", report.images);
    for image in report.images.iter().filter(|image| image.result.is_err()) {
        let why = image.result.as_ref().unwrap_err().error.as_ref().unwrap().to_string();
        assert!(why.contains("host two"), "{why}");
    }
    is_saved(&scene, &images[..3]);
    let plan = read_plan(&scene.context(), report.batch).unwrap().unwrap();
    let again = to_retry(&report, &plan);
    assert_eq!(again.iter().map(|image| (&*image.name, image.round)).collect::<Vec<_>>(), [("d", 1), ("e", 2)]);
    std::thread::scope(|scope| {
        scope.spawn(|| worker(&scene, &scene.context(), "two", &images).unwrap());
        let options = as_host(&scene, "elsewhere");
        let report = coordinate(&scene.context(), &again, &[], &mut Disks(&[]), &options, Patience::default()).unwrap();
        assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
    });
    is_saved(&scene, &images);
    scene.pass().unwrap();
    is_saved(&scene, &images);
}

/// Ends its process when this image is to be opened.
struct Until<'a>(Disks<'a>, larder_job::Cancel, usize);

impl Sources for Until<'_> {
    fn open(&mut self, number: usize, job: JobId) -> Result<OpenedImage, String> {
        if number == self.2 {
            self.1.cancel();
        }
        self.0.open(number, job)
    }

    fn remark(&mut self, _number: usize, _remark: &str) {}
}
