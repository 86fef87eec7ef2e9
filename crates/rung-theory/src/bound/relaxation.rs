//! The conditions of Theorem 2 as a convex program, for real-valued sizes.
//!
//! Unknowns are logarithms: m; the ratios r_0 = x_0/k_0, r_e = n'_e/(k_{e-1} k_e); the class counts k; the list lengths
//! x_1..; the groups g = u/x_0; the fractions rho = sigma/(k N) of pairs that remain after a draw; P before and after the first
//! step; J after each step; and, for w-major tables, the ratios n_e/n'_e. With ratios instead of the n_e, every unknown that must
//! be an integer only has the lower bound 1, so the search can fix them one by one. The positions where borders are frozen (the
//! j_e) are constants: each choice is one program.

use super::checker::ProofCase;
use super::convex::{ConvexProgram, Expression, Linear, Term};
use super::input::log2;
use super::search::SearchSetting;

/// Table sizes that are fixed instead of optimised, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct FixedTables {
    pub(super) m: f64,
    pub(super) n: Vec<f64>,
}

/// The index of each variable of the program, by its meaning.
#[derive(Clone, Debug)]
pub(super) struct VariableIndices {
    hops: usize,
    fixed_tables: Option<FixedTables>,
    /// Whether n'_e may be smaller than n_e.
    partly_live: bool,
}

impl VariableIndices {
    /// r_e.
    pub(super) fn ratio(e: usize) -> usize {
        1 + e
    }

    /// k_e.
    pub(super) fn classes(&self, e: usize) -> usize {
        1 + self.hops + e
    }

    /// x_e, e from 1.
    pub(super) fn list(&self, e: usize) -> usize {
        2 * self.hops + e - 1
    }

    /// g.
    pub(super) fn groups(&self) -> usize {
        3 * self.hops - 1
    }

    /// rho_e, e from 1.
    fn fraction(&self, e: usize) -> usize {
        3 * self.hops + e - 1
    }

    /// P before (0) and after (1) the first step.
    fn independent(&self, e: usize) -> usize {
        4 * self.hops - 1 + e
    }

    /// J after step e - 1, e from 1.
    fn joint(&self, e: usize) -> usize {
        4 * self.hops + e
    }

    /// n_e / n'_e, e from 1 to L-2.
    pub(super) fn excess(&self, e: usize) -> usize {
        5 * self.hops + e - 1
    }

    pub(super) fn variable_count(&self) -> usize {
        6 * self.hops - 2
    }

    /// The variables that must become integers, m and the n_e of w-major tables excepted.
    pub(super) fn integers(&self) -> std::ops::Range<usize> {
        1..3 * self.hops
    }

    fn k(&self, e: usize) -> Linear {
        Linear::variable(self.classes(e))
    }

    fn m(&self) -> Linear {
        self.fixed_tables.as_ref().map_or_else(|| Linear::variable(0), |tables| Linear::constant(tables.m))
    }

    /// n'_e, e from 1.
    fn live(&self, e: usize) -> Linear {
        if let Some(tables) = &self.fixed_tables {
            return Linear::constant(tables.n[e - 1]);
        }
        let product = Linear::variable(Self::ratio(e)).plus(&self.k(e - 1));
        if e + 1 < self.hops { product.plus(&self.k(e)) } else { product }
    }

    /// n_e, e from 1.
    fn n(&self, e: usize) -> Linear {
        let live = self.live(e);
        if self.partly_live && e + 1 < self.hops { live.plus(&Linear::variable(self.excess(e))) } else { live }
    }

    /// x_e.
    fn x(&self, e: usize) -> Linear {
        if e == 0 { Linear::variable(Self::ratio(0)).plus(&self.k(0)) } else { Linear::variable(self.list(e)) }
    }

    /// u: varying entries of z_1.
    fn varying(&self) -> Linear {
        Linear::variable(self.groups()).plus(&self.x(0))
    }

    /// N_e: entries of a table.
    fn size(&self, e: usize) -> Linear {
        (1..=e).fold(self.m(), |size, i| size.plus(&self.n(i)))
    }

    /// X(a,b): choices from lists a to b.
    fn choices(&self, first: usize, last: usize) -> Linear {
        (first..=last).fold(Linear::default(), |product, e| product.plus(&self.x(e)))
    }

    /// D_e: reachable arguments, e from 1.
    fn reachable(&self, e: usize) -> Linear {
        if e == 1 {
            return self.x(0);
        }
        Linear::variable(self.fraction(e - 1)).plus(&self.live(e - 1)).plus(&self.size(e - 2))
    }

