//! Function composition through L tables: the ladder itself, one look-up per rung.
//!
//! A chain of tables is written out in the prompt, and a question at the end walks through them, each look-up
//! needing the result of the one before. Once the tables are large against its state, a stack with fewer than L
//! rungs cannot do it in one pass; this is the task that the capacity, the bounds and the constructions speak about.
//!
//! # Definition
//!
//! Sizes `m` and `n_1 .. n_(L-1)`, where L is `hops`; `N_0 = m` and `N_e = N_(e-1) * n_e`. Write `[N]` for 0 ..
//! N-1.
//!
//! - Table `z_l`, for l = 1 .. L, maps `[N_(l-1)]` to `[N_(l-1)]`; its values are independent and uniform.
//! - A query is a start `z_0` in `[m]` and a tuple `w = (w_1 .. w_(L-1))` with `w_e` in `[n_e]`, all uniform.
//! - `i_1 = z_1(z_0)`, then `i_(l+1) = z_(l+1)(w_l, i_l)`, the pair being the argument `w_l * N_(l-1) + i_l`.
//! - The answer is `i_L`. With `mixed=yes` each query draws h from 1 .. L uniformly, says so in its w token, and
//!   the answer is `i_h`; the parts from `w_h` on are then drawn but play no role.
//!
//! `order` says where things stand. `listing` says how a table lists its entries: `w-major`, in the order of their arguments, so that
//! all entries of one w stand together; or `i-major`, where all entries of one i do.
//!
//! | order | prompt | answers |
//! |---|---|---|
//! | `hard` | `z_L .. z_1`, then `z_0` and w once per query | w |
//! | `query-first` | w, `z_L .. z_1`, `z_0`, slot | slot |
//! | `streaming` | `z_0`, w, `z_1 .. z_L`, slot | slot |
//!
//! `queries` asks several questions about the same tables, in the `hard` order only; a w then belongs to the `z_0`
//! right before it. The query matters: with every `n_e = 1` the entries can compose themselves by pointer doubling.
//!
//! A token has 3 + L fields. A value v has id v; the last id of each field except `kind` is the blank.
//!
//! | field | ids | used by |
//! |---|---|---|
//! | `kind` | l-1 for an entry of `z_l`; L for `z_0`; then w; then the slot | all |
//! | `outer` | `w_(l-1)`, blank for l = 1 | entries |
//! | `inner` | `i_(l-1)` | entries |
//! | `value` | the value of the entry, or `z_0` | entries, `z_0` |
//! | `w1` .. | `w_1` .. | w |
//!
//! With `names=levels` every level has names of its own, so that no two things of different levels share an id: the values of `z_l`
//! come after those of `z_(l-1)` in one list of names that starts with those of `z_0`, and the branches of `w_e` after those of
//! `w_(e-1)` in another that starts with a single `w_0`, which entries of `z_1` and every w carry. Targets are names from the first
//! list. Which level a token belongs to is said by its kind anyway, so the task is the same; it is learned in fewer steps.
//!
//! For w there is one kind, L+1; with `mixed=yes` there are L, and L+h asks for h hops. The slot has the kind after
//! those, and in the `hard` order there is none. The target class is the value itself. The group of a question is
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
//! `i_h` is uniform on `[N_(h-1)]` whatever the other tables and the query say, so a guess that does not read `z_h`
//! is right once in `N_(h-1)`: `1/N_(L-1)` of the time, or with `mixed=yes` the mean of `1/N_(h-1)` over h.
//!
//! # Source
//!
//! Chen, Peng and Wu, *Theoretical limitations of multi-layer Transformer* (arXiv 2412.02975), L-sequential
//! function composition. Several queries per prompt and mixed hops are ours: a single question per prompt gives too
//! little signal to train on.

mod instances;
mod spec;

use std::collections::HashMap;

use super::prompt::Layout;
use super::{
    Field, MAX_CELLS, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskError, below, draw, fill,
    listed_numbers,
};

/// The most hops.
pub const MAX_HOPS: usize = 64;

