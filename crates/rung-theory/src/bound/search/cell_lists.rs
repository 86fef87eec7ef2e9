//! Theorem 4 as a convex program.
//!
//! Unknowns are logarithms: a and g with x_0 = a c and m = g x_0 (so that the cell is r = a g and c cells make m), c, nu, x_1,
//! b = n_1/nu, and the kept fraction rho = sigma/m. Each of the three places of the last border is one program.

use num_bigint::BigUint;

use super::integers::{fix_one_by_one, largest_passing};
use super::{CheckedCertificate, SearchSetting, least};
use crate::bound::checker::{Cells, Refusal, Theorem, check};
use crate::bound::convex::{ConvexProgram, Expression, Linear, Term};
use crate::bound::float_check::divisors;
use crate::bound::input::{exp2_to_integer, log2};

const A: usize = 0;
const G: usize = 1;
const C: usize = 2;
const NU: usize = 3;
const X1: usize = 4;
const B: usize = 5;
const RHO: usize = 6;

/// Logarithms of the numbers of one input.
struct Relaxation<'a> {
    setting: &'a SearchSetting<'a>,
    message: f64,
    last: f64,
    tokens: [f64; 3],
}

fn variables(indices: &[usize]) -> Linear {
    indices.iter().fold(Linear::default(), |sum, &index| sum.plus(&Linear::variable(index)))
}

impl<'a> Relaxation<'a> {
    fn new(setting: &'a SearchSetting<'a>) -> Self {
        let input = setting.input;
        Self {
            setting,
            message: log2(&input.message_bits),
            last: log2(&input.state_bits[2]),
            tokens: input.log2_tokens_per(),
        }
    }

    /// B t0 times what follows, t0 with the identity tables in the middle.
    fn start_messages(&self, times: &Linear) -> Vec<Linear> {
        let [te, t0, _] = self.tokens;
        let mut terms = vec![Linear::constant(self.message + t0).plus(times)];
        if self.setting.middle > 0 {
            let tables = Linear::constant(self.message + te + (self.setting.middle as f64).log2());
            terms.push(tables.plus(&variables(&[A, G, C])).plus(times));
        }
        terms
    }

    /// The last border, frozen before w, before z_0 or before z_1.
    fn last(&self, place: usize) -> Vec<Linear> {
        if !self.last.is_finite() {
            return Vec::new();
        }
        let lists = variables(&[A, C, X1]);
        let border = Linear::constant(self.last);
        match place {
            0 => vec![border.plus(&lists)],
            1 => [vec![border.plus(&variables(&[X1]))], self.start_messages(&lists)].concat(),
            _ => {
                let table = Linear::constant(self.message + self.tokens[0]).plus(&variables(&[A, G, C, X1]));
                [vec![border, table], self.start_messages(&lists)].concat()
            }
        }
    }

    fn program(&self, place: usize) -> ConvexProgram {
        let [te, _, tw] = self.tokens;
        let m = variables(&[A, G, C]);
        let bits = |tokens: f64, indices: &[usize]| Linear::constant(self.message + tokens).plus(&variables(indices));
        let draws = variables(&[A, C, X1]);
        let tail = Expression {
            terms: vec![
                Term { linear: m.clone().minus(&draws), entropy: Some(RHO) },
                bits(tw, &[X1, NU]).minus(&variables(&[G])).minus(&draws).into(),
            ],
            divisor: Some(Linear::default().minus(&Linear::variable(RHO))),
        };
        let answers = variables(&[A, G, C, NU, B, RHO]);
        let mut bits_lost = vec![bits(te, &[A, G, C, A, G]), bits(tw, &[NU, B]), bits(tw, &[B, NU, A, C])];
        bits_lost.extend(self.start_messages(&m));
        bits_lost.extend(self.last(place).into_iter().map(|term| term.plus(&Linear::variable(B))));
        let finish = Expression {
            terms: bits_lost.into_iter().map(|term| term.minus(&answers).into()).collect(),
            divisor: Some(m.clone().plus(&variables(&[NU, B]))),
        };
        let touch = Linear::constant(-1e-7);
        let mut domain: Vec<Linear> = (A..=B).map(|v| touch.clone().minus(&Linear::variable(v))).collect();
        let roof = 8.0 * (self.message + self.last.max(0.0) + 20.0);
        domain.extend((A..=B).map(|v| Linear::variable(v).plus(&Linear::constant(-roof))));
        domain.push(Linear::variable(RHO).plus(&Linear::constant(1e-9)));
        domain.push(Linear::constant(-66.0).minus(&Linear::variable(RHO)));
        domain.push(Linear::constant(1.0).minus(&m));
        let copies = |count: usize| Linear::constant(te + ((count + 1) as f64).log2());
        let last = m.clone().plus(&variables(&[NU, B])).plus(&copies(self.setting.front));
        let terms = vec![last.into(), m.plus(&copies(self.setting.middle)).into()];
        ConvexProgram {
            variables: RHO + 1,
            objective: Expression { terms, divisor: None },
            constraints: vec![tail, finish],
            domain,
        }
    }
}

