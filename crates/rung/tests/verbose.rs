//! `-v`, `-vv` and `RUNG_LOG`: silent unless asked, on standard error only.

mod common;

use common::{command, scratch, text};

/// What a construction says on standard error, and on standard output.
fn said(switches: &[&str], variable: &str) -> (String, String) {
    let out = scratch("verbose").join("u1");
    let arguments = ["construct", "U1", "--hops", "1", "--m", "4", "--out", text(&out)];
    let output = command(&[switches, &arguments].concat()).env("RUNG_LOG", variable).output().unwrap();
    [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into()
}

#[test]
fn commands_say_what_they_do_only_if_asked() {
    let (quiet, answer) = said(&[], "");
    assert_eq!(quiet, "");
    for (switches, variable, steps, files) in [
        (&["-v"][..], "", true, false),
        (&["-vv"], "", true, true),
        (&["--verbose"], "off", true, false),
        (&[], "info", true, false),
        (&[], "debug", true, true),
        (&[], "off", false, false),
    ] {
        let (error, output) = said(switches, variable);
        let case = format!("{switches:?} {variable}: {error}");
        assert_eq!(
            (error.contains(" weights: about "), error.contains("model.safetensors: writing ")),
            (steps, files),
            "{case}"
        );
        assert_eq!(output, answer, "{case}");
    }
    let (error, output) = said(&[], "loud");
    assert!(error.contains("RUNG_LOG: found \"loud\", expected off") && output.is_empty(), "{error}");
}
