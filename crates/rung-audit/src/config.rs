//! The fields of a config, with typed getters whose errors name the field's path.
//!
//! Multimodal models keep the language model's fields in an inner object (`text_config` and the like), beside a vision
//! tower with fields of the same names. [`find_language_model`] finds the right object once; other code reads only that object, with the exceptions named `_anywhere`.
//! A field that is `null` counts as absent, as it does in the libraries that write these files.

use crate::AuditError;
use crate::json::JsonValue;

/// The most layers that are accepted: hundreds of times the deepest model.
pub(crate) const MAX_LAYERS: u64 = 1 << 16;
/// The largest size (width, heads, window) that is accepted.
pub(crate) const MAX_SIZE: u64 = 1 << 24;

/// More fields in one object of a model are an error: every layer looks up dozens of fields one by one.
const MAX_FIELDS: usize = 1024;

/// Fields of multimodal configs that hold the language model's config.
const INNER_CONFIGS: [&str; 5] = ["text_config", "language_config", "llm_config", "thinker_config", "language_model"];
/// Names of the number of layers.
const NUM_LAYERS: [&str; 5] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "block_count"];
/// The object with fields of single layers that differ from the model's, keyed by layer.
pub(crate) const PER_LAYER: &str = "per_layer_config";
/// Fields whose length gives the number of layers where no field does.
const LAYER_LISTS: [&str; 4] = ["layers_block_type", "layer_types", "hybrid_override_pattern", "block_configs"];

/// A view of one object of the file, with the path that leads to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'a> {
    value: &'a JsonValue,
    /// The top-level object: multimodal configs give the architecture there.
    root: &'a JsonValue,
    path: &'a str,
    /// Fields of one layer that differ from the model's.
    layer_fields: Option<&'a JsonValue>,
    /// Whether the fields are those of a GGUF header.
    pub(crate) gguf: bool,
}

/// The object that describes the language model, and the path to it.
pub(crate) fn find_language_model(root: &JsonValue) -> Result<(&JsonValue, String), AuditError> {
    let JsonValue::Object(_) = root else {
        return Err(AuditError::field("(the whole file)", root.describe(), "an object"));
    };
    let mut value = root;
    let mut path = String::new();
    // An inner config may itself hold an inner config, but no deeper.
    for _ in 0..2 {
        let inner = INNER_CONFIGS.iter().find_map(|&key| match value.get(key) {
            Some(object @ JsonValue::Object(_)) if describes_model(object) => Some((key, object)),
            _ => None,
        });
        let Some((key, object)) = inner else { break };
        path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        value = object;
    }
    check_field_counts("(the whole file)", root)?;
    check_field_counts(&path, value)?;
    Ok((value, path))
}

/// Rejects an object with too many fields, or with such an object in a field.
fn check_field_counts(path: &str, object: &JsonValue) -> Result<(), AuditError> {
    let JsonValue::Object(fields) = object else { return Ok(()) };
    let too_many = |value: &JsonValue| match value {
        JsonValue::Object(fields) if fields.len() > MAX_FIELDS => Some(format!("an object of {} fields", fields.len())),
        _ => None,
    };
    let inner = fields.iter().map(|(name, value)| (name.as_str(), value));
    for (name, value) in [(path, object)].into_iter().chain(inner) {
        if let Some(found) = too_many(value) {
            return Err(AuditError::field(name, found, format!("at most {MAX_FIELDS} fields")));
        }
    }
    Ok(())
}

fn describes_model(value: &JsonValue) -> bool {
    let has_any = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    has_any(&NUM_LAYERS) || has_any(&LAYER_LISTS) || has_any(&INNER_CONFIGS)
}

impl<'a> Config<'a> {
    pub(crate) fn new(root: &'a JsonValue, value: &'a JsonValue, path: &'a str, gguf: bool) -> Self {
        Self { value, root, path, layer_fields: None, gguf }
    }

