//! The first difference between two JSON values.

use serde_json::Value;

/// Longer values are cut to this many characters in a message.
const MAX_VALUE_CHARS: usize = 60;

/// A path at which two values differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, such as `model.name` or `scores[1][3]`; empty if the top-level values differ.
    pub path: String,
    /// The first value at that path, shortened.
    pub found: String,
    /// The second value at that path, shortened.
    pub expected: String,
}

/// The first path at which two values differ. Numbers are compared by their JSON text, so -0.0 differs from 0.0 and 1 from 1.0.
pub fn first_difference(found: &Value, expected: &Value) -> Option<Difference> {
    difference_at(String::new(), Some(found), Some(expected))
}

fn difference_at(path: String, found: Option<&Value>, expected: Option<&Value>) -> Option<Difference> {
    match (found, expected) {
        (Some(Value::Object(found)), Some(Value::Object(expected))) => {
            let dot = if path.is_empty() { "" } else { "." };
            let keys = found.keys().chain(expected.keys().filter(|key| !found.contains_key(*key)));
            keys.map(|key| (format!("{path}{dot}{key}"), found.get(key), expected.get(key)))
                .find_map(|(path, found, expected)| difference_at(path, found, expected))
        }
        (Some(Value::Array(found)), Some(Value::Array(expected))) if found.len() == expected.len() => {
            let pairs = found.iter().zip(expected).enumerate();
            pairs
                .map(|(index, (found, expected))| (format!("{path}[{index}]"), Some(found), Some(expected)))
                .find_map(|(path, found, expected)| difference_at(path, found, expected))
        }
        (Some(found), Some(expected)) if same_text(found, expected) => None,
        _ => Some(Difference { path, found: summarize(found), expected: summarize(expected) }),
    }
}

fn same_text(found: &Value, expected: &Value) -> bool {
    let [found, expected] = [found, expected].map(Value::to_string);
    found == expected
}

/// A value in at most [`MAX_VALUE_CHARS`] characters; lists and objects are only described.
fn summarize(value: Option<&Value>) -> String {
    let text = match value {
        None => return "nothing".to_owned(),
        Some(Value::Array(items)) => format!("a list of {}", items.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(other) => other.to_string(),
    };
    if text.chars().count() <= MAX_VALUE_CHARS {
        return text;
    }
    text.chars().take(MAX_VALUE_CHARS).chain("..".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn first_difference_gives_the_path_and_both_values() {
        let compare = |found: Value, expected: Value| {
            first_difference(&found, &expected).map(|first| [first.path, first.found, first.expected])
        };
        let differs = |path: &str, found: &str, expected: &str| Some([path, found, expected].map(str::to_owned));
        assert_eq!(compare(json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]})), None);
        assert_eq!(compare(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]})), differs("a[1].b", "2", "3"));
        assert_eq!(compare(json!({"a": [1, 2]}), json!({"a": [1]})), differs("a", "a list of 2", "a list of 1"));
        assert_eq!(compare(json!({"a": 1}), json!({})), differs("a", "1", "nothing"));
        assert_eq!(compare(json!({}), json!({"a": {}})), differs("a", "nothing", "an object"));
        assert_eq!(compare(json!(-0.0), json!(0.0)), differs("", "-0.0", "0.0"));
        assert_eq!(compare(json!(1), json!(1.0)), differs("", "1", "1.0"));
        assert_eq!(compare(json!("x".repeat(99)), json!(1)).unwrap()[1].len(), 62);
    }
}
