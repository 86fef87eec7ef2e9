//! A second checker, written from `docs/proof.md` alone, with interval arithmetic instead of scaled integers.
//!
//! It rejects a certificate if an inequality fails by more than the rounding error. The checker must then reject it too: this is
//! tested on the stored certificates and on thousands of mutants of them.

mod support;

use num_bigint::BigUint;
use rung_theory::bound::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, ProofCase, Rejection, TableLists, Theorem, TokenCounts, check,
    inequalities,
};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::smallest_certificate;
use rung_theory::stack::{Defaults, Plan};
use support::{Generator, stored_certificates};

/// A real number between two floats.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: f64,
    high: f64,
}

/// The relative error added to every operation, far above the rounding error of a float.
const RELATIVE_ERROR: f64 = 1e-13;

impl Interval {
    fn new(low: f64, high: f64) -> Self {
        Self { low: low - low.abs() * RELATIVE_ERROR, high: high + high.abs() * RELATIVE_ERROR }
    }

    fn of(number: &BigUint) -> Self {
        let value: f64 = number.to_string().parse().unwrap();
        Self::new(value, value)
    }

    /// The interval that contains only this number.
    fn exact(number: f64) -> Self {
        Self { low: number, high: number }
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.low + other.low, self.high + other.high)
    }

    fn minus(self, other: Self) -> Self {
        Self::new(self.low - other.high, self.high - other.low)
    }

    /// The product; only the first factor may be negative.
    fn times(self, other: Self) -> Self {
        let low = if self.low < 0.0 { self.low * other.high } else { self.low * other.low };
        let high = if self.high < 0.0 { self.high * other.low } else { self.high * other.high };
        Self::new(low, high)
    }

    /// The quotient; the divisor must be positive.
    fn over(self, other: Self) -> Self {
        let low = if self.low < 0.0 { self.low / other.low } else { self.low / other.high };
        let high = if self.high < 0.0 { self.high / other.high } else { self.high / other.low };
        Self::new(low, high)
    }

    /// log2, minus infinity for numbers up to 0, with an absolute error for arguments near 1.
    fn log2(self) -> Self {
        let log = |value: f64| if value > 0.0 { value.log2() } else { f64::NEG_INFINITY };
        Self { low: log(self.low) - 1e-12, high: log(self.high) + 1e-12 }
    }

    fn floor(self) -> Self {
        Self { low: self.low.floor(), high: self.high.floor() }
    }

    /// Whether some number of this interval is above some number of another.
    fn may_exceed(self, other: Self) -> bool {
        self.high > other.low || self.high.is_nan() || other.low.is_nan()
    }
}

fn sum(terms: impl IntoIterator<Item = Interval>) -> Interval {
    terms.into_iter().fold(Interval::exact(0.0), Interval::plus)
}

