(* The statement a user reads: an accepted certificate excludes every network of these sizes. *)
From mathcomp Require Import all_ssreflect.
From Coq Require Import NArith.
From Rung Require Import Counting Model Draw Reach LowerBound Logarithm Certificate Network.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Statement.
Variable c : cert.
Let L := hops c.
Let m := tn (cert_m c).
Let n e := tn (nth 1%num (1%num :: cert_n c) e).
Let te := tn (per_entry c). Let t0 := tn (per_start c). Let tw := tn (per_query c).
Let F := L.-1 + case_zero c.
Let B := tn (message_bits c).
Let s e := tn (nth N0 (state_bits c) e).
Let sd e := tn (nth N0 (N0 :: side_bits c) e).

(* No causal network with these sizes solves the task, whatever its weights. *)
Theorem certificate_sound : accepts c ->
  forall W : net L n F B s sd, ~ (forall u : Inp L m n, answer_of te t0 tw W u = answer u).
Proof.
move=> ok W sol; have tw0 : 0 < tw.
  move: ok => /and3P[]; rewrite /well_formed; do 6! [case/andP => _].
  by case/andP => /= /and5P[_ _ _ _]; rewrite andbT tn_le.
exact: (check_sound ok (net_solves tw0 sol)).
Qed.
End Statement.

(* A smallest non-trivial point: L = 2, m = 3, n_1 = 3, s = (1,0), B = 4 = ceil(log N_1), 14 tokens. *)
Definition tiny := Cert false 2 4 [:: 1; 0]%num 3 [:: 3]%num [:: 1; 5]%num [:: 2]%num [:: 1]%num 1 1 1 [::].
Lemma tiny_ok : accepts tiny. Proof. by vm_compute. Qed.
(* With one more bit of state the same point proves nothing. *)
Lemma tiny_state : ~~ accepts (Cert false 2 4 [:: 2; 0]%num 3 [:: 3]%num [:: 1; 5]%num [:: 2]%num [:: 1]%num 1 1 1 [::]).
Proof. by vm_compute. Qed.
Definition tiny_excluded := certificate_sound tiny_ok.
(* H, d, p, a = 16, 128, 16, 3: L = 5, case 1, about 2^330 tokens. *)
Definition large := Cert false 5 65536 [:: 12681216; 12681216; 12681216; 12681216; 12681216]%num 44784080159450698088448 [:: 9589763075245390208864908800; 2117142540557916909746688; 98823649011948; 12676416588]%num [:: 79240099900; 23730819014558172053504; 40221058578225080; 832930488; 35574]%num [:: 1102139108727670638338760136333968; 2584072784209686048078616378056302876901761026528876703053466067176; 11335161607446849083127437346701387033439996021590091481957749273668173307039554727; 1001194391898484768436819019694378775939153586365097858804177073350460834820007330852444789815]%num [:: 79240099900; 121021592443062912; 17493924; 5649027]%num 1 1 1 [::].
Lemma large_ok : accepts large. Proof. by vm_compute. Qed.
Definition large_impossible := certificate_sound large_ok.
