//! Function composition through L tables: L look-ups in a row.
//!
//! The prompt contains a chain of tables, and a query at the end goes through them; each look-up needs the result of the
//! one before. If the tables are large compared with its state, a stack with fewer than L rungs cannot solve it in one
//! pass. The capacity, the bounds and the constructions are about this task.
//!
//! # Definition
//!
//! Sizes `m` and `n_1 .. n_(L-1)`, where L is `hops`; `N_0 = m` and `N_e = N_(e-1) * n_e`. Write `[N]` for 0 ..
//! N-1.
//!
//! - Table `z_l`, for l = 1 .. L, maps `[N_(l-1)]` to `[N_(l-1)]`; its values are independent and uniform.
//! - A query is a start `z_0` in `[m]` and a tuple `w = (w_1 .. w_(L-1))` with `w_e` in `[n_e]`, all uniform.
//! - `i_1 = z_1(z_0)`, then `i_(l+1) = z_(l+1)(w_l, i_l)`, the pair being the argument `w_l * N_(l-1) + i_l`.
//! - The answer is `i_L`. With `mixed=yes` each query has a uniform h from 1 .. L, which is encoded in its w token, and
//!   the answer is `i_h`; `w_h` and later are random and have no effect.
//!
//! Table `z_(e+1)` has `n_e` row groups of `N_(e-1)` entries each, and `w_e` selects one of them.
//!
//! `order` is the order of tables, start and query. The *slot* is an extra last token at which the answer is predicted.
//! `listing` is the order of the entries of a table: `w-major`, in the order of their arguments, so that all entries of one w are
//! adjacent; or `i-major`, where all entries of one i are.
//!
//! | order | prompt | answers |
//! |---|---|---|
//! | `hard` | `z_L .. z_1`, then `z_0` and w once per query | w |
//! | `query-first` | w, `z_L .. z_1`, `z_0`, slot | slot |
//! | `streaming` | `z_0`, w, `z_1 .. z_L`, slot | slot |
//!
//! `queries` is the number of queries about the same tables, in the `hard` order only; a w then belongs to the `z_0`
//! right before it. Without w (every `n_e = 1`) the entries could be composed by pointer doubling before the query is known.
//!
//! A token has 3 + L fields. A value v has id v; the last id of each field except `kind` is the blank.
//!
//! | field | ids | used by |
//! |---|---|---|
//! | `kind` | l-1 for an entry of `z_l`; L for `z_0`; then w; then the slot | all |
//! | `outer` | the row group `w_(l-1)` that the entry is in, blank for l = 1 | entries |
//! | `inner` | its argument within the row group, `i_(l-1)` | entries |
//! | `value` | the value of the entry, or `z_0` | entries, `z_0` |
//! | `w1` .. | the selected row groups `w_1` .. | w |
//!
//! With `names=levels` every level has separate ids: the ids of the values of `z_l` come after those of `z_(l-1)`, starting with
//! those of `z_0`; and the ids of `w_e` come after those of `w_(e-1)`, starting with a single id for `w_0`, which entries of `z_1`
//! and every w have. Targets are value ids. The kind of a token determines its level anyway, so the task is equivalent; it is
//! learned in fewer steps.
//!
//! For w there is one kind, L+1; with `mixed=yes` there are L, and L+h asks for h hops. The slot has the kind after
//! those, and in the `hard` order there is none. The target class is the value itself. The metric group of a question is
//! the number of hops it asks for.
//!
//! # One sample
//!
//! `funccomp{hops=2,m=3,n=[2],order=hard,queries=2,mixed=yes}`, seed 0:
//!
//! ```text
//! z2     (0,0)=2 (0,1)=3 (0,2)=4 (1,0)=3 (1,1)=0 (1,2)=1
//! z1     (0)=1 (1)=2 (2)=2
//! z0     2
//! w      (1) asks for 2 hops -> 1
//! z0     1
//! w      (1) asks for 2 hops -> 1
//! ```
//!
//! # Baseline
//!
//! `i_h` is uniform on `[N_(h-1)]` given all other tables and the query, so a guess that does not read `z_h`
//! is right once in `N_(h-1)`: `1/N_(L-1)` of the time, or with `mixed=yes` the mean of `1/N_(h-1)` over h.
//!
//! # Source
//!
//! Chen, Peng and Wu, *Theoretical limitations of multi-layer Transformer* (arXiv 2412.02975), L-sequential
//! function composition. Several queries per prompt and mixed hops are ours: a single question per prompt gives too
//! little training signal.

