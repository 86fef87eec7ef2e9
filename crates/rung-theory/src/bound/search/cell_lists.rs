//! Theorem 4 as a convex program.
//!
//! Unknowns are logarithms: a and g with x_0 = a c and m = g x_0 (so that the cell is r = a g and c cells make m), c, nu, x_1,
//! b = n_1/nu, and the fraction rho = sigma/m of pairs that remain after the draw. Each of the three positions of the last border
//! is one program.

use num_bigint::BigUint;

use super::integers::{fix_one_by_one, largest_passing};
use super::{CheckedCertificate, SearchSetting, smallest_passing};
use crate::bound::checker::{Cells, Rejection, Theorem, check};
use crate::bound::convex::{ConvexProgram, Expression, Linear, Term};
use crate::bound::float_check::divisors;
use crate::bound::input::{exp2_to_integer, log2};

// Indices of the variables.
const A: usize = 0;
const G: usize = 1;
const C: usize = 2;
const NU: usize = 3;
const X1: usize = 4;
const B: usize = 5;
const RHO: usize = 6;

/// The conditions for one search setting; all sizes are base-two logarithms.
struct CellListRelaxation<'a> {
    setting: &'a SearchSetting<'a>,
    message_bits: f64,
    /// s_2.
    last_state_bits: f64,
    /// Tokens of an entry, of the start value and of the query.
    token_counts: [f64; 3],
}

/// The product of these variables, which is the sum of their logarithms.
fn product(indices: &[usize]) -> Linear {
    indices.iter().fold(Linear::default(), |sum, &index| sum.plus(&Linear::variable(index)))
}

impl<'a> CellListRelaxation<'a> {
    fn new(setting: &'a SearchSetting<'a>) -> Self {
        let input = setting.input;
        Self {
            setting,
            message_bits: log2(&input.message_bits),
            last_state_bits: log2(&input.state_bits[2]),
            token_counts: input.log2_token_counts(),
        }
    }

    /// Bits of the messages into z_0 and the identity tables: B t0 times `choices`.
    fn start_messages(&self, choices: &Linear) -> Vec<Linear> {
        let [te, t0, _] = self.token_counts;
        let mut terms = vec![Linear::constant(self.message_bits + t0).plus(choices)];
        if self.setting.middle > 0 {
            let tables = Linear::constant(self.message_bits + te + (self.setting.middle as f64).log2());
            terms.push(tables.plus(&product(&[A, G, C])).plus(choices));
        }
        terms
    }

    /// Bits of the last border, frozen before w (position 0), before z_0 (1) or before z_1 (2).
    fn border_bits(&self, position: usize) -> Vec<Linear> {
        if !self.last_state_bits.is_finite() {
            return Vec::new();
        }
        let lists = product(&[A, C, X1]);
        let border = Linear::constant(self.last_state_bits);
        match position {
            0 => vec![border.plus(&lists)],
            1 => [vec![border.plus(&product(&[X1]))], self.start_messages(&lists)].concat(),
            _ => {
                let table = Linear::constant(self.message_bits + self.token_counts[0]).plus(&product(&[A, G, C, X1]));
                [vec![border, table], self.start_messages(&lists)].concat()
            }
        }
    }

    fn program(&self, position: usize) -> ConvexProgram {
        let [te, _, tw] = self.token_counts;
        let m = product(&[A, G, C]);
        let bits =
            |tokens: f64, indices: &[usize]| Linear::constant(self.message_bits + tokens).plus(&product(indices));
        let draws = product(&[A, C, X1]);
        let tail = Expression {
            terms: vec![
                Term { linear: m.clone().minus(&draws), entropy: Some(RHO) },
                bits(tw, &[X1, NU]).minus(&product(&[G])).minus(&draws).into(),
            ],
            divisor: Some(Linear::default().minus(&Linear::variable(RHO))),
        };
        let answers = product(&[A, G, C, NU, B, RHO]);
        let mut bits_lost = vec![bits(te, &[A, G, C, A, G]), bits(tw, &[NU, B]), bits(tw, &[B, NU, A, C])];
        bits_lost.extend(self.start_messages(&m));
        bits_lost.extend(self.border_bits(position).into_iter().map(|term| term.plus(&Linear::variable(B))));
        let final_inequality = Expression {
            terms: bits_lost.into_iter().map(|term| term.minus(&answers).into()).collect(),
            divisor: Some(m.clone().plus(&product(&[NU, B]))),
        };
        let tolerance = Linear::constant(-1e-7);
        let mut domain: Vec<Linear> = (A..=B).map(|v| tolerance.clone().minus(&Linear::variable(v))).collect();
        let limit = 8.0 * (self.message_bits + self.last_state_bits.max(0.0) + 20.0);
        domain.extend((A..=B).map(|v| Linear::variable(v).plus(&Linear::constant(-limit))));
        domain.push(Linear::variable(RHO).plus(&Linear::constant(1e-9)));
        domain.push(Linear::constant(-66.0).minus(&Linear::variable(RHO)));
        domain.push(Linear::constant(1.0).minus(&m));
        let copies = |count: usize| Linear::constant(te + ((count + 1) as f64).log2());
        let last_table = m.clone().plus(&product(&[NU, B])).plus(&copies(self.setting.front));
        let terms = vec![last_table.into(), m.plus(&copies(self.setting.middle)).into()];
        ConvexProgram {
            variable_count: RHO + 1,
            objective: Expression { terms, divisor: None },
            constraints: vec![tail, final_inequality],
            domain,
        }
    }
}

