//! A second checker, written from `docs/proof.md` alone: real numbers as intervals instead of scaled integers.
//!
//! It answers *fails* where an inequality fails beyond all rounding. Where it does, the checker must refuse: on the stored
//! points and on thousands of mutants of them.

mod support;

use num_bigint::BigUint;
use rung_theory::bound::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, ProofCase, Refusal, TableLists, Theorem, TokensPer, check,
    inequalities,
};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::smallest;
use rung_theory::stack::{Defaults, Plan};
use support::{Generator, stored_points};

/// A real number between two floats.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: f64,
    high: f64,
}

/// Relative error of every operation, far above that of a float.
const WIDEN: f64 = 1e-13;

impl Interval {
    fn new(low: f64, high: f64) -> Self {
        Self { low: low - low.abs() * WIDEN, high: high + high.abs() * WIDEN }
    }

    fn of(number: &BigUint) -> Self {
        let value: f64 = number.to_string().parse().unwrap();
        Self::new(value, value)
    }

    fn whole(number: f64) -> Self {
        Self { low: number, high: number }
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.low + other.low, self.high + other.high)
    }

    fn minus(self, other: Self) -> Self {
        Self::new(self.low - other.high, self.high - other.low)
    }

    /// For numbers that are not negative, but for the first factor.
    fn times(self, other: Self) -> Self {
        let low = if self.low < 0.0 { self.low * other.high } else { self.low * other.low };
        let high = if self.high < 0.0 { self.high * other.low } else { self.high * other.high };
        Self::new(low, high)
    }

    /// For positive divisors and any dividend.
    fn over(self, other: Self) -> Self {
        let low = if self.low < 0.0 { self.low / other.low } else { self.low / other.high };
        let high = if self.high < 0.0 { self.high / other.high } else { self.high / other.low };
        Self::new(low, high)
    }

    /// log2, minus infinity from 0 down; an absolute error covers arguments near 1.
    fn log2(self) -> Self {
        let log = |value: f64| if value > 0.0 { value.log2() } else { f64::NEG_INFINITY };
        Self { low: log(self.low) - 1e-12, high: log(self.high) + 1e-12 }
    }

    fn floor(self) -> Self {
        Self { low: self.low.floor(), high: self.high.floor() }
    }

    /// Whether it can be above another.
    fn may_exceed(self, other: Self) -> bool {
        self.high > other.low || self.high.is_nan() || other.low.is_nan()
    }
}

fn sum(terms: impl IntoIterator<Item = Interval>) -> Interval {
    terms.into_iter().fold(Interval::whole(0.0), Interval::plus)
}

fn product(factors: impl IntoIterator<Item = Interval>) -> Interval {
    factors.into_iter().fold(Interval::whole(1.0), Interval::times)
}

fn intervals(numbers: &[BigUint]) -> Vec<Interval> {
    numbers.iter().map(Interval::of).collect()
}

/// log2 of n! by summation for small n and by Stirling's series beyond.
fn log2_factorial(n: f64) -> f64 {
    if n < 300.0 {
        return (1..=n as u64).map(|i| (i as f64).log2()).sum();
    }
    let ln =
        n * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3));
    ln / std::f64::consts::LN_2
}

/// The largest value that log 1/[C(M,t) (t/M)^T] can have, t = sigma - 1.
fn most_tail_bits(pairs: &BigUint, draws: Interval, sigma: &BigUint) -> f64 {
    let one = BigUint::from(1_u8);
    if *sigma == BigUint::ZERO || sigma > pairs || draws.high < 1.0 {
        return f64::NEG_INFINITY;
    }
    let t = sigma - &one;
    if t == BigUint::ZERO {
        return f64::INFINITY;
    }
    let (m, rest, t) = (Interval::of(pairs), Interval::of(&(pairs - &t)), Interval::of(&t));
    if t.low >= draws.high {
        return f64::NEG_INFINITY;
    }
    let ratio = m.over(t).log2();
    let gain = draws.times(ratio).high;
    // log C(M,t): exactly where factorials can be had without cancellation, else at least the entropy bound less its slack.
    let binomial = if m.high < 1e5 {
        let exact = log2_factorial(m.low.round()) - log2_factorial(t.low.round()) - log2_factorial(rest.low.round());
        exact - 1e-6
    } else {
        let entropy = t.times(ratio).low + rest.times(m.over(rest).log2()).low;
        // C(M,t) >= 2^(M h(t/M)) / (M + 1).
        entropy - m.high.log2() - 1.0
    };
    gain - binomial.max(0.0) + gain.abs() * 1e-12
}

