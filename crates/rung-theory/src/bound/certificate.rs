//! Certificates as files: strict JSON in, the same JSON out.
//!
//! ```json
//! {"theorem": "product", "case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "152", "n": ["17"],
//!  "x": ["5", "40"], "sigma": ["130"], "kappa": ["1"], "varying": "150", "live": ["17"], "freeze": [0],
//!  "tokens_per": [1, 1, 1], "stack": "linear full linear", "conventions": {"message": "paper"}}
//! ```
//!
//! Numbers are decimal strings without sign, leading zeros or exponent, because they outgrow every number type. `theorem` names
//! a theorem of the checker and decides which fields of its own are required beside the common ones (`case` to `n` and
//! `tokens_per`); without it the certificate is one of Theorem 0. `beside_bits` (bits of mixers in parallel with the first full layer) and `embedding` (`{"hops": 2, "middle": 1}`) may
//! be absent. `stack` and `conventions` say which stack it is about; the checker never sees them, but
//! [`names_its_stack`] compares them with the numbers, and a proof that needs w-major tables must say so in
//! `conventions.table_order`. A test vector may say `accept` and `why`. Any other field, a field that
//! is named twice and a value of the wrong type are errors at every depth: a reader that skips what it does not know would let
//! a typo pass for a proof.

use num_bigint::BigUint;
use serde_json::{Map, Value, json};

use super::checker::{
    Cells, Certificate, FrozenBorders, InnerInstance, MAX_HOPS, ProofCase, TableLists, Theorem, TokensPer,
};
use super::conventions::{Conventions, W_MAJOR};
pub use super::conventions::{conventions, names_its_stack};
use super::strict::Strict;

/// Longer files are refused before they are parsed.
pub const MAX_BYTES: usize = 1 << 20;
/// Longer numbers are refused: those of eight hops have a few hundred digits.
pub const MAX_DIGITS: usize = 2000;

const COMMON: [&str; 7] = ["case", "hops", "message_bits", "state_bits", "m", "n", "tokens_per"];
const OPTIONAL: [&str; 8] = ["theorem", "beside_bits", "embedding", "stack", "conventions", "accept", "why", "made_by"];

/// The theorems with the fields of their own; the first is that of certificates that name none.
const THEOREMS: [(&str, &[&str]); 6] = [
    ("decomposition", &["x", "sigma", "kappa"]),
    ("state", &[]),
    ("entropy", &[]),
    ("product", &["x", "sigma", "kappa", "varying", "live", "freeze"]),
    ("cells", &["cell", "group"]),
    ("cell-lists", &["cell", "group", "x", "sigma"]),
];

/// Why a text is no certificate.
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
    /// A field has the wrong form.
    #[error("field `{field}`: found {found}, expected {expected}")]
    Wrong {
        /// The field, with its index in a list.
        field: String,
        /// What was there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
}

/// Reads a certificate.
///
/// # Errors
/// What is wrong with the text, and where.
pub fn read(text: &str) -> Result<Certificate, CertificateError> {
    let fields = Fields(fields(text)?);
    let conventions = fields.annotations()?;
    let (theorem, own) = fields.theorem_name()?;
    fields.refuse_unknown(own)?;
    let certificate = Certificate {
        case: fields.case()?,
        hops: small("hops", fields.get("hops")?, MAX_HOPS as u64)? as usize,
        message_bits: fields.number("message_bits")?,
        state_bits: fields.list("state_bits")?,
        parallel_bits: fields.0.get("beside_bits").map_or(Ok(BigUint::ZERO), |value| decimal("beside_bits", value))?,
        m: fields.number("m")?,
        n: fields.list("n")?,
        tokens_per: fields.tokens_per()?,
        theorem: fields.theorem(theorem)?,
        embedding: fields.embedding()?,
    };
    if certificate.needs_w_major() && !conventions.w_major {
        return Err(CertificateError::TableOrder);
    }
    Ok(certificate)
}

/// The fields of an object, read one by one.
struct Fields(Map<String, Value>);

impl Fields {
    fn get(&self, name: &'static str) -> Result<&Value, CertificateError> {
        self.0.get(name).ok_or(CertificateError::Missing(name))
    }

