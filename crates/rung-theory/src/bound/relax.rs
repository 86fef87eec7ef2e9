//! The bound's conditions as a convex program, for real-valued sizes.
//!
//! Unknowns are logarithms: m; the ratios r_0 = x_0/k_0, r_e = n_e/(k_{e-1} k_e); the class counts k; the list lengths
//! x_1..; the kept fractions rho = sigma/(k N); and Delta_0.. . With ratios instead of the n_e every unknown that must be an
//! integer is only bounded below by 1, so the search can fix them one by one. The last block's border can be frozen at
//! L+1 places; each choice is one program, and the best of them is the relaxed optimum.

use super::convex::{Expression, Linear, Program, Term};
use super::question::{Question, log2};

/// Where the last block's border is frozen: just before w, or before player j.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Border {
    Query,
    Player(usize),
}

/// Table sizes that are given instead of sought, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) m: f64,
    pub(super) n: Vec<f64>,
}

/// Variables by meaning.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    hops: usize,
    given: Option<Given>,
}

impl Layout {
    pub(super) fn new(hops: usize, given: Option<Given>) -> Self {
        Self { hops, given }
    }

    pub(super) fn ratio(e: usize) -> usize {
        1 + e
    }

    pub(super) fn classes(&self, e: usize) -> usize {
        1 + self.hops + e
    }

    pub(super) fn list(&self, e: usize) -> usize {
        2 * self.hops + e - 1
    }

    fn fraction(&self, e: usize) -> usize {
        3 * self.hops - 1 + e - 1
    }

    fn delta(&self, e: usize) -> usize {
        4 * self.hops - 2 + e
    }

    pub(super) fn variables(&self) -> usize {
        5 * self.hops - 2
    }

    /// The variables that must become integers, m excepted.
    pub(super) fn integers(&self) -> std::ops::Range<usize> {
        1..3 * self.hops - 1
    }

    fn k(&self, e: usize) -> Linear {
        Linear::variable(self.classes(e))
    }

    fn m(&self) -> Linear {
        self.given.as_ref().map_or_else(|| Linear::variable(0), |given| Linear::constant(given.m))
    }

    /// n_e, e from 1.
    fn n(&self, e: usize) -> Linear {
        if let Some(given) = &self.given {
            return Linear::constant(given.n[e - 1]);
        }
        let left = Linear::variable(Self::ratio(e)).plus(&self.k(e - 1));
        if e + 1 < self.hops { left.plus(&self.k(e)) } else { left }
    }

    fn x(&self, e: usize) -> Linear {
        if e == 0 { Linear::variable(Self::ratio(0)).plus(&self.k(0)) } else { Linear::variable(self.list(e)) }
    }

    /// N_e.
    fn size(&self, e: usize) -> Linear {
        (1..=e).fold(self.m(), |size, i| size.plus(&self.n(i)))
    }

    /// x_a .. x_b multiplied.
    fn lists(&self, a: usize, b: usize) -> Linear {
        (a..=b).fold(Linear::default(), |product, e| product.plus(&self.x(e)))
    }

    /// D_e, e from 1.
    fn reach(&self, e: usize) -> Linear {
        if e == 1 { self.x(0) } else { Linear::variable(self.fraction(e - 1)).plus(&self.size(e - 1)) }
    }

    /// The integers that a solution stands for: m, n, x, k as logarithms.
    pub(super) fn read(&self, point: &[f64]) -> (f64, Vec<f64>, Vec<f64>, Vec<f64>) {
        (
            self.m().at(point),
            (1..self.hops).map(|e| self.n(e).at(point)).collect(),
            (0..self.hops).map(|e| self.x(e).at(point)).collect(),
            (0..self.hops - 1).map(|e| point[self.classes(e)]).collect(),
        )
    }
}

/// Room by which bounds may be touched, so that a variable fixed at its bound is still strictly inside.
const TOUCH: f64 = 1e-7;

/// The conditions of one question, in logarithms.
pub(super) struct Relaxation<'a> {
    question: &'a Question,
    pub(super) layout: Layout,
    message: f64,
    state: Vec<f64>,
    tokens: [f64; 3],
}

