(* Executable checks for the sharp L = 2 bound (TwoHops.v), sound for stacks and for concrete networks.
   check_qt reads a certificate (q, t); check_delta reads delta = dn/dd. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate TwoHops Network Statement Padding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).
Local Notation "a /! b" := (N.div a b) (at level 40, left associativity).

Section Check2.
Variables (MA : N) (FR : nat).
Notation ONE := (FRN FR).

(* 2^a q^m < c^m *)
Definition count_ok (a q c m : N) : bool :=
  if N.eqb q 0 then N.leb 1 m && N.leb 1 c else N.leb q c && N.ltb (a *! ONE) (m *! log2_dn MA FR c q).
Lemma count_okP a q c m : count_ok a q c m -> 2 ^ tn a * tn q ^ tn m < tn c ^ tn m.
Proof.
rewrite /count_ok tn_eq0; case: eqP => [-> |q0].
  by rewrite !tn_le => /andP[m0 c0]; rewrite exp0n // muln0 expn_gt0 c0.
rewrite tn_le tn_lt !tnM FRNE => /andP[qc H].
have qp : 0 < tn q by rewrite lt0n; apply/eqP.
have dn := log2_dnP MA FR qp qc; set ld := log2_dn _ _ _ _ in dn H.
rewrite -(ltn_exp2r _ _ (FR0 FR)) expnMn -!expnM.
apply: (@leq_trans ((2 ^ tn ld * tn q ^ (2 ^ FR)) ^ tn m)); last by rewrite [tn m * _]mulnC expnM leq_expn.
rewrite expnMn -!expnM [tn m * _]mulnC ltn_pmul2r ?expn_gt0 ?qp //.
by rewrite ltn_exp2l // [tn ld * _]mulnC.
Qed.

(* 2^a <= size^k *)
Lemma atmostP a k size : 0 < tn size -> tn a * 2 ^ FR <= tn k * tn (log2_dn MA FR size 1) -> 2 ^ tn a <= tn size ^ tn k.
Proof.
move=> s0 H; have := @log2_dnP MA FR size 1 isT s0; rewrite tn1 exp1n muln1 => dn.
rewrite -(leq_exp2r _ _ (FR0 FR)) -!expnM.
apply: leq_trans (_ : (2 ^ tn (log2_dn MA FR size 1)) ^ tn k <= _).
  by rewrite -expnM leq_exp2l // [X in _ <= X]mulnC.
by rewrite [tn k * _]mulnC expnM leq_expn.
Qed.

Definition check_qt (m n1 q t B s0 r : N) : bool :=
  let k := n1 *! (t +! 1) in
  [&& N.leb 1 (m *! n1), final_ok MA FR (s0 +! r +! k *! B) (k *! (q +! 1)) (m *! n1) &
      count_ok s0 q (N.sub m (t *! (q +! 1))) m].

Definition states (s0 : nat) (e : nat) : nat := if e is 0 then s0 else 0.

Theorem check_qt_sound m n1 q t B s0 r tw te t0 : check_qt m n1 q t B s0 r ->
  forall P : stack 2 (tn m) (fun _ => tn n1) te t0 tw 1 (tn B) (states (tn s0)) (fun _ => tn r), ~ solves P.
Proof.
case/and3P; rewrite tn_le => N0 row /count_okP cnt.
apply: (@two_sharp (tn m) te t0 tw (tn B) (tn q) (tn t)) => //=.
  have := final_okP N0 row; rewrite !tnD !tnM !tnD tn1 !addn1; apply.
by move: cnt; rewrite tnB tnM tnD tn1 addn1.
Qed.

(* delta = dn/dd in (0, 1); kappa and q are computed *)
Definition check_delta (m n1 dn dd B s0 r : N) : bool :=
  let V := log2_dn MA FR (m *! n1) 1 in
  let kap := ((s0 +! r) *! dd *! ONE) /! (dn *! n1 *! V) in
  let q := N.max 1 (N.sub (cdiv (B *! dd *! ONE) (N.sub dd dn *! V)) 1) in
  [&& N.leb 1 (m *! n1), N.leb 1 dn, N.ltb dn dd, N.leb 1 V & count_ok s0 q (N.sub m kap) m].

Theorem check_delta_sound m n1 dn dd B s0 r tw te t0 : check_delta m n1 dn dd B s0 r ->
  forall P : stack 2 (tn m) (fun _ => tn n1) te t0 tw 1 (tn B) (states (tn s0)) (fun _ => tn r), ~ solves P.
Proof.
rewrite /check_delta; set V := log2_dn _ _ _ _; set kap := _ /! _; set c := cdiv _ _; set q := N.max _ _.
case/and5P; rewrite !tn_le tn_lt tn1 => N0 d0 dd0 V0 /count_okP cnt.
have [m0 n0] : 0 < tn m /\ 0 < tn n1 by move: N0; rewrite tnM muln_gt0 => /andP.
apply: (@two_sharp_delta (tn m) te t0 tw (tn B) (tn dn) (tn dd) (tn kap) (tn q)) => //=; first exact: ltnW.
- have E : tn (N.mul dd (N.add s0 r)) = tn dd * (tn s0 + tn r) by rewrite tnM tnD.
  have E' : tn (N.mul (N.mul dn n1) (N.add kap 1)) = tn dn * tn n1 * (tn kap).+1 by rewrite !tnM tnD tn1 addn1.
  rewrite -tnM -E -E'; apply: (@final_okP MA FR) => //; rewrite /final_ok tn_lt -/V tnM E tnM E' FRNE.
  have b0 : 0 < tn dn * tn n1 * tn V by rewrite !muln_gt0 d0 n0 V0.
  have Ek : tn kap = ((tn s0 + tn r) * tn dd * 2 ^ FR) %/ (tn dn * tn n1 * tn V) by rewrite /kap tn_div !tnM tnD FRNE.
  have := ltn_ceil ((tn s0 + tn r) * tn dd * 2 ^ FR) b0; rewrite -Ek.
  move: (2 ^ FR) (tn dn) (tn n1) (tn V) (tn kap) (tn dd) (tn s0 + tn r) => f a1 a2 a3 a4 a5 a6; lia.
