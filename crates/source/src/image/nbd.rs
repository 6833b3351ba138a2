//! Images behind a server of network block devices.
//!
//! The context `base:allocation` says where zeros are. They are asked for in windows, when a read
//! comes there, and not sent. A caller that was told all of them does not read there, and nothing
//! is asked again. Contexts of dirty bitmaps are maps of changes.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;

use larder_format::entry::Extent;
use larder_nbd::BASE_ALLOCATION;
use larder_nbd::client::{Client, ClientError, Options, Ticket};
use larder_nbd::codec::Malformed;

use super::stops::Stops;
use super::uri::NbdUri;
use super::{Image, ImageError};
use crate::extents::runs_of;
use crate::joined::{Joined, RANGES_MAX};

/// Bytes of a read request. Several are on their way at once.
const PIECE: u64 = 256 << 10;
/// Bytes that one question about a context covers.
const WINDOW: u64 = 1 << 30;
/// Bytes that the answers about a context cover on average, at least. A server with shorter ones
/// would be asked without end.
const ANSWER_MEAN: u64 = 512;
/// Answers that may be shorter.
const ANSWERS_FREE: u64 = 1 << 16;

/// An open device of a server.
pub struct NbdImage {
    device: Client,
    /// For messages.
    what: String,
    has_allocation: bool,
    /// Stretches of the part that was asked about last: its beginning, and for each the end, and
    /// whether it is zeros.
    known: RefCell<(u64, Vec<(u64, bool)>)>,
    /// Whether the caller knows all zeros, so that reads need not ask for them again.
    tells_zeros: Cell<bool>,
}

impl std::fmt::Debug for NbdImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdImage").field("what", &self.what).finish_non_exhaustive()
    }
}

impl NbdImage {
    /// Connects to a server, and selects these contexts of dirty bitmaps.
    pub fn connect(uri: &NbdUri, contexts: &[String], stops: &Stops) -> Result<Self, ImageError> {
        let options = Self::options(uri.export(), contexts);
        let what = uri.to_string();
        let failed = |source| ImageError::Nbd { what: what.clone(), source };
        let device = uri.connect(|address| Client::connect(address, &options))?.map_err(failed)?;
        Ok(Self::over(device, what, stops))
    }

    /// What a client has to ask for, so that [`Self::over`] knows the zeros and the contexts.
    pub fn options(export: &str, contexts: &[String]) -> Options {
        let contexts = [BASE_ALLOCATION.to_owned()].into_iter().chain(contexts.iter().cloned()).collect();
        Options { export: export.to_owned(), contexts, ..Options::default() }
    }

    /// The device of a client that exists. `what` names it in messages. `stops` ends its reads.
    pub fn over(device: Client, what: impl Into<String>, stops: &Stops) -> Self {
        stops.add(device.stopper());
        let has_allocation = device.contexts().any(|context| context == BASE_ALLOCATION);
        Self { device, what: what.into(), has_allocation, known: RefCell::default(), tells_zeros: Cell::new(false) }
    }

    /// Whether the server has a context that was selected.
    pub fn has_context(&self, context: &str) -> bool {
        self.device.contexts().any(|known| known == context)
    }

    /// The runs that hold data; everything between them is zeros. `None`: the server does not know,
    /// or there are no zeros.
    pub fn extents(&self) -> Result<Option<Vec<Extent>>, ImageError> {
        if !self.has_allocation {
            return Ok(None);
        }
        let mut runs = Joined::new(RANGES_MAX);
        self.each_extent(BASE_ALLOCATION, |range, flags| {
            if flags & larder_nbd::Extent::ZERO == 0 {
                runs.push(range);
            }
        })?;
        self.tells_zeros.set(runs.is_exact());
        Ok(runs_of(runs, self.device.size()))
    }

    /// The ranges that a dirty bitmap says have changed.
    pub fn changes(&self, context: &str) -> Result<Vec<Range<u64>>, ImageError> {
        let mut changed = Joined::new(RANGES_MAX);
        self.each_extent(context, |range, flags| {
            // A flag without a meaning for this program may mean any kind of change.
            if flags != 0 {
                changed.push(range);
            }
        })?;
        Ok(changed.into_ranges())
    }

