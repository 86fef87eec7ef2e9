//! The conventions under which a certificate counts a stack's bits, and the comparison of both.
//!
//! A certificate speaks of message and state bits. Where it also names a stack, the bits of that stack are counted again under
//! the conventions beside it, and must not exceed the certificate's.

use serde_json::{Map, Value, json};

use super::certificate::{CertificateError, fields, wrong};
use super::checker::{Certificate, check};
use super::stack_bounds::StackBounds;
use crate::stack::{Convention, Defaults, Plan};

const SIZES: [&str; 5] = ["heads", "head_dim", "kv_heads", "width", "bits_per_number"];
const TEXTS: [&str; 4] = ["message", "message_formula", "attention", "table_order"];
/// What `table_order` says where the proof needs tables that list w as the major index.
pub(super) const W_MAJOR: &str = "w-major";

/// What the field `conventions` says; every part may be absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conventions {
    message: Option<Convention>,
    heads: Option<u64>,
    head_dim: Option<u64>,
    kv_heads: Option<u64>,
    width: Option<u64>,
    bits: Option<u64>,
    /// The certificate is about tables that list w as the major index.
    pub(super) w_major: bool,
}

impl Conventions {
    /// Reads the field; an unknown key or a wrong type is an error.
    pub(super) fn read(value: &Value) -> Result<Self, CertificateError> {
        let Value::Object(entries) = value else { return Err(wrong("conventions", value, "an object")) };
        if let Some(name) =
            entries.keys().find(|name| !SIZES.contains(&name.as_str()) && !TEXTS.contains(&name.as_str()))
        {
            return Err(CertificateError::Unknown(format!("conventions.{}", super::certificate::shorten(name))));
        }
        let message = text(entries, "message")?;
        let message = message
            .map(str::parse::<Convention>)
            .transpose()
            .map_err(|_| wrong("conventions.message", &entries["message"], "paper, register or online"))?;
        let formula = text(entries, "message_formula")?;
        if formula.is_some_and(|formula| message.is_none_or(|message| message.formula() != formula)) {
            let expected = "the formula of conventions.message";
            return Err(wrong("conventions.message_formula", &entries["message_formula"], expected));
        }
        text(entries, "attention")?;
        if text(entries, "table_order")?.is_some_and(|order| order != W_MAJOR) {
            return Err(wrong("conventions.table_order", &entries["table_order"], "w-major"));
        }
        Ok(Self {
            message,
            heads: size(entries, "heads", false)?,
            head_dim: size(entries, "head_dim", false)?,
            kv_heads: size(entries, "kv_heads", true)?,
            width: size(entries, "width", true)?,
            bits: size(entries, "bits_per_number", false)?,
            w_major: entries.contains_key("table_order"),
        })
    }

    /// The stack's default sizes and the message convention, if all that is needed was said.
    fn defaults(&self) -> Option<(Defaults, Convention)> {
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

fn text<'a>(entries: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, CertificateError> {
    match entries.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(&format!("conventions.{name}"), other, "a string")),
    }
}

/// A whole number from 1 on, or null where the size has a default.
fn size(entries: &Map<String, Value>, name: &str, nullable: bool) -> Result<Option<u64>, CertificateError> {
    match entries.get(name) {
        None => Ok(None),
        Some(Value::Null) if nullable => Ok(None),
        Some(value) => match value.as_u64().filter(|&size| size > 0) {
            Some(size) => Ok(Some(size)),
            None => Err(wrong(&format!("conventions.{name}"), value, "a whole number of at least 1")),
        },
    }
}

/// The conventions under which a stack's bits were counted, as a certificate carries them.
pub fn conventions(defaults: &Defaults, message: Convention) -> Value {
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

/// Whether the numbers of a certificate are those of the stack it names: bits counted anew must not exceed the certificate's.
///
/// Answers false where the text names no stack.
///
/// # Errors
/// The stack cannot be read, the certificate says less than its stack needs, or the instance is longer than the prompts for which
/// the stack's bits were counted.
pub fn names_its_stack(text: &str, certificate: &Certificate) -> Result<bool, String> {
    let fields = fields(text).map_err(|error| error.to_string())?;
    let (Some(Value::String(stack)), Some(counted)) = (fields.get("stack"), fields.get("conventions")) else {
        return Ok(false);
    };
    if stack.is_empty() {
        return Ok(false);
    }
    let counted = Conventions::read(counted).map_err(|error| error.to_string())?;
    let Some((defaults, message)) = counted.defaults() else {
        return Err("field `conventions` does not say how the bits of `stack` were counted".to_owned());
    };
    let plan = Plan::parse(stack, &defaults).map_err(|error| format!("field `stack`: {error}"))?;
    let accepted = check(certificate).map_err(|refusal| refusal.to_string())?;
    StackBounds::new(&plan, message).confirm(certificate, &accepted).map(|()| true)
}
