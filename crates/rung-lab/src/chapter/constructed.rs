//! "Constructed": weights that do it, run against the oracle, beside certificates for one full layer fewer.
//!
//! Every row of the first table has evidence on both sides. On one, a network with explicit weights was built and run on all or
//! many instances. On the other, the same layout with a full layer taken away has a certificate, which was searched for, written
//! out, read back and checked. Then one forward pass as a picture, and three as the conversation that the proofs speak of.

use rung_nn::Network;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, verify};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::{certificate, checker};
use rung_theory::stack::{Convention, Defaults, Plan};
use rung_theory::task::{Prompt, seeded};

use super::ChapterOutput;
use crate::artefact::{Artefact, Drawing, Preset, figure_files};
use crate::store::EvidenceStore;
use rung_figure::Evidence;
use rung_figure::figure::text;
use rung_figure::report::{Chapter, Column, Figure, Prose, Table, TableCell};
use rung_inspect::protocol::ProtocolReport;
use rung_inspect::trace::{Picture, TraceLimits};
use rung_nn::file::WriteError;
use serde::{Deserialize, Serialize};

/// Sizes of the stacks that are proved to fail.
const SIZES: Defaults = Defaults { heads: 1, head_dim: 8, kv_heads: None, model_width: None, bits: 32 };

/// The record of the forward pass that is drawn.
const TRACE: &str = "constructed/trace";
/// The record of the protocols.
const PROTOCOL: &str = "constructed/protocol";

/// Most hops of the ladder.
const HOPS: usize = 5;

/// Constructions beside the ladder, with the hops they are shown at.
const OTHERS: [(&str, usize); 8] =
    [("U2'", 3), ("U3", 3), ("U4", 8), ("U4-causal", 8), ("U5", 2), ("U6", 3), ("parity", 2), ("parity-retrieval", 2)];

/// One thing to verify.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    hops: usize,
}

/// A construction that was built and verified.
#[derive(Serialize, Deserialize)]
struct VerifiedConstruction {
    /// Its layers.
    outline: String,
    /// What it solves.
    task: String,
    /// Tokens of a prompt.
    tokens: usize,
    /// Tokens of a chain of thought before the answer.
    emitted: usize,
    /// Instances that were run.
    instances: u64,
    /// Those answered rightly.
    correct: u64,
    /// Whether these are all instances.
    exhaustive: bool,
    /// What builds and verifies it.
    command: String,
    /// The layout with one full layer fewer, and from where on that fails.
    fails: Option<CertifiedFailure>,
}

/// A stack that is proved to fail.
#[derive(Serialize, Deserialize)]
struct CertifiedFailure {
    stack: String,
    log2_tokens: f64,
    certificate: String,
}

/// What crossed each border in one epoch of a protocol.
#[derive(Serialize, Deserialize)]
struct EpochBits {
    construction: String,
    epoch: String,
    crossed: Vec<u64>,
    bound: String,
    /// Whether each player, run alone, gave the same bits.
    exact: bool,
}

fn jobs() -> Vec<Job> {
    let ladder = (1..=HOPS).flat_map(|hops| ["U1", "U2"].map(|name| Job { name, hops }));
    ladder.chain(OTHERS.map(|(name, hops)| Job { name, hops })).collect()
}

/// How many records the chapter has, for a progress bar.
pub fn units() -> u64 {
    jobs().len() as u64 + 2
}

impl Job {
    fn key(&self) -> String {
        format!("constructed/{}-hops{}", self.name.replace('\'', "-prime").to_lowercase(), self.hops)
    }

    fn request(self) -> ConstructionRequest {
        let (m, growth) = match (self.name, self.hops) {
            (_, 1) => (4, 2),
            ("U4" | "U4-causal", _) => (2, 1),
            _ => (2, 2),
        };
        ConstructionRequest { hops: self.hops, m, n: vec![growth; self.hops - 1], ..ConstructionRequest::default() }
    }

