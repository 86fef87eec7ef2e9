//! Shared by all constructions for [`funccomp`](rung_theory::task::funccomp): the registers of a prompt's tokens, and the head that
//! looks up one table.
//!
//! The prompt lists the entries of the tables `z_1 .. z_L`, the start value `z_0` and the query w; `i_l` is the value after l hops.
//! Every token has one flag per token kind. An entry of `z_l` has its address in two registers, `outer` (w_{l-1}) and `inner`
//! (i_{l-1}), and its value in a third; w has one register per part w_1, w_2, .. Blank fields leave their registers at zero.

use rung_theory::task::TaskBase as _;
use rung_theory::task::funccomp::FuncComp;

use super::blocks::{KeyMatch, inverse_temperature, lookup_head};
use super::builder::{AttentionHead, ConstructionBuilder};
use super::register::{ColumnRange, RegisterKind, bits_for};

/// Index of the token field with the value of an entry; the fields before it are the token's kind and the two numbers of its address.
pub const VALUE_FIELD: usize = 3;

/// A builder with the registers of a function-composition prompt.
pub struct CompositionBuilder {
    /// The builder that the registers belong to.
    pub builder: ConstructionBuilder,
    /// The task that the construction solves.
    pub task: FuncComp,
    /// The register that holds the constant 1, by which weights add biases.
    pub bias: ColumnRange,
    /// At index l - 1: the token is an entry of z_l.
    pub entry_flags: Vec<ColumnRange>,
    /// The token is z_0.
    pub start_flag: ColumnRange,
    /// The token is w.
    pub query_flag: ColumnRange,
    /// The token is the answer slot, in prompt orders that have one.
    pub slot_flag: Option<ColumnRange>,
    /// w_{l-1} of an entry.
    pub outer: ColumnRange,
    /// i_{l-1} of an entry.
    pub inner: ColumnRange,
    /// The value of an entry, or z_0.
    pub value: ColumnRange,
    /// The parts w_1, w_2, .. of the query, at the token w.
    pub query_parts: Vec<ColumnRange>,
    /// Inverse temperature of the lookups, from [`inverse_temperature`].
    pub inverse_temperature: f64,
}

impl CompositionBuilder {
    /// Adds the registers. The model may emit up to `emitted` tokens after the prompt.
    pub fn new(name: &'static str, task: &FuncComp, emitted: usize) -> Self {
        let hops = task.hops();
        let mut builder = ConstructionBuilder::new(name, Box::new(task.clone()));
        let bias = builder.bias;
        let fields = task.fields();
        let registers = &mut builder.registers;
        let mut flag = |name: String, about: String| registers.add(name, 1, RegisterKind::Flag, about);
        let entry_flags: Vec<ColumnRange> =
            (1..=hops).map(|l| flag(format!("is.{l}"), format!("the token is an entry of z_{l}"))).collect();
        let start_flag = flag("is.start".to_owned(), "the token is z_0".to_owned());
        let query_flag = flag("is.query".to_owned(), "the token is w".to_owned());
        let has_slot = fields[0].vocabulary as usize > hops + 2;
        let slot_flag = has_slot.then(|| flag("is.slot".to_owned(), "the token is the slot that answers".to_owned()));
        let blank = |field: usize| fields[field].vocabulary - 1;
        let mut number = |field: usize, name: String, about: &str| {
            registers.add(name, bits_for(u64::from(blank(field))), RegisterKind::Number, about)
        };
        let outer = number(1, "outer".to_owned(), "w_(l-1) of an entry");
        let inner = number(2, "inner".to_owned(), "i_(l-1) of an entry");
        let value = number(VALUE_FIELD, "value".to_owned(), "value of an entry, or z_0");
        let query_parts: Vec<ColumnRange> =
            (1..hops).map(|e| number(VALUE_FIELD + e, format!("w.{e}"), "part of the query")).collect();
        let kind_flags: Vec<ColumnRange> =
            entry_flags.iter().copied().chain([start_flag, query_flag]).chain(slot_flag).collect();
        builder.embed(0, move |kind| {
            let sign = |of_kind: u32| if of_kind == kind { 1.0 } else { -1.0 };
            (0..).zip(&kind_flags).map(|(of_kind, flag)| (flag.start, sign(of_kind))).collect()
        });
        for (field, register) in [outer, inner, value].into_iter().chain(query_parts.iter().copied()).enumerate() {
            builder.embed_number(field + 1, register, blank(field + 1));
        }
        let tokens = task.length() + emitted;
        Self {
            builder,
            task: task.clone(),
            bias,
            entry_flags,
            start_flag,
            query_flag,
            slot_flag,
            outer,
            inner,
            value,
            query_parts,
            inverse_temperature: inverse_temperature(tokens),
        }
    }

    /// The number of tables, L.
    pub fn hops(&self) -> usize {
        self.task.hops()
    }

    /// Bits needed for i_l, or for z_0 if l = 0.
    pub fn value_bits(&self, l: usize) -> usize {
        bits_for(u64::from(self.task.sizes()[l.saturating_sub(1)]))
    }

    /// Adds two registers for i_l: one for what attention read, and one for the bits that it is rounded to.
    pub fn add_index_registers(&mut self, l: usize) -> (ColumnRange, ColumnRange) {
        let size = self.value_bits(l);
        let registers = &mut self.builder.registers;
        let raw = registers.add(format!("read.{l}"), size, RegisterKind::Raw, format!("i_{l} as it was read"));
        (raw, registers.add(format!("i.{l}"), size, RegisterKind::Number, format!("i_{l}")))
    }

    /// Matches the entry of z_l whose address is in the query's registers `outer` and `inner`.
    pub fn entry_match(&self, l: usize, outer: Option<ColumnRange>, inner: ColumnRange) -> KeyMatch {
        let key_match = KeyMatch::new().key_flag(self.entry_flags[l - 1], self.bias).equal_bits(inner, self.inner);
        match outer {
            Some(outer) => key_match.equal_bits(outer, self.outer),
            None => key_match,
        }
    }

    /// A head that looks up the entry of z_l at address (w_{l-1}, `index`) and copies its value to `raw`.
    pub fn table_head(&self, l: usize, index: ColumnRange, raw: ColumnRange) -> AttentionHead {
        let outer = (l > 1).then(|| self.query_parts[l - 2]);
        lookup_head(
            &self.entry_match(l, outer, index),
            self.inverse_temperature,
            &[(self.value.low_bits(raw.size), raw)],
        )
    }

    /// A head that copies z_0 to `raw`.
    pub fn start_head(&self, raw: ColumnRange) -> AttentionHead {
        let key_match = KeyMatch::new().key_flag(self.start_flag, self.bias);
        lookup_head(&key_match, self.inverse_temperature, &[(self.value.low_bits(raw.size), raw)])
    }
}
