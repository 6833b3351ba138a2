//! Lines sorted by a key, any number of them in bounded memory: what exceeds it is sorted in parts,
//! which wait in files without a name and are merged.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

use larder_spill::{unnamed, unnamed_in};

/// Bytes that a line takes besides its text and its key.
const LINE_OVERHEAD: usize = 64;

/// A line and its key. Equal keys keep the order of their lines as text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    key: Vec<u8>,
    text: String,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct SortedLines {
    is_reversed: bool,
    /// Bytes of lines that may be held.
    memory: usize,
    /// Folder for the parts; `None`: that for temporary files.
    scratch: Option<PathBuf>,
    held: Vec<Line>,
    bytes: usize,
    parts: Vec<std::fs::File>,
}

impl SortedLines {
    /// None yet. A reversed order begins with the largest key.
    pub(crate) fn new(is_reversed: bool, memory: usize, scratch: Option<PathBuf>) -> Self {
        Self { is_reversed, memory, scratch, held: Vec::new(), bytes: 0, parts: Vec::new() }
    }

    /// Adds a line. Keys are compared byte by byte.
    pub(crate) fn push(&mut self, key: Vec<u8>, text: String) -> io::Result<()> {
        self.bytes += key.len() + text.len() + LINE_OVERHEAD;
        self.held.push(Line { key, text });
        if self.bytes > self.memory { self.write_part() } else { Ok(()) }
    }

    fn sort_held(&mut self) {
        self.held.sort_unstable();
        if self.is_reversed {
            self.held.reverse();
        }
    }

    fn write_part(&mut self) -> io::Result<()> {
        self.sort_held();
        let file = match &self.scratch {
            Some(folder) => unnamed(folder)?,
            None => unnamed_in(&std::env::temp_dir())?,
        };
        let mut out = BufWriter::new(&file);
        for line in self.held.drain(..) {
            for part in [&line.key[..], line.text.as_bytes()] {
                out.write_all(&(part.len() as u64).to_le_bytes())?;
                out.write_all(part)?;
            }
        }
        out.flush()?;
        drop(out);
        self.bytes = 0;
        self.parts.push(file);
        Ok(())
    }

    /// Hands out all lines in order.
    pub(crate) fn visit<E: From<io::Error>>(
        mut self,
        mut visitor: impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        self.sort_held();
        let mut sources: Vec<Source> = Vec::new();
        for mut part in std::mem::take(&mut self.parts) {
            part.rewind()?;
            sources.push(Source::Part(BufReader::new(part)));
        }
        sources.push(Source::Held(std::mem::take(&mut self.held).into_iter()));
        let mut next = BinaryHeap::new();
        for (source, lines) in sources.iter_mut().enumerate() {
            next.extend(lines.next()?.map(|line| Next { line, source, is_reversed: self.is_reversed }));
        }
        while let Some(Next { line, source, is_reversed }) = next.pop() {
            next.extend(sources[source].next()?.map(|line| Next { line, source, is_reversed }));
            visitor(line.text)?;
        }
        Ok(())
    }
}

/// Sorted lines.
enum Source {
    Held(std::vec::IntoIter<Line>),
    Part(BufReader<std::fs::File>),
}

impl Source {
    fn next(&mut self) -> io::Result<Option<Line>> {
        let file = match self {
            Self::Held(lines) => return Ok(lines.next()),
            Self::Part(file) => file,
        };
        let mut length = [0; 8];
        match file.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let key = bytes(file, length)?;
        file.read_exact(&mut length)?;
        let text = String::from_utf8(bytes(file, length)?).map_err(io::Error::other)?;
        Ok(Some(Line { key, text }))
    }
}

fn bytes(file: &mut BufReader<std::fs::File>, length: [u8; 8]) -> io::Result<Vec<u8>> {
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The next line of a source. The greatest comes out of the heap first.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    line: Line,
    source: usize,
    is_reversed: bool,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.line.cmp(&other.line);
        if self.is_reversed { order } else { order.reverse() }
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the order does not depend on memory. Method: the same lines in one part, and in many.
    #[test]
    fn lines_come_in_order_however_little_memory_there_is() {
        let lines: Vec<(u8, String)> = (0..500u32).map(|n| ((n * 37 % 101) as u8, format!("line {n}"))).collect();
        let sorted = |is_reversed: bool, memory: usize| {
            let mut sorted = SortedLines::new(is_reversed, memory, None);
            for (key, text) in &lines {
                sorted.push(vec![*key], text.clone()).expect("room");
            }
            assert_eq!(sorted.parts.is_empty(), memory > 100_000);
            let mut found = Vec::new();
            let visited = sorted.visit(|line| {
                found.push(line);
                Ok::<_, io::Error>(())
            });
            visited.expect("readable");
            found
        };
        let mut expected = lines.clone();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, text)| text).collect();
        let reversed: Vec<_> = expected.iter().rev().cloned().collect();
        for memory in [1, 3000, 1 << 20] {
            assert_eq!(sorted(false, memory), expected, "{memory}");
            assert_eq!(sorted(true, memory), reversed, "{memory}");
        }
    }
}