mod instances;
mod spec;

use std::collections::HashMap;

use super::prompt::TemplateId;
use super::{
    Field, MAX_IDS, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskBase, TaskError, fill_random,
    join_numbers, random_below, render,
};

/// The largest number of hops.
pub const MAX_HOPS: usize = 64;

/// The first fields of a token. `w_1` .. `w_(L-1)` follow.
const KIND: usize = 0;
const OUTER: usize = 1;
const INNER: usize = 2;
const VALUE: usize = 3;
/// The first of the selected row groups.
const FIRST_ROW_GROUP: usize = 4;

/// The order of tables, start and query in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Tables from the last to the first, then the queries: nothing can be composed before the query is known.
    LastTableFirst,
    /// w first: entry tokens can attend to it, and logarithmic depth suffices.
    QueryFirst,
    /// In the order of use: a recurrent layer can follow the chain while it reads the tables.
    Streaming,
}

/// The order of the entries of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EntryOrder {
    /// Entries of one w are adjacent: the order of arguments, which some certificates require.
    #[default]
    WMajor,
    /// Entries of one i are adjacent.
    IMajor,
}

/// The task `funccomp`.
#[derive(Clone, Debug)]
pub struct FuncComp {
    /// `N_0 .. N_(L-1)`: table l has `sizes[l-1]` entries.
    sizes: Vec<u32>,
    /// `n_1 .. n_(L-1)`: the numbers of row groups of `z_2 .. z_L`.
    row_groups_per_table: Vec<u32>,
    order: Order,
    entry_order: EntryOrder,
    /// Queries per prompt.
    query_count: usize,
    /// Whether each query has a random number of hops.
    mixed_hops: bool,
    id_scope: IdScope,
    offsets: PromptOffsets,
    template: TemplateId,
}

/// Whether different tables use the same ids for values and row groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdScope {
    /// A value has the same id in every table.
    #[default]
    Shared,
    /// Every level has separate ids.
    Levels,
}

/// Tables and the queries about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FuncCompInstance {
    /// `z_1 .. z_L`, each in the order of its arguments.
    pub tables: Vec<Vec<u32>>,
    /// The queries, in prompt order.
    pub queries: Vec<Query>,
}

/// One query about the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The start `z_0`.
    pub start: u32,
    /// `w_1 .. w_(L-1)`: which row group of `z_2 .. z_L` to look in.
    pub row_groups: Vec<u32>,
    /// The number of look-ups: L unless hops are mixed.
    pub hops: usize,
}

/// The positions of the first entry of each table, the first `z_0`, the first w, and the first target.
#[derive(Clone, Debug)]
struct PromptOffsets {
    tables: Vec<usize>,
    start: usize,
    query: usize,
    target: usize,
}

impl PromptOffsets {
    fn new(sizes: &[u32], order: Order) -> Self {
        let entry_count: usize = sizes.iter().map(|size| *size as usize).sum();
        let (mut position, start, query, target) = match order {
            Order::LastTableFirst => (0, entry_count, entry_count + 1, entry_count + 1),
            Order::QueryFirst => (1, entry_count + 1, 0, entry_count + 2),
            Order::Streaming => (2, 0, 1, entry_count + 2),
        };
        let mut levels: Vec<usize> = (0..sizes.len()).collect();
        if order != Order::Streaming {
            levels.reverse();
        }
        let mut tables = vec![0; sizes.len()];
        for level in levels {
            tables[level] = position;
            position += sizes[level] as usize;
        }
        Self { tables, start, query, target }
    }
}

