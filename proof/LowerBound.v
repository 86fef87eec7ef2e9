(* The lower bound of docs/proof.md for every L, both cases: lower_bound.

   `conditions` lists what a certificate must satisfy; `Delta e`, `D e` are Delta_e and D_{e+1} of docs/proof.md; `Inv e` is the invariant (a), (b);
   `drawn` chooses a list, `steps` freezes, `contradiction` and `impossible` end the proof. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model Draw Reach.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Bound.
(* z = true is case 0 (F = L, blocks 0 and 1 empty), z = false is case 1 (F = L-1). *)
Variables (z : bool) (L B m : nat) (s sd n x sigma k : nat -> nat) (te t0 tw : nat).
Definition layers : nat := L.-1 + z.
Notation F := layers.
Notation N := (Nn m n).
Notation Om := (Om L m n).
Notation Inp := (Inp L m n).

Definition dep (e p : nat) : nat := if z && (e == 0) && (p == 1) then 1 else e.
(* what case 0 freezes for z_0 in layer 1, and the mixers beside full layers 1 .. e+1 *)
Definition extra (e : nat) : nat :=
  (if z && (e == 0) then B * t0 * x 0 else 0) + \sum_(1 <= i < (e + z).+2) sd i.
Definition sbits e := step_bits m n te t0 tw B s (qn L n x k) x (dep e) (e + z) e.
Definition lbits e j := last_bits m n te t0 tw F B s (qn L n x k) x (dep e) (e + z) e j.
Fixpoint Delta (e : nat) : nat :=
  if e is e'.+1 then (x e * Delta e').+1 + extra e' + sbits e' else if z then B * tw * wn L n k + sd 1 else s 0.
Definition D (e : nat) : nat := if e is e'.+1 then n e %/ k e' * sigma e else x 0.
Definition Dfinal (j : nat) : nat :=
  if L.-1 is e.+1 then (x e.+1 * Delta e).+1 + extra e + lbits e j else Delta 0.

Record conditions (j : nat) : Prop := Conditions {
  c_L : 0 < L; c_m : 0 < m;
  c_n : forall e, 0 < n e; c_x : forall e, 0 < x e; c_k : forall e, 0 < k e;
  c_x0m : x 0 <= m; c_kx : k 0 %| x 0;
  c_kk : forall e, e < L.-1 -> k e * k e.+1 %| n e.+1;
  c_sigma : forall e, e < L.-1 -> 0 < sigma e.+1 <= k e * N e;
  c_empty : z -> s 0 = 0 /\ s 1 = 0;
  c_tail : forall e, e < L.-1 -> let M := k e * N e in let T := x e.+1 * D e in let t := (sigma e.+1).-1 in
     'C(M, t) * t ^ T * 2 ^ (x e.+1 * Delta e).+1 <= M ^ T;
  c_cut : 0 < j <= L.+1;
  c_final : 2 ^ Dfinal j < N L.-1 ^ D L.-1 }.

Section Proof.
Variable j : nat.
Hypothesis C : conditions j.
Variable P : stack L m n te t0 tw F B s sd.
Hypothesis sol : solves P.

Let m0 := c_m C. Let n0 := c_n C. Let x_pos := c_x C. Let k0 := c_k C.
Notation Q := (Q L m n x k).
Notation Z0 := (Z0 m x).
Notation clo := (clo m n k0).
Lemma cQ : #|Q| <= qn L n x k. Proof. by apply: card_Q; case: C. Qed.
Lemma cW : #|[set q.1 | q in Q]| <= wn L n k. Proof. by apply: card_W; case: C. Qed.
Lemma cZ : #|Z0| = x 0. Proof. by apply: card_Z0; case: C. Qed.

