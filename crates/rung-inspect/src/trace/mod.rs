//! Traces as something to look at: who reads whom in every layer, and what the registers hold.
//!
//! [`Picture`] puts a recorded forward pass and the names of registers and tokens together, cut down to the tokens that the
//! answer came from. It is plain data; [`text`](Picture::text), [`svg`](rung_figure::figure::Chart::svg) and
//! [`html`](Picture::html) show it, and it serialises.

mod draw;
mod page;
mod text;

use rung_engine::Scalar;
use rung_nn::ModelError;
use rung_nn::Network;
use rung_nn::construct::{Register, RegisterKind};
use rung_nn::trace::{Flow, ReaderKind, Trace, sequence};
use rung_theory::stack::Mixer;
use rung_theory::task::{NO_TARGET, OracleError, TokenNames};
use serde::Serialize;

use crate::analysis::text_prompts::TextPrompt;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceLimits {
    /// A read of less than this share is not followed.
    pub share: f64,
    /// The most tokens.
    pub tokens: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { share: 0.05, tokens: 12 }
    }
}

/// A forward pass to look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// What the network is called.
    pub name: String,
    /// Its task.
    pub task: String,
    /// Whether its weights were constructed; if not, nothing is known about its stream.
    pub constructed: bool,
    /// Tokens of the text, thoughts included.
    pub tokens: usize,
    /// The token that answers.
    pub position: usize,
    /// What the network answers.
    pub answer: u32,
    /// What the oracle says.
    pub expected: Option<u32>,
    /// The tokens that are shown, in order.
    pub shown: Vec<ShownToken>,
    /// What happens, layer by layer.
    pub layers: Vec<LayerTrace>,
    /// A read of less than this share is not followed.
    pub least_share: f64,
    /// Tokens left out although they carry that much.
    pub crowded_out: usize,
    /// The largest difference between the recorded weights times the values and what the layers computed.
    pub mismatch: f64,
}

/// A token that is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownToken {
    /// Its place in the text.
    pub position: usize,
    /// What it says.
    pub says: String,
    /// Registers as embedded.
    pub registers: Vec<RegisterValue>,
}

/// What happens in a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerTrace {
    /// Its mixers.
    pub mixers: String,
    /// What a construction says that it does.
    pub about: String,
    /// Who reads whom.
    pub reads: Vec<AttentionEdge>,
    /// What tokens know afterwards that they did not before.
    pub learned: Vec<RegisterChange>,
}

/// One token reads another.
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
    /// How much of what the head reads comes from there.
    pub share: f64,
}

/// What a token learned in a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegisterChange {
    /// The token.
    pub position: usize,
    /// Registers that changed.
    pub registers: Vec<RegisterValue>,
    /// The largest share of a head that went to tokens not shown.
    pub elsewhere: f64,
}

/// A register and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterValue {
    /// Its name.
    pub register: String,
    /// What it holds, in words.
    pub value: String,
    /// Whether it is what a mixer read, before it was snapped to bits.
    pub raw: bool,
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The network refused the tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The oracle refused the tokens.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// No such token.
    #[error("position {found}: the text has {tokens} tokens, counted from 0")]
    Position {
        /// What was asked for.
        found: usize,
        /// Tokens of the text.
        tokens: usize,
    },
}

impl Picture {
    /// Runs a network on a prompt of its task, and follows the answer at `position` (the last question if none) back.
    ///
    /// # Errors
    /// The tokens are none of the task's or too many, or there is no such position.
    pub fn take<S: Scalar>(
        name: &str,
        network: &Network<S>,
        prompt: &[u32],
        position: Option<usize>,
        cut: TraceLimits,
    ) -> Result<Self, PictureError> {
        let targets = network.task()?.oracle(prompt)?;
        let tokens = sequence(network, prompt)?;
        let names = TokenNames::new(network.task()?);
        let words: Vec<String> = tokens.chunks_exact(names.width()).map(|ids| names.name(ids)).collect();
        let task = network.task()?.spec();
        Self::follow((name, task), network, (&tokens, &words, &targets), position, cut)
    }

