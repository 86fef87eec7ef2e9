//! Audits a stack written in the stack grammar like a model: with the same cache, rungs, edits and engine plans.

use rung_theory::stack::{Defaults, Layer, Mixer, MixerReach, Plan};

use crate::audit::{Audit, AuditLayer, AuditOptions};
use crate::cost::{self, CacheSettings, FP32};
use crate::{AttentionScope, AuditError, FeedForwardKind, attention_sizes};

/// Audits a stack such as `(gdn*3 full)*12`; sizes that its mixers do not give are those of `defaults`.
///
/// # Errors
/// The text is not a valid stack, or a total does not fit 64 bits.
pub fn audit_stack(text: &str, defaults: &Defaults, options: &AuditOptions) -> Result<Audit, AuditError> {
    let plan = Plan::parse(text, defaults).map_err(|error| AuditError::invalid_argument(text, error.to_string()))?;
    let full_layer = plan.layers.iter().find(|layer| layer.mixers.iter().any(|mixer| mixer.kind().reads_every_token));
    let full_template = match full_layer {
        Some(layer) => Layer::new(layer.mixers.iter().find(|mixer| is_full(mixer)).unwrap_or(&layer.mixers[0]).clone()),
        None => Layer::new(attention_sizes::build_mixer("full", &[], defaults.bits, defaults)?),
    };
    let mut audit = Audit {
        layers: plan.layers.iter().map(audit_layer).collect(),
        width: Some(plan.width),
        state_dtype: options.state_dtype.unwrap_or(FP32),
        full_template: Some(full_template),
        ..Audit::without_layers(text, "stack grammar", options)
    };
    audit.assumptions.push(format!("Keys and values in {}, batch of one.", audit.kv_dtype.name));
    audit.compute_costs_and_bounds(options)?;
    Ok(audit)
}

fn is_full(mixer: &Mixer) -> bool {
    matches!(mixer.facts().reach, MixerReach::Full(_))
}

fn audit_layer(layer: &Layer) -> AuditLayer {
    let (mut attention, mut recurrent) = (AttentionScope::NoAttention, None);
    for mixer in layer.mixers.iter() {
        let facts = mixer.facts();
        match &facts.reach {
            MixerReach::Full(_) if facts.selection().is_none() => attention = AttentionScope::Full,
            MixerReach::Full(_) => attention = AttentionScope::Sparse,
            MixerReach::Bounded if facts.window_elements_per_token > 0 => {
                attention = if attention == AttentionScope::NoAttention { AttentionScope::Window } else { attention };
            }
            MixerReach::Bounded if facts.state_size() > 0 => recurrent = Some(mixer.name()),
            MixerReach::Bounded => {}
        }
    }
    AuditLayer {
        attention: Some(attention),
        recurrent,
        feed_forward: FeedForwardKind::Dense,
        decided_by: "stack grammar".to_owned(),
        shares_cache: layer.shares_cache,
        shares_parameters: false,
        plan_layers: vec![layer.clone()],
    }
}

impl Audit {
    /// Bytes of all caches at a given context; nothing where sizes are not known or the sum does not fit 64 bits.
    pub fn cache_at(&self, context: u64) -> Option<u64> {
        self.cache?;
        let settings = CacheSettings { context, kv: self.kv_dtype, state: self.state_dtype };
        cost::cache_bytes(self.plan.as_ref()?.layers.iter(), settings).ok().map(|cache| cache.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{audit_preset, what_if};

    #[test]
    fn stack_of_a_preset_costs_the_same_as_the_preset() {
        let options = AuditOptions::default();
        for name in ["qwen3.5-9b", "gemma-3-27b", "falcon-h1-1.5b", "deepseek-v3.2", "mamba2-2.7b", "llama-3.1-8b"] {
            let model = audit_preset(name, &options).unwrap();
            let plan = model.plan.as_ref().unwrap();
            let defaults = Defaults { model_width: Some(plan.width), ..Defaults::default() };
            let stack = audit_stack(&plan.to_stack().to_string(), &defaults, &options).unwrap();
            assert_eq!(stack.cache, model.cache, "{name}");
            assert_eq!(stack.capacity.as_ref().unwrap().rungs, model.capacity.as_ref().unwrap().rungs, "{name}");
            assert_eq!(stack.cache_at(options.context), model.cache.map(|cache| cache.total), "{name}");
        }
    }

    #[test]
    fn audit_stack_accepts_edits_and_rejects_invalid_stacks() {
        let options = AuditOptions::default();
        let audit = audit_stack("(gdn*3 full)*2", &Defaults::default(), &options).unwrap();
        assert_eq!(audit.layer_letters(), "rrrFrrrF");
        assert_eq!(what_if::apply(&audit, "every=2", &options).unwrap().layer_letters(), "rFrFrFrF");
        assert!(audit_stack("no such mixer", &Defaults::default(), &options).is_err());
        assert!(audit_stack("", &Defaults::default(), &options).is_err());
    }
}
