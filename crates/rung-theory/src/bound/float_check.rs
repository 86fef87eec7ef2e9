//! The inequalities of Theorem 2 in floats: fast and approximate, for the search only.
//!
//! It computes with logarithms, so nothing overflows, and finds the largest sigma of each draw. The search uses it to
//! compare integer candidates; the exact checker then decides.

use num_bigint::BigUint;

use super::checker::ProofCase;
use super::convex::log_entropy;
use super::input::{exp2_to_integer, log2};
use super::search::SearchSetting;

/// Integer parameters of a certificate of Theorem 2, without sigma; the letters are those of `docs/proof.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProductParameters {
    pub(super) m: BigUint,
    pub(super) n: Vec<BigUint>,
    pub(super) live: Vec<BigUint>,
    pub(super) x: Vec<BigUint>,
    /// k: numbers of classes, `kappa` in a certificate.
    pub(super) k: Vec<BigUint>,
    /// g: g x_0 entries of z_1 vary.
    pub(super) groups: BigUint,
    pub(super) freeze: Vec<usize>,
}

/// [`ProductParameters`] as base-two logarithms.
#[derive(Clone, Debug)]
struct LogParameters {
    m: f64,
    n: Vec<f64>,
    live: Vec<f64>,
    x: Vec<f64>,
    k: Vec<f64>,
    groups: f64,
    freeze: Vec<usize>,
}

impl From<&ProductParameters> for LogParameters {
    fn from(sizes: &ProductParameters) -> Self {
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
fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2 }
}

/// log2(2^a - 2^b), and minus infinity if that is not positive.
fn log_subtract(a: f64, b: f64) -> f64 {
    if b >= a { f64::NEG_INFINITY } else { a + (-(b - a).exp2()).ln_1p() / std::f64::consts::LN_2 }
}

/// log2 of a sum, from the logarithms of its terms.
fn log_sum(logs: impl IntoIterator<Item = f64>) -> f64 {
    logs.into_iter().fold(f64::NEG_INFINITY, log_add)
}

