(* The task (function composition, "The task and the model" of docs/proof.md), causal stacks as protocols between players, and the
   freezing steps of the proof.

   Indices start at 0 here: player 0 holds w, player 1 holds z_0, player l+2 holds table l, which docs/proof.md calls z_{l+1}; cut j stands before
   player j-1.  "Depth d" means that lists have been chosen for tables 0 .. d-1.

   `stack` is the model: its laws `full` and `block` are the facts (M) and (S).  They compare two inputs: if the inputs agree on what
   the law names, they agree on the result.  So "depends only on" needs no chosen function. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Lemma ord_one k (a b : 'I_(2 ^ k)) : k = 0 -> a = b.
Proof. by move=> k0; move: a b; rewrite k0 expn0 => a b; rewrite (ord1 a) (ord1 b). Qed.

Section Task.
(* L tables; N_0 = m, N_e = N_{e-1} n_e.  Table number l (from 0) is z_{l+1} of docs/proof.md : [N_l] -> [N_l]. *)
Variables (L m : nat) (n : nat -> nat).
Fixpoint Nn (e : nat) : nat := if e is e'.+1 then Nn e' * n e else m.

(* query w = (w_1..w_{L-1}); component e (from 0) is w_{e+1} of docs/proof.md, in [n_{e+1}] *)
Definition Query : finType := [finType of {dffun forall e : 'I_L.-1, 'I_(n e.+1)}].
Definition Table (l : nat) : finType := [finType of {ffun 'I_(Nn l) -> 'I_(Nn l)}].
Definition Om : finType := [finType of {dffun forall l : 'I_L, Table l}].
Definition Inp : finType := [finType of Query * 'I_m * Om].

Definition wv (w : Query) (e : nat) : nat := if insub e is Some e' then w e' : nat else 0.
Definition tab (z : Om) (l x : nat) : nat :=
  if insub l is Some l' then (if insub x is Some x' then z l' x' : nat else 0) else 0.

(* argument of table l along the chain: i_0 for l = 0, the pair (w_l, i_l) = w_l N_{l-1} + i_l afterwards *)
Fixpoint arg (u : Inp) (l : nat) : nat :=
  if l is l'.+1 then wv u.1.1 l' * Nn l' + tab u.2 l' (arg u l') else u.1.2.
Definition answer (u : Inp) : nat := tab u.2 L.-1 (arg u L.-1).

(* Players: 0 holds w, 1 holds z_0, l+2 holds table l.  The prompt runs from player L+1 down to player 0. *)
Definition agree (p : nat) (u v : Inp) : Prop :=   (* same data for all players >= p *)
  [/\ p <= 0 -> u.1.1 = v.1.1, p <= 1 -> u.1.2 = v.1.2 & forall l : 'I_L, p <= l.+2 -> u.2 l = v.2 l].
Definition same (p : nat) (u v : Inp) : Prop :=    (* same data for player p *)
  [/\ p = 0 -> u.1.1 = v.1.1, p = 1 -> u.1.2 = v.1.2 & forall l : 'I_L, p = l.+2 -> u.2 l = v.2 l].

(* tokens of a player *)
Variables (te t0 tw : nat).
Definition tok (p : nat) : nat := match p with 0 => tw | 1 => t0 | l.+2 => te * Nn l end.

(* A stack of F full layers with messages of B bits a token, mixers beside full layer e with sd_e bits of state,
   and blocks 0..F whose states have s_e bits.
   stY e p u: what player p's tokens hold after full layer e (e = 0: embeddings) on input u;
   stX e p u: the same after block e.  The laws compare two inputs u and v, so that "is a function of"
   needs no choice of that function. *)
Record stack (F B : nat) (s sd : nat -> nat) := Stack {
  St : Type;
  stY : nat -> nat -> Inp -> St;   (* after full layer e *)
  stX : nat -> nat -> Inp -> St;   (* after block e: X_i^e of docs/proof.md *)
  (* bits that player p's tokens receive in full layer e from all players >= j, given p's states *)
  msg : nat -> forall p : nat, nat -> St -> Inp -> 'I_(2 ^ (B * tok p));
  (* bits that cross the cut before player j-1 inside block e *)
  brd : forall e : nat, nat -> Inp -> 'I_(2 ^ s e);
  (* bits that cross it in the mixers beside full layer e *)
  pbrd : forall e : nat, nat -> Inp -> 'I_(2 ^ sd e);
  (* attention is causal: what players >= p hold is a function of their inputs *)
  causal : forall e p u v, e <= F -> agree p u v -> stX e p u = stX e p v;
  msg_pre : forall e p j x u v, e <= F -> agree j u v -> msg e p j x u = msg e p j x v;
  brd_pre : forall e j u v, e <= F -> agree j u v -> brd e j u = brd e j v;
  pbrd_pre : forall e j u v, e <= F -> agree j u v -> pbrd e j u = pbrd e j v;
  (* embeddings are local *)
  embed : forall p u v, same p u v -> stY 0 p u = stY 0 p v;
  (* (M) full layer e+1 at any cut j *)
  full : forall e p j u v, e < F -> p < j ->
    (forall q, p <= q < j -> stX e q u = stX e q v) ->
    msg e.+1 p j (stX e p u) u = msg e.+1 p j (stX e p v) v ->
    pbrd e.+1 j u = pbrd e.+1 j v ->
    stY e.+1 p u = stY e.+1 p v;
  (* (S) block e at any cut j *)
  block : forall e p j u v, e <= F -> p < j ->
    (forall q, p <= q < j -> stY e q u = stY e q v) ->
    brd e j u = brd e j v ->
    stX e p u = stX e p v;
  (* The answering token is the last one of w.  ans: what it holds; amsg: the B bits that it receives itself. *)
  An : Type;
  ans : St -> An;
  amsg : nat -> nat -> St -> Inp -> 'I_(2 ^ B);
  amsg_pre : forall e j x u v, e <= F -> agree j u v -> amsg e j x u = amsg e j x v;
  full_ans : forall e j u v, e < F -> 0 < j ->
    (forall q, q < j -> stX e q u = stX e q v) ->
    amsg e.+1 j (stX e 0 u) u = amsg e.+1 j (stX e 0 v) v ->
    pbrd e.+1 j u = pbrd e.+1 j v ->
    ans (stY e.+1 0 u) = ans (stY e.+1 0 v);
  (* an empty block works token by token *)
  block_ans : forall e u v, e <= F -> s e = 0 ->
    ans (stY e 0 u) = ans (stY e 0 v) -> ans (stX e 0 u) = ans (stX e 0 v);
  out : An -> nat }.

Arguments stY {F B s sd}. Arguments stX {F B s sd}. Arguments msg {F B s sd}. Arguments brd {F B s sd}. Arguments pbrd {F B s sd}. Arguments out {F B s sd} _. Arguments ans {F B s sd}. Arguments amsg {F B s sd}.
Definition solves F B s sd (P : stack F B s sd) : Prop := forall u : Inp, out P (ans P (stX P F 0 u)) = answer u.

(* an empty block adds nothing *)
Lemma empty_block F B s sd (P : stack F B s sd) t p u v : t <= F -> s t = 0 -> stY P t p u = stY P t p v -> stX P t p u = stX P t p v.
Proof.
move=> tF s0 HY; apply: (@block _ _ _ _ P t p p.+1) => //.
  by move=> q qp; have -> : q = p by lia.
exact: ord_one.
Qed.

(* ------------------------------------------------------------------ *)
Section Steps.
Variables (F B : nat) (s sd : nat -> nat) (P : stack F B s sd).
Variable u0 : Inp.
Variables (Q : {set Query * 'I_m}) (Z0 : {set 'I_m}) (Zl : nat -> seq Om).
Hypothesis QZ : forall q, q \in Q -> q.2 \in Z0.
Notation X := (stX P). Notation Y := (stY P).

(* the input u with all tables from number d on replaced by those of r *)
Definition merge (d : nat) (u : Inp) (r : Om) : Inp :=
  (u.1, [ffun l : 'I_L => if l < d then u.2 l else r l] : Om).
Definition setc (d : nat) (r zeta : Om) : Om := [ffun l : 'I_L => if l == d :> nat then zeta l else r l].

(* what players >= p hold comes from Q and from the lists up to depth d *)
Definition valid (p d : nat) (u : Inp) : Prop :=
  [/\ p = 0 -> u.1 \in Q, p <= 1 -> u.1.2 \in Z0 &
      forall l : 'I_L, l < d -> p <= l.+2 -> exists2 zeta, zeta \in Zl l & u.2 l = zeta l].
(* u and v have the same data for players >= p up to depth d *)
Definition near (p d : nat) (u v : Inp) : Prop :=
  [/\ p = 0 -> u.1 = v.1, p <= 1 -> u.1.2 = v.1.2 & forall l : 'I_L, l < d -> p <= l.+2 -> u.2 l = v.2 l].

Lemma valid_mono p q d u : p <= q -> valid p d u -> valid q d u.
Proof.
move=> pq [H1 H2 H3]; split.
- by move=> q0; apply: H1; move: pq; rewrite q0 leqn0 => /eqP.
- by move=> q1; apply: H2; apply: leq_trans q1.
- by move=> l ld ql; apply: H3 => //; apply: leq_trans ql.
Qed.

Lemma valid_le p d d' u : d' <= d -> valid p d u -> valid p d' u.
Proof. by move=> dd [H1 H2 H3]; split=> // l ld; apply: H3; apply: leq_trans dd. Qed.

Lemma near_agree p d u v r : near p d u v -> agree p (merge d u r) (merge d v r).
Proof.
move=> [H1 H2 H3]; split => /=.
- by rewrite leqn0 => /eqP/H1 ->.
- exact: H2.
- by move=> l pl; rewrite !ffunE; case: ifP => // ld; apply: H3.
Qed.

Lemma merge_agree d j u v r : d.+2 <= j -> agree j (merge d u r) (merge d v r).
Proof.
move=> dj; split => /=; [by lia|by lia|].
by move=> l jl; rewrite !ffunE; case: ifP => // ld; lia.
Qed.

(* a merged input with table d from a list *)
Lemma mergeS d (u : Inp) (r zeta : Om) : (forall l : 'I_L, l = d :> nat -> u.2 l = zeta l) ->
  merge d.+1 u r = merge d u (setc d r zeta).
Proof.
move=> H; congr (_, _); apply/ffunP => l; rewrite !ffunE.
rewrite ltnS leq_eqVlt; case: eqP => [e|_] /=; last by case: ifP.
by rewrite (H _ e); case: ifP.
Qed.

Variables (qn : nat) (x : nat -> nat).
Hypothesis sQ : #|Q| <= qn.
Hypothesis sZ0 : #|Z0| = x 0.
Definition c0 (p : nat) : nat := match p with 0 => qn | 1 => x 0 | _ => 1 end.
Definition ncases (p d : nat) : nat := c0 p * \prod_(0 <= l < d | p <= l.+2) x l.+1.

(* one representative for each choice from the lists *)
Lemma reps p d : d <= L -> (forall l, l < d -> size (Zl l) = x l.+1) ->
  exists2 cs : seq Inp, size cs = ncases p d &
    forall u, valid p d u -> exists2 v, v \in cs & valid p d v /\ near p d u v.
Proof.
elim: d => [_ _|d IH dL sz].
  rewrite /ncases big_geq // muln1; case: p => [|[|p]] /=.
  - exists ([seq (q, u0.2) | q <- enum Q] ++ nseq (qn - #|Q|) u0).
      by rewrite size_cat size_map size_nseq -cardE subnKC.
    move=> u [H1 H2 _]; exists (u.1, u0.2).
      by rewrite mem_cat; apply/orP; left; apply/mapP; exists u.1; rewrite // mem_enum; apply: H1.
    by split; split.
  - exists [seq ((u0.1.1, i), u0.2) | i <- enum Z0]; first by rewrite size_map -cardE sZ0.
    move=> u [_ H2 _]; exists ((u0.1.1, u.1.2), u0.2).
      by apply/mapP; exists u.1.2; rewrite // mem_enum; apply: H2.
    by split; split.
  - by exists [:: u0] => // u _; exists u0; rewrite ?inE //; split; split.
have [cs szc H] := IH (ltnW dL) (fun l ld => sz l (leqW ld)).
rewrite /ncases big_mkcond big_nat_recr //= -big_mkcond mulnA -/(ncases p d).
case: leqP => pd; last first.
  exists cs; rewrite ?muln1 // => u [H1 H2 H3].
  have [|v vc [[V1 V2 V3] [N1 N2 N3]]] := H u.
    by split=> // l ld; apply: H3; apply: leqW.
  have ex (l : 'I_L) : l < d.+1 -> p <= l.+2 -> l < d by move=> *; lia.
  by exists v => //; split; split=> // l ld pl; [apply: V3|apply: N3] => //; apply: ex.
pose d' := Ordinal dL.
exists [seq (v.1, setc d v.2 zeta) : Inp | v <- cs, zeta <- Zl d].
  by rewrite size_allpairs szc sz.
move=> u [H1 H2 H3].
have [|v vc [[V1 V2 V3] [N1 N2 N3]]] := H u.
  by split=> // l ld; apply: H3; apply: leqW.
have [zeta zZ zE] := H3 d' (ltnSn _) pd.
exists (v.1, setc d v.2 zeta); first by apply/allpairsP; exists (v, zeta).
split; split => //= l; rewrite ltnS leq_eqVlt ffunE; case: eqP => /= [e _ _|_ ld pl].
- have -> : l = d' by apply: val_inj.
  by exists zeta.
- exact: V3.
- have -> : l = d' by apply: val_inj.
  by [].
- exact: N3.
Qed.

(* representatives for depth d' <= d, completed to depth d by list heads *)
Lemma reps_ext p d' d : d' <= d -> d <= L -> (forall l, l < d -> 0 < x l.+1) ->
  (forall l, l < d -> size (Zl l) = x l.+1) ->
  exists2 cs : seq Inp, size cs = ncases p d' &
    forall u, valid p d u -> exists2 v, v \in cs & valid p d v /\ near p d' u v.
Proof.
move=> dd dL x0 sz.
have [cs szc H] := reps p (leq_trans dd dL) (fun l ld => sz l (leq_trans ld dd)).
pose ext (v : Inp) : Inp := (v.1, [ffun l : 'I_L => if (d' <= l < d) then (head u0.2 (Zl l)) l else v.2 l] : Om).
exists (map ext cs); first by rewrite size_map.
move=> u uv; have [v vc [[V1 V2 V3] [N1 N2 N3]]] := H u (valid_le dd uv).
exists (ext v); first exact: map_f.
split; split => //= l ld pl; rewrite ffunE.
- case: (leqP d' l) => /= dl; last exact: V3.
  rewrite ld; exists (head u0.2 (Zl l)) => //.
  have := x0 l ld; rewrite -(sz l ld); case: (Zl l) => //= a b _; exact: mem_head.
- by rewrite leqNgt ld /=; apply: N3.
Qed.

(* messages of full layer t+1 into player p from players >= d+2, at depth d *)
Definition msg_const (t p d : nat) (S : {set Om}) : Prop :=
  forall u, valid p d u -> {in S &, forall r r',
    msg P t.+1 p d.+2 (X t p (merge d u r)) (merge d u r) =
    msg P t.+1 p d.+2 (X t p (merge d u r')) (merge d u r')}.
Definition brd_const (t d : nat) (S : {set Om}) : Prop :=
  forall u, {in S &, forall r r', brd P t d.+2 (merge d u r) = brd P t d.+2 (merge d u r')}.
Definition pb_const (t d : nat) (S : {set Om}) : Prop :=
  forall u, {in S &, forall r r', pbrd P t d.+2 (merge d u r) = pbrd P t d.+2 (merge d u r')}.
Definition X_const (t p d : nat) (S : {set Om}) : Prop :=
  forall u, valid p d u -> {in S &, forall r r', X t p (merge d u r) = X t p (merge d u r')}.
Definition Y_const (t p d : nat) (S : {set Om}) : Prop :=
  forall u, valid p d u -> {in S &, forall r r', Y t p (merge d u r) = Y t p (merge d u r')}.
(* the state depends only on the choices up to depth d' *)
Definition X_upto (t p d' d : nat) (S : {set Om}) : Prop :=
  forall u v, valid p d u -> valid p d v -> near p d' u v ->
    {in S &, forall r r', X t p (merge d u r) = X t p (merge d v r')}.

Section Sub.
Variables (S S' : {set Om}).
Hypothesis sub : S' \subset S.
Let inS r : r \in S' -> r \in S. Proof. exact: (subsetP sub). Qed.
Lemma msg_sub t p d : msg_const t p d S -> msg_const t p d S'.
Proof. by move=> H u uv r r' /inS rS /inS rS'; apply: H. Qed.
Lemma brd_sub t d : brd_const t d S -> brd_const t d S'.
Proof. by move=> H u r r' /inS rS /inS rS'; apply: H. Qed.
Lemma pb_sub t d : pb_const t d S -> pb_const t d S'.
Proof. by move=> H u r r' /inS rS /inS rS'; apply: H. Qed.
Lemma X_sub t p d : X_const t p d S -> X_const t p d S'.
Proof. by move=> H u uv r r' /inS rS /inS rS'; apply: H. Qed.
Lemma Y_sub t p d : Y_const t p d S -> Y_const t p d S'.
Proof. by move=> H u uv r r' /inS rS /inS rS'; apply: H. Qed.
Lemma upto_sub t p d' d : X_upto t p d' d S -> X_upto t p d' d S'.
Proof. by move=> H u v uv vv nuv r r' /inS rS /inS rS'; apply: H. Qed.
End Sub.

Lemma upto_const t p d' d S : X_upto t p d' d S -> X_const t p d S.
Proof. by move=> H u uv r r' rS rS'; apply: H => //; split. Qed.

Lemma const_upto t p d S : t <= F -> X_const t p d S -> X_upto t p d d S.
Proof.
move=> tF H u v uv vv nuv r r' rS rS'; rewrite (H u uv r r') //.
by apply: causal => //; apply: near_agree.
Qed.

Hypothesis x_pos : forall l, 0 < x l.

(* Freezing a message: constant for all choices from the lists, at the cost of its bits times the number of cases. *)
Lemma freeze_msg t p d' d S : t < F -> d' <= d -> d <= L ->
  (forall l, l < d -> size (Zl l) = x l.+1) ->
  X_upto t p d' d S ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ (B * tok p * ncases p d') & msg_const t p d S'.
Proof.
move=> tF dd dL sz H.
have [cs szc Hc] := reps_ext p dd dL (fun l _ => x_pos l.+1) sz.
have [S' [sS cS] HS] := @pigeon_seq Om [eqType of Inp] (B * tok p) cs
   (fun u r => msg P t.+1 p d.+2 (X t p (merge d u r)) (merge d u r)) S.
exists S'; first by rewrite -szc.
move=> u uv r r' rS rS'.
have [v vc [vv nuv]] := Hc u uv.
have E r1 : r1 \in S' -> msg P t.+1 p d.+2 (X t p (merge d u r1)) (merge d u r1) =
    msg P t.+1 p d.+2 (X t p (merge d v r1)) (merge d v r1).
  move=> r1S; rewrite (H u v uv vv nuv r1 r1) ?(subsetP sS) //.
  by apply: msg_pre => //; apply: merge_agree.
by rewrite !E //; apply: HS.
Qed.

(* the border of block t at the cut below depth d: a function of the rest alone *)
Lemma freeze_brd t d (S : {set Om}) : t <= F ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ s t & brd_const t d S'.
Proof.
move=> tF.
have [S' [sS cS] HS] := @pigeon_seq Om [eqType of unit] (s t) [:: tt]
   (fun _ r => brd P t d.+2 (merge d u0 r)) S.
exists S'; first by rewrite muln1 in cS.
move=> u r r' rS rS'.
have E r1 : brd P t d.+2 (merge d u r1) = brd P t d.+2 (merge d u0 r1).
  by apply: brd_pre => //; apply: merge_agree.
by rewrite !E; apply: (HS tt); rewrite ?inE.
Qed.

Lemma freeze_pb t d (S : {set Om}) : t <= F ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ sd t & pb_const t d S'.
Proof.
move=> tF.
have [S' [sS cS] HS] := @pigeon_seq Om [eqType of unit] (sd t) [:: tt]
   (fun _ r => pbrd P t d.+2 (merge d u0 r)) S.
exists S'; first by rewrite muln1 in cS.
move=> u r r' rS rS'.
have E r1 : pbrd P t d.+2 (merge d u r1) = pbrd P t d.+2 (merge d u0 r1).
  by apply: pbrd_pre => //; apply: merge_agree.
by rewrite !E; apply: (HS tt); rewrite ?inE.
Qed.

(* the mixers beside full layers 1..k *)
Definition sides (k d : nat) (S : {set Om}) : Prop := forall t, 0 < t <= k -> pb_const t d S.
Lemma freeze_sides k d (S : {set Om}) : k <= F ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ (\sum_(1 <= i < k.+1) sd i) & sides k d S'.
Proof.
elim: k => [|k IH] kF.
  by exists S => [|t]; [rewrite big_geq // muln1|lia].
have [S1 [sS1 cS1] H1] := IH (ltnW kF).
have [S2 [sS2 cS2] H2] := freeze_pb d S1 kF.
exists S2.
  split; first by apply: subset_trans sS1.
  rewrite big_nat_recr //= [X in 2 ^ X]addnC expnD mulnA.
  by apply: leq_trans cS1 _; rewrite leq_mul2r cS2 orbT.
move=> t /andP[t0']; rewrite leq_eqVlt => /orP[/eqP -> //|tk].
by apply: (pb_sub sS2); apply: H1; rewrite t0'.
Qed.
Lemma sides_sub k d (S S' : {set Om}) : S' \subset S -> sides k d S -> sides k d S'.
Proof. by move=> sS H t tk; apply: (pb_sub sS); apply: H. Qed.

(* one full layer, one block *)
Lemma full_const t p d S : t < F -> p < d.+2 -> pb_const t.+1 d S -> (forall q, p <= q < d.+2 -> X_const t q d S) ->
  msg_const t p d S -> Y_const t.+1 p d S.
Proof.
move=> tF pd Hp HX Hm u uv r r' rS rS'; apply: (@full _ _ _ _ P t p d.+2) => //; [|exact: Hm|exact: Hp].
move=> q /andP[pq qd]; apply: HX => //; first by rewrite pq.
exact: valid_mono uv.
Qed.
Lemma block_const t p d S : t <= F -> p < d.+2 -> (forall q, p <= q < d.+2 -> Y_const t q d S) ->
  brd_const t d S -> X_const t p d S.
Proof.
move=> tF pd HX Hm u uv r r' rS rS'; apply: (@block _ _ _ _ P t p d.+2) => //; last exact: Hm.
move=> q /andP[pq qd]; apply: HX => //; first by rewrite pq.
exact: valid_mono uv.
Qed.
Lemma embed_const p d S : p < d.+2 -> Y_const 0 p d S.
Proof.
move=> pd u _ r r' _ _; apply: embed; split => //= l e.
have ld : l < d by lia.
by rewrite !ffunE ld.
Qed.

(* player e+2 (table e), full layers 1..k and the borders of blocks 0..k, cut below depth e+1 *)
Lemma freeze_own e k (S : {set Om}) : k <= F -> e < L -> (forall l, l < e.+1 -> size (Zl l) = x l.+1) -> sides k e.+1 S ->
  exists2 S' : {set Om},
    S' \subset S /\ #|S| <= #|S'| * 2 ^ (k * (B * tok e.+2 * x e.+1) + \sum_(0 <= i < k.+1) s i) &
    [/\ forall t, t <= k -> Y_const t e.+2 e.+1 S', forall t, t <= k -> X_const t e.+2 e.+1 S' &
        forall t, t <= k -> brd_const t e.+1 S'].
Proof.
move=> kF eL sz; elim: k kF => [|k IH] kF Hs.
  have [S' [sS cS] H] := freeze_brd e.+1 S kF.
  exists S'; first by rewrite mul0n add0n big_nat1.
  split=> [t|t|t]; rewrite leqn0 => /eqP -> //.
    exact: embed_const.
  apply: block_const => // q qe; apply: embed_const; lia.
have [|S1 [sS1 cS1] [H1Y H1X H1b]] := IH (ltnW kF).
  by move=> t /andP[a b]; apply: Hs; rewrite a leqW.
have nc : ncases e.+2 e.+1 = x e.+1.
  rewrite /ncases /= mul1n big_mkcond big_nat_recr //= leqnn big_nat_cond big1 ?mul1n //.
  by move=> i; rewrite andbT => ie; rewrite ifF //; lia.
have [S2 [sS2 cS2] H2] := @freeze_msg k e.+2 e.+1 e.+1 S1 kF (leqnn _) eL sz
   (const_upto (ltnW kF) (H1X k (leqnn _))).
have [S3 [sS3 cS3] H3] := freeze_brd e.+1 S2 kF.
have sub31 : S3 \subset S1 by apply: subset_trans sS2.
exists S3.
  split; first by apply: subset_trans sS1.
  apply: leq_trans cS1 _; rewrite nc in cS2.
  rewrite [\sum_(0 <= i < k.+2) s i]big_nat_recr //= mulSn.
  set a := B * tok _ * _ in cS2 *; set b := \sum_(0 <= i < k.+1) _.
  have -> : a + k * a + (b + s k.+1) = s k.+1 + a + (k * a + b) by lia.
  rewrite [2 ^ (_ + (_ + _))]expnD mulnA leq_mul2r; apply/orP; right.
  apply: leq_trans cS2 _; rewrite expnD mulnA leq_mul2r; apply/orP; right.
  exact: cS3.
have Yk : Y_const k.+1 e.+2 e.+1 S3.
  apply: full_const => //; last exact: (msg_sub sS3).
    by apply: (pb_sub (subset_trans sub31 sS1)); apply: Hs; rewrite leqnn.
  move=> q qe; have -> : q = e.+2 by lia.
  by apply: (X_sub sub31); apply: H1X.
split=> t; rewrite leq_eqVlt => /orP[/eqP ->|tk] //.
- by apply: (Y_sub sub31); apply: H1Y.
- apply: block_const => // q qe; have -> : q = e.+2 by lia.
  exact: Yk.
- by apply: (X_sub sub31); apply: H1X.
- by apply: (brd_sub sub31); apply: H1b.
Qed.

(* messages of full layer t+1 into all players p0 <= p < p1 *)
Lemma freeze_into t p0 p1 d (dep : nat -> nat) (S : {set Om}) : t < F -> d <= L ->
  (forall l, l < d -> size (Zl l) = x l.+1) ->
  (forall p, p0 <= p < p1 -> dep p <= d /\ X_upto t p (dep p) d S) ->
  exists2 S' : {set Om},
    S' \subset S /\ #|S| <= #|S'| * 2 ^ (\sum_(p0 <= p < p1) B * tok p * ncases p (dep p)) &
    forall p, p0 <= p < p1 -> msg_const t p d S'.
Proof.
move=> tF dL sz; elim: p1 => [|p1 IH] H.
  by exists S => [|p]; [rewrite big_geq // muln1|lia].
case: (leqP p0 p1) => pp; last first.
  by exists S => [|p]; [rewrite big_geq // muln1|lia].
have [|S1 [sS1 cS1] H1] := IH; first by move=> p pp1; apply: H; lia.
have [|dd Hu] := H p1; first by lia.
have [S2 [sS2 cS2] H2] := freeze_msg tF dd dL sz (upto_sub sS1 Hu).
exists S2.
  split; first by apply: subset_trans sS1.
  rewrite big_nat_recr //= [X in 2 ^ X]addnC expnD mulnA.
  by apply: leq_trans cS1 _; rewrite leq_mul2r cS2 orbT.
move=> p; rewrite ltnS => /andP[p0p]; rewrite leq_eqVlt => /orP[/eqP -> //|pl].
by apply: (msg_sub sS2); apply: H1; rewrite p0p.
Qed.

(* what the invariant at depth e says on the slice at depth e+1 *)
Lemma slice_upto t p e (R S : {set Om}) : t <= F ->  p <= e.+1 -> e < L ->
  (forall r zeta, r \in S -> zeta \in Zl e -> setc e r zeta \in R) ->
  X_const t p e R -> X_upto t p e e.+1 S.
Proof.
move=> tF pe eL HS H u v [u1 u2 u3] [v1 v2 v3] nuv r r' rS rS'.
have [zu zuZ zuE] := u3 (Ordinal eL) (ltnSn _) (leqW pe).
have [zv zvZ zvE] := v3 (Ordinal eL) (ltnSn _) (leqW pe).
have ex (w : Inp) zz : w.2 (Ordinal eL) = zz (Ordinal eL) -> forall l : 'I_L, l = e :> nat -> w.2 l = zz l.
  by move=> E l le; have -> : l = Ordinal eL by apply: val_inj.
rewrite (mergeS r (ex _ _ zuE)) (mergeS r' (ex _ _ zvE)).
have uv : valid p e u by apply: (valid_le (leqnSn e)).
rewrite (H u uv _ (setc e r' zv)) ?HS //.
by apply: causal => //; apply: near_agree.
Qed.


(* ---- "Step e to e+1, freezing", not the last step ---- *)
Definition step_bits (dep : nat -> nat) (t e : nat) : nat :=
  \sum_(0 <= p < e.+2) B * tok p * ncases p (dep p)
  + (t.+1 * (B * tok e.+2 * x e.+1) + \sum_(0 <= i < t.+2) s i).

Lemma step t e dep (S : {set Om}) : t < F -> e < L ->
  (forall l, l < e.+1 -> size (Zl l) = x l.+1) -> sides t.+1 e.+1 S ->
  (forall p, p <= e.+1 -> dep p <= e.+1 /\ X_upto t p (dep p) e.+1 S) ->
  exists2 R : {set Om}, R \subset S /\ #|S| <= #|R| * 2 ^ step_bits dep t e &
    forall p, p <= e.+2 -> X_const t.+1 p e.+1 R.
Proof.
move=> tF eL sz Hs H.
have [S1 [sS1 cS1] [H1Y H1X H1b]] := freeze_own tF eL sz Hs.
have [|S2 [sS2 cS2] H2] := @freeze_into t 0 e.+2 e.+1 dep S1 tF eL sz.
  move=> p pe; have [|dd Hu] := H p; first by lia.
  by split=> //; apply: (upto_sub sS1).
exists S2.
  split; first by apply: subset_trans sS1.
  rewrite /step_bits expnD mulnA; apply: leq_trans cS1 _.
  by rewrite leq_mul2r cS2 orbT.
have HY p : p <= e.+2 -> Y_const t.+1 p e.+1 S2.
  rewrite leq_eqVlt => /orP[/eqP ->|pe]; first by apply: (Y_sub sS2); apply: H1Y.
  apply: full_const => //; first by lia.
  - by apply: (pb_sub (subset_trans sS2 sS1)); apply: Hs; rewrite leqnn.
  - move=> q /andP[pq]; rewrite ltnS leq_eqVlt => /orP[/eqP ->|qe].
      by apply: (X_sub sS2); apply: H1X.
    have [|dd Hu] := H q; first by lia.
    by apply: (X_sub (subset_trans sS2 sS1)); apply: upto_const Hu.
  by apply: H2.
move=> p pe; apply: block_const => //; last by apply: (brd_sub sS2); apply: H1b.
by move=> q qe; apply: HY; lia.
Qed.

(* ---- "Last step"; j = the cut at which the last block's border is frozen ---- *)
Definition last_border (dep : nat -> nat) (e j : nat) : nat :=
  s F * ncases j e.+1 + (\sum_(1 <= p < minn j e.+2) B * tok p * ncases p (dep p)
    + (if j == e.+3 then B * tok e.+2 * x e.+1 else 0)).
Definition last_bits (dep : nat -> nat) (t e j : nat) : nat :=
  B * tok 0 * ncases 0 (dep 0) + (t * (B * tok e.+2 * x e.+1) + \sum_(0 <= i < t.+1) s i)
  + (if s F == 0 then 0 else last_border dep e j).

Lemma freeze_brd_at t j d (S : {set Om}) : t <= F -> 0 < j -> d <= L ->
  (forall l, l < d -> size (Zl l) = x l.+1) ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ (s t * ncases j d) &
    forall u, valid j d u -> {in S' &, forall r r', brd P t j (merge d u r) = brd P t j (merge d u r')}.
Proof.
move=> tF j0 dL sz; have [cs szc H] := reps j dL sz.
have [S' [sS cS] HS] := @pigeon_seq Om [eqType of Inp] (s t) cs (fun u r => brd P t j (merge d u r)) S.
exists S'; first by rewrite -szc.
move=> u uv r r' rS rS'; have [v vc [vv nuv]] := H u uv.
have E r1 : brd P t j (merge d u r1) = brd P t j (merge d v r1).
  by apply: brd_pre => //; apply: near_agree.
by rewrite !E; apply: HS.
Qed.

Lemma last_step t e dep j (S : {set Om}) : t.+1 = F -> e < L -> 0 < j <= e.+3 ->
  (forall l, l < e.+1 -> size (Zl l) = x l.+1) -> sides t.+1 e.+1 S ->
  (forall p, p <= e.+1 -> dep p <= e.+1 /\ X_upto t p (dep p) e.+1 S) ->
  exists2 R : {set Om}, R \subset S /\ #|S| <= #|R| * 2 ^ last_bits dep t e j &
    X_const F 0 e.+1 R.
Proof.
move=> tF eL jb sz Hs H.
have tF' : t < F by rewrite -tF.
have Hs' : sides t e.+1 S by move=> t' /andP[a b]; apply: Hs; rewrite a leqW.
have Hp : pb_const t.+1 e.+1 S by apply: Hs; rewrite leqnn.
have [S1 [sS1 cS1] [H1Y H1X H1b]] := freeze_own (ltnW tF') eL sz Hs'.
have [|S2 [sS2 cS2] H2] := @freeze_into t 0 1 e.+1 dep S1 tF' eL sz.
  move=> p pe; have [|dd Hu] := H p; first by lia.
  by split=> //; apply: (upto_sub sS1).
have HX q : q <= e.+2 -> X_const t q e.+1 S2.
  rewrite leq_eqVlt => /orP[/eqP ->|qe]; first by apply: (X_sub sS2); apply: H1X.
  have [|dd Hu] := H q; first by lia.
  by apply: (X_sub (subset_trans sS2 sS1)); apply: upto_const Hu.
have c2 : #|S| <= #|S2| * 2 ^ (B * tok 0 * ncases 0 (dep 0) +
     (t * (B * tok e.+2 * x e.+1) + \sum_(0 <= i < t.+1) s i)).
  rewrite expnD mulnA; apply: leq_trans cS1 _; rewrite leq_mul2r.
  by move: cS2; rewrite big_nat1 => ->; rewrite orbT.
have Y0 : Y_const F 0 e.+1 S2.
  rewrite -tF; apply: full_const => //; last exact: H2.
  exact: (pb_sub (subset_trans sS2 sS1)).
rewrite /last_bits; case: (posnP (s F)) => [s0|sp].
  exists S2; first by rewrite addn0; split=> //; apply: subset_trans sS1.
  move=> u uv r r' rS rS'; apply: (@block _ _ _ _ P F 0 1) => //.
    by move=> q qe; (have -> : q = 0 by lia); exact: Y0.
  exact: ord_one.
have [|S3 [sS3 cS3] H3] := @freeze_into t 1 (minn j e.+2) e.+1 dep S2 tF' eL sz.
  move=> p pe; have [|dd Hu] := H p; first by lia.
  by split=> //; apply: (upto_sub (subset_trans sS2 sS1)).
have [S4 [sS4 cS4] H4] : exists2 S4 : {set Om}, S4 \subset S3 /\
    #|S3| <= #|S4| * 2 ^ (if j == e.+3 then B * tok e.+2 * x e.+1 else 0) &
    (j = e.+3 -> msg_const t e.+2 e.+1 S4).
  case: eqP => je; last by exists S3; rewrite ?muln1.
  have [|S4 [sS4 cS4] H4] := @freeze_msg t e.+2 e.+1 e.+1 S3 tF' (leqnn _) eL sz.
    by apply: const_upto; rewrite ?(ltnW tF') //; apply: (X_sub sS3); apply: HX.
  exists S4 => //; split=> //; move: cS4.
  have -> // : ncases e.+2 e.+1 = x e.+1.
  rewrite /ncases /= mul1n big_mkcond big_nat_recr //= leqnn big_nat_cond big1 ?mul1n //.
  by move=> i; rewrite andbT => ie; rewrite ifF //; lia.
have [|S5 [sS5 cS5] H5] := @freeze_brd_at F j e.+1 S4 (leqnn _) _ eL sz; first by lia.
have sub42 : S4 \subset S2 by apply: subset_trans sS3.
have sub52 : S5 \subset S2 by apply: subset_trans sub42.
exists S5.
  split; first by apply: subset_trans sub52 _; apply: subset_trans sS1.
  rewrite /last_border (addnC (_ + _) (_ + (_ + _))) expnD mulnA.
  apply: leq_trans c2 _; rewrite leq_mul2r; apply/orP; right.
  rewrite expnD mulnA; set b := 2 ^ (_ + _).
  apply: (@leq_trans (#|S4| * b)); last by rewrite leq_mul2r cS5 orbT.
  rewrite /b addnC expnD mulnA; apply: leq_trans cS3 _.
  by rewrite leq_mul2r cS4 orbT.
move=> {c2 cS1 cS2 cS3 cS4 cS5} u uv r r' rS rS'; apply: (@block _ _ _ _ P F 0 j) => //; first by case/andP: jb.
  move=> q /andP[_ qj].
  have qv : valid q e.+1 u by apply: valid_mono uv.
  have HY : Y_const F q e.+1 S5.
    case: (posnP q) => [->|q0]; first exact: (Y_sub sub52).
    rewrite -tF; apply: full_const => //; first by case/andP: jb => _ /(leq_trans qj).
    - exact: (pb_sub (subset_trans sub52 (subset_trans sS2 sS1))).
    - by move=> q' qe; apply: (X_sub sub52); apply: HX; case/andP: qe.
    case: (ltnP q e.+2) => qe.
      apply: (msg_sub (subset_trans sS5 sS4)); apply: H3.
      by rewrite q0 leq_min qj.
    have qE : q = e.+2.
      by apply/eqP; rewrite eqn_leq qe andbT -ltnS; case/andP: jb => _ /(leq_trans qj).
    rewrite qE; apply: (msg_sub sS5); apply: H4; apply/eqP; rewrite eqn_leq; case/andP: jb => _ -> /=.
    exact: leq_ltn_trans qe qj.
  exact: HY.
by apply: H5 => //; apply: valid_mono uv.
Qed.

(* ---- "Start" of case 1 (start1) and of case 0 (start0) ---- *)
Lemma start1 : exists2 R : {set Om}, #|Om| <= #|R| * 2 ^ s 0 & forall p, p <= 1 -> X_const 0 p 0 R.
Proof.
have [R [_ cR] H] := freeze_brd 0 [set: Om] (leq0n F).
exists R; first by rewrite cardsT in cR.
move=> p p1; apply: block_const => // q qe; apply: embed_const; lia.
Qed.

Lemma start0 (W : nat) : #|[set q.1 | q in Q]| <= W -> 0 < F -> s 0 = 0 -> s 1 = 0 ->
  exists2 R : {set Om}, #|Om| <= #|R| * 2 ^ (B * tok 0 * W + sd 1) & X_const 1 0 0 R.
Proof.
move=> QW F0 s0 s1.
have [R1 [_ cR1] HR1] := freeze_pb 0 [set: Om] F0.
pose ws := enum [set q.1 | q in Q].
pose inp (w : Query) : Inp := ((w, u0.1.2), u0.2).
have [R [sR cR] H] := @pigeon_seq Om [eqType of Query] (B * tok 0) ws
   (fun w r => msg P 1 0 2 (X 0 0 (merge 0 (inp w) r)) (merge 0 (inp w) r)) R1.
exists R.
  move: cR1; rewrite cardsT => cR1; apply: leq_trans cR1 _.
  rewrite expnD mulnA leq_mul2r; apply/orP; right; apply: leq_trans cR _; rewrite leq_mul2l leq_exp2l //.
  by rewrite leq_mul2l -cardE QW !orbT.
move=> u [u1 _ _] r r' rR rR'.
have X0 q (a b : Om) (v v' : Inp) : q < 2 -> (q = 0 -> v.1.1 = v'.1.1) -> (q = 1 -> v.1.2 = v'.1.2) ->
   X 0 q (merge 0 v a) = X 0 q (merge 0 v' b).
  by move=> q2 H1 H2; apply: empty_block => //; apply: embed; split=> // l e; lia.
apply: empty_block => //; apply: (@full _ _ _ _ P 0 0 2) => //; last by apply: HR1; apply: (subsetP sR).
  by move=> q q2; apply: X0.
have E a : msg P 1 0 2 (X 0 0 (merge 0 u a)) (merge 0 u a) =
           msg P 1 0 2 (X 0 0 (merge 0 (inp u.1.1) a)) (merge 0 (inp u.1.1) a).
  rewrite (X0 0 a a u (inp u.1.1)) //; apply: msg_pre => //; exact: merge_agree.
rewrite !E; apply: H => //; rewrite mem_enum; apply/imsetP; exists u.1 => //; exact: u1.
Qed.

(* case 0, step 0 -> 1: player z_0 in full layer 1 *)
Lemma pre0 (S : {set Om}) : 0 < F -> 0 < L -> s 0 = 0 -> s 1 = 0 -> size (Zl 0) = x 1 -> pb_const 1 1 S ->
  exists2 S' : {set Om}, S' \subset S /\ #|S| <= #|S'| * 2 ^ (B * tok 1 * x 0) & X_upto 1 1 1 1 S'.
Proof.
move=> F0 L0 s0 s1 sz Hp.
have szl l : l < 1 -> size (Zl l) = x l.+1 by case: l.
have X0 q (a b : Om) (v v' : Inp) : q < 3 -> (q = 0 -> v.1.1 = v'.1.1) -> (q = 1 -> v.1.2 = v'.1.2) ->
   (q = 2 -> forall l : 'I_L, l = 0 :> nat -> v.2 l = v'.2 l) ->
   X 0 q (merge 1 v a) = X 0 q (merge 1 v' b).
  move=> q2 H1 H2 H3; apply: empty_block => //; apply: embed; split=> // l e /=.
  have l0 : l = 0 :> nat by lia.
  have l1 : l < 1 by rewrite l0.
  by rewrite !ffunE l1; apply: H3; rewrite ?e ?l0.
have [||S' [sS cS] H] := @freeze_msg 0 1 0 1 S F0 _ L0 szl; first by [].
  by move=> u v uv vv [_ n2 _] r r' rS rS'; apply: X0 => // _; apply: n2.
exists S'; first by move: cS; rewrite /ncases big_geq // muln1.
apply: const_upto => // u uv r r' rS rS'; apply: empty_block => //.
apply: (@full _ _ _ _ P 0 1 3) => //; [|exact: H|exact: (pb_sub sS Hp)].
by move=> q qe; apply: X0 => //; lia.
Qed.

End Steps.
End Task.
