//! What all constructions for function composition share: the registers of its tokens, and a look-up of one table.
//!
//! Every token has a flag for each kind of token; an entry has its address in two registers, `outer` (w_{l-1}) and `inner`
//! (i_{l-1}), and its value; w has its parts. Blank fields leave their registers at zero.

use rung_theory::task::Task;
use rung_theory::task::funccomp::FuncComp;

use super::draft::{Draft, HeadDraft};
use super::part::{KeyMatch, look_up, sharpness};
use super::register::{RegisterKind, Slice, bits};

/// The registers of a prompt of function composition.
pub struct ChainRegisters {
    /// The draft they are in.
    pub draft: Draft,
    /// The task.
    pub task: FuncComp,
    /// The register of 1.
    pub one: Slice,
    /// `is.l` at l - 1: the token is an entry of z_l.
    pub entry: Vec<Slice>,
    /// The token is z_0.
    pub start: Slice,
    /// The token is w.
    pub query: Slice,
    /// The token is the slot that answers, in orders that have one.
    pub slot: Option<Slice>,
    /// w_{l-1} of an entry.
    pub outer: Slice,
    /// i_{l-1} of an entry.
    pub inner: Slice,
    /// The value of an entry, or z_0.
    pub value: Slice,
    /// w_1 .. at w.
    pub parts: Vec<Slice>,
    /// How sharp look-ups are.
    pub sharpness: f64,
}

impl ChainRegisters {
    /// Lays out the registers. `more` tokens may follow the prompt, with `kinds` further kinds of their own.
    pub fn new(name: &'static str, task: &FuncComp, more: usize) -> Self {
        let hops = task.hops();
        let mut draft = Draft::new(name, Box::new(task.clone()));
        let one = draft.one;
        let fields = Task::fields(task);
        let registers = &mut draft.registers;
        let mut flag = |name: String, about: String| registers.add(name, 1, RegisterKind::Flag, about);
        let entry: Vec<Slice> =
            (1..=hops).map(|l| flag(format!("is.{l}"), format!("the token is an entry of z_{l}"))).collect();
        let start = flag("is.start".to_owned(), "the token is z_0".to_owned());
        let query = flag("is.query".to_owned(), "the token is w".to_owned());
        let has_slot = fields[0].vocabulary as usize > hops + 2;
        let slot = has_slot.then(|| flag("is.slot".to_owned(), "the token is the slot that answers".to_owned()));
        let blank = |field: usize| fields[field].vocabulary - 1;
        let mut number = |field: usize, name: String, about: &str| {
            let size = bits(u64::from(blank(field)));
            (field, registers_add(&mut draft, name, size, about))
        };
        let (_, outer) = number(1, "outer".to_owned(), "w_(l-1) of an entry");
        let (_, inner) = number(2, "inner".to_owned(), "i_(l-1) of an entry");
        let (_, value) = number(3, "value".to_owned(), "value of an entry, or z_0");
        let parts: Vec<Slice> = (1..hops).map(|e| number(3 + e, format!("w.{e}"), "part of the query").1).collect();
        let kinds: Vec<Slice> = entry.iter().copied().chain([start, query]).chain(slot).collect();
        draft.embed(0, move |kind| {
            kinds
                .iter()
                .enumerate()
                .map(|(at, flag)| (flag.start, if at as u32 == kind { 1.0 } else { -1.0 }))
                .collect()
        });
        for (field, register) in [outer, inner, value].into_iter().chain(parts.iter().copied()).enumerate() {
            draft.embed_number(field + 1, register, blank(field + 1));
        }
        let tokens = Task::length(task) + more;
        Self {
            draft,
            task: task.clone(),
            one,
            entry,
            start,
            query,
            slot,
            outer,
            inner,
            value,
            parts,
            sharpness: sharpness(tokens),
        }
    }

    /// L.
    pub fn hops(&self) -> usize {
        self.task.hops()
    }

    /// Bits of i_l, and of z_0 for l = 0.
    pub fn value_bits(&self, l: usize) -> usize {
        bits(u64::from(self.task.sizes()[l.saturating_sub(1)]))
    }

    /// A register for bits that were read and one for the bits they are snapped to.
    pub fn reading(&mut self, l: usize) -> (Slice, Slice) {
        let size = self.value_bits(l);
        let registers = &mut self.draft.registers;
        let raw = registers.add(format!("read.{l}"), size, RegisterKind::Raw, format!("i_{l} as it was read"));
        (raw, registers.add(format!("i.{l}"), size, RegisterKind::Number, format!("i_{l}")))
    }

    /// What an entry of z_l must have: its flag, and the address in these registers.
    pub fn address(&self, l: usize, outer: Option<Slice>, inner: Slice) -> KeyMatch {
        let wanted = KeyMatch::new().flag(self.entry[l - 1], self.one).numbers(inner, self.inner);
        match outer {
            Some(outer) => wanted.numbers(outer, self.outer),
            None => wanted,
        }
    }

    /// A head that finds the entry of z_l at (w_{l-1}, `reached`) and copies its value to `raw`.
    pub fn hop(&self, l: usize, reached: Slice, raw: Slice) -> HeadDraft {
        let outer = (l > 1).then(|| self.parts[l - 2]);
        look_up(&self.address(l, outer, reached), self.sharpness, &[(self.value.low_bits(raw.size), raw)])
    }

    /// A head that reads z_0.
    pub fn read_start(&self, raw: Slice) -> HeadDraft {
        let wanted = KeyMatch::new().flag(self.start, self.one);
        look_up(&wanted, self.sharpness, &[(self.value.low_bits(raw.size), raw)])
    }
}

fn registers_add(draft: &mut Draft, name: String, size: usize, about: &str) -> Slice {
    draft.registers.add(name, size, RegisterKind::Number, about)
}
