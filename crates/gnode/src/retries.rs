//! Retries of work that loses against another task. A pass and a rebuild publish the next number of
//! the index, and only one of several concurrent tasks can.

/// How often such work is tried at most.
pub(crate) const ATTEMPTS: u32 = 5;

/// Repeats an attempt as long as another task is faster, at most [`ATTEMPTS`] times in all. Returns
/// the result of the last one.
pub(crate) async fn until_won<T>(mut attempt: impl AsyncFnMut() -> T, is_lost: impl Fn(&T) -> bool) -> T {
    let mut attempts = 1;
    loop {
        let result = attempt().await;
        if attempts == ATTEMPTS || !is_lost(&result) {
            return result;
        }
        tracing::info!(attempts, "another task was faster; this one starts again");
        attempts += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    /// How many attempts are made of work that wins at this attempt, and whether it won.
    fn attempts(wins_at: u32) -> (u32, bool) {
        let mut made = 0;
        let attempt = async || {
            made += 1;
            made >= wins_at
        };
        let has_won = block_on(until_won(attempt, |has_won| !has_won));
        (made, has_won)
    }

    #[test]
    fn lost_work_is_retried_and_not_for_ever() {
        assert_eq!(attempts(1), (1, true));
        assert_eq!(attempts(2), (2, true));
        assert_eq!(attempts(ATTEMPTS), (ATTEMPTS, true));
        assert_eq!(attempts(ATTEMPTS + 1), (ATTEMPTS, false));
    }
}
