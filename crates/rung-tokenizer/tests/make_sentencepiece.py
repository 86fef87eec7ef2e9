"""Writes sentencepiece.gguf, a tiny Llama with random weights and a SentencePiece vocabulary, and sentencepiece_tokens.json, the tokens that
llama.cpp's /tokenize gives for a hundred strings. Needs the packages gguf, sentencepiece, numpy and xllamacpp."""
import io, json, os, random, sys, urllib.request

import gguf
import numpy as np
import sentencepiece as spm

folder = os.path.dirname(os.path.abspath(__file__)) if len(sys.argv) < 2 else sys.argv[1]
path = os.path.join(folder, "sentencepiece.gguf")

nouns = "river house garden window letter winter teacher engine number island".split()
verbs = "opens carries follows remembers measures finds writes crosses".split()
endings = "today, in 1969. slowly! near the Straße? with 3.14 of 2718; naïvely.".split()
rng = random.Random(1)
sentences = [f"The {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)} and the {rng.choice(nouns)}s {rng.choice(endings)}" for _ in range(4000)]
model = io.BytesIO()
spm.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", vocab_size=480, byte_fallback=True,
    character_coverage=1.0, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
    user_defined_symbols=["<tool>"], num_threads=1, minloglevel=2)
pieces = spm.SentencePieceProcessor(model_proto=model.getvalue())
token_types = []
for i in range(len(pieces)):
    token_type = gguf.TokenType.NORMAL
    if pieces.is_unknown(i): token_type = gguf.TokenType.UNKNOWN
    elif pieces.is_control(i): token_type = gguf.TokenType.CONTROL
    elif pieces.is_byte(i): token_type = gguf.TokenType.BYTE
    elif pieces.id_to_piece(i) == "<tool>": token_type = gguf.TokenType.USER_DEFINED
    token_types.append(token_type)
width, hidden, layers, heads = 32, 48, 2, 4
writer = gguf.GGUFWriter(path, "llama")
writer.add_context_length(512); writer.add_embedding_length(width); writer.add_block_count(layers); writer.add_feed_forward_length(hidden)
writer.add_head_count(heads); writer.add_head_count_kv(2); writer.add_layer_norm_rms_eps(1e-5); writer.add_rope_dimension_count(width // heads)
writer.add_rope_freq_base(10000.0); writer.add_vocab_size(len(pieces)); writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
writer.add_tokenizer_model("llama"); writer.add_tokenizer_pre("default")
writer.add_token_list([pieces.id_to_piece(i).encode() for i in range(len(pieces))])
writer.add_token_scores([pieces.get_score(i) for i in range(len(pieces))])
writer.add_token_types(token_types)
writer.add_bos_token_id(pieces.bos_id()); writer.add_eos_token_id(pieces.eos_id()); writer.add_unk_token_id(pieces.unk_id())
writer.add_add_bos_token(True); writer.add_add_eos_token(False); writer.add_add_space_prefix(True)
weight_rng = np.random.default_rng(0)
def add(name, *shape): writer.add_tensor(name, (weight_rng.standard_normal(shape) * 0.3).astype(np.float16))
def norm(name): writer.add_tensor(name, np.ones(width, np.float32))
add("token_embd.weight", len(pieces), width); norm("output_norm.weight")
for block in range(layers):
    prefix = f"blk.{block}."
    norm(prefix + "attn_norm.weight"); norm(prefix + "ffn_norm.weight")
    add(prefix + "attn_q.weight", width, width); add(prefix + "attn_k.weight", width // 2, width); add(prefix + "attn_v.weight", width // 2, width)
    add(prefix + "attn_output.weight", width, width)
    add(prefix + "ffn_gate.weight", hidden, width); add(prefix + "ffn_up.weight", hidden, width); add(prefix + "ffn_down.weight", width, hidden)
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()

import xllamacpp
params = xllamacpp.CommonParams(); params.model.path = path; params.n_ctx = 512; params.n_parallel = 1; params.warmup = False
server = xllamacpp.Server(params)
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
while len(texts) < 120: texts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 14))))
json.dump([[text, tokens(text)] for text in texts], open(os.path.join(folder, "sentencepiece_tokens.json"), "w"), ensure_ascii=True, separators=(",", ":"))
print(len(texts), "strings", os.path.getsize(path), "bytes")
