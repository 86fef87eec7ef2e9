//! A float copy of Theorem 2: fast, approximate, and never the last word.
//!
//! It works on logarithms, so nothing overflows, and finds the largest sigma of each draw itself. The search uses it to
//! compare integer points; the checker then decides.

use num_bigint::BigUint;

use super::checker::ProofCase;
use super::convex::log_entropy;
use super::input::{exp2_to_integer, log2};
use super::search::SearchSetting;

/// Integer sizes of a point, sigma left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) m: BigUint,
    pub(super) n: Vec<BigUint>,
    pub(super) live: Vec<BigUint>,
    pub(super) x: Vec<BigUint>,
    pub(super) k: Vec<BigUint>,
    /// g: the entries of z_1 that vary are g x_0.
    pub(super) groups: BigUint,
    pub(super) freeze: Vec<usize>,
}

/// The same as logarithms.
#[derive(Clone, Debug)]
struct Logs {
    m: f64,
    n: Vec<f64>,
    live: Vec<f64>,
    x: Vec<f64>,
    k: Vec<f64>,
    groups: f64,
    freeze: Vec<usize>,
}

impl From<&Sizes> for Logs {
    fn from(sizes: &Sizes) -> Self {
        let logs = |list: &[BigUint]| list.iter().map(log2).collect();
        Self {
            m: log2(&sizes.m),
            n: logs(&sizes.n),
            live: logs(&sizes.live),
            x: logs(&sizes.x),
            k: logs(&sizes.k),
            groups: log2(&sizes.groups),
            freeze: sizes.freeze.clone(),
        }
    }
}

/// log2(2^a + 2^b).
fn add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2 }
}

/// log2(2^a - 2^b), and minus infinity where that is not positive.
fn subtract(a: f64, b: f64) -> f64 {
    if b >= a { f64::NEG_INFINITY } else { a + (-(b - a).exp2()).ln_1p() / std::f64::consts::LN_2 }
}

fn sum(logs: impl IntoIterator<Item = f64>) -> f64 {
    logs.into_iter().fold(f64::NEG_INFINITY, add)
}

pub(super) struct FloatCheck<'a> {
    setting: &'a SearchSetting<'a>,
    message: f64,
    state: Vec<f64>,
    parallel_bits: f64,
    tokens: [f64; 3],
    /// log2 of factorials up to 4000, for the tails of small draws.
    factorials: Vec<f64>,
}

impl<'a> FloatCheck<'a> {
    pub(super) fn new(setting: &'a SearchSetting<'a>) -> Self {
        let mut factorials = vec![0.0];
        for i in 1..=4000 {
            factorials.push(factorials[i - 1] + (i as f64).log2());
        }
        let input = setting.input;
        Self {
            setting,
            message: log2(&input.message_bits),
            state: input.state_bits.iter().map(log2).collect(),
            parallel_bits: log2(&input.parallel_bits),
            tokens: input.log2_tokens_per(),
            factorials,
        }
    }

    /// log2 of the largest sigma of each draw.
    pub(super) fn sigma(&self, sizes: &Sizes) -> Vec<f64> {
        self.run(&sizes.into()).0
    }

    /// How much room the final inequality leaves, in bits; negative when it fails.
    fn margin(&self, logs: &Logs) -> f64 {
        self.run(logs).1
    }

    /// Table sizes as logarithms.
    fn table_sizes(p: &Logs) -> Vec<f64> {
        let mut size = vec![p.m];
        for n in &p.n {
            size.push(size[size.len() - 1] + n);
        }
        size
    }

    /// Tk(i,y).
    fn states(&self, p: &Logs, size: &[f64], i: usize, y: usize) -> f64 {
        let cases = |a: usize| if a > y { 0.0 } else { p.x[a..=y].iter().sum::<f64>() };
        let [te, t0, _] = self.tokens;
        if i == 0 {
            let middle = (self.setting.middle as f64).log2() + te + p.m;
            return add(t0, middle) + cases(0);
        }
        let alive = if i == 1 { p.groups + p.x[0] } else { p.live[i - 2] + size[i - 2] };
        te + add(alive + cases(i), subtract(size[i - 1], alive) + cases(i + 1))
    }