/// The instance inside the tables.
struct Inner {
    case: ProofCase,
    hops: usize,
    m: BigUint,
    n: Vec<BigUint>,
    /// N_0 .. N_{L-1}.
    sizes: Vec<BigUint>,
    te: Interval,
    t0: Interval,
    tw: Interval,
    b: Interval,
    s: Vec<Interval>,
    parallel_bits: Interval,
}

impl Inner {
    /// None where lists are missing, sizes are 0 or an embedding does not fit.
    fn of(point: &Certificate) -> Option<Self> {
        let (hops, middle) = point.embedding.map_or((point.hops, 0), |inner| (inner.hops, inner.middle));
        let fits = (1..=point.hops).contains(&hops) && middle + hops <= point.hops && point.n.len() + 1 == point.hops;
        let embedded = point.embedding.is_none() || hops < point.hops;
        let positive = point.n.iter().chain(point.tokens_per.to_array()).chain([&point.m, &point.message_bits]);
        if !fits || !embedded || positive.into_iter().any(|size| *size == BigUint::ZERO) {
            return None;
        }
        if point.n[..middle].iter().any(|n| *n != BigUint::from(1_u8)) {
            return None;
        }
        let full = match (&point.theorem, point.case) {
            (Theorem::State, ProofCase::OneLayerFewer) => 0,
            (Theorem::State, _) => return None,
            (_, ProofCase::OneLayerFewer) => hops - 1,
            _ => hops,
        };
        let empty = point.case == ProofCase::OneLayerFewer
            || point.state_bits.iter().take(2).all(|bits| *bits == BigUint::ZERO);
        if point.state_bits.len() != full + 1 || !empty {
            return None;
        }
        let n = point.n[middle..middle + hops - 1].to_vec();
        let mut sizes = vec![point.m.clone()];
        for n in &n {
            sizes.push(sizes.last().unwrap() * n);
        }
        let [te, t0, tw] = point.tokens_per.to_array().map(Interval::of);
        let identities = te.times(Interval::of(&point.m)).times(Interval::whole(middle as f64));
        Some(Self {
            case: point.case,
            hops,
            m: point.m.clone(),
            n,
            sizes,
            te,
            t0: t0.plus(identities),
            tw,
            b: Interval::of(&point.message_bits),
            s: intervals(&point.state_bits),
            parallel_bits: Interval::of(&point.parallel_bits),
        })
    }

    fn largest(&self) -> Interval {
        Interval::of(&self.sizes[self.hops - 1])
    }

    fn divides(divisor: &BigUint, number: &BigUint) -> bool {
        *divisor != BigUint::ZERO && number % divisor == BigUint::ZERO
    }

    /// Whether lists, classes and sizes n' fit together.
    fn lists_fit(&self, lists: &TableLists, live: &[BigUint], varying: &BigUint) -> bool {
        let (l, x, k) = (self.hops, &lists.x, &lists.kappa);
        let counts = x.len() == l && k.len() == l - 1 && lists.sigma.len() == l - 1 && live.len() == l - 1;
        let one = BigUint::from(1_u8);
        counts
            && x.iter().chain(k).all(|size| *size != BigUint::ZERO)
            && x[0] <= *varying
            && *varying <= self.m
            && (l > 1 || x[0] == self.m)
            && (l == 1 || Self::divides(&k[0], &x[0]))
            && (0..l - 1).all(|e| Self::divides(&(&k[e] * k.get(e + 1).unwrap_or(&one)), &live[e]))
    }

