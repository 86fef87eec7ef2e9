//! The result of `rung check`: the claims of a certificate as sentences, each with its evidence.

use num_bigint::BigUint;
use serde_json::{Value, json};

use crate::bound::certificate;
use crate::bound::checker::{AcceptedClaim, Certificate, Inequality, Rejection, check, inequalities};
use crate::bound::explanation::{Basis, Claim};
use crate::bound::input::log2;

/// The result of checking a certificate.
#[derive(Debug)]
pub enum CheckAnswer {
    /// The text is not a certificate.
    Malformed(String),
    /// An inequality fails, or the certificate does not cover the stack that it names.
    Rejected {
        /// The parsed certificate.
        certificate: Box<Certificate>,
        /// The inequality that fails, or the difference from the stack.
        reason: String,
    },
    /// Every inequality holds.
    Accepted {
        /// The parsed certificate.
        certificate: Box<Certificate>,
        /// What the certificate proves.
        accepted: AcceptedClaim,
        /// Whether it names a stack, whose bits were counted again and are covered.
        stack_verified: bool,
    },
}

/// Checks the text of a certificate.
pub fn check_certificate(text: &str) -> CheckAnswer {
    let certificate = match certificate::read(text) {
        Ok(certificate) => Box::new(certificate),
        Err(error) => return CheckAnswer::Malformed(format!("malformed: {error}")),
    };
    match check(&certificate) {
        Ok(accepted) => match certificate::matches_named_stack(text, &certificate) {
            Ok(stack_verified) => CheckAnswer::Accepted { certificate, accepted, stack_verified },
            Err(reason) => CheckAnswer::Rejected { certificate, reason: format!("refused: {reason}") },
        },
        Err(rejection @ Rejection::Malformed(_)) => CheckAnswer::Malformed(rejection.to_string()),
        Err(rejection) => CheckAnswer::Rejected { certificate, reason: rejection.to_string() },
    }
}

impl CheckAnswer {
    /// The result as JSON.
    pub fn json(&self) -> Value {
        let rejection = |status: &str, reason: &str| json!({"status": status, "accepted": false, "reason": reason});
        match self {
            Self::Malformed(reason) => rejection("malformed", reason),
            Self::Rejected { reason, .. } => rejection("refused", reason),
            Self::Accepted { certificate, accepted, stack_verified } => json!({
                "status": "accepted",
                "accepted": true,
                "hops": certificate.hops,
                "theorem": certificate.theorem.name(),
                "machine_checked": Claim::OutOfReach.basis(certificate).is_machine_checked(),
                "needs_w_major_tables": certificate.needs_w_major(),
                "tokens": accepted.tokens.to_string(),
                "log2_tokens": log2(&accepted.tokens),
                "trivial": accepted.trivial,
                "message_bits": certificate.message_bits.to_string(),
                "state_bits": certificate.state_bits.iter().map(BigUint::to_string).collect::<Vec<_>>(),
                "stack_verified": stack_verified,
            }),
        }
    }

    /// The result as JSON, with the evidence for each sentence and the inequalities with their numbers.
    pub fn explained_json(&self) -> Value {
        let mut result = self.json();
        let (Self::Rejected { certificate, .. } | Self::Accepted { certificate, .. }) = self else { return result };
        let sentences = self.sentences();
        if sentences.is_empty() {
            let section = Claim::OutOfReach.basis(certificate).section;
            result["rests_on"] = json!({"file": "docs/proof.md", "section": section});
        } else {
            result["explanation"] = sentences
                .iter()
                .map(|(claim, sentence)| explanation_json(sentence, &claim.basis(certificate)))
                .collect();
        }
        result["inequalities"] = inequalities(certificate).iter().map(inequality_json).collect();
        result
    }

