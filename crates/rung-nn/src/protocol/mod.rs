//! A forward pass as a communication protocol, whose bits are counted.
//!
//! The lower bounds treat a prompt as a sequence of players: one for the entries of each table `z_L`, .., `z_1`, then one for `z_0`
//! and one for the query w (see [`funccomp`](rung_theory::task::funccomp)). A player knows its own tokens, and learns about all earlier
//! tokens only by messages. This module runs a real network as such a protocol. The messages to a player are:
//!
//! - in a layer with bounded state, the state before the player's first token;
//! - in a full-attention layer, for each of the player's tokens and each head, the accumulator of the softmax over all earlier tokens:
//!   the largest score, the sum of weights and the weighted sum of values.
//!
//! [`Transcript::record`] runs the players one after another and records every message. [`Transcript::replay`] then runs each player
//! alone, from its tokens and messages only, and compares the outputs bit for bit, which proves that the messages hold everything a
//! player needs. Shapes are known in advance and cost nothing; the bits are actually packed ([`BitString`]). For a model that simulates
//! few bits, [`ProtocolEncodings::for_config`] gives as few: its states are rounded already and are sent without a further loss.
//!
//! Sums are taken from left to right, as in the theory; the ordinary kernels add in another order, and a test compares the two
//! within rounding. Bidirectional models and chains of thought are not such protocols and are rejected.

mod encoding;
mod player;
#[cfg(test)]
mod tests;

pub use encoding::{BitString, NumberEncoding, ProtocolEncodings};

use std::ops::Range;

use rung_engine::{Ops, Scalar, Tensor};
use rung_theory::stack::{Layer, Mixer, MixerReach};
use rung_theory::task::AnyTask;

use crate::error::ModelError;
use crate::mixer::softmax::SoftmaxConfig;
use crate::mixer::{AttentionCalls, MixerConfig as _, attention_calls};
use crate::mixer::{MAX_STATE_TENSORS, State};
use crate::model::ModelState;
use crate::network::Network;
use crate::observer::ObservedOps;
use player::{AccumulatorSource, PlayerAttention};

/// The first tensors of a full-attention state hold keys and values, which are never sent.
const CACHE_TENSORS: usize = 2;

/// A player of the protocol: it knows a contiguous range of the prompt's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Player {
    /// What its tokens are, such as `z1`.
    pub name: String,
    /// The positions of its tokens.
    pub tokens: Range<usize>,
}

/// What a message contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageContent {
    /// The softmax accumulators over all earlier tokens, for every token of the player: full attention.
    SoftmaxAccumulators,
    /// The state of a mixer with bounded state.
    State,
    /// The state of the short convolution before the projections of full attention.
    ConvolutionState,
}

/// A message to a player about all earlier tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerMessage {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer within the layer, from 0.
    pub mixer: usize,
    /// The player that receives it.
    pub receiver: usize,
    /// What it contains.
    pub content: MessageContent,
    /// The packed numbers.
    pub bits: BitString,
    /// Which tensor of a state it is; `None` for softmax accumulators.
    state_tensor: Option<StateTensor>,
}

/// A tensor of a mixer's state, known in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateTensor {
    /// Its index in the state.
    index: usize,
    shape: Vec<usize>,
}

/// A recorded run of the protocol.
pub struct Transcript<S: Scalar> {
    /// The players, in the order of their tokens.
    pub players: Vec<Player>,
    /// Every message.
    pub messages: Vec<PlayerMessage>,
    /// The residual stream after the last layer and the final norm, for every player's tokens.
    pub outputs: Vec<Vec<S>>,
    /// Logits at the last token.
    pub last_logits: Vec<S>,
    encodings: ProtocolEncodings,
}

/// The players of a prompt: one for each run of tokens of the same kind. If tokens have no kind, one for the last token and one for all
/// others.
pub fn players(task: &dyn AnyTask, prompt: &[u32]) -> Vec<Player> {
    let fields = task.fields();
    let tokens: Vec<&[u32]> = prompt.chunks_exact(fields.len()).collect();
    let has_kinds = fields.len() > 1 && fields[0].name == "kind";
    let begins_player = |position: usize| {
        if has_kinds { tokens[position][0] != tokens[position - 1][0] } else { position + 1 == tokens.len() }
    };
    let mut boundaries = vec![0];
    boundaries.extend((1..tokens.len()).filter(|position| begins_player(*position)));
    boundaries.push(tokens.len());
    let hops = fields.len().saturating_sub(3) as u32;
    let name = |range: &Range<usize>| match tokens[range.start][0] {
        _ if task.name() != "funccomp" => format!("tokens {} to {}", range.start, range.end - 1),
        kind if kind < hops => format!("z{}", kind + 1),
        kind if kind == hops => "z0".to_owned(),
        kind if kind == hops + 1 || task.classes() > 0 && kind < fields[0].vocabulary - 1 => "w".to_owned(),
        _ => "slot".to_owned(),
    };
    let ranges = boundaries.windows(2).map(|pair| pair[0]..pair[1]).filter(|range| !range.is_empty());
    ranges.map(|range| Player { name: name(&range), tokens: range }).collect()
}

