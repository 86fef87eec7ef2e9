//! Shared by all constructions for [`funccomp`](rung_theory::task::funccomp): the registers of a prompt's tokens, and the head that
//! looks up one table.
//!
//! The prompt lists the entries of the tables `z_1 .. z_L`, the start value `z_0` and the query w; `i_l` is the value after l hops.
//! Every token has one flag per token kind. An entry of `z_l` has its key in two registers, `entry_row_group`
//! (w_{l-1}) and `entry_argument` (i_{l-1}), and its value in a third; w has one register per row group w_1, w_2, .. Blank fields leave
//! their registers at zero.

use rung_theory::task::TaskBase as _;
use rung_theory::task::funccomp::FuncComp;

use super::blocks::{KeyMatch, inverse_temperature, lookup_head};
use super::builder::{AttentionHead, ConstructionBuilder};
use crate::register::{ColumnRange, RegisterKind, bits_for};

/// Index of the token field with the value of an entry; the fields before it are the token's kind and the two numbers of its key.
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
    pub entry_row_group: ColumnRange,
    /// i_{l-1} of an entry.
    pub entry_argument: ColumnRange,
    /// The value of an entry, or z_0.
    pub value: ColumnRange,
    /// The row groups w_1, w_2, .. that the query selects, at the token w.
    pub query_row_groups: Vec<ColumnRange>,
    /// Inverse temperature of the lookups, from [`inverse_temperature`].
    pub inverse_temperature: f64,
}

impl CompositionBuilder {
    /// Adds the registers. The model may emit up to `emitted_tokens` tokens after the prompt.
    pub fn new(name: &'static str, task: &FuncComp, emitted_tokens: usize) -> Self {
        let hops = task.hops();
        let mut builder = ConstructionBuilder::new(name, Box::new(task.clone()));
        let bias = builder.bias;
        let fields = task.fields();
        let registers = &mut builder.registers;
        let mut add_flag = |name: String, about: String| registers.add(name, 1, RegisterKind::Flag, about);
        let entry_flags: Vec<ColumnRange> =
            (1..=hops).map(|l| add_flag(format!("is.{l}"), format!("the token is an entry of z_{l}"))).collect();
        let start_flag = add_flag("is.start".to_owned(), "the token is z_0".to_owned());
        let query_flag = add_flag("is.query".to_owned(), "the token is w".to_owned());
        let has_slot = fields[0].vocabulary as usize > hops + 2;
        let slot_flag =
            has_slot.then(|| add_flag("is.slot".to_owned(), "the token is the slot that answers".to_owned()));
        let blank = |field: usize| fields[field].vocabulary - 1;
        let mut add_number = |field: usize, name: String, about: &str| {
            registers.add(name, bits_for(u64::from(blank(field))), RegisterKind::Number, about)
        };
        let entry_row_group = add_number(1, "outer".to_owned(), "w_(l-1) of an entry");
        let entry_argument = add_number(2, "inner".to_owned(), "i_(l-1) of an entry");
        let value = add_number(VALUE_FIELD, "value".to_owned(), "value of an entry, or z_0");
        let query_row_groups: Vec<ColumnRange> = (1..hops)
            .map(|e| add_number(VALUE_FIELD + e, format!("w.{e}"), "a row group that the query selects"))
            .collect();
        let kind_flags: Vec<ColumnRange> =
            entry_flags.iter().copied().chain([start_flag, query_flag]).chain(slot_flag).collect();
        builder.embed(0, move |kind| {
            let sign = |flag_kind: u32| if flag_kind == kind { 1.0 } else { -1.0 };
            (0..).zip(&kind_flags).map(|(flag_kind, flag)| (flag.start, sign(flag_kind))).collect()
        });
        for (field, register) in
            [entry_row_group, entry_argument, value].into_iter().chain(query_row_groups.iter().copied()).enumerate()
        {
            builder.embed_number(field + 1, register, blank(field + 1));
        }
        let tokens = task.length() + emitted_tokens;
        Self {
            builder,
            task: task.clone(),
            bias,
            entry_flags,
            start_flag,
            query_flag,
            slot_flag,
            entry_row_group,
            entry_argument,
            value,
            query_row_groups,
            inverse_temperature: inverse_temperature(tokens),
        }
    }

    /// The number of tables, L.
    pub fn hops(&self) -> usize {
        self.task.hops()
    }

    /// Bits needed for the value after a hop, i_l, or for z_0 at hop 0.
    pub fn value_bits(&self, hop: usize) -> usize {
        bits_for(u64::from(self.task.sizes()[hop.saturating_sub(1)]))
    }

    /// Adds two registers for i_l: one for what attention read, and one for the bits that it is rounded to.
    pub fn add_hop_value_registers(&mut self, hop: usize) -> (ColumnRange, ColumnRange) {
        let size = self.value_bits(hop);
        let registers = &mut self.builder.registers;
        let unrounded =
            registers.add(format!("read.{hop}"), size, RegisterKind::Unrounded, format!("i_{hop} as it was read"));
        (unrounded, registers.add(format!("i.{hop}"), size, RegisterKind::Number, format!("i_{hop}")))
    }

    /// Matches the entry of z_l whose key is in the query's registers `row_group` and `argument`.
    pub fn entry_match(&self, hop: usize, row_group: Option<ColumnRange>, argument: ColumnRange) -> KeyMatch {
        let key_match =
            KeyMatch::new().key_flag(self.entry_flags[hop - 1], self.bias).equal_bits(argument, self.entry_argument);
        match row_group {
            Some(row_group) => key_match.equal_bits(row_group, self.entry_row_group),
            None => key_match,
        }
    }

    /// A head that looks up the entry of z_l with the key (w_{l-1}, `hop_value`) and copies its value to `unrounded`.
    pub fn table_head(&self, hop: usize, hop_value: ColumnRange, unrounded: ColumnRange) -> AttentionHead {
        let row_group = (hop > 1).then(|| self.query_row_groups[hop - 2]);
        lookup_head(
            &self.entry_match(hop, row_group, hop_value),
            self.inverse_temperature,
            &[(self.value.low_bits(unrounded.size), unrounded)],
        )
    }

    /// A head that copies z_0 to `unrounded`.
    pub fn start_head(&self, unrounded: ColumnRange) -> AttentionHead {
        let key_match = KeyMatch::new().key_flag(self.start_flag, self.bias);
        lookup_head(&key_match, self.inverse_temperature, &[(self.value.low_bits(unrounded.size), unrounded)])
    }
}
