//! The arguments that every command about a stack takes.

use std::path::Path;

use anyhow::bail;
use rung_audit::{AuditOptions, preset_text};
use rung_theory::bound::certificate;
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};
use serde_json::Value;

use crate::output::audit_named;

/// Sizes of mixers whose own options do not give them.
#[derive(Debug, clap::Args)]
pub struct SizeOptions {
    /// Heads of mixers without their own option.
    #[arg(long, default_value_t = Defaults::default().heads, allow_negative_numbers = true, help_heading = "Sizes")]
    heads: u64,
    /// Width of a head.
    #[arg(long, default_value_t = Defaults::default().head_dim, allow_negative_numbers = true, help_heading = "Sizes")]
    head_dim: u64,
    /// Key/value heads, if fewer than heads.
    #[arg(long, allow_negative_numbers = true, help_heading = "Sizes")]
    kv_heads: Option<u64>,
    /// Width of the residual stream, if not heads times head-dim.
    #[arg(long, allow_negative_numbers = true, help_heading = "Sizes")]
    width: Option<u64>,
    /// Bits per number (of accumulators and states).
    #[arg(long, default_value_t = Defaults::default().bits, allow_negative_numbers = true, help_heading = "Sizes")]
    bits: u64,
    /// How message bits are counted: paper (2*H*d*p), register (H*(d+1)*p) or online (H*(d+2)*p).
    #[arg(long, default_value = "paper", help_heading = "Sizes")]
    message: MessageSizeConvention,
}

impl SizeOptions {
    /// The options as defaults of the stack grammar.
    fn defaults(&self) -> Defaults {
        Defaults {
            heads: self.heads,
            head_dim: self.head_dim,
            kv_heads: self.kv_heads,
            model_width: self.width,
            bits: self.bits,
        }
    }

    /// How bits are counted, for a certificate about bits that were given without a stack.
    pub fn conventions(&self) -> Value {
        certificate::conventions(&self.defaults(), self.message)
    }

    /// Resolves an argument: a stack, or a model by its preset, config, directory or GGUF file.
    ///
    /// # Errors
    /// The text is neither a stack nor a model; or a model has unknown layers, or is given together with options for sizes.
    pub fn resolve(&self, name: &str) -> anyhow::Result<ResolvedStack> {
        let (defaults, convention) = (self.defaults(), self.message);
        match Plan::parse(name, &defaults) {
            Ok(plan) => Ok(ResolvedStack { text: name.to_owned(), plan, defaults, convention }),
            Err(_) if is_model_name(name) => {
                if defaults != Defaults::default() {
                    bail!(
                        "{name}: its config has the sizes; --heads, --head-dim, --kv-heads, --width and --bits are for stacks"
                    );
                }
                let audit = audit_named(name, &AuditOptions::default())?;
                let (true, Some(plan)) = (audit.unknown_reasons.is_empty(), audit.plan) else {
                    bail!("{name}: {}", audit.unknown_reasons.join("; "));
                };
                let defaults = Defaults { model_width: Some(plan.width), ..defaults };
                Ok(ResolvedStack { text: plan.to_stack().to_string(), plan, defaults, convention })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a name is a model's. No mixer's name has a dash, a dot or a slash.
fn is_model_name(name: &str) -> bool {
    let has_no_stack_syntax = !name.contains(['{', '(', '*', ' ']);
    preset_text(name).is_some()
        || Path::new(name).exists()
        || has_no_stack_syntax && name.contains(['-', '.', '/', '\\'])
}

/// A stack with every size resolved.
#[derive(Debug)]
pub struct ResolvedStack {
    /// The stack as text; for a model with every size explicit.
    pub text: String,
    /// The layers.
    pub plan: Plan,
    /// Sizes that the text does not give.
    pub defaults: Defaults,
    /// How the bits of messages are counted.
    pub convention: MessageSizeConvention,
}

impl ResolvedStack {
    /// How bits are counted, for a certificate about this stack.
    pub fn conventions(&self) -> Value {
        certificate::conventions(&self.defaults, self.convention)
    }
}
