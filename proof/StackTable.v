(* Stacks with their numbers, each row checked here (table_ok) and, read from this file, by the Rust test `coq_counts_the_same_bits`.

   A row: the stack as `rung` reads it; heads, head size, bits of a number, convention; the same stack with all sizes explicit; and the numbers: message
   bits, state bits of the blocks, bits beside each full layer. *)
From mathcomp Require Import all_ssreflect.
From Coq Require Import NArith String.
From Rung Require Import StackBits.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope N_scope.

Record row : Type := Row {
  text : string; sizes : N * N * N * convention; stack : seq layer; numbers : N * seq N * seq N }.
Definition row_ok (r : row) : bool :=
  let '(_, _, _, c) := sizes r in let '(message, states, beside) := numbers r in
  [&& widest_message c (stack r) == message, block_bits (stack r) 0 == states & beside_bits (stack r) == beside].

(* linear attention with a normaliser *)
Definition linear H d p : mixer := Recurrence (matrix_numbers H d d true) 0 p.
(* Gated DeltaNet with a convolution of four taps on q, k and v *)
Definition gdn H d p : mixer := Recurrence (matrix_numbers H d d false) (convolution_numbers 4 (3 * H * d)) p.
Definition mamba2 H d state groups p : mixer := Recurrence (matrix_numbers H state d false) (convolution_numbers 4 (H * d + 2 * groups * state)) p.
Definition full H d p : mixer := Attention H d 0 p.

