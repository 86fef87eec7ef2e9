//! Tests over every mixer of the registry: names, pages, sizes and memory.

use super::*;

fn parse(text: &str, defaults: &Defaults) -> Result<Mixer, StackError> {
    Mixer::resolve(&spec::parse_spec(text).unwrap(), defaults)
}

#[test]
fn every_mixer_prints_text_that_parses_to_the_same_mixer() {
    for defaults in [Defaults::default(), Defaults { heads: 1, head_dim: 1, bits: 1, ..Defaults::default() }] {
        for name in all_names() {
            let mixer = parse(name, &defaults).unwrap();
            assert_eq!(parse(&mixer.to_string(), &defaults).unwrap(), mixer);
        }
    }
}

#[test]
fn names_are_unique_and_every_page_has_its_headings() {
    let names: Vec<_> = all_names().collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), unique.len());
    for page in pages() {
        for heading in
            ["# Recurrence", "# Parallel form", "# State", "# Reduces to", "# Reference implementation", "# Source"]
        {
            assert!(page.text().contains(heading), "{} has no {heading}", page.name);
        }
    }
}

#[test]
fn state_bits_do_not_overflow_at_the_largest_sizes() {
    let defaults = Defaults { heads: MAX_SIZE, head_dim: 1, bits: 64, ..Defaults::default() };
    for kind in KINDS {
        let maximum = |option: &MixerOption| match option.kind {
            OptionKind::Integer { max, .. } => Some((option.name, max)),
            OptionKind::Flag { .. } | OptionKind::Choice(_) => None,
        };
        let options: Vec<(&str, u64)> = kind.options.iter().filter_map(maximum).collect();
        match Mixer::new(kind.name, &options, &defaults) {
            Ok(mixer) => assert!(mixer.state_bits() <= 1 << MAX_LOG2_BITS, "{mixer}"),
            Err(error) => assert!(matches!(error, StackError::TooManyBits { .. }), "{error}"),
        }
    }
}

#[test]
fn state_sizes_match_the_published_defaults_at_width_2048() {
    let defaults = |heads| Defaults { heads, head_dim: 2048 / heads, ..Defaults::default() };
    for (text, heads, recurrent_state, conv_state) in [
        ("retnet{heads=8,key=256,value=512}", 8, 1_048_576, 0),
        ("gla{heads=4}", 4, 524_288, 0),
        ("hgrn2{expand=128}", 16, 262_144, 0),
        ("rwkv6{head=64}", 32, 131_072, 2_048),
        ("rwkv6{head=64,channel=yes}", 32, 131_072, 4_096),
        ("rwkv7{head=64}", 32, 131_072, 2_048),
        ("rwkv7{head=64,channel=yes}", 32, 131_072, 4_096),
        ("mamba1", 16, 65_536, 12_288),
        ("mamba2", 16, 524_288, 13_056),
        ("deltanet{heads=4,key=512,value=512}", 4, 1_048_576, 18_432),
        ("gdn{heads=6,key=256,value=512}", 6, 786_432, 18_432),
        ("kda{heads=16,key=128,value=128}", 16, 262_144, 18_432),
        ("linear{heads=1,key=4,value=4}", 1, 20, 0),
        ("fastmax{order=2,heads=1,key=3,value=5}", 1, (1 + 3 + 9) * 6, 0),
        ("inline{heads=2,key=3,value=5,local=3}", 2, 2 * (15 + 3 + 5), 2 * 2 * 5),
        ("gated{channels=24}", 2, 24, 0),
    ] {
        let mixer = parse(text, &defaults(heads)).unwrap();
        assert_eq!((mixer.facts().recurrent_state, mixer.facts().conv_state), (recurrent_state, conv_state), "{text}");
    }
}