impl<S: Scalar> Transcript<S> {
    /// Runs a model on a prompt, player after player, with messages in the given encodings.
    ///
    /// # Errors
    /// The model is bidirectional or emits a chain of thought, or a token id is not in its vocabulary.
    pub fn record(
        network: &Network<S>,
        prompt: &[u32],
        players: Vec<Player>,
        encodings: impl Into<ProtocolEncodings>,
    ) -> Result<Self, ModelError> {
        require_supported(network)?;
        let encodings = encodings.into();
        let player_attention = PlayerAttention::new(&network.plan, encodings.accumulator);
        let ops = observed_ops(network, &player_attention);
        let fields = network.config.input.field_count();
        let (mut state, mut messages, mut outputs) = (None, Vec::new(), Vec::new());
        for (index, player) in players.iter().enumerate() {
            player_attention.start_player(player.tokens.start, AccumulatorSource::Cache);
            let own_tokens = &prompt[player.tokens.start * fields..player.tokens.end * fields];
            let (hidden, state_after) = network.model.forward(&ops, own_tokens, 1, state.as_ref())?;
            outputs.push(ops.values(&hidden));
            messages.extend(player_attention.take_messages().into_iter().map(|(layer, call, bits)| PlayerMessage {
                layer,
                mixer: attention_mixers(network, layer).nth(call).unwrap_or(call),
                receiver: index,
                content: MessageContent::SoftmaxAccumulators,
                bits,
                state_tensor: None,
            }));
            if index + 1 < players.len() {
                let state_messages = encode_states(network, &ops, &state_after, index + 1, encodings.state);
                let past_len = player.tokens.end;
                state =
                    Some(decode_states(network, &ops, &state_messages, Some(&state_after), past_len, encodings.state));
                messages.extend(state_messages);
            }
        }
        let last_logits = compute_last_logits(network, &ops, outputs.last().map_or(&[], |output| output));
        Ok(Self { players, messages, outputs, last_logits, encodings })
    }

    /// The outputs of one player, computed from its own tokens and the messages it received.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary.
    pub fn replay_player(&self, network: &Network<S>, own_tokens: &[u32], player: usize) -> Result<Vec<S>, ModelError> {
        let player_attention = PlayerAttention::new(&network.plan, self.encodings.accumulator);
        let ops = observed_ops(network, &player_attention);
        let messages: Vec<PlayerMessage> =
            self.messages.iter().filter(|message| message.receiver == player).cloned().collect();
        let (attention, states): (Vec<PlayerMessage>, Vec<PlayerMessage>) =
            messages.into_iter().partition(|message| message.content == MessageContent::SoftmaxAccumulators);
        let attention = attention.into_iter().map(|message| message.bits).collect();
        let past_len = self.players[player].tokens.start;
        player_attention.start_player(past_len, AccumulatorSource::Messages(attention));
        let state = (past_len > 0).then(|| decode_states(network, &ops, &states, None, past_len, self.encodings.state));
        let (hidden, _) = network.model.forward(&ops, own_tokens, 1, state.as_ref())?;
        Ok(ops.values(&hidden))
    }

    /// Runs every player alone from its messages, and counts those whose outputs equal the recorded ones bit for bit.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary.
    pub fn replay(&self, network: &Network<S>, prompt: &[u32]) -> Result<usize, ModelError> {
        let fields = network.config.input.field_count();
        let mut matching_players = 0;
        for (index, player) in self.players.iter().enumerate() {
            let own_tokens = &prompt[player.tokens.start * fields..player.tokens.end * fields];
            let bit_patterns =
                |numbers: &[S]| numbers.iter().map(|number| number.to_f64().to_bits()).collect::<Vec<_>>();
            let outputs = self.replay_player(network, own_tokens, index)?;
            matching_players += usize::from(bit_patterns(&outputs) == bit_patterns(&self.outputs[index]));
        }
        Ok(matching_players)
    }

    /// Bits of all messages together.
    pub fn bit_count(&self) -> u64 {
        self.messages.iter().map(|message| message.bits.len()).sum()
    }
}

