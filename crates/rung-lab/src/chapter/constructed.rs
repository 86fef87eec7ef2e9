//! The chapter "Constructed": explicit weights that solve a task, beside certificates that one full layer fewer cannot solve it.
//!
//! Every row of the first table has an upper and a lower bound. For the upper bound a network with explicit weights was built and run on
//! all or many instances, and compared with the task's oracle. For the lower bound a certificate was searched for the same layout with one
//! full layer fewer, written out, read back and checked. Then the chapter shows one forward pass as a trace, and three as the communication
//! protocol that the proofs use.

use rung_nn::Network;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, verify};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::{certificate, checker};
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};
use rung_theory::task::{Prompt, seeded};

use super::ChapterOutput;
use crate::artefact::{Artefact, Drawing, Preset, add_figure};
use crate::store::RecordStore;
use rung_figure::Evidence;
use rung_figure::figure::text;
use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_inspect::protocol::ProtocolReport;
use rung_inspect::trace::{AnswerTrace, TraceLimits};
use rung_nn::file::WriteError;
use serde::{Deserialize, Serialize};

/// Model size of the stacks that are proved to fail.
const MODEL_SIZE: Defaults = Defaults { heads: 1, head_dim: 8, kv_heads: None, model_width: None, bits: 32 };

/// Key of the record of the traced forward pass.
const TRACE_KEY: &str = "constructed/trace";
/// Key of the record of the protocols.
const PROTOCOL_KEY: &str = "constructed/protocol";

/// Maximum number of hops in the table of constructions with lower bounds.
const MAX_HOPS: usize = 5;

/// Constructions without a matching lower bound, each with its number of hops.
const OTHER_CONSTRUCTIONS: [(&str, usize); 8] =
    [("U2'", 3), ("U3", 3), ("U4", 8), ("U4-causal", 8), ("U5", 2), ("U6", 3), ("parity", 2), ("parity-retrieval", 2)];

/// A construction to build and verify.
#[derive(Clone, Copy)]
struct ConstructionJob {
    name: &'static str,
    hops: usize,
}

/// A construction that was built and verified.
#[derive(Serialize, Deserialize)]
struct VerifiedConstruction {
    /// The mixers of its layers.
    #[serde(rename = "outline")]
    mixer_names: String,
    /// Spec of the task that it solves.
    task: String,
    /// Number of tokens of a prompt.
    tokens: usize,
    /// Number of emitted tokens: a chain of thought, then the answer. 0 without a chain of thought.
    #[serde(rename = "emitted")]
    emitted_tokens: usize,
    /// Number of instances that were run.
    instances: u64,
    /// Number of correct answers.
    correct: u64,
    /// Whether every instance of the task was run.
    exhaustive: bool,
    /// The command that builds and verifies it.
    command: String,
    /// The lower bound for one full layer fewer, if one was certified.
    #[serde(rename = "fails")]
    reduced_failure: Option<CertifiedFailure>,
}

/// A stack with a certificate that it fails from a prompt length on.
#[derive(Serialize, Deserialize)]
struct CertifiedFailure {
    stack: String,
    /// Prompt length from which on it fails, as the base-2 logarithm of the number of tokens.
    log2_tokens: f64,
    /// Text of the certificate file.
    certificate: String,
}

/// The bits that players receive in one epoch of a protocol: a full layer, or a block of layers with state.
#[derive(Serialize, Deserialize)]
struct EpochMessages {
    construction: String,
    epoch: String,
    /// Bits received by each player.
    #[serde(rename = "crossed")]
    received_bits: Vec<u64>,
    /// The theory's bound on these bits, as text.
    bound: String,
    /// Whether each player gave the same bits when it was run alone on its own tokens and its messages.
    #[serde(rename = "exact")]
    replay_is_equal: bool,
}

fn jobs() -> Vec<ConstructionJob> {
    let jobs_by_hops = (1..=MAX_HOPS).flat_map(|hops| ["U1", "U2"].map(|name| ConstructionJob { name, hops }));
    jobs_by_hops.chain(OTHER_CONSTRUCTIONS.map(|(name, hops)| ConstructionJob { name, hops })).collect()
}

/// Number of records of the chapter, for a progress bar.
pub fn record_count() -> u64 {
    jobs().len() as u64 + 2
}

impl ConstructionJob {
    fn key(&self) -> String {
        format!("constructed/{}-hops{}", self.name.replace('\'', "-prime").to_lowercase(), self.hops)
    }

