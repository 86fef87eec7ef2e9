(* Counting, in exact natural numbers: the tools of the lower bound.

   pigeon_seq   freezing: some subset with a fraction 2^-(b k) of a set makes k functions of b bits constant
   power_mean   Jensen's inequality for powers
   nat_AGM      arithmetic and geometric mean
   draw_abs     "choosing the list": a good draw whose common slice is large exists
   bad_few      few draws hit few (class, value) pairs: the tail inequality
   agree_few    functions that agree on D arguments are a fraction N^-D: the contradiction at the end *)
From mathcomp Require Import all_ssreflect.
From mathcomp Require Import ssralg ssrnum ssrint zify.
From Coq Require Import Lia.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- pigeonhole ---------- *)
Lemma pigeon1 (T F : finType) (y0 : F) (R : {set T}) (f : T -> F) :
  exists y, #|R| <= #|[set r in R | f r == y]| * #|F|.
Proof.
pose g y := #|[set r in R | f r == y]|.
case: (@arg_maxnP F y0 predT g) => // y _ ymax.
exists y; rewrite -/(g y) mulnC -sum_nat_const.
rewrite -sum1_card (partition_big f predT) //=.
apply: leq_sum => i _; rewrite (eq_bigl (mem [set r in R | f r == i])).
  by rewrite sum1_card; apply: ymax.
by move=> r; rewrite !inE.
Qed.