    fn number(&self, name: &'static str) -> Result<BigUint, CertificateError> {
        decimal(name, self.get(name)?)
    }

    fn items<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        read: impl Fn(&str, &Value) -> Result<T, CertificateError>,
    ) -> Result<Vec<T>, CertificateError> {
        match self.get(name)? {
            Value::Array(items) => {
                items.iter().enumerate().map(|(index, item)| read(&format!("{name}[{index}]"), item)).collect()
            }
            other => Err(wrong(name, other, expected)),
        }
    }

    fn list(&self, name: &'static str) -> Result<Vec<BigUint>, CertificateError> {
        self.items(name, "a list of decimal strings", decimal)
    }

    fn case(&self) -> Result<ProofCase, CertificateError> {
        let value = self.get("case")?;
        ProofCase::new(small("case", value, 1)?).ok_or_else(|| wrong("case", value, "0 or 1"))
    }

    fn tokens_per(&self) -> Result<TokensPer, CertificateError> {
        let expected = "a list of three whole numbers";
        let counts = self.items("tokens_per", expected, |field, value| small(field, value, 1 << 32))?;
        let counts: Result<[u64; 3], _> = counts.try_into();
        counts.map(TokensPer::new).map_err(|_| wrong("tokens_per", &self.0["tokens_per"], expected))
    }

    /// The name of the theorem and its own fields.
    fn theorem_name(&self) -> Result<(&'static str, &'static [&'static str]), CertificateError> {
        let Some(value) = self.0.get("theorem") else { return Ok(THEOREMS[0]) };
        let known = THEOREMS.into_iter().find(|(name, _)| value.as_str() == Some(name));
        known.ok_or_else(|| wrong("theorem", value, "state, entropy, product, cells, cell-lists or decomposition"))
    }

    fn refuse_unknown(&self, own: &[&str]) -> Result<(), CertificateError> {
        let known = |name: &str| [&COMMON[..], &OPTIONAL, own].iter().any(|names| names.contains(&name));
        match self.0.keys().find(|name| !known(name)) {
            Some(name) => Err(CertificateError::Unknown(shorten(name))),
            None => Ok(()),
        }
    }

    fn theorem(&self, name: &str) -> Result<Theorem, CertificateError> {
        let lists = || Ok(TableLists { x: self.list("x")?, sigma: self.list("sigma")?, kappa: self.list("kappa")? });
        Ok(match name {
            "state" => Theorem::State,
            "entropy" => Theorem::Entropy,
            "cells" => Theorem::Cells(self.cells()?),
            "cell-lists" => {
                let [sigma] = self.exactly("sigma", "a list of one decimal string")?;
                let x = self.exactly("x", "a list of two decimal strings")?;
                Theorem::CellLists { cells: self.cells()?, x, sigma }
            }
            "product" => Theorem::Product(
                lists()?,
                FrozenBorders {
                    varying: self.number("varying")?,
                    live: self.list("live")?,
                    freeze: self.items("freeze", "a list of whole numbers", count)?,
                },
            ),
            _ => Theorem::Decomposition(lists()?),
        })
    }

    fn cells(&self) -> Result<Cells, CertificateError> {
        Ok(Cells { cell: self.number("cell")?, group: self.number("group")? })
    }

    fn exactly<const N: usize>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<[BigUint; N], CertificateError> {
        self.list(name)?.try_into().map_err(|_| wrong(name, &self.0[name], expected))
    }

    fn embedding(&self) -> Result<Option<InnerInstance>, CertificateError> {
        let Some(value) = self.0.get("embedding") else { return Ok(None) };
        let Value::Object(parts) = value else { return Err(wrong("embedding", value, "an object")) };
        if let Some(name) = parts.keys().find(|name| !["hops", "middle"].contains(&name.as_str())) {
            return Err(CertificateError::Unknown(format!("embedding.{}", shorten(name))));
        }
        let part = |name: &str, field| match parts.get(name) {
            Some(value) => count(field, value),
            None => Err(CertificateError::Missing(field)),
        };
        Ok(Some(InnerInstance { hops: part("hops", "embedding.hops")?, middle: part("middle", "embedding.middle")? }))
    }

    /// The types of the fields that the checker does not see.
    fn annotations(&self) -> Result<Conventions, CertificateError> {
        for (name, expected) in
            [("stack", "a string"), ("why", "a string"), ("made_by", "a string"), ("accept", "true or false")]
        {
            if let Some(value) = self.0.get(name).filter(|value| kind(value) != expected) {
                return Err(wrong(name, value, expected));
            }
        }
        self.0.get("conventions").map_or(Ok(Conventions::default()), Conventions::read)
    }
}