    fn request(self) -> ConstructionRequest {
        let (m, ratio) = match (self.name, self.hops) {
            (_, 1) => (4, 2),
            ("U4" | "U4-causal", _) => (2, 1),
            _ => (2, 2),
        };
        ConstructionRequest {
            hops: self.hops,
            first_table_entries: m,
            growth_factors: vec![ratio; self.hops - 1],
            ..ConstructionRequest::default()
        }
    }

    fn command(self) -> String {
        let ConstructionRequest { first_table_entries: m, growth_factors: n, .. } = self.request();
        let n = n.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let n = if n.is_empty() { n } else { format!(" --n {n}") };
        format!("rung construct {:?} --hops {} --m {m}{n} --out c", self.name, self.hops)
    }

    /// The layout with one full layer fewer than the construction has, where a lower bound is searched for.
    fn reduced_stack(self) -> Option<String> {
        let Self { name, hops } = self;
        match name {
            "U1" => Some(vec!["full"; hops].join(" ")),
            "U2" => Some(format!("linear{}", " full linear".repeat(hops - 1))),
            _ => None,
        }
    }

    fn compute(self, preset: Preset) -> Result<VerifiedConstruction, String> {
        let network = construct::build::<f32>(self.name, &self.request()).map_err(|error| error.to_string())?;
        let (exhaustive_limit, samples) = if preset == Preset::Full { (1_000_000, 50_000) } else { (20_000, 2_000) };
        let exhaustive =
            network.task.as_ref().and_then(|task| task.instance_count()).is_some_and(|count| count <= exhaustive_limit);
        let instances = if exhaustive { InstanceSet::All } else { InstanceSet::Samples { count: samples, seed: 0 } };
        let verification = verify(&network, instances, 1, &|_| {}).map_err(|error| error.to_string())?;
        let option = if exhaustive { "--exhaustive".to_owned() } else { format!("--samples {samples}") };
        Ok(VerifiedConstruction {
            mixer_names: network.plan.mixer_names(),
            task: network.task().map_err(|error| error.to_string())?.spec(),
            tokens: verification.tokens,
            emitted_tokens: network.chain_of_thought().map_or(0, |chain| chain.emitted_tokens),
            instances: verification.instances,
            correct: verification.correct,
            exhaustive: verification.exhaustive,
            command: format!("{}; rung verify c {option}", self.command()),
            reduced_failure: self.reduced_stack().and_then(|stack| certify_failure(stack, self.hops)),
        })
    }
}

/// Searches for a certificate, writes it as text, parses the text and checks it.
fn certify_failure(stack: String, hops: usize) -> Option<CertifiedFailure> {
    let plan = Plan::parse(&stack, &MODEL_SIZE).ok()?;
    let bound = StackBounds::new(&plan, MessageSizeConvention::Paper).lower_bound(hops).into_certificate()?;
    let conventions = certificate::conventions(&MODEL_SIZE, MessageSizeConvention::Paper);
    let certificate = format!("{:#}\n", certificate::write(&bound.certificate, &stack, &conventions));
    let log2_tokens = check_certificate(&certificate)?;
    Some(CertifiedFailure { stack, log2_tokens, certificate })
}

/// Base-2 logarithm of the tokens of a certificate, if the checker accepts it.
fn check_certificate(text: &str) -> Option<f64> {
    let accepted = checker::check(&certificate::read(text).ok()?).ok()?;
    Some(rung_theory::bound::input::log2(&accepted.tokens))
}

/// Computes the chapter's records. `on_record` is called after each record.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &RecordStore, on_record: &(dyn Fn() + Sync)) -> Result<(), WriteError> {
    store.write_all(&jobs(), ConstructionJob::key, |job| job.compute(store.preset()), on_record)?;
    store.write(TRACE_KEY, &trace_forward_pass())?;
    on_record();
    store.write(PROTOCOL_KEY, &run_protocols())?;
    on_record();
    Ok(())
}

