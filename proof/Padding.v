(* What a certificate says beyond its own sizes: fewer full layers, and constant padding in front of the prompt. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate Network Locality Statement.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Fewer.
Variables (L m : nat) (n : nat -> nat) (te t0 tw F' F B : nat) (s sd : nat -> nat) (W : net L n F' B s sd).
Hypothesis FF : F' <= F.
(* layers and blocks after F' hand their input on *)
Definition more : net L n F B s sd :=
  @Net L n F B s sd (H W) (h0 W) (emb W) (@reg _ _ _ _ _ _ W) (@reg_le _ _ _ _ _ _ W) (@par _ _ _ _ _ _ W) (@par_le _ _ _ _ _ _ W)
    (pinit W) (pstep W) (rinit W) (rstep W) (fun e h r c => if e <= F' then fout W e h r c else h)
    (@mem _ _ _ _ _ _ W) (@mem_le _ _ _ _ _ _ W) (binit W) (bstep W) (fun e c h => if e <= F' then bout W e c h else h) (read W).

Lemma full_more e c pre hs : @fullL _ _ _ _ _ _ more e c pre hs = if e <= F' then @fullL _ _ _ _ _ _ W e c pre hs else hs.
Proof.
elim: hs c pre => [|h hs IH] c pre /=; first by case: ifP.
by rewrite IH; case: ifP.
Qed.
Lemma blk_more e c hs : @blkL _ _ _ _ _ _ more e c hs = if e <= F' then @blkL _ _ _ _ _ _ W e c hs else hs.
Proof.
elim: hs c => [|h hs IH] c /=; first by case: ifP.
by rewrite IH; case: ifP.
Qed.
Lemma run_more (u : Inp L m n) e : run te t0 tw more u e = run te t0 tw W u (minn e F').
Proof.
elim: e => [|e IH]; first by rewrite min0n /= blk_more.
rewrite [LHS]/= blk_more full_more; case: (ltnP e F') => eF.
  by rewrite IH (minn_idPl (ltnW eF)) (minn_idPl eF).
by rewrite IH (minn_idPr eF) (minn_idPr (leqW eF)).
Qed.
Lemma answer_more (u : Inp L m n) : answer_of te t0 tw more u = answer_of te t0 tw W u.
Proof. by rewrite /answer_of run_more (minn_idPr FF). Qed.
End Fewer.

Section Padding.
Variables (L m : nat) (n : nat -> nat) (te t0 tw F B : nat) (s sd : nat -> nat) (W : net L n F B s sd).
Hypothesis tw0 : 0 < tw.
Variable pad : seq (H W).     (* embedded constant tokens *)
Notation fullL := (@fullL _ _ _ _ _ _ W).
Notation blkL := (@blkL _ _ _ _ _ _ W).
Fixpoint padded (hs : seq (H W)) (e : nat) : seq (H W) :=
  blkL (binit W e) (if e is e'.+1 then fullL (pinit W e) [::] (padded hs e') else pad ++ hs).
Definition padX (e : nat) := padded [::] e.
Definition padY (e : nat) := if e is e'.+1 then fullL (pinit W e) [::] (padX e') else pad.
Definition shifted : net L n F B s sd :=
  @Net L n F B s sd (H W) (h0 W) (emb W) (@reg _ _ _ _ _ _ W) (@reg_le _ _ _ _ _ _ W) (@par _ _ _ _ _ _ W) (@par_le _ _ _ _ _ _ W)
    (fun e => foldl (pstep W e) (pinit W e) (padX e.-1)) (pstep W)
    (fun e h => foldl (rstep W e h) (rinit W e h) (ann (pinit W e) (padX e.-1))) (rstep W) (fout W)
    (@mem _ _ _ _ _ _ W) (@mem_le _ _ _ _ _ _ W) (fun e => foldl (bstep W e) (binit W e) (padY e)) (bstep W) (bout W) (read W).

Lemma full_shift e c A pre hs : A = ann (pinit W e) (padX e.-1) ->
  fullL c (A ++ pre) hs = @Network.fullL _ _ _ _ _ _ shifted e c pre hs.
Proof.
move=> ->; elim: hs c pre => //= h hs IH c pre; rewrite rcons_cat IH; congr (fout _ _ _ _ _ :: _).
by rewrite foldl_cat.
Qed.
Lemma blk_shift e c hs : blkL c hs = @Network.blkL _ _ _ _ _ _ shifted e c hs.
Proof. by elim: hs c => //= h hs IH c; rewrite IH. Qed.

Lemma padded_run (u : Inp L m n) e :
  padded (map (emb W) (prompt te t0 tw u)) e = padX e ++ run te t0 tw shifted u e.
Proof.
elim: e => [|e IH]; first by rewrite /padX /= cats0 blkL_cat blk_shift.
rewrite [LHS]/= IH fullL_cat /= -[ann _ _]cats0 (full_shift _ _ _ (erefl _)) blkL_cat.
by rewrite blk_shift.
Qed.

Definition padded_answer (u : Inp L m n) : nat := read W (last (h0 W) (padded (map (emb W) (prompt te t0 tw u)) F)).
Lemma padded_answerE u : padded_answer u = answer_of te t0 tw shifted u.
Proof.
rewrite /padded_answer padded_run /answer_of last_cat; congr read.
have : 0 < size (run te t0 tw shifted u F).
  by rewrite run_seg [top _ _ _]/= subnn size_cat addn_gt0 size_segX /= tw0 orbT.
by case: (run _ _ _ _ _ _).
Qed.
End Padding.

(* what is impossible for stacks is impossible for networks with at most as many full layers and any constant padding *)
Section NoNet.
Variables (L m : nat) (n : nat -> nat) (te t0 tw F' B : nat) (s sd : nat -> nat).
Hypothesis tw0 : 0 < tw.
Notation no_net := (forall F, F <= F' -> forall (W : net L n F B s sd) (pad : seq (H W)),
  ~ (forall u : Inp L m n, padded_answer te t0 tw pad u = answer u)).
Lemma no_stack_no_net : (forall P : stack L m n te t0 tw F' B s sd, ~ solves P) -> no_net.
Proof.
move=> no F FF W pad sol; apply: (no (net_stack m te t0 tw (more F' (shifted pad)))); apply: net_solves => // u.
by rewrite -sol padded_answerE ?answer_more.
Qed.
(* the same where a theorem needs local reads *)
Lemma no_local_stack_no_net : s 0 = 0 -> (forall P : stack L m n te t0 tw F' B s sd, local_reads P -> ~ solves P) -> no_net.
Proof.
move=> s0 no F FF W pad sol; apply: (no (net_stack m te t0 tw (more F' (shifted pad)))); first exact: net_local.
apply: net_solves => // u; by rewrite -sol padded_answerE ?answer_more.
Qed.
End NoNet.

Section All.
Variable c : cert.
Let L := hops c. Let m := tn (cert_m c). Let n e := tn (nth 1%num (1%num :: cert_n c) e).
Let te := tn (per_entry c). Let t0 := tn (per_start c). Let tw := tn (per_query c).
Let B := tn (message_bits c). Let s e := tn (nth N0 (state_bits c) e). Let sd e := tn (nth N0 (N0 :: side_bits c) e).

(* no network with at most F full layers solves the instance, with any constant padding in front *)
Theorem certificate_sound_padded : accepts c -> forall F, F <= L.-1 + case_zero c ->
  forall (W : net L n F B s sd) (pad : seq (H W)), ~ (forall u : Inp L m n, padded_answer te t0 tw pad u = answer u).
Proof.
move=> ok F FF W pad sol.
have H := @certificate_sound c ok (more (L.-1 + case_zero c) (shifted pad)); apply: H => u.
rewrite -sol padded_answerE ?answer_more //.
move: ok => /and3P[]; rewrite /well_formed; do 6! [case/andP => _].
by case/andP => /= /and5P[_ _ _ _]; rewrite andbT tn_le.
Qed.
End All.
