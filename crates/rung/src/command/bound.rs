//! `rung bound STACK --hops L`: the smallest instance that is provably impossible.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use num_bigint::BigUint;
use rung_theory::bound::checker::{Cells, Certificate, ProofCase, Theorem, TokenCounts};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::MAX_SEARCH_HOPS;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::report::{BoundAnswer, BoundRequest, format_large_integer, heads_dim_bits};
use rung_theory::stack::Plan;
use serde_json::Value;

use super::stack::SizeOptions;
use crate::output::{check_destination, hops_text, print, print_json, with_commas, with_spinner, write_file};

/// Find a prompt length at which a number of hops is impossible.
///
/// The answer is a certificate: tables that no weights of the stack can compose in one forward pass.
#[derive(Debug, clap::Args)]
pub struct Bound {
    /// Stack such as `linear*3 full linear*3`, or a model (preset, config.json, directory, GGUF file); not needed if the bits are given directly.
    stack: Option<String>,
    /// Hops of function composition.
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    hops: usize,
    #[command(flatten)]
    sizes: SizeOptions,
    /// Message bits B, instead of a stack.
    #[arg(long, conflicts_with = "stack", requires = "state_bits")]
    message_bits: Option<u128>,
    /// Bits of blocks 0..F, instead of a stack: as many as hops (F = L-1), or one more with two zeros first (F = L).
    #[arg(long, value_delimiter = ',', conflicts_with = "stack", requires = "message_bits")]
    state_bits: Vec<u128>,
    /// Tokens of a table entry, of z_0 and of w.
    #[arg(long, value_delimiter = ',', default_value = "1,1,1", value_name = "ENTRY,Z0,W")]
    tokens_per: Vec<u64>,
    /// Order of table entries: any, or w-major (all entries of one w together), which allows smaller certificates.
    #[arg(long, default_value = "any", value_name = "ORDER")]
    table_order: TableOrder,
    /// Write the certificate to a file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// The order of a table's entries that a certificate may assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TableOrder {
    Any,
    WMajor,
}

/// The resolved options.
struct BoundOptions {
    /// The input of the search; none if the stack's layout allows `hops` hops.
    input: Option<BoundInput>,
    /// The stack as text; empty if the bits were given directly.
    stack: String,
    /// How bits are counted, as JSON for the certificate.
    conventions: Value,
    /// Heads times head width times bits per number, for the bounds of the papers.
    heads_dim_bits: Option<u128>,
    /// None if the bits were given directly.
    plan: Option<Plan>,
}

