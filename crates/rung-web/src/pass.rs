//! One forward pass of a construction, with everything in it: every token, every read, every register.

use rung_nn::construct::{self, ConstructionRequest, Register, RegisterKind};
use rung_nn::trace::{ReaderKind, Trace, sequence};
use rung_theory::stack::Mixer;
use rung_theory::task::{NO_TARGET, Prompt, TokenNames, seeded};
use serde_json::{Value, json};

use crate::request::PassRequest;
use crate::sentence;

/// Larger instances are refused: a pass is something to look at.
const MOST_TOKENS: usize = 200;
/// A read of less than this share is not shown.
const LEAST_SHARE: f64 = 0.02;

/// Builds the construction, runs it on a prompt, and lists what happened.
pub(crate) fn pass(asked: &PassRequest) -> Result<Value, String> {
    if asked.hops == 0 || asked.hops > 5 || asked.m > 32 || asked.n.iter().any(|n| *n > 8) {
        return Err("a pass to look at has 1 to 5 hops, m of at most 32 and each n of at most 8".to_owned());
    }
    let request = ConstructionRequest {
        hops: asked.hops,
        m: asked.m,
        n: asked.n.clone(),
        mixer: asked.mixer.clone().filter(|mixer| !mixer.is_empty()),
        ..ConstructionRequest::default()
    };
    let length = asked.n.iter().scan(u64::from(asked.m), |size, n| {
        *size *= u64::from(*n);
        Some(*size)
    });
    if length.sum::<u64>() + u64::from(asked.m) > MOST_TOKENS as u64 {
        return Err(format!("the tables have too many entries to look at: expected at most {MOST_TOKENS} tokens"));
    }
    let built = construct::build::<f32>(&asked.construction, &request).map_err(sentence)?;
    let mut prompt = Prompt::new();
    let task = built.task().map_err(sentence)?;
    let info = built.construction().ok_or("the weights were not constructed")?;
    task.prompt(&mut seeded(asked.seed), &mut prompt);
    let ids = asked.tokens.clone().unwrap_or_else(|| prompt.tokens().to_vec());
    let targets = task.oracle(&ids).map_err(sentence)?;
    let tokens = sequence(&built, &ids).map_err(sentence)?;
    let trace = Trace::record(&built, &tokens).map_err(sentence)?;
    let fields = task.fields();
    let words = TokenNames::new(task);
    let names: Vec<String> = tokens.chunks_exact(fields.len()).map(|token| words.name(token)).collect();
    let position = targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(targets.len().saturating_sub(1));
    let thoughts = built.chain_of_thought();
    let answering = if thoughts.is_some() { trace.tokens() - 1 } else { position };
    let scores = trace.scores(answering);
    let best = (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best });
    let answer = thoughts.map_or(best as u32, |thoughts| thoughts.token(scores)[thoughts.answer]);
    let flow = trace.flow(&(position.min(answering)..=answering).collect::<Vec<_>>(), LEAST_SHARE, MOST_TOKENS);
    let registers: Vec<&Register> =
        info.registers.iter().filter(|register| register.holds != RegisterKind::Constant).collect();
    let level = |level: usize| -> Vec<Value> {
        (0..trace.tokens())
            .map(|token| registers.iter().map(|one| register_value(one, trace.stream(level, token))).collect())
            .collect()
    };
    let layer = |index: usize| {
        let reads = flow.reads.iter().filter(|read| read.layer == index).map(|read| {
            let through = match read.reads {
                ReaderKind::Attention => "attention",
                ReaderKind::State => "state",
                ReaderKind::Convolution => "convolution",
            };
            json!({"through": through, "head": read.head, "from": read.from, "to": read.to, "share": read.share})
        });
        let mixers: Vec<&str> = built.plan.layers[index].mixers.iter().map(Mixer::name).collect();
        json!({
            "mixers": mixers.join(" + "),
            "about": info.layers[index],
            "reads": reads.collect::<Vec<_>>(),
            "held": level(index + 1),
        })
    };
    Ok(json!({
        "construction": info.name,
        "task": task.spec(),
        "stack": built.plan.outline(),
        "width": built.plan.width,
        "weights": built.weights.size(),
        "fields": fields.iter().map(|field| json!({"name": field.name, "vocabulary": field.vocabulary})).collect::<Vec<_>>(),
        "prompt": ids,
        "tokens": tokens,
        "names": names,
        "prompt_tokens": targets.len(),
        "position": answering,
        "answer": answer,
        "expected": targets.get(position).filter(|target| **target != NO_TARGET),
        "registers": registers.iter().map(|one| json!({"name": one.name, "about": one.about, "raw": one.holds == RegisterKind::Raw})).collect::<Vec<_>>(),
        "embedded": level(0),
        "layers": (0..trace.layers.len()).map(layer).collect::<Vec<_>>(),
    }))
}

/// What a register holds: a number, or nothing.
fn register_value(register: &Register, stream: &[f64]) -> Value {
    match (register.holds, register.number(stream)) {
        (RegisterKind::Flag, Some(1)) => json!("yes"),
        (RegisterKind::Flag, _) | (_, None) => Value::Null,
        (_, Some(number)) => json!(number),
    }
}