fn product(factors: impl IntoIterator<Item = Interval>) -> Interval {
    factors.into_iter().fold(Interval::exact(1.0), Interval::times)
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

/// An upper bound of log 1/[C(M,t) (t/M)^T], t = sigma - 1.
fn max_tail_bits(pairs: &BigUint, draws: Interval, sigma: &BigUint) -> f64 {
    let one = BigUint::from(1_u8);
    if *sigma == BigUint::ZERO || sigma > pairs || draws.high < 1.0 {
        return f64::NEG_INFINITY;
    }
    let t = sigma - &one;
    if t == BigUint::ZERO {
        return f64::INFINITY;
    }
    let (m, complement, t) = (Interval::of(pairs), Interval::of(&(pairs - &t)), Interval::of(&t));
    if t.low >= draws.high {
        return f64::NEG_INFINITY;
    }
    let ratio = m.over(t).log2();
    let gain = draws.times(ratio).high;
    // A lower bound of log C(M,t): from factorials if they are accurate enough, else from the entropy.
    let binomial = if m.high < 1e5 {
        let exact =
            log2_factorial(m.low.round()) - log2_factorial(t.low.round()) - log2_factorial(complement.low.round());
        exact - 1e-6
    } else {
        let entropy = t.times(ratio).low + complement.times(m.over(complement).log2()).low;
        // C(M,t) >= 2^(M h(t/M)) / (M + 1).
        entropy - m.high.log2() - 1.0
    };
    gain - binomial.max(0.0) + gain.abs() * 1e-12
}

/// The instance that the theorem is applied to, with the letters of `docs/proof.md`.
struct InnerTask {
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
    fixed_bits: Interval,
}

impl InnerTask {
    /// None if a list has the wrong length, a size is 0 or the embedding does not fit.
    fn new(certificate: &Certificate) -> Option<Self> {
        let (hops, middle) =
            certificate.inner_instance.map_or((certificate.hops, 0), |inner| (inner.hops, inner.middle));
        let fits = (1..=certificate.hops).contains(&hops)
            && middle + hops <= certificate.hops
            && certificate.n.len() + 1 == certificate.hops;
        let fewer_hops = certificate.inner_instance.is_none() || hops < certificate.hops;
        let positive = certificate
            .n
            .iter()
            .chain(certificate.token_counts.to_array())
            .chain([&certificate.m, &certificate.message_bits]);
        if !fits || !fewer_hops || positive.into_iter().any(|size| *size == BigUint::ZERO) {
            return None;
        }
        if certificate.n[..middle].iter().any(|n| *n != BigUint::from(1_u8)) {
            return None;
        }
        let full = match (&certificate.theorem, certificate.case) {
            (Theorem::State, ProofCase::OneLayerFewer) => 0,
            (Theorem::State, _) => return None,
            (_, ProofCase::OneLayerFewer) => hops - 1,
            _ => hops,
        };
        let first_blocks_empty = certificate.case == ProofCase::OneLayerFewer
            || certificate.state_bits.iter().take(2).all(|bits| *bits == BigUint::ZERO);
        if certificate.state_bits.len() != full + 1 || !first_blocks_empty {
            return None;
        }
        let n = certificate.n[middle..middle + hops - 1].to_vec();
        let mut sizes = vec![certificate.m.clone()];
        for n in &n {
            sizes.push(sizes.last().unwrap() * n);
        }
        let [te, t0, tw] = certificate.token_counts.to_array().map(Interval::of);
        let identities = te.times(Interval::of(&certificate.m)).times(Interval::exact(middle as f64));
        Some(Self {
            case: certificate.case,
            hops,
            m: certificate.m.clone(),
            n,
            sizes,
            te,
            t0: t0.plus(identities),
            tw,
            b: Interval::of(&certificate.message_bits),
            s: intervals(&certificate.state_bits),
            fixed_bits: Interval::of(&certificate.fixed_bits),
        })
    }

    /// N_(L-1): entries of the last table.
    fn largest(&self) -> Interval {
        Interval::of(&self.sizes[self.hops - 1])
    }

    fn divides(divisor: &BigUint, number: &BigUint) -> bool {
        *divisor != BigUint::ZERO && number % divisor == BigUint::ZERO
    }

    /// Whether the lengths and divisibilities of lists, classes and sizes n' are as required.
    fn lists_fit(&self, lists: &TableLists, live: &[BigUint], varying: &BigUint) -> bool {
        let (l, x, k) = (self.hops, &lists.x, &lists.kappa);
        let lengths_match = x.len() == l && k.len() == l - 1 && lists.sigma.len() == l - 1 && live.len() == l - 1;
        let one = BigUint::from(1_u8);
        lengths_match
            && x.iter().chain(k).all(|size| *size != BigUint::ZERO)
            && x[0] <= *varying
            && *varying <= self.m
            && (l > 1 || x[0] == self.m)
            && (l == 1 || Self::divides(&k[0], &x[0]))
            && (0..l - 1).all(|e| Self::divides(&(&k[e] * k.get(e + 1).unwrap_or(&one)), &live[e]))
    }

    /// Whether the theorem's inequalities may hold; false is certain.
    fn may_hold(&self, theorem: &Theorem) -> bool {
        let no_parallel_mixer = self.fixed_bits.high == 0.0;
        match theorem {
            Theorem::State => no_parallel_mixer && self.largest().times(self.largest().log2()).may_exceed(self.s[0]),
            Theorem::Entropy => self.case == ProofCase::OneLayerFewer && self.hops == 2 && self.entropy(),
            Theorem::Product(lists, borders) => self.hops > 1 && self.product(lists, borders),
            Theorem::Cells(cells) => no_parallel_mixer && self.cells_fit(cells) && self.cells(cells),
            Theorem::CellLists { cells, x, sigma } => {
                no_parallel_mixer && self.cells_fit(cells) && self.cell_lists(cells, x, sigma)
            }
            Theorem::Decomposition(lists) => self.decomposition(lists),
        }
    }

    /// Theorem 1, with both sides of each condition divided by their common factors.
    fn entropy(&self) -> bool {
        let (m, n) = (Interval::of(&self.m), Interval::of(&self.n[0]));
        let (s0, s1) = (self.s[0], self.s[1]);
        let state = s0.plus(self.fixed_bits);
        let beta = if s1.high == 0.0 { self.b } else { self.b.times(self.tw) };
        let message_capacity = n.times(beta);
        let value = n.times(self.largest().log2()).minus(s1);
        if value.high <= 0.0 {
            return false;
        }
        let value = Interval { low: value.low.max(f64::MIN_POSITIVE), high: value.high };
        let per_argument = |base: Interval| m.times(base.log2()).may_exceed(s0);
        let first = per_argument(m.times(value).minus(state).over(message_capacity));
        // If the quotient is nearly an integer, its floor may be either of two integers.
        let quotient = message_capacity.over(value).floor();
        let second = [quotient.low, quotient.high].into_iter().filter(|&r| r >= 1.0).any(|r| {
            let r = Interval::exact(r);
            let gap = r.plus(Interval::exact(1.0)).times(value).minus(message_capacity);
            gap.high > 0.0 && {
                let gap = Interval { low: gap.low.max(f64::MIN_POSITIVE), high: gap.high };
                per_argument(m.minus(state.over(gap)).over(r))
            }
        });
        let k = message_capacity.plus(state).over(value).floor().low;
        first || second || k < 1.0 || per_argument(m.over(Interval::exact(k)))
    }

    /// Theorem 2: the recursion for P and J.
    fn product(&self, lists: &TableLists, borders: &FrozenBorders) -> bool {
        let l = self.hops;
        let in_range = borders.live.len() == l - 1
            && borders.freeze.len() == l - 1
            && borders.live.iter().zip(&self.n).all(|(live, n)| *live != BigUint::ZERO && live <= n)
            && borders.live[l - 2] == self.n[l - 2]
            && borders.freeze.iter().enumerate().all(|(e, &frozen)| frozen <= e + 2);
        if !in_range || !self.lists_fit(lists, &borders.live, &borders.varying) {
            return false;
        }
        let (x, k, live) = (intervals(&lists.x), intervals(&lists.kappa), intervals(&borders.live));
        let chains = product(live.iter().copied());
        let q = x[0].times(chains).over(product(k.iter().copied()));
        let w = chains.over(product(k[1..].iter().copied()));
        // For players 0 .. L-1: tokens whose values vary, and tokens whose values are constant.
        let mut tokens = vec![(self.t0, Interval::exact(0.0))];
        for i in 1..l {
            let varying = if i == 1 { borders.varying.clone() } else { &borders.live[i - 2] * &self.sizes[i - 2] };
            let constant = &self.sizes[i - 1] - &varying;
            tokens.push((self.te.times(Interval::of(&varying)), self.te.times(Interval::of(&constant))));
        }
        let tuples = |from: usize, to: usize| product(x.iter().copied().take(to + 1).skip(from));
        let states = |i: usize, to: usize| {
            let (varying, constant) = tokens[i];
            self.b.times(varying.times(tuples(i, to)).plus(constant.times(tuples(i + 1, to))))
        };
        let extra = usize::from(self.case == ProofCase::AsManyLayers);
        let mut p = self.fixed_bits.plus(if self.case == ProofCase::OneLayerFewer {
            self.s[0]
        } else {
            self.b.times(self.tw).times(w)
        });
        let mut j = Interval::exact(0.0);
        let mut reachable = x[0];
        for e in 0..l - 1 {
            let frozen_players = if e == 0 { 1 - extra } else { borders.freeze[e - 1] };
            let next_frozen = borders.freeze[e];
            let tail = max_tail_bits(&(&lists.kappa[e] * &self.sizes[e]), x[e + 1].times(reachable), &lists.sigma[e]);
            let passes = if e == 0 {
                let groups = Interval::of(&(&borders.varying / &lists.x[0]));
                tail * groups.high > x[1].times(p).low
            } else {
                tail >= x[e + 1].times(p.plus(j)).plus(Interval::exact(1.0)).low
            };
            if !passes {
                return false;
            }
            let finished_layers = e + extra;
            let into_query = self.b.times(self.tw).times(q).times(tuples(1, e));
            let unfrozen = sum((0..=e).filter(|&i| finished_layers > 0 && i >= frozen_players).map(|i| states(i, e)));
            let own_messages = states(e + 1, e + 1).times(Interval::exact(finished_layers as f64));
            let blocks = sum(self.s[..=finished_layers].iter().skip(1).copied());
            let border = self.s[finished_layers + 1].times(tuples(next_frozen, e + 1));
            let mut messages = Interval::exact(0.0);
            for i in 0..=e + 1 {
                if i < next_frozen {
                    messages = messages.plus(states(i, if i < frozen_players { e } else { e + 1 }));
                }
            }
            match (e, self.case) {
                (0, ProofCase::OneLayerFewer) => (p, j) = (sum([p, into_query, messages]), border),
                (0, ProofCase::AsManyLayers) => {
                    (p, j) = (sum([p, unfrozen, own_messages]), sum([into_query, messages, border, blocks]));
                }
                _ => {
                    let one = Interval::exact(1.0);
                    j = sum([x[e + 1].times(j), one, unfrozen, into_query, own_messages, blocks, border, messages]);
                }
            }
            reachable = live[e].over(k[e]).times(Interval::of(&lists.sigma[e]));
        }
        reachable.times(self.largest().log2()).may_exceed(p.plus(j))
    }

    fn cells_fit(&self, cells: &Cells) -> bool {
        let applies = self.case == ProofCase::AsManyLayers && self.hops == 2;
        applies && Self::divides(&cells.cell, &self.m) && Self::divides(&cells.group, &self.n[0])
    }

    /// Theorem 3, as it is stated.
    fn cells(&self, cells: &Cells) -> bool {
        let (m, n, r, nu) = (&self.m, &self.n[0], &cells.cell, &cells.group);
        let [m, n, r, nu] = [m, n, r, nu].map(Interval::of);
        let value = nu.times(self.largest().log2()).minus(self.s[2]);
        let message_capacity =
            nu.times(self.b).times(if self.s[2].high == 0.0 { Interval::exact(1.0) } else { self.tw });
        let gap = r.times(value).minus(message_capacity);
        if gap.high <= 0.0 {
            return false;
        }
        if gap.low <= 0.0 {
            return true; // too close to decide
        }
        let theta = self.b.times(sum([self.te.times(m).times(r), self.tw.times(n), self.t0.times(m)]));
        let arguments = m.minus(r.times(theta).times(nu).over(n.times(gap)));
        arguments.times(r.times(value).over(message_capacity).log2()).may_exceed(self.b.times(self.tw).times(nu))
    }

    /// Theorem 4, as it is stated.
    fn cell_lists(&self, cells: &Cells, lists: &[BigUint; 2], sigma: &BigUint) -> bool {
        let fits = lists[1] != BigUint::ZERO
            && lists[0] != BigUint::ZERO
            && lists[0] <= self.m
            && Self::divides(&(&self.m / &cells.cell), &lists[0]);
        if !fits {
            return false;
        }
        let [x0, x1] = [Interval::of(&lists[0]), Interval::of(&lists[1])];
        let [m, n, r, nu] = [&self.m, &self.n[0], &cells.cell, &cells.group].map(Interval::of);
        let groups = Interval::of(&(&self.m / &lists[0]));
        let tail = max_tail_bits(&self.m, x0.times(x1), sigma) * groups.high;
        if tail <= x1.times(self.b).times(self.tw).times(nu).low {
            return false;
        }
        let s2 = self.s[2];
        let start = self.b.times(self.t0).times(x0).times(x1);
        let border_costs = [
            s2.times(x0).times(x1),
            s2.times(x1).plus(start),
            sum([s2, start, self.b.times(self.te).times(m).times(x1)]),
        ];
        let cheapest = |end: fn(&Interval) -> f64| border_costs.iter().map(end).fold(f64::INFINITY, f64::min);
        let last = match s2.high {
            0.0 => Interval::exact(0.0),
            _ => Interval { low: cheapest(|cost| cost.low), high: cheapest(|cost| cost.high) },
        };
        let first = sum([self.te.times(m).times(r), self.tw.times(n), self.t0.times(m)]).times(self.b);
        let second = n.over(nu).times(self.b.times(self.tw).times(nu).times(x0).plus(last));
        n.times(Interval::of(sigma)).times(self.largest().log2()).may_exceed(first.plus(second))
    }

    /// Theorem 0: Delta is multiplied by the length of the next list, and all players are frozen at every step.
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
            self.b.times(self.tw).times(w).plus(self.fixed_bits)
        };
        let mut reachable = x[0];
        for e in 0..l - 1 {
            delta = x[e + 1].times(delta).plus(Interval::exact(1.0));
            if max_tail_bits(&(&lists.kappa[e] * &self.sizes[e]), x[e + 1].times(reachable), &lists.sigma[e])
                < delta.low
            {
                return false;
            }
            let repetitions = if extra == 1 && e == 0 { x[1] } else { Interval::exact(1.0) };
            let into = |i: usize| self.b.times(tokens(i)).times(tuples(i, e)).times(repetitions);
            let own_messages = self.b.times(tokens(e + 1)).times(x[e + 1]);
            let layer = e + 1 + extra;
            delta = delta.plus(self.fixed_bits).plus(self.b.times(self.tw).times(q).times(tuples(1, e)));
            if extra == 1 && e == 0 {
                delta = delta.plus(self.b.times(self.t0).times(x[0]));
            }
            if e + 2 < l {
                let all = sum((0..=e).map(into)).plus(own_messages.times(Interval::exact(layer as f64)));
                delta = sum([delta, all, sum(self.s[..=layer].iter().copied())]);
            } else {
                let layers = Interval::exact(layer as f64 - 1.0);
                delta = sum([delta, own_messages.times(layers), sum(self.s[..layer].iter().copied())]);
                let last = self.s[layer];
                if last.high > 0.0 {
                    let before = |j: usize| {
                        let messages = sum((0..=j.min(e)).map(into));
                        let table = if j + 1 == l { own_messages } else { Interval::exact(0.0) };
                        sum([last.times(tuples(j + 1, l - 1)), messages, table])
                    };
                    let at_query = last.times(tuples(0, l - 1));
                    let cheapest =
                        (0..l).map(before).chain([at_query]).map(|bits| bits.low).fold(f64::INFINITY, f64::min);
                    delta = delta.plus(Interval::new(cheapest, cheapest));
                }
            }
            reachable = Interval::of(&self.n[e]).over(k[e]).times(Interval::of(&lists.sigma[e]));
        }
        reachable.times(self.largest().log2()).may_exceed(delta)
    }
}

