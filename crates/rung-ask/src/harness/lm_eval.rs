//! lm-evaluation-harness: one YAML file per grid cell, and one for the group `rung_hops` of all cells.
//!
//! Run with `lm_eval --include_path DIR --tasks rung_hops --model local-completions --model_args ..`.

use std::path::Path;

use super::HarnessTask;
use crate::grid::Grid;

/// Names and texts of the YAML files: one for each task, and one for the group of all tasks.
pub(super) fn files(tasks: &[HarnessTask], grid: &Grid, directory: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> =
        tasks.iter().map(|task| (format!("{}.yaml", task.name), task_yaml(task, grid, directory))).collect();
    let task_list: String = tasks.iter().flat_map(|task| ["  - ", &task.name, "\n"]).collect();
    let group = format!(
        "group: rung_hops\ntask:\n{task_list}aggregate_metric_list:\n  - metric: exact_match\n    aggregation: mean\n    \
         weight_by_size: true\n    filter_list: first_symbol\nmetadata:\n  version: 1\n"
    );
    files.push(("rung_hops.yaml".to_owned(), group));
    files
}

fn task_yaml(task: &HarnessTask, grid: &Grid, directory: &Path) -> String {
    // A JSON string is also a YAML string, so JSON quotes the path.
    let data_path = serde_json::Value::from(directory.join(format!("{}.jsonl", task.name)).display().to_string());
    format!(
        "task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data_path}\ntest_split: test\noutput_type: generate_until\n\
         doc_to_text: \"{{{{prompt}}}}\"\ndoc_to_target: \"{{{{answer}}}}\"\ntarget_delimiter: \"\"\ngeneration_kwargs:\n  until: [\"\\n\"]\n  \
         max_gen_toks: 2\n  do_sample: false\n  temperature: 0\nfilter_list:\n  - name: first_symbol\n    filter:\n      - function: regex\n        \
         regex_pattern: \"^\\\\s*(\\\\w+)\"\n      - function: take_first\nmetric_list:\n  - metric: exact_match\n    aggregation: mean\n    \
         higher_is_better: true\nmetadata:\n  version: 1\n  seed: {seed}\n  hops: {hops}\n  entries: {entries}\n",
        name = task.name,
        seed = grid.seed,
        hops = task.cell.hops,
        entries = task.cell.entries_per_table,
    )
}
