//! Any sequence of requests does to a device what it does to an array of bytes.

use std::sync::Arc;
use std::time::Duration;

use larder_nbd::client::{Client, Options};
use larder_nbd::{Abilities, BASE_ALLOCATION, Export, ExportError, Extent, Limits, MemoryExport, Zeroing};
use proptest::prelude::*;

use crate::support::{connect, server_of};

const LENGTH: u64 = 300_001;

/// A device in memory whose calls take longer than the server likes to serve on its reading thread.
struct Slow(MemoryExport, Duration);

impl Export for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        std::thread::sleep(self.1);
        self.0.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        std::thread::sleep(self.1);
        self.0.write(offset, data, fua)
    }
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.0.trim(offset, length, fua)
    }
    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        self.0.write_zeroes(offset, length, how)
    }
    fn contexts(&self) -> Vec<String> {
        self.0.contexts()
    }
    fn block_status(&self, context: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        self.0.block_status(context, offset, length, most)
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Reads that are in flight together.
    Reads(Vec<(u64, u32)>),
    /// Writes that are in flight together; later ones win where they overlap, so they do not.
    Writes(Vec<(u64, u32, u8)>, bool),
    Zero(u64, u32, bool, bool),
    Trim(u64, u32),
    Flush,
    Status(u64, u32),
}

fn range() -> impl Strategy<Value = (u64, u32)> {
    (0..LENGTH, prop_oneof![1..600_u32, 1..200_000_u32])
        .prop_map(|(offset, length)| (offset, length.min((LENGTH - offset) as u32)))
}

fn step() -> impl Strategy<Value = Step> {
    let writes = prop::collection::vec((range(), 1..=255_u8), 1..12);
    prop_oneof![
        3 => prop::collection::vec(range(), 1..20).prop_map(Step::Reads),
        3 => (writes, any::<bool>()).prop_map(|(mut writes, fua)| {
            writes.sort();
            let mut end = 0;
            let mut apart = Vec::new();
            for ((offset, length), byte) in writes {
                if offset >= end {
                    end = offset + u64::from(length);
                    apart.push((offset, length, byte));
                }
            }
            Step::Writes(apart, fua)
        }),
        1 => (range(), any::<bool>(), any::<bool>()).prop_map(|((o, l), keep, fast)| Step::Zero(o, l, keep, fast)),
        1 => range().prop_map(|(o, l)| Step::Trim(o, l)),
        1 => Just(Step::Flush),
        1 => range().prop_map(|(o, l)| Step::Status(o, l)),
    ]
}

fn apply(client: &Client, oracle: &mut [u8], step: &Step, structured: bool) {
    let within = |offset: u64, length: u32| offset as usize..offset as usize + length as usize;
    match step {
        Step::Reads(reads) => {
            let tickets: Vec<_> = reads.iter().map(|(o, l)| client.submit_read(*o, *l).unwrap()).collect();
            for (ticket, (offset, length)) in tickets.into_iter().zip(reads).rev() {
                assert!(client.wait(ticket).unwrap() == oracle[within(*offset, *length)], "{step:?}");
            }
        }
        Step::Writes(writes, fua) => {
            let tickets: Vec<_> = writes
                .iter()
                .map(|(offset, length, byte)| {
                    // No two neighbours are equal, so a shift shows.
                    let data: Vec<_> = (0..*length).map(|at| (at as u8).wrapping_mul(7) ^ byte).collect();
                    oracle[within(*offset, *length)].copy_from_slice(&data);
                    client.submit_write(*offset, &data, *fua).unwrap()
                })
                .collect();
            tickets.into_iter().for_each(|ticket| drop(client.wait(ticket).unwrap()));
        }
        Step::Zero(offset, length, keep, fast) => {
            client.write_zeroes(*offset, *length, *keep, *fast).unwrap();
            oracle[within(*offset, *length)].fill(0);
        }
        Step::Trim(offset, length) => {
            // After a trim anything may be read, so it is written again.
            client.trim(*offset, *length).unwrap();
            client.write(*offset, &oracle[within(*offset, *length)], false).unwrap();
        }
        Step::Flush => client.flush().unwrap(),
        Step::Status(offset, length) if structured => {
            let extents = client.block_status(BASE_ALLOCATION, *offset, *length).unwrap();
            let mut at = *offset as usize;
            for extent in &extents {
                let end = at + extent.length as usize;
                assert!(extent.flags & Extent::ZERO == 0 || oracle[at..end].iter().all(|byte| *byte == 0));
                at = end;
            }
            assert_eq!(at, within(*offset, *length).end);
            assert!(extents.windows(2).all(|pair| pair[0].flags != pair[1].flags));
        }
        Step::Status(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_an_array(
        steps in prop::collection::vec(step(), 1..30),
        structured: bool,
        sparse: bool,
        slow: bool,
    ) {
        let all = MemoryExport::new(0).abilities();
        let memory = MemoryExport::with_abilities(LENGTH, Abilities { sparse_reads: sparse, ..all });
        let export: Arc<dyn Export> =
            if slow { Arc::new(Slow(memory, Duration::from_micros(50))) } else { Arc::new(memory) };
        let server = server_of(export, Limits::default());
        let contexts = vec![BASE_ALLOCATION.to_owned()];
        let options = Options { export: "disk".into(), contexts, structured, ..Options::default() };
        let client = Client::over_unix(connect(&server), &options).unwrap();
        let mut oracle = vec![0; LENGTH as usize];
        for step in &steps {
            apply(&client, &mut oracle, step, structured);
        }
        prop_assert!(client.read(0, LENGTH as u32).unwrap() == oracle);
        drop(client);
        server.shutdown().unwrap();
    }
}
