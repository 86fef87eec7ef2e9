//! The log of `-v`, `-vv` and `RUNG_LOG`: off by default, and on standard error only.

mod common;

use common::{command, path_str, scratch_directory};

/// Standard error and standard output of `rung construct`.
fn construct_output(switches: &[&str], variable: &str) -> (String, String) {
    let out = scratch_directory("verbose").join("u1");
    let arguments = ["construct", "U1", "--hops", "1", "--m", "4", "--out", path_str(&out)];
    let output = command(&[switches, &arguments].concat()).env("RUNG_LOG", variable).output().unwrap();
    [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into()
}

#[test]
fn commands_log_only_with_the_option_or_the_variable() {
    let (log, answer) = construct_output(&[], "");
    assert_eq!(log, "");
    for (switches, variable, steps, files) in [
        (&["-v"][..], "", true, false),
        (&["-vv"], "", true, true),
        (&["--verbose"], "off", true, false),
        (&[], "info", true, false),
        (&[], "debug", true, true),
        (&[], "off", false, false),
    ] {
        let (error, output) = construct_output(switches, variable);
        let case = format!("{switches:?} {variable}: {error}");
        assert_eq!(
            (error.contains(" weights: about "), error.contains("model.safetensors: writing ")),
            (steps, files),
            "{case}"
        );
        assert_eq!(output, answer, "{case}");
    }
    let (error, output) = construct_output(&[], "loud");
    assert!(error.contains("RUNG_LOG: found \"loud\", expected off") && output.is_empty(), "{error}");
}
