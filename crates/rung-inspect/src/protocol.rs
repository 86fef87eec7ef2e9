//! The bits that a forward pass sends as a communication protocol, beside the bounds of the theory.
//!
//! The prompt is split among players, each with some tokens. A [`ProtocolReport`] runs a network's forward pass as the theory's protocol
//! between them ([`rung_nn::protocol`]), sums the bits of all messages by epoch (a block of layers with bounded state, or a full layer
//! between two blocks), and lists them beside the theory's B (bits per token through a full layer) and s_e (bits of a state).

use std::fmt::Write as _;

use rung_engine::{Native, Ops as _, Scalar};
use rung_nn::ModelError;
use rung_nn::Network;
use rung_nn::memory::BatchShape;
use rung_nn::protocol::{MessageContent, NumberEncoding, ProtocolEncodings, Transcript, players};
use rung_theory::stack::MessageSizeConvention;
use rung_theory::task::NO_TARGET;
use serde::Serialize;

/// The bits sent on one prompt, and the theory's bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtocolReport {
    /// Name of the network.
    pub name: String,
    /// The network's task.
    pub task: String,
    /// Bits per element in messages of full layers.
    pub message_number_bits: u32,
    /// Bits per element of a recurrent state.
    pub state_number_bits: u32,
    /// Name and number of tokens of each player, in the order of the prompt.
    pub players: Vec<(String, usize)>,
    /// Bits by epoch, in the order of layers.
    pub epochs: Vec<Epoch>,
    /// Bits of all messages.
    #[serde(rename = "total")]
    pub total_bits: u64,
    /// Number of players who recomputed the same outputs, bit for bit, from only their tokens and messages.
    #[serde(rename = "replayed")]
    pub replayed_players: usize,
    /// The answer of the protocol.
    pub answer: u32,
    /// The answer of the ordinary forward pass.
    #[serde(rename = "ordinary")]
    pub forward_answer: u32,
    /// The right answer, by the task's oracle.
    pub expected: Option<u32>,
}

/// A full layer, a block of layers with state, or the mixers in parallel with a full layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Epoch {
    /// `block i`, `full i`, or `parallel to full i` for the mixers in parallel with that attention layer.
    pub name: String,
    /// The layers, from 0.
    pub layers: Vec<usize>,
    /// The theory's bound in bits: per token of a player in a full layer, per border between players elsewhere.
    #[serde(rename = "theory")]
    pub bound_bits: u128,
    /// For a full layer, the bound with the message size of the published proofs.
    #[serde(rename = "published")]
    pub published_bound_bits: Option<u128>,
    /// Bits sent to each player except the first.
    #[serde(rename = "sent")]
    pub received_bits: Vec<u64>,
}

impl ProtocolReport {
    /// Runs the protocol on a prompt and replays it, with numbers of the given encoding or in the model's own precision.
    ///
    /// # Errors
    /// The model does not fit the protocol, or the tokens are not in its vocabulary.
    pub fn measure<S: Scalar>(
        name: &str,
        network: &Network<S>,
        prompt: &[u32],
        encoding: Option<NumberEncoding>,
    ) -> Result<Self, ModelError> {
        let tokens = prompt.len() / network.config.input.field_count().max(1);
        // The memory of four passes: the protocol, its messages, the replay and the ordinary pass.
        network
            .check_inference_memory("the protocol", BatchShape { prompts: 4, tokens })
            .map_err(ModelError::Memory)?;
        let encodings =
            encoding.map_or_else(|| ProtocolEncodings::for_config::<S>(&network.config), ProtocolEncodings::from);
        let transcript = Transcript::record(network, prompt, players(network.task()?, prompt), encodings)?;
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let (hidden, _) = network.model.forward_last(&ops, prompt, 1, network.model.depth())?;
        let logits = ops.values(&network.model.logits(&ops, &hidden));
        let targets = network.task()?.oracle(prompt).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            task: network.task()?.spec(),
            message_number_bits: encodings.accumulator.bits(),
            state_number_bits: encodings.state.bits(),
            players: transcript.players.iter().map(|player| (player.name.clone(), player.tokens.len())).collect(),
            epochs: count_epoch_bits(network, &transcript, encodings),
            total_bits: transcript.bit_count(),
            replayed_players: transcript.replay(network, prompt)?,
            answer: argmax(&transcript.last_logits),
            forward_answer: argmax(&logits),
            expected: targets.last().copied().filter(|target| *target != NO_TARGET),
        })
    }

    /// Whether every player recomputed the same outputs from its messages.
    pub fn is_exact(&self) -> bool {
        self.replayed_players == self.players.len()
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{} for {} as a protocol (bits counted on one prompt)", self.name, self.task)?;
        let player = |(name, tokens): &(String, usize)| {
            format!("{name} ({tokens} {})", if *tokens == 1 { "token" } else { "tokens" })
        };
        writeln!(text, "  players   {}", self.players.iter().map(player).collect::<Vec<_>>().join(", "))?;
        if self.message_number_bits == self.state_number_bits {
            writeln!(text, "  numbers   {} bits each\n", self.message_number_bits)?;
        } else {
            writeln!(
                text,
                "  numbers   {} bits each, {} in states\n",
                self.message_number_bits, self.state_number_bits
            )?;
        }
        write!(text, "  {:16}{:10}", "epoch", "layers")?;
        for (name, _) in &self.players[1..] {
            write!(text, "{:>16}", format!("into {name}"))?;
        }
        writeln!(text, "   theory")?;
        for epoch in &self.epochs {
            let layers = epoch.layers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            write!(text, "  {:16}{layers:10}", epoch.name)?;
            for (bits, (_, tokens)) in epoch.received_bits.iter().zip(&self.players[1..]) {
                let cell = match epoch.published_bound_bits {
                    Some(_) => format!("{tokens} x {}", bits / *tokens as u64),
                    None => bits.to_string(),
                };
                write!(text, "{cell:>16}")?;
            }
            writeln!(text, "   {}", epoch.bound())?;
        }
        writeln!(text, "\n  {} bits sent in total", self.total_bits)?;
        let (replayed, players) = (self.replayed_players, self.players.len());
        writeln!(
            text,
            "  {replayed} of {players} players reproduce their outputs bit for bit from their tokens and messages"
        )?;
        let oracle = self.expected.map_or_else(String::new, |expected| format!(", the oracle {expected}"));
        writeln!(
            text,
            "  the protocol answers {}, the ordinary forward pass {}{oracle}",
            self.answer, self.forward_answer
        )
    }
}

