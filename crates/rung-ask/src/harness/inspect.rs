//! Inspect: a Python file with one task per grid cell.
//!
//! Run with `inspect eval DIR/rung_hops.py --model ..`. Inspect uses the chat protocol, so prompts get the ending that
//! `rung ask` uses for chat.

use super::HarnessTask;
use crate::grid::Grid;
use crate::prompt::CHAT_ENDING;

/// Name and text of the Python file.
pub(super) fn python_file(tasks: &[HarnessTask], grid: &Grid) -> (String, String) {
    let mut text = format!(
        "\"\"\"Questions of rung {version}, seed {seed}: look-ups composed in one forward pass.\"\"\"\nfrom pathlib import Path\n\n\
         from inspect_ai import Task, task\nfrom inspect_ai.dataset import Sample, json_dataset\nfrom inspect_ai.model import GenerateConfig\n\
         from inspect_ai.scorer import match\nfrom inspect_ai.solver import generate\n\nENDING = {ending:?}\n\n\ndef sample(record):\n    return Sample(input=record[\"prompt\"] + ENDING, \
         target=record[\"answer\"], id=record[\"id\"],\n                  metadata={{\"hops\": record[\"hops\"], \"entries\": record[\"entries\"]}})\n\n\n\
         def grid_cell_task(name):\n    data = json_dataset(str(Path(__file__).parent / f\"{{name}}.jsonl\"), sample)\n    config = GenerateConfig(max_tokens=1, \
         temperature=0.0)\n    return Task(dataset=data, solver=generate(), scorer=match(location=\"begin\"), config=config, name=name,\n                \
         metadata={{\"seed\": {seed}, \"version\": \"{version}\"}})\n",
        version = env!("CARGO_PKG_VERSION"),
        seed = grid.seed,
        ending = CHAT_ENDING,
    );
    for HarnessTask { name, .. } in tasks {
        text.extend(["\n\n@task\ndef ", name, "():\n    return grid_cell_task(\"", name, "\")\n"]);
    }
    ("rung_hops.py".to_owned(), text)
}
