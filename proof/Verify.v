(* The verified checker for certificate files: which theorem, its conditions, and the statement that an accepted certificate makes.

   verify answers as `rung check` does: accepted, refused (an inequality fails), or malformed (a list has the wrong length, a size is zero, a
   divisibility fails, or the theorem does not speak of such a stack); uncovered where its theorem is not proved here for such a certificate. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model LowerBound Logarithm Certificate Network Statement Padding TheoremOne TheoremOneCheck TheoremTwoCheck TheoremThreeCheck StateOnly Embedding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* the names that certificate files use, with the numbers of their own: r and nu of Cells; varying, live and freeze of Product *)
Inductive theorem_name : Type := Decomposition | Entropy | State | Cells (r nu : N) | Product (u : N) (live : seq N) (freeze : seq nat).
Inductive verdict : Type := Accepted | Refused | Malformed | Uncovered.

Section Verify.
Variables (th : theorem_name) (c : cert).
Let L := hops c. Let m := cert_m c. Let B := message_bits c. Let tw := per_query c.
Let s i := nth N0 (state_bits c) i.
Let n i := nth 1%num (1%num :: cert_n c) i.
Let sd i := nth N0 (N0 :: side_bits c) i.

(* what certificates of all theorems have in common; blocks: how many states there are *)
Definition common_ok (blocks : nat) : bool :=
  [&& 0 < L, size (state_bits c) == blocks, size (cert_n c) == L.-1,
      all (fun a => N.leb 1 a) [:: B; m; per_entry c; per_start c; tw] & all (fun a => N.leb 1 a) (cert_n c)].

Definition divides (a b : N) : bool := N.leb 1 a && N.eqb (N.modulo b a) 0.

Definition verify : verdict :=
  match th with
  | Decomposition => if well_formed c then (if accepts c then Accepted else Refused) else Malformed
  | Entropy =>
      if [&& ~~ case_zero c, L == 2 & common_ok 2]
      then (if check_one m (n 1) B (s 0) (s 1) (sd 1) tw then Accepted else Refused) else Malformed
  | State =>
      if ~~ case_zero c && common_ok 1
      then (if final_ok 128 80 (s 0) (sizeN m n L.-1) (sizeN m n L.-1) then Accepted else Refused) else Malformed
  | Cells r nu =>
      if [&& case_zero c, L == 2, common_ok 3, all (N.eqb 0) [:: s 0; s 1; sd 1], divides r m & divides nu (n 1)]
      then (if check_three m (n 1) B (N.add (s 2) (sd 2)) (per_entry c) (per_start c) tw r nu then Accepted else Refused) else Malformed
  | Product u live freeze =>
      let x i := nth 1%num (cert_x c) i in let k := nth 1%num (cert_kappa c) 0 in let j := nth 0 freeze 0 in
      if case_zero c || (L != 2) then Uncovered else
      if [&& common_ok 2, size (cert_x c) == 2, size (cert_sigma c) == 1, size (cert_kappa c) == 1, size live == 1, size freeze == 1,
             all (fun a => N.leb 1 a) [:: x 0; x 1; k], N.eqb (nth N0 live 0) (n 1), j <= 2, N.leb u m, N.leb (x 0) u,
             divides k (x 0) & divides k (n 1)]
      then (if (j == 2) && ~~ N.eqb u m then Uncovered else
            if check_two m (n 1) B (s 0) (s 1) (sd 1) (per_entry c) (per_start c) tw (x 0) (x 1) k (nth N0 (cert_sigma c) 0) u j
            then Accepted else Refused) else Malformed
  end.

(* full layers of the stacks that the theorem speaks of *)
Definition full_layers : nat :=
  match th with Decomposition => L.-1 + case_zero c | Entropy => 1 | State => 0 | Cells _ _ => 2 | Product _ _ _ => 1 end.

Theorem verify_sound : verify = Accepted -> forall F, F <= full_layers ->
  forall (W : net L (fun e => tn (n e)) F (tn B) (fun e => tn (s e)) (fun e => tn (sd e))) (pad : seq (H W)),
    ~ (forall u : Inp L (tn m) (fun e => tn (n e)),
         padded_answer (tn (per_entry c)) (tn (per_start c)) (tn tw) pad u = answer u).
Proof.
rewrite /verify /full_layers; case: th.
- by case: ifP => // _; case: ifP => // ok _ F FF W pad; apply: (certificate_sound_padded ok FF).
- case: ifP => // /and3P[_ /eqP L2 /and5P[_ _ _ /= /and5P[_ _ _ _ /andP[tw0 _]] _]]; case: ifP => // ok _.
  rewrite tn_le in tw0; apply: no_stack_no_net => //.
  rewrite L2; exact: (check_one_sound ok).
- case: ifP => // /andP[_ /and5P[L0 _ _ /= /and5P[_ m0 _ _ /andP[tw0 _]] n0]]; case: ifP => // ok _.
  rewrite tn_le in tw0; rewrite tn_le in m0; apply: no_stack_no_net => //.
  have n0' e : 0 < tn (n e) by apply: pos_nth; rewrite /= n0.
  apply: state_only => //; have := final_okP _ ok; rewrite tn_size; apply; exact: Draw.Nn_pos.