/// The float check for one search setting. All sizes are base-two logarithms.
pub(super) struct FloatCheck<'a> {
    setting: &'a SearchSetting<'a>,
    message_bits: f64,
    state_bits: Vec<f64>,
    fixed_bits: f64,
    /// Tokens of an entry, of the start value and of the query.
    token_counts: [f64; 3],
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
            message_bits: log2(&input.message_bits),
            state_bits: input.state_bits.iter().map(log2).collect(),
            fixed_bits: log2(&input.fixed_bits),
            token_counts: input.log2_token_counts(),
            factorials,
        }
    }

    /// log2 of the largest sigma of each draw.
    pub(super) fn sigma(&self, sizes: &ProductParameters) -> Vec<f64> {
        self.evaluate(&sizes.into()).0
    }

    /// log2 of the ratio of both sides of the final inequality; negative if it fails.
    fn margin(&self, logs: &LogParameters) -> f64 {
        self.evaluate(logs).1
    }

    /// N_0 .. N_{L-1}.
    fn table_sizes(sizes: &LogParameters) -> Vec<f64> {
        let mut size = vec![sizes.m];
        for n in &sizes.n {
            size.push(size[size.len() - 1] + n);
        }
        size
    }

    /// Tk(i,y): pairs of a token of player i and one of its states.
    fn token_states(&self, sizes: &LogParameters, table_sizes: &[f64], i: usize, y: usize) -> f64 {
        let choices = |first: usize| if first > y { 0.0 } else { sizes.x[first..=y].iter().sum::<f64>() };
        let [te, t0, _] = self.token_counts;
        if i == 0 {
            let identity_tables = (self.setting.middle as f64).log2() + te + sizes.m;
            return log_add(t0, identity_tables) + choices(0);
        }
        let varying = if i == 1 { sizes.groups + sizes.x[0] } else { sizes.live[i - 2] + table_sizes[i - 2] };
        te + log_add(varying + choices(i), log_subtract(table_sizes[i - 1], varying) + choices(i + 1))
    }

    /// The largest sigma of each draw, and the margin of the final inequality. Mirrors `checker/product.rs`.
    fn evaluate(&self, sizes: &LogParameters) -> (Vec<f64>, f64) {
        let (l, case, b, s) = (self.setting.input.hops, self.setting.input.case, self.message_bits, &self.state_bits);
        let tw = self.token_counts[2];
        let table_sizes = Self::table_sizes(sizes);
        let choices =
            |first: usize, last: usize| if first > last { 0.0 } else { sizes.x[first..=last].iter().sum::<f64>() };
        let product: f64 = sizes.live.iter().sum();
        let pairs = sizes.x[0] + product - sizes.k.iter().sum::<f64>();
        let queries = b + tw + product - sizes.k[1..].iter().sum::<f64>();
        let mut independent = log_add(self.fixed_bits, if case == ProofCase::OneLayerFewer { s[0] } else { queries });
        let mut joint = f64::NEG_INFINITY;
        let mut reachable = sizes.x[0];
        let mut frozen_players = usize::from(case == ProofCase::OneLayerFewer);
        let mut sigmas = Vec::with_capacity(l - 1);
        for e in 0..l - 1 {
            let layer = if case == ProofCase::OneLayerFewer { e } else { e + 1 };
            let (list_length, next_frozen) = (sizes.x[e + 1], sizes.freeze[e]);
            let required = if e == 0 {
                list_length + independent - sizes.groups
            } else {
                log_add(list_length + log_add(independent, joint), 0.0)
            };
            let sigma = self.largest_sigma(sizes.k[e] + table_sizes[e], list_length + reachable, required);
            sigmas.push(sigma);
            let messages = |i: usize, y: usize| b + self.token_states(sizes, &table_sizes, i, y);
            let f2 = b + tw + pairs + choices(1, e);
            let (f1, f3) = if layer == 0 {
                (f64::NEG_INFINITY, f64::NEG_INFINITY)
            } else {
                let unfrozen = (0..=e).filter(|&i| i >= frozen_players).map(|i| messages(i, e));
                (log_sum(unfrozen), messages(e + 1, e + 1) + (layer as f64).log2())
            };
            let f4 = log_sum(s[1..=layer].iter().copied());
            let border = s[layer + 1] + choices(next_frozen, e + 1);
            let last_list = |i: usize| if i < frozen_players { e } else { e + 1 };
            let border_messages = log_sum((0..next_frozen).map(|i| messages(i, last_list(i))));
            if e > 0 {
                joint = log_sum([list_length + joint, 0.0, f1, f2, f3, f4, border, border_messages]);
            } else if case == ProofCase::OneLayerFewer {
                independent = log_sum([independent, f2, border_messages]);
                joint = border;
            } else {
                independent = log_sum([independent, f1, f3]);
                joint = log_sum([f2, border_messages, border, f4]);
            }
            frozen_players = next_frozen;
            reachable = sizes.live[e] - sizes.k[e] + sigma;
        }
        (sigmas, reachable + table_sizes[l - 1].log2() - log_add(independent, joint))
    }

    /// log2 of the largest sigma with `T log(M/t) - log C(M,t) >= required`, t = sigma - 1; all arguments are logarithms.
    fn largest_sigma(&self, m: f64, draws: f64, required: f64) -> f64 {
        if m < 12.0 {
            let (m, draws, required) = (m.exp2().round(), draws.exp2(), required.exp2());
            if m <= 4000.0 {
                let total = m as usize;
                let passes = |t: usize| {
                    let binomial = self.factorials[total] - self.factorials[t] - self.factorials[total - t];
                    (t as f64) < draws && draws * (m / t as f64).log2() - binomial >= required
                };
                // The condition is convex in t and fails at t = M, so it holds up to some t and fails beyond.
                let (mut low, mut high) = (0, total);
                while low + 1 < high {
                    let midpoint = usize::midpoint(low, high);
                    if passes(midpoint) { low = midpoint } else { high = midpoint }
                }
                return (low as f64 + 1.0).log2();
            }
        }
        // With r = log2(t/M): T/M * -r >= h(2^r) + required/M, in logarithms, decreasing in r where it holds.
        let passes = |r: f64| draws - m + (-r).log2() >= log_add(log_entropy(r).0, required - m);
        let (mut low, mut high) = (-m, -1e-12);
        if !passes(low) {
            return 0.0;
        }
        for _ in 0..100 {
            let midpoint = f64::midpoint(low, high);
            if passes(midpoint) { low = midpoint } else { high = midpoint }
        }
        let t = (low + m).min(draws);
        if t < 45.0 { (t.exp2().floor() + 1.0).log2() } else { t }
    }

    /// log2 of the tokens of a prompt.
    fn tokens(&self, logs: &LogParameters) -> f64 {
        let table_sizes = Self::table_sizes(logs);
        let copies = |count: usize, log: f64| (count as f64).log2() + log;
        let largest = table_sizes[table_sizes.len() - 1];
        let constant = log_add(copies(self.setting.middle, table_sizes[0]), copies(self.setting.front, largest));
        let tables = log_add(log_sum(table_sizes), constant);
        log_sum([tables + self.token_counts[0], self.token_counts[1], self.token_counts[2]])
    }

    /// Sets `m` to the smallest value with a positive margin, at least g x_0; false if there is none within a factor 2^20.
    fn minimise_m(&self, logs: &mut LogParameters) -> bool {
        let (min_m, mut high) = ((logs.x[0] + logs.groups).max(1.0), logs.m.max(logs.x[0] + logs.groups).max(1.0));
        let holds = |logs: &mut LogParameters, m: f64| {
            logs.m = m;
            self.margin(logs) > 1e-9
        };
        let limit = high + 20.0;
        let mut step = 0.01;
        while !holds(logs, high) {
            high += step;
            step *= 1.6;
            if high > limit {
                return false;
            }
        }
        let mut low = min_m;
        if holds(logs, low) {
            return true;
        }
        while high - low > 1e-9 {
            let midpoint = f64::midpoint(low, high);
            if holds(logs, midpoint) { high = midpoint } else { low = midpoint }
        }
        // Small tables need an integer number of entries; large ones are rounded later.
        logs.m = if high < 40.0 { high.exp2().ceil().log2() } else { high };
        true
    }

    /// Changes one integer at a time as long as that makes the instance smaller.
    pub(super) fn polish(&self, sizes: ProductParameters) -> ProductParameters {
        let mut parameters = IntegerParameters::new(&sizes);
        let start: LogParameters = (&sizes).into();
        // Tokens are proportional to m: if the margin fails at the m that equals the best tokens, nothing can be gained.
        let evaluate = |parameters: &IntegerParameters, m: f64, best_tokens: f64| {
            let mut logs = parameters.log_sizes(m, &start.freeze);
            logs.m += best_tokens - self.tokens(&logs);
            let min_m = logs.x[0] + logs.groups;
            let cannot_improve = best_tokens.is_finite() && (logs.m < min_m || self.margin(&logs) <= 0.0);
            logs.m = logs.m.min(m + 1.0);
            (!cannot_improve && self.minimise_m(&mut logs)).then(|| (self.tokens(&logs), logs.m))
        };
        let Some(mut best) = evaluate(&parameters, start.m, f64::INFINITY) else { return sizes };
        for _ in 0..12 {
            let previous_tokens = best.0;
            for index in 0..parameters.values.len() {
                let value = parameters.values[index].exp2();
                // Rounding does not matter for large values: the real-valued optimum is good enough.
                if value > 1e6 || (index == parameters.groups_index() && value > 1e3) {
                    continue;
                }
                let value = value.round();
                let large_step = (value * 0.02).ceil();
                for next in [value - 1.0, value + 1.0, value - large_step, value + large_step] {
                    let previous_value = parameters.values[index];
                    parameters.values[index] = next.max(1.0).log2();
                    match evaluate(&parameters, best.1, best.0) {
                        Some(better) if better.0 < best.0 - 1e-9 => best = better,
                        _ => parameters.values[index] = previous_value,
                    }
                }
            }
            if best.0 > previous_tokens - 1e-4 {
                break;
            }
        }
        parameters.sizes(exp2_to_integer(best.1), &start.freeze)
    }

    /// Integer candidates for given tables near a relaxed solution, those with the largest margin first.
    pub(super) fn candidates_near(
        &self,
        m: &BigUint,
        n: &[BigUint],
        (x, k, groups): (&[f64], &[f64], f64),
        freeze: &[usize],
    ) -> Vec<ProductParameters> {
        let l = self.setting.input.hops;
        let mut candidates = Vec::new();
        for k in divisors_near(n, k) {
            // x_0 must be a multiple of k_0 that fits m.
            let max_ratio = m / &k[0];
            if max_ratio == BigUint::ZERO {
                continue;
            }
            let nearest_ratio = exp2_to_integer((x[0] - log2(&k[0])).max(0.0));
            for ratio in [nearest_ratio.clone(), nearest_ratio + 1_u8, max_ratio.clone()] {
                let first_list = ratio.min(max_ratio.clone()) * &k[0];
                let lists = x[1..l].iter().map(|&log| exp2_to_integer(log));
                let groups = exp2_to_integer(groups).min(m / &first_list).max(1_u8.into());
                let sizes = ProductParameters {
                    m: m.clone(),
                    n: n.to_vec(),
                    live: n.to_vec(),
                    x: std::iter::once(first_list).chain(lists).collect(),
                    k: k.clone(),
                    groups,
                    freeze: freeze.to_vec(),
                };
                candidates.push(self.hill_climb(sizes));
            }
        }
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        candidates.dedup_by(|a, b| a.1 == b.1);
        candidates.into_iter().filter(|(margin, _)| *margin > -1e-6).take(4).map(|(_, sizes)| sizes).collect()
    }

    /// Changes one list length or the groups at a time as long as that increases the margin.
    fn hill_climb(&self, mut sizes: ProductParameters) -> (f64, ProductParameters) {
        let mut best = self.margin(&(&sizes).into());
        for _ in 0..40 {
            let previous_margin = best;
            for index in 0..=sizes.x.len() {
                for (amount, increase) in step_sizes(&sizes, index) {
                    let Some(next) = changed_sizes(&sizes, index, &amount, increase) else { continue };
                    let margin = self.margin(&(&next).into());
                    if margin > best {
                        best = margin;
                        sizes = next;
                    }
                }
            }
            if best <= previous_margin {
                break;
            }
        }
        (best, sizes)
    }
}