/// Writes the chapter from its records.
pub fn render(store: &RecordStore) -> ChapterOutput {
    let mut chapter = Chapter::new("constructed", "Constructed");
    let mut artefacts = Vec::new();
    chapter.paragraph(
        "A certificate shows that no weights solve a task; a construction gives weights that do. Each is an ordinary network: \
         softmax attention with a finite temperature, recurrent mixers with all their gates and norms, ReLU MLPs, residuals, an \
         unembedding. Nothing was trained. Each was run against the oracle of its task, on every instance where they are few and \
         on samples where they are many.",
    );
    let read_result = |job: ConstructionJob| Some((job, store.read_outcome(&job.key(), &mut chapter)?));
    let results: Vec<(ConstructionJob, VerifiedConstruction)> = jobs().into_iter().filter_map(read_result).collect();
    render_two_sided_table(&mut chapter, &mut artefacts, &results);
    render_other_constructions(&mut chapter, &results);
    render_trace(&mut chapter, &mut artefacts, store);
    render_protocols(&mut chapter, store);
    let correct_count = results.iter().filter(|(_, verified)| verified.correct == verified.instances).count();
    let instances: u64 = results.iter().map(|(_, verified)| verified.instances).sum();
    let summary = format!(
        "{correct_count} of {} constructions right on all of their instances, {instances} in all.",
        results.len()
    );
    ChapterOutput { chapter, summary, artefacts }
}

/// "4096 of 4096 right, all instances".
fn verification_text(verified: &VerifiedConstruction) -> String {
    let coverage = if verified.exhaustive { "all instances" } else { "sampled" };
    format!("{} of {} right, {coverage}", verified.correct, verified.instances)
}

/// Constructions with a certificate for one full layer fewer.
fn render_two_sided_table(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    results: &[(ConstructionJob, VerifiedConstruction)],
) {
    chapter.heading("Constructions, and certificates for one full layer fewer");
    let columns = [
        Column::number("hops"),
        Column::text("solves"),
        Column::text("by"),
        Column::text("verified"),
        Column::text("one full layer fewer"),
        Column::number("fails from, tokens"),
    ];
    let mut table = Table::new("Hops that a stack solves, and the same hops with one full layer fewer", columns);
    for (job, verified) in results.iter().filter(|(job, _)| job.reduced_stack().is_some()) {
        let failure = verified.reduced_failure.as_ref();
        let (reduced_stack, fails_from) =
            match failure.filter(|failure| check_certificate(&failure.certificate).is_some()) {
                Some(CertifiedFailure { stack, log2_tokens, certificate }) => {
                    let path = format!("certificates/constructed-{}-hops{}.json", job.name.to_lowercase(), job.hops);
                    artefacts.push(Artefact { path, bytes: certificate.clone().into_bytes() });
                    (
                        TableCell::code(stack),
                        TableCell::from(text::power(2, (log2_tokens * 10.0).round() / 10.0))
                            .with_evidence(Evidence::Proved),
                    )
                }
                None => (TableCell::code(job.reduced_stack().unwrap_or_default()), TableCell::from("not certified")),
            };
        table.row([
            TableCell::from(job.hops.to_string()),
            TableCell::code(&verified.mixer_names),
            TableCell::from(job.name),
            TableCell::from(verification_text(verified)).with_evidence(Evidence::Constructed),
            reduced_stack,
            fails_from,
        ]);
    }
    chapter.table(table);
    let example = results.iter().find(|(job, _)| job.name == "U2" && job.hops == 2);
    chapter.command(example.map_or_else(String::new, |(_, verified)| verified.command.clone()));
    chapter.command("rung check certificates/constructed-u2-hops2.json");
    chapter.note(
        Prose::new()
            .text("The two sides are about different sizes. A construction is as wide as its tables need, and was run on tables of \
                   a few entries; the same recipe builds one for larger tables. A certificate is for stacks of ")
            .text(format!("{} head of {} and {} bits per number, ", MODEL_SIZE.heads, MODEL_SIZE.head_dim, MODEL_SIZE.bits))
            .text("and says that some tables with this many tokens are impossible for all weights of that size."),
    );
}

fn render_other_constructions(chapter: &mut Chapter, results: &[(ConstructionJob, VerifiedConstruction)]) {
    chapter.heading("Other constructions");
    let columns = [
        Column::text("construction"),
        Column::text("stack"),
        Column::text("task"),
        Column::number("tokens"),
        Column::number("emitted tokens, the answer included"),
        Column::text("verified"),
    ];
    let mut table = Table::new("Chain of thought, bidirectional attention, 2-Sum, and state tracking", columns);
    for (job, verified) in results.iter().filter(|(job, _)| job.reduced_stack().is_none()) {
        table.row([
            TableCell::from(job.name),
            TableCell::code(&verified.mixer_names),
            TableCell::code(&verified.task),
            TableCell::from(verified.tokens.to_string()),
            TableCell::from(verified.emitted_tokens.to_string()),
            TableCell::from(verification_text(verified)).with_evidence(Evidence::Constructed),
        ]);
    }
    chapter.table(table);
    chapter.command("rung construct list");
}

