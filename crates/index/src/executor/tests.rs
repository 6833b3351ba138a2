//! Work on an executor: waiting, steps in turns, dropped work and panics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

async fn seconds(count: u64) -> u64 {
    tokio::time::sleep(Duration::from_secs(count)).await;
    count
}

#[test]
fn work_waits_and_has_things_done_beside() {
    let begun = || tokio::time::Instant::now();
    let (sum, took) = on_paused_clock(async move {
        let start = begun();
        let work = |runtime: Executor| {
            let tasks: Vec<_> = (1..=10).map(|count| runtime.spawn(seconds(count))).collect();
            let waited = runtime.block_on(seconds(3));
            tasks.into_iter().map(|task| runtime.block_on(task.join())).sum::<u64>() + waited
        };
        (in_turns(Handle::current(), work).await, start.elapsed())
    });
    assert_eq!((sum, took.as_secs()), (58, 10));
}

#[test]
fn work_moves_only_while_it_is_polled() {
    let steps = Arc::new(AtomicUsize::new(0));
    on_paused_clock(async {
        let counted = steps.clone();
        let mut work = Box::pin(in_turns(Handle::current(), move |runtime| {
            for _ in 0..3 {
                counted.fetch_add(1, Ordering::Relaxed);
                runtime.block_on(seconds(1));
            }
        }));
        for expected in 1..=3 {
            assert!(futures::poll!(&mut work).is_pending());
            assert_eq!(steps.load(Ordering::Relaxed), expected);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(steps.load(Ordering::Relaxed), expected);
        }
        assert!(futures::poll!(&mut work).is_ready());
    });
}

#[test]
fn unwanted_work_is_gone_when_the_drop_is_over() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let gone = Arc::new(AtomicUsize::new(0));
    on_paused_clock(async {
        let [held, beside] = [(); 2].map(|()| Counts(gone.clone()));
        let mut work = Box::pin(in_turns(Handle::current(), move |runtime| {
            let _held = held;
            let _task = runtime.spawn(async move {
                let _beside = beside;
                std::future::pending::<()>().await;
            });
            runtime.block_on(std::future::pending::<()>());
        }));
        assert!(futures::poll!(&mut work).is_pending());
        assert_eq!(gone.load(Ordering::Relaxed), 0);
        drop(work);
        assert_eq!(gone.load(Ordering::Relaxed), 2);
        // Work that was never polled never begins.
        drop(in_turns(Handle::current(), |_| panic!("must not run")));
    });
}

#[test]
fn a_panic_of_the_work_is_the_task_s() {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        on_paused_clock(async {
            in_turns(Handle::current(), |runtime| {
                runtime.block_on(seconds(1));
                resume_unwind(Box::new("damage"));
            })
            .await
        })
    }));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"damage"));
}
