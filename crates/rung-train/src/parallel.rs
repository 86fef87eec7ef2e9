//! Runs independent jobs on all cores and returns their results in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `job` on every item, on as many threads as the machine has cores. Results are in the order of `items`.
pub fn map<Item: Sync, Output: Send>(items: &[Item], job: impl Fn(&Item) -> Output + Sync) -> Vec<Output> {
    let next_index = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Output>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((item, result)) = {
                    let index = next_index.fetch_add(1, Ordering::Relaxed);
                    items.get(index).zip(results.get(index))
                } {
                    let output = job(item);
                    *result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(output);
                }
            });
        }
    });
    let take = |result: Mutex<Option<Output>>| result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().filter_map(take).collect()
}

/// Runs `job` on every item, each on its own thread, all started at once: for few jobs that share a time limit.
pub fn map_thread_per_item<Item: Send, Output: Send>(
    items: impl Iterator<Item = Item>,
    job: impl Fn(Item) -> Output + Sync,
) -> Vec<Output> {
    let job = &job;
    thread::scope(|scope| {
        let handles: Vec<_> = items.map(|item| scope.spawn(move || job(item))).collect();
        let results = handles.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn map_thread_per_item_runs_all_jobs_at_the_same_time() {
        let barrier = std::sync::Barrier::new(5);
        let job = |item: u64| {
            barrier.wait();
            item * item
        };
        assert_eq!(super::map_thread_per_item(0..5, job), [0, 1, 4, 9, 16]);
    }

    #[test]
    fn map_returns_results_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(super::map(&items, |item| item * item), items.iter().map(|i| i * i).collect::<Vec<_>>());
        assert!(super::map(&[], |item: &u64| *item).is_empty());
    }
}