/// A construction for two hops, and the tokens of a prompt for it.
fn two_hop_construction(name: &str) -> Result<(Network<f32>, Vec<u32>), String> {
    let network = construct::build::<f32>(name, &ConstructionRequest::default()).map_err(|error| error.to_string())?;
    let mut prompt = Prompt::new();
    network.task().map_err(|error| error.to_string())?.sample_prompt(&mut seeded(0), &mut prompt);
    Ok((network, prompt.tokens().to_vec()))
}

fn trace_forward_pass() -> Result<Drawing, String> {
    let (network, prompt) = two_hop_construction("U2'")?;
    let trace = AnswerTrace::record("U2'", &network, &prompt, None, TraceLimits::default());
    trace.map(|trace| Drawing::new(&trace)).map_err(|error| error.to_string())
}

fn render_trace(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &RecordStore) {
    chapter.heading("One forward pass");
    let Some(trace) = store.read_outcome::<Drawing>(TRACE_KEY, chapter) else { return };
    let caption = "Two hops with a full layer, a linear one and a full one. The token of the start value looks it up; the state passes \
                   the result on to the query; the query looks that up. Attention weights are those of the forward pass.";
    let command = "rung construct \"U2'\" --out c; rung trace c --svg trace.svg";
    add_figure(chapter, artefacts, "trace", &trace, caption, command);
}

fn run_protocols() -> Result<Vec<EpochMessages>, String> {
    let mut rows = Vec::new();
    for name in ["U1", "U2", "U2'"] {
        let (network, prompt) = two_hop_construction(name)?;
        let report = ProtocolReport::measure(name, &network, &prompt, None).map_err(|error| error.to_string())?;
        rows.extend(report.epochs.iter().map(|epoch| EpochMessages {
            construction: name.to_owned(),
            epoch: epoch.name.clone(),
            received_bits: epoch.received_bits.clone(),
            bound: epoch.bound(),
            replay_is_equal: report.is_exact(),
        }));
    }
    Ok(rows)
}

fn render_protocols(chapter: &mut Chapter, store: &RecordStore) {
    chapter.heading("The same as a communication protocol");
    chapter.paragraph(
        "The proofs treat a forward pass as a communication protocol: the player with the entries of z_2 sends messages to the player \
         with z_1, and so on to the query, and the number of bits that cross each border is bounded. Here the networks were run as that \
         protocol: each message was packed into bits and counted, and each player was run again with only its own tokens and messages.",
    );
    let columns = [
        Column::text("construction"),
        Column::text("epoch"),
        Column::number("into z1"),
        Column::number("into z0"),
        Column::number("into w"),
        Column::text("the theory's bound"),
        Column::text("replay"),
    ];
    let mut table = Table::new("Bits received by each player, on one prompt of two hops, numbers of 32 bits", columns);
    let Some(rows) = store.read_outcome::<Vec<EpochMessages>>(PROTOCOL_KEY, chapter) else { return };
    for EpochMessages { construction, epoch, received_bits, bound, replay_is_equal } in rows {
        let replay = if replay_is_equal { "same bits" } else { "other bits" };
        let mut row = vec![TableCell::from(construction), TableCell::from(epoch)];
        row.extend(
            received_bits.iter().map(|bits| TableCell::from(bits.to_string()).with_evidence(Evidence::Measured)),
        );
        row.extend([TableCell::from(bound), TableCell::from(replay)]);
        table.row(row);
    }
    chapter.table(table);
    chapter.command("rung construct U2 --out c; rung protocol c");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructions_are_right_and_certified_with_one_full_layer_fewer() {
        for name in ["U1", "U2"] {
            let verified = ConstructionJob { name, hops: 2 }.compute(Preset::Quick).unwrap();
            assert_eq!(verified.correct, verified.instances);
            assert!(verified.exhaustive && verified.instances == 4096);
            let CertifiedFailure { stack, log2_tokens, .. } = verified.reduced_failure.unwrap();
            let [reduced, complete] =
                [&stack, &verified.mixer_names].map(|stack| Plan::parse(stack, &MODEL_SIZE).unwrap());
            assert!(
                reduced.full_layers() + 1 == complete.full_layers() && log2_tokens > 4.0,
                "{stack} from 2^{log2_tokens}"
            );
        }
    }
}
