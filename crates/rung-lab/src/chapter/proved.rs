//! "Proved": what no weights can do, with certificates; and what a stack's layout is worth.
//!
//! Every certificate in the chapter is searched for, recorded as text, read back from that text and checked. The chapter shows only
//! what the checker accepted.

use rung_theory::bound::sparse::Sparse;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::{certificate, checker, papers};
use rung_theory::stack::{Convention, Defaults, Plan};

use super::{ChapterOutput, gap};
use crate::artefact::{Artefact, Preset, figure_files};
use crate::hop_map::{self, MapRow};
use crate::store::EvidenceStore;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series, text};
use rung_figure::report::{Chapter, Column, Figure, Prose, Table, TableCell};
use rung_nn::file::WriteError;
use serde::{Deserialize, Serialize};

/// A model size and the linear layers in each of its blocks.
#[derive(Clone, Copy)]
struct Model {
    heads: u64,
    head: u64,
    bits: u64,
    linear: u64,
}

const MODELS: [Model; 4] = [
    Model { heads: 1, head: 4, bits: 4, linear: 1 },
    Model { heads: 1, head: 8, bits: 4, linear: 1 },
    Model { heads: 1, head: 8, bits: 8, linear: 3 },
    Model { heads: 16, head: 128, bits: 16, linear: 3 },
];

/// The last of them, at which maps and the gap are drawn.
const LARGEST: Model = MODELS[3];

/// Numbers of hops in a map.
const MAPPED_HOPS: std::ops::RangeInclusive<usize> = 1..=5;

/// Powers of two that the values of 2-Sum are taken modulo.
const SPARSE_VALUES: [u32; 3] = [10, 16, 20];

/// Stacks whose map is drawn: the smallest hybrid, a hybrid of today's rhythm, and full attention only.
const MAPPED: [(&str, &str); 3] = [
    ("linear*3 full linear*3", "one full layer among linear ones"),
    ("(gdn*3 full)*2", "two groups of three Gated DeltaNet layers and a full one"),
    ("full full full", "three full layers"),
];

/// Stacks whose rungs are counted.
const COUNTED: [&str; 8] = [
    "linear full",
    "full full",
    "full linear full",
    "linear full full",
    "full full full",
    "full full full linear*9",
    "mamba2*48",
    "(gdn*3 full)*12",
];

impl Model {
    fn defaults(self) -> Defaults {
        Defaults { heads: self.heads, head_dim: self.head, bits: self.bits, ..Defaults::default() }
    }

    /// `hops - 1` full layers with linear ones in every block (case 1), or `hops` with none in blocks 0 and 1 (case 0).
    fn stack(self, case: u8, hops: usize) -> String {
        let linear = if self.linear == 1 { "linear".to_owned() } else { format!("linear*{}", self.linear) };
        match case {
            1 => format!("{linear}{}", format!(" full {linear}").repeat(hops - 1)),
            _ => format!("full{}", format!(" full {linear}").repeat(hops - 1)),
        }
    }

    fn flags(self) -> String {
        format!("--heads {} --head-dim {} --bits {}", self.heads, self.head, self.bits)
    }
}

/// A certificate to search for.
#[derive(Clone, Copy)]
struct Search {
    model: Model,
    case: u8,
    hops: usize,
}

impl Search {
    fn name(&self) -> String {
        let Model { heads, head, bits, .. } = self.model;
        format!("h{heads}-d{head}-p{bits}-case{}-hops{}", self.case, self.hops)
    }

    fn stack(&self) -> String {
        self.model.stack(self.case, self.hops)
    }

    fn compute(&self) -> Outcome {
        let stack = self.stack();
        let plan = Plan::parse(&stack, &self.model.defaults()).map_err(|error| error.to_string())?;
        let found = StackBounds::new(&plan, Convention::Paper).lower_bound(self.hops).into_certificate();
        let conventions = certificate::conventions(&self.model.defaults(), Convention::Paper);
        let written = found.map(|found| FoundCertificate {
            log2_tokens: found.log2_tokens(),
            certificate: format!("{:#}\n", certificate::write(&found.certificate, &stack, &conventions)),
        });
        Ok(RecordContent::Certificate(written))
    }
}

/// A certificate as it was found.
#[derive(Serialize, Deserialize)]
struct FoundCertificate {
    log2_tokens: f64,
    certificate: String,
}

/// A row of the capacity table.
#[derive(Serialize, Deserialize)]
struct CountedStack {
    stack: String,
    full_layers: usize,
    extra_hop: bool,
    rungs: usize,
    at_least: usize,
}

/// One piece of work: a record.
enum Job {
    Capacity,
    Certificate(Search),
    MapRow(usize, usize),
    Gap,
    Sparse,
}

