//! The chapter "Real models": layers, cache sizes and rungs (hops that the layout allows in one forward pass) of public models.
//!
//! Everything is computed from the configs that ship with the audit. The chapter says that for models of this size the lower bounds start
//! beyond any context length in use.

use rung_audit::report::plot::{CachePlot, PlottedModel};
use rung_audit::report::{format_bytes, with_commas};
use rung_audit::{Audit, AuditOptions, audit_preset, presets};

use super::ChapterOutput;
use crate::artefact::add_figure;
use crate::store::RecordStore;
use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_nn::file::WriteError;

/// Key of the record of all models.
const MODELS_KEY: &str = "audited/models";

/// Audits the configs that ship with the program.
///
/// # Errors
/// The record cannot be written.
pub fn compute(store: &RecordStore) -> Result<(), WriteError> {
    let audits: Vec<Audit> = presets().filter_map(|name| audit_preset(name, &AuditOptions::default()).ok()).collect();
    store.write(MODELS_KEY, &CachePlot::new(&audits))
}

/// Writes the chapter from its record.
pub fn render(store: &RecordStore) -> ChapterOutput {
    let mut chapter = Chapter::new("audited", "Real models");
    chapter.paragraph(
        "A model's config says which of its layers are attention, but every family uses other fields for it, and several well-known \
         calculators assume a growing KV cache in every layer of a hybrid. The table is computed from the fields that each family \
         really uses: full layers, rungs, and the bytes that are kept per token and per sequence (keys and values in 16 bits, \
         recurrent state in 32 unless the config says otherwise, one sequence).",
    );
    let columns = [
        Column::text("model"),
        Column::number("layers"),
        Column::number("full"),
        Column::number("rungs"),
        Column::number("bytes per token"),
        Column::number("state"),
        Column::number("windows"),
        Column::number("cache at 128k"),
    ];
    let mut table = Table::new("Public models, from their own configs", columns);
    let Some(chart) = store.read_or_note::<CachePlot>(MODELS_KEY, &mut chapter) else {
        return ChapterOutput { chapter, summary: "not run.".to_owned(), artefacts: Vec::new() };
    };
    let mut sorted_models: Vec<&PlottedModel> = chart.models.iter().collect();
    sorted_models.sort_by_key(|model| (model.rungs, &model.name));
    for model in sorted_models {
        table.row([
            TableCell::from(model.name.as_str()),
            TableCell::from(model.layers.to_string()),
            TableCell::from(model.full_layers.to_string()),
            TableCell::from(model.rungs.to_string()),
            TableCell::from(with_commas(model.bytes_per_token)),
            TableCell::from(format_bytes(model.state_bytes)),
            TableCell::from(format_bytes(model.window_bytes)),
            TableCell::from(format_bytes(model.cache_bytes)),
        ]);
    }
    chapter.table(table);
    chapter.command("rung audit --all --sort rungs");
    let caption = "Cache at 128k tokens against rungs; every point is a model. Look for points above and to the left of others: more hops in one \
         pass for less memory.";
    let mut artefacts = Vec::new();
    add_figure(&mut chapter, &mut artefacts, "cache", &chart, caption, "rung audit --all --plot cache.svg");
    chapter.note(
        Prose::new()
            .text("Rungs are what the layout allows for large tables and suitable weights; they are no measurement of a trained \
                   model. The matching lower bound starts far beyond any current context length at these sizes, so at 128k \
                   tokens nothing here is proved impossible. ")
            .code("rung audit MODEL")
            .text(" says so for each model, and ")
            .code("--what-if")
            .text(" shows what a change of layout would do."),
    );
    let summary = format!("{} public models read from their configs; cache and rungs of each.", chart.models.len());
    ChapterOutput { chapter, summary, artefacts }
}