    /// The full path of one of its fields.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.gguf && name == "model_type" {
            return "general.architecture".to_owned();
        }
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field that is present and not null. `a.b` looks inside the object `a`, unless a field is named `a.b`.
    pub(crate) fn get(&self, name: &str) -> Option<&'a JsonValue> {
        let direct = self.layer_fields.and_then(|fields| fields.get(name)).or_else(|| self.value.get(name));
        let nested = || name.split_once('.').and_then(|(outer, inner)| self.value.get(outer)?.get(inner));
        direct.or_else(nested).filter(|value| **value != JsonValue::Null)
    }

    /// All fields of the model.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'a str, &'a JsonValue)> {
        let fields = if let JsonValue::Object(fields) = self.value { fields.as_slice() } else { &[] };
        fields.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The config of one layer: fields under the key of `per_layer_config` override the model's.
    pub(crate) fn for_layer(&self, key: Option<&str>) -> Self {
        let layer_fields = key.and_then(|key| self.value.get(PER_LAYER)?.get(key));
        Self { layer_fields, ..*self }
    }

    /// A field of the model, or of the top-level object.
    pub(crate) fn get_anywhere(&self, name: &str) -> Option<&'a JsonValue> {
        self.get(name).or_else(|| self.root.get(name)).filter(|value| **value != JsonValue::Null)
    }

    /// A flag of the model, or of the top-level object; anything else counts as absent.
    pub(crate) fn flag_anywhere(&self, name: &str) -> Option<bool> {
        if let JsonValue::Bool(flag) = self.get_anywhere(name)? { Some(*flag) } else { None }
    }

    /// Whether a field is present, even if it is `null`.
    pub(crate) fn has_key(&self, name: &str) -> bool {
        self.value.get(name).is_some()
    }

    /// Whether a field is present and not `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn field_error(&self, name: &str, value: &JsonValue, expected: &str) -> AuditError {
        AuditError::field(self.path_of(name), value.describe(), expected)
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn number(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, AuditError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match as_u64(value) {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(self.field_error(name, value, &format!("a whole number from {min} to {max}"))),
        }
    }

    /// A size: at least 1.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, AuditError> {
        self.number(name, 1, MAX_SIZE)
    }

    /// A count: may be 0.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>, AuditError> {
        self.number(name, 0, MAX_SIZE)
    }

    /// The size under the first of several names that is present.
    pub(crate) fn first_size(&self, names: &[&str]) -> Result<Option<u64>, AuditError> {
        for name in names {
            if let Some(size) = self.size(name)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    /// A size that may also be given as the word `auto`, which counts as absent.
    pub(crate) fn size_or_auto(&self, name: &str) -> Result<Option<u64>, AuditError> {
        match self.get(name) {
            Some(JsonValue::String(word)) if word == "auto" => Ok(None),
            _ => self.size(name),
        }
    }

    /// A factor such as 0.5 or 2, times a size, as a whole number.
    pub(crate) fn scaled_size(&self, name: &str, size: u64, default: f64) -> Result<u64, AuditError> {
        let factor = match self.get(name) {
            None => default,
            Some(value @ JsonValue::Number(text)) => match text.parse::<f64>() {
                Ok(factor) if factor > 0.0 && factor <= 1024.0 => factor,
                _ => return Err(self.field_error(name, value, "a factor above 0 and at most 1024")),
            },
            Some(value) => return Err(self.field_error(name, value, "a factor above 0 and at most 1024")),
        };
        // Sizes are below 2^24 and factors at most 2^10: exact in 53 bits for the halves and doubles in use.
        let scaled = (size as f64 * factor).round() as u64;
        if (1..=MAX_SIZE).contains(&scaled) {
            Ok(scaled)
        } else {
            Err(AuditError::field(
                self.path_of(name),
                factor.to_string(),
                format!("a factor that keeps {size} within 1 to {MAX_SIZE}"),
            ))
        }
    }

    /// A flag; numbers 0 and 1 are read too.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, AuditError> {
        match self.get(name) {
            None => Ok(None),
            Some(JsonValue::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => match as_u64(value) {
                Some(0) => Ok(Some(false)),
                Some(1) => Ok(Some(true)),
                _ => Err(self.field_error(name, value, "true or false")),
            },
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>, AuditError> {
        match self.get(name) {
            None => Ok(None),
            Some(JsonValue::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.field_error(name, value, "a string")),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [JsonValue]>, AuditError> {
        match self.get(name) {
            None => Ok(None),
            Some(value @ JsonValue::List(items)) if items.len() as u64 > MAX_LAYERS => {
                Err(self.field_error(name, value, &format!("at most {MAX_LAYERS} items")))
            }
            Some(JsonValue::List(items)) => Ok(Some(items)),
            Some(value) => Err(self.field_error(name, value, "a list")),
        }
    }

    /// A list of strings.
    pub(crate) fn strings(&self, name: &str) -> Result<Option<Vec<&'a str>>, AuditError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let string = |(index, item): (usize, &'a JsonValue)| match item {
            JsonValue::String(text) => Ok(text.as_str()),
            other => Err(self.field_error(&format!("{name}[{index}]"), other, "a string")),
        };
        items.iter().enumerate().map(string).collect::<Result<_, _>>().map(Some)
    }

    /// A list of whole numbers.
    pub(crate) fn numbers(&self, name: &str) -> Result<Option<Vec<u64>>, AuditError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let number = |(index, item): (usize, &JsonValue)| match (as_u64(item), item) {
            (Some(number), _) if number <= MAX_SIZE => Ok(number),
            (_, JsonValue::Bool(flag)) => Ok(u64::from(*flag)),
            _ => Err(self.field_error(&format!("{name}[{index}]"), item, &format!("a whole number up to {MAX_SIZE}"))),
        };
        items.iter().enumerate().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// Fails unless a list has one entry per layer.
    pub(crate) fn require_length(&self, name: &str, length: usize, num_layers: usize) -> Result<(), AuditError> {
        if length == num_layers {
            return Ok(());
        }
        let (first, second) = (self.path_of(name), self.path_of(self.num_layers_name().unwrap_or("num_hidden_layers")));
        let why = format!("the first has {length} entries, the second says {num_layers} layers");
        Err(AuditError::Contradiction { first, second, why })
    }

    /// The architecture's name, as the library that wrote the file calls it; never the model's own name.
    pub(crate) fn model_type(&self) -> Result<Option<&'a str>, AuditError> {
        Ok(self.string("model_type")?.or_else(|| self.root_model_type()))
    }

    /// The top-level object's `model_type`.
    pub(crate) fn root_model_type(&self) -> Option<&'a str> {
        if let Some(JsonValue::String(name)) = self.root.get("model_type") { Some(name) } else { None }
    }

    /// The first name under `architectures`.
    pub(crate) fn architecture(&self) -> Option<&'a str> {
        match self.get("architectures").or_else(|| self.root.get("architectures"))? {
            JsonValue::List(items) => match items.first()? {
                JsonValue::String(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The field that gives the number of layers.
    pub(crate) fn num_layers_name(&self) -> Option<&'static str> {
        NUM_LAYERS.into_iter().find(|name| self.has(name))
    }

    /// How many layers there are: from its own field, else from the length of a list with one entry per layer.
    pub(crate) fn num_layers(&self) -> Result<Option<usize>, AuditError> {
        if let Some(name) = self.num_layers_name() {
            let blocks = self.number(name, 1, MAX_LAYERS)?.unwrap_or_default();
            // GGUF counts the multi-token-prediction layers among its blocks.
            let mtp_layers = if self.gguf { self.count("nextn_predict_layers")?.unwrap_or_default() } else { 0 };
            if mtp_layers >= blocks {
                let name = "nextn_predict_layers";
                return Err(AuditError::field(
                    self.path_of(name),
                    mtp_layers.to_string(),
                    format!("fewer than {blocks} blocks"),
                ));
            }
            return Ok(Some((blocks - mtp_layers) as usize));
        }
        for name in LAYER_LISTS {
            match self.get(name) {
                Some(JsonValue::List(_)) => {
                    return Ok(self.list(name)?.map(<[JsonValue]>::len).filter(|&length| length > 0));
                }
                Some(JsonValue::String(text)) if text.len() as u64 <= MAX_LAYERS => return Ok(Some(text.len())),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The width of the residual stream.
    pub(crate) fn width(&self) -> Result<Option<u64>, AuditError> {
        self.first_size(&["hidden_size", "d_model", "n_embd", "embedding_length"])
    }
}

/// A whole number that is not negative: `4`, `4.0` and `4e0` are read, `4.5` and `-4` are not.
pub(crate) fn as_u64(value: &JsonValue) -> Option<u64> {
    let JsonValue::Number(text) = value else { return None };
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // Above 2^53 a float no longer represents every whole number.
    ((0.0..9.0e15).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}
