//! The checks themselves: one function for each guarantee.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future, stream};

use super::{CheckFailure, Extent, Guarantee};
use crate::error::StoreError;
use crate::error_kind::StoreErrorKind;
use crate::name;
use crate::store::Store;

/// Creators of one name at once.
const CREATORS: usize = 16;
/// How often they meet: a store that decides by luck gets away with one round.
const ROUNDS: usize = 8;
/// Requests at once where many objects are made or deleted.
const AT_ONCE: usize = 32;

/// One run of the checks.
#[derive(Debug)]
pub(super) struct Trial {
    store: Store,
    folder: String,
    extent: Extent,
}

type Checked = Result<(), CheckFailure>;

impl Trial {
    pub(super) fn new(store: Store, folder: String, extent: Extent) -> Self {
        Self { store, folder, extent }
    }

    pub(super) async fn run(&self, guarantee: Guarantee) -> Checked {
        match guarantee {
            Guarantee::ReadAfterCreate => self.read_after_create().await,
            Guarantee::MissingIsNotFound => self.missing_is_not_found().await,
            Guarantee::CreateIfAbsent => self.create_if_absent().await,
            Guarantee::OneWinner => self.one_winner().await,
            Guarantee::RangeReads => self.range_reads().await,
            Guarantee::ListAfterCreate => self.list_after_create().await,
            Guarantee::Names => self.names().await,
            Guarantee::EmptyObject => self.empty_object().await,
            Guarantee::Delete => self.delete().await,
            Guarantee::LargeObject => self.large_object().await,
            Guarantee::ListPages => self.list_pages().await,
        }
    }

    /// Deletes everything that was made.
    pub(super) async fn clean_up(&self) -> Result<(), StoreError> {
        let listed = self.store.list(&self.folder).await?;
        let deleted = stream::iter(listed).map(|object| self.delete_one(object.name)).buffer_unordered(AT_ONCE);
        deleted.try_collect().await
    }