/// What a record holds.
#[derive(Serialize, Deserialize)]
enum RecordContent {
    Capacity(Vec<CountedStack>),
    Certificate(Option<FoundCertificate>),
    MapRow(MapRow),
    Gap(gap::GapLines),
    /// For each power of two that values are taken modulo: tokens in a block, and the bits that its summary needs.
    Sparse(Vec<(u32, Vec<(f64, f64)>)>),
}

type Outcome = Result<RecordContent, String>;

impl Job {
    fn key(&self) -> String {
        match self {
            Self::Capacity => "proved/capacity".to_owned(),
            Self::Certificate(search) => format!("proved/{}", search.name()),
            Self::MapRow(stack, hops) => format!("proved/map-{}-hops{hops}", stack + 1),
            Self::Gap => "proved/gap".to_owned(),
            Self::Sparse => "proved/sparse".to_owned(),
        }
    }

    fn compute(&self, preset: Preset) -> Outcome {
        match self {
            Self::Capacity => count_stacks().map(RecordContent::Capacity),
            Self::Certificate(search) => search.compute(),
            Self::MapRow(stack, hops) => {
                let plan = mapped_plan(*stack)?;
                Ok(RecordContent::MapRow((&hop_map::rung(&StackBounds::new(&plan, Convention::Paper), *hops)).into()))
            }
            Self::Gap => {
                let plan = |hops| Plan::parse(&LARGEST.stack(1, hops), &LARGEST.defaults()).ok();
                let product = u128::from(LARGEST.heads * LARGEST.head * LARGEST.bits);
                Ok(RecordContent::Gap(gap::GapLines::compute(2..=most_hops(preset), plan, product)))
            }
            Self::Sparse => {
                Ok(RecordContent::Sparse(SPARSE_VALUES.map(|power| (power, sparse_points(1 << power))).into()))
            }
        }
    }
}

fn most_hops(preset: Preset) -> usize {
    if preset == Preset::Full { 8 } else { 4 }
}

fn searches(preset: Preset) -> Vec<Search> {
    let of_model = |model: Model| {
        let of_case = move |case| (2..=most_hops(preset)).map(move |hops| Search { model, case, hops });
        [1, 0].into_iter().flat_map(of_case)
    };
    MODELS.into_iter().flat_map(of_model).collect()
}

fn jobs(preset: Preset) -> Vec<Job> {
    let certificates = searches(preset).into_iter().map(Job::Certificate);
    let maps = (0..MAPPED.len()).flat_map(|stack| MAPPED_HOPS.map(move |hops| Job::MapRow(stack, hops)));
    certificates.chain(maps).chain([Job::Capacity, Job::Gap, Job::Sparse]).collect()
}

/// How many records the chapter has, for a progress bar.
pub fn units(preset: Preset) -> u64 {
    jobs(preset).len() as u64
}

fn mapped_plan(index: usize) -> Result<Plan, String> {
    Plan::parse(MAPPED[index].0, &LARGEST.defaults()).map_err(|error| error.to_string())
}

/// Computes the chapter's evidence. `tick` is called after each record.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &EvidenceStore, tick: &(dyn Fn() + Sync)) -> Result<(), WriteError> {
    store.write_all(&jobs(store.preset()), Job::key, |job| job.compute(store.preset()), tick)
}

/// Draws the chapter from its records.
pub fn render(store: &EvidenceStore) -> ChapterOutput {
    let mut artefacts = Vec::new();
    let mut chapter = Chapter::new("proved", "Proved");
    introduction(&mut chapter);
    capacity_table(&mut chapter, store);
    let (checked, certified) = certificate_table(&mut chapter, &mut artefacts, store);
    gap_figure(&mut chapter, &mut artefacts, store, certified);
    maps(&mut chapter, &mut artefacts, store);
    sparse_curve(&mut chapter, &mut artefacts, store);
    conventions(&mut chapter);
    let summary = format!("{checked} certificates found, written, read back and checked.");
    ChapterOutput { chapter, summary, artefacts }
}

fn introduction(chapter: &mut Chapter) {
    chapter.paragraph(
        "The task is function composition: the prompt lists tables z_L, .., z_1, then a start value z_0 and a query w, and the \
         answer is found by L look-ups, each of which needs the result of the one before. A full-attention layer can do one \
         look-up. A layer with a state of fixed size (linear attention, Mamba, DeltaNet, RWKV, a sliding window) cannot look \
         anything up in a table larger than its state, but it can hand a value to the next token.",
    );
    chapter.paragraph(
        "So a stack with F full layers composes at most F + c - 1 tables when they are large, where c is 1 if a layer with state \
         stands before the first full layer or between the first and the second, and 0 otherwise. We call this number its \
         rungs. That it can be reached is shown by explicit weights; that it cannot be passed is shown by certificates: integers \
         with which a proof goes through for one table size, whatever the weights.",
    );
}

