//! The facts about a file system that decide how far the times of its files are trusted.

use larder_format::entry::Timestamp;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::stat::Stat;

/// NFS and SMB, by the numbers `statfs` gives them.
const NETWORK: [u32; 4] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42];

/// FUSE, Ceph, AFS (two kinds), 9P, Lustre and GPFS: servers elsewhere may give files their times.
const PERHAPS_ELSEWHERE: [u32; 7] =
    [0x6573_5546, 0x00C3_6400, 0x5346_414F, 0x6B41_4653, 0x0102_1997, 0x0BD0_0BD0, 0x4750_4653];

/// The longest time between two writes to a file that get equal times, if those are coarse,
/// seconds. Most such file systems keep whole seconds, and FAT even ones.
const COARSE_TICK: i64 = 2;

/// Whether this is on NFS or SMB.
pub(crate) fn is_network(place: impl AsFd) -> bool {
    is_one_of(place, &NETWORK)
}

/// Whether another machine's clock may give files their times.
pub(crate) fn may_have_other_clock(place: impl AsFd) -> bool {
    is_one_of(&place, &NETWORK) || is_one_of(&place, &PERHAPS_ELSEWHERE)
}

fn is_one_of(place: impl AsFd, magics: &[u32]) -> bool {
    // The width and sign of the field differ between platforms; the numbers have 32 bits
    // everywhere.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    rustix::fs::fstatfs(place).is_ok_and(|found| magics.contains(&(found.f_type as u32)))
}

/// Looks at an open file. If the file system keeps whole seconds and the file was changed in the
/// present tick, it waits for the end of the tick and looks again. So a later write gets another
/// time, and is noticed. That takes at most [`COARSE_TICK`].
pub(crate) fn look_after_tick(file: impl AsFd) -> Result<Stat, Errno> {
    let stat = Stat::of(&file)?;
    let Some(wait) = rest_of_tick(stat.ctime, clock_gettime(ClockId::Realtime)) else { return Ok(stat) };
    std::thread::sleep(wait);
    Stat::of(&file)
}

/// How long writes may still get the same time as one at `changed`.
fn rest_of_tick(changed: Timestamp, now: Timespec) -> Option<std::time::Duration> {
    if changed.nanos != 0 {
        return None;
    }
    let passed = now.tv_sec.checked_sub(changed.seconds).filter(|passed| (0..COARSE_TICK).contains(passed))?;
    let nanos = u32::try_from(now.tv_nsec).ok()?;
    let left = std::time::Duration::from_secs(u64::try_from(COARSE_TICK - passed).ok()?);
    Some(left.saturating_sub(std::time::Duration::from_nanos(nanos.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_coarse_time_of_the_present_tick_is_waited_for() {
        let rest = |seconds, nanos, now, now_nanos| {
            rest_of_tick(Timestamp { seconds, nanos }, Timespec { tv_sec: now, tv_nsec: now_nanos })
                .map(|wait| wait.as_millis())
        };
        assert_eq!(rest(100, 0, 100, 0), Some(2000));
        assert_eq!(rest(100, 0, 101, 250_000_000), Some(750));
        assert_eq!(rest(100, 0, 102, 0), None);
        // Of a file system with finer times, of long ago, and of a clock that is ahead.
        for (seconds, nanos) in [(100, 1), (0, 0), (i64::MIN, 0), (101, 0), (i64::MAX, 0)] {
            assert_eq!(rest(seconds, nanos, 100, 0), None, "{seconds}.{nanos}");
        }
    }
}
