//! `cross_attention_layers`: the layers that attend to images instead of the text tokens.
//!
//! # Families
//! Llama 3.2 Vision (`mllama_text_model`).
//!
//! # Pitfalls
//! These layers are counted in `num_hidden_layers` but cache no keys or values of text; their cache of an image depends
//! on the image and is not counted. Numbers past the last layer occur and are ignored, as the library does.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{FeedForwardKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "cross_attention_layers",
    fields: &["cross_attention_layers"],
    families: "Llama 3.2 Vision",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(cross_layers) = config.numbers("cross_attention_layers")? else { return Ok(None) };
    let field = config.path_of("cross_attention_layers");
    let layout = Layout::from_fn(num_layers, |index| {
        let is_cross = cross_layers.contains(&(index as u64));
        if is_cross {
            LayerSpec::without_mixer(FeedForwardKind::Dense).decided_by(&*field)
        } else {
            LayerSpec::full().decided_by(&*field)
        }
    });
    Ok(Some(layout.with_assumption(
        "Layers that attend to images cache nothing of the text; their caches of images are not counted.",
    )))
}