impl FuncComp {
    /// The task with sizes `m` and n_1 .. n_(L-1) = `row_groups_per_table`, and L = `row_groups_per_table.len()` + 1 hops.
    ///
    /// # Errors
    /// A size is 0, the prompt would be too long, or there are several queries in another order than `hard`.
    pub fn new(
        m: u32,
        row_groups_per_table: &[u32],
        order: Order,
        query_count: usize,
        mixed_hops: bool,
    ) -> Result<Self, TaskError> {
        let error = |found: String, expected: &str| {
            Err(TaskError::BadSize { task: Self::NAME, found, expected: expected.to_owned() })
        };
        if row_groups_per_table.len() >= MAX_HOPS {
            return error(format!("{} hops", row_groups_per_table.len() + 1), &format!("at most {MAX_HOPS}"));
        }
        if m == 0 || row_groups_per_table.contains(&0) || query_count == 0 {
            return error("a size of 0".to_owned(), "`m`, each of `n`, and `queries` at least 1");
        }
        if order != Order::LastTableFirst && query_count != 1 {
            return error(format!("{query_count} queries"), "one query, as the order is not `hard`");
        }
        let mut sizes = vec![m];
        let mut tokens = u64::from(m)
            .saturating_add(2 * query_count as u64)
            .saturating_add(u64::from(order != Order::LastTableFirst));
        for row_group_count in row_groups_per_table {
            // Both factors are below 2^32, so the product does not overflow; the limit is checked before the next factor.
            let size = u64::from(sizes[sizes.len() - 1]) * u64::from(*row_group_count);
            tokens = tokens.saturating_add(size);
            if tokens > MAX_TOKENS {
                break;
            }
            sizes.push(size as u32);
        }
        let fields = (FIRST_ROW_GROUP + row_groups_per_table.len()) as u64;
        if tokens > MAX_TOKENS || tokens * fields > MAX_IDS {
            let found = format!("a prompt of {tokens} tokens or more, each of {fields} ids");
            return error(found, &format!("at most {MAX_TOKENS} tokens and {MAX_IDS} ids"));
        }
        let offsets = PromptOffsets::new(&sizes, order);
        let (row_groups_per_table, entry_order, id_scope) =
            (row_groups_per_table.to_vec(), EntryOrder::default(), IdScope::Shared);
        Ok(Self {
            sizes,
            row_groups_per_table,
            order,
            entry_order,
            query_count,
            mixed_hops,
            id_scope,
            offsets,
            template: TemplateId::default(),
        })
    }

    /// The same task with another order of table entries.
    #[must_use]
    pub fn with_entry_order(self, entry_order: EntryOrder) -> Self {
        Self { entry_order, template: TemplateId::default(), ..self }
    }

    /// The same task with another choice of ids.
    #[must_use]
    pub fn with_id_scope(self, id_scope: IdScope) -> Self {
        Self { id_scope, template: TemplateId::default(), ..self }
    }

    /// L: the number of tables.
    pub fn hops(&self) -> usize {
        self.sizes.len()
    }

    /// `N_0 .. N_(L-1)`: entries of `z_1 .. z_L`.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// `n_1 .. n_(L-1)`: the numbers of row groups of `z_2 .. z_L`.
    pub fn row_groups_per_table(&self) -> &[u32] {
        &self.row_groups_per_table
    }

    /// The order of tables, start and query.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The order of the entries of a table.
    pub fn entry_order(&self) -> EntryOrder {
        self.entry_order
    }

    /// Queries per prompt.
    pub fn query_count(&self) -> usize {
        self.query_count
    }

    /// Whether each query has a random number of hops.
    pub fn mixed_hops(&self) -> bool {
        self.mixed_hops
    }

    /// The answer `i_h` of a query.
    ///
    /// # Panics
    /// The instance is not of this task's sizes.
    pub fn follow(&self, instance: &FuncCompInstance, query: &Query) -> u32 {
        self.follow_to(instance, query, query.hops)
    }

