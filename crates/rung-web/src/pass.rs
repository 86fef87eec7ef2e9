//! One forward pass of a construction, with every token, every attention or state read and every register.

use rung_nn::construct::{self, ConstructionRequest, Register, RegisterKind};
use rung_nn::trace::{MixingKind, Trace, full_sequence};
use rung_theory::stack::Mixer;
use rung_theory::task::{NO_TARGET, Prompt, TokenNames, seeded};
use serde_json::{Value, json};

use crate::error_text;
use crate::request::PassRequest;

/// The most tokens of a pass, so that the page can show it.
const MAX_TOKENS: usize = 200;
/// Reads with a smaller share are not shown (see `rung_nn::trace::MixingOp::shares`).
const MIN_SHARE: f64 = 0.02;

/// Builds the construction, runs it on a prompt, and lists reads and register values of every layer.
pub(crate) fn pass(request: &PassRequest) -> Result<Value, String> {
    if request.hops == 0
        || request.hops > 5
        || request.first_table_entries > 32
        || request.growth_factors.iter().any(|growth| *growth > 8)
    {
        return Err("a pass that can be displayed has 1 to 5 hops, m of at most 32 and each n of at most 8".to_owned());
    }
    let construction_request = ConstructionRequest {
        hops: request.hops,
        first_table_entries: request.first_table_entries,
        growth_factors: request.growth_factors.clone(),
        mixer: request.mixer.clone().filter(|mixer| !mixer.is_empty()),
        ..ConstructionRequest::default()
    };
    let table_sizes = request.growth_factors.iter().scan(u64::from(request.first_table_entries), |size, growth| {
        *size *= u64::from(*growth);
        Some(*size)
    });
    if table_sizes.sum::<u64>() + u64::from(request.first_table_entries) > MAX_TOKENS as u64 {
        return Err(format!("the tables have too many entries to display: expected at most {MAX_TOKENS} tokens"));
    }
    let network = construct::build::<f32>(&request.construction, &construction_request).map_err(error_text)?;
    let mut prompt = Prompt::new();
    let task = network.task().map_err(error_text)?;
    let construction = network.construction().ok_or("the weights were not constructed")?;
    task.sample_prompt(&mut seeded(request.seed), &mut prompt);
    let ids = request.tokens.clone().unwrap_or_else(|| prompt.tokens().to_vec());
    let targets = task.oracle(&ids).map_err(error_text)?;
    let tokens = full_sequence(&network, &ids).map_err(error_text)?;
    let trace = Trace::record(&network, &tokens).map_err(error_text)?;
    let fields = task.fields();
    let token_names = TokenNames::new(task);
    let names: Vec<String> = tokens.chunks_exact(fields.len()).map(|token| token_names.name(token)).collect();
    let question_position =
        targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(targets.len().saturating_sub(1));
    let chain_of_thought = network.chain_of_thought();
    let answer_position = if chain_of_thought.is_some() { trace.token_count() - 1 } else { question_position };
    let logits = trace.logits(answer_position);
    let predicted_class =
        (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best });
    let answer =
        chain_of_thought.map_or(predicted_class as u32, |chain| chain.argmax_token(logits)[chain.answer_field]);
    let flow = trace.flow(
        &(question_position.min(answer_position)..=answer_position).collect::<Vec<_>>(),
        MIN_SHARE,
        MAX_TOKENS,
    );
    let registers: Vec<&Register> =
        construction.registers.iter().filter(|register| register.kind != RegisterKind::Constant).collect();
    let register_values = |level: usize| -> Vec<Value> {
        (0..trace.token_count())
            .map(|token| {
                registers.iter().map(|register| register_value(register, trace.residual(level, token))).collect()
            })
            .collect()
    };
    let layer = |index: usize| {
        let reads = flow.reads.iter().filter(|read| read.layer == index).map(|read| {
            let kind = match read.kind {
                MixingKind::Attention => "attention",
                MixingKind::State => "state",
                MixingKind::Convolution => "convolution",
            };
            json!({"through": kind, "head": read.head, "from": read.from, "to": read.to, "share": read.share})
        });
        let mixers: Vec<&str> = network.plan.layers[index].mixers.iter().map(Mixer::name).collect();
        json!({
            "mixers": mixers.join(" + "),
            "about": construction.layers[index],
            "reads": reads.collect::<Vec<_>>(),
            "held": register_values(index + 1),
        })
    };
    Ok(json!({
        "construction": construction.name,
        "task": task.spec(),
        "stack": network.plan.mixer_names(),
        "width": network.plan.width,
        "weights": network.weights.size(),
        "fields": fields.iter().map(|field| json!({"name": field.name, "vocabulary": field.vocabulary})).collect::<Vec<_>>(),
        "prompt": ids,
        "tokens": tokens,
        "names": names,
        "prompt_tokens": targets.len(),
        "position": answer_position,
        "answer": answer,
        "expected": targets.get(question_position).filter(|target| **target != NO_TARGET),
        "registers": registers.iter().map(|register| json!({"name": register.name, "about": register.about, "raw": register.kind == RegisterKind::Unrounded})).collect::<Vec<_>>(),
        "embedded": register_values(0),
        "layers": (0..trace.layers.len()).map(layer).collect::<Vec<_>>(),
    }))
}

/// A register's value: a number, `yes` for a flag that is set, or nothing.
fn register_value(register: &Register, residual: &[f64]) -> Value {
    match (register.kind, register.decode(residual)) {
        (RegisterKind::Flag, Some(1)) => json!("yes"),
        (RegisterKind::Flag, _) | (_, None) => Value::Null,
        (_, Some(number)) => json!(number),
    }
}
