//! The conditions of Theorem 2 as a convex program, for real-valued sizes.
//!
//! Unknowns are logarithms: m; the ratios r_0 = x_0/k_0, r_e = n'_e/(k_{e-1} k_e); the class counts k; the list lengths
//! x_1..; the groups g = u/x_0; the kept fractions rho = sigma/(k N); P before and after the first step; J after each step; and,
//! for w-major tables, the ratios n_e/n'_e. With ratios instead of the n_e every unknown that must be an integer is only
//! bounded below by 1, so the search can fix them one by one. Where the borders are frozen (the j_e) is given: each choice is
//! one program.

use super::checker::ProofCase;
use super::convex::{ConvexProgram, Expression, Linear, Term};
use super::input::log2;
use super::search::SearchSetting;

/// Table sizes that are given instead of sought, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct FixedTables {
    pub(super) m: f64,
    pub(super) n: Vec<f64>,
}

/// The index of each variable of the program, by its meaning.
#[derive(Clone, Debug)]
pub(super) struct VariableIndices {
    hops: usize,
    given: Option<FixedTables>,
    /// Whether n'_e may be smaller than n_e.
    live: bool,
}

impl VariableIndices {
    pub(super) fn ratio(e: usize) -> usize {
        1 + e
    }

    pub(super) fn classes(&self, e: usize) -> usize {
        1 + self.hops + e
    }

    pub(super) fn list(&self, e: usize) -> usize {
        2 * self.hops + e - 1
    }

    pub(super) fn groups(&self) -> usize {
        3 * self.hops - 1
    }

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

    pub(super) fn variables(&self) -> usize {
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
        self.given.as_ref().map_or_else(|| Linear::variable(0), |given| Linear::constant(given.m))
    }

    /// n'_e, e from 1.
    fn live(&self, e: usize) -> Linear {
        if let Some(given) = &self.given {
            return Linear::constant(given.n[e - 1]);
        }
        let left = Linear::variable(Self::ratio(e)).plus(&self.k(e - 1));
        if e + 1 < self.hops { left.plus(&self.k(e)) } else { left }
    }

    /// n_e, e from 1.
    fn n(&self, e: usize) -> Linear {
        let live = self.live(e);
        if self.live && e + 1 < self.hops { live.plus(&Linear::variable(self.excess(e))) } else { live }
    }

    fn x(&self, e: usize) -> Linear {
        if e == 0 { Linear::variable(Self::ratio(0)).plus(&self.k(0)) } else { Linear::variable(self.list(e)) }
    }

    /// u.
    fn varying(&self) -> Linear {
        Linear::variable(self.groups()).plus(&self.x(0))
    }

    /// N_e.
    fn size(&self, e: usize) -> Linear {
        (1..=e).fold(self.m(), |size, i| size.plus(&self.n(i)))
    }

    /// X(a,b).
    fn cases(&self, a: usize, b: usize) -> Linear {
        (a..=b).fold(Linear::default(), |product, e| product.plus(&self.x(e)))
    }

    /// D_e, e from 1.
    fn reach(&self, e: usize) -> Linear {
        if e == 1 {
            return self.x(0);
        }
        Linear::variable(self.fraction(e - 1)).plus(&self.live(e - 1)).plus(&self.size(e - 2))
    }

    /// The lists, classes and groups that a solution stands for, as logarithms.
    pub(super) fn read(&self, point: &[f64]) -> (Vec<f64>, Vec<f64>, f64) {
        (
            (0..self.hops).map(|e| self.x(e).at(point)).collect(),
            (0..self.hops - 1).map(|e| point[self.classes(e)]).collect(),
            point[self.groups()],
        )
    }
}

/// Room by which bounds may be touched, so that a variable fixed at its bound is still strictly inside.
const TOUCH: f64 = 1e-7;

