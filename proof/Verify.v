(* The verified checker for certificate files: which theorem, its conditions, and the statement that an accepted certificate makes.

   verify answers as `rung check` does: accepted, refused (an inequality fails), or malformed (a list has the wrong length, a size is zero, a
   divisibility fails, or the theorem does not speak of such a stack). *)
From mathcomp Require Import all_ssreflect.
From Coq Require Import NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate Network Statement Padding TheoremOne TheoremOneCheck StateOnly.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* the names that certificate files use *)
Inductive theorem_name : Type := Decomposition | Entropy | State.
Inductive verdict : Type := Accepted | Refused | Malformed.

Section Verify.
Variables (th : theorem_name) (c : cert).
Let L := hops c. Let m := cert_m c. Let B := message_bits c. Let tw := per_query c.
Let s i := nth N0 (state_bits c) i.
Let n i := nth 1%num (1%num :: cert_n c) i.
Let sd i := nth N0 (N0 :: side_bits c) i.

(* what certificates of all theorems have in common; blocks: how many states there are *)
Definition common_ok (blocks : nat) : bool :=
  [&& 0 < L, size (state_bits c) == blocks, size (cert_n c) == L.-1,
      all (fun a => N.leb 1 a) [:: B; m; per_entry c; per_start c; tw] & all (fun a => N.leb 1 a) (cert_n c)].

Definition verify : verdict :=
  match th with
  | Decomposition => if well_formed c then (if accepts c then Accepted else Refused) else Malformed
  | Entropy =>
      if [&& ~~ case_zero c, L == 2 & common_ok 2]
      then (if check_one m (n 1) B (s 0) (s 1) (sd 1) tw then Accepted else Refused) else Malformed
  | State =>
      if ~~ case_zero c && common_ok 1
      then (if final_ok 128 80 (s 0) (sizeN m n L.-1) (sizeN m n L.-1) then Accepted else Refused) else Malformed
  end.

(* full layers of the stacks that the theorem speaks of *)
Definition full_layers : nat :=
  match th with Decomposition => L.-1 + case_zero c | Entropy => 1 | State => 0 end.

Theorem verify_sound : verify = Accepted -> forall F, F <= full_layers ->
  forall (W : net L (fun e => tn (n e)) F (tn B) (fun e => tn (s e)) (fun e => tn (sd e))) (pad : seq (H W)),
    ~ (forall u : Inp L (tn m) (fun e => tn (n e)),
         padded_answer (tn (per_entry c)) (tn (per_start c)) (tn tw) pad u = answer u).
Proof.
rewrite /verify /full_layers; case: th.
- by case: ifP => // _; case: ifP => // ok _ F FF W pad; apply: (certificate_sound_padded ok FF).
- case: ifP => // /and3P[_ /eqP L2 /and5P[_ _ _ /= /and5P[_ _ _ _ /andP[tw0 _]] _]]; case: ifP => // ok _.
  rewrite tn_le in tw0; apply: no_stack_no_net => //.
  rewrite L2; exact: (check_one_sound ok).
- case: ifP => // /andP[_ /and5P[L0 _ _ /= /and5P[_ m0 _ _ /andP[tw0 _]] n0]]; case: ifP => // ok _.
  rewrite tn_le in tw0; rewrite tn_le in m0; apply: no_stack_no_net => //.
  have n0' e : 0 < tn (n e) by apply: pos_nth; rewrite /= n0.
  apply: state_only => //; have := final_okP _ ok; rewrite tn_size; apply; exact: Draw.Nn_pos.
Qed.
End Verify.

(* decimal digits, most significant first *)
Definition decimal (digits : seq nat) : N := foldl (fun a d => N.add (N.mul 10 a) (N.of_nat d)) N0 digits.