/// The fields of a certificate, each named once.
pub(super) fn fields(text: &str) -> Result<Map<String, Value>, CertificateError> {
    if text.len() > MAX_BYTES {
        return Err(CertificateError::TooLong(text.len()));
    }
    let value: Strict = serde_json::from_str(text).map_err(|error| CertificateError::Json(error.to_string()))?;
    match value.0 {
        Value::Object(fields) => Ok(fields),
        other => Err(CertificateError::NotAnObject(kind(&other))),
    }
}

fn kind(value: &Value) -> &'static str {
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
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        other => shorten(&other.to_string()),
    };
    CertificateError::Wrong { field: field.to_owned(), found, expected }
}

fn decimal(field: &str, value: &Value) -> Result<BigUint, CertificateError> {
    let expected = "a decimal string without sign or leading zeros, of at most 2000 digits";
    let Value::String(digits) = value else { return Err(wrong(field, value, expected)) };
    let plain = !digits.is_empty()
        && digits.len() <= MAX_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    let number = plain.then(|| BigUint::parse_bytes(digits.as_bytes(), 10)).flatten();
    number.ok_or_else(|| wrong(field, value, expected))
}

fn small(field: &str, value: &Value, most: u64) -> Result<u64, CertificateError> {
    let number = value.as_u64().filter(|&number| number <= most);
    number.ok_or_else(|| wrong(field, value, "a small whole number"))
}

/// A number of hops, tables or players.
fn count(field: &str, value: &Value) -> Result<usize, CertificateError> {
    small(field, value, MAX_HOPS as u64).map(|count| count as usize)
}

/// Writes a certificate; `stack` and `conventions` are carried along.
pub fn write(certificate: &Certificate, stack: &str, conventions: &Value) -> Value {
    let list = |numbers: &[BigUint]| numbers.iter().map(BigUint::to_string).collect::<Vec<_>>();
    let tokens_per = certificate.tokens_per.to_array().map(|count| u64::try_from(count).unwrap_or(u64::MAX));
    let mut text = json!({
        "theorem": certificate.theorem.name(),
        "case": certificate.case.number(),
        "hops": certificate.hops,
        "message_bits": certificate.message_bits.to_string(),
        "state_bits": list(&certificate.state_bits),
        "beside_bits": certificate.parallel_bits.to_string(),
        "m": certificate.m.to_string(),
        "n": list(&certificate.n),
        "tokens_per": tokens_per,
    });
    if let Theorem::Product(lists, _) | Theorem::Decomposition(lists) = &certificate.theorem {
        text["x"] = json!(list(&lists.x));
        text["sigma"] = json!(list(&lists.sigma));
        text["kappa"] = json!(list(&lists.kappa));
    }
    if let Theorem::Product(_, lazy) = &certificate.theorem {
        text["varying"] = json!(lazy.varying.to_string());
        text["live"] = json!(list(&lazy.live));
        text["freeze"] = json!(lazy.freeze);
    }
    if let Theorem::Cells(cells) | Theorem::CellLists { cells, .. } = &certificate.theorem {
        text["cell"] = json!(cells.cell.to_string());
        text["group"] = json!(cells.group.to_string());
    }
    if let Theorem::CellLists { x, sigma, .. } = &certificate.theorem {
        text["x"] = json!(list(x));
        text["sigma"] = json!([sigma.to_string()]);
    }
    if let Some(InnerInstance { hops, middle }) = certificate.embedding {
        text["embedding"] = json!({"hops": hops, "middle": middle});
    }
    text["stack"] = json!(stack);
    text["conventions"] = conventions.clone();
    if certificate.needs_w_major() {
        text["conventions"]["table_order"] = json!(W_MAJOR);
    }
    text
}
