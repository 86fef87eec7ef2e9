(* Readable special cases: L = 1, and L = 2 with one full layer and all pairs (no classes). *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model Draw Reach LowerBound.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* A pure bounded-state model with fewer than m log m bits cannot do one look-up in a table of m entries. *)
Theorem one_lookup (m te t0 tw B : nat) (s sd n : nat -> nat) : 0 < m -> (forall e, 0 < n e) -> 2 ^ s 0 < m ^ m ->
  forall P : stack 1 m n te t0 tw 0 B s sd, ~ solves P.
Proof.
move=> m0 n0 H.
apply: (@lower_bound false 1 B m s sd n (fun e => if e is 0 then m else 1) (fun _ => 1) (fun _ => 1) te t0 tw 1).
by split => //; case.
Qed.

(* Two hops with one full layer, state before (s_0), beside (r) and after (s_1) it; any list sizes x0, x1 and target sigma. *)
Theorem two_hops (m n1 te t0 tw B s0 r s1 x0 x1 sigma : nat) :
  0 < n1 -> 0 < x0 <= m -> 0 < x1 -> 0 < sigma <= m ->
  'C(m, sigma.-1) * sigma.-1 ^ (x1 * x0) * 2 ^ (x1 * s0 + 1) <= m ^ (x1 * x0) ->
  2 ^ (x1 * s0 + 1 + r + B * tw * (x0 * n1) + s0 + s1 * (x0 * x1)) < (m * n1) ^ (n1 * sigma) ->
  forall P : stack 2 m (fun _ => n1) te t0 tw 1 B (fun e => if e is 0 then s0 else s1) (fun _ => r), ~ solves P.
Proof.
move=> n0 /andP[x00 x0m] x10 /andP[sg0 sgm] tail fin.
apply: (@lower_bound false 2 B m _ _ _ (fun e => if e is 0 then x0 else x1) (fun _ => sigma) (fun _ => 1) te t0 tw 1).
split => //.
- exact: leq_trans x00 x0m.
- by case.
- by case => //= _; rewrite mul1n sg0.
- by case => //= _; rewrite mul1n -[(x1 * s0).+1]addn1.
rewrite /Dfinal /D /= divn1 /extra /= add0n big_nat1 -[(x1 * s0).+1]addn1.
set l := lbits _ _ _ _ _ _ _ _ _ _ _ _ _.
have -> : l = B * tw * (x0 * n1) + (s0 + (if s1 == 0 then 0 else s1 * (x0 * x1))).
  rewrite /l /lbits /last_bits /last_border /ncases /qn /dep big_ord_recl big_ord0 unlock /= divn1.
  by rewrite !addn0 mul0n add0n !muln1 addnA.
apply: leq_ltn_trans fin; rewrite leq_exp2l // -!addnA !leq_add2l.
by case: eqP => [->|_].
Qed.
