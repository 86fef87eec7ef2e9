(* Two hops with two full layers, blocks 0 and 1 empty (theorem `cells` of a certificate).

   r | m, nu | n_1; s = s_2 plus the bits of mixers beside layer 2; nothing beside layer 1; messages of b bits to the answering token in layer 2 (b = B if
   s = 0, else B tw).  U and v are numbers with 2^v <= N^U, and l is one with 2^l C^U' <= (r V')^U' (the checker takes U = U' = 2^80).
       V' = nu v - s U,   C = nu b U < r V',   theta = B te m r + B tw n_1 + B t0 m,   gap = r V' - C.
   THEOREM (theorem_three).  No stack with two full layers, empty blocks 0 and 1 and local reads solves 2-FuncComp(m, n_1) if
       B tw nu n_1 gap U' < (m n_1 gap - r theta nu U) l.

   PROOF.  1. (structure_three) Entry a of z_1 ranges over cell a mod (m/r) of r values.  T: messages of layer 1 from z_2 to all entries with values in their
      cells, to all w and to all z_0 are constant; N^N <= |T| 2^theta.  On T, what w holds after layer 1 is a function of (w, z_0) and of a class
      c_w(z_1) of B tw bits.
   2. (columns_of) A column is a group of nu values w and a value v of z_1: entropies hh as in TheoremOne.v, (carried) and (deficit).
   3. (one_group) Some group has at most its share of the deficit.
   4. (cells_count, ratio) Weighted count of the tables in the cube, cell by cell, and the inequality of the means instead of the concavity
      of the logarithm: (r V')^E <= 2^(B tw nu gap Q) C^E for a number E >= m gap Q - r (deficit).
   5. Let Q grow (theorem_three).  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model TwoHops TwoHopsLast Entropy TheoremOne Locality.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- step 1 ---------- *)