impl<'a> Relaxation<'a> {
    pub(super) fn new(question: &'a Question, given: Option<Given>) -> Self {
        Self {
            layout: Layout::new(question.hops, given),
            message: log2(&question.message_bits),
            state: question.state_bits.iter().map(log2).collect(),
            tokens: question.tokens_per.map(|count| (count as f64).log2()),
            question,
        }
    }

    /// The places at which the last border can be frozen.
    pub(super) fn borders(&self) -> Vec<Option<Border>> {
        if self.state.last().is_none_or(|bits| bits.is_infinite()) {
            return vec![None];
        }
        let players = (0..self.question.hops).map(|j| Some(Border::Player(j)));
        std::iter::once(Some(Border::Query)).chain(players).collect()
    }

    fn tokens_of(&self, player: usize) -> Linear {
        match player {
            0 => Linear::constant(self.tokens[1]),
            _ => self.layout.size(player - 1).plus(&Linear::constant(self.tokens[0])),
        }
    }

    fn times_message(&self, linear: &Linear) -> Linear {
        Linear::constant(self.message).plus(linear)
    }

    /// Messages of a layer into players 0..=to at step e.
    fn into(&self, to: usize, e: usize) -> Vec<Linear> {
        let layout = &self.layout;
        let again = if self.question.case == 0 && e == 0 { layout.x(1) } else { Linear::default() };
        let one = |i| self.times_message(&self.tokens_of(i).plus(&layout.lists(i, e)).plus(&again));
        (0..=to.min(e)).map(one).collect()
    }