/// The conditions for one input, in logarithms.
pub(super) struct Relaxation<'a> {
    setting: &'a SearchSetting<'a>,
    pub(super) layout: VariableIndices,
    message: f64,
    state: Vec<f64>,
    parallel_bits: f64,
    tokens: [f64; 3],
}

impl<'a> Relaxation<'a> {
    pub(super) fn new(setting: &'a SearchSetting<'a>, given: Option<FixedTables>) -> Self {
        let input = setting.input;
        let live = input.w_major && given.is_none();
        Self {
            layout: VariableIndices { hops: input.hops, given, live },
            message: log2(&input.message_bits),
            state: input.state_bits.iter().map(log2).collect(),
            parallel_bits: log2(&input.parallel_bits),
            tokens: input.log2_tokens_per(),
            setting,
        }
    }

    fn case(&self) -> ProofCase {
        self.setting.input.case
    }

    fn times_message(&self, linear: &Linear) -> Linear {
        Linear::constant(self.message).plus(linear)
    }

    /// Bits that are a constant, unless there are none.
    fn constant(bits: f64) -> Option<Linear> {
        bits.is_finite().then(|| Linear::constant(bits))
    }

    /// B Tk(i,y), at most.
    fn states(&self, i: usize, y: usize) -> Vec<Linear> {
        let (layout, [te, t0, _]) = (&self.layout, self.tokens);
        let entries = |count: Linear, from: usize| count.plus(&Linear::constant(te)).plus(&layout.cases(from, y));
        let terms = if i == 0 {
            let mut terms = vec![Linear::constant(t0).plus(&layout.cases(0, y))];
            if self.setting.middle > 0 {
                let copies = Linear::constant((self.setting.middle as f64).log2());
                terms.push(entries(layout.m().plus(&copies), 0));
            }
            terms
        } else if i == 1 {
            vec![entries(layout.varying(), 1), entries(layout.m(), 2)]
        } else if layout.live {
            let alive = layout.live(i - 1).plus(&layout.size(i - 2));
            vec![entries(alive, i), entries(layout.size(i - 1), i + 1)]
        } else {
            vec![entries(layout.size(i - 1), i)]
        };
        terms.iter().map(|term| self.times_message(term)).collect()
    }

