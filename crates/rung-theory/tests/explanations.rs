//! What sentences rest on exists: every section is a heading of `docs/proof.md`, every lemma a statement of `proof/`.

use num_bigint::BigUint;
use rung_theory::bound::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, ProofCase, TableLists, Theorem, TokensPer,
};
use rung_theory::bound::explanation::Claim;

const CLAIMS: [Claim; 8] = [
    Claim::OutOfReach,
    Claim::Messages,
    Claim::States,
    Claim::Inequalities,
    Claim::TableOrder,
    Claim::StackCounted,
    Claim::StackNotCounted,
    Claim::Trivial,
];

fn project(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// One point of every theorem, case, number of hops up to three, with and without an embedding.
fn points() -> Vec<Certificate> {
    let one = BigUint::from(1_u8);
    let cells = Cells { cell: one.clone(), group: one.clone() };
    let lists = TableLists { x: Vec::new(), sigma: Vec::new(), kappa: Vec::new() };
    let lazy = FrozenBorders { varying: one.clone(), live: Vec::new(), freeze: Vec::new() };
    let theorems = [
        Theorem::State,
        Theorem::Entropy,
        Theorem::Product(lists.clone(), lazy),
        Theorem::Cells(cells.clone()),
        Theorem::CellLists { cells, x: [one.clone(), one.clone()], sigma: one.clone() },
        Theorem::Decomposition(lists),
    ];
    let mut points = Vec::new();
    for theorem in theorems {
        for (fewer, hops, inner) in
            [(0, 2, None), (1, 2, None), (0, 3, None), (1, 3, None), (1, 3, Some(2)), (0, 3, Some(2))]
        {
            points.push(Certificate {
                case: if fewer == 1 { ProofCase::OneLayerFewer } else { ProofCase::AsManyLayers },
                hops,
                message_bits: one.clone(),
                state_bits: vec![one.clone()],
                parallel_bits: BigUint::ZERO,
                m: one.clone(),
                n: vec![one.clone(); hops - 1],
                tokens_per: TokensPer::default(),
                theorem: theorem.clone(),
                embedding: inner.map(|hops| InnerInstance { hops, middle: 0 }),
            });
        }
    }
    points
}

#[test]
fn sections_and_lemmas_exist() {
    let page = project("docs/proof.md");
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for point in points() {
        for claim in CLAIMS {
            let basis = claim.basis(&point);
            assert!(headings.contains(&basis.section), "{claim:?} of `{}`: {}", point.theorem.name(), basis.section);
            for lemma in &basis.lemmas {
                let stated = project(&format!("proof/{}", lemma.file)).lines().any(|line| {
                    let mut words = line.split_whitespace();
                    matches!(words.next(), Some("Theorem" | "Lemma" | "Definition" | "Fixpoint"))
                        && words.next().is_some_and(|word| word.trim_end_matches(':') == lemma.name)
                });
                assert!(
                    stated,
                    "{claim:?} of `{}`: {} is not stated in {}",
                    point.theorem.name(),
                    lemma.name,
                    lemma.file
                );
            }
        }
    }
}

#[test]
fn a_theorem_is_machine_checked_with_its_check_or_says_what_is_missing() {
    for point in points() {
        let basis = Claim::OutOfReach.basis(&point);
        let verified = basis.lemmas.iter().any(|lemma| lemma.name == "verify_file_sound");
        assert_eq!(basis.is_machine_checked(), verified, "{}", point.theorem.name());
        assert_eq!(basis.missing.is_some(), !verified, "{}", point.theorem.name());
    }
}
