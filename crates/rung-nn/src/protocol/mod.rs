//! A forward pass as a conversation.
//!
//! The lower bounds see a prompt as a row of players: whoever holds the entries of `z_L`, .., `z_1`, then `z_0`, then w. A player
//! knows its own tokens; of all earlier ones it learns only what crosses the border before it. This module lets a real network be
//! such a conversation and counts the bits:
//!
//! - in a layer with bounded state, the state at the border;
//! - in a full layer, for each of the player's tokens, the registers of its softmax over all earlier tokens: the largest score,
//!   the sum of weights and the weighted sum of values, for every head.
//!
//! [`Transcript::record`] runs the players one after another and writes down every message. [`Transcript::replay`] then runs
//! each player alone, given its tokens and its messages and nothing else, and must find the same outputs, bit for bit: so the
//! messages are all there is. Shapes are agreed on beforehand and cost nothing; bits are really packed ([`BitString`]). A model that
//! simulates few bits speaks in as few ([`ProtocolEncodings::of`]): its states are on levels already and cross as they are.
//!
//! The sums run from left to right, which is the theory's machine; the ordinary kernels add up in another order, and a test holds
//! the two against each other within rounding. Bidirectional models, and chains of thought, are no such conversation.

mod player;
#[cfg(test)]
mod tests;
mod wire;

pub use wire::{BitString, NumberEncoding, ProtocolEncodings};

use std::ops::Range;

use rung_engine::{Ops, Scalar, Tensor};
use rung_theory::stack::{Layer, Mixer, MixerReach};
use rung_theory::task::AnyTask;

use crate::error::ModelError;
use crate::mixer::{SLOTS, State};
use crate::model::ModelState;
use crate::network::Network;
use crate::observer::ObservedOps;
use player::{Registers, Source};

/// Slots of a full mixer's state that hold keys and values: they never cross.
const CACHE: usize = 2;

/// A player of the protocol: it holds a span of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Player {
    /// What it holds.
    pub name: String,
    /// Its tokens.
    pub tokens: Range<usize>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Registers of a full mixer, for every token of the player.
    Registers,
    /// The state of a bounded mixer.
    State,
    /// The state of a convolution before a full mixer's projections.
    Front,
}

/// Bits that cross a border.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorderMessage {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer within it.
    pub mixer: usize,
    /// The player that gets it.
    pub into: usize,
    /// What it is.
    pub content: Content,
    /// The bits.
    pub wire: BitString,
    /// Which of the state's tensors it is, and its shape: known to both sides.
    place: (usize, Vec<usize>),
}

/// A conversation that was held.
pub struct Transcript<S: Scalar> {
    /// Who took part.
    pub players: Vec<Player>,
    /// Everything that was said.
    pub messages: Vec<BorderMessage>,
    /// The normed stream after the last layer, for every player's tokens.
    pub outputs: Vec<Vec<S>>,
    /// Scores at the last token.
    pub scores: Vec<S>,
    widths: ProtocolEncodings,
}

/// The players of a prompt: spans of tokens of one kind, or the last token and all others where tokens have no kind.
pub fn players(task: &dyn AnyTask, prompt: &[u32]) -> Vec<Player> {
    let fields = task.fields();
    let rows: Vec<&[u32]> = prompt.chunks_exact(fields.len()).collect();
    let kinds = fields.len() > 1 && fields[0].name == "kind";
    let begins = |at: usize| if kinds { rows[at][0] != rows[at - 1][0] } else { at + 1 == rows.len() };
    let mut borders = vec![0];
    borders.extend((1..rows.len()).filter(|at| begins(*at)));
    borders.push(rows.len());
    let hops = fields.len().saturating_sub(3) as u32;
    let name = |tokens: &Range<usize>| match rows[tokens.start][0] {
        _ if task.name() != "funccomp" => format!("tokens {} to {}", tokens.start, tokens.end - 1),
        kind if kind < hops => format!("z{}", kind + 1),
        kind if kind == hops => "z0".to_owned(),
        kind if kind == hops + 1 || task.classes() > 0 && kind < fields[0].vocabulary - 1 => "w".to_owned(),
        _ => "slot".to_owned(),
    };
    let spans = borders.windows(2).map(|pair| pair[0]..pair[1]).filter(|tokens| !tokens.is_empty());
    spans.map(|tokens| Player { name: name(&tokens), tokens }).collect()
}

