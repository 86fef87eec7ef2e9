(* Two hops with one full layer: the sharp bound without free parameters (theorem `entropy` of a certificate).

   Notation as in TwoHops.v and TwoHopsLast.v: N = m n_1; s_0 bits of state before the full layer, r beside it, s_1 after it; messages of b bits to the
   answering token (b = B if block 1 is empty, else B tw).  U and v are numbers with 2^v <= N^U (the checker takes U = 2^64).
       V' = n_1 v - s_1 U > 0,   C = n_1 b U,   S = (s_0 + r) U.
   THEOREM (theorem_one).  No stack with one full layer solves 2-FuncComp(m, n_1) if one of these holds:
       (i)   m V' > S and (m V' - S)^m > 2^(s_0) C^m;
       (ii)  q = floor(C / V') >= 1, G = (q+1) V' - C, m G > S and (m G - S)^m > 2^(s_0) (q G)^m;
       (iii) k = floor((C + S) / V') and m^m > 2^(s_0) k^m.

   PROOF.  1. (structure_last) T, the fibres c of the first tables, messages mu and borders nu: for K in K_y(z_0), n_1 b + |K| s_1 bits determine z_2 on
      [n_1] x K.
   2. (entropy) Column i is [n_1] x {i}.  With the entropies of Entropy.v, let h(i) be the entropy of z_2 on column i given the columns before it.
      Multiply by a large number Q U and round down: hh(i).  Then (deficit) for every set I of columns n_1 v Q |I| <= Q S + sum_I (hh(i) + 1), and
      (carried) sum_K hh(i) <= Q C + |K| Q U s_1 for K as in 1.
   3. (weighted_count) For weights g >= 0 with sum g <= w on every K_y(z_0): (sum of all g)^m <= 2^(s_0) w^m.
   4. Weights g = max(0, hh - Q U s_1) give (i), g = max(0, Q G - max(0, Q n_1 v - hh)) give (ii), g = 1 gives (iii), each up to an error of m in
      numbers proportional to Q; let Q grow (limit).  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model TwoHops TwoHopsLast Entropy.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- step 2: entropies of columns ---------- *)
Lemma floor_log (a b t : nat) : 0 < t -> 0 < b <= a -> exists k, 2 ^ (k * t) * b <= a < 2 ^ (k.+1 * t) * b.
Proof.
move=> t0 /andP[b0 ba]; pose l := trunc_log 2 (a %/ b); exists (l %/ t).
have q0 : 0 < a %/ b by rewrite divn_gt0.
have /andP[lo hi] := trunc_log_bounds (isT : 1 < 2) q0.
apply/andP; split.
  rewrite -leq_divRL //; apply: leq_trans lo; rewrite leq_exp2l //; exact: leq_trunc_div.
rewrite -ltn_divLR //; apply: leq_trans hi _; rewrite leq_exp2l // -/l; exact: ltn_ceil.
Qed.

Section Columns.
Variables (A V : finType) (T : {set {ffun A -> V}}) (W : finType) (m : nat) (idx : W -> 'I_m -> A).
Hypothesis idx_inj : forall w i w' i', idx w i = idx w' i' -> (w, i) = (w', i').
Hypothesis idx_sur : forall a, exists w i, a = idx w i.
Hypothesis T0 : 0 < #|T|.
Notation col := (col idx).
Notation fprod := (fprod T).

Definition pre (k : nat) : {set A} := col [set i : 'I_m | i < k].
Definition memb (K : {set 'I_m}) (i : nat) : bool := [exists j in K, j == i :> nat].
Definition part (K : {set 'I_m}) (k : nat) : {set 'I_m} := [set j in K | j < k].

Lemma pre0 : pre 0 = set0.
Proof. by rewrite /pre (_ : [set i : 'I_m | _] = set0) ?col0 //; apply/setP => i; rewrite !inE. Qed.
Lemma preT : pre m = setT.
Proof. by apply/setP => a; rewrite inE; apply/colP; have [w [i ->]] := idx_sur a; exists w, i; rewrite inE. Qed.
Lemma preS (j : 'I_m) : pre j.+1 = pre j :|: col [set j].
Proof.
rewrite /pre -colU; congr col; apply/setP => i; rewrite !inE ltnS leq_eqVlt orbC.
by congr (_ || _).
Qed.
Lemma partS (K : {set 'I_m}) (j : 'I_m) : j \in K -> part K j.+1 = part K j :|: [set j].
Proof.
move=> jK; apply/setP => i; rewrite !inE ltnS leq_eqVlt.
case: (i =P j) => [->|ij]; first by rewrite jK eqxx orbT.
by rewrite orbF; congr (_ && _); case: eqP => // /ord_inj.
Qed.

(* the chain rule for the columns of K, each given all columns before it *)
Lemma chain (K : {set 'I_m}) k : k <= m ->
  \prod_(0 <= i < k | memb K i) fprod (pre i) * fprod (col (part K k)) <=
  #|T| ^ #|T| * \prod_(0 <= i < k | memb K i) fprod (pre i.+1).
Proof.
elim: k => [_|k IH km].
  rewrite !big_geq // mul1n muln1 -(fprod0 T) (_ : part K 0 = set0) ?col0 //.
  by apply/setP => i; rewrite !inE andbF.
have {IH} := IH (ltnW km); set a := \prod_(0 <= i < k | _) _; set b := \prod_(0 <= i < k | _) _ => IH.
rewrite ![\prod_(0 <= i < k.+1 | _) _]big_mkcond !big_nat_recr //= -!big_mkcond -/a -/b.
case: ifP => [/exists_inP[j jK /eqP jk]|no]; last first.
  rewrite !muln1 (_ : part K k.+1 = part K k) //; apply/setP => i; rewrite !inE ltnS leq_eqVlt.
  case: eqP => //= ik; case iK : (i \in K) => //=; rewrite ik ltnn; move: no => /negbT/exists_inPn/(_ i iK).
  by rewrite ik eqxx.
have sub := @fprod_submodular _ _ T (col (part K j)) (pre j) (col [set j]).
rewrite -colU -partS // -preS jk in sub; apply: leq_trans (_ : a * (fprod (col (part K k)) * fprod (pre k.+1)) <= _).
  rewrite -mulnA leq_mul2l sub ?orbT //; apply/subsetP => x /colP[w [i [+ ->]]].
  by rewrite inE => /andP[_ ik]; apply/colP; exists w, i; rewrite inE.
by rewrite !mulnA leq_mul2r IH orbT.
Qed.

Lemma memb_prod (K : {set 'I_m}) (F : nat -> nat) : \prod_(0 <= i < m | memb K i) F i = \prod_(i in K) F i.
Proof.
rewrite big_mkord; apply: eq_bigl => i; apply/exists_inP/idP => [[j jK /eqP /ord_inj <-]|iK] //.
by exists i.
Qed.

(* the columns of K hold at most d bits if a message of d bits determines them *)
Lemma chain_message (K : {set 'I_m}) d : #|T| ^ #|T| <= (2 ^ d) ^ #|T| * fprod (col K) ->
  \prod_(i in K) fprod (pre i) <= 2 ^ (d * #|T|) * \prod_(i in K) fprod (pre i.+1).
Proof.
move=> msg; have := chain K (leqnn m); rewrite !memb_prod.
have -> : part K m = K by apply/setP => i; rewrite !inE ltn_ord andbT.
move=> ch; rewrite -(leq_pmul2r (fprod_gt0 T (col K))); apply: leq_trans ch _.
by rewrite expnM mulnAC leq_mul2r msg orbT.
Qed.

(* what the columns outside I can hold leaves so much for those in I *)
Lemma chain_rest (I : {set 'I_m}) :
  #|T| ^ #|T| * \prod_(i in I) fprod (pre i.+1) <= #|V| ^ (#|W| * (m - #|I|) * #|T|) * \prod_(i in I) fprod (pre i).
Proof.
have tele : \prod_(i < m) fprod (pre i) = #|T| ^ #|T| * \prod_(i < m) fprod (pre i.+1).
  rewrite -(big_mkord predT (fun i => fprod (pre i))) -(big_mkord predT (fun i => fprod (pre i.+1))).
  have shift k (f : nat -> nat) : \prod_(0 <= i < k) f i * f k = f 0 * \prod_(0 <= i < k) f i.+1.
    elim: k => [|k IH]; first by rewrite !big_geq // mul1n muln1.
    by rewrite !big_nat_recr //= IH mulnA.
  have := shift m (fun i => fprod (pre i)).
  by rewrite preT fprodT muln1 pre0 fprod0.
have pos : 0 < \prod_(i < m | i \notin I) fprod (pre i.+1) by apply: prodn_cond_gt0 => i _; apply: fprod_gt0.
have rest : \prod_(i < m | i \notin I) fprod (pre i) <=
            #|V| ^ (#|W| * (m - #|I|) * #|T|) * \prod_(i < m | i \notin I) fprod (pre i.+1).
  have -> : #|V| ^ (#|W| * (m - #|I|) * #|T|) = \prod_(i < m | i \notin I) #|V| ^ (#|W| * #|T|).
    rewrite prod_nat_const card_notin -expnM; congr (_ ^ _); lia.
  rewrite -big_split /=; apply: leq_prod => i _; rewrite preS.
  by have := fprod_column T (pre i) (col [set i]); rewrite (card_col idx_inj) cards1 muln1.
rewrite (bigID (mem I)) [in RHS](bigID (mem I)) /= in tele.
rewrite -(leq_pmul2r pos) -mulnA -tele -mulnA [X in _ <= X]mulnCA leq_mul2l rest orbT //.
Qed.

(* entropies of the columns, times a number D, rounded down *)
Variable D : nat.
Lemma rounded : exists hh : 'I_m -> nat, forall i,
  2 ^ (hh i * #|T|) * fprod (pre i.+1) ^ D <= fprod (pre i) ^ D < 2 ^ ((hh i).+1 * #|T|) * fprod (pre i.+1) ^ D.
Proof.
apply: (@fin_all_exists _ (fun _ => nat) (fun (i : 'I_m) k => 2 ^ (k * #|T|) * fprod (pre i.+1) ^ D <= fprod (pre i) ^ D <
  2 ^ (k.+1 * #|T|) * fprod (pre i.+1) ^ D)) => i; apply: floor_log => //; rewrite expn_gt0 fprod_gt0 /=; apply: leq_expn.
by apply: fprod_mono; rewrite preS subsetUl.
Qed.

Variable hh : 'I_m -> nat.
Hypothesis hhP : forall i,
  2 ^ (hh i * #|T|) * fprod (pre i.+1) ^ D <= fprod (pre i) ^ D < 2 ^ ((hh i).+1 * #|T|) * fprod (pre i.+1) ^ D.

Lemma carried (K : {set 'I_m}) d : #|T| ^ #|T| <= (2 ^ d) ^ #|T| * fprod (col K) -> \sum_(i in K) hh i <= D * d.
Proof.
move=> /chain_message ch; set e := \prod_(i in K) fprod (pre i.+1) in ch.
have e0 : 0 < e by apply: prodn_cond_gt0 => i _; apply: fprod_gt0.
rewrite -(leq_pmul2r T0) -(leq_exp2l _ _ (isT : 1 < 2)) -(@leq_pmul2r (e ^ D)) ?expn_gt0 ?e0 //.
apply: (@leq_trans ((\prod_(i in K) fprod (pre i)) ^ D)); last first.
  apply: leq_trans (leq_expn D ch) _; rewrite expnMn -expnM leq_mul2r leq_exp2l //.
  by rewrite [D * d]mulnC mulnAC leqnn orbT.
rewrite big_distrl /= expn_sum.
have X (f : 'I_m -> nat) : (\prod_(i in K) f i) ^ D = \prod_(i in K) f i ^ D.
  by rewrite (big_morph (fun x => x ^ D) (fun a b => expnMn a b D) (exp1n D)).
by rewrite !X -big_split /=; apply: leq_prod => i _; case/andP: (hhP i).
Qed.

Lemma deficit (s : nat) (I : {set 'I_m}) : #|V| ^ (#|W| * m) <= #|T| * 2 ^ s ->
  #|V| ^ (#|W| * #|I| * D) <= 2 ^ (s * D + \sum_(i in I) (hh i).+1).
Proof.
move=> dens; have ch := chain_rest I; set e := \prod_(i in I) fprod (pre i.+1) in ch.
have e0 : 0 < e by apply: prodn_cond_gt0 => i _; apply: fprod_gt0.
case: (posnP #|V|) => [V0|V0].
  apply: leq_trans (_ : 1 <= _); last by rewrite expn_gt0.
  by rewrite V0; case: (_ * D) => // k; rewrite exp0n.
set h := \sum_(i in I) _.
have up : (\prod_(i in I) fprod (pre i)) ^ D <= 2 ^ (h * #|T|) * e ^ D.
  have X (f : 'I_m -> nat) : (\prod_(i in I) f i) ^ D = \prod_(i in I) f i ^ D.
    by rewrite (big_morph (fun x => x ^ D) (fun a b => expnMn a b D) (exp1n D)).
  rewrite /h big_distrl /= expn_sum !X -big_split /=; apply: leq_prod => i _.
  by case/andP: (hhP i) => _ /ltnW.
have root : #|T| ^ D <= #|V| ^ (#|W| * (m - #|I|) * D) * 2 ^ h.
  rewrite -(leq_exp2r _ _ T0) -expnM expnMn -!expnM mulnC.
  rewrite -(@leq_pmul2r (e ^ D)) ?expn_gt0 ?e0 // [_ ^ (#|T| * D)]expnM -expnMn.
  apply: leq_trans (leq_expn D ch) _; rewrite expnMn -expnM mulnAC -!mulnA leq_mul2l; apply/orP; right.
  exact: up.
rewrite -(@leq_pmul2r (#|V| ^ (#|W| * (m - #|I|) * D))) ?expn_gt0 ?V0 // -expnD.
have Im : #|I| <= m by rewrite -[X in _ <= X]card_ord max_card.
have -> : #|W| * #|I| * D + #|W| * (m - #|I|) * D = #|W| * m * D by rewrite -mulnDl -mulnDr subnKC.
rewrite expnM; apply: leq_trans (leq_expn D dens) _; rewrite expnMn -expnM [2 ^ (_ + _)]expnD.
by rewrite mulnC -mulnA leq_mul2l [2 ^ h * _]mulnC root orbT.
Qed.
End Columns.

(* ---------- step 3: weighted count of the first tables ---------- *)
Lemma weighted_count (I : finType) (s0 w : nat) (g : I -> nat) (c : {ffun I -> I} -> 'I_(2 ^ s0)) :
  (forall y i, \sum_(j in [set z1 i | z1 : {ffun I -> I} in [set z1 | c z1 == y]]) g j <= w) ->
  (\sum_j g j) ^ #|I| <= 2 ^ s0 * w ^ #|I|.
Proof.
move=> few; rewrite -prod_nat_const (bigA_distr_bigA (fun _ j => g j)) /=.
rewrite (partition_big c predT) //= -[X in X * _]card_ord -sum_nat_const; apply: leq_sum => y _.
pose K i := [set z1 i | z1 : {ffun I -> I} in [set z1 | c z1 == y]].
apply: (@leq_trans (\prod_i \sum_(j in K i) g j)); last first.
  by rewrite -prod_nat_const; apply: leq_prod => i _; apply: few.
rewrite (bigA_distr_big_dep (fun i j => j \in K i) (fun _ j => g j)) /=.
rewrite [X in X <= _]big_mkcond [X in _ <= X]big_mkcond /=; apply: leq_sum => z1 _.
case: eqP => // cz; rewrite ifT //; apply/familyP => i.
by apply: imset_f; rewrite inE cz.
Qed.

(* ---------- step 4: large Q ---------- *)
Lemma expn_sub_ge (a c k : nat) : a ^ k <= (a - c) ^ k + k * c * a ^ k.-1.
Proof.
elim: k => [|k IH] //; case: (leqP a c) => ac.
  case: k IH => [|k] _ /=; rewrite ?expn1 ?expn0; first by lia.
  apply: leq_trans (leq_addl _ _); rewrite expnS leq_mul2r; apply/orP; right; nia.
rewrite [a ^ k.+1]expnS [(a - c) ^ k.+1]expnS /=.
case: k IH => [|k] IH; first by rewrite !expn0; lia.
move: IH; rewrite /= [a ^ k.+1]expnS; set p := (a - c) ^ k.+1; set q := a ^ k => IH.
have : a * (a * q) <= a * (p + k.+1 * c * q) by rewrite leq_mul2l IH orbT.
have : p <= a * q by rewrite /p /q -expnS; apply: leq_expn; apply: leq_subr.
rewrite mulnDr mulnBl; nia.
Qed.

Lemma limit (a b c k s : nat) : (forall Q, 0 < Q -> (Q * a - c) ^ k <= s * (Q * b) ^ k) -> a ^ k <= s * b ^ k.
Proof.
move=> H; rewrite leqNgt; apply/negP => lt.
pose Q := (k * c * a ^ k.-1).+1.
have := H Q isT; rewrite leqNgt => /negP; apply.
have := expn_sub_ge (Q * a) c k; rewrite !expnMn.
case: k lt @Q {H} => [|k] lt Q; first by rewrite !expn0 !muln1 in lt *.
rewrite /=; set E := (_ - _) ^ _ => le.
have Q0 : 0 < Q ^ k by rewrite expn_gt0.
have le2 : Q ^ k.+1 * (s * b ^ k.+1).+1 <= Q ^ k.+1 * a ^ k.+1 by rewrite leq_mul2l lt orbT.
have QE : Q ^ k.+1 = Q ^ k * (k.+1 * c * a ^ k).+1 by rewrite expnSr.
rewrite QE in le le2 *; move: Q0 le le2; rewrite /=.
move: (Q ^ k) (k.+1 * c) (a ^ k) (a ^ k.+1) (b ^ k.+1) E => q kc ak a1 b1 E; nia.
Qed.

(* ---------- the conditions ---------- *)
Lemma few_ii (Q q j G V C x sg sd sh : nat) : G + C = q.+1 * V -> G <= V ->
  sg + sd = (q.+1 + j) * (Q * G) -> (q.+1 + j) * ((V + x) * Q) <= sd + sh -> sh <= Q * C + (q.+1 + j) * (Q * x) ->
  sg <= Q * (q * G).
Proof.
move=> GE GV E le ca.
have jG : Q * (j * G) <= Q * (j * V) by rewrite leq_mul2l leq_mul2l GV !orbT.
have GE' : Q * G + Q * C = Q * (q.+1 * V) by rewrite -mulnDr GE.
lia.
Qed.
Lemma few_iii (a w x C S sh : nat) : sh <= a.+1 * C + a * (a.+1 * x) -> (w + x) * a.+1 * a <= a.+1 * S + sh + a -> a * w <= C + S.
Proof.
move=> ca de; rewrite leqNgt; apply/negP => lt.
have : a.+1 * (C + S).+1 <= a.+1 * (a * w) by rewrite leq_mul2l lt orbT.
lia.
Qed.

Lemma idx_sur m (n : nat -> nat) (a : 'I_(Nn m n 1)) : exists w i, a = @idx m n w i.
Proof.
have m0 : 0 < m by case: m a => // -[].
have wl : a %/ m < n 1 by rewrite ltn_divLR // mulnC; apply: ltn_ord.
by exists (Ordinal wl), (Ordinal (ltn_pmod a m0)); apply: ord_inj; rewrite /= -divn_eq.
Qed.

Section Conditions.
Variables (m s0 s s1 b v U : nat) (n : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Variables (T : {set Z2}) (c : Z1 -> 'I_(2 ^ s0)).
Notation col := (@col _ _ _ (@idx m n)).
(* K_y(z_0) *)
Definition reached (z0 : 'I_m) (y : 'I_(2 ^ s0)) : {set 'I_m} := [set z1 z0 | z1 : {ffun 'I_m -> 'I_m} in [set z1 | c z1 == y]].
Hypotheses (m0 : 0 < m) (n0 : 0 < n 1).
Hypothesis dens : N ^ N <= #|T| * 2 ^ s.
(* n_1 b + |K| s_1 bits determine z_2 on [n_1] x K *)
Hypothesis det : forall z0 y (K : {set 'I_m}), K \subset reached z0 y ->
  #|T| ^ #|T| <= (2 ^ (n 1 * b + #|K| * s1)) ^ #|T| * fprod T (col K).
Hypothesis vU : 2 ^ v <= N ^ U.
Definition V' := n 1 * v - s1 * U.
Definition C := n 1 * b * U.
Definition S := s * U.
Hypothesis V'0 : 0 < V'.

Lemma scaled Q : exists hh : 'I_m -> nat,
  (forall z0 y (K : {set 'I_m}), K \subset reached z0 y -> \sum_(i in K) hh i <= Q * C + #|K| * (Q * U * s1)) /\
  (forall I : {set 'I_m}, n 1 * v * Q * #|I| <= Q * S + \sum_(i in I) hh i + #|I|).
Proof.
have T0 : 0 < #|T|.
  by rewrite lt0n; apply/eqP => E; move: dens; rewrite E mul0n leqn0 expn_eq0 /= muln_eq0 (gtn_eqF m0) (gtn_eqF n0).
have [hh hhP] := @rounded _ _ T _ m (@idx m n) T0 (Q * U).
exists hh; split=> [z0 y K sK|I].
  apply: leq_trans (carried T0 hhP (det sK)) _; rewrite /C; lia.
have := @deficit _ _ T _ m _ (@idx_inj m n) (@idx_sur m n) T0 (Q * U) hh hhP s I.
rewrite !card_ord [n 1 * m]mulnC => /(_ dens) def.
have : 2 ^ (v * (n 1 * #|I| * Q)) <= 2 ^ (s * (Q * U) + \sum_(i in I) (hh i).+1).
  apply: leq_trans def; rewrite [2 ^ (v * _)]expnM; apply: leq_trans (leq_expn _ vU) _.
  rewrite -expnM; apply: eq_leq; congr (_ ^ _); lia.
rewrite leq_exp2l // (eq_bigr (fun i => hh i + 1)); last by move=> i _; rewrite addn1.
rewrite big_split /= sum1_card /S; move: #|I| (\sum_(i in I) hh i) (n 1) => a h n1; clear; nia.
Qed.

Lemma condition_i : (m * V' - S) ^ m <= 2 ^ s0 * C ^ m.
Proof.
apply: (@limit _ _ m) => Q Q0; have [hh [carr def]] := scaled Q.
pose g i := hh i - Q * U * s1.
have few (y : 'I_(2 ^ s0)) (i : 'I_m) : \sum_(j in reached i y) g j <= Q * C.
  pose K := [set j in reached i y | Q * U * s1 < hh j].
  have sK : K \subset reached i y by apply/subsetP => j; rewrite inE => /andP[].
  have -> : \sum_(j in reached i y) g j = \sum_(j in K) g j.
    rewrite big_mkcond [RHS]big_mkcond /=; apply: eq_bigr => j _; rewrite inE.
    by case: (j \in reached i y) => //=; case: leqP => // le; apply/eqP; rewrite subn_eq0.
  have E : \sum_(j in K) hh j = \sum_(j in K) g j + #|K| * (Q * U * s1).
    rewrite -sum_nat_const -big_split /=; apply: eq_bigr => j; rewrite inE => /andP[_ /ltnW le].
    by rewrite subnK.
  by have := carr i y K sK; rewrite E leq_add2r.
have := weighted_count few; rewrite card_ord; apply: leq_trans; apply: leq_expn.
have le : \sum_i hh i <= \sum_i g i + m * (Q * U * s1).
  rewrite -[m in m * _]card_ord -sum_nat_const -big_split /=; apply: leq_sum => i _; rewrite /g; lia.
have := def setT; rewrite cardsT card_ord (eq_bigl predT); last by move=> i; rewrite inE.
rewrite /V' leq_subLR !mulnBr !leq_subLR; move: le.
move: (n 1) (\sum_i g i) (\sum_i hh i) S; clear => n1 sg sh S'; nia.
Qed.

Lemma condition_ii : let q := C %/ V' in let G := q.+1 * V' - C in (m * G - S) ^ m <= 2 ^ s0 * (q * G) ^ m.
Proof.
cbv zeta; set q := C %/ V'; set G := q.+1 * V' - C; apply: (@limit _ _ m) => Q Q0; have [hh [carr def]] := scaled Q.
pose d i := n 1 * v * Q - hh i; pose g i := Q * G - d i.
have vs : s1 * U <= n 1 * v by apply: ltnW; rewrite -subn_gt0.
have qC : q * V' <= C by apply: leq_trunc_div.
have Cq : C < q.+1 * V' by apply: ltn_ceil.
have GE : G + C = q.+1 * V' by rewrite /G subnK // ltnW.
have GV : G <= V' by rewrite -(leq_add2r C) GE mulSn leq_add2l.
have few (y : 'I_(2 ^ s0)) (i : 'I_m) : \sum_(j in reached i y) g j <= Q * (q * G).
  pose K := [set j in reached i y | d j < Q * G].
  have sK : K \subset reached i y by apply/subsetP => j; rewrite inE => /andP[].
  have -> : \sum_(j in reached i y) g j = \sum_(j in K) g j.
    rewrite big_mkcond [RHS]big_mkcond /=; apply: eq_bigr => j _; rewrite inE.
    by case: (j \in reached i y) => //=; case: leqP => // le; apply/eqP; rewrite subn_eq0.
  have E : \sum_(j in K) g j + \sum_(j in K) d j = #|K| * (Q * G).
    rewrite -sum_nat_const -big_split /=; apply: eq_bigr => j; rewrite inE => /andP[_ /ltnW le].
    by rewrite subnK.
  have le : #|K| * (n 1 * v * Q) <= \sum_(j in K) d j + \sum_(j in K) hh j.
    rewrite -sum_nat_const -big_split /=; apply: leq_sum => j _; rewrite /d; lia.
  have := carr i y K sK; move: E le; set sg := \sum_(j in K) g j; set sd := \sum_(j in K) d j; set sh := \sum_(j in K) hh j.
  move=> E le ca; case: (leqP #|K| q) => kq.
    apply: leq_trans (leq_addr sd _) _; rewrite E [Q * (q * G)]mulnCA leq_mul2r kq orbT //.
  have [j kE] : exists j, #|K| = q.+1 + j by exists (#|K| - q.+1); rewrite subnKC.
  have VE : n 1 * v = V' + s1 * U by rewrite /V' subnK.
  rewrite VE kE in le; rewrite kE -mulnA [U * s1]mulnC in ca; rewrite kE in E.
  exact: few_ii GE GV E le ca.
have := weighted_count few; rewrite card_ord; apply: leq_trans; apply: leq_expn.
have lost : \sum_i d i <= Q * S + m.
  pose I := [set i : 'I_m | hh i < n 1 * v * Q].
  have -> : \sum_i d i = \sum_(i in I) d i.
    rewrite [RHS]big_mkcond /=; apply: eq_bigr => i _; rewrite inE.
    by case: leqP => // le; apply/eqP; rewrite subn_eq0.
  have E : \sum_(i in I) d i + \sum_(i in I) hh i = #|I| * (n 1 * v * Q).
    rewrite -sum_nat_const -big_split /=; apply: eq_bigr => i; rewrite inE => /ltnW le.
    by rewrite subnK.
  have Im : #|I| <= m by rewrite -[X in _ <= X]card_ord max_card.
  have := def I; rewrite [_ * #|I|]mulnC -E addnAC leq_add2r => /leq_trans; apply.
  by rewrite leq_add2l.
have : m * (Q * G) <= \sum_i g i + \sum_i d i.
  rewrite -[m in m * _]card_ord -sum_nat_const -big_split /=; apply: leq_sum => i _; rewrite /g; lia.
rewrite mulnCA leq_subLR mulnBr leq_subLR => le; apply: leq_trans le _.
by rewrite addnC addnA leq_add2r.
Qed.

Lemma condition_iii : m ^ m <= 2 ^ s0 * ((C + S) %/ V') ^ m.
Proof.
set k := _ %/ _; have := @weighted_count _ s0 k (fun _ : 'I_m => 1) c; rewrite sum_nat_const card_ord muln1; apply=> y i.
rewrite sum_nat_const muln1 -/(reached i y) /k leq_divRL //.
set K := reached i y; have [hh [carr def]] := scaled #|K|.+1.
have := def K; have := carr i y K (subxx _).
have VE : n 1 * v = V' + s1 * U by rewrite /V' subnK // ltnW // -subn_gt0.
rewrite VE -mulnA [U * s1]mulnC; exact: few_iii.
Qed.

Definition conditions_one : Prop :=
  [\/ 2 ^ s0 * C ^ m < (m * V' - S) ^ m,
      (let q := C %/ V' in let G := q.+1 * V' - C in 2 ^ s0 * (q * G) ^ m < (m * G - S) ^ m) |
      2 ^ s0 * ((C + S) %/ V') ^ m < m ^ m].
Lemma impossible_one : conditions_one -> False.
Proof.
case; rewrite /= ltnNge => /negP; apply; [exact: condition_i|exact: condition_ii|exact: condition_iii].
Qed.
End Conditions.

(* ---------- the theorem ---------- *)
Section Stacks.
Variables (m te t0 tw B v U : nat) (n s sd : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Notation conditions b := (conditions_one m (s 0) (s 0 + sd 1) (s 1) b v U n).
Variable P : stack 2 m n te t0 tw 1 B s sd.
Hypothesis sol : solves P.
Hypotheses (m0 : 0 < m) (n0 : 0 < n 1) (vU : 2 ^ v <= (m * n 1) ^ U) (V'0 : 0 < V' (s 1) v U n).

(* block 1 empty: the answering token's own B bits *)
Lemma empty_last : s 1 = 0 -> ~ conditions B.
Proof.
move=> s1; have [T [c [cT H]]] := structure m0 n0 sol s1.
apply: (@impossible_one m (s 0) (s 0 + sd 1) (s 1) B v U n T c) => // z0 y K sK.
have [mu Hmu] := @fin_all_exists _ (fun _ : 'I_(n 1) => Z2 -> 'I_(2 ^ B)) _ (fun w => H w z0 y).
have := @fprod_message _ _ T (col (@idx m n) K) _ (fun z2 => [ffun w => mu w z2] : {ffun 'I_(n 1) -> 'I_(2 ^ B)}).
rewrite card_ffun !card_ord s1 muln0 addn0 [n 1 * B]mulnC -!expnM !mulnA; apply=> z2 z2' zT zT' /ffunP E a /colP[w [i [iK ->]]].
have /imsetP[z1 + ->] := subsetP sK i iK; rewrite inE => /eqP cz.
by apply: (Hmu w z1 cz z2 z2') => //; have := E w; rewrite !ffunE.
Qed.

(* any block 1: the messages to all tokens of w, and the border of block 1 before w *)
Lemma any_last : ~ conditions (B * tw).
Proof.
have [T [c [nu [cT H]]]] := structure_last sol m0 n0.
apply: (@impossible_one m (s 0) (s 0 + sd 1) (s 1) (B * tw) v U n T c) => // z0 y K sK.
have [mu Hmu] := H z0 y.
pose z (j : 'I_m) : {ffun 'I_m -> 'I_m} := odflt [ffun _ => Ordinal m0] [pick z1 : {ffun 'I_m -> 'I_m} | (c z1 == y) && (z1 z0 == j)].
have zP j : j \in K -> c (z j) = y /\ z j z0 = j.
  move=> /(subsetP sK)/imsetP[z1]; rewrite inE => /eqP cz zi; rewrite /z; case: pickP => [z' /andP[/eqP -> /eqP ->] //|/(_ z1)].
  by rewrite cz zi !eqxx.
pose f z2 : {ffun 'I_(n 1) -> 'I_(2 ^ (B * tw))} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 1)} :=
  ([ffun w => mu w z2], [ffun j => nu z0 (z (val j)) z2]).
have cM : #|[finType of {ffun 'I_(n 1) -> 'I_(2 ^ (B * tw))} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 1)}]| =
          2 ^ (n 1 * (B * tw) + #|K| * s 1).
  rewrite card_prod !card_ffun !card_ord card_sig -!expnM expnD.
  have -> : #|[pred j | j \in K]| = #|K| by apply: eq_card.
  by rewrite [n 1 * _]mulnC [#|K| * _]mulnC.
rewrite -cM; apply: (@fprod_message _ _ T (col (@idx m n) K) _ f) => z2 z2' zT zT' [/ffunP e1 /ffunP e2] a /colP[w [j [jK ->]]].
have [cz zj] := zP j jK.
have := Hmu w (z j) cz z2 z2' zT zT'; rewrite zj; apply.
  by have := e1 w; rewrite !ffunE.
by have := e2 (exist _ j jK); rewrite !ffunE.
Qed.
End Stacks.

(* the bits that count of a message to the answering player *)
Definition answer_bits (B tw s1 : nat) : nat := if s1 == 0 then B else B * tw.

(* Theorem 1: no stack with one full layer solves two hops if one of the conditions (i), (ii), (iii) holds. *)
Theorem theorem_one (m te t0 tw B v U : nat) (n s sd : nat -> nat) : 0 < m -> 0 < n 1 -> 2 ^ v <= (m * n 1) ^ U ->
  0 < V' (s 1) v U n -> conditions_one m (s 0) (s 0 + sd 1) (s 1) (answer_bits B tw (s 1)) v U n ->
  forall P : stack 2 m n te t0 tw 1 B s sd, ~ solves P.
Proof.
move=> m0 n0 vU V0 cond P sol; move: cond; rewrite /answer_bits; case: eqP => [s1|_] cond.
  exact: (empty_last sol m0 n0 vU V0 s1 cond).
exact: (any_last sol m0 n0 vU V0 cond).
Qed.
