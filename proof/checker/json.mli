(** A strict JSON reader: what it does not accept, `rung check` does not accept either. *)

type t =
  | Null
  | Bool of bool
  | Number of string  (** as written *)
  | String of string  (** escapes resolved, UTF-8 *)
  | List of t list
  | Object of (string * t) list  (** in the order of the text; no name stands twice *)

exception Error of string

val parse : string -> t
(** The whole text is one value. Raises {!Error} with the reason and the byte. *)
