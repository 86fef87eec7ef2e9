"""Writes pre_tokenizers.json: a small byte-level BPE vocabulary, a hundred strings, and the tokens that llama.cpp's /tokenize gives for each of
its names of pre-tokenizers. Needs the packages gguf, tokenizers, numpy and xllamacpp.

The merges are learned from strings that are not split, so that pairs across all kinds of characters are merged and a split in another place
gives other tokens. The tiny Llama around the vocabulary has random weights and is thrown away; only its `tokenizer.ggml.pre` differs from name to
name. Names that llama.cpp tokenizes alike are stored together.
"""

import json
import pathlib
import random
import tempfile
import urllib.request

import gguf
import numpy as np
import xllamacpp
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
WIDTH, HIDDEN = 32, 32

# `None`: no `tokenizer.ggml.pre`.
NAMES = [
    None, "default", "gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum", "modern-bert",
    "exaone4", "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "falcon", "llama-bpe", "llama3", "llama-v3",
    "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe", "qwen2", "deepseek-r1-qwen", "stablelm2",
    "megrez", "hunyuan", "grok-2", "solar-open", "qwen35", "gpt-4o", "llama4", "kanana2", "minimax-m2", "tekken", "deepseek-llm", "deepseek-v3",
    "hunyuan-dense", "joyai-llm", "kimi-k2",
]

TEXTS = [
    "Hello, world!", "The capital of France is", " leading space", "trailing space ", "two  spaces", "three   spaces   between", "   ", " ", "\n",
    "tabs\tand\nnew lines\n\n", "\n\n\nthree", "a \n b", "a\n \nb", " \n", "\r\nwindows\r\n", "    indented code():\n\treturn x+1", "end  \n  ", "a   ",
    "\tx\t\ty", "1", "12", "123", "1234", "12345", "1234567", "3.14159 and 2,718", "in 1969.", "year2024is", "x1y22z333", "1st 2nd 3rd", "1 22 333 4444",
    "$100.00 €50 £3", "0xDEADBEEF", "١٢٣ ٤٥٦", "１２３４５", "Ⅷ ½ ²", "x²y³", "it's we're they'll I'd", "IT'S WE'RE THEY'LL I'D", "It'S we'Re don'T", "'s 's' ''t", "rock'n'roll",
    "HelloWorld", "helloWORLD", "HTTPServer", "camelCaseWords", "XMLHttpRequest", "ÜBER Straße naïve café", "ÄÖÜäöüß", "ÉCOLEécole", "Éa aÉ", "Привет, мир", "ПРИВЕТмир",
    "日本語のテキスト", "漢字かなカナ", "中文123字", "你好，世界。", "한국어 텍스트", "中 文", "a中b", "ひらがな", "カタカナー", "中A文B", "مرحبا بالعالم", "שלום עולם", "ไทยภาษา", "नमस्ते दुनिया",
    "😀 emoji 👩‍👩‍👧‍👦", "😀😀", "a😀b", "a\u0301 combining", "e\u0301te\u0301", " \u0301x", "\u0301", "\u00a0nbsp\u00a0\u00a0x", "\u200bzero width", "\u3000ideographic\u3000",
    "…—–“”‘’", "!!!???...", "?!x", ".hello", " .hello", "(parens) [brackets] {braces}", "a+b=c<d>e^f~g|h`i", "a + b = c", "x=1;y=2", "#include <stdio.h>", "a_b_c __init__",
    "/usr/bin/env", "https://example.org/a?b=c&d=e", "user@example.org", "//comment\n", "a/\n/b", "!\n\n", "...\n\n...", "\"quoted\"", "\\n \\t", "@#$%^&*", "x...y", "µ ª º", "ǅ ǆ ʰ", "𝐀𝐁𝐜 𐐀𐐨", "© ® ™", "→ ⇒ ∑", "'", "''", "a'", "'a", "l'été", "L'ÉTÉ", "\u2028line\u2029", "\u0085next",
]


def learn():
    """The pieces and merges of a vocabulary learned from random sequences of parts of the strings."""
    rng = random.Random(0)
    parts = [text[start : start + rng.randint(1, 5)] for text in TEXTS for start in range(len(text))]
    parts += [" ", "  ", "\n", "1", "12", ".", "'s", "\u0301"] * 20
    corpus = ["".join(rng.choices(parts, k=6)) for _ in range(4000)] + TEXTS * 4
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, max_token_length=6, show_progress=False))
    stored = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(stored["vocab"], key=stored["vocab"].get)
    # A piece that no merge makes: it is a token only where whole words are looked up before they are merged.
    return [*pieces, "capital", "<s>"], [" ".join(merge) for merge in stored["merges"]]


def write(path, name, pieces, merges):
    """A Llama of one layer with the vocabulary. Whether `<s>` starts a text is left to the name."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("gpt2")
    if name is not None:
        writer.add_tokenizer_pre(name)
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(pieces) - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(pieces) - 1)
    writer.add_eos_token_id(len(pieces) - 1)
    shapes = {"token_embd": (len(pieces), WIDTH), "output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (HIDDEN, WIDTH), "blk.0.ffn_up": (HIDDEN, WIDTH), "blk.0.ffn_down": (WIDTH, HIDDEN)}
    for stem, shape in shapes.items():
        writer.add_tensor(f"{stem}.weight", np.full(shape, 0.01, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokens_of(path, texts):
    """The tokens that llama.cpp gives for strings."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(path), 128, 1, False
    server = xllamacpp.Server(params)

    def tokenize(text):
        body = json.dumps({"content": text, "add_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())["tokens"]

    return [tokenize(text) for text in texts]


if __name__ == "__main__":
    pieces, merges = learn()
    groups = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(NAMES):
            path = pathlib.Path(folder) / f"{number}.gguf"
            write(path, name, pieces, merges)
            groups.setdefault(json.dumps(tokens_of(path, TEXTS)), []).append(name)
    answers = [{"names": names, "tokens": json.loads(tokens)} for tokens, names in groups.items()]
    stored = {"pieces": pieces, "merges": merges, "texts": TEXTS, "answers": answers}
    out = HERE / "pre_tokenizers.json"
    out.write_text(json.dumps(stored, ensure_ascii=True, separators=(",", ":")) + "\n")
    for answer in answers:
        print(answer["names"])
    print(len(TEXTS), "strings,", out.stat().st_size, "bytes")
