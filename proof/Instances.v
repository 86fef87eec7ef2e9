(* Instances of the concrete network: registers of attention heads, several layers in a block, and a network that solves. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model Network.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* registers of Hd heads with dv + 2 numbers (numerator, denominator, online maximum) of p bits: B = Hd (dv+2) p *)
Definition attention_register (Hd dv p : nat) : finType := [finType of {ffun 'I_(Hd * (dv + 2)) -> 'I_(2 ^ p)}].
Lemma attention_register_bits Hd dv p : #|attention_register Hd dv p| = 2 ^ (Hd * (dv + 2) * p).
Proof. by rewrite card_ffun !card_ord -expnM [p * _]mulnC. Qed.

(* two bounded-state layers one after the other are one, with the product of the states: bits add *)
Section Compose.
Variables (H : Type) (A B : finType) (ga : A -> H -> A) (fa : A -> H -> H) (gb : B -> H -> B) (fb : B -> H -> H).
Fixpoint scan (C : Type) (g : C -> H -> C) (f : C -> H -> H) (c : C) (hs : seq H) : seq H :=
  if hs is h :: hs' then f (g c h) h :: scan g f (g c h) hs' else [::].
Definition gab (c : A * B) (h : H) : A * B := let a := ga c.1 h in (a, gb c.2 (fa a h)).
Definition fab (c : A * B) (h : H) : H := fb c.2 (fa c.1 h).
Lemma compose_layers a b hs : scan gb fb b (scan ga fa a hs) = scan gab fab (a, b) hs.
Proof. by elim: hs a b => //= h hs IH a b; rewrite IH. Qed.
Lemma compose_bits i j : #|A| <= 2 ^ i -> #|B| <= 2 ^ j -> #|[finType of A * B]| <= 2 ^ (i + j).
Proof. by move=> Ai Bj; rewrite card_prod expnD leq_mul. Qed.
End Compose.

(* The task is solvable: one look-up (L = 1) with a state that holds the table and z_0. *)
Section Lookup.
Variables (m : nat) (n : nat -> nat) (B S : nat).
Hypothesis m0 : 0 < m.
Hypothesis big : m ^ m * m <= 2 ^ S.
Let i0 : 'I_m := Ordinal m0.
Notation tk := (token 1 n).
Definition mem1 : finType := [finType of {ffun 'I_m -> 'I_m} * 'I_m].
Definition step1 (c : mem1) (h : tk * nat) : mem1 :=
  match h.1 with
  | Entry _ a v _ => ([ffun i : 'I_m => if i == a :> nat then insubd i0 v else c.1 i], c.2)
  | Start z _ => (c.1, insubd i0 z)
  | Ask _ _ => c
  end.
Lemma mem1_le : #|mem1| <= 2 ^ S. Proof. by rewrite card_prod card_ffun !card_ord. Qed.
Lemma unit_le k : #|[finType of unit]| <= 2 ^ k. Proof. by rewrite card_unit expn_gt0. Qed.
Definition lookup_net : net 1 n 0 B (fun _ => S) (fun _ => 0) :=
  @Net 1 n 0 B (fun _ => S) (fun _ => 0) (tk * nat)%type (@Start 1 n 0 0, 0) (fun t => (t, 0))
    (fun _ => [finType of unit]) (fun _ => unit_le B) (fun _ => [finType of unit]) (fun _ => unit_le 0) (fun _ => tt) (fun _ _ _ => tt)
    (fun _ _ => tt) (fun _ _ _ _ => tt) (fun _ h _ _ => h)
    (fun _ => mem1) (fun _ => mem1_le) (fun _ => ([ffun _ => i0], i0)) (fun _ => step1)
    (fun _ c h => (h.1, c.1 c.2 : nat)) (fun h => h.2).

Lemma fill (u : Inp 1 m n) k (c : mem1) : k <= m ->
  let c' := foldl step1 c (map (fun t => (t, 0)) [seq @Entry 1 n 0 a (tab u.2 0 a) 0 | a <- iota 0 k]) in
  forall i : 'I_m, i < k -> c'.1 i = tab u.2 0 i :> nat.
Proof.
elim: k => [|k IH] km //.
cbv zeta; rewrite -[k.+1]addn1 iotaD !map_cat foldl_cat /= add0n => i.
rewrite addn1 ltnS leq_eqVlt ffunE; case: eqP => [ik _|ik /= lt]; last by apply: IH => //; apply: ltnW.
rewrite val_insubd ik ifT // /tab.
case: insubP => // l _ El; case: insubP => // a _ _.
by apply: (leq_trans (ltn_ord (u.2 l a))); rewrite (ord1 l).
Qed.

Lemma last_blk (hs : seq (tk * nat)) (c : mem1) (h d : tk * nat) :
  last d (@blkL 1 n 0 B (fun _ => S) (fun _ => 0) lookup_net 0 c (rcons hs h)) =
  (h.1, let c' := step1 (foldl step1 c hs) h in c'.1 c'.2 : nat).
Proof. by elim: hs c d => //= a hs IH c d; rewrite IH. Qed.

Theorem lookup_solves : forall u : Inp 1 m n, answer_of 1 1 1 lookup_net u = answer u.
Proof.
move=> u; rewrite /answer_of /run /prompt.
have -> : top 1 (toks 1 1 1 u) 3 =
   rcons (rcons [seq @Entry 1 n 0 a (tab u.2 0 a) 0 | a <- iota 0 m] (@Start 1 n u.1.2 0)) (Ask u.1.1 0).
  rewrite /= -!cats1; congr ((_ ++ _) ++ _).
  by elim: (iota 0 m) => //= a r ->.
rewrite 2!map_rcons last_blk -cats1 foldl_cat /=.
by rewrite /answer /= (@fill u m) // insubdK // unfold_in.
Qed.
End Lookup.
