//! The usual instances of the generic functions, compiled in this crate.
//!
//! Each crate compiles the generic functions that it calls for itself. The exception are those that are `#[inline(never)]` and that
//! a crate below it has compiled for the same types: they are only linked. So the large functions of this crate and the operations of
//! [`Native`](rung_engine::Native) have that attribute, and here is code that calls them with both kinds of numbers. It never
//! runs, and is not linked; without it a program would have every mixer six times.

use std::error::Error;
use std::path::Path;

use rung_engine::{Ops, Scalar};

use crate::construct::{self, ConstructionRequest, InstanceSet};
use crate::model::Model;
use crate::network::Network;
use crate::trace::Trace;

#[used]
static SINGLE: fn(&Path) -> Result<(), Box<dyn Error>> = networks::<f32>;
#[used]
static DOUBLE: fn(&Path) -> Result<(), Box<dyn Error>> = networks::<f64>;

fn networks<S: Scalar>(path: &Path) -> Result<(), Box<dyn Error>> {
    let network = Network::<S>::open(path)?;
    network.save(path)?;
    construct::build::<S>("", &ConstructionRequest::default())?;
    construct::verify(&network, InstanceSet::All, 1, &|_| {})?;
    Trace::record(&network, &[])?;
    let ops = network.executor();
    ops.backward(&passes(&network.model, &ops)?);
    Ok(())
}

fn passes<O: Ops>(model: &Model, ops: &O) -> Result<O::Tensor, Box<dyn Error>> {
    let (hidden, state) = model.forward(ops, &[], 1, None)?;
    model.logits(ops, &hidden);
    model.streams_after(ops, &[], 1, Some(&state))?;
    model.last(ops, &[], 1, 0)?;
    model.scores_at(ops, &[], 1, &[])?;
    model.loss(ops, &[], 1, &[])?;
    Ok(model.training_loss(ops, &[], 1, &[], &[])?.sum)
}
