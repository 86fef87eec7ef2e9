(* Executable check of Theorem 3 (theorem `cells` of a certificate) and its soundness.  The same tests as `cells.rs` of the checker: logarithms with
   80 binary digits, rounded down. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate TwoHops TwoHopsLast TheoremOne Locality TheoremThree.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).

Section Check.
Variables (m n1 B s2 te t0 tw r nu : N) (MA : N) (FR : nat).
Notation ONE := (FRN FR).

Definition check_cells : bool :=
  let border := s2 *! ONE in
  let rows := nu *! log2_dn MA FR (m *! n1) 1 in
  let carried := nu *! (if N.eqb s2 0 then B else B *! tw) *! ONE in
  let cell := r *! N.sub rows border in
  let gap := N.sub cell carried in
  let theta := B *! te *! (m *! r) +! B *! tw *! n1 +! B *! t0 *! m in
  if N.ltb carried cell
  then N.ltb (B *! tw *! nu *! n1 *! gap *! ONE) (N.sub (m *! n1 *! gap) (r *! theta *! nu *! ONE) *! log2_dn MA FR cell carried)
  else false.

Hypotheses (m0 : 0 < tn m) (n0 : 0 < tn n1) (B0 : 0 < tn B) (tw0 : 0 < tn tw) (r0 : 0 < tn r) (nu0 : 0 < tn nu).
Hypotheses (rm : tn r %| tn m) (nn : tn nu %| tn n1).

Lemma check_cells_sound : check_cells ->
  forall n s sd : nat -> nat, n 1 = tn n1 -> s 0 = 0 -> s 1 = 0 -> s 2 + sd 2 = tn s2 -> sd 1 = 0 ->
  forall P : stack 2 (tn m) n (tn te) (tn t0) (tn tw) 2 (tn B) s sd, local_reads P -> ~ solves P.
Proof.
rewrite /check_cells; cbv zeta; set border := s2 *! ONE; set rows := nu *! _; set carried := nu *! _ *! ONE; set cell := r *! _.
set gap := N.sub cell carried; set theta := _ +! _ +! _; rewrite tn_lt; case: ltnP => // cc cond n s sd nE s0 s1 s2E d1.
pose v := tn (log2_dn MA FR (m *! n1) 1); pose U := 2 ^ FR; pose b := answer_bits (tn B) (tn tw) (s 2 + sd 2).
have CE : tn carried = C3 (tn nu) b U.
  by rewrite /carried /C3 !tnM FRNE tn_eq0 /b /answer_bits s2E; case: ifP; rewrite ?tnM.
have VE : tn cell = tn r * V3 (tn nu) (s 2 + sd 2) v U by rewrite /cell /rows /border /V3 tnM tnB !tnM FRNE s2E.
have C0 : 0 < tn carried.
  rewrite CE /C3 /b /answer_bits !muln_gt0 nu0 expn_gt0 /=; case: ifP => _; by rewrite ?muln_gt0 ?B0 ?tw0.
have N0 : 0 < tn (m *! n1) by rewrite tnM muln_gt0 m0 n0.
have vU : 2 ^ v <= (tn m * n 1) ^ U.
  by have := @log2_dnP MA FR (m *! n1) 1 isT N0; rewrite tn1 exp1n muln1 tnM nE.
have ld : 2 ^ tn (log2_dn MA FR cell carried) * tn carried ^ U <= tn cell ^ U by apply: log2_dnP => //; apply: ltnW.
have gE : tn gap = tn cell - tn carried by rewrite tnB.
have tE : tn theta = frozen_bits (tn m) (tn te) (tn t0) (tn tw) (tn B) (tn r) n by rewrite /frozen_bits nE !tnD !tnM.
clearbody theta gap cell carried.
apply: (@theorem_three (tn m) (tn te) (tn t0) (tn tw) (tn B) (tn r) (tn nu) v U (tn (log2_dn MA FR cell carried)) U) => //; rewrite ?nE // -/b -CE -VE.
- by rewrite C0.
- by [].
by move: cond; rewrite tn_lt !tnM tnB !tnM FRNE gE tE.
Qed.
End Check.

(* with the precision of checker.rs: mantissa 128, fraction 80 *)
Definition check_three (m n1 B s2 te t0 tw r nu : N) : bool := check_cells m n1 B s2 te t0 tw r nu 128 80.
