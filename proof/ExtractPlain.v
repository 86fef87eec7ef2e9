(* Extraction to OCaml with nothing replaced but booleans, pairs, options and lists: numbers stay Coq's own binary numbers, so the arithmetic that
   runs is the arithmetic that the theorems are about.  Slow. *)
From Coq Require Import Extraction ExtrOcamlBasic.
From Rung Require Import Verify.

Extraction Language OCaml.
Extraction "build/plain/verified.ml" verify_file decimal.
