//! Traces of a forward pass: which token reads which in every layer, and what the registers hold.
//!
//! A register is a named slice of the residual stream of a construction. [`Picture`] combines a recorded forward pass with the names of
//! registers and tokens, limited to the tokens that the answer came from. It is plain data that serialises to JSON;
//! [`text`](Picture::text), [`svg`](rung_figure::figure::Chart::svg) and [`html`](Picture::html) render it.

mod draw;
mod page;
mod text;

use rung_engine::Scalar;
use rung_nn::ModelError;
use rung_nn::Network;
use rung_nn::construct::{Register, RegisterKind};
use rung_nn::trace::{Flow, MixingKind, Trace, sequence};
use rung_theory::stack::Mixer;
use rung_theory::task::{NO_TARGET, OracleError, TokenNames};
use serde::Serialize;

use crate::analysis::text_prompts::TextPrompt;

/// Limits on what a trace shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceLimits {
    /// Reads with a smaller share of a head's output are not followed back.
    pub share: f64,
    /// The largest number of tokens.
    pub tokens: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { share: 0.05, tokens: 12 }
    }
}

/// The part of a forward pass that an answer came from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Name of the network.
    pub name: String,
    /// The network's task.
    pub task: String,
    /// Whether the weights were constructed. Only then the residual stream has registers.
    pub constructed: bool,
    /// Number of tokens, including those of a chain of thought.
    pub tokens: usize,
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
    /// Number of tokens left out by [`TraceLimits::tokens`] although their share is large enough.
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
    pub about: String,
    /// Reads between the shown tokens.
    #[serde(rename = "reads")]
    pub edges: Vec<AttentionEdge>,
    /// The tokens that the answer depends on here, with their changed registers.
    #[serde(rename = "learned")]
    pub register_changes: Vec<RegisterChange>,
}

/// A read of one token by another, through attention, a recurrent state or a convolution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttentionEdge {
    /// `attention`, `state` or `convolution`.
    pub through: &'static str,
    /// The head.
    pub head: usize,
    /// The token that is read.
    pub from: usize,
    /// The token that reads.
    pub to: usize,
    /// The share of the head's output that comes from the token that is read.
    pub share: f64,
}

/// A token whose output of a layer the answer depends on.
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
    pub raw: bool,
}

/// Why a trace fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The network cannot run on the tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task's oracle cannot answer the tokens.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// No such token.
    #[error("position {found}: the text has {tokens} tokens, counted from 0")]
    Position {
        /// The requested position.
        found: usize,
        /// Number of tokens.
        tokens: usize,
    },
}

