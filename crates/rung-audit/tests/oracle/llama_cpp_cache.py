"""Writes tiny GGUF files of several architectures, loads them in llama.cpp and collects the cache sizes that it logs.

    python llama_cpp_cache.py > llama_cpp_caches.jsonl

Needs numpy, gguf and xllamacpp. Each line has the architecture, `-c`, `-np`, the logged sizes in MiB and the metadata of
the file (as `key: value`, so that the tests can write the same header). Weights are random, because only sizes are compared.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

VOCABULARY = 64
WIDTH = 64
FFN = 96

ATTENTION = {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 32, "attention.value_length": 32}


def norms(name, *parts):
    return {f"{name}.{part}.weight": (WIDTH,) for part in parts}


def feed_forward(name):
    return {f"{name}.ffn_gate.weight": (FFN, WIDTH), f"{name}.ffn_up.weight": (FFN, WIDTH), f"{name}.ffn_down.weight": (WIDTH, FFN)}


def attention(name, gated=False):
    return {
        f"{name}.attn_q.weight": (128 * (2 if gated else 1), WIDTH),
        f"{name}.attn_k.weight": (64, WIDTH),
        f"{name}.attn_v.weight": (64, WIDTH),
        f"{name}.attn_output.weight": (WIDTH, 128),
    }


def embeddings(output=True):
    tensors = {"token_embd.weight": (VOCABULARY, WIDTH), "output_norm.weight": (WIDTH,)}
    return tensors | ({"output.weight": (VOCABULARY, WIDTH)} if output else {})


def llama():
    tensors = embeddings()
    for layer in range(4):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm", "ffn_norm") | attention(name) | feed_forward(name)
    return 4, dict(ATTENTION, **{"rope.dimension_count": 32}), tensors


def gemma3():
    tensors = embeddings(False)
    for layer in range(6):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm") | attention(name) | feed_forward(name)
        tensors |= {f"{name}.attn_q_norm.weight": (32,), f"{name}.attn_k_norm.weight": (32,)}
    return 6, dict(ATTENTION, **{"attention.sliding_window": 512}), tensors


def mamba2():
    inner, state, heads, groups = 128, 16, 4, 1
    tensors = embeddings()
    for layer in range(4):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm") | mamba2_layer(name, inner, state, heads, groups)
    fields = {"ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads, "ssm.group_count": groups}
    return 4, fields, tensors


def mamba2_layer(name, inner, state, heads, groups):
    channels = inner + 2 * groups * state
    return {
        f"{name}.ssm_in.weight": (inner + channels + heads, WIDTH),
        f"{name}.ssm_conv1d.weight": (channels, 4),
        f"{name}.ssm_conv1d.bias": (channels,),
        f"{name}.ssm_dt.bias": (heads,),
        f"{name}.ssm_a": (heads, 1),
        f"{name}.ssm_d": (heads, 1),
        f"{name}.ssm_norm.weight": (groups, inner // groups),
        f"{name}.ssm_out.weight": (WIDTH, inner),
    }


def granitehybrid():
    inner, state, heads, groups = 128, 16, 4, 1
    tensors = embeddings()
    for layer in range(4):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm", "ffn_norm") | feed_forward(name)
        tensors |= attention(name) if layer == 3 else mamba2_layer(name, inner, state, heads, groups)
    fields = dict(ATTENTION, **{
        "attention.head_count_kv": [0, 0, 0, 2], "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state,
        "ssm.time_step_rank": heads, "ssm.group_count": groups, "rope.dimension_count": 32, "embedding_scale": 1.0, "residual_scale": 1.0,
        "attention.scale": 1.0, "logit_scale": 1.0,
    })
    return 4, fields, tensors


def lfm2():
    tensors = {"token_embd.weight": (VOCABULARY, WIDTH), "token_embd_norm.weight": (WIDTH,)}
    for layer in range(4):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm", "ffn_norm") | feed_forward(name)
        if layer == 3:
            # This class gives no head width: it is the model's width divided by the heads.
            tensors |= {f"{name}.attn_{part}.weight": (size, WIDTH) for part, size in (("q", 64), ("k", 32), ("v", 32), ("output", 64))}
            tensors |= {f"{name}.attn_q_norm.weight": (16,), f"{name}.attn_k_norm.weight": (16,)}
        else:
            tensors |= {
                f"{name}.shortconv.conv.weight": (WIDTH, 3),
                f"{name}.shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
                f"{name}.shortconv.out_proj.weight": (WIDTH, WIDTH),
            }
    return 4, {"attention.head_count": 4, "attention.head_count_kv": [0, 0, 0, 2], "shortconv.l_cache": 3}, tensors


def qwen35():
    key_heads, value_heads, state, head_dim = 2, 4, 16, 16
    inner = value_heads * head_dim
    channels = 2 * key_heads * state + inner
    tensors = embeddings()
    for layer in range(4):
        name = f"blk.{layer}"
        tensors |= norms(name, "attn_norm", "post_attention_norm") | feed_forward(name)
        if layer == 3:
            tensors |= attention(name, gated=True) | {f"{name}.attn_q_norm.weight": (32,), f"{name}.attn_k_norm.weight": (32,)}
        else:
            tensors |= {
                f"{name}.attn_qkv.weight": (channels, WIDTH),
                f"{name}.attn_gate.weight": (inner, WIDTH),
                f"{name}.ssm_conv1d.weight": (channels, 4),
                f"{name}.ssm_dt.bias": (value_heads,),
                f"{name}.ssm_a": (value_heads,),
                f"{name}.ssm_beta.weight": (value_heads, WIDTH),
                f"{name}.ssm_alpha.weight": (value_heads, WIDTH),
                f"{name}.ssm_norm.weight": (head_dim,),
                f"{name}.ssm_out.weight": (WIDTH, inner),
            }
    fields = dict(ATTENTION, **{
        "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": value_heads,
        "ssm.group_count": key_heads, "rope.dimension_count": 16, "rope.dimension_sections": [4, 2, 2, 0],
    })
    return 4, fields, tensors


def rwkv7():
    rank, head_dim = 8, 16
    tensors = embeddings() | {"token_embd_norm.weight": (WIDTH,), "token_embd_norm.bias": (WIDTH,), "output_norm.bias": (WIDTH,)}
    for layer in range(4):
        name = f"blk.{layer}"
        for part in ("attn_norm", "attn_norm_2"):
            tensors |= {f"{name}.{part}.weight": (WIDTH,), f"{name}.{part}.bias": (WIDTH,)}
        for part, ranks in (("w", rank), ("a", rank), ("v", rank), ("g", rank)):
            tensors |= {f"{name}.time_mix_{part}1.weight": (ranks, WIDTH), f"{name}.time_mix_{part}2.weight": (WIDTH, ranks)}
            if part != "g":
                tensors[f"{name}.time_mix_{part}0.weight"] = (WIDTH,)
        tensors |= {
            f"{name}.time_mix_lerp_fused.weight": (6, 1, 1, WIDTH),
            f"{name}.time_mix_k_k.weight": (WIDTH,),
            f"{name}.time_mix_k_a.weight": (WIDTH,),
            f"{name}.time_mix_r_k.weight": (WIDTH,),
            f"{name}.time_mix_key.weight": (WIDTH, WIDTH),
            f"{name}.time_mix_value.weight": (WIDTH, WIDTH),
            f"{name}.time_mix_receptance.weight": (WIDTH, WIDTH),
            f"{name}.time_mix_ln.weight": (WIDTH,),
            f"{name}.time_mix_ln.bias": (WIDTH,),
            f"{name}.time_mix_output.weight": (WIDTH, WIDTH),
            f"{name}.channel_mix_lerp_k.weight": (1, 1, WIDTH),
            f"{name}.channel_mix_key.weight": (FFN, WIDTH),
            f"{name}.channel_mix_value.weight": (WIDTH, FFN),
        }
    fields = {
        "wkv.head_size": head_dim, "attention.decay_lora_rank": rank, "attention.iclr_lora_rank": rank,
        "attention.value_residual_mix_lora_rank": rank, "attention.gate_lora_rank": rank, "attention.layer_norm_epsilon": 1e-5,
        "attention.head_count": 0, "token_shift_count": 2,
    }
    return 4, fields, tensors


ARCHITECTURES = {"llama": llama, "gemma3": gemma3, "qwen35": qwen35, "mamba2": mamba2, "granitehybrid": granitehybrid, "rwkv7": rwkv7, "lfm2": lfm2}


def write_model(path, name):
    """Writes the GGUF file of an architecture and returns its metadata."""
    import gguf

    depth, fields, tensors = ARCHITECTURES[name]()
    fields = {"block_count": depth, "context_length": 131072, "embedding_length": WIDTH, "feed_forward_length": FFN} | fields
    fields.setdefault("attention.layer_norm_rms_epsilon", 1e-5)
    writer = gguf.GGUFWriter(path, name)
    for key, value in fields.items():
        key = f"{name}.{key}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{index}" for index in range(VOCABULARY)])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([1] * VOCABULARY)
    random = np.random.default_rng(0)
    for tensor, shape in tensors.items():
        writer.add_tensor(tensor, (random.standard_normal(shape) * 0.02).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return fields


def load(path, context, sequences):
    """Loads the file in llama.cpp, which logs to standard error, and exits."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = sequences
    params.kv_unified = True
    params.verbosity = 4
    params.warmup = False
    server = xllamacpp.Server(params)  # noqa: F841: deleting it would wait for its threads
    # The sizes have been logged; exit without waiting for the server's threads.
    os._exit(0)


LOG_PATTERNS = {
    "kv": r"llama_kv_cache: size =\s*([\d.]+) MiB \(\s*(\d+) cells",
    "recurrent": r"llama_memory_recurrent: size =\s*([\d.]+) MiB",
}


def main():
    if len(sys.argv) == 4:
        load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return
    import xllamacpp

    print(json.dumps({"llama.cpp": str(getattr(xllamacpp, "BUILD_INFO", "")), "xllamacpp": xllamacpp.__version__}))
    with tempfile.TemporaryDirectory() as folder:
        for name in ARCHITECTURES:
            path = os.path.join(folder, f"{name}.gguf")
            fields = write_model(path, name)
            for context, sequences in ((32768, 1), (20000, 4), (32768, 64)):
                run = subprocess.run([sys.executable, __file__, path, str(context), str(sequences)], capture_output=True, text=True, timeout=40)
                row = {"architecture": name, "context": context, "requests": sequences, "fields": fields}
                for part, pattern in LOG_PATTERNS.items():
                    matches = re.findall(pattern, run.stderr + run.stdout)
                    row[part] = [float(match[0] if isinstance(match, tuple) else match) for match in matches]
                if not row["kv"] and not row["recurrent"]:
                    row["error"] = run.stderr[-1500:]
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
