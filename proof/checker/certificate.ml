(* A certificate file as the record that the verified checker takes. The rules are those of `rung check`: decimal strings, no unknown
   field, no field twice. *)
open Verified

exception Malformed of string
exception Uncovered of string

let max_bytes = 1 lsl 20
let max_digits = 2000
let max_hops = 64
let common = [ "case"; "hops"; "message_bits"; "state_bits"; "m"; "n"; "tokens_per" ]
let optional = [ "theorem"; "beside_bits"; "embedding"; "stack"; "conventions"; "accept"; "why"; "made_by" ]

(* theorems with the fields of their own; the first is that of certificates that name none *)
let theorems =
  [ ("decomposition", [ "x"; "sigma"; "kappa" ]); ("entropy", []); ("state", []); ("cells", [ "cell"; "group" ]);
    ("product", [ "x"; "sigma"; "kappa"; "varying"; "live"; "freeze" ]) ]

(* theorems of docs/proof.md that are not machine-checked yet *)
let uncovered = [ "cell-lists" ]
let fail format = Printf.ksprintf (fun reason -> raise (Malformed reason)) format
let rec nat k = if k = 0 then O else S (nat (k - 1))


(* UTF-8 without overlong forms, surrogates and code points above 10FFFF *)
let is_utf8 text =
  let byte i = if i < String.length text then Char.code text.[i] else 0 in
  let next i low high = low <= byte i && byte i <= high in
  let rest i = next i 0x80 0xBF in
  let rec from i =
    i >= String.length text
    ||
    let b = byte i in
    if b < 0x80 then from (i + 1)
    else if b >= 0xC2 && b <= 0xDF then rest (i + 1) && from (i + 2)
    else if b >= 0xE0 && b <= 0xEF then
      next (i + 1) (if b = 0xE0 then 0xA0 else 0x80) (if b = 0xED then 0x9F else 0xBF) && rest (i + 2) && from (i + 3)
    else
      b >= 0xF0 && b <= 0xF4
      && next (i + 1) (if b = 0xF0 then 0x90 else 0x80) (if b = 0xF4 then 0x8F else 0xBF)
      && rest (i + 2) && rest (i + 3) && from (i + 4) in
  from 0

let is_plain digits =
  let length = String.length digits in
  length > 0 && length <= max_digits
  && String.for_all (fun c -> '0' <= c && c <= '9') digits
  && (length = 1 || digits.[0] <> '0')

let number digits = decimal (List.map (fun c -> nat (Char.code c - 48)) (List.of_seq (String.to_seq digits)))

let big name = function
  | Json.String digits when is_plain digits -> number digits
  | _ -> fail "field `%s`: expected a decimal string without sign or leading zeros, of at most %d digits" name max_digits

(* a whole number of at most eleven digits, written without point or exponent *)
let small name most = function
  | Json.Number digits when is_plain digits && String.length digits <= 11 && int_of_string digits <= most -> int_of_string digits
  | _ -> fail "field `%s`: expected a whole number of at most %d" name most

let check_type name test expected members =
  match List.assoc_opt name members with
  | Some value when not (test value) -> fail "field `%s`: expected %s" name expected
  | _ -> ()

let is_text = function Json.String _ -> true | _ -> false
let is_size = function Json.Number digits -> is_plain digits && digits <> "0" && String.length digits <= 18 | _ -> false

(* what the theorem does not see must still be well typed *)
let check_annotations members =
  check_type "stack" is_text "a string" members;
  check_type "why" is_text "a string" members;
  check_type "made_by" is_text "a string" members;
  check_type "accept" (function Json.Bool _ -> true | _ -> false) "true or false" members;
  match List.assoc_opt "conventions" members with
  | None -> ()
  | Some (Json.Object entries) ->
    let texts = [ "message"; "message_formula"; "attention"; "table_order" ] in
    let sizes = [ "heads"; "head_dim"; "bits_per_number" ] and sizes_or_null = [ "kv_heads"; "width" ] in
    let known (name, _) =
      if not (List.mem name (texts @ sizes @ sizes_or_null)) then fail "field `conventions.%s` is not part of a certificate" name in
    List.iter known entries;
    List.iter (fun name -> check_type name is_text "a string" entries) texts;
    List.iter (fun name -> check_type name is_size "a whole number of at least 1" entries) sizes;
    List.iter (fun name -> check_type name (fun value -> value = Json.Null || is_size value) "a whole number of at least 1" entries) sizes_or_null
  | Some _ -> fail "field `conventions`: expected an object"

