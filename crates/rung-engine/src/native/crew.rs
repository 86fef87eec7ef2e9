//! Threads that do one thing together, again and again.
//!
//! A training step gives every thread the same function to run and waits for all of them. That is all a crew does: it keeps
//! its threads asleep between steps, wakes them with a function of the thread's number, and returns when the last one is done.
//! The general thread pools keep queues, and their queues ask the system for memory now and then; a step must not.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A function of the thread's number.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// The calling thread, as number 0, and some others.
pub(super) struct Crew {
    board: Arc<Board>,
    others: Vec<JoinHandle<()>>,
}

/// Where work is announced.
struct Board {
    notice: Mutex<Notice>,
    announced: Condvar,
    finished: Condvar,
}

struct Notice {
    /// Counts the announcements; a thread works once for each.
    round: u64,
    work: Option<&'static Work<'static>>,
    busy: usize,
    panic: Option<Box<dyn Any + Send>>,
    closing: bool,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Notice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other threads do until the crew is dropped.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        loop {
            let mut notice = self.lock();
            while notice.round == seen && !notice.closing {
                notice = self.announced.wait(notice).unwrap_or_else(PoisonError::into_inner);
            }
            if notice.closing {
                return;
            }
            seen = notice.round;
            let work = notice.work.expect("an announcement has work");
            drop(notice);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(number)));
            let mut notice = self.lock();
            notice.busy -= 1;
            if let Err(panic) = outcome {
                notice.panic = Some(panic);
            }
            if notice.busy == 0 {
                self.finished.notify_one();
            }
        }
    }
}

impl Crew {
    /// A crew of this many threads, the calling one included.
    ///
    /// # Panics
    /// If the system refuses the threads.
    pub(super) fn new(threads: usize) -> Self {
        let notice = Notice { round: 0, work: None, busy: 0, panic: None, closing: false };
        let board = Arc::new(Board { notice: Mutex::new(notice), announced: Condvar::new(), finished: Condvar::new() });
        let hire = |number: usize| {
            let board = Arc::clone(&board);
            let name = format!("rung {number}");
            std::thread::Builder::new().name(name).spawn(move || board.serve(number)).expect("a thread of a crew")
        };
        let others = (1..threads).map(hire).collect();
        Self { board, others }
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
            let mut notice = self.board.lock();
            notice.round += 1;
            notice.work = Some(shared);
            notice.busy = self.others.len();
        }
        self.board.announced.notify_all();
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        let mut notice = self.board.lock();
        while notice.busy > 0 {
            notice = self.board.finished.wait(notice).unwrap_or_else(PoisonError::into_inner);
        }
        notice.work = None;
        let theirs = notice.panic.take();
        drop(notice);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.lock().closing = true;
        self.board.announced.notify_all();
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
        let mut crew = Crew::new(3);
        let counts: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
        for round in 1..=100 {
            crew.run(&|number| {
                counts[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_crew_goes_on() {
        let mut crew = Crew::new(2);
        for number in 0..2 {
            let outcome = catch_unwind(AssertUnwindSafe(|| crew.run(&|own| assert_ne!(own, number, "on purpose"))));
            assert!(outcome.is_err());
        }
        let sum = AtomicUsize::new(0);
        crew.run(&|number| {
            sum.fetch_add(number + 1, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 3);
    }
}
