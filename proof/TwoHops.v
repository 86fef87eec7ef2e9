(* The sharp bound for L = 2, F = 1, block 1 empty, without entropy: only counting, exact integers.

   Notation: N = N_1 = m n_1, V = log N, s_0 bits of state in block 0, r = sd_1 bits in mixers beside the full layer, b = B bits of message
   to the answering token.  Players: 0 (w), 1 (z_0), 2 (z_1), 3 (z_2); cut j = before player j-1.

   THEOREM (two_sharp).  If for some natural numbers q, t
       (i)   2^(s_0 + r + n_1 (t+1) b) < N^(n_1 (t+1) (q+1))         [ n_1 (t+1) ((q+1) V - b) > s_0 + r ]
       (ii)  2^(s_0) q^m < (m - t (q+1))^m                           [ m log ((m - t (q+1)) / q) > s_0 ]
   then no stack with one full layer and block 1 empty solves 2-FuncComp(m, n_1).  (No other condition: (i) gives n_1 > 0, (ii) gives m > 0;
   m - t (q+1) is cut off at 0; q = 0 is allowed.)  There is no delta.  For each q the best t is floor ((s_0 + r) / (n_1 ((q+1) V - b))).
   COROLLARY (two_sharp_delta): for every rational delta in (0, 1), kappa = floor(s_0 / (delta V n_1)) and q = max(1, ceil(b / ((1-delta) V)) - 1):
   m log ((m - kappa) / q) > s_0 suffices.  So two_sharp is at least as strong:
   t (q+1) <= kappa, see the proof of two_sharp_delta.

   PROOF.
   1. (structure) Cut 3: the border of block 0 and that of the side mixers are functions of z_2.  Fix the most frequent pair of values:
      z_2 in T, N^N <= |T| 2^(s_0 + r).  Block 0 with cut 3: on T the states X_p, p <= 2, do not depend on z_2.
   2. Fix any zT in T and let c(z_1) = border of block 0 at cut 2 on (z_1, zT); at most 2^(s_0) values.  Block 0 with cut 2: on zT, hence by step 1
      on all of T, X_0 and X_1 depend on z_1 only through c(z_1).  (So the chain law tau_1 = g(tau_2, z_1) is not needed as an axiom.)
      Hence for z_1 with c(z_1) = y the message of cut 3 to player 0 is mu_(w,z_0,y)(z_2), b bits; with X_0, X_1, X_2 it determines the
      answer.  So mu_(w,z_0,y) determines z_2(w,i), z_2 in T, for every i in K_y(z_0) = {z_1(z_0) : c(z_1) = y}.
   3. For a set S of arguments let T|S be the restrictions of T to S.  |T|(S u S')| <= |T|S| |T|S'|,  |T|S| <= N^|S|,  and by step 2
      |T|(w x K)| <= 2^b for every K contained in K_y(z_0).
   4. (good_row) A set S in row w is poor of order k if |S| = k (q+1) and |T|(w x S)| <= 2^(k b).  If every row had a poor set of order t+1,
      their union U would have |U| = n_1 (t+1) (q+1), and N^N <= |T| 2^(s_0+r) <= N^(N-|U|) 2^(n_1 (t+1) b) 2^(s_0+r), against (i).  So some row w
      has none.  The empty set is poor of order 0; let k <= t be such that w has a poor set Bad of order k and none of order k+1.
      |Bad| <= t (q+1).  If K is disjoint from Bad, |T|(w x K)| <= 2^b and |K| > q, then Bad with q+1 elements of K is poor of order k+1:
      contradiction.  So |K| <= q for every such K.
   5. (count) The z_1 that avoid Bad everywhere: (m - |Bad|)^m.  Some fibre c = y holds a share 2^(-s_0) of them; in it z_1(z_0) takes at most q
      values for every z_0 (steps 3, 4).  So (m - t (q+1))^m <= (m - |Bad|)^m <= 2^(s_0) q^m, against (ii).  QED

   EXACT at s_0 = r = 0 (exact0): a stack solves 2-FuncComp iff N^m <= 2^B (t = 0, q = m - 1; the message is row w of z_2). *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- step 3: projections of a set of functions ---------- *)
Lemma imset_factor (X Y Y' : finType) (f : X -> Y) (g : X -> Y') (T : {set X}) :
  {in T &, forall x x', g x = g x' -> f x = f x'} -> #|f @: T| <= #|g @: T|.
Proof.
move=> H; pose h x := (f x, g x).
have -> : f @: T = fst @: (h @: T) by rewrite -imset_comp; apply: eq_imset.
have -> : g @: T = snd @: (h @: T) by rewrite -imset_comp; apply: eq_imset.
rewrite [X in _ <= X]card_in_imset; first exact: leq_imset_card.
move=> _ _ /imsetP[x xT ->] /imsetP[y yT ->] /= e.
by congr (_, _) => //; apply: H.
Qed.

Section Proj.
Variables (A V : finType) (T : {set {ffun A -> V}}).
Implicit Types (S : {set A}) (z : {ffun A -> V}).
Definition pr S z : {ffun A -> option V} := [ffun a => if a \in S then Some (z a) else None].
Definition np S : nat := #|[set pr S z | z in T]|.

Lemma prP S z z' : pr S z = pr S z' -> {in S, z =1 z'}.
Proof. by move=> /ffunP H a aS; have := H a; rewrite !ffunE aS => -[]. Qed.
Lemma pr_eq S z z' : {in S, z =1 z'} -> pr S z = pr S z'.
Proof. by move=> H; apply/ffunP => a; rewrite !ffunE; case: ifP => // /H ->. Qed.

(* a message that determines the restriction to S *)
Lemma np_msg S (M : finType) (f : {ffun A -> V} -> M) :
  {in T &, forall z z', f z = f z' -> {in S, z =1 z'}} -> np S <= #|M|.
Proof.
move=> H; apply: leq_trans (max_card (mem [set f z | z in T])).
by apply: imset_factor => z z' zT zT' /H e; apply: pr_eq; apply: e.
Qed.
Lemma np_sub S S' : S \subset S' -> np S <= np S'.
Proof. by move=> /subsetP sS; apply: imset_factor => z z' _ _ /prP H; apply: pr_eq => a /sS /H. Qed.
Lemma np_U S S' : np (S :|: S') <= np S * np S'.
Proof.
rewrite -cardsX; apply: leq_trans (subset_leq_card (_ : [set (pr S z, pr S' z) | z in T] \subset _)).
  apply: imset_factor => z z' _ _ [/prP H1 /prP H2]; apply: pr_eq => a.
  by rewrite inE => /orP[/H1|/H2].
by apply/subsetP => _ /imsetP[z zT ->]; rewrite inE /= !imset_f.
Qed.
Lemma np0 : np set0 <= 1.
Proof. by rewrite -card_unit; apply: (@np_msg _ _ (fun _ => tt)) => z z' _ _ _ a; rewrite inE. Qed.
Lemma np_bigcup (I : finType) (P : pred I) (S : I -> {set A}) :
  np (\bigcup_(i | P i) S i) <= \prod_(i | P i) np (S i).
Proof.
elim/big_rec2: _ => [|i a B _ le]; first exact: np0.
by apply: leq_trans (np_U _ _) _; rewrite leq_mul2l le orbT.
Qed.
Lemma np_le S : np S <= #|V| ^ #|S|.
Proof.
have -> : S = \bigcup_(a in S) [set a].
  by apply/setP => a; apply/idP/bigcupP => [aS|[b bS]]; [exists a; rewrite ?inE|rewrite inE => /eqP ->].
apply: leq_trans (np_bigcup _ _) _; rewrite -prod_nat_const.
have -> : \bigcup_(a in S) [set a] = S.
  by apply/setP => a; apply/bigcupP/idP => [[b bS]|aS]; [rewrite inE => /eqP ->|exists a; rewrite ?inE].
apply: leq_prod => a _; apply: (@np_msg _ _ (fun z => z a)) => z z' _ _ e b.
by rewrite inE => /eqP ->.
Qed.
Lemma np_top : #|T| <= np setT.
Proof. by rewrite -{1}[T]imset_id; apply: imset_factor => z z' _ _ /prP H; apply/ffunP => a; apply: H. Qed.

(* ---------- step 4: a row without many poor blocks ---------- *)
Variables (W I : finType) (idx : W -> I -> A) (b q t s : nat).
Hypothesis idx_inj : forall w i w' i', idx w i = idx w' i' -> (w, i) = (w', i').
Hypothesis dens : #|V| ^ #|A| <= #|T| * 2 ^ s.
Hypothesis row : 2 ^ (s + #|W| * t.+1 * b) < #|V| ^ (#|W| * t.+1 * q.+1).

Definition poor w k (S : {set I}) : bool := (#|S| == k * q.+1) && (np (idx w @: S) <= 2 ^ (k * b)).

Lemma rich_row : exists w, forall S : {set I}, ~~ poor w t.+1 S.
Proof.
case: (pickP (fun w => [forall S : {set I}, ~~ poor w t.+1 S])) => [w /forallP H|no]; first by exists w.
exfalso.
have [|S HS] := @fin_all_exists W _ (fun w (S : {set I}) => poor w t.+1 S).
  by move=> w; have := no w; move=> /negbT/forallPn[S /negbNE HS]; exists S.
pose U := \bigcup_w idx w @: S w.
have rowM := row; set M := #|W| * t.+1 in rowM *.
have cU : #|U| = M * q.+1.
  have -> : U = [set idx p.1 p.2 | p in [set p : W * I | p.2 \in S p.1]].
    apply/setP => a; apply/bigcupP/imsetP => [[w _ /imsetP[i iS ->]]|[[w i]]].
      by exists (w, i); rewrite ?inE.
    by rewrite inE /= => iS ->; exists w => //; apply: imset_f.
  rewrite card_imset; last by move=> [w i] [w' i'] /idx_inj.
  rewrite cardsE -sum1_card -(pair_big_dep predT (fun w i => i \in S w) (fun _ _ => 1)) /=.
  rewrite (eq_bigr (fun _ => t.+1 * q.+1)) ?sum_nat_const ?mulnA // => w _.
  by rewrite sum1_card; case/andP: (HS w) => /eqP.
have npU : np U <= 2 ^ (M * b).
  apply: leq_trans (np_bigcup _ _) _.
  apply: (@leq_trans (\prod_(w : W) 2 ^ (t.+1 * b))).
    by apply: leq_prod => w _; case/andP: (HS w).
  by rewrite prod_nat_const -expnM mulnC mulnA.
have V0 : 0 < #|V|.
  rewrite lt0n; apply/eqP => V0; move: rowM; rewrite V0; case: (M * q.+1) => [|k]; last by rewrite exp0n.
  by rewrite expn0 ltnS leqn0 expn_eq0.
have cA : #|~: U| + #|U| = #|A| by rewrite addnC cardsC.
have : #|V| ^ #|A| <= #|V| ^ #|~: U| * 2 ^ (s + M * b).
  apply: leq_trans dens _; rewrite addnC expnD mulnA leq_mul2r; apply/orP; right.
  apply: leq_trans np_top _; rewrite -(setUCr U) setUC; apply: leq_trans (np_U _ _) _.
  by apply: leq_mul => //; apply: np_le.
rewrite -cA expnD leq_pmul2l ?expn_gt0 ?V0 // cU leqNgt.
by rewrite rowM.
Qed.

Lemma good_row : exists w (Bad : {set I}), #|Bad| <= t * q.+1 /\
  forall K : {set I}, [disjoint K & Bad] -> np (idx w @: K) <= 2 ^ b -> #|K| <= q.
Proof.
have [w rich] := rich_row.
have p0 : poor w 0 set0.
  by rewrite /poor cards0 mul0n eqxx mul0n imset0 np0.
have [k kt [Bad HB nx]] : exists2 k, k <= t & exists2 S : {set I}, poor w k S & forall S' : {set I}, ~~ poor w k.+1 S'.
  move: rich; move: (t); elim=> [|k IH] rich; first by exists 0 => //; exists set0.
  case: (pickP (fun S : {set I} => poor w k.+1 S)) => [S HS|no]; first by exists k.+1 => //; exists S.
  have [|j jk [S HS HS']] := IH; first by move=> S; rewrite no.
  by exists j; [apply: leqW|exists S].
exists w, Bad; case/andP: HB => /eqP cB npB; split; first by rewrite cB leq_mul2r kt orbT.
move=> K dis npK; rewrite leqNgt; apply/negP => qK.
have [K' sK cK] := subset_of_card qK.
have dis' : [disjoint Bad & K'] by rewrite disjoint_sym; apply: disjointWl dis.
have := nx (Bad :|: K'); rewrite /poor imsetU => /negP; apply; apply/andP; split.
  by rewrite cardsU (disjoint_setI0 dis') cards0 subn0 cB cK mulSn addnC.
apply: leq_trans (np_U _ _) _; rewrite mulSn addnC expnD leq_mul //.
by apply: leq_trans npK; apply: np_sub; apply: imsetS.
Qed.
End Proj.

(* ---------- step 5: count the first tables ---------- *)
Section Count.
Variables (I : finType) (s0 q : nat) (Bad : {set I}) (c : {ffun I -> I} -> 'I_(2 ^ s0)).
(* in every fibre of c, the tables that avoid Bad take at most q values at each argument *)
Hypothesis few : forall y i, #|[set z1 i | z1 : {ffun I -> I} in [set z1 | (c z1 == y) && [forall j, z1 j \notin Bad]]]| <= q.
Lemma count : (#|I| - #|Bad|) ^ #|I| <= 2 ^ s0 * q ^ #|I|.
Proof.
pose G := [set z1 : {ffun I -> I} | [forall j, z1 j \notin Bad]].
have cG : #|G| = (#|I| - #|Bad|) ^ #|I|.
  have -> : #|I| - #|Bad| = #|~: Bad| by rewrite -(cardsC Bad) addKn.
  rewrite -card_ffun_on; apply: eq_card => z1; rewrite inE.
  by apply/forallP/ffun_onP => H j; have := H j; rewrite inE.
have y0 : 0 < 2 ^ s0 by rewrite expn_gt0.
have [y Hy] := pigeon1 (Ordinal y0) G c.
rewrite -cG; apply: leq_trans Hy _; rewrite card_ord mulnC leq_mul2l; apply/orP; right.
set S := [set _ in _ | _].
have SE : S = [set z1 | (c z1 == y) && [forall j, z1 j \notin Bad]].
  by apply/setP => z1; rewrite !inE andbC.
pose K i := [set z1 i | z1 : {ffun I -> I} in S].
apply: (@leq_trans #|family K|).
  apply: subset_leq_card; apply/subsetP => z1 zS; apply/familyP => i.
  exact: imset_f.
rewrite card_family foldrE big_map -prod_nat_const.
rewrite big_enum /=; apply: leq_prod => i _.
by rewrite /K SE; apply: few.
Qed.
End Count.

(* ---------- steps 1 and 2: what the laws of a stack say for L = 2, F = 1, block 1 empty ---------- *)
Section Two.
Variables (m te t0 tw B : nat) (n s sd : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).

Definition two (z1 : Z1) (z2 : Z2) (l : 'I_2) : Table m n l :=
  match l as l return Table m n (nat_of_ord l) with Ordinal k h =>
    match k as k return k < 2 -> Table m n k with
    | 0 => fun _ => z1 | 1 => fun _ => z2 | k.+2 => fun h => False_rect _ (notF h) end h end.
Definition qry (w : 'I_(n 1)) : Query 2 n :=
  [ffun e : 'I_1 => match e as e return 'I_(n (nat_of_ord e).+1) with Ordinal k h =>
    match k as k return k < 1 -> 'I_(n k.+1) with 0 => fun _ => w | k.+1 => fun h => False_rect _ (notF h) end h end].
Definition inp (w : 'I_(n 1)) (z0 : 'I_m) (z1 : Z1) (z2 : Z2) : Inp 2 m n :=
  ((qry w, z0), [ffun l : 'I_2 => two z1 z2 l] : Om 2 m n).

Lemma idx_proof (w : 'I_(n 1)) (i : 'I_m) : w * m + i < N.
Proof. by rewrite /= mulnC; case: w i => [w wn] [i im] /=; nia. Qed.
Definition idx (w : 'I_(n 1)) (i : 'I_m) : 'I_N := Ordinal (idx_proof w i).
Lemma idx_inj w i w' i' : idx w i = idx w' i' -> (w, i) = (w', i').
Proof.
move=> /(congr1 (@nat_of_ord _)) /= E; have m0 : 0 < m by apply: leq_ltn_trans (ltn_ord i).
have Ew : w = w'.
  apply: ord_inj; have := congr1 (divn^~ m) E.
  by rewrite !divnMDl // !divn_small // !addn0.
by rewrite Ew in E *; congr (_, _); apply: ord_inj; apply: (addnI E).
Qed.

Lemma answerE w z0 z1 z2 : answer (inp w z0 z1 z2) = z2 (idx w (z1 z0)).
Proof.
rewrite /answer /= /tab (insubT (fun i => i < 2) (isT : 1 < 2)) /=.
rewrite {1}/wv (insubT (fun i => i < 1) (isT : 0 < 1)) /= (insubT (fun i => i < 2) (isT : 0 < 2)) /= !ffunE /= valK.
have -> : w * m + z1 z0 = idx w (z1 z0) by [].
by rewrite valK.
Qed.

Lemma agree3 w z0 z1 w' z0' z1' z2 : agree 3 (inp w z0 z1 z2) (inp w' z0' z1' z2).
Proof. by split=> // -[[|[|k]] h] //= _; rewrite !ffunE. Qed.
Lemma agree2 w z0 w' z0' z1 z2 : agree 2 (inp w z0 z1 z2) (inp w' z0' z1 z2).
Proof. by split=> // -[[|[|k]] h] //= _; rewrite !ffunE. Qed.
Lemma same2 p w z0 z1 z2 z2' : p < 3 -> same p (inp w z0 z1 z2) (inp w z0 z1 z2').
Proof. by move=> p3; split=> // -[[|[|k]] h] //= e; rewrite ?ffunE //; rewrite e in p3. Qed.
Lemma same1 p w z0 z1 z1' z2 : p < 2 -> same p (inp w z0 z1 z2) (inp w z0 z1' z2).
Proof. by move=> p3; split=> // -[[|[|k]] h] //= e; rewrite ?ffunE //; rewrite e in p3. Qed.

Variable P : stack 2 m n te t0 tw 1 B s sd.
Hypotheses (m0 : 0 < m) (n0 : 0 < n 1).
Notation X := (stX P). Notation Msg := (@amsg 2 m n te t0 tw 1 B s sd P).
Let w0 : 'I_(n 1) := Ordinal n0. Let i0 : 'I_m := Ordinal m0.

(* what block 0 leaves of the two tables *)
Lemma settled : exists (T : {set Z2}) (c : Z1 -> 'I_(2 ^ s 0)),
  [/\ N ^ N <= #|T| * 2 ^ (s 0 + sd 1), exists z, z \in T,
      forall p w z0 z1 z2 z2', p < 3 -> z2 \in T -> z2' \in T -> X 0 p (inp w z0 z1 z2) = X 0 p (inp w z0 z1 z2'),
      forall p w z0 z1 z1' z2, p < 2 -> z2 \in T -> c z1 = c z1' -> X 0 p (inp w z0 z1 z2) = X 0 p (inp w z0 z1' z2) &
      forall w z0 z1 z2 z2', z2 \in T -> z2' \in T -> pbrd P 1 3 (inp w z0 z1 z2) = pbrd P 1 3 (inp w z0 z1 z2')].
Proof.
pose a0 : Z1 := [ffun _ => i0].
have p0 k : 0 < 2 ^ k by rewrite expn_gt0.
pose f z2 := (brd P 0 3 (inp w0 i0 a0 z2), pbrd P 1 3 (inp w0 i0 a0 z2)).
have [y0 Hy] := pigeon1 (Ordinal (p0 (s 0)), Ordinal (p0 (sd 1))) [set: Z2] f.
set T := [set _ in _ | _] in Hy.
have cT : N ^ N <= #|T| * 2 ^ (s 0 + sd 1).
  by move: Hy; rewrite cardsT card_ffun card_prod !card_ord expnD.
have Tb z2 z2' w z0 z1 : z2 \in T -> z2' \in T ->
    brd P 0 3 (inp w z0 z1 z2) = brd P 0 3 (inp w z0 z1 z2') /\ pbrd P 1 3 (inp w z0 z1 z2) = pbrd P 1 3 (inp w z0 z1 z2').
  rewrite !inE /= => /eqP E /eqP E'; have := etrans E (esym E') => -[Eb Ep].
  split.
    by rewrite (brd_pre P (leq0n _) (agree3 w z0 z1 w0 i0 a0 z2)) Eb; apply: brd_pre => //; apply: agree3.
  by rewrite (pbrd_pre P (leqnn _) (agree3 w z0 z1 w0 i0 a0 z2)) Ep; apply: pbrd_pre => //; apply: agree3.
have [zT zTT] : exists z, z \in T.
  have N0 : 0 < N by rewrite /= muln_gt0 m0 n0.
  by apply/set0Pn; rewrite -card_gt0; case: #|T| cT => //; rewrite mul0n leqn0 expn_eq0 (gtn_eqF N0).
have XT p w z0 z1 z2 z2' : p < 3 -> z2 \in T -> z2' \in T -> X 0 p (inp w z0 z1 z2) = X 0 p (inp w z0 z1 z2').
  move=> p3 zT1 zT2; apply: (@block _ _ _ _ _ _ _ _ _ _ P 0 p 3) => //; last by case: (Tb z2 z2' w z0 z1 zT1 zT2).
  by move=> q /andP[_ q3]; apply: embed; apply: same2.
exists T, (fun z1 => brd P 0 2 (inp w0 i0 z1 zT)); split=> // [|p w z0 z1 z1' z2 p2 zT2 e|w z0 z1 z2 z2' zT1 zT2]; first by exists zT.
  rewrite (XT p w z0 z1 z2 zT) ?(leqW p2) // (XT p w z0 z1' z2 zT) ?(leqW p2) //; apply: (@block _ _ _ _ _ _ _ _ _ _ P 0 p 2) => //.
    by move=> q /andP[_ q2]; apply: embed; apply: same1.
  rewrite (brd_pre P (leq0n _) (agree2 w z0 w0 i0 z1 zT)) e.
  by apply: brd_pre => //; apply: agree2.
by case: (Tb z2 z2' w z0 z1 zT1 zT2).
Qed.

Hypothesis sol : solves P.
Hypothesis s1 : s 1 = 0.

(* T, the fibres c, and a message mu for (w, z0, y) that determines z2 on w x K_y(z0) *)
Lemma structure : exists (T : {set Z2}) (c : Z1 -> 'I_(2 ^ s 0)),
  N ^ N <= #|T| * 2 ^ (s 0 + sd 1) /\
  forall w z0 y, exists mu : Z2 -> 'I_(2 ^ B), forall z1, c z1 = y ->
    {in T &, forall z2 z2', mu z2 = mu z2' -> z2 (idx w (z1 z0)) = z2' (idx w (z1 z0))}.
Proof.
have [T [c [cT [zT zTT] XT Xc Tp]]] := settled.
exists T, c; split=> // w z0 y.
pose a := odflt [ffun _ => i0] [pick z1 | c z1 == y].
exists (fun z2 => Msg 1 3 (X 0 0 (inp w z0 a zT)) (inp w z0 a z2)) => z1 cz1 z2 z2' zT1 zT2 Em.
have ca : c a = y by rewrite /a; case: pickP => [a' /eqP //|/(_ z1)]; rewrite cz1 eqxx.
have X0 z : z \in T -> X 0 0 (inp w z0 z1 z) = X 0 0 (inp w z0 a zT).
  by move=> zTT'; rewrite (XT 0 w z0 z1 z zT) //; apply: Xc; rewrite ?ca.
have mE z : z \in T -> Msg 1 3 (X 0 0 (inp w z0 z1 z)) (inp w z0 z1 z) =
                       Msg 1 3 (X 0 0 (inp w z0 a zT)) (inp w z0 a z).
  by move=> zTT'; rewrite X0 //; apply: amsg_pre => //; apply: agree3.
apply: ord_inj; rewrite -!answerE -!sol; congr (out _).
apply: block_ans => //; apply: (@full_ans _ _ _ _ _ _ _ _ _ _ P 0 3) => //.
- by move=> q q3; apply: XT.
- by rewrite !mE.
- exact: Tp.
Qed.
End Two.

(* ---------- the theorem ---------- *)
Theorem two_sharp (m te t0 tw B q t : nat) (n s sd : nat -> nat) : s 1 = 0 ->
  2 ^ (s 0 + sd 1 + n 1 * t.+1 * B) < (m * n 1) ^ (n 1 * t.+1 * q.+1) ->
  2 ^ s 0 * q ^ m < (m - t * q.+1) ^ m ->
  forall P : stack 2 m n te t0 tw 1 B s sd, ~ solves P.
Proof.
move=> s1 row cnt P sol.
have le1 k : (2 ^ k < 1) = false by rewrite ltnS leqn0 expn_eq0.
have m0 : 0 < m by rewrite lt0n; apply/eqP => E; move: cnt; rewrite E !expn0 muln1 le1.
have n0 : 0 < n 1 by rewrite lt0n; apply/eqP => E; move: row; rewrite E !mul0n expn0 le1.
have [T [c [cT H]]] := structure m0 n0 sol s1.
have [||w [Bad [cB HB]]] := @good_row _ _ T _ _ (@idx m n) B q t (s 0 + sd 1) (@idx_inj m n).
- by rewrite !card_ord.
- by rewrite !card_ord.
have few y i : #|[set z1 i | z1 : {ffun 'I_m -> 'I_m} in [set z1 | (c z1 == y) && [forall j, z1 j \notin Bad]]]| <= q.
  apply: HB.
    rewrite disjoint_subset; apply/subsetP => _ /imsetP[z1 + ->].
    by rewrite inE => /andP[_ /forallP /(_ i)].
  have [mu Hmu] := H w i y; rewrite -[X in _ <= X]card_ord.
  apply: (@np_msg _ _ T _ _ mu) => z2 z2' zT zT' e a /imsetP[_ /imsetP[z1 + ->] ->].
  by rewrite inE => /andP[/eqP cz _]; apply: (Hmu z1).
have := count few; rewrite card_ord leqNgt => /negP; apply; apply: leq_trans cnt _.
by apply: leq_expn; apply: leq_sub2l.
Qed.

(* The form with one parameter delta = dn/dd:
   kappa = floor (s_0 / (delta V n_1)) is the least kappa with the first inequality,
   q = ceil (B / ((1 - delta) V)) - 1 the least q with the second one. *)
Theorem two_sharp_delta (m te t0 tw B dn dd kappa q : nat) (n s sd : nat -> nat) : s 1 = 0 -> dn <= dd ->
  2 ^ (dd * (s 0 + sd 1)) < (m * n 1) ^ (dn * n 1 * kappa.+1) ->
  2 ^ (dd * B) <= (m * n 1) ^ ((dd - dn) * q.+1) ->
  2 ^ s 0 * q ^ m < (m - kappa) ^ m ->
  forall P : stack 2 m n te t0 tw 1 B s sd, ~ solves P.
Proof.
move=> s1 le row msg cnt; pose t := kappa %/ q.+1.
have le1 k : (2 ^ k < 1) = false by rewrite ltnS leqn0 expn_eq0.
have d0 : 0 < dd.
  by rewrite lt0n; apply/eqP => E; move: le row; rewrite E leqn0 => /eqP ->; rewrite !mul0n !expn0.
have N0 : 0 < m * n 1.
  rewrite lt0n; apply/eqP => E; move: row; rewrite E; case: (dn * _ * _) => [|k]; last by rewrite exp0n.
  by rewrite expn0 le1.
apply: (@two_sharp m te t0 tw B q t) => //; last first.
  apply: leq_trans cnt _; apply: leq_expn; apply: leq_sub2l; exact: leq_trunc_div.
rewrite -(ltn_exp2r _ _ d0) -!expnM mulnDl expnD.
set k := n 1 * t.+1; set M := m * n 1 in row msg N0 *.
have kt : kappa.+1 <= t.+1 * q.+1 by rewrite /t ltn_ceil.
have E : k * q.+1 * dd = dn * n 1 * (t.+1 * q.+1) + (dd - dn) * q.+1 * k.
  rewrite -{1}(subnKC le) /k; move: (dd - dn) (n 1) (t.+1) (q.+1) => d' n' t' q'; lia.
rewrite E [M ^ (_ + _)]expnD.
apply: (@leq_trans (M ^ (dn * n 1 * kappa.+1) * M ^ ((dd - dn) * q.+1 * k))); last first.
  by rewrite leq_mul2r leq_pexp2l ?orbT // leq_mul2l kt orbT.
apply: (@leq_ltn_trans (2 ^ ((s 0 + sd 1) * dd) * M ^ ((dd - dn) * q.+1 * k))).
  rewrite leq_mul2l; apply/orP; right.
  have -> : k * B * dd = dd * B * k by rewrite mulnC mulnCA mulnC mulnA.
  by rewrite [2 ^ (_ * k)]expnM [M ^ (_ * k)]expnM; apply: leq_expn.
by rewrite ltn_pmul2r ?expn_gt0 ?N0 // mulnC.
Qed.

(* ---------- without state the bound is exact ---------- *)
Section Exact.
Variables (m te t0 tw B : nat) (n s sd : nat -> nat).
Notation N := (Nn m n 1). Notation Inp := (Inp 2 m n).
Hypothesis room : N ^ m <= 2 ^ B.
Hypothesis tw0 : 0 < tw.
Let o1 : 'I_2 := Ordinal (isT : 1 < 2). Let o0 : 'I_2 := Ordinal (isT : 0 < 2).
Definition wq (u : Inp) : 'I_(n 1) := u.1.1 (Ordinal (isT : 0 < 1)).
Definition t1 (u : Inp) : Table m n 0 := u.2 o0.
Definition t2 (u : Inp) : Table m n 1 := u.2 o1.
Lemma answer2 (u : Inp) : answer u = t2 u (idx (wq u) (t1 u u.1.2)).
Proof.
rewrite /answer /= /tab (insubT (fun i => i < 2) (isT : 1 < 2)) /=.
rewrite {1}/wv (insubT (fun i => i < 1) (isT : 0 < 1)) /= (insubT (fun i => i < 2) (isT : 0 < 2)) /= valK.
by rewrite (valK (idx (wq u) (t1 u u.1.2))).
Qed.
(* what the reader w learns at cut j, as a function of the part of the chain that is still open *)
Definition learn (j : nat) (w : 'I_(n 1)) (u : Inp) : {ffun 'I_m -> 'I_N} :=
  [ffun i => t2 u (idx w (match j with 1 => t1 u u.1.2 | 2 => t1 u i | _ => i end))].
Inductive hold : Type := Nothing | Qr of Query 2 n | Start0 of 'I_m | Tb1 of Table m n 0 | Tb2 of Table m n 1 | Ans of nat.
Definition own (p : nat) (u : Inp) : hold :=
  match p with 0 => Qr u.1.1 | 1 => Start0 u.1.2 | 2 => Tb1 (t1 u) | 3 => Tb2 (t2 u) | _ => Nothing end.
Definition holds (e p : nat) (u : Inp) : hold :=
  match e with 0 => own p u | _ => if p is 0 then Ans (answer u) else Nothing end.
Definition zero k : 'I_(2 ^ k) := Ordinal (expn_gt0 2 k : 0 < 2 ^ k).
Lemma code_proof b (f : {ffun 'I_m -> 'I_N}) : B <= b -> enum_rank f < 2 ^ b.
Proof. by move=> Bb; apply: leq_trans (ltn_ord _) _; rewrite card_ffun !card_ord (leq_trans room) // leq_exp2l. Qed.
Definition code b (Bb : B <= b) f : 'I_(2 ^ b) := Ordinal (code_proof f Bb).
Lemma code_inj b (Bb : B <= b) : injective (code Bb).
Proof. by move=> f g /(congr1 (@nat_of_ord _)) /= /ord_inj /enum_rank_inj. Qed.
Let Bw : B <= B * tw. Proof. exact: leq_pmulr. Qed.
Definition tell_ans (e j : nat) (x : hold) (u : Inp) : 'I_(2 ^ B) :=
  if (x, 0 < j <= 3) is (Qr w, true) then code (leqnn B) (learn j (w (Ordinal (isT : 0 < 1))) u) else zero _.
Definition tell (e p j : nat) (x : hold) (u : Inp) : 'I_(2 ^ (B * tok m n te t0 tw p)) :=
  match p as p return 'I_(2 ^ (B * tok m n te t0 tw p)) with
  | 0 => if (x, 0 < j <= 3) is (Qr w, true) then code Bw (learn j (w (Ordinal (isT : 0 < 1))) u) else zero _
  | p => zero _ end.

Lemma agree_t1 j u v : j <= 2 -> agree j u v -> t1 u = t1 v.
Proof. by move=> j2 [_ _ H]; exact: (H o0 j2). Qed.
Lemma agree_t2 j u v : j <= 3 -> agree j u v -> t2 u = t2 v.
Proof. by move=> j2 [_ _ H]; exact: (H o1 j2). Qed.

Lemma exact_full j u v : 0 < j -> (forall q, q < j -> own q u = own q v) ->
  (j <= 3 -> learn j (wq u) u = learn j (wq v) v) -> answer u = answer v.
Proof.
move=> j0 EX Em; rewrite !answer2.
have [Ew] : own 0 u = own 0 v by exact: (EX 0 j0).
have Ew' : wq u = wq v by rewrite /wq Ew.
case: (leqP j 3) => j3.
  have {Em} /ffunP Em := Em j3.
  case: j j0 j3 EX Em => [|[|[|[|j]]]] // _ _ EX Em.
  + by have := Em u.1.2; rewrite !ffunE => ->.
  + have [E0] : own 1 u = own 1 v by exact: (EX 1 isT).
    by have := Em u.1.2; rewrite !ffunE => ->; rewrite E0.
  + have [E0] : own 1 u = own 1 v by exact: (EX 1 isT).
    have [E1] : own 2 u = own 2 v by exact: (EX 2 isT).
    by have := Em (t1 u u.1.2); rewrite !ffunE => ->; rewrite E0 E1.
have E k : k < 4 -> own k u = own k v by move=> k4; exact: (EX k (leq_trans k4 j3)).
case: (E 1 isT) => E0; case: (E 2 isT) => E1; case: (E 3 isT) => E2.
by rewrite Ew' E0 E1 E2.
Qed.
Lemma learn_pre j w u v : 0 < j <= 3 -> agree j u v -> learn j w u = learn j w v.
Proof.
case/andP=> j0 j3 ag; apply/ffunP => i; rewrite !ffunE (agree_t2 j3 ag).
case: j j0 j3 ag => [|[|[|[|j]]]] // _ _ ag; rewrite (agree_t1 _ ag) //.
by case: ag => _ -> .
Qed.

Definition exact_stack : stack 2 m n te t0 tw 1 B s sd.
Proof.
refine (@Stack 2 m n te t0 tw 1 B s sd hold holds holds tell (fun e _ _ => zero (s e)) (fun e _ _ => zero (sd e)) _ _ _ _ _ _ _
   hold id tell_ans _ _ _ (fun x => if x is Ans a then a else 0)) => //.
- move=> e p u v _ ag; case: e => [|e] /=.
    case: p ag => [|[|[|[|p]]]] ag //=.
    + by case: ag => ->.
    + by case: ag => _ ->.
    + by rewrite (agree_t1 _ ag).
    + by rewrite (agree_t2 _ ag).
  case: p ag => // ag; rewrite !answer2 (agree_t1 _ ag) // (agree_t2 _ ag) //.
  by case: ag => E1 E2 _; rewrite /wq E1 // E2.
- move=> e [|p] j x u v _ ag //=; case: x => // w.
  by case: ifP => // j3; congr code; apply: learn_pre.
- move=> p u v [E1 E2 E3]; case: p E1 E2 E3 => [|[|[|[|p]]]] //= E1 E2 E3.
  + by rewrite E1.
  + by rewrite E2.
  + by rewrite /t1 E3.
  + by rewrite /t2 E3.
- move=> [|e] // [|p] j u v _ pj EX Em _ //=; congr Ans; apply: (exact_full pj EX) => j3.
  by move: Em; rewrite /= pj j3 /= => /code_inj.
- by move=> e p j u v _ pj EY _; apply: EY; rewrite leqnn.
- move=> e j x u v _ ag; rewrite /tell_ans; case: x => // w.
  by case: ifP => // j3; congr code; apply: learn_pre.
- move=> [|e] // j u v _ pj EX Em _ /=; congr Ans; apply: (exact_full pj EX) => j3.
  by move: Em; rewrite /tell_ans /= pj j3 /= => /code_inj.
Defined.
Lemma exact_solves : solves exact_stack. Proof. by []. Qed.
End Exact.

Theorem exact0 (m te t0 tw B : nat) (n s sd : nat -> nat) : 0 < m -> 0 < n 1 -> 0 < tw ->
  s 0 = 0 -> s 1 = 0 -> sd 1 = 0 ->
  (exists P : stack 2 m n te t0 tw 1 B s sd, solves P) <-> (m * n 1) ^ m <= 2 ^ B.
Proof.
move=> m0 n0 tw0 s0 s1 r0; split=> [[P sol]|room].
  rewrite leqNgt; apply/negP => lt.
  apply: (@two_sharp m te t0 tw B m.-1 0 n s sd s1 _ _ P sol); rewrite s0 ?r0 prednK //.
    rewrite !add0n !muln1 [n 1 * B]mulnC [n 1 * m]mulnC [2 ^ (_ * n 1)]expnM [_ ^ (m * n 1)]expnM.
    by rewrite ltn_exp2r.
  by rewrite expn0 mul1n mul0n subn0 ltn_exp2r // prednK.
exists (@exact_stack m te t0 tw B n s sd room tw0); exact: exact_solves.
Qed.
