(* "What the checker does about rounding": logarithms on binary numbers with FR fractional bits and a mantissa of MA bits, rounded down
   (log2_dn, log2_dnP) or up (log2_up, log2_upP), and the two tests that use them: the tail inequality (tail_ok, tail_okP) and the final
   inequality (final_ok, final_okP).  They are the tests of crates/rung-theory/src/bound/checker.rs. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model Draw Reach LowerBound.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Notation tn := N.to_nat.
Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).
Local Notation "a ^! b" := (N.pow a b) (at level 30, right associativity).
Local Notation "a /! b" := (N.div a b) (at level 40, left associativity).

Lemma tnD a b : tn (a +! b) = tn a + tn b. Proof. exact: N2Nat.inj_add. Qed.
Lemma tnM a b : tn (a *! b) = tn a * tn b. Proof. exact: N2Nat.inj_mul. Qed.
Lemma tnB a b : tn (N.sub a b) = tn a - tn b. Proof. exact: N2Nat.inj_sub. Qed.
Lemma tnX a b : tn (a ^! b) = tn a ^ tn b.
Proof.
rewrite N2Nat.inj_pow; elim: (tn b) => //= k ->; by rewrite expnS multE.
Qed.
Lemma tn_le a b : N.leb a b = (tn a <= tn b).
Proof. apply/idP/idP; lia. Qed.
Lemma tn_lt a b : N.ltb a b = (tn a < tn b).
Proof. apply/idP/idP; lia. Qed.
Lemma tn_eq0 a : N.eqb a 0 = (tn a == 0).
Proof. apply/idP/idP; lia. Qed.
Lemma tn_div a b : tn (a /! b) = tn a %/ tn b.
Proof.
have [b0|b0] := posnP (tn b).
  have -> : b = 0%num by lia.
  by rewrite divn0; case: a.
have b0' : b <> 0%num by lia.
have E := N.div_mod a b b0'; have Lt := N.mod_lt a b b0'.
have := congr1 tn E; rewrite tnD tnM => ->.
rewrite mulnC divnMDl // divn_small ?addn0 //; lia.
Qed.

(* ---------- logarithms ---------- *)
Section Log.
Variable MA : N.    (* mantissa bits *)
Definition Mant : N := 2 ^! MA.
Fixpoint dn_loop (f : nat) (digits rest : N) : N * N :=
  if f is f'.+1 then
    let r := rest *! rest /! Mant in
    if N.leb (2 *! Mant) r then dn_loop f' (2 *! digits +! 1) (r /! 2) else dn_loop f' (2 *! digits) r
  else (digits, rest).
Definition log2_dn (f : nat) (a b : N) : N :=
  let w := N.log2 (a /! b) in
  let '(d, r) := dn_loop f w (a *! Mant /! (b *! 2 ^! w)) in
  if N.leb Mant r then d else N0.

Definition cdiv (a b : N) : N := let q := a /! b in if N.eqb (q *! b) a then q else q +! 1.
Fixpoint up_loop (f : nat) (digits rest : N) : N * N :=
  if f is f'.+1 then
    let r := cdiv (rest *! rest) Mant in
    if N.leb (2 *! Mant) r then up_loop f' (2 *! digits +! 1) (cdiv r 2) else up_loop f' (2 *! digits) r
  else (digits, rest).
Definition log2_up (f : nat) (a b : N) : N :=
  let w := N.log2 (a /! b) in
  let '(d, r) := up_loop f w (cdiv (a *! Mant) (b *! 2 ^! w)) in
  if N.leb r (2 *! Mant) then d +! 1 else d +! (N.log2 r +! 1).

Lemma Mant_pos : 0 < tn Mant. Proof. by rewrite /Mant tnX expn_gt0. Qed.

Lemma cdivP a b : 0 < tn b -> tn a <= tn (cdiv a b) * tn b.
Proof.
move=> b0; rewrite /cdiv; case: N.eqb_spec => [e|_]; first by rewrite -tnM e.
rewrite tnD mulnDl mul1n tn_div {1}(divn_eq (tn a) (tn b)) leq_add2l.
by rewrite ltnW // ltn_pmod.
Qed.

Lemma dn_loopP f a b K d r :
  b ^ K * 2 ^ tn d * tn r <= a ^ K * tn Mant ->
  let '(d', r') := dn_loop f d r in b ^ (K * 2 ^ f) * 2 ^ tn d' * tn r' <= a ^ (K * 2 ^ f) * tn Mant.
