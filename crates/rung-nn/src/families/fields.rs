//! The fields of a checkpoint's config, under the names that transformers gives them.

use std::path::{Path, PathBuf};

use rung_audit::json::JsonValue;

use super::FamilyError;

/// The largest size that is accepted, so that products of sizes do not overflow.
const MAX_SIZE: f64 = 16_777_216.0;

/// The fields of a config object, with the file they come from.
#[derive(Clone, Debug)]
pub struct Fields {
    path: PathBuf,
    /// Names of the enclosing objects, with a dot after each, for error messages.
    prefix: String,
    value: JsonValue,
}

impl Fields {
    /// The fields of a config's outermost object.
    pub fn new(path: &Path, value: JsonValue) -> Self {
        Self { path: path.to_owned(), prefix: String::new(), value }
    }

    /// The file they come from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A value; `null` counts as absent.
    pub fn get(&self, name: &str) -> Option<&JsonValue> {
        self.value.get(name).filter(|value| **value != JsonValue::Null)
    }

    /// Whether there is such a field.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// An error about a field.
    pub fn error(&self, name: &str, found: impl Into<String>, expected: impl Into<String>) -> FamilyError {
        let field = format!("{}{name}", self.prefix);
        FamilyError::Field { path: self.path.clone(), field, found: found.into(), expected: expected.into() }
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        convert: impl FnOnce(&'a JsonValue) -> Option<T>,
    ) -> Result<Option<T>, FamilyError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| self.error(name, value.describe(), expected))
    }

    /// The value of a required field.
    ///
    /// # Errors
    /// The field is missing.
    pub fn require<T>(&self, name: &str, value: Option<T>) -> Result<T, FamilyError> {
        value.ok_or_else(|| self.error(name, "nothing", "a value"))
    }

    /// A finite number.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn number(&self, name: &str) -> Result<Option<f64>, FamilyError> {
        self.typed(name, "a finite number", |value| match value {
            JsonValue::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        })
    }

    /// A finite number above zero.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn positive(&self, name: &str) -> Result<Option<f64>, FamilyError> {
        match self.number(name)? {
            Some(number) if number <= 0.0 => Err(self.error(name, number.to_string(), "a number above 0")),
            other => Ok(other),
        }
    }

    /// A size times a factor, rounded down; `None` without the factor's field.
    ///
    /// # Errors
    /// The field has another type, or the product is too large for a size.
    pub fn scaled_size(&self, name: &str, size: usize) -> Result<Option<usize>, FamilyError> {
        let Some(factor) = self.positive(name)? else { return Ok(None) };
        let scaled = size as f64 * factor;
        if scaled > MAX_SIZE {
            return Err(self.error(name, factor.to_string(), format!("a factor that keeps {size} up to {MAX_SIZE}")));
        }
        Ok(Some(scaled as usize))
    }

    /// An integer from 1.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn size(&self, name: &str) -> Result<Option<usize>, FamilyError> {
        let is_size = |number: &f64| number.fract() == 0.0 && (1.0..=MAX_SIZE).contains(number);
        match self.number(name)? {
            Some(number) if is_size(&number) => Ok(Some(number as usize)),
            Some(number) => Err(self.error(name, number.to_string(), format!("a whole number from 1 to {MAX_SIZE}"))),
            None => Ok(None),
        }
    }

    /// An integer from 1, which is required.
    ///
    /// # Errors
    /// The field is missing, or has another type or value.
    pub fn required_size(&self, name: &str) -> Result<usize, FamilyError> {
        self.size(name).and_then(|size| self.require(name, size))
    }

    /// A Boolean, or a default if the field is absent.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, FamilyError> {
        let flag = self.typed(name, "true or false", |value| match value {
            JsonValue::Bool(flag) => Some(*flag),
            _ => None,
        })?;
        Ok(flag.unwrap_or(default))
    }

    /// A string.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn text(&self, name: &str) -> Result<Option<&str>, FamilyError> {
        self.typed(name, "a text", |value| match value {
            JsonValue::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An array.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn list(&self, name: &str) -> Result<Option<&[JsonValue]>, FamilyError> {
        self.typed(name, "a list", |value| match value {
            JsonValue::List(items) => Some(items.as_slice()),
            _ => None,
        })
    }

    /// The fields of a nested object.
    ///
    /// # Errors
    /// The field has another type or value.
    pub fn object(&self, name: &str) -> Result<Option<Self>, FamilyError> {
        self.typed(name, "an object", |value| match value {
            JsonValue::Object(_) => {
                let (path, prefix) = (self.path.clone(), format!("{}{name}.", self.prefix));
                Some(Self { path, prefix, value: value.clone() })
            }
            _ => None,
        })
    }

    /// These fields with one replaced by that of another object, if the other object has it.
    #[must_use]
    pub fn with(mut self, other: &Self, name: &str) -> Self {
        if let (Some(value), JsonValue::Object(entries)) = (other.get(name), &mut self.value) {
            entries.retain(|(key, _)| key != name);
            entries.push((name.to_owned(), value.clone()));
        }
        self
    }

    /// Rejects an option that is not supported.
    ///
    /// # Errors
    /// The field is present and neither false nor zero.
    pub fn reject(&self, name: &str, expected: &str) -> Result<(), FamilyError> {
        match self.get(name) {
            None | Some(JsonValue::Bool(false)) => Ok(()),
            Some(JsonValue::Number(text)) if text.parse() == Ok(0.0) => Ok(()),
            Some(value) => Err(self.error(name, value.describe(), expected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_that_makes_a_size_too_large_is_an_error() {
        let value = rung_audit::json::parse(r#"{"ratio": 1e300, "double": 2.0}"#).unwrap();
        let fields = Fields::new(Path::new("config.json"), value);
        assert_eq!(fields.scaled_size("double", 12).unwrap(), Some(24));
        assert_eq!(fields.scaled_size("none", 12).unwrap(), None);
        let error = fields.scaled_size("ratio", 12).unwrap_err().to_string();
        assert!(error.contains("ratio") && error.contains("16777216"), "{error}");
    }
}
