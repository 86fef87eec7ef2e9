//! Answers as JSON, in the form that the program prints and the web page reads: one place, so that both say the same.
//!
//! Counts that may outgrow 64 bits are written as numbers where they fit and as decimal strings where they do not.

mod check;

pub use check::{CheckAnswer, brief, check_certificate};
use serde_json::{Value, json};

use crate::bound::certificate;
use crate::bound::hop_map::Rung;
use crate::bound::input::BoundInput;
use crate::bound::papers;
use crate::bound::search::CheckedCertificate;
use crate::bound::stack_bounds::LowerBound;
use crate::stack::capacity::LayerBlock;
use crate::stack::{Convention, Defaults, Plan};

/// A whole number as JSON, exact however large.
pub fn integer(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value.to_string()), |small| json!(small))
}

/// Full layers, blocks, the extra hop and rungs of a stack. Layers are numbered from 0.
pub fn capacity(stack: &str, plan: &Plan, defaults: &Defaults, convention: Convention) -> Value {
    let capacity = plan.capacity_with(convention);
    let block = |(e, block): (usize, &LayerBlock)| json!({"block": e, "layers": block.layers, "state_bits": integer(block.state_bits)});
    json!({
        "stack": stack,
        "layers": plan.layers.len(),
        "full": capacity.full,
        "extra_hop": capacity.extra_hop,
        "earned_by": capacity.earned_by,
        "reason": capacity.reason(),
        "rungs": capacity.rungs,
        "at_most": capacity.rungs,
        "at_least": capacity.at_least,
        "blocks": capacity.blocks.iter().enumerate().map(block).collect::<Vec<_>>(),
        "state_bits": capacity.state_bits().into_iter().map(integer).collect::<Vec<_>>(),
        "beside_bits": capacity.parallel_bits.iter().copied().map(integer).collect::<Vec<_>>(),
        "message_bits": integer(capacity.message_bits),
        "message_formula": plan.message_formula(convention),
        "conventions": certificate::conventions(defaults, convention),
    })
}

/// One row of a hop map.
pub fn rung(rung: &Rung) -> Value {
    json!({
        "hops": rung.hops,
        "solved_all_up_to_log2_tokens": rung.solved_all.map(|solved| solved.log2_tokens),
        "construction": rung.solved_all.map(|solved| solved.construction),
        "solved_some_up_to_log2_tokens": rung.solved_some.map(|solved| solved.log2_tokens),
        "construction_of_some": rung.solved_some.map(|solved| solved.construction),
        "impossible_some_from_log2_tokens": rung.impossible.as_ref().map(CheckedCertificate::log2_tokens),
        "trivial": rung.impossible.as_ref().map(|found| found.accepted.trivial),
    })
}

/// The answer to "from how many tokens on are so many hops impossible?".
#[derive(Debug)]
pub struct BoundAnswer {
    /// `solved`, `impossible` or `unknown`.
    pub verdict: &'static str,
    /// Why, in a sentence.
    pub reason: &'static str,
    /// The smallest certificate, if there is one.
    pub found: Option<CheckedCertificate>,
    /// The same as the content of a file.
    pub certificate: Option<Value>,
    /// Base-2 logarithm of the tokens that the published proof's own parameters need.
    pub papers: Option<f64>,
    /// The same by its closed formula.
    pub closed_form: Option<f64>,
}

/// What a bound is asked about.
#[derive(Debug)]
pub struct BoundRequest<'a> {
    /// Nothing where the hops are within the stack's rungs.
    pub input: Option<BoundInput>,
    /// The resolved stack; nothing where the bits were given directly.
    pub plan: Option<&'a Plan>,
    /// Heads times head width times bits of the largest full layer.
    pub heads_dim_bits: Option<u128>,
    /// Hops.
    pub hops: usize,
    /// The stack as typed; may be empty.
    pub stack: &'a str,
    /// How bits were counted.
    pub conventions: Value,
}

impl BoundRequest<'_> {
    /// Searches for the smallest certificate.
    pub fn answer(&self) -> BoundAnswer {
        let bound = LowerBound::smallest(self.input.as_ref(), self.plan.and_then(Plan::log2_context));
        let (verdict, reason) = (bound.word(), bound.reason());
        let found = bound.into_certificate();
        let certificate =
            found.as_ref().map(|found| certificate::write(&found.certificate, self.stack, &self.conventions));
        let case = found.as_ref().map(|found| found.certificate.case);
        let sizes = self.heads_dim_bits.zip(case);
        let papers = sizes.map(|(bits, _)| papers::own_parameters(bits, self.hops));
        let closed_form = sizes.map(|(bits, case)| papers::closed_form(bits, self.hops, case));
        BoundAnswer { verdict, reason, found, certificate, papers, closed_form }
    }

    /// An answer as JSON.
    pub fn json(&self, answer: &BoundAnswer) -> Value {
        let found = answer.found.as_ref();
        json!({
            "verdict": answer.verdict,
            "reason": answer.reason,
            "stack": self.stack,
            "hops": self.hops,
            "log2_tokens": found.map(CheckedCertificate::log2_tokens),
            "tokens": found.map(|found| found.accepted.tokens.to_string()),
            "trivial": found.map(|found| found.accepted.trivial),
            "papers_log2_tokens": answer.papers,
            "papers_closed_form_log2_tokens": answer.closed_form,
            "theorem": found.map(|found| found.certificate.theorem.name()),
            "certificate": answer.certificate,
        })
    }
}

/// Heads times head width times bits of the largest full layer, as the papers count it; none without full layers.
pub fn heads_dim_bits(plan: &Plan) -> Option<u128> {
    let paper = plan.message_bits(Convention::Paper);
    (paper > 0).then_some(paper / 2)
}
