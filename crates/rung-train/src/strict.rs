//! Strict JSON deserializers, for `#[serde(deserialize_with)]`.
//!
//! Code derived by serde accepts a list of values for a struct, and a missing key for an `Option` that is `None`. In files that a
//! verifier checks both are errors. Unknown and repeated keys are errors already, by `deny_unknown_fields`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Reads a struct from an object and rejects a list.
///
/// # Errors
/// The value is not an object, or not the object of a `T`.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

/// Reads a struct from an object, or `None` from null. A missing key is an error.
///
/// # Errors
/// The value is neither null nor the object of a `T`.
pub fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<FromObject<T>>::deserialize(deserializer).map(|value| value.map(|FromObject(value)| value))
}

/// Reads a value, or `None` from null. A missing key is an error.
///
/// # Errors
/// The value is neither null nor a `T`.
pub fn required_option<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// A `T` that is deserialized by [`object`].
struct FromObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FromObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
