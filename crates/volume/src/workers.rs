//! Work on several cores. The results have the order of the items, however threads take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use parking_lot::Mutex;

/// Applies `work` to all items. One thread works with each state, this one included.
///
/// With one state or one item, no thread is started. A thread that cannot be started leaves its
/// share to the others.
pub(crate) fn map_with<S: Send, T: Sync, R: Send>(
    states: &mut [S],
    items: &[T],
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    let Some((own, others)) = states.split_first_mut() else { return Vec::new() };
    let others = others.iter_mut().take(items.len().saturating_sub(1));
    if others.len() == 0 {
        return items.iter().map(|item| work(own, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let take_turns = |state: &mut S| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return };
            let result = work(state, item);
            results.lock()[number] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for state in others {
            let turns = &take_turns;
            // Fails when the system has no more threads.
            drop(std::thread::Builder::new().spawn_scoped(scope, move || turns(state)));
        }
        take_turns(own);
    });
    results.into_inner().into_iter().flatten().collect()
}

/// The same without states, on at most `threads` threads.
pub(crate) fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_with(&mut vec![(); threads.max(1)], items, |(), item| work(item))
}

/// Work beside that of the caller.
pub(crate) enum Beside<'scope, T> {
    Thread(ScopedJoinHandle<'scope, T>),
    /// The caller did it: there was no thread.
    Done(T),
}

/// Begins work in a thread of its own. Where none can be started, this one does it.
pub(crate) fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Beside<'scope, T> {
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = work.clone();
    let take = move || taken.lock().take();
    let thread =
        Builder::new().name(name.into()).spawn_scoped(scope, move || take().expect("only a thread takes it")());
    match thread {
        Ok(thread) => Beside::Thread(thread),
        Err(_) => Beside::Done(work.lock().take().expect("no thread took it")()),
    }
}

impl<T> Beside<'_, T> {
    /// Waits for the result. A panic of the work goes on here.
    pub(crate) fn end(self) -> T {
        match self {
            Self::Thread(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Self::Done(result) => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        for threads in [0, 1, 2, 7] {
            assert_eq!(map(threads, &items, |item| item * 3), items.iter().map(|item| item * 3).collect::<Vec<_>>());
            assert!(map(threads, &[], |item: &u32| *item).is_empty());
        }
        // Every item is counted once, by one of the states.
        let mut states = [0u32; 3];
        map_with(&mut states, &items, |count, _| *count += 1);
        assert_eq!(states.iter().sum::<u32>(), 1000);
    }
}
