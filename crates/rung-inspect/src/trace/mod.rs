//! Traces of a forward pass: which token reads which in every layer, and what the registers hold.
//!
//! A register is a named slice of the residual stream of a construction. [`AnswerTrace`] combines a recorded forward pass with the names of
//! registers and tokens, limited to the tokens that the answer came from. It is plain data that serialises to JSON;
//! [`text`](AnswerTrace::text), [`svg`](rung_figure::figure::Chart::svg) and [`html`](AnswerTrace::html) render it.

mod draw;
mod page;
mod text;

use rung_engine::Scalar;
use rung_nn::ModelError;
use rung_nn::Network;
use rung_nn::construct::{Register, RegisterKind};
use rung_nn::memory::{self, BatchShape};
use rung_nn::trace::{Flow, MixingKind, Trace, full_sequence};
use rung_theory::stack::Mixer;
use rung_theory::task::{NO_TARGET, OracleError, TokenNames};
use serde::Serialize;

use crate::analysis::text_prompts::TextPrompt;

/// Limits on what a trace shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceLimits {
    /// Reads with a smaller share of a head's output are not followed back.
    pub min_share: f64,
    /// The largest number of shown tokens.
    pub max_tokens: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { min_share: 0.05, max_tokens: 12 }
    }
}

/// The part of a forward pass that an answer came from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnswerTrace {
    /// Name of the network.
    pub name: String,
    /// The network's task.
    pub task: String,
    /// Whether the weights were constructed. Only then the residual stream has registers.
    pub constructed: bool,
    /// Number of tokens, including those of a chain of thought.
    #[serde(rename = "tokens")]
    pub token_count: usize,
    /// Position of the token that answers.
    pub position: usize,
    /// The network's answer.
    pub answer: u32,
    /// The right answer, by the task's oracle.
    pub expected: Option<u32>,
    /// The tokens that are shown, in order.
    #[serde(rename = "shown")]
    pub shown_tokens: Vec<ShownToken>,
    /// Reads and register changes, layer by layer.
    pub layers: Vec<LayerTrace>,
    /// Reads with a smaller share of a head's output were not followed back.
    #[serde(rename = "least_share")]
    pub min_share: f64,
    /// Number of tokens left out by [`TraceLimits::max_tokens`] although their share is large enough.
    #[serde(rename = "crowded_out")]
    pub tokens_over_limit: usize,
    /// The largest difference between the outputs of the layers and the recorded weights times the values.
    pub mismatch: f64,
}

/// A token that is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownToken {
    /// Position in the sequence, from 0.
    pub position: usize,
    /// The token as text.
    #[serde(rename = "says")]
    pub text: String,
    /// Registers of its embedding, before the first layer.
    pub registers: Vec<RegisterValue>,
}

/// Reads and register changes of one layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerTrace {
    /// Names of its mixers.
    pub mixers: String,
    /// The construction's description of the layer; empty for trained networks.
    #[serde(rename = "about")]
    pub description: String,
    /// Reads between the shown tokens.
    #[serde(rename = "reads")]
    pub edges: Vec<ReadEdge>,
    /// The tokens that the answer depends on here, with their changed registers.
    #[serde(rename = "learned")]
    pub register_changes: Vec<RegisterChange>,
}

/// A read of one token by another, through attention, a recurrent state or a convolution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadEdge {
    /// `attention`, `state` or `convolution`.
    #[serde(rename = "through")]
    pub mechanism: &'static str,
    /// The head.
    pub head: usize,
    /// The token that is read.
    pub from: usize,
    /// The token that reads.
    pub to: usize,
    /// The share of the head's output that comes from the token that is read.
    pub share: f64,
}

/// The registers that a layer changed at a token, if the answer depends on the layer's output there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegisterChange {
    /// The token.
    pub position: usize,
    /// Registers that the layer changed.
    pub registers: Vec<RegisterValue>,
    /// The largest share of a head that comes from tokens not shown.
    #[serde(rename = "elsewhere")]
    pub omitted_share: f64,
}

