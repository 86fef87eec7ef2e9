(* "Step e to e+1, choosing the list" for tuples of tables: draw_Om.  Coordinates are swapped (setc), so no types are cast. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia.
From Rung Require Import Counting Model.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section DrawOm.
Variables (L m : nat) (n : nat -> nat).
Hypothesis m0 : 0 < m.
Hypothesis n0 : forall e, 0 < n e.
Notation Om := (Om L m n).
Notation N := (Nn m n).

Lemma Nn_pos e : 0 < N e.
Proof. by elim: e => //= e IH; rewrite muln_gt0 IH n0. Qed.

Lemma setcK e (r z : Om) : setc e (setc e r z) (setc e z r) = r.
Proof. by apply/ffunP => l; rewrite !ffunE; case: ifP => // ->. Qed.

Lemma swC e (R : {set Om}) : \sum_(r : Om) #|[set z | setc e r z \in R]| = #|Om| * #|R|.
Proof.
pose phi (p : Om * Om) := (setc e p.1 p.2, setc e p.2 p.1).
have phiK : involutive phi by move=> [a b]; rewrite /phi /= !setcK.
transitivity (\sum_(p : Om * Om) (setc e p.1 p.2 \in R : nat)).
  rewrite -(pair_big predT predT (fun r z => (setc e r z \in R : nat))) /=.
  apply: eq_bigr => r _; rewrite -sum1_card big_mkcond /=; apply: eq_bigr => z _.
  by rewrite inE; case: (_ \in R).
rewrite (reindex_inj (inv_inj phiK)) /=.
transitivity (\sum_(p : Om * Om) (p.1 \in R : nat)).
  by apply: eq_bigr => p _; rewrite setcK.
rewrite -(pair_big predT predT (fun r (z : Om) => (r \in R : nat))) /=.
rewrite -[#|R|]sum1_card big_distrr /= [RHS]big_mkcond /=; apply: eq_bigr => r _.
by rewrite sum_nat_const; case: (r \in R); rewrite ?muln1 ?muln0.
Qed.

Lemma foldr_prod (I : finType) (f : I -> nat) : foldr muln 1 [seq f i | i : I] = \prod_i f i.
Proof. by rewrite foldrE big_image. Qed.

Lemma unif (e : 'I_L) (V : 'I_(N e) -> {set 'I_(N e)}) :
  #|[set z : Om | [forall u, z e u \in V u]]| * N e ^ N e = #|Om| * \prod_u #|V u|.
Proof.
pose Vn (u v : nat) := [exists u' : 'I_(N e), (u' == u :> nat) && [exists v' in V u', v' == v :> nat]].
pose Fl (l : 'I_L) : pred (Table m n l) := fun f => (l == e) ==> [forall u : 'I_(N l), Vn u (f u)].
have VnE u v : Vn (u : 'I_(N e)) (v : 'I_(N e)) = (v \in V u).
  apply/existsP/idP => [[u' /andP[/eqP/ord_inj -> /exists_inP[v' v'V /eqP/ord_inj <-]]]//|vV].
  by exists u; rewrite eqxx; apply/exists_inP; exists v.
have -> : #|[set z : Om | [forall u, z e u \in V u]]| = \prod_l #|Fl l|.
  rewrite -foldr_prod -card_family; apply: eq_card => z; rewrite inE.
  apply/forallP/familyP => H.
    move=> l; rewrite /Fl unfold_in; apply/implyP => /eqP ->; apply/forallP => u; rewrite VnE; exact: H.
  move=> u; have := H e; rewrite /Fl unfold_in eqxx => /forallP /(_ u); by rewrite VnE.
have -> : #|Om| = \prod_(l < L) #|Table m n l| by rewrite card_dep_ffun foldr_prod.
rewrite (bigD1 e) //= [in RHS](bigD1 e) //=.
have -> : #|Fl e| = \prod_u #|V u|.
  rewrite -foldr_prod -card_family; apply: eq_card => f; rewrite unfold_in /Fl eqxx /=.
  by apply/forallP/familyP => H u; [rewrite -VnE|rewrite VnE]; apply: H.
have -> : #|Table m n e| = N e ^ N e by rewrite card_ffun !card_ord.
have -> : \prod_(i < L | i != e) #|Fl i| = \prod_(i < L | i != e) #|Table m n i|.
  apply: eq_bigr => l /negbTE le; apply: eq_card => f; rewrite unfold_in /Fl le //.
by rewrite mulnC -[RHS]mulnA [X in _ = _ * X]mulnC.
Qed.

Lemma draw_Om (e : 'I_L) k (cls : 'I_(N e) -> 'I_k) (U : {set 'I_(N e)}) d X Delta sigma (R : {set Om}) :
  (forall c, #|[set u in U | cls u == c]| = d) -> 0 < X -> 0 < k -> 0 < sigma <= k * N e ->
  #|Om| <= #|R| * 2 ^ Delta ->
  'C(k * N e, sigma.-1) * sigma.-1 ^ (X * (k * d)) * 2 ^ (X * Delta).+1 <= (k * N e) ^ (X * (k * d)) ->
  exists Zs (J : {set 'I_k * 'I_(N e)}),
   [/\ size Zs = X, #|J| = sigma,
       forall p, p \in J -> exists2 zeta : Om, zeta \in Zs & exists2 u, u \in U & cls u = p.1 /\ zeta e u = p.2 &
       exists2 S : {set Om}, #|Om| <= #|S| * 2 ^ (X * Delta).+1 &
          forall r zeta, r \in S -> zeta \in Zs -> setc e r zeta \in R].
Proof.
move=> bal X0 k0 /andP[sg0 sgM] dens; rewrite -(cardU bal) => tail.
have tM : sigma.-1 <= k * N e by apply: leq_trans sgM; apply: leq_pred.
have bad := bad_few (@unif e) (Nn_pos e) bal tM k0 tail.
have O0 : 0 < #|Om|.
  rewrite card_dep_ffun foldr_prod prodn_cond_gt0 // => l _.
  by rewrite card_ffun !card_ord expn_gt0 Nn_pos.
have [Z GZ cZ] := draw_abs (swC e) X0 dens bad O0.
rewrite prednK // in GZ.
have [J JH Jc] := subset_of_card GZ.
exists [seq Z i | i : 'I_X], J; split => //.
- by rewrite size_map -cardE card_ord.
- move=> p /(subsetP JH); rewrite inE => /existsP[i /exists_inP[u uU /andP[/eqP a /eqP b]]].
  by exists (Z i); [apply/mapP; exists i; rewrite ?mem_enum|exists u].
- exists (slice (@setc L m n e) R Z) => // r zeta; rewrite inE => /forallP H /mapP[i _ ->]; exact: H.
Qed.
End DrawOm.