    /// `i_h` for h = `hops`, independent of the query's own number of hops.
    fn follow_to(&self, instance: &FuncCompInstance, query: &Query, hops: usize) -> u32 {
        let mut value = instance.tables[0][query.start as usize];
        for level in 1..hops {
            // `value` is below the size of the previous table.
            let argument = query.row_groups[level - 1] * self.sizes[level - 1] + value;
            value = instance.tables[level][argument as usize];
        }
        value
    }

    /// Number of ids per token.
    fn ids_per_token(&self) -> usize {
        FIRST_ROW_GROUP + usize::from(self.id_scope == IdScope::Levels) + self.row_groups_per_table.len()
    }

    /// The id of value 0 of this level: `z_0` is level 0, values of `z_l` are level l.
    fn first_value_id(&self, level: usize) -> u32 {
        match (self.id_scope, level) {
            (IdScope::Shared, _) | (_, 0) => 0,
            (IdScope::Levels, _) => self.sizes[0] + self.sizes[..level - 1].iter().sum::<u32>(),
        }
    }

    /// The id of `w_e = 0`; `w_0` has a single id, before those of `w_1`.
    fn first_row_group_id(&self, e: usize) -> u32 {
        match (self.id_scope, e) {
            (IdScope::Shared, _) | (_, 0) => 0,
            (IdScope::Levels, _) => 1 + self.row_groups_per_table[..e - 1].iter().sum::<u32>(),
        }
    }

    /// The kind of a w token with this number of hops.
    fn query_kind(&self, hops: usize) -> u32 {
        (self.hops() + if self.mixed_hops { hops } else { 1 }) as u32
    }

    /// The kind of the slot, the token at which the answer is predicted.
    fn slot_kind(&self) -> u32 {
        self.query_kind(self.hops()) + 1
    }

    /// The fields if every level has separate ids. The fields `w0`, `w1`, .. can share an embedding table with `outer`, since the ids of
    /// different levels differ.
    fn fields_with_level_ids(&self, kinds: u32) -> Vec<Field> {
        let (hops, value_ids) = (self.hops(), self.classes());
        let row_group_ids = 1 + self.row_groups_per_table.iter().sum::<u32>();
        let field =
            |name: String, symbols: u32, alphabet| Field::new(name, symbols + 1).with_blank().with_alphabet(alphabet);
        let first = [
            Field::new("kind", kinds),
            field("outer".to_owned(), row_group_ids, "branch"),
            field("inner".to_owned(), self.first_value_id(hops), "number"),
            field("value".to_owned(), value_ids, "number"),
        ];
        first.into_iter().chain((0..hops).map(|e| field(format!("w{e}"), row_group_ids, "branch"))).collect()
    }

    /// For each query, the class after 1 .. L hops; from its own number of hops on, its final answer repeated.
    fn intermediate_answers<'a>(&'a self, instance: &'a FuncCompInstance) -> impl Iterator<Item = u32> + 'a {
        instance
            .queries
            .iter()
            .flat_map(move |query| (1..=self.hops()).map(move |hops| self.class(instance, query, hops.min(query.hops))))
    }

    /// The class of `i_h`.
    fn class(&self, instance: &FuncCompInstance, query: &Query, hops: usize) -> u32 {
        self.first_value_id(hops) + self.follow_to(instance, query, hops)
    }

    /// The last id of each field, which is the blank except in `kind`.
    fn blanks(&self) -> Vec<u32> {
        self.fields().iter().map(|field| field.vocabulary - 1).collect()
    }

    /// The argument of the entry at an index of the table `z_(level+1)`, in prompt order.
    fn argument_at(&self, level: usize, index: u32) -> u32 {
        if self.entry_order == EntryOrder::WMajor || level == 0 {
            return index;
        }
        let (row_group_count, row_group_size) = (self.row_groups_per_table[level - 1], self.sizes[level - 1]);
        index % row_group_count * row_group_size + index / row_group_count
    }