Local Open Scope string_scope.
Definition table : seq row := [::
  Row "full" (1, 4, 4, Paper) [:: [:: full 1 4 4]] (32, [:: 0; 0], [:: 0]);
  Row "full" (1, 4, 4, Register) [:: [:: full 1 4 4]] (20, [:: 0; 0], [:: 0]);
  Row "full" (1, 4, 4, Online) [:: [:: full 1 4 4]] (24, [:: 0; 0], [:: 0]);
  Row "linear full linear" (1, 4, 4, Paper) [:: [:: linear 1 4 4]; [:: full 1 4 4]; [:: linear 1 4 4]] (32, [:: 80; 80], [:: 0]);
  Row "linear*3 full" (16, 128, 16, Paper) [:: [:: linear 16 128 16]; [:: linear 16 128 16]; [:: linear 16 128 16]; [:: full 16 128 16]] (65536, [:: 12681216; 0], [:: 0]);
  Row "linear{normaliser=no} full" (2, 8, 16, Register) [:: [:: Recurrence (matrix_numbers 2 8 8 false) 0 16]; [:: full 2 8 16]] (288, [:: 2048; 0], [:: 0]);
  Row "gdn full gdn*2 full" (2, 8, 16, Online) [:: [:: gdn 2 8 16]; [:: full 2 8 16]; [:: gdn 2 8 16]; [:: gdn 2 8 16]; [:: full 2 8 16]] (320, [:: 4352; 8704; 0], [:: 0; 0]);
  Row "mamba2{head=8,heads=4,state=16,groups=1,conv=4} full" (2, 8, 16, Paper) [:: [:: mamba2 4 8 16 1 16]; [:: full 2 8 16]] (512, [:: 11264; 0], [:: 0]);
  Row "full+linear full" (2, 8, 16, Paper) [:: [:: full 2 8 16; linear 2 8 16]; [:: full 2 8 16]] (512, [:: 0; 0; 0], [:: 2304; 0]);
  Row "window{size=64} full" (2, 8, 16, Paper) [:: [:: Window 64 0 (2 * (8 + 8)) 16]; [:: full 2 8 16]] (512, [:: 32256; 0], [:: 0]);
  Row "window{size=1} full" (2, 8, 16, Paper) [:: [:: Window 1 0 (2 * (8 + 8)) 16]; [:: full 2 8 16]] (512, [:: 0; 0], [:: 0]);
  Row "window{size=64,sinks=4,kv=1} full" (2, 8, 16, Paper) [:: [:: Window 64 4 (1 * (8 + 8)) 16]; [:: full 2 8 16]] (512, [:: 17152; 0], [:: 0]);
  Row "conv{taps=3,channels=16} full" (2, 8, 16, Paper) [:: [:: Recurrence 0 (convolution_numbers 3 16) 16]; [:: full 2 8 16]] (512, [:: 512; 0], [:: 0]);
  Row "full{conv=4} full" (2, 8, 16, Paper) [:: [:: Attention 2 8 (convolution_numbers 4 16) 16]; [:: full 2 8 16]] (512, [:: 768; 0; 0], [:: 0; 0]);
  Row "full+gdn linear full+linear" (2, 8, 16, Paper) [:: [:: full 2 8 16; gdn 2 8 16]; [:: linear 2 8 16]; [:: full 2 8 16; linear 2 8 16]] (512, [:: 0; 2304; 0], [:: 4352; 2304]);
  Row "full{conv=4}+linear full" (2, 8, 16, Online) [:: [:: Attention 2 8 (convolution_numbers 4 16) 16; linear 2 8 16]; [:: full 2 8 16]] (320, [:: 768; 0; 0], [:: 2304; 0]);
  Row "full+window{size=64}" (2, 8, 16, Paper) [:: [:: full 2 8 16; Window 64 0 (2 * (8 + 8)) 16]] (512, [:: 0; 0], [:: 32256]);
  Row "mla full" (2, 8, 16, Paper) [:: [:: full 2 8 16]; [:: full 2 8 16]] (512, [:: 0; 0; 0], [:: 0; 0]);
  Row "chunk{size=16} full" (2, 8, 16, Paper) [:: [:: Window 16 0 (2 * (8 + 8)) 16]; [:: full 2 8 16]] (512, [:: 7680; 0], [:: 0]);
  Row "conv{taps=3,channels=16}*2 full" (2, 8, 16, Paper) [:: [:: Recurrence 0 (convolution_numbers 3 16) 16]; [:: Recurrence 0 (convolution_numbers 3 16) 16]; [:: full 2 8 16]] (512, [:: 1024; 0], [:: 0]);
  Row "retnet full" (2, 8, 16, Paper) [:: [:: Recurrence (matrix_numbers 2 8 16 false) 0 16]; [:: full 2 8 16]] (512, [:: 4096; 0], [:: 0]);
  Row "gla full" (2, 8, 16, Paper) [:: [:: Recurrence (matrix_numbers 2 4 8 false) 0 16]; [:: full 2 8 16]] (512, [:: 1024; 0], [:: 0]);
  Row "deltanet full" (2, 8, 16, Paper) [:: [:: gdn 2 8 16]; [:: full 2 8 16]] (512, [:: 4352; 0], [:: 0]);
  Row "rwkv7 full" (2, 8, 16, Paper) [:: [:: Recurrence (matrix_numbers 2 8 8 false) (convolution_numbers 2 16) 16]; [:: full 2 8 16]] (512, [:: 2304; 0], [:: 0]);
  Row "mamba1 full" (2, 8, 16, Paper) [:: [:: Recurrence (32 * 16) (convolution_numbers 4 32) 16]; [:: full 2 8 16]] (512, [:: 9728; 0], [:: 0]);
  Row "moba{block=32,top=4,groups=2} linear" (2, 8, 16, Paper) [:: [:: TopBlocks 2 3 32 16 false 2 8 16]; [:: linear 2 8 16]] (65632, [:: 0; 2304], [:: 0]);
  Row "nsa{block=64,top=16,length=32,stride=16,window=512,kv=2}" (2, 8, 16, Paper) [:: [:: TopBlocks 2 24 64 16 true 2 8 16]] (820288, [:: 0; 0], [:: 0]);
  Row "dsa{heads=2,head=8,rope=4,latent=32,top=64} full" (2, 8, 16, Paper) [:: [:: TopTokens 64 34 16]; [:: full 2 8 16]] (35840, [:: 0; 0; 0], [:: 0; 0])
].
Lemma table_ok : all row_ok table. Proof. by vm_compute. Qed.
