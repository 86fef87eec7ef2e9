(* Extraction of the verified checker to OCaml.  Nothing is replaced by hand-written code but booleans, pairs, options and lists (ExtrOcamlBasic):
   numbers stay Coq's own binary numbers, so the arithmetic that runs is the arithmetic that the theorems are about. *)
From mathcomp Require Import all_ssreflect.
From Coq Require Import NArith Extraction ExtrOcamlBasic.
From Rung Require Import Certificate.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* exit codes of `rung check` *)
Inductive verdict : Type := Accepted | Refused | Malformed.
Definition verify (c : cert) : verdict :=
  if well_formed c then (if accepts c then Accepted else Refused) else Malformed.

(* an accepted certificate is one that the theorems are about *)
Lemma verify_accepts c : verify c = Accepted -> accepts c.
Proof. by rewrite /verify; case: ifP => // _; case: ifP. Qed.

(* decimal digits, most significant first *)
Definition decimal (digits : seq nat) : N := foldl (fun a d => N.add (N.mul 10 a) (N.of_nat d)) N0 digits.

Extraction Language OCaml.
Extraction "build/verified.ml" verify decimal.
