//! The operations of the engine on Burn.
//!
//! Models are written once, against `rung_engine::Ops`. The engine's own executor runs them on
//! this machine's cores. The one here gives the same primitives to [Burn](https://burn.dev), whose devices are GPUs:
//! CUDA, `ROCm`, Metal, Vulkan and WebGPU. Fused operations keep the bodies that are composed of primitives, so nothing is
//! written twice, and a new mixer runs there as soon as it runs anywhere.
//!
//! It is also a second opinion. Burn's products, its sums and its gradients share no line with the native ones: that both find
//! the same loss and the same gradient for every mixer is what the tests of this crate say.
//!
//! All but the names of devices is behind the feature `gpu`, because Burn is a large dependency and the native executor needs
//! none of it. That feature alone has Burn's CPU device, `flex`, which is what the tests run on; features `cuda`, `rocm`,
//! `metal`, `vulkan`, `webgpu` and `wgpu` add the device of their name. **Not yet tested on a GPU**, only on a Vulkan driver that
//! computes on the CPU. Single precision works on every device, double precision where the device has it.
//!
//! ```
//! use rung_burn::device::{NATIVE, refusal};
//!
//! // Every build knows every name, and says which feature a device needs.
//! assert_eq!(NATIVE, "cpu");
//! assert!(refusal("tpu").to_string().starts_with("found device \"tpu\", expected"));
//! # #[cfg(not(feature = "cuda"))]
//! assert!(refusal("cuda").to_string().ends_with("or a build with `--features cuda`"));
//! # #[cfg(feature = "gpu")]
//! rung_burn::device::named("flex")?; // with `--features gpu`: Burn's CPU device
//! # Ok::<(), rung_burn::DeviceError>(())
//! ```

pub mod device;
#[cfg(feature = "gpu")]
mod executor;

pub use device::DeviceError;
#[cfg(feature = "gpu")]
pub use executor::{Burn, Number, Tensor};
