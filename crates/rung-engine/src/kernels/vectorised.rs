//! Functions that are compiled three times, for three instruction sets.
//!
//! `vectorised! { fn name<S>(arguments) { body } }` defines a generic function whose body is compiled for AVX-512, for AVX2 with
//! fused multiply-add and for the baseline of the target. A call runs the version for the widest vectors that the machine has.
//! The body must consist of loops and calls of `#[inline(always)]` functions: only inlined code is compiled for wider vectors.

use std::sync::OnceLock;

/// Instruction sets that kernels are compiled for, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    /// AVX-512, and AMX for large matrix products.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// AVX-512 with its extensions F, VL, DQ and BW.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The instructions that every machine of the target has.
    Baseline,
}

impl InstructionSet {
    /// All of them, fastest first.
    const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Amx,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        Self::Baseline,
    ];

    /// Whether vectors have 64 bytes.
    pub(crate) fn is_avx512(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self, Self::Amx | Self::Avx512);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The name in records and in `RUNG_INSTRUCTIONS`.
    const fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => "amx",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            Self::Baseline => "none",
        }
    }

    /// Whether this machine has it.
    fn is_detected(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => Self::Avx512.is_detected() && has_amx(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && Self::Avx2.is_detected()
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Baseline => true,
        }
    }
}

/// Whether the processor has AMX with bf16, and the system lets this process use its registers.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_amx() -> bool {
    /// Bits of `edx` of CPUID leaf 7: AMX-BF16 and AMX-TILE.
    const AMX_BITS: u32 = 1 << 22 | 1 << 24;
    /// The request of `arch_prctl` for the use of a part of the processor's state, and AMX's tile registers.
    const REQUEST_PERMISSION: libc::c_long = 0x1023;
    const TILE_REGISTERS: libc::c_long = 18;
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the call takes two numbers and touches no memory.
    let permit = || unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_REGISTERS) == 0 };
    features & AMX_BITS == AMX_BITS && permit()
}

/// Other systems have other ways to ask for AMX's registers, which are not used yet.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn has_amx() -> bool {
    false
}

/// The fastest instruction set of this machine, or that of `RUNG_INSTRUCTIONS` if it is slower. Detected once.
#[inline]
pub(crate) fn instruction_set() -> InstructionSet {
    static DETECTED: OnceLock<InstructionSet> = OnceLock::new();
    *DETECTED.get_or_init(|| {
        let limit = std::env::var("RUNG_INSTRUCTIONS").ok();
        let first = InstructionSet::ALL.iter().position(|set| limit.as_deref() == Some(set.name())).unwrap_or(0);
        let allowed = &InstructionSet::ALL[first..];
        allowed.iter().copied().find(|set| set.is_detected()).unwrap_or(InstructionSet::Baseline)
    })
}

/// The instructions that kernels use on this machine: `amx` (with `avx512`), `avx512`, `avx2` or `none`. Results differ in rounding
/// between them. The environment variable `RUNG_INSTRUCTIONS` selects slower ones.
pub fn vector_instructions() -> &'static str {
    instruction_set().name()
}

macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident<$scalar:ident $(, const $size:ident: usize)?>
        ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes its slices and extents one by one")]
        $vis fn $name<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn with_avx512<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
                    body::<$scalar $(, $size)?>($($argument),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
                    body::<$scalar $(, $size)?>($($argument),*)
                }
                #[expect(unsafe_code, reason = "the function uses instructions that the target does not guarantee")]
                match $crate::kernels::vectorised::instruction_set() {
                    // SAFETY: `instruction_set` detected every feature that the function is compiled with.
                    $crate::kernels::vectorised::InstructionSet::Amx
                    | $crate::kernels::vectorised::InstructionSet::Avx512 => {
                        return unsafe { with_avx512::<$scalar $(, $size)?>($($argument),*) };
                    }
                    // SAFETY: as above.
                    $crate::kernels::vectorised::InstructionSet::Avx2 => {
                        return unsafe { with_avx2::<$scalar $(, $size)?>($($argument),*) };
                    }
                    $crate::kernels::vectorised::InstructionSet::Baseline => {}
                }
            }
            body::<$scalar $(, $size)?>($($argument),*)
        }
    )*};
}
