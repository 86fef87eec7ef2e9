//! `--device`: the device on which a model runs.
//!
//! `native` is the native engine. All other devices are those of Burn, which is part of the program only with the feature `gpu`.

use anyhow::Context as _;
use rung_train::run::ComputeDevice;
use rung_train::run::device::{NATIVE, check_built};

/// The device of a command.
#[derive(Debug, clap::Args)]
pub struct DeviceOption {
    /// Device to run on: `native` is the native engine on the CPU. Builds with the feature of that name have cuda, rocm, metal, vulkan,
    /// webgpu or wgpu; those and builds with the feature gpu have `cpu`, Burn's CPU device. Not yet tested on a GPU.
    #[arg(long = "device", value_name = "NAME", default_value = NATIVE)]
    name: String,
}

impl DeviceOption {
    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the native engine.
    pub fn is_native(&self) -> bool {
        self.name == NATIVE
    }

    /// Opens the device.
    ///
    /// # Errors
    /// The device does not exist, or this build does not have it.
    pub fn open(&self) -> anyhow::Result<ComputeDevice> {
        ComputeDevice::open(&self.name).context("--device")
    }

    /// Checks the name without opening the device.
    ///
    /// # Errors
    /// There is no device of this name, or this build does not have it.
    pub fn check(&self) -> anyhow::Result<()> {
        check_built(&self.name).context("--device")
    }
}
