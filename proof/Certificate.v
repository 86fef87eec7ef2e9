(* Certificates, the executable check of the lower bound, and its soundness: check_sound.
   Names that end in N are on binary numbers; each has a lemma tn_.. that it equals the number of LowerBound.v. *)
From mathcomp Require Import all_ssreflect zify.
From Coq Require Import Lia NArith.
From Rung Require Import Counting Model Draw Reach LowerBound Logarithm.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Local Notation "a +! b" := (N.add a b) (at level 50, left associativity).
Local Notation "a *! b" := (N.mul a b) (at level 40, left associativity).
Local Notation "a /! b" := (N.div a b) (at level 40, left associativity).

Definition sumN (r : seq nat) (f : nat -> N) : N := foldr (fun i a => f i +! a) N0 r.
Definition prodN (r : seq nat) (f : nat -> N) : N := foldr (fun i a => f i *! a) 1%num r.
Lemma tn_sum r f : tn (sumN r f) = \sum_(i <- r) tn (f i).
Proof. by elim: r => [|i r IH]; rewrite ?big_nil // big_cons -IH /= tnD. Qed.
Lemma tn_prod r f : tn (prodN r f) = \prod_(i <- r) tn (f i).
Proof. by elim: r => [|i r IH]; rewrite ?big_nil // big_cons -IH /= tnM. Qed.

Section Arith.
Variables (z : bool) (L : nat) (B m : N) (s sd n x sigma k : nat -> N) (te t0 tw : N).
Let sF i := tn (s i). Let dF i := tn (sd i). Let nF i := tn (n i). Let xF i := tn (x i). Let gF i := tn (sigma i). Let kF i := tn (k i).

Fixpoint sizeN (e : nat) : N := if e is e'.+1 then sizeN e' *! n e else m.
Lemma tn_size e : tn (sizeN e) = Nn (tn m) nF e.
Proof. by elim: e => //= e IH; rewrite tnM IH. Qed.
Definition tokN (p : nat) : N := match p with 0 => tw | 1 => t0 | l.+2 => te *! sizeN l end.
Lemma tn_tok p : tn (tokN p) = tok (tn m) nF (tn te) (tn t0) (tn tw) p.
Proof. by case: p => [|[|l]] //=; rewrite tnM tn_size. Qed.
Definition qnN : N := x 0 *! prodN (index_iota 0 L.-1) (fun e => n e.+1 /! k e).
Lemma tn_qn : tn qnN = qn L nF xF kF.
Proof. rewrite tnM tn_prod /qn big_mkord; congr (_ * _); by apply: eq_bigr => e _; rewrite tn_div. Qed.
Definition wnN : N := prodN (index_iota 0 L.-1) (fun e => if e == 0 then n e.+1 else n e.+1 /! k e).
Lemma tn_wn : tn wnN = wn L nF kF.
Proof. rewrite tn_prod /wn big_mkord; by apply: eq_bigr => e _; case: ifP => // _; rewrite tn_div. Qed.

Definition casesN (p d : nat) : N :=
  (match p with 0 => qnN | 1 => x 0 | _ => 1%num end) *! prodN [seq l <- index_iota 0 d | p <= l.+2] (fun l => x l.+1).
Lemma tn_cases p d : tn (casesN p d) = ncases (qn L nF xF kF) xF p d.
Proof.
rewrite tnM tn_prod big_filter /ncases; congr (_ * _).
by case: p => [|[|p]] //; rewrite tn_qn.
Qed.

Definition depN (e p : nat) : nat := if z && (e == 0) && (p == 1) then 1 else e.
Definition extraN (e : nat) : N :=
  (if z && (e == 0) then B *! t0 *! x 0 else N0) +! sumN (index_iota 1 (e + z).+2) sd.
Definition stepN (e : nat) : N :=
  sumN (index_iota 0 e.+2) (fun p => B *! tokN p *! casesN p (depN e p))
  +! (N.of_nat (e + z).+1 *! (B *! tokN e.+2 *! x e.+1) +! sumN (index_iota 0 (e + z).+2) s).
Definition borderN (e j : nat) : N :=
  s (L.-1 + z) *! casesN j e.+1 +! (sumN (index_iota 1 (minn j e.+2)) (fun p => B *! tokN p *! casesN p (depN e p))
    +! (if j == e.+3 then B *! tokN e.+2 *! x e.+1 else N0)).
