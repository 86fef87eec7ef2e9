(* The sharp bound for L = 2, F = 1 with a block of s_1 bits of state AFTER the full layer (TwoHops.v: s_1 = 0).  Only counting, exact integers.

   Notation as in TwoHops.v: N = m n_1, s_0, r = sd_1, b = B tw; new: s_1 bits of state in block 1.

   THEOREM (two_sharp_last).  If for some natural numbers q, t
       (i')  2^(s_0 + r + (t+1) (n_1 b + (q+1) s_1)) < N^(n_1 (t+1) (q+1))
       (ii)  2^(s_0) q^m < (m - t (q+1))^m
   then no stack with one full layer solves 2-FuncComp(m, n_1).  For s_1 = 0 and tw = 1 this is two_sharp.

   PROOF.  Steps 1, 2, 5 of TwoHops.v with columns in the place of rows.
   1. T, c, mu_(w,z_0,y) as in TwoHops.v.  Cut 1 (before player 0): the border nu_(z_0,z_1)(z_2) of block 1 is a function of the inputs of players
      >= 1, so it does not depend on w.  The laws full (cut 3) and block 1 (cut 1): for z_1 with c(z_1) = y the pair
      (mu_(w,z_0,y)(z_2), nu_(z_0,z_1)(z_2)) determines z_2(w, z_1(z_0)), z_2 in T.
   2. Let K be contained in K_y(z_0) = {z_1(z_0) : c(z_1) = y}; choose z_1^i with c(z_1^i) = y, z_1^i(z_0) = i for each i in K.  The n_1 messages
      mu_(w,z_0,y) and the |K| borders nu_(z_0,z_1^i) determine z_2 on [n_1] x K: |T|([n_1] x K)| <= 2^(n_1 b + |K| s_1).
   3. (good_col) d = n_1 b + (q+1) s_1.  S is poor of order k if |S| = k (q+1) and |T|([n_1] x S)| <= 2^(k d).  By (i') no S is poor of order t+1.
      Let k <= t be such that Bad is poor of order k and no set is poor of order k+1: no K with |K| = q+1 disjoint from Bad has
      |T|([n_1] x K)| <= 2^d.
   4. (count) So the z_1 that avoid Bad take at most q values at each z_0 in each fibre of c: (m - t (q+1))^m <= 2^(s_0) q^m, against (ii).  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model TwoHops.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---------- step 3: columns ---------- *)
Section Cols.
Variables (A V : finType) (T : {set {ffun A -> V}}).
Variables (W I : finType) (idx : W -> I -> A) (d q t s : nat).
Hypothesis idx_inj : forall w i w' i', idx w i = idx w' i' -> (w, i) = (w', i').
Hypothesis dens : #|V| ^ #|A| <= #|T| * 2 ^ s.
Hypothesis colH : 2 ^ (s + t.+1 * d) < #|V| ^ (#|W| * t.+1 * q.+1).
Notation np := (np T).

Definition col (S : {set I}) : {set A} := [set idx p.1 p.2 | p in [set p : W * I | p.2 \in S]].
Lemma colP a (S : {set I}) : reflect (exists w i, i \in S /\ a = idx w i) (a \in col S).
Proof.
apply: (iffP imsetP) => [[[w i]]|[w [i [iS ->]]]].
  by rewrite inE /= => iS ->; exists w, i.
by exists (w, i); rewrite ?inE.
Qed.
Lemma card_col S : #|col S| = #|W| * #|S|.
Proof.
rewrite card_imset; last by move=> [w i] [w' i'] /idx_inj.
have -> : [set p : W * I | p.2 \in S] = setX setT S by apply/setP => -[w i]; rewrite !inE.
by rewrite cardsX cardsT.
Qed.
Lemma colU S S' : col (S :|: S') = col S :|: col S'.
Proof.
apply/setP => a; rewrite [RHS]inE; apply/colP/orP => [[w [i []]]|].
  by rewrite inE => /orP[iS|iS] ->; [left|right]; apply/colP; exists w, i.
by case=> /colP[w [i [iS ->]]]; exists w, i; rewrite inE iS ?orbT.
Qed.
Lemma col0 : col set0 = set0.
Proof. by apply/setP => a; rewrite inE; apply/negP => /colP[w [i []]]; rewrite inE. Qed.

Definition cpoor k (S : {set I}) : bool := (#|S| == k * q.+1) && (np (col S) <= 2 ^ (k * d)).

Lemma no_cpoor S : ~~ cpoor t.+1 S.
Proof.
apply/negP => /andP[/eqP cS npS].
have cU : #|col S| = #|W| * t.+1 * q.+1 by rewrite card_col cS mulnA.
set U := col S in npS cU.
have V0 : 0 < #|V|.
  rewrite lt0n; apply/eqP => V0; move: colH; rewrite V0; case: (_ * q.+1) => [|k]; last by rewrite exp0n.
  by rewrite expn0 ltnS leqn0 expn_eq0.
have cA : #|~: U| + #|U| = #|A| by rewrite addnC cardsC.
have : #|V| ^ #|A| <= #|V| ^ #|~: U| * 2 ^ (s + t.+1 * d).
  apply: leq_trans dens _; rewrite addnC expnD mulnA leq_mul2r; apply/orP; right.
  apply: leq_trans (np_top T) _; rewrite -(setUCr U) setUC; apply: leq_trans (np_U T _ _) _.
  by apply: leq_mul => //; apply: np_le.
rewrite -cA expnD leq_pmul2l ?expn_gt0 ?V0 // cU leqNgt.
by rewrite colH.
Qed.

Lemma good_col : exists Bad : {set I}, #|Bad| <= t * q.+1 /\
  forall K : {set I}, [disjoint K & Bad] -> #|K| = q.+1 -> ~~ (np (col K) <= 2 ^ d).
Proof.
have p0 : cpoor 0 set0.
  by rewrite /cpoor cards0 mul0n eqxx mul0n col0 np0.
have [k kt [Bad HB nx]] : exists2 k, k <= t & exists2 S : {set I}, cpoor k S & forall S' : {set I}, ~~ cpoor k.+1 S'.
  move: no_cpoor; move: (t); elim=> [|k IH] rich; first by exists 0 => //; exists set0.
  case: (pickP (fun S : {set I} => cpoor k.+1 S)) => [S HS|no]; first by exists k.+1 => //; exists S.
  have [|j jk [S HS HS']] := IH; first by move=> S; rewrite no.
  by exists j; [apply: leqW|exists S].
exists Bad; case/andP: HB => /eqP cB npB; split; first by rewrite cB leq_mul2r kt orbT.
move=> K dis cK; apply/negP => npK.
have dis' : [disjoint Bad & K] by rewrite disjoint_sym.
have := nx (Bad :|: K); rewrite /cpoor colU => /negP; apply; apply/andP; split.
  by rewrite cardsU (disjoint_setI0 dis') cards0 subn0 cB cK mulSn addnC.
by apply: leq_trans (np_U T _ _) _; rewrite mulSn addnC expnD leq_mul.
Qed.
End Cols.

(* ---------- steps 1 and 2: what the laws of a stack say for L = 2, F = 1 ---------- *)
Section Last.
Variables (m te t0 tw B : nat) (n s sd : nat -> nat).
Notation Z1 := (Table m n 0). Notation Z2 := (Table m n 1). Notation N := (Nn m n 1).
Notation inp := (@inp m n). Notation idx := (@idx m n).

Lemma agree1 w w' z0 z1 z2 : agree 1 (inp w z0 z1 z2) (inp w' z0 z1 z2).
Proof. by split. Qed.

Variable P : stack 2 m n te t0 tw 1 B s sd.
Hypothesis sol : solves P.
Hypotheses (m0 : 0 < m) (n0 : 0 < n 1).
Notation X := (stX P). Notation Y := (stY P). Notation Msg := (@msg 2 m n te t0 tw 1 B s sd P).

(* T, the fibres c, a message mu for (w, z0, y), and a border nu for (z0, z1), free of w; both together determine z2 (w, z1 z0) *)
Lemma structure_last : exists (T : {set Z2}) (c : Z1 -> 'I_(2 ^ s 0)) (nu : 'I_m -> Z1 -> Z2 -> 'I_(2 ^ s 1)),
  N ^ N <= #|T| * 2 ^ (s 0 + sd 1) /\
  forall z0 y, exists mu : 'I_(n 1) -> Z2 -> 'I_(2 ^ (B * tw)), forall w z1, c z1 = y ->
    {in T &, forall z2 z2', mu w z2 = mu w z2' -> nu z0 z1 z2 = nu z0 z1 z2' ->
      z2 (idx w (z1 z0)) = z2' (idx w (z1 z0))}.
Proof.
pose w0 := Ordinal n0; pose i0 := Ordinal m0.
have [T [c [cT [zT zTT] XT Xc Tp]]] := settled P m0 n0.
exists T, c, (fun z0 z1 z2 => brd P 1 1 (inp w0 z0 z1 z2)); split=> // z0 y.
pose a := odflt [ffun _ => i0] [pick z1 | c z1 == y].
exists (fun w z2 => Msg 1 0 3 (X 0 0 (inp w z0 a zT)) (inp w z0 a z2)) => w z1 cz1 z2 z2' zT1 zT2 Em En.
have ca : c a = y by rewrite /a; case: pickP => [a' /eqP //|/(_ z1)]; rewrite cz1 eqxx.
have X0 z : z \in T -> X 0 0 (inp w z0 z1 z) = X 0 0 (inp w z0 a zT).
  by move=> zTT'; rewrite (XT 0 w z0 z1 z zT) //; apply: Xc; rewrite ?ca.
have mE z : z \in T -> Msg 1 0 3 (X 0 0 (inp w z0 z1 z)) (inp w z0 z1 z) =
                       Msg 1 0 3 (X 0 0 (inp w z0 a zT)) (inp w z0 a z).
  by move=> zTT'; rewrite X0 //; apply: msg_pre => //; apply: agree3.
apply: ord_inj; rewrite -!answerE -!sol; congr (out _); congr ans.
apply: (@block _ _ _ _ _ _ _ _ _ _ P 1 0 1) => //; last first.
  rewrite (brd_pre P (leqnn 1) (agree1 w w0 z0 z1 z2)) En.
  by apply: brd_pre => //; apply: agree1.
move=> q; rewrite leq0n ltnS leqn0 => /eqP -> {q}.
apply: (@full _ _ _ _ _ _ _ _ _ _ P 0 0 3) => //.
- by move=> q /andP[_ q3]; apply: XT.
- by rewrite !mE.
- exact: Tp.
Qed.
End Last.

(* ---------- the theorem ---------- *)
Theorem two_sharp_last (m te t0 tw B q t : nat) (n s sd : nat -> nat) :
  2 ^ (s 0 + sd 1 + t.+1 * (n 1 * (B * tw) + q.+1 * s 1)) < (m * n 1) ^ (n 1 * t.+1 * q.+1) ->
  2 ^ s 0 * q ^ m < (m - t * q.+1) ^ m ->
  forall P : stack 2 m n te t0 tw 1 B s sd, ~ solves P.
Proof.
move=> row cnt P sol.
have le1 k : (2 ^ k < 1) = false by rewrite ltnS leqn0 expn_eq0.
have m0 : 0 < m by rewrite lt0n; apply/eqP => E; move: cnt; rewrite E !expn0 muln1 le1.
have n0 : 0 < n 1 by rewrite lt0n; apply/eqP => E; move: row; rewrite E !mul0n expn0 le1.
have [T [c [nu [cT H]]]] := structure_last sol m0 n0.
have [||Bad [cB HB]] := @good_col _ _ T _ _ (@idx m n) (n 1 * (B * tw) + q.+1 * s 1) q t (s 0 + sd 1) (@idx_inj m n).
- by rewrite !card_ord.
- by rewrite !card_ord.
have few y i : #|[set z1 i | z1 : {ffun 'I_m -> 'I_m} in [set z1 | (c z1 == y) && [forall j, z1 j \notin Bad]]]| <= q.
  rewrite leqNgt; apply/negP => qK.
  have [K sK cK] := subset_of_card qK.
  have Kz j : j \in K -> exists z1 : {ffun 'I_m -> 'I_m}, [/\ c z1 = y, z1 i = j & forall j', z1 j' \notin Bad].
    move=> /(subsetP sK) /imsetP[z1]; rewrite inE => /andP[/eqP cz /forallP nB] ->.
    by exists z1.
  have dis : [disjoint K & Bad].
    rewrite disjoint_subset; apply/subsetP => j /Kz[z1 [_ <- nB]].
    exact: nB.
  have := HB K dis cK; move=> /negP; apply.
  have [mu Hmu] := H i y.
  pose z (j : 'I_m) : {ffun 'I_m -> 'I_m} := odflt [ffun _ => Ordinal m0] [pick z1 : {ffun 'I_m -> 'I_m} | (c z1 == y) && (z1 i == j)].
  have zP j : j \in K -> c (z j) = y /\ z j i = j.
    move=> /Kz[z1 [cz zi _]]; rewrite /z; case: pickP => [z' /andP[/eqP -> /eqP ->] //|/(_ z1)].
    by rewrite cz zi !eqxx.
  pose f z2 : {ffun 'I_(n 1) -> 'I_(2 ^ (B * tw))} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 1)} :=
    ([ffun w => mu w z2], [ffun j => nu i (z (val j)) z2]).
  have cM : #|[finType of {ffun 'I_(n 1) -> 'I_(2 ^ (B * tw))} * {ffun {j : 'I_m | j \in K} -> 'I_(2 ^ s 1)}]| =
            2 ^ (n 1 * (B * tw) + q.+1 * s 1).
    rewrite card_prod !card_ffun !card_ord card_sig -!expnM expnD.
    have -> : #|[pred j | j \in K]| = q.+1 by rewrite -cK; apply: eq_card.
    by rewrite [n 1 * _]mulnC [q.+1 * _]mulnC.
  rewrite -cM; apply: (@np_msg _ _ T _ _ f) => z2 z2' zT zT' [/ffunP e1 /ffunP e2] a /colP[w [j [jK ->]]].
  have [cz zj] := zP j jK.
  have := Hmu w (z j) cz z2 z2' zT zT'; rewrite zj; apply.
    by have := e1 w; rewrite !ffunE.
  by have := e2 (exist _ j jK); rewrite !ffunE.
have := count few; rewrite card_ord leqNgt => /negP; apply; apply: leq_trans cnt _.
by apply: leq_expn; apply: leq_sub2l.
Qed.
