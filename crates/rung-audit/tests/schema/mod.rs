//! Validates JSON against a JSON Schema.

use serde_json::Value;

/// Supports the keywords that our schemas use; an unsupported keyword is an error, so that none is ignored silently.
pub fn validate(schema: &Value, root: &Value, value: &Value, path: &str) -> Result<(), String> {
    let fail = |why: String| Err(format!("{path}: {why}"));
    for (keyword, rule) in schema.as_object().ok_or("a schema is an object")? {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "$ref" => {
                let pointer = rule.as_str().and_then(|text| text.strip_prefix('#')).ok_or("a local reference")?;
                validate(root.pointer(pointer).ok_or("a known reference")?, root, value, path)?;
            }
            "oneOf" => {
                let results: Vec<_> =
                    rule.as_array().unwrap().iter().map(|schema| validate(schema, root, value, path)).collect();
                if results.iter().filter(|result| result.is_ok()).count() != 1 {
                    return fail(format!("not exactly one of: {results:?}"));
                }
            }
            "type" => {
                let names: Vec<&str> = rule.as_array().map_or_else(
                    || vec![rule.as_str().unwrap()],
                    |list| list.iter().filter_map(Value::as_str).collect(),
                );
                let has_type = |name: &&str| match *name {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    _ => false,
                };
                if !names.iter().any(has_type) {
                    return fail(format!("{value} is none of {names:?}"));
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    return fail(format!("{value} is none of {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) {
                    return fail(format!("{value} is below {rule}"));
                }
            }
            "minItems" => {
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap()) {
                    return fail("too few items".to_owned());
                }
            }
            "pattern" => {
                assert_eq!(rule, "^[FSPWpr.?]*$", "the only pattern");
                if value.as_str().is_some_and(|text| text.chars().any(|letter| !"FSPWpr.?".contains(letter))) {
                    return fail(format!("{value} has other letters"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(rule, root, item, &format!("{path}[{index}]"))?;
                }
            }
            "required" => {
                for name in rule.as_array().unwrap().iter().filter_map(Value::as_str) {
                    if value.as_object().is_some_and(|fields| !fields.contains_key(name)) {
                        return fail(format!("{name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        validate(rule, root, field, &format!("{path}.{name}"))?;
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                for (name, field) in value.as_object().into_iter().flatten() {
                    let is_known = known.is_some_and(|known| known.get(name).is_some());
                    match rule {
                        Value::Bool(false) if !is_known => return fail(format!("{name} is not in the schema")),
                        Value::Object(_) if !is_known => validate(rule, root, field, &format!("{path}.{name}"))?,
                        _ => {}
                    }
                }
            }
            other => return fail(format!("the validator does not know `{other}`")),
        }
    }
    Ok(())
}
