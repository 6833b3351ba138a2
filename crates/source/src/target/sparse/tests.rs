//! Holes are exactly the gaps between the runs, and the zeros that were left out.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use proptest::prelude::*;

use super::*;

#[test]
fn holes_are_what_lies_between_the_runs() {
    let runs = [Extent { offset: 5, length: 5 }, Extent { offset: 10, length: 2 }, Extent { offset: 20, length: 1 }];
    let layout = Layout { size: 30, extents: Some(&runs) };
    let holes: Vec<(u64, u64)> = layout.holes(30).map(|hole| (hole.offset, hole.length)).collect();
    assert_eq!(holes, [(0, 5), (12, 8), (21, 9)]);
    let holes: Vec<(u64, u64)> = layout.holes(15).map(|hole| (hole.offset, hole.length)).collect();
    assert_eq!(holes, [(0, 5), (12, 3)]);
    assert_eq!(Layout { size: 30, extents: None }.holes(30).count(), 0);
    assert_eq!(Layout { size: 30, extents: Some(&[]) }.holes(30).count(), 1);
    assert_eq!(Layout { size: 0, extents: None }.runs().count(), 0);
}

/// Bytes of old content, if there is any, and then the pieces, in the order that they have.
fn written(old: &[u8], pieces: &[(u64, &[u8])], size: u64, as_holes: bool) -> File {
    let file = tempfile::tempfile().expect("a temporary file");
    write(file.as_fd(), old, 0, Zeros::Written).expect("written");
    let old = OldContent::new(old.len() as u64);
    let zeros = if as_holes { Zeros::Holes(&old) } else { Zeros::Written };
    for (offset, piece) in pieces {
        write(file.as_fd(), piece, *offset, zeros).expect("written");
    }
    file.set_len(size).expect("sized");
    file
}

fn content(file: &File) -> Vec<u8> {
    let mut found = vec![0; file.metadata().expect("stat").len() as usize];
    file.read_exact_at(&mut found, 0).expect("read");
    found
}

/// Whether zeros that are left out take no space here.
fn has_holes() -> bool {
    let file = tempfile::tempfile().expect("a temporary file");
    file.write_all_at(b"x", 1 << 20).expect("written");
    let has_holes = file.metadata().expect("stat").blocks() * 512 < 1 << 20;
    if !has_holes {
        eprintln!("the file system has no holes: what is allocated is not compared");
    }
    has_holes
}

/// A file system may know no holes to make, and still have those that nobody wrote.
#[test]
fn where_no_hole_can_be_made_only_old_content_takes_writes() {
    let file = tempfile::tempfile().expect("a temporary file");
    file.write_all_at(&[7; 100_000], 0).expect("written");
    file.set_len(1 << 30).expect("sized");
    write_zeros(file.as_fd(), 10..1 << 30, 100_000).expect("written");
    let mut found = vec![0; 200_000];
    file.read_exact_at(&mut found, 0).expect("read");
    assert!(found[..10].iter().all(|byte| *byte == 7) && found[10..].iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().expect("stat").len(), 1 << 30);
    if has_holes() {
        assert!(file.metadata().expect("stat").blocks() * 512 < 1 << 20);
    }
}

/// Cuts data into pieces of these lengths, in an order that goes by `order`.
fn pieces<'d>(data: &'d [u8], offset: u64, lengths: &[usize], order: u64) -> Vec<(u64, &'d [u8])> {
    let (mut cut, mut at) = (Vec::new(), 0);
    for length in lengths.iter().cycle() {
        if at == data.len() {
            break;
        }
        let end = data.len().min(at + length);
        cut.push((offset + at as u64, &data[at..end]));
        at = end;
    }
    cut.sort_by_key(|(offset, _)| if order == 0 { *offset } else { offset.wrapping_mul(order) });
    cut
}

proptest! {
    /// Any data, written at any place of any old content, in pieces of any lengths and in any
    /// order, reads back as after a plain write. Whole blocks of zeros are holes, whatever the
    /// pieces are.
    #[test]
    fn holes_read_as_the_zeros_they_stand_for(
        runs in prop::collection::vec((any::<bool>(), 1_usize..20_000), 0..8),
        offset in 0_u64..10_000,
        old_bytes in prop_oneof![Just(0_usize), 0_usize..60_000],
        lengths in prop::collection::vec(1_usize..9000, 1..5),
        order in prop_oneof![Just(0), any::<u64>()],
    ) {
        let data: Vec<u8> = runs.iter().flat_map(|(zero, length)| vec![u8::from(!zero) * 7; *length]).collect();
        let old = vec![9; old_bytes];
        let end = offset + data.len() as u64;
        let size = end.max(old_bytes as u64);
        let expected = content(&written(&old, &[(offset, &data)], size, false));
        let file = written(&old, &pieces(&data, offset, &lengths, order), size, true);
        prop_assert!(content(&file) == expected);
        if has_holes() {
            let of_zeros = |block: &&[u8]| block.len() == BLOCK as usize && is_zero(block);
            let zeros = expected.chunks(BLOCK as usize).filter(of_zeros).count() as u64;
            // Old content may end within a block, which then stays.
            let most = size.div_ceil(BLOCK) - zeros + u64::from(!(old_bytes as u64).is_multiple_of(BLOCK));
            let allocated = file.metadata().expect("stat").blocks() * 512;
            prop_assert!(allocated <= most * BLOCK, "{} of {} bytes are allocated", allocated, most * BLOCK);
        }
    }
}

#[test]
fn fifty_megabytes_of_zeros_in_chunks_take_no_space() {
    if !has_holes() {
        return;
    }
    let size = 50_usize << 20;
    let zeros = vec![0; size];
    for old_bytes in [0, 2 << 20, size] {
        // As chunks are cut: of different lengths, across blocks.
        let cut = pieces(&zeros, 0, &[6144, 4095, 5000], 0);
        let file = written(&vec![9; old_bytes], &cut, size as u64, true);
        let allocated = file.metadata().expect("stat").blocks() * 512;
        assert!(allocated < size as u64 / 100, "{allocated} bytes are allocated, of old content {old_bytes}");
        assert!(content(&file) == zeros);
    }
}
