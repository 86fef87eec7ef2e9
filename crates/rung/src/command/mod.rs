//! One file per command.

mod analyze;
mod ask;
mod audit;
mod bench;
mod bound;
mod capacity;
mod check;
mod checkpoint;
mod construct;
mod convert;
mod decide;
mod device;
mod eval;
mod eval_text;
mod explain;
mod export;
mod falsify;
mod falsify_text;
mod generate;
mod lint;
mod local_model;
mod logits;
mod map;
mod memory;
mod model;
mod place;
mod plan;
mod prompts;
mod protocol;
mod reproduce;
mod runs;
mod serve;
mod sparse;
mod stack;
mod sweep;
mod task;
mod text_prompts;
mod text_witness;
mod trace;
mod train;
mod verify;
mod witness;
mod zoo;

use std::process::ExitCode;

/// Every command.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Reproduce(reproduce::Reproduce),
    Ask(ask::Ask),
    Capacity(capacity::CapacityCommand),
    Bound(bound::Bound),
    Decide(decide::Decide),
    Check(check::Check),
    Construct(construct::Construct),
    Verify(verify::Verify),
    Export(export::Export),
    Trace(trace::Trace),
    Protocol(protocol::Protocol),
    Analyze(analyze::Analyze),
    Convert(convert::Convert),
    Falsify(falsify::Falsify),
    Witness(witness::WitnessCommand),
    Map(map::Map),
    Sparse(sparse::SparseCommand),
    Audit(audit::AuditCommand),
    Lint(lint::Lint),
    Place(place::Place),
    Plan(plan::PlanCommand),
    Task(task::Task),
    Train(train::Train),
    Eval(eval::Eval),
    Sweep(sweep::Sweep),
    Runs(runs::Runs),
    Serve(serve::Serve),
    Model(model::ModelCommand),
    Logits(logits::Logits),
    Generate(generate::Generate),
    Bench(bench::BenchCommand),
    Zoo(zoo::ZooCommand),
    Explain(explain::Explain),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The input is bad, or a file cannot be read or written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Reproduce(command) => command.run(),
            Self::Ask(command) => command.run(),
            Self::Capacity(command) => command.run(),
            Self::Bound(command) => command.run(),
            Self::Decide(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Construct(command) => command.run(),
            Self::Verify(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Trace(command) => command.run(),
            Self::Protocol(command) => command.run(),
            Self::Analyze(command) => command.run(),
            Self::Convert(command) => command.run(),
            Self::Falsify(command) => command.run(),
            Self::Witness(command) => command.run(),
            Self::Map(command) => command.run(),
            Self::Sparse(command) => command.run(),
            Self::Audit(command) => command.run(),
            Self::Lint(command) => command.run(),
            Self::Place(command) => command.run(),
            Self::Plan(command) => command.run(),
            Self::Task(command) => command.run(),
            Self::Train(command) => command.run(),
            Self::Eval(command) => command.run(),
            Self::Sweep(command) => command.run(),
            Self::Runs(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Model(command) => command.run(),
            Self::Logits(command) => command.run(),
            Self::Generate(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Zoo(command) => command.run(),
            Self::Explain(command) => command.run(),
        }
    }
}