/// The first fields of a token. The parts of w follow.
const KIND: usize = 0;
const OUTER: usize = 1;
const INNER: usize = 2;
const VALUE: usize = 3;
const PARTS: usize = 4;

/// Where tables, start and query stand in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Tables from the last to the first, then the queries: nothing can be composed before the question is known.
    Hard,
    /// w before everything: the entries can follow it, and logarithmic depth suffices.
    QueryFirst,
    /// In the order of use: a recurrent layer can walk along.
    Streaming,
}

/// How a table lists its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EntryOrder {
    /// All entries of one w together: the order of arguments, which some certificates need.
    #[default]
    WMajor,
    /// All entries of one i together.
    IMajor,
}

/// The task.
#[derive(Clone, Debug)]
pub struct FuncComp {
    /// `N_0 .. N_(L-1)`: table l has `sizes[l-1]` entries.
    sizes: Vec<u32>,
    /// `n_1 .. n_(L-1)`.
    branches: Vec<u32>,
    order: Order,
    listing: EntryOrder,
    queries: usize,
    mixed: bool,
    names: IdScope,
    places: PromptOffsets,
    layout: Layout,
}

/// What ids of values and branches stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdScope {
    /// Numbers, the same in every table.
    #[default]
    Shared,
    /// Every level has its own.
    Levels,
}

/// Tables and the queries about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FuncCompInstance {
    /// `z_1 .. z_L`, each in the order of its arguments.
    pub tables: Vec<Vec<u32>>,
    /// In the order asked.
    pub queries: Vec<Query>,
}

/// One question about the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The start `z_0`.
    pub start: u32,
    /// `w_1 .. w_(L-1)`.
    pub parts: Vec<u32>,
    /// How many tables to walk through: L unless hops are mixed.
    pub hops: usize,
}

/// The position of the first entry of each table, of the first `z_0`, of the first w, and of the first target.
#[derive(Clone, Debug)]
struct PromptOffsets {
    tables: Vec<usize>,
    start: usize,
    query: usize,
    asked: usize,
}

impl PromptOffsets {
    fn new(sizes: &[u32], order: Order) -> Self {
        let entries: usize = sizes.iter().map(|size| *size as usize).sum();
        let (mut at, start, query, asked) = match order {
            Order::Hard => (0, entries, entries + 1, entries + 1),
            Order::QueryFirst => (1, entries + 1, 0, entries + 2),
            Order::Streaming => (2, 0, 1, entries + 2),
        };
        let mut levels: Vec<usize> = (0..sizes.len()).collect();
        if order != Order::Streaming {
            levels.reverse();
        }
        let mut tables = vec![0; sizes.len()];
        for level in levels {
            tables[level] = at;
            at += sizes[level] as usize;
        }
        Self { tables, start, query, asked }
    }
}

impl FuncComp {
    /// Tables of `m` arguments at the bottom, times each of `branches` further up; one hop more than `branches`.
    ///
    /// # Errors
    /// A size is 0 or the prompt would be too long, or several queries are asked in another order than `hard`.
    pub fn new(m: u32, branches: &[u32], order: Order, queries: usize, mixed: bool) -> Result<Self, TaskError> {
        let error = |found: String, expected: &str| {
            Err(TaskError::BadSize { task: Self::NAME, found, expected: expected.to_owned() })
        };
        if branches.len() >= MAX_HOPS {
            return error(format!("{} hops", branches.len() + 1), &format!("at most {MAX_HOPS}"));
        }
        if m == 0 || branches.contains(&0) || queries == 0 {
            return error("a size of 0".to_owned(), "`m`, each of `n`, and `queries` at least 1");
        }
        if order != Order::Hard && queries != 1 {
            return error(format!("{queries} queries"), "one query, as the order is not `hard`");
        }
        let mut sizes = vec![m];
        let mut tokens =
            u64::from(m).saturating_add(2 * queries as u64).saturating_add(u64::from(order != Order::Hard));
        for branch in branches {
            // Both factors are below 2^32, so the product is exact; it is refused before the next one.
            let size = u64::from(sizes[sizes.len() - 1]) * u64::from(*branch);
            tokens = tokens.saturating_add(size);
            if tokens > MAX_TOKENS {
                break;
            }
            sizes.push(size as u32);
        }
        let fields = (PARTS + branches.len()) as u64;
        if tokens > MAX_TOKENS || tokens * fields > MAX_CELLS {
            let found = format!("a prompt of {tokens} tokens or more, each of {fields} ids");
            return error(found, &format!("at most {MAX_TOKENS} tokens and {MAX_CELLS} ids"));
        }
        let places = PromptOffsets::new(&sizes, order);
        let (branches, listing, names) = (branches.to_vec(), EntryOrder::default(), IdScope::Shared);
        Ok(Self { sizes, branches, order, listing, queries, mixed, names, places, layout: Layout::default() })
    }

