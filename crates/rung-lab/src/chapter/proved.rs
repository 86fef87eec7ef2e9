//! The chapter "Proved": certified lower bounds, which hold for all weights, and the number of hops that a layout allows.
//!
//! Every certificate is searched for, recorded as text, parsed from that text and checked. The chapter shows only certificates that the
//! checker accepted.

use rung_theory::bound::papers::published_log2_tokens;
use rung_theory::bound::sparse::BlockSparseInstance;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::{certificate, checker};
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};

use super::{ChapterOutput, gap};
use crate::artefact::{Artefact, Preset, add_figure};
use crate::hop_map::{self, RecordedMapRow};
use crate::store::RecordStore;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series, text};
use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_nn::file::WriteError;
use serde::{Deserialize, Serialize};

/// A model size and the number of linear-attention layers in each of its blocks.
#[derive(Clone, Copy)]
struct ModelSize {
    heads: u64,
    head_dim: u64,
    bits: u64,
    linear_layers: u64,
}

const SIZES: [ModelSize; 4] = [
    ModelSize { heads: 1, head_dim: 4, bits: 4, linear_layers: 1 },
    ModelSize { heads: 1, head_dim: 8, bits: 4, linear_layers: 1 },
    ModelSize { heads: 1, head_dim: 8, bits: 8, linear_layers: 3 },
    ModelSize { heads: 16, head_dim: 128, bits: 16, linear_layers: 3 },
];

/// The largest model size, for which the hop maps and the gap are drawn.
const LARGEST: ModelSize = SIZES[3];

/// Numbers of hops in a hop map.
const MAPPED_HOPS: std::ops::RangeInclusive<usize> = 1..=5;

/// Exponents of the moduli 2^exponent of 2-Sum.
const MODULUS_EXPONENTS: [u32; 3] = [10, 16, 20];

/// Stacks whose hop map is drawn, each with a description: the smallest hybrid, a hybrid with the usual ratio of layers, and full attention
/// only.
const MAPPED_STACKS: [(&str, &str); 3] = [
    ("linear*3 full linear*3", "one full layer among linear ones"),
    ("(gdn*3 full)*2", "two groups of three Gated DeltaNet layers and a full one"),
    ("full full full", "three full layers"),
];

/// Stacks of the capacity table.
const CAPACITY_STACKS: [&str; 8] = [
    "linear full",
    "full full",
    "full linear full",
    "linear full full",
    "full full full",
    "full full full linear*9",
    "mamba2*48",
    "(gdn*3 full)*12",
];

impl ModelSize {
    fn defaults(self) -> Defaults {
        Defaults { heads: self.heads, head_dim: self.head_dim, bits: self.bits, ..Defaults::default() }
    }

    /// The stack of a lower bound. Case 1: `hops - 1` full layers, with linear layers in every block. Case 0: `hops` full layers, without linear
    /// layers in blocks 0 and 1.
    fn stack(self, case: u8, hops: usize) -> String {
        let linear = match self.linear_layers {
            1 => "linear".to_owned(),
            count => format!("linear*{count}"),
        };
        match case {
            1 => format!("{linear}{}", format!(" full {linear}").repeat(hops - 1)),
            _ => format!("full{}", format!(" full {linear}").repeat(hops - 1)),
        }
    }

    /// The options of `rung bound` for this size.
    fn options(self) -> String {
        format!("--heads {} --head-dim {} --bits {}", self.heads, self.head_dim, self.bits)
    }
}

/// A certificate to search for.
#[derive(Clone, Copy)]
struct CertificateSearch {
    size: ModelSize,
    case: u8,
    hops: usize,
}

impl CertificateSearch {
    fn name(&self) -> String {
        let ModelSize { heads, head_dim, bits, .. } = self.size;
        format!("h{heads}-d{head_dim}-p{bits}-case{}-hops{}", self.case, self.hops)
    }

    fn stack(&self) -> String {
        self.size.stack(self.case, self.hops)
    }

