//! The search: the smallest instance that the checker certifies, by whichever theorem gives the fewest tokens.
//!
//! The search uses all tables of an input and, if fewer hops are impossible too, also a smaller task between constant tables
//! (`SearchSetting`). Each theorem has its own search: `entropy` and `cells` have one or three free parameters, `product` and
//! `cell_lists` solve convex programs. Only certificates that the checker accepts are returned.

mod cell_lists;
mod cells;
mod entropy;
mod integers;
mod product;

use num_bigint::BigUint;

use super::checker::{AcceptedClaim, Certificate, InnerInstance, ProofCase, TableLists, Theorem, check};
use super::input::{BoundInput, log2};

/// The largest number of hops searched: beyond it the tables have thousands of digits.
pub const MAX_SEARCH_HOPS: usize = 8;

/// A certificate that the checker accepted.
#[derive(Clone, Debug)]
pub struct CheckedCertificate {
    /// The accepted certificate.
    pub certificate: Certificate,
    /// What the certificate proves.
    pub accepted: AcceptedClaim,
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

/// A search input, and the constant tables around the tables that vary.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchSetting<'a> {
    /// The input for the varying tables.
    pub(super) input: &'a BoundInput,
    /// Identity tables between the varying tables and z_0.
    pub(super) middle: usize,
    /// Constant tables before the varying tables.
    pub(super) front: usize,
}

impl SearchSetting<'_> {
    /// The certificate for varying tables of these sizes; constant tables get n = 1.
    fn certificate(&self, m: BigUint, n: &[BigUint], theorem: Theorem) -> Certificate {
        let ones = |count: usize| std::iter::repeat_n(BigUint::from(1_u8), count);
        let all_n = ones(self.middle).chain(n.iter().cloned()).chain(ones(self.front)).collect();
        self.certificate_on(m, all_n, theorem)
    }

    /// The certificate for tables of these sizes, constant ones included.
    fn certificate_on(&self, m: BigUint, n: Vec<BigUint>, theorem: Theorem) -> Certificate {
        let input = self.input;
        let constant = self.middle + self.front;
        Certificate {
            case: input.case,
            hops: input.hops + constant,
            message_bits: input.message_bits.clone(),
            state_bits: input.state_bits.clone(),
            fixed_bits: input.fixed_bits.clone(),
            m,
            n,
            token_counts: input.token_counts.clone(),
            theorem,
            inner_instance: (constant > 0).then_some(InnerInstance { hops: input.hops, middle: self.middle }),
        }
    }
}

/// The input itself, and every placement of an input with fewer hops between constant tables.
fn settings(input: &BoundInput) -> Vec<SearchSetting<'_>> {
    let mut settings = vec![SearchSetting { input, middle: 0, front: 0 }];
    for inner in &input.inputs_with_fewer_hops {
        let constant = input.hops - inner.hops;
        let splits = (0..=constant).map(|middle| SearchSetting { input: inner, middle, front: constant - middle });
        settings.extend(splits);
    }
    settings
}

/// The smallest certified instance found for an input.
pub fn smallest_certificate(input: &BoundInput) -> Option<CheckedCertificate> {
    let mut best: Option<CheckedCertificate> = None;
    // Fewer hops are faster, and their result limits the search for more hops.
    for setting in settings(input).iter().rev() {
        let upper_bound = best.as_ref().map_or(f64::INFINITY, CheckedCertificate::log2_tokens);
        for candidate in smallest_by_theorem(setting, upper_bound) {
            if input.is_covered_by(&candidate.certificate)
                && best.as_ref().is_none_or(|best| candidate.accepted.tokens < best.accepted.tokens)
            {
                best = Some(candidate);
            }
        }
    }
    best
}

/// The smallest instance by each theorem that applies; theorems that cannot get below `upper_bound` (log2 of tokens) may be skipped.
fn smallest_by_theorem(setting: &SearchSetting<'_>, upper_bound: f64) -> Vec<CheckedCertificate> {
    let input = setting.input;
    if input.state_bits.len() == 1 || input.hops == 1 {
        return smallest_single_table(setting).into_iter().collect();
    }
    if input.hops > MAX_SEARCH_HOPS {
        return Vec::new();
    }
    let two_hops = match (input.case, input.hops) {
        (ProofCase::OneLayerFewer, 2) => vec![entropy::smallest_certificate(setting)],
        (ProofCase::AsManyLayers, 2) => {
            vec![cells::smallest_certificate(setting), cell_lists::smallest_certificate(setting)]
        }
        _ => vec![],
    };
    let two_hops = two_hops.into_iter().flatten().collect::<Vec<_>>();
    let upper_bound = two_hops.iter().map(CheckedCertificate::log2_tokens).fold(upper_bound, f64::min);
    two_hops.into_iter().chain(product::smallest_certificate(setting, upper_bound)).collect()
}

/// A certificate for tables of given sizes, if one is found.
pub fn certificate_for_tables(input: &BoundInput, m: &BigUint, n: &[BigUint]) -> Option<CheckedCertificate> {
    settings(input).iter().find_map(|setting| {
        let inner = setting.middle..setting.middle + setting.input.hops - 1;
        certificate_by_theorem(setting, m, n, n.get(inner)?).filter(|checked| input.is_covered_by(&checked.certificate))
    })
}

/// A certificate by the first theorem that applies; `inner` are the sizes of the varying tables.
fn certificate_by_theorem(
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
    let two_hops = match (input.case, input.hops) {
        (ProofCase::OneLayerFewer, 2) => certify(Theorem::Entropy),
        (ProofCase::AsManyLayers, 2) => cells::parameters(m, &inner[0])
            .find_map(certify)
            .or_else(|| cell_lists::parameters(setting, m, &inner[0]).find_map(certify)),
        _ => None,
    };
    two_hops.or_else(|| product::parameters(setting, m, inner).find_map(certify))
}

/// The certificate that one table does not fit: into the state (case 1), or into the messages of one full layer and the bits of
/// mixers in parallel with it (case 0).
fn single_table(setting: &SearchSetting<'_>, m: BigUint, n: Vec<BigUint>) -> Certificate {
    if setting.input.case == ProofCase::OneLayerFewer {
        return setting.certificate_on(m, n, Theorem::State);
    }
    let lists = TableLists { x: vec![m.clone()], sigma: vec![], kappa: vec![] };
    setting.certificate_on(m, n, Theorem::Decomposition(lists))
}

/// The smallest table that does not fit. With several hops only the last table matters: the others have one entry, and only the
/// last n grows.
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
    smallest_passing(BigUint::from(2_u8), 16_384, |size| certificate(size).is_some())
        .and_then(|size| certificate(&size))
}

/// The least number from `from` on, of at most about `max_bits` bits, for which `holds`; `holds` must be monotone.
fn smallest_passing(from: BigUint, max_bits: u64, holds: impl Fn(&BigUint) -> bool) -> Option<BigUint> {
    let mut low = from.clone();
    let mut high = from;
    while !holds(&high) {
        if high.bits() > max_bits {
            return None;
        }
        low = &high + 1_u8;
        high *= 2_u8;
    }
    while low < high {
        let midpoint = (&low + &high) >> 1;
        if holds(&midpoint) { high = midpoint } else { low = midpoint + 1_u8 }
    }
    Some(high)
}
