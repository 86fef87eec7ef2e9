//! The search: the smallest instance that the checker certifies, by whichever theorem gives the fewest tokens.
//!
//! An input is tried as it stands and, where the stack has too few layers even for fewer hops, as a smaller task inside
//! constant tables (`SearchSetting`). Each theorem has a search of its own: `entropy` and `cells` have one or three free
//! numbers, `product` and `cell_lists` solve convex programs. What the checker refuses is never returned.

mod cell_lists;
mod cells;
mod entropy;
mod integers;
mod product;

use num_bigint::BigUint;

use super::checker::{AcceptedPoint, Certificate, InnerInstance, ProofCase, TableLists, Theorem, check};
use super::input::{BoundInput, log2};

/// The largest number of hops searched: beyond it the tables have thousands of digits.
pub const MAX_SEARCH_HOPS: usize = 8;

/// A certificate that the checker accepted.
#[derive(Clone, Debug)]
pub struct CheckedCertificate {
    /// The proof.
    pub certificate: Certificate,
    /// What the checker said of it.
    pub accepted: AcceptedPoint,
}

impl CheckedCertificate {
    fn new(certificate: Certificate) -> Option<Self> {
        let accepted = check(&certificate).ok()?;
        Some(Self { certificate, accepted })
    }

    /// log2 of the tokens of the instance.
    pub fn log2_tokens(&self) -> f64 {
        log2(&self.accepted.tokens)
    }
}

/// An input whose tables are all of an instance's, or those between constant ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchSetting<'a> {
    /// The input, about the tables that vary.
    pub(super) input: &'a BoundInput,
    /// Identity tables between them and z_0.
    pub(super) middle: usize,
    /// Constant tables in front of them.
    pub(super) front: usize,
}

impl SearchSetting<'_> {
    /// The certificate on sought tables: constant tables have n = 1.
    fn certificate(&self, m: BigUint, n: &[BigUint], theorem: Theorem) -> Certificate {
        let ones = |count: usize| std::iter::repeat_n(BigUint::from(1_u8), count);
        let all = ones(self.middle).chain(n.iter().cloned()).chain(ones(self.front)).collect();
        self.certificate_on(m, all, theorem)
    }

    /// The certificate on tables of these sizes, constant ones included.
    fn certificate_on(&self, m: BigUint, n: Vec<BigUint>, theorem: Theorem) -> Certificate {
        let input = self.input;
        let constant = self.middle + self.front;
        Certificate {
            case: input.case,
            hops: input.hops + constant,
            message_bits: input.message_bits.clone(),
            state_bits: input.state_bits.clone(),
            parallel_bits: input.parallel_bits.clone(),
            m,
            n,
            tokens_per: input.tokens_per.clone(),
            theorem,
            embedding: (constant > 0).then_some(InnerInstance { hops: input.hops, middle: self.middle }),
        }
    }
}

/// The input itself, and every way to hold one of fewer hops inside its tables.
fn settings(input: &BoundInput) -> Vec<SearchSetting<'_>> {
    let mut settings = vec![SearchSetting { input, middle: 0, front: 0 }];
    for inner in &input.with_fewer_hops {
        let constant = input.hops - inner.hops;
        let splits = (0..=constant).map(|middle| SearchSetting { input: inner, middle, front: constant - middle });
        settings.extend(splits);
    }
    settings
}

/// The smallest certified instance found for an input.
pub fn smallest(input: &BoundInput) -> Option<CheckedCertificate> {
    let mut best: Option<CheckedCertificate> = None;
    // Fewer hops are found sooner and leave less to look for.
    for setting in settings(input).iter().rev() {
        let below = best.as_ref().map_or(f64::INFINITY, CheckedCertificate::log2_tokens);
        for found in smallest_by_theorem(setting, below) {
            if input.is_covered_by(&found.certificate)
                && best.as_ref().is_none_or(|best| found.accepted.tokens < best.accepted.tokens)
            {
                best = Some(found);
            }
        }
    }
    best
}

