//! Threads that do one thing together, again and again.
//!
//! A training step gives every thread the same function to run and waits for all of them. That is all a pool does: it keeps
//! its threads asleep between steps, wakes them with a function of the thread's number, and returns when the last one is done.
//! The general thread pools keep queues, and their queues ask the system for memory now and then; a step must not.
//!
//! Decoding a token has hundreds of small products, each of which would wake a thread. So a thread that waits reads a counter for
//! some microseconds before it goes to sleep, and most products find the others awake.

use std::any::Any;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How often a counter is read before a thread goes to sleep: some tens of microseconds.
const SPINS: usize = 4000;

/// A function of the thread's number.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// The calling thread, as number 0, and some others.
pub(super) struct WorkerPool {
    shared: Arc<SharedState>,
    others: Vec<JoinHandle<()>>,
}

/// Where work is announced.
struct SharedState {
    job: Mutex<Job>,
    announced: Condvar,
    finished: Condvar,
    /// Counts the announcements; a thread works once for each.
    round: AtomicU64,
    /// Threads that have not finished the round. Both counters change under the lock of the job alone, and are read without it
    /// by threads that wait; what they protect is read under the lock.
    busy: AtomicUsize,
}

struct Job {
    work: Option<&'static Work<'static>>,
    panic: Option<Box<dyn Any + Send>>,
    closing: bool,
}

/// Waits for a condition for a short while, without sleeping.
fn spin_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..SPINS {
        if condition() {
            return;
        }
        spin_loop();
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    fn busy(&self) -> usize {
        self.busy.load(Ordering::Acquire)
    }

    /// What the other threads do until the pool is dropped.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        loop {
            spin_until(|| self.round() != seen);
            let mut job = self.lock();
            while self.round() == seen && !job.closing {
                job = self.announced.wait(job).unwrap_or_else(PoisonError::into_inner);
            }
            if job.closing {
                return;
            }
            seen = self.round();
            let work = job.work.expect("an announcement has work");
            drop(job);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(number)));
            let mut job = self.lock();
            if let Err(panic) = outcome {
                job.panic = Some(panic);
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finished.notify_one();
            }
        }
    }
}

impl WorkerPool {
    /// A pool of this many threads, the calling one included.
    ///
    /// # Panics
    /// If the system refuses the threads.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(SharedState {
            job: Mutex::new(Job { work: None, panic: None, closing: false }),
            announced: Condvar::new(),
            finished: Condvar::new(),
            round: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
        });
        let spawn = |number: usize| {
            let shared = Arc::clone(&shared);
            let name = format!("rung {number}");
            std::thread::Builder::new().name(name).spawn(move || shared.serve(number)).expect("a thread of a pool")
        };
        let others = (1..threads).map(spawn).collect();
        Self { shared, others }
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.others.len() + 1
    }

    /// Runs `work` once on every thread, with the thread's number.
    pub(super) fn run(&mut self, work: &Work<'_>) {
        if self.others.is_empty() {
            return work(0);
        }
        #[expect(unsafe_code, reason = "threads that outlive a call borrow from it while it waits for them")]
        // SAFETY: the reference is dropped by every thread before it reports, this call returns or unwinds only after all of
        // them reported, and `&mut self` keeps a second call away until then.
        let shared = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        {
            let mut job = self.shared.lock();
            job.work = Some(shared);
            self.shared.busy.store(self.others.len(), Ordering::Release);
            self.shared.round.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.announced.notify_all();
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        spin_until(|| self.shared.busy() == 0);
        let mut job = self.shared.lock();
        while self.shared.busy() > 0 {
            job = self.shared.finished.wait(job).unwrap_or_else(PoisonError::into_inner);
        }
        job.work = None;
        let theirs = job.panic.take();
        drop(job);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.announced.notify_all();
        for other in self.others.drain(..) {
            // A thread catches the panics of its work, so it has nothing to report here.
            let _ = other.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_thread_works_once_a_round() {
        let mut pool = WorkerPool::new(3);
        let counts: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
        for round in 1..=100 {
            pool.run(&|number| {
                counts[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_goes_on() {
        let mut pool = WorkerPool::new(2);
        for number in 0..2 {
            let outcome = catch_unwind(AssertUnwindSafe(|| pool.run(&|own| assert_ne!(own, number, "on purpose"))));
            assert!(outcome.is_err());
        }
        let sum = AtomicUsize::new(0);
        pool.run(&|number| {
            sum.fetch_add(number + 1, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 3);
    }
}