let find_theorem members =
  match List.assoc_opt "theorem" members with
  | None -> List.hd theorems
  | Some (Json.String name) when List.mem name uncovered -> raise (Uncovered ("theorem `" ^ name ^ "`"))
  | Some (Json.String name) when List.mem_assoc name theorems -> (name, List.assoc name theorems)
  | Some _ -> fail "field `theorem`: expected the name of a theorem"

(* hops and middle of a smaller task inside the tables *)
let embedding members =
  match List.assoc_opt "embedding" members with
  | None -> None
  | Some (Json.Object parts) ->
    let known (name, _) = if not (List.mem name [ "hops"; "middle" ]) then fail "field `embedding.%s` is not part of a certificate" name in
    List.iter known parts;
    let part name = match List.assoc_opt name parts with
      | Some value -> nat (small ("embedding." ^ name) max_hops value)
      | None -> fail "field `embedding.%s` is missing" name in
    Some (part "hops", part "middle")
  | Some _ -> fail "field `embedding`: expected an object"

(* the theorem, its certificate and the embedding *)
let read text =
  if String.length text > max_bytes then fail "the file has more than %d bytes" max_bytes;
  if not (is_utf8 text) then fail "the file is not UTF-8 text";
  let members =
    match Json.parse text with
    | Json.Object members -> members
    | _ -> fail "expected an object"
    | exception Json.Error reason -> fail "not JSON: %s" reason in
  check_annotations members;
  let name, own = find_theorem members in
  let known (name, _) =
    if not (List.mem name (common @ optional @ own)) then fail "field `%s` is not part of a certificate" name in
  List.iter known members;
  let field name = match List.assoc_opt name members with Some value -> value | None -> fail "field `%s` is missing" name in
  let list name = match field name with
    | Json.List items -> List.map (big name) items
    | _ -> fail "field `%s`: expected a list of decimal strings" name in
  let own_list name = if List.mem name own then list name else [] in
  let tokens = match field "tokens_per" with
    | Json.List ([ _; _; _ ] as items) -> List.map (small "tokens_per" (1 lsl 32)) items
    | _ -> fail "field `tokens_per`: expected a list of three whole numbers" in
  let per index = number (string_of_int (List.nth tokens index)) in
  let beside = match List.assoc_opt "beside_bits" members with Some value -> big "beside_bits" value | None -> decimal [] in
  let nothing_beside = List.mem name [ "state"; "cells" ] in
  if nothing_beside && beside <> decimal [] then fail "field `beside_bits`: expected 0 for this theorem";
  let theorem = match name with
    | "entropy" -> Entropy
    | "state" -> State
    | "cells" -> Cells (big "cell" (field "cell"), big "group" (field "group"))
    | "product" ->
      let freeze = match field "freeze" with
        | Json.List items -> List.map (fun item -> nat (small "freeze" max_hops item)) items
        | _ -> fail "field `freeze`: expected a list of whole numbers" in
      Product (big "varying" (field "varying"), list "live", freeze)
    | _ -> Decomposition in
  ( theorem,
    { case_zero = small "case" 1 (field "case") = 0;
      hops = nat (small "hops" max_hops (field "hops"));
      message_bits = big "message_bits" (field "message_bits");
      state_bits = list "state_bits"; cert_m = big "m" (field "m"); cert_n = list "n"; cert_x = own_list "x";
      cert_sigma = own_list "sigma"; cert_kappa = own_list "kappa";
      per_entry = per 0; per_start = per 1; per_query = per 2; side_bits = [ beside ] },
    embedding members )