Lemma pigeon_seq (T : finType) (C : eqType) (b : nat) (cs : seq C)
    (f : C -> T -> 'I_(2 ^ b)) (R : {set T}) :
  exists2 R' : {set T}, R' \subset R /\ #|R| <= #|R'| * 2 ^ (b * size cs) &
    forall c, c \in cs -> {in R' &, forall r r', f c r = f c r'}.
Proof.
elim: cs R => [|c cs IH] R; first by exists R; rewrite ?muln0 ?muln1.
have [R1 [sR1 cR1] H1] := IH R.
have [|y Hy] := @pigeon1 T _ (Ordinal (_ : 0 < 2 ^ b)) R1 (f c).
  by rewrite expn_gt0.
exists [set r in R1 | f c r == y].
  split; first by apply/subsetP => r; rewrite inE => /andP[/(subsetP sR1)].
  rewrite card_ord in Hy.
  rewrite /= mulnS expnD mulnA; apply: leq_trans cR1 _.
  by rewrite leq_mul2r Hy orbT.
move=> d; rewrite inE => /orP[/eqP -> r r'|dc r r'].
  by rewrite !inE => /andP[_ /eqP ->] /andP[_ /eqP ->].
by rewrite !inE => /andP[r1 _] /andP[r2 _]; apply: H1.
Qed.

(* ---------- power mean ---------- *)
Lemma leq_expn (a b n : nat) : a <= b -> a ^ n <= b ^ n.
Proof. by case: n => // n; rewrite leq_exp2r. Qed.

Lemma cheb2 (a b n : nat) : a * b ^ n + b * a ^ n <= a ^ n.+1 + b ^ n.+1.
Proof.
wlog ab : a b / a <= b.
  by move=> H; case/orP: (leq_total a b) => /H //; rewrite addnC [X in _ <= X]addnC.
rewrite !expnS.
have [c ->] : exists c, b = a + c by exists (b - a); rewrite subnKC.
have [d ->] : exists d, (a + c) ^ n = a ^ n + d.
  by exists ((a + c) ^ n - a ^ n); rewrite subnKC // leq_expn ?leq_addr.
nia.
Qed.

Lemma power_mean (I : finType) (f : I -> nat) (n : nat) :
  (\sum_i f i) ^ n.+1 <= #|I| ^ n * \sum_i f i ^ n.+1.
Proof.
elim: n => [|n IH]; first by rewrite expn1 mul1n; apply: leq_sum => i _; rewrite expn1.
rewrite expnS; apply: leq_trans (leq_mul (leqnn _) IH) _.
rewrite mulnCA expnSr -mulnA leq_mul2l; apply/orP; right.
rewrite -(leq_pmul2l (isT : 0 < 2)).
have -> : 2 * ((\sum_i f i) * \sum_i f i ^ n.+1) =
          \sum_i \sum_j (f i * f j ^ n.+1 + f j * f i ^ n.+1).
  rewrite mul2n -addnn.
  under [RHS]eq_bigr do rewrite big_split /=.
  rewrite big_split /=; congr (_ + _).
    by rewrite big_distrl /=; apply: eq_bigr => i _; rewrite big_distrr.
  rewrite exchange_big /= big_distrl /=; apply: eq_bigr => i _.
  by rewrite big_distrr.
have -> : 2 * (#|I| * \sum_i f i ^ n.+2) = \sum_i \sum_j (f i ^ n.+2 + f j ^ n.+2).
  rewrite mul2n -addnn.
  under [RHS]eq_bigr do rewrite big_split /=.
  rewrite big_split /=; congr (_ + _).
    by rewrite big_distrr /=; apply: eq_bigr => i _; rewrite sum_nat_const.
  by rewrite sum_nat_const.
by apply: leq_sum => i _; apply: leq_sum => j _; apply: cheb2.
Qed.

(* ---------- arithmetic and geometric mean ---------- *)
Lemma nat_AGM (I : finType) (f : I -> nat) :
  #|I| ^ #|I| * \prod_i f i <= (\sum_i f i) ^ #|I|.
Proof.
have H := @Num.Theory.leif_AGM_scaled int_numDomainType I predT (fun i => (f i)%:Z%R).
case: (H _) => [i _|{}H _]; first exact: Num.Theory.mulrn_wge0.
have E1 : (\prod_(i in predT) ((f i)%:Z *+ #|predT : {pred I}|) =
   (#|I| ^ #|I| * \prod_i f i)%N%:Z)%R.
  rewrite (eq_bigr (fun i => (#|I| * f i)%N%:Z%R)); last first.
    by move=> i _; rewrite -GRing.mulr_natl natz PoszM.
  by rewrite -(big_morph Posz PoszM (erefl _)) big_split /= prod_nat_const.
have E2 : ((\sum_(i in predT) (f i)%:Z) ^+ #|predT : {pred I}| = ((\sum_i f i)%N ^ #|I|)%N%:Z)%R.
  by rewrite -(big_morph Posz PoszD (erefl _)) -[in RHS]natz GRing.natrX natz.
by move: H; rewrite E1 E2.
Qed.

Lemma subset_of_card (T : finType) (A : {set T}) n :
  n <= #|A| -> exists2 V : {set T}, V \subset A & #|V| = n.
Proof.
case/card_geqP => s [us <- sA]; exists [set x in s].
  by apply/subsetP => x; rewrite inE => /sA.
by rewrite cardsE; apply/card_uniqP.
Qed.

Lemma superset_of_card (T : finType) (A : {set T}) n :
  #|A| <= n <= #|T| -> exists2 V : {set T}, A \subset V & #|V| = n.
Proof.
case/andP => An nT.
have [|B BA Bc] := @subset_of_card T (~: A) (n - #|A|).
  by rewrite -(leq_add2l #|A|) subnKC // cardsC.
exists (A :|: B); first exact: subsetUl.
rewrite cardsU (_ : A :&: B = set0) ?cards0 ?subn0 ?Bc ?subnKC //.
apply/setP => x; rewrite !inE; apply/negbTE/negP => /andP[xA /(subsetP BA)].
by rewrite inE xA.
Qed.

Lemma card_notin n (U : {set 'I_n}) : #|(fun i : 'I_n => i \notin U)| = n - #|U|.
Proof.
have := cardC U; rewrite card_ord => /(congr1 (subn^~ #|U|)); rewrite addKn => <-.
by apply: eq_card => u.
Qed.

(* ---------- choosing the list ----------
   sw r z is the tuple r with one coordinate taken from z; R has a fraction 2^-Delta; X tuples are drawn.  The slice of a draw is the set of
   all r for which every drawn coordinate leads into R. *)
Section Draw.
Variables (Om : finType) (sw : Om -> Om -> Om).
Hypothesis swC : forall R : {set Om}, \sum_(r : Om) #|[set z | sw r z \in R]| = #|Om| * #|R|.
Variables (X : nat) (Delta : nat) (R : {set Om}).
Hypothesis X0 : 0 < X.
Hypothesis dens : #|Om| <= #|R| * 2 ^ Delta.
Notation draws := {ffun 'I_X -> Om}.
Definition slice (Z : draws) := [set r | [forall i, sw r (Z i) \in R]].

Lemma slice_sum : \sum_(Z : draws) #|slice Z| = \sum_r #|[set z | sw r z \in R]| ^ X.
Proof.
transitivity (\sum_(Z : draws) \sum_(r : Om) (if r \in slice Z then 1 else 0)).
  by apply: eq_bigr => Z _; rewrite -sum1_card big_mkcond.
rewrite exchange_big /=; apply: eq_bigr => r _.
rewrite -[in RHS](card_ord X) -card_ffun_on -sum1_card [RHS]big_mkcond /=.
apply: eq_bigr => Z _; congr (if _ then _ else _); rewrite inE.
apply/forallP/ffun_onP => H i; first by rewrite inE.
by have := H i; rewrite inE.
Qed.

Variable G : pred draws.
Hypothesis bad : #|[set Z | ~~ G Z]| * 2 ^ (X * Delta).+1 <= #|Om| ^ X.

(* Some draw satisfies G and has a slice of fraction 2^-(X Delta + 1), if at most that fraction of the draws violates G. *)
Lemma draw_abs : 0 < #|Om| ->
  exists2 Z, G Z & #|Om| <= #|slice Z| * 2 ^ (X * Delta).+1.
Proof.
move=> O0.
case: (pickP (fun Z => G Z && (#|Om| <= #|slice Z| * 2 ^ (X * Delta).+1))) => [Z /andP[]|no].
  by exists Z.
exfalso.
have Bad := bad; set P := 2 ^ (X * Delta).+1 in no Bad *.
pose S := \sum_(Z : draws) #|slice Z|.
have lower : #|Om| ^ X.+1 <= S * 2 ^ (X * Delta).
  rewrite /S slice_sum -(prednK X0).
  have := power_mean (fun r => #|[set z | sw r z \in R]|) X.-1.
  rewrite swC expnMn [in X in X <= _]expnSr -!mulnA leq_pmul2l ?expn_gt0 ?O0 // => H.
  apply: leq_trans (leq_mul H (leqnn _)).
  rewrite [Y in Y <= _]expnS -mulnA leq_mul2l; apply/orP; right.
  by rewrite [_.+1 * Delta]mulnC expnM -expnMn leq_exp2r.
have upper : S * P <= #|Om| ^ X * (#|Om|.-1) + #|Om| ^ X * #|Om|.
  rewrite /S (bigID G) /= mulnDl; apply: leq_add.
    rewrite big_distrl /=.
    apply: (@leq_trans (\sum_(Z | G Z) #|Om|.-1)).
      apply: leq_sum => Z GZ; have := no Z; rewrite GZ /= => /negbT.
      by rewrite -ltnNge -{1}(prednK O0).
    rewrite sum_nat_const leq_mul2r; apply/orP; right.
    by rewrite -[X in _ ^ X]card_ord -card_ffun max_card.
  rewrite big_distrl /=.
  apply: (@leq_trans (\sum_(Z | ~~ G Z) #|Om| * P)).
    by apply: leq_sum => Z _; rewrite leq_mul2r max_card orbT.
  rewrite sum_nat_const mulnCA mulnC leq_mul2r; apply/orP; right.
  by move: Bad; rewrite cardsE.
have PE : P = 2 * 2 ^ (X * Delta) by rewrite /P expnS.
move: upper lower; rewrite PE expnS.
have : 0 < #|Om| ^ X by rewrite expn_gt0 O0.
case: #|Om| O0 => // o _ /=; set a := o.+1 ^ X; set b := 2 ^ _.
nia.
Qed.
End Draw.

(* the probability that the draws hit few (class, value) pairs *)
Section Bad.
Variables (Om : finType) (N k : nat) (get : Om -> 'I_N -> 'I_N).
Hypothesis unif : forall V : 'I_N -> {set 'I_N},
  #|[set z | [forall u, get z u \in V u]]| * N ^ N = #|Om| * \prod_u #|V u|.
Hypothesis N0 : 0 < N.
Variables (U : {set 'I_N}) (cls : 'I_N -> 'I_k) (d X t Need : nat).
Hypothesis bal : forall c, #|[set u in U | cls u == c]| = d.
Notation draws := {ffun 'I_X -> Om}.
Definition hit (Z : draws) : {set 'I_k * 'I_N} :=
  [set p | [exists i, [exists u in U, (cls u == p.1) && (get (Z i) u == p.2)]]].

Lemma cardU : #|U| = k * d.
Proof.
rewrite -sum1_card (partition_big cls predT) //=.
rewrite -[k in RHS]card_ord -sum_nat_const; apply: eq_bigr => c _.
by rewrite -(bal c) -sum1_card; apply: eq_bigl => u; rewrite inE.
Qed.

Lemma inV (V : {set 'I_k * 'I_N}) :
  #|[set z : Om | [forall u in U, (cls u, get z u) \in V]]| * N ^ #|U| =
  #|Om| * (\prod_c #|[set v | (c, v) \in V]|) ^ d.
Proof.
pose W u := if u \in U then [set v | (cls u, v) \in V] else setT.
have UN : #|U| <= N by rewrite -[X in _ <= X]card_ord max_card.
apply/eqP; rewrite -(eqn_pmul2r (_ : 0 < N ^ (N - #|U|))) ?expn_gt0 ?N0 //.
rewrite -mulnA -expnD subnKC //.
have -> : [set z : Om | [forall u in U, (cls u, get z u) \in V]] =
          [set z | [forall u, get z u \in W u]].
  apply/setP => z; rewrite !inE; apply/forall_inP/forallP => H u.
    by rewrite /W; case: ifP => uU; rewrite ?inE //; apply: H.
  by move=> uU; have := H u; rewrite /W uU inE.
rewrite unif -mulnA eqn_mul2l; apply/orP; right.
rewrite (bigID (mem U)) /=; apply/eqP; congr (_ * _).
  rewrite (big_morph (fun x => x ^ d) (fun a b => expnMn a b d) (exp1n d)).
  rewrite (partition_big cls predT) //=; apply: eq_bigr => c _.
  rewrite -(bal c) -prod_nat_const; apply: eq_big => u; first by rewrite inE.
  by move=> /andP[uU /eqP <-]; rewrite /W uU.
rewrite (eq_bigr (fun _ => N)); last first.
  by move=> u /negbTE uU; rewrite /W uU cardsT card_ord.
rewrite prod_nat_const; congr (_ ^ _).
exact: card_notin.
Qed.

Lemma inV_le (V : {set 'I_k * 'I_N}) :
  #|[set z : Om | [forall u in U, (cls u, get z u) \in V]]| * (k * N) ^ #|U| <=
  #|Om| * #|V| ^ #|U|.
Proof.
rewrite expnMn mulnCA inV mulnCA leq_mul2l; apply/orP; right.
rewrite cardU 2!expnM -expnMn leq_expn //.
have := nat_AGM (fun c => #|[set v | (c, v) \in V]|); rewrite card_ord.
have -> : \sum_c #|[set v | (c, v) \in V]| = #|V|; last by [].
rewrite -sum1_card (partition_big (fun p : 'I_k * 'I_N => p.1) predT) //=.
apply: eq_bigr => c _; rewrite sum1_card.
rewrite -(card_imset _ (_ : injective (fun v : 'I_N => (c, v)))); last by move=> a b [].
apply: eq_card => -[c' v]; apply/imsetP/idP => /= [[v']|].
  by rewrite inE => H [-> ->]; rewrite unfold_in /= H eqxx.
by rewrite unfold_in /= => /andP[H /eqP e]; exists v; rewrite ?inE -?e.
Qed.

Hypothesis tM : t <= k * N.
Hypothesis k0 : 0 < k.

(* The union bound over all sets V of t pairs. *)
Lemma bad_ratio : #|[set Z : draws | ~~ (t < #|hit Z|)]| * (k * N) ^ (X * #|U|) <= #|Om| ^ X * ('C(k * N, t) * t ^ (X * #|U|)).
Proof.
pose S (V : {set 'I_k * 'I_N}) := [set Z : draws | hit Z \subset V].
have cover : #|[set Z : draws | ~~ (t < #|hit Z|)]| <= \sum_(V : {set 'I_k * 'I_N} | #|V| == t) #|S V|.
  apply: leq_trans (subset_leq_card (_ : _ \subset \bigcup_(V : {set 'I_k * 'I_N} | #|V| == t) S V)) _.
    apply/subsetP => Z; rewrite inE -leqNgt => le.
    have [|V HV Vt] := @superset_of_card _ (hit Z) t; first by rewrite le card_prod !card_ord.
    by apply/bigcupP; exists V; rewrite ?Vt // inE.
  by elim/big_rec2: _ => [|V a B _ le]; rewrite ?cards0 // (leq_trans (leq_card_setU _ _)) // leq_add2l.
have each (V : {set 'I_k * 'I_N}) : #|V| == t ->
    #|S V| * (k * N) ^ (X * #|U|) <= #|Om| ^ X * t ^ (X * #|U|).
  move=> /eqP Vt; rewrite ![X * #|U|]mulnC !expnM.
  have -> : #|S V| = #|[set z : Om | [forall u in U, (cls u, get z u) \in V]]| ^ X.
    rewrite -[X in _ ^ X]card_ord -card_ffun_on; apply: eq_card => Z; rewrite inE.
    apply/subsetP/ffun_onP => H.
      move=> i; rewrite inE; apply/forall_inP => u uU; apply: H; rewrite inE.
      by apply/existsP; exists i; apply/exists_inP; exists u; rewrite //= !eqxx.
    move=> [c v]; rewrite inE => /existsP[i /exists_inP[u uU /= /andP[/eqP <- /eqP <-]]].
    by have := H i; rewrite inE => /forall_inP; apply.
  by rewrite -!expnMn leq_expn // -Vt inV_le.
apply: leq_trans (leq_mul cover (leqnn _)) _; rewrite big_distrl /=.
apply: (@leq_trans (\sum_(V : {set 'I_k * 'I_N} | #|V| == t) #|Om| ^ X * t ^ (X * #|U|))); first exact: leq_sum.
rewrite sum_nat_const.
have -> : #|[pred V : {set 'I_k * 'I_N} | #|V| == t]| = 'C(k * N, t).
  by have := card_draws [finType of 'I_k * 'I_N] t; rewrite card_prod !card_ord cardsE.
by rewrite mulnCA.
Qed.

Hypothesis tail : 'C(k * N, t) * t ^ (X * #|U|) * 2 ^ Need <= (k * N) ^ (X * #|U|).
Lemma bad_few : #|[set Z : draws | ~~ (t < #|hit Z|)]| * 2 ^ Need <= #|Om| ^ X.
Proof.
have M0 : 0 < (k * N) ^ (X * #|U|) by rewrite expn_gt0 muln_gt0 k0 N0.
rewrite -(leq_pmul2r M0) mulnAC; apply: leq_trans (leq_mul bad_ratio (leqnn _)) _.
by rewrite -mulnA leq_mul2l tail orbT.
Qed.
End Bad.

(* functions that agree on a set of arguments *)
Section Agree.
Variables (Om : finType) (N : nat) (get : Om -> 'I_N -> 'I_N).
Hypothesis N0 : 0 < N.
Hypothesis unif : forall V : 'I_N -> {set 'I_N},
  #|[set z | [forall u, get z u \in V u]]| * N ^ N = #|Om| * \prod_u #|V u|.
Lemma agree_few (R : {set Om}) (U : {set 'I_N}) :
  {in R &, forall r r', {in U, forall u, get r u = get r' u}} ->
  #|R| * N ^ #|U| <= #|Om|.
Proof.
move=> H; have [->|[r0 r0R]] := set_0Vmem R; first by rewrite cards0.
pose V u := if u \in U then [set get r0 u] else setT.
have UN : #|U| <= N by rewrite -[X in _ <= X]card_ord max_card.
have M0 : 0 < N ^ (N - #|U|) by rewrite expn_gt0 N0.
rewrite -(leq_pmul2r M0) -mulnA -expnD subnKC //.
have sub : R \subset [set z | [forall u, get z u \in V u]].
  apply/subsetP => r rR; rewrite inE; apply/forallP => u; rewrite /V.
  by case: ifP => uU; rewrite ?inE //; apply/eqP; apply: H.
apply: leq_trans (leq_mul (subset_leq_card sub) (leqnn _)) _.
rewrite unif leq_mul2l; apply/orP; right.
rewrite (bigID (mem U)) /= big1 ?mul1n; last by move=> u uU; rewrite /V uU cards1.
rewrite (eq_bigr (fun _ => N)); last first.
  by move=> u /negbTE uU; rewrite /V uU cardsT card_ord.
rewrite prod_nat_const (_ : #|_| = N - #|U|) //.
exact: card_notin.
Qed.
End Agree.