    fn may_hold(&self, theorem: &Theorem) -> bool {
        let nothing_beside = self.parallel_bits.high == 0.0;
        match theorem {
            Theorem::State => nothing_beside && self.largest().times(self.largest().log2()).may_exceed(self.s[0]),
            Theorem::Entropy => self.case == ProofCase::OneLayerFewer && self.hops == 2 && self.entropy(),
            Theorem::Product(lists, lazy) => self.hops > 1 && self.recursion(lists, lazy),
            Theorem::Cells(cells) => nothing_beside && self.cells_fit(cells) && self.cells(cells),
            Theorem::CellLists { cells, x, sigma } => {
                nothing_beside && self.cells_fit(cells) && self.cell_lists(cells, x, sigma)
            }
            Theorem::Decomposition(lists) => self.decomposition(lists),
        }
    }

    /// Theorem 1, each condition divided by what it can be divided by.
    fn entropy(&self) -> bool {
        let (m, n) = (Interval::of(&self.m), Interval::of(&self.n[0]));
        let (s0, s1) = (self.s[0], self.s[1]);
        let state = s0.plus(self.parallel_bits);
        let beta = if s1.high == 0.0 { self.b } else { self.b.times(self.tw) };
        let carried = n.times(beta);
        let value = n.times(self.largest().log2()).minus(s1);
        if value.high <= 0.0 {
            return false;
        }
        let value = Interval { low: value.low.max(f64::MIN_POSITIVE), high: value.high };
        let per_argument = |base: Interval| m.times(base.log2()).may_exceed(s0);
        let first = per_argument(m.times(value).minus(state).over(carried));
        // r and k may be either neighbour where the quotient is nearly whole.
        let quotient = carried.over(value).floor();
        let second = [quotient.low, quotient.high].into_iter().filter(|&r| r >= 1.0).any(|r| {
            let r = Interval::whole(r);
            let gap = r.plus(Interval::whole(1.0)).times(value).minus(carried);
            gap.high > 0.0 && {
                let gap = Interval { low: gap.low.max(f64::MIN_POSITIVE), high: gap.high };
                per_argument(m.minus(state.over(gap)).over(r))
            }
        });
        let readers = carried.plus(state).over(value).floor().low;
        first || second || readers < 1.0 || per_argument(m.over(Interval::whole(readers)))
    }

    /// Theorem 2, first the bits of all freezes by step, then the recursion.
    fn recursion(&self, lists: &TableLists, lazy: &FrozenBorders) -> bool {
        let l = self.hops;
        let inside = lazy.live.len() == l - 1
            && lazy.freeze.len() == l - 1
            && lazy.live.iter().zip(&self.n).all(|(live, n)| *live != BigUint::ZERO && live <= n)
            && lazy.live[l - 2] == self.n[l - 2]
            && lazy.freeze.iter().enumerate().all(|(e, &behind)| behind <= e + 2);
        if !inside || !self.lists_fit(lists, &lazy.live, &lazy.varying) {
            return false;
        }
        let (x, k, live) = (intervals(&lists.x), intervals(&lists.kappa), intervals(&lazy.live));
        let chains = product(live.iter().copied());
        let q = x[0].times(chains).over(product(k.iter().copied()));
        let w = chains.over(product(k[1..].iter().copied()));
        // Players 0 .. L-1 by token counts: those with live values and those without.
        let mut tokens = vec![(self.t0, Interval::whole(0.0))];
        for i in 1..l {
            let alive = if i == 1 { lazy.varying.clone() } else { &lazy.live[i - 2] * &self.sizes[i - 2] };
            let dead = &self.sizes[i - 1] - &alive;
            tokens.push((self.te.times(Interval::of(&alive)), self.te.times(Interval::of(&dead))));
        }
        let tuples = |from: usize, to: usize| product(x.iter().copied().take(to + 1).skip(from));
        let states = |i: usize, to: usize| {
            let (alive, dead) = tokens[i];
            self.b.times(alive.times(tuples(i, to)).plus(dead.times(tuples(i + 1, to))))
        };
        let extra = usize::from(self.case == ProofCase::AsManyLayers);
        let mut p = self.parallel_bits.plus(if self.case == ProofCase::OneLayerFewer {
            self.s[0]
        } else {
            self.b.times(self.tw).times(w)
        });
        let mut j = Interval::whole(0.0);
        let mut reach = x[0];
        for e in 0..l - 1 {
            let done = if e == 0 { 1 - extra } else { lazy.freeze[e - 1] };
            let place = lazy.freeze[e];
            let tail = most_tail_bits(&(&lists.kappa[e] * &self.sizes[e]), x[e + 1].times(reach), &lists.sigma[e]);
            let passes = if e == 0 {
                let groups = Interval::of(&(&lazy.varying / &lists.x[0]));
                tail * groups.high > x[1].times(p).low
            } else {
                tail >= x[e + 1].times(p.plus(j)).plus(Interval::whole(1.0)).low
            };
            if !passes {
                return false;
            }
            let done_layers = e + extra;
            let into_query = self.b.times(self.tw).times(q).times(tuples(1, e));
            let late = sum((0..=e).filter(|&i| done_layers > 0 && i >= done).map(|i| states(i, e)));
            let own = states(e + 1, e + 1).times(Interval::whole(done_layers as f64));
            let blocks = sum(self.s[..=done_layers].iter().skip(1).copied());
            let border = self.s[done_layers + 1].times(tuples(place, e + 1));
            let mut messages = Interval::whole(0.0);
            for i in 0..=e + 1 {
                if i < place {
                    messages = messages.plus(states(i, if i < done { e } else { e + 1 }));
                }
            }
            match (e, self.case) {
                (0, ProofCase::OneLayerFewer) => (p, j) = (sum([p, into_query, messages]), border),
                (0, ProofCase::AsManyLayers) => {
                    (p, j) = (sum([p, late, own]), sum([into_query, messages, border, blocks]));
                }
                _ => {
                    let one = Interval::whole(1.0);
                    j = sum([x[e + 1].times(j), one, late, into_query, own, blocks, border, messages]);
                }
            }
            reach = live[e].over(k[e]).times(Interval::of(&lists.sigma[e]));
        }
        reach.times(self.largest().log2()).may_exceed(p.plus(j))
    }

