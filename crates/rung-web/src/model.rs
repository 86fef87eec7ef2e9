//! From a request's model to an audit.

use rung_audit::{Audit, AuditOptions, Dtype, audit_bytes, audit_preset, audit_stack, audit_text, what_if};
use rung_theory::stack::{Defaults, Plan};

use crate::request::{ModelInput, StackInput};
use crate::sentence;

/// Errors are sentences for people.
pub(crate) type Answer<T> = Result<T, String>;

/// A number format, where one is named.
pub(crate) fn dtype(name: Option<&str>) -> Answer<Option<Dtype>> {
    name.filter(|name| !name.is_empty()).map(|name| name.parse().map_err(sentence)).transpose()
}

/// Settings without the search of bounds.
pub(crate) fn options(context: Option<u64>, kv: Option<&str>, state: Option<&str>) -> Answer<AuditOptions<'static>> {
    let plain = AuditOptions::default();
    Ok(AuditOptions {
        context: context.unwrap_or(plain.context),
        kv_dtype: dtype(kv)?.unwrap_or(plain.kv_dtype),
        state_dtype: dtype(state)?,
        bound_oracle: None,
    })
}

impl StackInput {
    /// Sizes of mixers that do not give their own.
    pub(crate) fn defaults(&self) -> Defaults {
        let plain = Defaults::default();
        Defaults {
            heads: self.heads.unwrap_or(plain.heads),
            head_dim: self.head_dim.unwrap_or(plain.head_dim),
            kv_heads: self.kv_heads,
            model_width: self.width,
            bits: self.bits.unwrap_or(plain.bits),
        }
    }

    /// The resolved stack.
    pub(crate) fn plan(&self) -> Answer<Plan> {
        Plan::parse(&self.text, &self.defaults()).map_err(sentence)
    }
}

impl ModelInput {
    /// The audit of the model as it is.
    pub(crate) fn audit(&self, file: &[u8], options: &AuditOptions) -> Answer<Audit> {
        match self {
            Self::Preset(name) => audit_preset(name, options),
            Self::Config { text, name } => audit_text(text, name, options),
            Self::Stack(stack) => audit_stack(&stack.text, &stack.defaults(), options),
            Self::File { name } => audit_bytes(file, name, options),
        }
        .map_err(sentence)
    }

    /// The audit after edits.
    pub(crate) fn edited(&self, file: &[u8], edits: &str, options: &AuditOptions) -> Answer<Audit> {
        let audit = self.audit(file, options)?;
        if edits.is_empty() { Ok(audit) } else { what_if::apply(&audit, edits, options).map_err(sentence) }
    }
}
