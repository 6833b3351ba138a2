//! Times of files as HTTP has them: from 1970 to 9999. Others become the nearest one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_format::entry::Timestamp;

/// The last second of 9999. Dates of HTTP have years of four digits.
const LAST: i64 = 253_402_300_799;

/// See the module header.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = time.seconds.clamp(0, LAST);
    let nanos = if seconds == time.seconds { time.nanos } else { 0 };
    UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_that_http_has() {
        let of = |seconds, nanos| system_time(Timestamp { seconds, nanos });
        assert_eq!(of(3, 1), UNIX_EPOCH + Duration::new(3, 1));
        assert_eq!([of(-1, 5), of(i64::MIN, 5)], [UNIX_EPOCH; 2]);
        let last = UNIX_EPOCH + Duration::from_secs(LAST.unsigned_abs());
        assert_eq!([of(LAST, 0), of(LAST + 1, 7), of(i64::MAX, 7)], [last; 3]);
    }
}
