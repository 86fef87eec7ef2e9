//! The regular expressions by which byte-level vocabularies of GGUF files split a text before its bytes are merged.
//!
//! `tokenizer.ggml.pre` names them. Expressions are applied in turn, each to all pieces that the ones before left: what it matches becomes
//! pieces, and so does what is between the matches. A piece is merged alone, so another split gives other tokens without an error. The names
//! and what each stands for are llama.cpp's; a name that is not here is refused.
//!
//! ```text
//! default    Room 1234!  ->  Room| 1234!  ->  Room| 1234|!  ->  Room| |1234|!  ->  Room| |123|4|!
//! qwen2      Room 1234!  ->  Room| |1|2|3|4|!
//! ```

/// How the vocabularies of some names split a text.
pub(crate) struct PreTokenizer {
    /// The names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Regular expressions, applied in order.
    pub(crate) patterns: &'static [&'static str],
    /// Two rules of Llama 3's tokenizer: a piece that is a token is not merged from its bytes (`ignore_merges`), and texts begin with the BOS
    /// token unless the header says otherwise.
    pub(crate) has_llama3_rules: bool,
}

/// GPT-2's expression: contractions, words, numbers, punctuation and white space.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's expression: numbers are split into groups of up to three digits.
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's expression: numbers are split into single digits.
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5's expression: marks belong to words.
const QWEN35: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o's expression: a capital after a small letter starts a word. Only letters of ASCII count as small or capital alone.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's expression for its vocabularies of the Tekken kind: as GPT-4o's, without contractions and with single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Kimi K2's expression: runs of Chinese characters, words with their contractions, groups of up to three digits.
const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^\p{Han}]]+(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek-V3's last expression: words with their marks, one sign of ASCII with the letters behind it, punctuation and symbols.
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// The letters with a case that the first vocabularies of DeepSeek take as words; others, Georgian ones for example, are left to merging.
const DEEPSEEK_WORD: &str = r"\s?[[\p{Lu}\p{Ll}\p{Lt}]&&[^\u{560}-\u{588}\u{10c7}-\u{10ff}\u{1c80}-\u{1c8a}\u{2d00}-\u{2d2d}\u{a790}-\u{ab6f}\u{10570}-\u{105bc}\u{10d50}-\u{10d85}\u{16e40}-\u{16e7f}\u{1d400}-\u{1df2a}]]+";

/// All pre-tokenizers that are read.
static PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["default"],
        patterns: &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9]{3}"],
        has_llama3_rules: false,
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "olmo",
            "mpt",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        patterns: &[GPT2],
        has_llama3_rules: false,
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        patterns: &[r"\p{N}", GPT2],
        has_llama3_rules: false,
    },
    PreTokenizer { names: &["falcon"], patterns: &[r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9]{3}"], has_llama3_rules: false },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        patterns: &[LLAMA3],
        has_llama3_rules: true,
    },
    PreTokenizer { names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], patterns: &[LLAMA3], has_llama3_rules: false },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2", "solar-open"],
        patterns: &[QWEN2],
        has_llama3_rules: false,
    },
    PreTokenizer { names: &["qwen35"], patterns: &[QWEN35], has_llama3_rules: false },
    PreTokenizer { names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"], patterns: &[GPT4O], has_llama3_rules: false },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN], has_llama3_rules: true },
    PreTokenizer {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            DEEPSEEK_WORD,
            r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3001}\u{3002}]+",
            r"\s+$",
            r"[[\u{800}-\u{9fa5}\u{ac00}-\u{d7ff}]&&\S]+",
            r"\p{N}+",
        ],
        has_llama3_rules: false,
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[r"\p{N}{1,3}", r"[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]+", DEEPSEEK3],
        has_llama3_rules: false,
    },
    PreTokenizer { names: &["kimi-k2"], patterns: &[KIMI], has_llama3_rules: false },
];

/// The pre-tokenizer of a name.
pub(crate) fn named(name: &str) -> Option<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|pre_tokenizer| pre_tokenizer.names.contains(&name))
}

/// All names, separated by commas.
pub(crate) fn all_names() -> String {
    PRE_TOKENIZERS.iter().flat_map(|pre_tokenizer| pre_tokenizer.names).copied().collect::<Vec<_>>().join(", ")
}
