//! Names of the components of a model: prefixes of weight names, and scopes of operations.

/// A layer, such as `layers.3`.
pub fn layer(index: usize) -> String {
    format!("layers.{index}")
}

/// The index of the layer that a scope names, if it names one.
pub fn layer_index(scope: &str) -> Option<usize> {
    scope.strip_prefix("layers.").and_then(|number| number.parse().ok())
}

/// A mixer's name within its layer: `mixer` if it is the only one, such as `mixers.1` if there are several.
pub fn mixer_in_layer(index: usize, mixer_count: usize) -> String {
    if mixer_count == 1 { "mixer".to_owned() } else { format!("mixers.{index}") }
}

/// A mixer's full name, such as `layers.3.mixer`.
pub fn mixer(layer_index: usize, index: usize, mixer_count: usize) -> String {
    format!("{}.{}", layer(layer_index), mixer_in_layer(index, mixer_count))
}

/// The name of a layer's feed-forward network, such as `layers.3.mlp`.
pub fn mlp(layer_index: usize) -> String {
    format!("{}.mlp", layer(layer_index))
}

/// The norm between the last layer and the unembedding.
pub const FINAL_NORM: &str = "norm";

/// The embedding table of a vocabulary, by its name; several fields of a token may share one.
pub fn embedding_table(vocabulary_name: &str) -> String {
    format!("embeddings.{vocabulary_name}.weight")
}