    fn compute(&self) -> RecordOutcome {
        let stack = self.stack();
        let plan = Plan::parse(&stack, &self.size.defaults()).map_err(|error| error.to_string())?;
        let bound = StackBounds::new(&plan, MessageSizeConvention::Paper).lower_bound(self.hops).into_certificate();
        let conventions = certificate::conventions(&self.size.defaults(), MessageSizeConvention::Paper);
        let certificate = bound.map(|bound| FoundCertificate {
            log2_tokens: bound.log2_tokens(),
            certificate: format!("{:#}\n", certificate::write(&bound.certificate, &stack, &conventions)),
        });
        Ok(RecordContent::Certificate(certificate))
    }
}

/// A certificate that the search found, as text.
#[derive(Serialize, Deserialize)]
struct FoundCertificate {
    log2_tokens: f64,
    certificate: String,
}

/// A row of the capacity table.
#[derive(Serialize, Deserialize)]
struct StackCapacity {
    stack: String,
    full_layers: usize,
    extra_hop: bool,
    rungs: usize,
    at_least: usize,
}

/// A record to compute.
enum RecordJob {
    Capacity,
    Certificate(CertificateSearch),
    /// A row of the hop map of a stack, given by its index in [`MAPPED_STACKS`].
    MapRow {
        stack: usize,
        hops: usize,
    },
    Gap,
    Sparse,
}

/// The data of a record.
#[derive(Serialize, Deserialize)]
enum RecordContent {
    Capacity(Vec<StackCapacity>),
    Certificate(Option<FoundCertificate>),
    MapRow(RecordedMapRow),
    Gap(gap::GapLines),
    /// For each exponent of a modulus: tokens of a block, and the bits that its summary needs.
    Sparse(Vec<(u32, Vec<(f64, f64)>)>),
}

type RecordOutcome = Result<RecordContent, String>;

impl RecordJob {
    fn key(&self) -> String {
        match self {
            Self::Capacity => "proved/capacity".to_owned(),
            Self::Certificate(search) => format!("proved/{}", search.name()),
            Self::MapRow { stack, hops } => format!("proved/map-{}-hops{hops}", stack + 1),
            Self::Gap => "proved/gap".to_owned(),
            Self::Sparse => "proved/sparse".to_owned(),
        }
    }

    fn compute(&self, preset: Preset) -> RecordOutcome {
        match self {
            Self::Capacity => stack_capacities().map(RecordContent::Capacity),
            Self::Certificate(search) => search.compute(),
            Self::MapRow { stack, hops } => {
                let plan = mapped_plan(*stack)?;
                Ok(RecordContent::MapRow(
                    (&hop_map::hop_map_row(&StackBounds::new(&plan, MessageSizeConvention::Paper), *hops)).into(),
                ))
            }
            Self::Gap => {
                let plan = |hops| Plan::parse(&LARGEST.stack(1, hops), &LARGEST.defaults()).ok();
                let heads_dim_bits = u128::from(LARGEST.heads * LARGEST.head_dim * LARGEST.bits);
                Ok(RecordContent::Gap(gap::GapLines::compute(2..=max_hops(preset), plan, heads_dim_bits)))
            }
            Self::Sparse => Ok(RecordContent::Sparse(
                MODULUS_EXPONENTS.map(|exponent| (exponent, sparse_points(1 << exponent))).into(),
            )),
        }
    }
}

fn max_hops(preset: Preset) -> usize {
    if preset == Preset::Full { 8 } else { 4 }
}

fn searches(preset: Preset) -> Vec<CertificateSearch> {
    let searches_of_size = |size: ModelSize| {
        let searches_of_case =
            move |case| (2..=max_hops(preset)).map(move |hops| CertificateSearch { size, case, hops });
        [1, 0].into_iter().flat_map(searches_of_case)
    };
    SIZES.into_iter().flat_map(searches_of_size).collect()
}

