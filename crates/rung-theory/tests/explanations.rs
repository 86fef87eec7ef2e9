//! The evidence for claims exists: every section is a heading of `docs/proof.md`, every lemma a statement of `proof/`.

use num_bigint::BigUint;
use rung_theory::bound::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, ProofCase, TableLists, Theorem, TokenCounts,
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

fn read_project_file(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A certificate for every theorem, both cases, two and three hops, with and without an embedding.
fn certificates() -> Vec<Certificate> {
    let one = BigUint::from(1_u8);
    let cells = Cells { cell: one.clone(), group: one.clone() };
    let lists = TableLists { x: Vec::new(), sigma: Vec::new(), kappa: Vec::new() };
    let borders = FrozenBorders { varying: one.clone(), live: Vec::new(), freeze: Vec::new() };
    let theorems = [
        Theorem::State,
        Theorem::Entropy,
        Theorem::Product(lists.clone(), borders),
        Theorem::Cells(cells.clone()),
        Theorem::CellLists { cells, x: [one.clone(), one.clone()], sigma: one.clone() },
        Theorem::Decomposition(lists),
    ];
    let mut certificates = Vec::new();
    for theorem in theorems {
        for (fewer, hops, inner) in
            [(0, 2, None), (1, 2, None), (0, 3, None), (1, 3, None), (1, 3, Some(2)), (0, 3, Some(2))]
        {
            certificates.push(Certificate {
                case: if fewer == 1 { ProofCase::OneLayerFewer } else { ProofCase::AsManyLayers },
                hops,
                message_bits: one.clone(),
                state_bits: vec![one.clone()],
                fixed_bits: BigUint::ZERO,
                m: one.clone(),
                n: vec![one.clone(); hops - 1],
                token_counts: TokenCounts::default(),
                theorem: theorem.clone(),
                inner_instance: inner.map(|hops| InnerInstance { hops, middle: 0 }),
            });
        }
    }
    certificates
}

#[test]
fn every_section_and_lemma_of_a_basis_exists() {
    let page = read_project_file("docs/proof.md");
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for certificate in certificates() {
        for claim in CLAIMS {
            let basis = claim.basis(&certificate);
            assert!(
                headings.contains(&basis.section),
                "{claim:?} of `{}`: {}",
                certificate.theorem.name(),
                basis.section
            );
            for lemma in &basis.lemmas {
                let stated = read_project_file(&format!("proof/{}", lemma.file)).lines().any(|line| {
                    let mut words = line.split_whitespace();
                    matches!(words.next(), Some("Theorem" | "Lemma" | "Definition" | "Fixpoint"))
                        && words.next().is_some_and(|word| word.trim_end_matches(':') == lemma.name)
                });
                assert!(
                    stated,
                    "{claim:?} of `{}`: {} is not stated in {}",
                    certificate.theorem.name(),
                    lemma.name,
                    lemma.file
                );
            }
        }
    }
}

#[test]
fn a_basis_is_machine_checked_or_names_the_missing_step() {
    for certificate in certificates() {
        let basis = Claim::OutOfReach.basis(&certificate);
        let verified = basis.lemmas.iter().any(|lemma| lemma.name == "verify_file_sound");
        assert_eq!(basis.is_machine_checked(), verified, "{}", certificate.theorem.name());
        assert_eq!(basis.missing.is_some(), !verified, "{}", certificate.theorem.name());
    }
}
