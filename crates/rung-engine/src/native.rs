//! The native executor: the operations of [`Ops`] on this machine's cores.
//!
//! A [`Native`] runs on one thread and owns a pool of buffers and a tape. A [`DataParallel`] has one per thread. Used alone it is
//! enough for evaluation and for tests:
//!
//! ```
//! use rung_engine::{Native, Ops, Parameters};
//!
//! let mut weights = Parameters::<f64>::new();
//! let weight = weights.add("weight", &[1], vec![3.0]).id();
//! let ops = Native::new();
//! ops.bind(&weights);
//! let x = ops.parameter(weight);
//! ops.backward(&ops.mul(&x, &x));
//! assert_eq!(ops.gradient(), [6.0]);
//! ```
//!
//! An operation computes its result with a kernel and passes it to `emit`, which makes the tensor and, if one of the inputs takes
//! a gradient, puts a record on the tape. The implementation of [`Ops`] is in `operations`; attention and the recurrences, which
//! have more to record, have files of their own.

mod attention;
mod backward;
mod data_parallel;
mod finite_check;
mod operations;
mod pool;
mod profile;
mod record;
mod recurrence;
mod tape;
mod threaded_attention;
mod threaded_product;
mod worker_pool;

pub use data_parallel::{DataParallel, StepError, StepOutcome};
pub use finite_check::NonFinite;
pub use profile::OperationProfile;
pub use tape::Tensor;

use crate::kernels::product::{Matrix, MatrixMut, WriteMode, product};
use crate::parameters::Parameters;
use crate::scalar::Scalar;
use crate::shape::Shape;
use finite_check::FiniteCheck;
use pool::{Buffer, Pool};
use profile::Profile;
use record::Record;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tape::{GradientTarget, Tape};
use worker_pool::WorkerPool;

/// An executor on this machine's CPU, on one thread unless [`with_threads`](Native::with_threads) gave it more.
pub struct Native<S: Scalar> {
    pool: Arc<Pool<S>>,
    tape: Mutex<Tape<S>>,
    /// Further threads for large products and attention.
    workers: Option<Mutex<WorkerPool>>,
}

impl<S: Scalar> Default for Native<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scalar> Native<S> {
    /// An executor with an empty pool and no weights.
    pub fn new() -> Self {
        Self { pool: Pool::new(), tape: Mutex::new(Tape::new()), workers: None }
    }

    /// An executor that runs large products and long attention on this many threads: for one prompt at a time, which a
    /// [`DataParallel`] could not split. Every element is computed as on one thread, so the bits are the same.
    ///
    /// # Panics
    /// If the system cannot start the threads.
    pub fn with_threads(threads: usize) -> Self {
        Self { workers: (threads > 1).then(|| Mutex::new(WorkerPool::new(threads))), ..Self::new() }
    }

    /// `out = left right`, on all threads if the product is large.
    fn multiply(&self, out: &mut [S], columns: usize, left: Matrix<'_, S>, right: Matrix<'_, S>) {
        let [rows, inner] = left.extents();
        let workers = self.workers.as_ref().filter(|_| threaded_product::is_divisible(rows, columns, inner));
        let Some(workers) = workers else {
            return product(&mut MatrixMut::new(out, rows, columns, columns), WriteMode::Overwrite, 1.0, left, right);
        };
        let mut buffer = self.pool.take(threaded_product::packed_len::<S>(rows, columns, inner));
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        threaded_product::multiply_with(&mut workers, out, columns, left, right, buffer.write());
    }

    /// Uses these weights, with gradients, from now on. Clears the tape and sets the gradient to zero.
    pub fn bind(&self, weights: &Parameters<S>) {
        self.set_weights(weights, true);
    }

    /// Uses these weights without gradients from now on: nothing is recorded, and buffers return to the pool when they are dropped.
    pub fn bind_frozen(&self, weights: &Parameters<S>) {
        self.set_weights(weights, false);
    }

