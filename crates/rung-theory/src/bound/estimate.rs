//! A float copy of the checker: fast, approximate, and never the last word.
//!
//! It works on logarithms, so nothing overflows, and finds the largest sigma of each draw itself. The search uses it to
//! compare integer points; the checker then decides.

use num_bigint::BigUint;

use super::convex::log_entropy;
use super::question::{Question, log2};

/// Integer sizes of a point, sigma left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) m: BigUint,
    pub(super) n: Vec<BigUint>,
    pub(super) x: Vec<BigUint>,
    pub(super) k: Vec<BigUint>,
}

/// The same as logarithms.
#[derive(Clone, Debug)]
struct Logs {
    m: f64,
    n: Vec<f64>,
    x: Vec<f64>,
    k: Vec<f64>,
}

impl From<&Sizes> for Logs {
    fn from(sizes: &Sizes) -> Self {
        let logs = |list: &[BigUint]| list.iter().map(log2).collect();
        Self { m: log2(&sizes.m), n: logs(&sizes.n), x: logs(&sizes.x), k: logs(&sizes.k) }
    }
}

/// log2(2^a + 2^b).
fn add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2 }
}

fn sum(logs: impl IntoIterator<Item = f64>) -> f64 {
    logs.into_iter().fold(f64::NEG_INFINITY, add)
}

pub(super) struct Estimate<'a> {
    question: &'a Question,
    message: f64,
    state: Vec<f64>,
    tokens: [f64; 3],
    /// log2 of factorials up to 4000, for the tails of small draws.
    factorials: Vec<f64>,
}