    /// F2 of step e: messages into w.
    fn query_messages(&self, e: usize) -> Linear {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let classes = (0..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&layout.k(i)));
        let pairs = (1..hops).fold(layout.x(0), |sum, i| sum.plus(&layout.live(i))).minus(&classes);
        self.times_message(&pairs.plus(&layout.cases(1, e)).plus(&Linear::constant(self.tokens[2])))
    }

    /// The summands of step e that go to P and to J, beside what both were before.
    fn summands(&self, e: usize, freeze: &[usize]) -> (Vec<Linear>, Vec<Linear>) {
        let layout = &self.layout;
        let layer = if self.case() == ProofCase::OneLayerFewer { e } else { e + 1 };
        let before = match e {
            0 => usize::from(self.case() == ProofCase::OneLayerFewer),
            _ => freeze[e - 1],
        };
        let next = freeze[e];
        let mut f1 = Vec::new();
        if layer > 0 {
            f1.extend((0..=e).filter(|&i| i >= before).flat_map(|i| self.states(i, e)));
            let times = Linear::constant((layer as f64).log2());
            f1.extend(self.states(e + 1, e + 1).into_iter().map(|term| term.plus(&times)));
        }
        let until = |i: usize| if i < before { e } else { e + 1 };
        let mut last: Vec<Linear> = (0..next).flat_map(|i| self.states(i, until(i))).collect();
        last.push(self.query_messages(e));
        let border = Self::constant(self.state[layer + 1]);
        let border = border.map(|bits| bits.plus(&layout.cases(next, e + 1)));
        let states = self.state[1..=layer].iter().filter_map(|&bits| Self::constant(bits));
        match (e, self.case()) {
            (0, ProofCase::OneLayerFewer) => (last, border.into_iter().collect()),
            (0, ProofCase::AsManyLayers) => (f1, last.into_iter().chain(border).chain(states).collect()),
            _ => (vec![], f1.into_iter().chain(last).chain(border).chain(states).collect()),
        }
    }

    /// The summands of P before the first step.
    fn start_bits(&self) -> Vec<Linear> {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let parallel = Self::constant(self.parallel_bits);
        if self.case() == ProofCase::OneLayerFewer {
            return Self::constant(self.state[0]).into_iter().chain(parallel).collect();
        }
        let classes = (1..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&layout.k(i)));
        let queries = (1..hops).fold(Linear::constant(self.tokens[2]), |sum, i| sum.plus(&layout.live(i)));
        std::iter::once(self.times_message(&queries.minus(&classes))).chain(parallel).collect()
    }

    /// The tail inequality of step e as an expression that must be negative.
    fn tail(&self, e: usize) -> Expression {
        let layout = &self.layout;
        let draws = layout.x(e + 1).plus(&layout.reach(e + 1));
        let fraction = layout.fraction(e + 1);
        let pairs = layout.k(e).plus(&layout.size(e)).minus(&draws);
        let step = |bits: usize| layout.x(e + 1).plus(&Linear::variable(bits)).minus(&draws);
        let mut terms = vec![Term { linear: pairs, entropy: Some(fraction) }];
        if e == 0 {
            terms.push(step(layout.independent(0)).minus(&Linear::variable(layout.groups())).into());
        } else {
            terms.push(step(layout.independent(1)).into());
            terms.push(step(layout.joint(e)).into());
            terms.push(Linear::default().minus(&draws).into());
        }
        Expression { terms, divisor: Some(Linear::default().minus(&Linear::variable(fraction))) }
    }

    /// The final inequality as an expression that must be negative.
    fn finish(&self) -> Expression {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let lack = |bits: usize| Term::from(Linear::variable(bits).minus(&layout.reach(hops)));
        let terms = vec![lack(layout.independent(1)), lack(layout.joint(hops - 1))];
        Expression { terms, divisor: Some(layout.size(hops - 1)) }
    }

    /// The summands of each unknown number of bits, with its variable.
    fn sums(&self, freeze: &[usize]) -> Vec<(usize, Vec<Linear>)> {
        let layout = &self.layout;
        let mut sums = vec![(layout.independent(0), self.start_bits())];
        for e in 0..self.setting.input.hops - 1 {
            let (mut independent, mut joint) = self.summands(e, freeze);
            if e == 0 {
                independent.push(Linear::variable(layout.independent(0)));
                sums.push((layout.independent(1), independent));
            } else {
                joint.push(layout.x(e + 1).plus(&Linear::variable(layout.joint(e))));
                joint.push(Linear::constant(0.0));
            }
            sums.push((layout.joint(e + 1), joint));
        }
        sums
    }

    /// The program for one choice of the places where borders are frozen.
    pub(super) fn program(&self, freeze: &[usize]) -> ConvexProgram {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let mut constraints: Vec<Expression> = self
            .sums(freeze)
            .into_iter()
            .filter(|(_, terms)| !terms.is_empty())
            .map(|(bits, terms)| {
                let bound = Linear::variable(bits);
                Expression { terms: terms.into_iter().map(|term| term.minus(&bound).into()).collect(), divisor: None }
            })
            .collect();
        constraints.extend((0..hops - 1).map(|e| self.tail(e)));
        let touch = Linear::constant(-TOUCH);
        constraints.push(layout.varying().minus(&layout.m()).plus(&touch).into());
        let excesses = (1..hops - 1).filter(|_| layout.live).map(|e| layout.excess(e));
        let free: Vec<usize> = layout.integers().chain(excesses).collect();
        let mut domain: Vec<Linear> = free.iter().map(|&v| touch.clone().minus(&Linear::variable(v))).collect();
        // Nothing useful is beyond this; without a roof a feasible point may be found absurdly far out.
        let state = self.state.iter().chain([&self.parallel_bits]).copied().fold(0.0, f64::max);
        let roof = 2.0 * (hops + 1) as f64 * (self.message + state + 20.0);
        let sizes = free.into_iter().chain(layout.given.is_none().then_some(0));
        domain.extend(sizes.map(|v| Linear::variable(v).plus(&Linear::constant(-roof))));
        // A floor for numbers of bits that may be 0, and fractions below one.
        let bits = layout.independent(0)..=layout.joint(hops - 1);
        domain.extend(bits.map(|v| Linear::constant(-400.0).minus(&Linear::variable(v))));
        domain.extend((1..hops).map(|e| Linear::variable(layout.fraction(e)).plus(&Linear::constant(1e-9))));
        // The checker's logarithms have 80 binary digits: a smaller fraction would drown in their rounding.
        domain.extend((1..hops).map(|e| Linear::constant(-66.0).minus(&Linear::variable(layout.fraction(e)))));
        let objective = if layout.given.is_some() {
            for e in 1..hops {
                let right = if e + 1 < hops { layout.k(e) } else { Linear::default() };
                constraints.push(layout.k(e - 1).plus(&right).minus(&layout.n(e)).plus(&touch).into());
            }
            self.finish()
        } else {
            domain.push(Linear::constant(1.0 - TOUCH).minus(&layout.m()));
            constraints.push(self.finish());
            self.tokens()
        };
        ConvexProgram { variables: layout.variables(), objective, constraints, domain }
    }

    /// Tokens of the whole instance, constant tables included.
    fn tokens(&self) -> Expression {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let copies = |e: usize| match e {
            _ if e == 0 && hops == 1 => 1 + self.setting.middle + self.setting.front,
            0 => 1 + self.setting.middle,
            _ if e == hops - 1 => 1 + self.setting.front,
            _ => 1,
        };
        let table = |e: usize| layout.size(e).plus(&Linear::constant(self.tokens[0] + (copies(e) as f64).log2()));
        let rest = Linear::constant((self.tokens[1].exp2() + self.tokens[2].exp2()).log2());
        let terms = (0..hops).map(table).chain([rest]).map(Term::from).collect();
        Expression { terms, divisor: None }
    }

    /// A point in the domain from which the solver finds its way: the given one, or the shape of a good point, x_{L-j} about
    /// B^j and as many classes as lists are long; the numbers of bits are worked out from the rest.
    pub(super) fn start(&self, freeze: &[usize], near: Option<&[f64]>) -> Vec<f64> {
        let mut start = near.map_or_else(|| self.shape(), <[f64]>::to_vec);
        for (bits, terms) in self.sums(freeze) {
            // Twice what each sum comes to, so that its condition holds with room.
            let sum = Expression { terms: terms.into_iter().map(Term::from).collect(), divisor: None };
            start[bits] = if sum.terms.is_empty() { -100.0 } else { (sum.value(&start) + 1.0).max(-300.0) };
        }
        start
    }

    fn shape(&self) -> Vec<f64> {
        let (layout, hops) = (&self.layout, self.setting.input.hops);
        let mut start = vec![0.0; layout.variables()];
        let list = |e: usize| (hops - e) as f64 * (self.message + 2.0);
        for e in 1..hops {
            start[layout.list(e)] = list(e);
            start[layout.classes(e - 1)] = list(e);
            start[VariableIndices::ratio(e)] = 2.0;
            start[layout.fraction(e)] = -1.0;
        }
        for e in 1..hops - 1 {
            start[layout.excess(e)] = 0.5;
        }
        start[layout.groups()] = 1.0;
        start[VariableIndices::ratio(0)] = (self.state[0] - list(1)).max(0.0) + 2.0;
        start[0] = start[VariableIndices::ratio(0)] + list(1) + 4.0;
        start
    }
}