/// The name and the value of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterValue {
    /// Name of the register.
    pub register: String,
    /// The decoded value as text.
    pub value: String,
    /// Whether the value is a mixer's output before it is rounded to bits.
    #[serde(rename = "raw")]
    pub unrounded: bool,
}

/// Why a trace fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerTraceError {
    /// The network cannot run on the tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task's oracle cannot answer the tokens.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// No such token.
    #[error("position {found}: the sequence has {tokens} tokens, counted from 0")]
    NoSuchPosition {
        /// The requested position.
        found: usize,
        /// Number of tokens.
        tokens: usize,
    },
}

impl AnswerTrace {
    /// Runs a network on a prompt of its task, and follows the answer at `position` (default: the last question) back to the tokens it
    /// came from.
    ///
    /// # Errors
    /// The tokens are not a prompt of the task or too many, or there is no such position.
    pub fn record<S: Scalar>(
        name: &str,
        network: &Network<S>,
        prompt: &[u32],
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, AnswerTraceError> {
        let targets = network.task()?.oracle(prompt)?;
        let tokens = full_sequence(network, prompt)?;
        let names = TokenNames::new(network.task()?);
        let token_texts: Vec<String> = tokens.chunks_exact(names.ids_per_token()).map(|ids| names.name(ids)).collect();
        let task = network.task()?.spec();
        Self::trace_back((name, task), network, (&tokens, &token_texts, &targets), position, limits)
    }

    /// Runs an external checkpoint on a text prompt, and follows the prediction at `position` (default: the last token) back.
    ///
    /// # Errors
    /// There are too many tokens, or there is no such position.
    pub fn record_text<S: Scalar>(
        network: &Network<S>,
        prompt: &TextPrompt,
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, AnswerTraceError> {
        let position = position.or(prompt.tokens.len().checked_sub(1));
        let sequence = (&prompt.tokens[..], &prompt.token_texts[..], &prompt.targets()[..]);
        Self::trace_back((&network.name, "a text prompt".to_owned()), network, sequence, position, limits)
    }

    /// Follows the answer at a position back. `token_texts` and `targets` are the text and the expected answer of every token.
    fn trace_back<S: Scalar>(
        (name, task): (&str, String),
        network: &Network<S>,
        (tokens, token_texts, targets): (&[u32], &[String], &[u32]),
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, AnswerTraceError> {
        let token_count = token_texts.len();
        let batch = BatchShape { prompts: 1, tokens: token_count };
        network.check_inference_memory("the trace", batch).map_err(ModelError::Memory)?;
        let attention_bytes = memory::attention_weight_bytes(&network.plan, token_count);
        memory::check(format!("the trace: every pair of {token_count} tokens"), attention_bytes, None)
            .map_err(ModelError::Memory)?;
        let trace = Trace::record(network, tokens)?;
        let chain_of_thought = network.chain_of_thought();
        let last_question = targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(targets.len() - 1);
        let last_answer = if chain_of_thought.is_some() { trace.token_count() - 1 } else { last_question };
        let answer_position = position.unwrap_or(last_answer);
        if answer_position >= trace.token_count() {
            return Err(AnswerTraceError::NoSuchPosition { found: answer_position, tokens: trace.token_count() });
        }
        // A token of a chain of thought is the output of the token before it, so all of them are followed back too.
        let first = if chain_of_thought.is_some() { answer_position.min(targets.len() - 1) } else { answer_position };
        let flow = trace.flow(&(first..=answer_position).collect::<Vec<_>>(), limits.min_share, limits.max_tokens);
        let logits = trace.logits(answer_position);
        let answer = match chain_of_thought {
            Some(chain) => chain.argmax_token(logits)[chain.answer_field],
            None => {
                (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best }) as u32
            }
        };
        let expected =
            if answer_position == last_answer { targets.get(last_question) } else { targets.get(answer_position) };
        let shown_tokens = flow.tokens.iter().map(|&position| ShownToken {
            position,
            text: token_texts[position].clone(),
            registers: register_values(network, None, trace.residual(0, position)),
        });
        Ok(Self {
            name: name.to_owned(),
            task,
            constructed: network.construction().is_some(),
            token_count: trace.token_count(),
            position: answer_position,
            answer,
            expected: expected.copied().filter(|target| *target != NO_TARGET),
            shown_tokens: shown_tokens.collect(),
            layers: (0..trace.layers.len()).map(|layer| layer_trace(network, &trace, &flow, layer)).collect(),
            min_share: limits.min_share,
            tokens_over_limit: flow.omitted_tokens,
            mismatch: flow.mismatch,
        })
    }

    /// The number of tokens that are not shown.
    pub fn hidden_tokens(&self) -> usize {
        self.token_count - self.shown_tokens.len()
    }

    /// A shown token as text.
    fn token_text(&self, position: usize) -> &str {
        self.shown_tokens.iter().find(|token| token.position == position).map_or("", |token| &token.text)
    }

    /// How many tokens are shown and how many left out, in a sentence.
    pub fn scope_sentence(&self) -> String {
        let others = match self.hidden_tokens() {
            0 => return format!("All {} tokens are shown.", self.token_count),
            1 => "1 other token is".to_owned(),
            count => format!("{count} other tokens are"),
        };
        let percent = percent(self.min_share);
        let text = format!(
            "Shown are the {} of {} tokens that the answer came from; {others} left out, as reads of less than {percent} are not followed",
            self.shown_tokens.len(),
            self.token_count
        );
        if self.tokens_over_limit > 0 {
            let more = self.tokens_over_limit;
            return format!("{text}, and {more} tokens with larger shares are above the limit of tokens.");
        }
        text + "."
    }

    /// How far the trace agrees with the forward pass, in a sentence.
    pub fn accuracy_sentence(&self) -> String {
        let mismatch = self.mismatch;
        format!("Recorded weights times values agree with the outputs of the layers to within {mismatch:.0e}.")
    }
}

fn layer_trace<S: Scalar>(network: &Network<S>, trace: &Trace, flow: &Flow, layer: usize) -> LayerTrace {
    let mixers = network.plan.layers[layer].mixers.iter().map(Mixer::name).collect::<Vec<_>>().join(" + ");
    let edges = flow.reads.iter().filter(|read| read.layer == layer).map(|read| ReadEdge {
        mechanism: match read.kind {
            MixingKind::Attention => "attention",
            MixingKind::State => "state",
            MixingKind::Convolution => "convolution",
        },
        head: read.head,
        from: read.from,
        to: read.to,
        share: read.share,
    });
    let readers = flow.omitted_shares.iter().filter(|(reader_layer, ..)| *reader_layer == layer);
    let register_changes = readers.map(|&(_, position, omitted_share)| RegisterChange {
        position,
        registers: register_values(network, Some(trace.residual(layer, position)), trace.residual(layer + 1, position)),
        omitted_share,
    });
    let description = network.construction().map_or("", |info| &info.layers[layer]).to_owned();
    LayerTrace { mixers, description, edges: edges.collect(), register_changes: register_changes.collect() }
}

/// The registers of a residual stream that are set; with `before`, only those whose value changed.
fn register_values<S: Scalar>(network: &Network<S>, before: Option<&[f64]>, after: &[f64]) -> Vec<RegisterValue> {
    let Some(info) = network.construction() else { return Vec::new() };
    let changes = info.registers.iter().filter_map(|register| {
        let value = decode_register(register, after)?;
        let changed = before.is_none_or(|before| decode_register(register, before).as_ref() != Some(&value));
        changed.then(|| RegisterValue {
            register: register.name.clone(),
            value,
            unrounded: register.kind == RegisterKind::Unrounded,
        })
    });
    changes.collect()
}

/// The value of a register as text; `None` if it is constant or empty.
fn decode_register(register: &Register, residual: &[f64]) -> Option<String> {
    let (number, first) =
        (register.decode(residual), register.values_in(residual).first().copied().unwrap_or_default());
    match register.kind {
        RegisterKind::Constant => None,
        RegisterKind::Flag => number.filter(|set| *set == 1).map(|_| "yes".to_owned()),
        RegisterKind::Number | RegisterKind::OneHot => number.map(|number| number.to_string()),
        RegisterKind::Unrounded if register.size == 1 => (first.abs() > 1e-3).then(|| format!("{first:.2}")),
        RegisterKind::Unrounded if register.values_in(residual).iter().all(|value| value.abs() < 1e-3) => None,
        RegisterKind::Unrounded => Some(number.map_or_else(|| "unclear".to_owned(), |number| number.to_string())),
    }
}

/// A share in percent, with one decimal where it is not whole.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 99.95 || (percent - percent.round()).abs() < 0.05 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.1}%")
    }
}