Definition lastN (e j : nat) : N :=
  B *! tokN 0 *! casesN 0 (depN e 0) +! (N.of_nat (e + z) *! (B *! tokN e.+2 *! x e.+1) +! sumN (index_iota 0 (e + z).+1) s)
  +! (if N.eqb (s (L.-1 + z)) 0 then N0 else borderN e j).

Notation sb := (sbits z L (tn B) (tn m) sF nF xF kF (tn te) (tn t0) (tn tw)).
Notation lb := (lbits z L (tn B) (tn m) sF nF xF kF (tn te) (tn t0) (tn tw)).
Lemma tn_into e a b : tn (sumN (index_iota a b) (fun p => B *! tokN p *! casesN p (depN e p))) =
  \sum_(a <= p < b) tn B * tok (tn m) nF (tn te) (tn t0) (tn tw) p * ncases (qn L nF xF kF) xF p (dep z e p).
Proof. by rewrite tn_sum; apply: eq_bigr => p _; rewrite tnM tn_cases tnM tn_tok. Qed.
Lemma tn_step e : tn (stepN e) = sb e.
Proof.
rewrite /stepN /sbits /step_bits tnD tn_into tnD tn_sum tnM Nat2N.id.
by rewrite [tn (_ *! x _)]tnM [tn (B *! _)]tnM tn_tok.
Qed.
Lemma tn_last e j : tn (lastN e j) = lb e j.
Proof.
rewrite /lastN /lbits /last_bits tnD tnD tnD tn_sum; congr (_ + (_ + _) + _).
- by rewrite tnM tn_cases tnM.
- by rewrite tnM Nat2N.id tnM tnM tn_tok.
rewrite tn_eq0 /sF /layers; case: ifP => // _.
rewrite /borderN /last_border tnD tnD tn_into tnM tn_cases; congr (_ + (_ + _)).
by case: ifP => // _; rewrite tnM tnM tn_tok.
Qed.
Lemma tn_extra e : tn (extraN e) = extra z (tn B) dF xF (tn t0) e.
Proof. by rewrite /extraN /extra tnD tn_sum; case: ifP => // _; rewrite !tnM. Qed.

Fixpoint deltaN (e : nat) : N :=
  if e is e'.+1 then (x e *! deltaN e' +! 1) +! extraN e' +! stepN e' else if z then B *! tw *! wnN +! sd 1 else s 0.
Notation De := (Delta z L (tn B) (tn m) sF dF nF xF kF (tn te) (tn t0) (tn tw)).
Lemma tn_delta e : tn (deltaN e) = De e.
Proof.
elim: e => [|e IH]; first by rewrite /=; case: (z) => //; rewrite tnD tnM tn_wn tnM.
by rewrite [deltaN _]/= [De _]/= tnD tnD tnD tn_step tn_extra tnM IH tn1 addn1.
Qed.
Definition reachN (e : nat) : N := if e is e'.+1 then n e /! k e' *! sigma e else x 0.
Lemma tn_reach e : tn (reachN e) = D nF xF gF kF e.
Proof. by case: e => //= e; rewrite tnM tn_div. Qed.
Definition dfinalN (j : nat) : N :=
  if L.-1 is e.+1 then (x e.+1 *! deltaN e +! 1) +! extraN e +! lastN e j else deltaN 0.
Lemma tn_dfinal j : tn (dfinalN j) = Dfinal z L (tn B) (tn m) sF dF nF xF kF (tn te) (tn t0) (tn tw) j.
Proof.
rewrite /dfinalN /Dfinal; case: (L.-1) => [|e]; first exact: tn_delta.
by rewrite tnD tnD tnD tn_last tn_extra tnM tn_delta tn1 addn1.
Qed.
End Arith.

(* The fields of a certificate file, in its order.  case_zero: case 0 (F = L); otherwise case 1 (F = L-1). *)
Record cert := Cert {
  case_zero : bool; hops : nat; message_bits : N; state_bits : seq N; cert_m : N; cert_n : seq N; cert_x : seq N;
  cert_sigma : seq N; cert_kappa : seq N; per_entry : N; per_start : N; per_query : N;
  side_bits : seq N (* mixers beside full layers 1, 2, ..; [::] if there are none *) }.

Section Sound.
Variable c : cert.
Let L := hops c.
Let s i := nth N0 (state_bits c) i.
Let sd i := nth N0 (N0 :: side_bits c) i.
Let n i := nth 1%num (1%num :: cert_n c) i.
Let x i := nth 1%num (cert_x c) i.
Let g i := nth 1%num (1%num :: cert_sigma c) i.
Let k i := nth 1%num (cert_kappa c) i.
Let pos := all (fun a => N.leb 1 a).
Let z := case_zero c. Let B := message_bits c. Let m := cert_m c.
Let te := per_entry c. Let t0 := per_start c. Let tw := per_query c.
Variables (MA : N) (FR : nat).

