//! "Proved": what no weights can do, with certificates; and what a stack's layout is worth.
//!
//! Every certificate in the chapter is searched for, written out as a file, read back from that text and checked. The
//! chapter shows only what the checker accepted.

use rung_theory::bound::question::Question;
use rung_theory::bound::search::{self, Certified};
use rung_theory::bound::sparse::Sparse;
use rung_theory::bound::{certificate, checker, papers};
use rung_theory::stack::{Convention, Defaults, Plan};

use super::{Made, gap};
use crate::artefact::{Artefact, Preset, figure_files};
use crate::hop_map::{self, Rung};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series, text};
use rung_figure::report::{Cell, Chapter, Column, Figure, Prose, Table};
use rung_train::parallel;

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

/// One search of the table.
struct Job {
    model: Model,
    case: u8,
    hops: usize,
}

/// One job for the threads: a certificate of the table, or a row of a map.
enum Work {
    Certificate(Job),
    Map(usize, usize),
}

enum Done {
    Certificate(Job, Option<Certified>),
    Map(Rung),
}

/// How many units of work the chapter has, for a progress bar.
pub fn units(preset: Preset) -> u64 {
    works(preset).len() as u64
}

fn works(preset: Preset) -> Vec<Work> {
    let most = if preset == Preset::Full { 8 } else { 4 };
    let certificates = MODELS.into_iter().flat_map(|model| {
        [1, 0]
            .into_iter()
            .flat_map(move |case| (2..=most).map(move |hops| Work::Certificate(Job { model, case, hops })))
    });
    let maps = (0..MAPPED.len()).flat_map(|stack| (1..=5).map(move |hops| Work::Map(stack, hops)));
    certificates.chain(maps).collect()
}

fn mapped_plan(index: usize) -> Option<Plan> {
    let model = MODELS[3];
    Plan::parse(MAPPED[index].0, &model.defaults()).ok()
}

fn run(work: Work) -> Option<Done> {
    match work {
        Work::Certificate(job) => {
            let plan = Plan::parse(&job.model.stack(job.case, job.hops), &job.model.defaults()).ok()?;
            let question = Question::of(&plan.capacity(), job.hops, [1; 3])?;
            let found = search::smallest(&question);
            Some(Done::Certificate(job, found))
        }
        Work::Map(stack, hops) => {
            let plan = mapped_plan(stack)?;
            Some(Done::Map(hop_map::rung(&plan, &plan.capacity(), hops)))
        }
    }
}

