(* Layer 1 reads embeddings.  Where block 0 is empty, the own state of an entry's tokens in layer 1 is a function of the entry (its table, argument
   and value): so the message to player l+2 consists of messages to its entries, each a function of that entry and of the prefix.  Theorem 3 uses this
   (step 1, "freezing for the whole cube"); the laws of `stack` speak of whole players only.

   local_reads   the property of a stack
   net_local     networks have it *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model Network.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* read_entry l a v j u: what the te tokens of entry a of table l with value v read in layer 1 from all players >= j *)
Definition local_reads L m n te t0 tw F B s sd (P : @stack L m n te t0 tw F B s sd) : Prop :=
  exists read_entry : nat -> nat -> nat -> nat -> Inp L m n -> 'I_(2 ^ (B * te)),
    (forall l a v j u u', agree j u u' -> read_entry l a v j u = read_entry l a v j u') /\
    (forall l j u u', same l.+2 u u' ->
       (forall a, a < Nn m n l -> read_entry l a (tab u.2 l a) j u = read_entry l a (tab u.2 l a) j u') ->
       @msg _ _ _ _ _ _ _ _ _ _ P 1 l.+2 j (stX P 0 l.+2 u) u = @msg _ _ _ _ _ _ _ _ _ _ P 1 l.+2 j (stX P 0 l.+2 u') u').

Lemma nth_allpairs (T : Type) (f : nat -> nat -> T) (d : T) (p q : seq nat) i : i < size [seq f a r | a <- p, r <- q] ->
  exists a r, [/\ a \in p, r \in q & nth d [seq f a r | a <- p, r <- q] i = f a r].
Proof.
have -> : [seq f a r | a <- p, r <- q] = [seq f x.1 x.2 | x <- [seq (a, r) | a <- p, r <- q]] by rewrite map_allpairs.
rewrite size_map => si; rewrite (nth_map (0, 0)) //.
by have /allpairsP[[a r] /= [ap rq ->]] := mem_nth (0, 0) si; exists a, r.
Qed.

Section Net.
Variables (L m : nat) (n : nat -> nat) (te t0 tw F B : nat) (s sd : nat -> nat) (W : net L n F B s sd).
Hypothesis s0 : s 0 = 0.

(* an empty block works token by token *)
Lemma empty_blkL c c' hs : @blkL _ _ _ _ _ _ W 0 c hs = map (bout W 0 c') hs.
Proof.
have one (a b : mem W 0) : a = b by have := mem_le W 0; rewrite s0 expn0 => /fintype_le1P; apply.
by elim: hs c => //= h hs IH c; rewrite IH (one (bstep W 0 c h) c').
Qed.

Definition held (t : token L n) : H W := bout W 0 (binit W 0) (emb W t).
Definition fold_reads (h : H W) j (u : Inp L m n) :=
  foldl (rstep W 1 h) (rinit W 1 h) (ann (pinit W 1) (top L (segX te t0 tw W u 0) (L.+2 - j))).
Lemma entry_card : #|[finType of {ffun 'I_te -> reg W 1}]| <= 2 ^ (B * te).
Proof. by rewrite card_ffun card_ord expnM leq_expn // reg_le. Qed.

Lemma net_local : local_reads (net_stack m te t0 tw W).
Proof.
exists (fun l a v j u => pack entry_card [ffun r : 'I_te => fold_reads (held (Entry L n l a v r)) j u]); split.
  move=> l a v j u u' ag; congr pack; apply/ffunP => r; rewrite !ffunE /fold_reads; congr foldl; congr ann.
  apply: top_eq => q qj; apply: seg_causal.
  by case: ag => a1 a2 a3; split=> [?|?|k ?]; [apply: a1|apply: a2|apply: a3]; lia.
move=> l j u u' sm reads.
have E v : segX te t0 tw W v 0 l.+2 = map held (toks te t0 tw v l.+2).
  by rewrite /= /blkS (empty_blkL _ (binit W 0)) -map_comp.
have tE := toks_same te t0 tw sm.
change (@nmsg L m n te t0 tw F B s sd W 1 l.+2 j (segX te t0 tw W u 0 l.+2) u = @nmsg L m n te t0 tw F B s sd W 1 l.+2 j (segX te t0 tw W u' 0 l.+2) u').
rewrite !E -tE; congr pack; apply/ffunP => i; rewrite !ffunE.
have sz : i < size (toks te t0 tw u l.+2) by rewrite size_toks.
rewrite (nth_map (Start L n 0 0)) //.
have [a [r [ai ri ->]]] := nth_allpairs (Start L n 0 0) sz.
rewrite mem_iota add0n in ai; rewrite mem_iota add0n in ri.
by have := pack_inj (reads a ai) => /ffunP /(_ (Ordinal ri)); rewrite !ffunE.
Qed.
End Net.
