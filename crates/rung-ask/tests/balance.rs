//! Guessing strategies that look nothing up must score no better than chance on the questions.

use std::collections::HashMap;

use rung_ask::prompt::{GridCell, PromptWriter, Question, Style, TableOrder, Variant, answer_symbols, parse_task};
use rung_ask::symbols::default_symbols;

const QUESTIONS: u64 = 1500;

/// Guesses an answer from the symbols that a prompt mentioned.
type Strategy = fn(&[String]) -> Option<String>;

/// Symbols of a question in the order in which its text mentioned them.
fn mentioned_symbols(question: &Question) -> Vec<String> {
    let words = question.text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| question.symbols.iter().any(|symbol| symbol == word)).map(str::to_owned).collect()
}

/// The fraction of questions that a strategy answers correctly.
fn strategy_accuracy(questions: &[Question], strategy: impl Fn(&Question, &[String]) -> Option<String>) -> f64 {
    let right = questions
        .iter()
        .filter(|question| strategy(question, &mentioned_symbols(question)).as_ref() == Some(&question.answer));
    right.count() as f64 / questions.len() as f64
}

fn most_frequent_symbol(mentioned: &[String]) -> Option<String> {
    let mut counts: HashMap<&String, usize> = HashMap::new();
    for symbol in mentioned {
        *counts.entry(symbol).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(symbol, count)| (*count, std::cmp::Reverse((*symbol).clone())))
        .map(|(symbol, _)| symbol.clone())
}

fn assert_balanced(name: &str, questions: &[Question]) {
    let chance = 1.0 / questions[0].symbols.len() as f64;
    // Chance plus four standard deviations.
    let limit = chance + 4.0 * (chance * (1.0 - chance) / questions.len() as f64).sqrt();
    for symbol in &questions[0].symbols {
        let accuracy = strategy_accuracy(questions, |_, _| Some(symbol.clone()));
        assert!(accuracy < limit, "{name}: always {symbol}: {accuracy:.3}, chance {chance:.3}");
    }
    let strategies: [(&str, Strategy); 3] = [
        ("the last symbol shown", |mentioned| mentioned.last().cloned()),
        ("the first symbol shown", |mentioned| mentioned.first().cloned()),
        ("the most frequent symbol", most_frequent_symbol),
    ];
    for (strategy, guess) in strategies {
        let accuracy = strategy_accuracy(questions, |_, mentioned| guess(mentioned));
        assert!(accuracy < limit, "{name}: {strategy}: {accuracy:.3}, chance {chance:.3}");
    }
}

#[test]
fn guessing_on_grid_questions_scores_at_chance_in_every_style_and_order() {
    for style in [Style::Table, Style::Sentences, Style::Code] {
        for order in [TableOrder::LastTableFirst, TableOrder::FirstTableFirst] {
            for hops in [1, 2, 3] {
                let cell = GridCell {
                    hops,
                    entries_per_table: 8,
                    table_count: 3,
                    variant: Variant { order, ..Variant::default() },
                };
                let writer = PromptWriter { style, ..PromptWriter::default() };
                let questions: Vec<Question> = (0..QUESTIONS)
                    .map(|index| writer.grid_question(&cell, &default_symbols(8), 3, index).unwrap())
                    .collect();
                assert_balanced(&format!("{style:?} {order:?} {hops} hops"), &questions);
            }
        }
    }
}

#[test]
fn guessing_on_task_questions_scores_at_chance() {
    let specs = [
        "funccomp{hops=2,m=4,n=[2]}",
        "khop{length=24,alphabet=4,hops=1,mixed=no}",
        "khop{length=40,alphabet=4,hops=2,mixed=no}",
        "mqar{length=32,pairs=6,vocabulary=64}",
        "twosum{length=12,modulus=16}",
        "word{group=s3,length=6,answer=last}",
        "word{group=s5,length=6,answer=last}",
    ];
    for spec in specs {
        let task = parse_task(spec).unwrap();
        let symbols = answer_symbols(&*task).unwrap().unwrap_or_else(default_symbols);
        let questions: Vec<Question> = (0..QUESTIONS)
            .map(|index| {
                PromptWriter::default().task_question(&*task, &Variant::default(), &symbols, 5, index).unwrap()
            })
            .collect();
        assert_balanced(spec, &questions);
    }
}

#[test]
fn zero_hops_ask_for_the_start_symbol() {
    let cell = GridCell { hops: 0, entries_per_table: 8, table_count: 2, ..GridCell::default() };
    let question = PromptWriter::default().grid_question(&cell, &default_symbols(8), 1, 0).unwrap();
    assert!(question.text.contains(&format!("Start with {}.", question.answer)));
}

#[test]
fn equal_seeds_give_equal_prompts_and_tables_do_not_depend_on_hops() {
    let question = |hops: usize, seed: u64| {
        let cell = GridCell { hops, entries_per_table: 4, table_count: 3, ..GridCell::default() };
        PromptWriter { shots: 2, ..PromptWriter::default() }.grid_question(&cell, &default_symbols(4), seed, 9).unwrap()
    };
    assert_eq!(question(2, 1), question(2, 1));
    assert_ne!(question(2, 1).text, question(2, 2).text);
    let table_3 =
        |question: &Question| question.text.rsplit("Table 3").next().unwrap().split("Start").next().unwrap().to_owned();
    assert_eq!(table_3(&question(1, 1)), table_3(&question(3, 1)));
}
