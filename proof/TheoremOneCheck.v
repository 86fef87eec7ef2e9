(* Executable check of Theorem 1 (theorem `entropy` of a certificate) and its soundness.
   The same tests as `entropy.rs` of the checker: V with 64 binary digits, powers compared by logarithms, and by the powers themselves where
   those are too close to tell and short enough. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate TwoHops TwoHopsLast TheoremOne.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).
Local Notation "a ^! b" := (N.pow a b) (at level 30, right associativity).
Local Notation "a /! b" := (N.div a b) (at level 40, left associativity).

Section Power.
Variables (MA : N) (FR : nat).
Notation ONE := (FRN FR).

(* 2^s b^m < a^m *)
Definition power_exceeds (a b m s : N) : bool :=
  if N.leb a b then false else
  if N.ltb (s *! ONE) (m *! log2_dn MA FR a b) then true else
  if N.leb (m *! log2_up MA FR a b) (s *! ONE) then false else
  if N.leb (m *! N.size a) 4194304 then N.ltb (2 ^! s *! b ^! m) (a ^! m) else false.
Lemma power_exceedsP a b m s : 0 < tn b -> power_exceeds a b m s -> 2 ^ tn s * tn b ^ tn m < tn a ^ tn m.
Proof.
move=> b0; rewrite /power_exceeds tn_le; case: (leqP (tn a) (tn b)) => // ba.
case: ifP => [+ _|_]; last first.
  by case: (N.leb _ (s *! ONE)) => //; case: (N.leb _ 4194304) => //; rewrite tn_lt tnM !tnX.
rewrite tn_lt !tnM FRNE => H; have dn := log2_dnP MA FR b0 (ltnW ba); set ld := log2_dn _ _ _ _ in dn H.
rewrite -(ltn_exp2r _ _ (FR0 FR)) expnMn -!expnM.
apply: (@leq_trans ((2 ^ tn ld * tn b ^ (2 ^ FR)) ^ tn m)); last by rewrite [tn m * _]mulnC expnM leq_expn.
rewrite expnMn -!expnM [tn m * _]mulnC ltn_pmul2r ?expn_gt0 ?b0 //.
by rewrite ltn_exp2l // [tn ld * _]mulnC.
Qed.
End Power.

(* a logarithm with f + g digits, cut to f *)
Lemma log_cut (a f g l : nat) : 2 ^ l <= a ^ (2 ^ (f + g)) -> 2 ^ (l %/ 2 ^ g) <= a ^ (2 ^ f).
Proof.
move=> H; have g0 : 0 < 2 ^ g by rewrite expn_gt0.
rewrite -(leq_exp2r _ _ g0) -!expnM -expnD; apply: leq_trans H; rewrite leq_exp2l //.
exact: leq_trunc_div.
Qed.

(* the conditions for a V with log U binary digits: 2^v <= N^U *)
Definition conditions_ok (m n1 B s0 s1 r tw v U : N) : bool :=
  let exceeds a b := power_exceeds 128 80 a b m s0 in
  let S := (s0 +! r) *! U in
  let C := n1 *! (if N.eqb s1 0 then B else B *! tw) *! U in
  let V := N.sub (n1 *! v) (s1 *! U) in
  let q := C /! V in
  let G := N.sub ((q +! 1) *! V) C in
  let k := (C +! S) /! V in
  [&& N.leb 1 m, N.leb 1 n1, N.leb 1 B, N.leb 1 tw, N.leb 1 V &
      if exceeds (N.sub (m *! V) S) C then true else
      if (if N.eqb q 0 then false else exceeds (N.sub (m *! G) S) (q *! G)) then true else
      if N.eqb k 0 then true else exceeds m k].

Lemma conditions_okP m n1 B s0 s1 r tw v U te t0 : 0 < tn U -> 2 ^ tn v <= (tn m * tn n1) ^ tn U ->
  conditions_ok m n1 B s0 s1 r tw v U ->
  forall n s sd : nat -> nat, n 1 = tn n1 -> s 0 = tn s0 -> s 1 = tn s1 -> sd 1 = tn r ->
  forall P : stack 2 (tn m) n te t0 (tn tw) 1 (tn B) s sd, ~ solves P.
Proof.
move=> U0 vU ok n s sd nE s0E s1E rE; move: ok; rewrite /conditions_ok; cbv zeta; set S := (s0 +! r) *! U; set C := n1 *! _ *! U.
set V := N.sub _ _; set q := C /! V; set G := N.sub _ C; set k := (C +! S) /! V.
case/and5P; rewrite !tn_le tn1 => m0 n0 B0 tw0 /andP[V0 cond].
pose b := answer_bits (tn B) (tn tw) (tn s1).
have CE : tn C = tn n1 * b * tn U.
  by rewrite /C !tnM tn_eq0 /b /answer_bits; case: ifP; rewrite ?tnM.
