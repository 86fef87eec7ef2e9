//! lighteval: a Python file with one task configuration per grid cell, and a README whose header makes the directory a dataset with one
//! configuration per grid cell. Written for lighteval 0.13.

use std::fmt::Write as _;

use super::HarnessTask;
use crate::grid::Grid;

/// Names and texts of the Python file and the README.
pub(super) fn files(tasks: &[HarnessTask], grid: &Grid) -> [(String, String); 2] {
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let python = format!(
        "\"\"\"Questions of rung {version}, seed {seed}: look-ups composed in one forward pass.\"\"\"\nfrom pathlib import Path\n\n\
         from lighteval.metrics.metrics import Metrics\nfrom lighteval.tasks.lighteval_task import LightevalTaskConfig\n\
         from lighteval.tasks.requests import Doc\n\nHERE = str(Path(__file__).resolve().parent)\nNAMES = {names:?}\n\n\n\
         def question(line, task_name=None):\n    return Doc(task_name=task_name, query=line[\"prompt\"], choices=[\" \" + symbol for symbol in line[\"symbols\"]],\n               \
         gold_index=line[\"gold_index\"])\n\n\nTASKS_TABLE = [\n    LightevalTaskConfig(\n        name=name, prompt_function=question, hf_repo=HERE, \
         hf_subset=name, hf_avail_splits=[\"train\"],\n        evaluation_splits=[\"train\"], few_shots_split=None, few_shots_select=None,\n        \
         generation_size=1, metrics=[Metrics.loglikelihood_acc], stop_sequence=[\"\\n\"], version={version_number},\n    )\n    for name in NAMES\n]\n",
        version = env!("CARGO_PKG_VERSION"),
        version_number = 1,
        seed = grid.seed,
    );
    let mut readme = "---\nconfigs:\n".to_owned();
    for name in names {
        let _ = writeln!(readme, "- config_name: {name}\n  data_files: {name}.jsonl");
    }
    readme += "---\nQuestions of `rung task export lighteval`. Run `rung_hops.py` with `--custom-tasks`.\n";
    [("rung_hops.py".to_owned(), python), ("README.md".to_owned(), readme)]
}
