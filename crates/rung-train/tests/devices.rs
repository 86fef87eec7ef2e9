//! Training on a device of Burn and on the native engine gives the same losses, and a run may change the device.
//!
//! The tests run on Burn's CPU device. With `--features gpu,rung-burn/wgpu` they also run on the device that Burn finds through wgpu: a
//! GPU, or a driver that emulates one on the CPU. Without either, they print that it is skipped.

use std::path::{Path, PathBuf};

use rung_train::run::device::{DeviceError, check_built};
use rung_train::run::directory::CHECKPOINT_FILE;
use rung_train::run::record::id;
use rung_train::run::{ComputeDevice, ExecuteOptions, Run, RunConfig, RunOutcome, Trainer, execute_with};

/// Steps that are compared.
const STEPS: usize = 50;
/// The largest difference between two losses of the same step, in nats.
const TOLERANCE: f64 = 1e-3;

/// The devices of Burn that are compared with the native engine.
fn burn_devices() -> Vec<ComputeDevice> {
    let mut devices = vec![ComputeDevice::open("cpu").unwrap()];
    if check_built("wgpu").is_ok() {
        match ComputeDevice::open("wgpu") {
            Ok(device) => devices.push(device),
            Err(error @ DeviceError::Absent { .. }) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
    devices
}

/// A small run that never stops early, with more lines of TOML.
fn run(stack: &str, lines: &str) -> Run {
    let text = format!(
        "stack = '{stack}'\ntask = 'funccomp{{hops=2,m=4,n=[2],queries=4,mixed=yes}}'\n\
         model = {{ heads = 2, head = 8, chunk = 8 }}\nevaluate = {{ every = 25, prompts = 8, last = 16, stop_at = 2.0 }}\n\
         [train]\nsteps = {STEPS}\nbatch = 6\nwarmup = 5\n{lines}"
    );
    RunConfig::read(&text).and_then(|config| config.resolve()).unwrap()
}

/// The training loss of every step.
fn losses(run: &Run, device: &ComputeDevice) -> Vec<f64> {
    let mut trainer = Trainer::on_device(run, device).unwrap();
    (0..STEPS).map(|_| trainer.step().unwrap().loss).collect()
}

/// Compares the losses of all steps on every device of Burn with those of the native engine.
fn assert_same_losses(run: &Run) {
    let (native, stack) = (losses(run, &ComputeDevice::Native), &run.config.stack);
    assert!(native[STEPS - 1] < native[0] - 0.1, "{stack} learned nothing: {native:?}");
    for device in burn_devices() {
        let mut largest = 0.0_f64;
        for (step, (loss, expected)) in losses(run, &device).iter().zip(&native).enumerate() {
            let difference = (loss - expected).abs();
            assert!(difference < TOLERANCE, "{stack} on {}, step {step}: {loss}, expected {expected}", device.name());
            largest = largest.max(difference);
        }
        let (first, last, name) = (native[0], native[STEPS - 1], device.name());
        println!("{stack} on {name}: largest difference {largest:.1e} of losses {first:.4} to {last:.4}");
    }
}

#[test]
fn fifty_steps_of_full_attention_agree() {
    assert_same_losses(&run("full full", ""));
}

#[test]
fn fifty_steps_of_linear_attention_agree() {
    assert_same_losses(&run("linear full", ""));
}

#[test]
fn fifty_steps_of_gated_deltanet_agree() {
    assert_same_losses(&run("gdn full", ""));
}

#[test]
fn fifty_steps_of_rwkv7_and_mamba2_agree() {
    assert_same_losses(&run("rwkv7 mamba2 full", ""));
}

#[test]
fn fifty_steps_with_auxiliary_loss_clipping_and_repulsion_agree() {
    let lines = "auxiliary = 0.5\nclip = 0.3\ncourse = 'linear'\n[train.repulsion]\nstrength = 1.0\n";
    assert_same_losses(&run("gated full full", lines));
}

/// A directory that does not exist yet.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rung-devices-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// Executes a run in a directory up to a step, on a device.
fn execute_until(run: &Run, directory: &Path, device: &ComputeDevice, last_step: usize) -> RunOutcome {
    let options = ExecuteOptions { device: device.clone(), ..ExecuteOptions::default() };
    execute_with(run, Some(directory), &options, &mut |report| report.step < last_step).unwrap()
}

/// Executes a run in three processes' worth of steps, on these devices.
fn execute_on(run: &Run, name: &str, devices: [&ComputeDevice; 3]) -> rung_train::run::RunRecord {
    let directory = directory(name);
    for (device, last_step) in devices.into_iter().zip([15, 35]) {
        assert!(execute_until(run, &directory, device, last_step).record.is_none());
        assert!(directory.join(CHECKPOINT_FILE).exists());
    }
    let outcome = execute_until(run, &directory, devices[2], usize::MAX);
    // A recorded run is finished on every device.
    let again = execute_until(run, &directory, &ComputeDevice::Native, usize::MAX);
    assert!(again.already_recorded && again.record == outcome.record);
    std::fs::remove_dir_all(&directory).unwrap();
    outcome.record.unwrap()
}

#[test]
fn checkpoints_of_one_device_resume_on_another() {
    let (run, native) = (run("gdn full", ""), ComputeDevice::Native);
    let expected = execute_on(&run, "native", [&native; 3]);
    assert_eq!((expected.device.as_str(), expected.device_steps.len()), ("native", 0));
    assert!(!expected.to_json_line().contains("device"), "records of the native engine are as before");
    for burn in burn_devices() {
        for (name, devices, steps) in [
            ("to-burn-and-back", [&native, &burn, &native], 20),
            ("to-native-and-back", [&burn, &native, &burn], 30),
            ("burn", [&burn; 3], STEPS),
        ] {
            let record = execute_on(&run, name, devices);
            assert_eq!((record.id.as_str(), record.steps), (id(&run).as_str(), STEPS));
            assert_eq!(record.device, devices[2].name(), "{name}");
            assert_eq!(record.device_steps.get(burn.name()), Some(&steps), "{name}");
            let losses = record.evaluations.iter().map(|evaluation| evaluation.loss).chain([record.loss]);
            let expected = expected.evaluations.iter().map(|evaluation| evaluation.loss).chain([expected.loss]);
            for (loss, expected) in losses.zip(expected) {
                assert!((loss - expected).abs() < TOLERANCE, "{name}, {}: {loss}, expected {expected}", burn.name());
            }
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_is_an_error() {
    let run = run("full", "rate = 100.0\ndecay = 100.0\n");
    for device in burn_devices() {
        let mut trainer = Trainer::on_device(&run, &device).unwrap();
        let error = (0..STEPS).find_map(|_| trainer.step().err().map(|error| error.to_string()));
        assert!(error.as_ref().is_some_and(|error| error.contains("the model")), "{}: {error:?}", device.name());
    }
}
