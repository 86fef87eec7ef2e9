//! How many weights a model has: embeddings, mixers, feed-forward parts and norms.

/// All weights of a model, and those that one token uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// All weights.
    pub total: u64,
    /// Weights that one token uses: of the experts only those that are chosen.
    pub active: u64,
}
