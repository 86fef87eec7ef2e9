//! Devices by name.
//!
//! Names are known in every build, so that who asks for a device that is not in the program learns which feature to build it
//! with. The engine's own executor has a name too, `cpu`: it needs no Burn, and programs that offer devices offer it first.

#[cfg(feature = "gpu")]
pub use burn_tensor::Device;
#[cfg(any(feature = "cuda", feature = "rocm"))]
use burn_tensor::DeviceIndex;
#[cfg(feature = "wgpu")]
use burn_tensor::DeviceKind;
#[cfg(feature = "gpu")]
use burn_tensor::DeviceType;

/// The name of the engine's own executor, which is in every build.
pub const NATIVE: &str = "cpu";

/// Burn's devices: the name, the feature that adds it, and whether this build has it.
const KNOWN: &[(&str, &str, bool)] = &[
    ("flex", "gpu", cfg!(feature = "gpu")),
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
    /// It exists, in another build.
    #[error("device {name} is not in this build; expected {built}, or a build with `--features {feature}`")]
    NotBuilt {
        /// The device.
        name: &'static str,
        /// The feature that adds it.
        feature: &'static str,
        /// The devices in this build.
        built: String,
    },
    /// There is none of this name.
    #[error("found device {found:?}, expected {built}{others}")]
    Unknown {
        /// What was asked for.
        found: String,
        /// The devices in this build.
        built: String,
        /// The others, and what they need.
        others: String,
    },
    /// It is in this build, and not in this machine.
    #[error(
        "device {name}: found none on this machine, nor a driver that stands in for one; expected one, or {NATIVE}"
    )]
    Absent {
        /// The device.
        name: String,
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

/// Names of the devices in this build, the native one first.
fn built() -> String {
    let ours = KNOWN.iter().filter(|(.., built)| *built).map(|(name, ..)| *name);
    std::iter::once(NATIVE).chain(ours).collect::<Vec<_>>().join(", ")
}

/// Why this build has no device of that name.
pub fn refusal(name: &str) -> DeviceError {
    let missing: Vec<_> = KNOWN.iter().filter(|(.., built)| !built).collect();
    if let Some(&&(name, feature, _)) = missing.iter().find(|(known, ..)| *known == name) {
        return DeviceError::NotBuilt { name, feature, built: built() };
    }
    let others: Vec<_> =
        missing.iter().map(|(name, feature, _)| format!("{name} with `--features {feature}`")).collect();
    let others = if others.is_empty() { String::new() } else { format!("; other builds have {}", others.join(", ")) };
    DeviceError::Unknown { found: name.to_owned(), built: built(), others }
}

/// Burn's device of a name: the one of its kind that the machine prefers.
///
/// # Errors
/// There is none of this name, or it is not in this build, or not in this machine.
#[cfg(feature = "gpu")]
pub fn named(name: &str) -> Result<Device, DeviceError> {
    let (kind, device) = match name {
        "flex" => (DeviceType::Flex, Device::flex()),
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
        _ => return Err(refusal(name)),
    };
    // Burn would panic at the first tensor on a device that is not there.
    if Device::enumerate(kind).into_vec().is_empty() {
        return Err(DeviceError::Absent { name: name.to_owned() });
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, refusal};

    #[test]
    fn a_name_that_is_not_built_tells_its_feature() {
        for (name, feature, _) in KNOWN.iter().filter(|(.., built)| !built) {
            let text = refusal(name).to_string();
            assert!(text.starts_with(&format!("device {name} is not in this build; expected cpu")), "{text}");
            assert!(text.ends_with(&format!("a build with `--features {feature}`")), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_lists_all() {
        let text = refusal("abacus").to_string();
        assert!(text.starts_with("found device \"abacus\", expected cpu"), "{text}");
        assert!(KNOWN.iter().all(|(name, ..)| text.contains(name)), "{text}");
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn every_build_with_burn_has_its_processor_device() {
        assert!(super::named("flex").is_ok());
        assert_eq!(super::named("abacus").err(), Some(refusal("abacus")));
    }
}