Definition u0 : Inp :=
  (([ffun e : 'I_L.-1 => Ordinal (n0 e.+1)] : Query L n, Ordinal m0),
   [ffun l : 'I_L => [ffun _ => Ordinal (Nn_pos m0 n0 l)] : Table m n l] : Om).

Definition balanced e (U : {set 'I_(N e)}) : Prop :=
  exists2 b, forall c, #|[set y : 'I_(N e) in U | clo e y == c]| = b & k e * b = D e.

Definition Inv e : Prop := exists Zl (R : {set Om}) (U : {set 'I_(N e)}),
  [/\ forall l, l < e -> size (Zl l) = x l.+1,
      #|Om| <= #|R| * 2 ^ Delta e,
      if z && (e == 0) then X_const P Q Z0 Zl 1 0 0 R else forall p, p <= e.+1 -> X_const P Q Z0 Zl (e + z) p e R,
      balanced U &
      forall y, y \in U -> exists u, reach x k Zl e y u].

Definition Drawn e : Prop := exists Zl (S : {set Om}) (U : {set 'I_(N e.+1)}),
  [/\ (forall l, l < e.+1 -> size (Zl l) = x l.+1) /\ sides P (e + z).+1 e.+1 S,
      #|Om| <= #|S| * 2 ^ ((x e.+1 * Delta e).+1 + extra e),
      forall p, p <= e.+1 -> dep e p <= e.+1 /\ X_upto P Q Z0 Zl (e + z) p (dep e p) e.+1 S,
      balanced U &
      forall y, y \in U -> exists u, reach x k Zl e.+1 y u].

Lemma valid_ext (Zl Zl' : nat -> seq Om) p d (u : Inp) : (forall l, l < d -> Zl l = Zl' l) ->
  valid Q Z0 Zl' p d u -> valid Q Z0 Zl p d u.
Proof. by move=> E [H1 H2 H3]; split=> // l ld; rewrite E //; apply: H3. Qed.

(* "Start" *)
Lemma start : Inv 0.
Proof.
have base (R : {set Om}) : #|Om| <= #|R| * 2 ^ Delta 0 ->
   (if z && (0 == 0) then X_const P Q Z0 (fun _ => [::]) 1 0 0 R
    else forall p, p <= 1 -> X_const P Q Z0 (fun _ => [::]) (0 + z) p 0 R) -> Inv 0.
  move=> cR HR; exists (fun _ => [::]), R, Z0; split => //.
    exists (x 0 %/ k 0); first by move=> c; apply: (bal0 n m0 k0 (c_x0m C) (c_kx C)).
    by rewrite mulnC divnK ?(c_kx C).
  by move=> y; rewrite inE => yx; exists ((u0.1.1, y), u0.2); apply: reach0.
have := base; case zE : z => /= {}base.
  have [s0 s1] := c_empty C zE.
  have F0 : 0 < F by rewrite /layers zE addn1.
  have [R cR HR] := start0 P u0 (fun _ => [::]) cQ cZ cW F0 s0 s1.
  by apply: (base R) => //; rewrite zE.
have [R cR HR] := start1 P u0 (fun _ => [::]) cQ cZ.
by apply: (base R) => //; rewrite zE.
Qed.

(* "Step e to e+1, choosing the list" *)
Lemma drawn e : e < L.-1 -> Inv e -> Drawn e.
Proof.
move=> eL [Zl [R [U [szZ cR HX [b bal bD] HU]]]].
have eL' : e < L by apply: leq_trans eL (leq_pred _).
have tail := c_tail C eL; rewrite /= -bD in tail.
have [Zs [J [szs cJ HJ [S cS HS]]]] :=
  draw_Om m0 n0 (e := Ordinal eL') (cls := fun y : 'I_(N e) => clo e y) bal (x_pos e.+1) (k0 e) (c_sigma C eL) cR tail.
pose Zl' l := if l == e then Zs else Zl l.
have Zl'e : Zl' e = Zs by rewrite /Zl' eqxx.
have Zl'l l : l < e -> Zl l = Zl' l by move=> le; rewrite /Zl' ifF // ltn_eqF.
have szZ' l : l < e.+1 -> size (Zl' l) = x l.+1.
  by rewrite ltnS leq_eqVlt /Zl'; case: eqP => [-> _|_ /= le]; [|apply: szZ].
have HS' r zeta : r \in S -> zeta \in Zl' e -> setc e r zeta \in R by rewrite Zl'e; apply: HS.
have HU' y : y \in U -> exists u, reach x k Zl' e y u.
  move=> /HU[u [r1 r2 r3 r4]]; exists u; split=> // l le; rewrite -Zl'l //; exact: r3.
have [|U' [b' [bal' bD' HU'']]] := @next_ex L m n x k m0 n0 k0 (c_x0m C) (c_kx C) (c_kk C) Zl' e J U eL eL' _ HU'.
  by move=> p /HJ[zeta zZ H]; exists zeta; rewrite ?Zl'e //; exact: H.
have tF : e + z <= F by rewrite /layers leq_add2r ltnW.
have upto p : p <= e.+1 -> X_const P Q Z0 Zl (e + z) p e R -> X_upto P Q Z0 Zl' (e + z) p e e.+1 S.
  move=> pe H; apply: (slice_upto tF pe eL' HS') => u uv; apply: H; exact: valid_ext uv.
have bU : balanced U' by exists b' => //; rewrite bD' cJ.
have tF1 : (e + z).+1 <= F by rewrite /layers -addSn leq_add2r.
have [S0 [sS0 cS0] HS0] := freeze_sides P u0 cQ cZ e.+1 S tF1.
have {}upto p : p <= e.+1 -> X_const P Q Z0 Zl (e + z) p e R -> X_upto P Q Z0 Zl' (e + z) p e e.+1 S0.
  by move=> pe H; apply: (upto_sub sS0); apply: upto.
have {cS cS0} cS0 : #|Om| <= #|S0| * 2 ^ ((x e.+1 * Delta e).+1 + \sum_(1 <= i < (e + z).+2) sd i).
  rewrite [X in 2 ^ X]addnC expnD mulnA; apply: leq_trans cS _.
  by rewrite leq_mul2r cS0 orbT.
rewrite /Drawn /dep /extra; case: ifP HX => [/andP[zT /eqP e0]|_] HX; last first.
  exists Zl', S0, U'; split => //.
  by move=> p pe; split=> //; apply: upto => //; apply: HX.
have [s0 s1] := c_empty C zT.
have F0 : 0 < F by rewrite /layers zT addn1.
subst e; have e1 : 0 + z = 1 by rewrite zT.
rewrite e1 in tF upto HS0 cS0 *.
have [S' [sS' cS'] HS''] := pre0 u0 cQ cZ x_pos F0 (c_L C) s0 s1 (szZ' 0 isT) (HS0 1 isT).
exists Zl', S', U'; split => //.
- by split=> //; apply: sides_sub HS0.
- by rewrite addnCA expnD mulnA; apply: leq_trans cS0 _; rewrite leq_mul2r cS' orbT.
move=> [_|[_|//]] /=; split=> //.
by apply: (upto_sub sS'); apply: upto.
Qed.

(* all steps but the last *)
Lemma steps e : e < L.-1 -> Inv e.
Proof.
elim: e => [_|e IH eL]; first exact: start.
have eL1 : e < L.-1 by apply: ltnW.
have eL' : e < L by apply: leq_trans eL1 (leq_pred _).
have [Zl [S [U [[szZ sides'] cS HX bU HU]]]] := drawn eL1 (IH eL1).
have tF : e + z < F by rewrite /layers ltn_add2r.
have [R [sR cR] HR] := step u0 cQ cZ x_pos tF eL' szZ sides' HX.
exists Zl, R, U; split => //; last by rewrite andbF.
rewrite /= [X in 2 ^ X]addnC expnD mulnA; apply: leq_trans cS _.
by rewrite leq_mul2r cR orbT.
Qed.

(* "Contradiction" *)
Lemma contradiction d (Zl : nat -> seq Om) (R : {set Om}) (U : {set 'I_(N d)}) : L.-1 = d ->
  #|Om| <= #|R| * 2 ^ Dfinal j -> (forall t, t = F -> X_const P Q Z0 Zl t 0 d R) -> balanced U ->
  (forall y, y \in U -> exists u, reach x k Zl d y u) -> False.
Proof.
move=> dE; subst d; move=> cR /(_ F erefl) HX [b bal bD] HU.
have lL : L.-1 < L by rewrite prednK ?(c_L C).
have O0 : 0 < #|Om| by apply/card_gt0P; exists u0.2.
have R0 : 0 < #|R| by case: #|R| cR O0 => //; rewrite mul0n leqn0 => /eqP ->.
have cU : #|U| = D L.-1 by rewrite (cardU bal).
have ag : {in R &, forall r r' : Om, {in U, forall y : 'I_(N L.-1), r (Ordinal lL) y = r' (Ordinal lL) y}}.
  move=> r r' rR rR' y yU; have [u ru] := HU y yU.
  have uv := reach_valid ru.
  have val_of (a : Om) : answer (merge L.-1 u a) = a (Ordinal lL) y.
    have [_ _ _ ya] := ru.
    rewrite /answer (_ : arg (merge L.-1 u a) L.-1 = y); last first.
      by rewrite -ya; apply: arg_ext => //= l ld; rewrite ffunE ld.
    by rewrite /tab (insubT (fun i => i < L) lL) valK /= ffunE ltnn.
  by apply: ord_inj; rewrite -!val_of -!sol (HX u uv r r').
have := agree_few (Nn_pos m0 n0 _) (@unif L m n (Ordinal lL)) ag.
rewrite cU /= => few.
have := leq_trans few cR; rewrite leq_pmul2l // leqNgt.
by rewrite (c_final C).
Qed.

Lemma impossible : False.
Proof.
have cut := c_cut C.
case EL : L.-1 => [|e].
  have [Zl [R [U [_ cR HX bU HU]]]] := start.
  apply: (contradiction EL (R := R) _ _ bU HU); first by rewrite /Dfinal EL.
  have FE : F = 0 + z by rewrite /layers EL.
  move=> t tE; have {tE} : t = 0 + z by rewrite tE.
  move=> ->; have [zT|zF] : z = true \/ z = false by case: (z); [left|right].
    have -> : 0 + z = 1 by rewrite zT.
    by move: HX; rewrite {1}zT.
  by move: HX; rewrite {1}zF /= => /(_ 0 isT).
have eL : e < L.-1 by rewrite EL.
have eL' : e < L by apply: leq_trans eL (leq_pred _).
have [Zl [S [U [[szZ sides'] cS HX bU HU]]]] := drawn eL (steps eL).
have tF : (e + z).+1 = F by rewrite /layers EL.
have jb : 0 < j <= e.+3 by move: cut; rewrite -(prednK (c_L C)) EL.
have [R [sR cR] HR] := last_step u0 cQ cZ x_pos tF eL' jb szZ sides' HX.
apply: (contradiction EL (R := R) _ _ bU HU); last by move=> t ->.
rewrite /Dfinal EL /= [X in 2 ^ X]addnC expnD mulnA; apply: leq_trans cS _.
by rewrite leq_mul2r cR orbT.
Qed.
End Proof.

(* No stack with these numbers solves the task. *)
Theorem lower_bound (j : nat) : conditions j ->
  forall P : stack L m n te t0 tw layers B s sd, ~ solves P.
Proof. by move=> C P sol; exact: (impossible C sol). Qed.
End Bound.
