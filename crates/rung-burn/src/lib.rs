//! The operations of the engine on Burn.
//!
//! Models are written once, against `rung_engine::Ops`. The engine's native executor runs them on this machine's CPU. The executor of
//! this crate maps the same primitives to [Burn](https://burn.dev), whose devices are GPUs: CUDA, `ROCm`, Metal, Vulkan and WebGPU.
//! Fused operations are composed of primitives, so a new mixer runs on Burn without further code.
//!
//! It is also an independent reference. Burn's products, sums and gradients share no code with the native kernels, and the tests of
//! this crate check that both compute the same loss and the same gradient for every mixer.
//!
//! Everything but the names of devices is behind the feature `gpu`, because Burn is a large dependency that the native executor does
//! not need. That feature alone has Burn's CPU device, `cpu` (Burn calls it `flex`), on which the tests run; the features `cuda`, `rocm`, `metal`,
//! `vulkan`, `webgpu` and `wgpu` add the device of their name. **Not yet tested on a GPU**, only on a Vulkan driver that
//! computes on the CPU. Single precision works on every device, double precision where the device has it.
//!
//! ```
//! use rung_burn::device::{NATIVE, unavailable};
//!
//! // Every build knows every name, and says which feature a device needs.
//! assert_eq!(NATIVE, "native");
//! assert!(unavailable("tpu").to_string().starts_with("found device \"tpu\", expected"));
//! # #[cfg(not(feature = "cuda"))]
//! assert!(unavailable("cuda").to_string().ends_with("or a build with `--features cuda`"));
//! # #[cfg(feature = "gpu")]
//! rung_burn::device::open("cpu")?; // with `--features gpu`: Burn's CPU device
//! # Ok::<(), rung_burn::DeviceError>(())
//! ```

pub mod device;
#[cfg(feature = "gpu")]
mod executor;

pub use device::DeviceError;
#[cfg(feature = "gpu")]
pub use executor::{Burn, Number, Tensor};