fn count_stacks() -> Result<Vec<CountedStack>, String> {
    let count = |stack: &&str| {
        let capacity = Plan::parse(stack, &Defaults::default()).map_err(|error| error.to_string())?.capacity();
        Ok(CountedStack {
            stack: (*stack).to_owned(),
            full_layers: capacity.full,
            extra_hop: capacity.extra_hop,
            rungs: capacity.rungs,
            at_least: capacity.at_least,
        })
    };
    COUNTED.iter().map(count).collect()
}

fn capacity_table(chapter: &mut Chapter, store: &EvidenceStore) {
    chapter.heading("What a layout is worth");
    let columns = [
        Column::text("stack"),
        Column::number("full layers"),
        Column::number("extra hop"),
        Column::number("at most"),
        Column::number("at least"),
    ];
    let mut table = Table::new("Rungs: hops of function composition in one forward pass, for large tables", columns);
    let Some(RecordContent::Capacity(rows)) = store.read_outcome(&Job::Capacity.key(), chapter) else { return };
    for row in rows {
        table.row([
            TableCell::code(row.stack),
            TableCell::from(row.full_layers.to_string()),
            TableCell::from(usize::from(row.extra_hop).to_string()),
            TableCell::from(row.rungs.to_string()).known(Evidence::Proved),
            TableCell::from(row.at_least.to_string()).known(Evidence::Constructed),
        ]);
    }
    chapter.table(table);
    chapter.command("rung capacity \"full linear full\"");
}

/// How many certificates were accepted; and for the largest model, hops and log2 tokens of those of the first case.
fn certificate_table(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    store: &EvidenceStore,
) -> (usize, Vec<(usize, f64)>) {
    chapter.heading("From how many tokens on it is impossible");
    chapter.paragraph(
        "For each model size, stack and number of hops: the shortest prompt for which we certify that no weights compose all \
         tables that fit in it. A star marks points that are true but trivial, because one message has fewer bits than an \
         answer. The papers prove the same for far longer prompts, since their parameters are chosen for a short proof.",
    );
    let columns = [
        Column::text("heads x width, bits"),
        Column::text("stack"),
        Column::number("hops"),
        Column::number("tokens"),
        Column::number("by the papers' parameters"),
    ];
    let mut table = Table::new("Certified lower bounds, each read back from its file and checked", columns);
    let (mut checked, mut largest) = (0, Vec::new());
    for search in searches(store.preset()) {
        let Search { model, case, hops } = search;
        let stack = search.stack();
        let key = Job::Certificate(search).key();
        let Some(RecordContent::Certificate(found)) = store.read_outcome(&key, chapter) else { continue };
        let accepted = found.as_ref().and_then(|found| accepted(&found.certificate));
        let cell = match (found, accepted) {
            (Some(found), Some((log2_tokens, trivial))) => {
                checked += 1;
                if case == 1 && model.heads == LARGEST.heads {
                    largest.push((hops, found.log2_tokens));
                }
                let path = format!("certificates/{}.json", search.name());
                artefacts.push(Artefact { path, bytes: found.certificate.into_bytes() });
                let star = if trivial { " *" } else { "" };
                TableCell::from(format!("{}{star}", text::power(2, log2_tokens))).known(Evidence::Proved)
            }
            _ => TableCell::from("not certified"),
        };
        let product = u128::from(model.heads * model.head * model.bits);
        table.row([
            TableCell::from(format!("{} x {}, {}", model.heads, model.head, model.bits)),
            TableCell::code(stack),
            TableCell::from(hops.to_string()),
            cell,
            TableCell::from(text::power(2, papers::own_parameters(product, hops).round())),
        ]);
    }
    chapter.table(table);
    let model = LARGEST;
    chapter.command(format!("rung bound \"{}\" --hops 2 {} --out certificate.json", model.stack(1, 2), model.flags()));
    chapter.command("rung check certificate.json");
    chapter.paragraph("The certificates of this table are in the folder certificates beside this report.");
    (checked, largest)
}

/// log2 tokens of a certificate that the checker accepts and that names its stack rightly, and whether it is trivial.
fn accepted(text: &str) -> Option<(f64, bool)> {
    let point = certificate::read(text).ok()?;
    let accepted = checker::check(&point).ok().filter(|_| certificate::names_its_stack(text, &point) == Ok(true))?;
    Some((rung_theory::bound::input::log2(&accepted.tokens), accepted.trivial))
}

