//! The fields of a checkpoint's config, under the names that transformers gives them.

use std::path::{Path, PathBuf};

use rung_audit::json::JsonValue;

use super::FamilyError;

/// Sizes above this are refused before anything is multiplied.
const LARGEST: f64 = 16_777_216.0;

/// Fields, and where they come from.
#[derive(Clone, Debug)]
pub struct Fields {
    path: PathBuf,
    /// Names of the objects that these are fields of, with a dot after each.
    prefix: String,
    value: JsonValue,
}

impl Fields {
    /// Fields of a config.
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
    pub fn wrong(&self, name: &str, found: impl Into<String>, expected: impl Into<String>) -> FamilyError {
        let field = format!("{}{name}", self.prefix);
        FamilyError::Field { path: self.path.clone(), field, found: found.into(), expected: expected.into() }
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a JsonValue) -> Option<T>,
    ) -> Result<Option<T>, FamilyError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(name, value.describe(), expected))
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not.
    pub fn require<T>(&self, name: &str, found: Option<T>) -> Result<T, FamilyError> {
        found.ok_or_else(|| self.wrong(name, "nothing", "a value"))
    }

    /// A finite number.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&self, name: &str) -> Result<Option<f64>, FamilyError> {
        self.typed(name, "a finite number", |value| match value {
            JsonValue::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        })
    }

    /// A finite number above zero.
    ///
    /// # Errors
    /// It is something else.
    pub fn positive(&self, name: &str) -> Result<Option<f64>, FamilyError> {
        match self.number(name)? {
            Some(number) if number <= 0.0 => Err(self.wrong(name, number.to_string(), "a number above 0")),
            other => Ok(other),
        }
    }

    /// A whole number from 1.
    ///
    /// # Errors
    /// It is something else.
    pub fn size(&self, name: &str) -> Result<Option<usize>, FamilyError> {
        let whole = |number: &f64| number.fract() == 0.0 && (1.0..=LARGEST).contains(number);
        match self.number(name)? {
            Some(number) if whole(&number) => Ok(Some(number as usize)),
            Some(number) => Err(self.wrong(name, number.to_string(), format!("a whole number from 1 to {LARGEST}"))),
            None => Ok(None),
        }
    }

    /// A whole number from 1 that must be there.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn required_size(&self, name: &str) -> Result<usize, FamilyError> {
        self.size(name).and_then(|size| self.require(name, size))
    }

    /// A flag, which may be absent.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, FamilyError> {
        let flag = self.typed(name, "true or false", |value| match value {
            JsonValue::Bool(flag) => Some(*flag),
            _ => None,
        })?;
        Ok(flag.unwrap_or(default))
    }

    /// A text.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&self, name: &str) -> Result<Option<&str>, FamilyError> {
        self.typed(name, "a text", |value| match value {
            JsonValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A list.
    ///
    /// # Errors
    /// It is something else.
    pub fn list(&self, name: &str) -> Result<Option<&[JsonValue]>, FamilyError> {
        self.typed(name, "a list", |value| match value {
            JsonValue::List(items) => Some(items.as_slice()),
            _ => None,
        })
    }

    /// The fields of an object inside.
    ///
    /// # Errors
    /// It is something else.
    pub fn object(&self, name: &str) -> Result<Option<Self>, FamilyError> {
        self.typed(name, "an object", |value| match value {
            JsonValue::Object(_) => {
                let (path, prefix) = (self.path.clone(), format!("{}{name}.", self.prefix));
                Some(Self { path, prefix, value: value.clone() })
            }
            _ => None,
        })
    }

    /// The same with a field as another object has it, if it does.
    #[must_use]
    pub fn with(mut self, other: &Self, name: &str) -> Self {
        if let (Some(value), JsonValue::Object(entries)) = (other.get(name), &mut self.value) {
            entries.retain(|(key, _)| key != name);
            entries.push((name.to_owned(), value.clone()));
        }
        self
    }

    /// Refuses a field that would change the network in a way that is not built.
    ///
    /// # Errors
    /// The field is there and neither false nor zero.
    pub fn refuse(&self, name: &str, expected: &str) -> Result<(), FamilyError> {
        match self.get(name) {
            None | Some(JsonValue::Bool(false)) => Ok(()),
            Some(JsonValue::Number(text)) if text.parse() == Ok(0.0) => Ok(()),
            Some(value) => Err(self.wrong(name, value.describe(), expected)),
        }
    }
}
