"""Counts the elements of transformers' caches, for tiny models of every decoder class.

For each model type with a text decoder: take the default config, shrink its sizes (the pattern of the layers stays),
build the model with random weights, run it at two lengths with a cache, and add up every floating-point tensor that
the cache holds. Elements are counted by dtype, so the result does not depend on the precision of the run.

    python transformers_cache.py [--only TYPE ...] > transformers_cache.jsonl

Needs torch and transformers; the first line of the output names their versions. The tests that read the stored output
need neither. A type that cannot be run is listed with the error, so that nothing is left out silently.
"""

import argparse
import json
import math
import re
import signal
import sys
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, DynamicCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

LAYERS = 8
# Multiples of every compression ratio in use, and longer than the shrunken windows.
LENGTHS = (256, 512)
# Seconds for one model type.
TIME_LIMIT = 60

# Different sizes, so that confusing two fields changes the result.
SIZES = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "intermediate_size": 96, "n_inner": 96, "ffn_dim": 96,
    "ffn_hidden_size": 96, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48, "vocab_size": 199,
    "max_position_embeddings": 1024, "n_positions": 1024, "n_ctx": 1024, "max_seq_len": 1024,
    "q_lora_rank": 28, "kv_lora_rank": 40, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "qk_head_dim": 24, "rotary_dim": 8, "n_group": 2, "topk_group": 1,
    "num_expert_group": 2, "embedding_dim": 64, "num_blocks": 8, "v_head_dim": 20,
    "sliding_window": 32, "sliding_window_size": 32, "attention_window_size": 32, "window_size": 32,
    "attention_chunk_size": 32, "local_window_size": 32,
    "linear_num_heads": 4, "linear_head_dim": 12, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "mamba_num_heads": 8, "mamba_head_dim": 12, "ssm_state_size": 10, "state_size": 10, "mamba_d_state": 10,
    "mamba_d_head": 16, "mamba_n_heads": 8, "n_mamba_heads": 8, "mamba_headdim": 16, "lru_width": 64,
    "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "indexer_n_heads": 2, "indexer_head_dim": 16,
    "index_block_size": 16, "time_step_rank": 6, "mamba_dt_rank": 6, "adapter_rank": 4, "vocab_size_per_layer_input": 199,
    "hidden_size_per_layer_input": 12, "conv_dim": 64, "global_head_dim": 28, "swa_head_dim": 28, "swa_v_head_dim": 20,
    "mamba_d_ssm": 128, "attention_hidden_size": 128, "attention_head_dim": 32, "shared_intermediate_size": 48,
    "n_groups": 2, "mamba_n_groups": 2, "mamba_ngroups": 2, "expert_ffn_hidden_size": 48, "laurel_rank": 4,
    "o_lora_rank": 12, "o_groups": 2, "qkv_hidden_size": 64, "embedding_size": 64, "attention_latent_dim": 16,
    "moe_latent_size": 16, "moe_shared_expert_intermediate_size": 48, "dense_intermediate_size": 96,
    "mlp_hidden_size": 96, "word_embed_proj_dim": 64, "decoder_ffn_dim": 96, "chunk_size": 16, "block_size": 16,
}
EXPERTS = {
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_topk",
    "num_experts_per_token", "moe_k", "zero_expert_num", "n_shared_experts", "num_shared_experts", "moe_top_k",
}
DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
HEADS = {
    "num_attention_heads", "n_head", "n_heads", "num_heads", "swa_num_attention_heads", "linear_num_key_heads",
    "decoder_attention_heads",
}
KV_HEADS = {"num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "num_global_key_value_heads", "n_head_kv"}


def shrink(values, fields):
    """Shrinks one config's values; `fields` are further values for this type."""
    tiny = dict(values)
    depth = next((values[name] for name in DEPTHS if isinstance(values.get(name), int)), None)
    heads = next((values[name] for name in HEADS if isinstance(values.get(name), int)), None)
    for name, value in values.items():
        if name in DEPTHS and isinstance(value, int):
            tiny[name] = min(value, LAYERS)
        elif name in HEADS and isinstance(value, int):
            tiny[name] = 4
        elif name == "linear_num_value_heads" and isinstance(value, int):
            tiny[name] = 8 if value != values.get("linear_num_key_heads") else 4
        elif name in KV_HEADS and isinstance(value, int):
            tiny[name] = 1 if value == 1 else (4 if value == heads else 2)
        elif name in EXPERTS and isinstance(value, int):
            tiny[name] = min(value, 4 if not name.startswith(("num_experts_per", "moe_topk", "moe_k", "moe_top_k")) else 2)
        elif name.endswith("token_id") and isinstance(value, int) and value >= SIZES["vocab_size"]:
            tiny[name] = 1
        elif name == "head_dim" and isinstance(value, int) and isinstance(values.get("qk_rope_head_dim"), int):
            # Models with latent attention store the rotary width here.
            tiny[name] = SIZES["qk_rope_head_dim"] if values["qk_rope_head_dim"] else 0
        elif name == "head_dim" and isinstance(value, int):
            is_default = heads and values.get("hidden_size") and values["hidden_size"] // heads == value
            tiny[name] = 16 if is_default else 24
        elif name in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            tiny[name] = SIZES[name]
        elif isinstance(value, list) and depth and len(value) >= depth > LAYERS:
            tiny[name] = value[:LAYERS]
        elif name == "per_layer_config" and isinstance(value, dict):
            tiny[name] = {key: shrink(item, {}) for key, item in value.items() if int(key) < LAYERS}
    tiny.update(fields)
    return tiny


# Fields that single types need beyond the table above.
HYBRID = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2
WIDE_HEADS = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
EXTRA_FIELDS = {
    "bamba": {"attn_layer_indices": [3, 7]},
    "cosmos3_edge_text": WIDE_HEADS | {"head_dim": 128},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "dots3_note_text": {"head_dim": 24},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {"num_kv_shared_layers": 2},
    "glm4v_moe_text": WIDE_HEADS | {"head_dim": 128},
    "glm4v_text": WIDE_HEADS | {"hidden_size": 128},
    "glm5_next_text": {"index_topk": 32},
    "glm_ocr_text": WIDE_HEADS | {"head_dim": 64},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "mamba", "attention"] * 2},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "hunyuan_v1_dense": {"head_dim": 24},
    "hunyuan_v1_moe": {"head_dim": 24},
    "hunyuan_vl_text": {"head_dim": 24},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 2},
    "longcat_flash": {"num_layers": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "ministral": {"head_dim": 24},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 24},
    "qwen2_5_vl_text": WIDE_HEADS,
    "qwen2_vl_text": WIDE_HEADS,
    "xlstm": {"chunk_size": 64},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 32,
        "indexer_compress_ratio": 4, "ple_embed_dim": 32, "hc_lowrank": 8, "ngram_vocab_size_base": 64,
    },
    "rwkv": {"attention_hidden_size": 64},
    "cohere_compass_text": {"layer_types": ["full_attention"] * 8, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
}


