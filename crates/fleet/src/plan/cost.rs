//! The seconds, bytes and requests of a round.
//!
//! Symbols are those of the papers: `r` chunks that are looked up, `c` bytes of a chunk, `d2` the
//! share of them that the index knows, `d3` the share that other images of the batch have, `P`
//! partitions. The published model had the second scan without its writes. Here the slower of both
//! counts, because they overlap.

use larder_format::container::CONTAINER_TARGET;

use super::{PlannedImage, Requests, Round};

/// Bytes of a question: fingerprint, image and number.
const QUESTION: f64 = 28.0;
/// Bytes of an answer.
const ANSWER: f64 = 17.0;
/// Bytes of a place that others wait for: with the rest of the fingerprint.
const PLACE: f64 = QUESTION + 16.0;
/// Bytes of a record in a recipe.
const RECORD: f64 = 34.0;
/// Chunks of one container that a batch finds together: its table is read once for them.
const CHUNKS_OF_TABLE: f64 = 1000.0;
/// Bytes of a temporary object.
const EXCHANGE_OBJECT: f64 = (4 << 20) as f64;
/// Objects of an image beside its data: two leases, a metadata container, manifest, the end of its
/// job, and registers of three tasks.
const OBJECTS_OF_IMAGE: u64 = 8;
/// Requests in a row before and behind an image: its lease and the looks, manifest and end.
const COMMITS: f64 = 6.0;

/// What a host can do, and what the data is like. Rates are in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Reading images.
    pub read: f64,
    /// Writing temporary files, and reading them again.
    pub scratch: f64,
    /// Cutting and hashing.
    pub compute: f64,
    /// Between a host and the store.
    pub network: f64,
    /// Seconds of one request.
    pub request: f64,
    /// Requests at the same time.
    pub parallel: f64,
    /// Bytes of a chunk.
    pub chunk: f64,
    /// The share of looked-up chunks that the index knows (`d2`).
    pub known: f64,
    /// The share that other images of the batch have (`d3`).
    pub shared: f64,
    /// Partitions for each host.
    pub partitions: f64,
    /// Bytes of the index.
    pub index_bytes: f64,
    /// The price of 1000 requests that write.
    pub write_price: f64,
    /// The price of 1000 requests that read.
    pub read_price: f64,
    /// The price of a GB (10^9 bytes) for a month.
    pub month_price: f64,
}

impl Default for Rates {
    /// Disks and shares as in the published measurement, chunks and requests as they are here, and
    /// prices of a usual cloud.
    fn default() -> Self {
        Self {
            read: 50e6,
            scratch: 50e6,
            compute: 500e6,
            network: 100e6,
            request: 0.03,
            parallel: 16.0,
            chunk: 4096.0,
            known: 0.745,
            shared: 0.05,
            partitions: 4.0,
            index_bytes: 0.0,
            write_price: 0.005,
            read_price: 0.0004,
            month_price: 0.023,
        }
    }
}

impl Rates {
    /// The share of looked-up chunks that are new.
    pub fn new_share(&self) -> f64 {
        (1.0 - self.known - self.shared).max(0.0)
    }
}

/// Seconds of the stages of a round. All hosts wait for the slowest at the end of each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stages {
    /// Images are read and cut.
    pub scan: f64,
    /// Questions are sorted and sent.
    pub send: f64,
    /// Questions meet the index and each other.
    pub join: f64,
    /// New chunks are read again and stored.
    pub store: f64,
    /// Places are told.
    pub resolve: f64,
    /// Recipes are written, and versions committed.
    pub finish: f64,
}

impl Stages {
    /// All of them.
    pub fn sum(&self) -> f64 {
        self.before_store() + self.store + self.resolve + self.finish
    }

    /// Those before the first image is released.
    pub fn before_store(&self) -> f64 {
        self.scan + self.send + self.join
    }
}

/// What one host does in a round, or one image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostLoad {
    images: f64,
    read: f64,
    changed: f64,
}

impl HostLoad {
    pub(crate) fn of(image: &PlannedImage) -> Self {
        Self { images: 1.0, read: image.read_bytes as f64, changed: image.changed_bytes as f64 }
    }

    fn plus(self, other: Self) -> Self {
        Self { images: self.images + other.images, read: self.read + other.read, changed: self.changed + other.changed }
    }

    fn scan(&self, rates: &Rates) -> f64 {
        let questions = self.changed / rates.chunk;
        (self.read / rates.read).max(self.changed / rates.compute) + questions * QUESTION / rates.scratch
    }

