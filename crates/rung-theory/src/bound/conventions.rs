//! The conventions under which a certificate counts a stack's bits.
//!
//! A certificate gives message and state bits. If it also names a stack, the bits of that stack are counted again under
//! the field `conventions`, and must not exceed the certificate's.

use serde_json::{Map, Value, json};

use super::certificate::{CertificateError, parse_object, wrong};
use super::checker::{Certificate, check};
use super::stack_bounds::StackBounds;
use crate::stack::{Defaults, MessageSizeConvention, Plan};

const SIZE_KEYS: [&str; 5] = ["heads", "head_dim", "kv_heads", "width", "bits_per_number"];
const STRING_KEYS: [&str; 4] = ["message", "message_formula", "attention", "table_order"];
/// The value of `table_order` for proofs that need tables with w as the major index.
pub(super) const W_MAJOR: &str = "w-major";

/// The parsed field `conventions`; every entry is optional.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conventions {
    message: Option<MessageSizeConvention>,
    heads: Option<u64>,
    head_dim: Option<u64>,
    kv_heads: Option<u64>,
    width: Option<u64>,
    bits: Option<u64>,
    /// Whether the certificate is about tables with w as the major index.
    pub(super) w_major: bool,
}

impl Conventions {
    /// Parses the field; an unknown key or a wrong type is an error.
    pub(super) fn read(value: &Value) -> Result<Self, CertificateError> {
        let Value::Object(entries) = value else { return Err(wrong("conventions", value, "an object")) };
        if let Some(name) =
            entries.keys().find(|name| !SIZE_KEYS.contains(&name.as_str()) && !STRING_KEYS.contains(&name.as_str()))
        {
            return Err(CertificateError::Unknown(format!("conventions.{}", super::certificate::shorten(name))));
        }
        let message = string(entries, "message")?;
        let message = message
            .map(str::parse::<MessageSizeConvention>)
            .transpose()
            .map_err(|_| wrong("conventions.message", &entries["message"], "paper, register or online"))?;
        let formula = string(entries, "message_formula")?;
        if formula.is_some_and(|formula| message.is_none_or(|message| message.formula() != formula)) {
            let expected = "the formula of conventions.message";
            return Err(wrong("conventions.message_formula", &entries["message_formula"], expected));
        }
        string(entries, "attention")?;
        if string(entries, "table_order")?.is_some_and(|order| order != W_MAJOR) {
            return Err(wrong("conventions.table_order", &entries["table_order"], "w-major"));
        }
        Ok(Self {
            message,
            heads: size(entries, "heads")?,
            head_dim: size(entries, "head_dim")?,
            kv_heads: nullable_size(entries, "kv_heads")?,
            width: nullable_size(entries, "width")?,
            bits: size(entries, "bits_per_number")?,
            w_major: entries.contains_key("table_order"),
        })
    }

    /// The stack's default sizes and the message convention, if all of them are given.
    fn defaults(&self) -> Option<(Defaults, MessageSizeConvention)> {
        let defaults = Defaults {
            heads: self.heads?,
            head_dim: self.head_dim?,
            kv_heads: self.kv_heads,
            model_width: self.width,
            bits: self.bits?,
        };
        Some((defaults, self.message?))
    }
}

fn string<'a>(entries: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, CertificateError> {
    match entries.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(&format!("conventions.{name}"), other, "a string")),
    }
}

/// A size that may be null, which stands for its default.
fn nullable_size(entries: &Map<String, Value>, name: &str) -> Result<Option<u64>, CertificateError> {
    if entries.get(name).is_some_and(Value::is_null) { Ok(None) } else { size(entries, name) }
}

/// A whole number of at least 1; none if the field is missing.
fn size(entries: &Map<String, Value>, name: &str) -> Result<Option<u64>, CertificateError> {
    match entries.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|&size| size > 0) {
            Some(size) => Ok(Some(size)),
            None => Err(wrong(&format!("conventions.{name}"), value, "a whole number of at least 1")),
        },
    }
}

/// The conventions under which a stack's bits were counted, as the field `conventions` of a certificate.
pub fn conventions(defaults: &Defaults, message: MessageSizeConvention) -> Value {
    json!({
        "message": message.name(),
        "message_formula": message.formula(),
        "heads": defaults.heads,
        "head_dim": defaults.head_dim,
        "kv_heads": defaults.kv_heads,
        "width": defaults.model_width,
        "bits_per_number": defaults.bits,
        "attention": "sums run from left to right in registers, or exactly; one causal forward pass; any weights",
    })
}

/// Whether a certificate covers the stack that it names: the stack's bits, counted again, must not exceed the certificate's.
///
/// Returns false if the text names no stack.
///
/// # Errors
/// The stack cannot be parsed, it has more bits than the certificate, or the instance is longer than the prompts for which
/// the stack's bits were counted.
pub fn matches_named_stack(text: &str, certificate: &Certificate) -> Result<bool, String> {
    let fields = parse_object(text).map_err(|error| error.to_string())?;
    let (Some(Value::String(stack)), Some(conventions)) = (fields.get("stack"), fields.get("conventions")) else {
        return Ok(false);
    };
    if stack.is_empty() {
        return Ok(false);
    }
    let conventions = Conventions::read(conventions).map_err(|error| error.to_string())?;
    let Some((defaults, message)) = conventions.defaults() else {
        return Err("field `conventions` does not say how the bits of `stack` were counted".to_owned());
    };
    let plan = Plan::parse(stack, &defaults).map_err(|error| format!("field `stack`: {error}"))?;
    let accepted = check(certificate).map_err(|rejection| rejection.to_string())?;
    StackBounds::new(&plan, message).confirm(certificate, &accepted).map(|()| true)
}