def tensors(value, seen):
    """Every floating-point tensor inside a cache, however it is nested."""
    # Only tensors and the objects that hold them are compared by identity; other values may be temporary.
    if isinstance(value, torch.Tensor) or hasattr(value, "__dict__"):
        if id(value) in seen:
            return
        seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.dim() >= 2:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module)):
        for name, item in vars(value).items():
            if name != "config":
                yield from tensors(item, seen)


def cache_of(output):
    """The cache of a model's output, under whichever name it has."""
    for name in ("past_key_values", "cache_params", "state", "mems", "past_buckets_states"):
        cache = getattr(output, name, None)
        if cache is not None:
            return cache
    return None


def module_states(model):
    """Caches that are stored in the modules themselves: Griffin's state, convolution inputs and windows."""
    names = ("recurrent_states", "conv1d_state", "key_states", "value_states")
    for module in model.modules():
        states = {name: getattr(module, name, None) for name in names}
        states = {name: tensor for name, tensor in states.items() if isinstance(tensor, torch.Tensor)}
        if states:
            yield type(module).__name__, states


def add_elements(sums, tensors):
    """Adds the elements of tensors to sums by dtype."""
    for tensor in tensors:
        key = str(tensor.dtype).removeprefix("torch.")
        sums[key] = sums.get(key, 0) + tensor.numel()
    return sums


def count(model, length):
    """Elements by dtype, and the classes of the caches; nothing if the model has no cache."""
    torch.manual_seed(0)
    ids = torch.randint(3, 190, (1, length))
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=True)
        cache = cache_of(output)
        if cache is None and any(True for _ in module_states(model)):
            # Griffin stores its state in its modules and its windows in a cache that must be passed in.
            cache = DynamicCache(config=model.config)
            model(input_ids=ids, use_cache=True, past_key_values=cache)
    if cache is None:
        return None
    kinds = {type(layer).__name__ for layer in getattr(cache, "layers", [cache])}
    sums = add_elements({}, tensors(cache, {}))
    for kind, states in module_states(model):
        kinds.add(kind)
        add_elements(sums, states.values())
    return sorted(kinds), sums


