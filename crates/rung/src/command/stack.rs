//! The arguments that every command about a stack takes.

use rung_theory::bound::certificate;
use rung_theory::stack::{Convention, Defaults, Plan};
use serde_json::Value;

/// Sizes of mixers whose own options do not give them.
#[derive(Debug, clap::Args)]
pub struct Sizes {
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
    message: Convention,
}

impl Sizes {
    /// The defaults they stand for.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            heads: self.heads,
            head_dim: self.head_dim,
            kv_heads: self.kv_heads,
            model_width: self.width,
            bits: self.bits,
        }
    }

    /// How messages are counted.
    pub fn convention(&self) -> Convention {
        self.message
    }

    /// Resolves a stack.
    ///
    /// # Errors
    /// The text is no stack.
    pub fn plan(&self, text: &str) -> anyhow::Result<Plan> {
        Ok(Plan::parse(text, &self.defaults())?)
    }

    /// The conventions under which a certificate holds, to be carried along in it.
    pub fn conventions(&self) -> Value {
        certificate::conventions(&self.defaults(), self.message)
    }
}
