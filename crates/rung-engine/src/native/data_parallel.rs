//! The gradient of a training step on all cores.
//!
//! The items of a batch are divided into one range per thread, and each thread runs the complete forward and backward pass of its
//! range with an executor of its own. The threads share the weights, which are read-only, and synchronise once, to add up their
//! gradients. Compared with threads inside each operation, no thread waits between operations, and no kernel needs to be parallel.
//!
//! A thread divides its range into *micro-batches* of a few items and adds up their gradients. A micro-batch is so small that its
//! activations stay in the cache; memory then depends on its size and not on the size of the batch.
//!
//! Which thread computes what, and the order in which gradients are added, depend only on the number of items and threads and on
//! the size of a micro-batch. So the same seed gives the same bits on the same number of threads. On another number of threads
//! sums are taken in another order, and results agree up to rounding.

use super::threaded_product::next_task;
use super::worker_pool::WorkerPool;
use super::{Native, NonFinite, OperationProfile, Tensor};
use crate::kernels::pointwise::accumulate;
use crate::kernels::update::{all_finite, sum_of_squares};
use crate::ops::Ops;
use crate::parameters::Parameters;
use crate::scalar::Scalar;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Why the gradient of a step could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The loss or a gradient is not finite.
    #[error(transparent)]
    NotFinite(#[from] NonFinite),
}

/// The loss and gradient norm of a step. The gradient itself is in [`DataParallel::gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Sum of the losses of all micro-batches.
    pub loss: f64,
    /// Euclidean norm of the gradient.
    pub gradient_norm: f64,
}

/// Data-parallel training: each thread computes the gradient of its part of a batch, and the gradients are added up.
pub struct DataParallel<S: Scalar> {
    pool: WorkerPool,
    workers: Vec<Worker<S>>,
    gradient: Vec<S>,
    micro_batch: usize,
}

/// One thread's executor, and the loss of its part of the batch.
struct Worker<S: Scalar> {
    ops: Native<S>,
    loss: Mutex<f64>,
}

impl<S: Scalar> DataParallel<S> {
    /// A trainer on this many threads, with micro-batches of at most `micro_batch` items.
    ///
    /// # Panics
    /// If the system cannot start the threads.
    pub fn new(threads: usize, micro_batch: usize) -> Self {
        let threads = threads.max(1);
        Self {
            pool: WorkerPool::new(threads),
            workers: (0..threads).map(|_| Worker { ops: Native::new(), loss: Mutex::new(0.0) }).collect(),
            gradient: Vec::new(),
            micro_batch: micro_batch.max(1),
        }
    }

    /// The micro-batch size that keeps activations of `[tokens, width]` per item in the cache: about `2^16` numbers each.
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

    /// Stops the profile, and returns the rows of each thread.
    pub fn take_profile(&self) -> Vec<Vec<OperationProfile>> {
        self.workers.iter().map(|worker| worker.ops.take_profile()).collect()
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Forward and backward pass over `items` items.
    ///
    /// `loss` is called with an executor and a range of items, and returns their contribution to the loss as a tensor of one
    /// element. Contributions are added up, so a mean over the batch must be divided by the size of the complete batch.
    ///
    /// # Errors
    /// If the loss or a gradient is not finite. The step is then run once more to find the first operation with such a result.
    pub fn compute_gradient<F>(
        &mut self,
        weights: &Parameters<S>,
        items: usize,
        loss: F,
    ) -> Result<StepOutcome, StepError>
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        let outcome = self.run(weights, items, &loss);
        if outcome.loss.is_finite() && outcome.gradient_norm.is_finite() && all_finite(&self.gradient) {
            return Ok(outcome);
        }
        for worker in &self.workers {
            worker.ops.start_finite_check();
        }
        self.run(weights, items, &loss);
        let non_finite: Vec<_> = self.workers.iter().filter_map(|worker| worker.ops.take_non_finite()).collect();
        let unknown = || NonFinite { scope: "the model".to_owned(), operation: "sum of losses", pass: "forward" };
        Err(non_finite.into_iter().next().unwrap_or_else(unknown).into())
    }

    fn run<F>(&mut self, weights: &Parameters<S>, items: usize, loss: &F) -> StepOutcome
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        let (micro_batch, count) = (self.micro_batch, self.workers.len());
        self.gradient.resize(weights.size(), S::ZERO);
        let (workers, gradient) = (&self.workers, &mut self.gradient);
        self.pool.run(&|index| {
            let items = items * index / count..items * (index + 1) / count;
            workers[index].run(weights, items, micro_batch, loss);
        });
        let chunks = Mutex::new(gradient.chunks_mut(REDUCE_CHUNK).enumerate());
        self.pool.run(&|_| {
            while let Some((index, chunk)) = next_task(&chunks) {
                sum_gradients(workers, chunk, index * REDUCE_CHUNK);
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
    fn run<F>(&self, weights: &Parameters<S>, items: Range<usize>, micro_batch: usize, loss: &F)
    where
        F: Fn(&Native<S>, Range<usize>) -> Tensor<S> + Sync,
    {
        self.ops.bind(weights);
        self.ops.skip_profile();
        let mut total = 0.0;
        for start in items.clone().step_by(micro_batch) {
            let loss = loss(&self.ops, start..(start + micro_batch).min(items.end));
            assert_eq!(self.ops.shape(&loss).size(), 1, "a loss is one number");
            total += loss.data[0].to_f64();
            self.ops.backward(&loss);
        }
        *self.loss.lock().unwrap_or_else(PoisonError::into_inner) = total;
    }
}

/// Numbers of the gradient that a thread adds up at a time.
const REDUCE_CHUNK: usize = 1 << 14;

/// Sums the workers' gradients from `start` on, element by element in the order of the workers: the sum does not depend on which
/// thread computes it.
fn sum_gradients<S: Scalar>(workers: &[Worker<S>], out: &mut [S], start: usize) {
    out.fill(S::ZERO);
    for worker in workers {
        accumulate(&worker.ops.lock().gradient[start..start + out.len()], out);
    }
}
