//! Recognises configs that are not of a text decoder, so that the audit can say why their layers are unknown.

use crate::AuditError;
use crate::config::Config;

/// Encoders: they process a sequence at once and have no cache.
const ENCODERS: &[&str] = &[
    "albert",
    "bert",
    "bert-generation",
    "big_bird",
    "camembert",
    "convbert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "eurobert",
    "flaubert",
    "fnet",
    "funnel",
    "ibert",
    "longformer",
    "luke",
    "megatron-bert",
    "mobilebert",
    "modernbert",
    "mpnet",
    "mra",
    "nomic_bert",
    "nystromformer",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "squeezebert",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
    "yoso",
    "clip_text_model",
    "siglip_text_model",
    "embedding_gemma2_text",
    "gte",
    "sam3_lite_text_text_model",
    "tipsv2_text_model",
    "jina_embeddings_v3",
];

/// Encoders with a decoder that also attends to the encoder's output.
const ENCODER_DECODERS: &[&str] = &[
    "bart",
    "bigbird_pegasus",
    "blenderbot",
    "blenderbot-small",
    "encoder-decoder",
    "fsmt",
    "led",
    "longt5",
    "m2m_100",
    "marian",
    "mbart",
    "moonshine",
    "mt5",
    "mvp",
    "nllb-moe",
    "pegasus",
    "pegasus_x",
    "plbart",
    "pop2piano",
    "prophetnet",
    "rag",
    "seamless_m4t",
    "seamless_m4t_v2",
    "speech_to_text",
    "speecht5",
    "switch_transformers",
    "t5",
    "trocr",
    "udop",
    "umt5",
    "vision-encoder-decoder",
    "whisper",
    "musicgen",
    "musicgen_melody",
];

/// Fields of image, audio and video models.
const MEDIA_FIELDS: &[&str] =
    &["image_size", "num_mel_bins", "patch_size", "num_channels", "conv_dim", "sampling_rate"];

/// The kind of model that the config describes, if that is not a text decoder.
pub(crate) fn non_decoder_kind(config: &Config) -> Result<Option<&'static str>, AuditError> {
    let name = config.model_type()?.unwrap_or_default();
    if ENCODER_DECODERS.contains(&name) || config.flag("is_encoder_decoder").unwrap_or(None) == Some(true) {
        return Ok(Some("an encoder-decoder: its cache also holds the keys and values of the encoder output"));
    }
    if ENCODERS.contains(&name) {
        return Ok(Some("an encoder: it reads the whole sequence at once and has no cache"));
    }
    if MEDIA_FIELDS.iter().any(|field| config.has(field)) && !config.has("vocab_size") {
        return Ok(Some("an image or audio model without a text decoder"));
    }
    Ok(None)
}
