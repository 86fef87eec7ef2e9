//! Audits the model of a request.

use rung_audit::{Audit, AuditOptions, Dtype, audit_bytes, audit_preset, audit_stack, audit_text, what_if};
use rung_theory::stack::{Defaults, Plan};

use crate::error_text;
use crate::request::{ModelInput, StackInput};

/// A result whose error is a message for users.
pub(crate) type WebResult<T> = Result<T, String>;

/// Parses a number format; nothing if the name is missing or empty.
pub(crate) fn dtype(name: Option<&str>) -> WebResult<Option<Dtype>> {
    name.filter(|name| !name.is_empty()).map(|name| name.parse().map_err(error_text)).transpose()
}

/// Audit options without a search of lower bounds.
pub(crate) fn options(context: Option<u64>, kv: Option<&str>, state: Option<&str>) -> WebResult<AuditOptions<'static>> {
    let default = AuditOptions::default();
    Ok(AuditOptions {
        context: context.unwrap_or(default.context),
        kv_dtype: dtype(kv)?.unwrap_or(default.kv_dtype),
        state_dtype: dtype(state)?,
        bound_searcher: None,
    })
}

impl StackInput {
    /// Default sizes for mixers that do not give their own.
    pub(crate) fn defaults(&self) -> Defaults {
        let default = Defaults::default();
        Defaults {
            heads: self.heads.unwrap_or(default.heads),
            head_dim: self.head_dim.unwrap_or(default.head_dim),
            kv_heads: self.kv_heads,
            model_width: self.width,
            bits: self.bits.unwrap_or(default.bits),
        }
    }

    /// The resolved stack.
    pub(crate) fn plan(&self) -> WebResult<Plan> {
        Plan::parse(&self.text, &self.defaults()).map_err(error_text)
    }
}

impl ModelInput {
    /// Audits the model without edits.
    pub(crate) fn audit(&self, file: &[u8], options: &AuditOptions) -> WebResult<Audit> {
        match self {
            Self::Preset(name) => audit_preset(name, options),
            Self::Config { text, name } => audit_text(text, name, options),
            Self::Stack(stack) => audit_stack(&stack.text, &stack.defaults(), options),
            Self::File { name } => audit_bytes(file, name, options),
        }
        .map_err(error_text)
    }

    /// Audits the model with edits.
    pub(crate) fn audit_edited(&self, file: &[u8], edits: &str, options: &AuditOptions) -> WebResult<Audit> {
        let audit = self.audit(file, options)?;
        if edits.is_empty() { Ok(audit) } else { what_if::apply(&audit, edits, options).map_err(error_text) }
    }
}