fn jobs(preset: Preset) -> Vec<RecordJob> {
    let certificates = searches(preset).into_iter().map(RecordJob::Certificate);
    let maps =
        (0..MAPPED_STACKS.len()).flat_map(|stack| MAPPED_HOPS.map(move |hops| RecordJob::MapRow { stack, hops }));
    certificates.chain(maps).chain([RecordJob::Capacity, RecordJob::Gap, RecordJob::Sparse]).collect()
}

/// Number of records of the chapter, for a progress bar.
pub fn record_count(preset: Preset) -> u64 {
    jobs(preset).len() as u64
}

fn mapped_plan(index: usize) -> Result<Plan, String> {
    Plan::parse(MAPPED_STACKS[index].0, &LARGEST.defaults()).map_err(|error| error.to_string())
}

/// Computes the chapter's records. `on_record` is called after each record.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &RecordStore, on_record: &(dyn Fn() + Sync)) -> Result<(), WriteError> {
    store.write_all(&jobs(store.preset()), RecordJob::key, |job| job.compute(store.preset()), on_record)
}

/// Writes the chapter from its records.
pub fn render(store: &RecordStore) -> ChapterOutput {
    let mut artefacts = Vec::new();
    let mut chapter = Chapter::new("proved", "Proved");
    render_introduction(&mut chapter);
    render_capacity_table(&mut chapter, store);
    let (checked_count, certified) = render_certificate_table(&mut chapter, &mut artefacts, store);
    render_gap_figure(&mut chapter, &mut artefacts, store, certified);
    render_maps(&mut chapter, &mut artefacts, store);
    render_sparse_curve(&mut chapter, &mut artefacts, store);
    render_conventions(&mut chapter);
    let summary = format!("{checked_count} certificates found, written, read back and checked.");
    ChapterOutput { chapter, summary, artefacts }
}

fn render_introduction(chapter: &mut Chapter) {
    chapter.paragraph(
        "The task is function composition: the prompt lists tables z_L, .., z_1, then a start value z_0 and a query w, and the \
         answer is found by L look-ups, each of which needs the result of the one before. A full-attention layer can do one \
         look-up. A layer with a state of fixed size (linear attention, Mamba, DeltaNet, RWKV, a sliding window) cannot look \
         anything up in a table larger than its state, but it can pass a value on to the next token.",
    );
    chapter.paragraph(
        "So a stack with F full layers composes at most F + c - 1 tables when they are large, where c is 1 if a layer with state \
         is before the first full layer or between the first and the second, and 0 otherwise. We call this number its \
         rungs. Explicit weights show that it can be reached; certificates show that it cannot be exceeded: integers \
         with which a proof goes through for one table size, whatever the weights.",
    );
}

fn stack_capacities() -> Result<Vec<StackCapacity>, String> {
    let capacity = |stack: &&str| {
        let capacity = Plan::parse(stack, &Defaults::default()).map_err(|error| error.to_string())?.capacity();
        Ok(StackCapacity {
            stack: (*stack).to_owned(),
            full_layers: capacity.full_layers,
            extra_hop: capacity.extra_hop,
            rungs: capacity.rungs,
            at_least: capacity.constructed_hops,
        })
    };
    CAPACITY_STACKS.iter().map(capacity).collect()
}

fn render_capacity_table(chapter: &mut Chapter, store: &RecordStore) {
    chapter.heading("Rungs of a layout");
    let columns = [
        Column::text("stack"),
        Column::number("full layers"),
        Column::number("extra hop"),
        Column::number("at most"),
        Column::number("at least"),
    ];
    let mut table = Table::new("Rungs: hops of function composition in one forward pass, for large tables", columns);
    let Some(RecordContent::Capacity(rows)) = store.read_outcome(&RecordJob::Capacity.key(), chapter) else { return };
    for row in rows {
        table.row([
            TableCell::code(row.stack),
            TableCell::from(row.full_layers.to_string()),
            TableCell::from(usize::from(row.extra_hop).to_string()),
            TableCell::from(row.rungs.to_string()).with_evidence(Evidence::Proved),
            TableCell::from(row.at_least.to_string()).with_evidence(Evidence::Constructed),
        ]);
    }
    chapter.table(table);
    chapter.command("rung capacity \"full linear full\"");
}