- have E : tn (N.mul dd B) = tn dd * tn B by rewrite tnM.
  have E' : tn (N.mul (N.sub dd dn) (N.add q 1)) = (tn dd - tn dn) * (tn q).+1 by rewrite tnM tnB tnD tn1 addn1.
  rewrite -E -E' -tnM; apply: atmostP => //; rewrite -/V E E'.
  have qc : tn c <= (tn q).+1 by rewrite /q; lia.
  have b0 : 0 < tn (N.sub dd dn *! V) by rewrite tnM tnB muln_gt0 subn_gt0 dd0 V0.
  have := @cdivP (B *! dd *! ONE) (N.sub dd dn *! V) b0; rewrite -/c.
  rewrite !tnM tnB FRNE => H.
  have := leq_trans H (leq_mul qc (leqnn _)).
  move: (2 ^ FR) (tn dd - tn dn) (tn V) (tn q).+1 (tn dd) (tn B) => f a1 a2 a3 a4 a5; lia.
- by move: cnt; rewrite tnB.
Qed.

(* concrete networks with at most one full layer, with any constant padding in front *)
Lemma nets m n1 B s0 r tw te t0 : 0 < tw ->
  (forall P : stack 2 m (fun _ => n1) te t0 tw 1 B (states s0) (fun _ => r), ~ solves P) ->
  forall F, F <= 1 -> forall (W : net 2 (fun _ => n1) F B (states s0) (fun _ => r)) (pad : seq (H W)),
    ~ (forall u : Inp 2 m (fun _ => n1), padded_answer te t0 tw pad u = answer u).
Proof.
move=> tw0 no F F1 W pad sol.
apply: (no (net_stack m te t0 tw (more 1 (shifted pad)))); apply: net_solves => // u.
by rewrite -sol padded_answerE ?answer_more.
Qed.

Theorem check_qt_nets m n1 q t B s0 r tw te t0 : 0 < tw -> check_qt m n1 q t B s0 r ->
  forall F, F <= 1 -> forall (W : net 2 (fun _ => tn n1) F (tn B) (states (tn s0)) (fun _ => tn r)) (pad : seq (H W)),
    ~ (forall u : Inp 2 (tn m) (fun _ => tn n1), padded_answer te t0 tw pad u = answer u).
Proof. by move=> tw0 ok; apply: nets => // P; exact: (check_qt_sound ok). Qed.
Theorem check_delta_nets m n1 dn dd B s0 r tw te t0 : 0 < tw -> check_delta m n1 dn dd B s0 r ->
  forall F, F <= 1 -> forall (W : net 2 (fun _ => tn n1) F (tn B) (states (tn s0)) (fun _ => tn r)) (pad : seq (H W)),
    ~ (forall u : Inp 2 (tn m) (fun _ => tn n1), padded_answer te t0 tw pad u = answer u).
Proof. by move=> tw0 ok; apply: nets => // P; exact: (check_delta_sound ok). Qed.
End Check2.

(* Points (te = t0 = tw = 1; tokens 2m + 2) for messages and states of (heads, head size, bits, layers) as named; first delta, then (q, t). *)
Lemma d_1_8_4_1 : check_delta 128 80 146 1 53 100 64 288 0. Proof. by vm_compute. Qed.
Lemma d_1_8_8_3 : check_delta 128 80 580 1 55 100 128 1728 0. Proof. by vm_compute. Qed.
Lemma d_16_128_16_3 : check_delta 128 80 1870781 1 57 100 65536 12681216 0. Proof. by vm_compute. Qed.
Lemma q_1_4_4_1 : check_qt 128 80 50 1 12 1 32 80 0. Proof. by vm_compute. Qed.
Lemma q_1_8_4_1 : check_qt 128 80 139 1 22 2 64 288 0. Proof. by vm_compute. Qed.
Lemma q_1_8_8_3 : check_qt 128 80 565 1 32 9 128 1728 0. Proof. by vm_compute. Qed.
Lemma q_16_128_16_3 : check_qt 128 80 1868428 1 7314 145 65536 12681216 0. Proof. by vm_compute. Qed.
(* 2^20 tokens, messages of 65536 bits, 2707001 bits (330 KiB) of state before the full layer *)
Lemma q_megatoken : check_qt 128 80 524287 1 7198 37 65536 2707001 0. Proof. by vm_compute. Qed.
(* one bit more is refused for these q, t *)
Lemma q_megatoken_no : ~~ check_qt 128 80 524287 1 7198 37 65536 2707002 0. Proof. by vm_compute. Qed.
Definition megatoken := @check_qt_nets 128 80 524287 1 7198 37 65536 2707001 0 1 1 1 isT q_megatoken.