IGNORED_FIELDS = {
    "transformers_version", "_name_or_path", "return_dict", "output_hidden_states", "chunk_size_feed_forward", "id2label",
    "label2id", "problem_type", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "attention_dropout",
    "initializer_range", "rms_norm_eps", "layer_norm_epsilon", "output_attentions", "hidden_dropout", "embd_pdrop",
    "resid_pdrop", "attn_pdrop", "rope_parameters", "rope_theta", "rope_scaling", "norm_eps", "layer_norm_eps",
    "classifier_dropout", "is_encoder_decoder", "use_cache", "tie_word_embeddings", "hidden_act", "hidden_activation",
    "vision_config", "audio_config", "image_token_id", "video_token_id", "router_aux_loss_coef", "output_router_logits",
    "base_model_tp_plan", "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels",
}


def to_json_values(values):
    """A config without ignored fields, with only JSON values."""

    def clean(value):
        if isinstance(value, dict):
            return {str(key): clean(item) for key, item in value.items() if key not in IGNORED_FIELDS}
        if isinstance(value, (list, tuple)):
            return [clean(item) for item in value]
        finite = not isinstance(value, float) or math.isfinite(value)
        return value if finite and isinstance(value, (int, float, str, bool, type(None))) else str(value)

    return clean(values)


def build(model_type):
    """The tiny model of one type, and the config it was built from."""
    config = AutoConfig.for_model(model_type)
    values = config.to_dict()
    values.pop("transformers_version", None)
    fields = EXTRA_FIELDS.get(model_type, {})
    inner = next((name for name in ("text_config", "decoder_config") if isinstance(values.get(name), dict)), None)
    attempts = []
    if inner is None:
        lists = {name for name, value in values.items() if isinstance(value, (list, dict)) and name not in ("architectures",)}
        shrunk = shrink(values, fields)
        attempts = [{name: value for name, value in shrunk.items() if name not in lists or name in fields}, shrunk]
    else:
        shrunk = dict(values)
        shrunk[inner] = shrink(values[inner], fields)
        attempts = [shrunk]
    error = None
    for attempt in attempts:
        try:
            attempt = {name: value for name, value in attempt.items() if name not in ("model_type", "dtype", "architectures")}
            tiny = type(config)(**attempt)
            for name in ("is_decoder", "use_cache"):
                if hasattr(tiny, name):
                    setattr(tiny, name, True)
            model_class = AutoModelForCausalLM if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModel
            with torch.device("meta"):
                size = sum(weight.numel() for weight in model_class.from_config(tiny).parameters())
            if size > 30_000_000:
                raise ValueError(f"the shrunken model still has {size} weights")
            return model_class.from_config(tiny).eval(), tiny
        except Exception as exception:  # noqa: BLE001
            error = exception
    raise error


def decoder_types():
    """All model types with a text decoder."""
    for model_type in CONFIG_MAPPING_NAMES:
        if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or ("text" in model_type and model_type in MODEL_MAPPING_NAMES):
            yield model_type


def raise_timeout(*_):
    raise TimeoutError(f"not built and run within {TIME_LIMIT} seconds")


def main():
    signal.signal(signal.SIGALRM, raise_timeout)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*")
    only = parser.parse_args().only
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "lengths": LENGTHS}))
    for model_type in only or decoder_types():
        row = {"type": model_type}
        signal.alarm(TIME_LIMIT)
        try:
            model, tiny = build(model_type)
            try:
                # In half precision the dtypes show which states are stored in full precision.
                first, second = (count(model.to(torch.bfloat16), length) for length in LENGTHS)
            except Exception:  # noqa: BLE001
                first, second = (count(model.to(torch.float32), length) for length in LENGTHS)
            if first is None:
                row["not_run"] = "the model returns no cache"
            else:
                dtypes = first[1].keys() | second[1].keys()
                row["dtype"] = "bf16" if "bfloat16" in dtypes else "fp32"
                row["cache"] = first[0]
                row["elements"] = {dtype: [count_at_length[1].get(dtype, 0) for count_at_length in (first, second)] for dtype in sorted(dtypes)}
                row["config"] = to_json_values(tiny.to_dict())
        except Exception as error:  # noqa: BLE001
            # Paths of this machine are removed from the message.
            row["not_run"] = re.sub(r" neither in <module.*", " in the library", f"{type(error).__name__}: {error}")[:200]
        signal.alarm(0)
        print(json.dumps(row), flush=True)
        print(model_type, row.get("not_run", "ok"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
