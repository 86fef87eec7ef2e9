//! Results as JSON, shared by the program and the web page.
//!
//! Integers that may exceed 64 bits are numbers if they fit and decimal strings if not.

mod check;

pub use check::{CheckAnswer, check_certificate, format_large_integer};
use serde_json::{Value, json};

use crate::bound::certificate;
use crate::bound::hop_map::HopMapRow;
use crate::bound::input::BoundInput;
use crate::bound::papers;
use crate::bound::search::CheckedCertificate;
use crate::bound::stack_bounds::LowerBound;
use crate::stack::capacity::LayerBlock;
use crate::stack::{Defaults, MessageSizeConvention, Plan};

/// An integer as JSON: a number, or a decimal string if it exceeds 64 bits.
pub fn integer(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value.to_string()), |small| json!(small))
}

/// The capacity of a stack: full layers, blocks, the extra hop and rungs. Layers are numbered from 0.
pub fn capacity(stack: &str, plan: &Plan, defaults: &Defaults, convention: MessageSizeConvention) -> Value {
    let capacity = plan.capacity_with(convention);
    let block = |(e, block): (usize, &LayerBlock)| json!({"block": e, "layers": block.layers, "state_bits": integer(block.state_bits)});
    json!({
        "stack": stack,
        "layers": plan.layers.len(),
        "full": capacity.full_layers,
        "extra_hop": capacity.extra_hop,
        "earned_by": capacity.extra_hop_layers,
        "reason": capacity.reason(),
        "rungs": capacity.rungs,
        "at_most": capacity.rungs,
        "at_least": capacity.constructed_hops,
        "blocks": capacity.blocks.iter().enumerate().map(block).collect::<Vec<_>>(),
        "state_bits": capacity.state_bits().into_iter().map(integer).collect::<Vec<_>>(),
        "beside_bits": capacity.parallel_bits.iter().copied().map(integer).collect::<Vec<_>>(),
        "message_bits": integer(capacity.message_bits),
        "message_formula": plan.message_formula(convention),
        "conventions": certificate::conventions(defaults, convention),
    })
}

/// One row of a hop map as JSON.
pub fn hop_map_row(row: &HopMapRow) -> Value {
    json!({
        "hops": row.hops,
        "solved_all_up_to_log2_tokens": row.longest_with_all_tables_solved.map(|solved| solved.log2_tokens),
        "construction": row.longest_with_all_tables_solved.map(|solved| solved.construction),
        "solved_some_up_to_log2_tokens": row.longest_with_some_tables_solved.map(|solved| solved.log2_tokens),
        "construction_of_some": row.longest_with_some_tables_solved.map(|solved| solved.construction),
        "impossible_some_from_log2_tokens": row.impossibility_certificate.as_ref().map(CheckedCertificate::log2_tokens),
        "trivial": row.impossibility_certificate.as_ref().map(|checked| checked.accepted.trivial),
    })
}

/// The answer to "from how many tokens on is this number of hops impossible?".
#[derive(Debug)]
pub struct BoundAnswer {
    /// `solved`, `impossible` or `unknown`.
    pub verdict: &'static str,
    /// The reason for the verdict.
    pub reason: &'static str,
    /// The smallest certificate, if there is one.
    pub smallest_certificate: Option<CheckedCertificate>,
    /// The same certificate as the JSON of a file.
    pub certificate: Option<Value>,
    /// log2 of the tokens from which the published proof applies, with the papers' parameters.
    pub published_log2_tokens: Option<f64>,
    /// The same by the papers' closed form.
    pub closed_form_log2_tokens: Option<f64>,
}

/// A request for the smallest certificate.
#[derive(Debug)]
pub struct BoundRequest<'a> {
    /// The search input; none if the hops are within the stack's rungs.
    pub input: Option<BoundInput>,
    /// The resolved stack; none if the bits were given directly.
    pub plan: Option<&'a Plan>,
    /// Heads times head width times bits per number of the largest full layer.
    pub heads_dim_bits: Option<u128>,
    /// Number of hops.
    pub hops: usize,
    /// The stack as typed; may be empty.
    pub stack: &'a str,
    /// The conventions for counting bits, as JSON.
    pub conventions: Value,
}

impl BoundRequest<'_> {
    /// Searches for the smallest certificate.
    pub fn answer(&self) -> BoundAnswer {
        let bound = LowerBound::smallest(self.input.as_ref(), self.plan.and_then(Plan::log2_context));
        let (verdict, reason) = (bound.verdict(), bound.reason());
        let smallest_certificate = bound.into_certificate();
        let certificate = smallest_certificate
            .as_ref()
            .map(|checked| certificate::write(&checked.certificate, self.stack, &self.conventions));
        let case = smallest_certificate.as_ref().map(|checked| checked.certificate.case);
        let sizes = self.heads_dim_bits.zip(case);
        let published_log2_tokens = sizes.map(|(bits, _)| papers::published_log2_tokens(bits, self.hops));
        let closed_form_log2_tokens = sizes.map(|(bits, case)| papers::closed_form_log2_tokens(bits, self.hops, case));
        BoundAnswer {
            verdict,
            reason,
            smallest_certificate,
            certificate,
            published_log2_tokens,
            closed_form_log2_tokens,
        }
    }

    /// An answer as JSON.
    pub fn json(&self, answer: &BoundAnswer) -> Value {
        let smallest = answer.smallest_certificate.as_ref();
        json!({
            "verdict": answer.verdict,
            "reason": answer.reason,
            "stack": self.stack,
            "hops": self.hops,
            "log2_tokens": smallest.map(CheckedCertificate::log2_tokens),
            "tokens": smallest.map(|checked| checked.accepted.tokens.to_string()),
            "trivial": smallest.map(|checked| checked.accepted.trivial),
            "papers_log2_tokens": answer.published_log2_tokens,
            "papers_closed_form_log2_tokens": answer.closed_form_log2_tokens,
            "theorem": smallest.map(|checked| checked.certificate.theorem.name()),
            "certificate": answer.certificate,
        })
    }
}

/// Heads times head width times bits of the largest full layer, as the papers count it; none without full layers.
pub fn heads_dim_bits(plan: &Plan) -> Option<u128> {
    let message_bits = plan.message_bits(MessageSizeConvention::Paper);
    (message_bits > 0).then_some(message_bits / 2)
}
