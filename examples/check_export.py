"""Ask an exported network every prompt of a file, in transformers and in llama.cpp.

    rung construct U1 --hops 2 --m 2 --n 2 --out u1
    rung export u1 --to hf --out u1-hf
    rung export u1 --to gguf --out u1-gguf
    rung task prompt 'funccomp{hops=2,m=2,n=[2]}' --style tokens --all --json > prompts.jsonl
    python examples/check_export.py prompts.jsonl --hf u1-hf --gguf u1-gguf/model.gguf

Needs `pip install transformers torch` for --hf and `pip install xllamacpp` for --gguf. The answer is the token with the highest score of the
whole vocabulary. Prints one line of JSON for each program and exits with 1 if an answer is wrong.
"""

import argparse
import json
import os
import sys
import time


def ask_transformers(folder, questions, dtype, batch):
    import torch
    import transformers

    torch.set_grad_enabled(False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    right = 0
    for first in range(0, len(questions), batch):
        part = questions[first : first + batch]
        rows = [tokenizer(question["text"], add_special_tokens=False)["input_ids"] for question in part]
        assert tokenizer.unk_token_id not in {token for row in rows for token in row}, "a word is not in the vocabulary"
        best = model(torch.tensor(rows), use_cache=False).logits[:, -1].argmax(-1).tolist()
        right += sum(tokenizer.decode([token]).strip() == question["answer"] for token, question in zip(best, part))
    return f"transformers {transformers.__version__} {type(model).__name__}", dtype, right


def ask_llama_cpp(path, questions, cache):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 1024, 1, False, 1
    params.port = 0
    params.verbosity = -1
    kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache.upper()}")
    params.cache_type_k, params.cache_type_v = kind, kind
    server = xllamacpp.Server(params)
    right = 0
    for question in questions:
        request = {"prompt": question["text"], "n_predict": 1, "temperature": 0, "cache_prompt": False}
        reply = server.handle_completions(request)
        if "choices" in reply:
            text = reply["choices"][0]["text"]
        else:
            text = reply["content"]
        right += text.strip() == question["answer"]
    return f"llama.cpp (xllamacpp {xllamacpp.__version__})", f"{cache} cache", right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", help="JSON lines of `rung task prompt --style tokens --json`")
    parser.add_argument("--hf", help="directory of `rung export --to hf`")
    parser.add_argument("--gguf", help="file of `rung export --to gguf`")
    parser.add_argument("--dtype", default="float32", help="precision of transformers: float32, bfloat16, float16")
    parser.add_argument("--cache", default="f16", help="KV cache of llama.cpp: f16, f32, bf16")
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()
    with open(arguments.prompts) as lines:
        questions = [json.loads(line) for line in lines]
    wrong = 0
    for path, ask in [
        (arguments.hf, lambda: ask_transformers(arguments.hf, questions, arguments.dtype, arguments.batch)),
        (arguments.gguf, lambda: ask_llama_cpp(arguments.gguf, questions, arguments.cache)),
    ]:
        if path:
            start = time.time()
            program, precision, right = ask()
            result = {"program": program, "model": path, "precision": precision, "right": right, "of": len(questions)}
            print(json.dumps(result | {"seconds": round(time.time() - start, 1)}), flush=True)
            wrong += right < len(questions)
    sys.stdout.flush()
    os._exit(1 if wrong else 0)  # llama.cpp's threads do not end by themselves


if __name__ == "__main__":
    main()