/// The smallest instance found.
pub(super) fn smallest_certificate(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let relaxation = CellListRelaxation::new(setting);
    let bits = relaxation.message_bits;
    let positions = if relaxation.last_state_bits.is_finite() { 3 } else { 1 };
    let optima = (0..positions).filter_map(|position| {
        let program = relaxation.program(position);
        let start = [1.0, 2.0, bits, relaxation.last_state_bits.max(1.0), bits, 2.0 * bits, -1.0];
        let point = program.solve(&start, &[false; RHO + 1])?;
        Some((program.objective_at(&point), program, point))
    });
    let (_, program, point) = optima.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let point = fix_one_by_one(&program, &[A, G, C, NU, X1, B], point)?;
    let [a, g, c, nu, x1] = [A, G, C, NU, X1].map(|v| exp2_to_integer(point[v].max(0.0)));
    let (cells, x, m) = (Cells { cell: &a * &g, group: nu }, [&a * &c, x1], a * g * c);
    let log2_sigma = point[RHO] + log2(&m);
    let certify = |groups: &BigUint| {
        let n = groups * &cells.group;
        let sigma = largest_sigma(setting, &cells, &x, (&m, &n), log2_sigma)?;
        let theorem = Theorem::CellLists { cells: cells.clone(), x: x.clone(), sigma };
        CheckedCertificate::new(setting.certificate(m.clone(), &[n], theorem))
    };
    smallest_passing(BigUint::from(1_u8), 400, |groups| certify(groups).is_some()).and_then(|groups| certify(&groups))
}

/// The largest sigma that satisfies the tail inequality, near an estimate of its logarithm.
fn largest_sigma(
    setting: &SearchSetting<'_>,
    cells: &Cells,
    x: &[BigUint; 2],
    (m, n): (&BigUint, &BigUint),
    log2_sigma: f64,
) -> Option<BigUint> {
    largest_passing(log2_sigma, |sigma| {
        let theorem = Theorem::CellLists { cells: cells.clone(), x: x.clone(), sigma: sigma.clone() };
        matches!(
            check(&setting.certificate(m.clone(), std::slice::from_ref(n), theorem)),
            Ok(_) | Err(Rejection::Final)
        )
    })
}

/// Parameters that may certify the given tables: divisors near the parameters of the smallest certified tables.
pub(super) fn parameters<'a>(
    setting: &'a SearchSetting<'a>,
    m: &'a BigUint,
    n: &'a BigUint,
) -> impl Iterator<Item = Theorem> + 'a {
    let optimum = smallest_certificate(setting).and_then(|checked| match checked.certificate.theorem {
        Theorem::CellLists { cells, x, sigma } => Some((cells, x, log2(&sigma))),
        _ => None,
    });
    optimum.into_iter().flat_map(move |(cells, x, log2_sigma)| {
        let divisors_near = |number: &BigUint, target: &BigUint| {
            let mut divisors = divisors(number);
            divisors.sort_by(|a, b| (log2(a) - log2(target)).abs().total_cmp(&(log2(b) - log2(target)).abs()));
            divisors.truncate(4);
            divisors
        };
        let groups = divisors_near(n, &cells.group);
        let choices = divisors_near(m, &cells.cell)
            .into_iter()
            .flat_map(move |cell| groups.clone().into_iter().map(move |group| Cells { cell: cell.clone(), group }));
        choices.filter_map(move |cells| {
            let c = m / &cells.cell;
            let x0 = (exp2_to_integer(log2(&x[0]) - log2(&c)) * &c).min(m.clone()) / &c * &c;
            let x = [x0, x[1].clone()];
            let sigma = largest_sigma(setting, &cells, &x, (m, n), log2_sigma)?;
            Some(Theorem::CellLists { cells, x, sigma })
        })
    })
}