impl Bound {
    /// Runs the command.
    ///
    /// # Errors
    /// The stack or the sizes cannot be read, or the certificate cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if self.hops == 0 {
            bail!("--hops: found 0, expected at least 1");
        }
        if let Some(path) = &self.out {
            check_destination("--out", path, &[])?;
        }
        let mut options = self.options()?;
        if self.table_order == TableOrder::WMajor {
            options.input = options.input.map(BoundInput::with_w_major_tables);
        }
        let request = BoundRequest {
            input: options.input.clone(),
            plan: options.plan.as_ref(),
            heads_dim_bits: options.heads_dim_bits,
            hops: self.hops,
            stack: &options.stack,
            conventions: options.conventions.clone(),
        };
        // If the layout allows the hops, nothing is searched, so their number needs no limit.
        if request.input.is_some() && self.hops > MAX_SEARCH_HOPS {
            bail!(
                "--hops: found {}, expected at most {MAX_SEARCH_HOPS}: certificates are searched up to there, since the tables of more hops have thousands of digits",
                self.hops
            );
        }
        let answer = with_spinner(format!("searching for {}", hops_text(self.hops)), || request.answer());
        if let Some(path) = &self.out {
            let Some(text) = &answer.certificate else {
                bail!("--out: there is no certificate to write ({}: {})", answer.verdict, answer.reason)
            };
            write_file(path, format!("{text:#}\n"))?;
        }
        if self.json {
            print_json(&request.json(&answer))?;
        } else {
            print(&self.text(&options, &answer)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> anyhow::Result<BoundOptions> {
        let Ok(tokens_per) = <[u64; 3]>::try_from(self.tokens_per.clone()) else {
            bail!("--tokens-per: found {} numbers, expected three such as 1,1,1", self.tokens_per.len());
        };
        if let Some(count) = tokens_per.iter().find(|&&count| !(1..=1 << 20).contains(&count)) {
            bail!("--tokens-per: found {count}, expected 1 to {}", 1 << 20);
        }
        let token_counts = TokenCounts::new(tokens_per);
        if let Some(message_bits) = self.message_bits {
            let (found_blocks, expected_blocks) = (self.state_bits.len(), self.hops);
            let case = match found_blocks {
                _ if message_bits == 0 => bail!("--message-bits: found 0, expected at least 1"),
                count if count == expected_blocks => ProofCase::OneLayerFewer,
                count if count == expected_blocks + 1 && self.state_bits[..2] == [0, 0] => ProofCase::AsManyLayers,
                _ => bail!(
                    "--state-bits: found {found_blocks} blocks, expected {expected_blocks}, or {} with two zeros first",
                    expected_blocks + 1
                ),
            };
            let input = BoundInput::new(case, self.hops, message_bits, &self.state_bits, token_counts);
            return Ok(BoundOptions {
                input: Some(input),
                stack: String::new(),
                conventions: self.sizes.conventions(),
                heads_dim_bits: None,
                plan: None,
            });
        }
        let Some(stack) = &self.stack else {
            bail!("give a stack such as `linear full`, or --message-bits and --state-bits");
        };
        let stack = self.sizes.resolve(stack)?;
        let bounds = StackBounds::new(&stack.plan, stack.convention).with_token_counts(token_counts);
        Ok(BoundOptions {
            input: bounds.input(self.hops),
            conventions: stack.conventions(),
            heads_dim_bits: heads_dim_bits(&stack.plan),
            stack: stack.text,
            plan: Some(stack.plan),
        })
    }

    fn text(&self, options: &BoundOptions, answer: &BoundAnswer) -> anyhow::Result<String> {
        let mut text = String::new();
        let stack = self.stack.as_deref().unwrap_or("the given bits");
        writeln!(text, "{stack}, {}: {} ({})", hops_text(self.hops), answer.verdict, answer.reason)?;
        let (Some(input), Some(bound)) = (&options.input, &answer.smallest_certificate) else { return Ok(text) };
        let certificate = &bound.certificate;
        let log2 = bound.log2_tokens();
        let tokens = if log2 < 60.0 {
            format!("{} tokens = 2^{log2:.2}", with_commas(&bound.accepted.tokens))
        } else {
            format!("2^{log2:.2} tokens")
        };
        writeln!(text, "  from       {tokens} (proved)")?;
        if bound.accepted.trivial {
            writeln!(
                text,
                "  note       trivial: one attention output of {} bits cannot even hold the answer",
                certificate.message_bits
            )?;
        }
        if let (Some(parameters), Some(closed_form)) = (answer.published_log2_tokens, answer.closed_form_log2_tokens) {
            writeln!(
                text,
                "  published  the constants in the published proofs give 2^{parameters:.0} tokens (their parameters), 2^{closed_form:.0} (their closed formula)"
            )?;
        }
        let case = if certificate.case == ProofCase::OneLayerFewer {
            "F = L-1 full layers, blocks anywhere"
        } else {
            "F = L full layers, blocks 0 and 1 empty"
        };
        writeln!(text, "  theorem    {}, case {}: {case}", certificate.theorem.name(), certificate.case.number())?;
        if let Some(inner) = certificate.inner_instance {
            writeln!(text, "  embedding  {} inside these tables, the others constant", hops_text(inner.hops))?;
        }
        if certificate.needs_w_major() {
            writeln!(text, "  tables     list w as the major index")?;
        }
        writeln!(text, "  message    {} bits", with_commas(&input.message_bits))?;
        writeln!(text, "  blocks     {} state bits", join(&certificate.state_bits))?;
        writeln!(text, "  m          {}", format_large_integer(&certificate.m))?;
        for (name, list) in parameters(certificate) {
            if !list.is_empty() {
                writeln!(text, "  {name:<10} {}", join(&list))?;
            }
        }
        match &self.out {
            Some(path) => writeln!(text, "  written to {0}; `rung check {0}` verifies it", path.display())?,
            None => writeln!(text, "  --out FILE writes the certificate, `rung check FILE` verifies it")?,
        }
        Ok(text)
    }
}

fn join(numbers: &[BigUint]) -> String {
    numbers.iter().map(format_large_integer).collect::<Vec<_>>().join(" | ")
}

/// The parameters of a proof with their names in the paper.
fn parameters(certificate: &Certificate) -> Vec<(&'static str, Vec<BigUint>)> {
    let mut parameters = vec![("n", certificate.n.clone())];
    if let Theorem::Product(lists, _) | Theorem::Decomposition(lists) = &certificate.theorem {
        parameters.extend([("x", lists.x.clone()), ("sigma", lists.sigma.clone()), ("kappa", lists.kappa.clone())]);
    }
    match &certificate.theorem {
        Theorem::Product(_, lazy) => {
            parameters.push(("varying", vec![lazy.varying.clone()]));
            if certificate.needs_w_major() {
                parameters.push(("live", lazy.live.clone()));
            }
        }
        Theorem::Cells(cells) => parameters.extend(named_cells(cells)),
        Theorem::CellLists { cells, x, sigma } => {
            parameters.extend(named_cells(cells));
            parameters.extend([("x", x.to_vec()), ("sigma", vec![sigma.clone()])]);
        }
        _ => {}
    }
    parameters
}

fn named_cells(cells: &Cells) -> [(&'static str, Vec<BigUint>); 2] {
    [("cell", vec![cells.cell.clone()]), ("group", vec![cells.group.clone()])]
}
