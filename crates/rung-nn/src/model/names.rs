//! Names of the components of a model, used as prefixes of weights and as scopes.

/// A layer, such as `layers.3`.
pub fn layer(index: usize) -> String {
    format!("layers.{index}")
}

/// The index of the layer that a scope names, if it names one.
pub fn layer_index(scope: &str) -> Option<usize> {
    scope.strip_prefix("layers.").and_then(|number| number.parse().ok())
}

/// A mixer's name within its layer: `mixer` if it is the only one, such as `mixers.1` if there are several.
pub fn mixer_in_layer(index: usize, mixers: usize) -> String {
    if mixers == 1 { "mixer".to_owned() } else { format!("mixers.{index}") }
}

/// A mixer's full name, such as `layers.3.mixer`.
pub fn mixer(layer_index: usize, index: usize, mixers: usize) -> String {
    format!("{}.{}", layer(layer_index), mixer_in_layer(index, mixers))
}

/// The name of a layer's channel mixer, such as `layers.3.mlp`.
pub fn mlp(layer_index: usize) -> String {
    format!("{}.mlp", layer(layer_index))
}
