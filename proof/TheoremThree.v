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