    /// The list lengths, class counts and groups of a solution, as logarithms.
    pub(super) fn decode(&self, point: &[f64]) -> (Vec<f64>, Vec<f64>, f64) {
        (
            (0..self.hops).map(|e| self.x(e).value(point)).collect(),
            (0..self.hops - 1).map(|e| point[self.classes(e)]).collect(),
            point[self.groups()],
        )
    }
}

/// Bounds are relaxed by this much, so that a variable fixed at its bound is still strictly inside.
const BOUND_TOLERANCE: f64 = 1e-7;

/// The conditions for one input, in logarithms.
pub(super) struct Relaxation<'a> {
    setting: &'a SearchSetting<'a>,
    pub(super) indices: VariableIndices,
    message_bits: f64,
    state_bits: Vec<f64>,
    fixed_bits: f64,
    /// Tokens of an entry, of the start value and of the query.
    token_counts: [f64; 3],
}

impl<'a> Relaxation<'a> {
    pub(super) fn new(setting: &'a SearchSetting<'a>, fixed_tables: Option<FixedTables>) -> Self {
        let input = setting.input;
        let partly_live = input.w_major && fixed_tables.is_none();
        Self {
            indices: VariableIndices { hops: input.hops, fixed_tables, partly_live },
            message_bits: log2(&input.message_bits),
            state_bits: input.state_bits.iter().map(log2).collect(),
            fixed_bits: log2(&input.fixed_bits),
            token_counts: input.log2_token_counts(),
            setting,
        }
    }

    fn case(&self) -> ProofCase {
        self.setting.input.case
    }

    /// B times a product.
    fn times_message(&self, linear: &Linear) -> Linear {
        Linear::constant(self.message_bits).plus(linear)
    }

    /// log2 of a constant number of bits; none for 0 bits.
    fn constant(bits: f64) -> Option<Linear> {
        bits.is_finite().then(|| Linear::constant(bits))
    }

    /// An upper bound of B Tk(i,y): bits of the messages into player i.
    fn messages_into(&self, i: usize, y: usize) -> Vec<Linear> {
        let (indices, [te, t0, _]) = (&self.indices, self.token_counts);
        let entries =
            |count: Linear, first_list: usize| count.plus(&Linear::constant(te)).plus(&indices.choices(first_list, y));
        let terms = if i == 0 {
            let mut terms = vec![Linear::constant(t0).plus(&indices.choices(0, y))];
            if self.setting.middle > 0 {
                let copies = Linear::constant((self.setting.middle as f64).log2());
                terms.push(entries(indices.m().plus(&copies), 0));
            }
            terms
        } else if i == 1 {
            vec![entries(indices.varying(), 1), entries(indices.m(), 2)]
        } else if indices.partly_live {
            let varying = indices.live(i - 1).plus(&indices.size(i - 2));
            vec![entries(varying, i), entries(indices.size(i - 1), i + 1)]
        } else {
            vec![entries(indices.size(i - 1), i)]
        };
        terms.iter().map(|term| self.times_message(term)).collect()
    }