    /// The claims of an accepted certificate; empty for any other.
    pub fn sentences(&self) -> Vec<(Claim, String)> {
        let Self::Accepted { certificate, accepted, stack_verified } = self else { return Vec::new() };
        let states: Vec<String> = certificate.state_bits.iter().map(format_large_integer).collect();
        let hops = if certificate.hops == 1 { "1 hop is".to_owned() } else { format!("{} hops are", certificate.hops) };
        let full = certificate.state_bits.len() - 1;
        let layers = if full == 1 { "layer" } else { "layers" };
        let bits = format_large_integer(&certificate.message_bits);
        let mut sentences = vec![
            (
                Claim::OutOfReach,
                format!("{hops} out of reach for prompts of {} tokens", format_large_integer(&accepted.tokens)),
            ),
            (Claim::Messages, format!("of any stack with {full} full {layers}, messages of at most {bits} bits")),
            (Claim::States, format!("and states of at most {} bits between them", states.join(" | "))),
            (Claim::Inequalities, format!("by theorem `{}`", certificate.theorem.name())),
        ];
        if certificate.needs_w_major() {
            sentences.push((Claim::TableOrder, "for tables that list w as the major index".to_owned()));
        }
        sentences.push(if *stack_verified {
            (Claim::StackCounted, "its stack is one of these: the bits were counted again".to_owned())
        } else {
            let reason = "it names no stack, or not how its bits were counted: that part is not verified";
            (Claim::StackNotCounted, reason.to_owned())
        });
        if accepted.trivial {
            sentences.push((Claim::Trivial, "trivial: one message cannot even carry an answer".to_owned()));
        }
        sentences
    }

    /// The inequalities as text lines; empty for a malformed certificate.
    pub fn inequality_lines(&self) -> Vec<String> {
        let (Self::Rejected { certificate, .. } | Self::Accepted { certificate, .. }) = self else { return Vec::new() };
        inequalities(certificate).iter().map(inequality_line).collect()
    }
}

fn explanation_json(sentence: &str, basis: &Basis) -> Value {
    let lemmas: Vec<Value> =
        basis.lemmas.iter().map(|lemma| json!({"name": lemma.name, "file": format!("proof/{}", lemma.file)})).collect();
    json!({
        "sentence": sentence,
        "rests_on": {"file": "docs/proof.md", "section": basis.section},
        "machine_checked": basis.is_machine_checked(),
        "lemmas": lemmas,
        "missing": basis.missing,
        "trusted": basis.trusted,
    })
}

fn inequality_json(inequality: &Inequality) -> Value {
    let [left, relation, right] = &inequality.formula;
    json!({
        "left": left,
        "relation": relation,
        "right": right,
        "left_bits": inequality.left.as_ref().map(truncated_decimal),
        "right_bits": truncated_decimal(&inequality.right),
        "holds": inequality.holds,
    })
}

/// `Delta < D_L log N_(L-1): 1,042.000 < 1,044.387, holds`.
fn inequality_line(inequality: &Inequality) -> String {
    let [left, relation, right] = &inequality.formula;
    let format_side = |value: &BigUint| {
        let integer = value >> FRACTION_BITS;
        if integer.bits() > 59 { format_large_integer(&integer) } else { with_commas(&truncated_decimal(value)) }
    };
    let value = inequality.left.as_ref().map_or_else(|| "without limit".to_owned(), format_side);
    let holds = if inequality.holds { "holds" } else { "fails" };
    format!("{left} {relation} {right}: {value} {relation} {}, {holds}", format_side(&inequality.right))
}

/// Binary digits after the point of the sides of an inequality.
const FRACTION_BITS: u64 = 80;

/// A side of an inequality in decimal, truncated after three digits.
fn truncated_decimal(scaled: &BigUint) -> String {
    let thousandths: BigUint = (scaled * 1000_u32) >> FRACTION_BITS;
    format!("{}.{:03}", &thousandths / 1000_u32, u32::try_from(&thousandths % 1000_u32).unwrap_or(0))
}

fn with_commas(number: &str) -> String {
    let integer_digits = number.find('.').unwrap_or(number.len());
    let mut text = String::with_capacity(number.len() * 4 / 3);
    for (index, digit) in number.chars().enumerate() {
        if index > 0 && index < integer_digits && (integer_digits - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A readable number: with commas, or if it is long its first digits, their count, and the power of two.
pub fn format_large_integer(number: &BigUint) -> String {
    let digits = number.to_string();
    if digits.len() <= 18 {
        return with_commas(&digits);
    }
    format!("{}.. ({} digits, 2^{:.1})", &digits[..6], digits.len(), log2(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_truncated_not_rounded() {
        let scaled =
            (BigUint::from(1_234_567_u32) << FRACTION_BITS) + ((BigUint::from(9999_u32) << FRACTION_BITS) / 10_000_u32);
        assert_eq!(truncated_decimal(&scaled), "1234567.999");
        assert_eq!(with_commas(&truncated_decimal(&scaled)), "1,234,567.999");
        assert_eq!(truncated_decimal(&BigUint::ZERO), "0.000");
        assert_eq!(format_large_integer(&BigUint::from(1_234_567_u32)), "1,234,567");
    }
}
