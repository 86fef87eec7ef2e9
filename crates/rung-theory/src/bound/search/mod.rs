//! The search: the smallest instance that the checker certifies, by whichever theorem gives the fewest tokens.
//!
//! A question is tried as it stands and, where the stack has too few layers even for fewer hops, as a smaller task inside
//! constant tables ([`Setting`]). Each theorem has a search of its own: [`entropy`] and [`cells`] have one or three free
//! numbers, [`product`] and [`cell_lists`] solve convex programs. What the checker refuses is never returned.

mod cell_lists;
mod cells;
mod entropy;
mod integers;
mod product;

use num_bigint::BigUint;

use super::checker::{Accepted, Embedding, Lists, Point, Theorem, check};
use super::question::{Question, log2};

/// The largest number of hops searched: beyond it the tables have thousands of digits.
pub const MAX_SEARCH_HOPS: usize = 8;

/// A point that the checker accepted.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The proof.
    pub point: Point,
    /// What the checker said of it.
    pub accepted: Accepted,
}

impl Certified {
    fn new(point: Point) -> Option<Self> {
        let accepted = check(&point).ok()?;
        Some(Self { point, accepted })
    }

    /// log2 of the tokens of the instance.
    pub fn log2_tokens(&self) -> f64 {
        log2(&self.accepted.tokens)
    }
}

/// A question about all tables of an instance, or about those between constant ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// The question about the tables that vary.
    pub(super) question: &'a Question,
    /// Identity tables between them and z_0.
    pub(super) middle: usize,
    /// Constant tables in front of them.
    pub(super) front: usize,
}

impl Setting<'_> {
    /// The point on sought tables: constant tables have n = 1.
    fn point(&self, m: BigUint, n: &[BigUint], theorem: Theorem) -> Point {
        let ones = |count: usize| std::iter::repeat_n(BigUint::from(1_u8), count);
        let all = ones(self.middle).chain(n.iter().cloned()).chain(ones(self.front)).collect();
        self.point_on(m, all, theorem)
    }

    /// The point on tables of these sizes, constant ones included.
    fn point_on(&self, m: BigUint, n: Vec<BigUint>, theorem: Theorem) -> Point {
        let question = self.question;
        let constant = self.middle + self.front;
        Point {
            case: question.case,
            hops: question.hops + constant,
            message_bits: question.message_bits.clone(),
            state_bits: question.state_bits.clone(),
            beside_bits: question.beside.clone(),
            m,
            n,
            tokens_per: question.tokens_per.map(BigUint::from),
            theorem,
            embedding: (constant > 0).then_some(Embedding { hops: question.hops, middle: self.middle }),
        }
    }
}

/// The question itself, and every way to hold a smaller one inside its tables.
fn settings(question: &Question) -> Vec<Setting<'_>> {
    let mut settings = vec![Setting { question, middle: 0, front: 0 }];
    for inner in &question.smaller {
        let constant = question.hops - inner.hops;
        let splits = (0..=constant).map(|middle| Setting { question: inner, middle, front: constant - middle });
        settings.extend(splits);
    }
    settings
}

/// The smallest certified instance found for a question.
pub fn smallest(question: &Question) -> Option<Certified> {
    let mut best: Option<Certified> = None;
    // Fewer hops are found sooner and leave less to look for.
    for setting in settings(question).iter().rev() {
        let below = best.as_ref().map_or(f64::INFINITY, Certified::log2_tokens);
        for found in smallest_by_theorem(setting, below) {
            if question.is_covered_by(&found.point)
                && best.as_ref().is_none_or(|best| found.accepted.tokens < best.accepted.tokens)
            {
                best = Some(found);
            }
        }
    }
    best
}