    /// Writes the template: the ids that are the same in every sample, and blanks elsewhere.
    fn write_template(&self, prompt: &mut Prompt) {
        let offsets = &self.offsets;
        let blanks = self.blanks();
        prompt.start(self.ids_per_token());
        for _ in 0..self.length() {
            prompt.push(&blanks);
        }
        let (ids_per_token, ids) = (self.ids_per_token(), prompt.tokens_mut());
        for (level, first) in offsets.tables.iter().enumerate() {
            let inner_size = if level == 0 { self.sizes[0] } else { self.sizes[level - 1] };
            let rows = ids[first * ids_per_token..].chunks_exact_mut(ids_per_token);
            for (index, row) in (0..self.sizes[level]).zip(rows) {
                let argument = self.argument_at(level, index);
                row[KIND] = level as u32;
                row[INNER] = self.first_value_id(level) + argument % inner_size;
                if level > 0 || self.id_scope == IdScope::Levels {
                    row[OUTER] = self.first_row_group_id(level) + argument / inner_size;
                }
            }
        }
        for query in 0..self.query_count {
            ids[(offsets.start + 2 * query) * ids_per_token + KIND] = self.hops() as u32;
        }
        if self.order != Order::LastTableFirst {
            ids[offsets.target * ids_per_token + KIND] = self.slot_kind();
        }
        prompt.set_template(&self.template);
    }

    /// The number of hops of a w token of this kind.
    fn query_hops(&self, kind: u32) -> Option<usize> {
        let number = (kind as usize).checked_sub(self.hops())?;
        if self.mixed_hops {
            (1..=self.hops()).contains(&number).then_some(number)
        } else {
            (number == 1).then(|| self.hops())
        }
    }
}

impl PartialEq for FuncComp {
    fn eq(&self, other: &Self) -> bool {
        (
            &self.sizes,
            &self.row_groups_per_table,
            self.order,
            self.entry_order,
            self.query_count,
            self.mixed_hops,
            self.id_scope,
        ) == (
            &other.sizes,
            &other.row_groups_per_table,
            other.order,
            other.entry_order,
            other.query_count,
            other.mixed_hops,
            other.id_scope,
        )
    }
}

impl Eq for FuncComp {}

impl TaskBase for FuncComp {
    fn groups_by_hops(&self) -> bool {
        true
    }

    fn fields(&self) -> Vec<Field> {
        let hops = self.hops();
        let kinds = self.slot_kind() + u32::from(self.order != Order::LastTableFirst);
        if self.id_scope == IdScope::Levels {
            return self.fields_with_level_ids(kinds);
        }
        let outer_ids = self.row_groups_per_table.iter().max().map_or(1, |most| most + 1);
        let inner_ids = self.sizes[hops.saturating_sub(2)] + 1;
        let value_ids = self.sizes[hops - 1] + 1;
        let row_group = |(e, n): (usize, &u32)| {
            let field = Field::new(format!("w{}", e + 1), n + 1).with_blank();
            if e == 0 { field.with_alphabet("branch") } else { field }
        };
        // Arguments and values share an alphabet, and so do outer arguments and `w_1`. The later `w_e` are in the same token
        // as `w_1` and must be distinguishable, so they have separate alphabets.
        let first = [
            Field::new("kind", kinds),
            Field::new("outer", outer_ids).with_blank().with_alphabet("branch"),
            Field::new("inner", inner_ids).with_blank().with_alphabet("number"),
            Field::new("value", value_ids).with_blank().with_alphabet("number"),
        ];
        first.into_iter().chain(self.row_groups_per_table.iter().enumerate().map(row_group)).collect()
    }

    fn classes(&self) -> u32 {
        match self.id_scope {
            IdScope::Shared => self.sizes[self.hops() - 1],
            IdScope::Levels => self.first_value_id(self.hops()) + self.sizes[self.hops() - 1],
        }
    }

    fn length(&self) -> usize {
        let entry_count: usize = self.sizes.iter().map(|size| *size as usize).sum();
        entry_count + 2 * self.query_count + usize::from(self.order != Order::LastTableFirst)
    }