/// What each theorem that applies finds; what cannot be below the given tokens may be left out.
fn smallest_by_theorem(setting: &SearchSetting<'_>, below: f64) -> Vec<CheckedCertificate> {
    let input = setting.input;
    if input.state_bits.len() == 1 || input.hops == 1 {
        return smallest_single_table(setting).into_iter().collect();
    }
    if input.hops > MAX_SEARCH_HOPS {
        return Vec::new();
    }
    let sharp = match (input.case, input.hops) {
        (ProofCase::OneLayerFewer, 2) => vec![entropy::smallest(setting)],
        (ProofCase::AsManyLayers, 2) => vec![cells::smallest(setting), cell_lists::smallest(setting)],
        _ => vec![],
    };
    let sharp = sharp.into_iter().flatten().collect::<Vec<_>>();
    let below = sharp.iter().map(CheckedCertificate::log2_tokens).fold(below, f64::min);
    sharp.into_iter().chain(product::smallest(setting, below)).collect()
}

/// A certificate for tables of given sizes, if one is found.
pub fn for_tables(input: &BoundInput, m: &BigUint, n: &[BigUint]) -> Option<CheckedCertificate> {
    settings(input).iter().find_map(|setting| {
        let inner = setting.middle..setting.middle + setting.input.hops - 1;
        for_tables_by_theorem(setting, m, n, n.get(inner)?).filter(|found| input.is_covered_by(&found.certificate))
    })
}

/// Whichever theorem certifies the tables; `inner` are the sizes of those that vary.
fn for_tables_by_theorem(
    setting: &SearchSetting<'_>,
    m: &BigUint,
    n: &[BigUint],
    inner: &[BigUint],
) -> Option<CheckedCertificate> {
    let input = setting.input;
    let certify = |theorem: Theorem| CheckedCertificate::new(setting.certificate_on(m.clone(), n.to_vec(), theorem));
    if input.state_bits.len() == 1 || input.hops == 1 {
        return CheckedCertificate::new(single_table(setting, m.clone(), n.to_vec()));
    }
    if input.hops > MAX_SEARCH_HOPS || n[..setting.middle].iter().any(|n| *n != BigUint::from(1_u8)) {
        return None;
    }
    let sharp = match (input.case, input.hops) {
        (ProofCase::OneLayerFewer, 2) => certify(Theorem::Entropy),
        (ProofCase::AsManyLayers, 2) => cells::parameters(m, &inner[0])
            .find_map(certify)
            .or_else(|| cell_lists::parameters(setting, m, &inner[0]).find_map(certify)),
        _ => None,
    };
    sharp.or_else(|| product::for_tables(setting, m, inner).find_map(certify))
}

/// The certificate about one table that a state, or the messages of one full layer and what is beside them, must hold.
fn single_table(setting: &SearchSetting<'_>, m: BigUint, n: Vec<BigUint>) -> Certificate {
    if setting.input.case == ProofCase::OneLayerFewer {
        return setting.certificate_on(m, n, Theorem::State);
    }
    let lists = TableLists { x: vec![m.clone()], sigma: vec![], kappa: vec![] };
    setting.certificate_on(m, n, Theorem::Decomposition(lists))
}

/// The smallest table that the state, or the messages, cannot hold. Without full layers only the last table counts: the
/// others have one entry, and all of the growth is in the last n.
fn smallest_single_table(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let one = BigUint::from(1_u8);
    let tables = setting.middle + setting.input.hops + setting.front;
    let certificate = |size: &BigUint| {
        let mut n = vec![one.clone(); tables - 1];
        match n.last_mut().filter(|_| setting.input.hops > 1) {
            Some(last) => last.clone_from(size),
            None => return CheckedCertificate::new(single_table(setting, size.clone(), n)),
        }
        CheckedCertificate::new(single_table(setting, one.clone(), n))
    };
    least(BigUint::from(2_u8), 16_384, |size| certificate(size).is_some()).and_then(|size| certificate(&size))
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