/// Makes the chapter. `tick` is called after each unit of work.
pub fn make(preset: Preset, tick: &(dyn Fn() + Sync)) -> Made {
    let slots: Vec<std::sync::Mutex<Option<Work>>> =
        works(preset).into_iter().map(|work| std::sync::Mutex::new(Some(work))).collect();
    let done = parallel::map(&slots, |slot| {
        let work = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let done = work.and_then(run);
        tick();
        done
    });
    let (mut certificates, mut rungs) = (Vec::new(), Vec::new());
    for done in done.into_iter().flatten() {
        match done {
            Done::Certificate(job, found) => certificates.push((job, found)),
            Done::Map(rung) => rungs.push(rung),
        }
    }
    let mut artefacts = Vec::new();
    let mut chapter = Chapter::new("proved", "Proved");
    introduction(&mut chapter);
    capacity_table(&mut chapter);
    let checked = certificate_table(&mut chapter, &mut artefacts, &certificates);
    let largest = MODELS[3];
    let sharpest = |(job, found): &(Job, Option<Certified>)| {
        let wanted = job.case == 1 && job.model.heads == largest.heads;
        found.as_ref().filter(|_| wanted).map(|found| (job.hops, found.log2_tokens()))
    };
    let certified: Vec<(usize, f64)> = certificates.iter().filter_map(sharpest).collect();
    let plan = |hops| Plan::parse(&largest.stack(1, hops), &largest.defaults()).ok();
    let heads_dim_bits = u128::from(largest.heads * largest.head * largest.bits);
    gap::figure(&mut chapter, &mut artefacts, &certified, plan, heads_dim_bits);
    maps(&mut chapter, &mut artefacts, &rungs);
    sparse_curve(&mut chapter, &mut artefacts);
    conventions(&mut chapter);
    let summary = format!("{checked} certificates found, written, read back and checked.");
    Made { chapter, summary, artefacts }
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

fn capacity_table(chapter: &mut Chapter) {
    chapter.heading("What a layout is worth");
    let columns = [
        Column::text("stack"),
        Column::number("full layers"),
        Column::number("extra hop"),
        Column::number("at most"),
        Column::number("at least"),
    ];
    let mut table = Table::new("Rungs: hops of function composition in one forward pass, for large tables", columns);
    for stack in COUNTED {
        let Ok(plan) = Plan::parse(stack, &Defaults::default()) else { continue };
        let capacity = plan.capacity();
        table.row([
            Cell::code(stack),
            Cell::from(capacity.full.to_string()),
            Cell::from(usize::from(capacity.extra_hop).to_string()),
            Cell::from(capacity.rungs.to_string()).known(Evidence::Proved),
            Cell::from(capacity.at_least.to_string()).known(Evidence::Constructed),
        ]);
    }
    chapter.table(table);
    chapter.command("rung capacity \"full linear full\"");
}

fn certificate_table(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    found: &[(Job, Option<Certified>)],
) -> usize {
    chapter.heading("From how many tokens on it is impossible");
    chapter.paragraph(
        "For each model size, stack and number of hops: the smallest text for which we certify that no weights compose all \
         tables that fit in it. A star marks points that are true but trivial, because one message has fewer bits than an \
         answer. The papers prove the same for far longer texts, since their parameters are chosen for a short proof.",
    );
    let columns = [
        Column::text("heads x width, bits"),
        Column::text("stack"),
        Column::number("hops"),
        Column::number("tokens"),
        Column::number("by the papers' parameters"),
    ];
    let mut table = Table::new("Certified lower bounds, each read back from its file and checked", columns);
    let mut checked = 0;
    for (job, certified) in found {
        let model = job.model;
        let stack = model.stack(job.case, job.hops);
        let cell = match certified.as_ref().and_then(|found| written(job, &stack, found, artefacts)) {
            Some((log2_tokens, trivial)) => {
                checked += 1;
                let star = if trivial { " *" } else { "" };
                Cell::from(format!("{}{star}", text::power(2, log2_tokens))).known(Evidence::Proved)
            }
            None => Cell::from("not certified"),
        };
        let product = u128::from(model.heads * model.head * model.bits);
        table.row([
            Cell::from(format!("{} x {}, {}", model.heads, model.head, model.bits)),
            Cell::code(stack),
            Cell::from(job.hops.to_string()),
            cell,
            Cell::from(text::power(2, papers::own_parameters(product, job.hops).round())),
        ]);
    }
    chapter.table(table);
    let model = MODELS[3];
    chapter.command(format!("rung bound \"{}\" --hops 2 {} --out certificate.json", model.stack(1, 2), model.flags()));
    chapter.command("rung check certificate.json");
    chapter.paragraph("The certificates of this table are in the folder certificates beside this report.");
    checked
}

/// Writes a certificate as text, reads the text back and checks that; what fails is not shown.
fn written(job: &Job, stack: &str, found: &Certified, artefacts: &mut Vec<Artefact>) -> Option<(f64, bool)> {
    let conventions = certificate::conventions(&job.model.defaults(), Convention::Paper);
    let text = format!("{:#}\n", certificate::write(&found.point, stack, &conventions));
    let point = certificate::read(&text).ok()?;
    let accepted = checker::check(&point).ok().filter(|_| certificate::names_its_stack(&text, &point) == Ok(true))?;
    let Model { heads, head, bits, .. } = job.model;
    let path = format!("certificates/h{heads}-d{head}-p{bits}-case{}-hops{}.json", job.case, job.hops);
    artefacts.push(Artefact { path, bytes: text.into_bytes() });
    Some((rung_theory::bound::question::log2(&accepted.tokens), accepted.trivial))
}

fn maps(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, rungs: &[Rung]) {
    let model = MODELS[3];
    chapter.heading("Maps");
    chapter.paragraph(format!(
        "Solved: for all tables of at most so many tokens, whatever their shape, a construction is named. Impossible: for some \
         tables of so many tokens a certificate was found. Everything else is unknown. All maps are for {} heads of {} and {} bits per \
         number. Texts of today end around 2^20 tokens, far left of most bounds: at such lengths nothing is proved \
         impossible for models of this size.",
        model.heads, model.head, model.bits
    ));
    for (index, (stack, words)) in MAPPED.iter().enumerate() {
        let Some(plan) = mapped_plan(index) else { continue };
        let rows = &rungs[index * 5..(index + 1) * 5];
        let chart = hop_map::draw(&format!("{stack}: what one forward pass can do"), &plan, Convention::Paper, rows);
        let name = format!("map-{}", index + 1);
        artefacts.extend(figure_files(&name, &chart));
        let caption = format!("The hop map of {words}.");
        let command = format!("rung map \"{stack}\" --hops 5 {} --out map.svg", model.flags());
        chapter.figure(Figure::new(&chart, caption, command, format!("{name}.csv")));
    }
}

fn sparse_curve(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>) {
    chapter.heading("Block-sparse attention and 2-Sum");
    chapter.paragraph(
        "A block-sparse layer sees most of the text only through block summaries. If those are too short, two contents of a block \
         look alike to every query, and the layer cannot tell whether a value occurs in a block it did not pick. The curve \
         shows how many bits a summary needs at least, against the size of a block; one full-attention head of a few dozen \
         bits solves the same task.",
    );
    let needed = |values: u64| {
        let sizes = (0..=10).map(|power| 1_u64 << power);
        let point = |block: u64| {
            let sparse = Sparse { block, select: 16, bits: 0, values, blocks: 512, same_map: false };
            let needed = sparse.verdict().ok()?.needed?;
            Some(Point::new(block as f64, needed as f64))
        };
        sizes.filter_map(point).collect::<Vec<_>>()
    };
    let mut chart = LineChart::new(
        "Bits that a block's summary needs for 2-Sum",
        AxisSpec::new("tokens in a block", Scale::Log2),
        AxisSpec::new("bits of a summary, at least", Scale::Log2),
    );
    for power in [10, 16, 20] {
        let name = format!("values modulo {}", text::power(2, f64::from(power)));
        chart = chart.series(Series::line_and_points(name, needed(1 << power)).known(Evidence::Proved));
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
