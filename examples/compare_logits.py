"""Compare the logits that transformers and llama.cpp give for an exported network with those of `rung logits`.

    rung export run --to hf --out run-hf
    rung export run --to gguf --out run-gguf
    rung task prompt 'funccomp{hops=1,m=4,n=[]}' --style tokens --count 20 --json > prompts.jsonl
    python examples/compare_logits.py prompts.jsonl --hf run-hf --gguf run-gguf/model.gguf

For networks that transformers has no class for, leave --hf out: `rung logits` then runs the GGUF file. For RWKV-7, --fla takes the class
of flash-linear-attention, whose kernels run on a CPU in Triton's interpreter.

Needs `rung` in the path (or --rung), and the packages that check_export.py names. Prints the largest difference of a logit relative to the
largest logit (transformers, all positions) and the largest difference of a log-probability (llama.cpp, after the prompt).
"""

import argparse
import json
import math
import os
import subprocess


def rung_logits(rung, model, tokens):
    ids = ",".join(map(str, tokens))
    output = subprocess.run([rung, "logits", model, "--tokens", ids, "--json"], check=True, capture_output=True)
    return json.loads(output.stdout)["logits"]


def rung_tokens(rung, model, text):
    output = subprocess.run([rung, "generate", model, "--prompt", text, "--count", "0", "--json"], check=True, capture_output=True)
    return json.loads(output.stdout)["prompt_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", help="JSON lines of `rung task prompt --style tokens --json`")
    parser.add_argument("--hf", help="directory of `rung export --to hf`")
    parser.add_argument("--gguf", help="file of `rung export --to gguf`")
    parser.add_argument("--fla", action="store_true", help="the classes of flash-linear-attention")
    parser.add_argument("--rung", default="rung")
    arguments = parser.parse_args()
    if not (arguments.hf or arguments.gguf):
        parser.error("--hf or --gguf is needed")

    if arguments.fla:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import transformers

    if arguments.fla:
        import triton.runtime.autotuner

        # Without a GPU there is nothing to time: every configuration of a kernel is as good as another.
        triton.runtime.autotuner.Autotuner._bench = lambda self, *args, **kwargs: [1.0, 1.0, 1.0]
        import fla.models  # registers its classes with transformers

    torch.set_grad_enabled(False)
    with open(arguments.prompts) as lines:
        texts = [json.loads(line)["text"] for line in lines]
    if arguments.hf:
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.hf)
        rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    else:
        rows = [rung_tokens(arguments.rung, arguments.gguf, text) for text in texts]
    expected_logits = [torch.tensor(rung_logits(arguments.rung, arguments.hf or arguments.gguf, row)) for row in rows]
    if arguments.hf:
        model, worst = transformers.AutoModelForCausalLM.from_pretrained(arguments.hf, dtype=torch.float32).eval(), 0.0
        for row, expected in zip(rows, expected_logits):
            found = model(torch.tensor([row]), use_cache=False).logits[0]
            worst = max(worst, float((found - expected).abs().max() / expected.abs().max()))
        program = f"transformers {transformers.__version__} {type(model).__name__}"
        print(json.dumps({"program": program, "prompts": len(rows), "largest relative difference": worst}), flush=True)
    if arguments.gguf:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = arguments.gguf
        params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 1024, 1, False, 1
        params.port, params.verbosity = 0, -1
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        server = xllamacpp.Server(params)
        worst = 0.0
        for text, expected in zip(texts, expected_logits):
            expected = torch.log_softmax(expected[-1].double(), -1)
            request = {"prompt": text, "n_predict": 1, "temperature": 0, "cache_prompt": False, "logprobs": 5}
            reply = server.handle_completions(request)
            token = reply["choices"][0]["logprobs"]["content"][0]
            for entry in token["top_logprobs"]:
                if math.isfinite(entry["logprob"]):
                    worst = max(worst, abs(entry["logprob"] - float(expected[entry["id"]])))
        program = f"llama.cpp (xllamacpp {xllamacpp.__version__}), F32 cache, no flash attention"
        print(json.dumps({"program": program, "prompts": len(rows), "largest log-probability difference": worst}), flush=True)
    os._exit(0)  # llama.cpp's threads do not end by themselves


if __name__ == "__main__":
    main()