impl<S: Scalar> Transcript<S> {
    /// Runs a model on a prompt, player after player, with numbers of so many bits crossing.
    ///
    /// # Errors
    /// The model is bidirectional or emits a chain of thought, or the tokens are none of its.
    pub fn record(
        network: &Network<S>,
        prompt: &[u32],
        players: Vec<Player>,
        widths: impl Into<ProtocolEncodings>,
    ) -> Result<Self, ModelError> {
        require_one_pass(network)?;
        let widths = widths.into();
        let registers = Registers::new(&network.plan, widths.message);
        let ops = watched(network, &registers);
        let fields = network.config.input.fields();
        let (mut state, mut messages, mut outputs) = (None, Vec::new(), Vec::new());
        for (index, player) in players.iter().enumerate() {
            registers.seat(player.tokens.start, Source::Cache);
            let own = &prompt[player.tokens.start * fields..player.tokens.end * fields];
            let (hidden, after) = network.model.forward(&ops, own, 1, state.as_ref())?;
            outputs.push(ops.values(&hidden));
            messages.extend(registers.crossed().into_iter().map(|(layer, call, wire)| {
                let mixer = full_mixers(network, layer).nth(call).unwrap_or(call);
                let place = (call, Vec::new());
                BorderMessage { layer, mixer, into: index, content: Content::Registers, wire, place }
            }));
            if index + 1 < players.len() {
                let said = states_out(network, &ops, &after, index + 1, widths.state);
                state = Some(states_in(network, &ops, &said, Some(&after), player.tokens.end, widths.state));
                messages.extend(said);
            }
        }
        let scores = last_scores(network, &ops, outputs.last().map_or(&[], |output| output));
        Ok(Self { players, messages, outputs, scores, widths })
    }

    /// The outputs of one player, from its own tokens and what it received.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn replay_player(&self, network: &Network<S>, own: &[u32], player: usize) -> Result<Vec<S>, ModelError> {
        let registers = Registers::new(&network.plan, self.widths.message);
        let ops = watched(network, &registers);
        let received: Vec<BorderMessage> =
            self.messages.iter().filter(|message| message.into == player).cloned().collect();
        let (queries, states): (Vec<BorderMessage>, Vec<BorderMessage>) =
            received.into_iter().partition(|message| message.content == Content::Registers);
        let inbox = queries.into_iter().map(|message| message.wire).collect();
        let seen = self.players[player].tokens.start;
        registers.seat(seen, Source::Inbox(inbox));
        let before = (seen > 0).then(|| states_in(network, &ops, &states, None, seen, self.widths.state));
        let (hidden, _) = network.model.forward(&ops, own, 1, before.as_ref())?;
        Ok(ops.values(&hidden))
    }

    /// Lets every player work alone from its messages, and counts those who find exactly what they found in the conversation.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn replay(&self, network: &Network<S>, prompt: &[u32]) -> Result<usize, ModelError> {
        let fields = network.config.input.fields();
        let mut same = 0;
        for (index, player) in self.players.iter().enumerate() {
            let own = &prompt[player.tokens.start * fields..player.tokens.end * fields];
            let bits = |numbers: &[S]| numbers.iter().map(|number| number.to_f64().to_bits()).collect::<Vec<_>>();
            same += usize::from(bits(&self.replay_player(network, own, index)?) == bits(&self.outputs[index]));
        }
        Ok(same)
    }

    /// Bits of all messages.
    pub fn bits(&self) -> u64 {
        self.messages.iter().map(|message| message.wire.bits()).sum()
    }
}

