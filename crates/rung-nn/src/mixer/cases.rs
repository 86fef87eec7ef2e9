//! [`CASES`]: the sizes and positions with which every mixer is tested, on every executor. A new mixer needs a line there.
//!
//! Initial weights are large (a standard deviation of 0.5), so that gates and scores are not near their centre, and every weight is
//! perturbed, so that gains are not exactly one and biases not exactly zero. The tests of this crate run the cases on the native executor.
//! To test another executor, compare it with the native one: for every case [`results`] should have the same values, and [`weighted_sum`]
//! the same gradient.

use rung_engine::{Ops, Parameters, Scalar};
use rung_theory::stack::{Defaults, Mixer, Plan};
use rung_theory::task::{Rng, random_below, seeded};

use super::{Builtin, TokenMixer as _};
use crate::param_builder::{BuildSettings, LayerDepth, ParamBuilder};
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

/// Rotary positions with large rotations within a few tokens.
pub const ROTARY: Positions = Positions::Rotary { base: 100.0 };

/// The cases: a stack of one layer, and the position encoding. The width is 12; heads are small, and of odd width where that is allowed.
pub const CASES: &[(&str, Positions)] = &[
    ("full{heads=3,kv=3,head=4}", Positions::None),
    ("full{heads=4,kv=2,key=4,value=3}", ROTARY),
    ("full{heads=4,kv=1,head=3,conv=3}", Positions::Alibi),
    ("full{heads=4,kv=2,key=4,value=3,accumulator=32}", Positions::Alibi),
    ("full{heads=3,kv=1,head=4}", Positions::Relative),
    ("mla{heads=3,head=4,latent=5,rope=2,value=3}", ROTARY),
    ("mla{heads=2,head=3,latent=4,rope=0,value=3,query-rank=2}", Positions::Alibi),
    ("mla{heads=2,head=3,latent=7,rope=3,value=1}", Positions::None),
    ("compositional{searches=3,retrievals=2,head=4,value=3}", ROTARY),
    ("compositional{searches=2,retrievals=3,head=3,value=2}", Positions::Alibi),
    ("dsa{heads=3,head=4,latent=5,rope=2,value=3,top=3,index-heads=2,index-head=4}", ROTARY),
    ("dsa{heads=2,head=3,latent=4,rope=0,value=3,query-rank=2,top=4,index-heads=3,index-head=3}", Positions::Alibi),
    ("evicting{heads=2,kv=1,head=4,size=4}", ROTARY),
    ("evicting{heads=2,kv=2,head=3,size=5,policy=sinks}", Positions::None),
    ("evicting{heads=4,kv=2,key=4,value=3,size=3,policy=prefix}", ROTARY),
    ("evicting{heads=2,kv=1,head=3,size=4,policy=stride}", Positions::None),
    ("evicting{heads=2,kv=1,head=4,size=3,policy=reservoir}", ROTARY),
    ("evicting{heads=4,kv=2,key=4,value=3,size=3,policy=heavy}", ROTARY),
    ("window{heads=2,kv=1,head=4,size=4}", ROTARY),
    ("window{heads=2,kv=2,head=3,size=1}", Positions::None),
    ("window{heads=2,kv=2,head=3,size=5}", Positions::Alibi),
    ("window{heads=4,kv=2,head=4,size=3,sinks=2}", ROTARY),
    ("window{heads=2,kv=1,head=3,size=1,sinks=3}", Positions::Alibi),
    ("window{heads=2,kv=1,head=4,size=4,tied=yes}", ROTARY),
    ("window{heads=3,kv=3,head=4,size=2,sinks=1,tied=yes}", ROTARY),
    ("linear{heads=2,key=3,value=5}", Positions::None),
    ("linear{heads=2,key=3,value=5,map=relu}", Positions::None),
    ("linear{heads=2,key=3,value=5,map=relu,normaliser=no}", Positions::None),
    ("linear{heads=3,key=4,value=2,map=identity,normaliser=no}", Positions::None),
    ("fastmax{order=1,heads=2,key=3,value=5}", Positions::None),
    ("fastmax{order=2,heads=3,key=3,value=2}", Positions::None),
    ("inline{heads=2,key=3,value=5}", Positions::None),
    ("inline{heads=3,key=4,value=2,local=1}", Positions::None),
    ("moba{heads=4,kv=2,head=4,block=2,top=2,groups=2,summary=minmax}", Positions::None),
    ("moba{heads=3,kv=3,head=4,block=3,top=2}", Positions::None),
    ("moba{heads=4,kv=2,key=4,value=3,block=2,top=3,groups=2}", ROTARY),
    ("moba{heads=4,kv=4,head=2,block=4,top=1,groups=1}", Positions::None),
    ("nsa{heads=2,kv=2,head=3,block=3,top=2,length=2,stride=1,window=3}", Positions::None),
    ("nsa{heads=4,kv=2,key=4,value=3,block=2,top=4,length=4,stride=2,window=2}", ROTARY),
    ("nsa{heads=2,kv=1,head=4,block=2,top=3,length=2,stride=2,window=0}", ROTARY),
    ("retnet{heads=3,key=4,value=6}", Positions::None),
    ("lightning{heads=3,head=4}", Positions::None),
    ("lightning{heads=2,head=5}", ROTARY),
    ("gla{heads=2,key=3,value=5,rank=2}", Positions::None),
    ("hgrn2{expand=4}", Positions::None),
    ("hgrn2{expand=1}", Positions::None),
    ("rwkv6{heads=3,head=4,mix-rank=2,decay-rank=3}", Positions::None),
    ("rwkv6{heads=2,head=5,mix-rank=1,decay-rank=1}", Positions::None),
    ("mamba1{inner=7,state=3,conv=3,rank=2}", Positions::None),
    ("mamba1{inner=5,state=1,conv=1,rank=1}", Positions::None),
    ("mamba2{heads=4,head=3,state=5,groups=2,conv=3}", Positions::None),
    ("mamba2{heads=2,head=3,state=5,conv=1}", Positions::None),
    ("rglru{inner=8,heads=2,conv=3}", Positions::None),
    ("rglru{inner=5,heads=1,conv=1}", Positions::None),
    ("rwkv7{heads=3,head=4,rank=2}", Positions::None),
    ("rwkv7{heads=2,head=5,rank=1}", Positions::None),
    ("deltanet{heads=2,key=4,value=3}", Positions::None),
    ("deltanet{heads=2,key=4,value=3,conv=0,negative=yes}", Positions::None),
    ("gdn{heads=2,value-heads=4,key=3,value=5}", Positions::None),
    ("gdn{heads=2,key=4,value=4,conv=0,negative=yes}", Positions::None),
    ("kda{heads=2,value-heads=4,key=3,value=5}", Positions::None),
    ("kda{heads=2,key=4,value=4,conv=0}", Positions::None),
    ("deltaproduct{heads=2,value-heads=4,key=3,value=2}", Positions::None),
    ("deltaproduct{heads=2,key=4,value=3,steps=3,conv=0,gate=no,negative=no}", Positions::None),
    ("loglinear-mamba2{heads=4,head=3,state=5,groups=2,conv=3,levels=6}", Positions::None),
    ("loglinear-mamba2{heads=2,head=3,state=2,conv=1,levels=5}", Positions::None),
    ("loglinear-gdn{heads=2,value-heads=4,key=3,value=5,levels=64}", Positions::None),
    ("loglinear-gdn{heads=2,key=4,value=4,conv=0,negative=yes,levels=5}", Positions::None),
    ("conv{taps=3,channels=5}", Positions::None),
    ("conv{taps=1,gated=no}", Positions::None),
    ("gated{channels=5}", Positions::None),
    ("none", Positions::None),
];

