type t =
  | Null
  | Bool of bool
  | Number of string
  | String of string
  | List of t list
  | Object of (string * t) list

exception Error of string

type reader = { text : string; mutable at : int }

(* values inside values, as serde_json counts them *)
let max_depth = 127
let fail r reason = raise (Error (Printf.sprintf "%s at byte %d" reason r.at))
let peek r = if r.at < String.length r.text then Some r.text.[r.at] else None
let advance r = r.at <- r.at + 1

let rec skip_space r =
  match peek r with
  | Some (' ' | '\t' | '\n' | '\r') -> advance r; skip_space r
  | _ -> ()

let expect r c =
  if peek r = Some c then advance r else fail r (Printf.sprintf "expected `%c`" c)

let literal r word value =
  String.iter (expect r) word;
  value

let is_digit = function Some '0' .. '9' -> true | _ -> false

let digits r =
  if not (is_digit (peek r)) then fail r "expected a digit";
  while is_digit (peek r) do advance r done

let number r =
  let start = r.at in
  if peek r = Some '-' then advance r;
  if peek r = Some '0' then (advance r; if is_digit (peek r) then fail r "leading zero") else digits r;
  if peek r = Some '.' then (advance r; digits r);
  (match peek r with
   | Some ('e' | 'E') ->
     advance r;
     (match peek r with Some ('+' | '-') -> advance r | _ -> ());
     digits r
   | _ -> ());
  let written = String.sub r.text start (r.at - start) in
  if Float.abs (float_of_string written) = Float.infinity then fail r "number out of range";
  Number written

let hex4 r =
  let digit = function
    | Some ('0' .. '9' as c) -> Char.code c - 48
    | Some ('a' .. 'f' as c) -> Char.code c - 87
    | Some ('A' .. 'F' as c) -> Char.code c - 55
    | _ -> fail r "expected a hexadecimal digit" in
  let value = ref 0 in
  for _ = 1 to 4 do
    value := (16 * !value) + digit (peek r);
    advance r
  done;
  !value

(* after \u: one code point, from one escape or from a surrogate pair *)
let code_point r =
  let first = hex4 r in
  if first < 0xD800 || first > 0xDFFF then first
  else if first > 0xDBFF then fail r "lone surrogate"
  else begin
    expect r '\\';
    expect r 'u';
    let second = hex4 r in
    if second < 0xDC00 || second > 0xDFFF then fail r "lone surrogate";
    0x10000 + ((first - 0xD800) lsl 10) + (second - 0xDC00)
  end

let string r =
  expect r '"';
  let out = Buffer.create 16 in
  let escape () =
    let plain c = advance r; Buffer.add_char out c in
    match peek r with
    | Some ('"' | '\\' | '/' as c) -> plain c
    | Some 'b' -> plain '\b'
    | Some 'f' -> plain '\012'
    | Some 'n' -> plain '\n'
    | Some 'r' -> plain '\r'
    | Some 't' -> plain '\t'
    | Some 'u' -> advance r; Buffer.add_utf_8_uchar out (Uchar.of_int (code_point r))
    | _ -> fail r "unknown escape" in
  let rec rest () =
    match peek r with
    | None -> fail r "unfinished string"
    | Some '"' -> advance r
    | Some '\\' -> advance r; escape (); rest ()
    | Some c when Char.code c < 32 -> fail r "control character in a string"
    | Some c -> advance r; Buffer.add_char out c; rest () in
  rest ();
  Buffer.contents out

let rec value r depth =
  skip_space r;
  match peek r with
  | Some '{' -> container r depth '}' (fun () -> Object (members r depth))
  | Some '[' -> container r depth ']' (fun () -> List (items r depth))
  | Some '"' -> String (string r)
  | Some ('-' | '0' .. '9') -> number r
  | Some 't' -> literal r "true" (Bool true)
  | Some 'f' -> literal r "false" (Bool false)
  | Some 'n' -> literal r "null" Null
  | _ -> fail r "expected a value"

and container r depth close contents =
  if depth = 0 then fail r "nested too deep";
  let found = contents () in
  expect r close;
  found

(* from the opening bracket up to the closing one *)
and items r depth =
  advance r;
  skip_space r;
  if peek r = Some ']' then []
  else begin
    let rec more found =
      let found = value r (depth - 1) :: found in
      skip_space r;
      if peek r = Some ',' then (advance r; more found) else List.rev found in
    more []
  end

and members r depth =
  let member () =
    skip_space r;
    let name = string r in
    skip_space r;
    expect r ':';
    (name, value r (depth - 1)) in
  advance r;
  skip_space r;
  if peek r = Some '}' then []
  else begin
    let rec more found =
      let (name, _) as next = member () in
      if List.mem_assoc name found then fail r (Printf.sprintf "field `%s` stands twice" name);
      let found = next :: found in
      skip_space r;
      if peek r = Some ',' then (advance r; more found) else List.rev found in
    more []
  end

let parse text =
  let r = { text; at = 0 } in
  let found = value r max_depth in
  skip_space r;
  if r.at < String.length text then fail r "text after the value";
  found