impl Picture {
    /// Runs a network on a prompt of its task, and follows the answer at `position` (default: the last question) back to the tokens it
    /// came from.
    ///
    /// # Errors
    /// The tokens are not a prompt of the task or too many, or there is no such position.
    pub fn take<S: Scalar>(
        name: &str,
        network: &Network<S>,
        prompt: &[u32],
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, PictureError> {
        let targets = network.task()?.oracle(prompt)?;
        let tokens = sequence(network, prompt)?;
        let names = TokenNames::new(network.task()?);
        let words: Vec<String> = tokens.chunks_exact(names.width()).map(|ids| names.name(ids)).collect();
        let task = network.task()?.spec();
        Self::follow((name, task), network, (&tokens, &words, &targets), position, limits)
    }

    /// Runs a checkpoint of another program on a text prompt, and follows the prediction at `position` (default: the last token) back.
    ///
    /// # Errors
    /// There are too many tokens, or there is no such position.
    pub fn of_text<S: Scalar>(
        network: &Network<S>,
        prompt: &TextPrompt,
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, PictureError> {
        let position = position.or(prompt.tokens.len().checked_sub(1));
        let sequence = (&prompt.tokens[..], &prompt.words[..], &prompt.targets()[..]);
        Self::follow((&network.name, "a prompt as text".to_owned()), network, sequence, position, limits)
    }

    /// Follows the answer at a position back. `words` and `targets` are the text and the expected answer of every token.
    fn follow<S: Scalar>(
        (name, task): (&str, String),
        network: &Network<S>,
        (tokens, words, targets): (&[u32], &[String], &[u32]),
        position: Option<usize>,
        limits: TraceLimits,
    ) -> Result<Self, PictureError> {
        let trace = Trace::record(network, tokens)?;
        let thoughts = network.chain_of_thought();
        let last_question = targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(targets.len() - 1);
        let last = if thoughts.is_some() { trace.tokens() - 1 } else { last_question };
        let answering = position.unwrap_or(last);
        if answering >= trace.tokens() {
            return Err(PictureError::Position { found: answering, tokens: trace.tokens() });
        }
        // A token of a chain of thought is the output of the token before it, so all of them are followed back too.
        let first = if thoughts.is_some() { answering.min(targets.len() - 1) } else { answering };
        let flow = trace.flow(&(first..=answering).collect::<Vec<_>>(), limits.share, limits.tokens);
        let scores = trace.scores(answering);
        let answer = match thoughts {
            Some(thoughts) => thoughts.token(scores)[thoughts.answer_field],
            None => {
                (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best }) as u32
            }
        };
        let expected = if answering == last { targets.get(last_question) } else { targets.get(answering) };
        let shown_tokens = flow.tokens.iter().map(|&position| ShownToken {
            position,
            text: words[position].clone(),
            registers: register_values(network, None, trace.stream(0, position)),
        });
        Ok(Self {
            name: name.to_owned(),
            task,
            constructed: network.construction().is_some(),
            tokens: trace.tokens(),
            position: answering,
            answer,
            expected: expected.copied().filter(|target| *target != NO_TARGET),
            shown_tokens: shown_tokens.collect(),
            layers: (0..trace.layers.len()).map(|layer| layer_trace(network, &trace, &flow, layer)).collect(),
            min_share: limits.share,
            tokens_over_limit: flow.omitted_tokens,
            mismatch: flow.mismatch,
        })
    }

    /// The number of tokens that are not shown.
    pub fn left_out(&self) -> usize {
        self.tokens - self.shown_tokens.len()
    }

    /// A shown token as text.
    fn token_text(&self, position: usize) -> &str {
        self.shown_tokens.iter().find(|token| token.position == position).map_or("", |token| &token.text)
    }

    /// How many tokens are shown and how many left out, in a sentence.
    pub fn scope(&self) -> String {
        let others = match self.left_out() {
            0 => return format!("All {} tokens are shown.", self.tokens),
            1 => "1 other token is".to_owned(),
            count => format!("{count} other tokens are"),
        };
        let percent = percent(self.min_share);
        let text = format!(
            "Shown are the {} of {} tokens that the answer came from; {others} left out, as reads of less than {percent} are not followed",
            self.shown_tokens.len(),
            self.tokens
        );
        if self.tokens_over_limit > 0 {
            let more = self.tokens_over_limit;
            return format!("{text} and {more} more carry that much but found no room.");
        }
        text + "."
    }

    /// How far the trace agrees with the forward pass, in a sentence.
    pub fn check(&self) -> String {
        let mismatch = self.mismatch;
        format!("Weights times values give what the layers computed, to within {mismatch:.0e}.")
    }
}

fn layer_trace<S: Scalar>(network: &Network<S>, trace: &Trace, flow: &Flow, layer: usize) -> LayerTrace {
    let mixers = network.plan.layers[layer].mixers.iter().map(Mixer::name).collect::<Vec<_>>().join(" + ");
    let edges = flow.reads.iter().filter(|read| read.layer == layer).map(|read| AttentionEdge {
        through: match read.kind {
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
        registers: register_values(network, Some(trace.stream(layer, position)), trace.stream(layer + 1, position)),
        omitted_share,
    });
    let about = network.construction().map_or("", |info| &info.layers[layer]).to_owned();
    LayerTrace { mixers, about, edges: edges.collect(), register_changes: register_changes.collect() }
}

/// The registers of a residual stream that are set; with `before`, only those whose value changed.
fn register_values<S: Scalar>(network: &Network<S>, before: Option<&[f64]>, now: &[f64]) -> Vec<RegisterValue> {
    let Some(info) = network.construction() else { return Vec::new() };
    let changes = info.registers.iter().filter_map(|register| {
        let value = decode_register(register, now)?;
        let changed = before.is_none_or(|before| decode_register(register, before).as_ref() != Some(&value));
        changed.then(|| RegisterValue {
            register: register.name.clone(),
            value,
            raw: register.holds == RegisterKind::Raw,
        })
    });
    changes.collect()
}

/// The value of a register as text; `None` if it is constant or empty.
fn decode_register(register: &Register, stream: &[f64]) -> Option<String> {
    let (number, first) = (register.decode(stream), register.values_in(stream).first().copied().unwrap_or_default());
    match register.holds {
        RegisterKind::Constant => None,
        RegisterKind::Flag => number.filter(|set| *set == 1).map(|_| "yes".to_owned()),
        RegisterKind::Number | RegisterKind::OneHot => number.map(|number| number.to_string()),
        RegisterKind::Raw if register.size == 1 => (first.abs() > 1e-3).then(|| format!("{first:.2}")),
        RegisterKind::Raw if register.values_in(stream).iter().all(|value| value.abs() < 1e-3) => None,
        RegisterKind::Raw => Some(number.map_or_else(|| "unclear".to_owned(), |number| number.to_string())),
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

    fn picture(name: &str, hops: usize) -> Picture {
        let request = ConstructionRequest { hops, m: 4, n: vec![2; hops - 1], ..ConstructionRequest::default() };
        let built = build::<f32>(name, &request).unwrap();
        let mut prompt = Prompt::new();
        built.task().unwrap().prompt(&mut seeded(0), &mut prompt);
        Picture::take(name, &built, prompt.tokens(), None, TraceLimits::default()).unwrap()
    }

    #[test]
    fn answers_of_constructions_are_right_and_the_last_register_holds_the_answer() {
        for name in ["U1", "U2", "U2'", "U3", "U4", "U4-causal", "U6"] {
            for hops in 1..=4 {
                let picture = picture(name, hops);
                assert_eq!(Some(picture.answer), picture.expected, "{name}, {hops} hops");
                assert!(picture.shown_tokens.len() <= 12 && picture.mismatch < 1e-4, "{name}: {}", picture.mismatch);
            }
        }
        let picture = picture("U1", 3);
        assert_eq!((picture.shown_tokens.len(), picture.layers.len()), (5, 4));
        let last_change = &picture.layers[3].register_changes[0];
        let register = last_change.registers.iter().find(|register| register.register == "i.3").unwrap();
        assert_eq!(register.value, picture.answer.to_string());
        let edge = &picture.layers[3].edges[0];
        assert!(
            picture.token_text(edge.from).ends_with(&format!("={}", picture.answer)),
            "{}",
            picture.token_text(edge.from)
        );
    }

    #[test]
    fn text_and_html_contain_reads_and_the_number_of_tokens_left_out() {
        let picture = picture("U1", 2);
        assert!(picture.scope().starts_with("Shown are the 4 of 14 tokens"), "{}", picture.scope());
        let text = picture.text();
        for phrase in ["layer 2, full", "% from #", "14 tokens", "oracle", picture.scope().as_str()] {
            assert!(text.contains(phrase), "{phrase} is not in\n{text}");
        }
        assert_eq!(picture.csv().lines().count(), 4);
        let html = picture.html("rung trace u1").unwrap();
        assert!(html.contains("<svg") && html.contains("z0=") && !html.contains("http://localhost"));
    }

    #[test]
    fn positions_beyond_the_text_are_rejected() {
        let built = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let mut prompt = Prompt::new();
        built.task().unwrap().prompt(&mut seeded(0), &mut prompt);
        let error = Picture::take("U1", &built, prompt.tokens(), Some(99), TraceLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "position 99: the text has 14 tokens, counted from 0");
    }
}
