(* "Embedding: fewer hops inside the tables" of docs/proof.md: a network that solves L hops, with n_1 = .. = n_d = 1, solves L' hops on the tables m,
   n_{d+1}, .., n_{d+L'-1}, where z_0 takes te d m tokens more (embedding_sound).  The first d tables are the identity and belong to the stretch of z_0;
   the next L' are the small task; the others hand their value on and stand in front as constant padding. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model Network Padding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Lemma top_flatten L (T : Type) (S : nat -> seq T) k : top L S k = flatten [seq S (L.+1 - i) | i <- iota 0 k].
Proof. by elim: k => // k IH; rewrite -[k.+1]addn1 iotaD map_cat flatten_cat /= cats0 addn1 /= IH. Qed.

Section Embedding.
Variables (L L' d m : nat) (n n' : nat -> nat) (te t0 tw F B : nat) (s sd : nat -> nat).
Hypotheses (L'0 : 0 < L') (room : d + L' <= L) (m0 : 0 < m) (n0 : forall e, 0 < n e).
Hypothesis n_one : forall e, 0 < e <= d -> n e = 1.
Hypothesis nE : forall e, 0 < e < L' -> n' e = n (d + e).

Lemma size_one l : l <= d -> Nn m n l = m.
Proof. by elim: l => //= l IH ld; rewrite IH ?(ltnW ld) // n_one ?muln1 //= ld. Qed.
Lemma size_inner l : l < L' -> Nn m n (d + l) = Nn m n' l.
Proof.
elim: l => [_|l IH lL]; first by rewrite addn0 size_one.
by rewrite addnS /= IH 1?ltnW // nE ?addnS.
Qed.
Lemma size_pos l : 0 < Nn m n l.
Proof. by elim: l => //= l IH; rewrite muln_gt0 IH n0. Qed.
Lemma size_mono l k : l <= k -> Nn m n l <= Nn m n k.
Proof. by elim: k => [|k IH]; rewrite leq_eqVlt => /orP[/eqP -> //|] //; rewrite ltnS => /IH /leq_trans; apply; rewrite leq_pmulr. Qed.

(* ---------- the large instance ---------- *)
Section Instance.
Variable u' : Inp L' m n'.
Definition value (l x : nat) : nat := if l < d then x else if l < d + L' then tab u'.2 (l - d) x else x %% Nn m n l.-1.
Definition large : Inp L m n :=
  (([ffun e : 'I_L.-1 => insubd (Ordinal (n0 e.+1)) (if d <= e < d + L'.-1 then wv u'.1.1 (e - d) else 0)] : Query L n, u'.1.2),
   [ffun l : 'I_L => [ffun x : 'I_(Nn m n l) => insubd x (value l x)]] : Om L m n).

Lemma tab_lt (k : nat) (nn : nat -> nat) (z : Om k m nn) l x : x < Nn m nn l -> tab z l x < Nn m nn l.
Proof.
move=> xl; have pos : 0 < Nn m nn l by apply: leq_ltn_trans xl.
by rewrite /tab; case: insubP => // l' _ lE; case: insubP => // x' _ _; rewrite -lE ltn_ord.
Qed.
Lemma value_lt l x : x < Nn m n l -> value l x < Nn m n l.
Proof.
rewrite /value => xl; case: (ltnP l d) => // dl; case: (ltnP l (d + L')) => lL.
  have E : Nn m n' (l - d) = Nn m n l by rewrite -size_inner ?subnKC // ltn_subLR.
  by rewrite -E; apply: tab_lt; rewrite E.
by apply: leq_ltn_trans xl; apply: leq_mod.
Qed.
Lemma tab_large l x : l < L -> x < Nn m n l -> tab large.2 l x = value l x.
Proof.
move=> lL xl; rewrite /tab (insubT (fun i => i < L) lL) /= (insubT (fun i => i < Nn m n l) xl) /= !ffunE /=.
by rewrite insubdK //; apply: (value_lt xl).
Qed.
Lemma wv_large e : e < L.-1 -> wv large.1.1 e = if d <= e < d + L'.-1 then wv u'.1.1 (e - d) else 0.
Proof.
move=> eL; rewrite {1}/wv (insubT (fun i => i < L.-1) eL) /= ffunE /=; rewrite insubdK // unfold_in /=.
case: ifP => // /andP[de eL']; rewrite /wv; case: insubP => // e' el eE.
apply: leq_trans (ltn_ord (u'.1.1 e')) _; apply: eq_leq; rewrite nE; last by rewrite eE; lia.
by congr n; rewrite eE; lia.
Qed.

Lemma arg_lt (k : nat) (nn : nat -> nat) (v : Inp k m nn) l : l < k -> (forall e, 0 < e < k -> 0 < nn e) -> arg v l < Nn m nn l.
Proof.
move=> lk pos; elim: l lk => [|l IH] lk /=; first exact: ltn_ord.
have := tab_lt v.2 (IH (ltnW lk)); set t := tab _ _ _ => tl.
have wl : wv v.1.1 l < nn l.+1 by rewrite /wv; case: insubP => [e _ <-|_]; [apply: ltn_ord|apply: pos].
apply: (@leq_trans (wv v.1.1 l * Nn m nn l + Nn m nn l)); first by rewrite ltn_add2l.
by rewrite -mulSnr [X in _ <= X]mulnC leq_mul2r wl orbT.
Qed.
Lemma arg_first l : l <= d -> arg large l = u'.1.2.
Proof.
elim: l => //= l IH ld; rewrite IH ?(ltnW ld) //.
have z0 : u'.1.2 < Nn m n l by rewrite size_one ?(ltnW ld) //; apply: ltn_ord.
rewrite tab_large ?z0 //; last by lia.
rewrite /value ld wv_large; last by lia.
by rewrite leqNgt ld mul0n.
Qed.
Lemma arg_inner l : l < L' -> arg large (d + l) = arg u' l.
Proof.
elim: l => [_|l IH lL]; first by rewrite addn0 arg_first.
have al : arg u' l < Nn m n (d + l).
  by rewrite (size_inner (ltnW lL)); apply: arg_lt => [|e el]; [apply: ltnW|rewrite nE].
rewrite addnS /= (IH (ltnW lL)) tab_large //; last by lia.
rewrite /value ltnNge leq_addr /= ltn_add2l (ltnW lL) addKn wv_large; last by lia.
rewrite leq_addr ltn_add2l addKn (size_inner (ltnW lL)).
by have -> : l < L'.-1 by lia.
Qed.
Lemma answer_lt : answer u' < Nn m n (d + L'.-1).
Proof.
rewrite size_inner ?prednK //; apply: tab_lt; have lt : L'.-1 < L' by rewrite prednK.
by rewrite -size_inner // -arg_inner //; apply: arg_lt => //; lia.
Qed.
Lemma answer_large : answer large = answer u'.
Proof.
have lt : L'.-1 < L' by rewrite prednK.
have inner : tab large.2 (d + L'.-1) (arg large (d + L'.-1)) = answer u'.
  rewrite arg_inner // tab_large; [|by lia|]; last by rewrite -arg_inner //; apply: arg_lt => //; lia.
  by rewrite /value ltnNge leq_addr /= ltn_add2l lt addKn.
have rest k : d + L'.-1 + k < L -> tab large.2 (d + L'.-1 + k) (arg large (d + L'.-1 + k)) = answer u'.
  elim: k => [|k IH] kL; first by rewrite addn0.
  rewrite addnS in kL *; rewrite [arg _ _.+1]/= IH ?(ltnW kL) // wv_large; last by lia.
  have -> : (d <= d + L'.-1 + k < d + L'.-1) = false by lia.
  rewrite mul0n add0n.
  have al : answer u' < Nn m n (d + L'.-1 + k) by apply: leq_trans answer_lt _; apply: size_mono; apply: leq_addr.
  rewrite tab_large //; last by apply: leq_trans al _; apply: size_mono.
  rewrite /value; have -> : (d + L'.-1 + k).+1 < d = false by lia.
  have -> : (d + L'.-1 + k).+1 < d + L' = false by lia.
  by rewrite /= modn_small.
have := rest (L.-1 - (d + L'.-1)).
have -> : d + L'.-1 + (L.-1 - (d + L'.-1)) = L.-1 by lia.
by apply; lia.
Qed.
End Instance.

(* ---------- the network ---------- *)
Variable W : net L n F B s sd.
(* the tokens of the identity tables, z_d first *)
Definition middle : seq (token L n) :=
  flatten [seq [seq Entry L n l a a r | a <- iota 0 m, r <- iota 0 te] | l <- rev (iota 0 d)].
(* the tokens of the constant tables in front *)
Definition front : seq (token L n) :=
  flatten [seq [seq Entry L n l a (a %% Nn m n l.-1) r | a <- iota 0 (Nn m n l), r <- iota 0 te] | l <- rev (iota (d + L') (L - (d + L')))].
Lemma size_middle : size middle = te * d * m.
Proof.
rewrite /middle size_flatten /shape -map_comp (eq_map (f2 := fun _ => m * te)); last first.
  by move=> l /=; rewrite size_allpairs !size_iota.
rewrite sumnE big_map big_const_seq count_predT size_rev size_iota iter_addn_0; lia.
Qed.

Definition query_of (w : Query L' n') : Query L n :=
  [ffun e : 'I_L.-1 => insubd (Ordinal (n0 e.+1)) (if d <= e < d + L'.-1 then wv w (e - d) else 0)].
Definition emb' (t : token L' n') : H W :=
  match t with
  | Entry l a v r => emb W (Entry L n (d + l) a v r)
  | Start z r => if r < size middle then nth (h0 W) (map (emb W) middle) r else emb W (Start L n z (r - size middle))
  | Ask w r => emb W (Ask (query_of w) r)
  end.
Definition inner : net L' n' F B s sd :=
  @Net L' n' F B s sd (H W) (h0 W) emb' (@reg _ _ _ _ _ _ W) (@reg_le _ _ _ _ _ _ W) (@par _ _ _ _ _ _ W) (@par_le _ _ _ _ _ _ W)
    (pinit W) (pstep W) (rinit W) (rstep W) (fout W) (@mem _ _ _ _ _ _ W) (@mem_le _ _ _ _ _ _ W) (binit W) (bstep W) (bout W) (read W).

Notation t0' := (size middle + t0).
Lemma map_toks (u' : Inp L' m n') l : l < L' -> map (emb W) (toks te t0 tw (large u') (d + l).+2) = map emb' (toks te t0' tw u' l.+2).
Proof.
move=> lL; rewrite /= !map_allpairs size_inner //; congr flatten; apply/eq_in_map => a; rewrite mem_iota add0n => /andP[_ al].
apply: eq_map => r /=; rewrite tab_large ?size_inner //; last by lia.
by rewrite /value ltnNge leq_addr /= ltn_add2l lL addKn.
Qed.
Lemma map_middle (u' : Inp L' m n') : flatten [seq map (emb W) (toks te t0 tw (large u') l.+2) | l <- rev (iota 0 d)] = map (emb W) middle.
Proof.
rewrite /middle map_flatten -map_comp; congr flatten; apply/eq_in_map => l; rewrite mem_rev mem_iota add0n => /andP[_ ld] /=.
congr (map _); rewrite size_one 1?ltnW //; congr flatten; apply/eq_in_map => a; rewrite mem_iota add0n => /andP[_ am].
apply: eq_map => r; rewrite tab_large; [|by lia|by rewrite size_one // ltnW].
by rewrite /value ld.
Qed.
Lemma map_front (u' : Inp L' m n') :
  flatten [seq map (emb W) (toks te t0 tw (large u') l.+2) | l <- rev (iota (d + L') (L - (d + L')))] = map (emb W) front.
Proof.
rewrite /front map_flatten -map_comp; congr flatten; apply/eq_in_map => l; rewrite mem_rev mem_iota subnKC // => /andP[ld lL] /=.
congr (map _); congr flatten; apply/eq_in_map => a; rewrite mem_iota add0n => /andP[_ am].
apply: eq_map => r; rewrite tab_large // /value; have -> : l < d = false by lia.
by rewrite ltnNge ld.
Qed.
Lemma map_start (u' : Inp L' m n') : map emb' (toks te t0' tw u' 1) = map (emb W) middle ++ map (emb W) (toks te t0 tw (large u') 1).
Proof.
rewrite /= iotaD !map_cat; congr (_ ++ _).
  rewrite -map_comp -[RHS](mkseq_nth (h0 W)) /mkseq size_map; apply/eq_in_map => r.
  by rewrite mem_iota add0n /= => ->.
rewrite add0n -[X in iota X t0]addn0 iotaDl -!map_comp; apply: eq_map => r /=.
by rewrite ltnNge leq_addr /= addKn.
Qed.
Lemma prompt_large (u' : Inp L' m n') :
  map (emb W) (prompt te t0 tw (large u')) = map (emb W) front ++ map emb' (prompt te t0' tw u').
Proof.
have players k (nn : nat -> nat) tz (v : Inp k m nn) (T : Type) (f : token k nn -> T) : map f (prompt te tz tw v) =
    flatten [seq map f (toks te tz tw v l.+2) | l <- rev (iota 0 k)] ++ map f (toks te tz tw v 1) ++ map f (toks te tz tw v 0).
  rewrite /prompt top_flatten map_flatten -map_comp -[k.+2]addn2 iotaD map_cat flatten_cat /= cats0 add0n subnn subSn // subnn.
  congr (_ ++ _); congr flatten; rewrite {1}(_ : iota 0 k = [seq k - l.+1 | l <- rev (iota 0 k)]); last first.
    apply: (@eq_from_nth _ 0) => [|i]; rewrite ?size_map ?size_rev ?size_iota // => ik.
    rewrite (nth_map 0) ?size_rev ?size_iota // nth_rev ?size_iota // !nth_iota //; lia.
  rewrite -map_comp; apply/eq_in_map => l; rewrite mem_rev mem_iota add0n => /andP[_ lk] /=.
  by have -> : k.+1 - (k - l.+1) = l.+2 by lia.
rewrite !players.
have -> : iota 0 L = iota 0 d ++ iota d L' ++ iota (d + L') (L - (d + L')).
  by rewrite -[iota d L' ++ _]iotaD -[X in _ ++ iota X _]add0n -iotaD; congr iota; lia.
rewrite !rev_cat !map_cat !flatten_cat map_front -!catA; congr (_ ++ _).
rewrite map_middle map_start -!catA; congr (_ ++ _); last by congr (_ ++ (_ ++ _)); rewrite /= -!map_comp; apply: eq_map.
rewrite -[X in iota X L']addn0 iotaDl -map_rev -map_comp; congr flatten; apply/eq_in_map => l; rewrite mem_rev mem_iota add0n => /andP[_ lL].
by rewrite /= -map_toks.
Qed.

Lemma padded_cat (V : net L n F B s sd) pad a b e : @padded _ _ _ _ _ _ V pad (a ++ b) e = @padded _ _ _ _ _ _ V (pad ++ a) b e.
Proof. by elim: e => /= [|e ->]; rewrite ?catA. Qed.
Lemma padded_inner pad hs e : @padded _ _ _ _ _ _ inner pad hs e = @padded _ _ _ _ _ _ W pad hs e.
Proof. by elim: e => //= e ->. Qed.

Theorem inner_solves (pad : seq (H W)) : (forall u : Inp L m n, padded_answer te t0 tw pad u = answer u) ->
  forall u' : Inp L' m n', @padded_answer _ _ _ te (t0 + te * d * m) tw _ _ _ _ inner (pad ++ map (emb W) front) u' = answer u'.
Proof.
move=> sol u'; rewrite -answer_large -sol /padded_answer prompt_large padded_cat addnC -size_middle.
by rewrite padded_inner.
Qed.
End Embedding.
