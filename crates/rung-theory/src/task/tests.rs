//! Checks that hold for every task.
//!
//! They run over one table of specs and over specs from a proptest strategy.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::funccomp::{EntryOrder, FuncComp, FuncCompInstance, IdScope, Order};
use super::{AnyTask, NO_TARGET, Prompt, Task, TaskBase as _, TaskError, names, pages, parse, seeded};

/// For every task: the smallest sizes, the defaults, and every choice of every option.
const SPECS: &[&str] = &[
    "funccomp",
    "funccomp{hops=1,m=1,n=[]}",
    "funccomp{hops=1,m=5,n=[],order=query-first}",
    "funccomp{hops=1,m=5,n=[],order=streaming}",
    "funccomp{hops=2,m=3,n=[2],queries=3}",
    "funccomp{hops=3,m=3,n=[2,3],mixed=yes}",
    "funccomp{hops=3,m=2,n=[1,3],queries=4,mixed=yes}",
    "funccomp{hops=3,m=3,n=[2,2],order=query-first}",
    "funccomp{hops=3,m=3,n=[2,2],order=query-first,mixed=yes}",
    "funccomp{hops=3,m=3,n=[2,2],order=streaming}",
    "funccomp{hops=3,m=3,n=[2,2],order=streaming,mixed=yes}",
    "funccomp{hops=3,m=3,n=[2,3],listing=i-major,mixed=yes}",
    "funccomp{hops=5,m=1,n=[3,1,2,1]}",
    "twosum",
    "twosum{length=2,modulus=2}",
    "twosum{length=7,modulus=5}",
    "twosum{length=5,modulus=4294967295}",
    "match2",
    "match2{length=2,modulus=5,scope=before}",
    "match2{length=10,modulus=12,scope=before}",
    "match2{length=10,modulus=11,scope=before}",
    "match2{length=2,modulus=5,scope=all}",
    "match2{length=32,modulus=12,scope=all}",
    "match2{length=8,modulus=37,scope=all}",
    "mqar",
    "mqar{length=4,pairs=1,vocabulary=4}",
    "mqar{length=24,pairs=3,vocabulary=9,spread=near,filler=noise}",
    "mqar{length=24,pairs=3,vocabulary=8,spread=uniform,filler=noise}",
    "mqar{length=30,pairs=7,vocabulary=40,spread=uniform}",
    "induction",
    "induction{length=3,vocabulary=1}",
    "induction{length=9,vocabulary=4}",
    "khop{length=12,alphabet=3,hops=2}",
    "khop",
    "khop{length=1,alphabet=2,hops=1}",
    "khop{length=9,alphabet=2,hops=3}",
    "khop{length=24,alphabet=4,hops=5,mixed=yes}",
    "copying{length=30,content=5,vocabulary=4}",
    "copying",
    "copying{length=3,content=1,vocabulary=1}",
    "copying{length=9,content=4,vocabulary=3}",
    "recall",
    "recall{length=4,vocabulary=2}",
    "recall{length=16,vocabulary=9}",
    "parity",
    "parity{length=1,answer=last}",
    "parity{length=5,answer=every}",
    "word",
    "word{group=s5,length=6,answer=last}",
    "word{group=a5,length=8}",
    "word{group=z60,length=8}",
    "word{group=s3,length=8}",
    "chain",
    "chain{hops=1,m=1,n=[]}",
    "chain{hops=2,m=3,n=[2],queries=2,tables=permutation,thoughts=1}",
    "chain{hops=3,m=3,n=[2,3],queries=3,tables=zipf,thoughts=2}",
    "chain{hops=5,m=2,n=[1,2,1,2],thoughts=2}",
    "chain{hops=2,m=5,n=[3],queries=4,mixed=yes,tables=clustered}",
    "chain{hops=2,m=4,n=[2],queries=4,mixed=yes,names=32}",
    "chain{hops=3,m=2,n=[2,2],names=8,tables=zipf,thoughts=2}",
    "parity-retrieval",
    "parity-retrieval{bits=1,entries=1,keys=1,values=2}",
    "parity-retrieval{bits=3,entries=4,keys=4,values=3}",
    "funccomp{hops=1,m=5,n=[],names=levels}",
    "funccomp{hops=3,m=3,n=[2,3],queries=4,mixed=yes,names=levels}",
    "funccomp{hops=3,m=3,n=[2,2],order=streaming,names=levels}",
];

