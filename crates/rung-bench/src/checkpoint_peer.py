"""The work of `rung bench --only checkpoint` in other software, on the same checkpoint.

`rung bench` starts this script, after `peer_protocol.py`, with the software, the number of threads and the checkpoint as arguments. Requests are

    prefill TOKENS          decode TOKENS

where TOKENS is the length of the prompt; a time is that of one token when decoding. Software is `transformers` (F32, eager mode of PyTorch), `llama.cpp-f32` (the weights of the
GGUF file converted to F32) or `llama.cpp` (the GGUF file as it is), the last two through the package xllamacpp.
"""

import contextlib
import json
import os
import tempfile
import urllib.request

# Tokens that are decoded per repetition.
DECODE_TOKENS = 8

software, threads, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def prompt(length):
    return [7 + index * 37 % 1000 for index in range(length)]


class Transformers:
    def __init__(self):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self.torch, self.name_and_version = torch, f"transformers {transformers.__version__}, torch {torch.__version__}, f32"
        folder, name = (path, None) if os.path.isdir(path) else os.path.split(path)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder or ".", gguf_file=name, dtype=torch.float32)
        self.model = loaded.eval()
        self.cache = None

    def run(self, tokens, cache):
        with self.torch.inference_mode():
            tokens = self.torch.tensor([tokens])
            output = self.model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return output.past_key_values

    def prefill(self, length):
        start = time.perf_counter()
        self.cache = self.run(prompt(length), None)
        return 1e3 * (time.perf_counter() - start)

    def decode(self, length):
        if self.cache is None or not length <= self.cache.get_seq_length() < 2 * length:
            self.prefill(length)
        start = time.perf_counter()
        for token in range(DECODE_TOKENS):
            self.cache = self.run([9 + token], self.cache)
        return 1e3 * (time.perf_counter() - start) / DECODE_TOKENS


class LlamaCpp:
    def __init__(self, as_f32):
        import xllamacpp

        if os.path.isdir(path):
            raise ImportError("llama.cpp reads GGUF files, and this is a directory")
        params = xllamacpp.CommonParams()
        self.folder = tempfile.TemporaryDirectory() if as_f32 else None
        params.model.path = convert_to_f32(os.path.join(self.folder.name, "f32.gguf")) if as_f32 else path
        params.n_ctx, params.n_parallel, params.warmup = 4096, 1, True
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(params)
        self.name_and_version = f"llama.cpp (xllamacpp {xllamacpp.__version__}), " + ("F32" if as_f32 else "as stored")

    def complete(self, length, count):
        body = {"prompt": prompt(length), "n_predict": count, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        request = urllib.request.Request(
            self.server.listening_address + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())["timings"]

    def prefill(self, length):
        return self.complete(length, 1)["prompt_ms"]

    def decode(self, length):
        # The first token comes with the prompt.
        return self.complete(length, DECODE_TOKENS + 1)["predicted_per_token_ms"]


def convert_to_f32(out):
    import gguf
    import numpy
    from gguf.quants import dequantize

    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            value_type = field.types[0]
            element_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), value_type, sub_type=element_type)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def main():
    # Libraries print to standard output too; only answers must go to the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        peer = Transformers() if software == "transformers" else LlamaCpp(software == "llama.cpp-f32")
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=answers, flush=True)
        return
    def prepare(request, length):
        measure = peer.prefill if request == "prefill" else peer.decode
        return lambda: measure(int(length))

    serve(peer.name_and_version, prepare, answers)


with contextlib.suppress(KeyboardInterrupt):
    main()
