//! `rung --help`: the commands in groups, and a few examples.

use std::fmt::Write as _;

/// Every command, in the order in which help shows them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Read a model", &["audit", "lint", "place", "plan", "model", "logits", "generate"]),
    ("Prove", &["capacity", "bound", "decide", "check", "map", "sparse"]),
    ("Build", &["construct", "verify", "export"]),
    ("Train", &["task", "train", "eval", "sweep", "runs", "serve"]),
    ("Inspect", &["trace", "protocol", "analyze", "convert", "falsify", "witness"]),
    ("Report", &["reproduce", "ask", "bench", "zoo", "explain"]),
];

const EXAMPLES: &str = "\
Examples:
  rung audit qwen3.5-9b
  rung capacity \"(gdn*3 full)*12\"
  rung bound \"linear*3 full linear*3\" --hops 2 --out certificate.json
  rung construct U2 --hops 2 --m 3 --n 2 --mixer gdn --out u2
  rung train --stack \"gdn full\" --task 'funccomp{hops=1,m=16,queries=32}'
  rung reproduce --preset smoke

Every command takes --help and --json. Layers are numbered from 0.
Not yet tested on a GPU: `--device` of train, sweep and eval chooses one, in builds that have it.
";

/// The help text of the program, with its commands in groups.
pub fn program_help(program: &clap::Command) -> String {
    let about = program.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{about}\n\nUsage: rung <COMMAND>\n");
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}:\n");
        for command in names.iter().filter_map(|name| program.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:<10} {}", command.get_name(), about.trim_end_matches('.'));
        }
    }
    let _ = write!(text, "\nOptions:\n  -h, --help     Print help\n  -V, --version  Print version\n\n{EXAMPLES}");
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_has_a_short_description() {
        let program = crate::Arguments::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut names: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        names.sort_unstable();
        assert_eq!(grouped, names);
        for command in program.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((10..=70).contains(&about.len()), "{}: {about}", command.get_name());
        }
    }
}
