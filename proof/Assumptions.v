(* What each main theorem assumes.  `make` prints the answers; "Closed under the global context" means that there is no axiom at all. *)
From Rung Require Import LowerBound SmallCases Certificate Statement Padding Instances.
From Rung Require Import StateOnly TheoremOne TheoremOneCheck Verify TwoSum StackBits StackTable TheoremTwo TheoremTwoCheck.
From Rung Require Import Locality TheoremThree TheoremThreeCheck Embedding.
From Rung Require Import TwoHops TwoHopsCheck TwoHopsLast TwoHopsLastCheck.

Goal True. idtac "lower_bound:". Abort. Print Assumptions lower_bound.
Goal True. idtac "one_lookup:". Abort. Print Assumptions one_lookup.
Goal True. idtac "two_hops:". Abort. Print Assumptions two_hops.
Goal True. idtac "check_sound:". Abort. Print Assumptions check_sound.
Goal True. idtac "certificate_sound:". Abort. Print Assumptions certificate_sound.
Goal True. idtac "certificate_sound_padded:". Abort. Print Assumptions certificate_sound_padded.
Goal True. idtac "lookup_solves:". Abort. Print Assumptions lookup_solves.
Goal True. idtac "two_sharp:". Abort. Print Assumptions two_sharp.
Goal True. idtac "two_sharp_last:". Abort. Print Assumptions two_sharp_last.
Goal True. idtac "exact0:". Abort. Print Assumptions exact0.
Goal True. idtac "check_qt_nets:". Abort. Print Assumptions check_qt_nets.
Goal True. idtac "check_last_nets:". Abort. Print Assumptions check_last_nets.
Goal True. idtac "theorem_one:". Abort. Print Assumptions theorem_one.
Goal True. idtac "check_one_sound:". Abort. Print Assumptions check_one_sound.
Goal True. idtac "state_only:". Abort. Print Assumptions state_only.
Goal True. idtac "net_local:". Abort. Print Assumptions net_local.
Goal True. idtac "theorem_three:". Abort. Print Assumptions theorem_three.
Goal True. idtac "check_cells_sound:". Abort. Print Assumptions check_cells_sound.
Goal True. idtac "inner_solves:". Abort. Print Assumptions inner_solves.
Goal True. idtac "verify_sound:". Abort. Print Assumptions verify_sound.
Goal True. idtac "verify_file_sound:". Abort. Print Assumptions verify_file_sound.
Goal True. idtac "two_sum_impossible:". Abort. Print Assumptions two_sum_impossible.
Goal True. idtac "select_register:". Abort. Print Assumptions select_register.
Goal True. idtac "table_ok:". Abort. Print Assumptions table_ok.
Goal True. idtac "theorem_two:". Abort. Print Assumptions theorem_two.
Goal True. idtac "check_product_sound:". Abort. Print Assumptions check_product_sound.
