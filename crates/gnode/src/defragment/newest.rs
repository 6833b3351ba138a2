//! The newest versions of all series, and the containers that they use. Defragmentation decides
//! about these, and redirects only to these.

use std::collections::HashSet;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::recipe::Recipe;
use larder_store::catalog::Version;

/// The newest version of a series.
#[derive(Debug, Clone)]
pub(super) struct Newest {
    pub(super) version: Version,
    /// Bytes of its contents.
    pub(super) bytes: u64,
    /// The data containers it uses.
    pub(super) containers: Vec<ContainerUsage>,
    /// The metadata containers it uses.
    pub(super) metadata: Vec<ContainerId>,
    /// Bytes that the round has already copied for it.
    pub(super) spent: u64,
    /// Its data stream, if it may be worth reading for how often chunks repeat.
    pub(super) recipe: Option<Recipe>,
}

impl Newest {
    pub(super) fn new(version: &Version, manifest: &Manifest) -> Self {
        let of_data = |usage: &&ContainerUsage| usage.container.kind == ContainerKind::Data;
        let mut containers: Vec<_> = manifest.containers.iter().filter(of_data).copied().collect();
        let all = manifest.containers.iter().map(|usage| usage.container);
        let mut metadata: Vec<_> = all.filter(|container| container.kind == ContainerKind::Meta).collect();
        // A filter does not know how many there are, so both may have room for twice as many.
        containers.shrink_to_fit();
        metadata.shrink_to_fit();
        let bytes = manifest.data.bytes();
        Self { version: version.clone(), bytes, containers, metadata, spent: 0, recipe: None }
    }

    /// How many containers it uses.
    pub(super) fn all_containers(&self) -> u64 {
        (self.containers.len() + self.metadata.len()) as u64
    }

    /// Their names.
    pub(super) fn all_names(&self) -> impl Iterator<Item = ContainerId> {
        let data = self.containers.iter().map(|usage| usage.container);
        data.chain(self.metadata.iter().copied())
    }

    /// Bytes that its own backup stored, as far as it uses them.
    pub(super) fn stored_bytes(&self) -> u64 {
        let is_own = |usage: &&ContainerUsage| usage.container.job == self.version.id();
        self.containers.iter().filter(is_own).map(|usage| usage.bytes_used).sum()
    }
}

/// One newest version's use of one container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    /// Place of the version among the newest.
    pub(super) version: usize,
    pub(super) usage: ContainerUsage,
}

/// All data containers that newest versions use, with these. They grow with the repository, so
/// nothing is allocated for one.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// By container, and in the order of the versions.
    all: Vec<Use>,
    /// Those that newest versions outside of these use too. They are not left: other versions
    /// would keep them.
    elsewhere: HashSet<ContainerId>,
}

impl Uses {
    pub(super) fn of_all(newest: &[Newest]) -> Self {
        let mut all = Vec::with_capacity(newest.iter().map(|newest| newest.containers.len()).sum());
        for (version, newest) in newest.iter().enumerate() {
            all.extend(newest.containers.iter().map(|usage| Use { version, usage: *usage }));
        }
        all.sort_by_key(|used| used.usage.container);
        Self { all, elsewhere: HashSet::new() }
    }

    /// The same, when other newest versions use these containers too.
    pub(super) fn beside(self, elsewhere: HashSet<ContainerId>) -> Self {
        Self { elsewhere, ..self }
    }

    /// Whether a newest version outside of these uses a container.
    pub(super) fn is_elsewhere(&self, container: &ContainerId) -> bool {
        self.elsewhere.contains(container)
    }

    /// All of them, each once.
    pub(super) fn containers(&self) -> impl Iterator<Item = ContainerId> {
        self.all.chunk_by(|a, b| a.usage.container == b.usage.container).map(|used| used[0].usage.container)
    }

    /// Bytes that all of them hold, uncompressed.
    pub(super) fn held_bytes(&self) -> u64 {
        let each = self.all.chunk_by(|a, b| a.usage.container == b.usage.container);
        each.map(|used| used[0].usage.bytes_held).sum()
    }

    /// The versions that use a container.
    pub(super) fn of(&self, container: &ContainerId) -> &[Use] {
        let from = self.all.partition_point(|used| used.usage.container < *container);
        let behind = self.all.get(from..).unwrap_or_default();
        behind.get(..behind.partition_point(|used| used.usage.container == *container)).unwrap_or_default()
    }

    /// Whether one newest version alone uses a container.
    pub(super) fn is_of_one(&self, container: &ContainerId) -> bool {
        !self.is_elsewhere(container) && self.of(container).len() == 1
    }

    /// Bytes of a container that none of these versions uses, at least. It is unknown which bytes
    /// several of them share.
    pub(super) fn unused_bytes(&self, container: &ContainerId) -> u64 {
        if self.is_elsewhere(container) {
            return 0;
        }
        let used = self.of(container);
        let held = used.first().map_or(0, |used| used.usage.bytes_held);
        held.saturating_sub(used.iter().map(|used| used.usage.bytes_used).sum())
    }

    /// Whether each of these versions uses less of a container than this share of its bytes
    /// (percent). A container that is dense for one of them stays. Otherwise two series that share
    /// it would rewrite it in turns for ever.
    pub(super) fn is_sparse_for_all(&self, container: &ContainerId, percent: u8) -> bool {
        let is_sparse = |used: &Use| is_below(used.usage.bytes_used, percent, used.usage.bytes_held);
        !self.is_elsewhere(container) && self.of(container).iter().all(is_sparse)
    }
}

/// Whether `part` is less than this percentage of `whole`.
pub(super) fn is_below(part: u64, percent: u8, whole: u64) -> bool {
    u128::from(part) * 100 < u128::from(whole) * u128::from(percent)
}