impl<'a> Estimate<'a> {
    pub(super) fn new(question: &'a Question) -> Self {
        let mut factorials = vec![0.0];
        for i in 1..=4000 {
            factorials.push(factorials[i - 1] + (i as f64).log2());
        }
        Self {
            question,
            message: log2(&question.message_bits),
            state: question.state_bits.iter().map(log2).collect(),
            tokens: question.tokens_per.map(|count| (count as f64).log2()),
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

    fn run(&self, p: &Logs) -> (Vec<f64>, f64) {
        let (l, case, b, s) = (self.question.hops, self.question.case, self.message, &self.state);
        let [te, t0, tw] = self.tokens;
        let mut size = vec![p.m];
        for n in &p.n {
            size.push(size[size.len() - 1] + n);
        }
        let lists = |from: usize, to: usize| p.x[from..=to].iter().sum::<f64>();
        let product: f64 = p.n.iter().sum();
        let pairs = p.x[0] + product - p.k.iter().sum::<f64>();
        let mut delta = if case == 1 { s[0] } else { b + tw + product - p.k[1..].iter().sum::<f64>() };
        let mut reach = p.x[0];
        let mut sigmas = Vec::with_capacity(l - 1);
        for e in 0..l - 1 {
            let step = p.x[e + 1];
            let layer = if case == 1 { e + 1 } else { e + 2 };
            let first = case == 0 && e == 0;
            delta = add(step + delta, 0.0);
            let sigma = self.largest_sigma(p.k[e] + size[e], step + reach, delta);
            sigmas.push(sigma);
            delta = add(delta, b + tw + pairs + if e > 0 { lists(1, e) } else { 0.0 });
            if first {
                delta = add(delta, b + t0 + p.x[0]);
            }
            let tokens_of = |i: usize| if i == 0 { t0 } else { te + size[i - 1] };
            let again = if first { p.x[1] } else { 0.0 };
            let into = |to: usize| sum((0..=to.min(e)).map(|i| b + tokens_of(i) + lists(i, e) + again));
            let own = b + te + size[e] + step;
            if e + 1 < l - 1 {
                delta = sum([delta, into(e), own + (layer as f64).log2(), sum(s[..=layer].iter().copied())]);
            } else {
                delta = sum([delta, own + ((layer - 1) as f64).log2(), sum(s[..layer].iter().copied())]);
                if s[layer].is_finite() {
                    let before = |j: usize| {
                        let after = if j + 1 < l { lists(j + 1, l - 1) } else { 0.0 };
                        sum([s[layer] + after, into(j), if j == l - 1 { own } else { f64::NEG_INFINITY }])
                    };
                    delta = add(delta, (0..l).map(before).fold(s[layer] + lists(0, l - 1), f64::min));
                }
            }
            reach = p.n[e] - p.k[e] + sigma;
        }
        (sigmas, reach + size[l - 1].log2() - delta)
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
        let mut size = logs.m;
        let mut total = size;
        for n in &logs.n {
            size += n;
            total = add(total, size);
        }
        sum([total + self.tokens[0], self.tokens[1], self.tokens[2]])
    }

    /// The smallest m that leaves room, at least x_0; none if none does within a factor 2^20.
    fn smallest_m(&self, logs: &mut Logs) -> bool {
        let (floor, mut high) = (logs.x[0].max(1.0), logs.m.max(logs.x[0]).max(1.0));
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
        let l = self.question.hops;
        // Integers: ratios r_0.., classes k_0.., lists x_1... Everything else follows from them.
        let right = |k: &[f64], e: usize| k.get(e).copied().unwrap_or(0.0);
        let start: Logs = (&sizes).into();
        let ratio = |e: usize| match e {
            0 => start.x[0] - start.k[0],
            _ => start.n[e - 1] - start.k[e - 1] - right(&start.k, e),
        };
        let mut integers: Vec<f64> =
            (0..l).map(ratio).chain(start.k.iter().copied()).chain(start.x[1..].iter().copied()).collect();
        let build = |integers: &[f64], m: f64| {
            let k = integers[l..2 * l - 1].to_vec();
            let n = (1..l).map(|e| integers[e] + k[e - 1] + right(&k, e)).collect();
            let x = std::iter::once(integers[0] + k[0]).chain(integers[2 * l - 1..].iter().copied()).collect();
            Logs { m, n, x, k }
        };
        // Tokens grow in proportion to m: one look at the m that would tie tells whether anything can be gained.
        let judge = |integers: &[f64], m: f64, tie: f64| {
            let mut logs = build(integers, m);
            logs.m += tie - self.tokens(&logs);
            let hopeless = tie.is_finite() && (logs.m < logs.x[0] || self.margin(&logs) <= 0.0);
            logs.m = logs.m.min(m + 1.0);
            (!hopeless && self.smallest_m(&mut logs)).then(|| (self.tokens(&logs), logs.m))
        };
        let Some(mut best) = judge(&integers, start.m, f64::INFINITY) else { return sizes };
        for _ in 0..12 {
            let before = best.0;
            for index in 0..integers.len() {
                let value = integers[index].exp2();
                // Large ones were optimal as real numbers already.
                if value > 1e6 {
                    continue;
                }
                let value = value.round();
                let far = (value * 0.02).ceil();
                for next in [value - 1.0, value + 1.0, value - far, value + far] {
                    let old = integers[index];
                    integers[index] = next.max(1.0).log2();
                    match judge(&integers, best.1, best.0) {
                        Some(found) if found.0 < best.0 - 1e-9 => best = found,
                        _ => integers[index] = old,
                    }
                }
            }
            if best.0 > before - 1e-4 {
                break;
            }
        }
        let whole: Vec<BigUint> = integers.iter().map(|&log| super::question::round(log)).collect();
        let k = whole[l..2 * l - 1].to_vec();
        let one = BigUint::from(1_u8);
        let n = (1..l).map(|e| &whole[e] * &k[e - 1] * k.get(e).unwrap_or(&one)).collect();
        let x = std::iter::once(&whole[0] * &k[0]).chain(whole[2 * l - 1..].iter().cloned()).collect();
        Sizes { m: super::question::round(best.1), n, x, k }
    }

    /// Points for given tables near a relaxed solution, those with room first.
    pub(super) fn around(&self, m: &BigUint, n: &[BigUint], x: &[f64], k: &[f64]) -> Vec<Sizes> {
        let l = self.question.hops;
        let classes = divisors_near(n, k);
        let mut found = Vec::new();
        for k in classes {
            // x_0 must be a multiple of k_0 that fits m.
            let most = m / &k[0];
            if most == BigUint::ZERO {
                continue;
            }
            let wanted = super::question::round((x[0] - log2(&k[0])).max(0.0));
            for ratio in [wanted.clone(), wanted + 1_u8, most.clone()] {
                let first = ratio.min(most.clone()) * &k[0];
                let lists = x[1..l].iter().map(|&log| super::question::round(log));
                let sizes = Sizes {
                    m: m.clone(),
                    n: n.to_vec(),
                    x: std::iter::once(first).chain(lists).collect(),
                    k: k.clone(),
                };
                found.push(self.climb(sizes));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.dedup_by(|a, b| a.1 == b.1);
        found.into_iter().filter(|(room, _)| *room > -1e-6).take(4).map(|(_, sizes)| sizes).collect()
    }

    /// Moves list lengths by single steps as long as that leaves more room.
    fn climb(&self, mut sizes: Sizes) -> (f64, Sizes) {
        let mut best = self.margin(&(&sizes).into());
        for _ in 0..40 {
            let before = best;
            for index in 0..sizes.x.len() {
                let step = if index == 0 { sizes.k[0].clone() } else { BigUint::from(1_u8) };
                let far = (&sizes.x[index] / &step / 16_u8) * &step;
                for by in [step.clone(), far] {
                    for up in [true, false] {
                        let old = sizes.x[index].clone();
                        let next = if up {
                            &old + &by
                        } else if old > by {
                            &old - &by
                        } else {
                            continue;
                        };
                        if next == old || (index == 0 && next > sizes.m) {
                            continue;
                        }
                        sizes.x[index] = next;
                        let room = self.margin(&(&sizes).into());
                        if room > best { best = room } else { sizes.x[index] = old }
                    }
                }
            }
            if best <= before {
                break;
            }
        }
        (best, sizes)
    }

    /// Every two-hop point on tables of a few hundred tokens that may leave room.
    pub(super) fn all_small(&self, m: u64, n: u64) -> Vec<Sizes> {
        let mut found = Vec::new();
        for k in (1..=n).filter(|&k| n.is_multiple_of(k)) {
            for first in (k..=m).filter(|first| first % k == 0) {
                for second in 1..=4 * n {
                    let log = |number: u64| (number as f64).log2();
                    let logs = Logs { m: log(m), n: vec![log(n)], x: vec![log(first), log(second)], k: vec![log(k)] };
                    if self.margin(&logs) > -1e-9 {
                        let big = |number: u64| BigUint::from(number);
                        found.push(Sizes {
                            m: big(m),
                            n: vec![big(n)],
                            x: vec![big(first), big(second)],
                            k: vec![big(k)],
                        });
                    }
                }
            }
        }
        found
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
fn divisors(number: &BigUint) -> Vec<BigUint> {
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