    fn run(&self, p: &Logs) -> (Vec<f64>, f64) {
        let (l, case, b, s) = (self.setting.input.hops, self.setting.input.case, self.message, &self.state);
        let tw = self.tokens[2];
        let size = Self::table_sizes(p);
        let cases = |a: usize, b: usize| if a > b { 0.0 } else { p.x[a..=b].iter().sum::<f64>() };
        let product: f64 = p.live.iter().sum();
        let pairs = p.x[0] + product - p.k.iter().sum::<f64>();
        let queries = b + tw + product - p.k[1..].iter().sum::<f64>();
        let mut independent = add(self.parallel_bits, if case == ProofCase::OneLayerFewer { s[0] } else { queries });
        let mut joint = f64::NEG_INFINITY;
        let mut reach = p.x[0];
        let mut frozen = usize::from(case == ProofCase::OneLayerFewer);
        let mut sigmas = Vec::with_capacity(l - 1);
        for e in 0..l - 1 {
            let layer = if case == ProofCase::OneLayerFewer { e } else { e + 1 };
            let (step, next) = (p.x[e + 1], p.freeze[e]);
            let need = if e == 0 { step + independent - p.groups } else { add(step + add(independent, joint), 0.0) };
            let sigma = self.largest_sigma(p.k[e] + size[e], step + reach, need);
            sigmas.push(sigma);
            let states = |i: usize, y: usize| b + self.states(p, &size, i, y);
            let f2 = b + tw + pairs + cases(1, e);
            let (f1, f3) = if layer == 0 {
                (f64::NEG_INFINITY, f64::NEG_INFINITY)
            } else {
                let late = (0..=e).filter(|&i| i >= frozen).map(|i| states(i, e));
                (sum(late), states(e + 1, e + 1) + (layer as f64).log2())
            };
            let f4 = sum(s[1..=layer].iter().copied());
            let border = s[layer + 1] + cases(next, e + 1);
            let until = |i: usize| if i < frozen { e } else { e + 1 };
            let mess = sum((0..next).map(|i| states(i, until(i))));
            if e > 0 {
                joint = sum([step + joint, 0.0, f1, f2, f3, f4, border, mess]);
            } else if case == ProofCase::OneLayerFewer {
                independent = sum([independent, f2, mess]);
                joint = border;
            } else {
                independent = sum([independent, f1, f3]);
                joint = sum([f2, mess, border, f4]);
            }
            frozen = next;
            reach = p.live[e] - p.k[e] + sigma;
        }
        (sigmas, reach + size[l - 1].log2() - add(independent, joint))
    }