fn require_one_pass<S: Scalar>(network: &Network<S>) -> Result<(), ModelError> {
    // Registers are known for plain attention alone, whose calls must be the only ones that stand beside it in a layer.
    let strange = |layer: &Layer, mixer: &Mixer| match mixer.name() {
        "full" => false,
        "evicting" => layer.mixers.len() > 1,
        _ => matches!(mixer.facts().reach, MixerReach::Full(_)),
    };
    let mut layers = network.plan.layers.iter();
    if let Some(mixer) = layers.find_map(|layer| layer.mixers.iter().find(|mixer| strange(layer, mixer))) {
        let (what, expected) = ("this attention, as a protocol,", "full attention, and mixers of bounded state");
        return Err(ModelError::Unsupported {
            mixer: mixer.name(),
            what: what.to_owned(),
            expected: expected.to_owned(),
        });
    }
    let thinks = network.chain_of_thought().is_some();
    let what = match () {
        () if !network.config.causal => "a bidirectional model",
        () if thinks => "a model that emits a chain of thought",
        () => return Ok(()),
    };
    let expected = "one causal forward pass, which is what the theory's players share".to_owned();
    Err(ModelError::Unsupported { mixer: "full", what: format!("{what}, as a protocol,"), expected })
}

fn watched<'a, S: Scalar>(network: &Network<S>, watch: &'a Registers) -> ObservedOps<'a, S> {
    ObservedOps { native: network.executor(), watch }
}

/// Mixers of a layer that call attention: their calls come in this order.
fn full_mixers<S: Scalar>(network: &Network<S>, layer: usize) -> impl Iterator<Item = usize> + '_ {
    let mixers = network.plan.layers[layer].mixers.iter().enumerate();
    mixers.filter(|(_, mixer)| ["full", "window"].contains(&mixer.name())).map(|(index, _)| index)
}

/// Layer, mixer and whether it is full, for every state of a model in order.
fn state_mixers<S: Scalar>(network: &Network<S>) -> impl Iterator<Item = (usize, usize, bool)> + '_ {
    let layers = network.plan.layers.iter().enumerate();
    layers.flat_map(|(layer, mixers)| {
        mixers.mixers.iter().enumerate().map(move |(mixer, kind)| (layer, mixer, kind.name() == "full"))
    })
}

/// States as messages.
fn states_out<S: Scalar>(
    network: &Network<S>,
    ops: &ObservedOps<'_, S>,
    after: &ModelState<Tensor<S>>,
    into: usize,
    width: NumberEncoding,
) -> Vec<BorderMessage> {
    let mut messages = Vec::new();
    for ((layer, mixer, full), state) in state_mixers(network).zip(&after.states) {
        let first = if full { CACHE } else { 0 };
        for (slot, tensor) in state.tensors.iter().enumerate().skip(first) {
            let Some(tensor) = tensor else { continue };
            let content = if full { Content::Front } else { Content::State };
            let wire = BitString::of(&ops.values(tensor), width);
            let place = (slot, ops.shape(tensor)[..].to_vec());
            messages.push(BorderMessage { layer, mixer, into, content, wire, place });
        }
    }
    messages
}

/// The state a player starts from: what it received and, if there is one, the cache of keys and values.
fn states_in<S: Scalar>(
    network: &Network<S>,
    ops: &ObservedOps<'_, S>,
    received: &[BorderMessage],
    cache: Option<&ModelState<Tensor<S>>>,
    seen: usize,
    width: NumberEncoding,
) -> ModelState<Tensor<S>> {
    let states = state_mixers(network).enumerate().map(|(index, (layer, mixer, full))| {
        let mut tensors: [Option<Tensor<S>>; SLOTS] = std::array::from_fn(|_| None);
        if let Some(cache) = cache.filter(|_| full) {
            tensors[..CACHE].clone_from_slice(&cache.states[index].tensors[..CACHE]);
        }
        for message in received.iter().filter(|message| (message.layer, message.mixer) == (layer, mixer)) {
            let (slot, shape) = &message.place;
            tensors[*slot] = Some(ops.constant(shape, &message.wire.numbers(width)));
        }
        State::new(seen, tensors)
    });
    ModelState { seen, batch: 1, states: states.collect() }
}

/// Scores at the last token of a normed stream.
fn last_scores<S: Scalar>(
    network: &Network<S>,
    ops: &impl Ops<Scalar = S, Tensor = Tensor<S>>,
    hidden: &[S],
) -> Vec<S> {
    let width = network.model.width();
    let last = ops.constant(&[1, 1, width], &hidden[hidden.len() - width..]);
    ops.values(&network.model.logits(ops, &last))
}