impl Epoch {
    /// The theory's bound, in words.
    pub fn bound(&self) -> String {
        match self.published_bound_bits {
            Some(published) => format!("B = {} a token (published: {published})", self.bound_bits),
            None => format!("s = {} a border", self.bound_bits),
        }
    }
}

/// The bits of every epoch of a transcript, in the order of layers, beside their bounds.
fn count_epoch_bits<S: Scalar>(
    network: &Network<S>,
    transcript: &Transcript<S>,
    encodings: ProtocolEncodings,
) -> Vec<Epoch> {
    let capacity = network.plan.capacity();
    let layers = &network.plan.layers;
    // The plan counts bits at its own precision; the same numbers are counted here at that of the encoding.
    let plan_bits = layers.first().map_or(1, |layer| u128::from(layer.mixers[0].bits()));
    let scaled = |bits: u128, encoding: NumberEncoding| bits / plan_bits * u128::from(encoding.bits());
    let received_bits = |is_counted: &dyn Fn(usize, MessageContent) -> bool| {
        let bits_into = |player: usize| {
            let messages = transcript.messages.iter().filter(move |message| message.receiver == player);
            messages
                .filter(|message| is_counted(message.layer, message.content))
                .map(|message| message.bits.len())
                .sum()
        };
        (1..transcript.players.len()).map(bits_into).collect::<Vec<u64>>()
    };
    let full_layers: Vec<usize> = (0..layers.len()).filter(|layer| layers[*layer].is_full()).collect();
    let mut epochs = Vec::new();
    for (index, block) in capacity.blocks.iter().enumerate() {
        if !block.layers.is_empty() {
            let is_counted = |layer: usize, content: MessageContent| {
                let is_convolution = layers[layer].is_full() && content == MessageContent::ConvolutionState;
                block.layers.contains(&layer) && (is_convolution || !layers[layer].is_full())
            };
            let received_bits = received_bits(&is_counted);
            let name = format!("block {index}");
            epochs.push(Epoch {
                name,
                layers: block.layers.clone(),
                bound_bits: scaled(block.state_bits, encodings.state),
                published_bound_bits: None,
                received_bits,
            });
        }
        let Some(&full_layer) = full_layers.get(index) else { continue };
        let message = |convention| scaled(layers[full_layer].message_bits(convention), encodings.accumulator);
        epochs.push(Epoch {
            name: format!("full {index}"),
            layers: vec![full_layer],
            bound_bits: message(MessageSizeConvention::Online),
            published_bound_bits: Some(message(MessageSizeConvention::Paper)),
            received_bits: received_bits(&|layer, content| {
                layer == full_layer && content == MessageContent::SoftmaxAccumulators
            }),
        });
        if capacity.parallel_bits[index] > 0 {
            epochs.push(Epoch {
                name: format!("parallel to full {index}"),
                layers: vec![full_layer],
                bound_bits: scaled(capacity.parallel_bits[index], encodings.state),
                published_bound_bits: None,
                received_bits: received_bits(&|layer, content| layer == full_layer && content == MessageContent::State),
            });
        }
    }
    epochs
}

fn argmax<S: Scalar>(logits: &[S]) -> u32 {
    (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best }) as u32
}

#[cfg(test)]
mod tests {
    use rung_nn::construct::{ConstructionRequest, build};
    use rung_theory::task::{Prompt, seeded};

    use super::*;

    #[test]
    fn epochs_sum_to_the_total_and_stay_within_the_bounds() {
        for (name, mixer) in [("U1", None), ("U2", Some("gdn")), ("U2'", Some("window")), ("U2", Some("mamba2"))] {
            let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..ConstructionRequest::default() };
            let network = build::<f32>(name, &request).unwrap();
            let mut prompt = Prompt::new();
            network.task().unwrap().sample_prompt(&mut seeded(2), &mut prompt);
            let report = ProtocolReport::measure(name, &network, prompt.tokens(), None).unwrap();
            assert!(
                report.is_exact() && report.answer == report.forward_answer && Some(report.answer) == report.expected,
                "{name}"
            );
            assert_eq!(
                report.epochs.iter().flat_map(|epoch| &epoch.received_bits).sum::<u64>(),
                report.total_bits,
                "{name}"
            );
            for epoch in &report.epochs {
                for (bits, (_, tokens)) in epoch.received_bits.iter().zip(&report.players[1..]) {
                    let bounded_units = if epoch.published_bound_bits.is_some() { *tokens as u128 } else { 1 };
                    assert!(u128::from(*bits) <= epoch.bound_bits * bounded_units, "{name}: {}", epoch.name);
                }
            }
            let text = report.text();
            assert!(text.contains("4 of 4 players reproduce") && text.contains("full 0"), "{text}");
        }
    }
}
