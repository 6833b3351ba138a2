//! Times of files as the system's library has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_format::entry::Timestamp;

/// The same time. One that the library cannot express becomes the epoch.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_count_forward() {
        let half = Timestamp { seconds: -2, nanos: 500_000_000 };
        assert_eq!(system_time(half), UNIX_EPOCH - Duration::from_millis(1500));
        let after = Timestamp { seconds: 3, nanos: 1 };
        assert_eq!(system_time(after), UNIX_EPOCH + Duration::new(3, 1));
    }
}