    fn command(self) -> String {
        let ConstructionRequest { m, n, .. } = self.request();
        let n = n.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let n = if n.is_empty() { n } else { format!(" --n {n}") };
        format!("rung construct {:?} --hops {} --m {m}{n} --out c", self.name, self.hops)
    }

    /// The layout of the ladder with one full layer fewer than the construction has.
    fn shorter(self) -> Option<String> {
        let Self { name, hops } = self;
        match name {
            "U1" => Some(vec!["full"; hops].join(" ")),
            "U2" => Some(format!("linear{}", " full linear".repeat(hops - 1))),
            _ => None,
        }
    }

    fn compute(self, preset: Preset) -> Result<VerifiedConstruction, String> {
        let built = construct::build::<f32>(self.name, &self.request()).map_err(|error| error.to_string())?;
        let (few, samples) = if preset == Preset::Full { (1_000_000, 50_000) } else { (20_000, 2_000) };
        let all = built.task.as_ref().and_then(|task| task.instances()).is_some_and(|count| count <= few);
        let which = if all { InstanceSet::All } else { InstanceSet::Samples { count: samples, seed: 0 } };
        let found = verify(&built, which, 1, &|_| {}).map_err(|error| error.to_string())?;
        let how = if all { "--exhaustive".to_owned() } else { format!("--samples {samples}") };
        Ok(VerifiedConstruction {
            outline: built.plan.outline(),
            task: built.task().map_err(|error| error.to_string())?.spec(),
            tokens: found.tokens,
            emitted: built.chain_of_thought().map_or(0, |thoughts| thoughts.count),
            instances: found.instances,
            correct: found.correct,
            exhaustive: found.exhaustive,
            command: format!("{}; rung verify c {how}", self.command()),
            fails: self.shorter().and_then(|stack| certified(stack, self.hops)),
        })
    }
}

/// Searches for a certificate, writes it, reads the text back and checks that.
fn certified(stack: String, hops: usize) -> Option<CertifiedFailure> {
    let plan = Plan::parse(&stack, &SIZES).ok()?;
    let found = StackBounds::new(&plan, Convention::Paper).lower_bound(hops).into_certificate()?;
    let conventions = certificate::conventions(&SIZES, Convention::Paper);
    let certificate = format!("{:#}\n", certificate::write(&found.certificate, &stack, &conventions));
    let log2_tokens = check_certificate(&certificate)?;
    Some(CertifiedFailure { stack, log2_tokens, certificate })
}

/// log2 tokens of a certificate that the checker accepts.
fn check_certificate(text: &str) -> Option<f64> {
    let accepted = checker::check(&certificate::read(text).ok()?).ok()?;
    Some(rung_theory::bound::input::log2(&accepted.tokens))
}

/// Computes the chapter's evidence. `tick` is called after each record.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &EvidenceStore, tick: &(dyn Fn() + Sync)) -> Result<(), WriteError> {
    store.write_all(&jobs(), Job::key, |job| job.compute(store.preset()), tick)?;
    store.write(TRACE, &trace_forward_pass())?;
    tick();
    store.write(PROTOCOL, &run_protocols())?;
    tick();
    Ok(())
}

/// Draws the chapter from its records.
pub fn render(store: &EvidenceStore) -> ChapterOutput {
    let mut chapter = Chapter::new("constructed", "Constructed");
    let mut artefacts = Vec::new();
    chapter.paragraph(
        "Where a certificate says that no weights can do it, a construction says which weights do. Each is an ordinary network: \
         softmax attention with a finite temperature, recurrent mixers with all their gates and norms, ReLU MLPs, residuals, an \
         unembedding. Nothing was trained. Each was run against the oracle of its task, on every instance where they are few and \
         on samples where they are many.",
    );
    let read = |job: Job| Some((job, store.read_outcome(&job.key(), &mut chapter)?));
    let done: Vec<(Job, VerifiedConstruction)> = jobs().into_iter().filter_map(read).collect();
    ladder(&mut chapter, &mut artefacts, &done);
    others(&mut chapter, &done);
    trace(&mut chapter, &mut artefacts, store);
    protocol(&mut chapter, store);
    let right = done.iter().filter(|(_, verified)| verified.correct == verified.instances).count();
    let instances: u64 = done.iter().map(|(_, verified)| verified.instances).sum();
    let summary =
        format!("{right} of {} constructions right on all of their instances, {instances} in all.", done.len());
    ChapterOutput { chapter, summary, artefacts }
}

