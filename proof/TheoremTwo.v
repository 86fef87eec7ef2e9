(* Theorem 2 for two hops and one full layer, all tables varying (theorem `product` with hops 2, case 1, varying = m, live = n).

   Notation as in TwoHops.v.  x_0 <= m start values in groups, lists of x_1 first tables, k classes (k | x_0, k | n_1), sigma = t + 1 pairs, g = floor(m / x_0)
   groups, M = k m, T = x_1 x_0; P = s_0 (+ r beside the layer), |Q| = x_0 n_1 / k.
   THEOREM (theorem_two).  No stack with one full layer solves 2-FuncComp(m, n_1) if
       (tail)   2^(x_1 P) (C(M, t) t^T)^g < (M^T)^g
       (final)  2^(P + B tw |Q| + rest j) < N^((n_1 / k) (t + 1))   for a cut j, where
                rest 1 = s_1 x_0 x_1,  rest 2 = s_1 x_1 + B t0 x_0,  rest 3 = s_1 + B t0 x_0 + B te m x_1.

   PROOF.  1. (structure_last) z_2 in T, and the fibres c of the first tables; let S_1 be the largest fibre: m^m <= |S_1| 2^(s_0).
   2. (good_list) Some group of x_0 start values has x_1 members of S_1 that show more than t (class, value) pairs on it: if all x_1-tuples were bad in every
      group, the restrictions of S_1 to each group, and so S_1 itself, would be too few.  No entropy: only projections.
   3. Messages and borders of P + B tw |Q| + rest j bits in all determine z_2 on (n_1 / k)(t + 1) arguments.  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model TwoHops TwoHopsLast.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- step 2 ---------- *)
Lemma digits_lt (a k j c : nat) : j < a -> c < k -> j * k + c < a * k.
Proof. by move=> ja ck; apply: (@leq_trans (j.+1 * k)); [rewrite mulSn addnC ltn_add2r|rewrite leq_mul2r ja orbT]. Qed.

