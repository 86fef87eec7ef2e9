(* "Sparse pairs" of docs/proof.md: the set Q, |Q| <= qn (card_Q), the number of different queries W <= wn (card_W), and the arguments that the
   lists can reach (reach, next_ex), spread evenly over the classes (bal0, bal_next).

   Classes are taken from digits: alpha and beta are w mod k and w / k mod k', so no map has to be chosen. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model Draw.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Reach.
Variables (L m : nat) (n x k : nat -> nat).
Hypothesis m0 : 0 < m.
Hypothesis n0 : forall e, 0 < n e.
Hypothesis k0 : forall e, 0 < k e.
Hypothesis x0m : x 0 <= m.
Hypothesis kx : k 0 %| x 0.
Hypothesis kk : forall e, e < L.-1 -> k e * k e.+1 %| n e.+1.
Notation Om := (Om L m n).
Notation Inp := (Inp L m n).
Notation N := (Nn m n).
Notation Query := (Query L n).

Let Np e : 0 < N e := Nn_pos m0 n0 e.

(* what class number e is computed from: z_0, or w_e without the part that was constrained already *)
Definition pc (w : Query) (z : nat) (e : nat) : nat := if e is e'.+1 then wv w e' %/ k e' else z.
(* the class of an argument of table e *)
Definition cl (e y : nat) : nat := if e is e'.+1 then y %/ N e' %/ k e' else y.
Definition clo (e y : nat) : 'I_(k e) := Ordinal (ltn_pmod (cl e y) (k0 e)).

Definition Z0 : {set 'I_m} := [set z : 'I_m | z < x 0].
Definition Q : {set Query * 'I_m} :=
  [set q : Query * 'I_m | (q.2 < x 0) && [forall e : 'I_L.-1, q.1 e %% k e == pc q.1 q.2 e %% k e]].

Lemma wvE (w : Query) (e : 'I_L.-1) : wv w e = w e.
Proof. by rewrite /wv valK. Qed.

Lemma wvO (w : Query) e (eL : e < L.-1) : wv w e = w (Ordinal eL).
Proof. exact: (wvE w (Ordinal eL)). Qed.

Lemma card_Z0 : #|Z0| = x 0.
Proof.
have -> : Z0 = [set widen_ord x0m i | i : 'I_(x 0)].
  apply/setP => z; rewrite inE; apply/idP/imsetP => [zx|[i _ ->] /=]; last exact: ltn_ord.
  by exists (Ordinal zx) => //; apply: val_inj.
rewrite card_imset ?card_ord // => a b /(congr1 (@nat_of_ord _)) /= /ord_inj //.
Qed.

Lemma QZ q : q \in Q -> q.2 \in Z0.
Proof. by rewrite !inE => /andP[]. Qed.

Definition qn : nat := x 0 * \prod_(e < L.-1) (n e.+1 %/ k e).
Definition wn : nat := \prod_(e < L.-1) (if e == 0 :> nat then n e.+1 else n e.+1 %/ k e).

Lemma k_dvd e : e < L.-1 -> k e %| n e.+1.
Proof. by move=> /kk; apply: dvdn_trans; apply: dvdn_mulr. Qed.

Lemma quot_lt (e : 'I_L.-1) (a : 'I_(n e.+1)) : a %/ k e < n e.+1 %/ k e.
Proof. by rewrite ltn_divLR // divnK ?k_dvd. Qed.

(* w is determined by z_0 (or w_1) and the quotients *)
Lemma Q_inj q q' : q \in Q -> q' \in Q ->
  (0 < L.-1 -> wv q.1 0 = wv q'.1 0) -> 
  (forall e, 0 < e < L.-1 -> wv q.1 e %/ k e = wv q'.1 e %/ k e) -> q.1 = q'.1.
Proof.
move=> qQ qQ' H0 H.
have E e : e < L.-1 -> wv q.1 e = wv q'.1 e.
  elim: e => // e IH eL.
  rewrite (divn_eq (wv q.1 e.+1) (k e.+1)) [RHS](divn_eq _ (k e.+1)) H //.
  congr (_ + _); move: qQ qQ'; rewrite !inE.
  move=> /andP[_ /forallP /(_ (Ordinal eL)) /eqP A] /andP[_ /forallP /(_ (Ordinal eL)) /eqP A'].
  have W (w : Query) : wv w e.+1 = w (Ordinal eL) by apply: wvO.
  by rewrite !W A A' /pc /= IH // ltnW.
by apply/ffunP => e; apply: ord_inj; rewrite -!wvE E.
Qed.

Lemma card_Q : #|Q| <= qn.
Proof.
pose f (q : Query * 'I_m) : 'I_m * {dffun forall e : 'I_L.-1, 'I_(n e.+1 %/ k e)} :=
  (q.2, [ffun e : 'I_L.-1 => Ordinal (quot_lt (q.1 e))]).
have finj : {in Q &, injective f}.
  move=> q q' qQ qQ' [e2 /ffunP H].
  have D e : e < L.-1 -> wv q.1 e %/ k e = wv q'.1 e %/ k e.
    move=> eL; have := H (Ordinal eL); rewrite !ffunE => /(congr1 (@nat_of_ord _)) /=.
    by rewrite !(wvO _ eL).
  rewrite [q]surjective_pairing [q']surjective_pairing e2; congr (_, _).
  apply: Q_inj => // [L0|e /andP[_ eL]]; last exact: D.
  rewrite (divn_eq (wv q.1 0) (k 0)) [RHS](divn_eq _ (k 0)) D //.
  congr (_ + _); move: qQ qQ'; rewrite !inE.
  move=> /andP[_ /forallP /(_ (Ordinal L0)) /eqP A] /andP[_ /forallP /(_ (Ordinal L0)) /eqP A'].
  have W (w : Query) : wv w 0 = w (Ordinal L0) by apply: wvO.
  by rewrite !W A A' /pc /= e2.
rewrite -(card_in_imset finj).
apply: (@leq_trans #|setX Z0 [set: {dffun forall e : 'I_L.-1, 'I_(n e.+1 %/ k e)}]|).
  apply: subset_leq_card; apply/subsetP => y /imsetP[q qQ ->].
  by rewrite in_setX in_setT andbT /=; apply: QZ.
rewrite cardsX card_Z0 cardsT card_dep_ffun foldr_prod leq_mul2l; apply/orP; right.
by apply: leq_prod => e _; rewrite card_ord.
Qed.

Lemma card_W : #|[set q.1 | q in Q]| <= wn.
Proof.
have lt (e : 'I_L.-1) (a : 'I_(n e.+1)) :
   (if e == 0 :> nat then a : nat else a %/ k e) < (if e == 0 :> nat then n e.+1 else n e.+1 %/ k e).
  by case: ifP => // _; apply: quot_lt.
pose f (w : Query) : {dffun forall e : 'I_L.-1, 'I_(if e == 0 :> nat then n e.+1 else n e.+1 %/ k e)} :=
  [ffun e : 'I_L.-1 => Ordinal (lt e (w e))].
have finj : {in [set q.1 | q in Q] &, injective f}.
  move=> w w' /imsetP[q qQ ->] /imsetP[q' qQ' ->] /ffunP H.
  apply: Q_inj => // [L0|e /andP[e0 eL]].
    by have := H (Ordinal L0); rewrite !ffunE => /(congr1 (@nat_of_ord _)) /=; rewrite !(wvO _ L0).
  have := H (Ordinal eL); rewrite !ffunE => /(congr1 (@nat_of_ord _)) /=.
  by rewrite !(wvO _ eL) /= (gtn_eqF e0).
rewrite -(card_in_imset finj); apply: leq_trans (max_card _) _.
rewrite card_dep_ffun foldr_prod; by apply: leq_prod => e _; rewrite card_ord.
Qed.

(* ---- reachable arguments ---- *)
Variable Zl : nat -> seq Om.
Definition reach (d y : nat) (u : Inp) : Prop :=
  [/\ u.1.2 < x 0, forall e, e < d -> wv u.1.1 e %% k e = pc u.1.1 u.1.2 e %% k e,
      forall l : 'I_L, l < d -> exists2 zeta, zeta \in Zl l & u.2 l = zeta l & arg u d = y].

Lemma tab_lt (z : Om) l a : tab z l a < N l.
Proof.
rewrite /tab; case: insubP => [l' _ <-|_]; last exact: Np.
by case: insubP => [a' _ _|_]; [exact: ltn_ord|exact: Np].
Qed.

Lemma cl_arg (u : Inp) d : cl d (arg u d) = pc u.1.1 u.1.2 d.
Proof.
case: d => [|d] //.
by rewrite /= divnMDl ?Np // (divn_small (tab_lt _ _ _)) addn0.
Qed.

Lemma arg_ext (u v : Inp) d : u.1.2 = v.1.2 -> (forall e, e < d -> wv u.1.1 e = wv v.1.1 e) ->
  (forall l : 'I_L, l < d -> u.2 l = v.2 l) -> arg u d = arg v d.
Proof.
move=> e2; elim: d => [|d IH] Hw Hz /=; first by rewrite e2.
rewrite Hw // IH => [|e ed|l ld]; [|by apply: Hw; apply: leqW|by apply: Hz; apply: leqW].
congr (_ + _); rewrite /tab; case: insubP => // l' _ ld; case: insubP => // a _ _.
by rewrite Hz // ld.
Qed.

Definition setw (d y : nat) (w : Query) : Query :=
  [ffun e : 'I_L.-1 => if e == d :> nat then insubd (w e) y else w e].

Lemma setw_same d y (w : Query) : d < L.-1 -> y < n d.+1 -> wv (setw d y w) d = y.
Proof.
move=> dL yn; rewrite (wvO _ dL).
by rewrite ffunE eqxx val_insubd yn.
Qed.
Lemma setw_other d y (w : Query) e : e != d -> wv (setw d y w) e = wv w e.
Proof.
move=> /negbTE ed; rewrite /wv; case: insubP => // e' _ E; rewrite ffunE.
by have -> : (e' == d :> nat) = false by rewrite -ed -E.
Qed.

(* one more hop *)
Lemma reach_step (d : 'I_L) (a : 'I_(N d)) (u : Inp) (zeta : Om) wd : d < L.-1 -> wd < n d.+1 -> reach d a u -> zeta \in Zl d ->
  wd %% k d = cl d a %% k d ->
  reach d.+1 (wd * N d + zeta d a) ((setw d wd u.1.1, u.1.2), setc d u.2 zeta).
Proof.
move=> dL wn' [r1 r2 r3 r4] zZ wc; split => //=.
- move=> e; rewrite ltnS leq_eqVlt => /orP[/eqP ->|ed].
    rewrite setw_same // wc -r4 cl_arg; case: (nat_of_ord d) => //= d'.
    by rewrite setw_other // neq_ltn ltnSn.
  rewrite setw_other ?r2 //; last by rewrite neq_ltn ed.
  case: e ed => //= e ed; rewrite setw_other //.
  by rewrite neq_ltn (ltnW ed).
- move=> l; rewrite ltnS leq_eqVlt ffunE; case: eqP => /= [e _|_ ld]; last exact: r3.
  have -> : l = d by apply: val_inj.
  by exists zeta.
- rewrite setw_same //; congr (_ + _).
  have -> : arg (setw d wd u.1.1, u.1.2, setc d u.2 zeta) d = a.
    rewrite -r4; apply: arg_ext => //= [e ed|l ld]; first by rewrite setw_other // neq_ltn ed.
    by rewrite ffunE ifF //; apply/eqP => E; rewrite E ltnn in ld.
  by rewrite /tab !valK ffunE eqxx.
Qed.

Lemma reach0 (z : 'I_m) (u0 : Inp) : z < x 0 -> reach 0 z ((u0.1.1, z), u0.2).
Proof. by move=> zx; split. Qed.

Lemma bal0 c : #|[set u : 'I_(N 0) in Z0 | clo 0 u == c]| = x 0 %/ k 0.
Proof.
set a := x 0 %/ k 0.
have xa : x 0 = a * k 0 by rewrite /a divnK.
have lt (j : 'I_a) : j * k 0 + c < m.
  apply: leq_trans x0m; rewrite xa; have := ltn_ord c; have := ltn_ord j; nia.
pose f (j : 'I_a) : 'I_m := Ordinal (lt j).
have finj : injective f.
  by move=> i j /(congr1 (@nat_of_ord _)) /= /eqP; rewrite eqn_add2r eqn_mul2r (gtn_eqF (k0 0)) => /eqP/ord_inj.
rewrite -[RHS]card_ord -(card_imset _ finj); apply: eq_card => y; rewrite !inE.
apply/andP/imsetP => [[yx /eqP yc]|[j _ ->]].
  have ja : y %/ k 0 < a by rewrite ltn_divLR // -xa.
  exists (Ordinal ja) => //; apply: val_inj => /=; have := congr1 (@nat_of_ord _) yc => /= <-.
  by rewrite -divn_eq.
split; first by rewrite /= xa; have := ltn_ord c; have := ltn_ord j; nia.
by apply/eqP; apply: val_inj; rewrite /= modnMDl modn_small.
Qed.

(* the next reachable set *)
Section Next.
Variables (d : nat) (J : {set 'I_(k d) * 'I_(N d)}).
Hypothesis dL : d < L.-1.
Let a := n d.+1 %/ (k d * k d.+1).
Let na : n d.+1 = a * k d.+1 * k d.
Proof. by rewrite /a -mulnA [k d.+1 * _]mulnC divnK ?kk. Qed.
Definition wnext (c' : 'I_(k d.+1)) (c : 'I_(k d)) (j : 'I_a) : nat := (j * k d.+1 + c') * k d + c.
Lemma wnext_lt c' c j : wnext c' c j < n d.+1.
Proof. by rewrite /wnext na; have := ltn_ord c; have := ltn_ord c'; have := ltn_ord j; nia. Qed.
Lemma fnext_lt c' c j (v : 'I_(N d)) : wnext c' c j * N d + v < N d.+1.
Proof.
rewrite /= mulnC; have := wnext_lt c' c j; have := ltn_ord v; set w := wnext _ _ _.
by move=> vN wn'; apply: (@leq_trans (N d * w.+1)); rewrite ?leq_mul2l ?wn' ?orbT // mulnS addnC ltn_add2r.
Qed.
Definition fnext c' (p : ('I_(k d) * 'I_(N d)) * 'I_a) : 'I_(N d.+1) := Ordinal (fnext_lt c' p.1.1 p.2 p.1.2).
Definition Unext : {set 'I_(N d.+1)} := [set y | [exists c', y \in fnext c' @: setX J setT]].

Lemma fnextE c' p : fnext c' p %/ N d = wnext c' p.1.1 p.2 /\ fnext c' p %% N d = p.1.2.
Proof. by rewrite /= divnMDl ?Np // modnMDl divn_small ?addn0 // modn_small. Qed.
Lemma wnextE c' c j : wnext c' c j %/ k d = j * k d.+1 + c' /\ wnext c' c j %% k d = c.
Proof. by rewrite /wnext divnMDl // modnMDl divn_small ?addn0 // modn_small. Qed.

Lemma clo_fnext c' p : clo d.+1 (fnext c' p) = c'.
Proof.
apply: val_inj => /=; rewrite -/(nat_of_ord (fnext c' p)) (fnextE c' p).1.
by rewrite (wnextE c' p.1.1 p.2).1 modnMDl modn_small.
Qed.

Lemma fnext_inj c' : injective (fnext c').
Proof.
move=> [[c v] j] [[c1 v1] j1] E.
have [/= A1 A2] := fnextE c' ((c, v), j); have [/= B1 B2] := fnextE c' ((c1, v1), j1).
have EV := congr1 (@nat_of_ord _) E; rewrite /= in EV.
have ev : v = v1 by apply: ord_inj; rewrite -A2 -B2 EV.
have ew : wnext c' c j = wnext c' c1 j1 by rewrite -A1 -B1 EV.
have [C1 C2] := wnextE c' c j; have [D1 D2] := wnextE c' c1 j1.
have ec : c = c1 by apply: ord_inj; rewrite -C2 -D2 ew.
have : j * k d.+1 + c' = j1 * k d.+1 + c' by rewrite -C1 -D1 ew.
move/eqP; rewrite eqn_add2r eqn_mul2r (gtn_eqF (k0 _)) => /eqP/ord_inj ej.
by rewrite ev ec ej.
Qed.

Lemma bal_next c' : #|[set y in Unext | clo d.+1 y == c']| = #|J| * a.
Proof.
rewrite -[a in RHS]card_ord -cardsT -cardsX -(card_imset _ (@fnext_inj c')).
apply: eq_card => y; rewrite !inE; apply/andP/idP.
  by case=> /existsP[c1 /imsetP[p pJ ->]]; rewrite clo_fnext => /eqP <-; apply: imset_f.
move=> yI; split; first by apply/existsP; exists c'.
by case/imsetP: yI => p _ ->; rewrite clo_fnext.
Qed.

Lemma D_next : k d.+1 * (#|J| * a) = n d.+1 %/ k d * #|J|.
Proof. by rewrite na mulnK // mulnCA mulnC [_ * a]mulnC. Qed.

Lemma next_reach (U : {set 'I_(N d)}) (dL' : d < L) :
  (forall p, p \in J -> exists2 zeta : Om, zeta \in Zl d &
      exists2 y, y \in U & clo d y = p.1 /\ zeta (Ordinal dL') y = p.2) ->
  (forall y, y \in U -> exists u, reach d y u) ->
  forall y, y \in Unext -> exists u, reach d.+1 y u.
Proof.
move=> HJ HU y; rewrite inE => /existsP[c' /imsetP[[p j]]]; rewrite in_setX => /andP[pJ _] -> /=.
have [zeta zZ [y0 y0U [cy zy]]] := HJ p pJ.
have [u ru] := HU y0 y0U.
exists ((setw d (wnext c' p.1 j) u.1.1, u.1.2), setc d u.2 zeta).
have := @reach_step (Ordinal dL') y0 u zeta (wnext c' p.1 j) dL (wnext_lt _ _ _) ru zZ.
rewrite /= zy; apply.
by rewrite (wnextE c' p.1 j).2 -cy.
Qed.
End Next.

Lemma next_ex d (J : {set 'I_(k d) * 'I_(N d)}) (U : {set 'I_(N d)}) (dL : d < L.-1) (dL' : d < L) :
  (forall p, p \in J -> exists2 zeta : Om, zeta \in Zl d &
      exists2 y, y \in U & clo d y = p.1 /\ zeta (Ordinal dL') y = p.2) ->
  (forall y, y \in U -> exists u, reach d y u) ->
  exists (U' : {set 'I_(N d.+1)}) b,
    [/\ forall c, #|[set y : 'I_(N d.+1) in U' | clo d.+1 y == c]| = b, k d.+1 * b = n d.+1 %/ k d * #|J| &
        forall y, y \in U' -> exists u, reach d.+1 y u].
Proof.
move=> HJ HU; exists (Unext J dL), (#|J| * (n d.+1 %/ (k d * k d.+1))); split.
- exact: bal_next.
- exact: D_next.
- exact: next_reach HJ HU.
Qed.

(* a reached argument of the last table belongs to a pair of Q *)
Lemma reach_valid y (u : Inp) : reach L.-1 y u -> valid Q Z0 Zl 0 L.-1 u.
Proof.
move=> [r1 r2 r3 r4]; split=> [_|_|l ld _]; rewrite ?inE //; last exact: r3.
by rewrite r1; apply/forallP => e; rewrite -wvE r2.
Qed.
End Reach.