/// Checks two samples of a task: lengths, id ranges, and that the oracle agrees with the targets.
fn check_prompts(task: &dyn AnyTask, seed: u64, prompt: &mut Prompt) {
    let spec = task.spec();
    let fields = task.fields();
    let mut rng = seeded(seed);
    // The second sample reuses the buffers of the first.
    for round in 0..2 {
        task.sample_prompt(&mut rng, prompt);
        assert_eq!(prompt.len(), task.length(), "{spec}");
        assert_eq!(
            (prompt.ids_per_token(), prompt.tokens().len()),
            (fields.len(), fields.len() * task.length()),
            "{spec}"
        );
        for token in prompt.tokens().chunks_exact(fields.len()) {
            assert!(token.iter().zip(&fields).all(|(id, field)| *id < field.vocabulary), "{spec}: {token:?}");
        }
        for (target, group) in prompt.targets().iter().zip(prompt.groups()) {
            assert!((*target == NO_TARGET) == (*group == 0), "{spec}");
            assert!(*target == NO_TARGET || *target < task.classes(), "{spec}: {target}");
        }
        let picture = task.render(prompt);
        assert!(prompt.questions().count() > 0, "{spec} asks nothing");
        assert_eq!(
            task.oracle(prompt.tokens()).as_deref(),
            Ok(prompt.targets()),
            "{spec} seed {seed} {round}\n{picture}"
        );
    }
}