/// What each theorem that applies finds; what cannot be below the given tokens may be left out.
fn smallest_by_theorem(setting: &Setting<'_>, below: f64) -> Vec<Certified> {
    let question = setting.question;
    if question.state_bits.len() == 1 || question.hops == 1 {
        return smallest_single_table(setting).into_iter().collect();
    }
    if question.hops > MAX_SEARCH_HOPS {
        return Vec::new();
    }
    let sharp = match (question.case, question.hops) {
        (1, 2) => vec![entropy::smallest(setting)],
        (0, 2) => vec![cells::smallest(setting), cell_lists::smallest(setting)],
        _ => vec![],
    };
    let sharp = sharp.into_iter().flatten().collect::<Vec<_>>();
    let below = sharp.iter().map(Certified::log2_tokens).fold(below, f64::min);
    sharp.into_iter().chain(product::smallest(setting, below)).collect()
}

/// A certificate for tables of given sizes, if one is found.
pub fn for_tables(question: &Question, m: &BigUint, n: &[BigUint]) -> Option<Certified> {
    settings(question).iter().find_map(|setting| {
        let inner = setting.middle..setting.middle + setting.question.hops - 1;
        for_tables_by_theorem(setting, m, n, n.get(inner)?).filter(|found| question.is_covered_by(&found.point))
    })
}

/// Whichever theorem certifies the tables; `inner` are the sizes of those that vary.
fn for_tables_by_theorem(setting: &Setting<'_>, m: &BigUint, n: &[BigUint], inner: &[BigUint]) -> Option<Certified> {
    let question = setting.question;
    let certify = |theorem: Theorem| Certified::new(setting.point_on(m.clone(), n.to_vec(), theorem));
    if question.state_bits.len() == 1 || question.hops == 1 {
        return Certified::new(single_table(setting, m.clone(), n.to_vec()));
    }
    if question.hops > MAX_SEARCH_HOPS || n[..setting.middle].iter().any(|n| *n != BigUint::from(1_u8)) {
        return None;
    }
    let sharp = match (question.case, question.hops) {
        (1, 2) => certify(Theorem::Entropy),
        (0, 2) => cells::parameters(m, &inner[0])
            .find_map(certify)
            .or_else(|| cell_lists::parameters(setting, m, &inner[0]).find_map(certify)),
        _ => None,
    };
    sharp.or_else(|| product::for_tables(setting, m, inner).find_map(certify))
}

/// The point about one table that a state, or the messages of one full layer and what is beside them, must hold.
fn single_table(setting: &Setting<'_>, m: BigUint, n: Vec<BigUint>) -> Point {
    if setting.question.case == 1 {
        return setting.point_on(m, n, Theorem::State);
    }
    let lists = Lists { x: vec![m.clone()], sigma: vec![], kappa: vec![] };
    setting.point_on(m, n, Theorem::Decomposition(lists))
}

/// The smallest table that the state, or the messages, cannot hold. Without full layers only the last table counts: the
/// others have one entry, and all of the growth is in the last n.
fn smallest_single_table(setting: &Setting<'_>) -> Option<Certified> {
    let one = BigUint::from(1_u8);
    let tables = setting.middle + setting.question.hops + setting.front;
    let point = |size: &BigUint| {
        let mut n = vec![one.clone(); tables - 1];
        match n.last_mut().filter(|_| setting.question.hops > 1) {
            Some(last) => last.clone_from(size),
            None => return Certified::new(single_table(setting, size.clone(), n)),
        }
        Certified::new(single_table(setting, one.clone(), n))
    };
    least(BigUint::from(2_u8), 16_384, |size| point(size).is_some()).and_then(|size| point(&size))
}

/// The least number from `from` on, of about so many bits at most, for which `holds`, which must stay true once true.
fn least(from: BigUint, most_bits: u64, holds: impl Fn(&BigUint) -> bool) -> Option<BigUint> {
    let mut low = from.clone();
    let mut high = from;
    while !holds(&high) {
        if high.bits() > most_bits {
            return None;
        }
        low = &high + 1_u8;
        high *= 2_u8;
    }
    while low < high {
        let middle = (&low + &high) >> 1;
        if holds(&middle) { high = middle } else { low = middle + 1_u8 }
    }
    Some(high)
}