fn require_supported<S: Scalar>(network: &Network<S>) -> Result<(), ModelError> {
    // Accumulators are implemented for ordinary softmax attention only, and no other mixer of its layer may call attention.
    let is_unsupported = |layer: &Layer, mixer: &Mixer| match attention_calls(mixer) {
        AttentionCalls::All => false,
        AttentionCalls::Evicting => layer.mixers.len() > 1,
        AttentionCalls::Window | AttentionCalls::None => matches!(mixer.facts().reach, MixerReach::Full(_)),
    };
    let mut layers = network.plan.layers.iter();
    if let Some(mixer) = layers.find_map(|layer| layer.mixers.iter().find(|mixer| is_unsupported(layer, mixer))) {
        let (what, expected) = ("this attention, as a protocol,", "full attention, and mixers of bounded state");
        return Err(ModelError::UnsupportedOption {
            mixer: mixer.name(),
            what: what.to_owned(),
            expected: expected.to_owned(),
        });
    }
    let what = match () {
        () if !network.config.causal => "a bidirectional model",
        () if network.chain_of_thought().is_some() => "a model that emits a chain of thought",
        () => return Ok(()),
    };
    let expected = "one causal forward pass, as the theory assumes".to_owned();
    Err(ModelError::UnsupportedOption { mixer: SoftmaxConfig::NAME, what: format!("{what}, as a protocol,"), expected })
}

fn observed_ops<'a, S: Scalar>(network: &Network<S>, interceptor: &'a PlayerAttention) -> ObservedOps<'a, S> {
    ObservedOps { native: network.executor(), interceptor }
}

/// The mixers of a layer that call attention, in the order of their calls.
fn attention_mixers<S: Scalar>(network: &Network<S>, layer: usize) -> impl Iterator<Item = usize> + '_ {
    let mixers = network.plan.layers[layer].mixers.iter().enumerate();
    let calls_attention =
        |mixer: &Mixer| matches!(attention_calls(mixer), AttentionCalls::All | AttentionCalls::Window);
    mixers.filter(move |(_, mixer)| calls_attention(mixer)).map(|(index, _)| index)
}

/// For every state of a model, in order: its layer, its mixer, and whether that is full attention.
fn state_mixers<S: Scalar>(network: &Network<S>) -> impl Iterator<Item = (usize, usize, bool)> + '_ {
    let layers = network.plan.layers.iter().enumerate();
    layers.flat_map(|(index, layer)| {
        let is_full = |mixer: &Mixer| attention_calls(mixer) == AttentionCalls::All;
        layer.mixers.iter().enumerate().map(move |(mixer_index, mixer)| (index, mixer_index, is_full(mixer)))
    })
}

/// The states of all layers as messages to a player.
fn encode_states<S: Scalar>(
    network: &Network<S>,
    ops: &ObservedOps<'_, S>,
    state: &ModelState<Tensor<S>>,
    receiver: usize,
    encoding: NumberEncoding,
) -> Vec<PlayerMessage> {
    let mut messages = Vec::new();
    for ((layer, mixer, is_full), state) in state_mixers(network).zip(&state.states) {
        let first_tensor = if is_full { CACHE_TENSORS } else { 0 };
        for (index, tensor) in state.tensors.iter().enumerate().skip(first_tensor) {
            let Some(tensor) = tensor else { continue };
            let content = if is_full { MessageContent::ConvolutionState } else { MessageContent::State };
            let bits = BitString::pack(&ops.values(tensor), encoding);
            let state_tensor = Some(StateTensor { index, shape: ops.shape(tensor)[..].to_vec() });
            messages.push(PlayerMessage { layer, mixer, receiver, content, bits, state_tensor });
        }
    }
    messages
}

/// The state that a player starts from: the states it received and, if given, the cached keys and values.
fn decode_states<S: Scalar>(
    network: &Network<S>,
    ops: &ObservedOps<'_, S>,
    state_messages: &[PlayerMessage],
    cache: Option<&ModelState<Tensor<S>>>,
    past_len: usize,
    encoding: NumberEncoding,
) -> ModelState<Tensor<S>> {
    let states = state_mixers(network).enumerate().map(|(index, (layer, mixer, is_full))| {
        let mut tensors: [Option<Tensor<S>>; MAX_STATE_TENSORS] = std::array::from_fn(|_| None);
        if let Some(cache) = cache.filter(|_| is_full) {
            tensors[..CACHE_TENSORS].clone_from_slice(&cache.states[index].tensors[..CACHE_TENSORS]);
        }
        for message in state_messages.iter().filter(|message| (message.layer, message.mixer) == (layer, mixer)) {
            let Some(StateTensor { index, shape }) = &message.state_tensor else { continue };
            tensors[*index] = Some(ops.constant(shape, &message.bits.unpack(encoding)));
        }
        State::new(past_len, tensors)
    });
    ModelState { past_len, batch: 1, states: states.collect() }
}

/// Logits at the last token, given the residual stream after the final norm.
fn compute_last_logits<S: Scalar>(
    network: &Network<S>,
    ops: &impl Ops<Scalar = S, Tensor = Tensor<S>>,
    hidden: &[S],
) -> Vec<S> {
    let width = network.model.width();
    let last = ops.constant(&[1, 1, width], &hidden[hidden.len() - width..]);
    ops.values(&network.model.logits(ops, &last))
}
