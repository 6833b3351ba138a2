//! Images that are read at a limited rate, so that the guests on the same disks can work meanwhile.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Image;

/// The time of a process, for [`ReadLimit`].
pub trait Pace: Send + Sync {
    /// How long the process has run. It never runs backwards.
    fn elapsed(&self) -> Duration;

    /// Waits.
    ///
    /// # Errors
    /// The wait was ended early. The read fails then.
    fn wait(&self, time: Duration) -> io::Result<()>;
}

/// A number of bytes a second that all images of a process may read together.
pub struct ReadLimit {
    bytes_per_second: NonZeroU64,
    pace: Box<dyn Pace>,
    /// When everything read so far is paid for.
    free: Mutex<Duration>,
}

impl ReadLimit {
    /// `bytes_per_second` for all images that get a clone of the result.
    pub fn new(bytes_per_second: NonZeroU64, pace: Box<dyn Pace>) -> Arc<Self> {
        Arc::new(Self { bytes_per_second, pace, free: Mutex::new(Duration::ZERO) })
    }

    /// Takes `bytes`, and waits until those taken before are paid for. Time in which nothing was
    /// read is not saved up: it would come back as a burst.
    fn take(&self, bytes: usize) -> io::Result<()> {
        let wait = {
            let mut free = self.free.lock();
            let now = self.pace.elapsed();
            let start = now.max(*free);
            let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.get());
            *free = start.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            start - now
        };
        if wait.is_zero() { Ok(()) } else { self.pace.wait(wait) }
    }
}

/// An image with a limit.
pub struct LimitedImage {
    image: Box<dyn Image>,
    limit: Arc<ReadLimit>,
}

impl LimitedImage {
    /// The image itself, if there is no limit.
    pub fn of(image: Box<dyn Image>, limit: Option<&Arc<ReadLimit>>) -> Box<dyn Image> {
        match limit {
            Some(limit) => Box::new(Self { image, limit: limit.clone() }),
            None => image,
        }
    }
}

impl Image for LimitedImage {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.limit.take(buffer.len())?;
        self.image.read_at(offset, buffer)
    }

    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.limit.take(parts.iter().map(|(_, buffer)| buffer.len()).sum())?;
        self.image.read_parts(parts)
    }

    fn finish(&self) -> io::Result<()> {
        self.image.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that moves when somebody waits.
    #[derive(Clone, Default)]
    struct Hand(Arc<Mutex<Duration>>);

    impl Pace for Hand {
        fn elapsed(&self) -> Duration {
            *self.0.lock()
        }

        fn wait(&self, time: Duration) -> io::Result<()> {
            *self.0.lock() += time;
            Ok(())
        }
    }

    struct Zeros;

    impl Image for Zeros {
        fn size(&self) -> u64 {
            1 << 30
        }

        fn read_at(&self, _offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(0);
            Ok(())
        }
    }

    #[test]
    fn all_images_together_read_at_the_rate() {
        let hand = Hand::default();
        let limit = ReadLimit::new(NonZeroU64::new(1 << 20).expect("not 0"), Box::new(hand.clone()));
        let [first, second] = [(); 2].map(|()| LimitedImage::of(Box::new(Zeros), Some(&limit)));
        let mut buffer = vec![1; 1 << 20];
        for _ in 0..4 {
            first.read_at(0, &mut buffer).expect("read");
            let (half, other) = buffer.split_at_mut(1 << 19);
            second.read_parts(&mut [(0, half), (1 << 29, other)]).expect("read");
        }
        assert_eq!(hand.elapsed(), Duration::from_secs(7), "the eighth MiB is read when seven are paid for");
        // An hour without reads allows no burst.
        *hand.0.lock() += Duration::from_secs(3600);
        first.read_at(0, &mut buffer).expect("read");
        first.read_at(0, &mut buffer).expect("read");
        assert_eq!(hand.elapsed(), Duration::from_secs(3608));
    }

    #[test]
    fn a_wait_that_is_ended_ends_the_read() {
        struct Ended;
        impl Pace for Ended {
            fn elapsed(&self) -> Duration {
                Duration::ZERO
            }
            fn wait(&self, _time: Duration) -> io::Result<()> {
                Err(io::ErrorKind::Interrupted.into())
            }
        }
        let limit = ReadLimit::new(NonZeroU64::MIN, Box::new(Ended));
        let image = LimitedImage::of(Box::new(Zeros), Some(&limit));
        image.read_at(0, &mut [1]).expect("the first bytes are free");
        assert_eq!(image.read_at(0, &mut [1]).expect_err("ended").kind(), io::ErrorKind::Interrupted);
    }
}
