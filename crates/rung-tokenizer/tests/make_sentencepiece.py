"""Writes sentencepiece.gguf, a tiny Llama with random weights and a SentencePiece vocabulary, and sentencepiece_tokens.json, what llama.cpp's
/tokenize makes of a hundred strings with it. Needs the packages gguf, sentencepiece, numpy and xllamacpp."""
import io, json, os, random, sys, urllib.request

import gguf
import numpy as np
import sentencepiece as spm

here = os.path.dirname(os.path.abspath(__file__)) if len(sys.argv) < 2 else sys.argv[1]
out = os.path.join(here, "sentencepiece.gguf")

nouns = "river house garden window letter winter teacher engine number island".split()
verbs = "opens carries follows remembers measures finds writes crosses".split()
ends = "today, in 1969. slowly! near the Straße? with 3.14 of 2718; naïvely.".split()
r = random.Random(1)
lines = [f"The {r.choice(nouns)} {r.choice(verbs)} a {r.choice(nouns)} and the {r.choice(nouns)}s {r.choice(ends)}" for _ in range(4000)]
model = io.BytesIO()
spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=480, byte_fallback=True,
    character_coverage=1.0, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
    user_defined_symbols=["<tool>"], num_threads=1, minloglevel=2)
pieces = spm.SentencePieceProcessor(model_proto=model.getvalue())
kinds = []
for i in range(len(pieces)):
    t = gguf.TokenType.NORMAL
    if pieces.is_unknown(i): t = gguf.TokenType.UNKNOWN
    elif pieces.is_control(i): t = gguf.TokenType.CONTROL
    elif pieces.is_byte(i): t = gguf.TokenType.BYTE
    elif pieces.id_to_piece(i) == "<tool>": t = gguf.TokenType.USER_DEFINED
    kinds.append(t)
width, hidden, layers, heads = 32, 48, 2, 4
w = gguf.GGUFWriter(out, "llama")
w.add_context_length(512); w.add_embedding_length(width); w.add_block_count(layers); w.add_feed_forward_length(hidden)
w.add_head_count(heads); w.add_head_count_kv(2); w.add_layer_norm_rms_eps(1e-5); w.add_rope_dimension_count(width // heads)
w.add_rope_freq_base(10000.0); w.add_vocab_size(len(pieces)); w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
w.add_tokenizer_model("llama"); w.add_tokenizer_pre("default")
w.add_token_list([pieces.id_to_piece(i).encode() for i in range(len(pieces))])
w.add_token_scores([pieces.get_score(i) for i in range(len(pieces))])
w.add_token_types(kinds)
w.add_bos_token_id(pieces.bos_id()); w.add_eos_token_id(pieces.eos_id()); w.add_unk_token_id(pieces.unk_id())
w.add_add_bos_token(True); w.add_add_eos_token(False); w.add_add_space_prefix(True)
n = np.random.default_rng(0)
def add(name, *shape): w.add_tensor(name, (n.standard_normal(shape) * 0.3).astype(np.float16))
def norm(name): w.add_tensor(name, np.ones(width, np.float32))
add("token_embd.weight", len(pieces), width); norm("output_norm.weight")
for b in range(layers):
    p = f"blk.{b}."
    norm(p + "attn_norm.weight"); norm(p + "ffn_norm.weight")
    add(p + "attn_q.weight", width, width); add(p + "attn_k.weight", width // 2, width); add(p + "attn_v.weight", width // 2, width)
    add(p + "attn_output.weight", width, width)
    add(p + "ffn_gate.weight", hidden, width); add(p + "ffn_up.weight", hidden, width); add(p + "ffn_down.weight", width, hidden)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

import xllamacpp as x
q = x.CommonParams(); q.model.path = out; q.n_ctx = 512; q.n_parallel = 1; q.warmup = False
server = x.Server(q)
def tokens(text):
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request).read())["tokens"]
texts = ["Hello, world!", "The river opens a window.", " leading space", "trailing space ", "two  spaces", "three   spaces   between", "tabs\tand\nnew lines\n\n",
    "123456789", "3.14159 and 2,718", "it's we're they'll", "ÜBER Straße naïve café", "日本語のテキスト", "Привет, мир", "مرحبا بالعالم", "😀 emoji 👩‍👩‍👧‍👦",
    "a\u0301 combining", "\r\nwindows\r\n", "    indented code():\n\treturn x+1", "x=1;y=2", "<tool>", "a<tool>b", "a <tool> b", "in 1969.", "١٢٣ ٤٥٦", "Ⅷ ½ ²",
    "\u00a0nbsp", "\u200bzero width", "\u3000ideographic", "…—–“”‘’", "!!!???...", "\n", "\n\n\n", " ", "  ", "   x", "▁", "▁▁river", "river▁house", "A", "aaaaaaaaaaaa",
    "theriverhousegarden", "The The The", "riverriver", "1st 2nd 3rd", "$100.00 €50 £3", "\\n \\t", "\"quoted\"", "(parens) [brackets] {braces}", "numbers 2718;", "naïvely. naïvely."]
alphabet = ["river", "house", "the", " ", " ", "  ", "é", "ß", "漢字", "😀", "1", "96", ".", ",", "\n", "\t", "'", "<tool>", "open", "s", "T", "▁"]
while len(texts) < 120: texts.append("".join(r.choice(alphabet) for _ in range(r.randint(1, 14))))
json.dump([[t, tokens(t)] for t in texts], open(os.path.join(here, "sentencepiece_tokens.json"), "w"), ensure_ascii=True, separators=(",", ":"))
print(len(texts), "strings", os.path.getsize(out), "bytes")
