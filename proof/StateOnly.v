(* No full layer, any L (theorem `state` of a certificate): block 0 must hold the last table, s_0 >= N_{L-1} log N_{L-1}.

   PROOF.  Fix the border of block 0 at the cut behind z_L: a fraction 2^-s_0 of the tables z_L remains, and the answer does not depend on which one is
   in the prompt.  Every argument of z_L is asked for by some input (z_{L-1} constant, any w), so all remaining tables are equal.  QED *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model Draw Reach LowerBound Logarithm Network Statement Padding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section State.
Variables (L m te t0 tw B : nat) (n s sd : nat -> nat).
Hypotheses (L0 : 0 < L) (m0 : 0 < m) (n0 : forall e, 0 < n e).
Notation N := (Nn m n). Notation Om := (Om L m n). Notation Inp := (Inp L m n).
Let N0 e : 0 < N e := Nn_pos m0 n0 e.

Definition some_input : Inp :=
  (([ffun e : 'I_L.-1 => Ordinal (n0 e.+1)] : Query L n, Ordinal m0),
   [ffun l : 'I_L => [ffun _ => Ordinal (N0 l)] : Table m n l] : Om).

Lemma arg_lt (u : Inp) l : l < L -> arg u l < N l.
Proof.
case: l => [|l] lL /=; first exact: ltn_ord.
have wl : l < L.-1 by rewrite -ltnS prednK.
have lt : wv u.1.1 l < n l.+1 by rewrite (wvO _ wl); apply: ltn_ord.
have := tab_lt m0 n0 u.2 l (arg u l); rewrite mulnC; move: (tab _ _ _) (wv _ _) (N l) (n l.+1) lt => a w M k; nia.
Qed.

(* every argument of the last table is asked for *)
Lemma asked (y : 'I_(N L.-1)) : exists u : Inp, arg u L.-1 = y.
Proof.
case E : L.-1 y => [|l] y; first by exists ((some_input.1.1, y), some_input.2).
have lL : l < L by rewrite -(prednK L0) E; apply: leqW.
have wl : l < L.-1 by rewrite E.
have ny : y %/ N l < n l.+1 by rewrite ltn_divLR // mulnC; apply: ltn_ord.
have ry : y %% N l < N l by apply: ltn_pmod.
pose z : Om := [ffun i : 'I_L => [ffun a => insubd a (y %% N l)] : Table m n i].
pose u : Inp := ((setw l (y %/ N l) some_input.1.1, some_input.1.2), z).
exists u; rewrite [arg u _]/= setw_same // {2}(divn_eq y (N l)); congr (_ + _).
rewrite /tab (insubT (fun i => i < L) lL) (insubT (fun i => i < N l) (arg_lt u lL)) /= !ffunE /=.
by rewrite val_insubd ry.
Qed.

Variable P : stack L m n te t0 tw 0 B s sd.
Hypothesis sol : solves P.

Lemma state_needed : N L.-1 ^ N L.-1 <= 2 ^ s 0.
Proof.
pose Q : {set Query L n * 'I_m} := setT; pose Z0 : {set 'I_m} := setT; pose Zl (_ : nat) := enum [set: Om].
pose x (e : nat) := #|Z0|.
have [S [_ cS] HS] := freeze_brd P some_input L.-1 [set: Om] (leqnn 0).
have lL : L.-1 < L by rewrite prednK.
have valid_all (u : Inp) : valid Q Z0 Zl 0 L.-1 u.
  by split=> [_|_|l _ _]; rewrite ?inE //; exists u.2; rewrite // mem_enum inE.
have HX : X_const P Q Z0 Zl 0 0 L.-1 S.
  by apply: block_const => // q /andP[_ qe]; apply: (@embed_const _ _ _ _ _ _ _ _ _ _ P Q Z0 Zl #|Q| x).
have ag : {in S &, forall r r' : Om, {in [set: 'I_(N L.-1)], forall y, r (Ordinal lL) y = r' (Ordinal lL) y}}.
  move=> r r' rS rS' y _; have [u uy] := asked y.
  have val_of (a : Om) : answer (merge L.-1 u a) = a (Ordinal lL) y.
    rewrite /answer (_ : arg (merge L.-1 u a) L.-1 = y); last first.
      by rewrite -uy; apply: arg_ext => //= l ld; rewrite ffunE ld.
    by rewrite /tab (insubT (fun i => i < L) lL) valK /= ffunE ltnn.
  by apply: ord_inj; rewrite -!val_of -!sol (HX u (valid_all u) r r').
have := agree_few (N0 _) (@unif L m n (Ordinal lL)) ag; rewrite !cardsT card_ord => few.
rewrite cardsT in cS; have O0 : 0 < #|Om| by apply/card_gt0P; exists some_input.2.
have S0 : 0 < #|S| by case: #|S| cS O0 => //; rewrite mul0n leqn0 => /eqP ->.
by have := leq_trans few cS; rewrite leq_pmul2l.
Qed.
End State.

(* Theorem S: without full layers, a state smaller than the last table does not solve the task. *)
Theorem state_only (L m te t0 tw B : nat) (n s sd : nat -> nat) : 0 < L -> 0 < m -> (forall e, 0 < n e) ->
  2 ^ s 0 < Nn m n L.-1 ^ Nn m n L.-1 -> forall P : stack L m n te t0 tw 0 B s sd, ~ solves P.
Proof. by move=> L0 m0 n0 lt P sol; have := state_needed L0 m0 n0 sol; rewrite leqNgt lt. Qed.
