(* rung-verify FILE, or - for standard input: exit 0 accepted, 1 refused, 2 malformed, as `rung check`; 3 where no theorem here covers it.
   rung-verify --lines FILE: one certificate in each line, one exit code in each line of output. *)

let verdict text =
  match Certificate.read text with
  | exception Certificate.Malformed reason -> (2, "malformed: " ^ reason)
  | exception Certificate.Uncovered what -> (3, "not covered: " ^ what ^ " is not machine-checked")
  | theorem, certificate, embedding ->
    (match Verified.verify_file theorem certificate embedding with
     | Accepted -> (0, "accepted: by the checker that is proved sound; a stack that the file names is not checked")
     | Refused -> (1, "refused: an inequality of the theorem fails")
     | Uncovered -> (3, "not covered: for such a certificate its theorem is not machine-checked")
     | Malformed -> (2, "malformed: a list has the wrong length, a size is zero, a divisibility fails, or the theorem is about other stacks"))

let read_at_most limit channel =
  let buffer = Buffer.create 4096 in
  (try
     while Buffer.length buffer < limit do
       Buffer.add_channel buffer channel 1
     done
   with End_of_file -> ());
  Buffer.contents buffer

let with_file name act = if name = "-" then act stdin else
  let channel = open_in_bin name in
  Fun.protect ~finally:(fun () -> close_in channel) (fun () -> act channel)

let rec each_line channel =
  match input_line channel with
  | line -> Printf.printf "%d\n" (fst (verdict line)); each_line channel
  | exception End_of_file -> ()

let () =
  match Sys.argv with
  | [| _; "--lines"; name |] -> with_file name each_line
  | [| _; name |] when name <> "--help" ->
    let code, message = verdict (with_file name (read_at_most (Certificate.max_bytes + 1))) in
    (if code = 0 then print_endline else prerr_endline) (name ^ ": " ^ message);
    exit code
  | _ -> prerr_endline "usage: rung-verify FILE | rung-verify --lines FILE"; exit 2
  | exception Sys_error reason -> prerr_endline reason; exit 2
