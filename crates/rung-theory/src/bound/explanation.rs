//! The evidence for each sentence about an accepted certificate: a section of `docs/proof.md`, and the lemmas of `proof/` if
//! the statement is machine-checked.

use super::checker::{Certificate, ProofCase, Theorem};

/// A sentence that `rung check` prints about an accepted certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This number of hops is out of reach for tables of this many tokens.
    OutOfReach,
    /// The claim holds for every stack with at most these full layers and message bits.
    Messages,
    /// The claim holds for states of at most these bits.
    States,
    /// The inequalities of the theorem hold.
    Inequalities,
    /// The tables list w as the major index.
    TableOrder,
    /// The named stack has these bits.
    StackCounted,
    /// The certificate does not name a stack, or not the conventions for counting its bits.
    StackNotCounted,
    /// One message has fewer bits than an answer.
    Trivial,
}

/// A statement of the Coq development.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lemma {
    /// The name in Coq.
    pub name: &'static str,
    /// The file in `proof/` that states it.
    pub file: &'static str,
}

/// The evidence for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The heading in `docs/proof.md`.
    pub section: &'static str,
    /// The Coq statements of the claim; empty if it is a definition or is not machine-checked.
    pub lemmas: Vec<Lemma>,
    /// The step without a machine-checked proof, if there is one.
    pub missing: Option<&'static str>,
    /// What has to be trusted in addition to Coq's kernel.
    pub trusted: Option<&'static str>,
}

impl Basis {
    /// Whether all of the claim has a machine-checked proof.
    pub fn is_machine_checked(&self) -> bool {
        self.missing.is_none() && !self.lemmas.is_empty()
    }
}

const fn lemma(name: &'static str, file: &'static str) -> Lemma {
    Lemma { name, file }
}

impl Claim {
    /// The evidence for this claim about the certificate.
    pub fn basis(self, certificate: &Certificate) -> Basis {
        let model = "The task and the model";
        let basis =
            |section, lemmas: &[Lemma], trusted| Basis { section, lemmas: lemmas.to_vec(), missing: None, trusted };
        match self {
            Self::OutOfReach => theorem_basis(certificate),
            Self::Messages => basis(
                model,
                &[lemma("net_stack", "Network.v"), lemma("no_stack_no_net", "Padding.v")],
                Some(
                    "that a layer's sums run from left to right in registers of the given number of bits, or exactly: fact (M)",
                ),
            ),
            Self::States => basis(
                model,
                &[lemma("net_stack", "Network.v"), lemma("compose_layers", "Instances.v")],
                Some("that a block passes on no more than its counted state: fact (S)"),
            ),
            Self::Inequalities => {
                let verified = theorem_basis(certificate).is_machine_checked();
                Basis {
                    section: "What the checker does about rounding",
                    lemmas: if verified { vec![lemma("verify_file_sound", "Verify.v")] } else { Vec::new() },
                    missing: (!verified).then_some("the soundness of this theorem's check"),
                    trusted: Some(
                        "that this program computes what `verify_file` computes: compared on mutants by `make -C proof fuzz`",
                    ),
                }
            }
            Self::TableOrder => basis("Theorem 2: any number of hops", &[], None),
            Self::StackCounted => basis(
                "What is machine-checked",
                &[
                    lemma("message_bits_of", "StackBits.v"),
                    lemma("block_bits", "StackBits.v"),
                    lemma("table_ok", "StackTable.v"),
                ],
                Some("that this program counts by these definitions: both are tested on one stored table of stacks"),
            ),
            Self::StackNotCounted => {
                basis(model, &[], Some("that the model you mean has messages and states of the given numbers of bits"))
            }
            Self::Trivial => basis(model, &[], None),
        }
    }
}

/// The evidence for the theorem that the certificate uses.
fn theorem_basis(certificate: &Certificate) -> Basis {
    let hops = certificate.inner_instance.map_or(certificate.hops, |inner| inner.hops);
    let (section, mut lemmas, missing) = match &certificate.theorem {
        Theorem::State => ("Theorem S: no full layer", vec![lemma("state_only", "StateOnly.v")], None),
        Theorem::Entropy => (
            "Theorem 1: two hops, one full layer",
            vec![lemma("theorem_one", "TheoremOne.v"), lemma("check_one_sound", "TheoremOneCheck.v")],
            None,
        ),
        Theorem::Product(_, borders) if hops == 2 && certificate.case == ProofCase::OneLayerFewer => (
            "Theorem 2: any number of hops",
            vec![lemma("theorem_two", "TheoremTwo.v"), lemma("check_product_sound", "TheoremTwoCheck.v")],
            // Constant entries of z_1 are counted separately only if their messages are frozen.
            (borders.freeze == [2] && borders.varying != certificate.m)
                .then_some("messages to constant entries of z_1 counted once (freeze 2, varying below m)"),
        ),
        Theorem::Product(..) => (
            "Theorem 2: any number of hops",
            Vec::new(),
            Some("Lemmas A and B as product sets, and lazy freezing, for more than two hops and for case 0"),
        ),
        Theorem::Cells(_) => (
            "Theorem 3: two full layers, two hops",
            vec![lemma("theorem_three", "TheoremThree.v"), lemma("check_cells_sound", "TheoremThreeCheck.v")],
            None,
        ),
        Theorem::CellLists { .. } => (
            "Theorem 4: the same with lists",
            vec![lemma("structure_three", "TheoremThree.v")],
            Some("lists inside the cube, and the executable check"),
        ),
        Theorem::Decomposition(_) => (
            "Theorem 0: the first form",
            vec![lemma("lower_bound", "LowerBound.v"), lemma("check_sound", "Certificate.v")],
            None,
        ),
    };
    if certificate.inner_instance.is_some() {
        lemmas.push(lemma("inner_solves", "Embedding.v"));
    }
    if missing.is_none() {
        lemmas.push(lemma("verify_file_sound", "Verify.v"));
    }
    Basis { section, lemmas, missing, trusted: None }
}