/// Changes to try for list `index`, or for the groups if there is no such list: by how much, and whether up.
fn step_sizes(sizes: &ProductParameters, index: usize) -> Vec<(BigUint, bool)> {
    let value = sizes.x.get(index).unwrap_or(&sizes.groups);
    let step = if index == 0 { sizes.k[0].clone() } else { BigUint::from(1_u8) };
    let large_step = (value / &step / 16_u8) * &step;
    let steps = if large_step > step { vec![step, large_step] } else { vec![step] };
    steps.into_iter().flat_map(|step| [(step.clone(), true), (step, false)]).collect()
}

/// The sizes after one change; none if a size would be 0 or the varying entries would exceed m.
fn changed_sizes(
    sizes: &ProductParameters,
    index: usize,
    amount: &BigUint,
    increase: bool,
) -> Option<ProductParameters> {
    let mut next = sizes.clone();
    let value = next.x.get_mut(index).unwrap_or(&mut next.groups);
    if increase {
        *value += amount;
    } else if &*value > amount {
        *value -= amount;
    } else {
        return None;
    }
    if index == 0 {
        next.groups = next.groups.min(&next.m / &next.x[0]);
    }
    (next.groups != BigUint::ZERO && &next.groups * &next.x[0] <= next.m).then_some(next)
}