/// Adds the table of certificates. Returns the number of accepted certificates; and for the largest model size, hops and log2 tokens of those
/// of case 1.
fn render_certificate_table(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    store: &RecordStore,
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
    let (mut checked_count, mut largest_size_points) = (0, Vec::new());
    for search in searches(store.preset()) {
        let CertificateSearch { size, case, hops } = search;
        let stack = search.stack();
        let key = RecordJob::Certificate(search).key();
        let Some(RecordContent::Certificate(certificate)) = store.read_outcome(&key, chapter) else { continue };
        let accepted = certificate.as_ref().and_then(|found| check_certificate(&found.certificate));
        let tokens_cell = match (certificate, accepted) {
            (Some(found), Some((log2_tokens, trivial))) => {
                checked_count += 1;
                if case == 1 && size.heads == LARGEST.heads {
                    largest_size_points.push((hops, found.log2_tokens));
                }
                let path = format!("certificates/{}.json", search.name());
                artefacts.push(Artefact { path, bytes: found.certificate.into_bytes() });
                let star = if trivial { " *" } else { "" };
                TableCell::from(format!("{}{star}", text::power(2, log2_tokens))).with_evidence(Evidence::Proved)
            }
            _ => TableCell::from("not certified"),
        };
        let heads_dim_bits = u128::from(size.heads * size.head_dim * size.bits);
        table.row([
            TableCell::from(format!("{} x {}, {}", size.heads, size.head_dim, size.bits)),
            TableCell::code(stack),
            TableCell::from(hops.to_string()),
            tokens_cell,
            TableCell::from(text::power(2, published_log2_tokens(heads_dim_bits, hops).round())),
        ]);
    }
    chapter.table(table);
    let size = LARGEST;
    chapter.command(format!("rung bound \"{}\" --hops 2 {} --out certificate.json", size.stack(1, 2), size.options()));
    chapter.command("rung check certificate.json");
    chapter.paragraph("The certificates of this table are in the folder certificates beside this report.");
    (checked_count, largest_size_points)
}

/// log2 tokens of a certificate, and whether it is trivial; none unless the checker accepts it and it belongs to the stack that it names.
fn check_certificate(text: &str) -> Option<(f64, bool)> {
    let point = certificate::read(text).ok()?;
    let accepted =
        checker::check(&point).ok().filter(|_| certificate::matches_named_stack(text, &point) == Ok(true))?;
    Some((rung_theory::bound::input::log2(&accepted.tokens), accepted.trivial))
}

fn render_gap_figure(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    store: &RecordStore,
    certified: Vec<(usize, f64)>,
) {
    chapter.heading("The gap");
    if let Some(RecordContent::Gap(lines)) = store.read_outcome(&RecordJob::Gap.key(), chapter) {
        gap::render(chapter, artefacts, lines, certified);
    }
}