Section List.
Variables (m x0 X k t P : nat).
Notation Z1 := {ffun 'I_m -> 'I_m}.
Variable S : {set Z1}.
Hypotheses (m0 : 0 < m) (k0 : 0 < k) (x00 : 0 < x0) (kx : k %| x0) (tM : t <= k * m) (X0 : 0 < X).
Hypothesis dens : m ^ m <= #|S| * 2 ^ P.
Let g := m %/ x0.
Hypothesis tail : 2 ^ (X * P) * ('C(k * m, t) * t ^ (X * x0)) ^ g < ((k * m) ^ (X * x0)) ^ g.

Definition group (i : nat) : {set 'I_m} := [set z : 'I_m | z %/ x0 == i].
Definition cls (z : 'I_m) : 'I_k := Ordinal (ltn_pmod z k0).
Notation hits i Z := (@hit [finType of Z1] m k (fun z u => z u) (group i) cls X Z).

Lemma bal_group i c : i < g -> #|[set u in group i | cls u == c]| = x0 %/ k.
Proof.
move=> ig; set a := x0 %/ k.
have xa : x0 = a * k by rewrite /a divnK.
have im : i.+1 * x0 <= m by apply: leq_trans (leq_trunc_div m x0); rewrite leq_mul2r ig orbT.
have lt (j : 'I_a) : i * x0 + (j * k + c) < m.
  by apply: leq_trans im; rewrite mulSn [x0 + _]addnC ltn_add2l [X in _ < X]xa; apply: digits_lt.
pose f (j : 'I_a) : 'I_m := Ordinal (lt j).
have finj : injective f.
  move=> p q /(congr1 (@nat_of_ord _)) /= /eqP; rewrite eqn_add2l eqn_add2r eqn_mul2r (gtn_eqF k0) => /eqP/ord_inj //.
rewrite -[RHS]card_ord -(card_imset _ finj); apply: eq_card => y; rewrite !inE.
have small (j : 'I_a) : j * k + c < x0 by rewrite [X in _ < X]xa; apply: digits_lt.
apply/andP/imsetP => [[/eqP yi /eqP yc]|[j _ ->]].
  have rx : y %% x0 < x0 by apply: ltn_pmod.
  have ja : y %% x0 %/ k < a by rewrite ltn_divLR // -xa.
  have ck : y %% x0 %% k = c by rewrite modn_dvdm // -yc.
  by exists (Ordinal ja) => //; apply: ord_inj; rewrite /= {1}(divn_eq y x0) yi {1}(divn_eq (y %% x0) k) ck.
split; first by rewrite /= divnMDl // divn_small ?addn0 ?eqxx.
by apply/eqP; apply: ord_inj; rewrite /= -(modn_dvdm _ kx) modnMDl (modn_small (small j)) modnMDl modn_small.
Qed.

Lemma card_group i : i < g -> #|group i| = x0.
Proof. by move=> ig; rewrite (cardU (fun c => bal_group c ig)) mulnC divnK. Qed.

Lemma unif1 (V : 'I_m -> {set 'I_m}) : #|[set z : Z1 | [forall u, z u \in V u]]| * m ^ m = #|[finType of Z1]| * \prod_u #|V u|.
Proof.
rewrite card_ffun !card_ord mulnC; congr (_ * _).
rewrite (eq_card (B := family V)); last by move=> z; rewrite inE; apply/forallP/familyP.
by rewrite card_family foldrE big_map big_enum.
Qed.

(* tables with the restriction to U of z *)
Lemma card_same (U : {set 'I_m}) (z : Z1) : #|[set z' : Z1 | pr U z' == pr U z]| = m ^ (m - #|U|).
Proof.
pose V u := if u \in U then [set z u] else setT.
have -> : [set z' : Z1 | pr U z' == pr U z] = [set z' : Z1 | [forall u, z' u \in V u]].
  apply/setP => z'; rewrite !inE; apply/eqP/forallP => [/prP H u|H].
    by rewrite /V; case: ifP => uU; rewrite inE // H.
  by apply: pr_eq => u uU; have := H u; rewrite /V uU inE => /eqP.
apply/eqP; rewrite -(@eqn_pmul2r (m ^ m)) ?expn_gt0 ?m0 //; apply/eqP.
rewrite unif1 card_ffun !card_ord mulnC; congr (_ * _).
rewrite (bigID (mem U)) /= big1 ?mul1n; last by move=> u uU; rewrite /V uU cards1.
rewrite (eq_bigr (fun _ => m)); last by move=> u /negbTE uU; rewrite /V uU cardsT card_ord.
by rewrite prod_nat_const card_notin.
Qed.

Lemma few_group i : i < g -> (forall Z : {ffun 'I_X -> Z1}, (forall j, Z j \in S) -> #|hits i Z| <= t) ->
  np S (group i) ^ X * (k * m) ^ (X * x0) <= m ^ (x0 * X) * ('C(k * m, t) * t ^ (X * x0)).
Proof.
move=> ig bad; have cg := card_group ig.
pose B := [set z : Z1 | pr (group i) z \in [set pr (group i) z' | z' in S]].
have cB : #|B| = np S (group i) * m ^ (m - x0).
  rewrite -sum1_card (partition_big (pr (group i)) (mem [set pr (group i) z' | z' in S])) /=; last by move=> z; rewrite inE.
  rewrite /np -sum_nat_const; apply: eq_bigr => _ /imsetP[z zS ->]; rewrite -cg -(card_same (group i) z) -sum1_card.
  apply: eq_bigl => z'; rewrite !inE; case: eqP => [->|]; rewrite ?andbF // andbT; exact: imset_f.
have sub : #|B| ^ X <= #|[set Z : {ffun 'I_X -> Z1} | ~~ (t < #|hits i Z|)]|.
  rewrite -[X in _ ^ X]card_ord -card_ffun_on; apply: subset_leq_card; apply/subsetP => Z /ffun_onP ZB.
  rewrite inE -leqNgt.
  have [Z' Z'P] : exists Z' : 'I_X -> Z1, forall j, Z' j \in S /\ pr (group i) (Z j) = pr (group i) (Z' j).
    apply: (@fin_all_exists _ (fun _ => Z1) (fun j z => z \in S /\ pr (group i) (Z j) = pr (group i) z)) => j.
    by have := ZB j; rewrite inE => /imsetP[z zS E]; exists z.
  apply: leq_trans (bad [ffun j => Z' j] _); last by move=> j; rewrite ffunE; case: (Z'P j).
  apply: subset_leq_card; apply/subsetP => p; rewrite !inE => /existsP[j /exists_inP[u uG /andP[a b]]].
  apply/existsP; exists j; apply/exists_inP; exists u => //; rewrite a ffunE.
  by have [_ /prP <-] := Z'P j.
have := @bad_ratio _ m k _ unif1 m0 (group i) cls (x0 %/ k) X t (fun c => bal_group c ig) tM.
rewrite cg card_ffun !card_ord => ratio.
have {ratio} := leq_trans (leq_mul sub (leqnn _)) ratio; rewrite cB expnMn.
have xm : x0 <= m by rewrite -cg -[X in _ <= X]card_ord max_card.
have -> : m ^ m = m ^ x0 * m ^ (m - x0) by rewrite -expnD subnKC.
rewrite [(m ^ x0 * _) ^ X]expnMn -!expnM.
set q := m ^ ((m - x0) * X); have q0 : 0 < q by rewrite expn_gt0 m0.
rewrite mulnAC -[X in _ <= X]mulnA [q * (_ * _)]mulnC mulnA leq_pmul2r //.
Qed.

Lemma good_list : exists i (Z : {ffun 'I_X -> Z1}), [/\ i < g, forall j, Z j \in S & t < #|hits i Z|].
Proof.
case: (pickP (fun p : 'I_g * {ffun 'I_X -> Z1} => [forall j, p.2 j \in S] && (t < #|hits p.1 p.2|))) => [[i Z] /andP[/forallP ZS tZ]|no].
  by exists i, Z; split.
exfalso; move: tail; rewrite ltnNge => /negP; apply.
have few (i : 'I_g) : np S (group i) ^ X * (k * m) ^ (X * x0) <= m ^ (x0 * X) * ('C(k * m, t) * t ^ (X * x0)).
  apply: few_group => // Z ZS; have := no (i, Z); rewrite /=; case: forallP => [_|[]] //= /negbT.
  by rewrite -leqNgt.
have all : (\prod_(i < g) np S (group i)) ^ X * ((k * m) ^ (X * x0)) ^ g <= (m ^ (x0 * X)) ^ g * ('C(k * m, t) * t ^ (X * x0)) ^ g.
  have pc (a : nat) : a ^ g = \prod_(i < g) a by rewrite prod_nat_const card_ord.
  rewrite !pc (big_morph (fun x => x ^ X) (fun a b => expnMn a b X) (exp1n X)) -!big_split /=.
  by apply: leq_prod => i _; apply: few.
pose U := \bigcup_(i < g) group i.
have cU : #|U| = g * x0.
  have -> : g * x0 = \sum_(i < g) x0 by rewrite sum_nat_const card_ord.
  rewrite /U.
  have : trivIset [set group i | i : 'I_g].
    apply/trivIsetP => _ _ /imsetP[i _ ->] /imsetP[j _ ->] ne; rewrite -setI_eq0; apply/eqP/setP => z; rewrite !inE.
    by apply/negP => /andP[/eqP zi /eqP zj]; move/negP: ne; apply; rewrite -zi zj.
  move=> triv; have -> : \bigcup_(i < g) group i = cover [set group i | i : 'I_g] by rewrite cover_imset.
  rewrite -(eqP triv) big_imset /=; first by apply: eq_bigr => i _; apply: card_group.
  move=> i j _ _ E; have ci := card_group (ltn_ord i).
  have /card_gt0P[z zi] : 0 < #|group i| by rewrite ci.
  have zj : z \in group j by rewrite -E.
  by apply: ord_inj; move: zi zj; rewrite !inE => /eqP <- /eqP.
have SU : #|S| <= (\prod_(i < g) np S (group i)) * m ^ (m - g * x0).
  apply: leq_trans (np_top S) _; rewrite -(setUCr U); apply: leq_trans (np_U S _ _) _; apply: leq_mul; first exact: np_bigcup.
  apply: leq_trans (np_le S _) _; rewrite card_ord -cU.
  by have := cardsC U; rewrite card_ord => /(congr1 (subn^~ #|U|)); rewrite addKn => <-.
have gm : g * x0 <= m by apply: leq_trunc_div.
have main : (m ^ (x0 * X)) ^ g <= (\prod_(i < g) np S (group i)) ^ X * 2 ^ (X * P).
  have : m ^ (g * x0) <= (\prod_(i < g) np S (group i)) * 2 ^ P.
    have q0 : 0 < m ^ (m - g * x0) by rewrite expn_gt0 m0.
    rewrite -(leq_pmul2r q0) -expnD subnKC //; apply: leq_trans dens _.
    by apply: leq_trans (leq_mul SU (leqnn _)) _; rewrite mulnAC.
  move=> /(leq_expn X); rewrite expnMn -!expnM [P * X]mulnC.
  by rewrite -[g * x0 * X]mulnA [g * _]mulnC.
set a := \prod_(i < g) _ in main all; have q0 : 0 < (m ^ (x0 * X)) ^ g by rewrite !expn_gt0 m0.
rewrite -(leq_pmul2l q0); apply: leq_trans (leq_mul main (leqnn _)) _.
rewrite mulnAC; apply: leq_trans (leq_mul all (leqnn _)) _.
by rewrite -mulnA leq_mul2l [X in _ <= X]mulnC leqnn orbT.
Qed.
End List.

(* ---------- steps 1 and 3 ---------- *)
Section Two.
Variables (m te t0 tw B : nat) (n s sd : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Notation inp := (@inp m n). Notation idx := (@idx m n).
Variable P : stack 2 m n te t0 tw 1 B s sd.
Hypothesis sol : solves P.
Hypotheses (m0 : 0 < m) (n0 : 0 < n 1).
Notation X := (stX P). Notation Y := (stY P). Notation Msg := (@msg 2 m n te t0 tw 1 B s sd P).
Let w0 : 'I_(n 1) := Ordinal n0. Let i0 : 'I_m := Ordinal m0.

Section Determined.
Variables (T : {set Z2}) (c : Z1 -> 'I_(2 ^ s 0)) (a : Z1).
Hypothesis XT : forall p w z0 z1 z2 z2', p < 3 -> z2 \in T -> z2' \in T -> X 0 p (inp w z0 z1 z2) = X 0 p (inp w z0 z1 z2').
Hypothesis Xc : forall p w z0 z1 z1' z2, p < 2 -> z2 \in T -> c z1 = c z1' -> X 0 p (inp w z0 z1 z2) = X 0 p (inp w z0 z1' z2).
Hypothesis Tp : forall w z0 z1 z2 z2', z2 \in T -> z2' \in T -> pbrd P 1 3 (inp w z0 z1 z2) = pbrd P 1 3 (inp w z0 z1 z2').

(* messages to w, to z_0 and to the tokens of z_1 from the tokens of z_2; the border of block 1 at cut j *)
Definition to_query (q : 'I_(n 1) * 'I_m) (z2 : Z2) := Msg 1 0 3 (X 0 0 (inp q.1 q.2 a z2)) (inp q.1 q.2 a z2).
Definition to_start (z0 : 'I_m) (z2 : Z2) := Msg 1 1 3 (X 0 1 (inp w0 z0 a z2)) (inp w0 z0 a z2).
Definition to_table (z1 : Z1) (z2 : Z2) := Msg 1 2 3 (X 0 2 (inp w0 i0 z1 z2)) (inp w0 i0 z1 z2).
Definition border (j : nat) (q : 'I_m * Z1) (z2 : Z2) := brd P 1 j (inp w0 q.1 q.2 z2).
(* what the border depends on at cut j *)
Definition seen (j : nat) (z0 : 'I_m) (z1 : Z1) : 'I_m * Z1 := (if j == 1 then z0 else i0, if j <= 2 then z1 else a).

Lemma determined j w z0 z1 z2 z2' : 0 < j <= 3 -> c z1 = c a -> z2 \in T -> z2' \in T ->
  to_query (w, z0) z2 = to_query (w, z0) z2' -> (1 < j -> to_start z0 z2 = to_start z0 z2') ->
  (2 < j -> to_table z1 z2 = to_table z1 z2') -> border j (seen j z0 z1) z2 = border j (seen j z0 z1) z2' ->
  z2 (idx w (z1 z0)) = z2' (idx w (z1 z0)).
Proof.
case/andP=> j0 j3 ca zT zT' Eq Es Et Eb; apply: ord_inj; rewrite -!answerE -!sol; congr (out _); congr ans.
have bE z : brd P 1 j (inp w z0 z1 z) = border j (seen j z0 z1) z.
  case: j j0 j3 {Eq Es Et Eb} => [|[|[|[|j]]]] // _ _.
  - by apply: brd_pre => //; apply: agree1.
  - by apply: brd_pre => //; apply: agree2.
  - by apply: brd_pre => //; apply: agree3.
apply: (@block _ _ _ _ _ _ _ _ _ _ P 1 0 j) => //; last by rewrite !bE.
have mE q z : q < 3 -> z \in T -> Msg 1 q 3 (X 0 q (inp w z0 z1 z)) (inp w z0 z1 z) =
    Msg 1 q 3 (X 0 q (match q with 0 => inp w z0 a z | 1 => inp w0 z0 a z | _ => inp w0 i0 z1 z end)) (inp w0 i0 a z).
  move=> q3 zz; have -> : X 0 q (inp w z0 z1 z) = X 0 q (match q with 0 => inp w z0 a z | 1 => inp w0 z0 a z | _ => inp w0 i0 z1 z end).
    case: q q3 => [|[|[|q]]] // _; first exact: Xc.
      by rewrite (@Xc 1 w z0 z1 a z isT zz ca); apply: causal => //; apply: agree1.
    by apply: causal => //; apply: agree2.
  by apply: msg_pre => //; apply: agree3.
move=> q /andP[_ qj]; have q3 : q < 3 by apply: leq_trans j3.
apply: (@full _ _ _ _ _ _ _ _ _ _ P 0 q 3) => //; first by move=> q' /andP[_ q'3]; apply: XT.
  rewrite !mE //; case: q qj q3 => [|[|[|q]]] // qj _.
  - by move: Eq; rewrite /to_query /= !(msg_pre 0 _ (leqnn 1) (agree3 w z0 a w0 i0 a _)).
  - by move: (Es qj); rewrite /to_start !(msg_pre 1 _ (leqnn 1) (agree3 w0 z0 a w0 i0 a _)).
  - by move: (Et qj); rewrite /to_table !(msg_pre 2 _ (leqnn 1) (agree3 w0 i0 z1 w0 i0 a _)).
exact: Tp.
Qed.
End Determined.
End Two.

(* bits of the border of block 1 at cut j, and of the messages of layer 1 to the players behind it *)
Definition rest_bits (m te t0 B s1 x0 x1 j : nat) : nat :=
  match j with 1 => s1 * (x0 * x1) | 2 => s1 * x1 + B * t0 * x0 | _ => s1 + B * t0 * x0 + B * (te * m) * x1 end.

Theorem theorem_two (m te t0 tw B x0 x1 k t j : nat) (n s sd : nat -> nat) :
  0 < m -> 0 < n 1 -> 0 < k -> 0 < x0 -> 0 < x1 -> k %| x0 -> k %| n 1 -> t <= k * m -> 0 < j <= 3 ->
  2 ^ (x1 * s 0) * ('C(k * m, t) * t ^ (x1 * x0)) ^ (m %/ x0) < ((k * m) ^ (x1 * x0)) ^ (m %/ x0) ->
  2 ^ (s 0 + sd 1 + (B * tw * (x0 * (n 1 %/ k)) + rest_bits m te t0 B (s 1) x0 x1 j)) < (m * n 1) ^ (n 1 %/ k * t.+1) ->
  forall P : stack 2 m n te t0 tw 1 B s sd, ~ solves P.
Proof.
move=> m0 n0 k0 x00 x10 kx kn tM jb tail fin P sol.
have [T [c [cT _ XT Xc Tp]]] := settled P m0 n0.
have y0 : 0 < 2 ^ s 0 by rewrite expn_gt0.
have [y Hy] := pigeon1 (Ordinal y0) [set: Table m n 0] c; rewrite cardsT card_ffun !card_ord in Hy.
set S := [set _ in _ | _] in Hy.
have [i [Z [ig ZS tZ]]] := @good_list m x0 x1 k t (s 0) S m0 k0 x00 kx tM Hy tail.
have [J JH cJ] := subset_of_card tZ.
have cZ q : c (Z q) = y by have := ZS q; rewrite !inE => /eqP.
pose a := Z (Ordinal x10); pose i0 := Ordinal m0.
pose qs := enum [set q : 'I_(n 1) * 'I_m | (q.2 \in group m x0 i) && (q.1 %% k == q.2 %% k)].
pose zs := enum (group m x0 i); pose ls := [seq Z q | q : 'I_x1].
pose bs : seq ('I_m * Table m n 0) := match j with 1 => [seq (z0, z1) | z0 <- zs, z1 <- ls] | 2 => [seq (i0, z1) | z1 <- ls] | _ => [:: (i0, a)] end.
have szs : size zs = x0 by rewrite -cardE (card_group k0 x00 kx ig).
have sls : size ls = x1 by rewrite size_map -cardE card_ord.
have sqs : size qs <= x0 * (n 1 %/ k).
  have lt (w : 'I_(n 1)) : w %/ k < n 1 %/ k by rewrite ltn_divLR // divnK.
  rewrite -cardE; apply: (@leq_trans #|setX (group m x0 i) [set: 'I_(n 1 %/ k)]|); last first.
    by rewrite cardsX cardsT card_ord (card_group k0 x00 kx ig).
  pose f (q : 'I_(n 1) * 'I_m) := (q.2, Ordinal (lt q.1)).
  rewrite -(@card_in_imset _ _ f); last first.
    move=> [w z] [w' z']; rewrite !inE /= => /andP[_ /eqP e] /andP[_ /eqP e'] [Ez Ew]; rewrite Ez in e *; congr (_, _); apply: ord_inj.
    by rewrite (divn_eq w k) (divn_eq w' k) Ew e e'.
  by apply: subset_leq_card; apply/subsetP => _ /imsetP[q + ->]; rewrite !inE andbT => /andP[].
have [R1 [s1 c1] H1] := @pigeon_seq _ _ (B * tok m n te t0 tw 0) qs (@to_query m te t0 tw B n s sd P a) T.
have [R2 [s2 c2] H2] := @pigeon_seq _ _ (B * tok m n te t0 tw 1) (if 1 < j then zs else [::]) (@to_start m te t0 tw B n s sd P n0 a) R1.
have [R3 [s3 c3] H3] := @pigeon_seq _ [eqType of Table m n 0] (B * tok m n te t0 tw 2) (if 2 < j then ls else [::]) (@to_table m te t0 tw B n s sd P m0 n0) R2.
have [R4 [s4 c4] H4] := @pigeon_seq _ [eqType of 'I_m * Table m n 0] (s 1) bs (@border m te t0 tw B n s sd P n0 j) R3.
(* the arguments that are determined *)
pose h := n 1 %/ k.
have wlt (b : 'I_h) (e : 'I_k) : b * k + e < n 1.
  by rewrite -[X in _ < X](divnK kn); apply: digits_lt.
pose ar (p : ('I_k * 'I_m) * 'I_h) : 'I_(Nn m n 1) := idx (Ordinal (wlt p.2 p.1.1)) p.1.2.
pose U := ar @: setX J setT.
have cU : #|U| = h * t.+1.
  rewrite card_imset; first by rewrite cardsX cardsT card_ord cJ mulnC.
  move=> [[e v] b] [[e' v'] b'] /idx_inj [/= E ->].
  have Eb : b = b' by apply: ord_inj; have := congr1 (divn^~ k) E; rewrite !divnMDl // !divn_small // !addn0.
  have Ee : e = e' by apply: ord_inj; have := congr1 (modn^~ k) E; rewrite !modnMDl !modn_small.
  by rewrite Eb Ee.
have R43 := subset_trans s4 s3; have R42 := subset_trans R43 s2; have R41 := subset_trans R42 s1.
have ag : {in R4 &, forall z2 z2' : Table m n 1, {in U, forall u, z2 u = z2' u}}.
  move=> z2 z2' r r' _ /imsetP[[p b] + ->]; rewrite inE => /andP[/= pJ _].
  have := subsetP JH p pJ; rewrite inE => /existsP[q /exists_inP[u uG /andP[/eqP pu /eqP pv]]].
  rewrite /ar /= -pv; apply: (@determined m te t0 tw B n s sd P sol m0 n0 T c a XT Xc Tp j) => //.
  - by rewrite !cZ.
  - exact: (subsetP R41).
  - exact: (subsetP R41).
  - apply: H1; rewrite ?(subsetP R42) // mem_enum inE /= uG modnMDl modn_small //=.
    by rewrite -pu.
  - by move=> j1; apply: H2; rewrite ?(subsetP R43) // j1 mem_enum.
  - by move=> j2; apply: H3; rewrite ?(subsetP s4) // j2; apply/mapP; exists q; rewrite ?mem_enum.
  apply: H4 => //; have Zl : Z q \in ls by apply/mapP; exists q; rewrite ?mem_enum.
  rewrite /bs /seen; move: jb; move: (j) => [|[|[|[|j']]]] //= _.
  - by apply/allpairsP; exists (u, Z q); rewrite mem_enum.
  - by apply/mapP; exists (Z q).
  - by rewrite inE.
have N0 : 0 < Nn m n 1 by rewrite /= muln_gt0 m0 n0.
have := agree_few N0 (@unif1 (Nn m n 1)) ag; rewrite cU card_ffun !card_ord => few.
have up : Nn m n 1 ^ Nn m n 1 <= #|R4| * 2 ^ (s 0 + sd 1 + (B * tw * (x0 * h) + rest_bits m te t0 B (s 1) x0 x1 j)).
  apply: leq_trans cT _; rewrite [s 0 + sd 1 + _]addnC [2 ^ (_ + (s 0 + sd 1))]expnD mulnA leq_mul2r; apply/orP; right.
  apply: leq_trans c1 _; apply: leq_trans (leq_mul c2 (leqnn _)) _; apply: leq_trans (leq_mul (leq_mul c3 (leqnn _)) (leqnn _)) _.
  apply: leq_trans (leq_mul (leq_mul (leq_mul c4 (leqnn _)) (leqnn _)) (leqnn _)) _.
  rewrite -!mulnA leq_mul2l -!expnD leq_exp2l //; apply/orP; right.
  rewrite 2!addnA [X in _ <= X]addnC; apply: leq_add; last by rewrite leq_mul2l leq_mul2l sqs !orbT.
  rewrite /bs; move: jb; move: (j) => [|[|[|[|j']]]] //= _.
  - by rewrite size_allpairs szs sls !muln0 !addn0.
  - by rewrite size_map sls szs !muln0 addn0 mulnA.
  - by rewrite szs sls muln1 addnAC !mulnA.
have R0 : 0 < #|R4| by case: #|R4| up => //; rewrite mul0n leqn0 expn_eq0 (gtn_eqF N0).
have := leq_trans few up; rewrite leq_pmul2l // leqNgt => /negP; apply; exact: fin.
Qed.
