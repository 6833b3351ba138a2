//! The folders above the snapshots, as the templates make them of a list of snapshots.
//!
//! They are made again whenever the list is read again. Numbers stay: the same path with the same
//! snapshot always has the same number.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_store::catalog::Version;

use crate::inode::ROOT;
use crate::template::Template;
use crate::time_layout::TimeLayout;

/// The link to the newest snapshot in each folder of times.
const LATEST: &str = "latest";

/// Something above the entries of snapshots.
#[derive(Debug, Clone)]
pub(crate) enum Named {
    /// A folder: names and numbers.
    Folder(BTreeMap<String, u64>),
    /// The root of a snapshot.
    Snapshot(Arc<Version>),
    /// A link to a name in the same folder.
    Link(String),
}

/// Numbers that stay as long as the mount does.
#[derive(Debug)]
pub(crate) struct Numbers {
    numbers: HashMap<String, u64>,
    next: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { numbers: HashMap::new(), next: ROOT + 1 }
    }
}

impl Numbers {
    /// The number of something with a name of its own.
    pub(crate) fn of(&mut self, key: String) -> u64 {
        let next = &mut self.next;
        *self.numbers.entry(key).or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    named: HashMap<u64, Named>,
    parents: HashMap<u64, u64>,
    /// Snapshots in the list.
    pub(crate) snapshots: usize,
}

impl Folders {
    /// The root is one snapshot.
    pub(crate) fn of_one(version: Version) -> Self {
        let named = HashMap::from([(ROOT, Named::Snapshot(Arc::new(version)))]);
        Self { named, parents: HashMap::from([(ROOT, ROOT)]), snapshots: 1 }
    }

    /// The folders that templates make of versions, which are sorted by time.
    pub(crate) fn new(
        versions: Vec<Version>,
        templates: &[Template],
        layout: &TimeLayout,
        numbers: &mut Numbers,
    ) -> Self {
        let named = HashMap::from([(ROOT, Named::Folder(BTreeMap::new()))]);
        let mut folders = Self { named, parents: HashMap::from([(ROOT, ROOT)]), snapshots: versions.len() };
        // Of each folder of times: its path, and the newest snapshot with its name.
        let mut newest = BTreeMap::new();
        let mut tried = HashMap::new();
        for version in versions.into_iter().map(Arc::new) {
            for template in templates {
                for mut path in template.paths(&version.summary, layout) {
                    let Some(last) = path.pop() else { continue };
                    let Some((folder, shown)) = folders.folder(&path, numbers) else { continue };
                    let name = folders.free_name(folder, last, &mut tried);
                    let number = numbers.of(format!("{shown}/{name}\0{}", version.id()));
                    folders.add(folder, name.clone(), number, Named::Snapshot(version.clone()));
                    if template.ends_with_time() {
                        // The list is sorted, so the last one is the newest.
                        newest.insert(folder, (shown, name, version.id()));
                    }
                }
            }
        }
        for (folder, (shown, name, id)) in newest {
            // A host, series or tag may have this name.
            if matches!(folders.get(folder), Some(Named::Folder(names)) if names.contains_key(LATEST)) {
                continue;
            }
            // The kernel may keep targets, so another target is another link.
            let link = numbers.of(format!("{shown}/{LATEST}\0{id}"));
            folders.add(folder, LATEST.to_owned(), link, Named::Link(name));
        }
        folders
    }

    /// The folder at a path, created if it is missing, and its path. `None`: a snapshot is there.
    fn folder(&mut self, path: &[String], numbers: &mut Numbers) -> Option<(u64, String)> {
        let (mut at, mut shown) = (ROOT, String::new());
        for name in path {
            shown.push('/');
            shown.push_str(name);
            let found = match self.named.get(&at)? {
                Named::Folder(names) => names.get(name).copied(),
                _ => return None,
            };
            at = match found {
                Some(number) => number,
                None => {
                    let number = numbers.of(shown.clone());
                    self.add(at, name.clone(), number, Named::Folder(BTreeMap::new()));
                    number
                }
            };
        }
        Some((at, shown))
    }

    fn add(&mut self, folder: u64, name: String, number: u64, added: Named) {
        if let Some(Named::Folder(names)) = self.named.get_mut(&folder) {
            names.insert(name, number);
            self.named.insert(number, added);
            self.parents.insert(number, folder);
        }
    }

    /// The name, or with `-1`, `-2` and so on behind it if it is taken. `tried`: the last number
    /// behind each name.
    fn free_name(&self, folder: u64, name: String, tried: &mut HashMap<(u64, String), u64>) -> String {
        let Some(Named::Folder(names)) = self.named.get(&folder) else { return name };
        let is_free = |name: &String| name != LATEST && !names.contains_key(name);
        if is_free(&name) {
            return name;
        }
        let tried = tried.entry((folder, name.clone())).or_default();
        loop {
            *tried += 1;
            let numbered = format!("{name}-{tried}");
            if is_free(&numbered) {
                return numbered;
            }
        }
    }

    /// Something by its number.
    pub(crate) fn get(&self, number: u64) -> Option<&Named> {
        self.named.get(&number)
    }

    /// The folder that something is in; the root is in itself.
    pub(crate) fn parent(&self, number: u64) -> u64 {
        self.parents.get(&number).copied().unwrap_or(ROOT)
    }
}