fn render_maps(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &RecordStore) {
    let size = LARGEST;
    chapter.heading("Maps");
    chapter.paragraph(format!(
        "Solved: for all tables of at most this many tokens, whatever their shape, a construction is named. Impossible: for some \
         tables of this many tokens a certificate was found. Everything else is unknown. All maps are for {} heads of {} and {} bits per \
         number. Current context lengths are at most about 2^20 tokens, far left of most bounds: at such lengths nothing is proved \
         impossible for models of this size.",
        size.heads, size.head_dim, size.bits
    ));
    for (index, (stack, description)) in MAPPED_STACKS.iter().enumerate() {
        let Ok(plan) = mapped_plan(index) else { continue };
        let rows: Vec<RecordedMapRow> = MAPPED_HOPS
            .filter_map(|hops| match store.read_outcome(&RecordJob::MapRow { stack: index, hops }.key(), chapter) {
                Some(RecordContent::MapRow(row)) => Some(row),
                _ => None,
            })
            .collect();
        let chart = hop_map::draw_hop_map(
            &format!("{stack}: what one forward pass can do"),
            &plan,
            MessageSizeConvention::Paper,
            &rows,
        );
        let name = format!("map-{}", index + 1);
        let caption = format!(
            "The hop map of {description}: for each number of hops, from left to right, the prompt lengths that are solved by a construction, \
             unknown, and impossible by a certificate."
        );
        let command = format!("rung map \"{stack}\" --hops 5 {} --out map.svg", size.options());
        add_figure(chapter, artefacts, &name, &chart, caption, command);
    }
}

/// Points of a curve: tokens of a block, and the minimum bits of its summary for 2-Sum with values modulo `values`.
fn sparse_points(values: u64) -> Vec<(f64, f64)> {
    let point = |block: u64| {
        let sparse = BlockSparseInstance {
            block_tokens: block,
            selected_blocks: 16,
            summary_bits: 0,
            modulus: values,
            other_blocks: 512,
            shared_summary_map: false,
        };
        let needed = sparse.verdict().ok()?.needed_bits?;
        Some((block as f64, needed as f64))
    };
    (0..=10).map(|exponent| 1_u64 << exponent).filter_map(point).collect()
}

fn render_sparse_curve(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &RecordStore) {
    chapter.heading("Block-sparse attention and 2-Sum");
    chapter.paragraph(
        "A block-sparse layer sees most of the context only through block summaries. If those are too short, two contents of a block \
         give the same summary, and the layer cannot tell whether a value occurs in a block that it did not select. The curve \
         shows how many bits a summary needs at least, against the size of a block; one full-attention head of a few dozen \
         bits solves the same task.",
    );
    let Some(RecordContent::Sparse(curves)) = store.read_outcome(&RecordJob::Sparse.key(), chapter) else { return };
    let mut chart = LineChart::new(
        "Bits that a block's summary needs for 2-Sum",
        AxisSpec::new("tokens in a block", Scale::Log2),
        AxisSpec::new("bits of a summary, at least", Scale::Log2),
    );
    for (exponent, points) in curves {
        let name = format!("values modulo {}", text::power(2, f64::from(exponent)));
        let points = points.into_iter().map(|(block, bits)| Point::new(block, bits)).collect();
        chart = chart.series(Series::line_and_points(name, points).with_evidence(Evidence::Proved));
    }
    // MoBA as published has one mean key of 128 numbers per key/value head, here for 8 heads and 16 bits.
    chart = chart.guide(16_384.0, "8 mean keys of 128 numbers of 16 bits");
    let command = "rung sparse --block 1024 --select 16 --bits 16384 --values 65536 --blocks 512 --curve";
    let caption = "Below its curve a summary is proved too short. The dashed line is a layer with eight mean keys.";
    add_figure(chapter, artefacts, "sparse", &chart, caption, command);
}

fn render_conventions(chapter: &mut Chapter) {
    chapter.heading("Assumptions of the proofs");
    chapter.paragraph(
        Prose::new()
            .text("One causal forward pass, any weights, MLPs, residuals and positions; arithmetic of p bits. In a full layer a \
                   token learns about a prefix only what fits in a message of B bits: ")
            .code(MessageSizeConvention::Paper.formula())
            .text(" by the papers' count. That holds for sums that run from left to right in registers, and for exact sums in any \
                   order; it is an idealisation of kernels that visit blocks in another order. A layer with state passes on its \
                   state and nothing else. Not covered: chain of thought, bidirectional attention, exact real numbers."),
    );
    chapter.note(
        "The checker uses whole numbers only; logarithms are rounded against the claim in units of 2^-80. A bound is about the \
         worst case: it says nothing about what training finds.",
    );
}
