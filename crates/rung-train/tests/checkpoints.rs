//! A run is resumed only from its own undamaged checkpoint, and weights are read only beside the config they were trained with.

use std::fs;
use std::path::{Path, PathBuf};

use rung_nn::Network;
use rung_nn::network::files::{RUN_CONFIG, RUN_WEIGHTS};
use rung_train::run::directory::{CHECKPOINT_FILE, RECORD_FILE};
use rung_train::run::{Run, RunConfig, execute};

const TEXT: &str = "stack = 'full'\ntask = 'funccomp{hops=1,m=3,queries=2}'\nseed = 1\n[model]\nheads = 1\nhead = 4\n\
                    channel = 'none'\n[train]\nsteps = 12\nbatch = 2\n[evaluate]\nevery = 3\nprompts = 2\nlast = 4\nstop_at = 2.0\n";

fn run() -> Run {
    RunConfig::read(TEXT).and_then(|config| config.resolve()).unwrap()
}

/// A new empty directory.
fn empty_directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rung-checkpoints-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Trains until the fifth step and leaves a checkpoint in the directory.
fn interrupt(directory: &Path) {
    let outcome = execute(&run(), Some(directory), &mut |report| report.step < 5).unwrap();
    assert!(outcome.record.is_none() && directory.join(CHECKPOINT_FILE).exists());
}

/// Resumes as `rung train --resume` does, with the config that is in the directory. Returns the record as JSON.
fn resume(directory: &Path) -> Result<String, String> {
    let text = fs::read_to_string(directory.join(RUN_CONFIG)).unwrap();
    let run = RunConfig::read(&text).and_then(|config| config.resolve()).map_err(|error| error.to_string())?;
    let outcome = execute(&run, Some(directory), &mut |_| true).map_err(|error| error.to_string())?;
    Ok(outcome.record.unwrap().to_json_line())
}

fn replace_in_file(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_checkpoint_is_rejected_after_the_config_was_edited() {
    for (from, to, difference) in [
        ("seed = 1", "seed = 2", "`seed` was 1 and is 2 in run.toml"),
        ("rate = 0.004", "rate = 0.005", "`train.rate` was 0.004 and is 0.005"),
        ("steps = 12", "steps = 13", "`train.steps` was 12 and is 13"),
        ("threads = 1", "threads = 2", "`train.threads` was 1 and is 2"),
        ("m=3", "m=2", "`task` was"),
        ("stack = \"full\"", "stack = \"linear\"", "`stack` was \"full\" and is \"linear\""),
        (
            "[evaluate]",
            "[[curriculum]]\ntask = 'funccomp{hops=1,m=2,queries=2}'\nsteps = 3\n[evaluate]",
            "`curriculum` was nothing",
        ),
    ] {
        let directory = empty_directory("edited");
        interrupt(&directory);
        let config = directory.join(RUN_CONFIG);
        replace_in_file(&config, from, to);
        let before = fs::read(directory.join(CHECKPOINT_FILE)).unwrap();
        let message = resume(&directory).expect_err(to);
        for expected in ["resume.safetensors: belongs to run full-s1-", difference, "delete the checkpoint"] {
            assert!(message.contains(expected), "{to}: {message}");
        }
        assert!(!directory.join(RECORD_FILE).exists() && fs::read(directory.join(CHECKPOINT_FILE)).unwrap() == before);
        fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_run_ends_with_the_record_of_its_config_after_the_config_is_restored_or_the_checkpoint_deleted() {
    let directory = empty_directory("back");
    interrupt(&directory);
    let config = directory.join(RUN_CONFIG);
    replace_in_file(&config, "seed = 1", "seed = 2");
    assert!(resume(&directory).is_err());
    replace_in_file(&config, "seed = 2", "seed = 1");
    let uninterrupted = |seed| {
        let config = RunConfig { seed, ..RunConfig::read(TEXT).unwrap() };
        execute(&config.resolve().unwrap(), None, &mut |_| true).unwrap().record.unwrap().to_json_line()
    };
    assert_eq!(resume(&directory).unwrap(), uninterrupted(1));
    let directory = empty_directory("again");
    interrupt(&directory);
    replace_in_file(&directory.join(RUN_CONFIG), "seed = 1", "seed = 2");
    fs::remove_file(directory.join(CHECKPOINT_FILE)).unwrap();
    assert_eq!(resume(&directory).unwrap(), uninterrupted(2));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_checkpoint_with_a_flipped_bit_is_rejected() {
    let directory = empty_directory("flipped");
    interrupt(&directory);
    let path = directory.join(CHECKPOINT_FILE);
    let bytes = fs::read(&path).unwrap();
    // One bit of every seventh byte of the tensors, then every third bit of the header.
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header_bits = (0..8 * header.min(bytes.len())).step_by(3);
    let tensor_bits = (header..bytes.len()).step_by(7).map(|byte| 8 * byte + byte % 8);
    let mut flips = 0;
    for bit in tensor_bits.chain(header_bits) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        let message = resume(&directory).expect_err("a flipped bit");
        assert!(message.contains("resume.safetensors: ") && message.contains("delete it"), "bit {bit}: {message}");
        flips += 1;
    }
    assert!(flips > 2000, "{flips}");
    fs::write(&path, &bytes).unwrap();
    assert!(resume(&directory).is_ok());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn truncated_checkpoints_and_those_of_earlier_versions_are_rejected() {
    let directory = empty_directory("cut");
    interrupt(&directory);
    let path = directory.join(CHECKPOINT_FILE);
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(41).chain([bytes.len() - 1]) {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(resume(&directory).expect_err("cut off").contains("delete it"), "{length}");
    }
    fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
    assert!(resume(&directory).is_err());
    // The format before checkpoints had checksums: one entry of metadata, `run`.
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let progress =
        r#"{"progress":{"step":0,"stage":0,"stage_began":0,"looks":[],"over":null},"optimizer_steps":5,"seconds":1.0}"#;
    let metadata = std::collections::HashMap::from([("run".to_owned(), progress.to_owned())]);
    fs::write(&path, safetensors::serialize(file.iter(), Some(metadata)).unwrap()).unwrap();
    let message = resume(&directory).expect_err("an earlier version");
    assert!(message.contains("an earlier version of rung") && message.contains("delete it to start"), "{message}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn weights_are_rejected_if_damaged_or_beside_another_config() {
    let directory = empty_directory("weights");
    execute(&run(), Some(&directory), &mut |_| true).unwrap();
    let open = || Network::<f32>::open(&directory).map(|_| ()).map_err(|error| error.to_string());
    open().unwrap();
    let (config, path) = (directory.join(RUN_CONFIG), directory.join(RUN_WEIGHTS));
    replace_in_file(&config, "positions = \"none\"", "positions = \"alibi\"");
    let message = open().unwrap_err();
    assert!(message.contains("weights.safetensors: belongs to another run"), "{message}");
    assert!(message.contains("`model.positions` was \"none\" and is \"alibi\" in run.toml; set it back"), "{message}");
    replace_in_file(&config, "positions = \"alibi\"", "positions = \"none\"");
    let bytes = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    for byte in (header..bytes.len()).step_by(5) {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(open().expect_err("a flipped bit").contains("damaged since it was written"), "byte {byte}");
    }
    // Files of other programs have no checksum and no config.
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    fs::write(&path, safetensors::serialize(file.iter(), None).unwrap()).unwrap();
    open().unwrap();
    fs::remove_dir_all(directory).unwrap();
}
