//! The commands, one module each. Beside them are modules for arguments and text that several commands share, and `eval_text` and
//! `falsify_text`, the halves of `rung eval` and `rung falsify` that work on external checkpoints.

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

/// Every command. The help of a command is the doc comment of its own type, so the lines here are ordinary comments.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    // Rebuilds all results into one HTML report.
    Reproduce(reproduce::Reproduce),
    // Asks a language model questions of increasing numbers of hops.
    Ask(ask::Ask),
    // Counts the hops that a layout allows for large tables.
    Capacity(capacity::CapacityCommand),
    // Finds a prompt length from which on a number of hops is impossible.
    Bound(bound::Bound),
    // Decides tables of given sizes: solved, impossible or unknown.
    Decide(decide::Decide),
    // Verifies a certificate, a proof that a number of hops is impossible.
    Check(check::Check),
    // Writes hand-built weights that solve a task.
    Construct(construct::Construct),
    // Runs hand-built weights and compares their answers with the oracle of the task.
    Verify(verify::Verify),
    // Writes a network for transformers or llama.cpp.
    Export(export::Export),
    // Shows the attention edges of one forward pass.
    Trace(trace::Trace),
    // Runs a network as the communication protocol of the bounds.
    Protocol(protocol::Protocol),
    // Runs one analysis of a network.
    Analyze(analyze::Analyze),
    // Replaces full attention layers by recurrent ones.
    Convert(convert::Convert),
    // Searches for a counterexample to one model.
    Falsify(falsify::Falsify),
    // Checks or shows a counterexample, also called a witness.
    Witness(witness::WitnessCommand),
    // Draws which prompt lengths are solved, unknown or impossible, for each number of hops.
    Map(map::Map),
    // Decides whether the block summaries of sparse attention are too short.
    Sparse(sparse::SparseCommand),
    // Counts hops, cache and cost of a public model.
    Audit(audit::AuditCommand),
    // Reports errors in a config of a public model.
    Lint(lint::Lint),
    // Places full layers in a stack for a memory budget.
    Place(place::Place),
    // Computes the memory that an inference engine allocates.
    Plan(plan::PlanCommand),
    // Lists, shows and samples tasks.
    Task(task::Task),
    // Trains a stack on a task.
    Train(train::Train),
    // Evaluates a trained model.
    Eval(eval::Eval),
    // Runs a grid of training runs.
    Sweep(sweep::Sweep),
    // Lists, compares and exports recorded runs.
    Runs(runs::Runs),
    // Serves the web page.
    Serve(serve::Serve),
    // Shows the contents of a checkpoint.
    Model(model::ModelCommand),
    // Prints the logits of a checkpoint.
    Logits(logits::Logits),
    // Generates text with a checkpoint.
    Generate(generate::Generate),
    // Measures kernels and training steps.
    Bench(bench::BenchCommand),
    // Compares all mixers in one table.
    Zoo(zoo::ZooCommand),
    // Prints the documentation of a task, mixer, bound, construction or analysis.
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