/// Width of the residual stream.
pub const WIDTH: usize = 12;
/// The layer of all mixers: neither the first nor the last, on which some mixers depend.
const MIDDLE_LAYER: LayerDepth = LayerDepth { layer: 1, layers: 3 };
/// Batch size of every input.
pub const BATCH: usize = 2;

/// The mixer of a stack of one layer.
///
/// # Panics
/// If the stack cannot be parsed.
pub fn resolve(text: &str) -> Mixer {
    let defaults = Defaults { heads: 3, head_dim: 4, ..Defaults::default() };
    Plan::parse(text, &defaults).unwrap().layers[0].mixers[0].clone()
}

/// The settings that all cases share.
pub fn settings(positions: Positions, chunk: usize) -> BuildSettings {
    BuildSettings { width: WIDTH, chunk, positions, init_std: 0.5, ..BuildSettings::default() }
}

/// A random number from -1 to 1.
pub fn uniform_sample(rng: &mut Rng) -> f64 {
    f64::from(random_below(rng, 2_000_001)) / 1e6 - 1.0
}

/// Adds random numbers up to this size to all weights.
pub fn perturb<S: Scalar>(weights: &mut Parameters<S>, size: f64) {
    let mut rng = seeded(5);
    weights.flat_mut().iter_mut().for_each(|value| *value += S::from_f64(size * uniform_sample(&mut rng)));
}