    fn cells_fit(&self, cells: &Cells) -> bool {
        let shape = self.case == ProofCase::AsManyLayers && self.hops == 2;
        shape && Self::divides(&cells.cell, &self.m) && Self::divides(&cells.group, &self.n[0])
    }

    /// Theorem 3, as it is stated.
    fn cells(&self, cells: &Cells) -> bool {
        let (m, n, r, nu) = (&self.m, &self.n[0], &cells.cell, &cells.group);
        let [m, n, r, nu] = [m, n, r, nu].map(Interval::of);
        let value = nu.times(self.largest().log2()).minus(self.s[2]);
        let carried = nu.times(self.b).times(if self.s[2].high == 0.0 { Interval::whole(1.0) } else { self.tw });
        let gap = r.times(value).minus(carried);
        if gap.high <= 0.0 {
            return false;
        }
        if gap.low <= 0.0 {
            return true; // too close to tell
        }
        let theta = self.b.times(sum([self.te.times(m).times(r), self.tw.times(n), self.t0.times(m)]));
        let arguments = m.minus(r.times(theta).times(nu).over(n.times(gap)));
        arguments.times(r.times(value).over(carried).log2()).may_exceed(self.b.times(self.tw).times(nu))
    }

    /// Theorem 4, as it is stated.
    fn cell_lists(&self, cells: &Cells, lists: &[BigUint; 2], sigma: &BigUint) -> bool {
        let whole = |number: &BigUint| Interval::of(number);
        let fits = lists[1] != BigUint::ZERO
            && lists[0] != BigUint::ZERO
            && lists[0] <= self.m
            && Self::divides(&(&self.m / &cells.cell), &lists[0]);
        if !fits {
            return false;
        }
        let [x0, x1] = [whole(&lists[0]), whole(&lists[1])];
        let [m, n, r, nu] = [&self.m, &self.n[0], &cells.cell, &cells.group].map(whole);
        let groups = whole(&(&self.m / &lists[0]));
        let tail = most_tail_bits(&self.m, x0.times(x1), sigma) * groups.high;
        if tail <= x1.times(self.b).times(self.tw).times(nu).low {
            return false;
        }
        let s2 = self.s[2];
        let start = self.b.times(self.t0).times(x0).times(x1);
        let places = [
            s2.times(x0).times(x1),
            s2.times(x1).plus(start),
            sum([s2, start, self.b.times(self.te).times(m).times(x1)]),
        ];
        let cheapest = |end: fn(&Interval) -> f64| places.iter().map(end).fold(f64::INFINITY, f64::min);
        let last = match s2.high {
            0.0 => Interval::whole(0.0),
            _ => Interval { low: cheapest(|place| place.low), high: cheapest(|place| place.high) },
        };
        let first = sum([self.te.times(m).times(r), self.tw.times(n), self.t0.times(m)]).times(self.b);
        let second = n.over(nu).times(self.b.times(self.tw).times(nu).times(x0).plus(last));
        n.times(whole(sigma)).times(self.largest().log2()).may_exceed(first.plus(second))
    }