    fn baseline(&self) -> f64 {
        let chance_accuracy = |size: &u32| 1.0 / f64::from(*size);
        if self.mixed_hops {
            self.sizes.iter().map(chance_accuracy).sum::<f64>() / self.hops() as f64
        } else {
            chance_accuracy(&self.sizes[self.hops() - 1])
        }
    }

    fn render(&self, prompt: &Prompt) -> String {
        let ids_per_token = prompt.ids_per_token().max(1);
        let rows: Vec<&[u32]> = prompt.tokens().chunks_exact(ids_per_token).collect();
        let mut text = String::new();
        let mut first_position = 0;
        for tokens in rows.chunk_by(|a, b| a[KIND] == b[KIND]) {
            let kind = tokens[0][KIND];
            let target = prompt.targets()[first_position];
            let hops = self.query_hops(kind).unwrap_or(self.hops());
            let answer =
                if target == NO_TARGET { String::new() } else { format!(" -> {}", target - self.first_value_id(hops)) };
            first_position += tokens.len();
            // Subtracts the id offsets of levels.
            let level = kind as usize;
            let (first_outer_id, first_inner_id) =
                if level < self.hops() { (self.first_row_group_id(level), self.first_value_id(level)) } else { (0, 0) };
            let value = |index: usize| tokens[index][VALUE] - self.first_value_id(level + 1);
            if kind == 0 {
                render::list(&mut text, "z1", tokens.len(), |index| {
                    format!("({})={}", tokens[index][INNER], value(index))
                });
            } else if (kind as usize) < self.hops() {
                let entry = |index: usize| {
                    format!(
                        "({},{})={}",
                        tokens[index][OUTER] - first_outer_id,
                        tokens[index][INNER] - first_inner_id,
                        value(index)
                    )
                };
                render::list(&mut text, &format!("z{}", kind + 1), tokens.len(), entry);
            } else if kind as usize == self.hops() {
                render::list(&mut text, "z0", tokens.len(), |index| tokens[index][VALUE].to_string());
            } else if self.query_hops(kind).is_some() {
                let row_groups = &tokens[0][self.ids_per_token() - self.row_groups_per_table.len()..];
                let row_groups: Vec<u32> =
                    (1..).zip(row_groups).map(|(e, id)| id - self.first_row_group_id(e)).collect();
                let row_groups = join_numbers(&row_groups);
                render::list(&mut text, "w", 1, |_| format!("({row_groups}) asks for {hops} hops{answer}"));
            } else {
                render::list(&mut text, "slot", 1, |_| format!("?{answer}"));
            }
        }
        text
    }
}

