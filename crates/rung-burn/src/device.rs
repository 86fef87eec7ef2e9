//! Devices by name.
//!
//! A name is that of the feature it is built with, so that a user who asks for a device that is not in the program can be told
//! which one to build.

pub use burn_tensor::Device;
#[cfg(any(feature = "cuda", feature = "rocm"))]
use burn_tensor::DeviceIndex;
#[cfg(feature = "wgpu")]
use burn_tensor::DeviceKind;

/// Every device there could be, whether it is in this build or not, but for `flex`, which always is.
const OPTIONAL: &[&str] = &["cuda", "metal", "rocm", "vulkan", "webgpu", "wgpu"];

/// Those in this build.
const BUILT: &[(&str, fn() -> Device)] = &[
    ("flex", Device::flex),
    #[cfg(feature = "cuda")]
    ("cuda", || Device::cuda(DeviceIndex::Default)),
    #[cfg(feature = "metal")]
    ("metal", || Device::metal(DeviceKind::DefaultDevice)),
    #[cfg(feature = "rocm")]
    ("rocm", || Device::rocm(DeviceIndex::Default)),
    #[cfg(feature = "vulkan")]
    ("vulkan", || Device::vulkan(DeviceKind::DefaultDevice)),
    #[cfg(feature = "webgpu")]
    ("webgpu", || Device::webgpu(DeviceKind::DefaultDevice)),
    #[cfg(feature = "wgpu")]
    ("wgpu", || Device::wgpu(DeviceKind::DefaultDevice)),
];

/// Why a device cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// It exists, in another build.
    #[error("device {name} is not in this build; expected {built}, or a build with the feature `{name}`")]
    NotBuilt {
        /// The device.
        name: String,
        /// Those that are.
        built: String,
    },
    /// There is none of this name.
    #[error("found device {found:?}, expected {built} (and with features of their names {optional})")]
    Unknown {
        /// What was asked for.
        found: String,
        /// Those in this build.
        built: String,
        /// All others.
        optional: String,
    },
    /// It cannot compute with such numbers.
    #[error("device {device} does not compute in {number}; expected a device that does, or single precision")]
    Number {
        /// The device, as Burn calls it.
        device: String,
        /// The type of numbers.
        number: &'static str,
    },
}

/// The device of a name: the first of its kind on this machine. It is not touched before its first tensor.
///
/// # Errors
/// There is none of this name, or it is not in this build.
pub fn named(name: &str) -> Result<Device, DeviceError> {
    if let Some((_, open)) = BUILT.iter().find(|(known, _)| *known == name) {
        return Ok(open());
    }
    let built = BUILT.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = name.to_owned();
    Err(if OPTIONAL.contains(&name) {
        DeviceError::NotBuilt { name: found, built }
    } else {
        DeviceError::Unknown { found, built, optional: OPTIONAL.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::{BUILT, OPTIONAL, named};

    #[test]
    fn a_name_is_a_device_or_a_clear_refusal() {
        assert!(named("flex").is_ok());
        assert!(named("abacus").unwrap_err().to_string().starts_with("found device \"abacus\", expected flex"));
        for name in OPTIONAL.iter().filter(|name| BUILT.iter().all(|(built, _)| built != *name)) {
            assert!(named(name).unwrap_err().to_string().ends_with(&format!("a build with the feature `{name}`")));
        }
    }
}