- move=> r nu; case: ifP => // /and5P[_ /eqP L2 co /= /and4P[z0 z1 z2 _] /andP[dr dn]]; case: ifP => // ok _.
  case/and5P: co => _ _ _ /= /and5P[B0 m0 _ _ /andP[tw0 _]] n0; rewrite !tn_le in B0 m0 tw0.
  have zero a : N.eqb 0 a -> tn a = 0 by move=> /N.eqb_spec <-.
  have n0' : 0 < tn (n 1) by apply: pos_nth; rewrite /= n0.
  have dv a b : divides a b -> 0 < tn a /\ tn a %| tn b.
    by case/andP; rewrite tn_le tn1 => a0 ab; split=> //; apply: modN.
  have [r0 rm] := dv _ _ dr; have [nu0 nn] := dv _ _ dn.
  apply: no_local_stack_no_net => //; first exact: zero.
  rewrite L2; apply: (check_cells_sound m0 n0' B0 tw0 r0 nu0 rm nn ok) => //; try exact: zero.
  by rewrite tnD.
- move=> u live freeze; cbv zeta; case: ifP => // /negbT; rewrite negb_or negbK => /andP[_ /eqP L2].
  case: ifP => //; do 6! [case/andP => ?]; case/andP => /= /and4P[x0 x1 k0 _]; case/andP => _; case/andP => j2; case/andP => um; case/andP => xu.
  case/andP => kx kn; case: ifP => // _; case: ifP => // ok _; rewrite !tn_le in x0 x1 k0 um xu.
  have dv a b : divides a b -> tn a %| tn b by case/andP; rewrite tn_le tn1 => a0; apply: modN.
  have co : common_ok 2 by [].
  case/and5P: co => _ _ _ /= /and5P[_ m0 _ _ /andP[tw0 _]] n0; rewrite !tn_le in m0 tw0.
  have n0' : 0 < tn (n 1) by apply: pos_nth; rewrite /= n0.
  apply: no_stack_no_net => //; rewrite L2.
  exact: (check_product_sound m0 n0' x0 x1 k0 (dv _ _ kx) (dv _ _ kn) xu um j2 ok).
Qed.
End Verify.

(* A task of L' hops behind d identity tables, inside the tables of a certificate. *)
Section VerifyEmbedded.
Variables (th : theorem_name) (c : cert) (inside : option (nat * nat)).
Let L := hops c. Let m := cert_m c. Let B := message_bits c. Let te := per_entry c. Let t0 := per_start c. Let tw := per_query c.
Let s i := nth N0 (state_bits c) i.
Let n i := nth 1%num (1%num :: cert_n c) i.
Let sd i := nth N0 (N0 :: side_bits c) i.

Definition inner_cert (L' d : nat) : cert :=
  Cert (case_zero c) L' B (state_bits c) m (take L'.-1 (drop d (cert_n c))) (cert_x c) (cert_sigma c) (cert_kappa c)
       te (N.add t0 (N.mul (N.mul te (N.of_nat d)) m)) tw (side_bits c).
(* the certificate that the theorem speaks of *)
Definition spoken_of : cert := if inside is Some (L', d) then inner_cert L' d else c.

Definition embedding_ok : bool :=
  if inside is Some (L', d)
  then [&& 0 < L', L' < L, d + L' <= L, size (cert_n c) == L.-1, all (fun a => N.leb 1 a) [:: B; m; te; t0; tw],
           all (fun a => N.leb 1 a) (cert_n c) & all (N.eqb 1) (take d (cert_n c))]
  else true.
Definition verify_file : verdict := if embedding_ok then verify th spoken_of else Malformed.

(* An accepted certificate excludes every network with these bits, with or without an embedding. *)
Theorem verify_file_sound : verify_file = Accepted -> forall F, F <= full_layers th spoken_of ->
  forall (W : net L (fun e => tn (n e)) F (tn B) (fun e => tn (s e)) (fun e => tn (sd e))) (pad : seq (H W)),
    ~ (forall u : Inp L (tn m) (fun e => tn (n e)), padded_answer (tn te) (tn t0) (tn tw) pad u = answer u).
Proof.
rewrite /verify_file /spoken_of /embedding_ok; case: inside => [[L' d]|]; last by move=> ok F FF W pad; apply: (verify_sound ok).
case: ifP => // /and5P[L'0 _ room /eqP sz /and3P[/= /and5P[_ m0 _ _ _] n0 ones]] ok F FF W pad sol; rewrite tn_le in m0.
have n0' e : 0 < tn (n e) by apply: pos_nth; rewrite /= n0.
pose n' e := tn (nth 1%num (1%num :: take L'.-1 (drop d (cert_n c))) e).
have one e : 0 < e <= d -> tn (n e) = 1.
  case: e => // e /andP[_ ed]; rewrite /n /=; case: (ltnP e (size (cert_n c))) => es; last by rewrite nth_default.
  have ed' : e < size (take d (cert_n c)) by rewrite size_take; case: ifP.
  by have /N.eqb_spec := allP ones _ (mem_nth 1%num ed'); rewrite nth_take // => <-.
have nE e : 0 < e < L' -> n' e = tn (n (d + e)).
  case: e => // e /andP[_ eL]; rewrite /n' /n /= addnS /= nth_take ?nth_drop //.
  by rewrite -ltnS prednK.
have := @verify_sound th (inner_cert L' d) ok F FF (@Embedding.inner _ L' d (tn m) _ n' (tn te) _ _ _ _ n0' W)
  (pad ++ map (emb W) (front L L' d (tn m) (fun e => tn (n e)) (tn te))).
apply=> u'; rewrite /inner_cert /= tnD !tnM Nat2N.id.
exact: (inner_solves L'0 room m0 n0' one nE sol).
Qed.
End VerifyEmbedded.

(* decimal digits, most significant first *)
Definition decimal (digits : seq nat) : N := foldl (fun a d => N.add (N.mul 10 a) (N.of_nat d)) N0 digits.
