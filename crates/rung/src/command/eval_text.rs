//! `rung eval` of an external checkpoint: next tokens of a file, or answers to built-in tasks as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use rung_inspect::analysis::AnalysisOptions;
use rung_inspect::analysis::questions::{GroupScore, QuestionLimits, Questions};
use rung_nn::{Network, NoHooks};
use rung_train::run::accuracy::AnswerCount;
use serde_json::json;

use super::text_prompts::{CheckpointPromptOptions, ForwardPasses, open_network, print_estimate, prompt_progress};
use crate::output::{print, print_json, progress_bar};

/// Evaluates a checkpoint on prompts as text, on all cores.
///
/// # Errors
/// The checkpoint, its tokenizer or the prompts cannot be read.
pub fn evaluate(model: &Path, request: &CheckpointPromptOptions<'_>, as_json: bool) -> anyhow::Result<ExitCode> {
    let text = request.read(model)?;
    let network = open_network::<f32>(model)?;
    print_estimate("eval", &network, &text, ForwardPasses::ONE)?;
    let prompts = Some(text.prompts.len());
    let bar = progress_bar(text.prompts.len() as u64).with_message("prompts evaluated");
    let progress = prompt_progress(&bar);
    let options = AnalysisOptions { prompts, text: Some(text.into()), progress, ..AnalysisOptions::default() };
    let questions = Questions::sample(&network, &options, QuestionLimits::NONE)?;
    let scores = questions.measure(&network.model, &network.weights, || NoHooks)?;
    bar.finish_and_clear();
    if as_json {
        print_json(&to_json(model, &questions, &scores))?;
    } else {
        print(&to_text(&network, &questions, &scores)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(model: &Path, questions: &Questions, scores: &BTreeMap<u16, GroupScore>) -> serde_json::Value {
    let group = |(hops, score): (&u16, &GroupScore)| {
        json!({
            "hops": hops,
            "accuracy": AnswerCount { correct: score.correct, count: score.count },
            "loss": score.mean_loss(),
            "perplexity": score.mean_loss().exp(),
        })
    };
    json!({
        "model": model,
        "prompts": questions.prompt_count(),
        "tokens": questions.token_count(),
        "task": questions.task,
        "symbols": questions.symbols.len(),
        "groups": scores.iter().map(group).collect::<Vec<_>>(),
    })
}

fn to_text(
    network: &Network<f32>,
    questions: &Questions,
    scores: &BTreeMap<u16, GroupScore>,
) -> anyhow::Result<String> {
    let mut text = format!(
        "{} on {}: {} prompts, {} tokens\n",
        network.name,
        questions.task,
        questions.prompt_count(),
        questions.token_count()
    );
    let criterion = match questions.symbols.len() {
        0 => "the next token is the likeliest".to_owned(),
        symbols => {
            format!("the answer is the likeliest of {symbols} symbols; guessing scores {:.1}%", 100.0 / symbols as f64)
        }
    };
    writeln!(text, "right: {criterion}; loss: mean negative log-probability among all tokens, in nats (measured)")?;
    for (hops, score) in scores {
        let (low, high) = AnswerCount { correct: score.correct, count: score.count }.interval();
        let name = if *hops == 0 { "all".to_owned() } else { format!("hop {hops}") };
        let [mean, low, high] = [score.accuracy(), low, high].map(|fraction| format!("{:.2}%", 100.0 * fraction));
        let (loss, count) = (score.mean_loss(), score.count);
        writeln!(
            text,
            "  {name:6} {mean:>8}  ({low} to {high}, {count} questions)  loss {loss:.4}  perplexity {:.3}",
            loss.exp()
        )?;
    }
    Ok(text)
}