    /// Runs a checkpoint of another program on a prompt as text, and follows what comes after `position` (the last token if none) back.
    ///
    /// # Errors
    /// There are too many tokens, or there is no such position.
    pub fn of_text<S: Scalar>(
        network: &Network<S>,
        prompt: &TextPrompt,
        position: Option<usize>,
        cut: TraceLimits,
    ) -> Result<Self, PictureError> {
        let position = position.or(prompt.tokens.len().checked_sub(1));
        let parts = (&prompt.tokens[..], &prompt.words[..], &prompt.targets()[..]);
        Self::follow((&network.name, "a prompt as text".to_owned()), network, parts, position, cut)
    }

    /// Follows the answer at a position back through tokens that say something and have targets.
    fn follow<S: Scalar>(
        (name, task): (&str, String),
        network: &Network<S>,
        (tokens, words, targets): (&[u32], &[String], &[u32]),
        position: Option<usize>,
        cut: TraceLimits,
    ) -> Result<Self, PictureError> {
        let trace = Trace::record(network, tokens)?;
        let thoughts = network.chain_of_thought();
        let asked = targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(targets.len() - 1);
        let last = if thoughts.is_some() { trace.tokens() - 1 } else { asked };
        let answering = position.unwrap_or(last);
        if answering >= trace.tokens() {
            return Err(PictureError::Position { found: answering, tokens: trace.tokens() });
        }
        // What a thought says was answered at the token before it, so each of them is followed back too.
        let first = if thoughts.is_some() { answering.min(targets.len() - 1) } else { answering };
        let flow = trace.flow(&(first..=answering).collect::<Vec<_>>(), cut.share, cut.tokens);
        let scores = trace.scores(answering);
        let answer = match thoughts {
            Some(thoughts) => thoughts.token(scores)[thoughts.answer],
            None => {
                (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best }) as u32
            }
        };
        let expected = if answering == last { targets.get(asked) } else { targets.get(answering) };
        let shown = flow.tokens.iter().map(|&position| ShownToken {
            position,
            says: words[position].clone(),
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
            shown: shown.collect(),
            layers: (0..trace.layers.len()).map(|layer| layer_trace(network, &trace, &flow, layer)).collect(),
            least_share: cut.share,
            crowded_out: flow.crowded_out,
            mismatch: flow.mismatch,
        })
    }

    /// Tokens that are not shown.
    pub fn left_out(&self) -> usize {
        self.tokens - self.shown.len()
    }

    /// What a shown token says.
    fn says(&self, position: usize) -> &str {
        self.shown.iter().find(|shown| shown.position == position).map_or("", |shown| &shown.says)
    }

    /// What is shown and what is not, in a sentence.
    pub fn scope(&self) -> String {
        let left = match self.left_out() {
            0 => return format!("All {} tokens are shown.", self.tokens),
            1 => "1 other token is".to_owned(),
            left => format!("{left} other tokens are"),
        };
        let percent = percent(self.least_share);
        let text = format!(
            "Shown are the {} of {} tokens that the answer came from; {left} left out, as reads of less than {percent} are not followed",
            self.shown.len(),
            self.tokens
        );
        if self.crowded_out > 0 {
            let more = self.crowded_out;
            return format!("{text} and {more} more carry that much but found no room.");
        }
        text + "."
    }

    /// How the weights were checked, in a sentence.
    pub fn check(&self) -> String {
        let mismatch = self.mismatch;
        format!("Weights times values give what the layers computed, to within {mismatch:.0e}.")
    }
}

