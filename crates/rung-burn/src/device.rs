//! Devices by name.
//!
//! Every build knows all names, so that the error for a device that is not in the build can name the feature that adds it. The
//! engine's native executor has a name too, `native`; it does not need Burn.

#[cfg(feature = "gpu")]
pub use burn_tensor::Device;
#[cfg(any(feature = "cuda", feature = "rocm"))]
use burn_tensor::DeviceIndex;
#[cfg(feature = "wgpu")]
use burn_tensor::DeviceKind;
#[cfg(feature = "gpu")]
use burn_tensor::DeviceType;

/// The name of the engine's native executor, which is in every build.
pub const NATIVE: &str = "native";

/// Burn's devices: name, feature that adds the device, and whether this build has it.
const DEVICES: &[(&str, &str, bool)] = &[
    ("cpu", "gpu", cfg!(feature = "gpu")),
    ("cuda", "cuda", cfg!(feature = "cuda")),
    ("metal", "metal", cfg!(feature = "metal")),
    ("rocm", "rocm", cfg!(feature = "rocm")),
    ("vulkan", "vulkan", cfg!(feature = "vulkan")),
    ("webgpu", "webgpu", cfg!(feature = "webgpu")),
    ("wgpu", "wgpu", cfg!(feature = "wgpu")),
];

/// Why a device cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Another build has the device.
    #[error("device {name} is not in this build; expected {built}, or a build with `--features {feature}`")]
    NotBuilt {
        /// Name of the device.
        name: &'static str,
        /// The feature that adds the device.
        feature: &'static str,
        /// The devices in this build.
        built: String,
    },
    /// No build has a device of this name.
    #[error("found device {found:?}, expected {built}{others}")]
    Unknown {
        /// The requested name.
        found: String,
        /// The devices in this build.
        built: String,
        /// The devices of other builds, with their features.
        others: String,
    },
    /// The device is in this build, but not in this machine.
    #[error(
        "device {name}: found none on this machine, nor a driver that stands in for one; expected one, or {NATIVE}"
    )]
    Absent {
        /// Name of the device.
        name: String,
    },
    /// The device does not support the number type.
    #[error("device {device} does not compute in {number}; expected a device that does, or single precision")]
    Number {
        /// The device, as Burn calls it.
        device: String,
        /// The number type, such as `f64`.
        number: &'static str,
    },
}

/// Names of the devices in this build, the native executor first.
fn built_names() -> String {
    let burn_names = DEVICES.iter().filter(|(.., built)| *built).map(|(name, ..)| *name);
    std::iter::once(NATIVE).chain(burn_names).collect::<Vec<_>>().join(", ")
}

/// The error for a name that this build has no device for.
pub fn unavailable(name: &str) -> DeviceError {
    let missing: Vec<_> = DEVICES.iter().filter(|(.., built)| !built).collect();
    if let Some(&&(name, feature, _)) = missing.iter().find(|(known, ..)| *known == name) {
        return DeviceError::NotBuilt { name, feature, built: built_names() };
    }
    let others: Vec<_> =
        missing.iter().map(|(name, feature, _)| format!("{name} with `--features {feature}`")).collect();
    let others = if others.is_empty() { String::new() } else { format!("; other builds have {}", others.join(", ")) };
    DeviceError::Unknown { found: name.to_owned(), built: built_names(), others }
}

/// Rejects a name that this build has no device for, without looking for the device: a sweep may be submitted from a machine that has no GPU.
///
/// # Errors
/// No device has this name, or it is not in this build.
pub fn check_built(name: &str) -> Result<(), DeviceError> {
    let is_built = name == NATIVE || DEVICES.iter().any(|&(known, _, built)| built && known == name);
    if is_built { Ok(()) } else { Err(unavailable(name)) }
}

/// Opens Burn's default device of this name.
///
/// # Errors
/// No device has this name, or it is not in this build, or not in this machine.
#[cfg(feature = "gpu")]
pub fn open(name: &str) -> Result<Device, DeviceError> {
    let (kind, device) = match name {
        // Burn calls it `flex`.
        "cpu" => (DeviceType::Flex, Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => (DeviceType::Cuda, Device::cuda(DeviceIndex::Default)),
        #[cfg(feature = "metal")]
        "metal" => (DeviceType::Metal, Device::metal(DeviceKind::DefaultDevice)),
        #[cfg(feature = "rocm")]
        "rocm" => (DeviceType::Rocm, Device::rocm(DeviceIndex::Default)),
        #[cfg(feature = "vulkan")]
        "vulkan" => (DeviceType::Vulkan, Device::vulkan(DeviceKind::DefaultDevice)),
        #[cfg(feature = "webgpu")]
        "webgpu" => (DeviceType::WebGpu, Device::webgpu(DeviceKind::DefaultDevice)),
        #[cfg(feature = "wgpu")]
        "wgpu" => (DeviceType::Wgpu, Device::wgpu(DeviceKind::DefaultDevice)),
        _ => return Err(unavailable(name)),
    };
    // Burn would panic at the first tensor on a device that does not exist.
    if Device::enumerate(kind).into_vec().is_empty() {
        return Err(DeviceError::Absent { name: name.to_owned() });
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::{DEVICES, NATIVE, check_built, unavailable};

    #[test]
    fn the_error_for_a_device_of_another_build_names_its_feature() {
        for (name, feature, _) in DEVICES.iter().filter(|(.., built)| !built) {
            let text = unavailable(name).to_string();
            assert!(text.starts_with(&format!("device {name} is not in this build; expected native")), "{text}");
            assert!(text.ends_with(&format!("a build with `--features {feature}`")), "{text}");
        }
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_all_devices() {
        let text = unavailable("abacus").to_string();
        assert!(text.starts_with("found device \"abacus\", expected native"), "{text}");
        assert!(DEVICES.iter().all(|(name, ..)| text.contains(name)), "{text}");
    }

    #[test]
    fn names_are_checked_without_opening_the_device() {
        for &(name, _, built) in DEVICES {
            assert_eq!(check_built(name).is_ok(), built, "{name}");
        }
        assert!(check_built(NATIVE).is_ok() && check_built("abacus").is_err());
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn every_build_with_burn_has_its_cpu_device() {
        assert!(super::open("cpu").is_ok());
        assert_eq!(super::open("abacus").err(), Some(unavailable("abacus")));
    }
}