/// The independent integers of a [`ProductParameters`], as logarithms: ratios r_0.., classes k_0.., lists x_1.., groups, and n_1.. if those
/// may exceed the live parts.
#[derive(Clone, Debug)]
struct IntegerParameters {
    hops: usize,
    values: Vec<f64>,
    /// Whether the n_e are among the values.
    has_n: bool,
}

impl IntegerParameters {
    fn new(sizes: &ProductParameters) -> Self {
        let logs: LogParameters = sizes.into();
        let (hops, has_n) = (logs.x.len(), sizes.n != sizes.live);
        let next_classes = |e: usize| logs.k.get(e).copied().unwrap_or(0.0);
        let ratio = |e: usize| match e {
            0 => logs.x[0] - logs.k[0],
            _ => logs.live[e - 1] - logs.k[e - 1] - next_classes(e),
        };
        let mut values: Vec<f64> = (0..hops).map(ratio).collect();
        values.extend(&logs.k);
        values.extend(&logs.x[1..]);
        values.push(logs.groups);
        if has_n {
            values.extend(&logs.n[..hops - 2]);
        }
        Self { hops, values, has_n }
    }

    fn groups_index(&self) -> usize {
        3 * self.hops - 2
    }

    fn k(&self) -> &[f64] {
        &self.values[self.hops..2 * self.hops - 1]
    }

