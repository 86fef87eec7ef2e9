//! Reading JSON to the letter.
//!
//! What serde derives takes a list of values for a struct and takes a missing key for an empty option. In files that are checked
//! both are errors; unknown keys and keys that occur twice are errors already, with `deny_unknown_fields`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A struct from an object, not from a list.
///
/// # Errors
/// It is no object, or not that of a `T`.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Object(PhantomData))
}

/// A struct from an object, or nothing from null. The key must be there.
///
/// # Errors
/// It is neither null nor the object of a `T`.
pub fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<Wrapped<T>>::deserialize(deserializer).map(|found| found.map(|Wrapped(value)| value))
}

/// A value or null. The key must be there.
///
/// # Errors
/// It is neither null nor a `T`.
pub fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

struct Wrapped<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Wrapped<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
