//! The `f32` and `f64` instances of large generic functions, compiled in this crate.
//!
//! Each crate compiles its own copy of the generic functions that it calls, except of functions that are `#[inline(never)]` and that one
//! of its dependencies has compiled for the same types: those are only linked. So the large functions of this crate and the operations
//! of [`Native`](rung_engine::Native) have that attribute, and the code below calls them with `f32` and `f64`. It never runs; without it a
//! program would have six copies of every mixer.

use std::error::Error;
use std::path::Path;

use rung_engine::{Ops, Scalar};

use crate::construct::{self, ConstructionRequest, InstanceSet};
use crate::model::Model;
use crate::network::Network;
use crate::trace::Trace;

#[used]
static SINGLE: fn(&Path) -> Result<(), Box<dyn Error>> = instantiate_network::<f32>;
#[used]
static DOUBLE: fn(&Path) -> Result<(), Box<dyn Error>> = instantiate_network::<f64>;

fn instantiate_network<S: Scalar>(path: &Path) -> Result<(), Box<dyn Error>> {
    let network = Network::<S>::open(path)?;
    network.save(path)?;
    construct::build::<S>("", &ConstructionRequest::default())?;
    construct::verify(&network, InstanceSet::All, 1, &|_| {})?;
    Trace::record(&network, &[])?;
    let ops = network.executor();
    ops.backward(&instantiate_passes(&network.model, &ops)?);
    Ok(())
}

fn instantiate_passes<O: Ops>(model: &Model, ops: &O) -> Result<O::Tensor, Box<dyn Error>> {
    let (hidden, state) = model.forward(ops, &[], 1, None)?;
    model.logits(ops, &hidden);
    model.residuals_from_state(ops, &[], 1, Some(&state))?;
    model.forward_last(ops, &[], 1, 0)?;
    model.logits_at(ops, &[], 1, &[])?;
    model.loss(ops, &[], 1, &[])?;
    Ok(model.training_loss(ops, &[], 1, &[], &[])?.sum)
}