Proof.
elim: f K d r => [|f IH] K d r H; first by rewrite expn0 muln1.
rewrite expnS mulnA.
have sq : b ^ (K * 2) * 2 ^ tn (2 *! d) * tn (r *! r /! Mant) <= a ^ (K * 2) * tn Mant.
  rewrite -(leq_pmul2r Mant_pos) tn_div !tnM -mulnA.
  apply: (@leq_trans (b ^ (K * 2) * 2 ^ (tn 2 * tn d) * (tn r * tn r))).
    by rewrite leq_mul2l leq_trunc_div orbT.
  have := leq_mul H H.
  have -> : 2 ^ (tn 2 * tn d) = 2 ^ tn d * 2 ^ tn d by rewrite -expnD addnn -mul2n.
  rewrite !(mulnC K) !mul2n -!addnn !expnD.
  move: (b ^ K) (2 ^ tn d) (tn r) (a ^ K) (tn Mant) => B0 E0 r0 A0 M0 {}H; lia.
rewrite /=; case: ifP => [ge|_]; last exact: IH.
apply: IH; apply: leq_trans sq.
rewrite tnD expnD -!mulnA leq_mul2l; apply/orP; right; rewrite leq_mul2l; apply/orP; right.
by rewrite [tn (_ /! 2)]tn_div mulnC leq_trunc_div.
Qed.

Lemma log2_dnP f a b : 0 < tn b -> tn b <= tn a ->
  2 ^ tn (log2_dn f a b) * tn b ^ (2 ^ f) <= tn a ^ (2 ^ f).
Proof.
move=> b0 ba; rewrite /log2_dn; set w := N.log2 _.
have := @dn_loopP f (tn a) (tn b) 1 w (a *! Mant /! (b *! 2 ^! w)).
case: (dn_loop _ _ _) => d r H.
case: ifP => [|_]; last by rewrite mul1n leq_expn.
rewrite tn_le => Mr; rewrite -(leq_pmul2r Mant_pos).
apply: leq_trans (_ : tn b ^ (1 * 2 ^ f) * 2 ^ tn d * tn r <= _).
  by rewrite mul1n [2 ^ tn d * _]mulnC leq_mul2l Mr orbT.
apply: leq_trans (H _) _; last by rewrite mul1n.
by rewrite !expn1 tn_div !tnM tnX mulnC leq_trunc_div.
Qed.

Lemma up_loopP f a b K d r :
  a ^ K * tn Mant <= b ^ K * 2 ^ tn d * tn r ->
  let '(d', r') := up_loop f d r in a ^ (K * 2 ^ f) * tn Mant <= b ^ (K * 2 ^ f) * 2 ^ tn d' * tn r'.
Proof.
elim: f K d r => [|f IH] K d r H; first by rewrite expn0 muln1.
rewrite expnS mulnA.
have sq : a ^ (K * 2) * tn Mant <= b ^ (K * 2) * 2 ^ tn (2 *! d) * tn (cdiv (r *! r) Mant).
  rewrite -(leq_pmul2r Mant_pos) -[X in _ <= X]mulnA.
  apply: leq_trans (_ : b ^ (K * 2) * 2 ^ tn (2 *! d) * (tn r * tn r) <= _); last first.
    by rewrite leq_mul2l -tnM cdivP ?orbT // Mant_pos.
  have := leq_mul H H; rewrite tnM.
  have -> : 2 ^ (tn 2 * tn d) = 2 ^ tn d * 2 ^ tn d by rewrite -expnD addnn -mul2n.
  rewrite !(mulnC K) !mul2n -!addnn !expnD.
  move: (b ^ K) (2 ^ tn d) (tn r) (a ^ K) (tn Mant) => B0 E0 r0 A0 M0 {}H; lia.
rewrite /=; case: ifP => [ge|_]; last exact: IH.
apply: IH; apply: leq_trans sq _.
rewrite tnD expnD -!mulnA leq_mul2l; apply/orP; right; rewrite leq_mul2l; apply/orP; right.
by rewrite mulnC; apply: (@cdivP _ 2).
Qed.

Lemma log2_upP f a b : 0 < tn b ->
  tn a ^ (2 ^ f) <= 2 ^ tn (log2_up f a b) * tn b ^ (2 ^ f).
Proof.
move=> b0; rewrite /log2_up; set w := N.log2 _.
have := @up_loopP f (tn a) (tn b) 1 w (cdiv (a *! Mant) (b *! 2 ^! w)).
case: (up_loop _ _ _) => d r H.
have {}H : tn a ^ (2 ^ f) * tn Mant <= tn b ^ (2 ^ f) * 2 ^ tn d * tn r.
  rewrite !mul1n in H; apply: H; rewrite !expn1 -tnM.
  apply: leq_trans (cdivP _ (_ : 0 < tn (b *! 2 ^! w))) _; first by rewrite tnM tnX muln_gt0 b0 expn_gt0.
  by rewrite [tn (b *! _)]tnM tnX mulnC.
