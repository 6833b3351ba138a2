//! Finds the runs of a file that hold data, so that holes are neither read nor stored.

use larder_format::entry::Extent;
use rustix::fd::AsFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::joined::{Joined, RANGES_MAX};

/// The data runs of a file of `size` bytes; `None` when it is one run without holes, or the file
/// system cannot tell.
pub(crate) fn data_extents(file: impl AsFd, size: u64) -> Result<Option<Vec<Extent>>, Errno> {
    // Past the limit, runs with short holes between them are joined: the zeros are read and stored,
    // and deduplicate well.
    collect(size, RANGES_MAX, |offset| {
        let start = match seek(&file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            // No data from here on.
            Err(Errno::NXIO) => return Ok(Next::End),
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => return Ok(Next::Unknown),
            Err(error) => return Err(error),
        };
        match seek(&file, SeekFrom::Hole(start)) {
            Ok(end) => Ok(Next::Run { start, end }),
            // Cut off at this very moment: the read will notice.
            Err(Errno::NXIO) => Ok(Next::End),
            Err(error) => Err(error),
        }
    })
}

enum Next {
    Run { start: u64, end: u64 },
    End,
    Unknown,
}

fn collect(
    size: u64,
    runs_max: usize,
    mut next: impl FnMut(u64) -> Result<Next, Errno>,
) -> Result<Option<Vec<Extent>>, Errno> {
    let mut runs = Joined::new(runs_max);
    let mut offset = 0;
    while offset < size {
        let (start, end) = match next(offset)? {
            // An answer that does not move forward is a file system's mistake; the rest is then
            // read as data.
            Next::Run { end, .. } if end <= offset => (offset, size),
            Next::Run { start, end } => (start.max(offset), end.min(size)),
            Next::End => break,
            Next::Unknown => return Ok(None),
        };
        if start >= end {
            break;
        }
        runs.push(start..end);
        offset = end;
    }
    Ok(runs_of(runs, size))
}

/// The runs of a file of `size` bytes; `None` when it is one run without holes.
pub(crate) fn runs_of(runs: Joined, size: u64) -> Option<Vec<Extent>> {
    let extent = |run: &std::ops::Range<u64>| Extent { offset: run.start, length: run.end - run.start };
    match &*runs.into_ranges() {
        [run] if *run == (0..size) => None,
        runs => Some(runs.iter().map(extent).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Data runs of a file of `size` bytes whose page `n` holds data when `pages[n]`.
    fn ask(pages: &[bool], size: u64, runs_max: usize) -> Option<Vec<Extent>> {
        const PAGE: u64 = 4096;
        collect(size, runs_max, |offset| {
            let data = (offset / PAGE..pages.len() as u64).find(|page| pages[*page as usize]);
            let Some(first) = data else { return Ok(Next::End) };
            let end = (first..pages.len() as u64).find(|page| !pages[*page as usize]).unwrap_or(pages.len() as u64);
            Ok(Next::Run { start: (first * PAGE).max(offset), end: (end * PAGE).min(size) })
        })
        .expect("no errors")
    }

    #[test]
    fn a_file_without_holes_has_no_list_and_one_of_holes_an_empty_one() {
        assert_eq!(ask(&[true; 3], 3 * 4096 - 5, 10), None);
        assert_eq!(ask(&[false; 3], 3 * 4096 - 5, 10), Some(vec![]));
        assert_eq!(ask(&[], 0, 10), Some(vec![]));
    }

    #[test]
    fn mistaken_answers_end_the_search() {
        let stuck = collect(10_000, 10, |_| Ok(Next::Run { start: 0, end: 4096 })).expect("no errors");
        assert_eq!(stuck, None);
        assert_eq!(collect(10, 10, |_| Ok(Next::Unknown)).expect("no errors"), None);
        assert_eq!(collect(10, 10, |_| Err(Errno::IO)), Err(Errno::IO));
    }

    proptest! {
        #[test]
        fn all_data_is_covered_in_order_within_the_limit(
            pages in proptest::collection::vec(any::<bool>(), 1..400), cut in 0u64..4096, runs_max in 1usize..20
        ) {
            let size = pages.len() as u64 * 4096 - cut;
            let whole = vec![Extent { offset: 0, length: size }];
            let extents = ask(&pages, size, runs_max).unwrap_or(whole);
            prop_assert!(extents.len() <= runs_max);
            for pair in extents.windows(2) {
                prop_assert!(pair[0].offset + pair[0].length < pair[1].offset);
            }
            let covered = |at: u64| extents.iter().any(|run| run.offset <= at && at < run.offset + run.length);
            for (page, data) in pages.iter().enumerate() {
                let at = page as u64 * 4096;
                if *data && at < size {
                    prop_assert!(covered(at));
                }
            }
            let exact = ask(&pages, size, usize::MAX);
            if exact.as_ref().is_some_and(|exact| exact.len() <= runs_max) {
                prop_assert_eq!(exact, Some(extents));
            }
        }
    }
}