Section Structure.
Variables (m te t0 tw B r : nat) (n s sd : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Notation inp := (@inp m n). Notation idx := (@idx m n).
Definition cell (a : 'I_m) : {set 'I_m} := [set v : 'I_m | v %/ r == a %% (m %/ r)].
Definition cube : {set {ffun 'I_m -> 'I_m}} := [set z1 : {ffun 'I_m -> 'I_m} | [forall a, z1 a \in cell a]].
Definition frozen_bits : nat := B * te * (m * r) + B * tw * n 1 + B * t0 * m.

Variable P : stack 2 m n te t0 tw 2 B s sd.
Hypothesis sol : solves P.
Hypothesis loc : local_reads P.
Hypotheses (s0 : s 0 = 0) (s1 : s 1 = 0) (d1 : sd 1 = 0) (m0 : 0 < m) (n0 : 0 < n 1) (r0 : 0 < r).
Notation X := (stX P). Notation Msg := (@msg 2 m n te t0 tw 2 B s sd P). Notation Amsg := (@amsg 2 m n te t0 tw 2 B s sd P).
Let w0 : 'I_(n 1) := Ordinal n0. Let i0 : 'I_m := Ordinal m0. Let a0 : Z1 := [ffun _ => i0].

Lemma local_state p u v : same p u v -> X 0 p u = X 0 p v.
Proof. by move=> sm; apply: empty_block => //; apply: embed. Qed.

Lemma structure_three : exists (T : {set Z2}) (c : 'I_(n 1) -> Z1 -> 'I_(2 ^ (B * tw))) (nu : 'I_m -> Z1 -> Z2 -> 'I_(2 ^ s 2) * 'I_(2 ^ sd 2)),
  N ^ N <= #|T| * 2 ^ frozen_bits /\
  forall w z0 y, exists mu : Z2 -> 'I_(2 ^ answer_bits B tw (s 2 + sd 2)), forall z1, z1 \in cube -> c w z1 = y ->
    {in T &, forall z2 z2', mu z2 = mu z2' -> nu z0 z1 z2 = nu z0 z1 z2' -> z2 (idx w (z1 z0)) = z2' (idx w (z1 z0))}.
Proof.
have [rd [rd_pre rd_law]] := loc.
pose es := [seq (a, a %% (m %/ r) * r + i) | a <- iota 0 m, i <- iota 0 r].
have [T1 [_ c1] H1] := @pigeon_seq _ [eqType of nat * nat] (B * te) es (fun p z2 => rd 0 p.1 p.2 3 (inp w0 i0 a0 z2)) [set: Z2].
have [T2 [s12 c2] H2] := @pigeon_seq _ [eqType of 'I_(n 1)] (B * tw) (enum 'I_(n 1))
  (fun w z2 => Msg 1 0 3 (X 0 0 (inp w i0 a0 z2)) (inp w i0 a0 z2)) T1.
have [T [s2T c3] H3] := @pigeon_seq _ [eqType of 'I_m] (B * t0) (enum 'I_m)
  (fun z0 z2 => Msg 1 1 3 (X 0 1 (inp w0 z0 a0 z2)) (inp w0 z0 a0 z2)) T2.
have cT : N ^ N <= #|T| * 2 ^ frozen_bits.
  move: c1 c2 c3; rewrite cardsT card_ffun !card_ord !size_enum_ord size_allpairs !size_iota => c1 c2 c3.
  apply: leq_trans c1 _; apply: leq_trans (leq_mul c2 (leqnn _)) _; apply: leq_trans (leq_mul (leq_mul c3 (leqnn _)) (leqnn _)) _.
  rewrite -!mulnA -!expnD /frozen_bits leq_mul2l leq_exp2l //; apply/orP; right; lia.
have [zT zTT] : exists z, z \in T.
  have N0 : 0 < N by rewrite /= muln_gt0 m0 n0.
  by apply/set0Pn; rewrite -card_gt0; case: #|T| cT => //; rewrite mul0n leqn0 expn_eq0 (gtn_eqF N0).
have p3 z : z \in T -> z \in T1 by move=> /(subsetP s2T) /(subsetP s12).
have side e j u v : e = 1 -> pbrd P e j u = pbrd P e j v by move=> e1; apply: ord_one; rewrite e1.
(* what players 0, 1, 2 hold after layer 1 does not depend on the member of T *)
have XT p w z0 z1 z2 z2' : p < 3 -> z1 \in cube -> z2 \in T -> z2' \in T -> X 1 p (inp w z0 z1 z2) = X 1 p (inp w z0 z1 z2').
  rewrite inE => pl /forallP zc zT1 zT2; apply: empty_block => //.
  apply: (@full _ _ _ _ _ _ _ _ _ _ P 0 p 3) => //; last exact: side.
    by move=> q /andP[_ q3]; apply: local_state; apply: same2.
  case: p pl => [|[|[|p]]] // _.
  - have E z : Msg 1 0 3 (X 0 0 (inp w z0 z1 z)) (inp w z0 z1 z) = Msg 1 0 3 (X 0 0 (inp w i0 a0 z)) (inp w i0 a0 z).
      rewrite (@local_state 0 _ (inp w i0 a0 z)); last by split.
      by apply: msg_pre => //; apply: agree3.
    by rewrite !E; apply: H2; rewrite ?mem_enum ?(subsetP s2T).
  - have E z : Msg 1 1 3 (X 0 1 (inp w z0 z1 z)) (inp w z0 z1 z) = Msg 1 1 3 (X 0 1 (inp w0 z0 a0 z)) (inp w0 z0 a0 z).
      rewrite (@local_state 1 _ (inp w0 z0 a0 z)); last by split.
      by apply: msg_pre => //; apply: agree3.
    by rewrite !E; apply: H3; rewrite ?mem_enum.
  apply: rd_law => [|a am]; first exact: same2.
  rewrite !(rd_pre 0 a _ 3 _ _ (agree3 w z0 z1 w0 i0 a0 _)).
  have -> : tab (inp w z0 z1 z2).2 0 a = z1 (Ordinal am).
    rewrite /tab (insubT (fun i => i < 2) (isT : 0 < 2)) /= ffunE /=.
    case: insubP => [a' _ aE|]; last by rewrite am.
    by congr (nat_of_ord (z1 _)); apply: ord_inj.
  apply: (H1 (a, nat_of_ord (z1 (Ordinal am)))); rewrite ?p3 //.
  apply/allpairsP; exists (a, z1 (Ordinal am) %% r); split; rewrite /= ?mem_iota //=; first by rewrite add0n ltn_pmod.
  have := zc (Ordinal am); rewrite inE /= => /eqP <-.
  by rewrite -divn_eq.
pose c w z1 := Msg 1 0 2 (X 0 0 (inp w i0 z1 zT)) (inp w i0 z1 zT).
have Xc w z0 z1 z1' : c w z1 = c w z1' -> X 1 0 (inp w z0 z1 zT) = X 1 0 (inp w z0 z1' zT).
  move=> e; apply: empty_block => //; apply: (@full _ _ _ _ _ _ _ _ _ _ P 0 0 2) => //; last exact: side.
    by move=> q /andP[_ q2]; apply: local_state; apply: same1.
  have E z : Msg 1 0 2 (X 0 0 (inp w z0 z zT)) (inp w z0 z zT) = c w z.
    rewrite (@local_state 0 _ (inp w i0 z zT)); last by split.
    by apply: msg_pre => //; apply: agree2.
  by rewrite !E.
exists T, c, (fun z0 z1 z2 => (brd P 2 1 (inp w0 z0 z1 z2), pbrd P 2 3 (inp w0 i0 a0 z2))); split=> // w z0 y.
pose a := odflt a0 [pick z1 : Z1 | (z1 \in cube) && (c w z1 == y)].
have ok z1 : z1 \in cube -> c w z1 = y -> a \in cube /\ c w a = y.
  by move=> zc cz; rewrite /a; case: pickP => [a' /andP[ac /eqP]|/(_ z1)] //; rewrite zc cz eqxx.
have X1 z1 z : z1 \in cube -> c w z1 = y -> z \in T -> X 1 0 (inp w z0 z1 z) = X 1 0 (inp w z0 a zT).
  by move=> zc cz zz; have [ac ca] := ok z1 zc cz; rewrite (XT 0 w z0 z1 z zT) //; apply: Xc; rewrite cz.
have pb z1 z2 z2' : pbrd P 2 3 (inp w0 i0 a0 z2) = pbrd P 2 3 (inp w0 i0 a0 z2') -> pbrd P 2 3 (inp w z0 z1 z2) = pbrd P 2 3 (inp w z0 z1 z2').
  move=> E; rewrite (pbrd_pre P (leqnn 2) (agree3 w z0 z1 w0 i0 a0 z2)) E.
  by apply: pbrd_pre => //; apply: agree3.
rewrite /answer_bits; case: eqP => [/eqP|_].
  rewrite addn_eq0 => /andP[/eqP s20 _].
  exists (fun z2 => Amsg 2 3 (X 1 0 (inp w z0 a zT)) (inp w z0 a z2)) => z1 zc cz z2 z2' zT1 zT2 Em [_ Ep].
  apply: ord_inj; rewrite -!answerE -!sol; congr (out _).
  apply: block_ans => //; apply: (@full_ans _ _ _ _ _ _ _ _ _ _ P 1 3) => //; last exact: pb.
    by move=> q q3; apply: XT.
  have E z : z \in T -> Amsg 2 3 (X 1 0 (inp w z0 z1 z)) (inp w z0 z1 z) = Amsg 2 3 (X 1 0 (inp w z0 a zT)) (inp w z0 a z).
    by move=> zz; rewrite (X1 z1 z) //; apply: amsg_pre => //; apply: agree3.
  by rewrite !E.
exists (fun z2 => Msg 2 0 3 (X 1 0 (inp w z0 a zT)) (inp w z0 a z2)) => z1 zc cz z2 z2' zT1 zT2 Em [Eb Ep].
apply: ord_inj; rewrite -!answerE -!sol; congr (out _); congr ans.
apply: (@block _ _ _ _ _ _ _ _ _ _ P 2 0 1) => //; last first.
  rewrite (brd_pre P (leqnn 2) (agree1 w w0 z0 z1 z2)) Eb.
  by apply: brd_pre => //; apply: agree1.
move=> q; rewrite leq0n ltnS leqn0 => /eqP -> {q}.
apply: (@full _ _ _ _ _ _ _ _ _ _ P 1 0 3) => //; last exact: pb.
  by move=> q /andP[_ q3]; apply: XT.
have E z : z \in T -> Msg 2 0 3 (X 1 0 (inp w z0 z1 z)) (inp w z0 z1 z) = Msg 2 0 3 (X 1 0 (inp w z0 a zT)) (inp w z0 a z).
  by move=> zz; rewrite (X1 z1 z) //; apply: msg_pre => //; apply: agree3.
by rewrite !E.
Qed.
End Structure.

(* ---------- step 2: columns with any index ---------- *)
Lemma columns_of (A V W J : finType) (T : {set {ffun A -> V}}) (at_ : W -> J -> A) (D : nat) :
  (forall w i w' i', at_ w i = at_ w' i' -> (w, i) = (w', i')) -> (forall a, exists w i, a = at_ w i) -> 0 < #|T| ->
  exists hh : J -> nat,
    (forall (K : {set J}) d, #|T| ^ #|T| <= (2 ^ d) ^ #|T| * fprod T (col at_ K) -> \sum_(i in K) hh i <= D * d) /\
    (forall s (I : {set J}), #|V| ^ (#|W| * #|J|) <= #|T| * 2 ^ s -> #|V| ^ (#|W| * #|I| * D) <= 2 ^ (s * D + \sum_(i in I) (hh i).+1)).
Proof.
move=> inj sur T0; pose num w (i : 'I_#|J|) := at_ w (enum_val i).
have inj' w i w' i' : num w i = num w' i' -> (w, i) = (w', i').
  by move=> /inj [-> /enum_val_inj ->].
have sur' a : exists w i, a = num w i.
  by have [w [i ->]] := sur a; exists w, (enum_rank i); rewrite /num enum_rankK.
have [hh hhP] := @rounded _ _ T _ _ num T0 D.
have sums (K : {set J}) (f : nat -> nat) : \sum_(i in K) f (hh (enum_rank i)) = \sum_(i in [set enum_rank j | j in K]) f (hh i).
  by rewrite big_imset //= => i j _ _ /enum_rank_inj.
exists (fun i => hh (enum_rank i)); split=> [K d|s I] H.
  rewrite (sums K id); apply: (carried T0 hhP).
  have -> // : col num [set enum_rank j | j in K] = col at_ K.
  apply/setP => a; apply/colP/colP => [[w [i [/imsetP[j jK ->] ->]]]|[w [j [jK ->]]]].
    by exists w, j; rewrite /num enum_rankK.
  by exists w, (enum_rank j); rewrite /num enum_rankK imset_f.
have := @deficit _ _ T _ _ num inj' sur' T0 D hh hhP s [set enum_rank j | j in I] H.
by rewrite -(sums I (fun k => k.+1)) card_imset //; apply: enum_rank_inj.
Qed.

(* ---------- step 3 ---------- *)
Lemma one_group (I J : finType) (d : I * J -> nat) (t : nat) (i0 : I) : \sum_p d p <= t -> exists i, #|I| * (\sum_j d (i, j)) <= t.
Proof.
move=> le; case: (@arg_minnP I i0 predT (fun i => \sum_j d (i, j))) => // i _ least; exists i.
apply: leq_trans le; rewrite -sum_nat_const.
rewrite (eq_bigr (fun p => d (p.1, p.2))) -?(pair_big predT predT (fun i j => d (i, j))) /=; last by case.
by apply: leq_sum => k _; apply: least.
Qed.

(* ---------- step 4: counting tables whose entries range over cells ---------- *)
Lemma cells_count (I M : finType) (c : {ffun I -> I} -> M) (cells : I -> {set I}) (g : I -> I -> nat) (w : I -> nat) :
  (forall y i, \sum_(j in [set z1 i | z1 : {ffun I -> I} in [set z1 : {ffun I -> I} | [forall a, z1 a \in cells a] && (c z1 == y)]]) g i j <= w i) ->
  \prod_i (\sum_(j in cells i) g i j) <= #|M| * \prod_i w i.
Proof.
move=> few; rewrite (bigA_distr_big_dep (fun i j => j \in cells i) g) /=.
rewrite (partition_big c predT) //= -sum_nat_const; apply: leq_sum => y _.
pose K i := [set z1 i | z1 : {ffun I -> I} in [set z1 : {ffun I -> I} | [forall a, z1 a \in cells a] && (c z1 == y)]].
apply: (@leq_trans (\prod_i \sum_(j in K i) g i j)); last by apply: leq_prod => i _; apply: few.
rewrite (bigA_distr_big_dep (fun i j => j \in K i) g) /=.
rewrite [X in X <= _]big_mkcond [X in _ <= X]big_mkcond /=; apply: leq_sum => z1 _.
case: andP => // -[/familyP zc /eqP cz]; rewrite ifT //; apply/familyP => i.
by apply: imset_f; rewrite inE cz eqxx andbT; apply/forallP.
Qed.

(* the inequality of the means for V - A numbers C and A - C numbers V *)
Lemma concave (C V A : nat) : C <= A <= V -> C ^ (V - C) * V ^ (A - C) <= A ^ (V - C) * C ^ (A - C).
Proof.
case/andP => CA AV; case: (posnP (V - C)) => [V0|V0].
  by (have -> : A - C = 0 by lia); rewrite V0.
have -> : C ^ (V - C) = C ^ (V - A) * C ^ (A - C) by rewrite -expnD; congr (_ ^ _); lia.
rewrite mulnAC leq_mul2r; apply/orP; right.
have := @nat_AGM [finType of 'I_(V - A) + 'I_(A - C)] (fun i => if i is inl _ then C else V).
rewrite card_sum !card_ord !big_sumType /= !prod_nat_const !sum_nat_const !card_ord.
have -> : V - A + (A - C) = V - C by lia.
have -> : (V - A) * C + (A - C) * V = (V - C) * A by nia.
by rewrite expnMn leq_pmul2l // expn_gt0 V0.
Qed.

(* from the count over cells: cells with more than C of weight against those with less *)
Lemma ratio (I M : finType) (c : {ffun I -> I} -> M) (cells : I -> {set I}) (g : I -> nat) (C V : nat) :
  0 < C -> (forall i, 0 < #|cells i|) -> (forall i, \sum_(j in cells i) g j <= V) ->
  (forall y i, \sum_(j in [set z1 i | z1 : {ffun I -> I} in [set z1 : {ffun I -> I} | [forall a, z1 a \in cells a] && (c z1 == y)]]) g j <= C) ->
  forall E, E = \sum_i (\sum_(j in cells i) g j - C) -> V ^ E <= #|M| ^ (V - C) * C ^ E.
Proof.
move=> C0 cell0 top few E EE; pose A i := \sum_(j in cells i) g j.
pose g' i j := if C < A i then g j else 1.
pose w i := if C < A i then C else #|cells i|.
have w0 : 0 < \prod_i w i by apply: prodn_gt0 => i; rewrite /w; case: ifP.
have cnt : \prod_i (\sum_(j in cells i) g' i j) <= #|M| * \prod_i w i.
  apply: (cells_count (c := c)) => y i; rewrite /g' /w; case: ifP => _; first exact: few.
  rewrite sum1_card; apply: subset_leq_card; apply/subsetP => _ /imsetP[z1 + ->].
  by rewrite inE => /andP[/forallP zc _].
have each i : w i ^ (V - C) * V ^ (A i - C) <= (\sum_(j in cells i) g' i j) ^ (V - C) * C ^ (A i - C).
  rewrite /w /g'; case: ltnP => [CA|AC]; first by apply: concave; rewrite (ltnW CA) top.
  by rewrite sum1_card (eqP AC) !muln1.
have pw (f : I -> nat) k : (\prod_i f i) ^ k = \prod_i f i ^ k by rewrite (big_morph (fun x => x ^ k) (fun a b => expnMn a b k) (exp1n k)).
have : (\prod_i w i) ^ (V - C) * V ^ E <= (\prod_i \sum_(j in cells i) g' i j) ^ (V - C) * C ^ E.
  rewrite EE !expn_sum !pw -!big_split /=; apply: leq_prod => i _; exact: each.
move=> /leq_trans /(_ (leq_mul (leq_expn (V - C) cnt) (leqnn _))).
by rewrite expnMn -mulnA mulnCA leq_pmul2l // expn_gt0 w0.
Qed.

Lemma card_block m r c : r %| m -> 0 < r -> c < m %/ r -> #|[set v : 'I_m | v %/ r == c]| = r.
Proof.
move=> rm r0 cm; have lt (j : 'I_r) : c * r + j < m.
  apply: (@leq_trans (c.+1 * r)); first by rewrite mulSn [r + _]addnC ltn_add2l.
  by rewrite -[X in _ <= X](divnK rm) leq_mul2r cm orbT.
pose f (j : 'I_r) : 'I_m := Ordinal (lt j).
have finj : injective f by move=> p q /(congr1 (@nat_of_ord _)) /= /addnI /ord_inj.
rewrite -[RHS]card_ord -(card_imset _ finj); apply: eq_card => y; rewrite !inE.
apply/eqP/imsetP => [yc|[j _ ->]]; last by rewrite /= divnMDl // divn_small ?addn0.
by exists (Ordinal (ltn_pmod y r0)) => //; apply: ord_inj; rewrite /= {1}(divn_eq y r) yc.
Qed.
Lemma card_rest m q c : q %| m -> c < q -> #|[set a : 'I_m | a %% q == c]| = m %/ q.
Proof.
move=> qm cq; have lt (j : 'I_(m %/ q)) : j * q + c < m.
  apply: (@leq_trans (j.+1 * q)); first by rewrite mulSn addnC ltn_add2r.
  by rewrite -[X in _ <= X](divnK qm) leq_mul2r ltn_ord orbT.
have q0 : 0 < q by apply: leq_ltn_trans cq.
pose f (j : 'I_(m %/ q)) : 'I_m := Ordinal (lt j).
have finj : injective f.
  by move=> p p' /(congr1 (@nat_of_ord _)) /= /addIn /eqP; rewrite eqn_mul2r (gtn_eqF q0) => /eqP/ord_inj.
rewrite -[RHS]card_ord -(card_imset _ finj); apply: eq_card => y; rewrite !inE.
apply/eqP/imsetP => [yc|[j _ ->]]; last by rewrite /= modnMDl modn_small.
have jl : y %/ q < m %/ q by rewrite ltn_divRL // ; apply: leq_ltn_trans (leq_trunc_div y q) (ltn_ord y).
by exists (Ordinal jl) => //; apply: ord_inj; rewrite /= {1}(divn_eq y q) yc.
Qed.

Lemma low_arith (nu g m Q gap E r t : nat) : g * (m * (Q * gap)) <= g * E + r * (Q * t + g * m) ->
  Q * (m * (g * nu) * gap) <= g * nu * E + r * nu * (Q * t) + r * (g * nu) * m.
Proof.
move=> /(leq_mul (leqnn nu)).
have -> : nu * (g * (m * (Q * gap))) = Q * (m * (g * nu) * gap) by lia.
have -> // : nu * (g * E + r * (Q * t + g * m)) = g * nu * E + r * nu * (Q * t) + r * (g * nu) * m by lia.
Qed.
Lemma fin_arith (n1 E l b Q gap U : nat) : l * E <= b * (Q * gap) * U -> n1 * E * l <= Q * (b * n1 * gap * U).
Proof.
move=> /(leq_mul (leqnn n1)).
have -> : n1 * (l * E) = n1 * E * l by lia.
have -> // : n1 * (b * (Q * gap) * U) = Q * (b * n1 * gap * U) by lia.
Qed.

Section Conditions.
Variables (m n1 r nu b b' s th v U : nat) (n : nat -> nat).
Hypothesis nE : n 1 = n1.
Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Variables (T : {set Z2}) (M : finType).
Hypotheses (m0 : 0 < m) (n0 : 0 < n1) (r0 : 0 < r) (rm : r %| m) (nu0 : 0 < nu) (nn : nu %| n1).
Let G := n1 %/ nu.
(* the class of a table for each group of queries *)
Variable c : 'I_G -> {ffun 'I_m -> 'I_m} -> M.
Lemma row_proof (g : 'I_G) (w : 'I_nu) : g * nu + w < n 1.
Proof.
rewrite nE -(divnK nn); apply: (@leq_trans (g.+1 * nu)); first by rewrite mulSn addnC ltn_add2r.
by rewrite leq_mul2r ltn_ord orbT.
Qed.
Definition at_ (w : 'I_nu) (p : 'I_G * 'I_m) : 'I_N := @idx m n (Ordinal (row_proof p.1 w)) p.2.
Definition reached3 g y z0 : {set 'I_m} :=
  [set z1 z0 | z1 : {ffun 'I_m -> 'I_m} in [set z1 : {ffun 'I_m -> 'I_m} | [forall a, z1 a \in cell r a] && (c g z1 == y)]].
Hypothesis dens : N ^ N <= #|T| * 2 ^ th.
Hypothesis det : forall g y z0 (K : {set 'I_m}), K \subset reached3 g y z0 ->
  #|T| ^ #|T| <= (2 ^ (nu * b + #|K| * s)) ^ #|T| * fprod T (col at_ [set (g, v) | v in K]).
Hypothesis cM : #|M| = 2 ^ b'.
Hypothesis vU : 2 ^ v <= N ^ U.
Definition V3 := nu * v - s * U.
Definition C3 := nu * b * U.
Hypotheses (C0 : 0 < C3) (CV : C3 < r * V3).

Lemma at_inj w p w' p' : at_ w p = at_ w' p' -> (w, p) = (w', p').
Proof.
case: p p' => [g i] [g' i'] /idx_inj [/= E ->].
have Eg : g = g' by apply: ord_inj; have := congr1 (divn^~ nu) E; rewrite !divnMDl // !divn_small // !addn0.
by rewrite Eg in E *; congr (_, _); apply: ord_inj; apply: (addnI E).
Qed.
Lemma at_sur a : exists w p, a = at_ w p.
Proof.
have [w [i ->]] := idx_sur a; have gl : w %/ nu < G by rewrite /G ltn_divRL // (leq_ltn_trans (leq_trunc_div w nu)) // -nE.
exists (Ordinal (ltn_pmod w nu0)), (Ordinal gl, i); congr idx; apply: ord_inj.
by rewrite /= -divn_eq.
Qed.

Lemma cell_card (a : 'I_m) : #|cell r a| = r.
Proof.
have q0 : 0 < m %/ r by rewrite divn_gt0 // dvdn_leq.
by apply: card_block => //; apply: ltn_pmod.
Qed.
Lemma cell_sum (d : 'I_m -> nat) : \sum_(a : 'I_m) \sum_(j in cell r a) d j = r * \sum_j d j.
Proof.
have q0 : 0 < m %/ r by rewrite divn_gt0 // dvdn_leq.
rewrite (exchange_big_dep predT) //= big_distrr /=; apply: eq_bigr => j _.
rewrite sum_nat_const; congr (_ * _).
have jq : j %/ r < m %/ r by rewrite ltn_divRL // (leq_ltn_trans (leq_trunc_div j r)).
have qm : m %/ r %| m by rewrite -{2}(divnK rm) dvdn_mulr.
have mq : m %/ (m %/ r) = r by rewrite -{1}(divnK rm) mulKn.
rewrite -[RHS]mq -(card_rest qm jq); apply: eq_card => a; rewrite [RHS]inE.
by transitivity (j \in cell r a); last by rewrite inE eq_sym.
Qed.

(* (r V')^E <= 2^(b' gap Q) C^E *)
Lemma scaled_three Q : 0 < Q -> exists E,
  (Q * (r * V3)) ^ E <= (2 ^ b') ^ (Q * (r * V3 - C3)) * (Q * C3) ^ E /\ G * (m * (Q * (r * V3 - C3))) <= G * E + r * (Q * (th * U) + G * m).
Proof.
move=> Q0; have T0 : 0 < #|T|.
  by rewrite lt0n; apply/eqP => E; move: dens; rewrite E mul0n leqn0 expn_eq0 /= muln_eq0 (gtn_eqF m0) nE (gtn_eqF n0).
have [hh [carr def]] := @columns_of _ _ _ _ T at_ (Q * U) at_inj at_sur T0.
have G0 : 0 < G by rewrite divn_gt0 // dvdn_leq.
have cJ : #|[finType of 'I_G * 'I_m]| = G * m by rewrite card_prod !card_ord.
have dens' : #|'I_N| ^ (#|'I_nu| * #|[finType of 'I_G * 'I_m]|) <= #|T| * 2 ^ th.
  rewrite cJ !card_ord; have -> : nu * (G * m) = N by rewrite /= nE mulnA [nu * G]mulnC divnK // mulnC.
  exact: dens.
have {}def (I : {set 'I_G * 'I_m}) : nu * v * Q * #|I| <= Q * (th * U) + \sum_(i in I) hh i + #|I|.
  have := def th I dens'; rewrite !card_ord => de.
  have : 2 ^ (v * (nu * #|I| * Q)) <= 2 ^ (th * (Q * U) + \sum_(i in I) (hh i).+1).
    apply: leq_trans de; rewrite [2 ^ (v * _)]expnM; apply: leq_trans (leq_expn _ vU) _.
    rewrite -expnM; apply: eq_leq; congr (_ ^ _); lia.
  rewrite leq_exp2l // (eq_bigr (fun i => hh i + 1)); last by move=> i _; rewrite addn1.
  rewrite big_split /= sum1_card; move: #|I| (\sum_(i in I) hh i) => a h; clear; nia.
pose d p := nu * v * Q - hh p.
have lost : \sum_p d p <= Q * (th * U) + G * m.
  pose I := [set p : 'I_G * 'I_m | hh p < nu * v * Q].
  have -> : \sum_p d p = \sum_(p in I) d p.
    rewrite [RHS]big_mkcond /=; apply: eq_bigr => p _; rewrite inE.
    by case: leqP => // le; apply/eqP; rewrite subn_eq0.
  have E : \sum_(p in I) d p + \sum_(p in I) hh p = #|I| * (nu * v * Q).
    rewrite -sum_nat_const -big_split /=; apply: eq_bigr => p; rewrite inE => /ltnW le.
    by rewrite subnK.
  have Im : #|I| <= G * m by rewrite -cJ max_card.
  have := def I; rewrite [_ * #|I|]mulnC -E addnAC leq_add2r => /leq_trans; apply.
  by rewrite leq_add2l.
have [g share] := one_group (Ordinal G0) lost; rewrite card_ord in share.
pose wt j := minn (hh (g, j)) (nu * v * Q) - Q * (U * s).
have vs : s * U <= nu * v by rewrite leqNgt; apply/negP => lt; move: CV; rewrite /V3; (have -> : nu * v - s * U = 0 by lia); rewrite muln0.
have VQ : nu * v * Q = Q * V3 + Q * (U * s) by rewrite /V3 -mulnDr [U * s]mulnC subnK // mulnC.
have wV j : wt j <= Q * V3 by rewrite leq_subLR addnC -VQ geq_minr.
have wd j : Q * V3 <= wt j + d (g, j) by rewrite /wt /d VQ; lia.
have few y i : \sum_(j in [set z1 i | z1 : {ffun 'I_m -> 'I_m} in [set z1 : {ffun 'I_m -> 'I_m} | [forall a, z1 a \in cell r a] && (c g z1 == y)]]) wt j <= Q * C3.
  rewrite -/(reached3 g y i); pose K := [set j in reached3 g y i | Q * (U * s) < hh (g, j)].
  have sK : K \subset reached3 g y i by apply/subsetP => j; rewrite inE => /andP[].
  apply: (@leq_trans (\sum_(j in K) (hh (g, j) - Q * (U * s)))).
    rewrite big_mkcond [X in _ <= X]big_mkcond /=; apply: leq_sum => j _; rewrite inE.
    case: (j \in reached3 g y i) => //=; case: ltnP => [_|le]; first by apply: leq_sub2r; apply: geq_minl.
    by rewrite /wt leqn0 subn_eq0; apply: leq_trans (geq_minl _ _) le.
  have inj : {in K &, injective (fun j : 'I_m => (g, j))} by move=> j j' _ _ [].
  have := carr [set (g, j) | j in K] _ (det sK); rewrite big_imset //=.
  have -> : \sum_(j in K) hh (g, j) = \sum_(j in K) (hh (g, j) - Q * (U * s)) + #|K| * (Q * (U * s)).
    rewrite -sum_nat_const -big_split /=; apply: eq_bigr => j; rewrite inE => /andP[_ /ltnW le].
    by rewrite subnK.
  rewrite mulnDr; have -> : Q * U * (#|K| * s) = #|K| * (Q * (U * s)) by lia.
  rewrite leq_add2r => /leq_trans; apply; rewrite /C3; apply: eq_leq; lia.
pose E := \sum_(i : 'I_m) (\sum_(j in cell r i) wt j - Q * C3).
exists E; split.
  have := @ratio _ M (c g) (cell r) wt (Q * C3) (Q * (r * V3)) _ _ _ few E (erefl _); rewrite -mulnBr cM; apply.
  - by rewrite muln_gt0 Q0 C0.
  - by move=> i; rewrite cell_card.
  - move=> i; apply: (@leq_trans (\sum_(j in cell r i) Q * V3)); first by apply: leq_sum => j _.
    by rewrite sum_nat_const cell_card mulnCA.
have each i : Q * (r * V3 - C3) <= (\sum_(j in cell r i) wt j - Q * C3) + \sum_(j in cell r i) d (g, j).
  have : Q * (r * V3) <= \sum_(j in cell r i) wt j + \sum_(j in cell r i) d (g, j).
    rewrite -big_split /=; apply: (@leq_trans (\sum_(j in cell r i) Q * V3)); last by apply: leq_sum => j _; apply: wd.
    by rewrite sum_nat_const cell_card mulnCA.
  rewrite mulnBr; lia.
have : m * (Q * (r * V3 - C3)) <= E + r * \sum_j d (g, j).
  rewrite -cell_sum -big_split /= -[m in m * _]card_ord -sum_nat_const; apply: leq_sum => i _; exact: each.
move=> le; apply: leq_trans (leq_mul (leqnn G) le) _; rewrite mulnDr leq_add2l mulnCA leq_mul2l share orbT //.
Qed.

(* step 5 *)
Lemma impossible_three (l U' : nat) : 2 ^ l * C3 ^ U' <= (r * V3) ^ U' ->
  b' * n1 * (r * V3 - C3) * U' < (m * n1 * (r * V3 - C3) - r * th * nu * U) * l -> False.
Proof.
move=> ld; set gap := r * V3 - C3 => cond.
pose Q := (r * n1 * m * l).+1; have [E [up low]] := scaled_three (isT : 0 < Q).
have Q0 : 0 < Q ^ E by rewrite expn_gt0.
have {}up : (r * V3) ^ E <= 2 ^ (b' * (Q * gap)) * C3 ^ E.
  by move: up; rewrite (expnMn Q (r * V3)) (expnMn Q C3) mulnCA leq_pmul2l // -expnM.
have le : l * E <= b' * (Q * gap) * U'.
  have CE : 0 < C3 ^ (U' * E) by rewrite expn_gt0 C0.
  rewrite -(leq_exp2l _ _ (isT : 1 < 2)) -(leq_pmul2r CE).
  apply: (@leq_trans ((r * V3) ^ (U' * E))).
    by have := leq_expn E ld; rewrite (expnMn (2 ^ l)) -(expnM 2) -(expnM C3) -(expnM (r * V3)).
  by have := leq_expn U' up; rewrite (expnMn (2 ^ _)) -(expnM 2) -(expnM C3) -(expnM (r * V3)) [E * U']mulnC.
have GE : n1 = G * nu by rewrite divnK.
have lown : Q * (m * n1 * gap) <= n1 * E + r * nu * (Q * (th * U)) + r * n1 * m.
  by rewrite GE; apply: low_arith.
have step : Q * (m * n1 * gap - r * th * nu * U) <= n1 * E + r * n1 * m.
  rewrite mulnBr leq_subLR; apply: leq_trans lown _; apply: eq_leq; lia.
have fin : Q * ((m * n1 * gap - r * th * nu * U) * l) <= Q * (b' * n1 * gap * U') + r * n1 * m * l.
  rewrite mulnA; apply: leq_trans (leq_mul step (leqnn l)) _; rewrite mulnDl leq_add2r.
  exact: fin_arith le.
have : Q * (b' * n1 * gap * U').+1 <= Q * (b' * n1 * gap * U') + r * n1 * m * l.
  by apply: leq_trans fin; rewrite leq_mul2l cond orbT.
rewrite mulnS addnC leq_add2l /Q ltnn //.
Qed.
End Conditions.

(* ---------- the theorem ---------- *)
Theorem theorem_three (m te t0 tw B r nu v U l U' : nat) (n s sd : nat -> nat) (b := answer_bits B tw (s 2 + sd 2)) :
  0 < m -> 0 < n 1 -> 0 < r -> r %| m -> 0 < nu -> nu %| n 1 -> s 0 = 0 -> s 1 = 0 -> sd 1 = 0 -> 2 ^ v <= (m * n 1) ^ U ->
  0 < C3 nu b U < r * V3 nu (s 2 + sd 2) v U ->
  2 ^ l * C3 nu b U ^ U' <= (r * V3 nu (s 2 + sd 2) v U) ^ U' ->
  B * tw * nu * n 1 * (r * V3 nu (s 2 + sd 2) v U - C3 nu b U) * U' <
    (m * n 1 * (r * V3 nu (s 2 + sd 2) v U - C3 nu b U) - r * frozen_bits m te t0 tw B r n * nu * U) * l ->
  forall P : stack 2 m n te t0 tw 2 B s sd, local_reads P -> ~ solves P.
Proof.
move=> m0 n0 r0 rm nu0 nn s0 s1 d1 vU /andP[C0 CV] ld cond P loc sol.
have [T [c [bd [cT H]]]] := structure_three sol loc s0 s1 d1 m0 n0 r0.
pose row g w := Ordinal (@row_proof (n 1) nu n (erefl _) nn g w).
pose cg g (z1 : {ffun 'I_m -> 'I_m}) : {ffun 'I_nu -> 'I_(2 ^ (B * tw))} := [ffun w => c (row g w) z1].
have cM : #|[finType of {ffun 'I_nu -> 'I_(2 ^ (B * tw))}]| = 2 ^ (B * tw * nu) by rewrite card_ffun !card_ord -expnM.
apply: (@impossible_three m (n 1) r nu b (B * tw * nu) (s 2 + sd 2) (frozen_bits m te t0 tw B r n) v U n (erefl _) T _
  m0 n0 r0 rm nu0 nn cg cT _ cM vU C0 CV l U' ld cond) => g y z0 K sK.
have [mu Hmu] := @fin_all_exists _ (fun _ : 'I_nu => Table m n 1 -> 'I_(2 ^ b)) _ (fun w => H (row g w) z0 (y w)).
pose z (j : 'I_m) : {ffun 'I_m -> 'I_m} :=
  odflt [ffun _ => Ordinal m0] [pick z1 : {ffun 'I_m -> 'I_m} | [&& z1 \in cube m r, cg g z1 == y & z1 z0 == j]].
have zP j : j \in K -> [/\ z j \in cube m r, cg g (z j) = y & z j z0 = j].
  move=> /(subsetP sK)/imsetP[z1]; rewrite inE => /andP[zc /eqP cz] zi; rewrite /z; case: pickP => [z' /and3P[? /eqP ? /eqP ?] //|/(_ z1)].
  by rewrite inE zc cz zi !eqxx.
pose f z2 : {ffun 'I_nu -> 'I_(2 ^ b)} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 2) * 'I_(2 ^ sd 2)} :=
  ([ffun w => mu w z2], [ffun j => bd z0 (z (val j)) z2]).
have cF : #|[finType of {ffun 'I_nu -> 'I_(2 ^ b)} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 2) * 'I_(2 ^ sd 2)}]| =
          2 ^ (nu * b + #|K| * (s 2 + sd 2)).
  rewrite card_prod !card_ffun card_prod !card_ord card_sig -!expnD -!expnM -expnD.
  have -> : #|[pred j | j \in K]| = #|K| by apply: eq_card.
  by rewrite [b * _]mulnC [_ * #|K|]mulnC.
rewrite -cF; apply: (@fprod_message _ _ T _ _ f) => z2 z2' zT zT' [/ffunP e1 /ffunP e2] a /colP[w [p [/imsetP[j jK ->] ->]]].
have [zc cz zj] := zP j jK; rewrite /at_ /= -[j in idx _ j]zj.
apply: (Hmu w (z j) zc _ z2 z2') => //.
- by rewrite -cz ffunE.
- by have := e1 w; rewrite !ffunE.
- by have := e2 (exist _ j jK); rewrite !ffunE.
Qed.