have SE : tn S = (tn s0 + tn r) * tn U by rewrite /S tnM tnD.
have VE : tn V = tn n1 * tn v - tn s1 * tn U by rewrite /V tnB !tnM.
have b0 : 0 < b by rewrite /b /answer_bits; case: ifP => _ //; rewrite muln_gt0 B0 tw0.
have C0 : 0 < tn C by rewrite CE !muln_gt0 n0 b0 U0.
have qE : tn q = tn C %/ tn V by rewrite /q tn_div.
have GE : tn G = (tn q).+1 * tn V - tn C by rewrite /G tnB tnM tnD tn1 addn1.
have kE : tn k = (tn C + tn S) %/ tn V by rewrite /k tn_div tnD.
have G0 : 0 < tn G by rewrite GE subn_gt0 qE; apply: ltn_ceil.
clearbody k G q V C S.
apply: (@theorem_one (tn m) te t0 (tn tw) (tn B) (tn v) (tn U)) => //; rewrite ?nE //.
  by rewrite /TheoremOne.V' nE s1E -VE.
rewrite s0E s1E rE -/b /conditions_one /TheoremOne.V' /TheoremOne.C /TheoremOne.S nE -CE -SE -VE.
move: cond; case: ifP => [+ _|_].
  by move=> /(power_exceedsP C0); rewrite tnB tnM; constructor 1.
case: ifP => [+ _|_].
  rewrite tn_eq0; case: (posnP (tn q)) => // q0; have qG : 0 < tn (q *! G) by rewrite tnM muln_gt0 q0 G0.
  by move=> /(power_exceedsP qG) H; constructor 2; move: H; cbv zeta; rewrite tnB !tnM GE qE.
rewrite tn_eq0; case: (posnP (tn k)) => [k0 _|k0]; last by move=> /(power_exceedsP k0); rewrite kE; constructor 3.
by constructor 3; rewrite -kE k0 exp0n // muln0 expn_gt0 m0.
Qed.

(* the precision of checker.rs: mantissa 128, fraction 80, of which 64 digits are kept *)
Lemma rounded_log f g a : 0 < tn a -> 2 ^ tn (log2_dn 128 (f + g) a 1 /! 2 ^! N.of_nat g) <= tn a ^ tn (2 ^! N.of_nat f).
Proof.
move=> a0; have := @log2_dnP 128 (f + g) a 1 isT a0; rewrite tn1 exp1n muln1 => H.
by rewrite tn_div !tnX !Nat2N.id; apply: log_cut.
Qed.
Definition scale : N := 2 ^! 64.
Lemma rounded_scale a : 0 < tn a -> 2 ^ tn (log2_dn 128 80 a 1 /! 65536) <= tn a ^ tn scale.
Proof.
move=> a0; have E1 : 65536%num = 2 ^! N.of_nat 16 by vm_compute.
have E2 : scale = 2 ^! N.of_nat 64 by vm_compute.
have E3 : 80 = 64 + 16 by vm_compute.
rewrite E1 E2 E3; exact: rounded_log.
Qed.
Lemma scale_pos : 0 < tn scale.
Proof. by rewrite /scale tnX; exact: expn_gt0. Qed.
Definition check_one (m n1 B s0 s1 r tw : N) : bool :=
  conditions_ok m n1 B s0 s1 r tw (log2_dn 128 80 (m *! n1) 1 /! 65536) scale.
Opaque scale.

Theorem check_one_sound m n1 B s0 s1 r tw te t0 : check_one m n1 B s0 s1 r tw ->
  forall n s sd : nat -> nat, n 1 = tn n1 -> s 0 = tn s0 -> s 1 = tn s1 -> sd 1 = tn r ->
  forall P : stack 2 (tn m) n te t0 (tn tw) 1 (tn B) s sd, ~ solves P.
Proof.
rewrite /check_one => ok; have [m0 n0] : 0 < tn m /\ 0 < tn n1 by move: ok => /and3P[]; rewrite !tn_le.
have N0 : 0 < tn (m *! n1) by rewrite tnM muln_gt0 m0 n0.
have vU := rounded_scale N0; rewrite tnM in vU.
exact: (conditions_okP scale_pos vU ok).
Qed.
Transparent scale.

(* Points with n_1 = 1 and one token for each entry: 2 m + 2 tokens.  B = 2 H d p, s_0 = a H d (d+1) p. *)
Lemma one_1_4_4_1 : check_one 40 1 32 80 0 0 1. Proof. by vm_compute. Qed.
Lemma one_1_4_4_1_no : ~~ check_one 39 1 32 80 0 0 1. Proof. by vm_compute. Qed.
Lemma one_16_128_16_3 : check_one 1548181 1 65536 12681216 0 0 1. Proof. by vm_compute. Qed.
