//! Independent jobs on all cores, with results in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `job` on every item. The order in which items are taken depends on timing, the result does not.
pub fn map<Item: Sync, Out: Send>(items: &[Item], job: impl Fn(&Item) -> Out + Sync) -> Vec<Out> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Out>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((item, slot)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).zip(results.get(index))
                } {
                    let out = job(item);
                    *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(out);
                }
            });
        }
    });
    let take = |slot: Mutex<Option<Out>>| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(super::map(&items, |item| item * item), items.iter().map(|i| i * i).collect::<Vec<_>>());
        assert!(super::map(&[], |item: &u64| *item).is_empty());
    }
}
