(* From a stack to the numbers of a certificate: how message bits, state bits and the bits of mixers beside attention are counted.

   The definitions are those of `Plan::capacity_with` (crates/rung-theory/src/stack); StackTable.v has a table that a Rust test compares with it.
   That real layers are networks with these numbers is proved where it is a statement about finite sets: registers (register_card), windows and
   convolutions (shift_state, shift_card), recurrences (matrix_card), the selection of the k best tokens or blocks (select_register, select_card, block_card),
   layers in a row (compose_layers in Instances.v, block_bits_cat). *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Instances.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope N_scope.

(* How a message of softmax attention is counted: 2 H d p as in the papers; a sum of values and a sum of weights, H (d+1) p; and a running maximum. *)
Inductive convention : Type := Paper | Register | Online.

(* A mixer as the bounds see it; the last argument is p, the bits of a number. *)
Inductive mixer : Type :=
  | Attention (heads value front p : N)         (* softmax; front: numbers kept by a convolution before its projections *)
  | TopTokens (picked cached p : N)             (* selects single tokens, reads `cached` numbers of each *)
  | TopBlocks (groups picked block cached : N) (compressed : bool) (heads value p : N)
                                                (* each group selects blocks of `block` tokens; compressed: also attends to the summaries *)
  | Recurrence (state tail p : N)               (* numbers of recurrent state; numbers kept by short convolutions and token shifts *)
  | Window (tokens sinks numbers p : N).        (* the current token included; `numbers` kept for each *)
Definition layer : Type := seq mixer.           (* mixers side by side *)

(* a convolution over `channels` with so many taps keeps the last taps - 1 inputs *)
Definition convolution_numbers (taps channels : N) : N := N.pred taps * channels.
(* heads matrices of key by value; with a normaliser one more column *)
Definition matrix_numbers (heads key value : N) (normaliser : bool) : N := heads * key * (if normaliser then value + 1 else value).

Definition message_bits_of (c : convention) (x : mixer) : N :=
  match x with
  | Attention h d _ p => match c with Paper => 2 * h * d * p | Register => h * (d + 1) * p | Online => h * (d + 2) * p end
  | TopTokens picked cached p => picked * p * (1 + cached)
  | TopBlocks g picked block cached compressed h d p =>
      g * ((picked + 1) * block * cached + picked) * p + (if compressed then h * (d + 2) * p else 0)
  | Recurrence _ _ _ | Window _ _ _ _ => 0
  end.
Definition state_bits_of (x : mixer) : N :=
  match x with
  | Recurrence state tail p => (state + tail) * p
  | Window tokens sinks numbers p => (N.pred tokens + sinks) * numbers * p
  | Attention _ _ _ _ | TopTokens _ _ _ | TopBlocks _ _ _ _ _ _ _ _ => 0
  end.
Definition front_bits_of (x : mixer) : N := if x is Attention _ _ front p then front * p else 0.
Definition is_full (x : mixer) : bool :=
  match x with Attention _ _ _ _ | TopTokens _ _ _ | TopBlocks _ _ _ _ _ _ _ _ => true | _ => false end.

Definition sum_bits (f : mixer -> N) (l : layer) : N := foldr (fun x a => f x + a) 0 l.

(* B: the widest message of any layer *)
Definition widest_message (c : convention) (stack : seq layer) : N := foldr (fun l a => N.max (sum_bits (message_bits_of c) l) a) 0 stack.
(* s_0 .. s_F: states between full layers; a convolution before a full layer's projections belongs to the block before it *)
Fixpoint block_bits (stack : seq layer) (bits : N) : seq N :=
  if stack is l :: rest then
    if has is_full l then (bits + sum_bits front_bits_of l) :: block_bits rest 0 else block_bits rest (bits + sum_bits state_bits_of l)
  else [:: bits].
(* bits of the mixers beside each full layer *)
Definition beside_bits (stack : seq layer) : seq N := [seq sum_bits state_bits_of l | l <- stack & has is_full l].

(* bounded-state layers in a row add their bits *)
Lemma block_bits_cat (a rest : seq layer) bits : all (fun l => ~~ has is_full l) a ->
  block_bits (a ++ rest) bits = block_bits rest (bits + foldr (fun l b => sum_bits state_bits_of l + b) 0 a).
Proof.
elim: a bits => [|l a IH] bits /=; first by rewrite N.add_0_r.
by case/andP => /negbTE -> al; rewrite IH // N.add_assoc.
Qed.
Lemma block_bits_size stack bits : size (block_bits stack bits) = (count (has is_full) stack).+1.
Proof. by elim: stack bits => //= l rest IH bits; case: ifP => _ /=; rewrite IH. Qed.

Local Close Scope N_scope.

(* H accumulators of d numbers and `extra` more (weights, running maximum) of p bits *)
Lemma register_card (H d extra p : nat) : #|[finType of {ffun 'I_(H * (d + extra)) -> 'I_(2 ^ p)}]| = 2 ^ (H * (d + extra) * p).
Proof. by rewrite card_ffun !card_ord -expnM mulnC. Qed.
(* the papers' 2 H d p covers both registers for heads at least two wide *)
Lemma paper_covers (H d p : nat) : 1 < d -> H * (d + 2) * p <= 2 * H * d * p.
Proof. by move=> d2; rewrite leq_mul2r -mulnA mulnCA leq_mul2l mul2n -addnn leq_add2l d2 !orbT. Qed.
(* a recurrence with a state of k numbers of p bits *)
Lemma matrix_card (k p : nat) : #|[finType of {ffun 'I_k -> 'I_(2 ^ p)}]| = 2 ^ (k * p).
Proof. by rewrite card_ffun !card_ord -expnM mulnC. Qed.

(* A window over the last w tokens besides the current one, and a convolution of w + 1 taps, are recurrences whose state is these tokens. *)
Section Shift.
Variables (T : finType) (w : nat).
Definition shift_step (c : w.-tuple T) (h : T) : w.-tuple T := [tuple nth h (rcons c h) i.+1 | i < w].
Lemma shift_stepE c h : val (shift_step c h) = behead (rcons c h).
Proof.
apply: (@eq_from_nth _ h) => [|i]; first by rewrite size_tuple size_behead size_rcons size_tuple.
by rewrite size_tuple => iw; rewrite -(tnth_nth h (shift_step c h) (Ordinal iw)) tnth_mktuple nth_behead.
Qed.
(* after any tokens the state holds the last w of them *)
Lemma shift_state (c : w.-tuple T) hs : val (foldl shift_step c hs) = drop (size hs) (c ++ hs).
Proof.
elim: hs c => [|h hs IH] c /=; first by rewrite cats0 drop0.
rewrite IH shift_stepE -cat_rcons; have := size_rcons c h.
by case: (rcons c h) => [|a r] //= _.
Qed.
Lemma shift_card (numbers p : nat) : #|T| = 2 ^ (numbers * p) -> #|[finType of w.-tuple T]| = 2 ^ (w * numbers * p).
Proof. by move=> E; rewrite card_tuple E -expnM -[w * _ * _]mulnA [w * _]mulnC. Qed.
End Shift.

(* A layer that selects the k best tokens keeps them in a register from left to right: what stands behind the k best so far never comes back. *)
Section Select.
Variables (T : eqType) (better : rel T) (k : nat).
Fixpoint insert (x : T) (s : seq T) : seq T := if s is y :: s' then if better x y then x :: s else y :: insert x s' else [:: x].
Lemma take_insert x s : take k (insert x (take k s)) = take k (insert x s).
Proof.
elim: k s => [|j IH] [|y s] //=; rewrite ?take0 //; case: ifP => _ /=; last by rewrite IH.
by clear IH; case: j => [|j] //=; rewrite take_take.
Qed.
(* the register: k items, at first k copies of a worst one *)
Lemma select_register (c s : seq T) :
  foldl (fun c x => take k (insert x c)) (take k c) s = take k (foldl (fun c x => insert x c) c s).
Proof. by elim: s c => //= x s IH c; rewrite take_insert IH. Qed.
Lemma insert_perm x s : perm_eq (insert x s) (x :: s).
Proof.
elim: s => //= y s IH; case: ifP => // _.
apply: (@perm_trans _ (y :: x :: s)); first by rewrite perm_cons.
by have /permPl := perm_catCA [:: y] [:: x] s.
Qed.
Lemma insert_sorted : total better -> forall x s, sorted better s -> sorted better (insert x s).
Proof.
move=> tot x; case=> //= y s; case: ifP => [xy /= -> |]; first by rewrite xy.
move=> /negbT nxy; have yx : better y x by have := tot x y; rewrite (negbTE nxy).
elim: s y yx {nxy} => [|z s IH] y yx /=; first by rewrite yx.
case/andP => yz zs; case: ifP => [xz|/negbT nxz] /=; first by rewrite yx xz.
rewrite yz; apply: IH => //; have := tot x z; by rewrite (negbTE nxz).
Qed.
Lemma size_insert x s : size (insert x s) = (size s).+1.
Proof. exact: (perm_size (insert_perm x s)). Qed.
Lemma select_size (c : seq T) x : size c = k -> size (take k (insert x c)) = k.
Proof. by move=> sc; rewrite size_takel // size_insert sc. Qed.
End Select.
(* k items with a score and `cached` numbers of p bits: the message of TopTokens *)
Lemma select_card (k cached p : nat) : #|[finType of k.-tuple ('I_(2 ^ p) * {ffun 'I_cached -> 'I_(2 ^ p)})]| = 2 ^ (k * p * (1 + cached)).
Proof. by rewrite card_tuple card_prod card_ffun !card_ord -expnM -expnD -expnM -{1}[p]muln1 -mulnDr mulnC mulnA. Qed.
(* k whole blocks with a score each, and the block that is being read: the message of one group of TopBlocks *)
Lemma block_card (k block cached p : nat) :
  #|[finType of k.-tuple ('I_(2 ^ p) * {ffun 'I_(block * cached) -> 'I_(2 ^ p)}) * {ffun 'I_(block * cached) -> 'I_(2 ^ p)}]| =
  2 ^ (((k + 1) * block * cached + k) * p).
Proof.
rewrite card_prod card_tuple card_prod !card_ffun !card_ord -!expnM -expnD -expnM -expnD; congr (_ ^ _).
by lia.
Qed.
