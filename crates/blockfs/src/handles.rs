//! Numbers of files and of open files.

use std::collections::HashMap;
use std::sync::Arc;

use larder_nbd::Export;

/// The first number of a file; 1 is the folder.
const FIRST: u64 = 2;

/// Names have the same number as long as the file system is mounted.
#[derive(Default)]
pub(crate) struct Handles {
    numbers: HashMap<String, u64>,
    names: Vec<String>,
    open: HashMap<u64, Arc<dyn Export>>,
    next: u64,
}

impl Handles {
    /// The number of a name.
    pub(crate) fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = FIRST + self.names.len() as u64;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: u64) -> Option<&str> {
        let at = usize::try_from(number.checked_sub(FIRST)?).ok()?;
        self.names.get(at).map(String::as_str)
    }

    /// Adds an open file.
    pub(crate) fn open(&mut self, export: Arc<dyn Export>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, export);
        self.next
    }

    /// An open file.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<dyn Export>> {
        self.open.get(&handle).cloned()
    }

    /// Closes an open file.
    pub(crate) fn close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }
}