    /// Shows the whole device as a context has it, in rising order.
    fn each_extent(&self, context: &str, mut show: impl FnMut(Range<u64>, u32)) -> Result<(), ImageError> {
        let (mut at, mut answers) = (0, 0_u64);
        let failed = |source| ImageError::Nbd { what: self.what.clone(), source };
        while at < self.device.size() {
            if answers > ANSWERS_FREE + at / ANSWER_MEAN {
                return Err(failed(Malformed("its extents are too short").into()));
            }
            answers += 1;
            let asked = self.window(at);
            let extents = self.device.block_status(context, asked.start, (asked.end - asked.start) as u32);
            let (before, mut end) = (at, asked.start);
            for extent in extents.map_err(failed)? {
                end = end.saturating_add(extent.length).min(self.device.size());
                if at < end {
                    show(at..end, extent.flags);
                    at = end;
                }
            }
            if at == before {
                return Err(failed(Malformed("its extents end too early").into()));
            }
        }
        Ok(())
    }

    /// The part of the device that is asked about next, in sizes that the server takes.
    fn window(&self, at: u64) -> Range<u64> {
        let from = at - at % self.align();
        from..self.device.size().min(from.saturating_add(WINDOW))
    }

    /// Requests begin and end at multiples of it, if they do not end at the end (bytes).
    fn align(&self) -> u64 {
        u64::from(self.device.block_sizes().minimum.clamp(1, 64 << 10))
    }

    /// Whether a place is zeros, and the end of the stretch that it is in.
    fn stretch(&self, offset: u64) -> Result<(u64, bool), ClientError> {
        if !self.has_allocation || self.tells_zeros.get() {
            return Ok((self.device.size(), false));
        }
        let mut known = self.known.borrow_mut();
        if !known.1.last().is_some_and(|(end, _)| (known.0..*end).contains(&offset)) {
            let window = self.window(offset);
            let (mut end, mut stretches) = (window.start, Vec::new());
            let length = (window.end - window.start) as u32;
            for extent in self.device.block_status(BASE_ALLOCATION, window.start, length)? {
                end = end.saturating_add(extent.length);
                stretches.push((end, extent.flags & larder_nbd::Extent::ZERO != 0));
            }
            *known = (window.start, stretches);
        }
        let at = known.1.partition_point(|(end, _)| *end <= offset);
        // An answer that ends before the place is of no use.
        Ok(known.1.get(at).copied().unwrap_or((self.device.size(), false)))
    }

    /// Reads something, whatever is known to be there.
    pub(super) fn probe(&self) -> Result<(), ClientError> {
        let length = self.align().min(self.device.size());
        if length == 0 { Ok(()) } else { self.device.read(0, length as u32).map(drop) }
    }