case: ifP => [|_].
  rewrite tn_le tnM => rM; rewrite -(leq_pmul2r Mant_pos); apply: leq_trans H _.
  rewrite tnD expnD expn1; set A := tn b ^ _; set E := 2 ^ tn d.
  rewrite (_ : E * 2 * A * tn Mant = A * E * (2 * tn Mant)); last by nia.
  by rewrite leq_mul2l rM orbT.
apply: (@leq_trans (tn a ^ 2 ^ f * tn Mant)); first by rewrite leq_pmulr ?Mant_pos.
apply: leq_trans H _; rewrite tnD expnD mulnAC [_ * 2 ^ tn d]mulnC -!mulnA leq_mul2l.
apply/orP; right; rewrite mulnC leq_mul2r; apply/orP; right.
have [->|r0] := N.eq_0_gt_0_cases r; first by [].
have [_] := N.log2_spec r r0; rewrite -N.add_1_r => lt.
have : tn r < tn (2 ^! (N.log2 r +! 1)) by lia.
by rewrite tnX => /ltnW.
Qed.
End Log.

(* ---------- the tail inequality ---------- *)
Lemma binom_entropy M t : t <= M -> 'C(M, t) * t ^ t * (M - t) ^ (M - t) <= M ^ M.
Proof.
move=> tM; have := expnDn (M - t) t M; rewrite subnK // => ->.
have tM' : t < M.+1 by [].
rewrite (bigD1 (Ordinal tM')) //=; apply: leq_trans (leq_addr _ _).
by rewrite -mulnA [t ^ t * _]mulnC.
Qed.

Lemma tail_exact K C M t T need lm lc : 0 < K ->
  2 ^ lm * t ^ K <= M ^ K -> C ^ K <= 2 ^ lc -> need * K + lc <= T * lm ->
  C * t ^ T * 2 ^ need <= M ^ T.
Proof.
move=> K0 Hm Hc H; rewrite -(leq_exp2r _ _ K0) !expnMn -!expnM [T * K]mulnC.
apply: leq_trans (_ : (2 ^ lm * t ^ K) ^ T <= _); last by rewrite [M ^ (K * T)]expnM leq_expn.
rewrite expnMn -!expnM mulnAC leq_mul2r; apply/orP; right.
apply: leq_trans (leq_mul Hc (leqnn _)) _; rewrite -expnD leq_exp2l // addnC [lm * T]mulnC.
exact: H.
Qed.

Lemma tail_entropy K M t T need lm lu : 0 < K -> 0 < M -> t <= T -> t < M ->
  2 ^ lm * t ^ K <= M ^ K -> M ^ K <= 2 ^ lu * (M - t) ^ K ->
  need * K + (M - t) * lu <= (T - t) * lm ->
  'C(M, t) * t ^ T * 2 ^ need <= M ^ T.
Proof.
move=> K0 M0 tT tM Hm Hu H.
have key : M ^ (M - t) * t ^ (T - t) * 2 ^ need <= M ^ (T - t) * (M - t) ^ (M - t).
  rewrite -(leq_exp2r _ _ K0) !expnMn -!expnM ![_ * K]mulnC.
  apply: (@leq_trans ((2 ^ lu * (M - t) ^ K) ^ (M - t) * t ^ (K * (T - t)) * 2 ^ (K * need))).
    by rewrite leq_mul2r leq_mul2r [M ^ (K * _)]expnM leq_expn ?orbT.
  apply: leq_trans (_ : (2 ^ lm * t ^ K) ^ (T - t) * (M - t) ^ (K * (M - t)) <= _); last first.
    by rewrite leq_mul2r [M ^ (K * _)]expnM leq_expn ?orbT.
  rewrite !expnMn -!expnM.
  set a := (M - t) ^ _; set b := t ^ _.
  have -> : 2 ^ (lu * (M - t)) * a * b * 2 ^ (K * need) = 2 ^ (K * need + (M - t) * lu) * (b * a).
    rewrite expnD [(M - t) * lu]mulnC; move: (2 ^ _) (2 ^ _) => p q; lia.
  rewrite -[X in _ <= X]mulnA leq_mul2r leq_exp2l // [K * need]mulnC [lm * _]mulnC H orbT //.
have Mt0 : 0 < (M - t) ^ (M - t) by rewrite expn_gt0 subn_gt0 tM.
rewrite -(leq_pmul2r Mt0) -(subnKC tT) !expnD.
have ent := binom_entropy (ltnW tM).
apply: (@leq_trans (M ^ M * t ^ (T - t) * 2 ^ need)).
  have := leq_mul ent (leqnn (t ^ (T - t) * 2 ^ need)); rewrite !mulnA.
  move: ('C(M, t)) (t ^ t) (t ^ (T - t)) (2 ^ need) ((M - t) ^ (M - t)) (M ^ M) => c p q r v w; lia.
have -> : M ^ M = M ^ t * M ^ (M - t) by rewrite -expnD subnKC // ltnW.
have := leq_mul (leqnn (M ^ t)) key.
move: (M ^ t) (M ^ (M - t)) (t ^ (T - t)) (2 ^ need) (M ^ (T - t)) ((M - t) ^ (M - t)) => c p q r v w; lia.
Qed.

Fixpoint bin_loop (M : N) (i : nat) : N :=
  if i is i'.+1 then bin_loop M i' *! N.sub M (N.of_nat i') /! N.of_nat i else 1%num.
Definition binN (M t : N) : N :=
  if N.leb t (N.sub M t) then bin_loop M (tn t) else bin_loop M (tn (N.sub M t)).

Lemma bin_loopP M i : tn (bin_loop M i) = 'C(tn M, i).
Proof.
elim: i => [|i IH]; first by rewrite bin0.
rewrite [bin_loop _ _]/= tn_div tnM tnB IH [tn (N.of_nat i)]Nat2N.id.
have -> : tn (N.of_nat i.+1) = i.+1 by rewrite Nat2N.id.
by rewrite mulnC -mul_bin_left mulKn.
Qed.
Lemma binNP M t : tn t <= tn M -> tn (binN M t) = 'C(tn M, tn t).
Proof.
by move=> tM; rewrite /binN; case: ifP => _; rewrite bin_loopP // tnB bin_sub.
Qed.

Section Check.
Variables (MA : N) (FR : nat).
Definition FRN : N := 2 ^! N.of_nat FR.
Lemma FRNE : tn FRN = 2 ^ FR. Proof. by rewrite /FRN tnX Nat2N.id. Qed.
Lemma tn1 : tn 1 = 1. Proof. by []. Qed.
Lemma FR0 : 0 < 2 ^ FR. Proof. by rewrite expn_gt0. Qed.

Definition tail_ok (M T sigma need : N) : bool :=
  [&& N.leb 1 sigma, N.leb sigma M, N.leb 1 T &
   let t := N.sub sigma 1 in
   if N.eqb t 0 then true else if N.leb T t then false else
   if N.leb M 4000 then N.leb (need *! FRN +! log2_up MA FR (binN M t) 1) (T *! log2_dn MA FR M t)
   else N.leb (need *! FRN +! N.sub M t *! log2_up MA FR M (N.sub M t)) (N.sub T t *! log2_dn MA FR M t)].

Lemma tail_okP M T sigma need : tail_ok M T sigma need ->
  0 < tn sigma <= tn M /\
  'C(tn M, (tn sigma).-1) * (tn sigma).-1 ^ tn T * 2 ^ tn need <= tn M ^ tn T.
Proof.
case/and4P; rewrite (tn_le 1 sigma) (tn_le sigma M) (tn_le 1 T) => s1 sM T1; cbv zeta; set t := N.sub sigma 1.
have tE : tn t = (tn sigma).-1 by rewrite tnB subn1.
clearbody t.
have tM : tn t < tn M by rewrite tE prednK.
move=> H; split; first by rewrite s1.
move: H; rewrite tn_eq0 -tE; case: eqP => [-> _|t0]; first by rewrite exp0n // muln0.
have tp : 0 < tn t by rewrite lt0n; apply/eqP.
have dn := log2_dnP MA FR tp (ltnW tM).
rewrite (tn_le T t); case: leqP => // tT; case: ifP => _.
  rewrite tn_le tnD !tnM FRNE => H.
  apply: (tail_exact FR0 dn _ H).
  have up := @log2_upP MA FR (binN M t) 1 isT.
  by rewrite (binNP (ltnW tM)) tn1 exp1n muln1 in up; exact: up.
rewrite tn_le tnD !tnM !tnB FRNE => H.
apply: (tail_entropy FR0 _ (ltnW tT) tM dn _ H); first exact: leq_trans tM.
by have := @log2_upP MA FR M (N.sub M t); rewrite tnB; apply; rewrite subn_gt0.
Qed.

Definition final_ok (delta reach size : N) : bool :=
  N.ltb (delta *! FRN) (reach *! log2_dn MA FR size 1).
Lemma final_okP delta reach size : 0 < tn size -> final_ok delta reach size -> 2 ^ tn delta < tn size ^ tn reach.
Proof.
move=> s0; rewrite /final_ok tn_lt !tnM FRNE => H.
have := @log2_dnP MA FR size 1 isT s0; rewrite tn1 exp1n muln1 => dn.
rewrite -(ltn_exp2r _ _ FR0) -!expnM.
apply: leq_trans (_ : (2 ^ tn (log2_dn MA FR size 1)) ^ tn reach <= _).
  by rewrite -expnM ltn_exp2l // [X in _ < X]mulnC.
by rewrite [tn reach * _]mulnC expnM leq_expn.
Qed.
End Check.