fn share(found: &VerifiedConstruction) -> String {
    let how = if found.exhaustive { "all instances" } else { "sampled" };
    format!("{} of {} right, {how}", found.correct, found.instances)
}

fn ladder(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, done: &[(Job, VerifiedConstruction)]) {
    chapter.heading("The ladder, with evidence on both sides");
    let columns = [
        Column::number("hops"),
        Column::text("solves"),
        Column::text("by"),
        Column::text("verified"),
        Column::text("one full layer fewer"),
        Column::number("fails from, tokens"),
    ];
    let mut table = Table::new("What a stack composes, and what it does not with one full layer fewer", columns);
    for (job, verified) in done.iter().filter(|(job, _)| job.shorter().is_some()) {
        let (stack, fails) =
            match verified.fails.as_ref().filter(|fails| check_certificate(&fails.certificate).is_some()) {
                Some(CertifiedFailure { stack, log2_tokens, certificate }) => {
                    let path = format!("certificates/ladder-{}-hops{}.json", job.name.to_lowercase(), job.hops);
                    artefacts.push(Artefact { path, bytes: certificate.clone().into_bytes() });
                    (
                        TableCell::code(stack),
                        TableCell::from(text::power(2, (log2_tokens * 10.0).round() / 10.0)).known(Evidence::Proved),
                    )
                }
                None => (TableCell::code(job.shorter().unwrap_or_default()), TableCell::from("not certified")),
            };
        table.row([
            TableCell::from(job.hops.to_string()),
            TableCell::code(&verified.outline),
            TableCell::from(job.name),
            TableCell::from(share(verified)).known(Evidence::Constructed),
            stack,
            fails,
        ]);
    }
    chapter.table(table);
    let example = done.iter().find(|(job, _)| job.name == "U2" && job.hops == 2);
    chapter.command(example.map_or_else(String::new, |(_, verified)| verified.command.clone()));
    chapter.command("rung check certificates/ladder-u2-hops2.json");
    chapter.note(
        Prose::new()
            .text("The two sides are about different sizes. A construction is as wide as its tables need, and was run on tables of \
                   a few entries; the same recipe builds one for larger tables. A certificate is for stacks of ")
            .text(format!("{} head of {} and {} bits per number, ", SIZES.heads, SIZES.head_dim, SIZES.bits))
            .text("and says that some tables in so many tokens are out of reach for all weights of that size."),
    );
}

fn others(chapter: &mut Chapter, done: &[(Job, VerifiedConstruction)]) {
    chapter.heading("Other ways up");
    let columns = [
        Column::text("construction"),
        Column::text("stack"),
        Column::text("task"),
        Column::number("tokens"),
        Column::number("emitted"),
        Column::text("verified"),
    ];
    let mut table = Table::new("Thoughts, both directions, 2-Sum, and what recurrences do better", columns);
    for (job, verified) in done.iter().filter(|(job, _)| job.shorter().is_none()) {
        table.row([
            TableCell::from(job.name),
            TableCell::code(&verified.outline),
            TableCell::code(&verified.task),
            TableCell::from(verified.tokens.to_string()),
            TableCell::from(verified.emitted.to_string()),
            TableCell::from(share(verified)).known(Evidence::Constructed),
        ]);
    }
    chapter.table(table);
    chapter.command("rung construct list");
}

