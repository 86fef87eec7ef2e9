//! The bits of a forward pass as a protocol, beside those that the theory counts.
//!
//! A [`ProtocolReport`] runs a network's forward pass as the theory's protocol ([`rung_nn::protocol`]), sorts what crossed by epoch (the
//! blocks of layers with state, and the full layers between them), and puts B and s_e beside it.

use std::fmt::Write as _;

use rung_engine::{Native, Ops as _, Scalar};
use rung_nn::ModelError;
use rung_nn::Network;
use rung_nn::protocol::{Content, NumberEncoding, ProtocolEncodings, Transcript, players};
use rung_theory::stack::Convention;
use rung_theory::task::NO_TARGET;
use serde::Serialize;

/// What crossed, and what the theory allows for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtocolReport {
    /// What the network is called.
    pub name: String,
    /// Its task.
    pub task: String,
    /// Bits of a number that crosses in a full layer.
    pub bits: u32,
    /// Bits of a number of a state.
    pub state_bits: u32,
    /// Who holds how many tokens, in the order of the prompt.
    pub players: Vec<(String, usize)>,
    /// What crossed, in the order of layers.
    pub epochs: Vec<Epoch>,
    /// Bits of all messages.
    pub total: u64,
    /// Players who found the same outputs, bit for bit, from their tokens and messages alone.
    pub replayed: usize,
    /// What the protocol answers.
    pub answer: u32,
    /// What the ordinary forward pass answers.
    pub ordinary: u32,
    /// What the oracle says.
    pub expected: Option<u32>,
}

/// A full layer, or a block of layers with state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Epoch {
    /// `block 0`, `full 0`, or `parallel to full 0` for mixers in parallel with attention.
    pub name: String,
    /// Its layers, from 1.
    pub layers: Vec<usize>,
    /// Bits by the theory: for each token of a player in a full layer, for a border elsewhere.
    pub theory: u128,
    /// For a full layer, the same by the papers' count.
    pub papers: Option<u128>,
    /// Bits that crossed into each player but the first.
    pub crossed: Vec<u64>,
}

impl ProtocolReport {
    /// Runs the protocol on a prompt and replays it, in numbers of the width given, or as wide as the model keeps them.
    ///
    /// # Errors
    /// The model does not fit the protocol, or the tokens are none of its.
    pub fn keep<S: Scalar>(
        name: &str,
        network: &Network<S>,
        prompt: &[u32],
        width: Option<NumberEncoding>,
    ) -> Result<Self, ModelError> {
        let tokens = prompt.len() / network.config.input.fields().max(1);
        // The pass of the players, the ordinary one, and what every player says and finds again.
        network.check_memory("the protocol", (4, tokens), false).map_err(ModelError::Memory)?;
        let widths = width.map_or_else(|| ProtocolEncodings::of::<S>(&network.config), ProtocolEncodings::from);
        let held = Transcript::record(network, prompt, players(network.task()?, prompt), widths)?;
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let (hidden, _) = network.model.last(&ops, prompt, 1, network.model.depth())?;
        let ordinary = ops.values(&network.model.logits(&ops, &hidden));
        let targets = network.task()?.oracle(prompt).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            task: network.task()?.spec(),
            bits: widths.message.bits(),
            state_bits: widths.state.bits(),
            players: held.players.iter().map(|player| (player.name.clone(), player.tokens.len())).collect(),
            epochs: epochs(network, &held, widths),
            total: held.bits(),
            replayed: held.replay(network, prompt)?,
            answer: highest(&held.scores),
            ordinary: highest(&ordinary),
            expected: targets.last().copied().filter(|target| *target != NO_TARGET),
        })
    }

    /// Whether every player found the same from its messages alone.
    pub fn exact(&self) -> bool {
        self.replayed == self.players.len()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{} for {} as a protocol (bits counted on one prompt)", self.name, self.task)?;
        let held = |(name, tokens): &(String, usize)| {
            format!("{name} ({tokens} {})", if *tokens == 1 { "token" } else { "tokens" })
        };
        writeln!(text, "  players   {}", self.players.iter().map(held).collect::<Vec<_>>().join(", "))?;
        if self.bits == self.state_bits {
            writeln!(text, "  numbers   {} bits each\n", self.bits)?;
        } else {
            writeln!(text, "  numbers   {} bits each, {} in states\n", self.bits, self.state_bits)?;
        }
        write!(text, "  {:16}{:10}", "epoch", "layers")?;
        for (name, _) in &self.players[1..] {
            write!(text, "{:>16}", format!("into {name}"))?;
        }
        writeln!(text, "   theory")?;
        for epoch in &self.epochs {
            let layers = epoch.layers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            write!(text, "  {:16}{layers:10}", epoch.name)?;
            for (bits, (_, tokens)) in epoch.crossed.iter().zip(&self.players[1..]) {
                let shown = match epoch.papers {
                    Some(_) => format!("{tokens} x {}", bits / *tokens as u64),
                    None => bits.to_string(),
                };
                write!(text, "{shown:>16}")?;
            }
            writeln!(text, "   {}", epoch.bound())?;
        }
        writeln!(text, "\n  {} bits crossed in all", self.total)?;
        let (replayed, players) = (self.replayed, self.players.len());
        let exact = if self.exact() { "the same bits" } else { "other bits" };
        writeln!(
            text,
            "  replayed: {replayed} of {players} players, alone with their tokens and messages, find {exact}"
        )?;
        let oracle = self.expected.map_or_else(String::new, |expected| format!(", the oracle {expected}"));
        writeln!(text, "  the protocol answers {}, the ordinary forward pass {}{oracle}", self.answer, self.ordinary)
    }
}