    /// The same task with another listing of its tables.
    #[must_use]
    pub fn with_listing(self, listing: EntryOrder) -> Self {
        Self { listing, layout: Layout::default(), ..self }
    }

    /// The same tables under other names.
    #[must_use]
    pub fn with_names(self, names: IdScope) -> Self {
        Self { names, layout: Layout::default(), ..self }
    }

    /// L: the number of tables.
    pub fn hops(&self) -> usize {
        self.sizes.len()
    }

    /// `N_0 .. N_(L-1)`: entries of `z_1 .. z_L`.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// `n_1 .. n_(L-1)`.
    pub fn branches(&self) -> &[u32] {
        &self.branches
    }

    /// Where things stand.
    pub fn order(&self) -> Order {
        self.order
    }

    /// How a table lists its entries.
    pub fn listing(&self) -> EntryOrder {
        self.listing
    }

    /// Questions per prompt.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Whether each query draws its number of hops.
    pub fn mixed(&self) -> bool {
        self.mixed
    }

    /// `i_h` for one query.
    ///
    /// # Panics
    /// The instance is not of this task's sizes.
    pub fn follow(&self, instance: &FuncCompInstance, query: &Query) -> u32 {
        self.follow_to(instance, query, query.hops)
    }

    /// `i_h` for this h, whatever the query asks for.
    fn follow_to(&self, instance: &FuncCompInstance, query: &Query, hops: usize) -> u32 {
        let mut reached = instance.tables[0][query.start as usize];
        for level in 1..hops {
            // The size of the table below is the number of values that `reached` can have.
            let argument = query.parts[level - 1] * self.sizes[level - 1] + reached;
            reached = instance.tables[level][argument as usize];
        }
        reached
    }

    fn width(&self) -> usize {
        PARTS + usize::from(self.names == IdScope::Levels) + self.branches.len()
    }

    /// What ids of values of this level have added: `z_0` is level 0, values of `z_l` are level l.
    fn first_name(&self, level: usize) -> u32 {
        match (self.names, level) {
            (IdScope::Shared, _) | (_, 0) => 0,
            (IdScope::Levels, _) => self.sizes[0] + self.sizes[..level - 1].iter().sum::<u32>(),
        }
    }

    /// What ids of `w_e` have added, where `w_0` is the single id before those of `w_1`.
    fn first_branch(&self, e: usize) -> u32 {
        match (self.names, e) {
            (IdScope::Shared, _) | (_, 0) => 0,
            (IdScope::Levels, _) => 1 + self.branches[..e - 1].iter().sum::<u32>(),
        }
    }

    /// The kind of a w token that asks for `hops`.
    fn query_kind(&self, hops: usize) -> u32 {
        (self.hops() + if self.mixed { hops } else { 1 }) as u32
    }

    /// The kind of the slot that answers.
    fn slot_kind(&self) -> u32 {
        self.query_kind(self.hops()) + 1
    }