    /// log2 of the largest sigma with `T log(M/t) - log C(M,t) >= need`, t = sigma - 1; logarithms in and out.
    fn largest_sigma(&self, m: f64, draws: f64, need: f64) -> f64 {
        if m < 12.0 {
            let (m, draws, need) = (m.exp2().round(), draws.exp2(), need.exp2());
            if m <= 4000.0 {
                let total = m as usize;
                let passes = |t: usize| {
                    let binomial = self.factorials[total] - self.factorials[t] - self.factorials[total - t];
                    (t as f64) < draws && draws * (m / t as f64).log2() - binomial >= need
                };
                // The condition is convex in t and fails at t = M: it holds up to some t and never again.
                let (mut low, mut high) = (0, total);
                while low + 1 < high {
                    let middle = usize::midpoint(low, high);
                    if passes(middle) { low = middle } else { high = middle }
                }
                return (low as f64 + 1.0).log2();
            }
        }
        // With r = log2(t/M): T/M * -r >= h(2^r) + need/M, in logarithms, decreasing in r where it holds.
        let passes = |r: f64| draws - m + (-r).log2() >= add(log_entropy(r).0, need - m);
        let (mut low, mut high) = (-m, -1e-12);
        if !passes(low) {
            return 0.0;
        }
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if passes(middle) { low = middle } else { high = middle }
        }
        let t = (low + m).min(draws);
        if t < 45.0 { (t.exp2().floor() + 1.0).log2() } else { t }
    }

    fn tokens(&self, logs: &Logs) -> f64 {
        let size = Self::table_sizes(logs);
        let copies = |count: usize, log: f64| (count as f64).log2() + log;
        let constant = add(copies(self.setting.middle, size[0]), copies(self.setting.front, size[size.len() - 1]));
        let tables = add(sum(size), constant);
        sum([tables + self.tokens[0], self.tokens[1], self.tokens[2]])
    }

    /// The smallest m that leaves room, at least x_0; none if none does within a factor 2^20.
    fn smallest_m(&self, logs: &mut Logs) -> bool {
        let (floor, mut high) = ((logs.x[0] + logs.groups).max(1.0), logs.m.max(logs.x[0] + logs.groups).max(1.0));
        let holds = |logs: &mut Logs, m: f64| {
            logs.m = m;
            self.margin(logs) > 1e-9
        };
        let top = high + 20.0;
        let mut step = 0.01;
        while !holds(logs, high) {
            high += step;
            step *= 1.6;
            if high > top {
                return false;
            }
        }
        let mut low = floor;
        if holds(logs, low) {
            return true;
        }
        while high - low > 1e-9 {
            let middle = f64::midpoint(low, high);
            if holds(logs, middle) { high = middle } else { low = middle }
        }
        // Small tables have a whole number of entries.
        logs.m = if high < 40.0 { high.exp2().ceil().log2() } else { high };
        true
    }

    /// Moves single integers as long as that makes the instance smaller.
    pub(super) fn polish(&self, sizes: Sizes) -> Sizes {
        let mut integers = Integers::of(&sizes);
        let start: Logs = (&sizes).into();
        // Tokens grow in proportion to m: one look at the m that would tie tells whether anything can be gained.
        let judge = |integers: &Integers, m: f64, tie: f64| {
            let mut logs = integers.logs(m, &start.freeze);
            logs.m += tie - self.tokens(&logs);
            let least = logs.x[0] + logs.groups;
            let hopeless = tie.is_finite() && (logs.m < least || self.margin(&logs) <= 0.0);
            logs.m = logs.m.min(m + 1.0);
            (!hopeless && self.smallest_m(&mut logs)).then(|| (self.tokens(&logs), logs.m))
        };
        let Some(mut best) = judge(&integers, start.m, f64::INFINITY) else { return sizes };
        for _ in 0..12 {
            let before = best.0;
            for index in 0..integers.values.len() {
                let value = integers.values[index].exp2();
                // Large ones were optimal as real numbers already.
                if value > 1e6 || (index == integers.groups() && value > 1e3) {
                    continue;
                }
                let value = value.round();
                let far = (value * 0.02).ceil();
                for next in [value - 1.0, value + 1.0, value - far, value + far] {
                    let old = integers.values[index];
                    integers.values[index] = next.max(1.0).log2();
                    match judge(&integers, best.1, best.0) {
                        Some(found) if found.0 < best.0 - 1e-9 => best = found,
                        _ => integers.values[index] = old,
                    }
                }
            }
            if best.0 > before - 1e-4 {
                break;
            }
        }
        integers.sizes(exp2_to_integer(best.1), &start.freeze)
    }

    /// Points for given tables near a relaxed solution, those with room first.
    pub(super) fn around(
        &self,
        m: &BigUint,
        n: &[BigUint],
        (x, k, groups): (&[f64], &[f64], f64),
        freeze: &[usize],
    ) -> Vec<Sizes> {
        let l = self.setting.input.hops;
        let mut found = Vec::new();
        for k in divisors_near(n, k) {
            // x_0 must be a multiple of k_0 that fits m.
            let most = m / &k[0];
            if most == BigUint::ZERO {
                continue;
            }
            let wanted = exp2_to_integer((x[0] - log2(&k[0])).max(0.0));
            for ratio in [wanted.clone(), wanted + 1_u8, most.clone()] {
                let first = ratio.min(most.clone()) * &k[0];
                let lists = x[1..l].iter().map(|&log| exp2_to_integer(log));
                let groups = exp2_to_integer(groups).min(m / &first).max(1_u8.into());
                let sizes = Sizes {
                    m: m.clone(),
                    n: n.to_vec(),
                    live: n.to_vec(),
                    x: std::iter::once(first).chain(lists).collect(),
                    k: k.clone(),
                    groups,
                    freeze: freeze.to_vec(),
                };
                found.push(self.hill_climb(sizes));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.dedup_by(|a, b| a.1 == b.1);
        found.into_iter().filter(|(room, _)| *room > -1e-6).take(4).map(|(_, sizes)| sizes).collect()
    }

    /// Moves list lengths by single steps as long as that leaves more room; groups follow x_0 as far as m allows.
    fn hill_climb(&self, mut sizes: Sizes) -> (f64, Sizes) {
        let mut best = self.margin(&(&sizes).into());
        for _ in 0..40 {
            let before = best;
            for index in 0..=sizes.x.len() {
                for (by, up) in moves(&sizes, index) {
                    let Some(next) = moved(&sizes, index, &by, up) else { continue };
                    let room = self.margin(&(&next).into());
                    if room > best {
                        best = room;
                        sizes = next;
                    }
                }
            }
            if best <= before {
                break;
            }
        }
        (best, sizes)
    }
}

/// Steps to try for list `index`, or for the groups behind the last list.
fn moves(sizes: &Sizes, index: usize) -> Vec<(BigUint, bool)> {
    let value = sizes.x.get(index).unwrap_or(&sizes.groups);
    let step = if index == 0 { sizes.k[0].clone() } else { BigUint::from(1_u8) };
    let far = (value / &step / 16_u8) * &step;
    let steps = if far > step { vec![step, far] } else { vec![step] };
    steps.into_iter().flat_map(|step| [(step.clone(), true), (step, false)]).collect()
}

/// The sizes after one move, if they are still sizes.
fn moved(sizes: &Sizes, index: usize, by: &BigUint, up: bool) -> Option<Sizes> {
    let mut next = sizes.clone();
    let value = next.x.get_mut(index).unwrap_or(&mut next.groups);
    if up {
        *value += by;
    } else if &*value > by {
        *value -= by;
    } else {
        return None;
    }
    if index == 0 {
        next.groups = next.groups.min(&next.m / &next.x[0]);
    }
    (next.groups != BigUint::ZERO && &next.groups * &next.x[0] <= next.m).then_some(next)
}

/// The integers of a point that everything else follows from, as logarithms: ratios r_0.., classes k_0.., lists x_1..,
/// groups, and n_1.. where those may exceed the live parts.
#[derive(Clone, Debug)]
struct Integers {
    hops: usize,
    values: Vec<f64>,
    /// Whether the n_e are among them.
    free: bool,
}

impl Integers {
    fn of(sizes: &Sizes) -> Self {
        let logs: Logs = sizes.into();
        let (hops, free) = (logs.x.len(), sizes.n != sizes.live);
        let right = |e: usize| logs.k.get(e).copied().unwrap_or(0.0);
        let ratio = |e: usize| match e {
            0 => logs.x[0] - logs.k[0],
            _ => logs.live[e - 1] - logs.k[e - 1] - right(e),
        };
        let mut values: Vec<f64> = (0..hops).map(ratio).collect();
        values.extend(&logs.k);
        values.extend(&logs.x[1..]);
        values.push(logs.groups);
        if free {
            values.extend(&logs.n[..hops - 2]);
        }
        Self { hops, values, free }
    }

    fn groups(&self) -> usize {
        3 * self.hops - 2
    }

    fn k(&self) -> &[f64] {
        &self.values[self.hops..2 * self.hops - 1]
    }

    fn logs(&self, m: f64, freeze: &[usize]) -> Logs {
        let (l, k) = (self.hops, self.k());
        let right = |e: usize| k.get(e).copied().unwrap_or(0.0);
        let live: Vec<f64> = (1..l).map(|e| self.values[e] + k[e - 1] + right(e)).collect();
        let mut n = live.clone();
        if self.free {
            for (n, wanted) in n.iter_mut().zip(&self.values[self.groups() + 1..]) {
                *n = n.max(*wanted);
            }
        }
        let lists = self.values[2 * l - 1..self.groups()].iter().copied();
        let x = std::iter::once(self.values[0] + k[0]).chain(lists).collect();
        Logs { m, n, live, x, k: k.to_vec(), groups: self.values[self.groups()], freeze: freeze.to_vec() }
    }

    fn sizes(&self, m: BigUint, freeze: &[usize]) -> Sizes {
        let whole: Vec<BigUint> = self.values.iter().map(|&log| exp2_to_integer(log)).collect();
        let (l, one) = (self.hops, BigUint::from(1_u8));
        let k = whole[l..2 * l - 1].to_vec();
        let live: Vec<BigUint> = (1..l).map(|e| &whole[e] * &k[e - 1] * k.get(e).unwrap_or(&one)).collect();
        let mut n = live.clone();
        if self.free {
            for (n, wanted) in n.iter_mut().zip(&whole[self.groups() + 1..]) {
                *n = wanted.max(n).clone();
            }
        }
        let lists = whole[2 * l - 1..self.groups()].iter().cloned();
        let x = std::iter::once(&whole[0] * &k[0]).chain(lists).collect();
        Sizes { m, n, live, x, k, groups: whole[self.groups()].clone(), freeze: freeze.to_vec() }
    }
}

/// Class counts that divide the tables' sizes as they must, near the wanted ones and, in any case, all ones.
fn divisors_near(n: &[BigUint], wanted: &[f64]) -> Vec<Vec<BigUint>> {
    const CHOICES: usize = 4;
    let mut partial: Vec<Vec<BigUint>> = vec![vec![]];
    for (e, &log) in wanted.iter().enumerate() {
        let mut longer = Vec::new();
        for chosen in &partial {
            // k_e divides n_{e+1} and, together with the class before it, n_e.
            let fits = |k: &BigUint| chosen.last().is_none_or(|before| &n[e - 1] % (before * k) == BigUint::ZERO);
            let mut fitting: Vec<BigUint> = divisors(&n[e]).into_iter().filter(fits).collect();
            fitting.sort_by(|a, b| (log2(a) - log).abs().total_cmp(&(log2(b) - log).abs()));
            fitting.truncate(CHOICES);
            for k in fitting {
                longer.push(chosen.iter().cloned().chain([k]).collect());
            }
        }
        partial = longer;
        partial.truncate(64);
    }
    partial.push(vec![BigUint::from(1_u8); wanted.len()]);
    partial
}

/// The divisors of a number, those made of primes below 10,000 only.
pub(super) fn divisors(number: &BigUint) -> Vec<BigUint> {
    const MOST: usize = 4096;
    let mut rest = number.clone();
    let mut found = vec![BigUint::from(1_u8)];
    for prime in 2..10_000_u32 {
        let mut power = BigUint::from(1_u8);
        let base = found.clone();
        while &rest % prime == BigUint::ZERO && found.len() < MOST {
            rest /= prime;
            power *= prime;
            found.extend(base.iter().map(|divisor| divisor * &power));
        }
        if rest == BigUint::from(1_u8) {
            break;
        }
    }
    if rest != BigUint::from(1_u8) && found.len() < MOST {
        found.extend(found.clone().iter().map(|divisor| divisor * &rest));
    }
    found
}