    fn log_sizes(&self, m: f64, freeze: &[usize]) -> LogParameters {
        let (l, k) = (self.hops, self.k());
        let next_classes = |e: usize| k.get(e).copied().unwrap_or(0.0);
        let live: Vec<f64> = (1..l).map(|e| self.values[e] + k[e - 1] + next_classes(e)).collect();
        let mut n = live.clone();
        if self.has_n {
            for (n, relaxed) in n.iter_mut().zip(&self.values[self.groups_index() + 1..]) {
                *n = n.max(*relaxed);
            }
        }
        let lists = self.values[2 * l - 1..self.groups_index()].iter().copied();
        let x = std::iter::once(self.values[0] + k[0]).chain(lists).collect();
        LogParameters {
            m,
            n,
            live,
            x,
            k: k.to_vec(),
            groups: self.values[self.groups_index()],
            freeze: freeze.to_vec(),
        }
    }

    fn sizes(&self, m: BigUint, freeze: &[usize]) -> ProductParameters {
        let integers: Vec<BigUint> = self.values.iter().map(|&log| exp2_to_integer(log)).collect();
        let (l, one) = (self.hops, BigUint::from(1_u8));
        let k = integers[l..2 * l - 1].to_vec();
        let live: Vec<BigUint> = (1..l).map(|e| &integers[e] * &k[e - 1] * k.get(e).unwrap_or(&one)).collect();
        let mut n = live.clone();
        if self.has_n {
            for (n, relaxed) in n.iter_mut().zip(&integers[self.groups_index() + 1..]) {
                *n = relaxed.max(n).clone();
            }
        }
        let lists = integers[2 * l - 1..self.groups_index()].iter().cloned();
        let x = std::iter::once(&integers[0] * &k[0]).chain(lists).collect();
        ProductParameters { m, n, live, x, k, groups: integers[self.groups_index()].clone(), freeze: freeze.to_vec() }
    }
}

/// Class counts that satisfy the divisibility conditions, near the relaxed ones; the last choice is all ones.
fn divisors_near(n: &[BigUint], relaxed: &[f64]) -> Vec<Vec<BigUint>> {
    const CHOICES: usize = 4;
    let mut prefixes: Vec<Vec<BigUint>> = vec![vec![]];
    for (e, &log) in relaxed.iter().enumerate() {
        let mut longer_prefixes = Vec::new();
        for prefix in &prefixes {
            // k_e divides n_{e+1}, and k_{e-1} k_e divides n_e.
            let fits = |k: &BigUint| prefix.last().is_none_or(|previous| &n[e - 1] % (previous * k) == BigUint::ZERO);
            let mut fitting: Vec<BigUint> = divisors(&n[e]).into_iter().filter(fits).collect();
            fitting.sort_by(|a, b| (log2(a) - log).abs().total_cmp(&(log2(b) - log).abs()));
            fitting.truncate(CHOICES);
            for k in fitting {
                longer_prefixes.push(prefix.iter().cloned().chain([k]).collect());
            }
        }
        prefixes = longer_prefixes;
        prefixes.truncate(64);
    }
    prefixes.push(vec![BigUint::from(1_u8); relaxed.len()]);
    prefixes
}

/// Divisors of a number: those with prime factors below 10,000, and their products with the remaining cofactor; at most about 4096.
pub(super) fn divisors(number: &BigUint) -> Vec<BigUint> {
    const MAX_DIVISORS: usize = 4096;
    let mut cofactor = number.clone();
    let mut divisors = vec![BigUint::from(1_u8)];
    for prime in 2..10_000_u32 {
        let mut power = BigUint::from(1_u8);
        let base = divisors.clone();
        while &cofactor % prime == BigUint::ZERO && divisors.len() < MAX_DIVISORS {
            cofactor /= prime;
            power *= prime;
            divisors.extend(base.iter().map(|divisor| divisor * &power));
        }
        if cofactor == BigUint::from(1_u8) {
            break;
        }
    }
    if cofactor != BigUint::from(1_u8) && divisors.len() < MAX_DIVISORS {
        divisors.extend(divisors.clone().iter().map(|divisor| divisor * &cofactor));
    }
    divisors
}
