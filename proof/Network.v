(* A concrete causal network is an instance of the abstract stack. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Lemma pack_proof (T : finType) k : #|T| <= 2 ^ k -> forall a : T, enum_rank a < 2 ^ k.
Proof. by move=> le a; apply: leq_trans le; apply: ltn_ord. Qed.
Definition pack (T : finType) k (le : #|T| <= 2 ^ k) (a : T) : 'I_(2 ^ k) := Ordinal (pack_proof le a).
Lemma pack_inj (T : finType) k (le : #|T| <= 2 ^ k) : injective (pack le).
Proof. by move=> a b /(congr1 (@nat_of_ord _)) /= /ord_inj /enum_rank_inj. Qed.

Section Net.
Variables (L m : nat) (n : nat -> nat) (te t0 tw : nat).
Notation Inp := (Inp L m n).
Notation tokn := (tok m n te t0 tw).

(* A token shows its place (level, argument, part) and, for an entry, the value. *)
Inductive token : Type :=
  | Entry (l a v r : nat)
  | Start (z r : nat)
  | Ask (w : Query L n) (r : nat).
Definition toks (u : Inp) (p : nat) : seq token := match p with
  | 0 => [seq Ask u.1.1 r | r <- iota 0 tw]
  | 1 => [seq Start u.1.2 r | r <- iota 0 t0]
  | l.+2 => [seq Entry l a (tab u.2 l a) r | a <- iota 0 (Nn m n l), r <- iota 0 te]
  end.
Lemma size_toks u p : size (toks u p) = tokn p.
Proof. by case: p => [|[|l]]; rewrite /= ?size_map ?size_allpairs ?size_iota // mulnC. Qed.

(* the segments of players L+1, L, .., L+2-k, in the order of the prompt *)
Fixpoint top (T : Type) (S : nat -> seq T) (k : nat) : seq T :=
  if k is k'.+1 then top S k' ++ S (L.+1 - k') else [::].
Definition prompt (u : Inp) : seq token := top (toks u) L.+2.

(* F full layers whose registers have B bits and are filled from left to right; mixers beside full layer e (SSM heads,
   convolutions on keys and values) with sd_e bits of state; blocks with s_e bits of state.
   Weights, nonlinearities, residuals, positions: arbitrary functions. *)
Record net (F B : nat) (s sd : nat -> nat) := Net {
  H : Type; h0 : H; emb : token -> H;
  reg : nat -> finType; reg_le : forall e, #|reg e| <= 2 ^ B;
  par : nat -> finType; par_le : forall e, #|par e| <= 2 ^ sd e;
  pinit : forall e, par e; pstep : forall e, par e -> H -> par e;
  rinit : forall e, H -> reg e; rstep : forall e, H -> reg e -> H * par e -> reg e; fout : forall e, H -> reg e -> par e -> H;
  mem : nat -> finType; mem_le : forall e, #|mem e| <= 2 ^ s e;
  binit : forall e, mem e; bstep : forall e, mem e -> H -> mem e; bout : forall e, mem e -> H -> H;
  read : H -> nat }.

Arguments emb {F B s sd}. Arguments rinit {F B s sd}. Arguments rstep {F B s sd}. Arguments fout {F B s sd}.
Arguments binit {F B s sd}. Arguments bstep {F B s sd}. Arguments bout {F B s sd}. Arguments read {F B s sd}. Arguments h0 {F B s sd}. Arguments pinit {F B s sd}. Arguments pstep {F B s sd}.
Section Run.
Variables (F B : nat) (s sd : nat -> nat) (W : net F B s sd).
Notation H := (H W).
(* full layer e: each token folds the register over all tokens up to itself *)
Fixpoint fullL e (c : par W e) (pre : seq (H * par W e)) (hs : seq H) : seq H :=
  if hs is h :: hs' then
    let c' := pstep W e c h in let pre' := rcons pre (h, c') in
    fout W e h (foldl (rstep W e h) (rinit W e h) pre') c' :: fullL c' pre' hs'
  else [::].
(* the tokens with the states of the mixers beside the layer *)
Fixpoint ann e (c : par W e) (hs : seq H) : seq (H * par W e) :=
  if hs is h :: hs' then (h, pstep W e c h) :: ann (pstep W e c h) hs' else [::].
(* block e: h_i = g (h_{i-1}, x_i), o_i = f (h_i, x_i) *)
Fixpoint blkL e (c : mem W e) (hs : seq H) : seq H :=
  if hs is h :: hs' then bout W e (bstep W e c h) h :: blkL (bstep W e c h) hs' else [::].
Fixpoint run (u : Inp) (e : nat) : seq H :=
  blkL (binit W e) (if e is e'.+1 then fullL (pinit W e) [::] (run u e') else map (emb W) (prompt u)).
Definition answer_of (u : Inp) : nat := read W (last (h0 W) (run u F)).

(* the same run, player by player *)
Definition fullS e (S : nat -> seq H) p :=
  fullL (foldl (pstep W e) (pinit W e) (top S (L.+1 - p))) (ann (pinit W e) (top S (L.+1 - p))) (S p).
Definition blkS e (S : nat -> seq H) p := blkL (foldl (bstep W e) (binit W e) (top S (L.+1 - p))) (S p).
Fixpoint segX (u : Inp) (e : nat) : nat -> seq H :=
  blkS e (if e is e'.+1 then fullS e (segX u e') else fun p => map (emb W) (toks u p)).
Definition segY (u : Inp) (e : nat) : nat -> seq H :=
  if e is e'.+1 then fullS e (segX u e') else fun p => map (emb W) (toks u p).
Lemma segXE u e : segX u e = blkS e (segY u e). Proof. by case: e. Qed.

Lemma ann_cat e (c : par W e) a b : ann c (a ++ b) = ann c a ++ ann (foldl (pstep W e) c a) b.
Proof. by elim: a c => [|h a IH] c //=; rewrite IH. Qed.
Lemma fullL_cat e (c : par W e) pre a b :
  fullL c pre (a ++ b) = fullL c pre a ++ fullL (foldl (pstep W e) c a) (pre ++ ann c a) b.
Proof. by elim: a c pre => [|h a IH] c pre /=; rewrite ?cats0 // IH cat_rcons. Qed.
Lemma blkL_cat e (c : mem W e) a b : blkL c (a ++ b) = blkL c a ++ blkL (foldl (bstep W e) c a) b.
Proof. by elim: a c => [|h a IH] c //=; rewrite IH. Qed.
Lemma size_fullL e (c : par W e) pre hs : size (fullL c pre hs) = size hs.
Proof. by elim: hs c pre => //= h hs IH c pre; rewrite IH. Qed.
Lemma size_blkL e (c : mem W e) hs : size (blkL c hs) = size hs.
Proof. by elim: hs c => //= h hs IH c; rewrite IH. Qed.

Lemma full_top e S k : k <= L.+2 -> fullL (pinit W e) [::] (top S k) = top (fullS e S) k.
Proof.
elim: k => //= k IH kL; rewrite fullL_cat IH 1?ltnW //= /fullS.
by have -> : L.+1 - (L.+1 - k) = k by rewrite subKn.
Qed.
Lemma blk_top e S k : k <= L.+2 -> blkL (binit W e) (top S k) = top (blkS e S) k.
Proof.
elim: k => //= k IH kL; rewrite blkL_cat IH 1?ltnW //= /blkS.
by have -> : L.+1 - (L.+1 - k) = k by rewrite subKn.
Qed.
Lemma map_top u k : map (emb W) (top (toks u) k) = top (fun p => map (emb W) (toks u p)) k.
Proof. by elim: k => //= k IH; rewrite map_cat IH. Qed.
Lemma run_seg u e : run u e = top (segX u e) L.+2.
Proof.
elim: e => [|e IH]; first by rewrite /= map_top blk_top.
by rewrite [run _ _]/= IH full_top // blk_top.
Qed.

Lemma size_segX u e p : size (segX u e p) = tokn p.
Proof.
elim: e p => [|e IH] p; first by rewrite /= /blkS size_blkL size_map size_toks.
by rewrite /= /blkS size_blkL /fullS size_fullL IH.
Qed.

Lemma top_ext (T : Type) (S S' : nat -> seq T) k k' : k <= k' ->
  (forall i, k <= i < k' -> S (L.+1 - i) = S' (L.+1 - i)) ->
  exists mid, top S k' = top S k ++ mid /\ top S' k' = top S' k ++ mid.
Proof.
elim: k' => [|k' IH]; first by rewrite leqn0 => /eqP -> _; exists [::]; rewrite !cats0.
rewrite leq_eqVlt => /orP[/eqP <- _|kk E]; first by exists [::]; rewrite !cats0.
have [|mid [E1 E2]] := IH kk; first by move=> i /andP[ki ik]; apply: E; rewrite ki leqW.
exists (mid ++ S (L.+1 - k')); rewrite /= E1 E2 -!catA; split=> //.
by rewrite (E k') // -ltnS kk ltnSn.
Qed.
Lemma top_eq (T : Type) (S S' : nat -> seq T) k : (forall i, i < k -> S (L.+1 - i) = S' (L.+1 - i)) -> top S k = top S' k.
Proof. by move=> E; have [mid [-> ->]] := @top_ext _ S S' 0 k (leq0n _) E. Qed.

Lemma fullL_msg e (c : par W e) (A A' mid : seq (H * par W e)) (hs : seq H) :
  (forall i, i < size hs -> foldl (rstep W e (nth (h0 W) hs i)) (rinit W e (nth (h0 W) hs i)) A =
                            foldl (rstep W e (nth (h0 W) hs i)) (rinit W e (nth (h0 W) hs i)) A') ->
  fullL c (A ++ mid) hs = fullL c (A' ++ mid) hs.
Proof.
elim: hs c mid => //= h hs IH c mid E.
rewrite !rcons_cat (IH _ (rcons mid _)); last by move=> i ih; apply: (E i.+1).
by congr (fout _ _ _ _ _ :: _); rewrite !foldl_cat (E 0).
Qed.

Lemma toks_same p u v : same p u v -> toks u p = toks v p.
Proof.
case=> s1 s2 s3; case: p s1 s2 s3 => [|[|l]] s1 s2 s3 /=; rewrite ?s1 ?s2 //.
congr flatten; apply: eq_map => a; apply: eq_map => r; congr Entry.
rewrite /tab; case: insubP => // l' _ E; case: insubP => // a' _ _.
by rewrite s3 // E.
Qed.
Lemma agree_same p q (u v : Inp) : p <= q -> agree p u v -> same q u v.
Proof.
move=> pq [a1 a2 a3]; split=> [q0|q1|l ql]; [apply: a1|apply: a2|apply: a3]; by rewrite -?q0 -?q1 -?ql.
Qed.

Lemma seg_causal (u v : Inp) e p : agree p u v -> segX u e p = segX v e p.
Proof.
move=> ag; have {ag} : forall q, p <= q -> same q u v by move=> q pq; apply: agree_same ag.
elim: e p => [|e IH] p E.
  rewrite /= /blkS (toks_same (E p (leqnn p))); congr blkL; congr foldl; apply: top_eq => i ip.
  by rewrite (@toks_same (L.+1 - i) u v) //; apply: E; lia.
have EX q : p <= q -> segX u e q = segX v e q by move=> pq; apply: IH => q' /(leq_trans pq); apply: E.
have EY q : p <= q -> fullS e.+1 (segX u e) q = fullS e.+1 (segX v e) q.
  move=> pq; rewrite /fullS EX //; have -> // : top (segX u e) (L.+1 - q) = top (segX v e) (L.+1 - q).
  by apply: top_eq => i ip; apply: EX; lia.
rewrite /= /blkS EY //; congr blkL; congr foldl; apply: top_eq => i ip; apply: EY; lia.
Qed.

Lemma reg_pack e p : #|[finType of {ffun 'I_(tokn p) -> reg W e}]| <= 2 ^ (B * tokn p).
Proof. by rewrite card_ffun card_ord expnM leq_expn // reg_le. Qed.
Definition nmsg (e p j : nat) (x : seq H) (u : Inp) : 'I_(2 ^ (B * tokn p)) :=
  pack (reg_pack e p) [ffun i : 'I_(tokn p) =>
    foldl (rstep W e (nth (h0 W) x i)) (rinit W e (nth (h0 W) x i)) (ann (pinit W e) (top (segX u e.-1) (L.+2 - j)))].
Definition npb (e j : nat) (u : Inp) : 'I_(2 ^ sd e) :=
  pack (par_le W e) (foldl (pstep W e) (pinit W e) (top (segX u e.-1) (L.+2 - j))).
Definition nbrd (e j : nat) (u : Inp) : 'I_(2 ^ s e) :=
  pack (mem_le W e) (foldl (bstep W e) (binit W e) (top (segY u e) (L.+2 - j))).

Lemma segY_causal (u v : Inp) e p : agree p u v -> segY u e p = segY v e p.
Proof.
case: e => [|e] ag /=; first by rewrite (toks_same (agree_same (leqnn p) ag)).
have up q : p <= q -> agree q u v.
  by move=> pq; case: ag => a1 a2 a3; split=> [?|?|l ?]; [apply: a1|apply: a2|apply: a3]; lia.
rewrite /fullS (seg_causal e ag).
have -> // : top (segX u e) (L.+1 - p) = top (segX v e) (L.+1 - p).
by apply: top_eq => i ip; apply: seg_causal; apply: up; lia.
Qed.

(* the last token of a segment *)
Lemma last_fullL e (c : par W e) (A : seq (H * par W e)) (hs : seq H) : 0 < size hs ->
  last (h0 W) (fullL c A hs) =
  fout W e (last (h0 W) hs) (foldl (rstep W e (last (h0 W) hs)) (rinit W e (last (h0 W) hs)) (A ++ ann c hs)) (foldl (pstep W e) c hs).
Proof.
case/lastP: hs => // hs h _; rewrite last_rcons -cats1 fullL_cat last_cat /= ann_cat /= -cats1 -catA.
by rewrite [foldl (pstep W e) c (hs ++ _)]foldl_cat.
Qed.
Lemma last_blkL e (c : mem W e) (hs : seq H) : 0 < size hs ->
  last (h0 W) (blkL c hs) = bout W e (foldl (bstep W e) c hs) (last (h0 W) hs).
Proof. by case/lastP: hs => // hs h _; rewrite last_rcons -cats1 blkL_cat last_cat /= foldl_cat. Qed.
Definition namsg (e j : nat) (x : seq H) (u : Inp) : 'I_(2 ^ B) :=
  pack (reg_le W e) (foldl (rstep W e (last (h0 W) x)) (rinit W e (last (h0 W) x)) (ann (pinit W e) (top (segX u e.-1) (L.+2 - j)))).
Lemma size_segY u e p : size (segY u e p) = tokn p.
Proof. by case: e => [|e]; rewrite /= ?size_map ?size_toks // /fullS size_fullL size_segX. Qed.

Definition net_stack : stack L m n te t0 tw F B s sd.
Proof.
refine (@Stack L m n te t0 tw F B s sd (seq H) (fun e p u => segY u e p) (fun e p u => segX u e p)
   nmsg nbrd npb _ _ _ _ _ _ _ H (last (h0 W)) namsg _ _ _ (read W)).
- by move=> e p u v _; apply: seg_causal.
- move=> e p j x u v _ ag; congr pack; apply/ffunP => i; rewrite !ffunE; congr foldl; congr ann.
  apply: top_eq => q qj; apply: seg_causal.
  by case: ag => a1 a2 a3; split=> [?|?|l ?]; [apply: a1|apply: a2|apply: a3]; lia.
- move=> e j u v _ ag; congr pack; congr foldl; apply: top_eq => q qj; apply: segY_causal.
  by case: ag => a1 a2 a3; split=> [?|?|l ?]; [apply: a1|apply: a2|apply: a3]; lia.
- move=> e j u v _ ag; congr pack; congr foldl; apply: top_eq => q qj; apply: seg_causal.
  by case: ag => a1 a2 a3; split=> [?|?|l ?]; [apply: a1|apply: a2|apply: a3]; lia.
- by move=> p u v sm; rewrite /segY (toks_same sm).
- move=> e p j u v _ pj EX Em Ep'.
  have Ep : segX u e p = segX v e p by apply: EX; rewrite leqnn.
  rewrite /segY /fullS -Ep.
  have [||mid [E1 E2]] := @top_ext _ (segX u e) (segX v e) (L.+2 - j) (L.+1 - p); first by lia.
    by move=> i ip; apply: EX; lia.
  rewrite E1 E2 !foldl_cat !ann_cat (pack_inj Ep'); apply: fullL_msg => i; rewrite size_segX => ip.
  have := pack_inj Em => /ffunP /(_ (Ordinal ip)); by rewrite !ffunE -Ep.
- move=> e p j u v _ pj EY Eb.
  rewrite !segXE /blkS EY ?leqnn //.
  have [||mid [E1 E2]] := @top_ext _ (segY u e) (segY v e) (L.+2 - j) (L.+1 - p); first by lia.
    by move=> i ip; apply: EY; lia.
  by rewrite E1 E2 !foldl_cat (pack_inj Eb).
- move=> e j x u v _ ag; congr pack; congr foldl; congr ann.
  apply: top_eq => q qj; apply: seg_causal.
  by case: ag => a1 a2 a3; split=> [?|?|l ?]; [apply: a1|apply: a2|apply: a3]; lia.
- move=> e j u v _ pj EX Em Ep'.
  have Ep : segX u e 0 = segX v e 0 by apply: EX.
  have [||mid [E1 E2]] := @top_ext _ (segX u e) (segX v e) (L.+2 - j) (L.+1 - 0); first by lia.
    by move=> i ip; apply: EX; lia.
  case: (posnP (size (segX v e 0))) => [sz|sz].
    by rewrite /segY /fullS Ep (size0nil sz).
  rewrite /segY /fullS Ep !last_fullL // E1 E2 !foldl_cat !ann_cat (pack_inj Ep') !foldl_cat.
  by have := pack_inj Em; rewrite Ep => ->.
- move=> e u v _ s0; case: (posnP (size (segY u e 0))) => [sz|sz].
    have sz' : size (segY v e 0) = 0 by rewrite size_segY -(size_segY u e 0).
    by rewrite !segXE /blkS (size0nil sz) (size0nil sz').
  have sz' : 0 < size (segY v e 0) by rewrite size_segY -(size_segY u e 0).
  rewrite !segXE /blkS !last_blkL // => ->; congr bout.
  have := mem_le W e; rewrite s0 expn0 => /fintype_le1P one; exact: one.
Defined.

Theorem net_solves : 0 < tw -> (forall u, answer_of u = answer u) -> solves net_stack.
Proof.
move=> tw0 sol u; rewrite -sol /answer_of run_seg /= subnn.
have : size (segX u F 0) = tw by rewrite size_segX.
by case: (segX u F 0) => [|h hs]; [move=> E; rewrite -E in tw0|rewrite last_cat].
Qed.
End Run.
End Net.

Arguments emb {L n F B s sd}.
Arguments rinit {L n F B s sd}.
Arguments rstep {L n F B s sd}.
Arguments fout {L n F B s sd}.
Arguments pinit {L n F B s sd}.
Arguments pstep {L n F B s sd}.
Arguments binit {L n F B s sd}.
Arguments bstep {L n F B s sd}.
Arguments bout {L n F B s sd}.
Arguments read {L n F B s sd}.
Arguments h0 {L n F B s sd}.