fn gap_figure(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    store: &EvidenceStore,
    certified: Vec<(usize, f64)>,
) {
    chapter.heading("The gap");
    if let Some(RecordContent::Gap(lines)) = store.read_outcome(&Job::Gap.key(), chapter) {
        gap::figure(chapter, artefacts, lines, certified);
    }
}

fn maps(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &EvidenceStore) {
    let model = LARGEST;
    chapter.heading("Maps");
    chapter.paragraph(format!(
        "Solved: for all tables of at most so many tokens, whatever their shape, a construction is named. Impossible: for some \
         tables of so many tokens a certificate was found. Everything else is unknown. All maps are for {} heads of {} and {} bits per \
         number. Texts of today end around 2^20 tokens, far left of most bounds: at such lengths nothing is proved \
         impossible for models of this size.",
        model.heads, model.head, model.bits
    ));
    for (index, (stack, words)) in MAPPED.iter().enumerate() {
        let Ok(plan) = mapped_plan(index) else { continue };
        let rows: Vec<MapRow> = MAPPED_HOPS
            .filter_map(|hops| match store.read_outcome(&Job::MapRow(index, hops).key(), chapter) {
                Some(RecordContent::MapRow(row)) => Some(row),
                _ => None,
            })
            .collect();
        let chart = hop_map::draw(&format!("{stack}: what one forward pass can do"), &plan, Convention::Paper, &rows);
        let name = format!("map-{}", index + 1);
        artefacts.extend(figure_files(&name, &chart));
        let caption = format!(
            "The hop map of {words}: for each number of hops, from left to right, the prompt lengths that are solved by a construction, \
             unknown, and impossible by a certificate."
        );
        let command = format!("rung map \"{stack}\" --hops 5 {} --out map.svg", model.flags());
        chapter.figure(Figure::new(&chart, caption, command, format!("{name}.csv")));
    }
}

/// Tokens in a block, and the bits that its summary needs at least for 2-Sum with values modulo `values`.
fn sparse_points(values: u64) -> Vec<(f64, f64)> {
    let point = |block: u64| {
        let sparse = Sparse { block, select: 16, bits: 0, values, blocks: 512, same_map: false };
        let needed = sparse.verdict().ok()?.needed?;
        Some((block as f64, needed as f64))
    };
    (0..=10).map(|power| 1_u64 << power).filter_map(point).collect()
}

fn sparse_curve(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &EvidenceStore) {
    chapter.heading("Block-sparse attention and 2-Sum");
    chapter.paragraph(
        "A block-sparse layer sees most of the context only through block summaries. If those are too short, two contents of a block \
         look alike to every query, and the layer cannot tell whether a value occurs in a block it did not pick. The curve \
         shows how many bits a summary needs at least, against the size of a block; one full-attention head of a few dozen \
         bits solves the same task.",
    );
    let Some(RecordContent::Sparse(curves)) = store.read_outcome(&Job::Sparse.key(), chapter) else { return };
    let mut chart = LineChart::new(
        "Bits that a block's summary needs for 2-Sum",
        AxisSpec::new("tokens in a block", Scale::Log2),
        AxisSpec::new("bits of a summary, at least", Scale::Log2),
    );
    for (power, points) in curves {
        let name = format!("values modulo {}", text::power(2, f64::from(power)));
        let points = points.into_iter().map(|(block, bits)| Point::new(block, bits)).collect();
        chart = chart.series(Series::line_and_points(name, points).known(Evidence::Proved));
    }
    // MoBA as published keeps one mean key of 128 numbers per key/value head; 8 heads of 16 bits.
    chart = chart.guide(16_384.0, "8 mean keys of 128 numbers of 16 bits");
    artefacts.extend(figure_files("sparse", &chart));
    let command = "rung sparse --block 1024 --select 16 --bits 16384 --values 65536 --blocks 512 --curve";
    let caption =
        "Below its curve a summary is proved too short. The dashed line is what a layer with eight mean keys has.";
    chapter.figure(Figure::new(&chart, caption, command, "sparse.csv"));
}

fn conventions(chapter: &mut Chapter) {
    chapter.heading("What these proofs assume");
    chapter.paragraph(
        Prose::new()
            .text("One causal forward pass, any weights, MLPs, residuals and positions; arithmetic of p bits. In a full layer a \
                   token learns about a prefix only what fits in a message of B bits: ")
            .code(Convention::Paper.formula())
            .text(" by the papers' count. That holds for sums that run from left to right in registers, and for exact sums in any \
                   order; it is an idealisation of kernels that visit blocks in another order. A layer with state hands on its \
                   state and nothing else. Not covered: chain of thought, bidirectional attention, exact real numbers."),
    );
    chapter.note(
        "The checker uses whole numbers only; logarithms are rounded against the claim in units of 2^-80. A bound is about the \
         worst case: it says nothing about what training finds.",
    );
}
