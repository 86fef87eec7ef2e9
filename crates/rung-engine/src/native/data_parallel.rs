//! One training step on all cores.
//!
//! The items of a batch are divided into as many runs as there are threads, and each thread takes its run through the whole
//! forward and backward pass with an executor of its own. The threads share the weights, which are read-only, and meet once, to
//! add up their gradients. Compared with threads inside each operation this has no waiting between operations and needs no
//! kernel to be parallel.
//!
//! A thread goes through its run in *pieces* of a few items and adds the gradients up. A piece is chosen so that its
//! activations stay in the cache; memory then depends on the piece and not on the batch.
//!
//! Which thread does what, and the order in which gradients are added, depend only on the number of items, of threads and the
//! size of a piece. So the same seed gives the same bits on the same number of threads. On another number of threads the sums
//! are taken in another order, and results agree up to rounding.

use super::worker_pool::WorkerPool;
use super::{Native, NonFinite, OperationProfile, Tensor};
use crate::kernels::pointwise::accumulate;
use crate::kernels::update::{all_finite, sum_of_squares};
use crate::ops::Ops;
use crate::parameters::Parameters;
use crate::scalar::Scalar;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Why a step has no result.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A number stopped being finite.
    #[error(transparent)]
    NotFinite(#[from] NonFinite),
}

/// What a step gave. Its gradient is in [`DataParallel::gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Sum of the losses of all pieces.
    pub loss: f64,
    /// Euclidean norm of the gradient.
    pub gradient_norm: f64,
}

/// Threads that train together: each takes its part of a batch, and the gradients are added up.
pub struct DataParallel<S: Scalar> {
    pool: WorkerPool,
    workers: Vec<Worker<S>>,
    gradient: Vec<S>,
    piece: usize,
}

/// One thread's executor, and the loss of its run.
struct Worker<S: Scalar> {
    ops: Native<S>,
    loss: Mutex<f64>,
}

impl<S: Scalar> DataParallel<S> {
    /// This many threads, which takes a batch in pieces of at most `piece` items.
    ///
    /// # Panics
    /// If the system refuses the threads.
    pub fn new(threads: usize, piece: usize) -> Self {
        let threads = threads.max(1);
        Self {
            pool: WorkerPool::new(threads),
            workers: (0..threads).map(|_| Worker { ops: Native::new(), loss: Mutex::new(0.0) }).collect(),
            gradient: Vec::new(),
            piece: piece.max(1),
        }
    }

    /// A piece size that keeps the activations of a model in cache: about `2^16` numbers per activation.
    pub fn micro_batch_for(tokens: usize, width: usize) -> usize {
        ((1 << 16) / (tokens * width).max(1)).max(1)
    }

    /// The gradient of the last step, in the order of the weights.
    pub fn gradient(&self) -> &[S] {
        &self.gradient
    }

    /// Times every operation of every thread from now on; see [`take_profile`](Self::take_profile).
    pub fn start_profile(&self) {
        self.workers.iter().for_each(|worker| worker.ops.start_profile());
    }

    /// Stops the profile, and gives the rows of each thread.
    pub fn take_profile(&self) -> Vec<Vec<OperationProfile>> {
        self.workers.iter().map(|worker| worker.ops.take_profile()).collect()
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Forward and backward pass over `items` items.
    ///
    /// `loss` is called with an executor and a range of items, and returns their share of the loss, of one element: shares are
    /// added up, so a mean over the batch is divided by the size of the whole batch.
    ///
    /// # Errors
    /// If the loss or a gradient is not finite. The step is then run once more to find the operation where it began.
    pub fn step<F>(&mut self, weights: &Parameters<S>, items: usize, loss: F) -> Result<StepOutcome, StepError>
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        let outcome = self.run(weights, items, &loss);
        if outcome.loss.is_finite() && outcome.gradient_norm.is_finite() && all_finite(&self.gradient) {
            return Ok(outcome);
        }
        for worker in &self.workers {
            worker.ops.watch();
        }
        self.run(weights, items, &loss);
        let faults: Vec<_> = self.workers.iter().filter_map(|worker| worker.ops.fault()).collect();
        let unknown = || NonFinite { scope: "the model".to_owned(), operation: "sum of losses", pass: "forward" };
        Err(faults.into_iter().next().unwrap_or_else(unknown).into())
    }

    fn run<F>(&mut self, weights: &Parameters<S>, items: usize, loss: &F) -> StepOutcome
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        let (piece, count) = (self.piece, self.workers.len());
        self.gradient.resize(weights.size(), S::ZERO);
        let (workers, gradient) = (&self.workers, &mut self.gradient);
        self.pool.run(&|index| {
            let items = items * index / count..items * (index + 1) / count;
            workers[index].run(weights, items, piece, loss);
        });
        let parts = Mutex::new(gradient.chunks_mut(PART).enumerate());
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.pool.run(&|_| {
            while let Some((index, part)) = next() {
                reduce(workers, part, index * PART);
            }
        });
        for worker in workers {
            worker.ops.release();
        }
        StepOutcome {
            loss: workers.iter().map(|worker| *worker.loss.lock().unwrap_or_else(PoisonError::into_inner)).sum(),
            gradient_norm: sum_of_squares(gradient).sqrt(),
        }
    }
}

impl<S: Scalar> Worker<S> {
    fn run<F>(&self, weights: &Parameters<S>, items: Range<usize>, piece: usize, loss: &F)
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        self.ops.bind(weights);
        self.ops.skip_profile();
        let mut total = 0.0;
        for start in items.clone().step_by(piece) {
            let share = loss(&self.ops, start..(start + piece).min(items.end));
            assert_eq!(self.ops.shape(&share).size(), 1, "a loss is one number");
            total += share.data[0].to_f64();
            self.ops.backward(&share);
        }
        *self.loss.lock().unwrap_or_else(PoisonError::into_inner) = total;
    }
}

/// Numbers of a gradient that a thread adds up at a time.
const PART: usize = 1 << 14;

/// Adds the workers' gradients, in their order, element by element: which thread takes which part does not matter to the sum.
fn reduce<S: Scalar>(workers: &[Worker<S>], out: &mut [S], start: usize) {
    out.fill(S::ZERO);
    for worker in workers {
        accumulate(&worker.ops.lock().gradient[start..start + out.len()], out);
    }
}
