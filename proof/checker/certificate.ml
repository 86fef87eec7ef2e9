(* A certificate file as the record that the verified checker takes. The rules are those of `rung check`: decimal strings, no unknown
   field, no field twice. *)
open Verified

exception Malformed of string

let max_bytes = 1 lsl 20
let max_digits = 2000
let max_hops = 64
let fields = [ "case"; "hops"; "message_bits"; "state_bits"; "m"; "n"; "x"; "sigma"; "kappa"; "tokens_per" ]
let annotations = [ "stack"; "conventions"; "accept"; "why" ]
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

let read text =
  if String.length text > max_bytes then fail "the file has more than %d bytes" max_bytes;
  if not (is_utf8 text) then fail "the file is not UTF-8 text";
  let members =
    match Json.parse text with
    | Json.Object members -> members
    | _ -> fail "expected an object"
    | exception Json.Error reason -> fail "not JSON: %s" reason in
  let once seen (name, _) =
    if List.mem name seen then fail "field `%s` stands twice" name;
    if not (List.mem name fields || List.mem name annotations) then fail "field `%s` is not part of a certificate" name;
    name :: seen in
  ignore (List.fold_left once [] members);
  let field name = match List.assoc_opt name members with Some value -> value | None -> fail "field `%s` is missing" name in
  let list name = match field name with
    | Json.List items -> List.map (big name) items
    | _ -> fail "field `%s`: expected a list of decimal strings" name in
  let tokens = match field "tokens_per" with
    | Json.List ([ _; _; _ ] as items) -> List.map (small "tokens_per" (1 lsl 32)) items
    | _ -> fail "field `tokens_per`: expected a list of three whole numbers" in
  let per index = number (string_of_int (List.nth tokens index)) in
  { case_zero = small "case" 1 (field "case") = 0;
    hops = nat (small "hops" max_hops (field "hops"));
    message_bits = big "message_bits" (field "message_bits");
    state_bits = list "state_bits"; cert_m = big "m" (field "m"); cert_n = list "n"; cert_x = list "x";
    cert_sigma = list "sigma"; cert_kappa = list "kappa";
    per_entry = per 0; per_start = per 1; per_query = per 2; side_bits = [] }