    fn states(&self, through: usize) -> impl Iterator<Item = Linear> + '_ {
        self.state[..=through].iter().filter(|bits| bits.is_finite()).map(|&bits| Linear::constant(bits))
    }

    /// The summands of Delta_{e+1}.
    fn next_delta(&self, e: usize, border: Option<Border>) -> Vec<Linear> {
        let (layout, hops) = (&self.layout, self.question.hops);
        let layer = if self.question.case == 1 { e + 1 } else { e + 2 };
        let step = layout.x(e + 1);
        let classes = (0..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&layout.k(i)));
        let pairs = (1..hops).fold(layout.x(0), |sum, i| sum.plus(&layout.n(i))).minus(&classes);
        let mut terms = vec![
            step.clone().plus(&Linear::variable(layout.delta(e))),
            Linear::constant(0.0),
            self.times_message(&pairs.plus(&layout.lists(1, e)).plus(&Linear::constant(self.tokens[2]))),
        ];
        if self.question.case == 0 && e == 0 {
            terms.push(self.times_message(&layout.x(0).plus(&Linear::constant(self.tokens[1]))));
        }
        let own = self.times_message(&layout.size(e).plus(&step).plus(&Linear::constant(self.tokens[0])));
        let times = |own: &Linear, count: usize| own.clone().plus(&Linear::constant((count as f64).log2()));
        if e + 1 < hops - 1 {
            terms.extend(self.into(e, e));
            terms.push(times(&own, layer));
            terms.extend(self.states(layer));
            return terms;
        }
        if layer > 1 {
            terms.push(times(&own, layer - 1));
        }
        terms.extend(self.states(layer - 1));
        let last = Linear::constant(self.state[layer]);
        match border {
            None => {}
            Some(Border::Query) => terms.push(last.plus(&layout.lists(0, hops - 1))),
            Some(Border::Player(j)) => {
                let after = if j + 1 < hops { layout.lists(j + 1, hops - 1) } else { Linear::default() };
                terms.push(last.plus(&after));
                terms.extend(self.into(j, e));
                if j == hops - 1 {
                    terms.push(own);
                }
            }
        }
        terms
    }

    /// The summands of Delta_0.
    fn first_delta(&self) -> Option<Linear> {
        let (layout, hops) = (&self.layout, self.question.hops);
        if self.question.case == 1 {
            return self.state[0].is_finite().then(|| Linear::constant(self.state[0]));
        }
        let classes = (1..hops - 1).fold(Linear::default(), |sum, i| sum.plus(&layout.k(i)));
        let queries = (1..hops).fold(Linear::constant(self.tokens[2]), |sum, i| sum.plus(&layout.n(i)));
        Some(self.times_message(&queries.minus(&classes)))
    }

    /// The final inequality as an expression that must be negative.
    fn finish(&self) -> Expression {
        let (layout, hops) = (&self.layout, self.question.hops);
        let lack = Linear::variable(layout.delta(hops - 1)).minus(&layout.reach(hops));
        Expression { terms: vec![lack.into()], divisor: Some(layout.size(hops - 1)) }
    }

    /// The program for one place of the last border.
    pub(super) fn program(&self, border: Option<Border>) -> Program {
        let (layout, hops) = (&self.layout, self.question.hops);
        let at_most = |terms: Vec<Linear>, bound: &Linear| Expression {
            terms: terms.into_iter().map(|term| Term::from(term.minus(bound))).collect(),
            divisor: None,
        };
        let mut constraints = Vec::new();
        let delta = |e| Linear::variable(layout.delta(e));
        constraints.extend(self.first_delta().map(|first| at_most(vec![first], &delta(0))));
        for e in 0..hops - 1 {
            constraints.push(at_most(self.next_delta(e, border), &delta(e + 1)));
            let draws = layout.x(e + 1).plus(&layout.reach(e + 1));
            let fraction = layout.fraction(e + 1);
            let pairs = layout.k(e).plus(&layout.size(e)).minus(&draws);
            let need = layout.x(e + 1).plus(&delta(e)).minus(&draws);
            constraints.push(Expression {
                terms: vec![
                    Term { linear: pairs, entropy: Some(fraction) },
                    need.into(),
                    Linear::constant(0.0).minus(&draws).into(),
                ],
                divisor: Some(Linear::default().minus(&Linear::variable(fraction))),
            });
        }
        let touch = Linear::constant(-TOUCH);
        constraints.push(layout.x(0).minus(&layout.m()).plus(&touch).into());
        let mut domain: Vec<Linear> = layout.integers().map(|v| touch.clone().minus(&Linear::variable(v))).collect();
        // Nothing useful is beyond this; without a roof a feasible point may be found absurdly far out.
        let roof = 2.0 * (hops + 1) as f64 * (self.message + self.state.iter().copied().fold(0.0, f64::max) + 20.0);
        let sizes = layout.integers().chain(layout.given.is_none().then_some(0));
        domain.extend(sizes.map(|v| Linear::variable(v).plus(&Linear::constant(-roof))));
        // A floor for Delta_0 where no state feeds it, and fractions below one.
        domain.push(Linear::constant(-400.0).minus(&delta(0)));
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
            let tables = (0..hops).map(|e| layout.size(e).plus(&Linear::constant(self.tokens[0])));
            let rest = (self.tokens[1].exp2() + self.tokens[2].exp2()).log2();
            let terms = tables.chain([Linear::constant(rest)]).map(Term::from).collect();
            Expression { terms, divisor: None }
        };
        Program { variables: layout.variables(), objective, constraints, domain }
    }

    /// A point in the domain from which the solver finds its way: the shape of a good point, x_{L-j} about B^j, as many
    /// classes as lists are long, and Delta worked out from the rest.
    pub(super) fn start(&self) -> Vec<f64> {
        let (layout, hops) = (&self.layout, self.question.hops);
        let mut start = vec![0.0; layout.variables()];
        let list = |e: usize| (hops - e) as f64 * (self.message + 2.0);
        for e in 1..hops {
            start[layout.list(e)] = list(e);
            start[layout.classes(e - 1)] = list(e);
            start[Layout::ratio(e)] = 2.0;
            start[layout.fraction(e)] = -1.0;
        }
        start[Layout::ratio(0)] = (self.state[0] - list(1)).max(0.0) + 2.0;
        start[0] = start[Layout::ratio(0)] + list(1) + 4.0;
        // Twice what each sum comes to, so that its condition holds with room.
        let room = |terms: Vec<Linear>, point: &[f64]| {
            Expression { terms: terms.into_iter().map(Term::from).collect(), divisor: None }.value(point) + 1.0
        };
        start[layout.delta(0)] = self.first_delta().map_or(0.0, |first| room(vec![first], &start).max(0.0));
        for e in 0..hops - 1 {
            start[layout.delta(e + 1)] = room(self.next_delta(e, None), &start);
        }
        start
    }
}
