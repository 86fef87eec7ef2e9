(* Block-sparse attention and 2-Sum.

   A layer with blocks of Bk tokens: each block has a summary of `bits` bits, any function of its tokens and its position; the query selects at most k
   blocks from all summaries, sees all summaries, the selected blocks and its own block, and computes anything.  Task: is there a value x before the
   query q with x + q = 0 mod M?

   THEOREM (two_sum_impossible).  If u <= M, sum_(i <= Bk) C(u, i) - [u = M] > 2^bits and J (M - u + 1) > k M for J blocks before the query's, no such
   layer is always right.

   PROOF.  A block is blind to v if two contents, with and without v, have the same summary.  (blind_many) It is blind to at least M - u + 1 values:
   otherwise it is blind to no value of some U with |U| = u, so the summary determines which values of U occur; but more than 2^bits subsets of U occur.
   (many_blind) So some v has more than k blind blocks.  Fill them with the contents without v, all others likewise; the query -v selects at most k; exchange
   the content of an unselected blind block: nothing that the query sees changes, but the answer does.  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting TwoHops.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section TwoSum.
Variables (M Bk J k bits own : nat).
Notation content := {ffun 'I_Bk -> 'I_M}.

Record sparse_layer := SparseLayer {
  summary : 'I_J -> content -> 'I_(2 ^ bits);
  select : {ffun 'I_J -> 'I_(2 ^ bits)} -> {ffun 'I_own -> 'I_M} -> 'I_M -> {set 'I_J};
  select_few : forall a t q, #|select a t q| <= k;
  conclude : {ffun 'I_J -> 'I_(2 ^ bits)} -> {ffun 'I_J -> option content} -> {ffun 'I_own -> 'I_M} -> 'I_M -> bool }.

Definition run_layer (P : sparse_layer) (x : {ffun 'I_J -> content}) (t : {ffun 'I_own -> 'I_M}) (q : 'I_M) : bool :=
  let a := [ffun b => summary P b (x b)] in
  conclude P a [ffun b => if b \in select P a t q then Some (x b) else None] t q.
Definition two_sum (x : {ffun 'I_J -> content}) (t : {ffun 'I_own -> 'I_M}) (q : 'I_M) : bool :=
  [exists b, exists i, (x b i + q) %% M == 0] || [exists i, (t i + q) %% M == 0].

Variable P : sparse_layer.
Definition occurs (v : 'I_M) (c : content) : bool := [exists i, c i == v].
Definition blind (b : 'I_J) (v : 'I_M) : bool :=
  [exists c0 : content, exists c1 : content, [&& summary P b c0 == summary P b c1, ~~ occurs v c0 & occurs v c1]].

Variable u : nat.
Hypothesis uM : u <= M.
Hypothesis many : 2 ^ bits < \sum_(i < Bk.+1) 'C(u, i) - (u == M).

(* the values of U that occur in a block *)
Definition trace (U : {set 'I_M}) (c : content) : {set 'I_M} := [set v in U | occurs v c].

Lemma card_small (U : {set 'I_M}) : #|[set A : {set 'I_M} | (A \subset U) && (#|A| <= Bk)]| = \sum_(i < Bk.+1) 'C(#|U|, i).
Proof.
rewrite -sum1_card (partition_big (fun A : {set 'I_M} => inord #|A| : 'I_Bk.+1) predT) //=; apply: eq_bigr => i _.
rewrite sum1_card -cards_draws; apply: eq_card => A; rewrite unfold_in /= !inE.
case: (A \subset U) => //=; apply/andP/eqP => [[le /eqP <-]|E]; first by rewrite inordK.
by rewrite E -ltnS ltn_ord; split=> //; apply/eqP/ord_inj; rewrite inordK.
Qed.

Lemma trace_all (U A : {set 'I_M}) : A \subset U -> #|A| <= Bk -> 0 < Bk -> (0 < #|A|) || (#|U| < M) ->
  exists c : content, trace U c = A.
Proof.
move=> AU AB B0 ex.
have [d dP] : exists d, (0 < #|A| -> d \in A) /\ (#|A| = 0 -> d \notin U).
  case: (posnP #|A|) ex => [A0 /= UM|A0 _]; last by have /card_gt0P[d dA] := A0; exists d; split=> // E; rewrite E in A0.
  have : 0 < #|~: U| by rewrite -(ltn_add2l #|U|) addn0 cardsC card_ord.
  by case/card_gt0P => d; rewrite inE => dU; exists d; split.
exists [ffun i : 'I_Bk => nth d (enum A) i]; apply/setP => v; rewrite inE.
case vA : (v \in A).
  rewrite (subsetP AU v vA) /=; apply/existsP.
  have lt : index v (enum A) < Bk by apply: leq_trans AB; rewrite cardE index_mem mem_enum.
  by exists (Ordinal lt); rewrite ffunE nth_index ?mem_enum.
apply/negbTE/negP => /andP[vU /existsP[i]]; rewrite ffunE => /eqP E.
case: (ltnP i (size (enum A))) => iA; first by have := mem_nth d iA; rewrite E mem_enum vA.
move: E; rewrite nth_default // => E; case: (posnP #|A|) => A0; case: dP => d1 d2.
  by have := d2 A0; rewrite E vU.
by have := d1 A0; rewrite E vA.
Qed.

Lemma blind_many b : M - u < #|[set v | blind b v]|.
Proof.
rewrite ltnNge; apply/negP => few.
have big : u <= #|~: [set v | blind b v]|.
  by rewrite -(leq_add2l #|[set v | blind b v]|) cardsC card_ord; apply: leq_trans (leq_add few (leqnn u)) _; rewrite subnK.
have [U UB Uu] := subset_of_card big.
have B0 : 0 < Bk.
  rewrite lt0n; apply/eqP => E; move: many; rewrite E big_ord_recl big_ord0 addn0 bin0; have : 0 < 2 ^ bits by rewrite expn_gt0.
  by case: (_ == _) => /=; lia.
have le : #|trace U @: [set: content]| <= 2 ^ bits.
  apply: (@leq_trans #|summary P b @: [set: content]|); last by rewrite -[X in _ <= X]card_ord max_card.
  apply: imset_factor => c c' _ _ E; apply/setP => v; rewrite !inE; case vU : (v \in U) => //=.
  have nb : ~~ blind b v by have := subsetP UB v vU; rewrite !inE.
  case oc : (occurs v c); case oc' : (occurs v c') => //; move/negP: nb; case.
    by apply/existsP; exists c'; apply/existsP; exists c; rewrite E eqxx oc oc'.
  by apply/existsP; exists c; apply/existsP; exists c'; rewrite E eqxx oc oc'.
have : \sum_(i < Bk.+1) 'C(u, i) - (u == M) <= #|trace U @: [set: content]|.
  rewrite -Uu -card_small leq_subLR.
  set F := [set A | _]; set G := trace U @: [set: content].
  have sub : F \subset (if #|U| == M then set0 |: G else G).
    apply/subsetP => A; rewrite inE => /andP[AU AB].
    case: ifP => UM; rewrite ?inE; last first.
      have [|c <-] := @trace_all U A AU AB B0; last by apply: imset_f; rewrite inE.
      by apply/orP; right; rewrite ltn_neqAle UM -[X in _ <= X]card_ord max_card.
    case: (set_0Vmem A) => [->|[v vA]]; first by rewrite eqxx.
    have [|c <-] := @trace_all U A AU AB B0; last by rewrite imset_f ?inE ?orbT.
    by apply/orP; left; apply/card_gt0P; exists v.
  apply: leq_trans (subset_leq_card sub) _; case: ifP => _ //.
  by apply: leq_trans (leq_card_setU _ _) _; rewrite cards1.
by move=> /(leq_trans many)/leq_trans/(_ le); rewrite ltnn.
Qed.

Hypothesis enough : k * M < J * (M - u).+1.
Lemma many_blind : exists v, k < #|[set b | blind b v]|.
Proof.
case: (pickP (fun v => k < #|[set b | blind b v]|)) => [v vk|no]; first by exists v.
exfalso; move: enough; rewrite ltnNge => /negP; apply.
have E : \sum_b #|[set v | blind b v]| = \sum_v #|[set b | blind b v]|.
  under eq_bigr do rewrite -sum1_card big_mkcond; rewrite exchange_big /=; apply: eq_bigr => v _.
  by rewrite -[RHS]sum1_card [RHS]big_mkcond /=; apply: eq_bigr => b _; rewrite !inE.
apply: (@leq_trans (\sum_b #|[set v | blind b v]|)).
  by rewrite -[J in J * _]card_ord -sum_nat_const; apply: leq_sum => b _; apply: blind_many.
rewrite E mulnC -[M in M * _]card_ord -sum_nat_const; apply: leq_sum => v _.
by rewrite leqNgt no.
Qed.

Lemma negate (v : 'I_M) : exists q : 'I_M, forall w : 'I_M, ((w + q) %% M == 0) = (w == v).
Proof.
have M0 : 0 < M by apply: leq_ltn_trans (ltn_ord v).
have qM : (M - v) %% M < M by apply: ltn_pmod.
exists (Ordinal qM) => w; rewrite /= modnDmr -val_eqE /=; have vM := ltn_ord v; have wM := ltn_ord w.
apply/eqP/eqP => [|->]; last by rewrite subnKC ?modnn // ltnW.
case: (leqP v w) => le E.
  have e : w + (M - v) = M + (w - v) by lia.
  by move: E; rewrite e modnDl modn_small; lia.
by move: E; rewrite modn_small; lia.
Qed.

Theorem two_sum_impossible : ~ (forall x t q, run_layer P x t q = two_sum x t q).
Proof.
move=> right; have [v vk] := many_blind; have [q qE] := negate v.
have occ (c : content) : [exists i, (c i + q) %% M == 0] = occurs v c by apply: eq_existsb => i; rewrite qE.
pose good b (p : content * content) := [&& summary P b p.1 == summary P b p.2, ~~ occurs v p.1 & occurs v p.2].
have [b0 b0v] : exists b, blind b v by have /card_gt0P[b] := leq_ltn_trans (leq0n k) vk; rewrite inE; exists b.
have [c0 [c1 /and3P[_ n0 /existsP[i0 _]]]] : exists c0 c1, good b0 (c0, c1) by have /existsP[c0 /existsP[c1 H]] := b0v; exists c0, c1.
pose w := c0 i0; have wv : w != v by apply: contra n0 => E; apply/existsP; exists i0.
pose pr b := odflt (c0, c0) [pick p | good b p].
have prP b : blind b v -> good b (pr b).
  case/existsP=> a0 /existsP[a1 H]; rewrite /pr; case: pickP => [p //|/(_ (a0, a1))].
  by rewrite /good H.
have pr0 b : ~~ occurs v (pr b).1 by rewrite /pr; case: pickP => [p /and3P[]|].
pose x : {ffun 'I_J -> content} := [ffun b => (pr b).1]; pose t : {ffun 'I_own -> 'I_M} := [ffun _ => w].
pose a := [ffun b => summary P b (x b)].
have [b bB bS] : exists2 b, blind b v & b \notin select P a t q.
  have : 0 < #|[set b | blind b v] :\: select P a t q|.
    rewrite -(ltn_add2l #|[set b | blind b v] :&: select P a t q|) addn0 cardsID.
    by apply: leq_ltn_trans vk; apply: leq_trans (select_few P a t q); apply: subset_leq_card; apply: subsetIr.
  by case/card_gt0P => b; rewrite !inE => /andP[bS bB]; exists b.
have /and3P[/eqP sE _ oc] := prP b bB.
pose y : {ffun 'I_J -> content} := [ffun b' => if b' == b then (pr b).2 else x b'].
have aE : [ffun b => summary P b (y b)] = a.
  by apply/ffunP => b'; rewrite !ffunE; case: eqP => // ->.
have same : run_layer P x t q = run_layer P y t q.
  rewrite /run_layer aE -/a; congr conclude; apply/ffunP => b'; rewrite !ffunE; case: ifP => // bs.
  by case: eqP => // E; rewrite E (negbTE bS) in bs.
have tn : [exists i, (t i + q) %% M == 0] = false.
  by apply/existsP => -[i]; rewrite ffunE qE (negbTE wv).
have : two_sum x t q = two_sum y t q by rewrite -!right.
rewrite /two_sum tn !orbF.
have -> : [exists b', exists i, (y b' i + q) %% M == 0].
  by apply/existsP; exists b; rewrite occ ffunE eqxx.
by move=> /existsP[b']; rewrite occ ffunE (negbTE (pr0 b')).
Qed.
End TwoSum.
