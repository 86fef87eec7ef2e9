(* Executable check of Theorem 2 for two hops and one full layer (theorem `product` of a certificate) and its soundness.  The same tests as
   `product.rs` of the checker: the tail is compared group by group, logarithms have 80 binary digits. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate TwoHops TwoHopsLast TheoremTwo.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).
Local Notation "a /! b" := (N.div a b) (at level 40, left associativity).

(* E g > need from E >= (gain - loss) / K *)
Lemma tail_groups (K A R need gain loss g : nat) : 0 < K -> A ^ K * 2 ^ gain <= 2 ^ loss * R ^ K -> 0 < R ->
  need * K + loss * g < gain * g -> 2 ^ need * A ^ g < R ^ g.
Proof.
move=> K0 H R0 lt; rewrite -(ltn_exp2r _ _ K0) expnMn -!expnM.
have p0 : 0 < 2 ^ (gain * g) by rewrite expn_gt0.
rewrite -(ltn_pmul2r p0); apply: (@leq_ltn_trans (2 ^ (need * K + loss * g) * R ^ (g * K))); last first.
  by rewrite mulnC ltn_pmul2l ?expn_gt0 ?R0 // ltn_exp2l.
have := leq_expn g H; rewrite !expnMn -!expnM [K * g]mulnC => le.
by rewrite expnD -!mulnA leq_mul2l le orbT.
Qed.

Lemma exact_bits (K C M t T lm lc : nat) : 2 ^ lm * t ^ K <= M ^ K -> C ^ K <= 2 ^ lc ->
  (C * t ^ T) ^ K * 2 ^ (T * lm) <= 2 ^ lc * (M ^ T) ^ K.
