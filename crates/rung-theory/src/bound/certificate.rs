//! Certificates as files: strict JSON in, the same JSON out.
//!
//! ```json
//! {"case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "164", "n": ["17"],
//!  "x": ["153", "34"], "sigma": ["1340"], "kappa": ["17"], "tokens_per": [1, 1, 1],
//!  "stack": "linear full linear", "conventions": {"message": "paper"}}
//! ```
//!
//! Numbers are decimal strings without sign, leading zeros or exponent, because they outgrow every number type. Every
//! field up to `tokens_per` is required. `stack` and `conventions` say which stack it is about; the checker never sees them, but
//! [`names_its_stack`] compares them with the numbers. A test vector may say `accept` and `why`. Any other field, a field that
//! is named twice and a value of the wrong type are errors at every depth: a reader that skips what it does not know would let
//! a typo pass for a proof.

use num_bigint::BigUint;
use serde_json::{Map, Value, json};

use super::checker::{MAX_HOPS, Point};
use super::conventions::Conventions;
pub use super::conventions::{conventions, names_its_stack};
use super::strict::Strict;

/// Longer files are refused before they are parsed.
pub const MAX_BYTES: usize = 1 << 20;
/// Longer numbers are refused: those of eight hops have a few hundred digits.
pub const MAX_DIGITS: usize = 2000;

const FIELDS: [&str; 10] =
    ["case", "hops", "message_bits", "state_bits", "m", "n", "x", "sigma", "kappa", "tokens_per"];
const ANNOTATIONS: [&str; 4] = ["stack", "conventions", "accept", "why"];

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
pub fn read(text: &str) -> Result<Point, CertificateError> {
    let fields = fields(text)?;
    read_annotations(&fields)?;
    if let Some(name) =
        fields.keys().find(|name| !FIELDS.contains(&name.as_str()) && !ANNOTATIONS.contains(&name.as_str()))
    {
        return Err(CertificateError::Unknown(shorten(name)));
    }
    let field = |name: &'static str| fields.get(name).ok_or(CertificateError::Missing(name));
    let list = |name: &'static str| -> Result<Vec<BigUint>, CertificateError> {
        let Value::Array(items) = field(name)? else {
            return Err(wrong(name, field(name)?, "a list of decimal strings"));
        };
        items.iter().enumerate().map(|(index, item)| decimal(&format!("{name}[{index}]"), item)).collect()
    };
    let tokens_per = match field("tokens_per")? {
        Value::Array(items) if items.len() == 3 => {
            let count = |index: usize| small(&format!("tokens_per[{index}]"), &items[index], 1 << 32);
            [count(0)?.into(), count(1)?.into(), count(2)?.into()]
        }
        other => return Err(wrong("tokens_per", other, "a list of three whole numbers")),
    };
    Ok(Point {
        case: small("case", field("case")?, 1)? as u8,
        hops: small("hops", field("hops")?, MAX_HOPS as u64)? as usize,
        message_bits: decimal("message_bits", field("message_bits")?)?,
        state_bits: list("state_bits")?,
        m: decimal("m", field("m")?)?,
        n: list("n")?,
        x: list("x")?,
        sigma: list("sigma")?,
        kappa: list("kappa")?,
        tokens_per,
    })
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

/// The types of the fields that the checker does not see.
fn read_annotations(fields: &Map<String, Value>) -> Result<(), CertificateError> {
    for (name, expected) in [("stack", "a string"), ("why", "a string"), ("accept", "true or false")] {
        if let Some(value) = fields.get(name).filter(|value| kind(value) != expected) {
            return Err(wrong(name, value, expected));
        }
    }
    fields.get("conventions").map(Conventions::read).transpose().map(|_| ())
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

/// Writes a certificate; `stack` and `conventions` are carried along for people.
pub fn write(point: &Point, stack: &str, conventions: &Value) -> Value {
    let list = |numbers: &[BigUint]| numbers.iter().map(BigUint::to_string).collect::<Vec<_>>();
    let tokens_per = point.tokens_per.each_ref().map(|count| u64::try_from(count).unwrap_or(u64::MAX));
    json!({
        "case": point.case,
        "hops": point.hops,
        "message_bits": point.message_bits.to_string(),
        "state_bits": list(&point.state_bits),
        "m": point.m.to_string(),
        "n": list(&point.n),
        "x": list(&point.x),
        "sigma": list(&point.sigma),
        "kappa": list(&point.kappa),
        "tokens_per": tokens_per,
        "stack": stack,
        "conventions": conventions,
    })
}
