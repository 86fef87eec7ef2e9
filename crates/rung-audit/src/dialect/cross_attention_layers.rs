//! `cross_attention_layers`: the layers that attend to images instead of to the text.
//!
//! # Families
//! Llama 3.2 Vision (`mllama_text_model`).
//!
//! # Trap
//! These layers are counted in `num_hidden_layers` but keep no keys or values of text; what they keep of an image depends
//! on the image and is not counted. Numbers past the last layer occur and are ignored, as the library does.

use super::{Dialect, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Channel, Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "cross_attention_layers",
    fields: &["cross_attention_layers"],
    families: "Llama 3.2 Vision",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(crossing) = config.numbers("cross_attention_layers")? else { return Ok(None) };
    let by = config.path_of("cross_attention_layers");
    let layout = each(depth, |index| {
        let crosses = crossing.contains(&(index as u64));
        if crosses { Reading::slot(Channel::Dense).by(&*by) } else { Reading::full().by(&*by) }
    });
    Ok(Some(layout.assuming("Layers that attend to images keep nothing of the text; what they keep of images is not counted.")))
}
