"""Audits a model that was just loaded, before it is trained or served: its layers, its cache, and how many hops they can do.

    python examples/python/audit_model.py

Here the model is a small hybrid with random weights; `AutoModelForCausalLM.from_pretrained(..)` works the same.
"""

import rung
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.for_model(
    "qwen3_next", num_hidden_layers=8, hidden_size=64, intermediate_size=128, vocab_size=256, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config)

audit = rung.audit(model.config, context="32k")
print(audit)
assert audit.unknown == []

# What would half as many full layers cost and save?
edited = audit.what_if("every=8")
print(f"every 8th layer full: {audit.rungs} -> {edited.rungs} rungs, {audit.cache_bytes:,} -> {edited.cache_bytes:,} bytes of cache")

# How many requests of 32k tokens does one device hold?
plan = audit.plan("vllm", memory="24GiB", context="32k", weights="16bpw")
print(f"vLLM on 24 GiB: {plan['requests_fit']} requests of 32k tokens")
