(* Executable check for two_sharp_last (TwoHopsLast.v): L = 2, one full layer, s_1 bits of state after it.  Sound for stacks and concrete networks. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate TwoHops TwoHopsLast Network Statement Padding TwoHopsCheck.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).

Section CheckLast.
Variables (MA : N) (FR : nat).

Definition check_last (m n1 q t B s0 r s1 tw : N) : bool :=
  [&& N.leb 1 (m *! n1),
      final_ok MA FR (s0 +! r +! (t +! 1) *! (n1 *! (B *! tw) +! (q +! 1) *! s1)) (n1 *! (t +! 1) *! (q +! 1)) (m *! n1) &
      count_ok MA FR s0 q (N.sub m (t *! (q +! 1))) m].

(* s_0 bits before the full layer, s_1 after it *)
Definition states2 (s0 s1 : nat) (e : nat) : nat := if e is 0 then s0 else s1.

Theorem check_last_sound m n1 q t B s0 r s1 tw te t0 : check_last m n1 q t B s0 r s1 (N.of_nat tw) ->
  forall P : stack 2 (tn m) (fun _ => tn n1) te t0 tw 1 (tn B) (states2 (tn s0) (tn s1)) (fun _ => tn r), ~ solves P.
Proof.
case/and3P; rewrite tn_le => N0 row /count_okP cnt.
apply: (@two_sharp_last (tn m) te t0 tw (tn B) (tn q) (tn t)) => /=.
  by have := final_okP N0 row; rewrite !(tnD, tnM) tn1 Nat2N.id !addn1.
by move: cnt; rewrite tnB tnM tnD tn1 addn1.
Qed.

(* concrete networks with at most one full layer, with any constant padding in front *)
Theorem check_last_nets m n1 q t B s0 r s1 tw te t0 : 0 < tw -> check_last m n1 q t B s0 r s1 (N.of_nat tw) ->
  forall F, F <= 1 ->
  forall (W : net 2 (fun _ => tn n1) F (tn B) (states2 (tn s0) (tn s1)) (fun _ => tn r)) (pad : seq (H W)),
    ~ (forall u : Inp 2 (tn m) (fun _ => tn n1), padded_answer te t0 tw pad u = answer u).
Proof.
move=> tw0 ok F F1 W pad sol.
apply: (check_last_sound ok (P := net_stack (tn m) te t0 tw (more 1 (shifted pad)))); apply: net_solves => // u.
by rewrite -sol padded_answerE ?answer_more.
Qed.
End CheckLast.

(* s_1 = 0: the certificate of TwoHopsCheck.v *)
Lemma last_megatoken0 : check_last 128 80 524287 1 7198 37 65536 2707001 0 0 1. Proof. by vm_compute. Qed.
(* s_1 > 0 (te = t0 = tw = 1; tokens m n_1 + m + 2), found by search; condition (i') needs n_1 log N > s_1 *)
Lemma last_32_80_20 : check_last 128 80 44 5 12 0 32 80 0 20 1. Proof. by vm_compute. Qed.
Lemma last_32_80_80 : check_last 128 80 41 14 10 0 32 80 0 80 1. Proof. by vm_compute. Qed.
Lemma last_64_288_72 : check_last 128 80 132 10 29 0 64 288 0 72 1. Proof. by vm_compute. Qed.
Lemma last_64_288_288 : check_last 128 80 115 34 20 0 64 288 0 288 1. Proof. by vm_compute. Qed.
(* one argument fewer, or far more state after the layer, is refused for these q, t *)
Lemma last_64_288_288_no : ~~ check_last 128 80 114 34 20 0 64 288 0 288 1. Proof. by vm_compute. Qed.
Lemma last_32_80_80_no : ~~ check_last 128 80 41 14 10 0 32 80 0 160 1. Proof. by vm_compute. Qed.
Definition last_point := @check_last_nets 128 80 41 14 10 0 32 80 0 80 1 1 1 isT last_32_80_80.
