//! Holes are exactly the gaps between the runs.

use std::os::fd::AsFd;

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

proptest! {
    /// Any data written at any place of any old content reads back as data over old content, holes
    /// or not.
    #[test]
    fn holes_read_as_the_zeros_they_stand_for(
        pieces in prop::collection::vec((any::<bool>(), 1_usize..9000), 0..8),
        offset in 0_u64..10_000,
        old_bytes in 0_usize..40_000,
        punches in any::<bool>(),
    ) {
        let data: Vec<u8> = pieces.iter().flat_map(|(zero, length)| vec![u8::from(!zero) * 7; *length]).collect();
        let mut expected = vec![9_u8; old_bytes];
        let end = usize::try_from(offset).expect("small") + data.len();
        expected.resize(expected.len().max(end), 0);
        expected[end - data.len()..end].copy_from_slice(&data);

        let file = tempfile::tempfile().expect("a temporary file");
        write(file.as_fd(), &vec![9; old_bytes], 0, Zeros::Written).expect("written");
        let zeros = if punches { Zeros::Holes { existing: old_bytes as u64 } } else { Zeros::Written };
        write(file.as_fd(), &data, offset, zeros).expect("written");
        file.set_len(expected.len() as u64).expect("sized");
        let mut found = vec![0; expected.len()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).expect("read");
        prop_assert!(found == expected);
    }
}