    /// Theorem 0: everything is multiplied by the next list, and all players are frozen at every step.
    fn decomposition(&self, lists: &TableLists) -> bool {
        if !self.lists_fit(lists, &self.n, &self.m) {
            return false;
        }
        let (l, x, k) = (self.hops, intervals(&lists.x), intervals(&lists.kappa));
        let chains = product(self.n.iter().map(Interval::of));
        let q = x[0].times(chains).over(product(k.iter().copied()));
        let w = chains.over(product(k.iter().copied().skip(1)));
        let tuples = |from: usize, to: usize| product(x.iter().copied().take(to + 1).skip(from));
        let tokens = |i: usize| if i == 0 { self.t0 } else { self.te.times(Interval::of(&self.sizes[i - 1])) };
        let extra = usize::from(self.case == ProofCase::AsManyLayers);
        let mut delta = if self.case == ProofCase::OneLayerFewer {
            self.s[0]
        } else {
            self.b.times(self.tw).times(w).plus(self.parallel_bits)
        };
        let mut reach = x[0];
        for e in 0..l - 1 {
            delta = x[e + 1].times(delta).plus(Interval::whole(1.0));
            if most_tail_bits(&(&lists.kappa[e] * &self.sizes[e]), x[e + 1].times(reach), &lists.sigma[e]) < delta.low {
                return false;
            }
            let again = if extra == 1 && e == 0 { x[1] } else { Interval::whole(1.0) };
            let into = |i: usize| self.b.times(tokens(i)).times(tuples(i, e)).times(again);
            let own = self.b.times(tokens(e + 1)).times(x[e + 1]);
            let layer = e + 1 + extra;
            delta = delta.plus(self.parallel_bits).plus(self.b.times(self.tw).times(q).times(tuples(1, e)));
            if extra == 1 && e == 0 {
                delta = delta.plus(self.b.times(self.t0).times(x[0]));
            }
            if e + 2 < l {
                let all = sum((0..=e).map(into)).plus(own.times(Interval::whole(layer as f64)));
                delta = sum([delta, all, sum(self.s[..=layer].iter().copied())]);
            } else {
                let layers = Interval::whole(layer as f64 - 1.0);
                delta = sum([delta, own.times(layers), sum(self.s[..layer].iter().copied())]);
                let last = self.s[layer];
                if last.high > 0.0 {
                    let before = |j: usize| {
                        let messages = sum((0..=j.min(e)).map(into));
                        let table = if j + 1 == l { own } else { Interval::whole(0.0) };
                        sum([last.times(tuples(j + 1, l - 1)), messages, table])
                    };
                    let at_query = last.times(tuples(0, l - 1));
                    let cheapest =
                        (0..l).map(before).chain([at_query]).map(|bits| bits.low).fold(f64::INFINITY, f64::min);
                    delta = delta.plus(Interval::new(cheapest, cheapest));
                }
            }
            reach = Interval::of(&self.n[e]).over(k[e]).times(Interval::of(&lists.sigma[e]));
        }
        reach.times(self.largest().log2()).may_exceed(delta)
    }
}

/// Whether the text may allow the point; false is certain.
fn may_hold(point: &Certificate) -> bool {
    Inner::of(point).is_some_and(|inner| inner.may_hold(&point.theorem))
}

#[test]
fn stored_points_are_judged_as_labelled_by_both() {
    for (point, accept, item) in stored_points() {
        let judged = check(&point);
        assert_eq!(judged.is_ok(), accept, "{item}: {judged:?}");
        assert!(may_hold(&point) || !accept, "{item}: the second checker");
        if let (Ok(accepted), Some(why)) = (judged, item["why"].as_str()) {
            assert_eq!(why, format!("{} tokens", accepted.tokens), "{item}");
        }
    }
}