Definition well_formed : bool :=
  [&& 0 < L, size (state_bits c) == (if z then L.+1 else L), size (cert_n c) == L.-1, size (cert_x c) == L,
      size (cert_sigma c) == L.-1, size (cert_kappa c) == L.-1,
      pos [:: B; m; te; t0; tw], pos (cert_n c), pos (cert_x c), pos (cert_kappa c),
      z ==> (N.eqb (s 0) 0 && N.eqb (s 1) 0), N.leb (x 0) m, (L == 1) ==> N.eqb (x 0) m,
      N.eqb (N.modulo (x 0) (k 0)) 0 &
      all (fun e => N.eqb (N.modulo (n e.+1) (k e *! k e.+1)) 0) (iota 0 L.-1)].

Definition check : bool :=
  [&& well_formed,
      all (fun e => tail_ok MA FR (k e *! sizeN m n e) (x e.+1 *! reachN n x g k e) (g e.+1)
                      (x e.+1 *! deltaN z L B m s sd n x k te t0 tw e +! 1)) (iota 0 L.-1) &
      has (fun j => final_ok MA FR (dfinalN z L B m s sd n x k te t0 tw j) (reachN n x g k L.-1) (sizeN m n L.-1))
          (iota 1 L.+1)].

Lemma pos_nth (l : seq N) i : pos l -> 0 < tn (nth 1%num l i).
Proof.
move=> /allP H; case: (ltnP i (size l)) => il; last by rewrite nth_default.
by have := H _ (mem_nth 1%num il); rewrite tn_le.
Qed.

Lemma modN a b : 0 < tn b -> N.eqb (N.modulo a b) 0 -> tn b %| tn a.
Proof.
move=> b0 /N.eqb_spec H; have b0' : b <> N0 by move=> E; rewrite E in b0.
by rewrite (N.div_mod a b b0') H tnD tnM addn0 dvdn_mulr.
Qed.

(* An accepted certificate excludes every stack of these sizes. *)
Theorem check_sound : check ->
  forall P : stack L (tn m) (fun e => tn (n e)) (tn te) (tn t0) (tn tw) (layers z L) (tn B) (fun e => tn (s e)) (fun e => tn (sd e)),
    ~ solves P.
Proof.
case/and3P => wf tails /hasP[j jr fin].
move: wf; rewrite /well_formed.
case/andP => L0; do 5! [case/andP => _].
case/andP => pm; case/andP => pn; case/andP => px; case/andP => pk.
case/andP => emp; case/andP => x0m; case/andP => _; case/andP => kx kk.
have n0 e : 0 < tn (n e) by apply: pos_nth; rewrite /= pn.
have x0 e : 0 < tn (x e) by apply: pos_nth.
have k0 e : 0 < tn (k e) by apply: pos_nth.
have m0 : 0 < tn m by move: pm => /= /and3P[_ H _]; rewrite tn_le in H.
have inr e : e < L.-1 -> e \in iota 0 L.-1 by rewrite mem_iota add0n.
apply: (@lower_bound z L (tn B) (tn m) _ _ _ (fun e => tn (x e)) (fun e => tn (g e)) (fun e => tn (k e)) _ _ _ j).
split => //.
- by rewrite tn_le in x0m.
- exact: modN.
- by move=> e eL; rewrite -tnM; apply: modN; [rewrite tnM muln_gt0 !k0|exact: (allP kk _ (inr e eL))].
- by move=> e eL; have [] := tail_okP (allP tails _ (inr e eL)); rewrite tnM tn_size.
- by move=> zT; move: emp; rewrite zT /= !tn_eq0 => /andP[/eqP -> /eqP ->].
- move=> e eL; have [_] := tail_okP (allP tails _ (inr e eL)).
  by rewrite !tnM tn_size tn_reach tnD tnM tn_delta tn1 addn1.
- by move: jr; rewrite mem_iota add1n ltnS.
- have := final_okP _ fin; rewrite tn_dfinal tn_reach tn_size; apply.
  exact: Nn_pos.
Qed.
End Sound.

(* with the precision of checker.rs: mantissa 128, fraction 80 *)
Definition accepts (c : cert) : bool := check c 128 80.