impl Task for FuncComp {
    const NAME: &'static str = "funccomp";
    type Instance = FuncCompInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut FuncCompInstance) {
        instance.tables.resize_with(self.hops(), Vec::new);
        for (table, size) in instance.tables.iter_mut().zip(&self.sizes) {
            table.resize(*size as usize, 0);
            fill_random(rng, *size, table);
        }
        instance.queries.resize_with(self.query_count, Query::default);
        for query in &mut instance.queries {
            query.start = random_below(rng, self.sizes[0]);
            query.row_groups.clear();
            query.row_groups.extend(self.row_groups_per_table.iter().map(|n| random_below(rng, *n)));
            query.hops = if self.mixed_hops { random_below(rng, self.hops() as u32) as usize + 1 } else { self.hops() };
        }
    }

    fn encode(&self, instance: &FuncCompInstance, prompt: &mut Prompt) {
        let lengths = instance.tables.iter().map(|table| table.len() as u32);
        assert!(lengths.eq(self.sizes.iter().copied()), "the tables of an instance have the task's sizes");
        assert_eq!(instance.queries.len(), self.query_count, "an instance has the task's number of queries");
        if !prompt.has_template(&self.template) {
            self.write_template(prompt);
        }
        let (ids_per_token, offsets, ids) = (self.ids_per_token(), &self.offsets, prompt.tokens_mut());
        for (level, (table, first)) in instance.tables.iter().zip(&offsets.tables).enumerate() {
            let rows =
                ids[first * ids_per_token..(first + table.len()) * ids_per_token].chunks_exact_mut(ids_per_token);
            let first_id = self.first_value_id(level + 1);
            if self.entry_order == EntryOrder::WMajor {
                for (row, value) in rows.zip(table) {
                    row[VALUE] = first_id + *value;
                }
            } else {
                for (index, row) in (0..).zip(rows) {
                    row[VALUE] = first_id + table[self.argument_at(level, index) as usize];
                }
            }
        }
        for (number, query) in instance.queries.iter().enumerate() {
            ids[(offsets.start + 2 * number) * ids_per_token + VALUE] = query.start;
            let row = &mut ids[(offsets.query + 2 * number) * ids_per_token..][..ids_per_token];
            row[KIND] = self.query_kind(query.hops);
            let (w_0, row_groups) =
                row[FIRST_ROW_GROUP..].split_at_mut(ids_per_token - FIRST_ROW_GROUP - query.row_groups.len());
            w_0.fill(0);
            for (e, (id, row_group)) in row_groups.iter_mut().zip(&query.row_groups).enumerate() {
                *id = self.first_row_group_id(e + 1) + *row_group;
            }
        }
        for (number, query) in instance.queries.iter().enumerate() {
            prompt.set_target(offsets.target + 2 * number, self.class(instance, query, query.hops), query.hops as u16);
        }
        prompt.set_intermediate_answers(self.intermediate_answers(instance));
    }

    fn instance_count(&self) -> Option<u128> {
        Self::instance_count(self)
    }

    fn nth_instance(&self, index: u128) -> Option<FuncCompInstance> {
        Self::nth_instance(self, index)
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let rows: Vec<&[u32]> = tokens.chunks_exact(self.ids_per_token()).collect();
        // The content of the tokens, independent of their positions.
        let mut entries = HashMap::new();
        let mut starts = Vec::new();
        let mut queries = Vec::new();
        let mut slots = Vec::new();
        for (position, row) in rows.iter().enumerate() {
            let kind = row[KIND];
            if (kind as usize) < self.hops() {
                if entries.insert((kind, row[OUTER], row[INNER]), row[VALUE]).is_some() {
                    return Err(OracleError::new::<Self>(position, "the same entry again", "each entry once"));
                }
            } else if kind as usize == self.hops() {
                starts.push((position, row[VALUE]));
            } else if let Some(hops) = self.query_hops(kind) {
                queries.push((position, hops, &row[FIRST_ROW_GROUP..]));
            } else {
                slots.push(position);
            }
        }
        let outer_blank = self.blanks()[OUTER];
        let mut targets = vec![NO_TARGET; rows.len()];
        for (number, (position, hops, row_groups)) in queries.iter().enumerate() {
            let missing = |what: &str| OracleError::new::<Self>(*position, format!("a query without {what}"), "one");
            // In the hard order a query belongs to the start right before it; in the other orders there is one of each.
            let start = match self.order {
                Order::LastTableFirst => starts.iter().find(|(start, _)| start + 1 == *position),
                Order::QueryFirst | Order::Streaming => starts.get(number),
            };
            let mut value = start.ok_or_else(|| missing("its start"))?.1;
            for level in 0..*hops {
                let outer = match (self.id_scope, level) {
                    (IdScope::Levels, _) => row_groups[level],
                    (IdScope::Shared, 0) => outer_blank,
                    (IdScope::Shared, _) => row_groups[level - 1],
                };
                value = *entries.get(&(level as u32, outer, value)).ok_or_else(|| missing("the entry it needs"))?;
            }
            let answer_position = if self.order == Order::LastTableFirst { Some(position) } else { slots.get(number) };
            targets[*answer_position.ok_or_else(|| missing("a slot"))?] = value;
        }
        Ok(targets)
    }
}
