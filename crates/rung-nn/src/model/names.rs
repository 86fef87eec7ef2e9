//! Names of the parts of a model, as its weights and scopes carry them.

/// A layer, such as `layers.3`.
pub fn layer(index: usize) -> String {
    format!("layers.{index}")
}

/// The layer that a scope names, if it names one.
pub fn layer_index(scope: &str) -> Option<usize> {
    scope.strip_prefix("layers.").and_then(|number| number.parse().ok())
}

/// One of a layer's mixers within the layer: `mixer` if it is the only one, `mixers.1` if several stand side by side.
pub fn mixer_in_layer(index: usize, mixers: usize) -> String {
    if mixers == 1 { "mixer".to_owned() } else { format!("mixers.{index}") }
}

/// One of a layer's mixers, such as `layers.3.mixer`.
pub fn mixer(layer_index: usize, index: usize, mixers: usize) -> String {
    format!("{}.{}", layer(layer_index), mixer_in_layer(index, mixers))
}

/// The feed-forward part of a layer, such as `layers.3.mlp`.
pub fn mlp(layer_index: usize) -> String {
    format!("{}.mlp", layer(layer_index))
}