/// A construction for two hops, and a prompt for it.
fn two_hops(name: &str) -> Result<(Network<f32>, Vec<u32>), String> {
    let built = construct::build::<f32>(name, &ConstructionRequest::default()).map_err(|error| error.to_string())?;
    let mut prompt = Prompt::new();
    built.task().map_err(|error| error.to_string())?.prompt(&mut seeded(0), &mut prompt);
    Ok((built, prompt.tokens().to_vec()))
}

fn trace_forward_pass() -> Result<Drawing, String> {
    let (built, prompt) = two_hops("U2'")?;
    let picture = Picture::take("U2'", &built, &prompt, None, TraceLimits::default());
    picture.map(|picture| Drawing::of(&picture)).map_err(|error| error.to_string())
}

fn trace(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &EvidenceStore) {
    chapter.heading("One forward pass");
    let Some(picture) = store.read_outcome::<Drawing>(TRACE, chapter) else { return };
    artefacts.extend(figure_files("trace", &picture));
    let caption = "Two hops with a full layer, a linear one and a full one. The start value looks itself up; the state hands what \
                   it found to the query; the query looks that up. Weights are those of the forward pass itself.";
    chapter.figure(Figure::new(
        &picture,
        caption,
        "rung construct \"U2'\" --out c; rung trace c --svg trace.svg",
        "trace.csv",
    ));
}

fn run_protocols() -> Result<Vec<EpochBits>, String> {
    let mut rows = Vec::new();
    for name in ["U1", "U2", "U2'"] {
        let (built, prompt) = two_hops(name)?;
        let ledger = ProtocolReport::keep(name, &built, &prompt, None).map_err(|error| error.to_string())?;
        rows.extend(ledger.epochs.iter().map(|epoch| EpochBits {
            construction: name.to_owned(),
            epoch: epoch.name.clone(),
            crossed: epoch.crossed.clone(),
            bound: epoch.bound(),
            exact: ledger.exact(),
        }));
    }
    Ok(rows)
}

fn protocol(chapter: &mut Chapter, store: &EvidenceStore) {
    chapter.heading("The same as a conversation");
    chapter.paragraph(
        "The proofs see a forward pass as a conversation: whoever holds the entries of z_2 speaks to whoever holds z_1, and so on \
         to the query, and only so many bits cross each border. Here the networks really were run like that, each message was \
         packed into bits and counted, and each player was run again alone, with its own tokens and its messages and nothing else.",
    );
    let columns = [
        Column::text("construction"),
        Column::text("epoch"),
        Column::number("into z1"),
        Column::number("into z0"),
        Column::number("into w"),
        Column::text("the theory's count"),
        Column::text("replay"),
    ];
    let mut table = Table::new("Bits that crossed, on one prompt of two hops, numbers of 32 bits", columns);
    let Some(rows) = store.read_outcome::<Vec<EpochBits>>(PROTOCOL, chapter) else { return };
    for EpochBits { construction, epoch, crossed, bound, exact } in rows {
        let replay = if exact { "same bits" } else { "other bits" };
        let mut row = vec![TableCell::from(construction), TableCell::from(epoch)];
        row.extend(crossed.iter().map(|bits| TableCell::from(bits.to_string()).known(Evidence::Measured)));
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
    fn jobs_of_the_ladder_have_both_sides() {
        for name in ["U1", "U2"] {
            let verified = Job { name, hops: 2 }.compute(Preset::Quick).unwrap();
            assert_eq!(verified.correct, verified.instances);
            assert!(verified.exhaustive && verified.instances == 4096);
            let CertifiedFailure { stack, log2_tokens, .. } = verified.fails.unwrap();
            let [shorter, own] = [&stack, &verified.outline].map(|stack| Plan::parse(stack, &SIZES).unwrap());
            assert!(
                shorter.full_layers() + 1 == own.full_layers() && log2_tokens > 4.0,
                "{stack} from 2^{log2_tokens}"
            );
        }
    }
}