    async fn delete_one(&self, name: String) -> Result<(), StoreError> {
        self.store.delete(&name).await
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    async fn read_after_create(&self) -> Checked {
        for number in 0..8 {
            let (name, bytes) = (self.name(&format!("read/{number}")), noise(number, 3000 * number + 1));
            self.store.create(&name, bytes.clone()).await?;
            same(&name, &bytes, &self.store.get(&name).await?)?;
            let size = self.store.size(&name).await?;
            expect(size == bytes.len() as u64, &name, "its size", || format!("{size} bytes reported"))?;
        }
        Ok(())
    }

    async fn missing_is_not_found(&self) -> Checked {
        let name = self.name("missing");
        not_found(&name, self.store.get(&name).await)?;
        not_found(&name, self.store.get_range(&name, 0..1).await)?;
        not_found(&name, self.store.get_tail(&name, 1).await)?;
        not_found(&name, self.store.size(&name).await)?;
        self.lists(&self.name("nothing"), &BTreeMap::new()).await
    }

    async fn create_if_absent(&self) -> Checked {
        let (name, first) = (self.name("taken"), noise(1, 5000));
        self.store.create(&name, first.clone()).await?;
        for other in [noise(2, 5000), noise(3, 1), Bytes::new()] {
            taken(&name, self.store.create(&name, other).await.map(drop))?;
            same(&name, &first, &self.store.get(&name).await?)?;
        }
        Ok(())
    }

    async fn one_winner(&self) -> Checked {
        for round in 0..ROUNDS {
            let name = self.name(&format!("race/{round}"));
            let contents: Vec<Bytes> = (0..CREATORS).map(|creator| noise(100 * round + creator, 40_000)).collect();
            let creates = contents.iter().map(|bytes| self.store.create(&name, bytes.clone()));
            let mut winners = Vec::new();
            for (bytes, outcome) in contents.iter().zip(future::join_all(creates).await) {
                match outcome {
                    Ok(_) => winners.push(bytes),
                    Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let [winner] = winners[..] else {
                return Err(CheckFailure::Winners { winners: winners.len(), creators: CREATORS });
            };
            same(&name, winner, &self.store.get(&name).await?)?;
        }
        Ok(())
    }

    async fn range_reads(&self) -> Checked {
        let (name, bytes) = (self.name("ranges"), noise(4, 100_000));
        self.store.create(&name, bytes.clone()).await?;
        for (start, end) in [(0, 1), (0, 100_000), (1, 65_537), (99_999, 100_000), (5, 5)] {
            let read = self.store.get_range(&name, start as u64..end as u64).await?;
            same(&name, &bytes.slice(start..end), &read)?;
        }
        for count in [1_usize, 4096, 100_000, 200_000] {
            let (tail, size) = self.store.get_tail(&name, count as u64).await?;
            same(&name, &bytes.slice(bytes.len().saturating_sub(count)..), &tail)?;
            expect(size == 100_000, &name, "the size of the whole", || format!("{size} bytes reported"))?;
        }
        for range in [99_999..100_001, 100_000..100_001, 500_000..500_001] {
            let short = self.store.get_range(&name, range).await;
            refused(&name, short, StoreErrorKind::Damaged, "an error for a range past the end")?;
        }
        Ok(())
    }

    async fn list_after_create(&self) -> Checked {
        let folder = self.name("listed");
        let mut expected = BTreeMap::new();
        for number in 0..6 {
            // Beside the folder, names that begin like it; below it, a folder that is named like an
            // object.
            let name = if number == 4 { format!("{folder}/1/1") } else { format!("{folder}/x{number}") };
            self.store.create(&format!("{folder}{number}"), Bytes::from_static(b"beside")).await?;
            self.store.create(&name, noise(number, number * 10)).await?;
            expected.insert(name, number as u64 * 10);
            self.lists(&folder, &expected).await?;
        }
        Ok(())
    }

    async fn list_pages(&self) -> Checked {
        let folder = self.name("many");
        let expected: BTreeMap<String, u64> =
            (0..self.extent.many).map(|number| (format!("{folder}/{number}"), 1)).collect();
        let made = stream::iter(expected.keys().cloned()).map(|name| self.create_one(name)).buffer_unordered(AT_ONCE);
        made.try_collect::<()>().await?;
        self.lists(&folder, &expected).await
    }

    async fn create_one(&self, name: String) -> Result<(), StoreError> {
        self.store.create(&name, Bytes::from_static(b"1")).await.map(drop)
    }

    async fn names(&self) -> Checked {
        let folder = self.name("names");
        let longest = "n".repeat(name::NAME_MAX - folder.len() - 1);
        let odd = ["0", "00", "a-b_c.d", "1.tmp", "con", "x-", "-x", "a.", &longest];
        let mut expected = BTreeMap::new();
        for (number, odd) in odd.iter().enumerate() {
            let (name, bytes) = (format!("{folder}/{odd}"), noise(number, 10 + number));
            self.store.create(&name, bytes.clone()).await?;
            expected.insert(name, bytes.len() as u64);
        }
        for (number, odd) in odd.iter().enumerate() {
            let name = format!("{folder}/{odd}");
            same(&name, &noise(number, 10 + number), &self.store.get(&name).await?)?;
        }
        self.lists(&folder, &expected).await
    }

    async fn empty_object(&self) -> Checked {
        let name = self.name("empty/0");
        self.store.create(&name, Bytes::new()).await?;
        same(&name, &Bytes::new(), &self.store.get(&name).await?)?;
        let (tail, size) = self.store.get_tail(&name, 10).await?;
        expect(tail.is_empty() && size == 0, &name, "an empty tail", || format!("{} bytes of {size}", tail.len()))?;
        refused(
            &name,
            self.store.get_range(&name, 0..1).await,
            StoreErrorKind::Damaged,
            "an error for a range past the end",
        )?;
        taken(&name, self.store.create(&name, noise(1, 1)).await.map(drop))?;
        self.lists(&self.name("empty"), &BTreeMap::from([(name, 0)])).await
    }

    async fn delete(&self) -> Checked {
        let (name, folder) = (self.name("deleted/0"), self.name("deleted"));
        for round in 0..3 {
            let bytes = noise(round, 100);
            self.store.create(&name, bytes.clone()).await?;
            same(&name, &bytes, &self.store.get(&name).await?)?;
            self.store.delete(&name).await?;
            not_found(&name, self.store.get(&name).await)?;
            self.lists(&folder, &BTreeMap::new()).await?;
            // A deleted object can be deleted again.
            self.store.delete(&name).await?;
        }
        Ok(())
    }

    async fn large_object(&self) -> Checked {
        let (name, len) = (self.name("large"), self.extent.large);
        let bytes = noise(9, len);
        self.store.create(&name, bytes.clone()).await?;
        same(&name, &bytes, &self.store.get(&name).await?)?;
        let middle = len / 2..len / 2 + 70_000;
        let read = self.store.get_range(&name, middle.start as u64..middle.end as u64).await?;
        same(&name, &bytes.slice(middle), &read)
    }

    async fn lists(&self, folder: &str, expected: &BTreeMap<String, u64>) -> Checked {
        let mut missing = expected.len();
        let mut unexpected = 0;
        let mut last = None;
        for object in self.store.list(folder).await? {
            // A name that comes twice counts as unexpected the second time.
            if expected.get(&object.name) == Some(&object.size) && last.as_ref() != Some(&object.name) {
                missing -= 1;
            } else {
                unexpected += 1;
            }
            last = Some(object.name);
        }
        match (missing, unexpected) {
            (0, 0) => Ok(()),
            _ => {
                Err(CheckFailure::Listing { folder: folder.to_owned(), expected: expected.len(), missing, unexpected })
            }
        }
    }
}

/// Bytes that differ for every number, and do not repeat, so that a part in the wrong place shows.
fn noise(number: usize, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(number as u64).to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes.into()
}

fn same(name: &str, stored: &Bytes, read: &Bytes) -> Checked {
    if stored == read {
        return Ok(());
    }
    Err(CheckFailure::Content { object: name.to_owned(), expected: stored.len(), found: read.len() })
}

fn expect(holds: bool, name: &str, expected: &'static str, found: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(CheckFailure::Outcome { object: name.to_owned(), expected, found: found() }) }
}

fn refused<T>(name: &str, outcome: Result<T, StoreError>, kind: StoreErrorKind, expected: &'static str) -> Checked {
    match outcome {
        Err(error) if error.kind == kind => Ok(()),
        Err(error) => expect(false, name, expected, || format!("but {error}")),
        Ok(_) => expect(false, name, expected, || "but it succeeded".to_owned()),
    }
}

fn not_found<T>(name: &str, outcome: Result<T, StoreError>) -> Checked {
    refused(name, outcome, StoreErrorKind::NotFound, "an error for a missing object")
}

fn taken(name: &str, outcome: Result<(), StoreError>) -> Checked {
    refused(name, outcome, StoreErrorKind::AlreadyExists, "a refusal because the name is taken")
}