/// A mixer with its weights.
pub struct MixerWithWeights<S> {
    /// The built mixer.
    pub mixer: Builtin,
    /// Its weights.
    pub weights: Parameters<S>,
}

/// Builds the mixer of a case.
///
/// # Panics
/// If the mixer is not implemented.
pub fn build<S: Scalar>(text: &str, positions: Positions, chunk: usize) -> MixerWithWeights<S> {
    build_with_precision(text, positions, chunk, SimulatedPrecision::default())
}

/// Builds the mixer of a case with rounded states and messages.
///
/// # Panics
/// As [`build`].
pub fn build_with_precision<S: Scalar>(
    text: &str,
    positions: Positions,
    chunk: usize,
    precision: SimulatedPrecision,
) -> MixerWithWeights<S> {
    let mut weights = Parameters::new();
    let mut rng = seeded(11);
    let settings = BuildSettings { precision, ..settings(positions, chunk) };
    let mut params = ParamBuilder::new(settings, &mut weights, &mut rng);
    params.depth = MIDDLE_LAYER;
    let mixer = Builtin::init(&resolve(text), &mut params);
    perturb(&mut weights, 0.3);
    MixerWithWeights { mixer: mixer.unwrap(), weights }
}

/// Random values up to this size, for an input of shape `[BATCH, time, WIDTH]`.
pub fn input<S: Scalar>(time: usize, size: f64) -> Vec<S> {
    let mut rng = seeded(3);
    (0..BATCH * time * WIDTH).map(|_| S::from_f64(size * uniform_sample(&mut rng))).collect()
}

/// The outputs of two consecutive spans, and all tensors of the last state.
pub fn results<O: Ops>(ops: &O, mixer: &Builtin, x: &O::Tensor) -> Vec<O::Tensor> {
    let time = ops.shape(x)[1];
    let (first, state) = mixer.forward(ops, &ops.slice(x, 1, 0..time / 2), None);
    let (second, state) = mixer.forward(ops, &ops.slice(x, 1, time / 2..time), Some(&state));
    [first, second].into_iter().chain(state.tensors.into_iter().flatten()).collect()
}

/// A weighted sum of all elements of all [`results`], with a random weight for each.
pub fn weighted_sum<O: Ops>(ops: &O, results: &[O::Tensor]) -> O::Tensor {
    let mut rng = seeded(17);
    let term = |tensor| {
        let shape = ops.shape(tensor);
        let factors: Vec<O::Scalar> =
            (0..shape.size()).map(|_| O::Scalar::from_f64(uniform_sample(&mut rng))).collect();
        ops.sum_all(&ops.mul(tensor, &ops.constant(&shape, &factors)))
    };
    ops.sum_all(&ops.concat(&results.iter().map(term).collect::<Vec<_>>(), 0))
}