    /// The fields where every level has its own names. All parts of w can share a table with the outer arguments, since no id is in
    /// two of them.
    fn level_fields(&self, kinds: u32) -> Vec<Field> {
        let (hops, names) = (self.hops(), Task::classes(self));
        let branches = 1 + self.branches.iter().sum::<u32>();
        let field = |name: String, symbols: u32, alphabet| Field::new(name, symbols + 1).with_blank().of(alphabet);
        let first = [
            Field::new("kind", kinds),
            field("outer".to_owned(), branches, "branch"),
            field("inner".to_owned(), self.first_name(hops), "number"),
            field("value".to_owned(), names, "number"),
        ];
        first.into_iter().chain((0..hops).map(|e| field(format!("w{e}"), branches, "branch"))).collect()
    }

    /// The class of each question after 1 .. L hops, and its own answer beyond its own hops.
    fn partial_answers<'a>(&'a self, instance: &'a FuncCompInstance) -> impl Iterator<Item = u32> + 'a {
        instance
            .queries
            .iter()
            .flat_map(move |query| (1..=self.hops()).map(move |hops| self.class(instance, query, hops.min(query.hops))))
    }

    /// The class of `i_h`.
    fn class(&self, instance: &FuncCompInstance, query: &Query, hops: usize) -> u32 {
        self.first_name(hops) + self.follow_to(instance, query, hops)
    }

    fn blanks(&self) -> Vec<u32> {
        Task::fields(self).iter().map(|field| field.vocabulary - 1).collect()
    }

    /// The argument of the entry at a place of the table `z_(level+1)`.
    fn listed_argument(&self, level: usize, place: u32) -> u32 {
        if self.listing == EntryOrder::WMajor || level == 0 {
            return place;
        }
        let (branches, inner) = (self.branches[level - 1], self.sizes[level - 1]);
        place % branches * inner + place / branches
    }

    /// Writes all cells that are the same in every sample, and blanks elsewhere.
    fn write_fixed_cells(&self, prompt: &mut Prompt) {
        let places = &self.places;
        let blanks = self.blanks();
        prompt.start(self.width());
        for _ in 0..Task::length(self) {
            prompt.push(&blanks);
        }
        let (width, cells) = (self.width(), prompt.cells());
        for (level, first) in places.tables.iter().enumerate() {
            let inner_size = if level == 0 { self.sizes[0] } else { self.sizes[level - 1] };
            let rows = cells[first * width..].chunks_exact_mut(width);
            for (place, row) in (0..self.sizes[level]).zip(rows) {
                let argument = self.listed_argument(level, place);
                row[KIND] = level as u32;
                row[INNER] = self.first_name(level) + argument % inner_size;
                if level > 0 || self.names == IdScope::Levels {
                    row[OUTER] = self.first_branch(level) + argument / inner_size;
                }
            }
        }
        for query in 0..self.queries {
            cells[(places.start + 2 * query) * width + KIND] = self.hops() as u32;
        }
        if self.order != Order::Hard {
            cells[places.asked * width + KIND] = self.slot_kind();
        }
        prompt.set_layout(&self.layout);
    }

    /// The hops that a w token of this kind asks for.
    fn asked_hops(&self, kind: u32) -> Option<usize> {
        let after = (kind as usize).checked_sub(self.hops())?;
        if self.mixed { (1..=self.hops()).contains(&after).then_some(after) } else { (after == 1).then(|| self.hops()) }
    }
}

impl PartialEq for FuncComp {
    fn eq(&self, other: &Self) -> bool {
        (&self.sizes, &self.branches, self.order, self.listing, self.queries, self.mixed, self.names)
            == (&other.sizes, &other.branches, other.order, other.listing, other.queries, other.mixed, other.names)
    }
}

impl Eq for FuncComp {}

impl Task for FuncComp {
    const NAME: &'static str = "funccomp";
    type Instance = FuncCompInstance;