    fn fill(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<(), ClientError> {
        while !buffer.is_empty() {
            let (end, is_zero) = self.stretch(offset)?;
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let (part, rest) = buffer.split_at_mut(length);
            if is_zero {
                part.fill(0);
            } else {
                self.read(offset, part)?;
            }
            (offset, buffer) = (offset + length as u64, rest);
        }
        Ok(())
    }

    /// Reads with several requests at once.
    fn read(&self, offset: u64, part: &mut [u8]) -> Result<(), ClientError> {
        let asked = self.ask(offset, part.len())?;
        self.take(asked, offset, part)
    }

    /// Sends the requests for a part. Each of them has its offset.
    fn ask(&self, offset: u64, length: usize) -> Result<Vec<(u64, Ticket)>, ClientError> {
        let (align, end) = (self.align(), offset + length as u64);
        let piece = PIECE.min(u64::from(self.device.block_sizes().maximum)).max(align);
        let piece = piece - piece % align;
        let mut asked = Vec::new();
        let mut at = offset - offset % align;
        while at < end {
            let whole = end.checked_next_multiple_of(align).unwrap_or(u64::MAX);
            let to = at.saturating_add(piece).min(whole).min(self.device.size());
            asked.push((at, self.device.submit_read(at, (to - at) as u32)?));
            at = to;
        }
        Ok(asked)
    }

    /// Takes the answers to the requests for a part.
    fn take(&self, asked: Vec<(u64, Ticket)>, offset: u64, part: &mut [u8]) -> Result<(), ClientError> {
        let end = offset + part.len() as u64;
        for (at, ticket) in asked {
            let data = self.device.wait(ticket)?;
            let (from, to) = (at.max(offset), (at + data.len() as u64).min(end));
            let source = &data[(from - at) as usize..(to - at) as usize];
            part[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        Ok(())
    }
}

impl Image for NbdImage {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.fill(offset, buffer).map_err(io::Error::other)
    }

    /// All requests are sent before the first answer is waited for. So the sum of the parts is the
    /// memory that the answers need.
    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        if self.has_allocation && !self.tells_zeros.get() {
            return parts.iter_mut().try_for_each(|(offset, buffer)| self.read_at(*offset, buffer));
        }
        let asked = parts.iter().map(|(offset, buffer)| self.ask(*offset, buffer.len()));
        let asked = asked.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        for ((offset, buffer), asked) in parts.iter_mut().zip(asked) {
            self.take(asked, *offset, buffer).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_nbd::{Abilities, BlockSizes, Export, ExportError, MemoryExport, Server, Single};
    use larder_testkit::data;
    use proptest::prelude::*;

    use super::*;

    const BITMAP: &str = "qemu:dirty-bitmap:b";

    /// A device with a dirty bitmap in blocks of 64 KiB, that refuses requests between sectors.
    struct Tracked {
        device: MemoryExport,
        dirty: Vec<bool>,
        sector: u32,
        has_allocation: bool,
        /// Extents that it sends at once.
        most: usize,
    }

    impl Export for Tracked {
        fn size(&self) -> u64 {
            self.device.size()
        }

        fn abilities(&self) -> Abilities {
            self.device.abilities()
        }

        fn block_sizes(&self) -> BlockSizes {
            BlockSizes { minimum: self.sector, preferred: self.sector.max(4096), ..BlockSizes::default() }
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
            self.device.read(offset, buffer)
        }

        fn contexts(&self) -> Vec<String> {
            let allocation = self.has_allocation.then(|| BASE_ALLOCATION.to_owned());
            allocation.into_iter().chain([BITMAP.to_owned()]).collect()
        }

        fn block_status(
            &self,
            context: &str,
            offset: u64,
            length: u64,
            most: usize,
        ) -> Result<Vec<larder_nbd::Extent>, ExportError> {
            let most = most.min(self.most);
            if context == BASE_ALLOCATION {
                return self.device.block_status(context, offset, length, most);
            }
            let extents = (offset >> 16..=(offset + length - 1) >> 16).map(|block| {
                let from = (block << 16).max(offset);
                let flags = u32::from(self.dirty[block as usize]);
                larder_nbd::Extent { length: ((block + 1) << 16) - from, flags }
            });
            Ok(extents.take(most).collect())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn a_device_reads_as_it_is_and_tells_its_changes(
            blocks in prop::collection::vec((any::<bool>(), any::<bool>()), 1..60),
            sector in prop::sample::select(vec![1_u32, 512, 4096]),
            has_allocation in any::<bool>(),
            most in 1..7_usize,
            reads in prop::collection::vec((any::<prop::sample::Index>(), 1..900_000_usize), 1..8),
        ) {
            let size = blocks.len() << 16;
            let device = MemoryExport::new(size as u64);
            let mut expected = vec![0; size];
            for (number, _) in blocks.iter().enumerate().filter(|(_, (has_data, _))| *has_data) {
                let bytes = data::random(number as u64, 1 << 16);
                device.write((number << 16) as u64, &bytes, false).unwrap();
                expected[number << 16..(number + 1) << 16].copy_from_slice(&bytes);
            }
            let dirty: Vec<bool> = blocks.iter().map(|(_, is_dirty)| *is_dirty).collect();
            let export = Tracked { device, dirty: dirty.clone(), sector, has_allocation, most };
            let server = Server::new(Arc::new(Single::new("disk", Arc::new(export))), Default::default());
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            server.serve_unix(theirs).unwrap();
            let client = Client::over_unix(ours, &NbdImage::options("disk", &[BITMAP.to_owned()])).unwrap();
            let image = NbdImage::over(client, "a test", &Stops::default());
            prop_assert_eq!(image.size(), size as u64);
            for (place, length) in &reads {
                let from = place.index(size);
                let mut read = vec![1; (*length).min(size - from)];
                image.read_at(from as u64, &mut read).unwrap();
                prop_assert!(read == expected[from..from + read.len()]);
            }
            let covered = |ranges: &[Range<u64>], block: usize| {
                let at = (block << 16) as u64;
                ranges.iter().any(|range| range.start <= at && at + (1 << 16) <= range.end)
            };
            let extents = image.extents().unwrap();
            // Several at once, in any order, and with zeros that the caller knows by now.
            let mut buffers: Vec<_> = reads.iter().map(|(place, length)| {
                let from = place.index(size);
                (from, vec![1; (*length).min(size - from)])
            }).collect();
            let mut parts: Vec<_> = buffers.iter_mut().map(|(from, read)| (*from as u64, &mut read[..])).collect();
            image.read_parts(&mut parts).unwrap();
            for (from, read) in &buffers {
                prop_assert!(*read == expected[*from..from + read.len()]);
            }
            let runs = extents.map(|runs| runs.iter().map(|run| run.offset..run.offset + run.length).collect::<Vec<_>>());
            let changes = image.changes(BITMAP).unwrap();
            prop_assert!(image.has_context(BITMAP) && !image.has_context("qemu:dirty-bitmap:other"));
            for (block, (has_data, is_dirty)) in blocks.iter().enumerate() {
                let is_read = runs.as_ref().is_none_or(|runs| covered(runs, block));
                prop_assert_eq!(is_read, *has_data || !has_allocation || runs.is_none());
                prop_assert_eq!(covered(&changes, block), *is_dirty);
            }
        }
    }

    /// A device that is as large as a number, whose answers are as long as they can be.
    struct Huge(u64);

    impl Export for Huge {
        fn size(&self) -> u64 {
            self.0
        }

        fn abilities(&self) -> Abilities {
            Abilities::READ_ONLY
        }

        fn block_sizes(&self) -> BlockSizes {
            BlockSizes { minimum: 4096, ..BlockSizes::default() }
        }

        fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
            buffer.fill(7);
            Ok(())
        }

        fn contexts(&self) -> Vec<String> {
            vec![BASE_ALLOCATION.to_owned()]
        }

        fn block_status(&self, _: &str, _: u64, _: u64, _: usize) -> Result<Vec<larder_nbd::Extent>, ExportError> {
            Ok(vec![larder_nbd::Extent { length: u64::from(u32::MAX) & !4095, flags: 0 }])
        }
    }

    #[test]
    fn sizes_near_the_largest_number_do_no_harm() {
        for size in [u64::MAX, !4095] {
            let server = Server::new(Arc::new(Single::new("disk", Arc::new(Huge(size)))), Default::default());
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
            server.serve_unix(theirs).expect("served");
            let image = Client::over_unix(ours, &NbdImage::options("", &[]))
                .map(|client| NbdImage::over(client, "a test", &Stops::default()));
            // A client may refuse such a size.
            let Ok(image) = image else { continue };
            let mut end = [0; 5000];
            let from = image.size() - end.len() as u64;
            assert!(image.read_at(from, &mut end).is_err() || end == [7; 5000]);
        }
    }

    #[test]
    fn a_context_that_is_missing_is_an_error() {
        let server =
            Server::new(Arc::new(Single::new("disk", Arc::new(MemoryExport::new(1 << 20)))), Default::default());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        server.serve_unix(theirs).expect("served");
        let client = Client::over_unix(ours, &NbdImage::options("", &[BITMAP.to_owned()])).expect("connected");
        let stops = Stops::default();
        let image = NbdImage::over(client, "a test", &stops);
        assert!(!image.has_context(BITMAP));
        assert!(matches!(image.changes(BITMAP), Err(ImageError::Nbd { .. })));
        // A connection that was ended from elsewhere does not wait.
        stops.stop();
        assert!(image.read_at(0, &mut [0; 10]).is_err());
    }
}