    fn set_weights(&self, weights: &Parameters<S>, training: bool) {
        let mut tape = self.lock();
        tape.clear();
        tape.training = training;
        tape.weights = Some(weights.share_values());
        tape.layout.clear();
        tape.layout.extend(weights.entries().map(|(_, entry)| (entry.shape, entry.range.start)));
        tape.gradient.clear();
        tape.gradient.resize(if training { weights.size() } else { 0 }, S::ZERO);
    }

    /// Drops the reference to the weights, so that they can be changed in place.
    pub fn release(&self) {
        let mut tape = self.lock();
        tape.clear();
        tape.weights = None;
    }

    /// Adds the gradient of a loss to the gradient of the weights, and clears the tape.
    #[inline(never)]
    pub fn backward(&self, loss: &Tensor<S>) {
        let mut tape = self.lock();
        tape.backward(&self.pool, loss);
        tape.clear();
    }

    /// A copy of the gradient of all weights since [`bind`](Self::bind), in the order of [`Parameters`].
    pub fn gradient(&self) -> Vec<S> {
        self.lock().gradient.clone()
    }

    /// Checks from now on whether every result is finite; see [`take_non_finite`](Self::take_non_finite).
    pub fn start_finite_check(&self) {
        self.lock().finite_check = Some(FiniteCheck::default());
    }

    /// Stops the check, and returns the first operation whose result was not finite.
    pub fn take_non_finite(&self) -> Option<NonFinite> {
        self.lock().finite_check.take().and_then(|check| check.first_non_finite)
    }

    /// Reads the clock after every operation from now on; see [`take_profile`](Self::take_profile).
    pub fn start_profile(&self) {
        self.lock().profile = Some(Profile::new());
    }

    /// Stops the profile, and returns its rows in the order in which operations first ran; empty if none was started.
    pub fn take_profile(&self) -> Vec<OperationProfile> {
        self.lock().profile.take().map(Profile::into_rows).unwrap_or_default()
    }

    /// Excludes the time up to now from the profile.
    fn skip_profile(&self) {
        if let Some(profile) = &mut self.lock().profile {
            profile.skip();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tape<S>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a tensor of a result and, if one of the inputs takes a gradient, puts a record of the operation on the tape.
    fn emit(
        &self,
        operation: &'static str,
        shape: Shape,
        data: Buffer<S>,
        inputs: &[GradientTarget],
        record: impl FnOnce(GradientTarget, &Buffer<S>, &mut Tape<S>) -> Record<S>,
    ) -> Tensor<S> {
        let mut tape = self.lock();
        tape.end_operation(operation, &data);
        let mut grad_target = GradientTarget::None;
        if inputs.iter().any(|input| input.is_some()) {
            grad_target = tape.new_node();
            let record = record(grad_target, &data, &mut tape);
            tape.push(operation, record);
        }
        Tensor { data, shape, grad_target }
    }

    /// The same for an operation that returns its outputs and a last state.
    fn emit_with_state(
        &self,
        operation: &'static str,
        (data, shape): (Buffer<S>, Shape),
        (last_state, state_shape): (Buffer<S>, Shape),
        takes_gradient: bool,
        record: impl FnOnce(GradientTarget, GradientTarget) -> Record<S>,
    ) -> (Tensor<S>, Tensor<S>) {
        let mut tape = self.lock();
        tape.end_operation(operation, &data);
        let mut targets = [GradientTarget::None; 2];
        if takes_gradient {
            targets = [tape.new_node(), tape.new_node()];
            tape.push(operation, record(targets[0], targets[1]));
        }
        let [out, last] = targets;
        (Tensor { data, shape, grad_target: out }, Tensor { data: last_state, shape: state_shape, grad_target: last })
    }

    /// A new buffer that `fill` writes.
    fn compute_buffer(&self, length: usize, fill: impl FnOnce(&mut [S])) -> Buffer<S> {
        let mut buffer = self.pool.take(length);
        fill(buffer.write());
        buffer
    }
}

/// The extents of a tensor of known rank.
fn extents_of<const RANK: usize, S: Scalar>(name: &str, x: &Tensor<S>) -> [usize; RANK] {
    x.shape[..].try_into().unwrap_or_else(|_| panic!("{name} needs {RANK} axes, and got {}", x.shape))
}
