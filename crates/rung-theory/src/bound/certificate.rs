//! Certificates as files: strict JSON in, the same JSON out.
//!
//! ```json
//! {"theorem": "product", "case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "152", "n": ["17"],
//!  "x": ["5", "40"], "sigma": ["130"], "kappa": ["1"], "varying": "150", "live": ["17"], "freeze": [0],
//!  "tokens_per": [1, 1, 1], "stack": "linear full linear", "conventions": {"message": "paper"}}
//! ```
//!
//! Numbers are decimal strings without sign, leading zeros or exponent, because they exceed every integer type. `theorem` names
//! a theorem of the checker and decides which fields are required in addition to the common ones (`case` to `n` and
//! `tokens_per`); without it the certificate uses Theorem 0. `beside_bits` ([`Certificate::fixed_bits`]) and `embedding`
//! ([`InnerInstance`], `{"hops": 2, "middle": 1}`) are optional. `stack` and `conventions` say which stack the certificate is about;
//! the checker never sees them, but [`matches_named_stack`] compares them with the numbers, and a proof that needs w-major tables
//! must say so in `conventions.table_order`. A test vector may have `accept` and `why`. Unknown fields, duplicate fields
//! and values of the wrong type are errors at every depth: a parser that skips unknown fields would accept a proof with a typo.

use num_bigint::BigUint;
use serde_json::{Map, Value, json};

use super::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, MAX_HOPS, ProofCase, TableLists, Theorem, TokenCounts,
};
use super::conventions::{Conventions, W_MAJOR};
pub use super::conventions::{conventions, matches_named_stack};
use super::strict::StrictJson;

/// Longer files are rejected before they are parsed.
pub const MAX_BYTES: usize = 1 << 20;
/// Longer numbers are rejected: those of eight hops have a few hundred digits.
pub const MAX_DIGITS: usize = 2000;

const COMMON_FIELDS: [&str; 7] = ["case", "hops", "message_bits", "state_bits", "m", "n", "tokens_per"];
const OPTIONAL_FIELDS: [&str; 8] =
    ["theorem", "beside_bits", "embedding", "stack", "conventions", "accept", "why", "made_by"];

/// The theorems, each with its additional fields; the first is used if a certificate names none.
const THEOREMS: [(&str, &[&str]); 6] = [
    ("decomposition", &["x", "sigma", "kappa"]),
    ("state", &[]),
    ("entropy", &[]),
    ("product", &["x", "sigma", "kappa", "varying", "live", "freeze"]),
    ("cells", &["cell", "group"]),
    ("cell-lists", &["cell", "group", "x", "sigma"]),
];

/// Why a text cannot be parsed as a certificate.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file is too long.
    #[error("the file has {0} bytes, expected at most {MAX_BYTES}")]
    TooLong(usize),
    /// Not JSON, or nested too deep.
    #[error("not JSON: {0}")]
    Json(String),
    /// Not an object.
    #[error("found {0}, expected an object")]
    NotAnObject(&'static str),
    /// A field is missing.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A field is not known.
    #[error("field `{0}` is not part of a certificate")]
    Unknown(String),
    /// The proof leaves rows of the tables constant, which needs w-major tables.
    #[error("field `live` is smaller than `n`: expected `conventions.table_order` to be w-major")]
    TableOrder,
    /// A field has a value of the wrong type or form.
    #[error("field `{field}`: found {found}, expected {expected}")]
    Wrong {
        /// The field, with its index in a list.
        field: String,
        /// The value in the file, shortened.
        found: String,
        /// The accepted values, in words.
        expected: &'static str,
    },
}

/// Parses a certificate.
///
/// # Errors
/// The field that is missing, unknown or wrong.
pub fn read(text: &str) -> Result<Certificate, CertificateError> {
    let fields = Fields(parse_object(text)?);
    let conventions = fields.annotations()?;
    let (theorem, theorem_fields) = fields.theorem_name()?;
    fields.reject_unknown(theorem_fields)?;
    let certificate = Certificate {
        case: fields.case()?,
        hops: parse_integer("hops", fields.get("hops")?, MAX_HOPS as u64)? as usize,
        message_bits: fields.number("message_bits")?,
        state_bits: fields.numbers("state_bits")?,
        fixed_bits: fields
            .0
            .get("beside_bits")
            .map_or(Ok(BigUint::ZERO), |value| parse_decimal("beside_bits", value))?,
        m: fields.number("m")?,
        n: fields.numbers("n")?,
        token_counts: fields.token_counts()?,
        theorem: fields.theorem(theorem)?,
        inner_instance: fields.inner_instance()?,
    };
    if certificate.needs_w_major() && !conventions.w_major {
        return Err(CertificateError::TableOrder);
    }
    Ok(certificate)
}

