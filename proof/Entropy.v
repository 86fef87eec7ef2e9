(* Entropy without logarithms.

   T is a set of functions z : A -> V, z uniform on T.  For a set S of arguments let fibre S z be the number of members of T that agree with z on S, and
       fprod S = prod_(z in T) fibre S z.
   Then |T| H(z on S) = log (|T|^|T| / fprod S), so statements about entropies of z are statements about natural numbers:

   fprod0, fprodT      H(z on nothing) = 0 and H(z) = log |T|
   fprod_submodular    conditioning on more does not increase entropy: E(S) E(S' u R) >= E(S') E(S u R) for S in S'
   fprod_message       a message with M values that determines z on K: H(z on K) <= log M

   The inequality of the means takes the place of the concavity of the logarithm.  Everything is exact; rational numbers occur inside proofs only. *)
From mathcomp Require Import all_ssreflect all_algebra zify.
From Coq Require Import Lia.
From Rung Require Import Counting TwoHops.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Means.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* a product of ratios whose mean is at most q *)
Lemma ratio_AGM (J : finType) (T : {set J}) (a b : J -> nat) (q : nat) :
  (forall z, z \in T -> (0 < b z)%N) ->
  \sum_(z in T) (a z)%:R / (b z)%:R <= (q * #|T|)%:R :> rat ->
  (\prod_(z in T) a z <= q ^ #|T| * \prod_(z in T) b z)%N.
Proof.
move=> b0 le; have [T0|T0] := posnP #|T|.
  by rewrite !big1 ?T0 // => z; rewrite (cards0_eq T0) inE.
have pos (z : J) : z \in T -> 0 <= (a z)%:R / (b z)%:R :> rat by move=> zT; rewrite divr_ge0 ?ler0n.
have [+ _] := leif_AGM (A := mem T) pos; rewrite /= => agm.
have T0' : 0 < #|T|%:R :> rat by rewrite ltr0n.
have mean : (\sum_(z in T) (a z)%:R / (b z)%:R) / #|T|%:R <= q%:R :> rat.
  by rewrite ler_pdivr_mulr // -natrM.
have : \prod_(z in T) ((a z)%:R / (b z)%:R) <= q%:R ^+ #|T| :> rat.
  apply: le_trans agm _; apply: ler_expn2r; rewrite ?nnegrE ?ler0n //.
  by rewrite divr_ge0 ?ler0n // sumr_ge0.
rewrite prodf_div -!natr_prod -natrX ler_pdivr_mulr; first by rewrite -natrM ler_nat.
by rewrite ltr0n; apply: prodn_cond_gt0.
Qed.

Section Fibres.
Variables (J : finType) (T : {set J}).
(* members of T with the same value of h *)
Definition fsize (Y : eqType) (h : J -> Y) (z : J) : nat := #|[set z' in T | h z' == h z]|.
Lemma fsize_gt0 (Y : eqType) (h : J -> Y) z : z \in T -> (0 < fsize h z)%N.
Proof. by move=> zT; apply/card_gt0P; exists z; rewrite inE zT eqxx. Qed.
Lemma fsize_eq (Y : eqType) (h : J -> Y) z z' : h z = h z' -> fsize h z = fsize h z'.
Proof. by move=> E; rewrite /fsize E. Qed.

(* fibres of a map into M: at most |M| of them *)
Lemma sum_fibres (M : finType) (f : J -> M) : \sum_(z in T) (fsize f z)%:R^-1 <= #|M|%:R :> rat.
Proof.
rewrite (partition_big f predT) //= -sum1_card natr_sum; apply: ler_sum => y _.
case: (pickP (fun z => (z \in T) && (f z == y))) => [z0 /andP[z0T /eqP z0y]|no]; last by rewrite big_pred0 // ler0n.
rewrite (eq_bigr (fun _ => (fsize f z0)%:R^-1)); last by move=> z /andP[_ /eqP zy]; rewrite (@fsize_eq _ f z z0) // zy.
rewrite sumr_const -[X in _ *+ X]/(#|_|).
have -> : #|(fun z => (z \in T) && (f z == y))| = fsize f z0 by rewrite /fsize z0y cardsE.
by rewrite -[X in X <= _]mulr_natr mulVf // pnatr_eq0 -lt0n fsize_gt0.
Qed.

(* conditional independence maximises: g is determined by x and by y *)
Variables (X Y G : eqType) (x : J -> X) (y : J -> Y) (g : J -> G).
Hypothesis gx : forall z z', x z = x z' -> g z = g z'.
Hypothesis gy : forall z z', y z = y z' -> g z = g z'.
Let xy z := (x z, y z).
Lemma sum_pairs : \sum_(z in T) (fsize x z * fsize y z)%:R / (fsize g z * fsize xy z)%:R <= #|T|%:R :> rat.
Proof.
have split z : (fsize x z * fsize y z)%:R =
    \sum_(z1 in T) \sum_(z2 in T) ((x z1 == x z) && (y z2 == y z))%:R :> rat.
  rewrite /fsize !cardsE -!sum1_card big_distrl /= natr_sum big_mkcondr /=; apply: eq_bigr => z1 _.
  case: eqP => _ /=; last by rewrite big1.
  by rewrite mul1n natr_sum big_mkcondr /=; apply: eq_bigr => z2 _; case: eqP.
under eq_bigr do rewrite split mulr_suml.
rewrite exchange_big /= -[X in _ <= X%:R]sum1_card natr_sum; apply: ler_sum => z1 z1T.
under eq_bigr do rewrite mulr_suml.
rewrite exchange_big /=.
have g1 : (fsize g z1)%:R != 0 :> rat by rewrite pnatr_eq0 -lt0n fsize_gt0.
apply: (@le_trans _ _ (\sum_(z2 in T) (g z2 == g z1)%:R / (fsize g z1)%:R)); last first.
  rewrite -mulr_suml -natr_sum.
  have -> : (\sum_(z2 in T) (g z2 == g z1) = fsize g z1)%N.
    by rewrite /fsize cardsE -sum1_card big_mkcondr /=; apply: eq_bigr => z _; case: eqP.
  by rewrite mulfV.
apply: ler_sum => z2 z2T.
case: (pickP (fun z => [&& z \in T, x z1 == x z & y z2 == y z])) => [z0 /and3P[z0T /eqP x0 /eqP y0]|no]; last first.
  rewrite big1 ?divr_ge0 ?ler0n // => z zT; have := no z; rewrite zT /= => ->.
  by rewrite mul0r.
have -> : (g z2 == g z1) by rewrite (gx x0) (gy y0).
have k0 : (fsize xy z0)%:R != 0 :> rat by rewrite pnatr_eq0 -lt0n fsize_gt0.
rewrite (eq_bigr (fun z => if xy z == xy z0 then ((fsize g z1)%:R * (fsize xy z0)%:R)^-1 else 0)); last first.
  move=> z zT; rewrite x0 y0 [xy z == _]/eq_op /= [x z0 == _]eq_sym [y z0 == _]eq_sym.
  case: andP => [[/eqP ex /eqP ey]|_]; last by rewrite mul0r.
  rewrite mul1r natrM (@fsize_eq _ g z z1); last by rewrite (gx ex) (gx x0).
  by rewrite (@fsize_eq _ xy z z0) // /xy ex ey.
rewrite -big_mkcondr /= sumr_const.
have -> : #|(fun z => (z \in T) && (xy z == xy z0))| = fsize xy z0 by rewrite /fsize cardsE.
by rewrite -[X in X <= _]mulr_natr invfM -mulrA mulVf // mulr1 mul1r.
Qed.
End Fibres.
End Means.

Section Entropy.
Variables (A V : finType) (T : {set {ffun A -> V}}).
Implicit Types (S K R : {set A}).
Notation pr := (@pr A V).
Definition fprod S : nat := \prod_(z in T) fsize T (pr S) z.

Lemma fprod_gt0 S : 0 < fprod S.
Proof. by apply: prodn_cond_gt0 => z zT; apply: fsize_gt0. Qed.

Lemma fprod0 : fprod set0 = #|T| ^ #|T|.
Proof.
rewrite -prod_nat_const; apply: eq_bigr => z _; apply: eq_card => z'; rewrite inE andb_idr // => _.
by apply/eqP; apply: pr_eq => a; rewrite inE.
Qed.

Lemma fprodT : fprod setT = 1.
Proof.
rewrite /fprod big1 // => z zT; apply/eqP/cards1P; exists z; apply/setP => z'; rewrite !inE.
apply/andP/eqP => [[_ /eqP/prP H]|->]; last by rewrite zT.
by apply/ffunP => a; apply: H; rewrite inE.
Qed.

Lemma fprod_mono S S' : S \subset S' -> fprod S' <= fprod S.
Proof.
move=> /subsetP sS; apply: leq_prod => z zT; apply: subset_leq_card; apply/subsetP => z'; rewrite !inE.
by move=> /andP[-> /eqP/prP H]; apply/eqP; apply: pr_eq => a /sS /H.
Qed.

(* H(R | S') <= H(R | S) for S in S' *)
Lemma fprod_submodular S S' R : S \subset S' -> fprod S' * fprod (S :|: R) <= fprod S * fprod (S' :|: R).
Proof.
move=> /subsetP sS.
have weak S1 S2 : {subset S2 <= S1} -> forall z z', pr S1 z = pr S1 z' -> pr S2 z = pr S2 z'.
  by move=> s12 z z' /prP H; apply: pr_eq => a /s12 /H.
have gx := weak S' S sS; have gy := weak (S :|: R) S (subsetP (subsetUl S R)).
have := @ratio_AGM _ T (fun z => fsize T (pr S') z * fsize T (pr (S :|: R)) z)
                       (fun z => fsize T (pr S) z * fsize T (fun z => (pr S' z, pr (S :|: R) z)) z) 1.
rewrite exp1n !mul1n !big_split /= => H.
apply: leq_trans (H _ (sum_pairs T gx gy)) _; first by move=> z zT; rewrite muln_gt0 !fsize_gt0.
rewrite leq_mul2l; apply/orP; right; apply: leq_prod => z zT.
apply: subset_leq_card; apply/subsetP => z'; rewrite !inE => /andP[-> /eqP[/prP H1 /prP H2]] /=.
by apply/eqP; apply: pr_eq => a; rewrite inE => /orP[/H1|aR] //; apply: H2; rewrite inE aR orbT.
Qed.

(* a message with |M| values that determines z on K *)
Lemma fprod_message K (M : finType) (f : {ffun A -> V} -> M) :
  {in T &, forall z z', f z = f z' -> {in K, z =1 z'}} -> #|T| ^ #|T| <= #|M| ^ #|T| * fprod K.
Proof.
move=> H; rewrite -prod_nat_const.
apply: (@ratio_AGM _ T (fun _ => #|T|) (fun z => fsize T (pr K) z) #|M|) => [z zT|]; first exact: fsize_gt0.
rewrite -GRing.mulr_sumr GRing.natrM GRing.mulrC Num.Theory.ler_wpmul2r ?Num.Theory.ler0n //.
apply: Order.POrderTheory.le_trans (sum_fibres T f); apply: Num.Theory.ler_sum => z zT.
rewrite Num.Theory.lef_pinv ?Num.Theory.posrE ?Num.Theory.ltr0n ?fsize_gt0 // Num.Theory.ler_nat.
apply: subset_leq_card; apply/subsetP => z'; rewrite !inE => /andP[z'T /eqP E]; rewrite z'T /=.
by apply/eqP; apply: pr_eq; apply: H.
Qed.

(* H(R | S) <= |R| log |V| *)
Lemma fprod_column S R : fprod S <= #|V| ^ (#|R| * #|T|) * fprod (S :|: R).
Proof.
have sub := @fprod_submodular set0 S R (sub0set _); rewrite set0U fprod0 in sub.
have msg : #|T| ^ #|T| <= #|V| ^ (#|R| * #|T|) * fprod R.
  have := @fprod_message R _ (fun z => [ffun a : {a : A | a \in R} => z (val a)]).
  rewrite card_ffun card_sig -expnM; apply => z z' _ _ /ffunP E a aR.
  by have := E (exist _ a aR); rewrite !ffunE.
have R0 := fprod_gt0 R; rewrite -(leq_pmul2r R0).
apply: leq_trans sub _; apply: leq_trans (leq_mul msg (leqnn _)) _.
by rewrite -!mulnA leq_mul2l [fprod R * _]mulnC leqnn orbT.
Qed.
End Entropy.
