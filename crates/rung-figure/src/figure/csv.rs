//! Comma-separated values as in RFC 4180, with line feeds.
//!
//! Numbers are written in the shortest form that parses to the same number; infinity is `inf`, and a missing number is an empty field.

/// A table under construction.
#[derive(Debug, Clone)]
pub struct Csv {
    text: String,
}

impl Csv {
    /// A table with its header line.
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        let mut csv = Self { text: String::new() };
        csv.row(header.map(str::to_owned));
        csv
    }

    /// Adds a line.
    pub fn row<const N: usize>(&mut self, fields: [String; N]) {
        self.text.push_str(&fields.map(|field| quote(&field)).join(","));
        self.text.push('\n');
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A number as a field; NaN is an empty field.
pub fn field(value: f64) -> String {
    if value.is_nan() { String::new() } else { value.to_string() }
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_need_quotes_get_them() {
        let mut csv = Csv::new(["a", "b"]);
        csv.row(["x, \"y\"".to_owned(), field(0.1)]);
        csv.row([field(f64::INFINITY), field(f64::NAN)]);
        assert_eq!(csv.finish(), "a,b\n\"x, \"\"y\"\"\",0.1\ninf,\n");
    }
}