#[test]
fn log_linear_memory_counts_the_levels_in_use() {
    let mixer = parse("loglinear-gdn{heads=1,key=3,value=5,conv=0,levels=15}", &Defaults::default()).unwrap();
    for (tokens, levels) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (16_384, 15), (1 << 40, 15)] {
        assert_eq!(mixer.facts().memory_size(tokens), levels * 15, "{tokens} tokens");
    }
    assert_eq!(mixer.facts().state_size(), 15 * 15);
    let gdn = parse("gdn", &Defaults::default()).unwrap();
    assert_eq!(gdn.facts().memory_size(9), gdn.facts().state_size());
}

/// Compressed attention has no network, so this simulates its buffers token by token, as its page describes them.
#[test]
fn compressed_state_size_is_the_largest_simulated_buffer() {
    for ratio in 1..7_u64 {
        for (overlap, index) in [(0, 0), (1, 0), (0, 3), (1, 5)] {
            let options = [("head", 8), ("ratio", ratio), ("index-head", index), ("window", 0), ("overlap", overlap)];
            let mixer = Mixer::new("compressed", &options, &Defaults::default()).unwrap();
            let vectors = u128::from(2 * (8 + index));
            let (mut waiting, mut overlapping, mut largest) = (0, 0, 0);
            for _ in 0..40 {
                waiting += 1;
                if waiting == ratio {
                    // An entry is complete. Half of its tokens' vectors are pooled again with the next tokens.
                    (waiting, overlapping) = (0, overlap * ratio);
                }
                let numbers = u128::from(waiting * (1 + overlap) + overlapping) * vectors;
                largest = largest.max(numbers);
            }
            assert_eq!(mixer.facts().state_size(), largest, "{mixer}");
        }
    }
}

#[test]
fn chunked_state_size_is_one_token_less_than_a_chunk() {
    let mixer = parse("chunked{size=5,kv=2,key=3,value=4,bits=8}", &Defaults::default()).unwrap();
    let cached_tokens = |token: u128| if token % 5 == 4 { 0 } else { token % 5 + 1 };
    assert_eq!(mixer.facts().state_size(), (0..40).map(cached_tokens).max().unwrap_or_default() * 2 * 7);
}

#[test]
fn window_state_excludes_the_current_token() {
    let mixer = parse("window{size=128,kv=8,key=64,value=64,bits=16}", &Defaults::default()).unwrap();
    assert_eq!(mixer.state_bits(), 127 * 2 * 8 * 64 * 16);
}

#[test]
fn gated_state_bits_are_channels_times_bits() {
    let mixer = parse("gated{bits=2}", &Defaults::default()).unwrap();
    assert_eq!(mixer.state_bits(), 16);
    assert_eq!(parse("gated{channels=24,bits=2}", &Defaults::default()).unwrap().state_bits(), 48);
}

#[test]
fn resolve_errors_name_the_mistake() {
    let error = |text| parse(text, &Defaults::default()).unwrap_err().to_string();
    assert!(error("lineer").contains("did you mean `linear`"));
    assert!(error("full{head=0}").contains("option"));
    assert!(error("full{heads=0}").contains("found 0, expected a whole number from 1"));
    assert!(error("full{heads=99999999999}").contains("found 99999999999"));
    assert!(error("linear{map=cube}").contains("one of elu"));
}

#[test]
fn accumulator_option_fixes_the_message_bits() {
    use crate::stack::MessageSizeConvention;
    let sizes = Defaults { heads: 2, head_dim: 8, bits: 32, ..Defaults::default() };
    let plan = |text: &str| crate::stack::Plan::parse(text, &sizes).unwrap();
    for convention in [MessageSizeConvention::Paper, MessageSizeConvention::Register, MessageSizeConvention::Online] {
        assert_eq!(plan("full{accumulator=5}").message_bits(convention), 2 * 9 * 5);
        assert_eq!(plan("full{accumulator=5}").message_formula(convention), "H*(d+1)*p");
    }
    assert_eq!(plan("full").message_bits(MessageSizeConvention::Paper), 2 * 2 * 8 * 32);
    assert!(parse("full{accumulator=33}", &sizes).is_err());
    let looks_up = |text: &str| parse(text, &sizes).unwrap().facts().looks_up;
    assert!(looks_up("full") && !looks_up("full{accumulator=5}"));
}