/// The fields of a JSON object, with typed access.
struct Fields(Map<String, Value>);

impl Fields {
    fn get(&self, name: &'static str) -> Result<&Value, CertificateError> {
        self.0.get(name).ok_or(CertificateError::Missing(name))
    }

    fn number(&self, name: &'static str) -> Result<BigUint, CertificateError> {
        parse_decimal(name, self.get(name)?)
    }

    fn parse_list<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse_item: impl Fn(&str, &Value) -> Result<T, CertificateError>,
    ) -> Result<Vec<T>, CertificateError> {
        match self.get(name)? {
            Value::Array(items) => {
                items.iter().enumerate().map(|(index, item)| parse_item(&format!("{name}[{index}]"), item)).collect()
            }
            other => Err(wrong(name, other, expected)),
        }
    }

    fn numbers(&self, name: &'static str) -> Result<Vec<BigUint>, CertificateError> {
        self.parse_list(name, "a list of decimal strings", parse_decimal)
    }

    fn case(&self) -> Result<ProofCase, CertificateError> {
        let value = self.get("case")?;
        ProofCase::new(parse_integer("case", value, 1)?).ok_or_else(|| wrong("case", value, "0 or 1"))
    }

    fn token_counts(&self) -> Result<TokenCounts, CertificateError> {
        let expected = "a list of three whole numbers";
        let counts = self.parse_list("tokens_per", expected, |field, value| parse_integer(field, value, 1 << 32))?;
        let counts: Result<[u64; 3], _> = counts.try_into();
        counts.map(TokenCounts::new).map_err(|_| wrong("tokens_per", &self.0["tokens_per"], expected))
    }

    /// The name of the theorem and its additional fields.
    fn theorem_name(&self) -> Result<(&'static str, &'static [&'static str]), CertificateError> {
        let Some(value) = self.0.get("theorem") else { return Ok(THEOREMS[0]) };
        let known = THEOREMS.into_iter().find(|(name, _)| value.as_str() == Some(name));
        known.ok_or_else(|| wrong("theorem", value, "state, entropy, product, cells, cell-lists or decomposition"))
    }

    fn reject_unknown(&self, theorem_fields: &[&str]) -> Result<(), CertificateError> {
        let known = |name: &str| {
            [&COMMON_FIELDS[..], &OPTIONAL_FIELDS, theorem_fields].iter().any(|names| names.contains(&name))
        };
        match self.0.keys().find(|name| !known(name)) {
            Some(name) => Err(CertificateError::Unknown(shorten(name))),
            None => Ok(()),
        }
    }

    fn theorem(&self, name: &str) -> Result<Theorem, CertificateError> {
        let lists =
            || Ok(TableLists { x: self.numbers("x")?, sigma: self.numbers("sigma")?, kappa: self.numbers("kappa")? });
        Ok(match name {
            "state" => Theorem::State,
            "entropy" => Theorem::Entropy,
            "cells" => Theorem::Cells(self.cells()?),
            "cell-lists" => {
                let [sigma] = self.fixed_list("sigma", "a list of one decimal string")?;
                let x = self.fixed_list("x", "a list of two decimal strings")?;
                Theorem::CellLists { cells: self.cells()?, x, sigma }
            }
            "product" => Theorem::Product(
                lists()?,
                FrozenBorders {
                    varying: self.number("varying")?,
                    live: self.numbers("live")?,
                    freeze: self.parse_list("freeze", "a list of whole numbers", parse_count)?,
                },
            ),
            _ => Theorem::Decomposition(lists()?),
        })
    }

    fn cells(&self) -> Result<Cells, CertificateError> {
        Ok(Cells { cell: self.number("cell")?, group: self.number("group")? })
    }

    fn fixed_list<const N: usize>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<[BigUint; N], CertificateError> {
        self.numbers(name)?.try_into().map_err(|_| wrong(name, &self.0[name], expected))
    }

    fn inner_instance(&self) -> Result<Option<InnerInstance>, CertificateError> {
        let Some(value) = self.0.get("embedding") else { return Ok(None) };
        let Value::Object(entries) = value else { return Err(wrong("embedding", value, "an object")) };
        if let Some(name) = entries.keys().find(|name| !["hops", "middle"].contains(&name.as_str())) {
            return Err(CertificateError::Unknown(format!("embedding.{}", shorten(name))));
        }
        let entry = |name: &str, field| match entries.get(name) {
            Some(value) => parse_count(field, value),
            None => Err(CertificateError::Missing(field)),
        };
        Ok(Some(InnerInstance { hops: entry("hops", "embedding.hops")?, middle: entry("middle", "embedding.middle")? }))
    }

    /// Checks the types of the fields that the checker does not see, and parses `conventions`.
    fn annotations(&self) -> Result<Conventions, CertificateError> {
        for (name, expected) in
            [("stack", "a string"), ("why", "a string"), ("made_by", "a string"), ("accept", "true or false")]
        {
            if let Some(value) = self.0.get(name).filter(|value| json_type(value) != expected) {
                return Err(wrong(name, value, expected));
            }
        }
        self.0.get("conventions").map_or(Ok(Conventions::default()), Conventions::read)
    }
}

