//! Functions that are compiled three times, for three instruction sets.
//!
//! `vectorised! { fn name<S>(arguments) { body } }` defines a generic function whose body is compiled for AVX-512, for AVX2 with
//! fused multiply-add and for the baseline of the target. A call runs the version for the widest vectors that the machine has.
//! The body must consist of loops and calls of `#[inline(always)]` functions: only inlined code is compiled for wider vectors.

/// Instruction sets that kernels are compiled for, widest vectors first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstructionSet {
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
    /// Whether vectors have 64 bytes.
    pub(crate) fn is_avx512(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Self::Avx512;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// The widest instruction set of this machine. The standard library caches the detection.
#[inline]
pub(crate) fn instruction_set() -> InstructionSet {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("fma")
        {
            return InstructionSet::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return InstructionSet::Avx2;
        }
    }
    InstructionSet::Baseline
}

/// The vector instructions that kernels use on this machine: `avx512`, `avx2` or `none`. Results differ in rounding between them.
pub fn vector_instructions() -> &'static str {
    match instruction_set() {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => "avx512",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => "avx2",
        InstructionSet::Baseline => "none",
    }
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
                    $crate::kernels::vectorised::InstructionSet::Avx512 => {
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
