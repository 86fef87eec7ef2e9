//! Constructions, run.

use rung_engine::{Native, Ops};
use rung_theory::task::Prompt;
use rung_theory::task::funccomp::FuncComp;
use rung_theory::task::{Task, seeded};

use super::*;

fn request(m: u32, n: &[u32]) -> Request {
    Request { hops: n.len() + 1, m, n: n.to_vec(), mixer: None }
}

/// The share of right answers by the plain forward pass, on every `stride`-th instance.
fn plain_score(built: &Construction<f32>, request: &Request, stride: usize) -> (usize, usize) {
    let task = FuncComp::new(request.m, &request.n, Order::Hard, 1, false).unwrap();
    let ops = Native::new();
    ops.bind_frozen(&built.weights);
    let (mut right, mut all, mut prompt) = (0, 0, Prompt::new());
    for instance in task.all().step_by(stride) {
        Task::encode(&task, &instance, &mut prompt);
        let (hidden, _) = built.model.forward(&ops, prompt.tokens(), 1, None).unwrap();
        let scores = ops.values(&built.model.logits(&ops, &hidden));
        let last = &scores[scores.len() - built.model.classes()..];
        let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
        right += usize::from(best as u32 == prompt.questions().next().unwrap().1);
        all += 1;
    }
    (right, all)
}

#[test]
fn u1_is_right_on_every_small_instance() {
    for (m, n, stride) in [(2, &[][..], 1), (3, &[], 1), (2, &[2], 1), (3, &[2], 9973), (2, &[2, 2], 100_003)] {
        let request = request(m, n);
        let built = build("U1", &request).unwrap();
        let (right, all) = plain_score(&built, &request, stride);
        assert_eq!(right, all, "m = {m}, n = {n:?}");
        assert!(all > 5);
        let _ = seeded(0);
    }
}

#[test]
fn every_carrier_carries() {
    for name in carry::names() {
        for construction in ["U2", "U2'"] {
            let request = Request { mixer: Some(name.to_owned()), ..request(3, &[2]) };
            let built = build(construction, &request).unwrap();
            let (right, all) = plain_score(&built, &request, 19_997);
            assert_eq!(right, all, "{construction} with {name}");
        }
    }
}
