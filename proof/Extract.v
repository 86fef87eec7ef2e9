(* Extraction to OCaml with the big numbers of Zarith: fast. *)
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlZBigInt.
From Rung Require Import Verify.

Extraction Language OCaml.
Extraction "build/verified.ml" verify_file decimal.
