(* The verified checker as a function of a certificate: what is extracted. *)
From mathcomp Require Import all_ssreflect.
From Coq Require Import NArith.
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
