//! Where two JSON values differ.

use serde_json::Value;

/// The most characters of a value that a message shows.
const MOST_SHOWN: usize = 60;

/// A place at which two values differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The place, such as `model.name` or `scores[1][3]`; empty for the whole value.
    pub path: String,
    /// The first value there.
    pub found: String,
    /// The second.
    pub expected: String,
}

/// The first place at which two values differ. Numbers are compared as they are written, so minus zero is not zero.
pub fn first_difference(found: &Value, expected: &Value) -> Option<Difference> {
    difference_at(String::new(), Some(found), Some(expected))
}

fn difference_at(path: String, found: Option<&Value>, expected: Option<&Value>) -> Option<Difference> {
    match (found, expected) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let dot = if path.is_empty() { "" } else { "." };
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            keys.map(|key| (format!("{path}{dot}{key}"), one.get(key), other.get(key)))
                .find_map(|(path, one, other)| difference_at(path, one, other))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .map(|(at, (one, other))| (format!("{path}[{at}]"), Some(one), Some(other)))
                .find_map(|(path, one, other)| difference_at(path, one, other))
        }
        (Some(one), Some(other)) if same_text(one, other) => None,
        _ => Some(Difference { path, found: shown(found), expected: shown(expected) }),
    }
}

fn same_text(one: &Value, other: &Value) -> bool {
    let [one, other] = [one, other].map(Value::to_string);
    one == other
}

fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => return "nothing".to_owned(),
        Some(Value::Array(items)) => format!("a list of {}", items.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(other) => other.to_string(),
    };
    if text.chars().count() <= MOST_SHOWN {
        return text;
    }
    text.chars().take(MOST_SHOWN).chain("..".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_place_is_named() {
        let place = |one: Value, other: Value| {
            first_difference(&one, &other).map(|found| [found.path, found.found, found.expected])
        };
        let named = |path: &str, found: &str, expected: &str| Some([path, found, expected].map(str::to_owned));
        assert_eq!(place(json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]})), None);
        assert_eq!(place(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]})), named("a[1].b", "2", "3"));
        assert_eq!(place(json!({"a": [1, 2]}), json!({"a": [1]})), named("a", "a list of 2", "a list of 1"));
        assert_eq!(place(json!({"a": 1}), json!({})), named("a", "1", "nothing"));
        assert_eq!(place(json!({}), json!({"a": {}})), named("a", "nothing", "an object"));
        assert_eq!(place(json!(-0.0), json!(0.0)), named("", "-0.0", "0.0"));
        assert_eq!(place(json!(1), json!(1.0)), named("", "1", "1.0"));
        assert_eq!(place(json!("x".repeat(99)), json!(1)).unwrap()[1].len(), 62);
    }
}