fn layer_trace<S: Scalar>(network: &Network<S>, trace: &Trace, flow: &Flow, layer: usize) -> LayerTrace {
    let mixers = network.plan.layers[layer].mixers.iter().map(Mixer::name).collect::<Vec<_>>().join(" + ");
    let reads = flow.reads.iter().filter(|read| read.layer == layer).map(|read| AttentionEdge {
        through: match read.reads {
            ReaderKind::Attention => "attention",
            ReaderKind::State => "state",
            ReaderKind::Convolution => "convolution",
        },
        head: read.head,
        from: read.from,
        to: read.to,
        share: read.share,
    });
    let followed = flow.elsewhere.iter().filter(|(at, ..)| *at == layer);
    let learned = followed.map(|&(_, position, elsewhere)| RegisterChange {
        position,
        registers: register_values(network, Some(trace.stream(layer, position)), trace.stream(layer + 1, position)),
        elsewhere,
    });
    let about = network.construction().map_or("", |info| &info.layers[layer]).to_owned();
    LayerTrace { mixers, about, reads: reads.collect(), learned: learned.collect() }
}

/// What registers hold that they did not before.
fn register_values<S: Scalar>(network: &Network<S>, before: Option<&[f64]>, now: &[f64]) -> Vec<RegisterValue> {
    let Some(info) = network.construction() else { return Vec::new() };
    let changed = info.registers.iter().filter_map(|register| {
        let value = decoded(register, now)?;
        let new = before.is_none_or(|before| decoded(register, before).as_ref() != Some(&value));
        new.then(|| RegisterValue { register: register.name.clone(), value, raw: register.holds == RegisterKind::Raw })
    });
    changed.collect()
}

fn decoded(register: &Register, stream: &[f64]) -> Option<String> {
    let (number, first) = (register.number(stream), register.of(stream).first().copied().unwrap_or_default());
    match register.holds {
        RegisterKind::Constant => None,
        RegisterKind::Flag => number.filter(|set| *set == 1).map(|_| "yes".to_owned()),
        RegisterKind::Number | RegisterKind::OneHot => number.map(|number| number.to_string()),
        RegisterKind::Raw if register.size == 1 => (first.abs() > 1e-3).then(|| format!("{first:.2}")),
        RegisterKind::Raw if register.of(stream).iter().all(|value| value.abs() < 1e-3) => None,
        RegisterKind::Raw => Some(number.map_or_else(|| "unclear".to_owned(), |number| number.to_string())),
    }
}

/// A share for people.
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
    fn answers_are_right_and_registers_tell_the_walk() {
        for name in ["U1", "U2", "U2'", "U3", "U4", "U4-causal", "U6"] {
            for hops in 1..=4 {
                let picture = picture(name, hops);
                assert_eq!(Some(picture.answer), picture.expected, "{name}, {hops} hops");
                assert!(picture.shown.len() <= 12 && picture.mismatch < 1e-4, "{name}: {}", picture.mismatch);
            }
        }
        let picture = picture("U1", 3);
        assert_eq!((picture.shown.len(), picture.layers.len()), (5, 4));
        let last = &picture.layers[3].learned[0];
        let reached = last.registers.iter().find(|held| held.register == "i.3").unwrap();
        assert_eq!(reached.value, picture.answer.to_string());
        let read = &picture.layers[3].reads[0];
        assert!(picture.says(read.from).ends_with(&format!("={}", picture.answer)), "{}", picture.says(read.from));
    }

    #[test]
    fn pictures_say_what_they_leave_out() {
        let picture = picture("U1", 2);
        assert!(picture.scope().starts_with("Shown are the 4 of 14 tokens"), "{}", picture.scope());
        let text = picture.text();
        for part in ["layer 2, full", "% from #", "14 tokens", "oracle", picture.scope().as_str()] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(picture.csv().lines().count(), 4);
        let html = picture.html("rung trace u1").unwrap();
        assert!(html.contains("<svg") && html.contains("z0=") && !html.contains("http://localhost"));
    }

    #[test]
    fn positions_beyond_the_text_are_refused() {
        let built = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let mut prompt = Prompt::new();
        built.task().unwrap().prompt(&mut seeded(0), &mut prompt);
        let error = Picture::take("U1", &built, prompt.tokens(), Some(99), TraceLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "position 99: the text has 14 tokens, counted from 0");
    }
}