#[cfg(test)]
mod tests {
    use rung_nn::construct::{ConstructionRequest, build};
    use rung_theory::task::{Prompt, seeded};

    use super::*;
    use rung_figure::figure::Chart;

    fn trace(name: &str, hops: usize) -> AnswerTrace {
        let request = ConstructionRequest {
            hops,
            first_table_entries: 4,
            growth_factors: vec![2; hops - 1],
            ..ConstructionRequest::default()
        };
        let network = build::<f32>(name, &request).unwrap();
        let mut prompt = Prompt::new();
        network.task().unwrap().sample_prompt(&mut seeded(0), &mut prompt);
        AnswerTrace::record(name, &network, prompt.tokens(), None, TraceLimits::default()).unwrap()
    }

    #[test]
    fn answers_of_constructions_are_right_and_the_last_register_holds_the_answer() {
        for name in ["U1", "U2", "U2'", "U3", "U4", "U4-causal", "U6"] {
            for hops in 1..=4 {
                let trace = trace(name, hops);
                assert_eq!(Some(trace.answer), trace.expected, "{name}, {hops} hops");
                assert!(trace.shown_tokens.len() <= 12 && trace.mismatch < 1e-4, "{name}: {}", trace.mismatch);
            }
        }
        let trace = trace("U1", 3);
        assert_eq!((trace.shown_tokens.len(), trace.layers.len()), (5, 4));
        let last_change = &trace.layers[3].register_changes[0];
        let register = last_change.registers.iter().find(|register| register.register == "i.3").unwrap();
        assert_eq!(register.value, trace.answer.to_string());
        let edge = &trace.layers[3].edges[0];
        assert!(
            trace.token_text(edge.from).ends_with(&format!("={}", trace.answer)),
            "{}",
            trace.token_text(edge.from)
        );
    }

    #[test]
    fn text_and_html_contain_reads_and_the_number_of_tokens_left_out() {
        let trace = trace("U1", 2);
        assert!(trace.scope_sentence().starts_with("Shown are the 4 of 14 tokens"), "{}", trace.scope_sentence());
        let text = trace.text();
        for phrase in ["layer 2, full", "% from #", "14 tokens", "oracle", trace.scope_sentence().as_str()] {
            assert!(text.contains(phrase), "{phrase} is not in\n{text}");
        }
        assert_eq!(trace.csv().lines().count(), 4);
        let html = trace.html("rung trace u1").unwrap();
        assert!(html.contains("<svg") && html.contains("z0=") && !html.contains("http://localhost"));
    }

    #[test]
    fn positions_beyond_the_sequence_are_rejected() {
        let network = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let mut prompt = Prompt::new();
        network.task().unwrap().sample_prompt(&mut seeded(0), &mut prompt);
        let error = AnswerTrace::record("U1", &network, prompt.tokens(), Some(99), TraceLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "position 99: the sequence has 14 tokens, counted from 0");
    }
}