/// Whether the theorem of `docs/proof.md` may accept the certificate; false is certain.
fn may_hold(certificate: &Certificate) -> bool {
    InnerTask::new(certificate).is_some_and(|inner| inner.may_hold(&certificate.theorem))
}

#[test]
fn both_checkers_agree_with_the_labels_of_stored_certificates() {
    for (certificate, accept, item) in stored_certificates() {
        let result = check(&certificate);
        assert_eq!(result.is_ok(), accept, "{item}: {result:?}");
        assert!(may_hold(&certificate) || !accept, "{item}: the second checker");
        if let (Ok(accepted), Some(why)) = (result, item["why"].as_str()) {
            assert_eq!(why, format!("{} tokens", accepted.tokens), "{item}");
        }
    }
}

/// Mutable references to all numbers of a certificate.
fn numbers(certificate: &mut Certificate) -> Vec<&mut BigUint> {
    let mut all = vec![&mut certificate.message_bits, &mut certificate.m, &mut certificate.fixed_bits];
    all.extend(&mut certificate.state_bits);
    all.extend(&mut certificate.n);
    let TokenCounts { entry, start, query } = &mut certificate.token_counts;
    all.extend([entry, start, query]);
    match &mut certificate.theorem {
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

/// One random change: a number by a little or a lot, the case, the position of a border, or an embedding.
fn mutate(certificate: &mut Certificate, generator: &mut Generator) {
    match generator.random_below(12) {
        0 => certificate.case = ProofCase::new(1 - u64::from(certificate.case.number())).unwrap(),
        1 => {
            if let Theorem::Product(_, FrozenBorders { freeze, .. }) = &mut certificate.theorem {
                let e = generator.random_below(freeze.len());
                freeze[e] = generator.random_below(e + 4);
            }
        }
        2 if certificate.inner_instance.is_none() => {
            let (middle, front) = (generator.random_below(3), generator.random_below(2));
            certificate.inner_instance = Some(InnerInstance { hops: certificate.hops, middle });
            certificate.hops += middle + front;
            let ones = std::iter::repeat_n(BigUint::from(1_u8), middle);
            certificate.n = ones.chain(certificate.n.clone()).chain((0..front).map(|_| 3_u8.into())).collect();
        }
        3 => {
            // Changes table and live part together, so that the sizes stay consistent.
            if let Theorem::Product(_, borders) = &mut certificate.theorem {
                let e = generator.random_below(borders.live.len());
                let factor = 1 + generator.random_below(3);
                if certificate.inner_instance.is_none() && borders.live[e] == certificate.n[e] {
                    borders.live[e] *= factor;
                    certificate.n[e] *= factor;
                }
            }
        }
        _ => {
            let mut all = numbers(certificate);
            let index = generator.random_below(all.len());
            let number = &mut *all[index];
            let old = number.clone();
            match generator.random_below(8) {
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
fn check_accepts_no_mutant_that_the_second_checker_rejects() {
    const MUTANTS: usize = 6000;
    let mut certificates: Vec<Certificate> = stored_certificates()
        .into_iter()
        .filter(|(_, accept, _)| *accept)
        .map(|(certificate, ..)| certificate)
        .collect();
    // Certificates of theorems and embeddings that are not stored, from the search.
    let mut inputs = vec![
        BoundInput::new(ProofCase::OneLayerFewer, 1, 32, &[80], TokenCounts::default()),
        BoundInput::new(ProofCase::OneLayerFewer, 4, 32, &[80], TokenCounts::default()),
    ];
    for hops in 2..=5 {
        let later_states: Vec<u128> = (0..=hops).map(|e| if e < 2 { 0 } else { 80 }).collect();
        inputs.push(BoundInput::new(ProofCase::AsManyLayers, hops, 32, &later_states, TokenCounts::default()));
        inputs.push(BoundInput::new(
            ProofCase::AsManyLayers,
            hops,
            32,
            &vec![0; hops + 1],
            TokenCounts::new([1, 2, 3]),
        ));
        inputs.push(
            BoundInput::new(ProofCase::OneLayerFewer, hops, 32, &vec![80; hops], TokenCounts::new([2, 1, 1]))
                .with_w_major_tables(),
        );
    }
    for stack in ["full", "full full", "linear full", "full+linear full full"] {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let capacity = Plan::parse(stack, &defaults).unwrap().capacity();
        inputs.extend((1..=4).filter_map(|hops| BoundInput::for_stack(&capacity, hops, &TokenCounts::default())));
    }
    for input in &inputs {
        let smallest = smallest_certificate(input).unwrap();
        assert!(may_hold(&smallest.certificate), "found, but the text does not allow {:?}", smallest.certificate);
        assert!(input.is_covered_by(&smallest.certificate), "{input:?}");
        certificates.push(smallest.certificate);
    }
    let mut generator = Generator(20);
    let (mut accepted, mut rejected, mut by_rounding) = (0, 0, 0);
    for index in 0..MUTANTS {
        let mut mutant = certificates[index % certificates.len()].clone();
        for _ in 0..=generator.random_below(2) {
            mutate(&mut mutant, &mut generator);
        }
        let result = check(&mutant);
        assert!(
            matches!(result, Err(Rejection::Malformed(_))) || inequalities_agree(&mutant, result.is_ok()),
            "{mutant:?}"
        );
        match (result, may_hold(&mutant)) {
            (Ok(_), true) => accepted += 1,
            (Err(_), false) => rejected += 1,
            (Err(Rejection::Malformed(reason)), true) => panic!("malformed ({reason}), but the text allows {mutant:?}"),
            (Err(_), true) => by_rounding += 1,
            (Ok(_), false) => panic!("accepted, but the text does not allow {mutant:?}"),
        }
    }
    println!("{accepted} accepted, {rejected} rejected, {by_rounding} rejected because of rounding");
    assert!(accepted > 800 && rejected > 800 && by_rounding < MUTANTS / 20, "{accepted} {rejected} {by_rounding}");
}

/// Whether the last recorded inequality decides, and each `holds` agrees with its two numbers.
fn inequalities_agree(certificate: &Certificate, accepted: bool) -> bool {
    let compared = inequalities(certificate);
    let consistent = compared.iter().all(|inequality| match (&inequality.left, inequality.formula[1].as_str()) {
        (None, _) => inequality.holds,
        (Some(left), "<") => inequality.holds == (*left < inequality.right),
        // Both are equal if the left side was rounded, or if powers decided instead of logarithms.
        (Some(left), ">") => *left == inequality.right || inequality.holds == (*left > inequality.right),
        (Some(left), _) => inequality.holds == (*left >= inequality.right),
    });
    consistent && compared.last().is_some_and(|last| last.holds == accepted)
}

/// Whether Theorem 2 accepts the same lists for some choice of frozen borders.
fn certified_by_product(certificate: &Certificate, lists: &TableLists) -> bool {
    let steps = certificate.n.len();
    let choices: usize = (0..steps).map(|e| e + 3).product();
    (0..choices).any(|mut number| {
        let freeze = (0..steps).map(|e| {
            let position = number % (e + 3);
            number /= e + 3;
            position
        });
        let borders =
            FrozenBorders { varying: certificate.m.clone(), live: certificate.n.clone(), freeze: freeze.collect() };
        check(&Certificate { theorem: Theorem::Product(lists.clone(), borders), ..certificate.clone() }).is_ok()
    })
}

/// Theorem 2 accepts all that Theorem 0 accepts, and some certificates that Theorem 0 rejects.
#[test]
fn theorem_2_accepts_the_lists_of_theorem_0_and_more() {
    let mut newly_accepted = Vec::new();
    for (certificate, accept, item) in stored_certificates() {
        let Theorem::Decomposition(lists) = &certificate.theorem else { continue };
        let certified = certified_by_product(&certificate, lists);
        assert!(certified || !accept, "{item}");
        if certified && !accept {
            newly_accepted.push(item);
        }
    }
    for item in &newly_accepted {
        println!("{item}");
    }
    assert_eq!(newly_accepted.len(), 7);
}

/// The module doc of the checker states its length.
#[test]
fn the_checker_has_the_stated_number_of_lines() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bound/checker");
    let files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines: usize = files.iter().map(|text| text.lines().filter(is_code).count()).sum();
    let stated = format!("{lines} lines of code in\n//! {} files", ["six", "seven", "eight"][files.len() - 6]);
    let doc = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    assert!(doc.contains(&stated), "expected `{stated}`");
    assert!(!files.iter().any(|text| text.contains("super::super") || text.contains("search::")));
}