/// The smallest instance found.
pub(super) fn smallest(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let relaxation = Relaxation::new(setting);
    let bits = relaxation.message;
    let places = if relaxation.last.is_finite() { 3 } else { 1 };
    let optima = (0..places).filter_map(|place| {
        let program = relaxation.program(place);
        let start = [1.0, 2.0, bits, relaxation.last.max(1.0), bits, 2.0 * bits, -1.0];
        let point = program.solve(&start, &[false; RHO + 1])?;
        Some((program.objective_at(&point), program, point))
    });
    let (_, program, point) = optima.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let point = fix_one_by_one(&program, &[A, G, C, NU, X1, B], point)?;
    let [a, g, c, nu, x1] = [A, G, C, NU, X1].map(|v| exp2_to_integer(point[v].max(0.0)));
    let (cells, x, m) = (Cells { cell: &a * &g, group: nu }, [&a * &c, x1], a * g * c);
    let guess = point[RHO] + log2(&m);
    let attempt = |groups: &BigUint| {
        let n = groups * &cells.group;
        let sigma = largest_sigma(setting, &cells, &x, (&m, &n), guess)?;
        let theorem = Theorem::CellLists { cells: cells.clone(), x: x.clone(), sigma };
        CheckedCertificate::new(setting.certificate(m.clone(), &[n], theorem))
    };
    least(BigUint::from(1_u8), 400, |groups| attempt(groups).is_some()).and_then(|groups| attempt(&groups))
}

/// The largest sigma that passes the tail.
fn largest_sigma(
    setting: &SearchSetting<'_>,
    cells: &Cells,
    x: &[BigUint; 2],
    (m, n): (&BigUint, &BigUint),
    guess: f64,
) -> Option<BigUint> {
    largest_passing(guess, |sigma| {
        let theorem = Theorem::CellLists { cells: cells.clone(), x: x.clone(), sigma: sigma.clone() };
        matches!(check(&setting.certificate(m.clone(), std::slice::from_ref(n), theorem)), Ok(_) | Err(Refusal::Final))
    })
}

/// Parameters with which given tables may be certified: divisors near those of the smallest tables that are.
pub(super) fn parameters<'a>(
    setting: &'a SearchSetting<'a>,
    m: &'a BigUint,
    n: &'a BigUint,
) -> impl Iterator<Item = Theorem> + 'a {
    let optimum = smallest(setting).and_then(|found| match found.certificate.theorem {
        Theorem::CellLists { cells, x, sigma } => Some((cells, x, log2(&sigma))),
        _ => None,
    });
    optimum.into_iter().flat_map(move |(cells, x, guess)| {
        let near = |number: &BigUint, wanted: &BigUint| {
            let mut divisors = divisors(number);
            divisors.sort_by(|a, b| (log2(a) - log2(wanted)).abs().total_cmp(&(log2(b) - log2(wanted)).abs()));
            divisors.truncate(4);
            divisors
        };
        let groups = near(n, &cells.group);
        let choices = near(m, &cells.cell)
            .into_iter()
            .flat_map(move |cell| groups.clone().into_iter().map(move |group| Cells { cell: cell.clone(), group }));
        choices.filter_map(move |cells| {
            let c = m / &cells.cell;
            let x0 = (exp2_to_integer(log2(&x[0]) - log2(&c)) * &c).min(m.clone()) / &c * &c;
            let x = [x0, x[1].clone()];
            let sigma = largest_sigma(setting, &cells, &x, (m, n), guess)?;
            Some(Theorem::CellLists { cells, x, sigma })
        })
    })
}