#[test]
fn oracle_agrees_with_the_targets_for_every_spec() {
    // One prompt for all: the buffers of one task must not affect another.
    let mut prompt = Prompt::new();
    for spec in SPECS {
        let task = parse(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
        for seed in 0..100 {
            check_prompts(&*task, seed, &mut prompt);
        }
    }
    let tested: HashSet<&str> = SPECS.iter().map(|spec| spec.split('{').next().unwrap()).collect();
    assert_eq!(tested, names().collect(), "every task has specs");
}

#[test]
fn a_seed_gives_the_same_prompt_in_new_and_reused_buffers() {
    let mut used = Prompt::new();
    for spec in SPECS {
        let (task, again) = (parse(spec).unwrap(), parse(spec).unwrap());
        task.sample_prompt(&mut seeded(99), &mut used);
        let mut fresh = Prompt::new();
        let (mut first, mut second) = (seeded(5), seeded(5));
        for _ in 0..3 {
            task.sample_prompt(&mut first, &mut used);
            again.sample_prompt(&mut second, &mut fresh);
            assert_eq!(used, fresh, "{spec}");
        }
    }
}

#[test]
fn prompts_of_a_seed_keep_their_digest() {
    // Stored results name a seed; if the digest changes, their samples can no longer be reproduced.
    let mut digest = 0_u64;
    let mut prompt = Prompt::new();
    // Specs with a listing were added later and are excluded, so that the digest stays the same.
    for spec in SPECS.iter().filter(|spec| !spec.contains("listing")) {
        parse(spec).unwrap().sample_prompt(&mut seeded(1), &mut prompt);
        for id in prompt.tokens().iter().chain(prompt.targets()) {
            digest = (digest ^ u64::from(*id)).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        }
    }
    assert_eq!(digest, DIGEST, "the digest is {digest:#x}");
}

const DIGEST: u64 = 0x63cc_1b4b_ca71_6c70;

#[test]
fn repeated_sampling_does_not_reallocate() {
    for spec in SPECS {
        let (task, mut rng, mut prompt) = (parse(spec).unwrap(), seeded(0), Prompt::new());
        task.sample_prompt(&mut rng, &mut prompt);
        let buffers = (prompt.tokens().as_ptr(), prompt.targets().as_ptr(), prompt.groups().as_ptr());
        (0..20).for_each(|_| task.sample_prompt(&mut rng, &mut prompt));
        assert_eq!(buffers, (prompt.tokens().as_ptr(), prompt.targets().as_ptr(), prompt.groups().as_ptr()), "{spec}");
    }
}

/// The accuracy on new samples of always guessing the most common class per position and group, and its standard error.
fn guess_accuracy(task: &dyn AnyTask, prompts: usize) -> (f64, f64) {
    let (mut rng, mut prompt) = (seeded(17), Prompt::new());
    let mut counts: HashMap<(usize, u16), HashMap<u32, usize>> = HashMap::new();
    for _ in 0..prompts {
        task.sample_prompt(&mut rng, &mut prompt);
        for (position, target, group) in prompt.questions() {
            *counts.entry((position, group)).or_default().entry(target).or_default() += 1;
        }
    }
    let best: HashMap<_, _> = counts
        .into_iter()
        .map(|(key, classes)| (key, classes.into_iter().max_by_key(|(class, count)| (*count, *class)).unwrap().0))
        .collect();
    let mut scores = Vec::new();
    let (mut correct, mut total) = (0, 0);
    for _ in 0..prompts {
        task.sample_prompt(&mut rng, &mut prompt);
        let questions: Vec<_> = prompt.questions().collect();
        let hits =
            questions.iter().filter(|(position, target, group)| best.get(&(*position, *group)) == Some(target)).count();
        correct += hits;
        total += questions.len();
        scores.push((hits as f64, questions.len() as f64));
    }
    let mean = correct as f64 / total as f64;
    // Questions of one prompt are not independent, so the error is estimated from the variance between prompts.
    let variance: f64 = scores.iter().map(|(hits, count)| (hits - mean * count).powi(2)).sum();
    (mean, variance.sqrt() / total as f64)
}

#[test]
fn baseline_is_the_accuracy_of_the_best_guess() {
    for spec in SPECS {
        let task = parse(spec).unwrap();
        let prompts = (400_000 / task.length()).clamp(2_000, 20_000);
        let (mean, error) = guess_accuracy(&*task, prompts);
        let baseline = task.baseline();
        let tolerance = 5.0 * error.max((baseline * (1.0 - baseline)).sqrt() / (prompts as f64)) + 1e-9;
        assert!((mean - baseline).abs() < tolerance, "{spec}: {mean} against {baseline}, off by more than {tolerance}");
    }
}

#[test]
fn labels_are_balanced_for_every_value_of_two_sum() {
    for spec in SPECS.iter().filter(|spec| spec.starts_with("twosum") || spec.starts_with("match2")) {
        let (task, mut rng, mut prompt) = (parse(spec).unwrap(), seeded(23), Prompt::new());
        let rounds = 400_000 / task.length();
        // How often each value had each label, at positions with a question.
        let mut counts: HashMap<u32, [f64; 2]> = HashMap::new();
        for _ in 0..rounds {
            task.sample_prompt(&mut rng, &mut prompt);
            // One question per prompt, so that the counts are independent.
            let questions: Vec<_> = prompt.questions().collect();
            let (position, target, _) = questions[super::random_below(&mut rng, questions.len() as u32) as usize];
            counts.entry(prompt.tokens()[position]).or_default()[target as usize] += 1.0;
        }
        let [no, yes] = counts.values().fold([0.0, 0.0], |sum, [no, yes]| [sum[0] + no, sum[1] + yes]);
        assert!((yes - no).abs() < 5.0 * (rounds as f64).sqrt(), "{spec}: {no} no, {yes} yes");
        for (value, [no, yes]) in counts {
            assert!((yes - no).abs() < 6.0 * (yes + no).sqrt(), "{spec}: value {value} has {no} no, {yes} yes");
        }
    }
}

#[test]
fn spec_prints_every_option_and_parses_back() {
    for spec in SPECS {
        let task = parse(spec).unwrap();
        let full = task.spec();
        assert_eq!(parse(&full).unwrap().spec(), full);
        assert!(full.starts_with(&format!("{}{{", task.name())), "{full}");
        for option in spec.trim_end_matches('}').split_once('{').map_or("", |(_, options)| options).split(',') {
            assert!(full.contains(option), "{full} has lost {option}");
        }
    }
}

#[test]
fn invalid_specs_are_rejected_quickly_with_a_clear_message() {
    let start = std::time::Instant::now();
    for (spec, message) in [
        ("", "column 1"),
        ("funcomp", "did you mean `funccomp`?"),
        ("qwertyuiop", "the tasks are `funccomp`, `chain`, `twosum`"),
        ("parity{lenght=3}", "no option `lenght` (did you mean `length`?); its options are `length`, `answer`"),
        ("parity{length=0}", "option `length` is `0`, expected a whole number from 1 to"),
        ("parity{length=99999999999}", "option `length` is `99999999999`"),
        ("parity{length=yes}", "option `length` is `yes`"),
        ("parity{answer=3}", "option `answer` is `3`, expected one of `last`, `every`"),
        ("funccomp{hops=0}", "option `hops` is `0`"),
        ("funccomp{hops=65}", "expected a whole number from 1 to 64"),
        ("funccomp{hops=three}", "option `hops` is `three`"),
        ("funccomp{hops=3,n=[2]}", "expected a list of 2 numbers"),
        ("funccomp{hops=1,n=[2]}", "expected the empty list"),
        ("funccomp{n=[2,0]}", "option `n` is `[2,0]`"),
        ("funccomp{n=4}", "option `n` is `4`"),
        ("funccomp{m=0}", "option `m` is `0`"),
        ("funccomp{m=16777216}", "expected at most 16777216 tokens"),
        ("funccomp{hops=64}", "expected at most 16777216 tokens"),
        ("funccomp{m=1000,n=[16777216,16777216]}", "expected at most 16777216 tokens"),
        ("funccomp{queries=16777216}", "expected at most 16777216 tokens"),
        ("funccomp{m=3000000,n=[1,1,1,1,1,1]}", "expected at most 16777216 tokens"),
        ("funccomp{m=200000,n=[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "67108864 ids"),
        ("funccomp{order=streaming,queries=2}", "expected one query"),
        ("funccomp{listing=sorted}", "one of `w-major`, `i-major`"),
        ("funccomp{order=easy}", "one of `hard`, `query-first`, `streaming`"),
        ("funccomp{mixed=1}", "one of `no`, `yes`"),
        ("twosum{modulus=1}", "option `modulus`"),
        ("match2{length=16,modulus=16}", "a modulus that has as many such values as tokens"),
        ("match2{length=15,scope=all}", "an even number of tokens"),
        ("mqar{length=15}", "an even length"),
        ("mqar{length=12,pairs=4}", "at least 16"),
        ("mqar{vocabulary=8}", "a vocabulary of at least 10"),
        ("induction{length=2}", "option `length`"),
        ("induction{vocabulary=4294967295}", "option `vocabulary`"),
        ("khop{hops=100}", "option `hops`"),
        ("khop{alphabet=1}", "option `alphabet`"),
        ("copying{length=32,content=16}", "a length of at least 33"),
        ("recall{length=5}", "an even number of tokens"),
        ("word{group=m11}", "one of `s5`, `a5`, `z60`, `s3`"),
        ("parity-retrieval{entries=9,keys=8}", "at least as many keys"),
    ] {
        let error = parse(spec).err().unwrap_or_else(|| panic!("{spec} was accepted"));
        assert!(error.to_string().contains(message), "{spec}: {error}");
    }
    let long = format!("funccomp{{n=[{}]}}", "1,".repeat(200_000) + "1");
    assert!(matches!(parse(&long), Err(TaskError::BadValue { found, .. }) if found.len() < 60));
    assert!(start.elapsed().as_secs() < 2);
}

#[test]
fn the_largest_sizes_parse_without_allocating_prompts() {
    for spec in ["funccomp{hops=1,m=16777214,n=[]}", "parity{length=16777215}", "khop{length=1048576,hops=64}"] {
        let task = parse(spec).unwrap();
        assert!(task.baseline() > 0.0 && task.length() > 1_000_000);
    }
    let deep = format!("funccomp{{hops=64,m=2,n=[{}]}}", vec!["1"; 63].join(","));
    check_prompts(&*parse(&deep).unwrap(), 0, &mut Prompt::new());
}

/// The sample in a page: its spec and its picture.
fn documented_sample(text: &str) -> (String, String) {
    let section = text.split("# One sample\n").nth(1).unwrap_or_default();
    let spec = section.split('`').nth(1).unwrap_or_default().to_owned();
    let picture = section.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    (spec, picture.to_owned())
}

#[test]
fn pages_have_all_headings_and_an_up_to_date_sample() {
    for page in pages() {
        let text = page.text();
        for heading in ["# Definition\n", "# One sample\n", "# Baseline\n", "# Source\n"] {
            assert_eq!(text.matches(heading).count(), 1, "{}: {heading}", page.name);
        }
        let (spec, picture) = documented_sample(&text);
        let (task, mut prompt) = (parse(&spec).unwrap(), Prompt::new());
        assert_eq!((task.spec(), task.name()), (spec.clone(), page.name));
        task.sample_prompt(&mut seeded(0), &mut prompt);
        let rendered = task.render(&prompt);
        assert!(rendered == picture, "the sample of {spec} is now\n{rendered}\nand its page shows\n{picture}");
        assert!(rendered.is_ascii() && rendered.lines().all(|line| line.len() < 116));
    }
}

#[test]
fn listing_option_sets_the_order_of_entries() {
    let task = FuncComp::new(2, &[3], Order::LastTableFirst, 1, false).unwrap();
    let instance = task.all_instances().nth(12_345).unwrap();
    let entries_in_order = |entry_order| {
        let task = task.clone().with_entry_order(entry_order);
        let mut prompt = Prompt::new();
        task.encode(&instance, &mut prompt);
        assert_eq!(Task::oracle(&task, prompt.tokens()).as_deref(), Ok(prompt.targets()));
        let rows = prompt.tokens().chunks_exact(5).take(6);
        rows.map(|row| (row[1], row[2], row[3])).collect::<Vec<_>>()
    };
    let table = &instance.tables[1];
    let entry = |w: u32, i: u32| (w, i, table[(w * 2 + i) as usize]);
    let w_major = [entry(0, 0), entry(0, 1), entry(1, 0), entry(1, 1), entry(2, 0), entry(2, 1)];
    let i_major = [entry(0, 0), entry(1, 0), entry(2, 0), entry(0, 1), entry(1, 1), entry(2, 1)];
    assert_eq!(entries_in_order(EntryOrder::WMajor), w_major);
    assert_eq!(entries_in_order(EntryOrder::IMajor), i_major);
    // The default listing is not printed, so that older specs stay the same.
    assert!(!task.to_string().contains("listing"));
}

#[test]
fn all_instances_of_a_small_task_are_different() {
    for (order, queries, mixed, count) in [
        (Order::LastTableFirst, 1, false, 4 * 256 * 2 * 2),
        (Order::LastTableFirst, 1, true, 4 * 256 * 2 * 2 * 2),
        (Order::LastTableFirst, 2, false, 4 * 256 * 4 * 4),
        (Order::Streaming, 1, true, 4 * 256 * 2 * 2 * 2),
        (Order::QueryFirst, 1, false, 4 * 256 * 2 * 2),
    ] {
        let task = FuncComp::new(2, &[2], order, queries, mixed).unwrap();
        assert_eq!(task.instance_count(), Some(count));
        let mut prompt = Prompt::new();
        let mut prompts = HashSet::new();
        for instance in task.all_instances() {
            task.encode(&instance, &mut prompt);
            assert_eq!(Task::oracle(&task, prompt.tokens()).as_deref(), Ok(prompt.targets()));
            let answers: Vec<u32> = prompt.questions().map(|(_, target, _)| target).collect();
            assert_eq!(task.answer(&instance), answers);
            assert!(prompts.insert(prompt.tokens().to_vec()));
        }
        assert_eq!(prompts.len() as u128, count);
        assert_eq!(task.nth_instance(count), None);
    }
    assert_eq!(FuncComp::new(9, &[9, 9], Order::LastTableFirst, 1, false).unwrap().instance_count(), None);
}

#[test]
fn every_instance_of_a_small_task_is_sampled_equally_often() {
    let task = FuncComp::new(2, &[1], Order::LastTableFirst, 1, true).unwrap();
    let count = task.instance_count().unwrap() as usize;
    assert_eq!(count, 4 * 4 * 2 * 2);
    let all: Vec<_> = task.all_instances().collect();
    let (mut rng, mut instance, mut counts) = (seeded(3), FuncCompInstance::default(), vec![0.0_f64; count]);
    let rounds = 500 * count;
    for _ in 0..rounds {
        task.sample(&mut rng, &mut instance);
        counts[all.iter().position(|other| *other == instance).unwrap()] += 1.0;
    }
    assert!(counts.iter().all(|times| (times - 500.0).abs() < 5.5 * 500.0_f64.sqrt()), "{counts:?}");
}

/// A task with random small sizes, some of which are not valid together.
fn any_spec() -> impl Strategy<Value = String> {
    let flag = prop_oneof![Just("no"), Just("yes")];
    let order = prop_oneof![Just("hard"), Just("query-first"), Just("streaming")];
    prop_oneof![
        (1_u32..5, proptest::collection::vec(1_u32..4, 0..4), order, 1_u32..5, flag.clone()).prop_map(
            |(m, n, order, queries, mixed)| {
                let queries = if order == "hard" { queries } else { 1 };
                let (hops, n) = (n.len() + 1, super::join_numbers(&n));
                format!("funccomp{{hops={hops},m={m},n=[{n}],order={order},queries={queries},mixed={mixed}}}")
            }
        ),
        (1_u32..6, 1_u32..4, flag.clone(), 0_usize..4, 0_u32..40, 0_u32..3).prop_map(|(m, n, mixed, tables, names, thoughts)| {
            let tables = ["uniform", "zipf", "clustered", "permutation"][tables];
            format!(
                "chain{{hops=2,m={m},n=[{n}],queries=2,mixed={mixed},tables={tables},names={names},thoughts={thoughts}}}"
            )
        }),
        (2_u32..20, 2_u32..40).prop_map(|(n, m)| format!("twosum{{length={n},modulus={m}}}")),
        (2_u32..20, 5_u32..40, prop_oneof![Just("before"), Just("all")])
            .prop_map(|(n, m, scope)| format!("match2{{length={n},modulus={m},scope={scope}}}")),
        (1_u32..6, 0_u32..20, 4_u32..40, 0_usize..4).prop_map(|(pairs, more, vocabulary, choice)| {
            let (spread, filler) = (["near", "uniform"][choice / 2], ["blank", "noise"][choice % 2]);
            let length = 4 * pairs + 2 * more;
            format!("mqar{{length={length},pairs={pairs},vocabulary={vocabulary},spread={spread},filler={filler}}}")
        }),
        (3_u32..20, 1_u32..20).prop_map(|(n, v)| format!("induction{{length={n},vocabulary={v}}}")),
        (1_u32..40, 2_u32..40, 1_u32..9, flag)
            .prop_map(|(n, a, k, mixed)| format!("khop{{length={n},alphabet={a},hops={k},mixed={mixed}}}")),
        (1_u32..9, 0_u32..20, 1_u32..20)
            .prop_map(|(c, more, v)| format!("copying{{length={},content={c},vocabulary={v}}}", 2 * c + 1 + more)),
        (2_u32..20, 2_u32..20).prop_map(|(pairs, v)| format!("recall{{length={},vocabulary={v}}}", 2 * pairs)),
        (1_u32..80, prop_oneof![Just("last"), Just("every")])
            .prop_map(|(n, answer)| format!("parity{{length={n},answer={answer}}}")),
        (
            prop_oneof![Just("s5"), Just("a5"), Just("z60"), Just("s3")],
            1_u32..20,
            prop_oneof![Just("last"), Just("every")]
        )
            .prop_map(|(group, n, answer)| format!("word{{group={group},length={n},answer={answer}}}")),
        (1_u32..20, 1_u32..9, 0_u32..9, 2_u32..20).prop_map(|(bits, entries, more, values)| {
            format!("parity-retrieval{{bits={bits},entries={entries},keys={},values={values}}}", entries + more)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_specs_pass_the_checks_or_have_invalid_sizes(spec in any_spec(), seed: u64) {
        match parse(&spec) {
            Ok(task) => {
                prop_assert_eq!(task.spec(), spec);
                prop_assert!((0.0..=1.0).contains(&task.baseline()));
                check_prompts(&*task, seed, &mut Prompt::new());
            }
            Err(error) => prop_assert!(matches!(error, TaskError::BadSize { .. }), "{spec}: {error}"),
        }
    }

    #[test]
    fn oracle_does_not_panic_on_changed_tokens(
        spec in any_spec(),
        seed: u64,
        changes in proptest::collection::vec((any::<usize>(), 0_u32..50), 1..4),
        cut in 0_usize..4,
    ) {
        if let Ok(task) = parse(&spec) {
            let mut prompt = Prompt::new();
            task.sample_prompt(&mut seeded(seed), &mut prompt);
            let mut tokens = prompt.tokens().to_vec();
            for (index, id) in changes {
                let index = index % tokens.len();
                tokens[index] = id;
            }
            if let Ok(targets) = task.oracle(&tokens) {
                prop_assert!(targets.iter().all(|target| *target == NO_TARGET || *target <= task.classes()));
            }
            tokens.truncate(tokens.len().saturating_sub(cut));
            prop_assert!(cut == 0 || task.oracle(&tokens).is_err());
            prop_assert!(task.oracle(&[]).is_err());
        }
    }

    #[test]
    fn parse_does_not_panic_on_random_text(text in "[a-z0-9{}=,\\[\\]-]{0,60}") {
        let _ = parse(&text);
        let _ = parse(&format!("funccomp{{{text}}}"));
    }
}

#[test]
fn level_ids_are_disjoint_and_encode_the_same_tables() {
    let shared = FuncComp::new(3, &[2, 3], Order::LastTableFirst, 5, true).unwrap();
    let levels = shared.clone().with_id_scope(IdScope::Levels);
    // z_0, then the values of z_1, z_2 and z_3.
    let first_ids = [0, 3, 6, 12];
    assert_eq!(levels.classes(), 12 + 18);
    let (mut rng, mut instance) = (seeded(4), FuncCompInstance::default());
    let (mut shared_prompt, mut level_prompt) = (Prompt::new(), Prompt::new());
    for _ in 0..20 {
        shared.sample(&mut rng, &mut instance);
        shared.encode(&instance, &mut shared_prompt);
        levels.encode(&instance, &mut level_prompt);
        for ((_, a, group), (_, b, _)) in shared_prompt.questions().zip(level_prompt.questions()) {
            assert_eq!(a + first_ids[usize::from(group)], b);
        }
        // Values of entries: fields are kind, outer, inner, value, then w0 to w2.
        for (a, b) in shared_prompt.tokens().chunks(6).zip(level_prompt.tokens().chunks(7)).filter(|(a, _)| a[0] < 3) {
            let level = a[0] as usize;
            assert_eq!((a[2] + first_ids[level], a[3] + first_ids[level + 1]), (b[2], b[3]));
            assert_eq!(b[1], if level == 0 { 0 } else { [0, 1, 3][level] + a[1] });
        }
        assert_eq!(shared.render(&shared_prompt), levels.render(&level_prompt));
    }
}

#[test]
fn intermediate_answers_are_the_values_after_each_hop() {
    let task = FuncComp::new(3, &[2, 3], Order::LastTableFirst, 5, true).unwrap();
    let (mut rng, mut instance, mut prompt) = (seeded(4), FuncCompInstance::default(), Prompt::new());
    for _ in 0..20 {
        task.sample(&mut rng, &mut instance);
        task.encode(&instance, &mut prompt);
        assert_eq!(prompt.intermediate_answers().len(), 5 * 3);
        for (query, answers) in instance.queries.iter().zip(prompt.intermediate_answers().chunks(3)) {
            for (hops, answer) in (1..).zip(answers) {
                let shorter = super::funccomp::Query { hops: query.hops.min(hops), ..query.clone() };
                assert_eq!(*answer, task.follow(&instance, &shorter));
            }
        }
        let answers: Vec<u32> = prompt.intermediate_answers().chunks(3).map(|answers| answers[2]).collect();
        assert_eq!(answers, task.answer(&instance));
    }
}
