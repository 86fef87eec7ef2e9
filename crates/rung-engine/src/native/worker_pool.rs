//! A pool of threads that all run the same function.
//!
//! A training step gives every thread the same function to run and waits for all of them. A pool does only that: its threads sleep
//! between calls, run a function of the thread's index when they are woken, and the call returns when the last thread is done.
//! General thread pools have queues, which sometimes allocate; a training step must not.
//!
//! Decoding a token has hundreds of small products, each of which would wake a thread. So a waiting thread polls a counter for some
//! hundred microseconds before it sleeps, and most products find the other threads awake.

use std::any::Any;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How often a thread polls a counter before it sleeps: some hundred microseconds, longer than the time between two products of a
/// decoding step. Waking a thread takes as long as a product.
const SPINS: usize = 40_000;

/// A function of the thread's index.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// The calling thread, with index 0, and further threads.
pub(super) struct WorkerPool {
    shared: Arc<SharedState>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads of a pool share.
struct SharedState {
    call: Mutex<CurrentCall>,
    work_ready: Condvar,
    finished: Condvar,
    /// Number of calls so far; a thread runs the work once for each.
    round: AtomicU64,
    /// Threads that have not finished the current call. Both counters are changed only under the lock of `call`; waiting threads poll
    /// them without it, and then read `call` under the lock.
    busy: AtomicUsize,
}

/// The work of the current call, and a panic in it.
struct CurrentCall {
    work: Option<&'static Work<'static>>,
    panic: Option<Box<dyn Any + Send>>,
    /// Whether the pool is dropped.
    closing: bool,
}

/// Polls a condition for a short time, without sleeping.
fn spin_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..SPINS {
        if condition() {
            return;
        }
        spin_loop();
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, CurrentCall> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    fn busy(&self) -> usize {
        self.busy.load(Ordering::Acquire)
    }

    /// The loop of a further thread, until the pool is dropped.
    fn run_thread(&self, index: usize) {
        let mut finished_round = 0;
        loop {
            spin_until(|| self.round() != finished_round);
            let mut call = self.lock();
            while self.round() == finished_round && !call.closing {
                call = self.work_ready.wait(call).unwrap_or_else(PoisonError::into_inner);
            }
            if call.closing {
                return;
            }
            finished_round = self.round();
            let work = call.work.expect("a call has work");
            drop(call);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(index)));
            let mut call = self.lock();
            if let Err(panic) = outcome {
                call.panic = Some(panic);
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
    /// If the system cannot start the threads.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(SharedState {
            call: Mutex::new(CurrentCall { work: None, panic: None, closing: false }),
            work_ready: Condvar::new(),
            finished: Condvar::new(),
            round: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
        });
        let spawn = |index: usize| {
            let shared = Arc::clone(&shared);
            let name = format!("rung {index}");
            std::thread::Builder::new().name(name).spawn(move || shared.run_thread(index)).expect("a thread of a pool")
        };
        let threads = (1..threads).map(spawn).collect();
        Self { shared, threads }
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `work` once on every thread, with the thread's index.
    pub(super) fn run(&mut self, work: &Work<'_>) {
        if self.threads.is_empty() {
            return work(0);
        }
        #[expect(
            unsafe_code,
            reason = "threads that outlive a call use a reference of it while the call waits for them"
        )]
        // SAFETY: no thread uses the reference after it decreases `busy`, this call returns or unwinds only when `busy` is zero, and
        // `&mut self` prevents a second call until then.
        let static_work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        {
            let mut call = self.shared.lock();
            call.work = Some(static_work);
            self.shared.busy.store(self.threads.len(), Ordering::Release);
            self.shared.round.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.work_ready.notify_all();
        let own_result = catch_unwind(AssertUnwindSafe(|| work(0)));
        spin_until(|| self.shared.busy() == 0);
        let mut call = self.shared.lock();
        while self.shared.busy() > 0 {
            call = self.shared.finished.wait(call).unwrap_or_else(PoisonError::into_inner);
        }
        call.work = None;
        let other_panic = call.panic.take();
        drop(call);
        if let Some(panic) = own_result.err().or(other_panic) {
            resume_unwind(panic);
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work_ready.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches the panics of its work, so joining does not fail.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn run_calls_the_work_once_on_every_thread() {
        let mut pool = WorkerPool::new(3);
        let counts: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
        for round in 1..=100 {
            pool.run(&|index| {
                counts[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_still_works() {
        let mut pool = WorkerPool::new(2);
        for panicking in 0..2 {
            let outcome =
                catch_unwind(AssertUnwindSafe(|| pool.run(&|index| assert_ne!(index, panicking, "on purpose"))));
            assert!(outcome.is_err());
        }
        let sum = AtomicUsize::new(0);
        pool.run(&|index| {
            sum.fetch_add(index + 1, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 3);
    }
}