    fn fields(&self) -> Vec<Field> {
        let hops = self.hops();
        let kinds = self.slot_kind() + u32::from(self.order != Order::Hard);
        if self.names == IdScope::Levels {
            return self.level_fields(kinds);
        }
        let outer = self.branches.iter().max().map_or(1, |most| most + 1);
        let inner = self.sizes[hops.saturating_sub(2)] + 1;
        let value = self.sizes[hops - 1] + 1;
        let part = |(e, n): (usize, &u32)| {
            let field = Field::new(format!("w{}", e + 1), n + 1).with_blank();
            if e == 0 { field.of("branch") } else { field }
        };
        // Arguments and values are the same numbers, and so are a part of w and what it chooses among. Parts of one w stand in one
        // token and must not be taken for each other, so only the first can share a table with the outer arguments.
        let first = [
            Field::new("kind", kinds),
            Field::new("outer", outer).with_blank().of("branch"),
            Field::new("inner", inner).with_blank().of("number"),
            Field::new("value", value).with_blank().of("number"),
        ];
        first.into_iter().chain(self.branches.iter().enumerate().map(part)).collect()
    }

    fn classes(&self) -> u32 {
        match self.names {
            IdScope::Shared => self.sizes[self.hops() - 1],
            IdScope::Levels => self.first_name(self.hops()) + self.sizes[self.hops() - 1],
        }
    }

    fn length(&self) -> usize {
        let entries: usize = self.sizes.iter().map(|size| *size as usize).sum();
        entries + 2 * self.queries + usize::from(self.order != Order::Hard)
    }

    fn baseline(&self) -> f64 {
        let guess = |size: &u32| 1.0 / f64::from(*size);
        if self.mixed {
            self.sizes.iter().map(guess).sum::<f64>() / self.hops() as f64
        } else {
            guess(&self.sizes[self.hops() - 1])
        }
    }

    fn sample(&self, rng: &mut Rng, instance: &mut FuncCompInstance) {
        instance.tables.resize_with(self.hops(), Vec::new);
        for (table, size) in instance.tables.iter_mut().zip(&self.sizes) {
            table.resize(*size as usize, 0);
            fill(rng, *size, table);
        }
        instance.queries.resize_with(self.queries, Query::default);
        for query in &mut instance.queries {
            query.start = below(rng, self.sizes[0]);
            query.parts.clear();
            query.parts.extend(self.branches.iter().map(|n| below(rng, *n)));
            query.hops = if self.mixed { below(rng, self.hops() as u32) as usize + 1 } else { self.hops() };
        }
    }

    fn encode(&self, instance: &FuncCompInstance, prompt: &mut Prompt) {
        let lengths = instance.tables.iter().map(|table| table.len() as u32);
        assert!(lengths.eq(self.sizes.iter().copied()), "the tables of an instance have the task's sizes");
        assert_eq!(instance.queries.len(), self.queries, "an instance has the task's number of queries");
        if !prompt.has_layout(&self.layout) {
            self.write_fixed_cells(prompt);
        }
        let (width, places, cells) = (self.width(), &self.places, prompt.cells());
        for (level, (table, first)) in instance.tables.iter().zip(&places.tables).enumerate() {
            let rows = cells[first * width..(first + table.len()) * width].chunks_exact_mut(width);
            let name = self.first_name(level + 1);
            if self.listing == EntryOrder::WMajor {
                for (row, value) in rows.zip(table) {
                    row[VALUE] = name + *value;
                }
            } else {
                for (place, row) in (0..).zip(rows) {
                    row[VALUE] = name + table[self.listed_argument(level, place) as usize];
                }
            }
        }
        for (number, query) in instance.queries.iter().enumerate() {
            cells[(places.start + 2 * number) * width + VALUE] = query.start;
            let row = &mut cells[(places.query + 2 * number) * width..][..width];
            row[KIND] = self.query_kind(query.hops);
            let (zeroth, parts) = row[PARTS..].split_at_mut(width - PARTS - query.parts.len());
            zeroth.fill(0);
            for (e, (cell, part)) in parts.iter_mut().zip(&query.parts).enumerate() {
                *cell = self.first_branch(e + 1) + *part;
            }
        }
        for (number, query) in instance.queries.iter().enumerate() {
            prompt.ask(places.asked + 2 * number, self.class(instance, query, query.hops), query.hops as u16);
        }
        prompt.set_partials(self.partial_answers(instance));
    }

    fn instances(&self) -> Option<u128> {
        Self::instances(self)
    }