impl Epoch {
    /// What the theory counts, in words.
    pub fn bound(&self) -> String {
        match self.papers {
            Some(papers) => format!("B = {} a token (papers: {papers})", self.theory),
            None => format!("s = {} a border", self.theory),
        }
    }
}

fn epochs<S: Scalar>(network: &Network<S>, held: &Transcript<S>, widths: ProtocolEncodings) -> Vec<Epoch> {
    let capacity = network.plan.capacity();
    let layers = &network.plan.layers;
    // The plan counts in bits of its own; numbers are what both have in common.
    let own = layers.first().map_or(1, |layer| u128::from(layer.mixers[0].bits()));
    let scaled = |bits: u128, width: NumberEncoding| bits / own * u128::from(width.bits());
    let crossed = |counts: &dyn Fn(usize, Content) -> bool| {
        let into = |player: usize| {
            let here = held.messages.iter().filter(move |message| message.into == player);
            here.filter(|message| counts(message.layer, message.content)).map(|message| message.wire.bits()).sum()
        };
        (1..held.players.len()).map(into).collect::<Vec<u64>>()
    };
    let full: Vec<usize> = (0..layers.len()).filter(|layer| layers[*layer].is_full()).collect();
    let mut epochs = Vec::new();
    for (index, block) in capacity.blocks.iter().enumerate() {
        if !block.layers.is_empty() {
            let counts = |layer: usize, content: Content| {
                let front = layers[layer].is_full() && content == Content::Front;
                block.layers.contains(&layer) && (front || !layers[layer].is_full())
            };
            let crossed = crossed(&counts);
            let name = format!("block {index}");
            epochs.push(Epoch {
                name,
                layers: block.layers.clone(),
                theory: scaled(block.state_bits, widths.state),
                papers: None,
                crossed,
            });
        }
        let Some(&at) = full.get(index) else { continue };
        let message = |convention| scaled(layers[at].message_bits(convention), widths.message);
        epochs.push(Epoch {
            name: format!("full {index}"),
            layers: vec![at],
            theory: message(Convention::Online),
            papers: Some(message(Convention::Paper)),
            crossed: crossed(&|layer, content| layer == at && content == Content::Registers),
        });
        if capacity.parallel_bits[index] > 0 {
            epochs.push(Epoch {
                name: format!("parallel to full {index}"),
                layers: vec![at],
                theory: scaled(capacity.parallel_bits[index], widths.state),
                papers: None,
                crossed: crossed(&|layer, content| layer == at && content == Content::State),
            });
        }
    }
    epochs
}

fn highest<S: Scalar>(scores: &[S]) -> u32 {
    (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best }) as u32
}

#[cfg(test)]
mod tests {
    use rung_nn::construct::{ConstructionRequest, build};
    use rung_theory::task::{Prompt, seeded};

    use super::*;

    #[test]
    fn every_bit_is_in_one_epoch_and_within_the_theory() {
        for (name, mixer) in [("U1", None), ("U2", Some("gdn")), ("U2'", Some("window")), ("U2", Some("mamba2"))] {
            let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..ConstructionRequest::default() };
            let built = build::<f32>(name, &request).unwrap();
            let mut prompt = Prompt::new();
            built.task().unwrap().prompt(&mut seeded(2), &mut prompt);
            let ledger = ProtocolReport::keep(name, &built, prompt.tokens(), None).unwrap();
            assert!(
                ledger.exact() && ledger.answer == ledger.ordinary && Some(ledger.answer) == ledger.expected,
                "{name}"
            );
            assert_eq!(ledger.epochs.iter().flat_map(|epoch| &epoch.crossed).sum::<u64>(), ledger.total, "{name}");
            for epoch in &ledger.epochs {
                for (bits, (_, tokens)) in epoch.crossed.iter().zip(&ledger.players[1..]) {
                    let units = if epoch.papers.is_some() { *tokens as u128 } else { 1 };
                    assert!(u128::from(*bits) <= epoch.theory * units, "{name}: {}", epoch.name);
                }
            }
            let text = ledger.text();
            assert!(
                text.contains("4 of 4 players") && text.contains("the same bits") && text.contains("full 0"),
                "{text}"
            );
        }
    }
}