/// All numbers of a point, to be changed one by one.
fn numbers(point: &mut Certificate) -> Vec<&mut BigUint> {
    let mut all = vec![&mut point.message_bits, &mut point.m, &mut point.parallel_bits];
    all.extend(&mut point.state_bits);
    all.extend(&mut point.n);
    let TokensPer { entry, start, query } = &mut point.tokens_per;
    all.extend([entry, start, query]);
    match &mut point.theorem {
        Theorem::State | Theorem::Entropy => {}
        Theorem::Decomposition(TableLists { x, sigma, kappa }) => {
            all.extend(x.iter_mut().chain(sigma).chain(kappa));
        }
        Theorem::Product(TableLists { x, sigma, kappa }, FrozenBorders { varying, live, .. }) => {
            all.extend(x.iter_mut().chain(sigma).chain(kappa).chain(live).chain([varying]));
        }
        Theorem::Cells(Cells { cell, group }) => all.extend([cell, group]),
        Theorem::CellLists { cells: Cells { cell, group }, x, sigma } => {
            all.extend([cell, group, sigma]);
            all.extend(x);
        }
    }
    all
}

/// One random change: a number moved a little or a lot, another case, another place of a border, an embedding.
fn mutate(point: &mut Certificate, generator: &mut Generator) {
    match generator.below(12) {
        0 => point.case = ProofCase::new(1 - u64::from(point.case.number())).unwrap(),
        1 => {
            if let Theorem::Product(_, FrozenBorders { freeze, .. }) = &mut point.theorem {
                let e = generator.below(freeze.len());
                freeze[e] = generator.below(e + 4);
            }
        }
        2 if point.embedding.is_none() => {
            let (middle, front) = (generator.below(3), generator.below(2));
            point.embedding = Some(InnerInstance { hops: point.hops, middle });
            point.hops += middle + front;
            let ones = std::iter::repeat_n(BigUint::from(1_u8), middle);
            point.n = ones.chain(point.n.clone()).chain((0..front).map(|_| 3_u8.into())).collect();
        }
        3 => {
            // Table and live part together, so that the sizes stay consistent.
            if let Theorem::Product(_, lazy) = &mut point.theorem {
                let e = generator.below(lazy.live.len());
                let factor = 1 + generator.below(3);
                if point.embedding.is_none() && lazy.live[e] == point.n[e] {
                    lazy.live[e] *= factor;
                    point.n[e] *= factor;
                }
            }
        }
        _ => {
            let mut all = numbers(point);
            let index = generator.below(all.len());
            let number = &mut *all[index];
            let old = number.clone();
            match generator.below(8) {
                0 => *number += 1_u8,
                1 if old != BigUint::ZERO => *number -= 1_u8,
                2 => *number *= 2_u8,
                3 => *number = &old / 2_u8,
                4 => *number = &old + (&old >> 4_u8),
                5 => *number = &old - (&old >> 4_u8),
                6 => *number = &old + (&old >> 9_u8),
                _ => *number = &old - (&old >> 9_u8),
            }
        }
    }
}