    fn send(&self, rates: &Rates) -> f64 {
        self.changed / rates.chunk * QUESTION * (1.0 / rates.scratch + 1.0 / rates.network)
    }

    pub(crate) fn store(&self, rates: &Rates) -> f64 {
        let questions = self.changed / rates.chunk;
        let new = self.changed * rates.new_share();
        (new / rates.read).max(new / rates.network)
            + self.tables(rates) * rates.request / rates.parallel
            + questions * rates.known * ANSWER / rates.network
    }

    fn tables(&self, rates: &Rates) -> f64 {
        self.changed / rates.chunk * rates.known / CHUNKS_OF_TABLE
    }

    fn finish(&self, rates: &Rates) -> f64 {
        self.changed / rates.chunk * RECORD / rates.network + self.images * COMMITS * rates.request
    }
}

/// What all hosts do in a round. Each stage takes as long as its slowest host.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    hosts: Vec<HostLoad>,
    all: HostLoad,
    slowest: Stages,
}

impl Load {
    pub(crate) fn new(hosts: usize) -> Self {
        Self { hosts: vec![HostLoad::default(); hosts], all: HostLoad::default(), slowest: Stages::default() }
    }

    /// The stages of a host that has one more image, where these are slower than all others.
    fn slowest_with(&self, image: &PlannedImage, rates: &Rates) -> Stages {
        let host = self.hosts[image.host].plus(HostLoad::of(image));
        Stages {
            scan: self.slowest.scan.max(host.scan(rates)),
            send: self.slowest.send.max(host.send(rates)),
            store: self.slowest.store.max(host.store(rates)),
            finish: self.slowest.finish.max(host.finish(rates)),
            ..Stages::default()
        }
    }

    pub(crate) fn add(&mut self, image: &PlannedImage, rates: &Rates) {
        self.slowest = self.slowest_with(image, rates);
        self.hosts[image.host] = self.hosts[image.host].plus(HostLoad::of(image));
        self.all = self.all.plus(HostLoad::of(image));
    }

    /// The stages; all are zero without an image.
    pub(crate) fn stages(&self, rates: &Rates) -> Stages {
        self.with_joint(self.slowest, &self.all, rates)
    }

    /// The seconds with one more image.
    pub(crate) fn seconds_with(&self, image: &PlannedImage, rates: &Rates) -> f64 {
        let slowest = self.slowest_with(image, rates);
        self.with_joint(slowest, &self.all.plus(HostLoad::of(image)), rates).sum()
    }

    /// Adds the stages whose work all hosts share.
    fn with_joint(&self, slowest: Stages, all: &HostLoad, rates: &Rates) -> Stages {
        if all.images == 0.0 {
            return Stages::default();
        }
        let (hosts, questions) = (self.hosts.len() as f64, all.changed / rates.chunk);
        let partitions = rates.partitions * hosts;
        Stages {
            // A partition reads from the object of each host.
            join: (questions * QUESTION + rates.index_bytes) / (hosts * rates.network)
                + partitions * rates.request / rates.parallel,
            resolve: questions * rates.shared * PLACE / (hosts * rates.network)
                + partitions * rates.request / rates.parallel,
            ..slowest
        }
    }

    /// The bytes and requests of the round.
    pub(crate) fn round(&self, images: Vec<usize>, rates: &Rates) -> Round {
        if images.is_empty() {
            return Round::default();
        }
        let hosts = self.hosts.iter().filter(|host| host.images > 0.0).count() as f64;
        let questions = self.all.changed / rates.chunk;
        let new = self.all.changed * rates.new_share();
        let exchanged = questions * (QUESTION + ANSWER + rates.shared * 2.0 * PLACE);
        let partitions = rates.partitions * self.hosts.len() as f64;
        // Partitions and hosts read from the objects of each other.
        let exchange_reads = 4.0 * partitions * hosts;
        let writes = images.len() as u64 * OBJECTS_OF_IMAGE
            + (new / CONTAINER_TARGET as f64).ceil() as u64
            + (exchanged / EXCHANGE_OBJECT + 4.0 * partitions + 2.0 * hosts).ceil() as u64;
        let reads = images.len() as u64 * OBJECTS_OF_IMAGE
            + (self.all.tables(rates) + exchange_reads + rates.index_bytes / EXCHANGE_OBJECT).ceil() as u64;
        Round {
            stages: self.stages(rates),
            overwritten_bytes: 0.0,
            read_bytes: self.all.read as u64,
            new_bytes: new as u64,
            exchanged_bytes: exchanged as u64,
            requests: Requests { writes, reads },
            images,
        }
    }
}