/// The JSON object of a certificate; a duplicate field is an error.
pub(super) fn parse_object(text: &str) -> Result<Map<String, Value>, CertificateError> {
    if text.len() > MAX_BYTES {
        return Err(CertificateError::TooLong(text.len()));
    }
    let value: StrictJson = serde_json::from_str(text).map_err(|error| CertificateError::Json(error.to_string()))?;
    match value.0 {
        Value::Object(fields) => Ok(fields),
        other => Err(CertificateError::NotAnObject(json_type(&other))),
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn shorten(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}..") } else { short }
}

pub(super) fn wrong(field: &str, value: &Value, expected: &'static str) -> CertificateError {
    let found = match value {
        Value::Array(_) | Value::Object(_) => json_type(value).to_owned(),
        other => shorten(&other.to_string()),
    };
    CertificateError::Wrong { field: field.to_owned(), found, expected }
}

fn parse_decimal(field: &str, value: &Value) -> Result<BigUint, CertificateError> {
    let expected = "a decimal string without sign or leading zeros, of at most 2000 digits";
    let Value::String(digits) = value else { return Err(wrong(field, value, expected)) };
    let canonical = !digits.is_empty()
        && digits.len() <= MAX_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    let number = canonical.then(|| BigUint::parse_bytes(digits.as_bytes(), 10)).flatten();
    number.ok_or_else(|| wrong(field, value, expected))
}

fn parse_integer(field: &str, value: &Value, max: u64) -> Result<u64, CertificateError> {
    let number = value.as_u64().filter(|&number| number <= max);
    number.ok_or_else(|| wrong(field, value, "a small whole number"))
}

/// A number of hops, tables or players: at most [`MAX_HOPS`].
fn parse_count(field: &str, value: &Value) -> Result<usize, CertificateError> {
    parse_integer(field, value, MAX_HOPS as u64).map(|count| count as usize)
}

/// The JSON of a certificate, with the given `stack` and `conventions`.
pub fn write(certificate: &Certificate, stack: &str, conventions: &Value) -> Value {
    let decimals = |numbers: &[BigUint]| numbers.iter().map(BigUint::to_string).collect::<Vec<_>>();
    let token_counts = certificate.token_counts.to_array().map(|count| u64::try_from(count).unwrap_or(u64::MAX));
    let mut object = json!({
        "theorem": certificate.theorem.name(),
        "case": certificate.case.number(),
        "hops": certificate.hops,
        "message_bits": certificate.message_bits.to_string(),
        "state_bits": decimals(&certificate.state_bits),
        "beside_bits": certificate.fixed_bits.to_string(),
        "m": certificate.m.to_string(),
        "n": decimals(&certificate.n),
        "tokens_per": token_counts,
    });
    if let Theorem::Product(lists, _) | Theorem::Decomposition(lists) = &certificate.theorem {
        object["x"] = json!(decimals(&lists.x));
        object["sigma"] = json!(decimals(&lists.sigma));
        object["kappa"] = json!(decimals(&lists.kappa));
    }
    if let Theorem::Product(_, borders) = &certificate.theorem {
        object["varying"] = json!(borders.varying.to_string());
        object["live"] = json!(decimals(&borders.live));
        object["freeze"] = json!(borders.freeze);
    }
    if let Theorem::Cells(cells) | Theorem::CellLists { cells, .. } = &certificate.theorem {
        object["cell"] = json!(cells.cell.to_string());
        object["group"] = json!(cells.group.to_string());
    }
    if let Theorem::CellLists { x, sigma, .. } = &certificate.theorem {
        object["x"] = json!(decimals(x));
        object["sigma"] = json!([sigma.to_string()]);
    }
    if let Some(InnerInstance { hops, middle }) = certificate.inner_instance {
        object["embedding"] = json!({"hops": hops, "middle": middle});
    }
    object["stack"] = json!(stack);
    object["conventions"] = conventions.clone();
    if certificate.needs_w_major() {
        object["conventions"]["table_order"] = json!(W_MAJOR);
    }
    object
}