#[test]
fn no_mutant_is_accepted_that_the_text_does_not_allow() {
    const MUTANTS: usize = 6000;
    let mut points: Vec<Certificate> =
        stored_points().into_iter().filter(|(_, accept, _)| *accept).map(|(point, ..)| point).collect();
    // Points of the theorems and embeddings that are not stored, and what the search finds by the others.
    let mut questions = vec![
        BoundInput::new(ProofCase::OneLayerFewer, 1, 32, &[80], TokensPer::default()),
        BoundInput::new(ProofCase::OneLayerFewer, 4, 32, &[80], TokensPer::default()),
    ];
    for hops in 2..=5 {
        let late: Vec<u128> = (0..=hops).map(|e| if e < 2 { 0 } else { 80 }).collect();
        questions.push(BoundInput::new(ProofCase::AsManyLayers, hops, 32, &late, TokensPer::default()));
        questions.push(BoundInput::new(
            ProofCase::AsManyLayers,
            hops,
            32,
            &vec![0; hops + 1],
            TokensPer::new([1, 2, 3]),
        ));
        questions.push(
            BoundInput::new(ProofCase::OneLayerFewer, hops, 32, &vec![80; hops], TokensPer::new([2, 1, 1]))
                .with_w_major_tables(),
        );
    }
    for stack in ["full", "full full", "linear full", "full+linear full full"] {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let capacity = Plan::parse(stack, &defaults).unwrap().capacity();
        questions.extend((1..=4).filter_map(|hops| BoundInput::for_stack(&capacity, hops, &TokensPer::default())));
    }
    for question in &questions {
        let found = smallest(question).unwrap();
        assert!(may_hold(&found.certificate), "found, but the text does not allow {:?}", found.certificate);
        assert!(question.is_covered_by(&found.certificate), "{question:?}");
        points.push(found.certificate);
    }
    let mut generator = Generator(20);
    let (mut accepted, mut refused, mut by_rounding) = (0, 0, 0);
    for index in 0..MUTANTS {
        let mut mutant = points[index % points.len()].clone();
        for _ in 0..=generator.below(2) {
            mutate(&mut mutant, &mut generator);
        }
        let judged = check(&mutant);
        assert!(
            matches!(judged, Err(Refusal::Malformed(_))) || inequalities_agree(&mutant, judged.is_ok()),
            "{mutant:?}"
        );
        match (judged, may_hold(&mutant)) {
            (Ok(_), true) => accepted += 1,
            (Err(_), false) => refused += 1,
            (Err(Refusal::Malformed(what)), true) => panic!("malformed ({what}), but the text allows {mutant:?}"),
            (Err(_), true) => by_rounding += 1,
            (Ok(_), false) => panic!("accepted, but the text does not allow {mutant:?}"),
        }
    }
    println!("{accepted} accepted, {refused} refused, {by_rounding} refused though close");
    assert!(accepted > 800 && refused > 800 && by_rounding < MUTANTS / 20, "{accepted} {refused} {by_rounding}");
}

/// The last inequality that was compared decides, and each is as its two numbers say.
fn inequalities_agree(point: &Certificate, accepted: bool) -> bool {
    let compared = inequalities(point);
    let as_shown = compared.iter().all(|one| match (&one.left, one.formula[1].as_str()) {
        (None, _) => one.holds,
        (Some(left), "<") => one.holds == (*left < one.right),
        // Equal where the left side was cut, or where powers decided what logarithms could not.
        (Some(left), ">") => *left == one.right || one.holds == (*left > one.right),
        (Some(left), _) => one.holds == (*left >= one.right),
    });
    as_shown && compared.last().is_some_and(|last| last.holds == accepted)
}

/// The same lists under Theorem 2, with borders frozen where that serves best.
fn certified_by_product(point: &Certificate, lists: &TableLists) -> bool {
    let steps = point.n.len();
    let places: usize = (0..steps).map(|e| e + 3).product();
    (0..places).any(|mut number| {
        let freeze = (0..steps).map(|e| {
            let place = number % (e + 3);
            number /= e + 3;
            place
        });
        let lazy = FrozenBorders { varying: point.m.clone(), live: point.n.clone(), freeze: freeze.collect() };
        check(&Certificate { theorem: Theorem::Product(lists.clone(), lazy), ..point.clone() }).is_ok()
    })
}

/// Theorem 2 accepts all that Theorem 0 accepts, and some points that Theorem 0 must refuse.
#[test]
fn theorem_2_accepts_the_lists_of_theorem_0_and_more() {
    let mut newly = Vec::new();
    for (point, accept, item) in stored_points() {
        let Theorem::Decomposition(lists) = &point.theorem else { continue };
        let certified = certified_by_product(&point, lists);
        assert!(certified || !accept, "{item}");
        if certified && !accept {
            newly.push(item);
        }
    }
    for item in &newly {
        println!("{item}");
    }
    assert_eq!(newly.len(), 7);
}

/// The module doc of the checker states its length.
#[test]
fn the_checker_is_as_short_as_it_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bound/checker");
    let files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines: usize = files.iter().map(|text| text.lines().filter(code).count()).sum();
    let stated = format!("{lines} lines of code in\n//! {} files", ["six", "seven", "eight"][files.len() - 6]);
    let doc = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    assert!(doc.contains(&stated), "expected `{stated}`");
    assert!(!files.iter().any(|text| text.contains("super::super") || text.contains("search::")));
}