    fn nth(&self, index: u128) -> Option<FuncCompInstance> {
        Self::nth(self, index)
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        OracleError::check(self, tokens)?;
        let rows: Vec<&[u32]> = tokens.chunks_exact(self.width()).collect();
        // What the tokens say, wherever they stand.
        let mut entries = HashMap::new();
        let mut starts = Vec::new();
        let mut asks = Vec::new();
        let mut slots = Vec::new();
        for (position, row) in rows.iter().enumerate() {
            let kind = row[KIND];
            if (kind as usize) < self.hops() {
                if entries.insert((kind, row[OUTER], row[INNER]), row[VALUE]).is_some() {
                    return Err(OracleError::new::<Self>(position, "the same entry again", "each entry once"));
                }
            } else if kind as usize == self.hops() {
                starts.push((position, row[VALUE]));
            } else if let Some(hops) = self.asked_hops(kind) {
                asks.push((position, hops, &row[PARTS..]));
            } else {
                slots.push(position);
            }
        }
        let no_outer = self.blanks()[OUTER];
        let mut targets = vec![NO_TARGET; rows.len()];
        for (number, (position, hops, parts)) in asks.iter().enumerate() {
            let missing = |what: &str| OracleError::new::<Self>(*position, format!("a query without {what}"), "one");
            // In the hard order a query belongs to the start right before it; in the others there is one of each.
            let start = match self.order {
                Order::Hard => starts.iter().find(|(at, _)| at + 1 == *position),
                Order::QueryFirst | Order::Streaming => starts.get(number),
            };
            let mut reached = start.ok_or_else(|| missing("its start"))?.1;
            for level in 0..*hops {
                let outer = match (self.names, level) {
                    (IdScope::Levels, _) => parts[level],
                    (IdScope::Shared, 0) => no_outer,
                    (IdScope::Shared, _) => parts[level - 1],
                };
                reached = *entries.get(&(level as u32, outer, reached)).ok_or_else(|| missing("the entry it needs"))?;
            }
            let asked = if self.order == Order::Hard { Some(position) } else { slots.get(number) };
            targets[*asked.ok_or_else(|| missing("a slot"))?] = reached;
        }
        Ok(targets)
    }

    fn draw(&self, prompt: &Prompt) -> String {
        let width = prompt.fields().max(1);
        let rows: Vec<&[u32]> = prompt.tokens().chunks_exact(width).collect();
        let mut text = String::new();
        let mut first = 0;
        for run in rows.chunk_by(|a, b| a[KIND] == b[KIND]) {
            let kind = run[0][KIND];
            let asked = prompt.targets()[first];
            let hops = self.asked_hops(kind).unwrap_or(self.hops());
            let answer =
                if asked == NO_TARGET { String::new() } else { format!(" -> {}", asked - self.first_name(hops)) };
            first += run.len();
            // Without what names of levels have added.
            let level = kind as usize;
            let (outer, inner) =
                if level < self.hops() { (self.first_branch(level), self.first_name(level)) } else { (0, 0) };
            let value = |at: usize| run[at][VALUE] - self.first_name(level + 1);
            if kind == 0 {
                draw::list(&mut text, "z1", run.len(), |at| format!("({})={}", run[at][INNER], value(at)));
            } else if (kind as usize) < self.hops() {
                let entry =
                    |at: usize| format!("({},{})={}", run[at][OUTER] - outer, run[at][INNER] - inner, value(at));
                draw::list(&mut text, &format!("z{}", kind + 1), run.len(), entry);
            } else if kind as usize == self.hops() {
                draw::list(&mut text, "z0", run.len(), |at| run[at][VALUE].to_string());
            } else if self.asked_hops(kind).is_some() {
                let parts = &run[0][self.width() - self.branches.len()..];
                let parts: Vec<u32> = (1..).zip(parts).map(|(e, part)| part - self.first_branch(e)).collect();
                let parts = listed_numbers(&parts);
                draw::list(&mut text, "w", 1, |_| format!("({parts}) asks for {hops} hops{answer}"));
            } else {
                draw::list(&mut text, "slot", 1, |_| format!("?{answer}"));
            }
        }
        text
    }
}