Proof.
move=> Hm Hc; rewrite expnMn -mulnA; apply: leq_mul => //.
rewrite -!expnM [T * K]mulnC [T * lm]mulnC !expnM -expnMn [_ * 2 ^ _]mulnC.
exact: leq_expn.
Qed.
Lemma entropy_bits (K M t T lm lu : nat) : t <= T -> t < M ->
  2 ^ lm * t ^ K <= M ^ K -> M ^ K <= 2 ^ lu * (M - t) ^ K ->
  ('C(M, t) * t ^ T) ^ K * 2 ^ ((T - t) * lm) <= 2 ^ ((M - t) * lu) * (M ^ T) ^ K.
Proof.
move=> tT tM Hm Hu; have Mt0 : 0 < (M - t) ^ (K * (M - t)) by rewrite expn_gt0 subn_gt0 tM.
rewrite -(leq_pmul2r Mt0).
have ent : 'C(M, t) * t ^ T * (M - t) ^ (M - t) <= M ^ M * t ^ (T - t).
  have := leq_mul (binom_entropy (ltnW tM)) (leqnn (t ^ (T - t))).
  by rewrite -[in t ^ T](subnKC tT) expnD; move: ('C(M, t)) (t ^ t) (t ^ (T - t)) ((M - t) ^ _) (M ^ M) => a b c d e; lia.
have up1 : ('C(M, t) * t ^ T) ^ K * (M - t) ^ (K * (M - t)) <= M ^ (M * K) * t ^ (K * (T - t)).
  by have := leq_expn K ent; rewrite !(expnMn (_ * _)) [(M ^ M * _) ^ K]expnMn -!expnM [(M - t) * K]mulnC [(T - t) * K]mulnC.
have up2 : t ^ (K * (T - t)) * 2 ^ ((T - t) * lm) <= M ^ (K * (T - t)).
  by rewrite [(T - t) * lm]mulnC !expnM -expnMn [t ^ K * _]mulnC; apply: leq_expn.
have up3 : M ^ (K * (M - t)) <= 2 ^ ((M - t) * lu) * (M - t) ^ (K * (M - t)).
  by rewrite [(M - t) * lu]mulnC !expnM -expnMn; apply: leq_expn.
have E : M ^ (M * K) * M ^ (K * (T - t)) = M ^ (K * (M - t)) * (M ^ T) ^ K.
  rewrite -expnM -!expnD; congr (_ ^ _).
  have [a ->] : exists a, T = t + a by exists (T - t); rewrite subnKC.
  have [b ->] : exists b, M = t + b by exists (M - t); rewrite subnKC // ltnW.
  by rewrite !addKn !mulnDl ![K * _]mulnC; lia.
rewrite mulnAC; apply: leq_trans (leq_mul up1 (leqnn _)) _; rewrite -mulnA.
apply: leq_trans (leq_mul (leqnn _) up2) _; rewrite E.
by apply: leq_trans (leq_mul up3 (leqnn _)) _; rewrite mulnAC.
Qed.

Section Check.
Variables (MA : N) (FR : nat).
Notation ONE := (FRN FR).

Definition tail_gt (M T sigma groups need : N) : bool :=
  [&& N.leb 1 sigma, N.leb sigma M, N.leb 1 T &
   let t := N.sub sigma 1 in
   if N.eqb t 0 then true else if N.leb T t then false else
   if N.leb M 4000 then N.ltb (need *! ONE +! log2_up MA FR (binN M t) 1 *! groups) (T *! log2_dn MA FR M t *! groups)
   else N.ltb (need *! ONE +! N.sub M t *! log2_up MA FR M (N.sub M t) *! groups) (N.sub T t *! log2_dn MA FR M t *! groups)].

Lemma tail_gtP M T sigma groups need : 0 < tn groups -> tail_gt M T sigma groups need ->
  0 < tn sigma <= tn M /\
  2 ^ tn need * ('C(tn M, (tn sigma).-1) * (tn sigma).-1 ^ tn T) ^ tn groups < (tn M ^ tn T) ^ tn groups.
Proof.
move=> g0; case/and4P; rewrite (tn_le 1 sigma) (tn_le sigma M) (tn_le 1 T) => s1 sM T1; cbv zeta; set t := N.sub sigma 1.
have tE : tn t = (tn sigma).-1 by rewrite tnB subn1.
clearbody t.
have tM : tn t < tn M by rewrite tE prednK.
have M0 : 0 < tn M by apply: leq_ltn_trans tM.
move=> H; split; first by rewrite s1.
move: H; rewrite tn_eq0 -tE; case: eqP => [-> _|t0]; first by rewrite exp0n // muln0 exp0n // muln0 !expn_gt0 M0.
have tp : 0 < tn t by rewrite lt0n; apply/eqP.
have dn := log2_dnP MA FR tp (ltnW tM).
have R0 : 0 < tn M ^ tn T by rewrite expn_gt0 M0.
rewrite (tn_le T t); case: (leqP (tn T) (tn t)) => // tT; case: ifP => _.
  rewrite tn_lt tnD !tnM FRNE => H; apply: (tail_groups (FR0 FR) _ R0 H); apply: exact_bits => //.
  have up := @log2_upP MA FR (binN M t) 1 isT.
  by rewrite (binNP (ltnW tM)) tn1 exp1n muln1 in up; exact: up.
rewrite tn_lt tnD !tnM !tnB FRNE => H; apply: (tail_groups (FR0 FR) _ R0 H); apply: (entropy_bits (ltnW tT) tM dn).
by have := @log2_upP MA FR M (N.sub M t); rewrite tnB; apply; rewrite subn_gt0.
Qed.

(* more groups help *)
Lemma more_groups (A R q g g' : nat) : 0 < g' <= g -> 2 ^ q * A ^ g' < R ^ g' -> 2 ^ q * A ^ g < R ^ g.
Proof.
case/andP => g0 gg H; have AR : A < R.
  rewrite ltnNge; apply/negP => RA; move: H; rewrite ltnNge => /negP; apply.
  by apply: leq_trans (leq_expn g' RA) _; rewrite leq_pmull // expn_gt0.
rewrite -(subnKC gg) !expnD mulnA; apply: (@leq_trans ((2 ^ q * A ^ g').+1 * R ^ (g - g'))); last by rewrite leq_mul2r H orbT.
have R0 : 0 < R ^ (g - g') by rewrite expn_gt0 (leq_ltn_trans _ AR).
apply: (@leq_ltn_trans (2 ^ q * A ^ g' * R ^ (g - g'))); first by rewrite leq_mul2l leq_expn ?orbT // ltnW.
by rewrite ltn_pmul2r.
Qed.

Variables (m n1 B s0 s1 side te t0 tw x0 x1 k sigma u : N) (freeze : nat).
Definition restN : N :=
  match freeze with
  | 0 => s1 *! (x0 *! x1)
  | 1 => s1 *! x1 +! B *! t0 *! x0
  | _ => s1 +! B *! t0 *! x0 +! B *! (te *! m) *! x1
  end.
Definition check_product : bool :=
  let P := side +! s0 in
  tail_gt (k *! m) (x1 *! x0) sigma (u /! x0) (x1 *! P) &&
  final_ok MA FR (P +! (B *! tw *! (x0 *! (n1 /! k)) +! restN)) (n1 /! k *! sigma) (m *! n1).

Hypotheses (m0 : 0 < tn m) (n0 : 0 < tn n1) (x00 : 0 < tn x0) (x10 : 0 < tn x1) (k0 : 0 < tn k).
Hypotheses (kx : tn k %| tn x0) (kn : tn k %| tn n1) (xu : tn x0 <= tn u) (um : tn u <= tn m) (fz : freeze <= 2).

Theorem check_product_sound : check_product ->
  forall n s sd : nat -> nat, n 1 = tn n1 -> s 0 = tn s0 -> s 1 = tn s1 -> sd 1 = tn side ->
  forall P : stack 2 (tn m) n (tn te) (tn t0) (tn tw) 1 (tn B) s sd, ~ solves P.
Proof.
rewrite /check_product; cbv zeta => /andP[tl fin] n s sd nE s0E s1E rE.
have g0 : 0 < tn (u /! x0) by rewrite tn_div divn_gt0.
have [/andP[sg0 sgM] tail] := tail_gtP g0 tl; rewrite !tnM tnD tn_div in tail; rewrite tnM in sgM.
have sgE : (tn sigma).-1.+1 = tn sigma by rewrite prednK.
apply: (@theorem_two (tn m) (tn te) (tn t0) (tn tw) (tn B) (tn x0) (tn x1) (tn k) (tn sigma).-1 freeze.+1) => //; rewrite ?nE //.
- by apply: ltnW; rewrite sgE.
- apply: (@leq_ltn_trans (2 ^ (tn x1 * (tn side + tn s0)) * ('C(tn k * tn m, (tn sigma).-1) * (tn sigma).-1 ^ (tn x1 * tn x0)) ^ (tn m %/ tn x0))).
    by rewrite leq_mul2r leq_exp2l // leq_mul2l s0E leq_addl !orbT.
  by apply: (more_groups _ tail); rewrite divn_gt0 // xu /= leq_div2r.
have N0 : 0 < tn (m *! n1) by rewrite tnM muln_gt0 m0 n0.
have := final_okP N0 fin; rewrite [tn (m *! n1)]tnM [tn (n1 /! k *! sigma)]tnM tn_div sgE; apply: leq_ltn_trans; rewrite leq_exp2l //.
have E : tn restN = rest_bits (tn m) (tn te) (tn t0) (tn B) (s 1) (tn x0) (tn x1) freeze.+1.
  by rewrite /restN s1E; case: (freeze) fz => [|[|[|f]]] // _; rewrite /= ?tnD !tnM.
rewrite tnD [tn (side +! s0)]tnD tnD E s0E rE [tn s0 + _]addnC !leq_add2l leq_add2r.
by rewrite tnM [tn (x0 *! _)]tnM [tn (B *! tw)]tnM tn_div.
Qed.
End Check.

(* with the precision of checker.rs: mantissa 128, fraction 80 *)
Definition check_two := check_product 128 80.
(* the point of (H, d, p, a) = (1, 16, 16, 3) with state on both sides *)
Lemma two_1_16_16_3 : check_two 34249 11 512 4352 13056 0 1 1 1 339 160 1 20496 34239 1. Proof. by vm_compute. Qed.