    /// F2 of step e: bits of the messages into w.
    fn query_messages(&self, e: usize) -> Linear {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let classes = (0..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&indices.k(i)));
        let pairs = (1..hops).fold(indices.x(0), |sum, i| sum.plus(&indices.live(i))).minus(&classes);
        self.times_message(&pairs.plus(&indices.choices(1, e)).plus(&Linear::constant(self.token_counts[2])))
    }

    /// The terms that step e adds to P and to J.
    fn step_terms(&self, e: usize, freeze: &[usize]) -> (Vec<Linear>, Vec<Linear>) {
        let indices = &self.indices;
        let layer = if self.case() == ProofCase::OneLayerFewer { e } else { e + 1 };
        let frozen_players = match e {
            0 => usize::from(self.case() == ProofCase::OneLayerFewer),
            _ => freeze[e - 1],
        };
        let next_frozen = freeze[e];
        // F1 and F3: messages into players frozen later, and into player e + 1.
        let mut table_messages = Vec::new();
        if layer > 0 {
            table_messages.extend((0..=e).filter(|&i| i >= frozen_players).flat_map(|i| self.messages_into(i, e)));
            let layers = Linear::constant((layer as f64).log2());
            table_messages.extend(self.messages_into(e + 1, e + 1).into_iter().map(|term| term.plus(&layers)));
        }
        let last_list = |i: usize| if i < frozen_players { e } else { e + 1 };
        let mut border_messages: Vec<Linear> =
            (0..next_frozen).flat_map(|i| self.messages_into(i, last_list(i))).collect();
        border_messages.push(self.query_messages(e));
        let border = Self::constant(self.state_bits[layer + 1]);
        let border = border.map(|bits| bits.plus(&indices.choices(next_frozen, e + 1)));
        let states = self.state_bits[1..=layer].iter().filter_map(|&bits| Self::constant(bits));
        match (e, self.case()) {
            (0, ProofCase::OneLayerFewer) => (border_messages, border.into_iter().collect()),
            (0, ProofCase::AsManyLayers) => {
                (table_messages, border_messages.into_iter().chain(border).chain(states).collect())
            }
            _ => (vec![], table_messages.into_iter().chain(border_messages).chain(border).chain(states).collect()),
        }
    }

    /// The terms of P before the first step.
    fn initial_bits(&self) -> Vec<Linear> {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let fixed = Self::constant(self.fixed_bits);
        if self.case() == ProofCase::OneLayerFewer {
            return Self::constant(self.state_bits[0]).into_iter().chain(fixed).collect();
        }
        let classes = (1..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&indices.k(i)));
        let queries = (1..hops).fold(Linear::constant(self.token_counts[2]), |sum, i| sum.plus(&indices.live(i)));
        std::iter::once(self.times_message(&queries.minus(&classes))).chain(fixed).collect()
    }

    /// The tail inequality of step e as an expression that must be negative.
    fn tail(&self, e: usize) -> Expression {
        let indices = &self.indices;
        let draws = indices.x(e + 1).plus(&indices.reachable(e + 1));
        let fraction = indices.fraction(e + 1);
        let pairs = indices.k(e).plus(&indices.size(e)).minus(&draws);
        let step = |bits: usize| indices.x(e + 1).plus(&Linear::variable(bits)).minus(&draws);
        let mut terms = vec![Term { linear: pairs, entropy: Some(fraction) }];
        if e == 0 {
            terms.push(step(indices.independent(0)).minus(&Linear::variable(indices.groups())).into());
        } else {
            terms.push(step(indices.independent(1)).into());
            terms.push(step(indices.joint(e)).into());
            terms.push(Linear::default().minus(&draws).into());
        }
        Expression { terms, divisor: Some(Linear::default().minus(&Linear::variable(fraction))) }
    }

    /// The final inequality as an expression that must be negative.
    fn final_inequality(&self) -> Expression {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let per_argument = |bits: usize| Term::from(Linear::variable(bits).minus(&indices.reachable(hops)));
        let terms = vec![per_argument(indices.independent(1)), per_argument(indices.joint(hops - 1))];
        Expression { terms, divisor: Some(indices.size(hops - 1)) }
    }

    /// For each unknown number of bits (P and J): its variable and its terms.
    fn bit_sums(&self, freeze: &[usize]) -> Vec<(usize, Vec<Linear>)> {
        let indices = &self.indices;
        let mut sums = vec![(indices.independent(0), self.initial_bits())];
        for e in 0..self.setting.input.hops - 1 {
            let (mut independent, mut joint) = self.step_terms(e, freeze);
            if e == 0 {
                independent.push(Linear::variable(indices.independent(0)));
                sums.push((indices.independent(1), independent));
            } else {
                joint.push(indices.x(e + 1).plus(&Linear::variable(indices.joint(e))));
                joint.push(Linear::constant(0.0));
            }
            sums.push((indices.joint(e + 1), joint));
        }
        sums
    }

    /// The program for one choice of the positions where borders are frozen.
    pub(super) fn program(&self, freeze: &[usize]) -> ConvexProgram {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let mut constraints: Vec<Expression> = self
            .bit_sums(freeze)
            .into_iter()
            .filter(|(_, terms)| !terms.is_empty())
            .map(|(bits, terms)| {
                let bound = Linear::variable(bits);
                Expression { terms: terms.into_iter().map(|term| term.minus(&bound).into()).collect(), divisor: None }
            })
            .collect();
        constraints.extend((0..hops - 1).map(|e| self.tail(e)));
        let tolerance = Linear::constant(-BOUND_TOLERANCE);
        constraints.push(indices.varying().minus(&indices.m()).plus(&tolerance).into());
        let excesses = (1..hops - 1).filter(|_| indices.partly_live).map(|e| indices.excess(e));
        let free_variables: Vec<usize> = indices.integers().chain(excesses).collect();
        let mut domain: Vec<Linear> =
            free_variables.iter().map(|&v| tolerance.clone().minus(&Linear::variable(v))).collect();
        // No useful point exceeds this; without an upper limit the solver may return an absurdly large feasible point.
        let largest_state = self.state_bits.iter().chain([&self.fixed_bits]).copied().fold(0.0, f64::max);
        let limit = 2.0 * (hops + 1) as f64 * (self.message_bits + largest_state + 20.0);
        let sizes = free_variables.into_iter().chain(indices.fixed_tables.is_none().then_some(0));
        domain.extend(sizes.map(|v| Linear::variable(v).plus(&Linear::constant(-limit))));
        // Numbers of bits may be 0, so their logarithms get a lower limit; fractions stay below one.
        let bits = indices.independent(0)..=indices.joint(hops - 1);
        domain.extend(bits.map(|v| Linear::constant(-400.0).minus(&Linear::variable(v))));
        domain.extend((1..hops).map(|e| Linear::variable(indices.fraction(e)).plus(&Linear::constant(1e-9))));
        // The checker's logarithms have 80 binary digits: a smaller fraction would be lost in their rounding.
        domain.extend((1..hops).map(|e| Linear::constant(-66.0).minus(&Linear::variable(indices.fraction(e)))));
        let objective = if indices.fixed_tables.is_some() {
            for e in 1..hops {
                let next_classes = if e + 1 < hops { indices.k(e) } else { Linear::default() };
                constraints.push(indices.k(e - 1).plus(&next_classes).minus(&indices.n(e)).plus(&tolerance).into());
            }
            self.final_inequality()
        } else {
            domain.push(Linear::constant(1.0 - BOUND_TOLERANCE).minus(&indices.m()));
            constraints.push(self.final_inequality());
            self.tokens()
        };
        ConvexProgram { variable_count: indices.variable_count(), objective, constraints, domain }
    }

    /// Tokens of a prompt, constant tables included.
    fn tokens(&self) -> Expression {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let copies = |e: usize| match e {
            _ if e == 0 && hops == 1 => 1 + self.setting.middle + self.setting.front,
            0 => 1 + self.setting.middle,
            _ if e == hops - 1 => 1 + self.setting.front,
            _ => 1,
        };
        let table =
            |e: usize| indices.size(e).plus(&Linear::constant(self.token_counts[0] + (copies(e) as f64).log2()));
        let start_and_query = Linear::constant((self.token_counts[1].exp2() + self.token_counts[2].exp2()).log2());
        let terms = (0..hops).map(table).chain([start_and_query]).map(Term::from).collect();
        Expression { terms, divisor: None }
    }

    /// A start in the domain for the solver: the given point or a default one; the numbers of bits are computed from the sizes.
    pub(super) fn start(&self, freeze: &[usize], start_point: Option<&[f64]>) -> Vec<f64> {
        let mut start = start_point.map_or_else(|| self.default_start(), <[f64]>::to_vec);
        for (bits, terms) in self.bit_sums(freeze) {
            // Twice the value of each sum, so that its constraint holds strictly.
            let sum = Expression { terms: terms.into_iter().map(Term::from).collect(), divisor: None };
            start[bits] = if sum.terms.is_empty() { -100.0 } else { (sum.value(&start) + 1.0).max(-300.0) };
        }
        start
    }

    /// x_{L-j} is about B^j, and there are as many classes as lists are long.
    fn default_start(&self) -> Vec<f64> {
        let (indices, hops) = (&self.indices, self.setting.input.hops);
        let mut start = vec![0.0; indices.variable_count()];
        let list = |e: usize| (hops - e) as f64 * (self.message_bits + 2.0);
        for e in 1..hops {
            start[indices.list(e)] = list(e);
            start[indices.classes(e - 1)] = list(e);
            start[VariableIndices::ratio(e)] = 2.0;
            start[indices.fraction(e)] = -1.0;
        }
        for e in 1..hops - 1 {
            start[indices.excess(e)] = 0.5;
        }
        start[indices.groups()] = 1.0;
        start[VariableIndices::ratio(0)] = (self.state_bits[0] - list(1)).max(0.0) + 2.0;
        start[0] = start[VariableIndices::ratio(0)] + list(1) + 4.0;
        start
    }
}
